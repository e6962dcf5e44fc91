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

    strategy: Annotated[ObjectName, doc("The strategy that requested the eviction.")]
    namespace: Annotated[ObjectName, doc("The namespace of the workload and its pods.")]
    kind: Annotated[
        ObjectName,
        doc("The kind of the workload that the evicted pod belongs to, for example Deployment or StatefulSet."),
    ]
    name: Annotated[ObjectName, doc("The name of the workload that the evicted pod belongs to.")]
    template: Annotated[
        str,
        Meta(max_length=64),
        doc("A hash of the pod template of the evicted pod. The entry applies only to pods with the same template."),
    ]


class WatchedEviction(MovedOwner, frozen=True):
    """An eviction whose replacement pod is observed, to find out whether the eviction helped (see spec.cooldown)."""

    pod: Annotated[ObjectName, doc("The name of the evicted pod.")]
    uid: Annotated[Uid, doc("The UID of the evicted pod.")]
    node: Annotated[ObjectName, doc("The node that the pod was evicted from.")]
    target: Annotated[
        ObjectName, doc("The node on which the plan reserved capacity for the pod that replaces the evicted pod.")
    ]
    time: Annotated[
        datetime,
        doc("When the pod was evicted. While the cycle is running, this is the start of the cycle."),
    ]
    after: Annotated[
        datetime | None,
        doc(
            "The creation time of the workload's newest pod when the eviction was requested. A pod that was "
            "created later can be the replacement."
        ),
    ] = None
    background: Annotated[
        bool,
        doc(
            "Whether another controller took over the eviction and completes it asynchronously, for example "
            "KubeVirt with a live migration."
        ),
    ] = False
    restarted: Annotated[
        bool,
        doc(
            "Whether the pod is replaced by a rolling restart of its Deployment (singleReplica: Surge) that had "
            "not finished when the cycle ended."
        ),
    ] = False
    replacement: Annotated[
        Uid, doc("The UID of the pod that replaces the evicted pod; empty until it is scheduled.")
    ] = ""
    landed: Annotated[
        ObjectName, doc("The node that the replacement pod was scheduled to; empty until it is scheduled.")
    ] = ""
    landed_time: Annotated[
        datetime | None, doc("When the operator observed that the replacement pod was scheduled; unset until then.")
    ] = None


class Setback(MovedOwner, frozen=True):
    """A workload whose pods a strategy does not evict, because its earlier evictions of them did not help.

    The field trouble explains why the most recent eviction did not help.
    """

    failures: Annotated[
        NaturalInt,
        doc(
            "Number of consecutive evictions that did not help, for example because the replacement pod was "
            "scheduled to the same node."
        ),
    ]
    time: Annotated[datetime, doc("When the operator found that the most recent eviction did not help.")]
    until: Annotated[
        datetime, doc("The strategy does not evict the workload's pods before this time. Ignored if gaveUp is true.")
    ]
    trouble: Annotated[
        FailureKind,
        doc(
            "Why the most recent eviction did not help. CameBack: the replacement pod was scheduled to the same "
            "node. Pending: the replacement pod was not scheduled within cooldown.pendingDeadline. WantedAway: "
            "the replacement pod was scheduled to a node from which the same strategy would evict it again. "
            "Stayed: another controller or a rolling restart took over the eviction but did not replace the "
            "pod."
        ),
    ]
    node: Annotated[ObjectName, doc("The node that the most recently evicted pod was evicted from.")] = ""
    landed: Annotated[
        ObjectName,
        doc("The node that the most recent replacement pod was scheduled to; empty if trouble is Pending or Stayed."),
    ] = ""
    replacement: Annotated[Uid, doc("The UID of the most recent replacement pod; empty if trouble is Stayed.")] = ""
    gone_time: Annotated[
        datetime | None,
        doc(
            "When the operator first found that the workload has no pods; unset while it has pods. If no pod is "
            "created within an hour, the entry is removed."
        ),
    ] = None
    gave_up: Annotated[
        bool,
        doc(
            "Whether the strategy has stopped evicting the workload's pods, because the number of failures "
            "reached cooldown.attempts. It resumes when the pod template or the spec changes, or when the "
            "annotation trimtab.dev/try-again gets a new value."
        ),
    ] = False


class HeldWorkload(Status, frozen=True):
    """A workload with pods that a strategy selected for eviction but that an annotation protects."""

    namespace: Annotated[ObjectName, doc("The namespace of the workload and its pods.")]
    kind: Annotated[ObjectName, doc("The kind of the workload, for example Deployment or StatefulSet.")]
    name: Annotated[ObjectName, doc("The name of the workload.")]
    since: Annotated[
        datetime,
        doc(
            "When a strategy first selected one of these pods for eviction. protections.maxHold is counted from "
            "this time."
        ),
    ]
    seen: Annotated[datetime, doc("When a strategy last selected one of these pods for eviction.")]


