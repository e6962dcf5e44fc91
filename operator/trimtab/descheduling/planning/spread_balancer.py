"""Evaluates topology spread constraints, and chooses the pods to move and their targets.

Pods are counted as kube-scheduler does (:mod:`trimtab.placement.topology_spread`): all pods that a constraint's
selector selects, except terminating ones, regardless of their owner and of whether they may be evicted. A constraint's
violation is measured by its excess. A domain may contain ``maxSkew`` more pods than the smallest domain, and the excess
is the number of pods above that limit, summed over domains. The skew is not used as the measure, because no single move
lowers it if two domains are equally large.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
from msgspec import Struct

from trimtab.api.reasons import NO_IMPROVEMENT, NO_PLACE, REPLACEMENT_LARGER, TOPOLOGY_SPREAD_VIOLATED
from trimtab.cluster.affinity import BoundTerm
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.term_index import TermIndex, pod_keys
from trimtab.descheduling.planning.context import HELD_BACK, PlacementPreference, StrategyContext
from trimtab.descheduling.planning.victim_order import victim_order
from trimtab.disruption.outcome import Refusal
from trimtab.disruption.protections.causes import Cause
from trimtab.kube.frozen import NO_LABELS, Labels
from trimtab.kube.objects import Pod
from trimtab.kube.rules.selectors import matches_labels
from trimtab.placement.topology_spread import Domains, SpreadRule, SpreadRules, global_minimum

_Template = tuple[str, int, Labels]
_NONE: Final[tuple[StatedConstraint, ...]] = ()


class StatedConstraint(Struct, frozen=True, eq=False):
    """A topology spread constraint that pods of one namespace share. The pods may belong to several ReplicaSets.

    Two constraints are equal if they have the same selector (including ``matchLabelKeys``), topology key, maxSkew,
    minDomains and whenUnsatisfiable, and count the same nodes.

    Attributes:
        namespace: the pods' namespace.
        rule: the constraint of one of the pods, with its counter and its nodes.
        hard: true for DoNotSchedule, false for ScheduleAnyway.
        place: the sort key: the first pod that has the constraint (``namespace/name``), and the constraint's index in
            that pod's spec.
    """

    namespace: str
    rule: SpreadRule
    hard: bool
    place: tuple[str, int]

    @property
    def max_skew(self) -> int:
        """Return the maximum number of pods by which a domain may exceed the smallest domain."""
        return self.rule.constraint.max_skew

    @property
    def topology_key(self) -> str:
        """Return the key of the node label whose values are the domains."""
        return self.rule.constraint.topology_key


class SpreadState(Struct, frozen=True):
    """The number of pods in each domain of a constraint.

    Attributes:
        domains: the domains, and which of them contain counted nodes.
        counts: int64, shape (domains + 1,); the last entry is 0 and stands for nodes that are not counted.
        smallest: the count of the smallest domain, from which skew is measured.
        above: int64, same shape; the number of pods by which each domain exceeds ``smallest`` + ``maxSkew``.
    """

    domains: Domains
    counts: IntArray
    smallest: int
    above: IntArray

    @property
    def excess(self) -> int:
        """Return the number of pods by which the constraint is violated; 0 if it is satisfied."""
        return int(self.above.sum())


class MoveEffect(Struct, frozen=True):
    """The effect on a constraint of moving one of the pods that it counts, for each slot.

    Attributes:
        counts: int64, shape (capacity,); number of pods in the slot's domain, excluding this pod; 0 if the domain is
            not counted.
        counted: bool, same shape; whether the constraint would count the pod in the slot.
        change: int64, same shape; the change in the excess if the pod moves to the slot.
        holds: bool, same shape; whether the constraint allows the pod in the slot's domain, or the pod is already
            there.
    """

    counts: IntArray
    counted: BoolArray
    change: IntArray
    holds: BoolArray

    @property
    def harmless(self) -> BoolArray:
        """Return the slots to which the pod can move without worsening the constraint.

        A satisfied constraint stays satisfied, and the skew of a violated one does not increase.
        """
        return self.holds & (self.change <= 0)


class SpreadConstraintIndex:
    """An index of the topology spread constraints of the pods in a policy's scope, for one plan.

    Args:
        snapshot: the cluster.
        rules: the spread rules of the snapshot.
        pods: the pods whose constraints are considered. Unscheduled and terminated pods are skipped.
        soft: whether to consider ScheduleAnyway constraints as well.
    """

    def __init__(self, snapshot: Snapshot, rules: SpreadRules, pods: Iterable[Pod], *, soft: bool) -> None:
        self._snapshot = snapshot
        self._rules = rules
        self._soft = soft
        self._stated: dict[_Template, tuple[StatedConstraint, ...]] = {}
        self._keys: defaultdict[_Template, list[str]] = defaultdict(list)
        """The keys of the indexed pods, by template."""
        self._stating: defaultdict[StatedConstraint, list[_Template]] = defaultdict(list)
        self._counting: dict[tuple[str, Labels], tuple[StatedConstraint, ...]] = {}
        self.constraints: tuple[StatedConstraint, ...] = self._collect(pods)
        self._by_term: defaultdict[str, TermIndex[StatedConstraint]] = defaultdict(TermIndex)
        for each in self.constraints:
            term = BoundTerm("", each.rule.constraint.selector, frozenset((each.namespace,)))
            self._by_term[each.namespace].add(term.first_keys, each)

    def stated_by(self, pod: Pod) -> tuple[StatedConstraint, ...]:
        """Return the pod's own constraints, except those whose selector matches no pod."""
        return self._stated.get(_template(pod), _NONE) if pod.spec.topology_spread else _NONE

    def counting(self, pod: Pod) -> tuple[StatedConstraint, ...]:
        """Return the constraints that count the pod, including constraints of other pods."""
        return self._counting_of(pod.namespace, pod.labels) if self.constraints else _NONE

    def _counting_of(self, namespace: str, labels: Labels) -> tuple[StatedConstraint, ...]:
        key = (namespace, labels)
        found = self._counting.get(key)
        if found is None:
            near = self._by_term[namespace].near(pod_keys(namespace, labels, NO_LABELS), labels)
            picking = (each for each in near if matches_labels(each.rule.constraint.selector, labels))
            found = self._counting[key] = tuple(sorted(picking, key=_place))
        return found

    def stating(self, constraint: StatedConstraint) -> Iterator[str]:
        """Yield the pods that both have a constraint and are counted by it, as ``namespace/name``."""
        for template in self._stating[constraint]:
            namespace, _, labels = template
            if constraint in self._counting_of(namespace, labels):
                yield from self._keys[template]

    def state_of(self, constraint: StatedConstraint, extra: dict[int, int] | None = None) -> SpreadState:
        """Return the constraint's counts in the current snapshot.

        Args:
            constraint: a constraint of the index.
            extra: the number of pods to add to each domain, or to subtract if it is negative.
        """
        domains, counts = self._rules.count(constraint.rule)
        for domain, number in (extra or {}).items():
            counts[domain] += number
        return _spread_state(constraint, domains, counts)

    def move_effect(self, constraint: StatedConstraint, pod: Pod) -> MoveEffect:
        """Return the effect of moving a placed pod to each node. The pod may be temporarily removed from its node."""
        domains, counts = self._rules.count(constraint.rule)
        home, nowhere = int(domains.counted_domain_of_slot[self._snapshot.nodes.slot_of[pod.node]]), len(counts) - 1
        now, rest = counts, counts.copy()
        if home != nowhere and pod.deleted is None:
            if pod.key in self._snapshot.pods:
                rest[home] -= 1
            else:
                now = counts.copy()
                now[home] += 1
        excess = _spread_state(constraint, domains, now).excess
        without = _spread_state(constraint, domains, rest)
        limit = without.smallest + constraint.max_skew
        change: IntArray = (without.excess - excess) + (
            rest >= limit
        )  # rest is 0 for nodes that are not counted, which is below any limit
        holds: BoolArray = rest < limit
        holds[home] = True
        lowest = np.flatnonzero(domains.eligible & (rest == without.smallest))
        if len(lowest) == 1:  # adding the pod raises the smallest count, so the excess of all other domains falls
            more = rest.copy()
            more[lowest] += 1
            change[lowest] = _spread_state(constraint, domains, more).excess - excess
        where = domains.counted_domain_of_slot
        return MoveEffect(rest[where], where != nowhere, change[where], holds[where])

    def _collect(self, pods: Iterable[Pod]) -> tuple[StatedConstraint, ...]:
        """Return the distinct constraints, ordered by the first pod that has them."""
        first: dict[_Template, Pod] = {}
        for pod in pods:
            if not pod.spec.topology_spread or pod.terminal or self._snapshot.slot(pod) is None:
                continue
            template = _template(pod)
            self._keys[template].append(pod.key)
            known = first.get(template)
            if known is None or pod.name < known.name:
                first[template] = pod
        found: dict[tuple[object, ...], StatedConstraint] = {}
        for template, pod in sorted(first.items(), key=lambda item: item[1].key):
            mine = []
            for place, (rule, hard) in enumerate(self._rules_of(pod)):
                if rule.counter is None:  # an empty selector counts no pod
                    continue
                alike = (pod.namespace, hard, rule.constraint, rule.inclusion)
                mine.append(found.setdefault(alike, StatedConstraint(pod.namespace, rule, hard, (pod.key, place))))
            self._stated[template] = tuple(dict.fromkeys(mine))
            for each in self._stated[template]:
                self._stating[each].append(template)
        return tuple(sorted(found.values(), key=_place))

    def _rules_of(self, pod: Pod) -> Iterator[tuple[SpreadRule, bool]]:
        for rule in self._rules.hard(pod):
            yield rule, True
        if self._soft:
            for rule in self._rules.soft(pod):
                yield rule, False


