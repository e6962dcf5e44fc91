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
        ReasonCode,
        doc("Reason code of the error, for example ScaleUpTimedOut, or the error reason in the status of a Machine."),
    ]
    message: Annotated[ShortText, doc("The error message.")] = ""


Doubt = Annotated[
    bool,
    doc(
        "True if no response to the request was received. The autoscaler then derives the outcome from the group's "
        "target size."
    ),
]
Adopted = Annotated[
    bool,
    doc(
        "True if the autoscaler waits for these nodes but did not request them: another client increased the target "
        "size, or the group replaces a deleted machine."
    ),
]


class Increase(Status, frozen=True):
    """One of the requests that make up a scale-up."""

    from_: Annotated[NaturalInt, doc("Target size of the node group before this request.")] = field(name="from")
    to: Annotated[NaturalInt, doc("Requested target size of the node group.")]
    since: Annotated[
        datetime, doc("When the nodes were requested, or first observed if another client requested them.")
    ]
    deadline: Annotated[
        datetime,
        doc("Time by which the nodes must register. After that, the scale-up counts as failed."),
    ]
    doubt: Doubt = False
    adopted: Adopted = False


class OpenScaleUp(Status, frozen=True):
    """A scale-up whose nodes have not all become ready."""

    from_: Annotated[NaturalInt, doc("Target size of the node group before the scale-up.")] = field(name="from")
    to: Annotated[NaturalInt, doc("Requested target size of the node group.")]
    since: Annotated[
        datetime,
        doc("When the first of the nodes was requested, or first observed if another client requested it."),
    ]
    deadline: Annotated[
        datetime,
        doc(
            "Time by which the nodes must register. After that, the scale-up counts as failed. If the nodes were "
            "requested in several steps, this is the earliest deadline in increases."
        ),
    ]
    doubt: Doubt = False
    adopted: Adopted = False
    increases: Annotated[
        tuple[Increase, ...],
        bounded(
            "If the nodes were requested in several steps, one entry for each request with its own deadline, oldest "
            "first. Empty if there was only one request.",
            limit=MAX_INCREASES,
            **ATOMIC,
        ),
    ] = ()


class NodeGroupStatus(Status, frozen=True):
    """The status of a node group."""

    id: Annotated[
        GroupId,
        doc(
            "Identifies the node group as Kind/namespace/name, for example MachineSet/openshift-machine-api/workers-a. "
            "A group that has no object in the cluster is identified as provider/name."
        ),
    ]
    min_size: Annotated[
        NaturalInt, doc("Minimum size of the node group. Scale-down does not reduce the group below it.")
    ] = 0
    max_size: Annotated[
        NaturalInt, doc("Maximum size of the node group. Scale-up does not increase the group above it.")
    ] = 0
    target: Annotated[
        NaturalInt, doc("Target size of the node group: the requested number of nodes, as in spec.replicas.")
    ] = 0
    ready: Annotated[NaturalInt, doc("Number of ready nodes in the node group.")] = 0
    unready: Annotated[
        NaturalInt,
        doc("Number of nodes in the node group that are not ready. New nodes that are still starting do not count."),
    ] = 0
    upcoming: Annotated[
        NaturalInt, doc("Number of requested nodes that have not registered yet or are still starting.")
    ] = 0
    failed: Annotated[NaturalInt, doc("Number of machines of the node group that failed permanently.")] = 0
    deleting: Annotated[
        NaturalInt, doc("Number of nodes of the node group that are being drained or whose machine is being deleted.")
    ] = 0
    unneeded: Annotated[NaturalInt, doc("Number of unneeded nodes in the node group.")] = 0
    autoscaler: Annotated[
        str,
        bounded(
            "MachineAutoscaler that sets the minimum and maximum size, as namespace/name. Empty if they are set by "
            "annotations of the node group or by its provider.",
            limit=317,
        ),
    ] = ""
    paused: Annotated[ShortText, doc("Why the node group is not scaled (paused); empty if it is not paused.")] = ""
    backoff_until: Annotated[
        datetime | None,
        doc(
            "End of the backoff after a failed scale-up. The node group is not scaled up before this time. Unset if no "
            "scale-up failed recently."
        ),
    ] = None
    failures: Annotated[
        NaturalInt,
        doc(
            "Number of failed scale-ups. Each of them doubles the next backoff, up to 30 minutes. It is reset to 0 "
            "three hours after the last backoff ended."
        ),
    ] = 0
    last_error: Annotated[
        LastError | None,
        doc("Last error of a scale-up of the node group. It is removed three hours after the last backoff ended."),
    ] = None
    boots: Annotated[
        tuple[Annotated[float, Meta(ge=0)], ...],
        bounded(
            "Boot times of the most recent scale-ups in seconds, oldest first. The boot time of a scale-up is the time "
            "from the creation of a machine until its node became Ready, for the slowest of its nodes.",
            limit=MAX_BOOTS,
            **ATOMIC,
        ),
    ] = ()
    given_up: Annotated[
        NaturalInt,
        doc("Number of requested nodes that missed their deadline. The autoscaler no longer waits for them."),
    ] = 0
    troubled: Annotated[
        tuple[ObjectName, ...],
        bounded(
            "Names of machines that failed, or whose nodes did not become ready in time. They have been counted in "
            "failures and are not counted again.",
            limit=MAX_TROUBLED,
            **ATOMIC,
        ),
    ] = ()
    unhealthy: Annotated[
        ShortText,
        doc(
            "Why the node group is too unhealthy to be scaled, for example because too many of its nodes are not "
            "ready. Empty if it is healthy."
        ),
    ] = ""
    scale_up: Annotated[
        OpenScaleUp | None,
        doc(
            "The scale-up in progress. Unset if the autoscaler waits for no node: all requested nodes became ready, "
            "failed or missed their deadline."
        ),
    ] = None


