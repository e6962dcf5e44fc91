"""Pods that have run to their end: they hold no place, so there is nothing to move."""

from __future__ import annotations

from trimtab.api.reasons import TERMINAL
from trimtab.disruption.protections.protection import Protection
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod


class TerminalPods(Protection):
    """Refuses pods of phase Succeeded and Failed."""

    name = TERMINAL
    liftable = False

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""
        return self.refuse(f"the pod has run to its end (phase {pod.phase})") if pod.terminal else None