class EvictionMemory(Status, frozen=True):
    """Recent evictions and whether they helped."""

    generation: Annotated[
        int,
        Meta(ge=0),
        doc("The metadata.generation that setbacks applies to. A change of the spec clears setbacks.", format="int64"),
    ] = 0
    try_again: Annotated[
        ObjectName,
        doc("The last value of the annotation trimtab.dev/try-again that was processed. A new value clears setbacks."),
    ] = ""
    watched: Annotated[
        tuple[WatchedEviction, ...],
        bounded(
            "Evictions whose replacement pods are observed, to find out whether the evictions helped (see "
            "spec.cooldown): the replacement pod is not scheduled, or was scheduled less than an hour ago.",
            limit=MAX_WATCHED,
            **ATOMIC,
        ),
    ] = ()
    setbacks: Annotated[
        tuple[Setback, ...],
        bounded(
            "Workloads whose pods a strategy does not evict, because its last evictions of them did not help "
            "(see spec.cooldown): until the time in until or, if gaveUp is true, until the pod template or the "
            "spec changes or the annotation trimtab.dev/try-again gets a new value.",
            limit=MAX_SETBACKS,
            **ATOMIC,
        ),
    ] = ()
    held: Annotated[
        tuple[HeldWorkload, ...],
        bounded(
            "Workloads with pods that a strategy selected for eviction but that an annotation protects, longest "
            "protected first. Empty unless protections.maxHold is set.",
            limit=MAX_HELD,
            **ATOMIC,
        ),
    ] = ()
    forgotten: Annotated[
        BigCount,
        doc(
            "Number of entries that were dropped from watched and setbacks to limit the size of the status, "
            "since the policy was created."
        ),
    ] = 0


MAX_KEPT: Final = 50
MAX_EVICTIONS: Final = 20
MAX_COUNTS: Final = 256

Outcome = Literal["Planned", "Evicted", "Started", "Refused", "Kept"]


class LastRun(Status, frozen=True):
    """Summary of the last cycle."""

    time: Annotated[datetime, doc("When the cycle started.")]
    completed: Annotated[
        datetime | None, doc("When the cycle ended; unset while it is evicting pods, or if it failed.")
    ] = None
    mode: Annotated[Literal["Simulate", "Approve", "Act"], doc("The policy's mode in this cycle.")] = "Simulate"
    run: Annotated[
        ObjectName, doc("The DeschedulingRun that records the plan of the cycle; empty if there is none.")
    ] = ""
    duration_seconds: Annotated[float, Meta(ge=0), doc("Duration of the cycle in seconds; 0 until it ends.")] = 0.0
    planned: Annotated[NaturalInt, doc("Number of evictions that the cycle planned.")] = 0
    evicted: Annotated[NaturalInt, doc("Number of pods that the cycle evicted.")] = 0
    started: Annotated[
        NaturalInt,
        doc(
            "Number of pods whose eviction was still in progress when the cycle ended: another controller "
            "completes it, or a rolling restart of the Deployment replaces the pod."
        ),
    ] = 0
    refused: Annotated[NaturalInt, doc("Number of evictions that were refused or failed.")] = 0
    kept: Annotated[
        NaturalInt,
        doc("Number of pods and nodes that strategies considered but for which the cycle planned no eviction."),
    ] = 0
    nodes: Annotated[NaturalInt, doc("Number of nodes in the cluster when the plan was made.")] = 0
    pods: Annotated[NaturalInt, doc("Number of pods in the cluster when the plan was made.")] = 0


class Count(Status, frozen=True):
    """The number of pods in the last cycle with one combination of strategy, reason and outcome."""

    strategy: Annotated[str, bounded("The strategy that considered the pods.", least=1, limit=128)]
    reason: Annotated[
        ReasonCode,
        doc("Reason code, in CamelCase: why the pods are evicted or, if outcome is Refused or Kept, why they are not."),
    ]
    outcome: Annotated[
        Outcome,
        doc(
            "What happened to the pods. Planned: the plan contains their eviction (modes Simulate and Approve). "
            "Evicted: the API server accepted the eviction. Started: the eviction was still in progress when "
            "the cycle ended, because another controller or a rolling restart completes it. Refused: the "
            "eviction was refused or failed. Kept: no eviction was requested."
        ),
    ]
    count: Annotated[
        NaturalInt,
        doc(
            "Number of pods. If outcome is Kept, nodes that a strategy could not balance or drain are counted as well."
        ),
    ]


