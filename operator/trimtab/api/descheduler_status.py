"""The status of a DeschedulerPolicy, including which of its evictions were effective.

Every list is bounded, because each write sends and stores the complete status. Events and metrics also cover the
entries that are omitted.

The :class:`EvictionMemory` is part of the status so that it survives restarts. The descheduler computes with these
values directly (:mod:`trimtab.descheduling.memory`), and a status that is written and read back compares equal.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

from msgspec import Meta

from trimtab.api.base import (
    ATOMIC,
    BigCount,
    NaturalInt,
    ObjectName,
    ReasonCode,
    ShortText,
    Status,
    bounded,
    doc,
    list_map,
)
from trimtab.api.conditions import Condition, ObservedGeneration, condition_list
from trimtab.api.state import state_meta
from trimtab.api.waiting_evictions import WaitingEvictions, waiting_list

MAX_WATCHED: Final = 200
MAX_SETBACKS: Final = 200
MAX_HELD: Final = 200

Uid = Annotated[str, Meta(max_length=128)]

TRY_AGAIN: Final = "trimtab.dev/try-again"
"""An annotation on the policy. Whenever its value changes, trimtab discards the setbacks."""

RUN_NOW: Final = "trimtab.dev/run-now"
"""The annotation of a DeschedulerPolicy by which a user asks for one cycle; each new value asks for one."""

FailureKind = Literal["CameBack", "Pending", "WantedAway", "Stayed"]
"""Why an eviction was ineffective.

