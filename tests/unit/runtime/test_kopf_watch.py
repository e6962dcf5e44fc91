"""Changes that do not arrive at Kopf's handlers are a lack of progress."""

from __future__ import annotations

import asyncio
from typing import Any

import kopf
import pytest

from tests.fakes.clock import LoopClock
from trimtab.controller.progress import PROGRESS_REGISTRY, Progress
from trimtab.kube.api import Unreachable
from trimtab.kube.resources import TAINT_MANAGERS
from trimtab.runtime.health.kopf_watch import CHECK_PERIOD, KopfWatchCheck

pytestmark = pytest.mark.looptime


class Server:
    """Lists one object, whose version the test sets."""

    def __init__(self) -> None:
        self.version = 1
        self.deletion: str | None = None
        self.reachable = self.listed = True

    async def request(self, _method: str, _path: str, **_: Any) -> dict[str, Any]:
        if not self.reachable:
            raise Unreachable("no route")
        metadata = {"uid": "u1", "resourceVersion": str(self.version), "deletionTimestamp": self.deletion}
        return {"metadata": {"resourceVersion": "9"}, "items": [{"metadata": metadata}] * self.listed}


class Case:
    """A check, and the handler that Kopf would call."""

    def __init__(self) -> None:
        self.server = Server()
        self.progress = Progress(asyncio.get_running_loop().time)
        PROGRESS_REGISTRY.set(self.progress)
        self.check = check = KopfWatchCheck(self.server, TAINT_MANAGERS, LoopClock())  # type: ignore[arg-type]
        registry = kopf.OperatorRegistry()
        check.register(registry)
        [handler] = registry._watching._handlers
        self._handle: Any = handler.fn
        self.task = asyncio.create_task(check.run())

    async def arrives(self, version: int, type_: str | None = "MODIFIED") -> None:
        await self._handle(uid="u1", meta={"resourceVersion": str(version)}, type=type_)

    @property
    def inactive(self) -> float:
        [component] = self.progress.components
        return component.inactive_seconds()


async def test_versions_that_arrive_are_progress() -> None:
    case = Case()
    for version in range(1, 30):
        case.server.version = version
        await case.arrives(version)
        await asyncio.sleep(CHECK_PERIOD)
        assert case.inactive == 0.0
    case.task.cancel()


@pytest.mark.parametrize("arrived", [None, 4], ids=["nothing", "an older version"])
async def test_listed_version_that_does_not_arrive_is_no_progress(arrived: int | None) -> None:
    case = Case()
    case.server.version = 5
    if arrived is not None:
        await case.arrives(arrived)
    await asyncio.sleep(10 * CHECK_PERIOD)
    assert case.inactive > 7 * CHECK_PERIOD
    await case.arrives(6)
    await asyncio.sleep(CHECK_PERIOD)
    assert case.inactive == 0.0
    case.task.cancel()


async def test_object_that_does_not_change_is_not_late_after_an_outage() -> None:
    case = Case()
    await case.arrives(1, None)
    for reachable in (True, False, True):
        case.server.reachable = reachable
        await asyncio.sleep(5 * CHECK_PERIOD)
        assert case.inactive == 0.0
    case.task.cancel()


async def test_object_that_arrives_before_it_is_listed_is_not_late() -> None:
    case = Case()
    case.server.listed = False
    await case.arrives(1)
    await asyncio.sleep(CHECK_PERIOD)
    case.server.listed = True
    await asyncio.sleep(10 * CHECK_PERIOD)
    assert case.inactive == 0.0
    case.server.listed = False
    await case.arrives(1, "DELETED")
    await asyncio.sleep(10 * CHECK_PERIOD)
    assert case.inactive == 0.0
    assert case.check._arrived == {}
    case.task.cancel()


async def test_deletions_and_outages_are_not_reported() -> None:
    case = Case()
    case.server.version, case.server.deletion = 5, "2026-11-29T00:00:00Z"
    await asyncio.sleep(10 * CHECK_PERIOD)
    assert case.inactive == 0.0
    case.server.deletion, case.server.reachable = None, False
    await asyncio.sleep(10 * CHECK_PERIOD)
    assert case.inactive == 0.0
    case.task.cancel()
