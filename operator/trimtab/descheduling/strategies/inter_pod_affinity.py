"""RemovePodsViolatingInterPodAffinity: moves pods near the pods that their pod affinity selects."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property
from typing import Final

import numpy as np

from trimtab.api.reasons import INTER_POD_AFFINITY_VIOLATED, NO_IMPROVEMENT
from trimtab.api.strategies import PREFERRED, REQUIRED, InterPodAffinityParams
from trimtab.descheduling.planning.context import PlacementPreference, StrategyContext
from trimtab.descheduling.planning.pod_affinity import PodAffinityIndex
from trimtab.descheduling.planning.scope import PolicyScope
from trimtab.descheduling.planning.victim_order import victim_order
from trimtab.descheduling.strategies.strategy import Measure, Strategy
from trimtab.disruption.outcome import Refusal
from trimtab.disruption.protections.causes import Cause
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer

_LEAVING: Final = "node(s) had only terminating pods that match the pod's affinity"


class RemovePodsViolatingInterPodAffinity(Strategy[InterPodAffinityParams]):
    """Moves pods with violated required affinity terms first, then pods with unmet preferred terms.

    Required: if the pod's required pod affinity is not satisfied on its node, for example because the pods that it
    selects were moved or their labels changed, the pod is moved to a node that satisfies it. Terminating pods do not
    satisfy it.

    Preferred: if some of the pod's preferred terms are not met in its domains, it is moved to a node where the unmet
    terms have less weight, as the Kubernetes API defines preferred terms. The total weight of all matching pods must be
    higher there as well, because the scheduler scores nodes by it.

    A pod is moved only if it gains more than other pods lose by the move: first, the number of pods with violated
    required terms is compared, then the weight of unmet preferred terms.
    """

    NAME = "RemovePodsViolatingInterPodAffinity"
    objection_text = "node(s) would violate pod affinity of this or other pods"

    def __init__(self, params: InterPodAffinityParams, scope: PolicyScope, placer: Placer) -> None:
        super().__init__(params, scope, placer)
        self._required = REQUIRED in params.inter_pod_affinity_type
        self._preferred = PREFERRED in params.inter_pod_affinity_type
        self._made = False

    @cached_property
    def _affinity_index(self) -> PodAffinityIndex:
        self._made = True
        return PodAffinityIndex(self.snapshot, required=self._required, preferred=self._preferred)

    def plan(self, context: StrategyContext) -> None:
        """Plan moves for pods that violate required terms, then for pods with unmet preferred terms."""
        if self._required:
            self._visit_affected_pods(context, self._violates, lambda _: 0, self._repair)
        if self._preferred:
            self._visit_affected_pods(context, self._misses, self._missing, self._improve)

    def measure(self) -> Measure:
        """Return the number of pods with violated required terms and the weight of unmet preferred terms."""
        violated, missing = self._affinity_index.score(self._affinity_index.groups.values())
        return float(violated), float(missing)

    def worse_slots(self, pod: Pod) -> Collection[int]:
        """Return the slots where the pod would violate other pods' required terms or raise the total unmet weight."""
        index = self._affinity_index
        if not index.groups:
            return ()
        asks = self._preferred and bool(pod.spec.affinity.pod_preferred)
        if not asks and not index.groups_selecting(pod):
            return ()
        forbidden, missing = index.harm_to_others(pod)
        if asks:
            own = index.preference_weights(pod)[0]
            missing = missing + own - own[self._slot_of(pod)]
        found: list[int] = np.flatnonzero(forbidden | (missing > 0)).tolist()
        return found

    def pod_moved(self, before: Pod, after: Pod) -> None:
        """Update the affinity index after a planned move."""
        if self._made:
            self._affinity_index.pod_moved(before, after)

    def _visit_affected_pods(
        self,
        context: StrategyContext,
        predicate: Callable[[Pod], bool],
        gain: Callable[[Pod], int],
        act: Callable[[StrategyContext, Pod], None],
    ) -> None:
        """Call ``act`` for every candidate that matches ``predicate``, in victim order.

        This is repeated for pods that match only because of these moves. No pod is visited twice.
        """
        seen: set[str] = set()
        while True:
            pods = (self.snapshot.pods[key] for group in self._affinity_index.groups.values() for key in group.pods)
            found = [
                pod
                for pod in pods
                if pod.key not in seen
                and self.scope.selected[self._slot_of(pod)]
                and predicate(pod)
                and context.is_candidate(pod)
            ]
            if not found:
                return
            for pod in sorted(found, key=lambda pod: victim_order(pod, gain(pod))):
                seen.add(pod.key)
                if predicate(pod):
                    act(context, pod)

    def _violates(self, pod: Pod) -> bool:
        return self._affinity_index.group_of(pod).violated(self._slot_of(pod))

    def _missing(self, pod: Pod) -> int:
        return self._affinity_index.group_of(pod).unmet_weight(self._slot_of(pod))

    def _misses(self, pod: Pod) -> bool:
        return self._missing(pod) > 0 and not self._violates(pod)

    def _repair(self, context: StrategyContext, pod: Pod) -> None:
        rank = -self._affinity_index.preference_weights(pod)[1] if self._preferred else None
        preference = PlacementPreference(self._affinity_index.satisfying_nodes(pod), _LEAVING, rank)
        name = pod.node

        def message(target: str) -> str:
            return f"the pod's required pod affinity is not satisfied on {name}; it is satisfied on {target}"

        self._try(context, pod, preference, message)

    def _improve(self, context: StrategyContext, pod: Pod) -> None:
        missing, found = self._affinity_index.preference_weights(pod)
        home = self._slot_of(pod)
        miss, find = int(missing[home]), int(found[home])
        text = f"node(s) had a preferred pod affinity weight of {find} or less"
        preference = PlacementPreference((missing < miss) & (found > find), text, -found)
        name, slot_of = pod.node, self.snapshot.nodes.slot_of

        def message(target: str) -> str:
            weight = int(found[slot_of[target]])
            return f"preferred pod affinity weight is {find} on {name} and {weight} on {target}"

        self._try(context, pod, preference, message)

    def _try(
        self, context: StrategyContext, pod: Pod, preference: PlacementPreference, message: Callable[[str], str]
    ) -> None:
        """Move the pod if it gains more than all other pods lose; otherwise record why it is kept."""
        found: int | Refusal = context.blocker(pod, (Cause(pod),)) or context.find_node(pod, preference)
        if not isinstance(found, Refusal):
            target = self.snapshot.nodes.node(found).name
            refusal = self._harm_refusal(pod, found) or context.plan_move(
                pod, found, reason=INTER_POD_AFFINITY_VIOLATED, message=message(target), causes=(Cause(pod),)
            )
        else:
            refusal = found
        if refusal is not None:
            context.keep(pod, refusal.reason, refusal.message)

    def _harm_refusal(self, pod: Pod, slot: int) -> Refusal | None:
        """Return a refusal if other pods lose at least as much as the pod gains by the move; otherwise ``None``.

        To compare both, the move is applied to the snapshot and undone.
        """
        index = self._affinity_index
        own = index.group_of(pod)
        touched = index.groups_selecting(pod)
        if own not in touched:
            touched = (own, *touched)
        before = index.score(touched)
        mark = self.snapshot.mark()
        moved = self.placer.reserve(pod, slot)
        index.pod_moved(pod, moved)
        after = index.score(touched)
        self.snapshot.undo(mark)
        index.pod_moved(moved, pod)
        if after < before:
            return None
        words = ("{} pods with unsatisfied required pod affinity", "an unmet preferred pod affinity weight of {}")
        which = 0 if before[0] != after[0] or not self._preferred else 1
        text = words[which]
        name = self.snapshot.nodes.node(slot).name
        return Refusal(
            reason=NO_IMPROVEMENT,
            message=f"{text.format(before[which])} with the pod on {pod.node}, {after[which]} with it on {name}",
        )

    def _slot_of(self, pod: Pod) -> int:
        return self.snapshot.nodes.slot_of[pod.node]
