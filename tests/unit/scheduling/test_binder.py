"""Bindings that fail, are cancelled, or wait for volumes. On a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.builders import node, pod, pv, pvc, storage_class
from tests.fakes.scheduler import SCHEDULER, SchedulerWorld
from tests.fakes.scheduler import plan_on_the_loop as plan_on_the_loop
from trimtab.kube.api import Conflict, Forbidden, NotFound, NotLeading, Unreachable
from trimtab.kube.objects import PersistentVolume, Pod
from trimtab.scheduling.binder import CONCURRENCY, LOST_ANSWER
from trimtab.scheduling.dependencies import AssumedVolume, VolumeBindingError

pytestmark = pytest.mark.looptime(start=0)


class SlowVolumes:
    """Binds the volumes of a pod in some seconds, or raises ``error`` then."""

    def __init__(self, world: SchedulerWorld, error: Exception | None = None, *, seconds: float = 1.0) -> None:
        self.error = error
        self.seconds = seconds
        self.completed = 0
        self.calls: list[tuple[str, str, list[str]]] = []
        world.volumes.bind = self.bind  # type: ignore[method-assign]

    async def bind(self, pod: Pod, node: str, assumed: Sequence[AssumedVolume]) -> None:
        self.calls.append((pod.key, node, [each.key for each in assumed]))
        await asyncio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        self.completed += 1


def pending(name: str = "a") -> Any:
    return pod(name).cpu("1").merge(spec={"schedulerName": SCHEDULER})


def large(name: str) -> Any:
    return node(name).merge(status={"allocatable": {"cpu": "400", "memory": "320Gi", "pods": "400"}})


def prepare(world: SchedulerWorld, *more: Any) -> None:
    """A pod whose claim waits for its only volume, and nodes."""
    local = storage_class("local", "kubernetes.io/no-provisioner")
    volume, claim = pv("disk").of_class("local").on("n1"), pvc("data", "shop").of_class("local")
    world.put(node("n1"), node("n2"), local, volume, claim, *more)


def reserved_for(world: SchedulerWorld) -> str:
    return world.caches.ask(lambda snapshot: snapshot.objects.of(PersistentVolume)["disk"].claim)


async def test_pod_is_bound_after_its_volumes_and_delays_no_other() -> None:
    async with SchedulerWorld() as world:
        volumes = SlowVolumes(world)
        prepare(world, pending().claim("data"), pending("plain"))
        await asyncio.sleep(0.5)
        assert set(world.reports.bound) == {"shop/plain"}
        assert volumes.calls == [("shop/a", "n1", ["disk"])]
        assert reserved_for(world) == "shop/data"
        await asyncio.sleep(1)
        assert world.reports.bound["shop/a"] == "n1"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (VolumeBindingError("timed out"), "binding volumes: timed out"),
        (Forbidden("not allowed", status=403), "binding volumes: not allowed"),
        (Unreachable("no route"), "binding volumes: no route"),
        (ZeroDivisionError("bug"), "binding volumes: ZeroDivisionError: bug"),
        (NotLeading("POST", "/binding"), ""),
    ],
)
async def test_pod_whose_volumes_are_not_bound_returns_to_the_queue_without_them(
    error: Exception, message: str
) -> None:
    async with SchedulerWorld() as world:
        volumes = SlowVolumes(world, error)
        prepare(world, pending().claim("data"))
        await asyncio.sleep(1.5)
        assert world.sent == []
        assert world.reports.failures == ([("shop/a", "n1", message)] if message else [])
        assert world.assumed_node("shop/a") == ""
        assert reserved_for(world) == ""
        volumes.error = None
        await asyncio.sleep(10)
        assert world.reports.bound == {"shop/a": "n1"}
        assert world.reports.attempts == {"shop/a": 2}


async def test_binding_that_waits_for_volumes_can_be_cancelled_once() -> None:
    async with SchedulerWorld() as world:
        SlowVolumes(world, VolumeBindingError("deleted"))
        prepare(world, pending().claim("data"))
        await asyncio.sleep(0.5)
        assert world.preemptions.cancel(world.pod("shop/a"))
        assert not world.preemptions.cancel(world.pod("shop/a"))
        assert world.assumed_node("shop/a") == ""
        world.stale = "disconnected"  # so that the pod is not planned again
        await asyncio.sleep(5)
        assert world.sent == []
        assert world.reports.failures == []
        assert world.scheduler.queue_counts(SCHEDULER).backoff + world.scheduler.queue_counts(SCHEDULER).active == 1


async def test_cancelled_wait_for_volumes_does_not_prevent_the_next_binding_of_the_pod() -> None:
    async with SchedulerWorld() as world:
        volumes = SlowVolumes(world, seconds=3)
        prepare(world, pending().claim("data"))
        await asyncio.sleep(0.5)
        assert world.preemptions.cancel(world.pod("shop/a"))
        await asyncio.sleep(2)  # the back-off is over, and the pod waits for its volumes again
        assert (len(volumes.calls), world.assumed_node("shop/a")) == (2, "n1")
        await asyncio.sleep(5)
        assert (volumes.completed, world.reports.bound) == (1, {"shop/a": "n1"})


async def test_cancelled_binding_does_not_prevent_the_next_binding_of_the_pod() -> None:
    async with SchedulerWorld(latency=2.5) as world:
        world.put(large("n1"), *(pending(f"p{number:03}") for number in range(2 * CONCURRENCY)))
        await asyncio.sleep(0.5)
        sent = {key for key, *_ in world.sent}
        assert len(sent) == CONCURRENCY
        cancelled = next(pod for pod in world.caches.pods.objects.values() if pod.key not in sent)
        assert world.preemptions.cancel(cancelled)
        await asyncio.sleep(2)  # the back-off is over, and the pod is queued behind its cancelled binding
        assert world.assumed_node(cancelled.key) == "n1"
        assert cancelled.key not in {key for key, *_ in world.sent}
        await asyncio.sleep(10)
        assert world.reports.bound == {f"shop/p{number:03}": "n1" for number in range(2 * CONCURRENCY)}
        assert world.reports.attempts[cancelled.key] == 2


async def test_stop_cancels_the_wait_for_volumes() -> None:
    async with SchedulerWorld() as world:
        volumes = SlowVolumes(world)
        prepare(world, pending().claim("data"))
        await asyncio.sleep(0.5)
        await world.scheduler.stop()
        await asyncio.sleep(5)
        assert len(volumes.calls) == 1
        assert world.sent == []
        assert world.reports.bound == {}


async def change_stale(world: SchedulerWorld) -> None:
    world.stale = "disconnected"


async def change_lease(world: SchedulerWorld) -> None:
    world.leading = False


async def remove_node(world: SchedulerWorld) -> None:
    world.caches.apply(world.caches.nodes.get("n1"), None)


async def bind_elsewhere(world: SchedulerWorld) -> None:
    world.bind_elsewhere("shop/a", "n2")


async def delete_pod(world: SchedulerWorld) -> None:
    world.delete("shop/a")


async def terminate_pod(world: SchedulerWorld) -> None:
    world.put(pending().claim("data").deleted())


@pytest.mark.parametrize("change", [change_stale, change_lease, remove_node, bind_elsewhere, delete_pod, terminate_pod])
async def test_binding_is_not_sent_after_a_change_that_makes_it_obsolete(
    change: Callable[[SchedulerWorld], Any],
) -> None:
    async with SchedulerWorld() as world:
        SlowVolumes(world)
        prepare(world, pending().claim("data"))
        await asyncio.sleep(0.5)
        await change(world)
        await asyncio.sleep(5)
        assert world.sent == []
        assert world.reports.bound == {}
        assert world.reports.failures == []


async def test_lost_answer_of_a_binding_that_the_watch_reports_needs_no_request() -> None:
    async def lose(_key: str, _node: str) -> None:
        raise Unreachable("timed out")

    async with SchedulerWorld(lag=0.01) as world:
        world.after = lose
        world.put(node("n1"), pending())
        await asyncio.sleep(5)
        assert len(world.sent) == 1
        assert world.reports.bound == {"shop/a": "n1"}


async def test_conflict_after_a_lost_answer_is_a_failure_if_another_scheduler_has_bound_the_pod() -> None:
    async def lose(key: str, _node: str) -> None:
        if len(world.sent) == 1:
            world._bound[key] = "n2"  # before this binding arrives; the watch does not report it yet
            raise Unreachable("timed out")

    async with SchedulerWorld() as world:
        world.before = lose
        world.put(node("n1"), node("n2").cordoned(), pending())
        await asyncio.sleep(0.5)
        assert world.reports.bound == {}
        assert world.reports.failures == [("shop/a", "n1", "pod shop/a is already assigned to node n2")]


async def test_requests_that_never_get_an_answer_end_with_a_failure() -> None:
    async def drop(_key: str, _node: str) -> None:
        raise Unreachable("no route")

    async with SchedulerWorld() as world:
        world.before = drop
        world.put(node("n1"), pending())
        await asyncio.sleep(20)
        first, *_ = world.reports.failures
        assert first == ("shop/a", "n1", "no route")
        assert len(world.sent) >= LOST_ANSWER.attempts * len(world.reports.failures)
        assert world.reports.bound == {}
        world.before = None
        await asyncio.sleep(20)
        assert world.reports.bound == {"shop/a": "n1"}
        assert world.reports.attempts["shop/a"] == len(world.reports.failures) + 1


async def test_stop_does_not_repeat_a_request_without_an_answer() -> None:
    async def drop(_key: str, _node: str) -> None:
        raise Unreachable("no route")

    async with SchedulerWorld(latency=1.0) as world:
        world.before = drop
        world.put(node("n1"), pending())
        await asyncio.sleep(0.5)
        await world.scheduler.stop()
        assert len(world.sent) == 1
        assert world.reports.failures == [("shop/a", "n1", "no route")]


@pytest.mark.parametrize(
    ("error", "failures"),
    [
        (ZeroDivisionError("bug"), [("shop/a", "n1", "ZeroDivisionError: bug")]),
        (Conflict("changed", status=409), [("shop/a", "n1", "changed")]),
        (NotFound("pod not found", status=404), []),
    ],
)
async def test_failed_binding_is_reported_unless_the_pod_was_deleted(
    error: Exception, failures: list[tuple[str, str, str]]
) -> None:
    async def fail(_key: str, _node: str) -> None:
        if len(world.sent) == 1:
            raise error

    async with SchedulerWorld() as world:
        world.before = fail
        world.put(node("n1"), pending())
        await asyncio.sleep(0.5)
        assert world.reports.failures == failures
        assert world.assumed_node("shop/a") == ""
        await asyncio.sleep(5)
        assert world.reports.bound == {"shop/a": "n1"}
