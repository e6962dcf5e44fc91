"""Compares both sides with random policies in random clusters, and classifies every difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tests.descheduler_differential.case import Case, Difference
from tests.descheduler_differential.classes.table import class_of
from tests.descheduler_differential.descheduler import INTERVAL, Descheduler
from tests.descheduler_differential.environment import Environment
from tests.descheduler_differential.generator.cluster import RandomCluster
from tests.descheduler_differential.generator.policies import random_plugins, random_policy
from tests.descheduler_differential.report import Tally, Unexplained, trimtab_decision
from tests.descheduler_differential.trimtab_plan import plan_with_trimtab
from tests.differential.api_client import Manifest
from tests.differential.generator.rng import RandomSource

POLICIES: Final = 4
"""Policies compared in each cluster."""

_POLICY_SEED_OFFSET: Final = 1_000_003
_SLOW_INTERVAL: Final = 2.0
"""Seconds between cycles of a repeated comparison, so that the descheduler's cache is complete on a slow machine."""


def policies_of(seed: int, number: int) -> list[Manifest]:
    """Generate the policies for the cluster of a seed."""
    rng = RandomSource(seed + _POLICY_SEED_OFFSET)
    return [random_policy(rng.fork(), random_plugins(rng.fork())) for _ in range(number)]


class ClusterComparison:
    """Compares policies in one cluster, which does not change.

    Args:
        environment: the control plane into which the cluster is loaded.
        descheduler: the real descheduler.
        objects: the manifests of the cluster.
    """

    def __init__(self, environment: Environment, descheduler: Descheduler, objects: Sequence[Manifest]) -> None:
        self._descheduler = descheduler
        self._objects = list(objects)
        self._snapshot, self._now = environment.load(self._objects)
        self._pods = dict(self._snapshot.pods)

    def compare(self, policy: Manifest, *, interval: float = INTERVAL) -> Case:
        """Plan with both sides."""
        current = {pod.key: pod for pod in self._snapshot.pods.values()}
        assert current == self._pods, f"planning changed the snapshot: {sorted(current.keys() ^ self._pods.keys())}"
        own = plan_with_trimtab(self._snapshot, self._now, policy)
        evictions = {each.pod: each for each in self._descheduler.evictions(policy, interval=interval)}
        return Case(self._objects, policy, own, evictions)

    def compare_reliably(self, policy: Manifest) -> tuple[Case, list[tuple[Difference, str | None]]]:
        """Plan with both sides and classify each difference; repeat slowly if one is unexplained."""
        case = self.compare(policy)
        found = _names(case)
        if any(name is None for _, name in found):
            case = self.compare(policy, interval=_SLOW_INTERVAL)
            found = _names(case)
        return case, found


def _names(case: Case) -> list[tuple[Difference, str | None]]:
    return [(difference, class_of(case, difference)) for difference in case.differences]


def compare_policies(
    environment: Environment,
    descheduler: Descheduler,
    *,
    clusters: int,
    seed: int,
    policies: int = POLICIES,
    report_progress: Callable[[Tally], None] = lambda _tally: None,
) -> Tally:
    """Compare both sides in random clusters of consecutive seeds.

    Args:
        environment: the control plane; its objects are deleted.
        descheduler: the real descheduler.
        clusters: the number of clusters.
        seed: the seed of the first cluster.
        policies: the number of policies in each cluster.
        report_progress: called with the totals after each cluster.

    Returns:
        The totals.
    """
    tally = Tally()
    for number in range(seed, seed + clusters):
        objects = RandomCluster(number).objects
        comparison = ClusterComparison(environment, descheduler, objects)
        tally.clusters += 1
        for policy in policies_of(number, policies):
            case, found = comparison.compare_reliably(policy)
            _count(tally, case, found)
            for difference, name in found:
                if name is None:
                    decision = trimtab_decision(case, difference)
                    tally.unexplained.append(Unexplained(number, objects, policy, difference, decision))
        report_progress(tally)
    return tally


def _count(tally: Tally, case: Case, found: list[tuple[Difference, str | None]]) -> None:
    both = set(case.descheduler) & set(case.trimtab.moves)
    tally.policies += 1
    tally.alike += not found
    tally.both += len(both)
    tally.strategies.update(case.descheduler[name].strategy for name in both)
    tally.named.update((name, difference.side) for difference, name in found if name is not None)
