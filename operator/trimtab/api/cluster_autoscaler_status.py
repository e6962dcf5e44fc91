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
MAX_CONFIRMED: Final = 64

GroupId = Annotated[str, Meta(min_length=1, max_length=600)]


class LastError(Status, frozen=True):
    """The last error of a node group."""

    time: Annotated[datetime, doc("Time at which the error occurred.")]
    reason: Annotated[
        ReasonCode,
        doc("Reason code of the error, for example ScaleUpTimedOut, or the error reason from the status of a Machine."),
    ]
    message: Annotated[ShortText, doc("Human-readable error message.")] = ""


Doubt = Annotated[
    bool,
    doc(
        "Whether the outcome of the request is unknown because no response was received. If true, the autoscaler "
        "determines the outcome from the target size of the node group."
    ),
]
Adopted = Annotated[
    bool,
    doc(
        "Whether the autoscaler did not initiate the scale-up. In that case, either another client increased the "
        "target size or the node group is replacing a deleted machine."
    ),
]


class Increase(Status, frozen=True):
    """A request to increase the target size of a node group, as a part of a scale-up."""

    from_: Annotated[NaturalInt, doc("Target size of the node group before this request.")] = field(name="from")
    to: Annotated[NaturalInt, doc("Requested target size of the node group.")]
    since: Annotated[
        datetime,
        doc(
            "Time at which the nodes were requested. If another client requested the nodes, this is the time at which "
            "the autoscaler observed the increased target size."
        ),
    ]
    deadline: Annotated[
        datetime,
        doc("Time by which the requested nodes must register. Otherwise, the scale-up counts as failed."),
    ]
    doubt: Doubt = False
    adopted: Adopted = False


class OpenScaleUp(Status, frozen=True):
    """A scale-up whose nodes have not all become ready."""

    from_: Annotated[NaturalInt, doc("Target size of the node group before the scale-up.")] = field(name="from")
    to: Annotated[NaturalInt, doc("Requested target size of the node group.")]
    since: Annotated[
        datetime,
        doc(
            "Time at which the first node of the scale-up was requested. If another client requested the node, this is "
            "the time at which the autoscaler observed the increased target size."
        ),
    ]
    deadline: Annotated[
        datetime,
        doc(
            "Time by which the requested nodes must register. Otherwise, the scale-up counts as failed. If the "
            "scale-up consists of several requests, this is the earliest deadline in increases."
        ),
    ]
    doubt: Doubt = False
    adopted: Adopted = False
    increases: Annotated[
        tuple[Increase, ...],
        bounded(
            "Requests that belong to this scale-up, oldest first. Each request has its own deadline. Empty if there "
            "was only one request.",
            limit=MAX_INCREASES,
            **ATOMIC,
        ),
    ] = ()


class NodeGroupStatus(Status, frozen=True):
    """Observed status of a node group."""

    id: Annotated[
        GroupId,
        doc(
            "Identifier of the node group in the form Kind/namespace/name, for example "
            "MachineSet/openshift-machine-api/workers-a. If the node group exists only at an external provider, the "
            "form is provider/name."
        ),
    ]
    min_size: Annotated[
        NaturalInt,
        doc("Minimum size of the node group. Scale-down does not make the node group smaller than this size."),
    ] = 0
    max_size: Annotated[
        NaturalInt, doc("Maximum size of the node group. Scale-up does not make the node group larger than this size.")
    ] = 0
    target: Annotated[
        NaturalInt, doc("Target size of the node group, which is the requested number of nodes (spec.replicas).")
    ] = 0
    ready: Annotated[NaturalInt, doc("Number of ready nodes in the node group.")] = 0
    unready: Annotated[
        NaturalInt,
        doc("Number of nodes in the node group that are not ready, excluding new nodes that are still starting."),
    ] = 0
    upcoming: Annotated[
        NaturalInt, doc("Number of requested nodes that have not registered yet or are still starting.")
    ] = 0
    failed: Annotated[NaturalInt, doc("Number of machines in the node group that have failed permanently.")] = 0
    deleting: Annotated[
        NaturalInt, doc("Number of nodes in the node group that are being drained or whose machines are being deleted.")
    ] = 0
    unneeded: Annotated[NaturalInt, doc("Number of unneeded nodes in the node group.")] = 0
    autoscaler: Annotated[
        str,
        bounded(
            "MachineAutoscaler that sets the minimum and maximum size, in the form namespace/name. Empty if these "
            "sizes are set by annotations of the node group or by its provider.",
            limit=317,
        ),
    ] = ""
    paused: Annotated[
        ShortText,
        doc(
            "Human-readable message that explains why scaling of the node group is paused. Empty if scaling is not "
            "paused."
        ),
    ] = ""
    backoff_until: Annotated[
        datetime | None,
        doc(
            "Time at which the backoff after a failed scale-up ends. The node group is not scaled up before this "
            "time. Unset if no scale-up failed recently."
        ),
    ] = None
    failures: Annotated[
        NaturalInt,
        doc(
            "Number of recent failed scale-ups. Each failed scale-up doubles the next backoff, up to 30 minutes. The "
            "number is reset to 0 three hours after the end of the last backoff."
        ),
    ] = 0
    last_error: Annotated[
        LastError | None,
        doc(
            "Last scale-up error of the node group. The error is removed three hours after the end of the last backoff."
        ),
    ] = None
    boots: Annotated[
        tuple[Annotated[float, Meta(ge=0)], ...],
        bounded(
            "Boot times of the most recent scale-ups in seconds, oldest first. A boot time is the time from the "
            "creation of a machine until its node became Ready. If a scale-up added several nodes, its longest boot "
            "time is listed. Scaling decisions do not depend on this list.",
            limit=MAX_BOOTS,
            **ATOMIC,
        ),
    ] = ()
    given_up: Annotated[
        NaturalInt,
        doc(
            "Number of requested nodes that did not register by their deadline. The autoscaler no longer waits for "
            "these nodes."
        ),
    ] = 0
    troubled: Annotated[
        tuple[ObjectName, ...],
        bounded(
            "Names of machines that failed or whose nodes did not become ready in time. The list prevents the "
            "autoscaler from counting the same failure twice.",
            limit=MAX_TROUBLED,
            **ATOMIC,
        ),
    ] = ()
    unhealthy: Annotated[
        ShortText,
        doc(
            "Human-readable message that explains why the node group is too unhealthy to scale. For example, too many "
            "of its nodes are not ready. Empty if the node group is healthy."
        ),
    ] = ""
    scale_up: Annotated[
        OpenScaleUp | None,
        doc("Scale-up in progress. Unset if the autoscaler is not waiting for any requested node to become ready."),
    ] = None


