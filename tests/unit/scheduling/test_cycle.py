"""The scheduler from the watch to the binding, on a virtual clock."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tests.builders import node, pod
from tests.fakes.scheduler import SCHEDULER, SchedulerWorld
from tests.fakes.scheduler import plan_on_the_loop as plan_on_the_loop
from trimtab.kube import time_slice
from trimtab.kube.api import Conflict, ServerError, TooManyRequests, Unreachable
from trimtab.kube.objects import PodSpec
from trimtab.placement.registry import DEFAULT, MOST_ALLOCATED
from trimtab.scheduling import cycle
from trimtab.scheduling.binder import CONCURRENCY

pytestmark = pytest.mark.looptime(start=0)


def sized(name: str, cpu: str = "4", pods: str = "110") -> Any:
    return node(name).merge(status={"allocatable": {"cpu": cpu, "memory": "32Gi", "pods": pods}})


def pending(name: str, cpu: str = "1", priority: int = 0, scheduler: str = SCHEDULER) -> Any:
    return pod(name).cpu(cpu).priority(priority).merge(spec={"schedulerName": scheduler})


async def test_pending_pods_are_bound_and_never_above_capacity() -> None:
    async with SchedulerWorld() as world:
        world.put(*(sized(f"n{number}") for number in range(5)), *(pending(f"p{number}") for number in range(25)))
        await asyncio.sleep(5)
        counts = [sum(on == f"n{number}" for on in world.reports.bound.values()) for number in range(5)]
        assert counts == [4] * 5
        assert len(world.sent) == len(world.reports.bound) == 20
        assert {each.pod.key for each in world.reports.rejects} == {
            key for key in world.caches.pods.objects if not world.node_of(key)
        }
        assert world.scheduler.queue_counts(SCHEDULER).unschedulable == 5


async def test_pods_of_other_schedulers_are_left_alone_but_count() -> None:
    async with SchedulerWorld() as world:
        foreign = pod("foreign").on("n1").cpu("3").merge(spec={"schedulerName": "default-scheduler"})
        world.put(sized("n1"), foreign, pending("other", scheduler="default-scheduler"), pending("a"), pending("b"))
        await asyncio.sleep(5)
        assert len(world.sent) == 1
        assert world.node_of("shop/other") == ""


async def test_cycle_pauses_between_evaluated_groups_and_between_rejected_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods of a storm have different templates, so each is a group of its own."""
    pauses: list[int] = []

    class UsedUpSlice:
        over = True

        async def pause(self) -> None:
            pauses.append(len(world.reports.rejects))
            await asyncio.sleep(0)

    monkeypatch.setattr(time_slice, "TimeSlice", UsedUpSlice)
    async with SchedulerWorld() as world:
        world.put(sized("n1"), *(pending(f"p{number}", cpu=str(5 + number)) for number in range(100)))
        await asyncio.sleep(1)
        assert len(world.reports.rejects) == 100
        assert set(range(1, 101)) <= set(pauses), "another task runs after each rejected pod"
        pauses.clear()
        world.put(sized("n1", cpu="4500m"))
        await asyncio.sleep(1)
        assert pauses == [100] * 100, "another task runs after each evaluated group"
        assert world.scheduler.queue_counts(SCHEDULER).unschedulable == 100


async def test_pod_deleted_during_its_plan_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def delete_meanwhile(work: Callable[[], Any]) -> Any:
        decisions = work()
        world.delete("shop/deleted")
        return decisions

    monkeypatch.setattr(cycle, "in_thread", delete_meanwhile)
    async with SchedulerWorld() as world:
        world.put(sized("n1"), pending("deleted", cpu="5"), pending("large", cpu="6"))
        await asyncio.sleep(1)
        assert [reject.pod.key for reject in world.reports.rejects] == ["shop/large"]
        assert world.preemptions.started == []


async def test_several_profiles_share_the_queue_in_order_of_priority() -> None:
    async with SchedulerWorld((SCHEDULER, DEFAULT), ("packing", MOST_ALLOCATED)) as world:
        world.stale = "starting"
        busy = pod("busy").on("n1").cpu("1")
        world.put(sized("n1"), sized("n2"), busy, pending("low"), pending("high", priority=5, scheduler="packing"))
        await asyncio.sleep(1)
        assert world.sent == []
        world.stale = None
        await asyncio.sleep(1)
        assert [key for key, *_ in world.sent] == ["shop/high", "shop/low"]
        assert world.reports.bound == {"shop/high": "n1", "shop/low": "n2"}


