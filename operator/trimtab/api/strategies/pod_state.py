"""Strategies that select pods by their own state: RemoveFailedPods, PodLifeTime and RemovePodsHavingTooManyRestarts."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from trimtab.api.base import (
    ATOMIC,
    INCLUDE_OR_EXCLUDE,
    MAX_INT32,
    SET,
    NaturalInt,
    PositiveInt,
    Rule,
    Spec,
    Strategy,
    bounded,
    doc,
)

OwnerKind = Annotated[str, bounded("Kind of an owner, for example ReplicaSet.", least=1, limit=63)]

ExitCode = Annotated[int, Meta(ge=-MAX_INT32 - 1, le=MAX_INT32)]

ExitCodes = Annotated[
    tuple[ExitCode, ...],
    bounded(
        "Exit codes of the pods to select. A pod is selected if one of its containers terminated with one of these "
        "exit codes. If unset, pods are selected regardless of exit codes.",
        limit=64,
        **SET,
    ),
]

IncludingInitContainers = Annotated[
    bool, doc("Whether init containers are considered in addition to regular containers.")
]


DEFAULT_AGE: Final = 3600
"""Default of ``minPodLifetimeSeconds``, in seconds. Failed pods are kept for this time, so that users can inspect them.
Upstream has the same default.
"""


class FailedPodsParams(Spec, frozen=True):
    """Parameters of RemoveFailedPods.

    A pod must match all parameters that are set; within a list, one matching entry is enough.
    """

    reasons: Annotated[
        tuple[
            Annotated[
                str, bounded("Failure reason, for example NodeAffinity, Evicted or OOMKilled.", least=1, limit=1024)
            ],
            ...,
        ],
        bounded(
            "Failure reasons of the pods to select, for example NodeAffinity, Evicted or OOMKilled. A failure reason "
            "is the reason in the status of the pod, or in the status of a waiting or terminated container. If unset, "
            "pods with any failure reason are selected.",
            limit=64,
            **SET,
        ),
    ] = ()
    exit_codes: ExitCodes = ()
    min_pod_lifetime_seconds: Annotated[
        NaturalInt, doc("Minimum age in seconds of pods to delete, measured from their creation.")
    ] = DEFAULT_AGE
    exclude_owner_kinds: Annotated[
        tuple[OwnerKind, ...],
        bounded(
            "Kinds of owners whose pods this strategy does not delete, for example StatefulSet or ReplicaSet.",
            limit=16,
            **SET,
        ),
    ] = ()
    including_init_containers: IncludingInitContainers = False


class RemoveFailedPods(Strategy, frozen=True):
    """Deletes pods in phase Failed.

    They use no resources, and their controllers have already replaced them if needed.
    """

    params: Annotated[
        FailedPodsParams, doc("Parameters of RemoveFailedPods. A pod must match all parameters that are set.")
    ] = FailedPodsParams()


PodState = Literal[
    # phases
    "Running",
    "Pending",
    "Succeeded",
    "Failed",
    "Unknown",
    # status.reason
    "NodeAffinity",
    "NodeLost",
    "Shutdown",
    "UnexpectedAdmissionError",
    # why a container waits
    "PodInitializing",
    "ContainerCreating",
    "ImagePullBackOff",
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "ErrImagePull",
    "CreateContainerError",
    "InvalidImageName",
    # why a container has ended
    "OOMKilled",
    "Error",
    "Completed",
    "DeadlineExceeded",
    "Evicted",
    "ContainerCannotRun",
    "StartError",
]
"""A pod phase, a pod's reason, or the reason of a waiting or terminated container. These are the values that upstream
allows (v0.36).
"""

ConditionText = Annotated[str, Meta(min_length=1, max_length=1024)]


class OwnerKinds(Spec, frozen=True):
    """Limits the strategy to, or excludes, pods by the kind of their owner."""

    cel: ClassVar[tuple[Rule, ...]] = (INCLUDE_OR_EXCLUDE,)

    include: Annotated[
        tuple[OwnerKind, ...],
        bounded(
            "Kinds of owners whose pods are selected. Mutually exclusive with exclude.",
            least=1,
            limit=16,
            **SET,
        ),
    ] = ()
    exclude: Annotated[
        tuple[OwnerKind, ...],
        bounded(
            "Kinds of owners whose pods are not selected. Mutually exclusive with include.",
            least=1,
            limit=16,
            **SET,
        ),
    ] = ()


class PodConditionFilter(Spec, frozen=True):
    """A filter for pod conditions.

    At least one field must be set. A pod condition matches the filter if it matches all fields that are set.
    """

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="has(self.type) || has(self.status) || has(self.reason) || "
            "has(self.minTimeSinceLastTransitionSeconds)",
            message="give at least one of type, status, reason and minTimeSinceLastTransitionSeconds",
            reason="FieldValueRequired",
        ),
    )

    type: Annotated[ConditionText | None, doc("Type that the pod condition must have, for example Ready.")] = None
    status: Annotated[Literal["True", "False", "Unknown"] | None, doc("Status that the pod condition must have.")] = (
        None
    )
    reason: Annotated[ConditionText | None, doc("Reason that the pod condition must have.")] = None
    min_time_since_last_transition_seconds: Annotated[
        NaturalInt | None, doc("Minimum time in seconds since the status of the pod condition last changed.")
    ] = None


class PodLifeTimeParams(Spec, frozen=True):
    """Parameters of PodLifeTime.

    A pod must match all parameters that are set; within a list, one matching entry is enough.
    """

    max_pod_life_time_seconds: Annotated[
        NaturalInt | None,
        doc("Age of a pod, in seconds since its creation, above which the pod is selected."),
    ] = None
    states: Annotated[
        tuple[PodState, ...],
        bounded(
            "States of the pods to select. A state is the phase of the pod, the reason in its status, or the reason of "
            "a waiting or terminated container. If unset, pods in any state are selected.",
            limit=32,
            **SET,
        ),
    ] = ()
    conditions: Annotated[
        tuple[PodConditionFilter, ...],
        bounded(
            "Filters for pod conditions. A pod is selected if one of its conditions matches one of these filters. If "
            "unset, pods are selected regardless of their conditions.",
            limit=16,
            **ATOMIC,
        ),
    ] = ()
    exit_codes: ExitCodes = ()
    owner_kinds: Annotated[
        OwnerKinds,
        doc("Selects pods based on the kind of their owner. If unset, pods are selected regardless of their owner."),
    ] = OwnerKinds()
    including_init_containers: IncludingInitContainers = False
    including_ephemeral_containers: Annotated[
        bool,
        doc(
            "Whether ephemeral containers are also considered when pods are selected by states. Ephemeral containers "
            "are never considered for exitCodes."
        ),
    ] = False


class PodLifeTime(Strategy, frozen=True):
    """Evicts pods by age, state, condition or container exit code. Terminated pods that match are deleted."""

    needs_one_of: ClassVar[tuple[str, ...]] = ("maxPodLifeTimeSeconds", "states", "conditions", "exitCodes")

    params: Annotated[
        PodLifeTimeParams, doc("Parameters of PodLifeTime. A pod must match all parameters that are set.")
    ] = PodLifeTimeParams()


RestartState = Literal["Running", "CrashLoopBackOff"]


class TooManyRestartsParams(Spec, frozen=True):
    """Parameters of RemovePodsHavingTooManyRestarts."""

    pod_restart_threshold: Annotated[
        PositiveInt | None,
        doc("Total number of container restarts at which a pod is evicted. Required if the strategy is enabled."),
    ] = None
    including_init_containers: IncludingInitContainers = False
    states: Annotated[
        tuple[RestartState, ...],
        bounded(
            "States of the pods to select. Running is the phase of the pod. CrashLoopBackOff is the reason of a "
            "waiting container. If unset, pods in any state are selected.",
            limit=32,
            **SET,
        ),
    ] = ()


class RemovePodsHavingTooManyRestarts(Strategy, frozen=True):
    """Evicts pods whose containers have restarted too often, so that they start again, preferably on another node."""

    needs: ClassVar[tuple[str, ...]] = ("podRestartThreshold",)

    params: Annotated[TooManyRestartsParams, doc("Parameters of RemovePodsHavingTooManyRestarts.")] = (
        TooManyRestartsParams()
    )
