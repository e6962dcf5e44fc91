"""Pods that are being deleted: they go anyway."""

from __future__ import annotations

from trimtab.api.reasons import TERMINATING
from trimtab.disruption.protections.protection import Protection
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod


class TerminatingPods(Protection):
    """Refuses pods with a deletion timestamp."""

    name = TERMINATING
    liftable = False

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""
        return None if pod.deleted is None else self.refuse("the pod is being deleted already")
