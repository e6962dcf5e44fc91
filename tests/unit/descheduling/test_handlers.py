"""How Kopf is told to treat a policy's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import kopf
import pytest

from trimtab.cluster.live import LiveCluster, in_thread
from trimtab.descheduling import handlers
from trimtab.descheduling.services import Services

NOBODY = cast("Services", None)


class Controller:
    """Notes what it is shown."""

    made: list[Controller]

    def __init__(self, name: str, services: Services) -> None:
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
    handlers.register(registry, NOBODY)
    [daemon] = registry._spawning.get_all_handlers()
    event, _ = registry._watching.get_all_handlers()
    return daemon, cast("Any", event.fn)


def test_a_daemon_is_given_time_before_it_is_cancelled() -> None:
    daemon, _ = registered()
    assert daemon.cancellation_backoff == handlers.LONGEST_STOP
    assert daemon.cancellation_timeout == handlers.LONGEST_CANCEL


async def test_a_policy_that_was_deleted_and_made_again_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_a_policy_that_went_without_its_finalizer_does_not_live_on(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_a_cancelled_cycle_keeps_the_picture_until_the_planner_has_let_go() -> None:
    import threading

    live, go, planning = LiveCluster(), threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def plan() -> None:
        loop.call_soon_threadsafe(planning.set)
        assert go.wait(10)

    async def cycle() -> None:
        async with live.borrow():
            await in_thread(plan)

    task = asyncio.create_task(cycle())
    await planning.wait()
    task.cancel()
    await asyncio.sleep(0.05)
    with pytest.raises(RuntimeError, match="borrowed"):
        live.examine(lambda snapshot: snapshot)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    live.examine(lambda snapshot: snapshot)
