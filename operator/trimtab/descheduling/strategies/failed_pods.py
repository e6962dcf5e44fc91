"""RemoveFailedPods: pods that have failed are removed, as nothing else does before there are thousands of them."""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.api.reasons import POD_FAILED, POD_TOO_YOUNG
from trimtab.api.strategies import FailedPodsParams
from trimtab.descheduling.context import Context
from trimtab.descheduling.pod_states import age_of, idle_containers, kinds_of_containers, words
from trimtab.descheduling.scope import Scope
from trimtab.descheduling.strategies.strategy import Measure, Strategy
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer

_SHOWN = 3


class RemoveFailedPods(Strategy[FailedPodsParams]):
    """A pod of phase Failed goes that is old enough and has failed as the parameters say.

    It holds no place and asks for none. A ReplicaSet has made another pod long ago; a Job has counted the failure and
    goes on as it sees fit; and nothing comes back of a bare pod, which stays unless the policy gives it up. Disruption
    budgets are not asked, by the API server neither, for a pod that has ended cannot be disrupted.

    The oldest go first; priority says nothing of a pod that does not run.
    """

    NAME = "RemoveFailedPods"

    def __init__(self, params: FailedPodsParams, scope: Scope, placer: Placer) -> None:
        super().__init__(params, scope, placer)
        self._reasons = frozenset(params.reasons)
        self._codes = frozenset(params.exit_codes)
        self._excluded = frozenset(params.exclude_owner_kinds)
        self._kinds = kinds_of_containers(init=params.including_init_containers)
        self._selected: list[bool] = scope.selected.tolist()

    def plan(self, context: Context) -> None:
        """Remove those that are old enough, and tell of the others that they are not."""
        for pod in sorted(filter(context.is_removable, self._found()), key=_order):
            text = self._text(pod)
            if self._is_old_enough(pod):
                context.remove(pod, reason=POD_FAILED, message=text)
            else:
                context.keep(pod, POD_TOO_YOUNG, text)

    def measure(self) -> Measure:
        """Failed pods that are to be removed and are still there."""
        return (float(sum(self._is_old_enough(pod) for pod in self._found())),)

    def _found(self) -> Iterator[Pod]:
        """The pods that have failed as the parameters say, in any order."""
        for pod in self.snapshot.pods.values():
            if pod.phase == "Failed" and pod.deleted is None and self._is_meant(pod):
                slot = self.snapshot.slot(pod)
                if slot is not None and self._selected[slot] and self.scope.covers(pod):
                    yield pod

    def _is_meant(self, pod: Pod) -> bool:
        if any(owner.kind in self._excluded for owner in pod.owners):
            return False
        idle = [*idle_containers(pod, self._kinds)]
        if self._reasons and self._reasons.isdisjoint((pod.reason, *(each.reason for each in idle))):
            return False
        return not self._codes or not self._codes.isdisjoint(each.exit_code for each in idle)

    def _is_old_enough(self, pod: Pod) -> bool:
        least, age = self.params.min_pod_lifetime_seconds, age_of(pod, self.scope.now)
        return not least or (age is not None and age >= least)

    def _text(self, pod: Pod) -> str:
        age, least = age_of(pod, self.scope.now), self.params.min_pod_lifetime_seconds
        failed = f"the pod has failed ({pod.reason})" if pod.reason else "the pod has failed"
        idle = [words(each) for each in idle_containers(pod, self._kinds)]
        more = [f"{len(idle) - _SHOWN} more containers have ended or wait"] if len(idle) > _SHOWN else []
        created = "when it was created is not known" if age is None else f"created {age}s ago"
        return "; ".join([failed, *idle[:_SHOWN], *more, f"{created}, minPodLifetimeSeconds is {least}"])


def _order(pod: Pod) -> tuple[float, str, str]:
    return pod.created or 0.0, pod.namespace, pod.name
