"""What every controller with one object reports: an invalid spec, a failed iteration, and when a status is written."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.fakes.api import FakeApi
from tests.fakes.clock import LoopClock
from trimtab.api import reasons
from trimtab.api.taint_manager import PodCounts, TaintManagerStatus
from trimtab.controller.reporter import MAX_MESSAGE_BYTES
from trimtab.controller.status_reporter import StatusReporter
from trimtab.controller.status_writer import StatusWriter, write_when
from trimtab.kube.errors import InputError
from trimtab.kube.resources import TAINT_MANAGERS

PATH = TAINT_MANAGERS.path("default")


def shown(status: dict[str, Any]) -> dict[str, tuple[str, str, int]]:
    return {each["type"]: (each["status"], each["reason"], each["observedGeneration"]) for each in status["conditions"]}


@pytest.mark.looptime(start=0)
async def test_invalid_spec_and_failed_iteration_are_reported() -> None:
    api = FakeApi()
    api.put(PATH, {"status": {}})
    writer = StatusWriter(api, LoopClock(), resource=TAINT_MANAGERS, name="default", empty=TaintManagerStatus())
    status = StatusReporter(writer, LoopClock(), reason=reasons.INVALID_TAINT_MANAGER, idle="nothing is done")
    status.resume({"counts": {"deleted": 7}})
    assert status.resumed.counts == PodCounts(deleted=7)

    status.invalid(InputError("x" * 5000), generation=2, counts=PodCounts(deleted=8))
    await asyncio.sleep(1)
    written = api.objects[PATH]["status"]
    assert shown(written) == {
        "Ready": ("False", "InvalidTaintManager", 2),
        "Progressing": ("False", "Idle", 2),
        "Degraded": ("True", "InvalidTaintManager", 2),
    }
    assert max(len(each["message"]) for each in written["conditions"]) <= MAX_MESSAGE_BYTES
    assert (written["observedGeneration"], written["counts"]["deleted"], written["state"]) == (2, 8, "Invalid")

    status.failed(ValueError("boom"), generation=3)
    await status.stop()
    written = api.objects[PATH]["status"]
    assert shown(written)["Ready"] == ("False", "IterationFailed", 3)
    assert shown(written)["Degraded"] == ("True", "IterationFailed", 3)
    assert status.resumed.counts == PodCounts(deleted=7)


@pytest.mark.parametrize(
    ("old", "new", "written", "due"),
    [
        pytest.param((1, "a"), (1, "a"), None, False, id="unchanged"),
        pytest.param((1, "a"), (2, "a"), None, True, id="never written"),
        pytest.param((1, "a"), (2, "a"), 95.0, False, id="not urgent"),
        pytest.param((1, "a"), (2, "a"), 90.0, True, id="after the period"),
        pytest.param((1, "a"), (2, "a"), 101.0, True, id="clock set back"),
        pytest.param((1, "a"), (1, "b"), 98.0, True, id="urgent"),
        pytest.param((1, "a"), (1, "b"), 99.5, False, id="urgent within the minimum"),
    ],
)
def test_urgent_changes_are_written_at_once(old: Any, new: Any, written: float | None, due: bool) -> None:
    rule: Any = write_when(lambda status: status[1], period=10.0, minimum=1.0)  # type: ignore[index,type-var]
    assert rule(old, new, written=written, now=100.0) is due
