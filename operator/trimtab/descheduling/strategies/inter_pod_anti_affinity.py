"""RemovePodsViolatingInterPodAntiAffinity: pods are parted that required anti-affinity forbids to be together."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection
from functools import cached_property
from typing import Final

import numpy as np

from trimtab.api.reasons import INTER_POD_ANTI_AFFINITY_VIOLATED, LIMIT_REACHED
from trimtab.api.strategies import PREFERRED, REQUIRED, InterPodAntiAffinityParams
from trimtab.cluster.resources import BoolArray
from trimtab.descheduling.aversions import Aversions, preferred_terms
from trimtab.descheduling.conflicts import Conflicts, find_clashes
from trimtab.descheduling.context import Context, Wish
from trimtab.descheduling.order import victim_order
from trimtab.descheduling.scope import Scope
from trimtab.descheduling.strategies.strategy import Measure, Strategy
from trimtab.descheduling.vertex_cover import bits, minimum_vertex_cover
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer

SMALL: Final = 16
"""Up to so many movable pods in conflict with each other the fewest victims are found exactly, else greedily."""

_SHOWN: Final = 3


class RemovePodsViolatingInterPodAntiAffinity(Strategy[InterPodAntiAffinityParams]):
    """Required rules first, then preferences.

    Required: two pods conflict if they share a topology domain and a required anti-affinity term of either picks the
    other.

    What is moved is the fewest pods that end all conflicts, whoever states the rules: where podB and podC must not run
    with podA, podA goes alone. Between equally few the lesser by victim order go. Only pods that may be moved and have
    a place count; if no choice ends all conflicts, those go that end some.

    Preferred: a pod goes to where the weight of preferred terms against it, and of its own, is least, if that is less
    than where it is. Whatever the weight, the lesser by priority and QoS class go first, then those that weigh most.
    """

    NAME = "RemovePodsViolatingInterPodAntiAffinity"
    unwelcome_text = "node(s) had pods of more preferred anti-affinity weight"

    def __init__(self, params: InterPodAntiAffinityParams, scope: Scope, placer: Placer) -> None:
        super().__init__(params, scope, placer)
        self._required = REQUIRED in params.inter_pod_anti_affinity_type
        self._preferred = PREFERRED in params.inter_pod_anti_affinity_type
        self._everywhere: BoolArray = np.ones(self.snapshot.nodes.capacity, dtype=np.bool_)
        self._anywhere = Wish(self._everywhere, "")

    @cached_property
    def _aversions(self) -> Aversions:
        return Aversions(self.snapshot)

    def plan(self, context: Context) -> None:
        """Group by group of pods that conflict with each other, directly or through others; then the preferences."""
        if self._required:
            conflicts = Conflicts(self.snapshot)
            for component in conflicts.components():
                _Repair(context, conflicts, component, self._wish).run()
        if self._preferred:
            self._improve(context)

    def measure(self) -> Measure:
        """Pairs of pods in conflict, then the weight of preferred terms, each where it is looked at; on all nodes."""
        pairs = len(Conflicts(self.snapshot).pairs()) if self._required else 0
        return float(pairs), float(self._aversions.total() if self._preferred else 0)

    def unwelcome(self, pod: Pod) -> Collection[int]:
        """Nodes of more preferred anti-affinity weight than the pod's own."""
        if not self._preferred or not self._aversions.concerns(pod):
            return ()
        more: list[int] = np.flatnonzero(self._aversions.everywhere(pod) > self._aversions.here(pod)).tolist()
        return more

    def may_object(self) -> bool:
        """Whether preferences are looked at."""
        return self._preferred

    def _wish(self, pod: Pod) -> Wish:
        """Anywhere, but where the least speaks against the pod, if preferences are looked at."""
        if not self._preferred or not self._aversions.concerns(pod):
            return self._anywhere
        return Wish(self._everywhere, "", self._aversions.everywhere(pod))

    def _improve(self, context: Context) -> None:
        """Move the pod that weighs most among the least important, again and again."""
        clashes = find_clashes(self.snapshot, preferred_terms)
        keys = {key for clash in clashes for key in clash.carriers | clash.picked}
        pods = [self.snapshot.pods[key] for key in keys]
        queue = [
            (victim_order(pod, self._aversions.here(pod)), pod.key)
            for pod in pods
            if context.is_candidate(pod) and context.scope.selected[self.snapshot.nodes.slot_of[pod.node]]
        ]
        heapq.heapify(queue)
        while queue:
            order, key = heapq.heappop(queue)
            pod = self.snapshot.pods[key]
            weight = self._aversions.here(pod)
            if victim_order(pod, weight) != order:  # others have come or gone since
                heapq.heappush(queue, (victim_order(pod, weight), key))
            elif weight > 0:
                self._part(context, pod, weight)

    def _part(self, context: Context, pod: Pod, weight: int) -> None:
        weights = self._aversions.everywhere(pod)
        wish = Wish(weights < weight, f"node(s) had a preferred anti-affinity weight of {weight} or more", weights)
        context.try_move(
            pod,
            wish,
            reason=INTER_POD_ANTI_AFFINITY_VIOLATED,
            message=lambda target: (
                f"preferred anti-affinity between this pod and others weighs {weight} on {pod.node}; "
                f"on {self.snapshot.nodes.node(target).name} {int(weights[target])}"
            ),
        )


