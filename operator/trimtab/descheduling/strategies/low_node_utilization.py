"""LowNodeUtilization: moves pods from overutilized nodes to underutilized ones."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import numpy as np

from trimtab.api.reasons import (
    DESTINATION_UNNEEDED,
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
from trimtab.cluster.disruption_signals import removal_signal
from trimtab.cluster.resources import BoolArray
from trimtab.cluster.usage.measurement import check_node_names
from trimtab.descheduling.planning.context import HELD_BACK, StrategyContext
from trimtab.descheduling.planning.destinations import DestinationCapacity, DestinationFinder, slots_below_targets
from trimtab.descheduling.planning.node_usage import (
    FloatArray,
    NodeUsage,
    TargetExcess,
    UtilizationLevel,
    node_usage_of,
    percent,
    percent_above_targets,
    target_excesses,
    underutilized,
    utilization_levels,
)
from trimtab.descheduling.planning.scope import PolicyScope
from trimtab.descheduling.planning.unmovable_load import UnmovableLoads
from trimtab.descheduling.planning.victim_order import Amounts, Victim, VictimQueue
from trimtab.descheduling.strategies.strategy import Measure, Strategy
from trimtab.disruption.outcome import Refusal
from trimtab.disruption.protections.causes import Cause
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer

_ROUNDING: Final = 1e-6
"""Percentage points below which differences are rounding errors."""


class LowNodeUtilization(Strategy[LowNodeUtilizationParams]):
    """Moves pods from overutilized to underutilized nodes.

    A node is overutilized if it is above any target, and underutilized if it is at or below all thresholds and targets.
    Utilization is computed from requests or, if the policy configures ``metricsUtilization``, from measurements
    (:mod:`trimtab.descheduling.planning.node_usage`).

    Terminating pods do not count toward the utilization of overutilized nodes. Otherwise further pods would be evicted
    while earlier ones are still terminating. They do count on target nodes until they no longer exist.

    The nodes that exceed their targets most are relieved first, and only until no target is exceeded. A pod is evicted
    if it uses a resource for which its node exceeds the target, and if an underutilized node can run it and remains at
    or below every target. The free capacity of several nodes is never added up, so every evicted pod fits a single
    node.

    Of the pods with equal priority and QoS class, the smallest pod that ends the excess of the most overutilized
    resource is evicted, or the largest pod if none ends it. This order requires the fewest evictions. Ties are broken
    by size, age (younger first) and name.
    """

    NAME = "LowNodeUtilization"
    objection_text = "node(s) would have exceeded targetThresholds further"

    def __init__(self, params: LowNodeUtilizationParams, scope: PolicyScope, placer: Placer) -> None:
        super().__init__(params, scope, placer)
        thresholds = params.node_resource_utilization_thresholds
        self._node_usage: NodeUsage = node_usage_of(params.metrics_utilization, self.snapshot, scope.usage)
        self._table = self._node_usage.table
        known, present = scope.destinations & self._node_usage.known_nodes, self._node_usage.current()
        self._levels: tuple[UtilizationLevel, ...] = (
            () if thresholds is None else utilization_levels(thresholds, self._table, known, present)
        )
        self._number = 0 if thresholds is None else thresholds.number_of_nodes
        self._amounts_of = _amounts_of(self._node_usage)
        self._lineup = VictimQueue(self._amounts_of, of_spec=not self._node_usage.resources)
        self._measured = tuple(level for level in self._levels if level.resource in self._node_usage.resources)
        self._excluded = frozenset(params.evictable_namespaces.exclude)
        self._most = params.eviction_limits.node or (1 if self._node_usage.is_estimate else None)

    def plan(self, context: StrategyContext) -> None:
        """Relieve the overutilized nodes from the most to the least utilized; ties are broken by name."""
        nodes = self.snapshot.nodes
        self._report_unmeasured(context)
        excess = self._excess()
        # If a percentage exceeds a target only by rounding, there may be no excess amount.
        over = (slot for slot in self.scope.sources if excess[slot] > 0 and self._excesses(slot))
        sources = sorted(over, key=lambda slot: -excess[slot])
        if not sources:
            return
        under, unneeded = self._destinations()
        for slot in unneeded:
            context.keep_node(slot, DESTINATION_UNNEEDED, self._why_not_filled(slot))
        if len(under) <= self._number:
            self._report_idle_sources(context, sources, len(under), len(unneeded))
            return
        room = DestinationCapacity(nodes, np.array(under, dtype=np.int64), self._by_requests())
        destinations = DestinationFinder(context, self._node_usage, self._measured, room, unneeded=bool(unneeded))
        loads = UnmovableLoads(context, self._amounts_of)
        for slot in sources:
            self._evict_excess(context, slot, destinations, loads)

    def measure(self) -> Measure:
        """Return the number of percentage points above targets, summed over the policy's nodes and all resources."""
        return (float(self._excess()[self.scope.selected].sum()),)

    def worse_slots(self, pod: Pod) -> Collection[int]:
        """Return the slots where the pod would add more excess above targets than it removes from its current node.

        Only other policies use the result, because no strategy of the same policy moves pods after this one.
        """
        table, staying, row = self._table, self._node_usage.without_terminating(), self._node_usage.of_pod(pod)
        selected = self.scope.selected & self._node_usage.known_nodes
        before, home = percent_above_targets(table, self._levels, staying), self.snapshot.nodes.slot_of[pod.node]
        without, with_pod = staying.copy(), staying.copy()
        without[home, : len(row)] -= row
        with_pod[:, : len(row)] += row
        relief = (before - percent_above_targets(table, self._levels, without))[home] if selected[home] else 0.0
        rise = percent_above_targets(table, self._levels, with_pod) - before
        worse: list[int] = np.flatnonzero(selected & (rise > relief + _ROUNDING)).tolist()
        return worse

    def _excess(self) -> FloatArray:
        """Return the number of percentage points by which each slot exceeds targets; 0 if the utilization is unknown.

        Terminating pods are not counted.
        """
        excess = percent_above_targets(self._table, self._levels, self._node_usage.without_terminating())
        excess[~self._node_usage.known_nodes] = 0.0
        return excess

    def pod_moved(self, before: Pod, after: Pod) -> None:
        """Apply a planned move to the measurement."""
        self._node_usage.pod_moved(before, after)

    def recheck(self, pod: Pod, places: BoolArray) -> Refusal | None:
        """Return the reason why the move is no longer useful after the latest measurement; ``None`` if it still is.

        The node must still be overutilized, and another node must remain at or below its targets if it runs the pod.
        Plans based on requests are not checked again, because requests do not change.
        """
        slot = self.snapshot.slot(pod)
        if not self._node_usage.resources or slot is None:
            return None
        if not self._node_usage.known_nodes[slot]:
            return Refusal(NOT_MEASURED, self._why_unmeasured(slot))
        if not self._excesses(slot):
            shares = (
                100.0 * self._node_usage.without_terminating_on(slot) / np.maximum(self._table.allocatable[slot], 1)
            )
            levels = (f"{level.resource} {shares[level.column]:.0f}%" for level in self._levels)
            text = f"{pod.node} is no longer above any target by measured utilization: {', '.join(levels)}"
            return Refusal(PLAN_OUTDATED, text)
        if (places & slots_below_targets(self._node_usage, self._measured, pod)).any():
            return None
        text = "each node that can run the pod either was not measured or would exceed a target by measured utilization"
        return Refusal(PLAN_OUTDATED, text)

    def _by_requests(self) -> tuple[UtilizationLevel, ...]:
        """Return the targets for resources that are not measured. They are compared with requests."""
        return tuple(level for level in self._levels if level.resource not in self._node_usage.resources)

    def _report_unmeasured(self, context: StrategyContext) -> None:
        for slot in self.scope.sources if self._node_usage.resources else ():
            if not self._node_usage.known_nodes[slot]:
                context.keep_node(slot, NOT_MEASURED, self._why_unmeasured(slot))

    def _why_unmeasured(self, slot: int) -> str:
        if self.scope.usage is None:
            why = "no measurement has been made"
        else:
            usage = check_node_names(self.scope.usage, self.snapshot.nodes.slot_of)
            why = usage.remarks.get(self.snapshot.nodes.node(slot).name) or usage.problem
        return f"its utilization was not measured: {why or 'the source has no value for it'}"

    def _destinations(self) -> tuple[list[int], list[int]]:
        """Return the underutilized nodes that can start pods, and those that are about to be removed, sorted by name.

        Cordoned nodes are omitted, because the scheduler avoids them. Thresholds and targets may name different
        resources. A node that is below all thresholds but above a target is not underutilized.
        """
        nodes, table = self.snapshot.nodes, self._table
        present = self._node_usage.current()
        mask = underutilized(table, self._levels, present) & (percent_above_targets(table, self._levels, present) <= 0)
        mask &= self.scope.destinations & self._node_usage.known_nodes
        under = [slot for slot in self.scope.sources if mask[slot] and not nodes.node(slot).unschedulable]
        leaving = self.scope.being_removed
        if leaving is None:
            return under, []
        return [slot for slot in under if not leaving[slot]], [slot for slot in under if leaving[slot]]

    def _why_not_filled(self, slot: int) -> str:
        """Return a description of an underutilized node that is not a target, because it is about to be removed."""
        node, present = self.snapshot.nodes.node(slot), self._node_usage.current()
        shares = 100.0 * present[slot] / np.maximum(self._table.allocatable[slot], 1)
        levels = (
            f"{level.resource} {percent(float(shares[level.column]), level.threshold)}%, "
            f"threshold {percent(level.threshold)}%"
            for level in self._levels
            if level.threshold is not None
        )
        return f"{node.name} is underutilized ({'; '.join(levels)}), but about to be removed: {removal_signal(node)}"

    def _report_idle_sources(self, context: StrategyContext, sources: list[int], number: int, unneeded: int) -> None:
        """Record for every overutilized node why the strategy does not evict pods from it.

        Args:
            context: the strategy's context.
            sources: the slots of the overutilized nodes.
            number: number of underutilized nodes that are not about to be removed.
            unneeded: number of underutilized nodes that are about to be removed.
        """
        if number:
            code = NOT_ENOUGH_NODES
            text = f"{number} node{'s are' if number != 1 else ' is'} underutilized, not more than numberOfNodes"
            text = f"{text} ({self._number})"
        else:
            code = NO_UNDERUTILIZED_NODES
            text = "no schedulable node is at or below every threshold"
        if unneeded:
            text += f"; {unneeded} underutilized node{'s are' if unneeded != 1 else ' is'} about to be removed"
        for slot in sources:
            context.keep_node(slot, code, f"{self._excesses(slot)[0]}, but {text}")

    def _excesses(self, slot: int) -> list[TargetExcess]:
        return target_excesses(
            self._table.allocatable[slot].tolist(), self._node_usage.without_terminating_on(slot).tolist(), self._levels
        )

    def _evict_excess(
        self, context: StrategyContext, slot: int, destinations: DestinationFinder, loads: UnmovableLoads
    ) -> None:
        """Evict pods from a node until it exceeds no target."""
        limited: list[tuple[Victim, Refusal]] = []
        evicted = 0
        have, want = self._table.allocatable[slot].tolist(), self._node_usage.without_terminating_on(slot).tolist()
        over = target_excesses(have, want, self._levels)
        unmovable = loads.on(slot)
        for group in self._lineup.groups(self._evictable(context, slot)):
            while over and group:
                victim = group.take(over)
                if victim is None:
                    break
                pod = victim.pod
                causes = unmovable.causes_of(pod, have, want, self._levels)
                refusal = context.blocker(pod, causes) or unmovable.refusal(pod, have, want, self._levels)
                refusal = refusal or self._try(context, victim, destinations, over[0], evicted, causes)
                if refusal is None:
                    evicted += 1
                    over = target_excesses(have, self._without(victim, want, slot), self._levels)
                elif refusal.reason in HELD_BACK:
                    limited.append((victim, refusal))
                else:
                    context.keep(victim.pod, refusal.reason, refusal.message)
            if not over:
                return
            if group:
                does, name = "uses" if self._node_usage.resources else "requests", self.snapshot.nodes.node(slot).name
                text = f"the pod {does} none of the resources that {name} is overutilized by: "
                text += ", ".join(each.level.resource for each in over)
                for victim in group:
                    context.keep(victim.pod, IRRELEVANT_RESOURCE, text)
        self._report_limited(context, limited, slot)

    def _without(self, victim: Victim, want: list[int], slot: int) -> list[int]:
        """Update ``want`` to the node's usage after a victim has left, and return it.

        Requests are only subtracted, which is faster than recomputing the usage.
        """
        if self._node_usage.resources:
            want[:] = self._node_usage.without_terminating_on(slot).tolist()
        else:
            for column, amount in enumerate(victim.amounts):
                want[column] -= amount
        return want

    def _evictable(self, context: StrategyContext, slot: int) -> list[Pod]:
        """Return the candidates on a node whose namespaces are not excluded, and record why the others are kept."""
        if not self._excluded:
            return context.unsorted_candidates(slot)
        there = context.candidates(slot)
        for pod in there:
            if pod.namespace in self._excluded:
                text = f"evictableNamespaces.exclude names {pod.namespace}"
                context.keep(pod, NAMESPACE_NOT_EVICTABLE, text)
        return [pod for pod in there if pod.namespace not in self._excluded]

    def _limit(self, pod: Pod, evicted: int) -> Refusal | None:
        """Return a refusal if the strategy's own limit of evictions per node is reached; otherwise ``None``."""
        if self._most is None or evicted < self._most:
            return None
        planned = "1 eviction is" if evicted == 1 else f"{evicted} evictions are"
        limit = f"evictionLimits.node is {self._most}"
        if self.params.eviction_limits.node is None:
            limit = (
                "without podQuery and evictionLimits.node, one pod is evicted per node, because its usage is estimated"
            )
        text = f"{limit}, and {planned} planned for node {pod.node}"
        return Refusal(reason=LIMIT_REACHED, message=text)

    def _try(
        self,
        context: StrategyContext,
        victim: Victim,
        destinations: DestinationFinder,
        worst: TargetExcess,
        evicted: int,
        causes: tuple[Cause, ...],
    ) -> Refusal | None:
        """Plan to move a victim off an overutilized node, or return the reason why it cannot be moved.

        ``evicted`` is the number of pods that the plan already moves off the node. ``causes`` are the unmovable pods
        that are the reason for the move.
        """
        pod = victim.pod
        found: int | Refusal = self._limit(pod, evicted) or destinations.find(pod)
        if isinstance(found, Refusal):
            return found
        nodes = self.snapshot.nodes
        level = worst.level
        used = int(self._node_usage.current()[found, level.column])
        there = 100.0 * used / max(int(self._table.allocatable[found, level.column]), 1)
        text = (
            f"the {level.resource} utilization of {pod.node} is {percent(worst.share, level.target)}%, above the "
            f"target of {percent(level.target)}%; {nodes.node(found).name} is at {there:.0f}%"
        )
        text += ", by measured utilization" if self._node_usage.resources else ""
        refusal = context.plan_move(pod, found, reason=NODE_OVERUTILIZED, message=text, causes=causes)
        if refusal is None:
            destinations.take(pod, found)
        return refusal

    def _report_limited(self, context: StrategyContext, limited: list[tuple[Victim, Refusal]], slot: int) -> None:
        """Record why pods are kept that a limit protects. Only as many are recorded as would have relieved the node."""
        have, want = self._table.allocatable[slot], self._node_usage.without_terminating_on(slot).copy()
        for victim, refusal in limited:
            if not target_excesses(have, want, self._levels):
                return
            context.keep(victim.pod, refusal.reason, refusal.message)
            want[: len(victim.amounts)] -= victim.amounts


def _amounts_of(usage: NodeUsage) -> Callable[[Pod], Amounts]:
    """Return a function that returns the amounts of a pod as a tuple.

    A method of the strategy would make a reference cycle, which keeps a plan until the next garbage collection.
    """
    return lambda pod: tuple(usage.of_pod(pod).tolist())
