"""Pods that have run to their end: they hold no place."""

from __future__ import annotations

from typing import ClassVar

from trimtab.autoscaling.scale_down.drainability.rule import DRAIN, Context, Verdict
from trimtab.kube.objects import Pod


class TerminalPods:
    """Lets them go with the node."""

    reads: ClassVar[str] = "pod"

    def judge(self, pod: Pod, context: Context) -> Verdict | None:
        """See :meth:`~trimtab.autoscaling.scale_down.drainability.rule.Rule.judge`."""
        del context
        return DRAIN if pod.terminal else None
