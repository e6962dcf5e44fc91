"""The Kopf handlers of the ClusterAutoscaler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import kopf
import pytest

from trimtab.autoscaling import handlers
from trimtab.autoscaling.dependencies import AutoscalerDependencies
from trimtab.autoscaling.machine_autoscalers import handlers as machine_autoscaler_handlers
from trimtab.controller import kopf_handlers

NO_DEPENDENCIES = cast("AutoscalerDependencies", None)
Handler = Callable[..., Coroutine[Any, Any, None]]


class Controller:
    """Records the specs that it receives."""

    made: list[Controller]

    def __init__(self, services: AutoscalerDependencies) -> None:
        del services
        self.seen: list[str] = []
        self.cleaned = self.stopped = False
        self.end_ = asyncio.Event()
        self.made.append(self)

    def observe(self, body: Any) -> None:
        self.seen.append(body["metadata"]["uid"])

    def end(self) -> None:
        self.end_.set()

    async def run(self, stopped: object) -> None:
        del stopped
        await self.end_.wait()

    async def clean_up(self) -> None:
        self.cleaned = True

    async def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    Controller.made = []
    monkeypatch.setattr(handlers, "AutoscalerController", Controller)
    registry = kopf.OperatorRegistry()
    handlers.register(registry, NO_DEPENDENCIES)
    [daemon] = registry._spawning.get_all_handlers()
    events = {cast("Any", handler.fn).__name__: handler for handler in registry._watching.get_all_handlers()}
    [deletion] = registry._changing.get_all_handlers()
    return SimpleNamespace(
        daemon=daemon,
        run=cast("Handler", daemon.fn),
        changed=cast("Handler", events["changed"].fn),
        misnamed=events["misnamed"],
        deletion=deletion,
        deleted=cast("Handler", deletion.fn),
    )


def body(uid: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "default", "uid": uid, **metadata}}


def test_daemon_gets_time_before_it_is_cancelled(registered: SimpleNamespace) -> None:
    assert registered.daemon.cancellation_backoff == kopf_handlers.STOP_TIMEOUT
    assert registered.daemon.cancellation_timeout == kopf_handlers.CANCEL_TIMEOUT


def test_only_the_object_named_default_runs(registered: SimpleNamespace) -> None:
    for name, ours in (("default", True), ("other", False)):
        assert registered.daemon.when(name=name) is ours
        assert registered.deletion.when(name=name) is ours
        assert registered.misnamed.when(name=name) is not ours


async def test_changed_spec_is_passed_to_the_loop_unless_deleted(
    registered: SimpleNamespace,
) -> None:
    running = asyncio.create_task(registered.run(body=body("u1"), name="default", uid="u1", stopped=None))
    await asyncio.sleep(0)
    await registered.changed(body=body("u1"), uid="u1", type="MODIFIED")
    await registered.changed(body=body("u1", deletionTimestamp="now"), uid="u1", type="MODIFIED")
    await registered.changed(body=body("u2"), uid="u2", type="ADDED")
    assert Controller.made[0].seen == ["u1", "u1"]
    await registered.changed(body=body("u1"), uid="u1", type="DELETED")
    await running


async def test_finalizer_waits_until_markers_are_removed(
    registered: SimpleNamespace,
) -> None:
    running = asyncio.create_task(registered.run(body=body("u1"), name="default", uid="u1", stopped=None))
    await asyncio.sleep(0)
    with pytest.raises(kopf.TemporaryError):
        await registered.deleted(uid="u1")
    Controller.made[0].end()
    await running
    await registered.deleted(uid="u1")
    assert Controller.made[-1].cleaned
    assert Controller.made[-1].stopped
    assert not Controller.made[0].cleaned


async def test_events_of_machine_autoscalers_are_passed_to_their_controller() -> None:
    calls: list[tuple[str, bool]] = []

    class MachineAutoscalers:
        def start(self) -> None:
            calls.append(("start", False))

        async def stop(self) -> None:
            calls.append(("stop", False))

        def observe(self, body: Any, *, deleted: bool) -> None:
            calls.append((body["metadata"]["uid"], deleted))

    registry = kopf.OperatorRegistry()
    machine_autoscaler_handlers.register(registry, cast("Any", MachineAutoscalers()))
    activities = {
        cast("Any", each.fn).__name__: cast("Any", each.fn) for each in registry._activities.get_all_handlers()
    }
    [changed] = [cast("Handler", each.fn) for each in registry._watching.get_all_handlers()]
    await activities["start_machine_autoscalers"]()
    await changed(body=body("u1"), type="ADDED")
    await changed(body=body("u1"), type="DELETED")
    await activities["stop_machine_autoscalers"]()
    assert calls == [("start", False), ("u1", False), ("u1", True), ("stop", False)]
