"""The status of the ClusterAutoscaler, as trimtab writes it.

All lists are bounded, since each write stores the whole object; omitted entries are counted. A new process restores its
state from the status, for example the times at which nodes became unneeded and the node groups that are in backoff.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from msgspec import Meta, field

from trimtab.api.base import ATOMIC, NaturalInt, ObjectName, ReasonCode, ShortText, Status, bounded, doc, list_map
from trimtab.api.conditions import Condition, ObservedGeneration, condition_list
from trimtab.api.state import state_meta
from trimtab.api.waiting_evictions import WaitingEvictions, waiting_list

MAX_GROUPS: Final = 500
MAX_NODES: Final = 200
MAX_UNNEEDED: Final = 500
MAX_HELD: Final = 500
MAX_REASONS: Final = 64
MAX_PENDING: Final = 50
MAX_REMOVING: Final = 100
MAX_INCREASES: Final = 8
MAX_BOOTS: Final = 16
MAX_TROUBLED: Final = 16
MAX_REPLACEMENTS: Final = 4
MAX_REPLACED: Final = 20

GroupId = Annotated[str, Meta(min_length=1, max_length=600)]


class LastError(Status, frozen=True):
    """The last error of a node group."""

    time: Annotated[datetime, doc("When the error occurred.")]
    reason: Annotated[
        ReasonCode, doc("The reason code: one of trimtab's own, or the error reason in the status of the Machine.")
    ]
    message: Annotated[ShortText, doc("The error message.")] = ""


Doubt = Annotated[
    bool,
    doc(
        "True if the provider did not respond to the request. The autoscaler then derives the outcome "
        "from the group's target size."
    ),
]
Adopted = Annotated[
    bool,
    doc(
        "True if the autoscaler did not request these nodes but waits for them too: another client raised the "
        "target size, or the group replaces a deleted machine."
    ),
]


class Increase(Status, frozen=True):
    """One of several outstanding size increases of a node group."""

    from_: Annotated[NaturalInt, doc("The target size before the scale-up.")] = field(name="from")
    to: Annotated[NaturalInt, doc("The requested target size.")]
    since: Annotated[datetime, doc("When the increase was requested.")]
    deadline: Annotated[datetime, doc("When the increase times out and its pods are considered for scale-up again.")]
    doubt: Doubt = False
    adopted: Adopted = False


class OpenScaleUp(Status, frozen=True):
    """A scale-up whose nodes have not all registered."""

    from_: Annotated[NaturalInt, doc("The target size before the scale-up.")] = field(name="from")
    to: Annotated[NaturalInt, doc("The requested target size.")]
    since: Annotated[datetime, doc("When the first of these nodes was requested.")]
    deadline: Annotated[
        datetime,
        doc("When the earliest outstanding increase times out and its pods are considered for scale-up again."),
    ]
    doubt: Doubt = False
    adopted: Adopted = False
    increases: Annotated[
        tuple[Increase, ...],
        bounded(
            "The size increases that make up the scale-up, each with its own deadline; empty if there is only one.",
            limit=MAX_INCREASES,
            **ATOMIC,
        ),
    ] = ()


class NodeGroupStatus(Status, frozen=True):
    """The status of a node group."""

    id: Annotated[GroupId, doc("The node group: Kind/namespace/name.")]
    min_size: Annotated[NaturalInt, doc("The minimum size for scale-down.")] = 0
    max_size: Annotated[NaturalInt, doc("The maximum size for scale-up.")] = 0
    target: Annotated[NaturalInt, doc("The current target size.")] = 0
    ready: Annotated[NaturalInt, doc("Number of ready nodes.")] = 0
    unready: Annotated[NaturalInt, doc("Number of registered nodes that are not ready.")] = 0
    upcoming: Annotated[NaturalInt, doc("Number of requested nodes that have not registered yet.")] = 0
    failed: Annotated[NaturalInt, doc("Number of failed machines.")] = 0
    deleting: Annotated[NaturalInt, doc("Number of machines that are being deleted.")] = 0
    unneeded: Annotated[NaturalInt, doc("Number of unneeded nodes.")] = 0
    autoscaler: Annotated[
        str, bounded("The MachineAutoscaler that sets the minimum and maximum size, as namespace/name.", limit=317)
    ] = ""
    paused: Annotated[ShortText, doc("Why scaling of the group is paused; empty if it is not paused.")] = ""
    backoff_until: Annotated[
        datetime | None, doc("The time until which the group is not scaled up because of earlier failures.")
    ] = None
    failures: Annotated[NaturalInt, doc("Number of consecutive failed scale-ups.")] = 0
    last_error: Annotated[LastError | None, doc("The last error of the group.")] = None
    boots: Annotated[
        tuple[Annotated[float, Meta(ge=0)], ...],
        bounded(
            "Boot time in seconds, for each of the most recent scale-ups, oldest first: the time from the "
            "creation of a machine to its node becoming Ready, for the slowest node of the scale-up.",
            limit=MAX_BOOTS,
            **ATOMIC,
        ),
    ] = ()
    given_up: Annotated[
        NaturalInt,
        doc("Number of requested nodes that did not register in time and that the autoscaler no longer waits for."),
    ] = 0
    troubled: Annotated[
        tuple[ObjectName, ...],
        bounded(
            "Machines that failed or never registered as nodes, and that have already been counted as failures.",
            limit=MAX_TROUBLED,
            **ATOMIC,
        ),
    ] = ()
    unhealthy: Annotated[ShortText, doc("Why the group is too unhealthy to be scaled; empty if it is healthy.")] = ""
    scale_up: Annotated[OpenScaleUp | None, doc("The scale-up in progress, until all its nodes have registered.")] = (
        None
    )


class KeptNode(Status, frozen=True):
    """A node that is not removed, with the reason."""

    name: Annotated[ObjectName, doc("The node.")]
    reason: Annotated[ReasonCode, doc("Reason code, in CamelCase, for not removing the node.")]
    group: Annotated[str, Meta(max_length=600), doc("The node group of the node.")] = ""
    message: Annotated[ShortText, doc("Why the node is not removed, with the values that were compared.")] = ""
    blocking_pod: Annotated[str, bounded("The pod that blocks the removal, as namespace/name.", limit=317)] = ""


class UnneededNode(Status, frozen=True):
    """An unneeded node."""

    name: Annotated[ObjectName, doc("The node.")]
    since: Annotated[datetime, doc("When the node became unneeded.")]


class HeldNode(Status, frozen=True):
    """A node whose removal is blocked only by pod annotations or PodDisruptionBudgets."""

    name: Annotated[ObjectName, doc("The node.")]
    since: Annotated[datetime, doc("When pod annotations or PodDisruptionBudgets began to block the removal.")]


class RemovingNode(Status, frozen=True):
    """A node that is being removed."""

    name: Annotated[ObjectName, doc("The node.")]
    phase: Annotated[str, bounded("The current step of the removal.", limit=128)] = ""
    group: Annotated[str, Meta(max_length=600), doc("The node group of the node.")] = ""
    since: Annotated[datetime | None, doc("When the removal started.")] = None
    message: Annotated[ShortText, doc("What the removal waits for.")] = ""


class ReplacedNode(Status, frozen=True):
    """A node that is being replaced by other nodes."""

    name: Annotated[ObjectName, doc("The node.")]
    uid: Annotated[str, bounded("The node's UID, to distinguish it from a later node of the same name.", limit=64)] = ""


class ReplacingGroup(Status, frozen=True):
    """A node group that is scaled up for a replacement."""

    id: Annotated[GroupId, doc("The node group: Kind/namespace/name.")]
    from_: Annotated[NaturalInt, doc("The target size before the scale-up.")] = field(name="from")
    to: Annotated[NaturalInt, doc("The requested target size.")]


class Replacement(Status, frozen=True):
    """A replacement of nodes. The new nodes register first; then the old nodes are drained."""

    nodes: Annotated[tuple[ReplacedNode, ...], bounded("The nodes to remove.", limit=MAX_REPLACED, **ATOMIC)]
    groups: Annotated[
        tuple[ReplacingGroup, ...],
        bounded("The node groups that are scaled up for the replacement.", limit=MAX_REPLACED, **ATOMIC),
    ]
    since: Annotated[datetime, doc("When the new nodes were requested.")]
    deadline: Annotated[datetime, doc("The deadline of the replacement. If it is not complete by then, it is aborted.")]
    given_up: Annotated[
        datetime | None, doc("When the replacement was aborted. No other replacement starts for one hour after that.")
    ] = None
    message: Annotated[ShortText, doc("The progress of the replacement, or why it was aborted.")] = ""


class ReasonCount(Status, frozen=True):
    """Number of nodes that are not removed for a given reason."""

    reason: Annotated[ReasonCode, doc("The reason code.")]
    count: Annotated[NaturalInt, doc("The number of nodes.")]


class PendingPods(Status, frozen=True):
    """Similar pending pods for which no nodes are added."""

    namespace: Annotated[ObjectName, doc("The namespace of the pods.")]
    pod: Annotated[ObjectName, doc("The name of one of the pods.")]
    count: Annotated[NaturalInt, doc("The number of pods with the same reason and message.")]
    reason: Annotated[ReasonCode, doc("Reason code, in CamelCase, for not adding nodes for the pods.")]
    message: Annotated[ShortText, doc("Why each node group is not scaled up for the pods.")] = ""


class LastIteration(Status, frozen=True):
    """The last iteration of the autoscaler."""

    time: Annotated[datetime, doc("When the iteration started.")]
    duration_seconds: Annotated[float, Meta(ge=0), doc("The duration of the iteration in seconds.")] = 0.0
    nodes: Annotated[NaturalInt, doc("Number of nodes in the cluster, whether or not they belong to a node group.")] = 0
    cores: Annotated[NaturalInt, doc("CPU cores of all nodes, as counted for resourceLimits.")] = 0
    memory_gib: Annotated[NaturalInt, doc("Memory of all nodes in GiB, as counted for resourceLimits.")] = 0
    pending_pods: Annotated[NaturalInt, doc("Number of unschedulable pods.")] = 0
    unneeded_nodes: Annotated[NaturalInt, doc("Number of unneeded nodes.")] = 0
    removing_nodes: Annotated[NaturalInt, doc("Number of nodes that are being removed.")] = 0


class ClusterAutoscalerStatus(Status, frozen=True):
    """Observed state of the autoscaler. OpenShift's own operator writes none of these fields."""

    observed_generation: ObservedGeneration = 0
    state: Annotated[str, state_meta("Idle, Scaling")] = ""
    conditions: Annotated[
        tuple[Condition, ...],
        condition_list(
            "Conditions: Ready (the last iteration completed, and at least one node group can be scaled up if there "
            "are any); Progressing (nodes are being added or removed); Degraded (something prevents the autoscaler "
            "from doing what the spec asks for); Conflicting (settings of a DeschedulerPolicy and scaleDown work "
            "against each other); Contended (another operator process runs the same controllers; set only after one "
            "was detected)."
        ),
    ] = ()
    try_again: Annotated[
        ObjectName, doc("The last value of the annotation trimtab.dev/try-again that was processed.")
    ] = ""
    last_iteration: Annotated[LastIteration | None, doc("The last iteration of the autoscaler.")] = None
    last_scale_up: Annotated[datetime | None, doc("When a scale-up was last requested.")] = None
    last_scale_down: Annotated[datetime | None, doc("When a node was last removed.")] = None
    last_scale_down_failure: Annotated[datetime | None, doc("When a node removal last failed.")] = None
    node_groups: Annotated[tuple[NodeGroupStatus, ...], bounded("The node groups.", limit=MAX_GROUPS, **ATOMIC)] = ()
    node_groups_omitted: Annotated[
        NaturalInt, doc("Number of node groups that are omitted from nodeGroups to limit its size.")
    ] = 0
    unneeded: Annotated[
        tuple[UnneededNode, ...],
        bounded("The unneeded nodes, longest unneeded first.", limit=MAX_UNNEEDED, **ATOMIC),
    ] = ()
    unneeded_omitted: Annotated[
        NaturalInt,
        doc(
            "Number of nodes that are omitted from unneeded to limit its size. The omitted nodes have the "
            "annotation trimtab.dev/unneeded-since, which contains the time at which they became unneeded."
        ),
    ] = 0
    held: Annotated[
        tuple[HeldNode, ...],
        bounded(
            "Nodes whose removal is blocked by pod annotations or PodDisruptionBudgets, longest blocked "
            "first. Set only if maxHold is set.",
            limit=MAX_HELD,
            **ATOMIC,
        ),
    ] = ()
    removing: Annotated[
        tuple[RemovingNode, ...],
        bounded("The nodes that are being removed, sorted by name.", limit=MAX_REMOVING, **ATOMIC),
    ] = ()
    removing_omitted: Annotated[
        NaturalInt, doc("Number of nodes that are omitted from removing to limit its size.")
    ] = 0
    waiting_evictions: Annotated[tuple[WaitingEvictions, ...], waiting_list()] = ()
    replacements: Annotated[
        tuple[Replacement, ...],
        bounded("Replacements of nodes with fewer or cheaper nodes.", limit=MAX_REPLACEMENTS, **ATOMIC),
    ] = ()
    kept: Annotated[
        tuple[KeptNode, ...],
        bounded(
            "A sample of the nodes that are not removed, sorted by name, each with the reason. keptReasons "
            "contains the number of nodes for each reason.",
            limit=MAX_NODES,
            **ATOMIC,
        ),
    ] = ()
    kept_omitted: Annotated[NaturalInt, doc("Number of nodes that are omitted from kept to limit its size.")] = 0
    kept_reasons: Annotated[
        tuple[ReasonCount, ...],
        bounded("Number of nodes that are not removed, for each reason.", limit=MAX_REASONS, **list_map("reason")),
    ] = ()
    pending: Annotated[
        tuple[PendingPods, ...],
        bounded(
            "Pending pods for which no nodes are added. Similar pods share one entry. Pods that no scale-up "
            "can help come first; otherwise, entries are sorted by number of pods.",
            limit=MAX_PENDING,
            **ATOMIC,
        ),
    ] = ()
    pending_omitted: Annotated[NaturalInt, doc("Number of pods that are omitted from pending to limit its size.")] = 0