class _Repair:
    """One group of pods at work: which of them cannot go, and why, is learned on the way."""

    def __init__(
        self, context: Context, conflicts: Conflicts, component: list[str], wish: Callable[[Pod], Wish]
    ) -> None:
        self._context = context
        self._conflicts = conflicts
        self._wish = wish
        pods = [context.snapshot.pods[key] for key in component]
        self._pods = {pod.key: pod for pod in sorted(pods, key=victim_order)}
        self._stays: dict[str, Refusal | None] = {}
        """Pods that cannot go; without a reason those that the policy does not look at."""
        self._cut: dict[str, Refusal] = {}
        """Pods that only a limit keeps. They count as gone, or others would go in their stead, and more of them."""

    def run(self) -> None:
        """Move what is to be moved, then tell of the pods that are still in conflict why they stay."""
        context = self._context
        for key, pod in self._pods.items():
            here = context.snapshot.slot(pod)
            if here is None or not context.scope.selected[here] or not context.is_candidate(pod):
                self._stays[key] = None
            elif (refusal := context.obstacle(pod)) is not None and refusal.reason != LIMIT_REACHED:
                self._stays[key] = refusal
        if len(self._pods) - len(self._stays) <= SMALL:
            self._exactly()
        else:
            self._greedily()
        for key, pod in self._pods.items():
            refusal = self._cut.get(key) or (self._stays.get(key) if self._conflicts.degree(key) else None)
            if refusal is not None:
                context.keep(pod, refusal.reason, refusal.message)

    def _exactly(self) -> None:
        """Choose the fewest victims, see whether all have a place, and choose anew without the first that has none."""
        while True:
            victims = self._fewest()
            if not victims:
                return
            if len(victims) > 1 and not self._all_have_a_place(victims):
                continue
            for pod in victims:
                if not self._move(pod):
                    break

    def _fewest(self) -> list[Pod]:
        """The smallest set of movable pods that ends all conflicts that can be ended, in victim order."""
        movable = [key for key in self._pods if key not in self._stays and self._conflicts.degree(key)]
        index = {key: number for number, key in enumerate(movable)}
        adjacency, must = [], 0
        for number, key in enumerate(movable):
            others = self._conflicts.neighbours(key)
            adjacency.append(sum(1 << index[other] for other in others if other in index))
            if any(other in self._stays for other in others):
                must |= 1 << number
        return [self._pods[movable[number]] for number in bits(minimum_vertex_cover(adjacency, must))]

    def _all_have_a_place(self, victims: list[Pod]) -> bool:
        """Whether all of them find a place one after the other; the first that does not stays."""
        context = self._context
        mark = context.snapshot.mark()
        try:
            for pod in victims:
                found = context.find(pod, self._wish(pod))
                if isinstance(found, Refusal):
                    self._stays[pod.key] = found
                    return False
                context.placer.reserve(pod, found)
            return True
        finally:
            context.snapshot.undo(mark)

    def _greedily(self) -> None:
        """Move the pod with the most conflicts, again and again; first those in conflict with pods that stay."""
        order = {key: number for number, key in enumerate(self._pods)}
        forced = {key for stays in self._stays for key in self._conflicts.neighbours(stays)}
        for key in sorted(forced.difference(self._stays), key=order.__getitem__):
            if self._conflicts.degree(key):
                self._move(self._pods[key])
        queue = [(-self._conflicts.degree(key), number, key) for key, number in order.items() if key not in self._stays]
        heapq.heapify(queue)
        while queue:
            degree, number, key = heapq.heappop(queue)
            now = self._conflicts.degree(key)
            if not now or key in self._stays:
                continue
            if now != -degree:
                heapq.heappush(queue, (-now, number, key))
            else:
                self._move(self._pods[key])

    def _move(self, pod: Pod) -> bool:
        context = self._context
        obstacle = context.obstacle(pod)
        limited = obstacle is not None and obstacle.reason == LIMIT_REACHED
        found = obstacle if obstacle is not None and not limited else context.find(pod, self._wish(pod))
        if isinstance(found, Refusal):
            refusal: Refusal | None = found
        elif obstacle is not None:
            self._cut[pod.key] = obstacle
            refusal = None
        else:
            refusal = context.move(pod, found, reason=INTER_POD_ANTI_AFFINITY_VIOLATED, message=self._message(pod))
        if refusal is not None:
            self._stays[pod.key] = refusal
            return False
        self._conflicts.remove(pod.key)
        return True

    def _message(self, pod: Pod) -> str:
        others = sorted(self._conflicts.neighbours(pod.key))
        places = sorted({f"{clash.term.topology_key}={clash.value}" for clash in self._conflicts.broken(pod.key)})
        names = ", ".join(others[:_SHOWN]) + (f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else "")
        return (
            f"required anti-affinity forbids {len(others)} pod{'s' if len(others) != 1 else ''} in "
            f"{' and '.join(places)} together with this one: {names}"
        )
