"""The loop of one policy, on a virtual clock: when it runs, what it writes, how it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from tests.builders import node, pod
from tests.fakes.api import FakeApi
from tests.fakes.caches import Caches
from tests.fakes.clock import START, LoopClock
from tests.fakes.daemon import Stopped
from tests.fixtures.golden import Golden
from tests.unit.descheduling.planning import packing, policy
from trimtab.api.cluster_autoscaler import ClusterAutoscaler
from trimtab.api.descheduler_status import RUN_NOW
from trimtab.api.plan import Evict
from trimtab.api.scalars import to_time
from trimtab.api.waiting_evictions import WaitingEvictions
from trimtab.descheduling import cycle as cycles
from trimtab.descheduling.controller import PolicyController
from trimtab.descheduling.dependencies import DeschedulerDependencies
from trimtab.descheduling.policy_conflicts import PolicyRegistry
from trimtab.descheduling.report.metrics import DeschedulerMetrics
from trimtab.disruption.evictor import Evictor
from trimtab.disruption.evictor.requests import AUTOSCALER, DESCHEDULER, EvictionRequest, Requester
from trimtab.disruption.outcome import EVICTED, Outcome
from trimtab.disruption.shared_plans import SharedPlans
from trimtab.kube.api import NotFound, ServerError

PATH = "/apis/trimtab.dev/v1alpha1/deschedulerpolicies/default"
EVENING = [{"schedule": "0 20 * * *", "duration": "10m", "timeZone": "UTC"}]  # now it is 08:00

pytestmark = pytest.mark.looptime(start=0)


class FakeExecutor:
    """Grants everything, or what it is told to."""

    def __init__(self, clock: LoopClock, evictor: Evictor) -> None:
        self.clock = clock
        self.calls: list[dict[str, Any]] = []
        self.refusals: list[str] = []
        self.takes = 0.0
        self.reason = "Evicted"
        self.evictor = evictor

    async def execute(self, actions: Sequence[Evict], **arguments: Any) -> list[Outcome]:
        self.calls.append({"actions": actions, **arguments})
        stop = arguments["stop"]
        try:
            async with asyncio.timeout(self.takes):
                await stop.wait()
                self.refusals.append(arguments["stop_refusal"]().reason)
        except TimeoutError:
            pass
        result = EVICTED if self.reason == "Evicted" else "Skipped"
        outcomes = [Outcome(action, result, self.reason, "", self.clock.now()) for action in actions]
        for outcome in outcomes:
            arguments["observe"](outcome)
        return outcomes


class Recorder:
    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def event(self, regarding: object, **fields: Any) -> None:
        self.events.append(fields)


class Desk:
    """A controller with everything around it faked but the planner and the picture."""

    def __init__(self) -> None:
        self.api, self.clock, self.recorder = FakeApi(), LoopClock(), Recorder()
        self.caches = Caches()
        self.executor = FakeExecutor(self.clock, Evictor(clock=self.clock, view=self.caches.lister))
        self.registry = CollectorRegistry()
        self.wrong: str | None = None
        self.leads = True
        for each in (
            node("n1").allocatable(cpu="4", memory="8Gi", pods=110).build(),
            node("n2").allocatable(cpu="4", memory="8Gi", pods=110).build(),
            *(
                pod(f"web-{i}", namespace="shop").on("n1").owned_by("ReplicaSet", "web").phase("Running").build()
                for i in (1, 2)
            ),
        ):
            self.caches.apply(None, each)
        plans = SharedPlans()
        self.services = DeschedulerDependencies(
            api=self.api,
            shared=self.caches.shared,
            executor=self.executor,  # type: ignore[arg-type]
            recorder=self.recorder,  # type: ignore[arg-type]
            clock=self.clock,
            metrics=DeschedulerMetrics(self.registry),
            cycle_lock=asyncio.Lock(),
            stale=lambda: self.wrong,
            leading=lambda: self.leads,
            policies=PolicyRegistry(settings=plans.settings),
            shared_plans=plans,
        )
        self.controller = PolicyController("default", self.services)
        self.stopped = Stopped()

    def write(
        self, *, generation: int = 1, status: Any = None, annotations: dict[str, str] | None = None, **spec: Any
    ) -> None:
        body = {
            "apiVersion": "trimtab.dev/v1alpha1",
            "kind": "DeschedulerPolicy",
            "metadata": {"name": "default", "uid": "u1", "generation": generation, "annotations": annotations or {}},
            "spec": {"strategies": {"RemoveDuplicates": {"enabled": True}}, **spec},
            **({"status": status} if status else {}),
        }
        if PATH not in self.api.objects:
            self.api.put(PATH, body)
        self.controller.observe(body)

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.api.objects[PATH].get("status", {})
        return found

    def condition(self, type_: str) -> tuple[str, str]:
        found = next((c for c in self.status.get("conditions", ()) if c["type"] == type_), {})
        return found.get("status", ""), found.get("reason", "")

    @property
    def runs(self) -> float:
        return sum(
            sample.value
            for metric in self.services.metrics.cycles.collect()
            for sample in metric.samples
            if sample.name.endswith("_total") and sample.labels["result"] == "Completed"
        )

    @asynccontextmanager
    async def running(self):  # type: ignore[no-untyped-def]
        task = asyncio.create_task(self.controller.run(self.stopped))
        yield task
        self.stopped.set()
        async with asyncio.timeout(60):
            await task


@pytest.fixture(autouse=True)
def plan_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual clock does not wait for threads."""

    async def at_once(function: Any, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    monkeypatch.setattr(cycles.asyncio, "to_thread", at_once)


async def test_new_policy_runs_immediately_then_by_interval() -> None:
    desk = Desk()
    desk.write(interval="10m")
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.runs == 1
        assert desk.status["lastRun"]["planned"] == 1
        assert desk.status["nextRun"] == "2027-01-15T08:10:00Z"
        await asyncio.sleep(600)
        assert desk.runs == 2


async def test_progress_is_written_while_a_cycle_acts() -> None:
    desk = Desk()
    desk.write(mode="Act", interval="10m", status={"evicted": 7, "observedGeneration": 1})
    execute = desk.executor.execute

    async def slowly(actions: Sequence[Evict], **arguments: Any) -> list[Outcome]:
        await asyncio.sleep(8)
        outcomes = await execute(actions, **arguments)
        await asyncio.sleep(60)
        return outcomes

    desk.executor.execute = slowly  # type: ignore[method-assign]

    def shown() -> tuple[str, int, int, int]:
        status = desk.status
        last = status["lastRun"]
        return status["state"], last["planned"], last["evicted"], status["evicted"]

    async with desk.running():
        await asyncio.sleep(1)
        assert shown() == ("CycleRunning", 1, 0, 7)
        assert "completed" not in desk.status["lastRun"]
        await asyncio.sleep(10)
        assert shown() == ("CycleRunning", 1, 1, 8)
        writes = len(desk.api.sent("PATCH", "/status"))
        await asyncio.sleep(40)
        assert len(desk.api.sent("PATCH", "/status")) == writes, "nothing has changed since"
        await asyncio.sleep(30)
        assert shown() == ("Idle", 1, 1, 8)


async def test_failed_cycle_keeps_its_evictions_counted() -> None:
    desk = Desk()
    desk.write(mode="Act", interval="10m", status={"evicted": 7, "observedGeneration": 1})
    execute = desk.executor.execute

    async def fail(actions: Sequence[Evict], **arguments: Any) -> list[Outcome]:
        await execute(actions, **arguments)
        raise RuntimeError("a bug")

    desk.executor.execute = fail  # type: ignore[method-assign]
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.condition("Ready") == ("False", "CycleFailed")
        assert desk.status["evicted"] == 8


async def test_short_cycles_write_no_progress() -> None:
    desk = Desk()
    desk.write(mode="Act", interval="10m")
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.runs == 1
        assert len(desk.api.sent("PATCH", "deschedulerpolicies/default/status")) == 2, "the start and the end of acting"


async def test_run_now_starts_one_cycle_per_value() -> None:
    desk = Desk()
    desk.write(interval="10m")
    async with desk.running():
        await asyncio.sleep(60)
        assert (desk.runs, desk.status.get("runNow")) == (1, None)
        for _ in range(2):
            desk.write(interval="10m", annotations={RUN_NOW: "1"})
            await asyncio.sleep(60)
            assert (desk.runs, desk.status["runNow"]) == (2, "1")
        desk.write(interval="10m", annotations={RUN_NOW: "2"})
        await asyncio.sleep(60)
        assert (desk.runs, desk.status["runNow"]) == (3, "2")


async def test_run_now_is_not_repeated_after_restart() -> None:
    desk = Desk()
    last = {"time": "2027-01-15T07:59:00Z", "mode": "Simulate"}
    done = {"observedGeneration": 1, "lastRun": last, "runNow": "1"}
    desk.write(interval="10m", status=done, annotations={RUN_NOW: "1"})
    async with desk.running():
        await asyncio.sleep(60)
        assert desk.runs == 0
        desk.write(interval="10m", annotations={RUN_NOW: "2"})
        await asyncio.sleep(60)
        assert desk.runs == 1


@pytest.mark.parametrize(
    ("spec", "resumed"),
    [
        pytest.param({"suspend": True}, {"schedule": {"cron": "30 2 * * *"}}, id="suspended"),
        pytest.param({"mode": "Act", "windows": EVENING}, {"mode": "Act", "interval": "1h"}, id="outside its windows"),
    ],
)
async def test_run_now_waits_until_a_cycle_may_start(spec: dict[str, Any], resumed: dict[str, Any]) -> None:
    desk = Desk()
    desk.write(annotations={RUN_NOW: "1"}, **spec)
    async with desk.running():
        await asyncio.sleep(3600)
        assert (desk.runs, desk.executor.calls, desk.status.get("runNow")) == (0, [], None)
        desk.write(annotations={RUN_NOW: "1"}, generation=2, **resumed)
        await asyncio.sleep(60)
        assert (desk.runs, desk.status["runNow"]) == (1, "1")


async def test_simulate_reports_plan_without_evictions() -> None:
    desk = Desk()
    desk.write()
    async with desk.running():
        await asyncio.sleep(1)
    assert desk.executor.calls == []
    assert [event["reason"] for event in desk.recorder.events] == ["Simulated"]
    assert desk.condition("Ready") == ("True", "CycleCompleted")


async def test_evicted_counter_accumulates() -> None:
    desk = Desk()
    desk.write(mode="Act", status={"evicted": 7, "observedGeneration": 1})
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.status["evicted"] == 8
        assert (desk.executor.calls[0]["per_minute"], desk.executor.calls[0]["grace_period"]) == (30, None)


async def test_restart_waits_for_rest_of_interval() -> None:
    desk = Desk()
    last = {"time": "2027-01-15T07:55:00Z", "mode": "Simulate"}
    desk.write(interval="10m", status={"observedGeneration": 1, "lastRun": last})
    assert desk.clock.now() == START
    async with desk.running():
        await asyncio.sleep(290)
        assert desk.runs == 0
        await asyncio.sleep(20)
        assert desk.runs == 1


async def test_new_generation_stops_old_evictions_and_runs() -> None:
    desk = Desk()
    desk.executor.takes = 100.0
    desk.write(mode="Act", interval="10m")
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.condition("Progressing") == ("True", "CycleRunning")
        desk.write(mode="Simulate", interval="10m", generation=2)
        await asyncio.sleep(1)
        assert desk.executor.refusals == ["PolicyChanged"]
        assert desk.runs == 2
        assert desk.status["observedGeneration"] == 2
        assert desk.condition("Progressing") == ("False", "Idle")


async def test_unfinished_plan_is_continued_soon() -> None:
    desk = Desk()
    desk.executor.reason = "CycleDeadline"
    desk.write(mode="Act", interval="1h")
    async with desk.running():
        await asyncio.sleep(3)
        assert desk.runs >= 2


async def test_missed_schedule_is_skipped() -> None:
    desk = Desk()
    last = {"time": "2027-01-14T02:30:00Z", "mode": "Simulate"}
    desk.write(schedule={"cron": "30 2 * * *"}, status={"lastRun": last})  # now it is 08:00
    async with desk.running():
        await asyncio.sleep(60)
        assert desk.runs == 0
        assert desk.status["nextRun"] == "2027-01-16T02:30:00Z"
        await asyncio.sleep(18.5 * 3600)
        assert desk.runs == 1


def observed(desk: Desk) -> dict[str, int]:
    """Return the observedGeneration of each condition."""
    return {each["type"]: each["observedGeneration"] for each in desk.status["conditions"]}


@pytest.mark.parametrize(
    ("spec", "reason", "state"),
    [
        ({"schedule": {"cron": "30 2 * * *"}}, "WaitingForFirstCycle", "Idle"),
        ({"suspend": True}, "Suspended", "Suspended"),
        ({"mode": "Act", "windows": EVENING}, "OutsideWindows", "OutsideWindows"),
    ],
    ids=["schedule", "suspended", "window"],
)
async def test_valid_policy_without_due_cycle_is_ready_for_each_generation(
    spec: dict[str, Any], reason: str, state: str
) -> None:
    """``kubectl wait`` ignores conditions of earlier generations, and the first cycle may be hours away."""
    desk = Desk()
    desk.write(interval="soon")
    async with desk.running():
        await asyncio.sleep(1)
        assert (desk.condition("Ready"), desk.status["state"]) == (("False", "InvalidPolicy"), "Invalid")
        for generation in (2, 3):
            desk.write(generation=generation, **spec)
            await asyncio.sleep(1)
            assert desk.runs == 0
            assert desk.condition("Ready") == ("True", reason)
            assert desk.condition("Degraded") == ("False", "AllWell")
            assert desk.status["state"] == state
            assert desk.status["observedGeneration"] == generation
            assert observed(desk).items() >= {"Ready": generation, "Degraded": generation}.items()


async def test_edit_outside_windows_is_still_unrun_after_a_restart() -> None:
    """``observedGeneration`` is that of the spec, although no cycle of it has run: the window starts the first one."""
    last = {"time": "2027-01-15T07:55:00Z", "mode": "Act", "generation": 1}
    ready = {"type": "Ready", "status": "True", "reason": "CycleCompleted", "message": "", "observedGeneration": 1}
    ready["lastTransitionTime"] = last["time"]
    status: dict[str, Any] = {"observedGeneration": 1, "lastRun": last, "conditions": [ready]}
    for seconds, runs in ((60, 0), (12 * 3600, 1)):
        desk = Desk()
        desk.write(mode="Act", windows=EVENING, interval="24h", generation=2, status=status)
        async with desk.running():
            await asyncio.sleep(seconds)
            assert (desk.status["observedGeneration"], desk.runs) == (2, runs)
            status = desk.status


async def test_invalid_spec_is_reported_until_fixed() -> None:
    desk = Desk()
    desk.write(interval="soon")
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.condition("Ready") == ("False", "InvalidPolicy")
        assert desk.condition("Degraded") == ("True", "InvalidPolicy")
        assert "spec.interval" in next(c["message"] for c in desk.status["conditions"] if c["type"] == "Degraded")
        desk.write(interval="10m", generation=2)
        await asyncio.sleep(1)
        assert desk.condition("Ready") == ("True", "CycleCompleted")
        assert desk.condition("Degraded") == ("False", "AllWell")


async def test_a_suspended_policy_does_nothing_until_it_is_resumed() -> None:
    desk = Desk()
    desk.write(suspend=True)
    async with desk.running():
        await asyncio.sleep(3600)
        assert desk.runs == 0
        assert desk.condition("Progressing") == ("False", "Suspended")
        desk.write(generation=2)
        await asyncio.sleep(1)
        assert desk.runs == 1


async def test_failing_cycle_is_reported_and_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    good = cycles.plan_evictions

    def broken(*_args: Any, **_kwargs: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(cycles, "plan_evictions", broken)
    desk.write()
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.condition("Degraded") == ("True", "CycleFailed")
        monkeypatch.setattr(cycles, "plan_evictions", good)
        await asyncio.sleep(31)
        assert desk.condition("Degraded") == ("False", "AllWell")


async def test_stale_caches_prevent_planning_with_reason() -> None:
    desk = Desk()
    desk.wrong = "no word from the API server on pods"
    desk.write()
    async with desk.running():
        await asyncio.sleep(10)
        assert desk.runs == 0
        assert desk.condition("Degraded") == ("True", "ClusterUnreachable")
        desk.wrong = None
        await asyncio.sleep(1)
        assert desk.runs == 1
        assert desk.condition("Degraded") == ("False", "AllWell")


async def test_stop_ends_evictions_and_loop() -> None:
    desk = Desk()
    desk.executor.takes = 1000.0
    desk.write(mode="Act")
    async with desk.running() as task:
        await asyncio.sleep(1)
        desk.stopped.set()
        await asyncio.sleep(1)
        assert task.done()
    assert desk.executor.refusals == ["ShuttingDown"]
    assert desk.status["lastRun"]["completed"]


async def test_stop_does_not_wait_for_caches() -> None:
    desk = Desk()
    desk.wrong = "waiting for pods"
    desk.write()
    async with desk.running() as task:
        await asyncio.sleep(1)
        desk.stopped.set()
        await asyncio.sleep(1)
        assert task.done()


async def test_undecodable_status_counts_as_empty() -> None:
    desk = Desk()
    desk.write(status={"evicted": "many"})
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.runs == 1


@pytest.mark.parametrize("how", ["stopped", "ended"])
async def test_policy_waiting_for_lock_can_stop(how: str) -> None:
    desk = Desk()
    desk.write()
    await desk.services.cycle_lock.acquire()  # another policy acts, for minutes
    task = asyncio.create_task(desk.controller.run(desk.stopped))
    await asyncio.sleep(1)
    assert not task.done()
    desk.stopped.set() if how == "stopped" else desk.controller.end()
    async with asyncio.timeout(1):
        await task
    assert desk.services.cycle_lock.locked(), "it is not ours to give back"
    desk.services.cycle_lock.release()


async def test_spec_change_while_waiting_for_lock_releases_it() -> None:
    desk = Desk()
    desk.write(mode="Act", interval="1h")
    await desk.services.cycle_lock.acquire()
    async with desk.running():
        await asyncio.sleep(1)
        desk.services.cycle_lock.release()
        desk.write(mode="Simulate", interval="1h", generation=2)
        await asyncio.sleep(1)
        assert desk.executor.calls == []
        assert desk.runs == 1
        assert not desk.services.cycle_lock.locked()


async def test_cancelled_policy_releases_lock() -> None:
    desk = Desk()
    desk.executor.takes = 1000.0
    desk.write(mode="Act")
    task = asyncio.create_task(desk.controller.run(desk.stopped))
    await asyncio.sleep(1)
    assert desk.services.cycle_lock.locked()
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    assert not desk.services.cycle_lock.locked()


async def test_failed_status_write_is_retried_when_suspended() -> None:
    desk = Desk()
    desk.write(suspend=True)
    desk.api.fail(ServerError("ill", status=503), times=20, method="PATCH", path="/status")
    async with desk.running():
        await asyncio.sleep(15)
        assert desk.condition("Progressing") == ("", "")
        await asyncio.sleep(285)
        assert desk.condition("Progressing") == ("False", "Suspended")
        sent = len(desk.api.calls)
        await asyncio.sleep(600)
        assert len(desk.api.calls) == sent, "nothing is left to do"


async def test_status_of_deleted_suspended_policy_is_written_once() -> None:
    desk = Desk()
    desk.write(suspend=True)
    desk.api.fail(NotFound("gone", status=404), times=100, method="PATCH", path="/status")
    async with desk.running():
        await asyncio.sleep(600)
        assert len(desk.api.sent("PATCH", "/status")) == 1


CUT_SHORT = {
    "observedGeneration": 1,
    "lastRun": {"time": "2027-01-15T07:59:50Z", "mode": "Act", "generation": 2},
    "conditions": [
        {
            "type": "Progressing",
            "status": "True",
            "reason": "CycleRunning",
            "message": "evicting 9 pods",
            "lastTransitionTime": "2027-01-15T07:59:50Z",
            "observedGeneration": 2,
        }
    ],
}
"""What a process leaves that was killed while it acted, ten seconds ago."""


async def test_interrupted_cycle_counts_as_run() -> None:
    desk = Desk()
    desk.write(mode="Act", interval="1h", generation=2, status=CUT_SHORT)
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.condition("Progressing") == ("False", "Idle")
        assert desk.status["nextRun"] == "2027-01-15T08:59:50Z"
        await asyncio.sleep(3500)
        assert desk.runs == 0
        await asyncio.sleep(100)
        assert desk.runs == 1


def completed(generation: int) -> dict[str, Any]:
    """Return the status after a cycle of a generation that ended ten minutes ago."""
    time = "2027-01-15T07:50:00Z"
    ready = {"type": "Ready", "status": "True", "reason": "CycleCompleted", "message": "", "lastTransitionTime": time}
    last = {"time": time, "completed": time, "mode": "Act", "generation": generation}
    return {
        "observedGeneration": generation,
        "lastRun": last,
        "conditions": [{**ready, "observedGeneration": generation}],
    }


@pytest.mark.parametrize(
    ("generation", "status"),
    [pytest.param(1, None, id="first cycle"), pytest.param(2, completed(1), id="first cycle of an edited policy")],
)
@pytest.mark.parametrize("interval", ["5s", "1h"])
async def test_killed_cycle_is_not_repeated_by_any_number_of_restarts(
    generation: int, status: Any, interval: str
) -> None:
    """In a crash loop, every repeated cycle would evict another ``perCycle`` pods, and exceed ``perMinute``."""
    for restart in range(4):
        desk = Desk()
        desk.executor.takes = 1000.0
        desk.write(mode="Act", interval=interval, generation=generation, status=status)
        async with desk.running():
            await asyncio.sleep(3)
            assert len(desk.executor.calls) == (restart == 0)
            assert desk.status.get("observedGeneration", 0) == (generation if restart else generation - 1)
            status = msgspec.json.decode(msgspec.json.encode(desk.status))  # as it is when the process is killed


EVICTED_JUST_NOW = {
    "observedGeneration": 1,
    "lastEvictions": [
        {"namespace": "shop", "pod": "web", "strategy": "x", "reason": "y", "time": "2027-01-15T07:59:40Z"}
    ],
}


@pytest.mark.parametrize(
    ("status", "seconds"),
    [pytest.param(CUT_SHORT, 60, id="killed"), pytest.param(EVICTED_JUST_NOW, 41.5, id="stopped in good order")],
)
async def test_per_minute_limit_survives_restart(status: dict[str, Any], seconds: float) -> None:
    desk = Desk()
    desk.write(mode="Act", interval="5s", generation=2, status=status)
    async with desk.running():
        await asyncio.sleep(seconds - 1)
        assert desk.executor.calls == []
        await asyncio.sleep(2)
        assert len(desk.executor.calls) == 1


@pytest.mark.parametrize("spec", [{"interval": "10m"}, {"schedule": {"cron": "*/10 * * * *"}}], ids=str)
async def test_future_last_run_does_not_stop_loop(spec: dict[str, Any]) -> None:
    desk = Desk()
    last = {"time": "2030-01-01T00:00:00Z", "mode": "Simulate"}
    desk.write(status={"observedGeneration": 1, "lastRun": last}, **spec)
    async with desk.running():
        await asyncio.sleep(601)
        assert desk.runs == 1


async def test_clock_change_while_sleeping_is_noticed() -> None:
    desk = Desk()
    desk.write(schedule={"cron": "30 9 * * *"})  # now it is 08:00
    async with desk.running():
        await asyncio.sleep(1)
        desk.clock.skew = 5390.0
        await asyncio.sleep(45)
        assert desk.runs == 1


async def test_failed_scheduled_cycle_waits_for_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    tries = []

    def fail(*args: object, **kwargs: object) -> None:
        tries.append(desk.clock.now())
        raise ValueError("no luck")

    monkeypatch.setattr(cycles, "plan_evictions", fail)
    desk.write(schedule={"cron": "1 8 * * *"})
    async with desk.running():
        await asyncio.sleep(3600)
        assert len(tries) == 1
        assert desk.condition("Degraded") == ("True", "CycleFailed")


async def test_deleted_policy_has_no_series() -> None:
    desk = Desk()
    desk.write(mode="Act")
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.runs == 1
    samples = [each for metric in desk.registry.collect() for each in metric.samples]
    assert [each for each in samples if each.labels.get("policy")] == []


@pytest.mark.parametrize(
    ("node_name", "reason"),
    [("n2", "PlanOutdated"), ("n1", None)],
    ids=["the pod went elsewhere", "still where it was"],
)
async def test_eviction_is_rechecked_before_execution(node_name: str, reason: str | None) -> None:
    desk = Desk()
    desk.write(mode="Act")
    async with desk.running():
        await asyncio.sleep(1)
    recheck = desk.executor.calls[0]["recheck"]
    action = Evict("default", "RemoveDuplicates", "shop", "web-1", "n1", "n2", "DuplicateOnNode", "")
    old = desk.caches.lister.pod("shop/web-1")
    moved = pod("web-1", namespace="shop").on(node_name).owned_by("ReplicaSet", "web").phase("Running").build()
    desk.caches.apply(old, moved)
    refusal = await recheck(action)
    assert (refusal.reason if refusal else None) == reason


async def test_eviction_without_feasible_node_is_skipped() -> None:
    desk = Desk()
    desk.write(mode="Act")
    async with desk.running():
        await asyncio.sleep(1)
    recheck = desk.executor.calls[0]["recheck"]
    desk.caches.apply(None, node("n2").allocatable(cpu="4", memory="8Gi", pods=110).cordoned().build())
    refusal = await recheck(Evict("default", "RemoveDuplicates", "shop", "web-1", "n1", "n2", "DuplicateOnNode", ""))
    assert refusal.reason == "NoPlace"
    assert "1 node(s) were unschedulable" in refusal.message


@pytest.mark.parametrize(
    ("strategy", "target", "phase", "reason"),
    [
        pytest.param("RemoveDuplicates", "n2", "Running", "NoPlace", id="another node is needed"),
        pytest.param("PodLifeTime", "n1", "Running", None, id="the pod's own node fits"),
        pytest.param("PodLifeTime", "n2", "Running", None, id="the pod's own node is used instead of another"),
        pytest.param("RemoveFailedPods", "", "Failed", None, id="no node is needed"),
    ],
)
async def test_restarts_and_deletions_need_no_other_node(
    strategy: str, target: str, phase: str, reason: str | None
) -> None:
    desk = Desk()
    desk.write(mode="Act")
    async with desk.running():
        await asyncio.sleep(1)
    recheck = desk.executor.calls[0]["recheck"]
    desk.caches.apply(None, node("n2").allocatable(cpu="4", memory="8Gi", pods=110).cordoned().build())
    pods = pod("web-1", namespace="shop").on("n1").owned_by("ReplicaSet", "web").phase(phase)
    desk.caches.apply(desk.caches.lister.pod("shop/web-1"), pods.build())
    refusal = await recheck(Evict("default", strategy, "shop", "web-1", "n1", target, "Any", ""))
    assert (refusal.reason if refusal else None) == reason


async def test_expired_lease_stops_evictions() -> None:
    desk = Desk()
    desk.write(mode="Act")
    async with desk.running():
        await asyncio.sleep(1)
    recheck = desk.executor.calls[0]["recheck"]
    action = Evict("default", "RemoveDuplicates", "shop", "web-1", "n1", "n2", "DuplicateOnNode", "")
    assert await recheck(action) is None
    desk.leads = False
    assert (await recheck(action)).reason == "LeaseLost"


FILL = policy(packing({"cpu": 20}), "fill")


def levelling(desk: Desk, **spec: Any) -> None:
    """Write a policy that moves one of n1's two pods to n2: of 110 pods each is 0.9 %."""
    thresholds = {"thresholds": {"pods": 0.5}, "targetThresholds": {"pods": 1}}
    strategies = {"LowNodeUtilization": {"params": {"nodeResourceUtilizationThresholds": thresholds}}}
    desk.write(strategies=strategies, **spec)


async def test_conflicting_policy_does_not_act_and_reports_conflict(golden: Golden) -> None:
    desk = Desk()
    desk.services.policies.update("fill", "u2", FILL)
    levelling(desk, mode="Act")
    async with desk.running():
        await asyncio.sleep(3600)
        assert desk.runs == 0
        assert desk.executor.calls == []
        assert desk.condition("Ready") == ("False", "PolicyConflict")
        assert desk.condition("Degraded") == ("True", "PolicyConflict")
        message = next(c["message"] for c in desk.status["conditions"] if c["type"] == "Degraded")
        golden(message)
        golden(message, "2")
        assert "nextRun" not in desk.status


async def test_resolved_conflict_resumes_policy() -> None:
    desk = Desk()
    desk.services.policies.update("fill", "u2", FILL)
    levelling(desk)
    async with desk.running():
        await asyncio.sleep(10)
        desk.services.policies.forget("fill", "u2")
        await asyncio.sleep(1)
        assert desk.runs == 1
        assert desk.condition("Ready") == ("True", "CycleCompleted")
        assert desk.condition("Degraded") == ("False", "AllWell")


async def test_resolved_conflict_does_not_advance_next_cycle() -> None:
    desk = Desk()
    levelling(desk, interval="10m")
    async with desk.running():
        await asyncio.sleep(60)
        desk.services.policies.update("fill", "u2", FILL)
        await asyncio.sleep(60)
        assert desk.condition("Degraded") == ("True", "PolicyConflict")
        desk.services.policies.forget("fill", "u2")
        await asyncio.sleep(60)
        assert desk.runs == 1
        assert desk.condition("Ready") == ("Unknown", "WaitingForFirstCycle")
        assert desk.condition("Degraded") == ("False", "AllWell")
        await asyncio.sleep(450)
        assert desk.runs == 2


async def test_new_generation_runs_at_once_after_its_conflict_is_resolved() -> None:
    desk = Desk()
    levelling(desk, interval="10m")
    async with desk.running():
        await asyncio.sleep(60)
        desk.services.policies.update("fill", "u2", FILL)
        levelling(desk, interval="11m", generation=2)
        await asyncio.sleep(60)
        assert desk.runs == 1
        desk.services.policies.forget("fill", "u2")
        await asyncio.sleep(60)
        assert desk.runs == 2


async def test_new_conflict_stops_evictions() -> None:
    desk = Desk()
    desk.executor.takes = 1000.0
    levelling(desk, mode="Act", interval="10m")
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.condition("Progressing") == ("True", "CycleRunning")
        desk.services.policies.update("fill", "u2", FILL)
        await asyncio.sleep(1)
        assert desk.executor.refusals == ["PolicyChanged"]
        assert desk.condition("Degraded") == ("True", "PolicyConflict")
        await asyncio.sleep(3600)
        assert len(desk.executor.calls) == 1


async def test_no_cycle_before_policies_are_listed() -> None:
    """Of two policies that oppose each other one is shown first when the operator starts."""
    desk = Desk()
    other = {"metadata": {"name": "fill", "uid": "u2"}, "spec": {"strategies": packing({"cpu": 20})}}
    desk.api.put(
        PATH.replace("default", "fill"), {"apiVersion": "trimtab.dev/v1alpha1", "kind": "DeschedulerPolicy", **other}
    )
    levelling(desk, mode="Act")
    async with desk.running():
        await asyncio.sleep(3600)
        assert desk.executor.calls == []
        assert desk.condition("Degraded") == ("True", "PolicyConflict")


async def test_deleted_policy_causes_no_conflict() -> None:
    desk = Desk()
    levelling(desk)
    desk.services.policies.update("fill", "u2", FILL)
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.services.policies.conflicts_of("fill")
    assert desk.services.policies.conflicts_of("fill") == ()


@pytest.mark.parametrize(("mode", "planned"), [("Act", 0), ("Simulate", 1)])
async def test_moves_of_acting_peers_are_not_undone(mode: str, planned: int) -> None:
    desk = Desk()
    for name, owner, cpu in (("web-2", "web", "1m"), ("db-1", "db", "3")):
        there = pod(name, namespace="shop").on("n2").owned_by("ReplicaSet", owner).cpu(cpu).phase("Running")
        desk.caches.apply(None, there.build())
    desk.services.policies.update("apart", "u2", policy({"RemoveDuplicates": {}}, "apart", mode=mode))
    desk.write(strategies=packing({"cpu": 40}))
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.status["lastRun"]["planned"] == planned
        recorded = [each["message"] for each in desk.status.get("kept", ())]
        assert any("(RemoveDuplicates of policy apart)" in each for each in recorded) == (planned == 0), recorded


@pytest.mark.parametrize(
    ("timing", "first"),
    [
        pytest.param({}, "2027-01-15T20:00:00Z", id="with an interval, as the window opens"),
        pytest.param({"schedule": {"cron": "5 * * * *"}}, "2027-01-15T20:05:00Z", id="at a scheduled time within it"),
    ],
)
async def test_acting_policy_waits_for_window(timing: Any, first: str, golden: Golden) -> None:
    desk = Desk()
    desk.write(mode="Act", windows=EVENING, **timing)
    async with desk.running():
        await asyncio.sleep(3600)
        assert desk.runs == 0
        assert desk.status["nextRun"] == first
        assert desk.condition("Progressing") == ("False", "OutsideWindows")
        messages = [each["message"] for each in desk.status["conditions"] if each["type"] == "Progressing"]
        golden("\n".join(messages))
        await asyncio.sleep(11 * 3600 + 330)
        assert desk.executor.calls
        assert desk.condition("Progressing") == ("False", "Idle")
        done = desk.runs
        await asyncio.sleep(3600)  # the window has closed
        assert desk.runs <= done + 1
        assert desk.condition("Progressing") == ("False", "OutsideWindows")
        assert desk.status["nextRun"] == first.replace("15T", "16T")


async def test_simulating_policy_ignores_windows() -> None:
    desk = Desk()
    desk.write(mode="Simulate", windows=EVENING)
    async with desk.running():
        await asyncio.sleep(60)
        assert desk.runs == 1
        assert desk.condition("Progressing") == ("False", "Idle")


async def test_closing_window_stops_evictions() -> None:
    desk = Desk()
    desk.executor.reason, desk.executor.takes = "WindowClosed", 60.0
    desk.write(mode="Act", windows=[{"schedule": "0 8 * * *", "duration": "1m"}])  # it has just opened
    async with desk.running():
        await asyncio.sleep(30)
        [call] = desk.executor.calls
        assert call["deadline"] == pytest.approx(60.0, abs=1.0)
        assert call["deadline_refusal"].reason == "WindowClosed"
        await asyncio.sleep(3600)
        assert len(desk.executor.calls) == 1
        assert desk.status["nextRun"] == "2027-01-16T08:00:00Z"


async def test_missing_metrics_degrade_policy_without_stopping_it() -> None:
    desk = Desk()
    marks = {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}}
    params = {"nodeResourceUtilizationThresholds": marks, "metricsUtilization": {"source": "KubernetesMetrics"}}
    desk.write(strategies={"LowNodeUtilization": {"enabled": True, "params": params}})
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.runs == 1
        assert desk.condition("Degraded") == ("True", "UsageNotMeasured")
        assert {each["reason"] for each in desk.status["kept"]} == {"NotMeasured"}


async def test_reservations_are_shared_only_while_acting() -> None:
    desk = Desk()
    desk.executor.takes, desk.executor.reason = 10.0, "Skipped"
    desk.write(mode="Act")
    plans, clock = desk.services.shared_plans, desk.clock
    async with desk.running():
        await asyncio.sleep(1)
        (move,) = plans.moves(now=clock.now())
        assert (move.pod, move.node, move.target, move.policy) == ("shop/web-1", "n1", "n2", "default")
        await asyncio.sleep(10)
        assert plans.moves(now=clock.now()) == ()


async def test_unneeded_nodes_are_shared_before_they_are_tainted() -> None:
    desk = Desk()
    desk.caches.apply(None, node("n3").allocatable(cpu="4", memory="8Gi", pods=110).build())
    desk.services.shared_plans.unneeded = {"n2": 0.0}
    desk.write(mode="Act")
    async with desk.running():
        await asyncio.sleep(1)
    assert [action.target for call in desk.executor.calls for action in call["actions"]] == ["n3"]


async def test_settings_conflict_sets_condition_only() -> None:
    desk = Desk()
    levelling = {
        "enabled": True,
        "params": {"nodeResourceUtilizationThresholds": {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}}},
    }
    desk.write(strategies={"LowNodeUtilization": levelling})
    settings = desk.services.shared_plans.settings
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.condition("Conflicting") == ("", "")
        settings.set_autoscaler(msgspec.convert({"metadata": {"name": "default"}}, ClusterAutoscaler))
        await asyncio.sleep(1)
        assert desk.condition("Conflicting") == ("True", "SettingsConflict")
        assert desk.condition("Ready") == ("True", "CycleCompleted")
        settings.set_autoscaler(None)
        await asyncio.sleep(1)
        assert desk.condition("Conflicting") == ("False", "NoConflict")


