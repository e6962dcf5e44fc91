"""The controller of NodePressurePolicies on a cluster in memory, with virtual time."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tests.builders import pod
from tests.unit.pressure.world import HARD, SOFT, Cluster, Process, operating
from trimtab.api import reasons
from trimtab.api.plan import rfc3339
from trimtab.controller.progress import PROGRESS_REGISTRY, Progress
from trimtab.pressure.measurement import NodeMeasurement, SignalValue

pytestmark = pytest.mark.looptime(start=0)


def cluster_under_pressure() -> Cluster:
    """A node of 10Gi on which 9.5Gi are used, most of it by the pod big."""
    cluster = Cluster()
    cluster.node()
    cluster.pod("big", 6)
    cluster.pod("small", 3.5)
    return cluster


async def test_nodes_without_pressure_are_not_written() -> None:
    cluster = Cluster()
    cluster.node()
    cluster.pod("small", 1)
    async with operating(cluster) as process:
        await process.put(**SOFT)
        await asyncio.sleep(120)
        assert cluster.writes() == []
        assert cluster.marks() == (False, False, False)
        assert cluster.condition("Ready") == ("True", reasons.NODES_WATCHED)
        assert cluster.condition("Degraded") == ("False", reasons.ALL_WELL)
        assert (cluster.status()["counts"]["nodes"], cluster.status()["counts"]["read"]) == (1, 1)
        assert process.events() == []


async def test_soft_threshold_evicts_one_pod_after_its_grace_period() -> None:
    cluster = cluster_under_pressure()
    async with operating(cluster) as process:
        await process.put(**SOFT)
        assert cluster.marks() == (True, True, True)
        assert cluster.evictions == []
        [node] = cluster.status()["nodes"]
        assert (node["name"], node["conditions"], node["reason"]) == (
            "n1",
            ["MemoryPressure"],
            reasons.SOFT_GRACE_PERIOD,
        )
        await asyncio.sleep(40)
        [(at, name, grace)] = cluster.evictions
        assert (name, grace) == ("big", 30)
        assert 30 <= at <= 40
        await asyncio.sleep(120)
        assert len(cluster.evictions) == 1, "6Gi are free again"
        assert cluster.marks() == (False, False, False)
        assert cluster.conditions() == {"Ready": "True", "MemoryPressure": "False"}
        assert process.events() == [
            ("Node", reasons.NODE_PRESSURE_BEGAN),
            ("Pod", reasons.NODE_PRESSURE_EVICTION),
            ("Node", reasons.NODE_PRESSURE_ENDED),
        ]
        assert cluster.status()["counts"]["evicted"] == 1


async def test_state_names_the_pod_before_the_request_is_sent() -> None:
    cluster = cluster_under_pressure()
    async with operating(cluster) as process:
        await process.put(**HARD)
        requests = [call.path for call in cluster.calls if call.method in ("PATCH", "POST")]
        assert requests.index("/api/v1/nodes/n1") < requests.index("/api/v1/namespaces/shop/pods/big/eviction")
        [(_, name, grace)] = cluster.evictions
        assert (name, grace) == ("big", 1)


async def test_next_pod_is_evicted_only_after_the_first_one_is_gone_and_measured() -> None:
    cluster = Cluster()
    cluster.node()
    for name, uses in [("a", 3.2), ("b", 3.1), ("c", 3.0)]:
        cluster.pod(name, uses, grace=45)
    cluster.pod("d", 3.6, grace=45)
    async with operating(cluster) as process:
        await process.put(**{**HARD, "hardEvictionMaxPodGracePeriod": 45})
        await asyncio.sleep(100)
        [(first, name, _), (second, other, _)] = cluster.evictions
        assert (name, other) == ("d", "a")
        assert first + 45 < second <= first + 70


async def test_simulate_changes_nothing_and_reports_the_pod() -> None:
    cluster = cluster_under_pressure()
    async with operating(cluster) as process:
        await process.put(**{**HARD, "mode": "Simulate"})
        await asyncio.sleep(60)
        assert cluster.writes() == []
        assert cluster.writes("/pods/") == []
        assert cluster.condition("Ready") == ("True", reasons.SIMULATING)
        [node] = cluster.status()["nodes"]
        assert (node["reason"], "shop/big" in node["message"]) == (reasons.HARD_THRESHOLD_MET, True)
        assert process.events() == [("NodePressurePolicy", reasons.EVICTION_SIMULATED)]


@pytest.mark.parametrize("change", ["simulate", "delete", "selector", "label", "invalid", "another takes over"])
async def test_marks_are_removed_when_no_policy_acts_on_the_node(change: str) -> None:
    cluster = cluster_under_pressure()
    async with operating(cluster) as process:
        spec = {**SOFT, "nodeSelector": {"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]}}
        await process.put(**spec)
        cluster.change_node(
            "n1", lambda it: it["spec"].setdefault("taints", []).append({"key": "x", "effect": "NoSchedule"})
        )
        assert cluster.marks() == (True, True, True)
        if change == "simulate":
            await process.put(**{**spec, "mode": "Simulate"})
        elif change == "delete":
            await process.delete()
        elif change == "selector":
            await process.put(**{**spec, "nodeSelector": {"matchLabels": {"a": "b"}}})
        elif change == "label":
            cluster.change_node("n1", lambda it: it["metadata"].setdefault("labels", {}).update(skip=""))
        elif change == "invalid":
            await process.put(mode="Act", evictionHard={"memory.available": "much"})
            assert cluster.condition("Ready") == ("False", reasons.INVALID_POLICY)
        else:
            await process.put("a", **{**SOFT, "mode": "Simulate"})
        await asyncio.sleep(40)
        assert cluster.marks() == (False, False, False)
        assert cluster.taints() == {"x"}, "the taints of others stay"


async def test_policy_that_takes_over_a_node_keeps_its_marks() -> None:
    cluster = cluster_under_pressure()
    async with operating(cluster) as process:
        await process.put("b", **SOFT)
        since = cluster.state().first_met
        await process.put("a", **SOFT)
        await process.delete("b")
        await asyncio.sleep(1)
        assert cluster.marks() == (True, True, True)
        assert cluster.state().first_met == since
        await asyncio.sleep(40)
        assert [name for _, name, _ in cluster.evictions] == ["big"]


async def test_first_policy_by_name_handles_a_node_and_reads_it_alone() -> None:
    cluster = Cluster()
    cluster.node("n1", pool="x")
    cluster.node("n2")
    async with operating(cluster) as process:
        await process.put("b", **SOFT)
        await process.put("a", **{**SOFT, "nodeSelector": {"matchLabels": {"pool": "x"}}})
        await asyncio.sleep(30)
        assert [each.refreshed[-1] for each in process.readings] == [["n2"], ["n1"]]
        assert cluster.condition("Conflicting", "b") == ("True", reasons.NODES_HANDLED_BY_OTHER_POLICY)
        assert cluster.condition("Conflicting", "a") == ("False", reasons.NO_CONFLICT)


async def test_soft_threshold_that_is_not_above_the_hard_one_on_a_node_is_reported() -> None:
    """The units differ, so only the capacity of a node shows it: 5% are 512Mi."""
    cluster = Cluster()
    cluster.node()
    async with operating(cluster) as process:
        await process.put(**{**SOFT, **HARD, "evictionSoft": {"memory.available": "5%"}}, wait=20)
        assert cluster.condition("Conflicting") == ("True", reasons.SOFT_THRESHOLD_NOT_ABOVE_HARD)
        await process.put(**{**SOFT, **HARD, "evictionSoft": {"memory.available": "15%"}}, wait=20)
        assert cluster.condition("Conflicting") == ("False", reasons.NO_CONFLICT)


async def test_sigterm_leaves_the_marks_and_the_next_process_continues() -> None:
    cluster = cluster_under_pressure()
    async with operating(cluster) as process:
        await process.put(**SOFT)
        await asyncio.sleep(15)
    assert cluster.marks() == (True, True, True)
    async with operating(cluster) as process:
        process.run()
        await asyncio.sleep(25)
        [(at, _, _)] = cluster.evictions
        assert 30 <= at <= 41, "the grace period has not started again"
        assert ("Node", reasons.NODE_PRESSURE_BEGAN) not in process.events()


@pytest.mark.parametrize("seconds", [0.5, 8.0, 29.0, 31.0, 35.0])
async def test_killed_process_loses_no_grace_period_and_evicts_no_pod_twice(seconds: float) -> None:
    cluster = cluster_under_pressure()
    first = Process(cluster)
    await first.put(**SOFT, wait=seconds)
    await first.kill()
    async with operating(cluster) as process:
        process.run()
        await asyncio.sleep(60 - seconds)
        assert [name for _, name, _ in cluster.evictions] == ["big"]
        assert cluster.evictions[0][0] <= 45
        await asyncio.sleep(120)
        assert [name for _, name, _ in cluster.evictions] == ["big"]
        assert cluster.marks() == (False, False, False)


async def test_marks_that_other_clients_remove_are_restored() -> None:
    cluster = cluster_under_pressure()
    cluster.budgets = {"big": 0, "small": 0}
    async with operating(cluster) as process:
        await process.put(**SOFT)
        cluster.change_node("n1", lambda it: it["spec"].pop("taints"))
        cluster.change_node("n1", lambda it: it["status"].update(conditions=it["status"]["conditions"][:1]))
        await asyncio.sleep(30)
        assert cluster.marks() == (True, True, True)


async def test_taints_and_evictions_are_recorded_in_the_history() -> None:
    cluster = cluster_under_pressure()
    async with operating(cluster) as process:
        await process.put(**SOFT)
        await asyncio.sleep(60)
        found = {(entry.action, entry.node, entry.pod) for entry in process.history.entries}
        assert found == {("Taint", "n1", ""), ("Evict", "n1", "big")}
        assert {entry.controller for entry in process.history.entries} == {"pressure"}


async def test_node_without_taint_nodes_has_only_the_condition() -> None:
    cluster = cluster_under_pressure()
    async with operating(cluster) as process:
        await process.put(**{**SOFT, "taintNodes": False})
        assert cluster.marks() == (True, False, True)
        await process.put(**SOFT)
        await asyncio.sleep(12)
        assert cluster.marks() == (True, True, True)


# --- refused evictions ----------------------------------------------------------------------------------------------


async def test_refused_eviction_tries_the_next_pod_and_is_reported() -> None:
    cluster = Cluster()
    cluster.node()
    cluster.pod("big", 5)
    cluster.pod("other", 4.5)
    cluster.budgets["big"] = 0
    async with operating(cluster) as process:
        await process.put(**HARD)
        assert [name for _, name, _ in cluster.evictions] == ["other"]
        assert ("NodePressurePolicy", reasons.DISRUPTION_BUDGET) in process.events()
        assert "uid-big" in str(cluster.state().refused_since) or cluster.state().refused_since


async def test_refused_eviction_is_retried_with_backoff_until_it_is_granted() -> None:
    cluster = Cluster()
    cluster.node()
    cluster.pod("big", 9.5)
    cluster.budgets["big"] = 0
    async with operating(cluster) as process:
        await process.put(**HARD)
        await asyncio.sleep(300)
        assert cluster.condition("Degraded") == ("True", reasons.EVICTIONS_REFUSED)
        assert cluster.status()["nodes"][0]["reason"] == reasons.DISRUPTION_BUDGET
        attempts = len(cluster.sent("POST", "/eviction"))
        assert 10 <= attempts <= 18
        writes = len(cluster.writes())
        assert writes <= 2 * attempts + 4, "backoff also holds for the node's state"
        cluster.budgets["big"] = 1
        await asyncio.sleep(90)
        assert [name for _, name, _ in cluster.evictions] == ["big"]
        assert cluster.condition("Degraded") == ("False", reasons.ALL_WELL)
        events = process.events()
        assert events.count(("NodePressurePolicy", reasons.DISRUPTION_BUDGET)) <= 2


@pytest.mark.parametrize("hard", [True, False])
async def test_pod_is_deleted_only_because_of_a_hard_threshold_and_after_delete_after(hard: bool) -> None:
    cluster = Cluster()
    cluster.node()
    cluster.pod("big", 9.5)
    cluster.budgets["big"] = 0
    async with operating(cluster) as process:
        await process.put(**{**(HARD if hard else SOFT), "deleteAfter": "2m"})
        await asyncio.sleep(110)
        assert cluster.deletions == []
        await asyncio.sleep(200)
        if not hard:
            assert cluster.deletions == []
            return
        [(at, name, grace)] = cluster.deletions
        assert (name, grace) == ("big", 1)
        assert 120 <= at <= 145
        [mark] = [call for call in cluster.calls if call.path.endswith("/pods/big/status")]
        assert mark.body["status"]["conditions"][0]["reason"] == reasons.DELETION_BY_NODE_PRESSURE
        assert cluster.status()["counts"]["deleted"] == 1


async def test_restart_does_not_begin_delete_after_again() -> None:
    cluster = Cluster()
    cluster.node()
    cluster.pod("big", 9.5)
    cluster.budgets["big"] = 0
    first = Process(cluster)
    await first.put(**{**HARD, "deleteAfter": "2m"}, wait=80)
    await first.kill()
    async with operating(cluster) as process:
        process.run()
        await asyncio.sleep(80)
        [(at, _, _)] = cluster.deletions
        assert at <= 145


async def test_budget_that_another_controller_uses_up_delays_the_eviction() -> None:
    cluster = cluster_under_pressure()
    async with operating(cluster) as process:
        process.stale = "relisting pods"
        await process.put(**HARD, wait=20)
        assert cluster.evictions == []
        assert cluster.condition("Ready") == ("False", reasons.CLUSTER_UNREACHABLE)
        process.stale = None
        await asyncio.sleep(15)
        assert [name for _, name, _ in cluster.evictions] == ["big"]
        assert cluster.condition("Ready") == ("True", reasons.NODES_WATCHED)


# --- nodes that are left alone --------------------------------------------------------------------------------------


async def test_no_pod_is_evicted_while_the_kubelet_evicts() -> None:
    cluster = cluster_under_pressure()
    cluster.change_node("n1", lambda it: it["status"]["conditions"][1].update(status="True"))
    async with operating(cluster) as process:
        await process.put(**HARD)
        await asyncio.sleep(60)
        assert cluster.evictions == []
        assert cluster.status()["nodes"][0]["reason"] == reasons.KUBELET_EVICTS
        assert process.events().count(("Node", reasons.KUBELET_EVICTS)) == 1
        cluster.change_node("n1", lambda it: it["status"]["conditions"][1].update(status="False"))
        await asyncio.sleep(12)
        assert [name for _, name, _ in cluster.evictions] == ["big"]


async def test_no_pod_is_evicted_from_a_node_that_an_autoscaler_drains() -> None:
    cluster = cluster_under_pressure()
    taint = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}
    cluster.change_node("n1", lambda it: it["spec"].update(taints=[taint]))
    async with operating(cluster) as process:
        await process.put(**HARD)
        await asyncio.sleep(60)
        assert cluster.evictions == []
        assert cluster.status()["nodes"][0]["reason"] == reasons.NODE_BEING_REMOVED


@pytest.mark.parametrize("kind", ["unreadable", "hanging"])
async def test_unread_node_keeps_its_state_and_is_reported(kind: str) -> None:
    cluster = cluster_under_pressure()
    cluster.node("n2")
    async with operating(cluster) as process:
        await process.put(**SOFT)
        getattr(cluster, kind).add("n1")
        before = cluster.state().first_met
        await asyncio.sleep(120)
        assert cluster.evictions == []
        assert cluster.marks() == (True, True, True)
        assert cluster.state().first_met == before
        assert cluster.condition("Degraded") == ("True", reasons.SIGNALS_UNKNOWN)
        unread = cluster.status()["unread"][0]
        assert unread["name"] == "n1"
        assert unread["since"] is not None
        if kind == "hanging":
            assert len(process.readings[0].refreshed) <= 5, "no second reading at the same time"
        getattr(cluster, kind).clear()
        await asyncio.sleep(130)
        assert [name for _, name, _ in cluster.evictions] == ["big"]
        assert cluster.condition("Degraded") == ("False", reasons.ALL_WELL)


async def test_implausible_signal_is_left_out_and_reported() -> None:
    cluster = cluster_under_pressure()
    cluster.problems["n1"] = "implausible: 90Gi of 10Gi are available"
    async with operating(cluster) as process:
        await process.put(**HARD)
        await asyncio.sleep(60)
        assert cluster.evictions == []
        assert cluster.condition("Degraded") == ("True", reasons.SIGNALS_UNKNOWN)
        [unread] = cluster.status()["unread"]
        assert (unread["name"], unread["reason"]) == ("n1", reasons.SIGNAL_UNKNOWN)
        assert "90Gi of 10Gi" in unread["message"]
        cluster.problems.clear()
        await asyncio.sleep(12)
        assert [name for _, name, _ in cluster.evictions] == ["big"]
        assert "unread" not in cluster.status()


@pytest.mark.parametrize("interval", ["10s", "30m"])
async def test_reading_that_hangs_does_not_fail_the_health_check(interval: str) -> None:
    cluster = Cluster()
    cluster.node()
    cluster.hanging.add("n1")
    progress = Progress(asyncio.get_running_loop().time)
    token = PROGRESS_REGISTRY.set(progress)
    try:
        async with operating(cluster) as process:
            await process.put(**{**SOFT, "monitoringInterval": interval})
            for _ in range(40):
                await asyncio.sleep(60)
                assert progress.problems(max_inactivity=60, max_failing_time=60) == []
                assert not any(each.plan_is_stale() for each in progress.components)
            if interval == "10s":
                assert cluster.condition("Degraded") == ("True", reasons.SIGNALS_UNKNOWN)
                assert cluster.status()["unread"][0]["reason"] == reasons.STATS_UNKNOWN
    finally:
        PROGRESS_REGISTRY.reset(token)


async def test_failing_iteration_is_reported_and_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_under_pressure()
    async with operating(cluster) as process:
        await process.put(**SOFT)

        def fail(_node: str) -> None:
            raise RuntimeError("a defect")

        with monkeypatch.context() as defect:
            defect.setattr(process.shared.evictions, "leaving", fail)
            await asyncio.sleep(12)
            assert cluster.condition("Degraded") == ("True", reasons.ITERATION_FAILED)
            assert cluster.condition("Ready") == ("False", reasons.ITERATION_FAILED)
        await asyncio.sleep(60)
        assert [name for _, name, _ in cluster.evictions] == ["big"]


async def test_no_request_is_sent_after_the_lease_is_lost() -> None:
    cluster = cluster_under_pressure()
    async with operating(cluster) as process:
        process.leads = False
        await process.put(**HARD, wait=60)
        assert cluster.writes("/") == []
        process.leads = True
        await asyncio.sleep(30)
        assert [name for _, name, _ in cluster.evictions] == ["big"]


async def test_status_is_not_written_in_every_interval() -> None:
    cluster = cluster_under_pressure()
    cluster.budgets = {"big": 0, "small": 0}
    async with operating(cluster) as process:
        await process.put(**SOFT)
        await asyncio.sleep(60)
        before = len(cluster.writes("/nodepressurepolicies/"))
        for number in range(60):
            cluster.usage["shop/small"] += number << 20
            await asyncio.sleep(10)
        assert len(cluster.writes("/nodepressurepolicies/")) - before <= 12


# --- failed pods ----------------------------------------------------------------------------------------------------


async def test_pods_that_the_kubelet_evicted_are_deleted_by_age_and_owner() -> None:
    cluster = Cluster()
    cluster.node()
    for number in range(5):
        name = f"web-{number}"
        cluster.pod(name, 0, made=pod(name).owned_by("ReplicaSet", "web"))

        def fail(it: dict, number: int = number) -> None:
            it["status"].update(phase="Failed", reason="Evicted")
            it["status"]["conditions"] = [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "lastTransitionTime": rfc3339(1_800_000_000 - 7200 + number),
                }
            ]

        cluster.change(f"/api/v1/namespaces/shop/pods/{name}", fail)
    async with operating(cluster) as process:
        await process.put(**{**HARD, "failedPods": {"after": "1h", "keepPerOwner": 2}})
        await asyncio.sleep(30)
        assert sorted(name for _, name, _ in cluster.deletions) == ["web-0", "web-1", "web-2"]
        assert cluster.status()["counts"]["cleanedUp"] == 3
        assert [each.requester.controller for each, _ in process.evictions.finished] == ["pressure"] * 3


# --- metrics --------------------------------------------------------------------------------------------------------


async def test_metrics_show_when_the_first_node_meets_a_threshold() -> None:
    cluster = Cluster()
    cluster.node()
    cluster.node("calm")
    cluster.pod("big", 6)
    async with operating(cluster) as process:
        await process.put(**HARD)
        [readings] = process.readings
        latest = readings.latest("n1")
        assert isinstance(latest, NodeMeasurement)
        value = latest.signals["memory.available"]
        readings.past["n1"] = [
            replace(
                latest,
                read_at=latest.read_at - age,
                signals={
                    "memory.available": SignalValue(
                        value.available + age * 10 * 2**20, value.capacity, (value.measured_at or 0.0) - age
                    )
                },
            )
            for age in (20, 10)
        ]
        await asyncio.sleep(11)
        labels = {"policy": "p", "signal": "memory.available", "threshold": "hard"}
        name = "trimtab_node_pressure_seconds_to_threshold"
        assert 400 < (process.metric(name, **labels) or 0) < 500  # 3Gi at 7Mi a second
        cluster.pod("small", 0.1)
        readings.past.clear()
        await asyncio.sleep(11)
        assert process.metric(name, **labels) is None


async def test_metrics_show_nodes_under_pressure_and_the_lowest_signal() -> None:
    cluster = cluster_under_pressure()
    cluster.node("calm")
    cluster.budgets = {"big": 0, "small": 0}
    async with operating(cluster) as process:
        await process.put(**HARD)
        await asyncio.sleep(11)
        metric = process.metric
        assert metric("trimtab_node_pressure_nodes", policy="p", condition="MemoryPressure") == 1
        assert metric("trimtab_node_pressure_read_nodes", policy="p", result="Summary") == 2
        labels = {"policy": "p", "signal": "memory.available", "threshold": "hard"}
        assert metric("trimtab_node_pressure_signal_ratio", **labels) == 0.5
        assert metric("trimtab_node_pressure_refused_pods", policy="p", reason=reasons.DISRUPTION_BUDGET) == 2
        refused = {"result": "Refused", "reason": reasons.DISRUPTION_BUDGET}
        assert (metric("trimtab_node_pressure_evictions_total", policy="p", **refused) or 0) >= 2
        await process.delete()
        assert metric("trimtab_node_pressure_nodes", policy="p", condition="MemoryPressure") is None
