"""Failures that the controller tolerates: changes while it acts, replaced nodes, and lost responses."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tests.fakes.api import Call
from tests.fakes.clock import START
from tests.unit.pressure.world import GI, HARD, SOFT, Cluster, Process, operating
from trimtab.api import reasons
from trimtab.api.plan import rfc3339
from trimtab.kube.api import ServerError, Unreachable
from trimtab.kube.objects import Node
from trimtab.kube.resources import NODES, PODS
from trimtab.pressure.evictions import CONCURRENCY, MAX_TRIES
from trimtab.pressure.measurement import NodeMeasurement, SignalValue
from trimtab.pressure.readings import Readings

pytestmark = pytest.mark.looptime(start=0)


HARD_ONLY = {"evictionHard": HARD["evictionHard"]}


def cluster_with_two_pods() -> Cluster:
    """A node of 10Gi on which two pods use 9.5Gi."""
    cluster = Cluster()
    cluster.node()
    cluster.pod("big", 5)
    cluster.pod("other", 4.5)
    return cluster


# --- changes while an eviction waits --------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["simulate", "delete", "edit", "kubelet"])
async def test_eviction_that_waits_is_not_sent_after_a_change(change: str) -> None:
    """The reason to evict ends while the state of the node is being written, which takes some seconds."""
    cluster = cluster_with_two_pods()

    async def be_slow(call: Call) -> None:
        if call.method == "PATCH" and call.path == NODES.path("n1"):
            await asyncio.sleep(3)

    cluster.before = be_slow
    async with operating(cluster) as process:
        await process.put(**HARD, wait=1.5)
        if change == "simulate":
            await process.put(**{**HARD, "mode": "Simulate"})
        elif change == "edit":
            await process.put(**{**HARD, "evictionHard": {"memory.available": "100Mi"}})
        elif change == "delete":
            await process.delete()
        else:
            cluster.change_node("n1", lambda it: it["status"]["conditions"][1].update(status="True"))
        await asyncio.sleep(20)
        assert cluster.evictions == []


async def test_marked_pod_is_not_deleted_if_the_policy_changes_to_simulate() -> None:
    cluster = cluster_with_two_pods()
    cluster.budgets = {"big": 0, "other": 0}

    async def be_slow(call: Call) -> None:
        if call.path.endswith("/pods/big/status"):
            await asyncio.sleep(20)

    cluster.before = be_slow
    async with operating(cluster) as process:
        await process.put(**{**HARD, "deleteAfter": "1m"}, wait=70)
        assert len(cluster.sent("PATCH", "/pods/big/status")) == 1
        await process.put(**{**HARD, "mode": "Simulate"}, wait=60)
        assert cluster.deletions == []


async def test_failed_pod_is_not_deleted_if_the_policy_changes_to_simulate() -> None:
    cluster = cluster_with_two_pods()
    ended = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": rfc3339(START - 7200)}
    failed = {"phase": "Failed", "reason": "Evicted", "conditions": [ended]}
    cluster.change(PODS.path("big", namespace="shop"), lambda it: it["status"].update(failed))
    async with operating(cluster) as process:
        slots = process.shared.evictions._slots
        for _ in range(CONCURRENCY):
            await slots.acquire()
        await process.put(**HARD, failedPods={"keepPerOwner": 0}, wait=12)
        await process.put(**{**HARD, "mode": "Simulate"})
        for _ in range(CONCURRENCY):
            slots.release()
        await asyncio.sleep(20)
        assert cluster.deletions == []


async def test_policy_that_is_created_again_acts_again() -> None:
    cluster = cluster_with_two_pods()
    async with operating(cluster) as process:
        await process.put(**SOFT, wait=25)
        await process.delete()
        assert cluster.marks() == (False, False, False)
        await process.put(**SOFT, wait=25)
        assert (cluster.marks(), cluster.evictions) == ((True, True, True), [])
        await asyncio.sleep(10)
        assert [name for _, name, _ in cluster.evictions] == ["big"]


# --- nodes that are deleted or replaced -----------------------------------------------------------------------------


class Kubelets:
    """Reads the cluster's kubelets, which do not respond while ``hanging`` is set."""

    def __init__(self, cluster: Cluster) -> None:
        self.hanging = False
        self._cluster = cluster

    async def read(self, node: Node, *, only_memory: bool) -> NodeMeasurement:
        await asyncio.sleep(1000.0 if self.hanging else 0.1)
        measured = self._cluster.measure(node.name)
        if only_memory:
            return measured
        disk = SignalValue(GI, 100 * GI, self._cluster.clock.now())
        usage = {key: replace(each, logs=GI if key == "shop/log" else 0) for key, each in measured.pods().items()}
        return replace(measured, signals={**measured.signals, "nodefs.available": disk}, pods=lambda: usage)


