"""Events on the controllers of evicted pods: what they contain, and how often they are emitted."""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes.recorder import FakeRecorder
from tests.unit.disruption.test_evictor import DRAIN, POLICY, TAINTS, admitted
from tests.unit.disruption.world import World
from trimtab.api import reasons
from trimtab.disruption.evictor import Evictor
from trimtab.disruption.evictor.owner_events import BURST, OWNER_INTERVAL, RATE, OwnerEvents
from trimtab.disruption.outcome import DELETED, EVICTED, FAILED, GONE, REFUSED, SKIPPED, STARTED, AttemptResult
from trimtab.kube.objects import Pod

pytestmark = pytest.mark.looptime


def reporting() -> tuple[World, FakeRecorder]:
    world, recorder = World(), FakeRecorder()
    world.evictor = Evictor(clock=world.clock, view=world, owner_events=OwnerEvents(recorder, clock=world.clock))
    return world, recorder


def evict(world: World, pod: Pod, result: str = EVICTED) -> None:
    permit = admitted(world, pod, POLICY, reason="DuplicateOnNode", message="why")
    world.evictor.conclude(permit, AttemptResult(result, reasons.EVICTED, "granted"))


@pytest.mark.parametrize(
    ("requester", "how", "words"),
    [
        (POLICY, "Evict", ("DeschedulerPolicy spread",)),
        (DRAIN, "Evict", ("autoscaler",)),
        (TAINTS, "Delete", ("taint manager",)),
    ],
)
async def test_event_on_the_owner_names_pod_node_requester_and_reason(requester, how, words):
    world, recorder = reporting()
    permit = admitted(world, world.add("web-1"), requester, how=how, reason="SomeReason", message="why", node="n1")
    world.evictor.conclude(permit, AttemptResult(DELETED if how == "Delete" else EVICTED, reasons.EVICTED, "granted"))
    [event] = recorder.events
    assert (str(event["regarding"]), event["regarding"].uid) == ("ReplicaSet/shop/web", "web")
    assert (event["reason"], str(event["related"])) == ("Evicted", "Pod/shop/web-1")
    for word in ("web-1", "n1", "SomeReason", "why", *words):
        assert word in event["note"]


@pytest.mark.parametrize(("result", "number"), [(STARTED, 1), (REFUSED, 0), (FAILED, 0), (GONE, 0), (SKIPPED, 0)])
async def test_only_evictions_are_reported(result, number):
    world, recorder = reporting()
    evict(world, world.add("web-1"), result)
    await asyncio.sleep(60)
    assert len(recorder.events) == number


async def test_pod_without_controller_gets_no_event():
    world, recorder = reporting()
    evict(world, world.add("bare", owners=()))
    await asyncio.sleep(60)
    assert recorder.events == []


async def test_later_evictions_of_an_owner_are_reported_together():
    world, recorder = reporting()
    for number in range(5):
        evict(world, world.add(f"web-{number}"))
    assert len(recorder.events) == 1
    await asyncio.sleep(OWNER_INTERVAL - 1)
    assert len(recorder.events) == 1
    await asyncio.sleep(2)
    _, common = recorder.events
    assert common["related"] is None
    assert common["note"].startswith("evicted 4 pods from ")
    assert ": web-1, web-2, web-3 and 1 more (" in common["note"]
    await asyncio.sleep(OWNER_INTERVAL)
    evict(world, world.add("web-9"))
    assert len(recorder.events) == 3


async def test_total_rate_is_limited_and_every_owner_is_reported():
    world, recorder = reporting()
    for number in range(200):
        evict(world, world.add(f"web-{number}", owner=f"web-{number}"))
    assert len(recorder.events) == BURST
    await asyncio.sleep(10)
    assert len(recorder.events) <= BURST + 10 * RATE
    await asyncio.sleep(60)
    assert len({str(event["regarding"]) for event in recorder.events}) == len(recorder.events) == 200
