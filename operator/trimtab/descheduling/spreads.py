"""Topology spread constraints of many pods as few values, how far each is violated, and what a move would do to it.

What counts is the scheduler's to say (:mod:`trimtab.placement.topology_spread`): all pods that a constraint's selector
picks, whoever owns them and whether or not they may be moved, but those on their way out. A constraint is violated as
far as its domains have more than ``maxSkew`` pods above the smallest: the excess, in pods over all domains. Skew
itself, the largest domain above the smallest, would not do as a measure: where two domains are largest, no single move
lowers it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
from msgspec import Struct

from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.terms import BoundTerm
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Pod
from trimtab.kube.rules.selectors import matches_labels
from trimtab.placement.spread_domains import Domains
from trimtab.placement.topology_spread import Rule, Rules, least

_Template = tuple[str, int, Labels]
_NONE: Final[tuple[Constraint, ...]] = ()


class Constraint(Struct, frozen=True, eq=False):
    """A constraint that pods of one namespace state alike; they may be those of several ReplicaSets.

    Two are alike if they have the same selector (``matchLabelKeys`` merged), topology key, maxSkew, minDomains and
    whenUnsatisfiable, and if the same nodes count for them.

    Attributes:
        namespace: of the pods.
        rule: the constraint with its counter and its nodes, as one of the pods has them.
        hard: DoNotSchedule, else ScheduleAnyway.
        place: what constraints are sorted by: the first pod that states it by ``namespace/name``, and its place there.
    """

    namespace: str
    rule: Rule
    hard: bool
    place: tuple[str, int]

    @property
    def max_skew(self) -> int:
        """How many pods a domain may have above the smallest."""
        return self.rule.constraint.max_skew

    @property
    def topology_key(self) -> str:
        """The label whose values are the domains."""
        return self.rule.constraint.topology_key


class State(Struct, frozen=True):
    """How many pods each domain of a constraint has.

    Attributes:
        domains: which there are, and which of them nodes that count have.
        counts: int64, shape (domains + 1,), the last 0 and for nodes that do not count.
        smallest: what skew is measured from.
        above: int64, same shape; the pods of each domain beyond smallest + maxSkew.
    """

    domains: Domains
    counts: IntArray
    smallest: int
    above: IntArray

    @property
    def excess(self) -> int:
        """By how many pods the constraint is violated, 0 where it holds."""
        return int(self.above.sum())


class Outlook(Struct, frozen=True):
    """What becomes of a constraint if one pod that it counts moves.

    Attributes:
        counts: int64, shape (capacity,); the pods of the slot's domain without this one, 0 where no domain counts.
        counted: bool, same shape; whether the pod would be counted there.
        change: int64, same shape; how the excess changes if the pod runs there, compared with now.
        holds: bool, same shape; whether the domain may take the pod, by the constraint, or keeps it.
    """

    counts: IntArray
    counted: BoolArray
    change: IntArray
    holds: BoolArray

    @property
    def harmless(self) -> BoolArray:
        """Where the constraint is no worse off: a satisfied one holds, and the skew of a violated one does not rise."""
        return self.holds & (self.change <= 0)


class Spreads:
    """The constraints of the pods that a policy looks at; made for one plan, in which no pod is born.

    Args:
        snapshot: the picture.
        rules: of the snapshot.
        pods: those whose constraints are wanted; those without a node, or at their end, are passed over.
        soft: whether constraints with ScheduleAnyway are wanted, too.
    """

    def __init__(self, snapshot: Snapshot, rules: Rules, pods: Iterable[Pod], *, soft: bool) -> None:
        self._snapshot = snapshot
        self._rules = rules
        self._soft = soft
        self._stated: dict[_Template, tuple[Constraint, ...]] = {}
        self._keys: defaultdict[_Template, list[str]] = defaultdict(list)
        """The pods that were looked at, by template."""
        self._stating: defaultdict[Constraint, list[_Template]] = defaultdict(list)
        self._counting: dict[tuple[str, Labels], tuple[Constraint, ...]] = {}
        self.constraints: tuple[Constraint, ...] = self._collect(pods)
        self._by_pair: defaultdict[tuple[str, tuple[str, str] | None], list[Constraint]] = defaultdict(list)
        for each in self.constraints:
            term = BoundTerm("", each.rule.constraint.selector, frozenset((each.namespace,)))
            self._by_pair[each.namespace, term.pair].append(each)

    def stated(self, pod: Pod) -> tuple[Constraint, ...]:
        """The constraints that a pod states itself, of those that count anybody."""
        return self._stated.get(_template(pod), _NONE) if pod.spec.topology_spread else _NONE

    def counting(self, pod: Pod) -> tuple[Constraint, ...]:
        """The constraints that count a pod, whoever states them."""
        return self._counting_of(pod.namespace, pod.labels) if self.constraints else _NONE

    def _counting_of(self, namespace: str, labels: Labels) -> tuple[Constraint, ...]:
        key = (namespace, labels)
        found = self._counting.get(key)
        if found is None:
            near = (each for pair in (None, *labels.items()) for each in self._by_pair.get((namespace, pair), ()))
            picking = (each for each in near if matches_labels(each.rule.constraint.selector, labels))
            found = self._counting[key] = tuple(sorted(picking, key=_place))
        return found

    def stating(self, constraint: Constraint) -> Iterator[str]:
        """The pods that state a constraint and are counted by it, by ``namespace/name``, wherever they are now."""
        for template in self._stating[constraint]:
            namespace, _, labels = template
            if constraint in self._counting_of(namespace, labels):
                yield from self._keys[template]

    def state(self, constraint: Constraint, beside: dict[int, int] | None = None) -> State:
        """The constraint's counts as the snapshot has them.

        Args:
            constraint: one of these.
            beside: pods to be counted besides (or less, where negative), by domain.
        """
        domains, counts = self._rules.count(constraint.rule)
        for domain, number in (beside or {}).items():
            counts[domain] += number
        return _judged(constraint, domains, counts)

    def outlook(self, constraint: Constraint, pod: Pod) -> Outlook:
        """What a move of a placed pod would do, for all nodes at once; also while it is lifted off its node."""
        domains, counts = self._rules.count(constraint.rule)
        home, nowhere = int(domains.counting[self._snapshot.nodes.slot_of[pod.node]]), len(counts) - 1
        now, rest = counts, counts.copy()
        if home != nowhere and pod.deleted is None:
            if pod.key in self._snapshot.pods:
                rest[home] -= 1
            else:
                now = counts.copy()
                now[home] += 1
        excess = _judged(constraint, domains, now).excess
        without = _judged(constraint, domains, rest)
        limit = without.smallest + constraint.max_skew
        change: IntArray = (without.excess - excess) + (rest >= limit)  # nowhere rest is 0 and so below any limit
        holds: BoolArray = rest < limit
        holds[home] = True
        lowest = np.flatnonzero(domains.eligible & (rest == without.smallest))
        if len(lowest) == 1:  # with the pod there, all other domains are less far above the smallest
            more = rest.copy()
            more[lowest] += 1
            change[lowest] = _judged(constraint, domains, more).excess - excess
        where = domains.counting
        return Outlook(rest[where], where != nowhere, change[where], holds[where])

    def _collect(self, pods: Iterable[Pod]) -> tuple[Constraint, ...]:
        """Find the constraints, one for all that are alike, and name each after the first pod that states it."""
        first: dict[_Template, Pod] = {}
        for pod in pods:
            if not pod.spec.topology_spread or pod.terminal or self._snapshot.slot(pod) is None:
                continue
            template = _template(pod)
            self._keys[template].append(pod.key)
            known = first.get(template)
            if known is None or pod.name < known.name:
                first[template] = pod
        found: dict[tuple[object, ...], Constraint] = {}
        for template, pod in sorted(first.items(), key=lambda item: item[1].key):
            mine = []
            for place, (rule, hard) in enumerate(self._rules_of(pod)):
                if rule.counter is None:  # an empty selector counts nobody
                    continue
                alike = (pod.namespace, hard, rule.constraint, rule.ground)
                mine.append(found.setdefault(alike, Constraint(pod.namespace, rule, hard, (pod.key, place))))
            self._stated[template] = tuple(dict.fromkeys(mine))
            for each in self._stated[template]:
                self._stating[each].append(template)
        return tuple(sorted(found.values(), key=_place))

    def _rules_of(self, pod: Pod) -> Iterator[tuple[Rule, bool]]:
        for rule in self._rules.hard(pod):
            yield rule, True
        if self._soft:
            for rule in self._rules.soft(pod):
                yield rule, False


def _template(pod: Pod) -> _Template:
    return pod.namespace, id(pod.spec), pod.labels


def _place(constraint: Constraint) -> tuple[str, int]:
    return constraint.place


def _judged(constraint: Constraint, domains: Domains, counts: IntArray) -> State:
    eligible = domains.of_eligible(counts)
    if not len(eligible):
        return State(domains, counts, 0, np.zeros_like(counts))
    smallest = least(eligible, constraint.rule.constraint.min_domains)
    return State(domains, counts, smallest, np.maximum(counts - (smallest + constraint.max_skew), 0))
