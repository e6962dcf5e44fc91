"""HistoryRecord: what the controllers did, kept in the cluster for longer than events.

All controllers report their actions to one writer, which appends them to the newest record and starts another one when
it is full. Old records are deleted by number and by age, so the history is bounded. Nothing reads it to decide
anything: a user who changes a record changes only what ``trimtab history`` and ``trimtab explain`` show.
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
    """One action of a controller on one pod, node or node group. Fields that do not apply to it are omitted."""

    time: Annotated[datetime, doc("When the result of the action was observed.")]
    controller: Annotated[
        Controller,
        doc(
            "The controller that acted: descheduler (for a DeschedulerPolicy), autoscaler (ClusterAutoscaler), "
            "tainting (TaintManager), scheduler (SchedulerPolicy) or pressure (NodePressurePolicy)."
        ),
    ]
    action: Annotated[
        Action,
        doc(
            "Evict, Delete: a pod was evicted or deleted. Preempt: a pod was evicted or deleted to make room for a pod "
            "with a higher priority. ScaleUp, ScaleDown: the target size of a node group was increased or decreased. "
            "RemoveNode: a node was drained and removed; the taint that the removal adds has no separate entry. Taint, "
            "Untaint: a taint was added to or removed from a node. Cordon, Uncordon: a node was cordoned or uncordoned."
        ),
    ]
    reason: Annotated[ReasonCode, doc("Why the controller acted, as a reason code.")]
    result: Annotated[
        Result,
        doc(
            "Succeeded: the action is complete. Started: the action was accepted and is still in progress. Refused: "
            "the API server or a check of the operator did not allow it. Failed: it failed for another reason."
        ),
    ] = "Succeeded"
    message: Annotated[ShortText, doc("Why the controller acted, with the values that were compared.")] = ""
    result_reason: Annotated[ReasonCode | None, doc("Why the action was refused or failed, as a reason code.")] = None
    result_message: Annotated[
        ShortText, doc("Details of the result, for example the error that the API server returned.")
    ] = ""
    policy: Annotated[
        ObjectName,
        doc(
            "Name of the DeschedulerPolicy or NodePressurePolicy for which the controller acted. If the controller is "
            "scheduler, this is the spec.schedulerName of the SchedulerPolicy."
        ),
    ] = ""
    strategy: Annotated[
        ObjectName,
        doc(
            "Strategy of the DeschedulerPolicy that selected the pod, for example RemoveDuplicates. For evictions of "
            "other controllers: ScaleDown (autoscaler), NodePressure or FailedPodCleanup (pressure)."
        ),
    ] = ""
    namespace: Annotated[ObjectName, doc("Namespace of the evicted or deleted pod.")] = ""
    pod: Annotated[ObjectName, doc("Name of the evicted or deleted pod.")] = ""
    uid: Annotated[
        str, bounded("UID of the evicted or deleted pod or, for an action on a node, of the node.", limit=64)
    ] = ""
    owner: Annotated[
        str, bounded("Controller that owns the pod, as Kind/name, for example ReplicaSet/web-5d4f.", limit=512)
    ] = ""
    node: Annotated[
        ObjectName,
        doc("Name of the node that was acted on or, for an action on a pod, of the node that the pod was running on."),
    ] = ""
    target: Annotated[
        ObjectName,
        doc("Node on which the plan reserved capacity for the pod that replaces the evicted one; empty if none."),
    ] = ""
    node_group: Annotated[
        str, bounded("Node group whose size was changed or to which the node belongs, as namespace/name.", limit=512)
    ] = ""
    from_size: Annotated[NaturalInt | None, doc("Target size of the node group before the action.")] = None
    to_size: Annotated[NaturalInt | None, doc("Target size of the node group that the action requested.")] = None
    taint: Annotated[str, bounded("The taint that was added or removed, as key=value:effect.", limit=512)] = ""
    pods: Annotated[
        tuple[Annotated[str, Meta(max_length=317)], ...],
        bounded(
            "Pods for which nodes were added (ScaleUp), or pods that were evicted from the node (RemoveNode), as "
            "namespace/name. Only the first 10 are listed.",
            limit=10,
            **ATOMIC,
        ),
    ] = ()


class HistoryRecordSpec(Spec, frozen=True):
    """The recorded actions, and the period that they cover."""

    first: Annotated[datetime | None, doc("Time of the first action in this record.")] = None
    last: Annotated[datetime | None, doc("Time of the last action in this record.")] = None
    count: Annotated[NaturalInt, doc("Number of actions in this record.")] = 0
    entries: Annotated[
        tuple[HistoryEntry, ...],
        bounded("The actions, in the order in which their results were recorded.", limit=MAX_ENTRIES, **ATOMIC),
    ] = ()


class HistoryRecord(Spec, frozen=True):
    """Actions of trimtab's controllers, such as evictions and scale-ups. `trimtab history` shows them.

    The operator creates, extends and deletes records. They contain names of pods and nodes of all namespaces.
    """

    spec: HistoryRecordSpec = HistoryRecordSpec()
    metadata: ObjectMeta = ObjectMeta()
    api_version: Literal["trimtab.dev/v1alpha1"] = API_VERSION
    kind: Literal["HistoryRecord"] = KIND

    @property
    def name(self) -> str:
        """Return the record's name."""
        return self.metadata.name
