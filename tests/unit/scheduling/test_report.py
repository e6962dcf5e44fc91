"""What the scheduler reports: events, the condition PodScheduled, metrics and totals. On virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from tests.builders import pod
from tests.fakes.api import Call, FakeApi
from tests.fakes.clock import LoopClock
from tests.fakes.recorder import FakeRecorder
from trimtab.api.plan import rfc3339
from trimtab.api.scheduler_policy import MAX_REASONS, QueueCounts, SchedulingCounts
from trimtab.controller.loop import TaskSupervisor
from trimtab.kube.api import Conflict, Forbidden, NotFound, ServerError
from trimtab.kube.events.paced import BURST, RATE
from trimtab.kube.objects import Pod, PodCondition
from trimtab.kube.resources import pod_reference
from trimtab.kube.verbs import STRATEGIC_PATCH
from trimtab.scheduling import report
from trimtab.scheduling.planner import Reject
from trimtab.scheduling.preemption import TERMINATING, Preemption
from trimtab.scheduling.report import (
    CONFLICT_DELAY,
    MAX_NAMESPACE_EVENTS,
    NOMINATION_DELAY,
    PATCHES_BURST,
    PATCHES_PER_SECOND,
    SAME_MESSAGE_PERIOD,
    WAITING_DELAY,
    EventBacklog,
    PodConditionWriter,
    SchedulerMetrics,
    SchedulerReporter,
)

pytestmark = pytest.mark.looptime

NO_CPU = "0/3 nodes are available: 3 Insufficient cpu."


def pending(name: str, *, namespace: str = "shop", **changes: Any) -> Pod:
    built = pod(name, namespace=namespace).build()
    assert isinstance(built, Pod)
    return msgspec.structs.replace(
        built, uid=f"uid-{namespace}-{name}", resource_version="7", phase="Pending", **changes
    )


def scheduled_false(reason: str, message: str) -> tuple[PodCondition, ...]:
    return (PodCondition("PodScheduled", "False", reason, message, since=1.0),)


def reject(rejected: Pod, message: str = NO_CPU, preemption: Preemption | None = None) -> Reject:
    return Reject(rejected, message, frozenset({"NodeResourcesFit"}), preemption)


class World:
    """A reporter with a fake API server, whose watch reports each written condition at once."""

    def __init__(self) -> None:
        self.clock = LoopClock()
        self.api = FakeApi(before=self._before)
        self.recorder = FakeRecorder()
        self.registry = CollectorRegistry()
        self.pods: dict[str, Pod] = {}
        self.errors: list[Exception] = []
        self.patches: list[tuple[float, str, dict[str, Any]]] = []
        self.latency = 0.0
        self.metrics = SchedulerMetrics(self.registry)
        self.conditions = PodConditionWriter(self.api, self.pods.get, self.clock)
        self.reporter = SchedulerReporter(self.conditions, self.recorder, self.metrics, self.clock)

    def add(self, *pods: Pod) -> None:
        self.pods.update({each.key: each for each in pods})

    async def _before(self, call: Call) -> None:
        if self.latency:
            await asyncio.sleep(self.latency)
        if self.errors:
            raise self.errors.pop(0)
        *_, namespace, _, name, _ = call.path.split("/")
        self.patches.append((self.clock.monotonic(), name, call.body))
        stored = self.api.put(call.path.removesuffix("/status"), {"metadata": {"name": name, "namespace": namespace}})
        stored["metadata"]["resourceVersion"] = call.body["metadata"]["resourceVersion"]  # the watch is up to date
        self._show(f"{namespace}/{name}", call.body)

    def _show(self, key: str, body: dict[str, Any]) -> None:
        if key in self.pods:
            [condition] = body["status"]["conditions"]
            conditions = scheduled_false(condition["reason"], condition["message"])
            self.pods[key] = msgspec.structs.replace(self.pods[key], conditions=conditions, resource_version="8")

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"trimtab_scheduler_{name}", labels)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = TaskSupervisor("scheduler", self.clock)
        self.reporter.start(tasks)
        try:
            yield
        finally:
            await tasks.cancel()


# --- the condition PodScheduled -----------------------------------------------------------------------------------


async def test_rejected_pod_gets_the_condition_with_preconditions() -> None:
    world = World()
    rejected = pending("web")
    world.add(rejected)
    async with world.running():
        world.reporter.rejected(reject(rejected), seconds=0.01)
        await asyncio.sleep(1)
    [call] = world.api.calls
    assert (call.method, call.path, call.content_type) == (
        "PATCH",
        "/api/v1/namespaces/shop/pods/web/status",
        STRATEGIC_PATCH,
    )
    assert call.body == {
        "metadata": {"uid": rejected.uid, "resourceVersion": "7"},
        "status": {
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": NO_CPU,
                    "lastTransitionTime": rfc3339(world.clock.now() - 1),
                }
            ]
        },
    }
    assert len(world.conditions) == 0


async def test_unchanged_condition_is_not_written() -> None:
    world = World()
    rejected = pending("web", conditions=scheduled_false("Unschedulable", NO_CPU))
    world.add(rejected)
    async with world.running():
        world.reporter.rejected(reject(rejected), seconds=0.01)
        await asyncio.sleep(1)
    assert world.patches == []


async def test_changed_reason_keeps_the_transition_time() -> None:
    world = World()
    rejected = pending("web", conditions=scheduled_false("SchedulerError", "timeout"))
    world.add(rejected)
    async with world.running():
        world.reporter.rejected(reject(rejected), seconds=0.01)
        await asyncio.sleep(1)
    [(_, _, body)] = world.patches
    assert "lastTransitionTime" not in body["status"]["conditions"][0]


async def test_changed_numbers_are_written_once_per_period() -> None:
    world = World()
    world.add(pending("web"))
    async with world.running():
        for number in range(70):
            message = f"0/3 nodes are available: {number} Insufficient cpu."
            world.reporter.rejected(reject(world.pods["shop/web"], message), seconds=0.0)
            await asyncio.sleep(2)
    times = [at for at, _, _ in world.patches]
    assert times == [0.0, SAME_MESSAGE_PERIOD, 2 * SAME_MESSAGE_PERIOD]


async def test_changed_text_is_written_immediately() -> None:
    world = World()
    world.add(pending("web"))
    async with world.running():
        for message in (NO_CPU, "0/3 nodes are available: 3 node(s) had untolerated taint(s)."):
            world.reporter.rejected(reject(world.pods["shop/web"], message), seconds=0.0)
            await asyncio.sleep(1)
    assert [body["status"]["conditions"][0]["message"] for _, _, body in world.patches][1].endswith("taint(s).")


async def test_condition_of_a_preemptor_is_written_with_its_nomination() -> None:
    world = World()
    preemptor = pending("web")
    world.add(preemptor)
    rejected = reject(preemptor, preemption=Preemption(preemptor, "n1", 0, (pending("victim"),)))
    async with world.running():
        world.reporter.failed(preemptor, "n1", "an older condition that is still queued")
        world.reporter.rejected(rejected, seconds=0.0)
        await asyncio.sleep(NOMINATION_DELAY / 2)
        nominated = {"conditions": scheduled_false("Unschedulable", NO_CPU), "nominated_node": "n1"}
        world.add(msgspec.structs.replace(preemptor, resource_version="8", **nominated))
        await asyncio.sleep(10)
    assert world.patches == []
    assert len(world.conditions) == 0


async def test_condition_that_a_nomination_has_not_written_is_written_during_the_preemption() -> None:
    """The nomination does not contain the condition if the pod has changed, and a preemption may take minutes."""
    world = World()
    preemptor = pending("web")
    world.add(preemptor)
    rejected = reject(preemptor, preemption=Preemption(preemptor, "n1", 0, (pending("victim"),)))
    async with world.running():
        world.reporter.rejected(rejected, seconds=0.0)
        await asyncio.sleep(NOMINATION_DELAY / 2)
        world.add(msgspec.structs.replace(preemptor, resource_version="8", nominated_node="n1"))
        await asyncio.sleep(10)
    [(at, _, body)] = world.patches
    assert at == pytest.approx(NOMINATION_DELAY, abs=0.1)
    assert body["metadata"]["resourceVersion"] == "8"
    assert body["status"]["conditions"][0]["message"] == NO_CPU


@pytest.mark.parametrize("bound", [False, True])
async def test_condition_of_a_pod_that_waits_for_its_victims_is_delayed(bound: bool) -> None:
    world = World()
    waiting = pending("web", nominated_node="n1", conditions=scheduled_false("Unschedulable", NO_CPU))
    world.add(waiting)
    async with world.running():
        world.reporter.rejected(reject(waiting, f"{NO_CPU} preemption: {TERMINATING}"), seconds=0.0)
        await asyncio.sleep(WAITING_DELAY / 2)
        if bound:
            world.reporter.scheduled(waiting, "n1", attempts=2, seconds=1.0, attempt_seconds=0.01)
        await asyncio.sleep(WAITING_DELAY)
    assert [round(at) for at, _, _ in world.patches] == ([] if bound else [round(WAITING_DELAY)])


async def test_latest_condition_of_a_pod_replaces_a_queued_one() -> None:
    world = World()
    world.latency = 1.0
    rejected = pending("web")
    world.add(rejected)
    async with world.running():
        world.reporter.rejected(reject(rejected), seconds=0.0)
        await asyncio.sleep(0.5)  # the first request is in flight
        world.reporter.failed(rejected, "n1", "first")
        world.reporter.failed(rejected, "n1", "second")
        await asyncio.sleep(5)
    assert [body["status"]["conditions"][0]["message"] for _, _, body in world.patches] == [NO_CPU, "second"]


@pytest.mark.parametrize("how", ["scheduled", "bound elsewhere", "deleted", "terminating", "recreated"])
async def test_pod_that_is_no_longer_pending_gets_no_condition(how: str) -> None:
    world = World()
    rejected = pending("web")
    world.add(rejected)
    world.reporter.rejected(reject(rejected), seconds=0.0)
    changes: dict[str, Any] = {
        "bound elsewhere": {"node": "n1"},
        "terminating": {"deleted": 5.0},
        "recreated": {"uid": "other"},
    }
    if how == "scheduled":
        world.reporter.scheduled(rejected, "n1", attempts=2, seconds=1.0, attempt_seconds=0.01)
    elif how == "deleted":
        world.pods.clear()
    else:
        world.add(msgspec.structs.replace(rejected, **changes[how]))
    async with world.running():
        await asyncio.sleep(1)
    assert world.patches == []
    assert len(world.conditions) == 0


async def test_write_to_a_changed_pod_is_repeated_with_its_new_version() -> None:
    world = World()
    rejected = pending("web")
    world.add(rejected)
    world.errors = [Conflict("changed", status=409, reason="Conflict")]
    async with world.running():
        world.reporter.rejected(reject(rejected), seconds=0.0)
        await asyncio.sleep(CONFLICT_DELAY / 2)
        world.add(msgspec.structs.replace(rejected, resource_version="9"))
        await asyncio.sleep(CONFLICT_DELAY)
    [(_, _, body)] = world.patches
    assert body["metadata"]["resourceVersion"] == "9"


async def test_write_to_a_pod_that_was_bound_meanwhile_is_dropped() -> None:
    world = World()
    rejected = pending("web")
    world.add(rejected)
    world.errors = [Conflict("changed", status=409, reason="Conflict")]
    async with world.running():
        world.reporter.rejected(reject(rejected), seconds=0.0)
        await asyncio.sleep(CONFLICT_DELAY / 2)
        world.add(msgspec.structs.replace(rejected, resource_version="9", node="n2"))
        await asyncio.sleep(5)
    assert world.patches == []


@pytest.mark.parametrize(
    ("error", "written"),
    [
        (ServerError("down", status=500, reason="InternalError"), 1),
        (Forbidden("no", status=403, reason="Forbidden"), 1),
        (NotFound("gone", status=404, reason="NotFound"), 0),
    ],
    ids=["server error", "forbidden", "not found"],
)
async def test_failed_write_is_retried_unless_the_pod_is_gone(error: Exception, written: int) -> None:
    world = World()
    rejected = pending("web")
    world.add(rejected)
    world.errors = [error]
    async with world.running():
        world.reporter.rejected(reject(rejected), seconds=0.0)
        await asyncio.sleep(10)
    assert len(world.patches) == written
    assert len(world.conditions) == 0


async def test_storm_is_rate_limited_and_namespaces_take_turns() -> None:
    world = World()
    storm = [pending(f"p{number}", namespace="storm") for number in range(2_000)]
    other = pending("web")
    world.add(*storm, other)
    async with world.running():
        for each in (*storm, other):
            world.reporter.rejected(reject(each), seconds=0.0)
        await asyncio.sleep(60)
    assert len(world.patches) == 2_001
    [at] = [at for at, name, _ in world.patches if name == "web"]
    assert at < 1.0
    expected = (2_001 - PATCHES_BURST) / PATCHES_PER_SECOND
    assert expected * 0.9 < world.patches[-1][0] < expected * 1.1 + 1


async def test_gated_pod_gets_the_condition_once() -> None:
    world = World()
    gated = pending("web")
    world.add(gated)
    async with world.running():
        world.reporter.gated(gated)
        await asyncio.sleep(1)
        world.reporter.gated(world.pods["shop/web"])
        await asyncio.sleep(1)
    [(_, _, body)] = world.patches
    assert body["status"]["conditions"][0]["reason"] == "SchedulingGated"
    assert world.recorder.events == []


# --- events -------------------------------------------------------------------------------------------------------


async def test_events_are_those_of_kube_scheduler() -> None:
    world = World()
    bound, rejected, errored, victim = (pending(name) for name in ("bound", "rejected", "errored", "victim"))
    world.reporter.scheduled(bound, "n1", attempts=1, seconds=0.1, attempt_seconds=0.01)
    world.reporter.rejected(reject(rejected), seconds=0.1)
    world.reporter.failed(errored, "n1", "binding rejected")
    world.reporter.preempted(victim, rejected, "n2")
    async with world.running():
        await asyncio.sleep(1)
    shown = [
        (str(each["regarding"]), each["type"], each["reason"], each["action"], each["note"])
        for each in world.recorder.events
    ]
    assert shown == [
        ("Pod/shop/bound", "Normal", "Scheduled", "Binding", "Successfully assigned shop/bound to n1"),
        ("Pod/shop/rejected", "Warning", "FailedScheduling", "Scheduling", NO_CPU),
        ("Pod/shop/errored", "Warning", "FailedScheduling", "Scheduling", "binding rejected"),
        ("Pod/shop/victim", "Normal", "Preempted", "Preempting", f"Preempted by pod {rejected.uid} on node n2"),
    ]
    assert world.recorder.events[0]["regarding"].uid == bound.uid
    assert str(world.recorder.events[3]["related"]) == "Pod/shop/rejected"


async def test_same_failure_is_reported_once_in_five_minutes() -> None:
    world = World()
    rejected = pending("web")
    async with world.running():
        for number in range(330):
            world.reporter.rejected(reject(rejected, f"{number} Insufficient cpu"), seconds=0.0)
            await asyncio.sleep(1)
    assert len(world.recorder.events) == 2


async def test_events_of_a_storm_are_rate_limited_and_namespaces_take_turns() -> None:
    world = World()
    for number in range(5_000):
        world.reporter.rejected(reject(pending(f"p{number}", namespace="storm")), seconds=0.0)
    world.reporter.scheduled(pending("web"), "n1", attempts=1, seconds=0.0, attempt_seconds=0.01)
    async with world.running():
        await asyncio.sleep(1)
        assert "Pod/shop/web" in [str(each["regarding"]) for each in world.recorder.events]
        await asyncio.sleep(9)
        assert len(world.recorder.events) <= BURST + 10 * RATE
    world.reporter.show_pending(QueueCounts())
    assert world.value("dropped_events") == 5_000 - MAX_NAMESPACE_EVENTS


@given(
    operations=st.lists(
        st.one_of(st.none(), st.tuples(st.sampled_from("abc"), st.integers(0, 6))), min_size=1, max_size=60
    )
)
def test_backlog_keeps_the_latest_event_of_each_pod(operations: list[tuple[str, int] | None]) -> None:
    backlog, model, number = EventBacklog(), dict[str, int](), 0
    for operation in operations:
        if operation is None:
            event = backlog.pop()
            assert (event is None) == (not model)
            if event is not None:
                assert model.pop(f"{event.pod.namespace}/{event.pod.name}") == int(event.note)
        else:
            number += 1
            queued = pending(f"p{operation[1]}", namespace=operation[0])
            backlog.put(report._Event(pod_reference(queued.key, queued.uid), "", "Scheduled", "Binding", str(number)))
            model[queued.key] = number
        assert len(backlog) == len(model)


async def test_condition_of_a_deleted_pod_is_not_kept() -> None:
    """Without a deletion, a condition of which only the numbers have changed is written after a minute."""
    world = World()
    web = pending("web")
    world.add(web)
    world.reporter.rejected(reject(web), seconds=0.1)
    assert len(world.conditions) == 1

    world.reporter.pod_changed(web, None)

    assert len(world.conditions) == 0


# --- totals and metrics -------------------------------------------------------------------------------------------


async def test_totals_and_metrics_are_counted_per_scheduler() -> None:
    world = World()
    one, two, victim = pending("one"), pending("two"), pending("victim", node="n1")
    world.reporter.scheduled(one, "n1", attempts=17, seconds=0.1, attempt_seconds=0.01)
    world.reporter.rejected(reject(two, preemption=Preemption(two, "n1", 0, (victim,))), seconds=0.1)
    world.reporter.preempted(victim, two, "n1")
    world.reporter.failed(two, "n1", "binding rejected")
    world.reporter.failed(two, "", "bug")
    world.reporter.show_pending(QueueCounts(active=1, backoff=2, unschedulable=3, gated=4))
    name = "default-scheduler"
    assert world.reporter.counts(name) == SchedulingCounts(scheduled=1, rejected=1, preempted=1, binding_failures=1)
    assert world.reporter.counts("other") == SchedulingCounts()
    assert world.value("schedule_attempts_total", result="scheduled", profile=name) == 1
    assert world.value("schedule_attempts_total", result="unschedulable", profile=name) == 1
    assert world.value("scheduling_attempt_duration_seconds_sum", result="scheduled", profile=name) == 0.01
    assert world.value("scheduling_attempt_duration_seconds_sum", result="unschedulable", profile=name) == 0.1
    assert world.value("schedule_attempts_total", result="error", profile=name) == 2
    assert world.value("pod_scheduling_sli_duration_seconds_count", attempts="15+") == 1
    assert world.value("preemption_attempts_total") == 1
    assert world.value("preemption_victims_sum") == 1
    assert world.value("pending_pods", queue="gated") == 4


async def test_reasons_of_unschedulable_pods_are_grouped_and_forgotten() -> None:
    world = World()
    pods = [pending(f"p{number}") for number in range(5)]
    for number, each in enumerate(pods):
        world.reporter.rejected(reject(each, f"{number % 2}/9 nodes: {number} Insufficient cpu"), seconds=0)
    world.reporter.rejected(reject(pods[0], "0/9 nodes: 9 had taints"), seconds=0)
    shown = [(each.pods, each.example) for each in world.reporter.unschedulable("default-scheduler")]
    assert shown == [(4, "shop/p1"), (1, "shop/p0")]

    world.reporter.scheduled(pods[0], "n1", attempts=2, seconds=1.0, attempt_seconds=0.01)
    world.reporter.pod_changed(pods[1], None)
    world.reporter.pod_changed(pods[2], msgspec.structs.replace(pods[2], node="n1"))
    world.reporter.pod_changed(pods[3], msgspec.structs.replace(pods[3], nominated_node="n1"))
    [left] = world.reporter.unschedulable("default-scheduler")
    assert left.pods == 2


async def test_messages_are_analyzed_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Status reports and the search for the next event process the messages of thousands of pods at once."""
    world = World()
    pods = [pending(f"p{number}") for number in range(300)]
    for each in pods:
        world.reporter.rejected(reject(each, f"0/9 nodes: 9 had taint {'x' * int(each.name[1:])}"), seconds=0)
    analyzed: list[str] = []
    monkeypatch.setattr(report, "without_numbers", lambda text: analyzed.append(text) or text)

    assert len(world.reporter.unschedulable("default-scheduler")) == MAX_REASONS
    await world.reporter._send_events()

    assert world.recorder.events
    assert analyzed == []
