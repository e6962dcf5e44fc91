"""Pods that a PodDisruptionBudget keeps."""

from __future__ import annotations

from typing import ClassVar

from trimtab.api.reasons import NOT_ENOUGH_PDB
from trimtab.autoscaling.scale_down.drainability.rule import Context, Verdict, block
from trimtab.kube.objects import Pod


class Budgets:
    """Blocks them by the ledger: what the Eviction API would say once all that is planned before has been evicted."""

    reads: ClassVar[str] = "pod"

    def judge(self, pod: Pod, context: Context) -> Verdict | None:
        """See :meth:`~trimtab.autoscaling.scale_down.drainability.rule.Rule.judge`."""
        refusal = context.budgets.refusal(pod)
        return None if refusal is None else block(NOT_ENOUGH_PDB, refusal.message)