class KeptPod(Status, frozen=True):
    """A pod that a strategy considered but that is not evicted, or a node that it could not balance or drain."""

    strategy: Annotated[ObjectName, doc("The strategy that considered the pod or node.")]
    reason: Annotated[
        ReasonCode,
        doc("Reason code, in CamelCase: why the pod is not evicted, or why the node is not balanced or drained."),
    ]
    namespace: Annotated[ObjectName, doc("The namespace of the pod; empty if the entry is about a node.")] = ""
    pod: Annotated[ObjectName, doc("The name of the pod; empty if the entry is about a node.")] = ""
    node: Annotated[ObjectName, doc("The node that the pod runs on, or the node that the entry is about.")] = ""
    message: Annotated[ShortText, doc("Human-readable form of the reason, with the values that were compared.")] = ""


class Eviction(Status, frozen=True):
    """An evicted pod, or a terminated pod that was deleted."""

    namespace: Annotated[ObjectName, doc("The namespace of the pod.")]
    pod: Annotated[ObjectName, doc("The name of the pod.")]
    strategy: Annotated[ObjectName, doc("The strategy that requested the eviction.")]
    reason: Annotated[ReasonCode, doc("Reason code, in CamelCase, for the eviction.")]
    time: Annotated[
        datetime,
        doc(
            "When the API server accepted the eviction or, if the eviction was still in progress, when the cycle ended."
        ),
    ]
    node: Annotated[ObjectName, doc("The node that the pod ran on.")] = ""
    target: Annotated[
        ObjectName,
        doc(
            "The node on which the plan reserved capacity for the replacement pod; empty for pods that had "
            "already terminated."
        ),
    ] = ""
    message: Annotated[ShortText, doc("Why the pod was evicted, with the values that were compared.")] = ""
    cause: Annotated[
        str,
        bounded(
            "The pod in another namespace because of which this pod was evicted, as namespace/name, for example "
            "a pod with anti-affinity to this pod. Empty if there is none.",
            limit=317,
        ),
    ] = ""


class DeschedulerStatus(Status, frozen=True):
    """The observed state of the policy: conditions, the last cycle and the latest evictions."""

    observed_generation: ObservedGeneration = 0
    state: Annotated[str, state_meta("Idle, CycleRunning, WaitingForApproval, OutsideWindows, Suspended")] = ""
    conditions: Annotated[
        tuple[Condition, ...],
        condition_list(
            "Conditions: Ready (the policy is valid and its last cycle completed); Progressing (a cycle is "
            "evicting pods); Degraded (something prevents the policy from doing what the spec asks for); "
            "Effective (False if a strategy has stopped evicting the pods of a workload, because earlier "
            "evictions did not help, see spec.cooldown); Conflicting (settings of the policy and of scaleDown "
            "in the ClusterAutoscaler work against each other; set only if there is a ClusterAutoscaler); "
            "Contended (another operator process runs the same controllers; set only after one was detected); "
            "PermissionsMissing (the service account lacks permissions that the policy needs)."
        ),
    ] = ()
    last_run: Annotated[
        LastRun | None, doc("Summary of the last cycle, or of the current one while it evicts pods.")
    ] = None
    next_run: Annotated[
        datetime | None,
        doc("When the next cycle is due; unset if none is due, for example because the policy is suspended."),
    ] = None
    run_now: Annotated[
        ObjectName,
        doc("The last value of the annotation trimtab.dev/run-now for which a cycle was started."),
    ] = ""
    evicted: Annotated[
        BigCount,
        doc(
            "Number of pods that this policy has evicted since it was created. Evictions that were still in "
            "progress when their cycle ended are not counted."
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
            "Pods that strategies considered in the last cycle but that were not evicted, and nodes that they "
            "could not balance or drain. The list may be truncated; counts covers all of them.",
            limit=MAX_KEPT,
            **ATOMIC,
        ),
    ] = ()
    last_evictions: Annotated[
        tuple[Eviction, ...],
        bounded("The most recently evicted pods, newest first.", limit=MAX_EVICTIONS, **ATOMIC),
    ] = ()
    waiting_evictions: Annotated[tuple[WaitingEvictions, ...], waiting_list()] = ()
    memory: Annotated[
        EvictionMemory,
        doc(
            "Recent evictions and whether they helped (see spec.cooldown). The operator stores them here, so "
            "that cooldowns and protections.maxHold continue after it restarts."
        ),
    ] = EvictionMemory()
