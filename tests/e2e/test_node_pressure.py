"""Node pressure as timelines: simulated kubelets serve the stats, and the audit log shows what the operator did.

The first tests are the scenarios of the eviction chapter in OpenShift's administration guide.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from examples.demo.workloads import deployment
from tests.fixtures.machine_sets import MERGE
from tests.fixtures.node_pressure import (
    INTERVAL,
    LATE,
    OWN_CONDITION,
    OWN_TAINT,
    TRANSITION,
    NodeWrite,
    PressureCluster,
    PressureStage,
    pressure_cluster,
    pressure_stage,
)
from trimtab.api import reasons
from trimtab.kube.resources import DAEMON_SETS, DEPLOYMENTS, NODE_PRESSURE_POLICIES, NODES
from trimtab.pressure.measurement import MIN_STALE

MEASURED = 1.0
"""Seconds between two measurements of a kubelet."""


@pytest.fixture(scope="module")
def given(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PressureCluster:
    """A cluster with simulated kubelets and without nodes."""
    return pressure_cluster(request, tmp_path_factory.mktemp("pressure"))


@pytest.fixture
def stage(given: PressureCluster, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PressureStage]:
    """The cluster with a namespace and nodes of the test."""
    name = request.node.name.removeprefix("test_").partition("[")[0].replace("_", "-")[:30].strip("-")
    with pressure_stage(given, name, tmp_path) as stage:
        yield stage


def first(stage: PressureStage, node: str, found: Callable[[NodeWrite], bool]) -> NodeWrite:
    """The first write of a node that meets a condition."""
    return next(each for each in stage.writes(node) if found(each))


def has_pressure(write: NodeWrite) -> bool:
    return OWN_CONDITION in write.conditions


def until_gone(stage: PressureStage, *names: str, seconds: float = 60.0) -> None:
    stage.until(lambda: not set(names) & stage.pods().keys(), f"{names} are evicted", seconds=seconds)


def has_pressure_now(stage: PressureStage, node: str) -> bool:
    return OWN_CONDITION in stage.conditions(node)


def until_relieved(stage: PressureStage, node: str, *, seconds: float = 60.0) -> None:
    def relieved() -> bool:
        return not (stage.taints(node) or stage.state(node) or OWN_CONDITION in stage.conditions(node))

    stage.until(relieved, f"node {node} has no pressure, no taint and no state", seconds=seconds)


def test_soft_threshold_evicts_after_its_grace_period(stage: PressureStage) -> None:
    (node,) = stage.node()
    stage.usage.pod("hog", memory="100Mi")
    stage.pod("hog", node, grace=30, sleep=3)
    stage.pod("calm", node)
    stage.soft("300Mi", grace=8, evictionMaxPodGracePeriod=6)
    stage.operate()
    stage.until_running("hog", "calm")
    stage.until_read()
    assert stage.conditions(node) == set()

    crossed = time.time()
    stage.usage.pod("hog", memory="600Mi")
    until_gone(stage, "hog")
    met = first(stage, node, has_pressure)
    stage.until(lambda: stage.client.request("GET", NODES.path(node)) and stage.evictions(), "the audit log")

    assert met.at - crossed <= MEASURED + INTERVAL + LATE
    assert met.taints | first(stage, node, lambda each: bool(each.taints)).taints == {OWN_TAINT}
    (eviction,) = stage.evictions()
    assert (eviction.pod, eviction.how, eviction.grace) == ("hog", "evict", 6)
    assert 8 - 1.0 <= eviction.at - met.at <= 8 + INTERVAL + LATE

    until_relieved(stage, node)
    cleared = first(stage, node, lambda each: each.at > eviction.at and OWN_CONDITION not in each.conditions)
    assert TRANSITION - INTERVAL <= cleared.at - eviction.at <= 3 + TRANSITION + 2 * INTERVAL + LATE
    assert stage.running() == {"calm"}
    assert stage.evictions() == [eviction]
    assert stage.kills() == []


@pytest.mark.core
def test_hard_threshold_evicts_at_once_with_a_short_grace_period(stage: PressureStage) -> None:
    (node,) = stage.node()
    stage.usage.pod("hog", memory="100Mi")
    stage.pod("hog", node, grace=30)
    stage.pod("calm", node)
    stage.write(evictionHard={"memory.available": "300Mi"}, hardEvictionMaxPodGracePeriod=2)
    stage.operate()
    stage.until_running("hog", "calm")
    stage.until_read()

    crossed = time.time()
    stage.usage.pod("hog", memory="600Mi")
    until_gone(stage, "hog")

    (eviction,) = stage.until(stage.evictions, "the eviction is in the audit log")
    assert (eviction.pod, eviction.how, eviction.grace) == ("hog", "evict", 2)
    assert eviction.at - crossed <= MEASURED + INTERVAL + LATE
    assert stage.kills() == []


def test_disk_inodes_and_pids_evict_their_largest_users(stage: PressureStage) -> None:
    disk = {"capacity": "1000Mi", "used": {"start": "100Mi"}, "inodes": 1000, "inodesUsed": {"start": 100}}
    late = {"memory.available": "1Mi"}  # the kubelets' own thresholds of disks are met as well
    common = {"nodefs": disk, "processes": {"capacity": 1000, "used": {"start": 100}}, "evictionHard": late}
    stage.node("disk", "inodes", "pids", **common)
    stage.node("images", **common, imagefs=disk)
    curves = {
        "disk": {"logs": "750Mi"},
        "inodes": {"volumeInodes": 750},
        "images": {"root": "750Mi"},
        "pids": {"processes": 750},
    }
    for kind, curve in curves.items():
        stage.usage.pod(f"hog-{kind}", **curve)
        stage.pod(f"hog-{kind}", f"{stage.namespace}-{kind}")
        stage.pod(f"calm-{kind}", f"{stage.namespace}-{kind}")
    stage.until_running(*(f"{name}-{kind}" for kind in curves for name in ("hog", "calm")))
    signals = ("nodefs.available", "nodefs.inodesFree", "imagefs.available", "pid.available")

    stage.write(evictionHard=dict.fromkeys(signals, "20%"))
    stage.operate()
    until_gone(stage, *(f"hog-{kind}" for kind in curves))

    taints = {kind: stage.taints(f"{stage.namespace}-{kind}") for kind in curves}
    assert taints["pids"] == {"pressure.trimtab.dev/pid"}
    assert taints["disk"] == taints["inodes"] == taints["images"] == {"pressure.trimtab.dev/disk"}
    for kind in curves:
        until_relieved(stage, f"{stage.namespace}-{kind}")
    assert stage.running() == {f"calm-{kind}" for kind in curves}
    assert sorted(each.pod for each in stage.evictions()) == sorted(f"hog-{kind}" for kind in curves)


def test_oscillation_sets_the_condition_once_and_evicts_nothing(stage: PressureStage) -> None:
    swing = {"start": "750Mi", "steps": [{"after": "4s", "value": "400Mi"}], "period": "8s"}
    (node,) = stage.node(memory={"capacity": "1000Mi", "used": swing})
    stage.pod("calm", node)
    stage.until_running("calm")
    stage.soft("300Mi", grace=40, evictionPressureTransitionPeriod="20s")
    stage.operate()
    stage.until(lambda: OWN_CONDITION in stage.conditions(node), "the node is under pressure")

    time.sleep(30)

    assert OWN_CONDITION in stage.conditions(node)
    assert stage.taints(node) == {OWN_TAINT}
    held = [each for each in stage.writes(node) if each.at >= first(stage, node, has_pressure).at]
    assert all(has_pressure(each) for each in held)
    stage.usage.node(node, memory={"capacity": "1000Mi", "used": {"start": "400Mi"}})
    until_relieved(stage, node)
    assert stage.evictions() == []


def test_minimum_reclaim_evicts_until_more_is_available(stage: PressureStage) -> None:
    reclaiming, plain = stage.node("reclaim", "plain", memory={"capacity": "1000Mi", "used": {"start": "100Mi"}})
    stage.client.request("PATCH", NODES.path(plain), {"metadata": {"labels": {"plain": "yes"}}}, content_type=MERGE)
    stage.usage.pod("big", memory="250Mi")
    names = [f"{suffix}-{number}" for suffix in ("reclaim", "plain") for number in range(3)]
    for name in names:
        stage.pod(name, f"{stage.namespace}-{name.partition('-')[0]}", app="big")
    stage.until_running(*names)

    labels = {"scenario": stage.namespace}
    stage.soft("200Mi", nodeSelector={"matchLabels": labels | {"plain": "yes"}}, name=f"a-{stage.namespace}")
    stage.soft("200Mi", evictionMinimumReclaim={"memory.available": "300Mi"})
    stage.operate()
    for node in (plain, reclaiming):
        stage.until(lambda node=node: has_pressure_now(stage, node), f"node {node} has pressure")
    until_relieved(stage, plain)
    until_relieved(stage, reclaiming)
    stage.client.request("DELETE", NODE_PRESSURE_POLICIES.path(f"a-{stage.namespace}"))

    left = [name.partition("-")[0] for name in stage.running()]
    assert (left.count("reclaim"), left.count("plain")) == (1, 2)


def test_daemon_set_and_critical_pods_are_never_evicted(stage: PressureStage) -> None:
    (node,) = stage.node()
    stage.usage.node(node, memory={"capacity": "1400Mi", "used": {"start": "100Mi"}})
    for app, memory in {"agent": "500Mi", "critical": "400Mi", "plain": "250Mi"}.items():
        stage.usage.pod(app, memory=memory)
    stage.pod("critical", node, priorityClassName="system-node-critical")
    stage.pod("plain", node)
    labels = {"app": "agent"}
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10"}
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "containers": [container],
        "tolerations": [{"operator": "Exists"}],
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    manifest = {"metadata": {"name": "agent"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    stage.client.request("POST", DAEMON_SETS.path(namespace=stage.namespace), manifest)
    stage.until(lambda: len(stage.running()) == 3, "the pods run")
    before = set(stage.running())

    stage.write(evictionHard={"memory.available": "300Mi"})
    stage.operate()
    until_gone(stage, "plain")
    until_relieved(stage, node)

    assert stage.running() == before - {"plain"}
    assert [each.pod for each in stage.evictions()] == ["plain"]

    stage.usage.pod("agent", memory="700Mi")
    report = stage.until(lambda: stage.reported(node), "the node is under pressure again")
    stage.until(
        lambda: stage.reported(node).get("reason") == reasons.NO_EVICTABLE_POD, f"no pod is evictable: {report}"
    )
    assert stage.running() == before - {"plain"}


def test_forecast_evicts_before_the_grace_period_ends(stage: PressureStage) -> None:
    (node,) = stage.node(memory={"capacity": "2000Mi", "used": {"start": "100Mi"}})
    stage.usage.pod("leak", memory="100Mi")
    stage.pod("leak", node)
    stage.until_running("leak")
    stage.soft("1500Mi", grace=90, evictionForecast="60s", kubeletEvictionHard={"memory.available": "100Mi"})
    stage.operate()
    stage.until_read()

    stage.usage.pod("leak", since=True, memory={"start": "200Mi", "perSecond": "30Mi", "max": "1850Mi"})
    until_gone(stage, "leak", seconds=90)

    met = first(stage, node, has_pressure)
    (eviction,) = stage.until(stage.evictions, "the eviction is in the audit log")
    assert eviction.at - met.at < 90
    assert stage.kills() == []


def test_memory_stall_evicts_while_enough_memory_is_available(stage: PressureStage) -> None:
    memory = {"capacity": "1000Mi", "used": {"start": "100Mi"}}
    (node,) = stage.node(memory={**memory, "pressure": {"start": "2"}})
    stage.usage.pod("hog", memory="200Mi")
    stage.usage.pod("calm", memory="100Mi")
    stage.pod("hog", node)
    stage.pod("calm", node)
    stage.until_running("hog", "calm")
    stage.write(memoryStall={"percent": 20, "window": "avg10", "gracePeriod": "6s"})
    stage.operate()
    stage.until_read()
    assert stage.conditions(node) == set()

    stage.usage.node(node, memory={**memory, "pressure": {"start": "40"}})
    until_gone(stage, "hog")
    stage.usage.node(node, memory={**memory, "pressure": {"start": "2"}})
    met = first(stage, node, has_pressure)
    until_relieved(stage, node)

    (eviction,) = stage.evictions()
    assert (eviction.pod, eviction.how) == ("hog", "evict")
    assert 6 - 1.0 <= eviction.at - met.at <= 6 + INTERVAL + LATE
    assert stage.running() == {"calm"}
    assert stage.kills() == []


FAULTS = {
    "Hang": reasons.STATS_UNREACHABLE,
    "Drip": reasons.STATS_UNREACHABLE,
    "Reset": reasons.STATS_UNREACHABLE,
    "OtherCertificate": reasons.STATS_UNREACHABLE,
    "ServerError": None,
    "Garbage": reasons.STATS_INVALID,
    "Truncated": reasons.STATS_INVALID,
    "Nested": reasons.STATS_INVALID,
    "Huge": reasons.STATS_INVALID,
    "OtherNode": reasons.STATS_INVALID,
    "Negative": None,
    "Absurd": None,
    "NoMemory": None,
    "Unauthorized": reasons.STATS_FORBIDDEN,
    "Forbidden": reasons.STATS_FORBIDDEN,
}
"""The reason for which the signals of a node are unknown, by the fault of its kubelet; ``None`` if it may be any."""


def test_faulty_kubelets_delay_nothing_and_lose_no_pod(stage: PressureStage) -> None:
    stage.usage.pod("hog", memory="600Mi")
    full = {"memory": {"capacity": "1000Mi", "used": {"start": "100Mi"}}}
    for fault in FAULTS:
        name = f"{stage.namespace}-{fault.lower()}"
        stage.usage.fail(fault, name)
    nodes = stage.node(*(fault.lower() for fault in FAULTS), **full)
    good, frozen = stage.node("good", "frozen", memory={"capacity": "1000Mi", "used": {"start": "100Mi"}})
    stage.usage.pod("late", memory="100Mi")
    for name in nodes:
        stage.pod(f"hog-{name.rpartition('-')[2]}", name, app="hog")
    stage.pod("hog-good", good, app="late")
    stage.pod("hog-frozen", frozen, app="late")
    stage.until_running("hog-good", "hog-frozen", *(f"hog-{fault.lower()}" for fault in FAULTS))
    stage.write(evictionHard={"memory.available": "400Mi"})
    stage.operate()
    stage.until_read(2)

    stage.usage.fail("Frozen", frozen)
    time.sleep(2 * MEASURED)
    crossed = time.time()
    stage.usage.pod("late", memory="600Mi")
    until_gone(stage, "hog-good")
    (eviction,) = stage.until(stage.evictions, "the eviction is in the audit log")

    assert eviction.at - crossed <= MEASURED + INTERVAL + LATE
    unread = stage.until(
        lambda: (found := stage.unread()).keys() == {*nodes, frozen} and found, "all faulty nodes are reported"
    )
    assert unread.pop(frozen) == reasons.STATS_STALE
    assert {fault: unread[f"{stage.namespace}-{fault.lower()}"] for fault, reason in FAULTS.items() if reason} == {
        fault: reason for fault, reason in FAULTS.items() if reason
    }
    time.sleep(2 * INTERVAL)
    assert [each.pod for each in stage.evictions()] == ["hog-good"]
    assert {name for name in nodes if stage.taints(name) or stage.state(name)} == set()

    stage.usage.fail("", f"{stage.namespace}-hang")
    until_gone(stage, "hog-hang", seconds=90)


def test_stats_that_were_frozen_before_the_operator_started_are_not_used(stage: PressureStage) -> None:
    """The pod used much memory when its kubelet stopped measuring, and has released it since."""
    (node,) = stage.node()
    stage.usage.pod("hog", memory="600Mi")
    stage.pod("hog", node)
    stage.until_running("hog")
    time.sleep(3 * MEASURED)
    stage.usage.fail("Frozen", node)
    time.sleep(2 * MEASURED)
    stage.usage.pod("hog", memory="100Mi")
    time.sleep(MIN_STALE)
    stage.write(evictionHard={"memory.available": "400Mi"})
    stage.operate()

    stage.until(lambda: stage.unread() == {node: reasons.STATS_STALE}, "the node is reported")
    assert (stage.evictions(), stage.taints(node), stage.state(node)) == ([], set(), {})
    stage.usage.fail("", node)
    stage.until_read()
    time.sleep(2 * INTERVAL)
    assert (stage.evictions(), stage.writes(node)) == ([], [])


def test_simulation_changes_nothing(stage: PressureStage) -> None:
    (node,) = stage.node()
    stage.usage.pod("hog", memory="500Mi")
    stage.pod("hog", node)
    stage.pod("calm", node)
    stage.until_running("hog", "calm")
    stage.soft("300Mi", mode="Simulate", failedPods={"after": "0s", "keepPerOwner": 0})
    stage.usage.node(node, memory={"capacity": "1000Mi", "used": {"start": "300Mi"}})
    stage.operate()

    report = stage.until(
        lambda: (found := stage.reported(node)).get("reason") == reasons.SOFT_THRESHOLD_MET and found,
        "the eviction is simulated",
    )
    time.sleep(INTERVAL)
    assert "hog" in report["message"]
    assert stage.mutations() == []
    assert stage.running() == {"hog", "calm"}

    stage.client.request(
        "PATCH", NODE_PRESSURE_POLICIES.path(stage.namespace), {"spec": {"mode": "Act"}}, content_type=MERGE
    )
    until_gone(stage, "hog")
    assert stage.taints(node) == {OWN_TAINT}
    stage.client.request(
        "PATCH", NODE_PRESSURE_POLICIES.path(stage.namespace), {"spec": {"mode": "Simulate"}}, content_type=MERGE
    )
    until_relieved(stage, node, seconds=30)


def test_operator_stands_down_while_the_kubelet_kills(stage: PressureStage) -> None:
    (node,) = stage.node()
    for app in ("first", "second", "third"):
        stage.usage.pod(app, memory="50Mi")
        stage.pod(app, node)
    stage.until_running("first", "second", "third")
    stage.soft("700Mi", grace=10)
    stage.usage.node(
        node, memory={"capacity": "1000Mi", "used": {"start": "100Mi"}}, evictionHard={"memory.available": "200Mi"}
    )
    stage.operate()
    stage.until_read()

    stage.usage.pod("second", memory="250Mi")
    stage.usage.pod("first", memory="500Mi")
    stage.until(stage.kills, "the kubelet kills a pod")
    stage.until(lambda: stage.reported(node).get("reason") == reasons.KUBELET_EVICTS, "the operator stands down")
    time.sleep(10 + INTERVAL)

    assert [each["pod"] for each in stage.kills()] == [f"{stage.namespace}/first"]
    assert stage.evictions() == []
    assert stage.running() == {"second", "third"}


def test_killed_pods_are_cleaned_up_by_age_and_owner(stage: PressureStage) -> None:
    (node,) = stage.node(evictionHard={"memory.available": "500Mi"})
    stage.usage.pod("web", memory="50Mi")
    stage.usage.pod("bare", memory="50Mi")
    pod = {"nodeSelector": {"kubernetes.io/hostname": node}, "terminationGracePeriodSeconds": 1}
    web = deployment("web", namespace=stage.namespace, replicas=3, pod=pod)
    stage.client.request("POST", DEPLOYMENTS.path(namespace=stage.namespace), web)
    stage.pod("bare", node)
    stage.until(lambda: len(stage.running()) == 4, "the pods run")
    stage.usage.node(
        node, memory={"capacity": "1000Mi", "used": {"start": "600Mi"}}, evictionHard={"memory.available": "500Mi"}
    )

    def failed() -> list[str]:
        return sorted(name for name, pod in stage.pods().items() if pod["status"].get("reason") == "Evicted")

    stage.until(lambda: "bare" in failed() and len(failed()) >= 4 and not stage.running(), "the kubelet kills all pods")
    stage.soft("550Mi", failedPods={"after": "5s", "keepPerOwner": 1})
    killed = failed()
    stage.operate()

    stage.until(lambda: len(failed()) == 2, "only the last pod of each owner remains")
    time.sleep(2 * INTERVAL)
    assert len(failed()) == 2
    assert "bare" in failed()
    deleted = stage.evictions()
    assert sorted(each.pod for each in deleted) == sorted(set(killed) - set(failed()))
    assert all(each.how == "delete" and each.uid for each in deleted)


def test_grace_and_transition_periods_last_over_kill_9(stage: PressureStage) -> None:
    (node,) = stage.node()
    stage.usage.pod("hog", memory="100Mi")
    stage.pod("hog", node, sleep=1)
    stage.until_running("hog")
    stage.soft("300Mi", grace=20, evictionPressureTransitionPeriod="20s")
    operator = stage.operate()
    stage.until_read()

    stage.usage.pod("hog", memory="700Mi")
    stage.until(lambda: OWN_CONDITION in stage.conditions(node), "the node is under pressure")
    met, before = first(stage, node, has_pressure), stage.state(node)
    time.sleep(8)
    operator.stop(signal.SIGKILL)
    assert stage.state(node) == before
    second = stage.operate()
    until_gone(stage, "hog")
    (eviction,) = stage.until(stage.evictions, "the eviction is in the audit log")

    assert 20 - 1.0 <= eviction.at - met.at <= 20 + INTERVAL + LATE

    time.sleep(8)
    assert OWN_CONDITION in stage.conditions(node)
    second.stop(signal.SIGKILL)
    stage.operate()
    until_relieved(stage, node)
    cleared = first(stage, node, lambda each: each.at > eviction.at and OWN_CONDITION not in each.conditions)
    assert 20 - INTERVAL <= cleared.at - eviction.at <= 1 + 20 + 2 * INTERVAL + LATE


@pytest.mark.core
def test_deleted_policy_leaves_nothing_on_nodes(stage: PressureStage) -> None:
    (node,) = stage.node()
    stage.usage.pod("hog", memory="600Mi")
    stage.pod("hog", node)
    stage.until_running("hog")
    stage.soft("400Mi", grace=300)
    stage.operate()
    stage.until(lambda: stage.taints(node) and stage.state(node), "the node is under pressure")

    stage.client.request("DELETE", NODE_PRESSURE_POLICIES.path(stage.namespace))

    until_relieved(stage, node)
    assert OWN_CONDITION not in {
        each["type"] for each in stage.live(node)["status"]["conditions"] if each["status"] == "True"
    }
    assert stage.running() == {"hog"}
