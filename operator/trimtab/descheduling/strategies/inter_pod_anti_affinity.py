"""RemovePodsViolatingInterPodAntiAffinity: moves pods that violate required or preferred pod anti-affinity."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from typing import Final

import numpy as np

from trimtab.api.bounds import plural
from trimtab.api.reasons import INTER_POD_ANTI_AFFINITY_VIOLATED, PLAN_DEADLINE_EXCEEDED
from trimtab.api.strategies import PREFERRED, REQUIRED, InterPodAntiAffinityParams
from trimtab.cluster.resources import BoolArray
from trimtab.descheduling.planning.anti_affinity_conflicts import (
    AntiAffinityConflicts,
    Conflict,
    bits,
    find_conflicts,
    minimum_vertex_cover,
)
from trimtab.descheduling.planning.context import HELD_BACK, PlacementPreference, StrategyContext
from trimtab.descheduling.planning.pod_affinity import SoftAntiAffinity, preferred_terms
from trimtab.descheduling.planning.scope import PolicyScope
from trimtab.descheduling.planning.victim_order import victim_order
from trimtab.descheduling.strategies.strategy import Measure, Strategy
from trimtab.disruption.outcome import Refusal
from trimtab.disruption.protections.causes import Cause
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer

SMALL: Final = 16
"""Maximum number of conflicting movable pods for which the smallest set of victims is computed exactly."""

_SHOWN: Final = 3


class RemovePodsViolatingInterPodAntiAffinity(Strategy[InterPodAntiAffinityParams]):
    """Resolves violated required terms first, then reduces the weight of preferred terms.

    Required: two pods conflict if they are in the same topology domain and a required anti-affinity term of either
    selects the other.

    The smallest set of pods that resolves all conflicts is evicted: if podB and podC must not run with podA, only podA
    is evicted. A pod without a violated term of its own is evicted only if a pod with such a term may cause its
    eviction (:mod:`trimtab.disruption.protections.causes`). Of equally small sets, the one whose pods come first in
    victim order is chosen. Only pods that may be evicted and fit another node are considered. If no set resolves all
    conflicts, a set that resolves some of them is chosen.

    Preferred: a pod is moved to the node where the violated preferred terms have the lowest weight, if that is lower
    than on its current node. The weight includes its own terms and those of other pods that select it. Pods of lower
    priority and QoS class are moved first, then those with the highest weight.
    """

    NAME = "RemovePodsViolatingInterPodAntiAffinity"
    objection_text = "node(s) had a higher preferred anti-affinity weight"

    def __init__(self, params: InterPodAntiAffinityParams, scope: PolicyScope, placer: Placer) -> None:
        super().__init__(params, scope, placer)
        self._required = REQUIRED in params.inter_pod_anti_affinity_type
        self._preferred = PREFERRED in params.inter_pod_anti_affinity_type
        self._everywhere: BoolArray = np.ones(self.snapshot.nodes.capacity, dtype=np.bool_)
        self._anywhere = PlacementPreference(self._everywhere, "")
        self._caused: SoftAntiAffinity | None = None
        """The weight of preferred terms that may cause evictions; ``None`` until preferred terms are handled."""
        self._conflicts: defaultdict[str, list[Conflict]] = defaultdict(list)

    @cached_property
    def _soft_anti_affinity(self) -> SoftAntiAffinity:
        return SoftAntiAffinity(self.snapshot)

    def plan(self, context: StrategyContext) -> None:
        """Resolve each group of connected conflicts, then reduce the weight of violated preferred terms."""
        if self._required:
            conflicts = AntiAffinityConflicts(self.snapshot, context.causes)
            for component in conflicts.components():
                repairs = [_Repair(context, conflicts, keys, self._preference) for keys in conflicts.choices(component)]
                for repair in repairs:
                    repair.run()
                kept = [each for repair in repairs for each in repair.refusals()]
                for pod, refusal in sorted(kept, key=lambda each: victim_order(each[0])):
                    context.keep(pod, refusal.reason, refusal.message)
            self._keep_bystanders(context, conflicts)
        if self._preferred:
            self._improve(context)

    def _keep_bystanders(self, context: StrategyContext, conflicts: AntiAffinityConflicts) -> None:
        """Record why pods are kept that no pod of their own namespace conflicts with.

        Protections are not checked, because the pods would be kept without them as well.
        """
        for key, cause in conflicts.bystanders():
            pod = self.snapshot.pods[key]
            here = self.snapshot.slot(pod)
            if here is not None and context.scope.selected[here] and context.is_candidate(pod):
                refusal = context.causes.refusal(pod, cause)
                if refusal is not None:
                    context.keep(pod, refusal.reason, refusal.message)

    def measure(self) -> Measure:
        """Return the number of conflicting pairs of pods and, if enforced, the weight of violated preferred terms."""
        pairs = len(AntiAffinityConflicts(self.snapshot).pairs()) if self._required else 0
        return float(pairs), float(self._soft_anti_affinity.total_cost() if self._preferred else 0)

    def worse_slots(self, pod: Pod) -> Collection[int]:
        """Return the slots where the pod's preferred anti-affinity weight would be higher than on its current node."""
        if not self._preferred or not self._soft_anti_affinity.affects(pod):
            return ()
        more: list[int] = np.flatnonzero(
            self._soft_anti_affinity.cost_by_slot(pod) > self._soft_anti_affinity.cost_here(pod)
        ).tolist()
        return more

    def may_object(self) -> bool:
        """Return whether the policy enforces preferred terms."""
        return self._preferred

    def _preference(self, pod: Pod) -> PlacementPreference:
        """Return a preference that allows all nodes, ranked by preferred anti-affinity weight if that is enforced."""
        if not self._preferred or not self._soft_anti_affinity.affects(pod):
            return self._anywhere
        return PlacementPreference(self._everywhere, "", self._soft_anti_affinity.cost_by_slot(pod))

    def pod_moved(self, before: Pod, after: Pod) -> None:
        """Update the weight of the preferred terms that may cause evictions after a planned move."""
        if self._caused is not None:
            self._caused.pod_moved(before, after)

    def _improve(self, context: StrategyContext) -> None:
        """Move pods to reduce the weight of violated preferred terms, in victim order.

        Pods of the lowest rank are moved first, and among those the ones with the highest weight.
        """
        conflicts = list(find_conflicts(self.snapshot, preferred_terms))
        if not conflicts:
            return
        self._conflicts = defaultdict(list)
        for conflict in conflicts:
            for key in conflict.keys:
                self._conflicts[key].append(conflict)
        caused = self._caused = SoftAntiAffinity(self.snapshot, context.causes)
        pods = [self.snapshot.pods[key] for key in self._conflicts]
        queue = [
            (victim_order(pod, caused.cost_here(pod)), pod.key)
            for pod in pods
            if context.is_candidate(pod) and context.scope.selected[self.snapshot.nodes.slot_of[pod.node]]
        ]
        heapq.heapify(queue)
        while queue:
            order, key = heapq.heappop(queue)
            pod = self.snapshot.pods[key]
            weight = caused.cost_here(pod)
            if victim_order(pod, weight) != order:  # earlier moves have changed the weight
                heapq.heappush(queue, (victim_order(pod, weight), key))
            elif weight > 0:
                self._part(context, pod, caused)
            elif self._soft_anti_affinity.cost_here(pod) > 0:
                refusal = context.causes.refusal_of(pod, self._causes_of(context, pod))
                if refusal is not None:
                    context.keep(pod, refusal.reason, refusal.message)

    def _part(self, context: StrategyContext, pod: Pod, caused: SoftAntiAffinity) -> None:
        """Move the pod to a node with a lower preferred anti-affinity weight, or record why it is kept.

        Both the total weight and the weight of the terms that may cause the pod's eviction must be lower.
        """
        weight, weights = self._soft_anti_affinity.cost_here(pod), self._soft_anti_affinity.cost_by_slot(pod)
        preference = PlacementPreference(
            (weights < weight) & (caused.cost_by_slot(pod) < caused.cost_here(pod)),
            f"node(s) had a preferred anti-affinity weight of {weight} or more",
            weights,
        )
        context.try_move(
            pod,
            preference,
            reason=INTER_POD_ANTI_AFFINITY_VIOLATED,
            message=lambda target: (
                f"preferred anti-affinity between this pod and others weighs {weight} on {pod.node}; "
                f"on {self.snapshot.nodes.node(target).name} {int(weights[target])}"
            ),
            causes=self._causes_of(context, pod),
        )

    def _causes_of(self, context: StrategyContext, pod: Pod) -> tuple[Cause, ...]:
        """Return the cause of a pod's eviction as a tuple with at most one item.

        The cause is the pod itself if one of its preferred terms selects a pod in its domain. Otherwise it is the first
        pod there with a preferred term that selects it. Pods that may cause the eviction precede others, and those of
        the pod's own namespace precede those of other namespaces.
        """
        found: dict[bool, Cause] = {}
        refused: Cause | None = None
        for conflict in self._conflicts[pod.key]:
            if pod.key in conflict.carriers and any(
                self._still_in_domain(key, conflict) for key in conflict.picked - {pod.key}
            ):
                return (Cause(pod),)
            for key in sorted(conflict.carriers.keys() - {pod.key}):
                cause = Cause(self.snapshot.pods[key])
                if not self._still_in_domain(key, conflict):
                    continue
                if context.causes.refusal(pod, cause) is None:
                    found.setdefault(cause.pod.namespace != pod.namespace, cause)
                    break
                refused = refused or cause
        chosen = found.get(False) or found.get(True) or refused
        return (chosen,) if chosen is not None else ()

    def _still_in_domain(self, key: str, conflict: Conflict) -> bool:
        """Return whether a pod of a conflict is still in the conflict's domain after the moves planned so far."""
        pod = self.snapshot.pods[key]
        column = self.snapshot.nodes.column(conflict.topology_key)
        number = int(column.ids[self.snapshot.nodes.slot_of[pod.node]])
        return number >= 0 and column.values[number] == conflict.value


