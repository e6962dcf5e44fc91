"""SchedulingGates: a gated pod is not looked at until its gates are gone."""

from __future__ import annotations

from typing import ClassVar

from trimtab.kube.objects import Pod, PodSpec
from trimtab.placement.framework import PodFilter


class SchedulingGates(PodFilter):
    """Refuses pods with gates, in the words of their PodScheduled condition.

    The API server writes that condition (v1.36 ``applySchedulingGatedCondition``): kube-scheduler keeps such pods out
    of its queue and says nothing about them, so no "0/5 nodes are available" belongs before the text.
    """

    name: ClassVar = "SchedulingGates"
    reason: ClassVar = "Scheduling is blocked due to non-empty scheduling gates"

    def may_concern(self, spec: PodSpec) -> bool:
        """Where it has gates."""
        return bool(spec.scheduling_gates)

    def concerns(self, pod: Pod) -> bool:
        """Where the pod has gates."""
        return bool(pod.spec.scheduling_gates)

    def refusal(self, pod: Pod) -> str | None:
        """The same text whatever the gates."""
        return self.reason if pod.spec.scheduling_gates else None
