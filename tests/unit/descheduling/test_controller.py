"""The loop of one policy, on a virtual clock: when it runs, what it writes, how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tests.builders import node, pod
from tests.fakes.api import FakeApi
from tests.fakes.clock import START, LoopClock
from tests.fakes.daemon import Stopped
from tests.unit.descheduling.planning import packing, policy
from trimtab.api.plan import Evict
from trimtab.cluster.live import LiveCluster
from trimtab.descheduling import cycle as cycles
from trimtab.descheduling.controller import PolicyController
from trimtab.descheduling.metrics import DeschedulerMetrics
from trimtab.descheduling.peers import Peers
from trimtab.descheduling.services import Services
from trimtab.disruption.outcome import EVICTED, Outcome

PATH = "/apis/trimtab.dev/v1alpha1/deschedulerpolicies/default"
pytestmark = pytest.mark.looptime(start=0)


class FakeExecutor:
    """Grants everything, or what it is told to."""

    def __init__(self, clock: LoopClock) -> None:
        self.clock = clock
        self.calls: list[dict[str, Any]] = []
        self.takes = 0.0
        self.reason = "Evicted"

    async def execute(self, actions: Sequence[Evict], **arguments: Any) -> list[Outcome]:
        self.calls.append({"actions": actions, **arguments})
        stop = arguments["stop"]
        try:
            async with asyncio.timeout(self.takes):
                await stop.wait()
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
        self.executor = FakeExecutor(self.clock)
        self.live = LiveCluster()
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
            self.live.apply(None, each)
        self.services = Services(
            api=self.api,
            live=self.live,
            executor=self.executor,  # type: ignore[arg-type]
            recorder=self.recorder,  # type: ignore[arg-type]
            clock=self.clock,
            metrics=DeschedulerMetrics(self.registry),
            turn=asyncio.Lock(),
            stale=lambda: self.wrong,
            leading=lambda: self.leads,
            peers=Peers(),
        )
        self.controller = PolicyController("default", self.services)
        self.stopped = Stopped()

    def write(self, *, generation: int = 1, status: Any = None, **spec: Any) -> None:
        body = {
            "apiVersion": "trimtab.dev/v1alpha1",
            "kind": "DeschedulerPolicy",
            "metadata": {"name": "default", "uid": "u1", "generation": generation},
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


async def test_a_new_policy_runs_at_once_and_then_by_its_interval() -> None:
    desk = Desk()
    desk.write(interval="10m")
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.runs == 1
        assert desk.status["lastRun"]["planned"] == 1
        assert desk.status["nextRun"] == "2027-01-15T08:10:00Z"
        await asyncio.sleep(600)
        assert desk.runs == 2


async def test_simulating_tells_of_its_plan_and_evicts_nothing() -> None:
    desk = Desk()
    desk.write()
    async with desk.running():
        await asyncio.sleep(1)
    assert desk.executor.calls == []
    assert [event["reason"] for event in desk.recorder.events] == ["Simulated"]
    assert desk.condition("Ready") == ("True", "CycleCompleted")


async def test_acting_counts_what_was_evicted_on_top_of_what_was_before() -> None:
    desk = Desk()
    desk.write(mode="Act", status={"evicted": 7, "observedGeneration": 1})
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.status["evicted"] == 8
        assert (desk.executor.calls[0]["per_minute"], desk.executor.calls[0]["grace_period"]) == (30, None)


async def test_a_restart_waits_for_what_is_left_of_the_interval() -> None:
    desk = Desk()
    last = {"time": "2027-01-15T07:55:00Z", "mode": "Simulate"}
    desk.write(interval="10m", status={"observedGeneration": 1, "lastRun": last})
    assert desk.clock.now() == START
    async with desk.running():
        await asyncio.sleep(290)
        assert desk.runs == 0
        await asyncio.sleep(20)
        assert desk.runs == 1


async def test_a_new_generation_runs_at_once_and_ends_the_acting_of_the_old_one() -> None:
    desk = Desk()
    desk.executor.takes = 100.0
    desk.write(mode="Act", interval="10m")
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.condition("Progressing") == ("True", "CycleRunning")
        desk.write(mode="Simulate", interval="10m", generation=2)
        await asyncio.sleep(1)
        assert desk.runs == 2
        assert desk.status["observedGeneration"] == 2
        assert desk.condition("Progressing") == ("False", "Idle")


async def test_work_left_for_want_of_time_is_planned_anew_soon() -> None:
    desk = Desk()
    desk.executor.reason = "CycleDeadline"
    desk.write(mode="Act", interval="1h")
    async with desk.running():
        await asyncio.sleep(3)
        assert desk.runs >= 2


async def test_a_schedule_is_waited_for_and_a_start_missed_by_hours_is_not_caught_up() -> None:
    desk = Desk()
    last = {"time": "2027-01-14T02:30:00Z", "mode": "Simulate"}
    desk.write(schedule={"cron": "30 2 * * *"}, status={"lastRun": last})  # now it is 08:00
    async with desk.running():
        await asyncio.sleep(60)
        assert desk.runs == 0
        assert desk.status["nextRun"] == "2027-01-16T02:30:00Z"
        await asyncio.sleep(18.5 * 3600)
        assert desk.runs == 1


async def test_a_policy_that_waits_for_its_first_cycle_says_so() -> None:
    desk = Desk()
    desk.write(schedule={"cron": "30 2 * * *"})
    async with desk.running():
        await asyncio.sleep(1)
    assert desk.condition("Ready") == ("Unknown", "WaitingForFirstCycle")


async def test_an_invalid_spec_is_told_and_mended_by_the_next() -> None:
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


async def test_a_failing_cycle_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    good = cycles.make_plan

    def broken(*_args: Any, **_kwargs: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(cycles, "make_plan", broken)
    desk.write()
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.condition("Degraded") == ("True", "CycleFailed")
        monkeypatch.setattr(cycles, "make_plan", good)
        await asyncio.sleep(31)
        assert desk.condition("Degraded") == ("False", "AllWell")


async def test_without_a_picture_no_plan_is_made_and_the_status_says_why() -> None:
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


async def test_stopping_ends_the_acting_and_the_loop() -> None:
    desk = Desk()
    desk.executor.takes = 1000.0
    desk.write(mode="Act")
    async with desk.running() as task:
        await asyncio.sleep(1)
        desk.stopped.set()
        await asyncio.sleep(1)
        assert task.done()
    assert desk.status["lastRun"]["completed"]


async def test_stopping_without_a_picture_does_not_wait_for_one() -> None:
    desk = Desk()
    desk.wrong = "waiting for pods"
    desk.write()
    async with desk.running() as task:
        await asyncio.sleep(1)
        desk.stopped.set()
        await asyncio.sleep(1)
        assert task.done()


async def test_a_status_that_is_not_ours_to_read_counts_as_none() -> None:
    desk = Desk()
    desk.write(status={"evicted": "many"})
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.runs == 1


@pytest.mark.parametrize("how", ["stopped", "ended"])
async def test_a_policy_that_waits_for_its_turn_need_not_get_it_to_end(how: str) -> None:
    desk = Desk()
    desk.write()
    await desk.services.turn.acquire()  # another policy acts, for minutes
    task = asyncio.create_task(desk.controller.run(desk.stopped))
    await asyncio.sleep(1)
    assert not task.done()
    desk.stopped.set() if how == "stopped" else desk.controller.end()
    async with asyncio.timeout(1):
        await task
    assert desk.services.turn.locked(), "it is not ours to give back"
    desk.services.turn.release()


async def test_a_spec_that_changes_while_its_turn_comes_neither_runs_as_it_was_nor_keeps_the_turn() -> None:
    desk = Desk()
    desk.write(mode="Act", interval="1h")
    await desk.services.turn.acquire()
    async with desk.running():
        await asyncio.sleep(1)
        desk.services.turn.release()
        desk.write(mode="Simulate", interval="1h", generation=2)
        await asyncio.sleep(1)
        assert desk.executor.calls == []
        assert desk.runs == 1
        assert not desk.services.turn.locked()


CUT_SHORT = {
    "observedGeneration": 1,
    "lastRun": {"time": "2027-01-15T06:00:00Z", "mode": "Act"},
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


async def test_a_cycle_that_a_killed_process_left_unreported_counts_as_run() -> None:
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


EVICTED_JUST_NOW = {
    "observedGeneration": 1,
    "lastEvictions": [
        {"namespace": "shop", "pod": "web", "strategy": "x", "reason": "y", "time": "2027-01-15T07:59:40Z"}
    ],
}


@pytest.mark.parametrize(
    ("status", "seconds"),
    [pytest.param(CUT_SHORT, 60, id="killed"), pytest.param(EVICTED_JUST_NOW, 40, id="stopped in good order")],
)
async def test_the_minute_of_a_pace_goes_on_over_a_restart(status: dict[str, Any], seconds: float) -> None:
    desk = Desk()
    desk.write(mode="Act", interval="5s", generation=2, status=status)
    async with desk.running():
        await asyncio.sleep(seconds - 1)
        assert desk.executor.calls == []
        await asyncio.sleep(2)
        assert len(desk.executor.calls) == 1


@pytest.mark.parametrize("spec", [{"interval": "10m"}, {"schedule": {"cron": "*/10 * * * *"}}], ids=str)
async def test_a_last_run_in_the_future_does_not_stop_the_loop(spec: dict[str, Any]) -> None:
    desk = Desk()
    last = {"time": "2030-01-01T00:00:00Z", "mode": "Simulate"}
    desk.write(status={"observedGeneration": 1, "lastRun": last}, **spec)
    async with desk.running():
        await asyncio.sleep(601)
        assert desk.runs == 1


async def test_a_clock_that_is_set_while_a_policy_sleeps_is_noticed() -> None:
    desk = Desk()
    desk.write(schedule={"cron": "30 9 * * *"})  # now it is 08:00
    async with desk.running():
        await asyncio.sleep(1)
        desk.clock.skew = 5390.0
        await asyncio.sleep(45)
        assert desk.runs == 1


async def test_a_scheduled_cycle_that_failed_is_not_tried_at_another_time(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    tries = []

    def fail(*args: object, **kwargs: object) -> None:
        tries.append(desk.clock.now())
        raise ValueError("no luck")

    monkeypatch.setattr(cycles, "make_plan", fail)
    desk.write(schedule={"cron": "1 8 * * *"})
    async with desk.running():
        await asyncio.sleep(3600)
        assert len(tries) == 1
        assert desk.condition("Degraded") == ("True", "CycleFailed")


async def test_nothing_is_told_of_a_policy_that_is_gone() -> None:
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
async def test_a_move_is_judged_again_before_it_is_made(node_name: str, reason: str | None) -> None:
    desk = Desk()
    desk.write(mode="Act")
    async with desk.running():
        await asyncio.sleep(1)
    recheck = desk.executor.calls[0]["recheck"]
    action = Evict("default", "RemoveDuplicates", "shop", "web-1", "n1", "n2", "DuplicateOnNode", "")
    old = desk.live.pod("shop/web-1")
    moved = pod("web-1", namespace="shop").on(node_name).owned_by("ReplicaSet", "web").phase("Running").build()
    desk.live.apply(old, moved)
    refusal = recheck(action)
    assert (refusal.reason if refusal else None) == reason


async def test_a_move_for_which_no_place_is_left_is_not_made() -> None:
    desk = Desk()
    desk.write(mode="Act")
    async with desk.running():
        await asyncio.sleep(1)
    recheck = desk.executor.calls[0]["recheck"]
    desk.live.apply(None, node("n2").allocatable(cpu="4", memory="8Gi", pods=110).cordoned().build())
    refusal = recheck(Evict("default", "RemoveDuplicates", "shop", "web-1", "n1", "n2", "DuplicateOnNode", ""))
    assert refusal.reason == "NoPlace"
    assert "1 node(s) were unschedulable" in refusal.message


@pytest.mark.parametrize(
    ("strategy", "target", "phase", "reason"),
    [
        pytest.param("RemoveDuplicates", "n2", "Running", "NoPlace", id="another node is needed"),
        pytest.param("PodLifeTime", "n1", "Running", None, id="the pod's own will do"),
        pytest.param("PodLifeTime", "n2", "Running", None, id="and will do instead of another"),
        pytest.param("RemoveFailedPods", "", "Failed", None, id="no node is needed"),
    ],
)
async def test_what_starts_anew_or_has_ended_needs_no_other_node(
    strategy: str, target: str, phase: str, reason: str | None
) -> None:
    desk = Desk()
    desk.write(mode="Act")
    async with desk.running():
        await asyncio.sleep(1)
    recheck = desk.executor.calls[0]["recheck"]
    desk.live.apply(None, node("n2").allocatable(cpu="4", memory="8Gi", pods=110).cordoned().build())
    pods = pod("web-1", namespace="shop").on("n1").owned_by("ReplicaSet", "web").phase(phase)
    desk.live.apply(desk.live.pod("shop/web-1"), pods.build())
    refusal = recheck(Evict("default", strategy, "shop", "web-1", "n1", target, "Any", ""))
    assert (refusal.reason if refusal else None) == reason


async def test_a_process_whose_lease_may_have_run_out_evicts_nothing_more() -> None:
    desk = Desk()
    desk.write(mode="Act")
    async with desk.running():
        await asyncio.sleep(1)
    recheck = desk.executor.calls[0]["recheck"]
    action = Evict("default", "RemoveDuplicates", "shop", "web-1", "n1", "n2", "DuplicateOnNode", "")
    assert recheck(action) is None
    desk.leads = False
    assert recheck(action).reason == "LeaseLost"


FILL = policy(packing({"cpu": 20}), "fill")


def levelling(desk: Desk, **spec: Any) -> None:
    """Write a policy that moves one of n1's two pods to n2: of 110 pods each is 0.9 %."""
    thresholds = {"thresholds": {"pods": 0.5}, "targetThresholds": {"pods": 1}}
    strategies = {"LowNodeUtilization": {"params": {"nodeResourceUtilizationThresholds": thresholds}}}
    desk.write(strategies=strategies, **spec)


