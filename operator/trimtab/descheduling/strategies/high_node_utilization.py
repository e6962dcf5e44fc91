"""HighNodeUtilization: underutilized nodes are emptied, each wholly or not at all."""

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
)
from trimtab.api.strategies import ONLY_THRESHOLDING_RESOURCES, HighNodeUtilizationParams
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.descheduling.context import Context, Wish, pending
from trimtab.descheduling.order import size
from trimtab.descheduling.scope import Scope
from trimtab.descheduling.strategies.remove_duplicates import ONE_PER_NODE
from trimtab.descheduling.strategies.strategy import Measure, Strategy
from trimtab.descheduling.utilization import (
    FloatArray,
    Level,
    levels_of,
    on_their_way_out,
    percent,
    share,
    underutilized,
)
from trimtab.disruption.protections.mirror_pod import ANNOTATION as MIRROR
from trimtab.disruption.protections.static_pod import ANNOTATION as SOURCE
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer
from trimtab.placement.registry import MOST_ALLOCATED
from trimtab.placement.scorer import Scorer

_NOT_A_DESTINATION: Final = "node(s) were underutilized themselves"
_SHOWN: Final = 3
_MOST_JOINED: Final = 4
"""Underutilized nodes that become destinations for the sake of one: more would hardly be worth their pods."""

Blocked = list[tuple[Pod, Refusal]]
"""Pods that cannot go, each with the reason."""


