"""HighNodeUtilization: drains underutilized nodes, each completely or not at all."""

from __future__ import annotations

from typing import Final

import numpy as np

from trimtab.api.reasons import (
    NAMESPACE_NOT_EVICTABLE,
    NO_IMPROVEMENT,
    NO_PLACE,
    NODE_UNDERUTILIZED,
    NOT_ENOUGH_NODES,
    NOT_IN_SCOPE,
    REPLACEMENT_LARGER,
)
from trimtab.api.strategies import ONLY_THRESHOLDING_RESOURCES, HighNodeUtilizationParams
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.descheduling.planning.context import PlacementPreference, StrategyContext
from trimtab.descheduling.planning.node_usage import (
    FloatArray,
    UtilizationLevel,
    percent,
    terminating_requests,
    underutilized,
    utilization_levels,
    utilization_percent,
)
from trimtab.descheduling.planning.scope import PolicyScope
from trimtab.descheduling.planning.victim_order import size
from trimtab.descheduling.strategies.remove_duplicates import ONE_PER_NODE
from trimtab.descheduling.strategies.strategy import Measure, Strategy
from trimtab.disruption.outcome import Refusal
from trimtab.disruption.protections import CONFIG_SOURCE_ANNOTATION, MIRROR_ANNOTATION
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer, Scorer
from trimtab.placement.registry import MOST_ALLOCATED

_NOT_A_DESTINATION: Final = "node(s) were underutilized"
_SHOWN: Final = 3
_MOST_JOINED: Final = 4
"""Maximum number of underutilized nodes that become targets so that one node can be drained.

With more targets, the gain would not justify the evictions.
"""

Blocked = list[tuple[Pod, Refusal]]
"""Pods that cannot be evicted, each with the reason."""