async def test_cycles_that_plan_no_eviction_log_nothing_at_info_or_above(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    desk = Desk()
    desk.caches.apply(desk.caches.lister.pod("shop/web-2"), None)
    desk.write(mode="Act", interval="10s")
    async with desk.running():
        await asyncio.sleep(600)
        assert desk.runs >= 50
    assert not [record.getMessage() for record in caplog.records]


async def test_waiting_evictions_are_reported_while_acting(golden: Golden) -> None:
    desk, blocked = Desk(), True
    pod = desk.caches.lister.pod("shop/web-1")
    assert pod is not None
    evictor = desk.executor.evictor

    def ask(requester: Requester) -> object:
        request = EvictionRequest(namespace="shop", pod="web-1", uid=pod.uid, requester=requester)
        return evictor.admit(request, pod)

    async def keep_asking() -> None:
        while blocked:
            ask(Requester(DESCHEDULER, "default"))
            await desk.clock.sleep(0.5)

    ask(Requester(AUTOSCALER, "removal of node n1"))
    desk.executor.takes = 200.0
    desk.write(mode="Act")
    async with desk.running():
        asking = asyncio.create_task(keep_asking())
        await asyncio.sleep(15)
        [entry] = desk.status["waitingEvictions"]
        assert entry["reason"] == "WaitingForEviction"
        golden(entry["waitsFor"])
        assert entry["count"] == 1
        written = len(desk.api.sent("PATCH", "/status"))
        await asyncio.sleep(100)
        assert len(desk.api.sent("PATCH", "/status")) == written, "nothing has changed"
        blocked = False
        await asyncio.sleep(20)
        assert "waitingEvictions" not in desk.status
        assert len(desk.api.sent("PATCH", "/status")) == written + 1
        blocked, asking = True, asyncio.create_task(keep_asking())
        await asyncio.sleep(15)
        assert desk.status["waitingEvictions"]
        await asyncio.sleep(60)
        assert desk.condition("Progressing") == ("False", "Idle")
        assert "waitingEvictions" not in desk.status
        blocked = False
        await asking


async def test_waiting_eviction_counts_survive_clock_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk()

    def waiting(*_: object, **__: object) -> tuple[WaitingEvictions, ...]:
        count = int(desk.clock.monotonic())
        return (WaitingEvictions(reason="WaitingForBudget", since=to_time(START), count=count),)

    monkeypatch.setattr(desk.executor.evictor, "waiting_status", waiting)
    desk.executor.takes = 1000.0
    desk.write(mode="Act")
    async with desk.running():
        await asyncio.sleep(26)
        assert desk.status["waitingEvictions"][0]["count"] == 5
        desk.clock.skew = -3600.0
        await asyncio.sleep(10)
        assert desk.status["waitingEvictions"][0]["count"] == 30
        await asyncio.sleep(20)
        assert desk.status["waitingEvictions"][0]["count"] == 30


async def test_evictions_that_an_earlier_process_waited_for_are_not_reported() -> None:
    desk = Desk()
    entry = {"reason": "WaitingForBudget", "since": "2027-01-15T07:55:00Z", "count": 1}
    desk.write(suspend=True, status={"waitingEvictions": [entry]})
    async with desk.running():
        await asyncio.sleep(1)
        assert "waitingEvictions" not in desk.status


async def test_recheck_runs_in_planner_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    in_thread: list[bool] = [False]
    judged: list[bool] = []
    recheck_move = cycles.recheck_move

    async def thread(work: Any) -> Any:
        in_thread[0] = True
        try:
            return work()
        finally:
            in_thread[0] = False

    async def execute(actions: Sequence[Evict], *, recheck: Any, **_: Any) -> list[Outcome]:
        assert await recheck(actions[0]) is None
        return []

    monkeypatch.setattr(cycles, "in_thread", thread)
    monkeypatch.setattr(
        cycles, "recheck_move", lambda *args, **more: judged.append(in_thread[0]) or recheck_move(*args, **more)
    )
    monkeypatch.setattr(desk.executor, "execute", execute)
    desk.write(mode="Act")
    async with desk.running():
        await asyncio.sleep(1)
    assert judged == [True]
