"""RemovePodsHavingTooManyRestarts: pods that start again and again get a start elsewhere."""

from __future__ import annotations

from trimtab.api.reasons import TOO_MANY_RESTARTS
from trimtab.api.strategies import TooManyRestartsParams
from trimtab.descheduling.context import Context
from trimtab.descheduling.order import Rank, rank
from trimtab.descheduling.pod_states import kinds_of_containers, state_among
from trimtab.descheduling.scope import Scope
from trimtab.descheduling.strategies.anew import StartAnew
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer


class RemovePodsHavingTooManyRestarts(StartAnew[TooManyRestartsParams]):
    """A pod goes whose containers have been restarted ``podRestartThreshold`` times or more, all counted together.

    What ails it may be its node: a volume that does not attach, a device that is broken. So every other node is
    preferred to its own, which is taken where no other has room. Pods that have run to their end are left alone, for
    they restart no more (upstream evicts them as well); RemoveFailedPods and PodLifeTime are for those.

    The pods with the most restarts go first, whatever their priority: all are to go, each frees a place of its own, and
    where a limit or a budget cuts the row short, the sickest have the least to lose.
    """

    NAME = "RemovePodsHavingTooManyRestarts"

    def __init__(self, params: TooManyRestartsParams, scope: Scope, placer: Placer) -> None:
        super().__init__(params, scope, placer)
        self._threshold = params.pod_restart_threshold
        self._init = params.including_init_containers
        self._states = frozenset(params.states)
        self._kinds = kinds_of_containers(init=params.including_init_containers)

    def plan(self, context: Context) -> None:
        """The most restarts first."""
        for pod in sorted(filter(context.is_candidate, self._found()), key=self._order):
            self._restart(context, pod, reason=TOO_MANY_RESTARTS, text=self._text(pod), elsewhere=True)

    def _concerns(self, pod: Pod) -> bool:
        if self._threshold is None or self._restarts(pod) < self._threshold or pod.terminal:
            return False
        return not self._states or state_among(pod, self._states, self._kinds) is not None

    def _restarts(self, pod: Pod) -> int:
        return pod.restarts + pod.init_restarts if self._init else pod.restarts

    def _order(self, pod: Pod) -> tuple[int, Rank, float, str, str]:
        return -self._restarts(pod), rank(pod), pod.created or 0.0, pod.namespace, pod.name

    def _text(self, pod: Pod) -> str:
        init = f" and {pod.init_restarts} of init containers" if self._init and pod.init_restarts else ""
        state = state_among(pod, self._states, self._kinds) if self._states else None
        found = f"; {state}" if state else ""
        return f"{pod.restarts} restarts of containers{init}, podRestartThreshold is {self._threshold}{found}"