class KeptNode(Status, frozen=True):
    """A node that the autoscaler does not remove, and the reason."""

    name: Annotated[ObjectName, doc("Name of the node.")]
    reason: Annotated[ReasonCode, doc("Reason code in CamelCase that explains why the node is not removed.")]
    group: Annotated[
        str,
        Meta(max_length=600),
        doc("Node group of the node, in the form Kind/namespace/name. Empty if the node belongs to no node group."),
    ] = ""
    message: Annotated[
        ShortText,
        doc(
            "Human-readable message that explains why the node is not removed and contains the observed values and the "
            "limits."
        ),
    ] = ""
    blocking_pod: Annotated[
        str,
        bounded(
            "Pod that blocks the removal of the node, in the form namespace/name. Empty if no pod blocks it.", limit=317
        ),
    ] = ""


class UnneededNode(Status, frozen=True):
    """An unneeded node."""

    name: Annotated[ObjectName, doc("Name of the node.")]
    since: Annotated[datetime, doc("Time at which the node became unneeded.")]


class HeldNode(Status, frozen=True):
    """A node whose removal is blocked only by pod annotations or PodDisruptionBudgets."""

    name: Annotated[ObjectName, doc("Name of the node.")]
    since: Annotated[
        datetime,
        doc(
            "Time at which pod annotations or PodDisruptionBudgets began to block the removal of the node. "
            "spec.scaleDown.maxHold is measured from this time."
        ),
    ]


class RemovingNode(Status, frozen=True):
    """A node that is being removed."""

    name: Annotated[ObjectName, doc("Name of the node.")]
    phase: Annotated[
        str,
        bounded(
            "Phase of the removal. In Tainting, the operator taints the node. In Waiting, the operator waits until "
            "schedulers observe the taint. In Evicting and EvictingDaemonSets, the operator evicts pods. In Delayed, "
            "an annotation of the node delays the removal. In Drained, other nodes of the node group are still being "
            "drained. In Marked, the machine is marked for deletion. In Removing, the operator reduces the size of the "
            "node group. In Verifying, the operator checks which machine is deleted. In Returning, the operator keeps "
            "the node and removes its taint.",
            limit=128,
        ),
    ] = ""
    group: Annotated[str, Meta(max_length=600), doc("Node group of the node, in the form Kind/namespace/name.")] = ""
    since: Annotated[datetime | None, doc("Time at which the removal of the node started.")] = None
    message: Annotated[
        ShortText,
        doc("Human-readable details of the phase, for example the number of pods that have not terminated yet."),
    ] = ""


class ReplacedNode(Status, frozen=True):
    """A node that is being replaced with cheaper nodes."""

    name: Annotated[ObjectName, doc("Name of the node.")]
    uid: Annotated[
        str, bounded("UID of the node, which distinguishes it from a later node with the same name.", limit=64)
    ] = ""


