"""What is begun and and continues: rollouts of single replicas, and evictions that another process takes over."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from tests.fakes.api import Call
from tests.fixtures.golden import Golden
from tests.unit.cluster.test_rollouts import deployment, rolling, settled
from tests.unit.disruption.test_executor import results
from tests.unit.disruption.world import World, budget_refusal
from trimtab.api import reasons
from trimtab.api.plan import SURGE, Evict
from trimtab.cluster.workloads.rollouts import RESTARTED_AT
from trimtab.disruption.background_evictions import IN_PROGRESS, REQUEST_EVICT_ONLY
from trimtab.disruption.outcome import EVICTED, FAILED, GONE, REFUSED, SKIPPED, STARTED, Refusal
from trimtab.kube.api import Conflict, Forbidden, TooManyRequests, Unreachable
from trimtab.kube.frozen import FrozenMap
from trimtab.kube.objects import Pod

pytestmark = pytest.mark.looptime

WEB = "/apis/apps/v1/namespaces/shop/deployments/web"
TAKEN_OVER = TooManyRequests("Eviction triggered evacuation of VMI shop/vm", status=429, reason="TooManyRequests")


class Rolling(World):
    """Deployment ``web`` of one pod; its new pod is ready `restart` seconds after it was restarted."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.web = self.add("web-1", owner="web-1a2b", labels=FrozenMap({"app": "web"}))
        self.deploy(deployment())

    def deploy(self, manifest: dict[str, Any], **status: int) -> None:
        self.api.put(WEB, settled(manifest, **status))

    def surge(self) -> list[Evict]:
        return [msgspec.structs.replace(action, how=SURGE) for action in self.plan(self.web)]

    @property
    def mark(self) -> str:
        template = self.api.objects[WEB]["spec"].get("template", {})
        found: str = template.get("metadata", {}).get("annotations", {}).get(RESTARTED_AT, "")
        return found

    async def _after(self, call: Call) -> None:
        await super()._after(call)
        if call.method == "PATCH" and call.path == WEB and self.restart is not None:
            task = asyncio.create_task(self._roll(self.restart))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _roll(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.put(msgspec.structs.replace(self.web, name="web-2", uid="uid-web-2", node="new"))
        self.drop(self.web)


async def test_rollout_is_watched_until_the_old_pod_is_deleted(caplog, golden: Golden):
    caplog.set_level(logging.INFO)
    world = Rolling(restart=20.0)
    [outcome] = await world.execute(world.surge())
    assert (outcome.result, outcome.reason) == (EVICTED, reasons.ROLLED_OUT)
    assert 20 <= world.clock.monotonic() < 22
    assert not world.api.sent("POST", "/eviction")
    [call] = world.api.sent("PATCH", WEB)
    assert call.body["metadata"] == {"resourceVersion": "2"}
    assert world.mark
    on_pod, on_policy = world.recorder.events
    assert (on_pod.reason, on_pod.action, on_policy.action) == ("DuplicateOnNode", "Restart", "Restart")
    golden(on_pod.note)


async def test_rollout_beyond_its_timeout_counts_as_started():
    world = Rolling(restart=None, rollout_timeout=60.0)
    [outcome] = await world.execute(world.surge())
    assert (outcome.result, outcome.reason) == (STARTED, reasons.ROLLOUT_IN_PROGRESS)
    assert outcome.message.startswith("continues with a rollout")
    assert len(world.api.sent("PATCH", WEB)) == 1
    assert [event.type for event in world.recorder.events] == ["Normal", "Normal"]


@pytest.mark.parametrize("ending", ["deadline", "stop"])
async def test_rollout_beyond_the_cycle_deadline_counts_as_started(ending):
    world = Rolling(restart=50.0)
    stop = asyncio.Event()
    if ending == "stop":
        asyncio.get_running_loop().call_later(10, stop.set)
    [outcome] = await world.execute(world.surge(), seconds=10.0 if ending == "deadline" else 100.0, stop=stop)
    assert (outcome.result, outcome.reason) == (STARTED, reasons.ROLLOUT_IN_PROGRESS)
    assert 10 <= world.clock.monotonic() < 11


@pytest.mark.parametrize(
    ("manifest", "status", "reason"),
    [
        pytest.param(deployment(strategy=rolling(0, 1)), {}, reasons.CANNOT_SURGE, id="no surge any more"),
        pytest.param(deployment(paused=True), {}, reasons.CANNOT_SURGE, id="paused"),
        pytest.param(deployment(replicas=0), {}, reasons.OWNER_NOT_SETTLED, id="scaled down"),
        pytest.param(
            deployment(), {"updatedReplicas": 0}, reasons.ROLLOUT_IN_PROGRESS, id="rolled out by another client"
        ),
    ],
)
async def test_deployment_is_checked_right_before_restart(manifest, status, reason):
    world = Rolling()
    world.deploy(manifest, **status)
    [outcome] = await world.execute(world.surge())
    assert (outcome.result, outcome.reason) == (REFUSED, reason)
    assert not world.api.sent("PATCH")


async def test_deleted_deployment_skips_the_action():
    world = Rolling()
    del world.api.objects[WEB]
    assert results(await world.execute(world.surge())) == [("web-1", SKIPPED, reasons.PLAN_OUTDATED)]


async def test_conflict_rereads_the_deployment_before_retry():
    world = Rolling()
    world.api.fail(Conflict("the object has been modified", status=409), method="PATCH")
    assert results(await world.execute(world.surge())) == [("web-1", EVICTED, reasons.ROLLED_OUT)]
    assert [call.method for call in world.api.sent(path=WEB)] == ["GET", "PATCH", "GET", "PATCH"]


async def test_restart_is_retried_after_retry_after():
    world = Rolling()
    world.api.fail(TooManyRequests("too many requests", status=429, retry_after=9.0), method="PATCH")
    [outcome] = await world.execute(world.surge())
    assert outcome.result == EVICTED
    assert world.clock.monotonic() > 9


async def test_lost_restart_response_does_not_restart_twice():
    world = Rolling(restart=30.0)
    lost = True
    after = world._after

    async def lose(call: Call) -> None:
        nonlocal lost
        await after(call)
        if lost and call.method == "PATCH":
            lost = False
            raise Unreachable("reset")

    world.api.after = lose
    [outcome] = await world.execute(world.surge())
    assert outcome.result == EVICTED
    assert len(world.api.sent("PATCH", WEB)) == 1
    assert len(world.api.sent("GET", WEB)) == 2


async def test_lost_restart_response_is_recognized_by_its_mark():
    """The picture shows a rollout by then, which is no reason to keep the pod: it is ours, and counts as such."""
    world = Rolling(restart=30.0)
    lost = iter([True])
    after = world._after

    async def lose(call: Call) -> None:
        await after(call)
        if call.method == "PATCH" and next(lost, False):
            raise Unreachable("reset")

    async def recheck(_action: Evict) -> Refusal | None:
        return Refusal(reasons.ROLLOUT_IN_PROGRESS, "a pod of another template") if world.mark else None

    world.api.after = lose
    [outcome] = await world.execute(world.surge(), recheck=recheck)
    assert (outcome.result, outcome.reason) == (EVICTED, reasons.ROLLED_OUT)
    assert len(world.api.sent("PATCH", WEB)) == 1


async def test_restart_that_never_arrived_is_retried():
    world = Rolling()
    world.api.fail(Unreachable("reset"), method="PATCH")
    [outcome] = await world.execute(world.surge())
    assert (outcome.result, outcome.reason) == (EVICTED, reasons.ROLLED_OUT)
    assert [call.method for call in world.api.sent(path=WEB)] == ["GET", "PATCH", "GET", "GET", "PATCH"]


async def test_unconfirmed_restart_is_reported_as_failed(golden: Golden):
    world = Rolling()
    responses = iter([False])  # the Deployment can be read once, before it is restarted

    async def cut(call: Call) -> None:
        if call.path == WEB and next(responses, True):
            raise Unreachable("reset")

    world.api.before = cut
    [outcome] = await world.execute(world.surge(), seconds=20.0)
    assert (outcome.result, outcome.reason) == (FAILED, reasons.EVICTION_FAILED)
    golden(outcome.message)
    assert not world.mark


async def test_missing_permission_to_restart_is_named():
    world = Rolling()
    world.api.fail(Forbidden("deployments.apps is forbidden", status=403), method="PATCH", times=9)
    [outcome] = await world.execute(world.surge())
    assert (outcome.result, outcome.reason) == (FAILED, reasons.EVICTION_FAILED)
    assert "controllers.descheduler.surge" in outcome.message
    assert len(world.api.sent("PATCH")) == 1


async def test_rollouts_count_towards_the_rate_limit():
    world = World()
    pods = [world.add(f"a{i}-1", owner=f"a{i}-1a2b", labels=FrozenMap({"app": f"a{i}"})) for i in range(6)]
    for i in range(6):
        world.api.put(WEB.replace("web", f"a{i}"), settled(deployment(f"a{i}")))
    plan = [msgspec.structs.replace(action, how=SURGE) for action in world.plan(*pods)]
    await world.execute(plan, per_minute=2, seconds=100.0)
    assert len(world.api.sent("PATCH")) == 4


def machine(world: World, **marks: str) -> Pod:
    annotations = FrozenMap({REQUEST_EVICT_ONLY: "", **marks})
    return world.add("virt-launcher-vm", owner="vm", annotations=annotations)


def taken_over(world: World, *, times: int = 1) -> None:
    world.api.fail(TAKEN_OVER, path="/eviction", times=times)


def later(seconds: float, work: Any, *args: Any) -> None:
    asyncio.get_running_loop().call_later(seconds, work, *args)


async def test_background_eviction_is_watched_until_the_pod_is_deleted():
    world = World()
    pod = machine(world)
    taken_over(world, times=9)
    later(5, world.put, msgspec.structs.replace(pod, annotations=pod.annotations | {IN_PROGRESS: ""}))
    later(90, world.drop, pod)
    [outcome] = await world.execute(world.plan(pod))
    assert (outcome.result, outcome.reason) == (EVICTED, reasons.EVACUATED)
    assert len(world.asked) == 1
    assert 90 <= world.clock.monotonic() < 92
    assert [event.type for event in world.recorder.events] == ["Normal", "Normal"]


async def test_terminal_pod_completes_background_eviction():
    world = World()
    pod = machine(world)
    taken_over(world)
    later(40, world.put, msgspec.structs.replace(pod, phase="Succeeded", ready=False))
    assert results(await world.execute(world.plan(pod))) == [(pod.name, EVICTED, reasons.EVACUATED)]


async def test_removed_annotation_fails_background_eviction():
    world = World()
    pod = machine(world)
    taken_over(world)
    later(5, world.put, msgspec.structs.replace(pod, annotations=FrozenMap({**pod.annotations, IN_PROGRESS: ""})))
    later(60, world.put, pod)
    [outcome] = await world.execute(world.plan(pod))
    assert (outcome.result, outcome.reason) == (REFUSED, reasons.EVACUATION_FAILED)
    assert 60 <= world.clock.monotonic() < 62


async def test_background_eviction_times_out_after_ten_minutes():
    world = World()
    pod = machine(world)
    taken_over(world)
    [outcome] = await world.execute(world.plan(pod), seconds=3600.0)
    assert (outcome.result, outcome.reason) == (REFUSED, reasons.EVACUATION_FAILED)
    assert 600 <= world.clock.monotonic() < 602


async def test_background_eviction_beyond_the_cycle_deadline_counts_as_started(golden: Golden):
    world = World()
    pod = machine(world)
    taken_over(world)
    [outcome] = await world.execute(world.plan(pod), seconds=30.0)
    assert (outcome.result, outcome.reason) == (STARTED, reasons.EVICTION_IN_BACKGROUND)
    golden(outcome.message)
    assert not [event for event in world.recorder.events if event.type == "Warning"]


async def test_background_eviction_does_not_block_other_owners():
    world = World()
    pod = machine(world)
    taken_over(world)
    outcomes = await world.execute([*world.plan(pod), *world.plan(world.add("web-1"))], seconds=60.0)
    assert [outcome.result for outcome in outcomes] == [STARTED, EVICTED]
    assert world.times["web-1"] < 10


async def test_pod_already_evicted_in_background_is_not_requested():
    world = World()
    pod = machine(world, **{IN_PROGRESS: ""})
    assert results(await world.execute(world.plan(pod))) == [(pod.name, GONE, reasons.EVICTION_IN_BACKGROUND)]
    assert not world.asked


async def test_budget_refusal_of_annotated_pod_is_reported():
    world = World()
    pod = machine(world)
    world.api.fail(budget_refusal(), path="/eviction", times=999)
    [outcome] = await world.execute(world.plan(pod), seconds=20.0)
    assert (outcome.result, outcome.reason) == (REFUSED, reasons.DISRUPTION_BUDGET)
