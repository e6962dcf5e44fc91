"""How Kopf's handlers start the controllers of NodePressurePolicies, and clean up after deleted ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import kopf
import pytest

from tests.fakes.daemon import Stopped
from trimtab.pressure import handlers
from trimtab.pressure.dependencies import PressureDependencies


class Shared:
    """Records what the handlers call."""

    calls: list[str]

    def __init__(self, _dependencies: object) -> None:
        Shared.calls = []

    def start(self) -> None:
        self.calls.append("start")

    async def stop(self) -> None:
        self.calls.append("stop")

    async def remove_marks(self, uid: str) -> None:
        self.calls.append(f"unmark {uid}")


class Controller:
    """Runs until it is stopped."""

    def __init__(self, name: str, *_: object) -> None:
        self.name = name

    def observe(self, body: Any) -> None:
        assert body["metadata"]["name"] == self.name

    def end(self) -> None:
        raise AssertionError("the policy has a finalizer")

    async def run(self, stopped: Stopped) -> None:
        await stopped.wait()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> kopf.OperatorRegistry:
    monkeypatch.setattr(handlers, "PressureCoordinator", Shared)
    monkeypatch.setattr(handlers, "NodePressurePolicyController", Controller)
    made = kopf.OperatorRegistry()
    handlers.register(made, cast("PressureDependencies", None))
    return made


async def test_shared_tasks_run_as_long_as_the_operator(registry: kopf.OperatorRegistry) -> None:
    by_name = {
        str(getattr(handler.fn, "__name__", "")): cast("Callable[[], Awaitable[None]]", handler.fn)
        for handler in registry._activities.get_all_handlers()
    }
    await by_name["start_tasks"]()
    await by_name["stop_tasks"]()
    assert Shared.calls == ["start", "stop"]


async def test_marks_are_removed_after_the_loop_of_a_deleted_policy_has_ended(registry: kopf.OperatorRegistry) -> None:
    [daemon], [deletion] = registry._spawning.get_all_handlers(), registry._changing.get_all_handlers()
    run, delete = cast("Callable[..., Any]", daemon.fn), cast("Callable[..., Any]", deletion.fn)
    stopped = Stopped()
    body = {"metadata": {"name": "p", "uid": "u1", "generation": 1}}
    task = asyncio.create_task(run(body=body, name="p", uid="u1", stopped=stopped))
    await asyncio.sleep(0)
    with pytest.raises(kopf.TemporaryError):
        await delete(uid="u1")
    assert Shared.calls == []
    stopped.set()
    await task
    await delete(uid="u1")
    assert Shared.calls == ["unmark u1"]


async def test_policy_that_was_deleted_while_no_process_ran_is_cleaned_up(registry: kopf.OperatorRegistry) -> None:
    [deletion] = registry._changing.get_all_handlers()
    await cast("Callable[..., Any]", deletion.fn)(uid="u1")
    assert Shared.calls == ["unmark u1"]
