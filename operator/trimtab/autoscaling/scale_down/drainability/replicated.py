"""Pods that nothing would bring back elsewhere."""

from __future__ import annotations

from typing import ClassVar, Final

from trimtab.api.reasons import NOT_REPLICATED
from trimtab.autoscaling.scale_down.drainability.rule import Context, Verdict, block
from trimtab.kube.objects import Pod

CONTROLLERS: Final = ("ReplicaSet", "StatefulSet", "Job", "ReplicationController")
"""Controllers that are known to; upstream trusts no others either (``skip-nodes-with-custom-controller-pods``)."""


class Replicated:
    """Blocks pods without a controller, and those of controllers that nothing is known of."""

    reads: ClassVar[str] = "template"

    def judge(self, pod: Pod, context: Context) -> Verdict | None:
        """See :meth:`~trimtab.autoscaling.scale_down.drainability.rule.Rule.judge`."""
        del context
        owner = pod.controller
        if owner is None:
            return block(NOT_REPLICATED, "no controller owns it: nothing would bring it back")
        if owner.kind not in CONTROLLERS:
            allowed = ", ".join(CONTROLLERS)
            return block(NOT_REPLICATED, f"{owner.kind} {owner.name} owns it, which is none of {allowed}")
        return None