async def test_assumed_pod_keeps_its_place_while_it_is_updated() -> None:
    async with SchedulerWorld(latency=1.0) as world:
        world.put(sized("n1", cpu="1"), pending("a"))
        await asyncio.sleep(0.5)
        assert world.assumed_node("shop/a") == "n1"
        world.put(pending("a").merge(metadata={"annotations": {"x": "y"}}))
        assert world.assumed_node("shop/a") == "n1"
        world.put(pending("b"))
        await asyncio.sleep(3)
        assert world.reports.bound == {"shop/a": "n1"}
        assert [key for key, *_ in world.sent] == ["shop/a"]


async def test_refused_binding_returns_the_place_and_the_pod_is_retried() -> None:
    refusals = iter([Conflict("the pod is being changed", status=409), TooManyRequests("busy", status=429)])

    async def refuse(key: str, _node: str) -> None:
        error = next(refusals, None) if key == "shop/a" else None
        if error is not None:
            raise error

    async with SchedulerWorld() as world:
        world.before = refuse
        world.put(sized("n1", cpu="1"), pending("a"))
        await asyncio.sleep(0.5)
        assert world.assumed_node("shop/a") == ""
        assert len(world.reports.failures) == 1
        await asyncio.sleep(10)
        assert world.reports.bound == {"shop/a": "n1"}
        assert world.reports.attempts == {"shop/a": 3}


@pytest.mark.parametrize("error", [Unreachable("timed out"), ServerError("etcd timed out", status=500)])
async def test_lost_answer_is_no_second_binding(error: Exception) -> None:
    async def lose(_key: str, _node: str) -> None:
        if len(world.sent) == 1:
            raise error

    async with SchedulerWorld(lag=60.0) as world:
        world.after = lose
        world.put(sized("n1"), sized("n2"), pending("a"))
        await asyncio.sleep(30)
        assert len({on for _, _, on in world.sent}) == 1
        assert len(world.sent) == 2
        assert list(world.reports.bound) == ["shop/a"]
        assert world.reports.failures == []


async def test_request_that_never_arrived_is_sent_again_to_the_same_node() -> None:
    async def drop(_key: str, _node: str) -> None:
        if len(world.sent) < 3:
            raise Unreachable("connection refused")

    async with SchedulerWorld() as world:
        world.before = drop
        world.put(sized("n1"), sized("n2"), pending("a"))
        await asyncio.sleep(10)
        assert len({on for _, _, on in world.sent}) == 1
        assert list(world.reports.bound) == ["shop/a"]
        assert world.reports.attempts == {"shop/a": 1}


async def test_recreated_pod_is_not_bound_by_the_binding_of_the_old_one() -> None:
    async with SchedulerWorld(latency=1.0) as world:
        world.put(sized("n1"), pending("a").merge(metadata={"uid": "old"}))
        await asyncio.sleep(0.5)
        world.delete("shop/a")
        world.put(pending("a").merge(metadata={"uid": "new"}))
        await asyncio.sleep(5)
        assert [uid for _, uid, _ in world.sent] == ["old", "new"]
        assert world.reports.bound == {"shop/a": "n1"}
        assert world.reports.failures in ([], [("shop/a", "n1", "Precondition failed: UID old, actual new")])


async def test_pod_that_another_scheduler_binds_while_assumed_counts_there() -> None:
    async with SchedulerWorld(latency=1.0) as world:
        world.put(sized("n1", cpu="1"), pending("a"))
        await asyncio.sleep(0.5)
        world.put(sized("n2", cpu="1"))
        world.bind_elsewhere("shop/a", "n2")
        assert world.assumed_node("shop/a") == "n2"
        world.put(pending("b"))
        await asyncio.sleep(5)
        assert world.node_of("shop/a") == "n2"
        assert world.node_of("shop/b") == "n1"


async def test_deleted_pod_leaves_its_assumed_place() -> None:
    async with SchedulerWorld(latency=1.0) as world:
        world.put(sized("n1", cpu="1"), pending("a"))
        await asyncio.sleep(0.5)
        world.delete("shop/a")
        world.put(pending("b"))
        await asyncio.sleep(5)
        assert world.reports.bound == {"shop/b": "n1"}


async def test_gated_pod_waits_for_its_gates() -> None:
    async with SchedulerWorld() as world:
        world.put(sized("n1"), pending("a").merge(spec={"schedulingGates": [{"name": "quota"}]}))
        await asyncio.sleep(1)
        assert world.sent == []
        assert world.reports.gates == ["shop/a"]
        assert world.scheduler.queue_counts(SCHEDULER).gated == 1
        world.put(pending("a"))
        await asyncio.sleep(1)
        assert list(world.reports.bound) == ["shop/a"]