def read_with(process: Process, kubelets: Kubelets) -> None:
    process.dependencies = replace(
        process.dependencies, readings=lambda: Readings(kubelets, clock=process.cluster.clock)
    )


def delete_node(cluster: Cluster) -> None:
    for name in ("big", "other"):
        cluster.end(name)
    cluster.remove(NODES.path("n1"))


def replace_node(cluster: Cluster) -> None:
    """Replace the node by another one with the same name."""
    delete_node(cluster)
    cluster.node()
    cluster.change_node("n1", lambda it: it["metadata"].update(uid="another"))


async def test_marks_of_a_node_are_not_written_to_its_successor() -> None:
    cluster = cluster_with_two_pods()
    cluster.fail(ServerError("broken", status=500), times=3, method="PATCH", path="/nodes/n1")
    async with operating(cluster) as process:
        await process.put(**SOFT, wait=0.2)
        replace_node(cluster)
        for _ in range(40):
            await asyncio.sleep(1)
            assert cluster.marks() == (False, False, False)


async def test_readings_of_a_node_are_not_used_for_its_successor() -> None:
    cluster = cluster_with_two_pods()
    kubelets = Kubelets(cluster)
    async with operating(cluster) as process:
        read_with(process, kubelets)
        await process.put(**SOFT, wait=12)
        assert cluster.marks() == (True, True, True)
        kubelets.hanging = True
        replace_node(cluster)
        for _ in range(40):
            await asyncio.sleep(1)
            assert cluster.marks() == (False, False, False)


async def test_deleted_nodes_are_forgotten() -> None:
    cluster = cluster_with_two_pods()
    async with operating(cluster) as process:
        await process.put(**HARD)
        assert cluster.marks() == (True, True, True)
        delete_node(cluster)
        await asyncio.sleep(70)
        shared = process.shared
        assert (shared.writer._wanted, shared.writer._stored, shared._states) == ({}, {}, {})
        assert shared.evictions._leaving == {}


async def test_marks_that_are_still_being_written_are_removed_with_the_policy() -> None:
    cluster = cluster_with_two_pods()
    cluster.fail(ServerError("broken", status=500), times=2, method="PATCH", path="/nodes/n1")
    async with operating(cluster) as process:
        await process.put(**SOFT, wait=0.2)
        await process.delete()
        for _ in range(20):
            await asyncio.sleep(0.5)
            assert cluster.marks() == (False, False, False)


# --- stats that are old -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("skew", [0.0, 7200.0], ids=["", "by a fast clock"])
async def test_stats_that_were_frozen_before_the_start_evict_nothing(skew: float) -> None:
    """A kubelet stopped to measure two hours ago, when little memory was available. It still posts heartbeats."""
    cluster = cluster_with_two_pods()
    now = cluster.clock.now()
    cluster.skew["n1"] = skew
    cluster._measured["n1"] = now - 7200
    cluster.frozen.add("n1")
    beat = rfc3339(now + skew - 60)
    cluster.change_node("n1", lambda it: it["status"]["conditions"][0].update(lastHeartbeatTime=beat))
    async with operating(cluster) as process:
        read_with(process, Kubelets(cluster))
        await process.put(**HARD, wait=100)
        assert (cluster.evictions, cluster.marks()) == ([], (False, False, False))
        assert [each["reason"] for each in cluster.status()["unread"]] == [reasons.STATS_STALE]
        cluster.frozen.clear()
        await asyncio.sleep(45)
        assert [name for _, name, _ in cluster.evictions] == ["big"]


# --- evictions that are not granted ---------------------------------------------------------------------------------


