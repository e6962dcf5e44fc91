"""How Kopf's handlers start and stop the loop of a policy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import kopf
import pytest

from trimtab.cluster.shared_snapshot import SharedSnapshot, in_thread
from trimtab.controller import kopf_handlers
from trimtab.descheduling import handlers
from trimtab.descheduling.dependencies import DeschedulerDependencies

NO_DEPENDENCIES = cast("DeschedulerDependencies", None)


class Controller:
    """Notes what it is shown."""

    made: list[Controller]

    def __init__(self, name: str, services: DeschedulerDependencies) -> None:
        del services
        self.name = name
        self.seen: list[str] = []
        self.end_ = asyncio.Event()
        self.made.append(self)

    def observe(self, body: Any) -> None:
        self.seen.append(body["metadata"]["uid"])

    def end(self) -> None:
        self.end_.set()

    async def run(self, stopped: object) -> None:
        del stopped
        await self.end_.wait()


def registered() -> tuple[Any, Callable[..., Coroutine[Any, Any, None]]]:
    registry = kopf.OperatorRegistry()
    handlers.PolicyHandlers(NO_DEPENDENCIES).register_policies(registry)
    [daemon] = registry._spawning.get_all_handlers()
    [event] = registry._watching.get_all_handlers()
    return daemon, cast("Any", event.fn)


def test_daemon_has_time_to_stop() -> None:
    daemon, _ = registered()
    assert daemon.cancellation_backoff == handlers.LONGEST_STOP
    assert daemon.cancellation_timeout == kopf_handlers.CANCEL_TIMEOUT


async def test_recreated_policy_gets_new_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    Controller.made = []
    monkeypatch.setattr(handlers, "PolicyController", Controller)
    daemon, changed = registered()

    def body(uid: str) -> dict[str, Any]:
        return {"metadata": {"name": "web", "uid": uid}}

    old = asyncio.create_task(daemon.fn(body=body("1"), name="web", uid="1", stopped=None))
    await asyncio.sleep(0)
    await changed(body=body("2"), name="web", uid="2", type="MODIFIED")
    new = asyncio.create_task(daemon.fn(body=body("2"), name="web", uid="2", stopped=None))
    await asyncio.sleep(0)
    Controller.made[0].end()
    await old
    await changed(body=body("2"), name="web", uid="2", type="MODIFIED")
    Controller.made[1].end()
    await new
    assert [each.seen for each in Controller.made] == [["1"], ["2", "2"]]


async def test_policy_deleted_without_finalizer_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kopf stops daemons while a policy waits for its finalizer; where that was taken away it forgets them."""
    Controller.made = []
    monkeypatch.setattr(handlers, "PolicyController", Controller)
    daemon, changed = registered()
    body = {"metadata": {"name": "web", "uid": "1"}}
    task = asyncio.create_task(daemon.fn(body=body, name="web", uid="1", stopped=None))
    await asyncio.sleep(0)
    await changed(body=body, name="web", uid="1", type="DELETED")
    async with asyncio.timeout(5):
        await task


async def test_cancelled_cycle_holds_snapshot_until_planner_returns() -> None:
    import threading

    shared, go, planning = SharedSnapshot(), threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def plan() -> None:
        loop.call_soon_threadsafe(planning.set)
        assert go.wait(10)

    async def cycle() -> None:
        async with shared.borrow():
            await in_thread(plan)

    task = asyncio.create_task(cycle())
    await planning.wait()
    task.cancel()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), shared.borrow(short=True):
            pass
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(5), shared.borrow():
        pass
