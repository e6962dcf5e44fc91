"""A process that is killed between any two requests: its successor leaves nothing behind and breaks no bound."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tests.fakes.api import Call
from tests.fakes.fleet import Fleet
from tests.unit.autoscaling.removing_nodes import Operator, kill, running
from trimtab.kube.api import Conflict, ServerError, Unreachable

pytestmark = [pytest.mark.looptime(start=0), pytest.mark.usefixtures("no_threads")]

REQUESTS = 10
"""As many as change something in the undisturbed course; see below."""


def cluster() -> Fleet:
    """An empty node, and two with pods, one of which has to stay for the minimum; budgets and room for all pods."""
    fleet = Fleet()
    fleet.group("a", "a1", "a2", "a3", least=1)
    fleet.group("b", "b1", unneeded=False)
    for number, on in enumerate(["a1", "a1", "a2", "b1"]):
        fleet.web(f"w{number}", on, cpu="400m")
    fleet.web("big", "b1", app="big", cpu="2")
    fleet.guard("web", 3)
    return fleet


async def killed_after(fleet: Fleet, request: int, *, answered: bool) -> None:
    """Run a process and kill it with its nth request, which the API server has carried out."""
    count = 0
    over = asyncio.Event()

    async def die(call: Call) -> None:
        nonlocal count
        count += call.method != "GET"
        if count == request:
            over.set()
            if not answered:
                await asyncio.sleep(3600)

    fleet.after = die
    first = Operator(fleet)
    before = asyncio.all_tasks()
    living = {asyncio.create_task(fleet.live_on()), asyncio.create_task(first.passes())}
    waiting = asyncio.create_task(over.wait())
    await asyncio.wait({waiting}, timeout=40)
    waiting.cancel()
    await kill((asyncio.all_tasks() - before) | living)
    fleet.after = None


def check(fleet: Fleet) -> None:
    assert fleet.traces() == {}
    assert fleet.replicas("a") >= 1
    assert len([name for name in fleet.nodes() if name.startswith("a")]) >= 1
    assert fleet.lowest["web"] >= 3
    assert all(each["spec"].get("nodeName") for each in fleet.app("web") + fleet.app("big"))


async def test_the_undisturbed_course_takes_that_many_requests() -> None:
    fleet = cluster()
    operator = Operator(fleet)

    async with running(operator):
        await operator.until(lambda: fleet.replicas("a") == 1 and not fleet.traces())

    check(fleet)
    assert len([call for call in fleet.calls if call.method != "GET"]) == REQUESTS


@pytest.mark.parametrize("answered", [True, False], ids=["answered", "unanswered"])
@pytest.mark.parametrize("request_number", range(1, REQUESTS + 1))
async def test_a_successor_goes_on_where_a_killed_process_was(request_number: int, answered: bool) -> None:
    fleet = cluster()
    await killed_after(fleet, request_number, answered=answered)
    successor = Operator(fleet)

    async with running(successor):
        await successor.until(lambda: fleet.replicas("a") == 1 and not fleet.traces())
        await asyncio.sleep(20)

    check(fleet)


@pytest.mark.parametrize("answered", [True, False], ids=["answered", "unanswered"])
@pytest.mark.parametrize("request_number", range(1, REQUESTS + 1))
async def test_a_successor_that_is_not_to_act_returns_everything(request_number: int, answered: bool) -> None:
    fleet = cluster()
    await killed_after(fleet, request_number, answered=answered)
    size = fleet.replicas("a")
    successor = Operator(fleet, scaleDown={"enabled": False})

    async with running(successor):
        await successor.until(lambda: not fleet.traces() and not successor.removals.going, seconds=60)
        await asyncio.sleep(20)

    check(fleet)
    assert fleet.replicas("a") == size


@pytest.mark.parametrize("request_number", range(1, REQUESTS + 1))
async def test_one_that_is_killed_again_and_again_leaves_nothing_either(request_number: int) -> None:
    fleet = cluster()
    for more in range(4):
        await killed_after(fleet, request_number + more, answered=bool(more % 2))
    successor = Operator(fleet)

    async with running(successor):
        await successor.until(lambda: fleet.replicas("a") == 1 and not fleet.traces())

    check(fleet)


@pytest.mark.parametrize("seed", range(12))
async def test_errors_and_lost_answers_at_any_time_leave_nothing(seed: int) -> None:
    fleet = cluster()
    chance = Random(seed)

    async def before(call: Call) -> None:
        if chance.random() < 0.25:
            raise chance.choice([ServerError("broken", status=500), Unreachable("cut"), Conflict("late", status=409)])

    async def after(call: Call) -> None:
        if chance.random() < 0.25:
            raise chance.choice([ServerError("broken", status=500), Unreachable("cut")])
        await asyncio.sleep(chance.random())

    fleet.before, fleet.after = before, after
    operator = Operator(fleet)
    async with running(operator):
        await asyncio.sleep(60)
        fleet.before = fleet.after = None
        await operator.until(lambda: fleet.replicas("a") == 1 and not fleet.traces())

    check(fleet)