class HighNodeUtilization(Strategy[HighNodeUtilizationParams]):
    """Drains underutilized nodes: those whose requests are at or below all thresholds, excluding terminating pods.

    A node is drained only if all pods that keep it in use fit on other nodes at the same time, because a partly drained
    node cannot be removed and the evictions would be useless. Pods that are bound to their node (DaemonSet, static and
    mirror pods) do not keep it in use. Any other pod that cannot be evicted keeps its node in use and is reported.

    The least utilized nodes are drained first; ties are broken by name. The largest pods of a node are moved first, to
    nodes that are not underutilized, scored as a bin-packing scheduler does (MostAllocated). If none of these nodes can
    run a pod, the most utilized of the underutilized nodes that can run it becomes a target and is not drained. Thus
    pods are also consolidated if all nodes are underutilized. Pods are never moved to an empty node.
    """

    NAME = "HighNodeUtilization"
    WHOLE_NODES = True

    def __init__(self, params: HighNodeUtilizationParams, scope: PolicyScope, placer: Placer) -> None:
        super().__init__(params, scope, placer)
        thresholds = params.node_resource_utilization_thresholds
        nodes = self.snapshot.nodes
        self._levels: tuple[UtilizationLevel, ...] = () if thresholds is None else utilization_levels(thresholds, nodes)
        self._number = 0 if thresholds is None else thresholds.number_of_nodes
        self._narrow = ONLY_THRESHOLDING_RESOURCES in params.eviction_modes
        self._excluded = frozenset(params.evictable_namespaces.exclude)
        self._leaving = terminating_requests(self.snapshot)
        self._scorer = Scorer(self.snapshot, MOST_ALLOCATED.scores)
        self._joined: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
        """Underutilized nodes that have become targets."""

    def plan(self, context: StrategyContext) -> None:
        """Drain the underutilized nodes from the least to the most utilized; ties are broken by name."""
        nodes = self.snapshot.nodes
        under = self._underutilized()
        sources = [slot for slot in self.scope.sources if under[slot] and self._in_use(slot)]
        fullness = self._fullness()
        sources.sort(key=lambda slot: fullness[slot])
        number = int(np.count_nonzero(under))
        if number <= self._number:
            for slot in sources:
                verb = "nodes are" if number != 1 else "node is"
                text = f"{number} {verb} underutilized, not more than numberOfNodes ({self._number})"
                context.keep_node(slot, NOT_ENOUGH_NODES, f"{self._describe_utilization(slot)}, but {text}")
            return
        schedulable = self.scope.destinations & ~nodes.cordoned
        filled: BoolArray = schedulable & ~under
        spare: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
        spare[sources] = schedulable[sources]
        rank = np.zeros(nodes.capacity, dtype=np.int64)
        rank[sources] = -np.arange(len(sources))
        places = _Targets(filled, spare, rank)
        for slot in sources:
            if not self._joined[slot]:
                self._empty(context, slot, places)

    def measure(self) -> Measure:
        """Return the number of underutilized nodes in use and the number of pods on those that are not targets."""
        under = self._underutilized()
        numbers = {slot: len(self._in_use(slot)) for slot in self.scope.sources if under[slot]}
        pods = sum(number for slot, number in numbers.items() if not self._joined[slot])
        return float(sum(number > 0 for number in numbers.values())), float(pods)

    def _underutilized(self) -> BoolArray:
        """Return the underutilized nodes: bool, shape (nodes.capacity,).

        A node without any of the resources named in the thresholds is not underutilized.
        """
        nodes = self.snapshot.nodes
        judged: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
        for level in self._levels:
            judged |= nodes.allocatable[:, level.column] > 0
        return underutilized(nodes, self._levels, self._requested()) & judged & self.scope.selected

    def _requested(self) -> IntArray:
        """Return the requests on each node, excluding terminating pods: int64, shape (capacity, axis.width)."""
        requested = self.snapshot.nodes.requested
        if self._leaving:
            requested = requested.copy()
            for slot, row in self._leaving.items():
                requested[slot] -= row
        return requested

    def _fullness(self) -> FloatArray:
        """Return each node's utilization in percent, summed over the resources in the thresholds.

        The result is float64 of shape (nodes.capacity,).
        """
        requested = self._requested()
        total: FloatArray = np.zeros(self.snapshot.nodes.capacity, dtype=np.float64)
        for level in self._levels:
            total += utilization_percent(self.snapshot.nodes, level, requested)
        return total

    def _in_use(self, slot: int) -> list[Pod]:
        """Return the pods that keep a node in use, sorted by name, including protected and out-of-scope pods."""
        return [
            pod for pod in self.snapshot.pods_on(self.snapshot.nodes.node(slot).name) if self._keeps_node_in_use(pod)
        ]

    def _keeps_node_in_use(self, pod: Pod) -> bool:
        if pod.terminal or pod.deleted is not None or belongs_to_its_node(pod):
            return False
        if not self._narrow:
            return True
        row = self.snapshot.row(pod.spec)
        return any(row[level.column] > 0 for level in self._levels if level.column < len(row))

    def _empty(self, context: StrategyContext, slot: int, places: _Targets) -> None:
        """Move all pods off a node, or report which of them cannot be moved and why."""
        pods = sorted(self._in_use(slot), key=_largest_first)
        blocked = self._blocked(context, pods) or self._pods_without_target(context, pods, slot, places)
        if blocked:
            self._report_kept_node(context, slot, blocked)
            return
        joined: list[int] = []
        while (failed := self._move_all(context, slot, pods, places)) is not None:
            further = self._further(context, failed, places, slot) if len(joined) < _MOST_JOINED else None
            if further is None:
                self._joined[joined] = False
                self._report_kept_node(context, slot, [failed])
                return
            joined.append(further)
            self._joined[further] = True
        places.spare[slot] = False

    def _move_all(
        self, context: StrategyContext, slot: int, pods: list[Pod], places: _Targets
    ) -> tuple[Pod, Refusal] | None:
        """Move either all pods or none of them to targets.

        Returns:
            The first pod that cannot be moved, and the reason; ``None`` if all pods are moved.
        """
        start = self._describe_utilization(slot)
        what = f"other nodes can run all {len(pods)} of its pods, this one" if len(pods) > 1 else "its only pod can run"
        preference = PlacementPreference(places.open | self._joined, _NOT_A_DESTINATION)
        return context.plan_all_moves(
            pods,
            lambda pod: context.find_node(pod, preference, self._scorer),
            reason=NODE_UNDERUTILIZED,
            message=lambda _, target: f"{start}; {what} on {self.snapshot.nodes.node(target).name}",
        )

    def _further(
        self, context: StrategyContext, failed: tuple[Pod, Refusal], places: _Targets, slot: int
    ) -> int | None:
        """Return the slot of an underutilized node to use as an additional target; ``None`` if there is none.

        It is the most utilized of the nodes that can run the pod for which no target was found.
        """
        pod, refusal = failed
        if refusal.reason not in (NO_PLACE, REPLACEMENT_LARGER, NO_IMPROVEMENT):
            return None
        among = places.spare & ~self._joined
        among[slot] = False
        if not among.any():
            return None
        found = context.find_node(pod, PlacementPreference(among, _NOT_A_DESTINATION, places.rank), self._scorer)
        return None if isinstance(found, Refusal) else found

    def _blocked(self, context: StrategyContext, pods: list[Pod]) -> Blocked:
        """Return the pods that must not be evicted, regardless of free capacity."""
        found = []
        for pod in pods:
            refusal = None
            if pod.namespace in self._excluded:
                text = f"evictableNamespaces.exclude names {pod.namespace}"
                refusal = Refusal(reason=NAMESPACE_NOT_EVICTABLE, message=text)
            elif not self.scope.covers(pod):
                refusal = Refusal(reason=NOT_IN_SCOPE, message="the pod is not in the policy's scope")
            refusal = refusal or context.blocker(pod)
            if refusal is not None:
                found.append((pod, refusal))
        return found

    def _pods_without_target(self, context: StrategyContext, pods: list[Pod], slot: int, places: _Targets) -> Blocked:
        """Return the pods for which no other node is eligible, regardless of free capacity."""
        others = places.open | self._joined | places.spare
        others[slot] = False
        preference = PlacementPreference(others, _NOT_A_DESTINATION)
        found = []
        for pod in pods:
            if not (self.placer.eligible(self.placer.replacement(pod)) & others).any():
                refusal = context.find_node(pod, preference, self._scorer)
                if isinstance(refusal, Refusal):
                    found.append((pod, refusal))
        return found

    def _report_kept_node(self, context: StrategyContext, slot: int, blocked: Blocked) -> None:
        """Record why a node is not drained, both for the node and for the pods that keep it in use."""
        for pod, refusal in blocked:
            if refusal.reason != NOT_IN_SCOPE:
                context.keep(pod, refusal.reason, refusal.message)
        names = "; ".join(f"{pod.key}: {refusal.message}" for pod, refusal in blocked[:_SHOWN])
        more = f"; and {len(blocked) - _SHOWN} more" if len(blocked) > _SHOWN else ""
        context.keep_node(
            slot,
            blocked[0][1].reason,
            f"{self._describe_utilization(slot)}, but cannot be drained completely: {names}{more}",
        )

    def _describe_utilization(self, slot: int) -> str:
        """Return a description of the node's utilization, with the thresholds."""
        requested = self._requested()
        levels = [
            f"{level.resource} {percent(float(used[slot]), level.threshold)}%, threshold {percent(level.threshold)}%"
            for level in self._levels
            if level.threshold is not None
            for used in (utilization_percent(self.snapshot.nodes, level, requested),)
        ]
        return f"{self.snapshot.nodes.node(slot).name} is underutilized ({'; '.join(levels)})"


class _Targets:
    """The possible targets for the pods of drained nodes.

    Attributes:
        open: bool, shape (nodes.capacity,); schedulable nodes that are not underutilized.
        spare: bool, same shape; schedulable underutilized nodes that are still in use.
        rank: int64, same shape; the position of each spare node in the order from the most to the least utilized.
    """

    def __init__(self, open_: BoolArray, spare: BoolArray, rank: IntArray) -> None:
        self.open = open_
        self.spare = spare
        self.rank = rank


def belongs_to_its_node(pod: Pod) -> bool:
    """Return whether the pod is bound to its node, as DaemonSet pods, static pods and mirror pods are."""
    if any(owner.kind in ONE_PER_NODE for owner in pod.owners):
        return True
    return MIRROR_ANNOTATION in pod.annotations or pod.annotations.get(CONFIG_SOURCE_ANNOTATION, "api") != "api"


def _largest_first(pod: Pod) -> tuple[int, int, float, str, str]:
    cpu, memory, age, namespace, name = size(pod)
    return -cpu, -memory, age, namespace, name
