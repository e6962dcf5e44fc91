"""Every difference between trimtab's and the real descheduler's evictions is documented in docs/compatibility.md.

``make differential-descheduler`` builds the descheduler, compares more clusters, and shrinks unexplained differences.
"""

from __future__ import annotations

import os

import pytest

from tests.conftest import MakeCluster
from tests.descheduler_differential.binary import existing_binary
from tests.descheduler_differential.descheduler import Descheduler
from tests.descheduler_differential.environment import SETTINGS, Environment
from tests.descheduler_differential.suite import compare_policies

CLUSTERS = int(os.environ.get("TRIMTAB_DESCHEDULER_CLUSTERS", "10"))
SEED = int(os.environ.get("TRIMTAB_DESCHEDULER_SEED", "1"))
SHOWN = 3


def test_every_difference_from_the_real_descheduler_is_documented(make_cluster: MakeCluster) -> None:
    """Over several random clusters and policies."""
    binary = existing_binary()
    if binary is None:
        pytest.skip("the descheduler has not been built here; make differential-descheduler builds it")
    cluster = make_cluster(SETTINGS, nodes=0)
    environment = Environment(cluster)
    try:
        tally = compare_policies(environment, Descheduler(binary, environment.kubeconfig), clusters=CLUSTERS, seed=SEED)
    finally:
        environment.close()
        cluster.down()
    assert tally.passed, "\n".join([tally.render(), *(found.render() for found in tally.unexplained[:SHOWN])])
    assert tally.both, "no pod was evicted by both, so nothing was compared"
