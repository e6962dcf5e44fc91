"""What trimtab reports in the ClusterAutoscaler's status.

Everything in it is bounded, since it is read whole and stored whole on every write; what is cut is counted. It is also
what a new process reads to go on where the last one ended: since when nodes are unneeded, how long groups are left
alone after failures.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from msgspec import Meta, field

from trimtab.api.base import NaturalInt, ShortText, Status, bounded, doc
from trimtab.api.conditions import Condition
from trimtab.api.descheduler_status import ObjectName, Reason, list_map

MAX_GROUPS: Final = 500
MAX_NODES: Final = 200
MAX_UNNEEDED: Final = 500
MAX_REASONS: Final = 64
MAX_PENDING: Final = 50
MAX_REMOVING: Final = 100
MAX_INCREASES: Final = 8
MAX_BOOTS: Final = 16
MAX_TROUBLED: Final = 16
MAX_REPLACEMENTS: Final = 4
MAX_REPLACED: Final = 20

_ATOMIC: Final[dict[str, Any]] = {"x-kubernetes-list-type": "atomic"}
"""Of lists that are written whole: of others the API server would keep who wrote which field of which item."""
GroupId = Annotated[str, Meta(min_length=1, max_length=600)]


class LastError(Status, frozen=True):
    """What last went wrong with a group."""

    time: Annotated[datetime, doc("When.")]
    reason: Annotated[Reason, doc("The reason's code, or that of the machine's API.")]
    message: Annotated[ShortText, doc("The same in words.")] = ""


class Increase(Status, frozen=True):
    """One of several increases of a group whose nodes are not all there."""

    from_: Annotated[NaturalInt, doc("The group's size before.")] = field(name="from")
    to: Annotated[NaturalInt, doc("The size that was asked for.")]
    since: Annotated[datetime, doc("When they were asked for.")]
    deadline: Annotated[datetime, doc("When they are given up, and the pods that wait for them planned anew.")]
    doubt: Annotated[bool, doc("Whether no answer came, so that only the group's size can tell.")] = False


class OpenScaleUp(Status, frozen=True):
    """Nodes that were asked for and are not all there."""

    from_: Annotated[NaturalInt, doc("The group's size before.")] = field(name="from")
    to: Annotated[NaturalInt, doc("The size that was asked for.")]
    since: Annotated[datetime, doc("When the first of them were asked for.")]
    deadline: Annotated[datetime, doc("When the first of them are given up, and their pods planned anew.")]
    doubt: Annotated[bool, doc("Whether no answer came, so that only the group's size can tell.")] = False
    increases: Annotated[
        tuple[Increase, ...],
        bounded(
            "The increases it is made of, each with its own deadline; empty of one.", limit=MAX_INCREASES, **_ATOMIC
        ),
    ] = ()


class NodeGroupStatus(Status, frozen=True):
    """A group of nodes."""

    id: Annotated[GroupId, doc("Which group: Kind/namespace/name.")]
    min_size: Annotated[NaturalInt, doc("The fewest nodes that scaling down leaves.")] = 0
    max_size: Annotated[NaturalInt, doc("The most nodes that scaling up asks for.")] = 0
    target: Annotated[NaturalInt, doc("The size that is asked for at present.")] = 0
    ready: Annotated[NaturalInt, doc("Nodes that are ready.")] = 0
    unready: Annotated[NaturalInt, doc("Nodes that are there and not ready.")] = 0
    upcoming: Annotated[NaturalInt, doc("Nodes that are asked for and not there yet.")] = 0
    failed: Annotated[NaturalInt, doc("Machines that failed.")] = 0
    deleting: Annotated[NaturalInt, doc("Machines that are being deleted.")] = 0
    unneeded: Annotated[NaturalInt, doc("Nodes that nobody needs at present.")] = 0
    autoscaler: Annotated[str, bounded("The MachineAutoscaler whose limits it has, namespace/name.", limit=317)] = ""
    paused: Annotated[ShortText, doc("Why the group is not scaled; empty where it is.")] = ""
    backoff_until: Annotated[datetime | None, doc("Until when nothing is added to it, since that failed.")] = None
    failures: Annotated[NaturalInt, doc("How often in a row adding nodes failed.")] = 0
    last_error: Annotated[LastError | None, doc("What last went wrong.")] = None
    boots: Annotated[
        tuple[Annotated[float, Meta(ge=0)], ...],
        bounded(
            "How long the slowest node of each of its last scale-ups took to be ready, in seconds, the newest last.",
            limit=MAX_BOOTS,
            **_ATOMIC,
        ),
    ] = ()
    given_up: Annotated[NaturalInt, doc("How much of the target nobody waits for any more: nodes that never came.")] = 0
    troubled: Annotated[
        tuple[ObjectName, ...],
        bounded("Machines that failed, or never became nodes, and count as failures.", limit=MAX_TROUBLED, **_ATOMIC),
    ] = ()
    unhealthy: Annotated[ShortText, doc("Why the group is not well enough to be scaled; empty where it is.")] = ""
    scale_up: Annotated[OpenScaleUp | None, doc("Nodes that were asked for and are not all there.")] = None


class KeptNode(Status, frozen=True):
    """Why a node is not removed."""

    name: Annotated[ObjectName, doc("The node.")]
    reason: Annotated[Reason, doc("Why it stays: the reason's code.")]
    group: Annotated[str, Meta(max_length=600), doc("Its group.")] = ""
    message: Annotated[ShortText, doc("Why it stays, in words and numbers.")] = ""
    blocking_pod: Annotated[str, bounded("The pod that keeps it, namespace/name.", limit=317)] = ""


class UnneededNode(Status, frozen=True):
    """A node that nobody needs."""

    name: Annotated[ObjectName, doc("The node.")]
    since: Annotated[datetime, doc("Since when nobody has needed it.")]


class RemovingNode(Status, frozen=True):
    """A node that is being removed."""

    name: Annotated[ObjectName, doc("The node.")]
    phase: Annotated[str, bounded("How far its removal is, in a word.", limit=128)] = ""
    group: Annotated[str, Meta(max_length=600), doc("Its group.")] = ""
    since: Annotated[datetime | None, doc("When its removal began.")] = None
    message: Annotated[ShortText, doc("What it waits for.")] = ""


class ReplacedNode(Status, frozen=True):
    """A node whose place others take."""

    name: Annotated[ObjectName, doc("The node.")]
    uid: Annotated[str, bounded("Its UID: a later node of the name is not meant.", limit=64)] = ""


class ReplacingGroup(Status, frozen=True):
    """A group that gets nodes for a replacement."""

    id: Annotated[GroupId, doc("Which group: Kind/namespace/name.")]
    from_: Annotated[NaturalInt, doc("Its size before.")] = field(name="from")
    to: Annotated[NaturalInt, doc("The size that was asked for.")]


class Replacement(Status, frozen=True):
    """Nodes that are replaced by others: these come first, and then those are drained."""

    nodes: Annotated[tuple[ReplacedNode, ...], bounded("The nodes that go.", limit=MAX_REPLACED, **_ATOMIC)]
    groups: Annotated[
        tuple[ReplacingGroup, ...], bounded("The groups that get the new ones.", limit=MAX_REPLACED, **_ATOMIC)
    ]
    since: Annotated[datetime, doc("When the new nodes were asked for.")]
    deadline: Annotated[datetime, doc("When it is given up.")]
    given_up: Annotated[
        datetime | None, doc("When it was given up; nothing else is replaced for a while after that.")
    ] = None
    message: Annotated[ShortText, doc("How far it is, or why it was given up.")] = ""


class ReasonCount(Status, frozen=True):
    """How many nodes stay for one reason."""

    reason: Annotated[Reason, doc("The reason's code.")]
    count: Annotated[NaturalInt, doc("How many nodes.")]


class PendingPods(Status, frozen=True):
    """Pods that wait and for which no nodes are added."""

    namespace: Annotated[ObjectName, doc("The namespace of one of them.")]
    pod: Annotated[ObjectName, doc("The name of one of them.")]
    count: Annotated[NaturalInt, doc("How many alike there are.")]
    reason: Annotated[Reason, doc("Why no nodes are added for them: the reason's code.")]
    message: Annotated[ShortText, doc("Why not, group by group.")] = ""


class LastPass(Status, frozen=True):
    """The last look at the cluster."""

    time: Annotated[datetime, doc("When it began.")]
    duration_seconds: Annotated[float, Meta(ge=0), doc("How long it took, in seconds.")] = 0.0
    nodes: Annotated[NaturalInt, doc("Nodes in the cluster, those of no group included.")] = 0
    cores: Annotated[NaturalInt, doc("Cores of all nodes together, as limits count them.")] = 0
    memory_gib: Annotated[NaturalInt, doc("Memory of all nodes together in GiB, as limits count it.")] = 0
    pending_pods: Annotated[NaturalInt, doc("Pods that wait for nodes.")] = 0


class ClusterAutoscalerStatus(Status, frozen=True):
    """What the autoscaler does and why. OpenShift's own operator writes none of it."""

    observed_generation: Annotated[
        int, Meta(ge=0), doc("The generation of the spec that this status is about.", format="int64")
    ] = 0
    conditions: Annotated[
        tuple[Condition, ...], bounded("Ready, Progressing and Degraded.", limit=16, **list_map("type"))
    ] = ()
    last_pass: Annotated[LastPass | None, doc("The last look at the cluster.")] = None
    last_scale_up: Annotated[datetime | None, doc("When nodes were last asked for.")] = None
    last_scale_down: Annotated[datetime | None, doc("When a node was last removed.")] = None
    last_scale_down_failure: Annotated[datetime | None, doc("When removing a node last failed.")] = None
    node_groups: Annotated[
        tuple[NodeGroupStatus, ...], bounded("The groups of nodes.", limit=MAX_GROUPS, **_ATOMIC)
    ] = ()
    node_groups_omitted: Annotated[NaturalInt, doc("Groups for which there was no room here.")] = 0
    unneeded: Annotated[
        tuple[UnneededNode, ...],
        bounded("Nodes that nobody needs, those longest unneeded first.", limit=MAX_UNNEEDED, **_ATOMIC),
    ] = ()
    unneeded_omitted: Annotated[
        NaturalInt, doc("Unneeded nodes for which there was no room here; their annotations say since when.")
    ] = 0
    removing: Annotated[
        tuple[RemovingNode, ...],
        bounded("Nodes that are being removed, the first of them by name.", limit=MAX_REMOVING, **_ATOMIC),
    ] = ()
    removing_omitted: Annotated[NaturalInt, doc("Nodes that are being removed and for which there was no room.")] = 0
    replacements: Annotated[
        tuple[Replacement, ...],
        bounded("Nodes that are replaced by fewer or cheaper ones.", limit=MAX_REPLACEMENTS, **_ATOMIC),
    ] = ()
    kept: Annotated[
        tuple[KeptNode, ...],
        bounded(
            "Nodes that stay and why: some of each reason, by name. keptReasons has all.", limit=MAX_NODES, **_ATOMIC
        ),
    ] = ()
    kept_omitted: Annotated[NaturalInt, doc("Nodes that stay and for which there was no room here.")] = 0
    kept_reasons: Annotated[
        tuple[ReasonCount, ...],
        bounded("How many nodes stay for which reason.", limit=MAX_REASONS, **list_map("reason")),
    ] = ()
    pending: Annotated[
        tuple[PendingPods, ...],
        bounded(
            "Pods for which no nodes are added, alike ones together: first those that nothing helps, then the most.",
            limit=MAX_PENDING,
            **_ATOMIC,
        ),
    ] = ()
    pending_omitted: Annotated[NaturalInt, doc("Pods that wait and for which there was no room here.")] = 0
