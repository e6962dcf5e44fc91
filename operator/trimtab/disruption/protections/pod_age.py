"""Young pods: what has just started is still warming up, and may have been moved a moment ago."""

from __future__ import annotations

from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.reasons import POD_TOO_YOUNG
from trimtab.disruption.protections.protection import Context, Protection
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod


class MinPodAge(Protection):
    """Refuses pods that started less than ``protections.minPodAge`` ago (``status.startTime``), or have not started."""

    name = POD_TOO_YOUNG

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._least = context.spec.protections.min_pod_age_seconds

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        """Where ``protections.minPodAge`` is given."""
        return spec.protections.min_pod_age_seconds > 0

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""
        wanted = f"protections.minPodAge is {self.context.spec.protections.min_pod_age}"
        if pod.started is None:
            return self.refuse(f"the pod has not started, {wanted}")
        age = self.context.now - pod.started
        return None if age >= self._least else self.refuse(f"the pod started {max(0, int(age))}s ago, {wanted}")
