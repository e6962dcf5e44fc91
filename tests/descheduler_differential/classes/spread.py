"""RemovePodsViolatingTopologySpreadConstraint: what is counted in which domain, before and after."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tests.descheduler_differential.classes.evictable import evictable
from tests.descheduler_differential.classes.naming import Named
from tests.descheduler_differential.classes.nodefit import fits
from tests.descheduler_differential.facts import Case, Difference
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.spreads import Constraint, Spreads
from trimtab.kube.objects import Pod
from trimtab.kube.rules.selectors import matches_labels
from trimtab.placement.placer import Placer
from trimtab.placement.topology_spread import Rules

NAME: Final = "RemovePodsViolatingTopologySpreadConstraint"


@dataclass(frozen=True)
class Group:
    """The pods that one constraint counts in the domain of one pod.

    Attributes:
        constraint: which.
        pods: by domain.
        home: the pod's domain.
        size: how many it counts there; none on a node that does not count for it.
        counts: of all eligible domains.
        smallest: what skew is counted from.
    """

    constraint: Constraint
    pods: dict[int, frozenset[str]]
    home: int
    size: int
    counts: tuple[int, ...]
    smallest: int

    @property
    def there(self) -> frozenset[str]:
        """The pods in the same domain."""
        return self.pods.get(self.home, frozenset())

    @property
    def above(self) -> int:
        """By how many pods the domain is too large."""
        return max(0, self.size - self.smallest - self.constraint.max_skew)


def _allowed(case: Case) -> list[str]:
    return list(case.args(NAME).get("constraints", ["DoNotSchedule"]))


def _spreads(case: Case, snapshot: Snapshot) -> Spreads:
    scope = case.scope(NAME)
    stating = [pod for pod in snapshot.pods.values() if pod.deleted is None and scope.covers(pod)]
    return Spreads(snapshot, Rules(snapshot), stating, soft=True)


def groups(case: Case, name: str, *, stated: bool) -> list[Group]:
    """The constraints that count a pod, each with the pod's domain, in the cluster as it is.

    Args:
        case: where.
        name: of the pod.
        stated: only those that the pod states itself; of the kinds that the policy looks at.
    """
    with case.state(after=False) as snapshot:
        spreads, pod = _spreads(case, snapshot), case.pod(name)
        chosen = [each for each in spreads.counting(pod) if not stated or each in spreads.stated(pod)]
        wanted = ["DoNotSchedule" if each.hard else "ScheduleAnyway" for each in chosen]
        return [
            _group(snapshot, spreads, each, pod)
            for each, when in zip(chosen, wanted, strict=True)
            if when in _allowed(case)
        ]


def _group(snapshot: Snapshot, spreads: Spreads, constraint: Constraint, pod: Pod) -> Group:
    state = spreads.state(constraint)
    where = state.domains.counting
    pods: defaultdict[int, set[str]] = defaultdict(set)
    for slot in snapshot.nodes.slot_of.values():
        pods[int(where[slot])]  # also those without pods
    for other in snapshot.pods.values():
        there = snapshot.slot(other)
        if other.namespace != constraint.namespace or other.terminal or other.deleted is not None or there is None:
            continue
        if matches_labels(constraint.rule.constraint.selector, other.labels):
            pods[int(where[there])].add(other.key)
    eligible = tuple(int(number) for number in state.domains.of_eligible(state.counts))
    found = {domain: frozenset(names) for domain, names in pods.items()}
    home = int(where[snapshot.nodes.slot_of[pod.node]])
    return Group(constraint, found, home, int(state.counts[home]), eligible, state.smallest)


def _evicted(names: Iterable[str], group: Group) -> int:
    return sum(name in group.there for name in names)


def _others(case: Case, difference: Difference) -> bool:
    """Of some constraint that counts it, the other side lets as many or more go from its domain, but others."""
    theirs = [each.pod for each in case.evicted_by_them(NAME)]
    ours = [each.key for each in case.evicted_by_us(NAME)]
    keeping, evicting = (ours, theirs) if difference.side == "theirs" else (theirs, ours)
    found = groups(case, difference.pod, stated=False)
    return any(_evicted(keeping, group) >= _evicted(evicting, group) > 0 for group in found)


def _states_none(case: Case, difference: Difference) -> bool:
    """It states none of the constraints that count it."""
    stated = groups(case, difference.pod, stated=True)
    return not any(group.above for group in stated) and bool(groups(case, difference.pod, stated=False))


def _seen(case: Case, names: Iterable[str]) -> list[str]:
    """Those of the pods that they count: evictable, in scope, on nodes that are ready."""
    scope, visible = case.scope(NAME), set(case.visible)
    pods = [case.pod(name) for name in names]
    return [pod.key for pod in pods if pod.node in visible and scope.covers(pod) and evictable(case, pod.key)]


def _uncounted(case: Case, difference: Difference) -> bool:
    """Some pod that a constraint of it counts is none to them: protected, out of scope, on a node that is not ready."""
    for group in groups(case, difference.pod, stated=True):
        counted = [name for names in group.pods.values() for name in names]
        if len(_seen(case, counted)) < len(counted):
            return True
    return False


def _small_by_their_count(case: Case, difference: Difference) -> bool:
    """By the pods that they count, and they do not count all, the domain is not too large for any constraint of it."""
    if not _uncounted(case, difference):
        return False
    for group in groups(case, difference.pod, stated=True):
        sizes = {domain: len(_seen(case, names)) for domain, names in group.pods.items()}
        gone = sum(each.pod in group.there for each in case.evicted_by_them(NAME))
        if sizes[group.home] - gone > min(sizes.values()) + group.constraint.max_skew:
            return False
    return True


def _all_count_theirs(case: Case, difference: Difference) -> bool:
    """They count a part only; by all, no further move of the pod would mend anything."""
    return _uncounted(case, difference) and not case.betters(difference)


def _together_theirs(case: Case, difference: Difference) -> bool:
    """Several constraints, or one with minDomains, count it; each further move of it would make one of them worse."""
    found = groups(case, difference.pod, stated=False)
    several = len(found) > 1 or any(group.constraint.rule.constraint.min_domains for group in found)
    return several and all(_worsens(case, difference.pod, node) for node in case.betters(difference))


def _worsens(case: Case, name: str, node: str) -> bool:
    """Whether, after our plan, some constraint is violated by more pods once the pod is on the node."""
    with case.state(after=True) as snapshot:
        before = _excesses(case, snapshot)
        placer = Placer(snapshot)
        placer.reserve(placer.lift(snapshot.pods[name]), snapshot.nodes.slot_of[node])
        then = _excesses(case, snapshot)
    return any(then[place] > excess for place, excess in before.items())


def _excesses(case: Case, snapshot: Snapshot) -> dict[tuple[str, int], int]:
    """By how many pods each constraint is violated, by the first pod that states it."""
    spreads = _spreads(case, snapshot)
    return {each.place: spreads.state(each).excess for each in spreads.constraints}


def _repaired(case: Case, difference: Difference) -> bool:
    """A constraint of it is violated, and after our plan no more."""
    return bool(case.matters(difference, after=False)) and not case.matters(difference, after=True)


def _together_ours(case: Case, difference: Difference) -> bool:
    """A constraint that counts it is violated, of several, or one with minDomains."""
    if not case.matters(difference, after=False):
        return False
    found = groups(case, difference.pod, stated=False)
    return len(found) > 1 or any(group.constraint.rule.constraint.min_domains > 1 for group in found)


def _left_violated(case: Case, difference: Difference) -> bool:
    """Even if all that they evict landed best, a domain of the pod would still be too large for its constraint."""
    theirs = [each.pod for each in case.evicted_by_them(NAME)]
    for group in groups(case, difference.pod, stated=True):
        left = group.size - _evicted(theirs, group)
        others = sorted(group.counts)
        for _ in theirs:  # each fills up the smallest
            others[0] += 1
            others.sort()
        smallest = max(group.smallest, others[0]) if others else 0
        if left > smallest + group.constraint.max_skew:
            return True
    return False


def _no_fit(case: Case, difference: Difference) -> bool:
    """Their nodeFit, asked of nodes in small domains only, finds none; the scheduler's rules find one."""
    balance = case.args(NAME).get("topologyBalanceNodeFit", True)
    return (balance or case.node_fit) and not fits(case, difference.pod)


_ONLY: Final = frozenset({NAME})
SPREAD: Final = (
    Named("OnlyWhoStatesIt", "theirs", _states_none, _ONLY),
    Named("OrderOfVictims", "theirs", _others, _ONLY),
    Named("OrderOfVictims", "ours", _others, _ONLY),
    Named("AllPodsCount", "theirs", _all_count_theirs, _ONLY),
    Named("ConstraintsTogether", "theirs", _together_theirs, _ONLY),
    Named("FewerSuffice", "theirs", _repaired, _ONLY),
    Named("AllPodsCount", "ours", _small_by_their_count, _ONLY),
    Named("ConstraintsTogether", "ours", _together_ours, _ONLY),
    Named("EveryDomain", "ours", _left_violated, _ONLY),
    Named("PlaceReserved", "ours", _no_fit, _ONLY),
)
