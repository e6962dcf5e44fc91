"""PodLifeTime and its parameters."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from trimtab.api.base import INCLUDE_OR_EXCLUDE, NaturalInt, Rule, Spec, bounded, doc
from trimtab.api.strategies.base import SET, Strategy
from trimtab.api.strategies.containers import ExitCodes, IncludingInitContainers, OwnerKind

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
"""A phase, a pod's reason, or the reason of a waiting or terminated container: those that upstream allows (v0.36)."""

ConditionText = Annotated[str, Meta(min_length=1, max_length=1024)]


class OwnerKinds(Spec, frozen=True):
    """Which owners' pods are looked at."""

    cel: ClassVar[tuple[Rule, ...]] = (INCLUDE_OR_EXCLUDE,)

    include: Annotated[
        tuple[OwnerKind, ...],
        bounded("Only pods with an owner of one of these kinds. Not together with exclude.", least=1, limit=16, **SET),
    ] = ()
    exclude: Annotated[
        tuple[OwnerKind, ...],
        bounded("No pods with an owner of one of these kinds. Not together with include.", least=1, limit=16, **SET),
    ] = ()


class PodConditionFilter(Spec, frozen=True):
    """A condition that a pod has; of the fields at least one is given, and all that are given must hold."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="has(self.type) || has(self.status) || has(self.reason) || "
            "has(self.minTimeSinceLastTransitionSeconds)",
            message="give at least one of type, status, reason and minTimeSinceLastTransitionSeconds",
            reason="FieldValueRequired",
        ),
    )

    type: Annotated[ConditionText | None, doc("The condition's type, e.g. Ready.")] = None
    status: Annotated[Literal["True", "False", "Unknown"] | None, doc("The condition's status.")] = None
    reason: Annotated[ConditionText | None, doc("The condition's reason.")] = None
    min_time_since_last_transition_seconds: Annotated[
        NaturalInt | None, doc("The condition has had its status for at least this many seconds.")
    ] = None


class PodLifeTimeParams(Spec, frozen=True):
    """Parameters of PodLifeTime: what is given must all hold; within a list one entry suffices."""

    max_pod_life_time_seconds: Annotated[
        NaturalInt | None, doc("Only pods that were created longer ago than this many seconds.")
    ] = None
    states: Annotated[
        tuple[PodState, ...],
        bounded(
            "Only pods in one of these states: a phase, the pod's reason, or the reason for which a container waits "
            "or has ended. Without it: any.",
            limit=32,
            **SET,
        ),
    ] = ()
    conditions: Annotated[
        tuple[PodConditionFilter, ...],
        bounded(
            "Only pods with a condition that one of these describes. Without it: any.",
            limit=16,
            **{"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    exit_codes: ExitCodes = ()
    owner_kinds: Annotated[OwnerKinds, doc("Which owners' pods are looked at; all where nothing is given.")] = (
        OwnerKinds()
    )
    including_init_containers: IncludingInitContainers = False
    including_ephemeral_containers: Annotated[
        bool, doc("Whether states are also those of ephemeral containers; their exit codes never count.")
    ] = False


class PodLifeTime(Strategy, frozen=True):
    """Evicts pods that have lived too long, or that are in a state in which they are not to be for long."""

    needs_one_of: ClassVar[tuple[str, ...]] = ("maxPodLifeTimeSeconds", "states", "conditions", "exitCodes")

    params: Annotated[PodLifeTimeParams, doc("Parameters of PodLifeTime.")] = PodLifeTimeParams()