CameBack: the replacement was scheduled to the node that the pod was evicted from. Pending: the replacement was not
scheduled. WantedAway: the replacement was scheduled to another node, from which the same strategy would evict it again.
Stayed: the controller that took over the eviction did not move the pod, or the rollout that was to replace it was
undone or failed.
"""


class MovedOwner(Status, frozen=True):
    """The owner of evicted pods and the strategy that evicted them."""

    strategy: Annotated[ObjectName, doc("Name of the strategy that evicted pods of the workload.")]
    namespace: Annotated[ObjectName, doc("Namespace of the workload.")]
    kind: Annotated[
        ObjectName,
        doc("Kind of the workload to which the evicted pod belonged, for example Deployment or StatefulSet."),
    ]
    name: Annotated[ObjectName, doc("Name of the workload to which the evicted pod belonged.")]
    template: Annotated[
        str,
        Meta(max_length=64),
        doc("Hash of the pod template of the evicted pod. The entry applies only to pods with the same template."),
    ]


class WatchedEviction(MovedOwner, frozen=True):
    """An eviction that the operator observes to determine whether it was effective."""

    pod: Annotated[ObjectName, doc("Name of the evicted pod.")]
    uid: Annotated[Uid, doc("UID of the evicted pod.")]
    node: Annotated[ObjectName, doc("Name of the node from which the pod was evicted.")]
    target: Annotated[ObjectName, doc("Name of the node on which the plan reserved capacity for the replacement pod.")]
    time: Annotated[
        datetime,
        doc(
            "Time at which the pod was evicted. Until the result of the eviction is recorded, this is the start "
            "time of the cycle."
        ),
    ]
    after: Annotated[
        datetime | None,
        doc(
            "Creation time of the workload's newest pod at the time when the eviction was requested. Only pods "
            "that were created later can be the replacement pod."
        ),
    ] = None
    background: Annotated[
        bool,
        doc(
            "Whether another controller took over the eviction and completes it asynchronously. For example, KubeVirt "
            "responds to an eviction with a live migration of the virtual machine."
        ),
    ] = False
    restarted: Annotated[
        bool,
        doc(
            "Whether a rolling restart of the pod's Deployment was still in progress when the cycle ended. If "
            "spec.singleReplica is Surge, a rolling restart replaces the pods of workloads with one replica."
        ),
    ] = False
    replacement: Annotated[Uid, doc("UID of the replacement pod. Empty until the replacement pod is scheduled.")] = ""
    landed: Annotated[
        ObjectName,
        doc("Name of the node to which the replacement pod was scheduled. Empty until the pod is scheduled."),
    ] = ""
    landed_time: Annotated[
        datetime | None,
        doc("Time at which the operator observed that the replacement pod was scheduled. Unset until then."),
    ] = None


class Setback(MovedOwner, frozen=True):
    """A workload whose pods a strategy temporarily does not evict because previous evictions were ineffective."""

    failures: Annotated[
        NaturalInt,
        doc("Number of consecutive ineffective evictions of the workload's pods by the strategy."),
    ]
    time: Annotated[datetime, doc("Time at which the operator found that the most recent eviction was ineffective.")]
    until: Annotated[
        datetime, doc("Time before which the strategy does not evict pods of the workload. Ignored if gaveUp is true.")
    ]
    trouble: Annotated[
        FailureKind,
        doc(
            "Reason why the most recent eviction was ineffective. CameBack means that the replacement pod was "
            "scheduled to the same node. Pending means that the replacement pod was not scheduled within "
            "spec.cooldown.pendingDeadline. WantedAway means that the replacement pod was scheduled to a node from "
            "which the same strategy would evict it again. Stayed means that another controller or a rolling restart "
            "took over the eviction but did not replace the pod."
        ),
    ]
    node: Annotated[
        ObjectName, doc("Name of the node from which the strategy most recently evicted a pod of the workload.")
    ] = ""
    landed: Annotated[
        ObjectName,
        doc(
            "Name of the node to which the most recent replacement pod was scheduled. Empty if no replacement pod was "
            "scheduled."
        ),
    ] = ""
    replacement: Annotated[
        Uid, doc("UID of the most recent replacement pod. Empty if the evicted pod was not replaced.")
    ] = ""
    gone_time: Annotated[
        datetime | None,
        doc(
            "Time at which the operator first observed that the workload has no pods. Unset while the workload has "
            "pods. If the workload still has no pods one hour later, the entry is removed."
        ),
    ] = None
    gave_up: Annotated[
        bool,
        doc(
            "Whether the strategy has stopped evicting pods of the workload because the number of failures reached "
            "spec.cooldown.attempts. The strategy resumes when the pod template or the policy's spec changes, or when "
            "a user sets the policy's trimtab.dev/try-again annotation to a new value."
        ),
    ] = False


class HeldWorkload(Status, frozen=True):
    """A workload whose pods a strategy would evict if an annotation did not protect these pods."""

    namespace: Annotated[ObjectName, doc("Namespace of the workload.")]
    kind: Annotated[ObjectName, doc("Kind of the workload, for example Deployment or StatefulSet.")]
    name: Annotated[ObjectName, doc("Name of the workload.")]
    since: Annotated[
        datetime,
        doc(
            "Time at which a strategy first selected one of the workload's pods for eviction. "
            "spec.protections.maxHold is measured from this time."
        ),
    ]
    seen: Annotated[
        datetime, doc("Time at which a strategy most recently selected one of the workload's pods for eviction.")
    ]


class EvictionMemory(Status, frozen=True):
    """The operator's record of recent evictions and of their effectiveness."""

    generation: Annotated[
        int,
        Meta(ge=0),
        doc(
            "The metadata.generation of the policy for which setbacks was recorded. A change of the policy's spec "
            "clears the setbacks field.",
            format="int64",
        ),
    ] = 0
    try_again: Annotated[
        ObjectName,
        doc(
            "Most recently processed value of the policy's trimtab.dev/try-again annotation. A new value clears the "
            "setbacks field."
        ),
    ] = ""
    watched: Annotated[
        tuple[WatchedEviction, ...],
        bounded(
            "Evictions that the operator observes to determine whether they were effective (see spec.cooldown). An "
            "eviction is observed until one hour after its replacement pod was scheduled.",
            limit=MAX_WATCHED,
            **ATOMIC,
        ),
    ] = ()
    setbacks: Annotated[
        tuple[Setback, ...],
        bounded(
            "Workloads for which the evictions by a strategy were ineffective (see spec.cooldown). The strategy evicts "
            "no pods of such a workload before the time in the until field. If gaveUp is true, the strategy has "
            "stopped evicting pods of the workload.",
            limit=MAX_SETBACKS,
            **ATOMIC,
        ),
    ] = ()
    held: Annotated[
        tuple[HeldWorkload, ...],
        bounded(
            "Workloads whose pods a strategy selected for eviction although an annotation protects these pods. Sorted "
            "by the since field, oldest first. Empty if spec.protections.maxHold is unset.",
            limit=MAX_HELD,
            **ATOMIC,
        ),
    ] = ()
    forgotten: Annotated[
        BigCount,
        doc(
            "Number of entries that were removed from watched and setbacks, since the policy was created, to limit the "
            "size of the status."
        ),
    ] = 0


