"""Pods that should have ended long ago: waiting for them would keep the node for ever."""

from __future__ import annotations

from typing import ClassVar, Final

from trimtab.autoscaling.scale_down.drainability.rule import SKIP, Context, Verdict
from trimtab.kube.objects import Pod

GRACE: Final = 30
"""Seconds that a pod has to end where it does not say."""

PATIENCE: Final = 30.0
"""Seconds beyond the grace period; upstream's ``PodLongTerminatingExtraThreshold``."""


def long_terminating(pod: Pod, *, now: float) -> bool:
    """Whether the pod's grace period and :data:`PATIENCE` are over since its deletion was due."""
    if pod.deleted is None:
        return False
    grace = pod.spec.termination_grace_period
    return pod.deleted + (GRACE if grace is None else grace) + PATIENCE < now


class LongTerminatingPods:
    """Skips them."""

    reads: ClassVar[str] = "pod"

    def judge(self, pod: Pod, context: Context) -> Verdict | None:
        """See :meth:`~trimtab.autoscaling.scale_down.drainability.rule.Rule.judge`."""
        return SKIP if long_terminating(pod, now=context.now) else None
