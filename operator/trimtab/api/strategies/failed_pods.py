"""RemoveFailedPods and its parameters."""

from __future__ import annotations

from typing import Annotated, Final

from trimtab.api.base import NaturalInt, Spec, bounded, doc
from trimtab.api.strategies.base import SET, Strategy
from trimtab.api.strategies.containers import ExitCodes, IncludingInitContainers, OwnerKind

DEFAULT_AGE: Final = 3600
"""Seconds that a failed pod is left for people to look at, unless the policy says otherwise; upstream's default too."""


class FailedPodsParams(Spec, frozen=True):
    """Parameters of RemoveFailedPods: what is given must all hold; within a list one entry suffices."""

    reasons: Annotated[
        tuple[Annotated[str, bounded("A reason.", least=1, limit=1024)], ...],
        bounded(
            "Only pods that failed for one of these reasons: the pod's own, or the one for which a container waits or "
            "has ended, e.g. NodeAffinity, Evicted, OOMKilled. Without it: any.",
            limit=64,
            **SET,
        ),
    ] = ()
    exit_codes: ExitCodes = ()
    min_pod_lifetime_seconds: Annotated[
        NaturalInt, doc("Pods stay that were created less than this many seconds ago.")
    ] = DEFAULT_AGE
    exclude_owner_kinds: Annotated[
        tuple[OwnerKind, ...],
        bounded("Kinds of owners whose pods are left alone, e.g. StatefulSet or ReplicaSet.", limit=16, **SET),
    ] = ()
    including_init_containers: IncludingInitContainers = False


class RemoveFailedPods(Strategy, frozen=True):
    """Removes pods of phase Failed. They hold no place, and whoever made them has made others, if they are needed."""

    params: Annotated[FailedPodsParams, doc("Parameters of RemoveFailedPods.")] = FailedPodsParams()