async def test_pod_that_is_refused_does_not_delay_the_eviction_for_another_resource() -> None:
    cluster = cluster_with_two_pods()
    cluster.pod("log", 0)
    cluster.budgets["log"] = 0
    cluster.usage |= {"shop/big": 3 * GI, "shop/other": 3 * GI}
    async with operating(cluster) as process:
        read_with(process, Kubelets(cluster))
        await process.put(mode="Act", evictionHard={"memory.available": "1Gi", "nodefs.available": "5Gi"}, wait=300)
        assert cluster.evictions == []
        cluster.usage |= {"shop/big": 5 * GI, "shop/other": int(4.5 * GI)}
        await asyncio.sleep(12)
        cluster.usage["shop/other"] = int(9.5 * GI)
        await asyncio.sleep(40)
        [(first, big, _), (second, other, _)] = cluster.evictions
        assert (big, other) == ("big", "other")
        assert second - first <= 25


@pytest.mark.parametrize("lost", [1, 2, 3])
async def test_pod_whose_eviction_was_not_answered_is_tried_again_before_others(lost: int) -> None:
    """The API server may still carry out a request after its client has given up."""
    cluster = cluster_with_two_pods()
    cluster.fail(Unreachable("timeout"), times=lost, method="POST", path="/big/eviction")
    async with operating(cluster) as process:
        await process.put(**HARD, wait=90)
        assert [name for _, name, _ in cluster.evictions] == ["big"]


async def test_pod_whose_eviction_is_never_answered_does_not_block_the_node() -> None:
    cluster = cluster_with_two_pods()
    cluster.fail(ServerError("broken", status=500), times=1000, method="POST", path="/big/eviction")
    async with operating(cluster) as process:
        await process.put(**HARD, wait=150)
        assert [name for _, name, _ in cluster.evictions] == ["other"]


async def test_pod_is_evicted_soon_after_its_budget_allows_it() -> None:
    cluster = cluster_with_two_pods()
    cluster.budgets = {"big": 0, "other": 0}
    async with operating(cluster) as process:
        await process.put(**HARD, wait=300)
        cluster.budgets["big"] = 1
        await asyncio.sleep(35)
        assert [name for _, name, _ in cluster.evictions] == ["big"]


def cluster_with_a_guarded_app(pods: int) -> Cluster:
    """A node of 10Gi on which the pods of an app use 9.4Gi, and pod other 0.1Gi. The app's budget refuses evictions."""
    cluster = Cluster()
    cluster.node()
    for number in range(pods):
        cluster.pod(f"app-{number:02}", 9.4 / pods)
        cluster.budgets[f"app-{number:02}"] = 0
    cluster.pod("other", 0.1)
    return cluster


def tries(cluster: Cluster) -> list[str]:
    """The names of the pods of all requests to evict one, in order."""
    return [call.path.split("/")[-2] for call in cluster.sent("POST", "/eviction")]


@pytest.mark.parametrize(("pods", "within"), [(7, 15), (30, 60)])
async def test_refused_pods_do_not_keep_others_from_being_tried(pods: int, within: int) -> None:
    cluster = cluster_with_a_guarded_app(pods)
    async with operating(cluster) as process:
        await process.put(**HARD, wait=within)
        assert [name for _, name, _ in cluster.evictions] == ["other"]


async def test_each_refused_pod_is_tried_again() -> None:
    """The requests of an interval are limited, and so is the time until the last pod is tried again."""
    cluster = cluster_with_a_guarded_app(30)
    cluster.budgets["other"] = 0
    async with operating(cluster) as process:
        await process.put(**HARD, wait=290)
        assert sorted(set(tries(cluster))) == sorted(cluster.budgets)
        before = len(tries(cluster))
        cluster.budgets["other"] = 1
        await asyncio.sleep(90)
        assert [name for _, name, _ in cluster.evictions] == ["other"]
        assert len(tries(cluster)) - before <= 2 * MAX_TRIES * 9