class ReplacingGroup(Status, frozen=True):
    """A node group that is scaled up to add the new nodes of a consolidation."""

    id: Annotated[GroupId, doc("Identifier of the node group, in the form Kind/namespace/name.")]
    from_: Annotated[NaturalInt, doc("Target size of the node group before the scale-up.")] = field(name="from")
    to: Annotated[NaturalInt, doc("Requested target size of the node group.")]


class Replacement(Status, frozen=True):
    """A consolidation, which replaces nodes with cheaper nodes.

    The old nodes are drained after all new nodes are ready.
    """

    nodes: Annotated[
        tuple[ReplacedNode, ...],
        bounded("Old nodes, which are removed after all new nodes are ready.", limit=MAX_REPLACED, **ATOMIC),
    ]
    groups: Annotated[
        tuple[ReplacingGroup, ...],
        bounded("Node groups to which the new nodes are added.", limit=MAX_REPLACED, **ATOMIC),
    ]
    since: Annotated[datetime, doc("Time at which the new nodes were requested.")]
    deadline: Annotated[
        datetime, doc("Time by which the old nodes must be removed. Otherwise, the consolidation is aborted.")
    ]
    given_up: Annotated[
        datetime | None,
        doc(
            "Time at which the consolidation was aborted. Unset while the consolidation is in progress. The autoscaler "
            "starts no other consolidation within one hour after this time."
        ),
    ] = None
    message: Annotated[
        ShortText,
        doc("Human-readable message that describes the progress of the consolidation or explains why it was aborted."),
    ] = ""


class ReasonCount(Status, frozen=True):
    """A reason why nodes are not removed, and the number of these nodes."""

    reason: Annotated[ReasonCode, doc("Reason code in CamelCase that explains why the nodes are not removed.")]
    count: Annotated[NaturalInt, doc("Number of nodes to which this reason applies.")]


class PendingPods(Status, frozen=True):
    """A group of similar pending pods for which no nodes are added."""

    namespace: Annotated[ObjectName, doc("Namespace of the pods.")]
    pod: Annotated[ObjectName, doc("Name of one of the pods.")]
    count: Annotated[NaturalInt, doc("Number of pods in the group.")]
    reason: Annotated[ReasonCode, doc("Reason code in CamelCase that explains why no nodes are added for the pods.")]
    message: Annotated[
        ShortText,
        doc(
            "Human-readable message that explains why no nodes are added for the pods. For unschedulable pods, the "
            "message explains why no node group can be scaled up."
        ),
    ] = ""


class LastIteration(Status, frozen=True):
    """The last iteration of the autoscaler."""

    time: Annotated[datetime, doc("Time at which the iteration started.")]
    duration_seconds: Annotated[float, Meta(ge=0), doc("Duration of the iteration in seconds.")] = 0.0
    nodes: Annotated[
        NaturalInt, doc("Number of nodes in the cluster, including nodes that belong to no node group.")
    ] = 0
    cores: Annotated[
        NaturalInt,
        doc(
            "Total number of CPU cores in the cluster, rounded down. spec.resourceLimits.cores applies to this number."
        ),
    ] = 0
    memory_gib: Annotated[
        NaturalInt,
        doc("Total memory in the cluster in GiB, rounded down. spec.resourceLimits.memory applies to this value."),
    ] = 0
    pending_pods: Annotated[
        NaturalInt,
        doc(
            "Number of pending pods, including pods for which nodes are being added and pods that fit on existing or "
            "upcoming nodes. Pods are not counted if they are terminating, have scheduling gates, or have not yet been "
            "reported as unschedulable by their scheduler."
        ),
    ] = 0
    unneeded_nodes: Annotated[NaturalInt, doc("Number of unneeded nodes.")] = 0
    removing_nodes: Annotated[NaturalInt, doc("Number of nodes that are being removed.")] = 0


