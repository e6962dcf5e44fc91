"""Mirror pods: the API server's picture of static pods, which go with their node."""

from __future__ import annotations

from typing import ClassVar

from trimtab.autoscaling.scale_down.drainability.rule import SKIP, Context, Verdict
from trimtab.disruption.protections.mirror_pod import ANNOTATION
from trimtab.kube.objects import Pod


class MirrorPods:
    """Skips them."""

    reads: ClassVar[str] = "template"

    def judge(self, pod: Pod, context: Context) -> Verdict | None:
        """See :meth:`~trimtab.autoscaling.scale_down.drainability.rule.Rule.judge`."""
        del context
        return SKIP if ANNOTATION in pod.annotations else None
