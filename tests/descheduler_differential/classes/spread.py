"""RemovePodsViolatingTopologySpreadConstraint: the pods per domain, before and after the plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tests.descheduler_differential.case import Case, Difference
from tests.descheduler_differential.classes.difference_class import DifferenceClass
from tests.descheduler_differential.classes.evictable import evictable
from tests.descheduler_differential.classes.nodefit import fits
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.planning.spread_balancer import SpreadConstraintIndex, StatedConstraint
from trimtab.kube.objects import Pod
from trimtab.kube.rules.selectors import matches_labels
from trimtab.placement.placer import Placer
from trimtab.placement.topology_spread import SpreadRules

NAME: Final = "RemovePodsViolatingTopologySpreadConstraint"


@dataclass(frozen=True)
class Group:
    """The pods that a constraint matches, as seen from one pod.

    Attributes:
        constraint: the constraint.
        pods: the matching pods, ``namespace/name``, by domain.
        home: the pod's domain.
        size: the number of matching pods in that domain; 0 if the pod's node is not eligible.
        counts: the numbers of matching pods in all eligible domains.
        smallest: the global minimum, from which the skew is calculated.
    """

    constraint: StatedConstraint
    pods: dict[int, frozenset[str]]
    home: int
    size: int
    counts: tuple[int, ...]
    smallest: int

    @property
    def there(self) -> frozenset[str]:
        """The matching pods in the pod's domain."""
        return self.pods.get(self.home, frozenset())

    @property
    def above(self) -> int:
        """The number of pods above maxSkew in the domain."""
        return max(0, self.size - self.smallest - self.constraint.max_skew)


def _allowed(case: Case) -> list[str]:
    return list(case.args(NAME).get("constraints", ["DoNotSchedule"]))


def _spreads(case: Case, snapshot: Snapshot) -> SpreadConstraintIndex:
    scope = case.scope(NAME)
    stating = [pod for pod in snapshot.pods.values() if pod.deleted is None and scope.covers(pod)]
    return SpreadConstraintIndex(snapshot, SpreadRules(snapshot), stating, soft=True)


def groups(case: Case, name: str, *, stated: bool) -> list[Group]:
    """The constraints of the policy's kinds that match a pod, in the unchanged cluster.

    Args:
        case: the cluster and the policy.
        name: the pod, ``namespace/name``.
        stated: only constraints in the pod's own spec.
    """
    with case.state(after=False) as snapshot:
        spreads, pod = _spreads(case, snapshot), case.pod(name)
        chosen = [each for each in spreads.counting(pod) if not stated or each in spreads.stated_by(pod)]
        wanted = ["DoNotSchedule" if each.hard else "ScheduleAnyway" for each in chosen]
        return [
            _group(snapshot, spreads, each, pod)
            for each, when in zip(chosen, wanted, strict=True)
            if when in _allowed(case)
        ]


def _group(snapshot: Snapshot, spreads: SpreadConstraintIndex, constraint: StatedConstraint, pod: Pod) -> Group:
    state = spreads.state_of(constraint)
    where = state.domains.counted_domain_of_slot
    pods: defaultdict[int, set[str]] = defaultdict(set)
    for slot in snapshot.nodes.slot_of.values():
        pods[int(where[slot])]  # adds domains without pods, too
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
    """For some constraint that matches the pod, the other side evicts at least as many pods from its domain."""
    descheduler = [each.pod for each in case.evicted_by_descheduler(NAME)]
    trimtab = [each.key for each in case.evicted_by_trimtab(NAME)]
    keeping, evicting = (trimtab, descheduler) if difference.side == "descheduler" else (descheduler, trimtab)
    found = groups(case, difference.pod, stated=False)
    return any(_evicted(keeping, group) >= _evicted(evicting, group) > 0 for group in found)


def _states_none(case: Case, difference: Difference) -> bool:
    """The violated constraints that match the pod are not in the pod's own spec."""
    stated = groups(case, difference.pod, stated=True)
    return not any(group.above for group in stated) and bool(groups(case, difference.pod, stated=False))


def _seen(case: Case, names: Iterable[str]) -> list[str]:
    """The pods that the descheduler counts: evictable, in scope, on ready nodes."""
    scope, visible = case.scope(NAME), set(case.visible)
    pods = [case.pod(name) for name in names]
    return [pod.key for pod in pods if pod.node in visible and scope.covers(pod) and evictable(case, pod.key)]


def _uncounted(case: Case, difference: Difference) -> bool:
    """The descheduler ignores a pod that one of the pod's constraints matches."""
    for group in groups(case, difference.pod, stated=True):
        counted = [name for names in group.pods.values() for name in names]
        if len(_seen(case, counted)) < len(counted):
            return True
    return False