def _template(pod: Pod) -> _Template:
    return pod.namespace, id(pod.spec), pod.labels


def _place(constraint: StatedConstraint) -> tuple[str, int]:
    return constraint.place


def _spread_state(constraint: StatedConstraint, domains: Domains, counts: IntArray) -> SpreadState:
    eligible = domains.of_eligible(counts)
    if not len(eligible):
        return SpreadState(domains, counts, 0, np.zeros_like(counts))
    smallest = global_minimum(eligible, constraint.rule.constraint.min_domains)
    return SpreadState(domains, counts, smallest, np.maximum(counts - (smallest + constraint.max_skew), 0))


_OTHERWISE: Final = "node(s) were in a domain that would not improve a topology spread constraint"

_Alike = tuple[object, ...]
_Queue = list[tuple[object, Pod]]


class SpreadBalancer:
    """Moves pods until the constraints of one strategy of one policy are satisfied.

    Args:
        context: the strategy's context.
        spreads: the constraints. Moves do not worsen constraints that are not balanced.
    """

    def __init__(self, context: StrategyContext, spreads: SpreadConstraintIndex) -> None:
        self._context = context
        self._snapshot = context.snapshot
        self._spreads = spreads
        self._refused: dict[str, tuple[Pod, Refusal]] = {}
        """Kept pods and the reasons, by key. They are reported at the end, because a later round may still move the
        pods.
        """
        self._cut: set[str] = set()
        """Pods that only a limit keeps. They count as moved, because otherwise other pods would be moved instead."""
        self._extra: defaultdict[StatedConstraint, dict[int, int]] = defaultdict(dict)
        """The changes of the counts if these pods were moved, by constraint and domain."""
        self._states: dict[StatedConstraint, tuple[tuple[int, int], SpreadState]] = {}
        self._stuck: dict[_Alike, tuple[int, Refusal]] = {}

    def run(self, phases: Iterable[bool]) -> None:
        """Balance constraints in phases, each for DoNotSchedule constraints (``True``) or ScheduleAnyway (``False``).

        A phase repeats until no pod moves, because the move for one constraint may enable a move for another.
        """
        for hard in phases:
            chosen = [each for each in self._spreads.constraints if each.hard is hard]
            moved = True
            while moved:
                moved = False
                for constraint in chosen:
                    moved |= self._balance(constraint)
        for key in sorted(self._refused):
            pod, refusal = self._refused[key]
            if key not in self._context.plan_state.moved:
                self._context.keep(pod, refusal.reason, refusal.message)

    def _balance(self, constraint: StatedConstraint) -> bool:
        """Move pods from the largest domain until the constraint is satisfied, and return whether any pod was moved."""
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

    def _fullest(self, constraint: StatedConstraint, done: BoolArray) -> int | None:
        """Return the largest domain above the limit that still has candidates; ``None`` if there is none.

        Ties are broken by the label's value.
        """
        state = self._state(constraint)
        over = np.flatnonzero((state.above > 0) & ~done)
        if not len(over):
            return None
        return self._first(constraint, over, -state.counts[over])

    def _queue(self, keys: Iterable[str]) -> _Queue:
        """Return those of the pods that are candidates, as a heap in victim order."""
        pods = (self._snapshot.pods[key] for key in keys if key not in self._cut)
        queue: _Queue = [(victim_order(pod, self._gain(pod)), pod) for pod in pods if self._context.is_candidate(pod)]
        heapq.heapify(queue)
        return queue

    def _by_domain(self, constraint: StatedConstraint) -> dict[int, list[str]]:
        """Return the pods that both have the constraint and are counted by it, by domain."""
        counting, selected = self._state(constraint).domains.counted_domain_of_slot, self._context.scope.selected
        pods, slot_of = self._snapshot.pods, self._snapshot.nodes.slot_of
        found: defaultdict[int, list[str]] = defaultdict(list)
        for key in self._spreads.stating(constraint):
            slot = slot_of[pods[key].node]
            if selected[slot]:
                found[int(counting[slot])].append(key)
        return found

    def _next(self, queue: _Queue) -> Pod | None:
        """Return the next pod of a queue in victim order; ``None`` if the queue is empty.

        Gains that other moves have changed are recomputed.
        """
        while queue:
            key, pod = heapq.heappop(queue)
            now = victim_order(pod, self._gain(pod))
            if now == key:
                return pod
            heapq.heappush(queue, (now, pod))
        return None

    def _gain(self, pod: Pod) -> int:
        """Return the number of constraints that count the pod and whose limit its domain exceeds."""
        slot = self._snapshot.nodes.slot_of[pod.node]
        gain = 0
        for each in self._spreads.counting(pod):
            state = self._state(each)
            gain += int(state.above[state.domains.counted_domain_of_slot[slot]] > 0)
        return gain

    def _try(self, constraint: StatedConstraint, pod: Pod) -> bool:
        """Move the pod and return ``True``, or record why it is kept and return ``False``."""
        context = self._context
        found: int | Refusal = context.blocker(pod, (Cause(pod),)) or self._find(constraint, pod)
        if isinstance(found, int):
            text = self._message(constraint, pod, found)
            refusal = context.plan_move(pod, found, reason=TOPOLOGY_SPREAD_VIOLATED, message=text, causes=(Cause(pod),))
            if refusal is None:
                return True
        else:
            refusal = found
        if refusal.reason in HELD_BACK:
            self._count_as_moved(constraint, pod)
        elif refusal.reason in (NO_PLACE, REPLACEMENT_LARGER, NO_IMPROVEMENT):
            numbers = self._numbers(constraint, pod, self._spreads.state_of(constraint))
            refusal = Refusal(refusal.reason, f"{numbers}; {refusal.message}")
        self._refused[pod.key] = pod, refusal
        return False

    def _find(self, constraint: StatedConstraint, pod: Pod) -> int | Refusal:
        """Return the slot to which the pod should move, or the reason why there is none.

        Refusals are cached for equal pods until a pod moves.
        """
        slot, moves = self._snapshot.nodes.slot_of[pod.node], len(self._context.plan_state.actions)
        alike: _Alike | None = None
        if not (
            pod.spec.volumes or pod.spec.affinity.has_pod_terms or any(g.objections(pod) for g in self._context.guards)
        ):
            homes = (
                int(self._state(each).domains.counted_domain_of_slot[slot]) for each in self._spreads.counting(pod)
            )
            alike = (pod.namespace, id(pod.spec), pod.labels, constraint, *homes)
            known = self._stuck.get(alike)
            if known is not None and known[0] == moves:
                return known[1]
        found = self._context.find_node(pod, self._preference(constraint, pod))
        if alike is not None and isinstance(found, Refusal):
            self._stuck[alike] = (moves, found)
        return found

    def _preference(self, constraint: StatedConstraint, pod: Pod) -> PlacementPreference:
        """Return a preference for nodes that improve the constraint without worsening another.

        When a DoNotSchedule constraint is balanced, nodes that worsen the fewest ScheduleAnyway constraints are
        preferred, then those in the smallest domains, then those where other constraints count the fewest pods.
        """
        among: BoolArray = self._snapshot.nodes.used.copy()
        worse: IntArray = np.zeros(len(among), dtype=np.int64)
        others: IntArray = np.zeros(len(among), dtype=np.int64)
        own: MoveEffect | None = None
        for each in self._spreads.counting(pod):
            effect = self._spreads.move_effect(each, pod)
            if each is constraint:
                own = effect
                among &= effect.counted & effect.holds & (effect.change < 0)
                continue
            others += effect.counts
            if each.hard or not constraint.hard:
                among &= effect.harmless
            else:
                worse += ~effect.harmless
        assert own is not None, "only pods that the constraint counts are moved"
        rank = (worse * (int(own.counts.max()) + 1) + own.counts) * (int(others.max()) + 1) + others
        return PlacementPreference(among, _OTHERWISE, rank)

    def _count_as_moved(self, constraint: StatedConstraint, pod: Pod) -> None:
        """Count a pod that is kept because of a limit as if it had been moved to the smallest domain."""
        slot = self._snapshot.nodes.slot_of[pod.node]
        state = self._state(constraint)
        homes = {
            each: int(self._state(each).domains.counted_domain_of_slot[slot]) for each in self._spreads.counting(pod)
        }
        eligible = np.flatnonzero(state.domains.eligible)
        target = self._first(constraint, eligible, state.counts[eligible])
        for each, home in homes.items():
            self._extra[each][home] = self._extra[each].get(home, 0) - 1
        self._extra[constraint][target] = self._extra[constraint].get(target, 0) + 1
        self._cut.add(pod.key)

    def _state(self, constraint: StatedConstraint) -> SpreadState:
        """Return the constraint's current counts. Pods that are kept only because of a limit are counted as moved."""
        now = len(self._context.plan_state.actions), len(self._cut)
        known = self._states.get(constraint)
        if known is None or known[0] != now:
            state = self._spreads.state_of(constraint, self._extra.get(constraint))
            known = self._states[constraint] = (now, state)
        return known[1]

    def _first(self, constraint: StatedConstraint, domains: IntArray, counts: IntArray) -> int:
        """Return the domain with the lowest count; ties are broken by the label's value."""
        values = self._values(constraint)
        least: list[int] = domains[counts == counts.min()].tolist()
        return min(least, key=lambda domain: values[domain])

    def _values(self, constraint: StatedConstraint) -> list[str]:
        return self._snapshot.nodes.column(constraint.topology_key).values

    def _message(self, constraint: StatedConstraint, pod: Pod, target: int) -> str:
        """Return the eviction's message, with the counts of the pod's domain and the target's domain."""
        state = self._spreads.state_of(constraint)
        home, there = (
            int(state.domains.counted_domain_of_slot[slot]) for slot in (self._snapshot.nodes.slot_of[pod.node], target)
        )
        number = int(state.counts[there]) - (home == there)
        return f"{self._numbers(constraint, pod, state)}; {self._values(constraint)[there]} has {number}"

    def _numbers(self, constraint: StatedConstraint, pod: Pod, state: SpreadState) -> str:
        """Return a text with the counts of the pod's domain and the smallest domain, and ``maxSkew``."""
        values = self._values(constraint)
        home = int(state.domains.counted_domain_of_slot[self._snapshot.nodes.slot_of[pod.node]])
        count = int(state.counts[home])
        eligible = np.flatnonzero(state.domains.eligible)
        wanted = constraint.rule.constraint.min_domains
        if len(eligible) < wanted:
            base = f"0, because there are {len(eligible)} domains and minDomains is {wanted}"
        else:
            least = self._first(constraint, eligible, state.counts[eligible])
            base = f"{values[least]} with {state.smallest}"
        return (
            f"{constraint.topology_key}={values[home]} has {count} pods, {count - state.smallest} more than {base}, "
            f"where maxSkew is {constraint.max_skew}"
        )
