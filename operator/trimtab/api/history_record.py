"""HistoryRecord: what the controllers did, kept in the cluster for longer than events.

All controllers report their actions to one writer, which appends them to the newest record and starts another one when
it is full. Old records are deleted by number and by age, so the history is bounded. A restarted process counts the
evictions of the last minute toward the limits per minute. Apart from that, a user who changes a record changes only
what ``trimtab history`` and ``trimtab explain`` show.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

from msgspec import Meta

from trimtab.api.base import (
    API_VERSION,
    ATOMIC,
    NaturalInt,
    ObjectMeta,
    ObjectName,
    ReasonCode,
    ShortText,
    Spec,
    Status,
    bounded,
    doc,
)

KIND: Final = "HistoryRecord"

MAX_ENTRIES: Final = 250
"""Maximum number of entries in one record."""

Controller = Literal["descheduler", "autoscaler", "tainting", "scheduler", "pressure"]
Action = Literal[
    "Evict", "Delete", "Preempt", "ScaleUp", "ScaleDown", "RemoveNode", "Taint", "Untaint", "Cordon", "Uncordon"
]
Result = Literal["Succeeded", "Started", "Refused", "Failed"]


class HistoryEntry(Status, frozen=True, omit_defaults=True):
    """An action that a controller performed on a pod, node or node group.

    Fields that do not apply to the action are omitted.
    """

    time: Annotated[datetime, doc("Time at which the result of the action was observed.")]
    controller: Annotated[
        Controller,
        doc(
            "Controller that performed the action: descheduler (DeschedulerPolicy), autoscaler (ClusterAutoscaler), "
            "tainting (TaintManager), scheduler (SchedulerPolicy) or pressure (NodePressurePolicy)."
        ),
    ]
    action: Annotated[
        Action,
        doc(
            "Type of the action. Evict and Delete mean that a pod was evicted or deleted. Preempt means that a pod was "
            "evicted or deleted to make room for a pod with a higher priority. ScaleUp and ScaleDown mean that the "
            "target size of a node group was increased or decreased. RemoveNode means that a node was drained and "
            "removed. Taint and Untaint mean that a taint was added to or removed from a node. Cordon and Uncordon "
            "mean that a node was cordoned or uncordoned."
        ),
    ]
    reason: Annotated[
        ReasonCode, doc("Reason code in CamelCase that explains why the controller performed the action.")
    ]
    result: Annotated[
        Result,
        doc(
            "Result of the action. Succeeded means that the action is complete. Started means that the action was "
            "accepted and is still in progress. Refused means that the API server or a check of the operator rejected "
            "the action. Failed means that the action failed for another reason."
        ),
    ] = "Succeeded"
    message: Annotated[
        ShortText,
        doc(
            "Human-readable message that explains why the controller performed the action, including the values that "
            "were compared."
        ),
    ] = ""
    result_reason: Annotated[
        ReasonCode | None, doc("Reason code in CamelCase that explains why the action was rejected or failed.")
    ] = None
    result_message: Annotated[
        ShortText, doc("Human-readable details of the result, for example the error returned by the API server.")
    ] = ""
    policy: Annotated[
        ObjectName,
        doc(
            "Name of the DeschedulerPolicy or NodePressurePolicy that caused the action. For actions of the scheduler, "
            "this is the spec.schedulerName of the SchedulerPolicy."
        ),
    ] = ""
    strategy: Annotated[
        ObjectName,
        doc(
            "Strategy of the DeschedulerPolicy that selected the pod, for example RemoveDuplicates. For evictions by "
            "the cluster autoscaler, the value is ScaleDown. For evictions by the node-pressure controller, the value "
            "is NodePressure or FailedPodCleanup."
        ),
    ] = ""
    namespace: Annotated[ObjectName, doc("Namespace of the evicted or deleted pod.")] = ""
    pod: Annotated[ObjectName, doc("Name of the evicted or deleted pod.")] = ""
    uid: Annotated[
        str, bounded("UID of the evicted or deleted pod. For an action on a node, the UID of the node.", limit=64)
    ] = ""
    owner: Annotated[
        str, bounded("Controller that owns the pod, in the form Kind/name, for example ReplicaSet/web-5d4f.", limit=512)
    ] = ""
    node: Annotated[
        ObjectName,
        doc("Name of the node that the pod was running on. For an action on a node, the name of that node."),
    ] = ""
    target: Annotated[
        ObjectName,
        doc(
            "Name of the node on which capacity was reserved for the replacement of the evicted pod. Empty if no "
            "capacity was reserved."
        ),
    ] = ""
    node_group: Annotated[
        str,
        bounded(
            "Node group that was resized or that the node belongs to, in the form namespace/name. If the node group "
            "exists only at an external provider, the form is provider/name.",
            limit=512,
        ),
    ] = ""
    from_size: Annotated[NaturalInt | None, doc("Target size of the node group before the action.")] = None
    to_size: Annotated[NaturalInt | None, doc("Target size of the node group that the action requested.")] = None
    taint: Annotated[str, bounded("Taint that was added or removed, in the form key=value:effect.", limit=512)] = ""
    pods: Annotated[
        tuple[Annotated[str, Meta(max_length=317)], ...],
        bounded(
            "Pods that the action affects, in the form namespace/name. For action ScaleUp, these are the pods for "
            "which nodes were added. For action RemoveNode, these are the pods that were evicted from the node. Only "
            "the first 10 pods are listed.",
            limit=10,
            **ATOMIC,
        ),
    ] = ()


class HistoryRecordSpec(Spec, frozen=True):
    """Recorded actions, and the period that they cover."""

    first: Annotated[datetime | None, doc("Time of the first action in this record.")] = None
    last: Annotated[datetime | None, doc("Time of the last action in this record.")] = None
    count: Annotated[NaturalInt, doc("Number of actions in this record.")] = 0
    entries: Annotated[
        tuple[HistoryEntry, ...],
        bounded("Recorded actions, in the order in which their results were recorded.", limit=MAX_ENTRIES, **ATOMIC),
    ] = ()


class HistoryRecord(Spec, frozen=True):
    """HistoryRecord lists actions of trimtab's controllers, such as evictions and scale-ups.

    To view the actions, use `trimtab history`. The operator creates, extends and deletes HistoryRecords. HistoryRecords
    contain names of nodes and of pods in all namespaces.
    """

    spec: HistoryRecordSpec = HistoryRecordSpec()
    metadata: ObjectMeta = ObjectMeta()
    api_version: Literal["trimtab.dev/v1alpha1"] = API_VERSION
    kind: Literal["HistoryRecord"] = KIND

    @property
    def name(self) -> str:
        """Return the record's name."""
        return self.metadata.name
