"""Adverse events: leftovers, invalid sizes, locks and pods bound during a removal."""

from __future__ import annotations

import asyncio

import pytest

from tests.builders import pod
from tests.fakes.fleet import MACHINES, MARK, NODES, SETS, SINCE, Fleet
from tests.unit.autoscaling.removal_operator import Operator, running
from tests.unit.autoscaling.running_autoscaler import PODS, Desk
from trimtab.autoscaling.actuation.removal import Phase
from trimtab.autoscaling.reconciler import DisruptionLock

pytestmark = [pytest.mark.looptime(start=0), pytest.mark.usefixtures("no_threads")]
CANDIDATE = "DeletionCandidateOfClusterAutoscaler"


def noted(desk: Desk, node: str) -> dict[str, str]:
    found: dict[str, str] = desk.fleet.objects[f"{NODES}/{node}"]["metadata"].get("annotations") or {}
    return found


class TestLeftovers:
    async def test_deletion_unmarks_machines_without_a_node(self) -> None:
        desk = Desk()
        desk.fleet.group("a", "a1", unneeded=False)
        desk.fleet.edit(f"{MACHINES}/m-a1", metadata={"annotations": {MARK: "trimtab 2026-11-20T12:00:00Z"}})
        await desk.controller.clean_up()
        await desk.controller.stop()
        assert desk.fleet.traces() == {}

    async def test_deletion_does_not_wait_for_nodes_being_deleted(self) -> None:
        desk = Desk()
        desk.fleet.deletes = False
        desk.fleet.group("a", "a1", unneeded=True)
        desk.write()
        async with desk.running() as loop:
            await desk.until(lambda: desk.fleet.replicas("a") == 0)
            desk.fleet.edit(f"{MACHINES}/m-a1", metadata={"deletionTimestamp": "2027-01-15T08:00:00Z"})
            await asyncio.sleep(5)
            desk.stopped.event.set()
            await asyncio.wait({loop}, timeout=60)
        successor = Desk(desk.fleet)
        began = desk.clock.monotonic()
        await successor.controller.clean_up()
        await successor.controller.stop()
        assert desk.clock.monotonic() - began < 10

    async def test_deletion_removes_records_from_nodes_of_another_autoscaler(self) -> None:
        desk = Desk()
        desk.fleet.group("a", "a1", unneeded=True)
        theirs = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}
        desk.fleet.edit(f"{NODES}/a1", spec={"taints": [theirs]})
        await desk.controller.clean_up()
        await desk.controller.stop()
        assert SINCE not in noted(desk, "a1")
        assert desk.fleet.spec("a1")["taints"] == [theirs]

    async def test_simulate_removes_unneeded_records(self) -> None:
        desk = Desk()
        desk.fleet.group("a", "a1", unneeded=False)
        desk.write(scaleDown={"enabled": True, "unneededTime": "5m"})
        async with desk.running():
            await desk.until(lambda: SINCE in noted(desk, "a1"))
            desk.write(generation=2, mode="Simulate", scaleDown={"enabled": True, "unneededTime": "5m"})
            await desk.until(lambda: SINCE not in noted(desk, "a1"), seconds=20)
            assert desk.fleet.spec("a1") == {}
            await asyncio.sleep(400)
            desk.fleet.add(pod("busy").cpu("3").memory("1Gi").owned_by("ReplicaSet", "web").on("a1").ready())
            await asyncio.sleep(60)
            desk.fleet.drop(f"{PODS}/busy")
            desk.write(generation=3, scaleDown={"enabled": True, "unneededTime": "5m"})
            await asyncio.sleep(120)
            assert desk.fleet.nodes() == ["a1"]
            assert desk.fleet.traces() == {}

    async def test_simulate_keeps_soft_taints_of_another_autoscaler(self) -> None:
        desk = Desk()
        desk.fleet.group("a", "a1", unneeded=False)
        theirs = {"key": CANDIDATE, "value": "1", "effect": "PreferNoSchedule"}
        desk.fleet.edit(f"{NODES}/a1", spec={"taints": [theirs]})
        desk.write(mode="Simulate")
        async with desk.running():
            await asyncio.sleep(60)
        assert desk.fleet.spec("a1")["taints"] == [theirs]


@pytest.mark.parametrize("time", ["0001-01-01", "0001-01-01T00:00:00", "0001-01-01T00:00:00+14:00", "soon", ""])
async def test_invalid_record_stops_no_iteration(time: str) -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", "a2", unneeded=False)
    desk.fleet.edit(f"{NODES}/a1", metadata={"annotations": {SINCE: time}})
    desk.write(scaleDown={"enabled": True, "unneededTime": "5m"})
    async with desk.running():
        await asyncio.sleep(30)
        assert desk.condition("Degraded")[0] == "False", desk.status["conditions"]
        assert noted(desk, "a1")[SINCE] > "2020"


