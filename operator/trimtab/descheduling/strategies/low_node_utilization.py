"""LowNodeUtilization: pods move from overutilized nodes to underutilized ones."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np

from trimtab.api.reasons import (
    IRRELEVANT_RESOURCE,
    LIMIT_REACHED,
    NAMESPACE_NOT_EVICTABLE,
    NO_UNDERUTILIZED_NODES,
    NODE_OVERUTILIZED,
    NOT_ENOUGH_NODES,
    NOT_MEASURED,
    PLAN_OUTDATED,
)
from trimtab.api.strategies import LowNodeUtilizationParams
from trimtab.cluster.resources import BoolArray
from trimtab.cluster.usage import matched
from trimtab.descheduling.burden import Burden
from trimtab.descheduling.burden_of_query import burden_by
from trimtab.descheduling.context import Context
from trimtab.descheduling.destinations import Destinations, cool
from trimtab.descheduling.room import Room
from trimtab.descheduling.scope import Scope
from trimtab.descheduling.strategies.strategy import Measure, Strategy
from trimtab.descheduling.utilization import (
    Excess,
    FloatArray,
    Level,
    above,
    excesses,
    levels_of,
    percent,
    underutilized,
)
from trimtab.descheduling.victims import Amounts, Lineup, Victim
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer

_ROUNDING: Final = 1e-6
"""Percent points that sums may differ by without a difference."""


class LowNodeUtilization(Strategy[LowNodeUtilizationParams]):
    """Overutilized is above any target, underutilized at or below all thresholds and above no target.

    By requests or, where the policy wants it, by real use (:mod:`trimtab.descheduling.burden`).

    Pods on their way out no longer burden the node that they leave, or what was evicted a while ago and takes its time
    would cost others their place; but until they are gone, they leave no room on nodes that pods are moved to.

    Nodes farthest above their targets are relieved first, and only until nothing of them is above a target. A pod goes
    if it requests some of what its node has too much of, and if one node that was underutilized takes it and stays at
    or below every target: room is never pooled, so nothing is evicted that fits nowhere.

    Between pods of equal priority and QoS class the one goes that ends the excess of the worst resource with the least
    overshoot, else the one with the most of it: the fewest evictions. Then the smaller, the younger, and by name.
    """

    NAME = "LowNodeUtilization"
    unwelcome_text = "node(s) would have been farther above targetThresholds"

    def __init__(self, params: LowNodeUtilizationParams, scope: Scope, placer: Placer) -> None:
        super().__init__(params, scope, placer)
        thresholds = params.node_resource_utilization_thresholds
        self._burden: Burden = burden_by(params.metrics_utilization, self.snapshot, scope.usage)
        self._table = self._burden.table
        known, present = scope.destinations & self._burden.known, self._burden.present()
        self._levels: tuple[Level, ...] = (
            () if thresholds is None else levels_of(thresholds, self._table, known, present)
        )
        self._number = 0 if thresholds is None else thresholds.number_of_nodes
        self._lineup = Lineup(self._amounts_of, of_spec=not self._burden.measures)
        self._measured = tuple(level for level in self._levels if level.resource in self._burden.measures)
        self._excluded = frozenset(params.evictable_namespaces.exclude)
        self._most = params.eviction_limits.node or (1 if self._burden.guesses else None)

    def plan(self, context: Context) -> None:
        """From the fullest node to the least full one, ties by name."""
        nodes = self.snapshot.nodes
        self._tell_unmeasured(context)
        excess = self._excess()
        # Of shares that differ from a target by their rounding only, an excess as an amount may be none at all.
        over = (slot for slot in self.scope.sources if excess[slot] > 0 and self._over(slot))
        sources = sorted(over, key=lambda slot: -excess[slot])
        if not sources:
            return
        under = self._destinations()
        if len(under) <= self._number:
            self._stay(context, sources, len(under))
            return
        room = Room(nodes, np.array(under, dtype=np.int64), self._by_requests())
        destinations = Destinations(context, self._burden, self._measured, room)
        for slot in sources:
            self._relieve(context, slot, destinations)

    def measure(self) -> Measure:
        """Percent points above targets, over all nodes of the policy and all resources."""
        return (float(self._excess()[self.scope.selected].sum()),)

    def unwelcome(self, pod: Pod) -> Collection[int]:
        """Nodes that the pod would bring farther above their targets than its own would come down for it.

        Heard by policies of other targets only; within a policy no strategy that moves pods comes after this one.
        """
        table, staying, row = self._table, self._burden.staying(), self._burden.of(pod)
        selected = self.scope.selected & self._burden.known
        before, home = above(table, self._levels, staying), self.snapshot.nodes.slot_of[pod.node]
        without, beside = staying.copy(), staying.copy()
        without[home, : len(row)] -= row
        beside[:, : len(row)] += row
        relief = (before - above(table, self._levels, without))[home] if selected[home] else 0.0
        rise = above(table, self._levels, beside) - before
        worse: list[int] = np.flatnonzero(selected & (rise > relief + _ROUNDING)).tolist()
        return worse

    def _excess(self) -> FloatArray:
        """By how many percent points slots are above targets without what is on its way out; 0 where nobody knows."""
        excess = above(self._table, self._levels, self._burden.staying())
        excess[~self._burden.known] = 0.0
        return excess

    def moved(self, before: Pod, after: Pod) -> None:
        """Count a planned move, which no measurement knows of."""
        self._burden.moved(before, after)

    def no_longer(self, pod: Pod, places: BoolArray) -> Refusal | None:
        """Whether by real use, as it is known by now, the pod still weighs on its node and would not weigh elsewhere.

        A plan of requests is not asked: what pods request does not change by itself.
        """
        slot = self.snapshot.slot(pod)
        if not self._burden.measures or slot is None:
            return None
        if not self._burden.known[slot]:
            return Refusal(NOT_MEASURED, self._why_unmeasured(slot))
        if not self._over(slot):
            shares = 100.0 * self._burden.staying_on(slot) / np.maximum(self._table.allocatable[slot], 1)
            told = (f"{level.resource} {shares[level.column]:.0f}%" for level in self._levels)
            text = f"{pod.node} is no longer above any target by real use: {', '.join(told)}"
            return Refusal(PLAN_OUTDATED, text)
        if (places & cool(self._burden, self._measured, pod)).any():
            return None
        text = "every node that takes the pod would be above a target with it by real use, or was not measured"
        return Refusal(PLAN_OUTDATED, text)

    def _by_requests(self) -> tuple[Level, ...]:
        """The targets that hold for requests: of real use, those of resources that nobody measures."""
        return tuple(level for level in self._levels if level.resource not in self._burden.measures)

    def _tell_unmeasured(self, context: Context) -> None:
        for slot in self.scope.sources if self._burden.measures else ():
            if not self._burden.known[slot]:
                context.keep_node(slot, NOT_MEASURED, self._why_unmeasured(slot))

    def _why_unmeasured(self, slot: int) -> str:
        if self.scope.usage is None:
            why = "nobody has measured real use"
        else:
            usage = matched(self.scope.usage, self.snapshot.nodes.slot_of)
            why = usage.remarks.get(self.snapshot.nodes.node(slot).name) or usage.problem
        return f"its real use is not known: {why or 'there is no measurement of it'}"

    def _destinations(self) -> list[int]:
        """The underutilized nodes that can start pods, by name. Cordoned ones don't count: the scheduler avoids them.

        The parameters may name other resources as thresholds than as targets, so that a node may be below all of the
        first and above one of the second: then it is overutilized.
        """
        nodes, table = self.snapshot.nodes, self._table
        present = self._burden.present()
        mask = underutilized(table, self._levels, present) & (above(table, self._levels, present) <= 0)
        mask &= self.scope.destinations & self._burden.known
        return [slot for slot in self.scope.sources if mask[slot] and not nodes.node(slot).unschedulable]

    def _stay(self, context: Context, sources: list[int], number: int) -> None:
        """Say of every overutilized node why the strategy does not act."""
        if number:
            code = NOT_ENOUGH_NODES
            text = f"{number} node{'s are' if number != 1 else ' is'} underutilized, not more than numberOfNodes"
            text = f"{text} ({self._number})"
        else:
            code = NO_UNDERUTILIZED_NODES
            text = "no schedulable node is at or below every threshold"
        for slot in sources:
            context.keep_node(slot, code, f"{self._over(slot)[0]}, but {text}")

    def _over(self, slot: int) -> list[Excess]:
        return excesses(self._table.allocatable[slot].tolist(), self._burden.staying_on(slot).tolist(), self._levels)

    def _relieve(self, context: Context, slot: int, destinations: Destinations) -> None:
        """Move pods off a node until nothing of it is above a target."""
        cut: list[tuple[Victim, Refusal]] = []
        gone = 0
        have, want = self._table.allocatable[slot].tolist(), self._burden.staying_on(slot).tolist()
        over = excesses(have, want, self._levels)
        for group in self._lineup.groups(self._evictable(context, slot)):
            while over and group:
                victim = group.take(over)
                if victim is None:
                    break
                refusal = self._try(context, victim, destinations, over[0], gone)
                if refusal is None:
                    gone += 1
                    over = excesses(have, self._without(victim, want, slot), self._levels)
                elif refusal.reason == LIMIT_REACHED:
                    cut.append((victim, refusal))
                else:
                    context.keep(victim.pod, refusal.reason, refusal.message)
            if not over:
                return
            if group:
                does, name = "uses" if self._burden.measures else "requests", self.snapshot.nodes.node(slot).name
                text = f"the pod {does} none of what {name} has too much of: "
                text += ", ".join(each.level.resource for each in over)
                for victim in group:
                    context.keep(victim.pod, IRRELEVANT_RESOURCE, text)
        self._tell_cut(context, cut, slot)

    def _without(self, victim: Victim, want: list[int], slot: int) -> list[int]:
        """What stays on a node once a pod has left it; requests are counted down at hand, which is quicker."""
        if self._burden.measures:
            want[:] = self._burden.staying_on(slot).tolist()
        else:
            for column, amount in enumerate(victim.amounts):
                want[column] -= amount
        return want

    def _evictable(self, context: Context, slot: int) -> list[Pod]:
        """The candidates on a node whose namespaces are not excluded; the others are told so."""
        if not self._excluded:
            return context.each_candidate(slot)
        there = context.candidates(slot)
        for pod in there:
            if pod.namespace in self._excluded:
                text = f"evictableNamespaces.exclude names {pod.namespace}"
                context.keep(pod, NAMESPACE_NOT_EVICTABLE, text)
        return [pod for pod in there if pod.namespace not in self._excluded]

    def _limit(self, pod: Pod, gone: int) -> Refusal | None:
        """The strategy's own limit for a node, once it is reached."""
        if self._most is None or gone < self._most:
            return None
        planned = "1 eviction is" if gone == 1 else f"{gone} evictions are"
        limit = f"evictionLimits.node is {self._most}"
        if self.params.eviction_limits.node is None:
            limit = "without podQuery and evictionLimits.node one pod goes at a time, as its part is only guessed"
        text = f"{limit}, and {planned} planned for node {pod.node}"
        return Refusal(reason=LIMIT_REACHED, message=text)

    def _amounts_of(self, pod: Pod) -> Amounts:
        return tuple(self._burden.of(pod).tolist())

    def _try(
        self, context: Context, victim: Victim, destinations: Destinations, worst: Excess, gone: int
    ) -> Refusal | None:
        """Move a pod off a node that ``gone`` pods have left already, or say why not."""
        pod = victim.pod
        found: int | Refusal = context.obstacle(pod) or self._limit(pod, gone) or destinations.find(pod)
        if isinstance(found, Refusal):
            return found
        nodes = self.snapshot.nodes
        level = worst.level
        used = int(self._burden.present()[found, level.column])
        there = 100.0 * used / max(int(self._table.allocatable[found, level.column]), 1)
        text = (
            f"{level.resource} {percent(worst.share, level.target)}% of {pod.node} is above its target "
            f"{percent(level.target)}%; {nodes.node(found).name} is at {there:.0f}%"
        )
        text += ", by real use" if self._burden.measures else ""
        refusal = context.move(pod, found, reason=NODE_OVERUTILIZED, message=text)
        if refusal is None:
            destinations.take(pod, found)
        return refusal

    def _tell_cut(self, context: Context, cut: list[tuple[Victim, Refusal]], slot: int) -> None:
        """Name the pods that a limit kept here, as many as it would have taken to relieve the node."""
        have, want = self._table.allocatable[slot], self._burden.staying_on(slot).copy()
        for victim, refusal in cut:
            if not excesses(have, want, self._levels):
                return
            context.keep(victim.pod, refusal.reason, refusal.message)
            want[: len(victim.amounts)] -= victim.amounts