class KeptNode(Status, frozen=True):
    """A node that is not removed, with the reason."""

    name: Annotated[ObjectName, doc("Name of the node.")]
    reason: Annotated[ReasonCode, doc("Why the node is not removed, as a reason code in CamelCase.")]
    group: Annotated[
        str,
        Meta(max_length=600),
        doc("Node group of the node, as Kind/namespace/name; empty if the node belongs to no node group."),
    ] = ""
    message: Annotated[ShortText, doc("Why the node is not removed, with the values that were compared.")] = ""
    blocking_pod: Annotated[
        str, bounded("Pod that blocks the removal, as namespace/name; empty if no pod blocks it.", limit=317)
    ] = ""


class UnneededNode(Status, frozen=True):
    """An unneeded node."""

    name: Annotated[ObjectName, doc("Name of the node.")]
    since: Annotated[datetime, doc("When the node became unneeded.")]


class HeldNode(Status, frozen=True):
    """A node whose removal is blocked only by pod annotations or PodDisruptionBudgets."""

    name: Annotated[ObjectName, doc("Name of the node.")]
    since: Annotated[
        datetime,
        doc("When pod annotations or PodDisruptionBudgets began to block the removal. maxHold is counted from then."),
    ]


class RemovingNode(Status, frozen=True):
    """A node that is being removed."""

    name: Annotated[ObjectName, doc("Name of the node.")]
    phase: Annotated[
        str,
        bounded(
            "Phase of the removal: Tainting, Waiting, Evicting, EvictingDaemonSets, Delayed (by an annotation of the "
            "node), Drained, Marked (the machine is marked for deletion), Removing, Verifying (which machine is "
            "deleted) or Returning (the node is kept, and its taint is removed).",
            limit=128,
        ),
    ] = ""
    group: Annotated[str, Meta(max_length=600), doc("Node group of the node, as Kind/namespace/name.")] = ""
    since: Annotated[datetime | None, doc("When the removal of the node started.")] = None
    message: Annotated[
        ShortText, doc("Details of the phase, for example the number of pods that have not terminated yet.")
    ] = ""


class ReplacedNode(Status, frozen=True):
    """A node that is being replaced by other nodes."""

    name: Annotated[ObjectName, doc("Name of the node.")]
    uid: Annotated[str, bounded("UID of the node, to distinguish it from a later node of the same name.", limit=64)] = (
        ""
    )


class ReplacingGroup(Status, frozen=True):
    """A node group that is scaled up for a replacement."""

    id: Annotated[GroupId, doc("Identifies the node group as Kind/namespace/name.")]
    from_: Annotated[NaturalInt, doc("Target size of the node group before the scale-up.")] = field(name="from")
    to: Annotated[NaturalInt, doc("Requested target size of the node group.")]


class Replacement(Status, frozen=True):
    """A replacement of nodes with new, cheaper nodes. The old nodes are drained once all new nodes are ready."""

    nodes: Annotated[
        tuple[ReplacedNode, ...],
        bounded("The old nodes, which are removed once the new nodes are ready.", limit=MAX_REPLACED, **ATOMIC),
    ]
    groups: Annotated[
        tuple[ReplacingGroup, ...],
        bounded("The node groups to which the new nodes are added.", limit=MAX_REPLACED, **ATOMIC),
    ]
    since: Annotated[datetime, doc("When the new nodes were requested.")]
    deadline: Annotated[
        datetime, doc("Time by which the old nodes must be removed. After that, the replacement is aborted.")
    ]
    given_up: Annotated[
        datetime | None,
        doc(
            "When the replacement was aborted; unset while it is in progress. No other replacement starts for one hour "
            "after that."
        ),
    ] = None
    message: Annotated[ShortText, doc("The progress of the replacement, or why it was aborted.")] = ""


