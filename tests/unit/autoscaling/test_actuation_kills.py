"""Kills between any two requests: the next process leaves no markers behind and violates no limit."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tests.fakes.api import Call
from tests.fakes.fleet import Fleet
from tests.unit.autoscaling.removal_operator import Operator, killed_after, running
from trimtab.kube.api import Conflict, ServerError, Unreachable

pytestmark = [pytest.mark.live, pytest.mark.looptime(start=0), pytest.mark.usefixtures("no_threads")]

REQUESTS = 11
"""The number of requests without faults, checked below."""


def cluster() -> Fleet:
    """An empty node and two nodes with pods, one of which the minimum keeps; PDBs, and capacity for all pods."""
    fleet = Fleet()
    fleet.group("a", "a1", "a2", "a3", least=1)
    fleet.group("b", "b1", unneeded=False)
    for number, on in enumerate(["a1", "a1", "a2", "b1"]):
        fleet.web(f"w{number}", on, cpu="400m")
    fleet.web("big", "b1", app="big", cpu="2")
    fleet.guard("web", 3)
    return fleet


def check(fleet: Fleet) -> None:
    assert fleet.traces() == {}
    assert fleet.replicas("a") >= 1
    assert len([name for name in fleet.nodes() if name.startswith("a")]) >= 1
    assert fleet.lowest["web"] >= 3
    assert all(each["spec"].get("nodeName") for each in fleet.app("web") + fleet.app("big"))


async def test_number_of_requests_without_faults() -> None:
    fleet = cluster()
    operator = Operator(fleet)

    async with running(operator):
        await operator.until(lambda: fleet.replicas("a") == 1 and not fleet.traces())

    check(fleet)
    assert len([call for call in fleet.calls if call.method != "GET"]) == REQUESTS


@pytest.mark.parametrize("answered", [True, False], ids=["answered", "unanswered"])
@pytest.mark.parametrize("request_number", range(1, REQUESTS + 1))
async def test_next_process_resumes_after_a_kill(request_number: int, answered: bool) -> None:
    fleet = cluster()
    await killed_after(fleet, request_number, answered=answered)
    successor = Operator(fleet)

    async with running(successor):
        await successor.until(lambda: fleet.replicas("a") == 1 and not fleet.traces())
        await asyncio.sleep(20)

    check(fleet)


@pytest.mark.parametrize("answered", [True, False], ids=["answered", "unanswered"])
@pytest.mark.parametrize("request_number", range(1, REQUESTS + 1))
async def test_next_process_in_simulate_mode_rolls_back(request_number: int, answered: bool) -> None:
    fleet = cluster()
    await killed_after(fleet, request_number, answered=answered)
    size = fleet.replicas("a")
    successor = Operator(fleet, scaleDown={"enabled": False})

    async with running(successor):
        await successor.until(lambda: not fleet.traces() and not successor.removals.active, seconds=60)
        await asyncio.sleep(20)

    check(fleet)
    assert fleet.replicas("a") == size


@pytest.mark.parametrize("request_number", range(1, REQUESTS + 1))
async def test_repeated_kills_leave_no_markers(request_number: int) -> None:
    fleet = cluster()
    for more in range(4):
        await killed_after(fleet, request_number + more, answered=bool(more % 2))
    successor = Operator(fleet)

    async with running(successor):
        await successor.until(lambda: fleet.replicas("a") == 1 and not fleet.traces())

    check(fleet)


@pytest.mark.parametrize("seed", range(12))
async def test_errors_and_lost_answers_leave_no_markers(seed: int) -> None:
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
