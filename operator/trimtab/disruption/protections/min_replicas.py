"""Small owners: with few pods, one that moves is missed."""

from __future__ import annotations

from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.reasons import TOO_FEW_REPLICAS
from trimtab.cluster.owners import OwnerKey, owner_key
from trimtab.disruption.protections.protection import Context, Protection
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod


class MinReplicas(Protection):
    """Refuses pods whose owner has fewer pods than ``protections.minReplicas``, but for those that surge: none misses.

    Pods that have ended or are going don't count. The pod itself always counts, for planners ask also about pods that
    they have taken off their node to try another one. An owner's pods are counted once a plan: moves don't change it.
    """

    name = TOO_FEW_REPLICAS

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._least = context.spec.protections.min_replicas or 0
        self._surge = context.spec.single_replica == "Surge"
        self._known: dict[OwnerKey, int] = {}

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        """Where ``protections.minReplicas`` is more than 1."""
        return (spec.protections.min_replicas or 0) > 1

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""
        owner = owner_key(pod)
        if owner is None:
            return None
        number = self._known.get(owner)
        if number is None:
            others = (other for other in self.context.snapshot.owned_by(owner) if other.name != pod.name)
            number = 1 + sum(not other.terminal and other.deleted is None for other in others)
            self._known[owner] = number
        if number >= self._least or (self._surge and self.context.surges.surges(pod)):
            return None
        return self.refuse(f"{owner[1]} {owner[2]} has {number} pods, protections.minReplicas is {self._least}")