async def test_refused_pod_that_is_ranked_first_is_tried_again_after_its_own_backoff() -> None:
    """100 refused pods of another tenant do not delay the eviction of the pod that uses the most memory."""
    cluster = cluster_with_a_guarded_app(100)
    cluster.pod("hog", 0.2)
    cluster.budgets |= {"hog": 0, "other": 0}
    async with operating(cluster) as process:
        await process.put(**HARD, wait=290)
        assert sorted(set(tries(cluster))) == sorted(cluster.budgets)
        cluster.budgets["hog"] = 1
        await asyncio.sleep(35)
        assert [name for _, name, _ in cluster.evictions] == ["hog"]


async def test_refusal_of_the_pod_that_is_ranked_first_is_recorded_after_many_others() -> None:
    """Without it, the pod is not deleted after deleteAfter."""
    cluster = cluster_with_a_guarded_app(140)
    cluster.pod("hog", 0)
    cluster.budgets |= {"hog": 0, "other": 0}
    async with operating(cluster) as process:
        await process.put(**HARD, deleteAfter="5m", wait=270)
        cluster.usage["shop/hog"] = int(0.3 * GI)
        await asyncio.sleep(15)
        assert cluster.uid("hog") in cluster.state().refused_since


async def test_refused_pod_is_tried_before_pods_that_are_ranked_after_it() -> None:
    """Its budget may allow its eviction by now, and it uses more than the others."""
    cluster = cluster_with_two_pods()
    cluster.usage |= {"shop/big": 6 * GI, "shop/other": int(1.5 * GI)}
    for number in range(8):
        cluster.pod(f"small-{number}", 0.25)
    cluster.budgets["big"] = 0
    async with operating(cluster) as process:
        await process.put(**HARD, wait=5)
        cluster.budgets["big"] = 1
        cluster.usage |= {f"shop/small-{number}": GI // 2 for number in range(8)}
        await asyncio.sleep(60)
        assert [name for _, name, _ in cluster.evictions][:2] == ["other", "big"]


async def test_terminating_pod_with_an_endless_grace_period_does_not_keep_the_others() -> None:
    cluster = cluster_with_two_pods()
    cluster.terminate("big", seconds=100_000_000)
    async with operating(cluster) as process:
        await process.put(**SOFT, wait=60)
        assert [name for _, name, _ in cluster.evictions] == ["other"]


async def test_hard_threshold_shortens_a_long_termination_once() -> None:
    cluster = Cluster()
    cluster.node()
    cluster.pod("big", 8.5, grace=3600)
    cluster.pod("other", 0.2)
    cluster.budgets = {"big": 1}
    async with operating(cluster) as process:
        await process.put(**SOFT, **HARD_ONLY, wait=60)
        [(evicted, *first)] = cluster.evictions
        assert first == ["big", 3600]
        cluster.usage["shop/big"] = int(9.2 * GI)
        await asyncio.sleep(15)
        [_, (shortened, *second)] = cluster.evictions
        assert second == ["big", 1]
        assert evicted < shortened
        await asyncio.sleep(60)
        assert len(cluster.evictions) == 2
        assert cluster.status()["counts"]["evicted"] == 1


async def test_state_names_the_pod_that_is_leaving_if_the_clock_is_fast() -> None:
    cluster = cluster_with_two_pods()
    async with operating(cluster) as process:
        await process.put(**{**HARD, "hardEvictionMaxPodGracePeriod": 30})
        cluster.clock.skew = 300.0
        await asyncio.sleep(25)
        assert [name for _, name, _ in cluster.evictions] == ["big"]
        assert cluster.state().evicting == cluster.uid("big")


# --- policies that change -------------------------------------------------------------------------------------------


async def test_readings_whose_pods_were_dropped_are_not_used_for_a_new_threshold() -> None:
    """A node is read late in the interval. Until then, its reading is that for the previous thresholds."""
    cluster = cluster_with_two_pods()
    for name in ("a", "b", "c"):
        cluster.node(name)
    async with operating(cluster) as process:
        read_with(process, Kubelets(cluster))
        await process.put(mode="Act", evictionHard={"memory.available": "100Mi"}, wait=25)
        await process.put(**HARD, wait=0)
        for _ in range(20):
            await asyncio.sleep(1)
            assert cluster.condition("Degraded") == ("False", reasons.ALL_WELL)
        assert [name for _, name, _ in cluster.evictions] == ["big"]
