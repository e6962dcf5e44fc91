"""Pods with devices (dynamic resource allocation): a claim is bound to where its devices are."""

from __future__ import annotations

from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.reasons import RESOURCE_CLAIM
from trimtab.disruption.protections.protection import Protection
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod


class PodsWithResourceClaims(Protection):
    """Refuses pods that use a ResourceClaim, where the policy asks for it."""

    name = RESOURCE_CLAIM
    of_template = True

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        """Where ``protections.extra`` has PodsWithResourceClaims."""
        return "PodsWithResourceClaims" in spec.protections.extra

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""
        claims = pod.spec.resource_claims
        return self.refuse(f"the pod uses ResourceClaims: {', '.join(claims)}") if claims else None