async def test_unschedulable_pod_is_retried_after_a_change_that_helps() -> None:
    async with SchedulerWorld() as world:
        world.put(sized("n1", cpu="1"), pending("a", cpu="2"))
        await asyncio.sleep(20)
        assert len(world.reports.rejects) == 1
        world.put(sized("n1", cpu="1").merge(metadata={"labels": {"x": "y"}}))
        await asyncio.sleep(20)
        assert len(world.reports.rejects) == 1
        world.put(sized("n2", cpu="2"))
        await asyncio.sleep(0.5)
        assert world.reports.bound == {"shop/a": "n2"}


async def test_stale_watches_stop_planning_and_binding() -> None:
    async with SchedulerWorld(latency=0.1) as world:
        world.put(sized("n1", cpu="400", pods="400"), *(pending(f"p{number:03}") for number in range(200)))
        await asyncio.sleep(0.15)
        world.stale = "disconnected"
        await asyncio.sleep(0.2)
        sent = len(world.sent)
        assert 0 < sent < 200
        await asyncio.sleep(5)
        assert len(world.sent) == sent
        world.stale = None
        await asyncio.sleep(30)
        assert len(world.reports.bound) == 200


async def test_lost_lease_stops_bindings() -> None:
    async with SchedulerWorld(latency=0.1) as world:
        world.leading = False
        world.put(sized("n1"), pending("a"))
        await asyncio.sleep(5)
        assert world.sent == []
        assert world.assumed_node("shop/a") == ""
        assert world.reports.failures == []


async def test_stop_finishes_bindings_in_flight_and_sends_no_more() -> None:
    async with SchedulerWorld(latency=1.0) as world:
        world.put(sized("n1", cpu="400", pods="400"), *(pending(f"p{number:03}") for number in range(200)))
        await asyncio.sleep(0.5)
        await world.scheduler.stop()
        assert world.in_flight == 0
        assert len(world.sent) == len(world.reports.bound) == CONCURRENCY
        assert world.most_in_flight == CONCURRENCY


async def test_profile_that_is_removed_leaves_its_pods_pending() -> None:
    async with SchedulerWorld() as world:
        world.put(sized("n1"))
        world.scheduler.remove_profile(SCHEDULER)
        world.put(pending("a"))
        await asyncio.sleep(5)
        assert world.sent == []
        world.scheduler.set_profile(SCHEDULER, DEFAULT)
        await asyncio.sleep(1)
        assert list(world.reports.bound) == ["shop/a"]


async def test_pod_that_breaks_the_plan_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = cycle.CyclePlanner._decide

    def break_for_poison(planner: Any, pod: Any) -> Any:
        if pod.name == "poison":
            raise ZeroDivisionError("poison")
        return plan(planner, pod)

    monkeypatch.setattr(cycle.CyclePlanner, "_decide", break_for_poison)
    async with SchedulerWorld() as world:
        world.put(sized("n1"), pending("a"), pending("poison", priority=1), pending("b"))
        await asyncio.sleep(0.5)
        assert set(world.reports.bound) == {"shop/a", "shop/b"}
        assert world.reports.failures[0] == ("shop/poison", "", "ZeroDivisionError: poison")


