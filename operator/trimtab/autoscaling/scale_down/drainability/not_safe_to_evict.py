"""Pods that say that they must not be evicted."""

from __future__ import annotations

from typing import ClassVar

from trimtab.api.reasons import NOT_SAFE_TO_EVICT_ANNOTATION
from trimtab.autoscaling.scale_down.drainability.rule import SAFE_TO_EVICT, Context, Verdict, block
from trimtab.kube.objects import Pod


class NotSafeToEvict:
    """Blocks them."""

    reads: ClassVar[str] = "template"

    def judge(self, pod: Pod, context: Context) -> Verdict | None:
        """See :meth:`~trimtab.autoscaling.scale_down.drainability.rule.Rule.judge`."""
        del context
        if pod.annotations.get(SAFE_TO_EVICT) != "false":
            return None
        return block(NOT_SAFE_TO_EVICT_ANNOTATION, f"its annotation {SAFE_TO_EVICT} says false")
