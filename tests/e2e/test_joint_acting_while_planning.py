"""A policy acts while the autoscaler plans every second: every eviction succeeds, and nothing is logged of the waiting.

With 1,000 nodes and 28,800 pods, 574 of 600 evictions failed when a validation could not wait for the snapshot.
TRIMTAB_E2E_NODES sets another number of nodes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fixtures.audit import Audit, broken_budgets, require_none
from tests.fixtures.autoscaling import machine_settings
from tests.fixtures.clusters import MACHINES_AND_AUDIT, require_local_cluster
from tests.fixtures.joint import JointCluster, joint_cluster
from trimtab_local.cluster import LocalCluster

CORES = 3000
"""Thousandths of a core that are allocatable on a node of 3500m."""
LEVELS = {"nodeResourceUtilizationThresholds": {"thresholds": {"cpu": 40}, "targetThresholds": {"cpu": 60}}}
EVERY = 1.0
"""Seconds between two of the autoscaler's iterations."""


@dataclass(frozen=True)
class Scale:
    """A cluster of some nodes: the first 30 percent of them are 90 percent full, the others 30 percent."""

    nodes: int

    @property
    def for_load(self) -> bool:
        """Whether the control plane is set up for load."""
        return self.nodes >= 500

    @property
    def patience(self) -> float:
        """Seconds; a thousand nodes on two cores need minutes."""
        return 60.0 + self.nodes * 1.2

    @property
    def fit(self) -> int:
        """Pods that fill a node."""
        return 60 if self.for_load else 20

    @property
    def busy(self) -> int:
        return self.nodes * 30 // 100

    @property
    def owners(self) -> int:
        """Deployments on the busy nodes: one pod of an owner is evicted at a time."""
        return 100 if self.for_load else 20

    @property
    def evictions(self) -> int:
        return self.nodes * 6 // 10

    @property
    def waiting(self) -> int:
        """Pods that no node can take, nor any node that could be added."""
        return self.nodes * 4 // 10


SCALES = [pytest.param(Scale(60), marks=pytest.mark.core, id="60"), pytest.param(Scale(1_000), id="1000")]
if "TRIMTAB_E2E_NODES" in os.environ:
    SCALES = [pytest.param(Scale(int(os.environ["TRIMTAB_E2E_NODES"])), id="given")]


@pytest.fixture(params=SCALES)
def scale(request: pytest.FixtureRequest) -> Scale:
    found: Scale = request.param
    return found


@pytest.fixture
def joint(request: pytest.FixtureRequest, tmp_path: Path, scale: Scale) -> Iterator[JointCluster]:
    require_local_cluster(request, MACHINES_AND_AUDIT)
    audit = Audit(tmp_path)
    settings = machine_settings(audit, for_load=scale.for_load)
    cluster: LocalCluster = request.getfixturevalue("make_cluster")(settings, nodes=0)
    try:
        with joint_cluster(cluster, audit, tmp_path) as joint:
            yield joint
    finally:
        cluster.down()


def fill(joint: JointCluster, scale: Scale, prefix: str, nodes: list[str], percent: int, owners: int) -> None:
    """Fill nodes with pods of several owners, while all other nodes are cordoned."""
    closed = set(joint.all_nodes()) - set(nodes)
    for node in closed:
        joint.cordon(node)
    work = {"cpu": f"{CORES // scale.fit}m", "memory": "16Mi"}
    before, pods = joint.where().total(), len(nodes) * (scale.fit * percent // 100)
    for number in range(owners):
        joint.deploy(f"{prefix}-{number}", pods * (number + 1) // owners - pods * number // owners, **work)
    joint.until(lambda: joint.where().total() == before + pods, f"{pods} pods run", seconds=scale.patience)
    for node in closed:
        joint.cordon(node, on=False)


def test_all_evictions_succeed_while_the_autoscaler_plans(joint: JointCluster, scale: Scale) -> None:
    size = scale.nodes
    joint.group("workers", replicas=size, minimum=size, maximum=2 * size, cpu="3500m", memory="16Gi")
    names = sorted(joint.nodes("workers"))
    fill(joint, scale, "busy", names[: scale.busy], 90, scale.owners)
    fill(joint, scale, "calm", names[scale.busy :], 30, 5)
    joint.autoscale(scaleDown={"enabled": False})
    operator = joint.operate()
    for number in range(4):
        joint.deploy(f"huge-{number}", scale.waiting // 4, cpu=str(64 + number))
    joint.until(lambda: joint.iterations() >= 2, "the autoscaler plans", seconds=scale.patience)
    passes = joint.iterations()

    joint.write_policy(
        "balance",
        interval="1h",
        limits={"perCycle": scale.evictions, "perMinute": 600},
        strategies={"LowNodeUtilization": {"enabled": True, "params": LEVELS}},
    )

    started, changes = time.monotonic(), 0
    while not (run := joint.policy_status("balance").get("lastRun", {})).get("completed"):
        assert time.monotonic() - started < scale.patience + 300, joint.policy_status("balance")
        changes += 1
        joint.change(logVerbosity=changes)  # a reason to plan at once, and without any other effect
        time.sleep(EVERY)
    seconds = time.monotonic() - started
    iterations = joint.iterations() - passes
    print(f"{run} in {seconds:.1f} s, {iterations:.0f} iterations of the autoscaler meanwhile")
    assert (run["planned"], run["evicted"]) == (scale.evictions, scale.evictions)
    assert run.get("refused", 0) == run.get("started", 0) == 0
    assert iterations >= max(1, seconds / EVERY / 8)
    assert len(joint.evictions()) == scale.evictions
    assert len(joint.audit.ours("pods/eviction")) == scale.evictions, "each was asked for once"
    assert not joint.events("EvictionFailed")
    require_none(broken_budgets(joint.audit, joint.pods_namespace))
    log = operator.log.read_text()
    assert "Traceback" not in log
    assert "failed, trying again" not in log, "reconnects of watches are nothing to report"
