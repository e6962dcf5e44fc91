"""How Kopf is told to treat the ClusterAutoscaler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import kopf
import pytest

from trimtab.autoscaling import handlers
from trimtab.autoscaling.services import Services
from trimtab.kube import daemons

NOBODY = cast("Services", None)
Handler = Callable[..., Coroutine[Any, Any, None]]


class Controller:
    """Notes what it is shown."""

    made: list[Controller]

    def __init__(self, services: Services) -> None:
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
    handlers.register(registry, NOBODY)
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


def test_the_daemon_is_given_time_before_it_is_cancelled(registered: SimpleNamespace) -> None:
    assert registered.daemon.cancellation_backoff == daemons.LONGEST_STOP
    assert registered.daemon.cancellation_timeout == daemons.LONGEST_CANCEL


def test_only_the_one_that_is_named_default_is_run(registered: SimpleNamespace) -> None:
    for name, ours in (("default", True), ("other", False)):
        assert registered.daemon.when(name=name) is ours
        assert registered.deletion.when(name=name) is ours
        assert registered.misnamed.when(name=name) is not ours


async def test_a_new_spec_is_shown_to_the_loop_and_one_that_waits_for_its_end_is_not(
    registered: SimpleNamespace,
) -> None:
    running = asyncio.create_task(registered.run(body=body("u1"), uid="u1", stopped=None))
    await asyncio.sleep(0)
    await registered.changed(body=body("u1"), uid="u1", type="MODIFIED")
    await registered.changed(body=body("u1", deletionTimestamp="now"), uid="u1", type="MODIFIED")
    await registered.changed(body=body("u2"), uid="u2", type="ADDED")
    assert Controller.made[0].seen == ["u1", "u1"]
    await registered.changed(body=body("u1"), uid="u1", type="DELETED")
    await running


async def test_what_it_left_on_nodes_is_taken_away_before_it_is_gone_once_the_loop_has_ended(
    registered: SimpleNamespace,
) -> None:
    running = asyncio.create_task(registered.run(body=body("u1"), uid="u1", stopped=None))
    await asyncio.sleep(0)
    with pytest.raises(kopf.TemporaryError):
        await registered.deleted(uid="u1")
    Controller.made[0].end()
    await running
    await registered.deleted(uid="u1")
    assert Controller.made[-1].cleaned
    assert Controller.made[-1].stopped
    assert not Controller.made[0].cleaned
