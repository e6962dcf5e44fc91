"""The six scenarios of cluster-autoscaler's scalability proposal with 100 nodes, or TRIMTAB_E2E_NODES.

They are of the proposal "Cluster Autoscaler scalability testing" (2017), which declares 1,000 nodes; all numbers here
are shares of that.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Start
from tests.fixtures.audit import Audit, broken_budgets, pods_lost, require_none
from tests.fixtures.autoscaling import ORDER, Fleet, fleet_of, install_autoscaler, machine_settings
from tests.fixtures.clusters import MACHINES_AND_AUDIT, require_local_cluster
from trimtab_local.cluster import LocalCluster

SIZE = int(os.environ.get("TRIMTAB_E2E_NODES", "100"))
A_NODE = 30 if SIZE >= 1000 else 10
"""Pods that fill a node: thirty in the proposal. A continuous build has less time than it gives a thousand nodes."""
PODS = SIZE * A_NODE
LOAD = 500
"""From so many nodes on the control plane is set up for load."""
PATIENCE = 60.0 + SIZE * 1.2
"""Seconds; a thousand nodes on two cores need minutes."""
CORES = 3000
"""Thousandths of a core that are allocatable on a node of 3500m."""
WORK = {"cpu": f"{CORES // A_NODE}m", "memory": "64Mi"}


@pytest.fixture
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    """A cluster of the test, which is stopped afterwards: that is faster than deleting thousands of pods."""
    require_local_cluster(request, MACHINES_AND_AUDIT)
    audit = Audit(tmp_path)
    settings = machine_settings(audit, for_load=SIZE >= LOAD)
    cluster: LocalCluster = request.getfixturevalue("make_cluster")(settings, nodes=0)
    try:
        install_autoscaler(cluster)
        with fleet_of(cluster, "scenario", audit, clear=False) as fleet:
            yield fleet
    finally:
        cluster.down()


def share(percent: int) -> int:
    return SIZE * percent // 100


def workers(fleet: Fleet, *, replicas: int = 0, minimum: int = 0, maximum: int = SIZE, **orders: str) -> None:
    """A MachineSet whose nodes hold thirty pods each."""
    fleet.group(
        "workers",
        replicas=replicas,
        minimum=minimum,
        maximum=maximum,
        cpu="3500m",
        memory="8Gi",
        annotations={f"{ORDER}/{name.replace('_', '-')}": text for name, text in orders.items()},
    )
    fleet.until(lambda: len(fleet.nodes("workers")) == replicas, "the nodes are there", seconds=PATIENCE)


def fill(fleet: Fleet, name: str, nodes: list[str], each: int, **pod: object) -> None:
    """Create a number of pods on each of some nodes while all others are cordoned."""
    closed = set(fleet.nodes("workers")) - set(nodes)
    for node in closed:
        fleet.cordon(node)
    fleet.deploy(name, each * len(nodes), **WORK, **pod)  # type: ignore[arg-type]
    fleet.until_running(name, each * len(nodes), seconds=PATIENCE)
    assert set(fleet.where(name).values()) == {each}, f"the scheduler did not spread them evenly: {fleet.where(name)}"
    assert set(fleet.where(name)) == set(nodes)
    for node in closed:
        fleet.cordon(node, on=False)


def grown_to(fleet: Fleet, size: int) -> None:
    """Wait until the MachineSet has that size, and assert that no larger one was requested."""
    assert fleet.size("workers") == size
    assert max(fleet.audit.scales("workers")) == size
    fleet.until(lambda: len(fleet.nodes("workers")) == size, "all nodes are there", seconds=PATIENCE)


def shrunk_to(fleet: Fleet, size: int) -> None:
    """Wait until the MachineSet has that size, and assert that it keeps it."""
    fleet.until_sizes(workers=size, seconds=PATIENCE)
    fleet.iterate_twice()
    assert fleet.size("workers") == size
    require_none(broken_budgets(fleet.audit, fleet.pods_namespace))
    assert not pods_lost(fleet.audit, fleet.pods_namespace)


def test_scenario_1_scale_up_from_one_node_to_the_maximum(fleet: Fleet, operate: Start) -> None:
    workers(fleet, replicas=1, minimum=1)
    fleet.autoscale()
    operate()

    fleet.deploy("web", PODS, **WORK)

    fleet.until_running("web", PODS, seconds=PATIENCE)
    grown_to(fleet, SIZE)


def test_scenario_2_second_wave_of_pods_during_scale_up(fleet: Fleet, operate: Start) -> None:
    workers(fleet, replicas=1, minimum=1)
    fleet.autoscale()
    operate()

    fleet.deploy("first", PODS * 70 // 100, **WORK)
    fleet.until_running("first", PODS * 70 // 100, seconds=PATIENCE)
    grown_to(fleet, share(70))
    fleet.deploy("second", PODS * 30 // 100, **WORK)

    fleet.until_running("second", PODS * 30 // 100, seconds=PATIENCE)
    grown_to(fleet, SIZE)


@pytest.mark.parametrize("mark_lag", ["0s", "10s"])
def test_scenario_3_empty_nodes_are_removed(fleet: Fleet, operate: Start, mark_lag: str) -> None:
    """Also if the machine controller sees the marks of machines long after the new size."""
    workers(fleet, replicas=SIZE, mark_lag=mark_lag)
    busy = sorted(fleet.nodes("workers"))[: share(70)]
    fill(fleet, "web", busy, A_NODE * 70 // 100)
    fleet.autoscale()
    before = fleet.where("web")

    operate("--machine-mark-delay=15s")

    shrunk_to(fleet, share(70))
    assert not [each.summary for each in fleet.audit.of("pods/eviction")]
    assert set(fleet.nodes("workers")) == set(busy)
    assert fleet.where("web") == before


def test_scenario_4_underutilized_nodes_are_drained_to_the_minimum(fleet: Fleet, operate: Start) -> None:
    workers(fleet, replicas=SIZE, minimum=share(97))
    names = sorted(fleet.nodes("workers"))
    fill(fleet, "busy", names[: share(70)], A_NODE * 70 // 100)
    fill(fleet, "idle", names[share(70) :], A_NODE * 30 // 100)
    fleet.budget("idle", maxUnavailable="10%")
    fleet.autoscale()

    operate()

    shrunk_to(fleet, share(97))
    assert set(names[: share(70)]) <= set(fleet.nodes("workers"))
    idle = A_NODE * 30 // 100
    fleet.until_running("idle", idle * (SIZE - share(70)))
    assert len(fleet.audit.ours("pods/eviction", granted=True)) == (SIZE - share(97)) * idle


def test_scenario_5_nodes_with_unmovable_pods_are_kept(fleet: Fleet, operate: Start) -> None:
    workers(fleet, replicas=SIZE)
    names = sorted(fleet.nodes("workers"))
    port = {"containers": [{"name": "main", "image": "none", "ports": [{"containerPort": 80, "hostPort": 8080}]}]}
    fleet.deploy("port", SIZE, **port)
    fleet.until_running("port", SIZE, seconds=PATIENCE)
    fill(fleet, "busy", names[: share(70)], A_NODE * 70 // 100)
    fleet.autoscale()

    operate()

    idle = SIZE - share(70)
    wanted = {"reason": "NoPlaceToMovePods", "count": idle}
    fleet.until(lambda: wanted in fleet.status().get("keptReasons", ()), "each has its reason", seconds=PATIENCE)
    time.sleep(6)  # longer than unneededTime
    fleet.iterate_twice()
    assert fleet.size("workers") == SIZE
    assert not fleet.leftovers()
    assert not fleet.audit.ours("pods/eviction")


def test_scenario_6_unhelpable_pods_block_no_scale_up(fleet: Fleet, operate: Start) -> None:
    workers(fleet, replicas=1, minimum=1)
    fleet.deploy("stuck", SIZE, cpu="64")
    fleet.autoscale()
    operate()
    waits = ("NoGroupFits", SIZE)
    fleet.until(
        lambda: waits in {(each["reason"], each["count"]) for each in fleet.status().get("pending", ())},
        "their events have the reason",
    )

    fleet.deploy("web", PODS, **WORK)

    fleet.until_running("web", PODS, seconds=PATIENCE)
    grown_to(fleet, SIZE)
    assert not fleet.where("stuck")
