"""What is begun and goes on by itself: rollouts of single replicas, and evictions that somebody takes over."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from tests.fakes.api import Call
from tests.unit.cluster.test_rollouts import deployment, rolling, settled
from tests.unit.disruption.test_executor import results
from tests.unit.disruption.world import World, budget_refusal
from trimtab.api import reasons
from trimtab.api.plan import SURGE, Evict
from trimtab.cluster.rollouts import RESTARTED_AT
from trimtab.disruption.background import IN_PROGRESS, REQUEST_EVICT_ONLY
from trimtab.disruption.outcome import EVICTED, FAILED, GONE, REFUSED, SKIPPED, STARTED
from trimtab.disruption.refusal import Refusal
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


async def test_a_rollout_is_started_and_watched_until_the_old_pod_has_gone(caplog):
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
    assert on_pod.note.startswith("renewed by a rollout of Deployment web, from n1, expected on new: ")


async def test_a_rollout_that_lasts_goes_on_by_itself():
    world = Rolling(restart=None, rollout=60.0)
    [outcome] = await world.execute(world.surge())
    assert (outcome.result, outcome.reason) == (STARTED, reasons.ROLLOUT_IN_PROGRESS)
    assert "goes on by itself" in outcome.message
    assert len(world.api.sent("PATCH", WEB)) == 1
    assert [event.type for event in world.recorder.events] == ["Normal", "Normal"]


@pytest.mark.parametrize("ending", ["deadline", "stop"])
async def test_a_rollout_that_outlasts_the_cycle_counts_as_started(ending):
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
        pytest.param(deployment(), {"updatedReplicas": 0}, reasons.ROLLOUT_IN_PROGRESS, id="rolled out by somebody"),
    ],
)
async def test_the_deployment_is_judged_once_more_right_before(manifest, status, reason):
    world = Rolling()
    world.deploy(manifest, **status)
    [outcome] = await world.execute(world.surge())
    assert (outcome.result, outcome.reason) == (REFUSED, reason)
    assert not world.api.sent("PATCH")


async def test_a_deployment_that_has_gone_is_no_failure():
    world = Rolling()
    del world.api.objects[WEB]
    assert results(await world.execute(world.surge())) == [("web-1", SKIPPED, reasons.PLAN_OUTDATED)]


async def test_a_change_in_between_is_looked_at_before_it_is_tried_again():
    world = Rolling()
    world.api.fail(Conflict("the object has been modified", status=409), method="PATCH")
    assert results(await world.execute(world.surge())) == [("web-1", EVICTED, reasons.ROLLED_OUT)]
    assert [call.method for call in world.api.sent(path=WEB)] == ["GET", "PATCH", "GET", "PATCH"]


async def test_an_overloaded_server_is_asked_again_when_it_says():
    world = Rolling()
    world.api.fail(TooManyRequests("too many requests", status=429, retry_after=9.0), method="PATCH")
    [outcome] = await world.execute(world.surge())
    assert outcome.result == EVICTED
    assert world.clock.monotonic() > 9


async def test_a_restart_whose_answer_was_lost_is_found_again_and_not_made_twice():
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


async def test_a_restart_whose_answer_was_lost_is_not_judged_as_somebody_elses():
    """The picture shows a rollout by then, which is no reason to keep the pod: it is ours, and counts as such."""
    world = Rolling(restart=30.0)
    lost = iter([True])
    after = world._after

    async def lose(call: Call) -> None:
        await after(call)
        if call.method == "PATCH" and next(lost, False):
            raise Unreachable("reset")

    def recheck(_action: Evict) -> Refusal | None:
        return Refusal(reasons.ROLLOUT_IN_PROGRESS, "a pod of another template") if world.mark else None

    world.api.after = lose
    [outcome] = await world.execute(world.surge(), recheck=recheck)
    assert (outcome.result, outcome.reason) == (EVICTED, reasons.ROLLED_OUT)
    assert len(world.api.sent("PATCH", WEB)) == 1


async def test_a_restart_that_never_arrived_is_asked_for_again():
    world = Rolling()
    world.api.fail(Unreachable("reset"), method="PATCH")
    [outcome] = await world.execute(world.surge())
    assert (outcome.result, outcome.reason) == (EVICTED, reasons.ROLLED_OUT)
    assert [call.method for call in world.api.sent(path=WEB)] == ["GET", "PATCH", "GET", "GET", "PATCH"]


async def test_a_restart_of_which_nobody_tells_is_no_success():
    world = Rolling()
    answers = iter([False])  # the Deployment can be read once, before it is restarted

    async def cut(call: Call) -> None:
        if call.path == WEB and next(answers, True):
            raise Unreachable("reset")

    world.api.before = cut
    [outcome] = await world.execute(world.surge(), seconds=20.0)
    assert (outcome.result, outcome.reason) == (FAILED, reasons.EVICTION_FAILED)
    assert "whether the pod is evicted is not known" in outcome.message
    assert not world.mark


async def test_without_the_right_it_fails_and_says_which_right_it_is():
    world = Rolling()
    world.api.fail(Forbidden("deployments.apps is forbidden", status=403), method="PATCH", times=9)
    [outcome] = await world.execute(world.surge())
    assert (outcome.result, outcome.reason) == (FAILED, reasons.EVICTION_FAILED)
    assert "controllers.descheduler.surge" in outcome.message
    assert len(world.api.sent("PATCH")) == 1


async def test_rollouts_count_for_the_pace():
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


async def test_an_eviction_that_is_taken_over_is_no_refusal_and_is_watched_until_the_pod_has_gone():
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


async def test_a_machine_whose_old_pod_has_ended_has_been_moved():
    world = World()
    pod = machine(world)
    taken_over(world)
    later(40, world.put, msgspec.structs.replace(pod, phase="Succeeded", ready=False))
    assert results(await world.execute(world.plan(pod))) == [(pod.name, EVICTED, reasons.EVACUATED)]


async def test_an_evacuation_whose_annotation_is_taken_off_has_failed():
    world = World()
    pod = machine(world)
    taken_over(world)
    later(5, world.put, msgspec.structs.replace(pod, annotations=FrozenMap({**pod.annotations, IN_PROGRESS: ""})))
    later(60, world.put, pod)
    [outcome] = await world.execute(world.plan(pod))
    assert (outcome.result, outcome.reason) == (REFUSED, reasons.EVACUATION_FAILED)
    assert 60 <= world.clock.monotonic() < 62


async def test_an_evacuation_that_nobody_ends_is_given_up_after_ten_minutes():
    world = World()
    pod = machine(world)
    taken_over(world)
    [outcome] = await world.execute(world.plan(pod), seconds=3600.0)
    assert (outcome.result, outcome.reason) == (REFUSED, reasons.EVACUATION_FAILED)
    assert 600 <= world.clock.monotonic() < 602


async def test_an_evacuation_that_outlasts_the_cycle_counts_as_started_and_keeps_its_pace():
    world = World()
    pod = machine(world)
    taken_over(world)
    [outcome] = await world.execute(world.plan(pod), seconds=30.0)
    assert (outcome.result, outcome.reason) == (STARTED, reasons.EVICTION_IN_BACKGROUND)
    assert "Eviction triggered evacuation of VMI shop/vm" in outcome.message
    assert not [event for event in world.recorder.events if event.type == "Warning"]


async def test_other_owners_are_not_kept_waiting_by_an_evacuation():
    world = World()
    pod = machine(world)
    taken_over(world)
    outcomes = await world.execute([*world.plan(pod), *world.plan(world.add("web-1"))], seconds=60.0)
    assert [outcome.result for outcome in outcomes] == [STARTED, EVICTED]
    assert world.times["web-1"] < 10


async def test_a_pod_that_is_on_its_way_already_is_not_asked_for():
    world = World()
    pod = machine(world, **{IN_PROGRESS: ""})
    assert results(await world.execute(world.plan(pod))) == [(pod.name, GONE, reasons.EVICTION_IN_BACKGROUND)]
    assert not world.asked


async def test_a_budgets_refusal_is_still_one():
    world = World()
    pod = machine(world)
    world.api.fail(budget_refusal(), path="/eviction", times=999)
    [outcome] = await world.execute(world.plan(pod), seconds=20.0)
    assert (outcome.result, outcome.reason) == (REFUSED, reasons.DISRUPTION_BUDGET)
