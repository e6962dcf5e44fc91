"""Bare pods: nothing would make them anew."""

from __future__ import annotations

from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.reasons import BARE_POD
from trimtab.disruption.protections.protection import Protection
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod


def may_go_once_failed(spec: DeschedulerPolicySpec) -> bool:
    """Whether the policy gives up bare pods that have failed: ``protections.disabled`` has FailedBarePods."""
    return "FailedBarePods" in spec.protections.disabled


class BarePods(Protection):
    """Refuses pods without a controller. An owner that is none only decides when the pod is garbage."""

    name = BARE_POD
    liftable = False
    of_template = True

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        """Where bare pods stay in any phase; else :class:`LivingBarePods` has the word."""
        return not may_go_once_failed(spec)

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""
        if pod.controller is not None:
            return None
        if not pod.owners:
            return self.refuse("no controller owns the pod: it would not come back")
        owners = ", ".join(f"{owner.kind} {owner.name}" for owner in pod.owners)
        return self.refuse(f"no controller owns the pod: it would not come back ({owners}: without controller: true)")


class LivingBarePods(BarePods):
    """Refuses pods without a controller until they have failed. The phase is the pod's own, not its template's."""

    of_template = False

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        """Where ``protections.disabled`` has FailedBarePods."""
        return may_go_once_failed(spec)

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""
        return None if pod.phase == "Failed" else super().refusal(pod)
