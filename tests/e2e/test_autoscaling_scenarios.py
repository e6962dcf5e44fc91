"""The six scenarios of cluster-autoscaler's scalability proposal, with 100 nodes or as many as TRIMTAB_E2E_NODES says.

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
from tests.fixtures.audit import Audit, broken_budgets, pods_lost
from tests.fixtures.autoscaling import Fleet, fleet_of, install_autoscaler, machine_settings
from trimtab.local.cluster import LocalCluster

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
    """A cluster of the test's own, ended afterwards: that is sooner done than emptying one of thousands of pods."""
    if request.config.getoption("--cluster") != "local":
        pytest.skip("these tests need the machine controller and the audit log of a local control plane")
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


def workers(fleet: Fleet, *, replicas: int = 0, minimum: int = 0, maximum: int = SIZE) -> None:
    """A set whose nodes thirty pods fill."""
    fleet.group("workers", replicas=replicas, minimum=minimum, maximum=maximum, cpu="3500m", memory="8Gi")
    fleet.until(lambda: len(fleet.nodes("workers")) == replicas, "the nodes are there", seconds=PATIENCE)


def fill(fleet: Fleet, name: str, nodes: list[str], each: int, **pod: object) -> None:
    """So many pods on each of some nodes: the others are closed meanwhile, and the scheduler spreads."""
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
    """The set has that size and no larger one was ever asked for."""
    assert fleet.size("workers") == size
    assert max(fleet.audit.scales("workers")) == size
    fleet.until(lambda: len(fleet.nodes("workers")) == size, "all nodes are there", seconds=PATIENCE)


def shrunk_to(fleet: Fleet, size: int) -> None:
    """The set comes down to that size, and stays there."""
    fleet.until_sizes(workers=size, seconds=PATIENCE)
    fleet.pass_twice()
    assert fleet.size("workers") == size
    assert not broken_budgets(fleet.audit, fleet.pods_namespace)
    assert not pods_lost(fleet.audit, fleet.pods_namespace)


def test_1_one_node_becomes_all_of_them(fleet: Fleet, operate: Start) -> None:
    workers(fleet, replicas=1, minimum=1)
    fleet.autoscale()
    operate()

    fleet.deploy("web", PODS, **WORK)

    fleet.until_running("web", PODS, seconds=PATIENCE)
    grown_to(fleet, SIZE)


def test_2_a_second_wave_comes_while_the_first_has_its_nodes(fleet: Fleet, operate: Start) -> None:
    workers(fleet, replicas=1, minimum=1)
    fleet.autoscale()
    operate()

    fleet.deploy("first", PODS * 70 // 100, **WORK)
    fleet.until_running("first", PODS * 70 // 100, seconds=PATIENCE)
    grown_to(fleet, share(70))
    fleet.deploy("second", PODS * 30 // 100, **WORK)

    fleet.until_running("second", PODS * 30 // 100, seconds=PATIENCE)
    grown_to(fleet, SIZE)


def test_3_empty_nodes_go_and_the_others_stay(fleet: Fleet, operate: Start) -> None:
    workers(fleet, replicas=SIZE)
    busy = sorted(fleet.nodes("workers"))[: share(70)]
    fill(fleet, "web", busy, A_NODE * 70 // 100)
    fleet.autoscale()
    before = fleet.where("web")

    operate()

    shrunk_to(fleet, share(70))
    assert not [each.told for each in fleet.audit.of("pods/eviction")]
    assert set(fleet.nodes("workers")) == set(busy)
    assert fleet.where("web") == before


def test_4_nodes_with_little_to_do_are_drained_down_to_the_minimum(fleet: Fleet, operate: Start) -> None:
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


def test_5_nodes_whose_pods_fit_nowhere_else_stay(fleet: Fleet, operate: Start) -> None:
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
    fleet.pass_twice()
    assert fleet.size("workers") == SIZE
    assert not fleet.leftovers()
    assert not fleet.audit.ours("pods/eviction")


def test_6_pods_that_nothing_helps_do_not_keep_others_from_their_nodes(fleet: Fleet, operate: Start) -> None:
    workers(fleet, replicas=1, minimum=1)
    fleet.deploy("stuck", SIZE, cpu="64")
    fleet.autoscale()
    operate()
    waits = ("NoGroupFits", SIZE)
    fleet.until(
        lambda: waits in {(each["reason"], each["count"]) for each in fleet.status().get("pending", ())},
        "they are told why they wait",
    )

    fleet.deploy("web", PODS, **WORK)

    fleet.until_running("web", PODS, seconds=PATIENCE)
    grown_to(fleet, SIZE)
    assert not fleet.where("stuck")
