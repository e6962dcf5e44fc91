"""Our placement against the real kube-scheduler's: the same verdicts, in the same words, and choices foretold.

``make differential N=5000`` asks about as many pods as wanted, and shows the smallest cases of what differs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.conftest import MakeCluster
from tests.differential.report import SHARE
from tests.differential.scheduler import settings
from tests.differential.suite import examine
from tests.differential.world import World

PODS = int(os.environ.get("TRIMTAB_DIFFERENTIAL_PODS", "400"))
SEED = int(os.environ.get("TRIMTAB_DIFFERENTIAL_SEED", "1"))
PER_CLUSTER = 40
SHOWN = 5


@pytest.fixture(scope="module")
def world(make_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    cluster = make_cluster(settings(tmp_path_factory.mktemp("scheduler")), nodes=0)
    world = World(cluster)
    yield world
    world.close()
    cluster.down()


def test_random_pods_may_run_where_kube_scheduler_lets_them_and_go_where_it_puts_them(world: World) -> None:
    """Feasibility, reasons word by word, and nearly always the choice, over several random clusters."""
    tally = examine(world, pods=PODS, seed=SEED, per_cluster=PER_CLUSTER)
    wrong = tally.of("feasibility", "reasons")
    assert not wrong, "\n".join([tally.told(), *(found.told() for found in wrong[:SHOWN])])
    missed = tally.of("choice")
    assert tally.share >= SHARE, "\n".join([tally.told(), *(found.told() for found in missed[:SHOWN])])