async def test_a_policy_that_another_one_would_undo_is_held_and_says_who_and_why() -> None:
    desk = Desk()
    desk.services.peers.put("fill", "u2", FILL)
    levelling(desk, mode="Act")
    async with desk.running():
        await asyncio.sleep(3600)
        assert desk.runs == 0
        assert desk.executor.calls == []
        assert desk.condition("Ready") == ("False", "PolicyConflict")
        assert desk.condition("Degraded") == ("True", "PolicyConflict")
        message = next(c["message"] for c in desk.status["conditions"] if c["type"] == "Degraded")
        assert "LowNodeUtilization of policy default and HighNodeUtilization of policy fill" in message
        assert "suspend one of them" in message
        assert "nextRun" not in desk.status


async def test_a_policy_that_is_no_longer_opposed_runs_and_is_well_again() -> None:
    desk = Desk()
    desk.services.peers.put("fill", "u2", FILL)
    levelling(desk)
    async with desk.running():
        await asyncio.sleep(10)
        desk.services.peers.forget("fill", "u2")
        await asyncio.sleep(1)
        assert desk.runs == 1
        assert desk.condition("Ready") == ("True", "CycleCompleted")
        assert desk.condition("Degraded") == ("False", "AllWell")


async def test_a_conflict_that_is_resolved_does_not_bring_the_next_cycle_forward() -> None:
    desk = Desk()
    levelling(desk, interval="10m")
    async with desk.running():
        await asyncio.sleep(60)
        desk.services.peers.put("fill", "u2", FILL)
        await asyncio.sleep(60)
        assert desk.condition("Degraded") == ("True", "PolicyConflict")
        desk.services.peers.forget("fill", "u2")
        await asyncio.sleep(60)
        assert desk.runs == 1
        assert desk.condition("Ready") == ("Unknown", "WaitingForFirstCycle")
        assert desk.condition("Degraded") == ("False", "AllWell")
        await asyncio.sleep(450)
        assert desk.runs == 2


