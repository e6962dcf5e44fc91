"""RemovePodsViolatingTopologySpreadConstraint: pods are evened out until the constraints that they state hold."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from trimtab.api.strategies import TopologySpreadParams
from trimtab.descheduling.context import Context
from trimtab.descheduling.evening import Evening
from trimtab.descheduling.scope import Scope
from trimtab.descheduling.spreads import Spreads
from trimtab.descheduling.strategies.strategy import Measure, Strategy
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer
from trimtab.placement.topology_spread import DO_NOT_SCHEDULE, SCHEDULE_ANYWAY, Rules


class RemovePodsViolatingTopologySpreadConstraint(Strategy[TopologySpreadParams]):
    """No domain has more than maxSkew pods above the smallest, as the scheduler counts them, if pods can be moved.

    Constraints are mended one by one, those with DoNotSchedule first, but judged together: a move lowers the excess of
    the one at hand, raises that of none with DoNotSchedule, and for the sake of one with ScheduleAnyway that of none at
    all. So zones and nodes do not send pods back and forth where both cannot be had (kubernetes-sigs/descheduler #1219
    and #1032). Pods leave the largest domain for the smallest that takes them, as few as it needs.

    A pod goes only on behalf of a constraint that it states itself: another, though it counts, would be free to come
    back. Constraints that kube-scheduler assumes for pods without any are not looked at.
    """

    NAME = "RemovePodsViolatingTopologySpreadConstraint"
    unwelcome_text = "node(s) were in a domain with too many pods of a topology spread constraint"

    def __init__(self, params: TopologySpreadParams, scope: Scope, placer: Placer) -> None:
        super().__init__(params, scope, placer)
        self._mended = tuple(
            when == DO_NOT_SCHEDULE for when in (DO_NOT_SCHEDULE, SCHEDULE_ANYWAY) if when in params.constraints
        )
        self._found: Spreads | None = None

    def plan(self, context: Context) -> None:
        """The constraints with DoNotSchedule before those with ScheduleAnyway, each as pods' names order them."""
        spreads = self._spreads()
        if spreads.constraints:
            Evening(context, spreads).run(self._mended)

    def measure(self) -> Measure:
        """Pods beyond smallest domain and maxSkew, over all domains; of constraints with DoNotSchedule, then others."""
        spreads = self._spreads()
        excess = {True: 0, False: 0}
        for each in spreads.constraints:
            excess[each.hard] += spreads.state(each).excess
        return tuple(float(excess[hard]) for hard in self._mended)

    def unwelcome(self, pod: Pod) -> Collection[int]:
        """Nodes on which the pod would worsen a constraint that counts it, whoever states that."""
        spreads = self._spreads()
        counting = spreads.counting(pod)
        if not counting:
            return ()
        harmless = np.logical_and.reduce([spreads.outlook(each, pod).harmless for each in counting])
        worse: list[int] = np.flatnonzero(self.snapshot.nodes.used & ~harmless).tolist()
        return worse

    def _spreads(self) -> Spreads:
        """Collected when first asked for: most plans for most clusters never ask."""
        if self._found is None:
            pods = (pod for pod in self.snapshot.pods.values() if pod.spec.topology_spread)
            stating = (pod for pod in pods if pod.deleted is None and self.scope.covers(pod))
            soft = SCHEDULE_ANYWAY in self.params.constraints
            self._found = Spreads(self.snapshot, Rules(self.snapshot), stating, soft=soft)
        return self._found
