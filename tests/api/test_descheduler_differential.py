"""Our plans against the real descheduler's: every difference has a name in docs/compatibility.md.

``make differential-descheduler`` compares in as many clusters as wanted, builds the descheduler where it has to, and
shows the smallest cases of what has no name.
"""

from __future__ import annotations

import os

import pytest

from tests.conftest import MakeCluster
from tests.descheduler_differential.binary import at_hand
from tests.descheduler_differential.suite import examine
from tests.descheduler_differential.theirs import Descheduler
from tests.descheduler_differential.world import SETTINGS, World

CLUSTERS = int(os.environ.get("TRIMTAB_DESCHEDULER_CLUSTERS", "10"))
SEED = int(os.environ.get("TRIMTAB_DESCHEDULER_SEED", "1"))
SHOWN = 3


def test_every_difference_from_the_real_descheduler_has_a_name(make_cluster: MakeCluster) -> None:
    """Over several random clusters and policies."""
    binary = at_hand()
    if binary is None:
        pytest.skip("the descheduler has not been built here; make differential-descheduler builds it")
    cluster = make_cluster(SETTINGS, nodes=0)
    world = World(cluster)
    try:
        tally = examine(world, Descheduler(binary, world.kubeconfig), clusters=CLUSTERS, seed=SEED)
    finally:
        world.close()
        cluster.down()
    assert tally.passed, "\n".join([tally.told(), *(found.told() for found in tally.unexplained[:SHOWN])])
    assert tally.both, "neither evicts anything: nothing was compared"
