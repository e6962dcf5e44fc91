"""RemovePodsViolatingInterPodAntiAffinity and its parameters."""

from __future__ import annotations

from typing import Annotated

from trimtab.api.base import Spec, bounded, doc
from trimtab.api.strategies.base import SET, Strategy
from trimtab.api.strategies.node_affinity import REQUIRED, NodeAffinityType


class InterPodAntiAffinityParams(Spec, frozen=True):
    """Parameters of RemovePodsViolatingInterPodAntiAffinity."""

    inter_pod_anti_affinity_type: Annotated[
        tuple[NodeAffinityType, ...],
        bounded(
            "Which rules are looked at: requiredDuringSchedulingIgnoredDuringExecution parts pods that must not be "
            "together, preferredDuringSchedulingIgnoredDuringExecution moves pods to where fewer are, by weight, that "
            "prefer not to be with them, or that they prefer not to be with. Without it: the required ones.",
            least=1,
            limit=2,
            **SET,
        ),
    ] = (REQUIRED,)


class RemovePodsViolatingInterPodAntiAffinity(Strategy, frozen=True):
    """Parts pods that anti-affinity terms forbid to be together, moving as few of them as it takes."""

    params: Annotated[InterPodAntiAffinityParams, doc("Parameters of RemovePodsViolatingInterPodAntiAffinity.")] = (
        InterPodAntiAffinityParams()
    )
