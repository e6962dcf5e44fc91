"""The worked example of the architecture page: its planner, and the controller on virtual time."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import kopf
import pytest
from msgspec.structs import replace

from examples.controller.pending_pods import REPORTS, PendingPodController, plan, register
from tests.builders import pod
from tests.fakes.api import FakeApi
from tests.fakes.clock import START, LoopClock
from tests.fakes.daemon import Stopped
from tests.fakes.recorder import FakeRecorder
from trimtab.cluster.lister import Lister
from trimtab.kube.objects import Pod
from trimtab.kube.watching.store import Store

PAGE = Path("docs/architecture.md").read_text()


def pending(name: str, *, since: float) -> Pod:
    """A pending pod that was created so many seconds after the start."""
    return replace(pod(name).uid(f"uid-{name}").build(), created=START + since)


@pytest.mark.looptime(start=0)
class TestController:
    """The controller without an API server: events, status, and when it iterates."""

    @pytest.fixture(autouse=True)
    def set_up(self) -> None:
        self.api = FakeApi()
        self.recorder = FakeRecorder()
        self.pods: Store[Pod] = Store()
        self.stopped = Stopped()
        self.clock = LoopClock()

    def start(self, after: str) -> tuple[PendingPodController, asyncio.Task[None]]:
        self.api.put(REPORTS.path("default"), {"metadata": {"name": "default"}})
        lister = Lister(Store(), self.pods, Store())
        made = PendingPodController("default", api=self.api, lister=lister, recorder=self.recorder, clock=self.clock)
        made.observe(self.body(after, generation=1))
        return made, asyncio.create_task(made.run(self.stopped))

    def body(self, after: str, *, generation: int) -> dict[str, Any]:
        return {"metadata": {"name": "default", "uid": "report", "generation": generation}, "spec": {"after": after}}

    @property
    def status(self) -> dict[str, Any]:
        stored: dict[str, Any] = self.api.objects[REPORTS.path("default")].get("status") or {}
        return stored

    async def test_pod_is_reported_once_when_it_becomes_overdue(self) -> None:
        self.pods.replace([pending("web", since=-240.0)])
        _, running = self.start("5m")
        await asyncio.sleep(59)
        assert self.recorder.take() == []
        await asyncio.sleep(2)
        [(about, reason, _)] = self.recorder.take()
        assert ("web" in about, reason, self.status["overdue"]) == (True, "PendingTooLong", 1)
        await asyncio.sleep(600)
        assert self.recorder.take() == []
        self.stopped.set()
        await running

    async def test_changes_of_pods_and_of_the_spec_start_an_iteration(self) -> None:
        made, running = self.start("1h")
        await asyncio.sleep(600)
        assert self.status["overdue"] == 0
        self.pods.replace([pending("web", since=0.0)])
        made.observe(self.body("5m", generation=2))
        await asyncio.sleep(2)
        assert (self.status["overdue"], self.status["observedGeneration"]) == (1, 2)
        made.observe(self.body("soon", generation=3))
        await asyncio.sleep(2)
        [ready] = self.status["conditions"]
        assert (ready["status"], ready["reason"], ready["observedGeneration"]) == ("False", "InvalidSpec", 3)
        made.end()
        await asyncio.wait_for(running, 1.0)


def test_planner_returns_overdue_pods_and_the_next_time() -> None:
    bound = replace(pending("bound", since=0.0), node="n1")
    pods = [pending("b", since=0.0), pending("a", since=1.0), pending("new", since=50.0), bound]
    found = plan(pods, 60.0, now=START + 61.0)
    assert ([each.name for each in found.overdue], found.next_in) == (["a", "b"], 49.0)
    assert plan([bound], 60.0, now=START + 61.0) == plan([], 60.0, now=START)


def test_kopf_runs_it_for_its_kind() -> None:
    registry = kopf.OperatorRegistry()
    register(
        registry, api=FakeApi(), lister=Lister(Store(), Store(), Store()), recorder=FakeRecorder(), clock=LoopClock()
    )
    assert registry._spawning.has_handlers(kopf.Resource(REPORTS.group, REPORTS.version, REPORTS.plural))


@pytest.mark.parametrize("shown", [plan, PendingPodController._reconcile])
def test_page_shows_the_source(shown: Any) -> None:
    assert inspect.getsource(shown).strip() in PAGE
