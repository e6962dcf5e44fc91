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
    """One action of a controller on one object. The fields have the names that they have in plans."""

    time: Annotated[datetime, doc("When the result was observed.")]
    controller: Annotated[Controller, doc("The controller that acted.")]
    action: Annotated[
        Action,
        doc(
            "Evict, Delete and Preempt: a pod was evicted or deleted. ScaleUp and ScaleDown: the target size of a "
            "node group was changed. RemoveNode: a node was drained and removed. Taint, Untaint, Cordon, Uncordon: "
            "a node was changed. The taint of a removal has no entry of its own, because RemoveNode implies it."
        ),
    ]
    reason: Annotated[ReasonCode, doc("Why the controller acted, as a reason code.")]
    result: Annotated[
        Result,
        doc(
            "Succeeded: the action is complete. Started: the API server accepted it, and it continues. Refused: "
            "the API server, or a check directly before the request, refused it. Failed: it failed for another "
            "reason."
        ),
    ] = "Succeeded"
    message: Annotated[ShortText, doc("Why the controller acted, with the values that were compared.")] = ""
    result_reason: Annotated[ReasonCode | None, doc("Why the action was refused or failed, as a reason code.")] = None
    result_message: Annotated[ShortText, doc("Details of the result.")] = ""
    policy: Annotated[ObjectName, doc("The name of the policy.")] = ""
    strategy: Annotated[ObjectName, doc("The strategy of the policy.")] = ""
    namespace: Annotated[ObjectName, doc("The namespace of the pod.")] = ""
    pod: Annotated[ObjectName, doc("The name of the pod.")] = ""
    uid: Annotated[str, bounded("The UID of the pod or node.", limit=64)] = ""
    owner: Annotated[str, bounded("The controller of the pod, as Kind/name.", limit=512)] = ""
    node: Annotated[ObjectName, doc("The node, or the node of the pod.")] = ""
    target: Annotated[ObjectName, doc("The node on which the plan reserved capacity for the replacement.")] = ""
    node_group: Annotated[str, bounded("The node group, as namespace/name.", limit=512)] = ""
    from_size: Annotated[NaturalInt | None, doc("The target size of the node group before.")] = None
    to_size: Annotated[NaturalInt | None, doc("The target size of the node group after.")] = None
    taint: Annotated[str, bounded("The taint, as key=value:effect.", limit=512)] = ""
    pods: Annotated[
        tuple[Annotated[str, Meta(max_length=317)], ...],
        bounded("The first of the pods for which nodes were added, as namespace/name.", limit=10, **ATOMIC),
    ] = ()


class HistoryRecordSpec(Spec, frozen=True):
    """The recorded actions."""

    first: Annotated[datetime | None, doc("The time of the first action.")] = None
    last: Annotated[datetime | None, doc("The time of the last action.")] = None
    count: Annotated[NaturalInt, doc("The number of actions.")] = 0
    entries: Annotated[
        tuple[HistoryEntry, ...],
        bounded("The actions, in the order in which their results were observed.", limit=MAX_ENTRIES, **ATOMIC),
    ] = ()


class HistoryRecord(Spec, frozen=True):
    """A part of the history of trimtab's actions. `trimtab history` reads it.

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