class ClusterAutoscalerStatus(Status, frozen=True):
    """Observed status of the autoscaler. OpenShift's own operator writes none of these fields."""

    observed_generation: ObservedGeneration = 0
    state: Annotated[str, state_meta("ClusterAutoscaler")] = ""
    conditions: Annotated[
        tuple[Condition, ...],
        condition_list(
            "Current conditions of the autoscaler. Ready is True if the spec is valid, the last iteration completed, "
            "and (if node groups exist) at least one node group can be scaled up. Progressing is True while nodes are "
            "being added or removed. Degraded is True if a problem prevents the operator from fulfilling part of the "
            "spec. Conflicting is True if the settings of a DeschedulerPolicy conflict with scaleDown. Contended is "
            "True if a second trimtab installation manages the same objects. PermissionsMissing is True if trimtab's "
            "service account lacks permissions that the autoscaler needs."
        ),
    ] = ()
    try_again: Annotated[
        ObjectName,
        doc(
            "Most recently processed value of the trimtab.dev/try-again annotation. A new value ends the backoff of "
            "all node groups."
        ),
    ] = ""
    last_iteration: Annotated[
        LastIteration | None,
        doc("Results of the last iteration, in which the autoscaler determined which nodes to add and remove."),
    ] = None
    last_scale_up: Annotated[
        datetime | None,
        doc(
            "Time at which nodes were last requested, by the autoscaler or by another client. "
            "spec.scaleDown.delayAfterAdd is measured from this time."
        ),
    ] = None
    last_scale_down: Annotated[
        datetime | None,
        doc(
            "Time at which the autoscaler last removed a node. spec.scaleDown.delayAfterDelete is measured from this "
            "time."
        ),
    ] = None
    last_scale_down_failure: Annotated[
        datetime | None,
        doc(
            "Time at which the removal of a node last failed. spec.scaleDown.delayAfterFailure is measured from this "
            "time."
        ),
    ] = None
    node_groups: Annotated[
        tuple[NodeGroupStatus, ...], bounded("Status of each node group, sorted by id.", limit=MAX_GROUPS, **ATOMIC)
    ] = ()
    confirmed_namespaces: Annotated[
        tuple[ObjectName, ...],
        bounded(
            "Namespaces with node groups that the annotations of a node have confirmed, sorted. If the annotations "
            "also name a cluster of Cluster API, its name follows the namespace, for example clusters/prod. An entry "
            "remains while its MachineSets, MachineDeployments or MachinePools exist, even without nodes, and "
            "spec.nodeGroupAutoDiscovery does not exclude them.",
            limit=MAX_CONFIRMED,
            **ATOMIC,
        ),
    ] = ()
    node_groups_omitted: Annotated[
        NaturalInt, doc("Number of node groups that are omitted from status.nodeGroups because its length is limited.")
    ] = 0
    unneeded: Annotated[
        tuple[UnneededNode, ...],
        bounded(
            "Unneeded nodes, longest unneeded first. A node is unneeded if its utilization is at or below "
            "spec.scaleDown.utilizationThreshold, and its pods can be evicted and fit on other nodes.",
            limit=MAX_UNNEEDED,
            **ATOMIC,
        ),
    ] = ()
    unneeded_omitted: Annotated[
        NaturalInt,
        doc(
            "Number of unneeded nodes that are omitted from status.unneeded because its length is limited. The "
            "trimtab.dev/unneeded-since annotation of these nodes contains the time at which the node became unneeded."
        ),
    ] = 0
    held: Annotated[
        tuple[HeldNode, ...],
        bounded(
            "Nodes whose removal is blocked only by pod annotations or PodDisruptionBudgets, longest blocked first. "
            "Empty if spec.scaleDown.maxHold is not set.",
            limit=MAX_HELD,
            **ATOMIC,
        ),
    ] = ()
    removing: Annotated[
        tuple[RemovingNode, ...],
        bounded("Nodes that are being removed, sorted by name.", limit=MAX_REMOVING, **ATOMIC),
    ] = ()
    removing_omitted: Annotated[
        NaturalInt, doc("Number of nodes that are omitted from status.removing because its length is limited.")
    ] = 0
    waiting_evictions: Annotated[tuple[WaitingEvictions, ...], waiting_list()] = ()
    replacements: Annotated[
        tuple[Replacement, ...],
        bounded(
            "Consolidations in progress, and consolidations that were aborted within the last hour. A consolidation "
            "replaces nodes with cheaper nodes (see spec.scaleDown.replace).",
            limit=MAX_REPLACEMENTS,
            **ATOMIC,
        ),
    ] = ()
    kept: Annotated[
        tuple[KeptNode, ...],
        bounded(
            "Nodes that were not selected for removal in the last iteration, sorted by name. The list may be "
            "truncated. keptReasons contains the number of nodes for each reason.",
            limit=MAX_NODES,
            **ATOMIC,
        ),
    ] = ()
    kept_omitted: Annotated[
        NaturalInt, doc("Number of nodes that are omitted from status.kept because its length is limited.")
    ] = 0
    kept_reasons: Annotated[
        tuple[ReasonCount, ...],
        bounded("Number of nodes that are not removed, by reason.", limit=MAX_REASONS, **list_map("reason")),
    ] = ()
    pending: Annotated[
        tuple[PendingPods, ...],
        bounded(
            "Groups of pending pods for which the last iteration added no nodes. Pods are grouped by namespace, reason "
            "and message. The list includes pods that fit on existing or upcoming nodes, and pods that "
            "lastIteration.pendingPods does not count. The list starts with pods that no scale-up can make "
            "schedulable, followed by the largest other groups.",
            limit=MAX_PENDING,
            **ATOMIC,
        ),
    ] = ()
    pending_omitted: Annotated[
        NaturalInt, doc("Number of pods that are omitted from status.pending because its length is limited.")
    ] = 0
