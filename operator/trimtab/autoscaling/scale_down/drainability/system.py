"""Pods of the cluster itself."""

from __future__ import annotations

from typing import ClassVar, Final

from trimtab.api.reasons import UNMOVABLE_KUBE_SYSTEM_POD
from trimtab.autoscaling.scale_down.drainability.rule import Context, Verdict, block
from trimtab.kube.objects import Pod

NAMESPACE: Final = "kube-system"


class SystemPods:
    """Blocks those of kube-system that no PodDisruptionBudget selects, however old they are.

    Upstream lets them be evicted an hour after they were created, which in effect is always; OpenShift's users are told
    that such pods keep their nodes.
    """

    reads: ClassVar[str] = "template"

    def judge(self, pod: Pod, context: Context) -> Verdict | None:
        """See :meth:`~trimtab.autoscaling.scale_down.drainability.rule.Rule.judge`."""
        if pod.namespace != NAMESPACE or context.budgets.matching(pod):
            return None
        return block(UNMOVABLE_KUBE_SYSTEM_POD, f"it is of {NAMESPACE}, and no PodDisruptionBudget selects it")
