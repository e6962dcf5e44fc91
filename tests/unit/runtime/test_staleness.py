"""An overdue plan or status is reported in the object's conditions without its controller, and withdrawn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.fakes.clock import LoopClock
from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import NAME
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.controller.loop import TaskSupervisor
from trimtab.controller.progress import PROGRESS_REGISTRY, PlanSchedule, Progress
from trimtab.controller.status_writer import StatusWriter
from trimtab.kube.api import ApiError, Conflict, NotFound, Unreachable
from trimtab.kube.resources import CLUSTER_AUTOSCALERS
from trimtab.runtime.health.staleness import PERIOD, StalenessReporter

pytestmark = pytest.mark.looptime
PATH = CLUSTER_AUTOSCALERS.path(NAME)
WELL = {
    "type": "Degraded",
    "status": "False",
    "reason": "AllWell",
    "message": "",
    "lastTransitionTime": "2026-11-20T12:00:00Z",
}
READY = {
    "type": "Ready",
    "status": "True",
    "reason": "IterationCompleted",
    "message": "",
    "lastTransitionTime": "2026-11-20T12:00:00Z",
}


class Server:
    """One ClusterAutoscaler."""

    def __init__(self) -> None:
        self.conditions: list[dict[str, Any]] = [READY, WELL]
        self.state = "IterationCompleted"
        self.version = 1
        self.failures: list[Exception] = []
        self.writes = 0

    async def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> Any:
        if self.failures:
            raise self.failures.pop(0)
        assert (method, path) in (("GET", CLUSTER_AUTOSCALERS.path()), ("PATCH", f"{PATH}/status"))
        if method == "PATCH":
            if body["metadata"]["resourceVersion"] != str(self.version):
                raise Conflict("written meanwhile", status=409)
            self.version += 1
            self.writes += 1
            self.conditions, self.state = body["status"]["conditions"], body["status"]["state"]
        found = {
            "metadata": {"name": NAME, "generation": 3, "resourceVersion": str(self.version)},
            "status": {"state": self.state, "conditions": self.conditions},
        }
        return found if method == "PATCH" else {"items": [found]}

    @property
    def reason(self) -> str:
        [found] = [each["reason"] for each in self.conditions if each["type"] == "Degraded"]
        return str(found)


class Case:
    def __init__(self) -> None:
        self.server = Server()
        self.progress = Progress(asyncio.get_running_loop().time)
        self.component = self.progress.component("autoscaler")
        self.component.plan_schedule = PlanSchedule(CLUSTER_AUTOSCALERS, NAME, 10.0)
        reporter = StalenessReporter(self.server, lambda: self.progress.components, LoopClock())  # type: ignore[arg-type]
        self.tasks = TaskSupervisor("supervisor", LoopClock())
        self.tasks.start_periodic("report stale plans and statuses", reporter.check, PERIOD)


async def test_a_planner_that_hangs_is_reported_once_and_withdrawn_when_it_has_planned() -> None:
    case = Case()
    case.component.begin()
    await asyncio.sleep(55)
    assert case.server.reason == "AllWell"
    await asyncio.sleep(30)
    assert (case.server.reason, case.server.state) == (reasons.PLAN_STALE, "Degraded")
    assert READY in case.server.conditions
    await asyncio.sleep(300)
    assert case.server.writes == 1
    case.component.succeed(due_in=10.0)
    await asyncio.sleep(PERIOD + 1)
    assert (case.server.conditions, case.server.state) == ([READY, WELL], "IterationCompleted")
    assert case.server.writes == 2
    await case.tasks.cancel()


class FailingWriter(StatusWriter[ClusterAutoscalerStatus]):
    """Writes a status of a ClusterAutoscaler, which the API server rejects."""

    async def _send(self, value: ClusterAutoscalerStatus) -> None:
        raise ApiError("too large", status=413)


async def test_rejected_status_is_reported_and_withdrawn_after_a_write() -> None:
    case = Case()
    PROGRESS_REGISTRY.set(case.progress)
    writer = FailingWriter(
        case.server,  # type: ignore[arg-type]
        LoopClock(),
        resource=CLUSTER_AUTOSCALERS,
        name=NAME,
        empty=ClusterAutoscalerStatus(),
    )
    case.component.succeed(due_in=10_000.0)
    for number in range(12):
        writer.put(ClusterAutoscalerStatus(observed_generation=number + 1))
        await asyncio.sleep(8)
        expected = "AllWell" if number < 8 else reasons.STATUS_STALE
        assert case.server.reason == expected
    [message] = [each["message"] for each in case.server.conditions if each["type"] == "Degraded"]
    assert "too large" in message
    writer._component.succeed()
    await asyncio.sleep(PERIOD + 1)
    assert (case.server.conditions, case.server.writes) == ([READY, WELL], 2)
    await writer.cancel()
    await case.tasks.cancel()


async def test_status_written_by_the_controller_takes_precedence() -> None:
    case = Case()
    case.component.begin()
    await asyncio.sleep(90)
    written = {**WELL, "status": "True", "reason": "IterationFailed"}
    case.server.conditions, case.server.version = [READY, written], 9
    case.component.succeed(due_in=10.0)
    await asyncio.sleep(PERIOD + 1)
    assert case.server.conditions == [READY, written]
    await case.tasks.cancel()


@pytest.mark.parametrize("failure", [Unreachable("x"), Conflict("x", status=409)], ids=["unreachable", "conflict"])
async def test_failed_report_is_retried(failure: Exception) -> None:
    case = Case()
    case.component.begin()
    case.server.failures = [failure, failure]
    await asyncio.sleep(90)
    assert case.server.reason == reasons.PLAN_STALE
    await case.tasks.cancel()


async def test_deleted_object_is_not_reported() -> None:
    case = Case()
    case.component.begin()
    await asyncio.sleep(90)
    case.server.failures = [NotFound("x", status=404)]
    case.component.succeed()
    await asyncio.sleep(3 * PERIOD)
    assert case.server.writes == 1
    assert not case.tasks.problems
    await case.tasks.cancel()
