"""RemovePodsViolatingTopologySpreadConstraint: moves pods until their topology spread constraints are satisfied."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from trimtab.api.strategies import TopologySpreadParams
from trimtab.descheduling.planning.context import StrategyContext
from trimtab.descheduling.planning.scope import PolicyScope
from trimtab.descheduling.planning.spread_balancer import SpreadBalancer, SpreadConstraintIndex
from trimtab.descheduling.strategies.strategy import Measure, Strategy
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer
from trimtab.placement.topology_spread import DO_NOT_SCHEDULE, SCHEDULE_ANYWAY, SpreadRules


class RemovePodsViolatingTopologySpreadConstraint(Strategy[TopologySpreadParams]):
    """Moves pods until no domain exceeds the smallest one by more than maxSkew pods, as the scheduler counts them.

    Constraints are balanced one by one, DoNotSchedule first, but a move must respect all of them. It lowers the excess
    of the current constraint and does not raise the excess of any DoNotSchedule constraint. A move for a ScheduleAnyway
    constraint does not raise the excess of any constraint. Thus pods do not move back and forth between zones and nodes
    whose constraints cannot both be satisfied (kubernetes-sigs/descheduler #1219 and #1032). As few pods as possible
    are moved, from the largest domain to the smallest one that can run them.

    A pod is moved only for its own constraints, because the replacement of a pod that is merely counted could be
    scheduled to the same domain again. kube-scheduler's default constraints for pods without constraints are not
    considered.
    """

    NAME = "RemovePodsViolatingTopologySpreadConstraint"
    objection_text = "node(s) were in a domain with too many pods of a topology spread constraint"

    def __init__(self, params: TopologySpreadParams, scope: PolicyScope, placer: Placer) -> None:
        super().__init__(params, scope, placer)
        self._mended = tuple(
            when == DO_NOT_SCHEDULE for when in (DO_NOT_SCHEDULE, SCHEDULE_ANYWAY) if when in params.constraints
        )
        self._found: SpreadConstraintIndex | None = None

    def plan(self, context: StrategyContext) -> None:
        """Balance DoNotSchedule constraints before ScheduleAnyway constraints, both in the order of pod names."""
        spreads = self._spreads()
        if spreads.constraints:
            SpreadBalancer(context, spreads).run(self._mended)

    def measure(self) -> Measure:
        """Return the total excess of DoNotSchedule constraints and the total excess of ScheduleAnyway constraints."""
        spreads = self._spreads()
        excess = {True: 0, False: 0}
        for each in spreads.constraints:
            excess[each.hard] += spreads.state_of(each).excess
        return tuple(float(excess[hard]) for hard in self._mended)

    def worse_slots(self, pod: Pod) -> Collection[int]:
        """Return the slots where the pod would worsen a constraint that counts it, even if only other pods have it."""
        spreads = self._spreads()
        counting = spreads.counting(pod)
        if not counting:
            return ()
        harmless = np.logical_and.reduce([spreads.move_effect(each, pod).harmless for each in counting])
        worse: list[int] = np.flatnonzero(self.snapshot.nodes.used & ~harmless).tolist()
        return worse

    def _spreads(self) -> SpreadConstraintIndex:
        """Return the index of constraints. It is built on first use, because most plans do not need it."""
        if self._found is None:
            pods = (pod for pod in self.snapshot.pods.values() if pod.spec.topology_spread)
            stating = (pod for pod in pods if pod.deleted is None and self.scope.covers(pod))
            soft = SCHEDULE_ANYWAY in self.params.constraints
            self._found = SpreadConstraintIndex(self.snapshot, SpreadRules(self.snapshot), stating, soft=soft)
        return self._found