MAX_KEPT: Final = 50
MAX_EVICTIONS: Final = 20
MAX_COUNTS: Final = 256

Outcome = Literal["Planned", "Evicted", "Started", "Refused", "Kept"]


class LastRun(Status, frozen=True):
    """Summary of the last cycle."""

    time: Annotated[datetime, doc("Time at which the cycle started.")]
    completed: Annotated[
        datetime | None,
        doc("Time at which the cycle ended. Unset if the cycle failed or is still evicting pods."),
    ] = None
    generation: Annotated[
        int,
        Meta(ge=0),
        doc("The metadata.generation of the policy during the cycle. 0 if it is unknown.", format="int64"),
    ] = 0
    mode: Annotated[Literal["Simulate", "Approve", "Act"], doc("Mode of the policy during the cycle.")] = "Simulate"
    run: Annotated[
        ObjectName,
        doc(
            "Name of the DeschedulingRun that records the plan of the cycle. Empty if there is no such DeschedulingRun."
        ),
    ] = ""
    duration_seconds: Annotated[float, Meta(ge=0), doc("Duration of the cycle in seconds. 0 until the cycle ends.")] = (
        0.0
    )
    planned: Annotated[NaturalInt, doc("Number of evictions that the cycle planned.")] = 0
    evicted: Annotated[
        NaturalInt, doc("Number of pods that the cycle evicted, including terminated pods that it deleted.")
    ] = 0
    started: Annotated[
        NaturalInt,
        doc(
            "Number of evictions that were still in progress when the cycle ended. Another controller or a rolling "
            "restart of the pod's Deployment completes these evictions."
        ),
    ] = 0
    refused: Annotated[NaturalInt, doc("Number of evictions that were rejected or failed.")] = 0
    kept: Annotated[
        NaturalInt,
        doc("Number of pods and nodes for which strategies planned no eviction."),
    ] = 0
    nodes: Annotated[NaturalInt, doc("Number of nodes in the cluster when the plan was made.")] = 0
    pods: Annotated[NaturalInt, doc("Number of pods in the cluster when the plan was made.")] = 0


class Count(Status, frozen=True):
    """Number of pods in the last cycle that have the same strategy, reason and outcome."""

    strategy: Annotated[str, bounded("Name of the strategy that considered the pods.", least=1, limit=128)]
    reason: Annotated[
        ReasonCode,
        doc(
            "Reason code in CamelCase that explains why the pods are evicted. If outcome is Refused or Kept, the "
            "reason code explains why the pods are not evicted."
        ),
    ]
    outcome: Annotated[
        Outcome,
        doc(
            "Outcome for the pods. Planned means that the plan contains the evictions, but the cycle did not execute "
            "them. Evicted means that the API server accepted the evictions. Started means that another controller or "
            "a rolling restart continues the evictions after the end of the cycle. Refused means that the evictions "
            "were rejected or failed. Kept means that no eviction was planned, or that a planned eviction was not "
            "requested, for example because the window closed."
        ),
    ]
    count: Annotated[
        NaturalInt,
        doc("Number of pods. If outcome is Kept, the number includes nodes for which no eviction was planned."),
    ]


class KeptPod(Status, frozen=True):
    """A pod or node for which no eviction was planned, or a pod whose planned eviction was not executed."""

    strategy: Annotated[ObjectName, doc("Name of the strategy that considered the pod or node.")]
    reason: Annotated[
        ReasonCode,
        doc(
            "Reason code in CamelCase that explains why the pod is not evicted, or why no further pods are evicted "
            "from the node."
        ),
    ]
    namespace: Annotated[ObjectName, doc("Namespace of the pod. Empty if the entry describes a node.")] = ""
    pod: Annotated[ObjectName, doc("Name of the pod. Empty if the entry describes a node.")] = ""
    node: Annotated[
        ObjectName,
        doc(
            "Name of the node on which the pod runs. If the entry describes a node instead of a pod, this is the name "
            "of that node."
        ),
    ] = ""
    message: Annotated[
        ShortText,
        doc("Human-readable message with details of the reason, including the observed values and the limits."),
    ] = ""