async def test_a_conflict_that_arises_ends_the_acting() -> None:
    desk = Desk()
    desk.executor.takes = 1000.0
    levelling(desk, mode="Act", interval="10m")
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.condition("Progressing") == ("True", "CycleRunning")
        desk.services.peers.put("fill", "u2", FILL)
        await asyncio.sleep(1)
        assert desk.executor.calls[0]["stop"].is_set()
        assert desk.condition("Degraded") == ("True", "PolicyConflict")
        await asyncio.sleep(3600)
        assert len(desk.executor.calls) == 1


async def test_nothing_is_done_before_all_policies_are_known() -> None:
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


async def test_a_policy_that_ends_no_longer_stands_in_the_way_of_others() -> None:
    desk = Desk()
    levelling(desk)
    desk.services.peers.put("fill", "u2", FILL)
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.services.peers.against("fill")
    assert desk.services.peers.against("fill") == ()


@pytest.mark.parametrize(("mode", "planned"), [("Act", 0), ("Simulate", 1)])
async def test_what_another_policy_sees_to_is_not_undone_unless_it_only_simulates(mode: str, planned: int) -> None:
    desk = Desk()
    for name, owner, cpu in (("web-2", "web", "1m"), ("db-1", "db", "3")):
        there = pod(name, namespace="shop").on("n2").owned_by("ReplicaSet", owner).cpu(cpu).phase("Running")
        desk.live.apply(None, there.build())
    desk.services.peers.put("apart", "u2", policy({"RemoveDuplicates": {}}, "apart", mode=mode))
    desk.write(strategies=packing({"cpu": 40}))
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.status["lastRun"]["planned"] == planned
        told = [each["message"] for each in desk.status["kept"]]
        assert any("(RemoveDuplicates of policy apart)" in each for each in told) == (planned == 0), told


