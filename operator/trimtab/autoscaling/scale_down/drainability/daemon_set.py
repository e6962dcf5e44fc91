"""Pods of DaemonSets: they belong to their node and go with it."""

from __future__ import annotations

from typing import ClassVar

from trimtab.autoscaling.scale_down.drainability.rule import DRAIN, Context, Verdict
from trimtab.kube.objects import Pod


def of_daemon_set(pod: Pod) -> bool:
    """Whether a DaemonSet, of whatever API group, controls the pod."""
    owner = pod.controller
    return owner is not None and owner.kind == "DaemonSet"


class DaemonSetPods:
    """Lets them be evicted."""

    reads: ClassVar[str] = "template"

    def judge(self, pod: Pod, context: Context) -> Verdict | None:
        """See :meth:`~trimtab.autoscaling.scale_down.drainability.rule.Rule.judge`."""
        del context
        return DRAIN if of_daemon_set(pod) else None
