"""A policy acts while the autoscaler plans every second: every eviction succeeds, and nothing is logged of the waiting.

On 100 nodes, or as many as TRIMTAB_E2E_NODES says: with 1,000 nodes and 28,800 pods, 574 of 600 evictions failed when
a validation could not wait for the snapshot.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.audit import Audit, broken_budgets, require_none
from tests.fixtures.autoscaling import machine_settings
from tests.fixtures.clusters import MACHINES_AND_AUDIT, require_local_cluster
from tests.fixtures.joint import JointCluster, joint_cluster
from trimtab_local.cluster import LocalCluster

SIZE = int(os.environ.get("TRIMTAB_E2E_NODES", "100"))
LOAD = 500
"""From so many nodes on the control plane is set up for load."""
PATIENCE = 60.0 + SIZE * 1.2
"""Seconds; a thousand nodes on two cores need minutes."""
FIT = 60 if SIZE >= LOAD else 20
"""Pods that fill a node."""
CORES = 3000
"""Thousandths of a core that are allocatable on a node of 3500m."""
WORK = {"cpu": f"{CORES // FIT}m", "memory": "16Mi"}
BUSY = SIZE * 30 // 100
"""Nodes that are 90 percent full; the others are 30 percent full."""
LEVELS = {"nodeResourceUtilizationThresholds": {"thresholds": {"cpu": 40}, "targetThresholds": {"cpu": 60}}}
OWNERS = 20 if SIZE < LOAD else 100
"""Deployments on the busy nodes: one pod of an owner is evicted at a time."""
EVICTIONS = SIZE * 6 // 10
WAITING = SIZE * 4 // 10
"""Pods that no node can take, nor any node that could be added."""
EVERY = 1.0
"""Seconds between two of the autoscaler's iterations."""


@pytest.fixture
def joint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JointCluster]:
    require_local_cluster(request, MACHINES_AND_AUDIT)
    audit = Audit(tmp_path)
    settings = machine_settings(audit, for_load=SIZE >= LOAD)
    cluster: LocalCluster = request.getfixturevalue("make_cluster")(settings, nodes=0)
    try:
        with joint_cluster(cluster, audit, tmp_path) as joint:
            yield joint
    finally:
        cluster.down()


def fill(joint: JointCluster, prefix: str, nodes: list[str], each: int, owners: int) -> None:
    """Create a number of pods per node, of several owners, while all other nodes are cordoned."""
    closed = set(joint.all_nodes()) - set(nodes)
    for node in closed:
        joint.cordon(node)
    before, pods = joint.where().total(), len(nodes) * each
    for number in range(owners):
        joint.deploy(f"{prefix}-{number}", pods * (number + 1) // owners - pods * number // owners, **WORK)
    joint.until(lambda: joint.where().total() == before + pods, f"{pods} pods run", seconds=PATIENCE)
    for node in closed:
        joint.cordon(node, on=False)


def test_all_evictions_succeed_while_the_autoscaler_plans(joint: JointCluster) -> None:
    joint.group("workers", replicas=SIZE, minimum=SIZE, maximum=2 * SIZE, cpu="3500m", memory="16Gi")
    names = sorted(joint.nodes("workers"))
    fill(joint, "busy", names[:BUSY], FIT * 90 // 100, OWNERS)
    fill(joint, "calm", names[BUSY:], FIT * 30 // 100, 5)
    joint.autoscale(scaleDown={"enabled": False})
    operator = joint.operate()
    for number in range(4):
        joint.deploy(f"huge-{number}", WAITING // 4, cpu=str(64 + number))
    joint.until(lambda: joint.iterations() >= 2, "the autoscaler plans", seconds=PATIENCE)
    passes = joint.iterations()

    joint.write_policy(
        "balance",
        interval="1h",
        limits={"perCycle": EVICTIONS, "perMinute": 600},
        strategies={"LowNodeUtilization": {"enabled": True, "params": LEVELS}},
    )

    started, changes = time.monotonic(), 0
    while not (run := joint.policy_status("balance").get("lastRun", {})).get("completed"):
        assert time.monotonic() - started < PATIENCE + 300, joint.policy_status("balance")
        changes += 1
        joint.change(logVerbosity=changes)  # a reason to plan at once, and without any other effect
        time.sleep(EVERY)
    seconds = time.monotonic() - started
    iterations = joint.iterations() - passes
    print(f"{run} in {seconds:.1f} s, {iterations:.0f} iterations of the autoscaler meanwhile")
    assert (run["planned"], run["evicted"]) == (EVICTIONS, EVICTIONS)
    assert run.get("refused", 0) == run.get("started", 0) == 0
    assert iterations >= seconds / EVERY / 4
    assert len(joint.evictions()) == EVICTIONS
    assert len(joint.audit.ours("pods/eviction")) == EVICTIONS, "each was asked for once"
    assert not joint.events("EvictionFailed")
    require_none(broken_budgets(joint.audit, joint.pods_namespace))
    log = operator.log.read_text()
    assert "Traceback" not in log
    assert "failed, trying again" not in log, "reconnects of watches are nothing to report"
