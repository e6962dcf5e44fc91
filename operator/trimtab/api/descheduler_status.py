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

    strategy: Annotated[ObjectName, doc("The strategy that evicted the pod.")]
    namespace: Annotated[ObjectName, doc("The namespace of the owner and its pods.")]
    kind: Annotated[ObjectName, doc("The kind of the owner, for example Deployment or StatefulSet.")]
    name: Annotated[ObjectName, doc("The name of the owner.")]
    template: Annotated[
        str,
        Meta(max_length=64),
        doc("A hash of the pod template. If the template changes, the entry no longer applies."),
    ]


class WatchedEviction(MovedOwner, frozen=True):
    """An eviction whose effect is not known yet."""

    pod: Annotated[ObjectName, doc("The name of the evicted pod.")]
    uid: Annotated[Uid, doc("The UID of the evicted pod.")]
    node: Annotated[ObjectName, doc("The node that the pod was evicted from.")]
    target: Annotated[ObjectName, doc("The node on which the plan reserved capacity for the replacement.")]
    time: Annotated[
        datetime,
        doc("When the pod was evicted. Until the cycle ends, this is the time at which the cycle began to evict pods."),
    ]
    after: Annotated[
        datetime | None,
        doc(
            "The creation time of the owner's newest pod at the time of the eviction. The replacement is a pod created "
            "later."
        ),
    ] = None
    background: Annotated[
        bool, doc("Whether another controller took over the eviction and completes it in the background.")
    ] = False
    restarted: Annotated[
        bool,
        doc("Whether the pod is being replaced by a rolling restart of its Deployment that has not finished yet."),
    ] = False
    replacement: Annotated[Uid, doc("The UID of the replacement pod; empty until it is scheduled.")] = ""
    landed: Annotated[
        ObjectName, doc("The node that the replacement was scheduled to; empty until it is scheduled.")
    ] = ""
    landed_time: Annotated[datetime | None, doc("When the operator observed that the replacement was scheduled.")] = (
        None
    )


class Setback(MovedOwner, frozen=True):
    """An owner that a strategy backs off from because earlier evictions of its pods were ineffective."""

    failures: Annotated[NaturalInt, doc("Number of consecutive ineffective evictions.")]
    time: Annotated[datetime, doc("When the most recent eviction was found to be ineffective.")]
    until: Annotated[
        datetime, doc("The strategy does not evict the owner's pods before this time. Ignored if gaveUp is true.")
    ]
    trouble: Annotated[
        FailureKind,
        doc(
            "Why the last eviction was ineffective. CameBack: the replacement was scheduled to the same node. "
            "Pending: the replacement was not scheduled. WantedAway: the replacement was scheduled to a node "
            "from which the same strategy would evict it again. Stayed: the eviction was handed over to another "
            "controller or a rollout, and the pod was not moved."
        ),
    ]
    node: Annotated[ObjectName, doc("The node that the last pod was evicted from.")] = ""
    landed: Annotated[
        ObjectName, doc("The node that the last replacement was scheduled to; empty if it is Pending.")
    ] = ""
    replacement: Annotated[Uid, doc("The UID of the last replacement pod.")] = ""
    gone_time: Annotated[
        datetime | None,
        doc(
            "When a cycle first found that the owner has no pods. The entry is removed if no new pod is created "
            "within an hour."
        ),
    ] = None
    gave_up: Annotated[
        bool,
        doc(
            "Whether the strategy has stopped evicting the owner's pods, until the pod template or the spec "
            "changes. If true, until is ignored."
        ),
    ] = False


class HeldWorkload(Status, frozen=True):
    """A workload with pods that were selected for eviction but are protected by an annotation."""

    namespace: Annotated[ObjectName, doc("The namespace of the workload and its pods.")]
    kind: Annotated[ObjectName, doc("The kind of the workload, for example Deployment or StatefulSet.")]
    name: Annotated[ObjectName, doc("The name of the workload.")]
    since: Annotated[datetime, doc("When a strategy first selected an annotation-protected pod of this workload.")]
    seen: Annotated[datetime, doc("When a strategy last selected an annotation-protected pod of this workload.")]


class EvictionMemory(Status, frozen=True):
    """Evictions whose effect is not known yet or that were ineffective, for one generation of the spec."""

    generation: Annotated[
        int, Meta(ge=0), doc("The generation of the spec to which this memory applies.", format="int64")
    ] = 0
    try_again: Annotated[
        ObjectName, doc("The last value of the annotation trimtab.dev/try-again that was processed.")
    ] = ""
    watched: Annotated[
        tuple[WatchedEviction, ...],
        bounded("Evictions whose effect is not known yet.", limit=MAX_WATCHED, **ATOMIC),
    ] = ()
    setbacks: Annotated[
        tuple[Setback, ...],
        bounded(
            "Owners whose last evictions by a strategy were ineffective. The strategy does not evict their pods until "
            "the time in until or, if gaveUp is true, until the pod template or the spec changes.",
            limit=MAX_SETBACKS,
            **ATOMIC,
        ),
    ] = ()
    held: Annotated[
        tuple[HeldWorkload, ...],
        bounded(
            "Workloads with pods that were selected for eviction but are protected by an annotation, longest "
            "protected first. Used only if protections.maxHold is set.",
            limit=MAX_HELD,
            **ATOMIC,
        ),
    ] = ()
    forgotten: Annotated[
        BigCount,
        doc(
            "Total number of entries dropped from watched and setbacks to limit their size, since the policy "
            "was created."
        ),
    ] = 0


MAX_KEPT: Final = 50
MAX_EVICTIONS: Final = 20
MAX_COUNTS: Final = 256

Outcome = Literal["Planned", "Evicted", "Started", "Refused", "Kept"]


