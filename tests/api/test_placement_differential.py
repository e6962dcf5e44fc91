"""trimtab's placement equals the real kube-scheduler's: the same feasible nodes, messages and choices.

``make differential N=5000`` compares more pods, and shrinks the disagreements; ``make differential-drains`` carries out
the node removals of more clusters.
"""

from __future__ import annotations

import os

import pytest

from tests.differential.drains import drain_clusters
from tests.differential.environment import running_environment
from tests.differential.profiles import DEFAULT, PROFILES
from tests.differential.report import MIN_TOP_SHARE, Tally
from tests.differential.suite import compare_pods

pytestmark = pytest.mark.live

PODS = int(os.environ.get("TRIMTAB_DIFFERENTIAL_PODS", "400"))
MANY = int(os.environ.get("TRIMTAB_DIFFERENTIAL_PODS", "2000"))
PER_PROFILE = int(os.environ.get("TRIMTAB_DIFFERENTIAL_PODS", "300"))
DRAINS = int(os.environ.get("TRIMTAB_DIFFERENTIAL_CLUSTERS", "30"))
SEED = int(os.environ.get("TRIMTAB_DIFFERENTIAL_SEED", "1"))
PER_CLUSTER = 40
SHOWN = 5


def compared(profile: str, *, pods: int, seed: int) -> Tally:
    with running_environment(profile) as environment:
        return compare_pods(environment, pods=pods, seed=seed, per_cluster=PER_CLUSTER)


def check(tally: Tally, *, scores: bool = False) -> None:
    """Assert equal feasibility and reasons, and equal choices at least as often as :data:`MIN_TOP_SHARE`."""
    print(tally.render())
    wrong = tally.of_kinds("feasibility", "reasons", *(("scores",) if scores else ()))
    assert not wrong, "\n".join([tally.render(), *(found.render() for found in wrong[:SHOWN])])
    missed = tally.of_kinds("choice")
    assert tally.top_share >= MIN_TOP_SHARE, "\n".join([tally.render(), *(found.render() for found in missed[:SHOWN])])


def test_placement_of_random_pods_equals_kube_schedulers() -> None:
    check(compared(DEFAULT, pods=PODS, seed=SEED))


@pytest.mark.live
def test_2000_random_pods_of_the_default_profile() -> None:
    check(compared(DEFAULT, pods=MANY, seed=SEED + 10_000))


@pytest.mark.live
@pytest.mark.parametrize("profile", [name for name in PROFILES if name != DEFAULT])
def test_converted_profile_places_as_kube_scheduler_does(profile: str) -> None:
    check(compared(profile, pods=PER_PROFILE, seed=SEED + 20_000), scores=True)


def test_every_replacement_of_a_pod_on_a_removed_node_gets_a_node() -> None:
    with running_environment() as environment:
        tally = drain_clusters(environment, clusters=DRAINS, seed=SEED)
    print(tally.render())
    assert not tally.stranded, tally.render()
    assert tally.moved > tally.removed >= DRAINS, tally.render()
