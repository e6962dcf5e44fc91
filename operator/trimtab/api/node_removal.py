"""RemoveNode: the action that takes a node out of the cluster, with the places that its pods have elsewhere."""

from __future__ import annotations

from msgspec import Struct


class PodMove(Struct, frozen=True, gc=False):
    """A pod of a node that is removed, ``namespace/name``, and the node where its place has been reserved."""

    pod: str
    target: str


class RemoveNode(
    Struct, frozen=True, gc=False, rename="camel", tag_field="action", tag="RemoveNode", omit_defaults=True
):
    """Drain this node and have its machine deleted.

    ``machine_set`` is ``namespace/name`` of the object that holds the group's size, whatever its kind; ``group`` is the
    id that tells kinds and APIs apart, ``machine`` the Machine to mark, ``namespace/name`` (empty of pools that show
    none). ``uid`` is the node's: a later node of the same name is never hit. ``moves`` are in the order in which the
    places were found; pods of DaemonSets, static pods and those that have ended are not in it.
    """

    node: str
    machine_set: str
    reason: str
    moves: tuple[PodMove, ...]
    message: str
    group: str = ""
    machine: str = ""
    uid: str = ""