EVENING = [{"schedule": "0 20 * * *", "duration": "10m", "timeZone": "UTC"}]  # now it is 08:00


@pytest.mark.parametrize(
    ("timing", "first"),
    [
        pytest.param({}, "2027-01-15T20:00:00Z", id="with an interval, as the window opens"),
        pytest.param({"schedule": {"cron": "5 * * * *"}}, "2027-01-15T20:05:00Z", id="at a scheduled time within it"),
    ],
)
async def test_a_policy_that_acts_waits_for_its_window_and_says_when_it_opens(timing: Any, first: str) -> None:
    desk = Desk()
    desk.write(mode="Act", windows=EVENING, **timing)
    async with desk.running():
        await asyncio.sleep(3600)
        assert desk.runs == 0
        assert desk.status["nextRun"] == first
        assert desk.condition("Progressing") == ("False", "OutsideWindows")
        messages = [each["message"] for each in desk.status["conditions"] if each["type"] == "Progressing"]
        assert messages == ["none of spec.windows is open; the next one opens at 2027-01-15T20:00:00Z"]
        await asyncio.sleep(11 * 3600 + 330)
        assert desk.executor.calls
        assert desk.condition("Progressing") == ("False", "Idle")
        done = desk.runs
        await asyncio.sleep(3600)  # the window has closed
        assert desk.runs <= done + 1
        assert desk.condition("Progressing") == ("False", "OutsideWindows")
        assert desk.status["nextRun"] == first.replace("15T", "16T")


