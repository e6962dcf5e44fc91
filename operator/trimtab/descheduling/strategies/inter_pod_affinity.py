"""RemovePodsViolatingInterPodAffinity: pods follow the pods that they must be, or would rather be, together with."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property
from typing import Final

import numpy as np

from trimtab.api.reasons import INTER_POD_AFFINITY_VIOLATED, NO_IMPROVEMENT
from trimtab.api.strategies import PREFERRED, REQUIRED, InterPodAffinityParams
from trimtab.descheduling.companions import Companions
from trimtab.descheduling.context import Context, Wish
from trimtab.descheduling.order import victim_order
from trimtab.descheduling.scope import Scope
from trimtab.descheduling.strategies.strategy import Measure, Strategy
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer

_LEAVING: Final = "node(s) had only pods on their way out that the pod's affinity asks for"


class RemovePodsViolatingInterPodAffinity(Strategy[InterPodAffinityParams]):
    """Required rules first, then preferences.

    Required: the pod's required pod affinity does not hold where it is, as it may happen when the pods go that it was
    placed beside, or their labels change. It goes to where it holds, though not to pods that are on their way out.

    Preferred: some of what the pod's preferred affinity asks for is nowhere around it. It goes to where it misses less
    and where all that it finds weighs more: the former is what the API promises, the latter what the scheduler counts.

    Nobody is moved at the expense of others: what they ask for and find in the pod is weighed against what it gains.
    """

    NAME = "RemovePodsViolatingInterPodAffinity"
    unwelcome_text = "node(s) parted pods that pod affinity wants together"

    def __init__(self, params: InterPodAffinityParams, scope: Scope, placer: Placer) -> None:
        super().__init__(params, scope, placer)
        self._required = REQUIRED in params.inter_pod_affinity_type
        self._preferred = PREFERRED in params.inter_pod_affinity_type
        self._made = False

    @cached_property
    def _companions(self) -> Companions:
        self._made = True
        return Companions(self.snapshot, required=self._required, preferred=self._preferred)

    def plan(self, context: Context) -> None:
        """The violators in victim order, then those that miss something."""
        if self._required:
            self._each(context, self._violates, lambda _: 0, self._repair)
        if self._preferred:
            self._each(context, self._misses, self._missing, self._improve)

    def measure(self) -> Measure:
        """Pods whose required affinity does not hold, then the weight of preferences that nobody meets; everywhere."""
        violated, missing = self._companions.score(self._companions.kinds.values())
        return float(violated), float(missing)

    def unwelcome(self, pod: Pod) -> Collection[int]:
        """Nodes where others would lack the pod, or where it and they together would miss more."""
        companions = self._companions
        if not companions.kinds:
            return ()
        asks = self._preferred and bool(pod.spec.affinity.pod_preferred)
        if not asks and not companions.asking_for(pod):
            return ()
        forbidden, missing = companions.hurt(pod)
        if asks:
            own = companions.weights(pod)[0]
            missing = missing + own - own[self._home(pod)]
        found: list[int] = np.flatnonzero(forbidden | (missing > 0)).tolist()
        return found

    def moved(self, before: Pod, after: Pod) -> None:
        """Keep the places of those who ask right."""
        if self._made:
            self._companions.moved(before, after)

    def _each(
        self,
        context: Context,
        concerned: Callable[[Pod], bool],
        gain: Callable[[Pod], int],
        act: Callable[[Context, Pod], None],
    ) -> None:
        """Act on every pod that is concerned when its turn comes, then on those whom these left behind."""
        seen: set[str] = set()
        while True:
            pods = (self.snapshot.pods[key] for asking in self._companions.kinds.values() for key in asking.pods)
            found = [
                pod
                for pod in pods
                if pod.key not in seen
                and self.scope.selected[self._home(pod)]
                and concerned(pod)
                and context.is_candidate(pod)
            ]
            if not found:
                return
            for pod in sorted(found, key=lambda pod: victim_order(pod, gain(pod))):
                seen.add(pod.key)
                if concerned(pod):
                    act(context, pod)

    def _violates(self, pod: Pod) -> bool:
        return self._companions.of(pod).violated(self._home(pod))

    def _missing(self, pod: Pod) -> int:
        return self._companions.of(pod).missing(self._home(pod))

    def _misses(self, pod: Pod) -> bool:
        return self._missing(pod) > 0 and not self._violates(pod)

    def _repair(self, context: Context, pod: Pod) -> None:
        rank = -self._companions.weights(pod)[1] if self._preferred else None
        wish = Wish(self._companions.places(pod), _LEAVING, rank)
        name = pod.node

        def message(target: str) -> str:
            return f"the pod's required pod affinity does not hold on {name}; on {target} it does"

        self._try(context, pod, wish, message)

    def _improve(self, context: Context, pod: Pod) -> None:
        missing, found = self._companions.weights(pod)
        home = self._home(pod)
        miss, find = int(missing[home]), int(found[home])
        text = f"node(s) had no more than a weight of {find} of what the pod's preferred pod affinity asks for"
        wish = Wish((missing < miss) & (found > find), text, -found)
        name, slot_of = pod.node, self.snapshot.nodes.slot_of

        def message(target: str) -> str:
            weight = int(found[slot_of[target]])
            return f"what the pod's preferred pod affinity asks for weighs {find} on {name}; on {target} {weight}"

        self._try(context, pod, wish, message)

    def _try(self, context: Context, pod: Pod, wish: Wish, message: Callable[[str], str]) -> None:
        """Move the pod where it and all others are better off together, or say why it stays."""
        found: int | Refusal = context.obstacle(pod) or context.find(pod, wish)
        if not isinstance(found, Refusal):
            target = self.snapshot.nodes.node(found).name
            refusal = self._at_others_expense(pod, found) or context.move(
                pod, found, reason=INTER_POD_AFFINITY_VIOLATED, message=message(target)
            )
        else:
            refusal = found
        if refusal is not None:
            context.keep(pod, refusal.reason, refusal.message)

    def _at_others_expense(self, pod: Pod, slot: int) -> Refusal | None:
        """Whether others lose what the pod gains: tried, counted and taken back."""
        companions = self._companions
        own = companions.of(pod)
        touched = companions.asking_for(pod)
        if own not in touched:
            touched = (own, *touched)
        before = companions.score(touched)
        mark = self.snapshot.mark()
        moved = self.placer.reserve(pod, slot)
        companions.moved(pod, moved)
        after = companions.score(touched)
        self.snapshot.undo(mark)
        companions.moved(moved, pod)
        if after < before:
            return None
        words = ("{} pods without their required pod affinity", "a weight of {} of preferred pod affinity unmet")
        which = 0 if before[0] != after[0] or not self._preferred else 1
        text = words[which]
        name = self.snapshot.nodes.node(slot).name
        return Refusal(
            reason=NO_IMPROVEMENT,
            message=f"{text.format(before[which])} with the pod on {pod.node}, {after[which]} with it on {name}",
        )

    def _home(self, pod: Pod) -> int:
        return self.snapshot.nodes.slot_of[pod.node]
