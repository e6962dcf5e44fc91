"""Small owners: with few pods, one that moves is missed."""

from __future__ import annotations

from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.reasons import TOO_FEW_REPLICAS
from trimtab.cluster.snapshot import owner_key
from trimtab.disruption.protections.protection import Protection
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod


class MinReplicas(Protection):
    """Refuses pods whose owner has fewer pods than ``protections.minReplicas``.

    Pods that have ended or are going don't count. The pod itself always counts, for planners ask also about pods that
    they have taken off their node to try another one.
    """

    name = TOO_FEW_REPLICAS

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        """Where ``protections.minReplicas`` is more than 1."""
        return (spec.protections.min_replicas or 0) > 1

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""
        owner = owner_key(pod)
        least = self.context.spec.protections.min_replicas or 0
        if owner is None:
            return None
        others = self.context.snapshot.owned_by(owner)
        number = 1 + sum(
            1 for other in others if other.name != pod.name and not other.terminal and other.deleted is None
        )
        if number >= least:
            return None
        return self.refuse(f"{owner[1]} {owner[2]} has {number} pods, protections.minReplicas is {least}")
