"""Evictions while a planner has the snapshot: rechecks wait for it, and no eviction fails."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest

from tests.unit.disruption.world import World
from trimtab.api import reasons
from trimtab.cluster.shared_snapshot import SharedSnapshot
from trimtab.disruption.outcome import EVICTED, REFUSED, SKIPPED, Refusal

pytestmark = pytest.mark.looptime


@asynccontextmanager
async def planning(shared, *, every=2.0, takes=0.5):
    """A planner that has the snapshot for `takes` seconds of each `every`."""

    async def plan():
        while True:
            async with shared.borrow():
                await asyncio.sleep(takes)
            await asyncio.sleep(every - takes)

    task = asyncio.create_task(plan())
    await asyncio.sleep(0)
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def recheck_on(shared, judge=lambda _action: None):
    async def recheck(action):
        async with shared.borrow():
            return judge(action)

    return recheck


async def test_all_pods_are_evicted_while_a_planner_holds_the_snapshot_repeatedly():
    world, shared = World(), SharedSnapshot()
    pods = [world.add(f"web-{number}", owner=f"o-{number}") for number in range(60)]
    async with planning(shared):
        outcomes = await world.execute(world.plan(*pods), recheck=recheck_on(shared), seconds=20.0)
    assert Counter(outcome.result for outcome in outcomes) == {EVICTED: 60}


async def test_recheck_that_waits_for_a_planner_counts_as_waiting_eviction():
    world, shared = World(), SharedSnapshot()
    pods = [world.add(f"web-{number}", owner=f"o-{number}") for number in range(3)]
    async with planning(shared, takes=5.0, every=60.0):
        executing = asyncio.create_task(world.execute(world.plan(*pods), recheck=recheck_on(shared)))
        await asyncio.sleep(0.5)
        early = world.evictor.waiting_status("descheduler")
        await asyncio.sleep(2.5)
        [waiting] = world.evictor.waiting_status("descheduler")
        await executing
    assert early == ()
    assert (waiting.reason, waiting.waits_for, waiting.count) == (reasons.WAITING_FOR_PLAN, "", 3)
    assert (world.evictor.waiting_status("descheduler"), len(world.asked)) == ((), 3)


async def test_rate_limit_holds_after_delayed_rechecks():
    world, shared = World(), SharedSnapshot()
    pods = [world.add(f"web-{number}", owner=f"o-{number}") for number in range(60)]
    async with planning(shared, every=10.0, takes=9.0):
        outcomes = await world.execute(world.plan(*pods), recheck=recheck_on(shared), per_minute=20, seconds=280.0)
    assert Counter(outcome.result for outcome in outcomes) == {EVICTED: 60}
    times = sorted(world.times.values())
    assert all(sum(start <= time < start + 60.0 for time in times) <= 20 for start in times)


async def test_pod_that_changes_during_recheck_is_not_evicted():
    world, shared = World(), SharedSnapshot()
    moved, going, web = world.add("moved", owner="a"), world.add("going", owner="b"), world.add("web", owner="c")
    async with planning(shared, takes=1.0):
        executing = asyncio.create_task(world.execute(world.plan(moved, going, web), recheck=recheck_on(shared)))
        await asyncio.sleep(0.5)
        world.put(msgspec.structs.replace(moved, node="n2"))
        world.put(msgspec.structs.replace(going, deleted=1_800_000_000.0))
        outcomes = await executing
    assert [outcome.reason for outcome in outcomes] == [reasons.PLAN_OUTDATED, reasons.TERMINATING, reasons.EVICTED]
    assert [name for name, _ in world.asked] == ["web"]


async def test_refused_recheck_returns_rate_limit_token():
    world, shared = World(), SharedSnapshot()
    pods = [world.add(f"web-{number}", owner=f"o-{number}") for number in range(5)]
    refuse = recheck_on(shared, lambda _action: Refusal(reasons.NO_PLACE, "0/3 nodes"))
    async with planning(shared):
        outcomes = await world.execute(world.plan(*pods), recheck=refuse, per_minute=1)
        assert Counter(outcome.result for outcome in outcomes) == {REFUSED: 5}
        await world.execute(world.plan(world.add("last")), recheck=recheck_on(shared), per_minute=1)
    assert world.times["last"] < 5.0


@pytest.mark.parametrize("stops", [False, True], ids=["deadline", "stop"])
async def test_deadline_and_stop_end_waiting_rechecks(stops):
    world, shared, stop = World(), SharedSnapshot(), asyncio.Event()
    pods = [world.add(f"web-{number}", owner=f"o-{number}") for number in range(20)]
    if stops:
        asyncio.get_running_loop().call_later(3.0, stop.set)
    async with planning(shared, takes=30.0, every=60.0):
        outcomes = await world.execute(
            world.plan(*pods), recheck=recheck_on(shared), seconds=100.0 if stops else 3.0, stop=stop
        )
        assert world.clock.monotonic() == pytest.approx(3.0, abs=0.1)
        assert not world.asked
        async with asyncio.timeout(40), shared.borrow():  # no abandoned recheck holds it
            pass
    reason = reasons.SHUTTING_DOWN if stops else reasons.CYCLE_DEADLINE
    assert Counter((outcome.result, outcome.reason) for outcome in outcomes) == {(SKIPPED, reason): 20}


async def test_recheck_is_repeated_after_watches_were_stale():
    world, shared = World(), SharedSnapshot()
    blind = ["no connection"]
    web = world.add("web-1")
    asyncio.get_running_loop().call_later(0.5, lambda: blind.append("cut"))
    asyncio.get_running_loop().call_later(10.0, blind.clear)
    blind.clear()
    async with planning(shared, takes=1.0):
        [outcome] = await world.execute(
            world.plan(web), recheck=recheck_on(shared), not_ready_reason=lambda: blind[0] if blind else None
        )
    assert outcome.result == EVICTED
    assert world.times["web-1"] >= 10.0
