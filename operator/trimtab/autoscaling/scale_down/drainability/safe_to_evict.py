"""Pods that say that they may be evicted, whatever else is true of them."""

from __future__ import annotations

from typing import ClassVar

from trimtab.autoscaling.scale_down.drainability.rule import DRAIN, SAFE_TO_EVICT, Context, Verdict
from trimtab.kube.objects import Pod


class SafeToEvict:
    """Lets them be evicted."""

    reads: ClassVar[str] = "template"

    def judge(self, pod: Pod, context: Context) -> Verdict | None:
        """See :meth:`~trimtab.autoscaling.scale_down.drainability.rule.Rule.judge`."""
        del context
        return DRAIN if pod.annotations.get(SAFE_TO_EVICT) == "true" else None