class ReasonCount(Status, frozen=True):
    """Number of nodes that are not removed for a given reason."""

    reason: Annotated[ReasonCode, doc("Why the nodes are not removed, as a reason code in CamelCase.")]
    count: Annotated[NaturalInt, doc("Number of nodes that are not removed for this reason.")]


class PendingPods(Status, frozen=True):
    """Similar pending pods for which no nodes are added."""

    namespace: Annotated[ObjectName, doc("The namespace of the pods.")]
    pod: Annotated[ObjectName, doc("The name of one of the pods.")]
    count: Annotated[NaturalInt, doc("Number of pods that this entry stands for.")]
    reason: Annotated[ReasonCode, doc("Why no nodes are added for the pods, as a reason code in CamelCase.")]
    message: Annotated[
        ShortText,
        doc(
            "Why no nodes are added for the pods; for unschedulable pods, why no node group can be scaled up for them."
        ),
    ] = ""


class LastIteration(Status, frozen=True):
    """The last iteration of the autoscaler."""

    time: Annotated[datetime, doc("When the iteration started.")]
    duration_seconds: Annotated[float, Meta(ge=0), doc("Duration of the iteration in seconds.")] = 0.0
    nodes: Annotated[NaturalInt, doc("Number of nodes in the cluster, whether or not they belong to a node group.")] = 0
    cores: Annotated[
        NaturalInt, doc("Number of CPU cores of all nodes, rounded down. resourceLimits.cores limits this number.")
    ] = 0
    memory_gib: Annotated[
        NaturalInt, doc("Memory of all nodes in GiB, rounded down. resourceLimits.memory limits this number.")
    ] = 0
    pending_pods: Annotated[
        NaturalInt, doc("Number of unschedulable pods, including those for which nodes are being added.")
    ] = 0
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
            "was detected); PermissionsMissing (the service account lacks permissions that the autoscaler needs)."
        ),
    ] = ()
    try_again: Annotated[
        ObjectName,
        doc(
            "Last value of the annotation trimtab.dev/try-again that was processed. Setting the annotation to a new "
            "value ends the backoff of all node groups."
        ),
    ] = ""
    last_iteration: Annotated[
        LastIteration | None,
        doc("The autoscaler's last iteration, in which it decided which nodes to add and remove."),
    ] = None
    last_scale_up: Annotated[
        datetime | None,
        doc(
            "When nodes were last requested, by the autoscaler or by another client. delayAfterAdd is counted from "
            "then."
        ),
    ] = None
    last_scale_down: Annotated[
        datetime | None, doc("When the autoscaler last removed a node. delayAfterDelete is counted from then.")
    ] = None
    last_scale_down_failure: Annotated[
        datetime | None, doc("When the removal of a node last failed. delayAfterFailure is counted from then.")
    ] = None
    node_groups: Annotated[
        tuple[NodeGroupStatus, ...], bounded("Status of each node group, sorted by id.", limit=MAX_GROUPS, **ATOMIC)
    ] = ()
    node_groups_omitted: Annotated[
        NaturalInt, doc("Number of node groups that are omitted from nodeGroups to limit its size.")
    ] = 0
    unneeded: Annotated[
        tuple[UnneededNode, ...],
        bounded(
            "The unneeded nodes, longest unneeded first. A node is unneeded if its utilization is low enough, and its "
            "pods can be evicted and fit on other nodes.",
            limit=MAX_UNNEEDED,
            **ATOMIC,
        ),
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
            "Nodes whose removal is blocked only by pod annotations or PodDisruptionBudgets, longest blocked "
            "first. Empty if spec.scaleDown.maxHold is not set.",
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
        bounded(
            "Consolidations in progress, in which nodes are replaced with cheaper nodes (spec.scaleDown.replace). "
            "Aborted ones are listed for one hour.",
            limit=MAX_REPLACEMENTS,
            **ATOMIC,
        ),
    ] = ()
    kept: Annotated[
        tuple[KeptNode, ...],
        bounded(
            "Nodes that the last iteration did not start to remove, sorted by name, each with the reason. In a large "
            "cluster this is a sample; keptReasons contains the number of nodes for each reason.",
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
            "Pending pods for which the last iteration added no nodes, grouped by namespace, reason and message. The "
            "list includes pods that fit on existing or upcoming nodes. Pods that no scale-up can help come first, "
            "then the entries with the most pods.",
            limit=MAX_PENDING,
            **ATOMIC,
        ),
    ] = ()
    pending_omitted: Annotated[NaturalInt, doc("Number of pods that are omitted from pending to limit its size.")] = 0