class Eviction(Status, frozen=True):
    """An evicted pod, or a terminated pod that was deleted."""

    namespace: Annotated[ObjectName, doc("Namespace of the pod.")]
    pod: Annotated[ObjectName, doc("Name of the pod.")]
    strategy: Annotated[ObjectName, doc("Name of the strategy that requested the eviction.")]
    reason: Annotated[ReasonCode, doc("Reason code in CamelCase that explains why the pod was evicted.")]
    time: Annotated[
        datetime,
        doc(
            "Time at which the API server accepted the eviction. If the eviction was still in progress when the "
            "cycle ended, this is the time at which the cycle ended."
        ),
    ]
    node: Annotated[ObjectName, doc("Name of the node on which the pod ran.")] = ""
    target: Annotated[
        ObjectName,
        doc(
            "Name of the node on which the plan reserved capacity for the replacement pod. Empty if the pod had "
            "already terminated."
        ),
    ] = ""
    message: Annotated[
        ShortText,
        doc(
            "Human-readable message that explains why the pod was evicted and contains the observed values and the "
            "limits."
        ),
    ] = ""
    cause: Annotated[
        str,
        bounded(
            "Pod in another namespace that caused the eviction, in the form namespace/name. Such a pod has, for "
            "example, anti-affinity to the evicted pod. Empty if no pod in another namespace caused the eviction.",
            limit=317,
        ),
    ] = ""


class DeschedulerStatus(Status, frozen=True):
    """Most recently observed status of the DeschedulerPolicy."""

    observed_generation: ObservedGeneration = 0
    state: Annotated[str, state_meta("DeschedulerPolicy")] = ""
    conditions: Annotated[
        tuple[Condition, ...],
        condition_list(
            "Current conditions of the DeschedulerPolicy. Ready is True if the policy is valid and its last cycle "
            "completed. Progressing is True while a cycle is evicting pods. Degraded is True if a problem prevents the "
            "operator from fulfilling part of the spec. Effective is False if a strategy stopped evicting pods of a "
            "workload because the evictions were ineffective. Conflicting is True if the policy conflicts with "
            "scaleDown of the ClusterAutoscaler. Contended is True if a second trimtab installation manages the same "
            "objects. PermissionsMissing is True if trimtab's service account lacks permissions that the policy needs."
        ),
    ] = ()
    last_run: Annotated[
        LastRun | None,
        doc(
            "Summary of the last cycle. While a cycle evicts pods, this is the summary of that cycle. The execution of "
            "an approved DeschedulingRun also counts as a cycle."
        ),
    ] = None
    next_run: Annotated[
        datetime | None,
        doc(
            "Time at which the next cycle is due. Unset if no cycle is due, for example because the policy is "
            "suspended."
        ),
    ] = None
    run_now: Annotated[
        ObjectName,
        doc("Most recent value of the policy's trimtab.dev/run-now annotation for which a cycle was started."),
    ] = ""
    evicted: Annotated[
        BigCount,
        doc(
            "Number of pods that this policy has evicted since it was created, including terminated pods that it "
            "deleted. Evictions that were still in progress when their cycle ended are not counted, even if they "
            "were completed later."
        ),
    ] = 0
    counts: Annotated[
        tuple[Count, ...],
        bounded(
            "Number of pods in the last cycle for each combination of strategy, reason and outcome.",
            limit=MAX_COUNTS,
            **list_map("strategy", "reason", "outcome"),
        ),
    ] = ()
    kept: Annotated[
        tuple[KeptPod, ...],
        bounded(
            "Pods that the last cycle considered but did not evict, and nodes from which it evicted no further pods, "
            "with the reason. The list starts with pods whose planned eviction was rejected, failed or was not "
            "requested. The list may be truncated. status.counts also includes the omitted entries.",
            limit=MAX_KEPT,
            **ATOMIC,
        ),
    ] = ()
    last_evictions: Annotated[
        tuple[Eviction, ...],
        bounded(
            "Most recently evicted pods, including terminated pods that were deleted, newest first.",
            limit=MAX_EVICTIONS,
            **ATOMIC,
        ),
    ] = ()
    waiting_evictions: Annotated[tuple[WaitingEvictions, ...], waiting_list()] = ()
    memory: Annotated[
        EvictionMemory,
        doc(
            "Record of recent evictions and their effectiveness (see spec.cooldown). Because the record is part of the "
            "status, cooldowns and spec.protections.maxHold remain in effect after the operator restarts."
        ),
    ] = EvictionMemory()
