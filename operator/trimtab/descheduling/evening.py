"""Pods evened out over the domains of their topology spread constraints: which go, and where to."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

import numpy as np

from trimtab.api.reasons import LIMIT_REACHED, NO_IMPROVEMENT, NO_PLACE, TOPOLOGY_SPREAD_VIOLATED
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.descheduling.context import Context, Wish
from trimtab.descheduling.order import victim_order
from trimtab.descheduling.spreads import Constraint, Outlook, Spreads, State
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod

_OTHERWISE: Final = "node(s) were in a domain that the pod would leave no more even, by one of the constraints"

_Alike = tuple[object, ...]
_Queue = list[tuple[object, Pod]]


class Evening:
    """One strategy of one policy at work on all constraints that it mends.

    Args:
        context: of the strategy.
        spreads: the constraints; those that are not mended are not worsened.
    """

    def __init__(self, context: Context, spreads: Spreads) -> None:
        self._context = context
        self._snapshot = context.snapshot
        self._spreads = spreads
        self._refused: dict[str, tuple[Pod, Refusal]] = {}
        """Why pods stay, by their keys; told in the end, for what one round cannot move another may."""
        self._cut: set[str] = set()
        """Pods that only a limit keeps. They count as gone, or others would be named in their stead."""
        self._beside: defaultdict[Constraint, dict[int, int]] = defaultdict(dict)
        """What they would change, by constraint and domain."""
        self._states: dict[Constraint, tuple[tuple[int, int], State]] = {}
        self._stuck: dict[_Alike, tuple[int, Refusal]] = {}

    def run(self, phases: Iterable[bool]) -> None:
        """Mend the constraints, hard ones where a phase is true and soft ones where it is false.

        A phase goes round until no pod moves any more: what one constraint forbade, another may have made way for.
        """
        for hard in phases:
            chosen = [each for each in self._spreads.constraints if each.hard is hard]
            moved = True
            while moved:
                moved = False
                for constraint in chosen:
                    moved |= self._mend(constraint)
        for key in sorted(self._refused):
            pod, refusal = self._refused[key]
            if key not in self._context.board.moved:
                self._context.keep(pod, refusal.reason, refusal.message)

    def _mend(self, constraint: Constraint) -> bool:
        """Move pods from the largest domain until the constraint holds; whether any could be moved."""
        moved = False
        done: BoolArray = np.zeros_like(self._state(constraint).domains.eligible)
        queues: dict[int, _Queue] = {}
        there: dict[int, list[str]] | None = None
        while (domain := self._fullest(constraint, done)) is not None:
            if domain not in queues:
                there = self._by_domain(constraint) if there is None else there
                queues[domain] = self._queue(there.get(domain, ()))
            pod = self._next(queues[domain])
            if pod is None:
                done[domain] = True
            else:
                moved |= self._try(constraint, pod)
        return moved

    def _fullest(self, constraint: Constraint, done: BoolArray) -> int | None:
        """The largest domain that is too large, but for those that are done with; ties by the label's value."""
        state = self._state(constraint)
        over = np.flatnonzero((state.above > 0) & ~done)
        if not len(over):
            return None
        return self._first(constraint, over, -state.counts[over])

    def _queue(self, keys: Iterable[str]) -> _Queue:
        """Those of the pods that may be asked to go, as a heap in victim order."""
        pods = (self._snapshot.pods[key] for key in keys if key not in self._cut)
        queue: _Queue = [(victim_order(pod, self._gain(pod)), pod) for pod in pods if self._context.is_candidate(pod)]
        heapq.heapify(queue)
        return queue

    def _by_domain(self, constraint: Constraint) -> dict[int, list[str]]:
        """The pods that state the constraint and are counted by it; whoever moves from now on is none to be asked."""
        counting, selected = self._state(constraint).domains.counting, self._context.scope.selected
        pods, slot_of = self._snapshot.pods, self._snapshot.nodes.slot_of
        found: defaultdict[int, list[str]] = defaultdict(list)
        for key in self._spreads.stating(constraint):
            slot = slot_of[pods[key].node]
            if selected[slot]:
                found[int(counting[slot])].append(key)
        return found

    def _next(self, queue: _Queue) -> Pod | None:
        """The next pod by the gain that it has now: others' moves may have mended what its own would."""
        while queue:
            key, pod = heapq.heappop(queue)
            now = victim_order(pod, self._gain(pod))
            if now == key:
                return pod
            heapq.heappush(queue, (now, pod))
        return None

    def _gain(self, pod: Pod) -> int:
        """How many constraints are too full where the pod is, of those that count it."""
        slot = self._snapshot.nodes.slot_of[pod.node]
        gain = 0
        for each in self._spreads.counting(pod):
            state = self._state(each)
            gain += int(state.above[state.domains.counting[slot]] > 0)
        return gain

    def _try(self, constraint: Constraint, pod: Pod) -> bool:
        """Move the pod, or note why not."""
        context = self._context
        found: int | Refusal = context.obstacle(pod) or self._find(constraint, pod)
        if isinstance(found, int):
            text = self._message(constraint, pod, found)
            refusal = context.move(pod, found, reason=TOPOLOGY_SPREAD_VIOLATED, message=text)
            if refusal is None:
                return True
        else:
            refusal = found
        if refusal.reason == LIMIT_REACHED:
            self._count_as_gone(constraint, pod)
        elif refusal.reason in (NO_PLACE, NO_IMPROVEMENT):
            numbers = self._numbers(constraint, pod, self._spreads.state(constraint))
            refusal = Refusal(refusal.reason, f"{numbers}; {refusal.message}")
        self._refused[pod.key] = pod, refusal
        return False

    def _find(self, constraint: Constraint, pod: Pod) -> int | Refusal:
        """The slot for the pod, or why there is none; asked once for pods that are alike as long as none is moved."""
        slot, moves = self._snapshot.nodes.slot_of[pod.node], len(self._context.board.actions)
        alike: _Alike | None = None
        if not (pod.spec.volumes or pod.spec.affinity.of_pods or any(g.objections(pod) for g in self._context.guards)):
            homes = (int(self._state(each).domains.counting[slot]) for each in self._spreads.counting(pod))
            alike = (pod.namespace, id(pod.spec), pod.labels, constraint, *homes)
            known = self._stuck.get(alike)
            if known is not None and known[0] == moves:
                return known[1]
        found = self._context.find(pod, self._wish(constraint, pod))
        if alike is not None and isinstance(found, Refusal):
            self._stuck[alike] = (moves, found)
        return found

    def _wish(self, constraint: Constraint, pod: Pod) -> Wish:
        """Where the constraint is better and no other worse off; the smallest domains first.

        Of nodes alike in that, those come first that do not worsen a soft constraint, then those where the other
        constraints count the fewest.
        """
        among: BoolArray = self._snapshot.nodes.used.copy()
        worse: IntArray = np.zeros(len(among), dtype=np.int64)
        others: IntArray = np.zeros(len(among), dtype=np.int64)
        own: Outlook | None = None
        for each in self._spreads.counting(pod):
            outlook = self._spreads.outlook(each, pod)
            if each is constraint:
                own = outlook
                among &= outlook.counted & outlook.holds & (outlook.change < 0)
                continue
            others += outlook.counts
            if each.hard or not constraint.hard:
                among &= outlook.harmless
            else:
                worse += ~outlook.harmless
        assert own is not None, "only pods that the constraint counts are asked to go"
        rank = (worse * (int(own.counts.max()) + 1) + own.counts) * (int(others.max()) + 1) + others
        return Wish(among, _OTHERWISE, rank)

    def _count_as_gone(self, constraint: Constraint, pod: Pod) -> None:
        """Count a pod that a limit keeps as if it had gone to the smallest domain."""
        slot = self._snapshot.nodes.slot_of[pod.node]
        state = self._state(constraint)
        homes = {each: int(self._state(each).domains.counting[slot]) for each in self._spreads.counting(pod)}
        eligible = np.flatnonzero(state.domains.eligible)
        target = self._first(constraint, eligible, state.counts[eligible])
        for each, home in homes.items():
            self._beside[each][home] = self._beside[each].get(home, 0) - 1
        self._beside[constraint][target] = self._beside[constraint].get(target, 0) + 1
        self._cut.add(pod.key)

    def _state(self, constraint: Constraint) -> State:
        """The counts as they are now, without those that only a limit keeps."""
        now = len(self._context.board.actions), len(self._cut)
        known = self._states.get(constraint)
        if known is None or known[0] != now:
            state = self._spreads.state(constraint, self._beside.get(constraint))
            known = self._states[constraint] = (now, state)
        return known[1]

    def _first(self, constraint: Constraint, domains: IntArray, counts: IntArray) -> int:
        """The domain with the least count, ties by the label's value; among thousands if they are hosts."""
        values = self._values(constraint)
        least: list[int] = domains[counts == counts.min()].tolist()
        return min(least, key=lambda domain: values[domain])

    def _values(self, constraint: Constraint) -> list[str]:
        return self._snapshot.nodes.column(constraint.topology_key).values

    def _message(self, constraint: Constraint, pod: Pod, target: int) -> str:
        """The numbers of a move."""
        state = self._spreads.state(constraint)
        home, there = (int(state.domains.counting[slot]) for slot in (self._snapshot.nodes.slot_of[pod.node], target))
        number = int(state.counts[there]) - (home == there)
        return f"{self._numbers(constraint, pod, state)}; {self._values(constraint)[there]} has {number}"

    def _numbers(self, constraint: Constraint, pod: Pod, state: State) -> str:
        """How far the pod's domain is above the smallest, and how far it may be."""
        values = self._values(constraint)
        home = int(state.domains.counting[self._snapshot.nodes.slot_of[pod.node]])
        count = int(state.counts[home])
        eligible = np.flatnonzero(state.domains.eligible)
        wanted = constraint.rule.constraint.min_domains
        if len(eligible) < wanted:
            base = f"0, for there are {len(eligible)} of minDomains {wanted} domains"
        else:
            least = self._first(constraint, eligible, state.counts[eligible])
            base = f"{values[least]} with {state.smallest}"
        return (
            f"{constraint.topology_key}={values[home]} has {count} pods, {count - state.smallest} more than {base}, "
            f"where maxSkew is {constraint.max_skew}"
        )