async def test_a_policy_that_only_simulates_does_so_outside_its_windows_too() -> None:
    desk = Desk()
    desk.write(mode="Simulate", windows=EVENING)
    async with desk.running():
        await asyncio.sleep(60)
        assert desk.runs == 1
        assert desk.condition("Progressing") == ("False", "Idle")


async def test_acting_ends_as_the_window_closes_and_what_is_left_waits_for_the_next() -> None:
    desk = Desk()
    desk.executor.reason, desk.executor.takes = "WindowClosed", 60.0
    desk.write(mode="Act", windows=[{"schedule": "0 8 * * *", "duration": "1m"}])  # it has just opened
    async with desk.running():
        await asyncio.sleep(30)
        [call] = desk.executor.calls
        assert call["deadline"] == pytest.approx(60.0, abs=1.0)
        assert call["late"].reason == "WindowClosed"
        await asyncio.sleep(3600)
        assert len(desk.executor.calls) == 1
        assert desk.status["nextRun"] == "2027-01-16T08:00:00Z"


async def test_without_real_use_a_policy_that_judges_by_it_says_so_and_goes_on() -> None:
    desk = Desk()
    marks = {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}}
    params = {"nodeResourceUtilizationThresholds": marks, "metricsUtilization": {"source": "KubernetesMetrics"}}
    desk.write(strategies={"LowNodeUtilization": {"enabled": True, "params": params}})
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.runs == 1
        assert desk.condition("Degraded") == ("True", "UseNotMeasured")
        assert {each["reason"] for each in desk.status["kept"]} == {"NotMeasured"}