class HighNodeUtilization(Strategy[HighNodeUtilizationParams]):
    """Underutilized is at or below all thresholds, by requests; what is on its way out no longer counts.

    A node is emptied only if all pods that keep it in use have a place on other nodes at once: half a node saves
    nothing, and its pods would have been moved in vain. Pods that belong to their node (DaemonSets', static and mirror
    pods) do not keep it; any other that may not go does, and is named.

    The least full nodes are emptied first, ties by name. Pods go to nodes that are not underutilized, as a scheduler
    set up to fill nodes would put them (MostAllocated), the largest first. Where these do not take them, the fullest of
    the underutilized nodes that does becomes a destination, and is emptied no more; so nodes are also merged where all
    of them are underutilized. Nothing is ever moved to an empty node.
    """

    NAME = "HighNodeUtilization"
    WHOLE_NODES = True

    def __init__(self, params: HighNodeUtilizationParams, scope: Scope, placer: Placer) -> None:
        super().__init__(params, scope, placer)
        thresholds = params.node_resource_utilization_thresholds
        nodes = self.snapshot.nodes
        self._levels: tuple[Level, ...] = () if thresholds is None else levels_of(thresholds, nodes)
        self._number = 0 if thresholds is None else thresholds.number_of_nodes
        self._narrow = ONLY_THRESHOLDING_RESOURCES in params.eviction_modes
        self._excluded = frozenset(params.evictable_namespaces.exclude)
        self._leaving = on_their_way_out(self.snapshot)
        self._scorer = Scorer(self.snapshot, MOST_ALLOCATED.scores)
        self._joined: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
        """Underutilized nodes that have become destinations."""

    def plan(self, context: Context) -> None:
        """From the least full underutilized node to the fullest, ties by name."""
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
                context.keep_node(slot, NOT_ENOUGH_NODES, f"{self._low(slot)}, but {text}")
            return
        schedulable = self.scope.destinations & ~nodes.cordoned
        filled: BoolArray = schedulable & ~under
        spare: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
        spare[sources] = schedulable[sources]
        rank = np.zeros(nodes.capacity, dtype=np.int64)
        rank[sources] = -np.arange(len(sources))
        places = _Places(filled, spare, rank)
        for slot in sources:
            if not self._joined[slot]:
                self._empty(context, slot, places)

    def measure(self) -> Measure:
        """Underutilized nodes in use, then the pods that keep them, but for nodes that others are emptied onto."""
        under = self._underutilized()
        numbers = {slot: len(self._in_use(slot)) for slot in self.scope.sources if under[slot]}
        pods = sum(number for slot, number in numbers.items() if not self._joined[slot])
        return float(sum(number > 0 for number in numbers.values())), float(pods)

    def _underutilized(self) -> BoolArray:
        """Bool, shape (nodes.capacity,). A node that has none of the resources named says nothing about its use."""
        nodes = self.snapshot.nodes
        judged: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
        for level in self._levels:
            judged |= nodes.allocatable[:, level.column] > 0
        return underutilized(nodes, self._levels, self._requested()) & judged & self.scope.selected

    def _requested(self) -> IntArray:
        """What is requested on each node without what is on its way out: int64, shape (capacity, axis.width)."""
        requested = self.snapshot.nodes.requested
        if self._leaving:
            requested = requested.copy()
            for slot, row in self._leaving.items():
                requested[slot] -= row
        return requested

    def _fullness(self) -> FloatArray:
        """Percent requested, summed over the resources named: float64, shape (nodes.capacity,)."""
        requested = self._requested()
        total: FloatArray = np.zeros(self.snapshot.nodes.capacity, dtype=np.float64)
        for level in self._levels:
            total += share(self.snapshot.nodes, level, requested)
        return total

    def _in_use(self, slot: int) -> list[Pod]:
        """The pods that keep a node in use, by name; protected ones and those out of scope among them."""
        return [pod for pod in self.snapshot.pods_on(self.snapshot.nodes.node(slot).name) if self._keeps(pod)]

    def _keeps(self, pod: Pod) -> bool:
        if pod.terminal or pod.deleted is not None or belongs_to_its_node(pod):
            return False
        if not self._narrow:
            return True
        row = self.snapshot.row(pod.spec)
        return any(row[level.column] > 0 for level in self._levels if level.column < len(row))

    def _empty(self, context: Context, slot: int, places: _Places) -> None:
        """Move all pods off a node, or say which of them stay and why."""
        pods = sorted(self._in_use(slot), key=_largest_first)
        blocked = self._blocked(context, pods) or self._nowhere(context, pods, slot, places)
        if blocked:
            self._stay(context, slot, blocked)
            return
        joined: list[int] = []
        while (failed := self._move_all(context, slot, pods, places)) is not None:
            further = self._further(context, failed, places, slot) if len(joined) < _MOST_JOINED else None
            if further is None:
                self._joined[joined] = False
                self._stay(context, slot, [failed])
                return
            joined.append(further)
            self._joined[further] = True
        places.spare[slot] = False

    def _move_all(self, context: Context, slot: int, pods: list[Pod], places: _Places) -> tuple[Pod, Refusal] | None:
        """Move all pods to destinations, or none; then the first that cannot go, with the reason."""
        start = self._low(slot)
        what = (
            f"all {len(pods)} of its pods have places elsewhere, this one"
            if len(pods) > 1
            else "its only pod has a place"
        )
        wish = Wish(places.open | self._joined, _NOT_A_DESTINATION)
        return context.move_all(
            pods,
            lambda pod: context.find(pod, wish, self._scorer),
            reason=NODE_UNDERUTILIZED,
            message=lambda _, target: f"{start}; {what} on {self.snapshot.nodes.node(target).name}",
        )

    def _further(self, context: Context, failed: tuple[Pod, Refusal], places: _Places, slot: int) -> int | None:
        """The fullest underutilized node that takes the pod for which no destination was left, if there is one."""
        pod, refusal = failed
        if refusal.reason not in (NO_PLACE, NO_IMPROVEMENT):
            return None
        among = places.spare & ~self._joined
        among[slot] = False
        if not among.any():
            return None
        found = context.find(pod, Wish(among, _NOT_A_DESTINATION, places.rank), self._scorer)
        return None if isinstance(found, Refusal) else found

    def _blocked(self, context: Context, pods: list[Pod]) -> Blocked:
        """The pods that could not go wherever there was room."""
        found = []
        for pod in pods:
            refusal = None
            if pod.namespace in self._excluded:
                text = f"evictableNamespaces.exclude names {pod.namespace}"
                refusal = Refusal(reason=NAMESPACE_NOT_EVICTABLE, message=text)
            elif not self.scope.covers(pod):
                refusal = Refusal(reason=NOT_IN_SCOPE, message="the policy does not look at the pod")
            refusal = refusal or context.obstacle(pod)
            if refusal is not None:
                found.append((pod, refusal))
        return found

    def _nowhere(self, context: Context, pods: list[Pod], slot: int, places: _Places) -> Blocked:
        """The pods that suit no other node, however empty: known before the others are tried."""
        others = places.open | self._joined | places.spare
        others[slot] = False
        wish = Wish(others, _NOT_A_DESTINATION)
        found = []
        for pod in pods:
            if not (self.placer.eligible(pending(pod)) & others).any():
                refusal = context.find(pod, wish, self._scorer)
                if isinstance(refusal, Refusal):
                    found.append((pod, refusal))
        return found

    def _stay(self, context: Context, slot: int, blocked: Blocked) -> None:
        """Say why a node is not emptied, of the node and of the pods that keep it."""
        for pod, refusal in blocked:
            if refusal.reason != NOT_IN_SCOPE:
                context.keep(pod, refusal.reason, refusal.message)
        names = "; ".join(f"{pod.key}: {refusal.message}" for pod, refusal in blocked[:_SHOWN])
        more = f"; and {len(blocked) - _SHOWN} more" if len(blocked) > _SHOWN else ""
        context.keep_node(
            slot, blocked[0][1].reason, f"{self._low(slot)}, but not all of its pods can go: {names}{more}"
        )

    def _low(self, slot: int) -> str:
        """How little of a node is requested, against the thresholds."""
        requested = self._requested()
        told = [
            f"{level.resource} {percent(float(share(self.snapshot.nodes, level, requested)[slot]), level.threshold)}%, "
            f"threshold {percent(level.threshold)}%"
            for level in self._levels
            if level.threshold is not None
        ]
        return f"{self.snapshot.nodes.node(slot).name} is underutilized ({'; '.join(told)})"


class _Places:
    """Where pods may go.

    Attributes:
        open: bool, shape (nodes.capacity,); schedulable nodes that are not underutilized.
        spare: bool, same shape; schedulable nodes that are, and that still hold something.
        rank: int64, same shape; the fullest of the spare ones least.
    """

    def __init__(self, open_: BoolArray, spare: BoolArray, rank: IntArray) -> None:
        self.open = open_
        self.spare = spare
        self.rank = rank


def belongs_to_its_node(pod: Pod) -> bool:
    """Whether a pod would be nowhere else: a DaemonSet's, or one that the kubelet runs from its own files."""
    if any(owner.kind in ONE_PER_NODE for owner in pod.owners):
        return True
    return MIRROR in pod.annotations or pod.annotations.get(SOURCE, "api") != "api"


def _largest_first(pod: Pod) -> tuple[int, int, float, str, str]:
    cpu, memory, age, namespace, name = size(pod)
    return -cpu, -memory, age, namespace, name