class _Repair:
    """Resolves one group of conflicting pods. Pods that turn out to be unmovable are excluded."""

    def __init__(
        self,
        context: StrategyContext,
        conflicts: AntiAffinityConflicts,
        component: list[str],
        preference: Callable[[Pod], PlacementPreference],
    ) -> None:
        self._context = context
        self._conflicts = conflicts
        self._preference = preference
        pods = [context.snapshot.pods[key] for key in component]
        self._pods = {pod.key: pod for pod in sorted(pods, key=victim_order)}
        self._stays: dict[str, Refusal | None] = {}
        """Pods that cannot be moved, with the reason; ``None`` for pods out of the policy's scope."""
        self._cut: dict[str, Refusal] = {}
        """Pods that only a limit keeps. They count as moved, because otherwise more pods would be moved instead."""

    def run(self) -> None:
        """Move pods until the group has no conflicts that can be resolved."""
        context = self._context
        for key, pod in self._pods.items():
            here = context.snapshot.slot(pod)
            if here is None or not context.scope.selected[here] or not context.is_candidate(pod):
                self._stays[key] = None
            elif (refusal := context.blocker(pod)) is not None and refusal.reason not in HELD_BACK:
                self._stays[key] = refusal
        if not any(key not in self._stays and self._conflicts.reasons(key) for key in self._pods):
            return
        if len(self._pods) - len(self._stays) <= SMALL:
            self._choose_minimum()
        else:
            self._choose_greedily()

    def refusals(self) -> Iterator[tuple[Pod, Refusal]]:
        """Yield the pods that are still in conflict and the reasons why they are kept.

        It must be called after all groups have been handled.
        """
        for key, pod in self._pods.items():
            refusal = self._cut.get(key)
            if refusal is None and self._conflicts.involved(key):
                refusal = self._stays[key] if key in self._stays else self._conflicts.uncaused(key)
            if refusal is not None:
                yield pod, refusal

    def _choose_minimum(self) -> None:
        """Choose the smallest set of victims that all fit other nodes.

        If a victim fits no other node, it is excluded and the victims are chosen again.
        """
        while True:
            victims = self._minimum_victims()
            if not victims:
                return
            if len(victims) > 1 and not self._all_fit(victims):
                continue
            for pod in victims:
                if not self._move(pod):
                    break

    def _minimum_victims(self) -> list[Pod]:
        """Return the smallest set of movable pods whose moves resolve all resolvable conflicts, in victim order."""
        movable = [key for key in self._pods if key not in self._stays and self._conflicts.reasons(key)]
        index = {key: number for number, key in enumerate(movable)}
        forced = self._conflicts.forced(movable, self._stays)
        adjacency, must = [], 0
        for number, key in enumerate(movable):
            others = self._conflicts.neighbours(key)
            adjacency.append(sum(1 << index[other] for other in others if other in index))
            if key in forced:
                must |= 1 << number
        return [self._pods[movable[number]] for number in bits(minimum_vertex_cover(adjacency, must))]

    def _all_fit(self, victims: list[Pod]) -> bool:
        """Return whether all pods fit other nodes when they are moved one after the other.

        The first pod that does not fit is recorded as unmovable.
        """
        context = self._context
        mark = context.snapshot.mark()
        try:
            for pod in victims:
                found = context.find_node(pod, self._preference(pod))
                if isinstance(found, Refusal):
                    self._stays[pod.key] = found
                    return False
                context.placer.reserve(pod, found)
            return True
        finally:
            context.snapshot.undo(mark)

    def _choose_greedily(self) -> None:
        """Repeatedly move the pod with the most conflicts, starting with pods that conflict with unmovable pods."""
        order = {key: number for number, key in enumerate(self._pods)}
        movable = [key for key in order if key not in self._stays and self._conflicts.reasons(key)]
        forced = self._conflicts.forced(movable, self._stays)
        for key in sorted(forced.intersection(movable), key=order.__getitem__):
            if self._conflicts.reasons(key):
                self._move(self._pods[key])
        queue = [
            (-self._conflicts.reasons(key), number, key) for key, number in order.items() if key not in self._stays
        ]
        heapq.heapify(queue)
        while queue:
            degree, number, key = heapq.heappop(queue)
            now = self._conflicts.reasons(key)
            if not now or key in self._stays:
                continue
            if now != -degree:
                heapq.heappush(queue, (-now, number, key))
            else:
                self._move(self._pods[key])

    def _move(self, pod: Pod) -> bool:
        context, causes = self._context, self._conflicts.causes_of(pod.key)
        blocker = context.blocker(pod, causes)
        limited = blocker is not None and blocker.reason in HELD_BACK
        if (
            blocker is not None and blocker.reason == PLAN_DEADLINE_EXCEEDED
        ):  # there is no time left to check whether the pod fits another node
            self._cut[pod.key] = blocker
            self._conflicts.remove(pod.key)
            return True
        found = blocker if blocker is not None and not limited else context.find_node(pod, self._preference(pod))
        if isinstance(found, Refusal):
            refusal: Refusal | None = found
        elif blocker is not None:
            self._cut[pod.key] = blocker
            refusal = None
        else:
            refusal = context.plan_move(
                pod, found, reason=INTER_POD_ANTI_AFFINITY_VIOLATED, message=self._message(pod), causes=causes
            )
        if refusal is not None:
            self._stays[pod.key] = refusal
            return False
        self._conflicts.remove(pod.key)
        return True

    def _message(self, pod: Pod) -> str:
        others = sorted(self._conflicts.neighbours(pod.key))
        places = sorted({f"{conflict.topology_key}={conflict.value}" for conflict in self._conflicts.broken(pod.key)})
        names = ", ".join(others[:_SHOWN]) + (f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else "")
        pods = plural(len(others), "other pod")
        return (
            f"required anti-affinity between the pod and {pods} in the same topology domain ({', '.join(places)}) is "
            f"violated: {names}"
        )
