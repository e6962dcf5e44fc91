"""Pods that are to run to their end where they are."""

from __future__ import annotations

from typing import ClassVar

from trimtab.api.reasons import BLOCKED_BY_ON_COMPLETION_POD
from trimtab.autoscaling.scale_down.drainability.rule import SAFE_TO_EVICT, Context, Outcome, Verdict
from trimtab.kube.objects import Pod


class OnCompletion:
    """Makes the node wait for them."""

    reads: ClassVar[str] = "template"

    def judge(self, pod: Pod, context: Context) -> Verdict | None:
        """See :meth:`~trimtab.autoscaling.scale_down.drainability.rule.Rule.judge`."""
        del context
        if pod.annotations.get(SAFE_TO_EVICT) != "on-completion":
            return None
        message = f"its annotation {SAFE_TO_EVICT} says on-completion, and it has not ended"
        return Verdict(Outcome.WAIT, BLOCKED_BY_ON_COMPLETION_POD, message)