class LastRun(Status, frozen=True):
    """Summary of the last cycle."""

    time: Annotated[datetime, doc("When the cycle started.")]
    completed: Annotated[datetime | None, doc("When the cycle ended.")] = None
    mode: Annotated[Literal["Simulate", "Approve", "Act"], doc("The policy's mode in this cycle.")] = "Simulate"
    run: Annotated[ObjectName, doc("The DeschedulingRun that records the cycle; empty if none was created.")] = ""
    duration_seconds: Annotated[float, Meta(ge=0), doc("Duration of the cycle in seconds.")] = 0.0
    planned: Annotated[NaturalInt, doc("Number of planned evictions.")] = 0
    evicted: Annotated[NaturalInt, doc("Number of evicted pods.")] = 0
    started: Annotated[
        NaturalInt,
        doc("Number of pods whose eviction was accepted but that were not deleted yet when the cycle ended."),
    ] = 0
    refused: Annotated[NaturalInt, doc("Number of evictions that were refused or failed.")] = 0
    kept: Annotated[NaturalInt, doc("Number of candidates that were not evicted.")] = 0
    nodes: Annotated[NaturalInt, doc("Number of nodes in the cluster when the plan was made.")] = 0
    pods: Annotated[NaturalInt, doc("Number of pods in the cluster when the plan was made.")] = 0


class Count(Status, frozen=True):
    """The number of pods in the last cycle with the same strategy, reason and outcome."""

    strategy: Annotated[str, bounded("The name of the strategy.", least=1, limit=128)]
    reason: Annotated[ReasonCode, doc("The reason code, in CamelCase.")]
    outcome: Annotated[
        Outcome,
        doc(
            "What happened to the pods. Planned: the plan contains their eviction (modes Simulate and "
            "Approve). Evicted: the API server accepted the eviction. Started: the eviction was accepted, "
            "but the pod was not deleted yet when the cycle ended. Refused: the eviction was refused or "
            "failed. Kept: the pods were not evicted."
        ),
    ]
    count: Annotated[NaturalInt, doc("Number of pods.")]


class KeptPod(Status, frozen=True):
    """A candidate pod that was not evicted, or a node that a strategy could not balance or drain."""

    strategy: Annotated[ObjectName, doc("The strategy that considered the candidate.")]
    reason: Annotated[ReasonCode, doc("Reason code, in CamelCase, for not evicting the candidate.")]
    namespace: Annotated[ObjectName, doc("The namespace of the pod.")] = ""
    pod: Annotated[ObjectName, doc("The name of the pod; empty if the entry is about a whole node.")] = ""
    node: Annotated[ObjectName, doc("The node that the pod runs on, or that the entry is about.")] = ""
    message: Annotated[ShortText, doc("Why the candidate was not evicted, with the values that were compared.")] = ""


class Eviction(Status, frozen=True):
    """An evicted pod."""

    namespace: Annotated[ObjectName, doc("The namespace of the pod.")]
    pod: Annotated[ObjectName, doc("The name of the pod.")]
    strategy: Annotated[ObjectName, doc("The strategy that requested the eviction.")]
    reason: Annotated[ReasonCode, doc("The reason code for the eviction.")]
    time: Annotated[datetime, doc("When the API server accepted the eviction.")]
    node: Annotated[ObjectName, doc("The node that the pod ran on.")] = ""
    target: Annotated[
        ObjectName,
        doc(
            "The node on which the plan reserved capacity for the replacement; empty for pods that had already "
            "terminated."
        ),
    ] = ""
    message: Annotated[ShortText, doc("Why the pod was evicted, with the values that were compared.")] = ""
    cause: Annotated[
        str,
        bounded(
            "The pod in another namespace whose scheduling rule caused the eviction, as namespace/name; empty "
            "if the eviction was not caused by a pod in another namespace.",
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
            "running); Degraded (something prevents the policy from doing what the spec asks for); Effective "
            "(False if a strategy has stopped evicting the pods of an owner because evictions were "
            "ineffective); Conflicting (only if the cluster has a ClusterAutoscaler: settings of the policy and "
            "of its scaleDown work against each other); Contended (another operator process runs the same "
            "controllers; set only after one was detected); PermissionsMissing (the service account lacks permissions "
            "that the policy needs)."
        ),
    ] = ()
    last_run: Annotated[LastRun | None, doc("Summary of the last cycle.")] = None
    next_run: Annotated[datetime | None, doc("When the next cycle is due.")] = None
    run_now: Annotated[
        ObjectName,
        doc("The last value of the annotation trimtab.dev/run-now for which a cycle was started."),
    ] = ""
    evicted: Annotated[BigCount, doc("Number of pods that this policy has evicted since it was created.")] = 0
    counts: Annotated[
        tuple[Count, ...],
        bounded(
            "Number of pods in the last cycle by strategy, reason and outcome.",
            limit=MAX_COUNTS,
            **list_map("strategy", "reason", "outcome"),
        ),
    ] = ()
    kept: Annotated[
        tuple[KeptPod, ...],
        bounded(
            "Candidates of the last cycle that were not evicted. The list is truncated; counts covers all candidates.",
            limit=MAX_KEPT,
            **ATOMIC,
        ),
    ] = ()
    last_evictions: Annotated[
        tuple[Eviction, ...],
        bounded("The latest evictions, newest first.", limit=MAX_EVICTIONS, **ATOMIC),
    ] = ()
    waiting_evictions: Annotated[tuple[WaitingEvictions, ...], waiting_list()] = ()
    memory: Annotated[
        EvictionMemory,
        doc(
            "Effects of past evictions. The policy uses them to back off from owners whose pods were evicted "
            "without effect."
        ),
    ] = EvictionMemory()
