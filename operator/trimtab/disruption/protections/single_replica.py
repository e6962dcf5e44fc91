"""Single replicas under ``singleReplica: Surge``: they go by a rollout, or stay."""

from __future__ import annotations

from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.reasons import CANNOT_SURGE, ROLLOUT_IN_PROGRESS
from trimtab.disruption.protections.protection import Protection
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod


class _Surging(Protection):
    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        """Where ``singleReplica`` is Surge."""
        return spec.single_replica == "Surge"


class RollingOut(_Surging):
    """Refuses the only ready pod of a Deployment that is being rolled out: the rollout renews it anyway.

    Not to be lifted: whoever restarted it, a second restart in its midst would begin anew each cycle.
    """

    name = ROLLOUT_IN_PROGRESS
    liftable = False

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""
        surges = self.context.surges
        return surges.underway(pod) if surges.alone(pod) else None


class SingleReplicas(_Surging):
    """Refuses the only ready pod of an owner that no rollout can renew before it goes."""

    name = CANNOT_SURGE

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""
        surges = self.context.surges
        return surges.obstacle(pod) if surges.alone(pod) else None