async def test_unhealthy_cluster_stops_a_drain() -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", unneeded=True)
    desk.fleet.group("b", *(f"b{number}" for number in range(9)), unneeded=False, least=9)
    desk.fleet.web("w1", "a1")
    desk.fleet.guard("web", 1)  # evictions are not allowed for now
    desk.fleet.frozen = True
    desk.fleet.edit(
        "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/web",
        status={"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1},
    )
    desk.write()
    async with desk.running():
        await desk.until(lambda: bool(desk.fleet.sent(path="eviction")), seconds=60)
        for number in range(8):
            desk.fleet.edit(f"{NODES}/b{number}", status={"conditions": [{"type": "Ready", "status": "Unknown"}]})
        await desk.until(lambda: desk.fleet.traces() == {}, seconds=30)
        assert desk.fleet.nodes()[0] == "a1"
        requested = len(desk.fleet.sent(path="eviction"))
        taint = {"key": "ToBeDeletedByClusterAutoscaler", "value": str(int(desk.clock.now())), "effect": "NoSchedule"}
        desk.fleet.edit(
            f"{NODES}/a1",
            spec={"taints": [taint]},
            metadata={"annotations": {"trimtab.dev/removing": taint["value"]}},
        )
        await asyncio.sleep(60)  # a removal of an earlier process is not resumed either
        assert desk.fleet.traces() == {}
        assert len(desk.fleet.sent(path="eviction")) == requested


class TestInvalidSizes:
    @pytest.mark.parametrize("replicas", [-3, 2**31 - 1], ids=["negative", "mistyped"])
    async def test_invalid_size_of_one_group_affects_no_other(self, replicas: int) -> None:
        desk = Desk()
        desk.makes = False
        desk.fleet.group("a", "a1", unneeded=False)
        desk.fleet.group("b", "b1", unneeded=False)
        desk.fleet.edit(f"{NODES}/b1", spec={"taints": [{"key": "own", "value": "", "effect": "NoSchedule"}]})
        desk.fleet.edit(f"{SETS}/b", spec={"replicas": replicas})
        desk.write(scaleDown={"enabled": False})
        async with desk.running():
            desk.wants(12)
            await desk.until(lambda: desk.fleet.replicas("a") == 3, seconds=30)
            await asyncio.sleep(10)
        targets = {each["id"].rpartition("/")[2]: each["target"] for each in desk.status["nodeGroups"]}
        assert targets == ({"a": 3} if replicas < 0 else {"a": 3, "b": replicas})

    async def test_huge_minimum_is_requested_without_simulating_each_node(self) -> None:
        desk = Desk()
        desk.makes = False
        desk.fleet.group("a", "a1", unneeded=False, least=10**9, most=2 * 10**9)
        desk.write(scaleDown={"enabled": False}, enforceNodeGroupMinSize="Enabled")
        async with desk.running():
            await desk.until(lambda: desk.fleet.replicas("a") == 10**9, seconds=30)
            await asyncio.sleep(2)


class TestDisruptionLock:
    async def test_try_acquire_does_not_wait_for_other_waiters(self) -> None:
        lock = asyncio.Lock()
        turn = DisruptionLock(lock, lambda: None)
        await lock.acquire()
        held = asyncio.Event()

        async def policy() -> None:
            async with lock:
                await held.wait()

        waiting = asyncio.create_task(policy())
        await asyncio.sleep(0)
        lock.release()  # and before the waiter has woken up:
        async with asyncio.timeout(1):
            assert await turn.try_acquire() is False
        held.set()
        await waiting
        assert await turn.try_acquire() is True
        turn.release()
        assert not lock.locked()


class TestDrainedNodes:
    async def test_pod_bound_during_catch_up_is_not_deleted_with_its_node(self) -> None:
        fleet = Fleet()
        fleet.group("a", "n1")
        fleet.deletes = False
        fleet.scale("a", 2)  # the machine controller is slow: the group has not caught up
        operator = Operator(fleet)
        async with running(operator):
            await operator.until(
                lambda: "n1" in operator.removals.active and operator.removals.active["n1"].phase is Phase.DRAINED
            )
            await asyncio.sleep(3)
            fleet.web("late", "n1")
            fleet.guard("web", 1)
            fleet.scale("a", 1)
            fleet.deletes = True
            await operator.until(lambda: bool(operator.outcomes))
            await asyncio.sleep(5)
        assert fleet.nodes() == ["n1"]
        assert fleet.lowest["web"] == 1
        assert fleet.traces() == {}
