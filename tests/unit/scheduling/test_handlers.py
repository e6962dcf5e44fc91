"""How Kopf's handlers start the scheduler and the controllers of SchedulerPolicies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import kopf
import pytest

from tests.fakes.daemon import Stopped
from trimtab.controller.kopf_handlers import CANCEL_TIMEOUT, STOP_TIMEOUT
from trimtab.scheduling import handlers
from trimtab.scheduling.dependencies import SchedulerDependencies


class Scheduler:
    """Records when it is started and stopped."""

    calls: list[str]

    def __init__(self, _dependencies: object) -> None:
        Scheduler.calls = []

    def start(self) -> None:
        self.calls.append("start")

    async def stop(self) -> None:
        self.calls.append("stop")


class Controller:
    """Records the versions of the policy that it gets."""

    made: list[Controller]

    def __init__(self, name: str, *_: object) -> None:
        self.name = name
        self.seen: list[int] = []
        self.ended = asyncio.Event()
        self.made.append(self)

    def observe(self, body: Any) -> None:
        self.seen.append(body["metadata"]["generation"])

    def end(self) -> None:
        self.ended.set()

    async def run(self, stopped: Stopped) -> None:
        ends = [asyncio.ensure_future(each) for each in (self.ended.wait(), stopped.wait())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for each in ends:
            each.cancel()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> kopf.OperatorRegistry:
    Controller.made = []
    monkeypatch.setattr(handlers, "Scheduler", Scheduler)
    monkeypatch.setattr(handlers, "SchedulerPolicyController", Controller)
    registry = kopf.OperatorRegistry()
    handlers.register(registry, cast("SchedulerDependencies", None))
    return registry


class Kopf:
    """Calls the handlers as Kopf does."""

    def __init__(self, registry: kopf.OperatorRegistry) -> None:
        [self.daemon] = registry._spawning.get_all_handlers()
        [event] = registry._watching.get_all_handlers()
        self._changed = cast("Callable[..., Awaitable[None]]", event.fn)
        self.stopped = Stopped()

    def body(self, uid: str, generation: int, **metadata: Any) -> dict[str, Any]:
        return {"metadata": {"name": "ours", "uid": uid, "generation": generation, **metadata}}

    async def start(self, uid: str) -> asyncio.Task[None]:
        run = cast("Callable[..., Any]", self.daemon.fn)
        work = run(body=self.body(uid, 1), name="ours", uid=uid, stopped=self.stopped)
        task = asyncio.create_task(work)
        await asyncio.sleep(0)
        return task

    async def event(self, uid: str, generation: int, event: str | None = "MODIFIED", **metadata: Any) -> None:
        await self._changed(body=self.body(uid, generation, **metadata), uid=uid, type=event)


async def test_scheduler_runs_as_long_as_the_operator(registry: kopf.OperatorRegistry) -> None:
    by_name = {
        handler.fn.__name__: cast("Callable[[], Awaitable[None]]", handler.fn)
        for handler in registry._activities.get_all_handlers()
    }
    assert set(by_name) == {"start_scheduler", "stop_scheduler"}
    await by_name["start_scheduler"]()
    assert Scheduler.calls == ["start"]
    await by_name["stop_scheduler"]()
    assert Scheduler.calls == ["start", "stop"]


def test_daemon_has_time_to_stop(registry: kopf.OperatorRegistry) -> None:
    daemon = Kopf(registry).daemon
    assert (daemon.cancellation_backoff, daemon.cancellation_timeout) == (STOP_TIMEOUT, CANCEL_TIMEOUT)


async def test_events_reach_the_controller_of_their_policy(registry: kopf.OperatorRegistry) -> None:
    calls = Kopf(registry)
    await calls.event("1", 1, None)  # before the daemon starts: it reads the same version
    old = await calls.start("1")
    await calls.event("1", 2)
    await calls.event("2", 7)  # created under the same name, before its daemon starts
    await calls.event("1", 3, deletionTimestamp="2026-11-22T00:00:00Z")  # Kopf stops the daemon
    new = await calls.start("2")
    await calls.event("2", 8)
    assert [each.seen for each in Controller.made] == [[1, 2], [1, 8]]
    calls.stopped.set()
    async with asyncio.timeout(5):
        await asyncio.gather(old, new)
    await calls.event("1", 4)
    assert Controller.made[0].seen == [1, 2], "the controller has ended"


async def test_policy_deleted_without_finalizer_is_stopped(registry: kopf.OperatorRegistry) -> None:
    calls = Kopf(registry)
    task, other = await calls.start("1"), await calls.start("2")
    await calls.event("1", 1, "DELETED")
    async with asyncio.timeout(5):
        await task
    assert not other.done()
    calls.stopped.set()
    await other
