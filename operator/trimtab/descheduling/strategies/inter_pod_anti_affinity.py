"""RemovePodsViolatingInterPodAntiAffinity: pods are parted that required anti-affinity forbids to be together."""

from __future__ import annotations

import heapq
from typing import Final

import numpy as np

from trimtab.api.reasons import INTER_POD_ANTI_AFFINITY_VIOLATED, LIMIT_REACHED
from trimtab.api.strategies import NoParams
from trimtab.descheduling.conflicts import Conflicts
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


class RemovePodsViolatingInterPodAntiAffinity(Strategy[NoParams]):
    """Two pods conflict if they share a topology domain and a required anti-affinity term of either picks the other.

    What is moved is the fewest pods that end all conflicts, whoever states the rules: where podB and podC must not run
    with podA, podA goes alone. Between equally few the lesser by victim order go. Only pods that may be moved and have
    a place count; if no choice ends all conflicts, those go that end some.
    """

    NAME = "RemovePodsViolatingInterPodAntiAffinity"

    def __init__(self, params: NoParams, scope: Scope, placer: Placer) -> None:
        super().__init__(params, scope, placer)
        self._anywhere = Wish(np.ones(self.snapshot.nodes.capacity, dtype=np.bool_), "")

    def plan(self, context: Context) -> None:
        """Group by group of pods that conflict with each other, directly or through others."""
        conflicts = Conflicts(self.snapshot)
        for component in conflicts.components():
            _Repair(context, conflicts, component, self._anywhere).run()

    def measure(self) -> Measure:
        """Pairs of pods in conflict, on all nodes."""
        return (float(len(Conflicts(self.snapshot).pairs())),)


class _Repair:
    """One group of pods at work: which of them cannot go, and why, is learned on the way."""

    def __init__(self, context: Context, conflicts: Conflicts, component: list[str], anywhere: Wish) -> None:
        self._context = context
        self._conflicts = conflicts
        self._anywhere = anywhere
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
                found = context.find(pod, self._anywhere)
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
        found = obstacle if obstacle is not None and not limited else context.find(pod, self._anywhere)
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
