"""Pods without a disruption budget: nobody has said how many may be missing."""

from __future__ import annotations

from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.reasons import NO_DISRUPTION_BUDGET
from trimtab.disruption.protections.protection import Protection
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod


class PodsWithoutBudget(Protection):
    """Refuses pods that no PodDisruptionBudget selects, where the policy asks for it."""

    name = NO_DISRUPTION_BUDGET

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        """Where ``protections.extra`` has PodsWithoutPDB."""
        return "PodsWithoutPDB" in spec.protections.extra

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""
        return None if self.context.budgets.matching(pod) else self.refuse("no PodDisruptionBudget selects the pod")
