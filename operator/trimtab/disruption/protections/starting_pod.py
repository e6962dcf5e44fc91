"""Starting pods: bound to a node, but not running yet."""

from __future__ import annotations

from typing import Final

from trimtab.api.reasons import POD_STARTING
from trimtab.disruption.protections.protection import Protection
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod

START_GRACE: Final = 300
"""Seconds in which a pod may be expected to pull its images and mount its volumes."""


class StartingPods(Protection):
    """Refuses pods that are Pending on their node and were created a short while ago.

    Most of them are what an earlier move brought here: judging them before they run would chase them around. After
    :data:`START_GRACE` a pod is stuck rather than starting, and moving it can only help. A pod that is bound to no node
    has nowhere to be moved from; planners don't ask about it, but the answer is the same.
    """

    name = POD_STARTING

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""
        if pod.phase != "Pending":
            return None
        if not pod.node:
            return self.refuse("the pod is not bound to a node yet")
        if pod.created is None:
            return self.refuse("the pod is still starting, since when is not known")
        age = self.context.now - pod.created
        if age >= START_GRACE:
            return None
        return self.refuse(f"the pod was created {max(0, int(age))}s ago and is still starting (up to {START_GRACE}s)")
