"""The pod's own wish to be left alone: ``descheduler.alpha.kubernetes.io/prefer-no-eviction``."""

from __future__ import annotations

from typing import Final

from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.reasons import NO_EVICTION_ANNOTATION
from trimtab.disruption.protections.protection import Protection
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod

KEY: Final = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
"""The upstream descheduler's key. There any value is a wish; here ``"false"`` is none."""


def prefers_to_stay(pod: Pod) -> bool:
    """Whether the pod's author wishes that other pods go first."""
    return pod.annotations.get(KEY, "false") != "false"


class PodsThatPreferToStay(Protection):
    """Refuses pods with the wish where the policy takes it for an order; elsewhere it only decides who goes first."""

    name = NO_EVICTION_ANNOTATION
    of_template = True

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        """Where ``protections.noEvictionPolicy`` is Mandatory."""
        return spec.protections.no_eviction_policy == "Mandatory"

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""
        if not prefers_to_stay(pod):
            return None
        return self.refuse(f"the pod has the annotation {KEY}, and protections.noEvictionPolicy is Mandatory")
