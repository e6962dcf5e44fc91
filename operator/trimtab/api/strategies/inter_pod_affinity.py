"""RemovePodsViolatingInterPodAffinity and its parameters."""

from __future__ import annotations

from typing import Annotated

from trimtab.api.base import Spec, bounded, doc
from trimtab.api.strategies.base import SET, Strategy
from trimtab.api.strategies.node_affinity import REQUIRED, NodeAffinityType


class InterPodAffinityParams(Spec, frozen=True):
    """Parameters of RemovePodsViolatingInterPodAffinity."""

    inter_pod_affinity_type: Annotated[
        tuple[NodeAffinityType, ...],
        bounded(
            "Which rules are looked at: requiredDuringSchedulingIgnoredDuringExecution moves pods whose required pod "
            "affinity no longer holds where they are to where it does, preferredDuringSchedulingIgnoredDuringExecution "
            "pods that find more of what their preferred pod affinity asks for elsewhere, by weight. Without it: the "
            "required ones.",
            least=1,
            limit=2,
            **SET,
        ),
    ] = (REQUIRED,)


class RemovePodsViolatingInterPodAffinity(Strategy, frozen=True):
    """Moves pods to the pods that they must be, or would rather be, together with."""

    params: Annotated[InterPodAffinityParams, doc("Parameters of RemovePodsViolatingInterPodAffinity.")] = (
        InterPodAffinityParams()
    )
