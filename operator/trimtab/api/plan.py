"""The plan: what every planner returns, what ``trimtab plan`` prints, and what the executor carries out.

A plan is a document of values (``trimtab.dev/v1alpha1`` ``Plan``). It is deterministic: the same cluster, policies and
``now`` give the same bytes, so planners append in an order that depends on names only.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Literal

import msgspec
from msgspec import Struct

from trimtab.api.node_removal import RemoveNode
from trimtab.api.node_taint import NodeTainting
from trimtab.api.pod_deletion import Delete
from trimtab.kube.clock import calendar_time

How = Literal["Evict", "Surge"]

SURGE: Final = "Surge"
"""The pod is not evicted; its Deployment is restarted by a rollout, which makes the new pod before the old one goes."""


class Evict(Struct, frozen=True, gc=False, rename="camel", tag_field="action", tag="Evict", omit_defaults=True):
    """Evict this pod from ``node``; it fits on ``target``, where its place has been reserved in the plan.

    ``target`` is ``node`` itself where the pod is to start anew and no other node is better. It is empty where the pod
    has run to its end: such a pod holds no place, needs none, and is only removed.
    ``uid`` is the precondition: a later pod of the same name is never hit. ``owner`` is ``Kind/name`` of the
    controller in the pod's namespace; limits and spacing count by it. ``how`` is left out but for :data:`SURGE`.
    """

    policy: str
    strategy: str
    namespace: str
    pod: str
    node: str
    target: str
    reason: str
    message: str
    uid: str = ""
    owner: str = ""
    how: How = "Evict"

    @property
    def deployment(self) -> str:
        """The name of the Deployment that a surge restarts: its ReplicaSet's, less the template's hash."""
        return self.owner.partition("/")[2].rpartition("-")[0]

    @property
    def key(self) -> str:
        """``namespace/pod``."""
        return f"{self.namespace}/{self.pod}"


class ScaleUp(Struct, frozen=True, gc=False, rename="camel", tag_field="action", tag="ScaleUp", omit_defaults=True):
    """Raise a group of machines from ``from`` to ``to`` for pods that find no place.

    ``machine_set`` is ``namespace/name`` of the object that holds the number, whatever its kind; ``group`` is the id
    that tells kinds and APIs apart. ``pods`` are those that wait and that the new nodes are for, ``namespace/name``,
    sorted; none where the nodes take the place of others.
    """

    machine_set: str
    from_: int = msgspec.field(name="from")
    to: int
    reason: str
    pods: tuple[str, ...]
    message: str
    group: str = ""


Scaling = ScaleUp | RemoveNode
"""What is done to groups of nodes."""

Action = Evict | Scaling | NodeTainting | Delete
"""Every action there is; a tagged union by ``action`` as further features bring theirs."""


class Kept(Struct, frozen=True, gc=False, omit_defaults=True):
    """A candidate that was considered and left where it is, with the reason code.

    ``pod`` is the pod that keeps a node, ``namespace/name``; it is left out where no single one does.
    """

    kind: str
    namespace: str
    name: str
    strategy: str
    reason: str
    message: str
    policy: str = ""
    node: str = ""
    pod: str = ""


class Plan(Struct, frozen=True):
    """Actions in the order of execution, what was kept and why, and counts of both.

    Attributes:
        now: seconds since the epoch that the plan was made for.
        actions: which pods to evict, in order.
        kept: what was considered and left, in the order of judgement.
        scaling: which groups of nodes to grow, by their ids, then which nodes to remove, in order; ``None`` where
            nothing autoscales. They come first: what they reserve is not promised again.
        deletions: pods whose time on a tainted node is limited, the first to go first; ``None`` where nothing manages
            taints. They come last: when they go is no choice of the plan.
        taints: what is put on nodes and taken off them, by node; ``None`` where kube-controller-manager sees to that.
            They come before the deletions, which they bring about and call off.
    """

    now: float
    actions: tuple[Evict, ...] = ()
    kept: tuple[Kept, ...] = ()
    scaling: tuple[Scaling, ...] | None = None
    deletions: tuple[Delete, ...] | None = None
    taints: tuple[NodeTainting, ...] | None = None

    @property
    def every_action(self) -> tuple[Action, ...]:
        """All actions, in order."""
        return (*(self.scaling or ()), *self.actions, *(self.taints or ()), *(self.deletions or ()))

    def document(self) -> dict[str, object]:
        """The plan as ``trimtab plan -o json`` prints it, ready for JSON or YAML."""
        return {
            "apiVersion": "trimtab.dev/v1alpha1",
            "kind": "Plan",
            "now": rfc3339(self.now),
            "actions": [msgspec.to_builtins(action) for action in self.every_action],
            "kept": [msgspec.to_builtins(kept) for kept in self.kept],
            "summary": self.summary(),
        }

    def summary(self) -> dict[str, int]:
        """How many actions there are of each kind, and how many candidates were kept."""
        counts: Counter[str] = Counter({"Evict": 0})  # told also where it is none, so that a script can ask for it
        if self.scaling is not None:
            counts.update({"ScaleUp": 0, "RemoveNode": 0})
        if self.deletions is not None:
            counts["Delete"] = 0
        if self.taints is not None:
            counts.update({"Taint": 0, "Untaint": 0})
        counts.update(str(action.__struct_config__.tag) for action in self.every_action)
        return {**dict(sorted(counts.items())), "kept": len(self.kept)}


def rfc3339(moment: float) -> str:
    """Seconds since the epoch as RFC 3339 in UTC, to the second as Kubernetes prints times."""
    return calendar_time(int(moment)).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"