async def test_failed_cycle_loses_no_pod(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    make, failures = cycle.Placer, iter([MemoryError("no placer")])

    def fail_once(*args: Any) -> Any:
        error = next(failures, None)
        if error is not None:
            raise error
        return make(*args)

    monkeypatch.setattr(cycle, "Placer", fail_once)
    async with SchedulerWorld() as world:
        world.put(sized("n1"), pending("a"), pending("b"))
        await asyncio.sleep(5)
        assert set(world.reports.bound) == {"shop/a", "shop/b"}
    assert "no placer" in caplog.text


async def test_nominated_pod_keeps_its_place_from_lower_priorities() -> None:
    async with SchedulerWorld() as world:
        world.put(sized("n1", cpu="1"), pod("victim").on("n1").cpu("1"), pending("high", priority=9))
        await asyncio.sleep(0.5)
        (preemption, displaced, ended) = world.preemptions.started[0]
        assert (preemption.node, [each.name for each in preemption.victims], displaced) == ("n1", ["victim"], [])
        await asyncio.sleep(5)
        assert len(world.preemptions.started) == 1
        ended(True)
        world.delete("shop/victim")
        world.put(pending("low", priority=1))
        await asyncio.sleep(20)
        assert world.reports.bound == {"shop/high": "n1"}


async def test_withdrawn_nomination_is_not_renewed_by_an_older_version_of_the_pod() -> None:
    async with SchedulerWorld() as world:
        world.put(sized("n1", cpu="1"), pod("victim").on("n1").cpu("1"), pending("high", priority=9))
        await asyncio.sleep(0.5)
        pods, high = world.scheduler._pods, world.pod("shop/high")
        world.put(replace(high, nominated_node="n1"))
        pods.withdraw_nomination(high.uid)
        world.put(replace(high, nominated_node="n1"))
        assert pods.nominated() == []
        world.put(replace(high, nominated_node=""))
        world.put(replace(high, nominated_node="n2"))
        assert [each.nominated_node for each in pods.nominated()] == ["n2"], "another component nominates the pod"


async def test_pod_takes_the_place_of_a_nominated_pod_that_is_deleted() -> None:
    async with SchedulerWorld() as world:
        world.put(sized("n1", cpu="1"), pod("victim").on("n1").cpu("1"), pending("high", priority=9))
        await asyncio.sleep(0.5)
        world.delete("shop/victim")
        world.put(pending("low", priority=1))
        await asyncio.sleep(5)
        assert world.reports.bound == {}
        world.delete("shop/high")
        await asyncio.sleep(5)
        assert world.reports.bound == {"shop/low": "n1"}


async def test_pod_takes_the_place_of_a_nomination_that_is_withdrawn() -> None:
    async with SchedulerWorld() as world:
        elsewhere = pending("high", priority=9).merge(spec={"nodeSelector": {"disk": "none"}})
        world.put(sized("n1", cpu="1"), elsewhere.merge(status={"nominatedNodeName": "n1"}), pending("low", priority=1))
        await asyncio.sleep(5)
        assert world.preemptions.cleared == ["shop/high"]
        assert world.reports.bound == {"shop/low": "n1"}


async def test_failed_preemption_is_retried() -> None:
    async with SchedulerWorld() as world:
        world.put(sized("n1", cpu="1"), pod("victim").on("n1").cpu("1"), pending("high", priority=9))
        await asyncio.sleep(0.5)
        world.preemptions.started[0][2](False)
        await asyncio.sleep(5)
        assert len(world.preemptions.started) == 2


async def test_stored_nomination_of_a_failed_preemption_is_cleared_if_no_preemption_helps_any_more() -> None:
    async with SchedulerWorld() as world:
        world.put(sized("n1", cpu="1"), pod("victim").on("n1").cpu("1"), pending("high", priority=9))
        await asyncio.sleep(0.5)
        high = world.pod("shop/high")
        world.put(replace(high, nominated_node="n1"))
        world.delete("shop/victim")
        world.put(pod("higher").on("n1").cpu("1").priority(20))
        world.preemptions.started[0][2](False)
        await asyncio.sleep(5)
        assert world.preemptions.cleared == ["shop/high"]
        world.put(replace(high, nominated_node=""))
        world.put(sized("n2", cpu="500m"))
        await asyncio.sleep(20)
        assert world.preemptions.cleared == ["shop/high"]
        assert len(world.preemptions.started) == 1


async def test_binding_that_has_not_been_sent_can_be_cancelled() -> None:
    async with SchedulerWorld(latency=1.0) as world:
        world.put(sized("n1", cpu="400", pods="400"), *(pending(f"p{number:03}") for number in range(64)))
        await asyncio.sleep(0.5)
        sent = {key for key, *_ in world.sent}
        waiting = next(key for key in world.caches.pods.objects if key not in sent)
        assert not world.preemptions.cancel(world.pod(min(sent)))
        assert world.preemptions.cancel(world.pod(waiting))
        assert world.assumed_node(waiting) == ""
        await asyncio.sleep(5)
        assert len(world.sent) == len(world.reports.bound) == 64
        assert world.reports.attempts[waiting] == 2


async def test_specs_of_deleted_pods_are_not_kept() -> None:
    """Each of these pods has a spec of its own. The placer caches results for every spec."""
    async with SchedulerWorld() as world:
        world.put(
            sized("n1"), pending("waits", cpu="5"), *(pending(f"p{each}", cpu=str(6 + each)) for each in range(20))
        )
        await asyncio.sleep(1)
        specs = [reject.pod.spec for reject in world.reports.rejects if reject.pod.name != "waits"]
        planner = world.scheduler._planner
        world.reports.rejects.clear()
        for each in range(20):
            world.delete(f"shop/p{each}")
        await asyncio.sleep(1)
        async with world.caches.shared.borrow() as snapshot:
            snapshot.forget_removed()
        unused = [PodSpec(termination_grace_period=each) for each in range(20)]
        assert [sys.getrefcount(each) for each in specs] == [sys.getrefcount(each) for each in unused]
        assert world.scheduler._planner is planner
        world.put(sized("n1", cpu="5"))
        await asyncio.sleep(10)
        assert world.reports.bound == {"shop/waits": "n1"}