def _small_by_upstream_count(case: Case, difference: Difference) -> bool:
    """With only the pods that the descheduler counts, the domain exceeds no constraint of the pod."""
    if not _uncounted(case, difference):
        return False
    for group in groups(case, difference.pod, stated=True):
        sizes = {domain: len(_seen(case, names)) for domain, names in group.pods.items()}
        deleted = sum(each.pod in group.there for each in case.evicted_by_descheduler(NAME))
        if sizes[group.home] - deleted > min(sizes.values()) + group.constraint.max_skew:
            return False
    return True


def _all_count_of_descheduler(case: Case, difference: Difference) -> bool:
    """The descheduler ignores some pods; with all pods, no further move of the pod reduces a violation."""
    return _uncounted(case, difference) and not case.improving_nodes(difference)


def _combined_of_descheduler(case: Case, difference: Difference) -> bool:
    """Several constraints, or one with minDomains, match the pod, and each further move worsens one of them."""
    found = groups(case, difference.pod, stated=False)
    several = len(found) > 1 or any(group.constraint.rule.constraint.min_domains for group in found)
    return several and all(_worsens(case, difference.pod, node) for node in case.improving_nodes(difference))


def _worsens(case: Case, name: str, node: str) -> bool:
    """Whether, after the plan, moving the pod to the node increases the excess of some constraint."""
    with case.state(after=True) as snapshot:
        before = _excesses(case, snapshot)
        placer = Placer(snapshot)
        placer.reserve(placer.unbind(snapshot.pods[name]), snapshot.nodes.slot_of[node])
        then = _excesses(case, snapshot)
    return any(then[place] > excess for place, excess in before.items())


def _excesses(case: Case, snapshot: Snapshot) -> dict[tuple[str, int], int]:
    """The number of pods above maxSkew by constraint."""
    spreads = _spreads(case, snapshot)
    return {each.place: spreads.state_of(each).excess for each in spreads.constraints}


def _repaired(case: Case, difference: Difference) -> bool:
    """A constraint of the pod is violated before trimtab's plan and not after it."""
    return bool(case.lowers_measure(difference, after=False)) and not case.lowers_measure(difference, after=True)


def _combined_of_trimtab(case: Case, difference: Difference) -> bool:
    """Several constraints, or one with minDomains, match the pod, and one of them is violated."""
    if not case.lowers_measure(difference, after=False):
        return False
    found = groups(case, difference.pod, stated=False)
    return len(found) > 1 or any(group.constraint.rule.constraint.min_domains > 1 for group in found)


def _left_violated(case: Case, difference: Difference) -> bool:
    """Even with the best placement of the descheduler's evictions, a constraint of the pod remains violated."""
    descheduler = [each.pod for each in case.evicted_by_descheduler(NAME)]
    for group in groups(case, difference.pod, stated=True):
        left = group.size - _evicted(descheduler, group)
        others = sorted(group.counts)
        for _ in descheduler:  # each goes to the smallest domain
            others[0] += 1
            others.sort()
        smallest = max(group.smallest, others[0]) if others else 0
        if left > smallest + group.constraint.max_skew:
            return True
    return False


def _no_fit(case: Case, difference: Difference) -> bool:
    """The descheduler's nodeFit finds no node; kube-scheduler's filters find one."""
    balance = case.args(NAME).get("topologyBalanceNodeFit", True)
    return (balance or case.node_fit) and not fits(case, difference.pod)


_ONLY: Final = frozenset({NAME})
SPREAD: Final = (
    DifferenceClass("StatingPodsOnly", "descheduler", _states_none, _ONLY),
    DifferenceClass("VictimOrder", "descheduler", _others, _ONLY),
    DifferenceClass("VictimOrder", "trimtab", _others, _ONLY),
    DifferenceClass("AllPodsCounted", "descheduler", _all_count_of_descheduler, _ONLY),
    DifferenceClass("CombinedConstraints", "descheduler", _combined_of_descheduler, _ONLY),
    DifferenceClass("FewestEvictions", "descheduler", _repaired, _ONLY),
    DifferenceClass("AllPodsCounted", "trimtab", _small_by_upstream_count, _ONLY),
    DifferenceClass("CombinedConstraints", "trimtab", _combined_of_trimtab, _ONLY),
    DifferenceClass("AllDomains", "trimtab", _left_violated, _ONLY),
    DifferenceClass("CapacityReserved", "trimtab", _no_fit, _ONLY),
)
