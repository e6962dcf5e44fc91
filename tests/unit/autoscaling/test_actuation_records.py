"""Since when nodes are unneeded, written on them: what is written, when, and how little."""

from __future__ import annotations

import asyncio

import pytest

from tests.builders import node
from tests.fakes.clock import START
from tests.fakes.fleet import NODES, SINCE, TO_BE_DELETED, Fleet
from tests.unit.autoscaling.removing_nodes import Operator, running, spec_of
from trimtab.api.plan import rfc3339
from trimtab.autoscaling.actuation import RemovalSettings
from trimtab.autoscaling.actuation.candidates import marks
from trimtab.autoscaling.actuation.signs import REMOVING

CANDIDATE = "DeletionCandidateOfClusterAutoscaler"
SOFT = "PreferNoSchedule"
NOW = rfc3339(START)
VALUE = str(int(START))


def annotated(name: str = "n1", since: str = NOW):
    return node(name).annotations({SINCE: since})


@pytest.mark.parametrize(
    ("built", "since", "soft_taints", "written"),
    [
        (node("n1"), START, True, True),
        (annotated().taint(CANDIDATE, VALUE, SOFT), START, True, False),
        (annotated().taint(CANDIDATE, VALUE, SOFT), START + 0.9, True, False),
        (annotated(since="2027-01-15T09:00:00+01:00").taint(CANDIDATE, VALUE, SOFT), START, True, False),
        (annotated(), START, True, True),
        (annotated(), START, False, False),
        (annotated().taint(CANDIDATE, VALUE, SOFT), START, False, True),
        (annotated().taint(CANDIDATE, "1", SOFT), START, True, True),
        (annotated(since="soon"), START, False, True),
        (annotated(), START + 60, False, True),
        (node("n1"), None, True, False),
        (annotated(), None, True, True),
        (node("n1").taint(CANDIDATE, VALUE, SOFT), None, False, True),
        (annotated().annotations({REMOVING: "1"}).taint(TO_BE_DELETED, "1"), None, True, False),
        (node("n1").taint(TO_BE_DELETED, "1"), START, True, False),
        (annotated().taint(TO_BE_DELETED, "1"), START + 60, True, False),
        (annotated().taint(TO_BE_DELETED, "1"), None, True, True),
        (annotated().deleted(), None, True, False),
    ],
    ids=[
        "nothing is there",
        "all is there",
        "a part of a second more",
        "another zone of time",
        "the taint is missing",
        "no taint is wanted",
        "a taint that is no longer wanted",
        "a taint of another time",
        "an annotation that is no time",
        "another time",
        "needed, and nothing is there",
        "needed by now",
        "needed, with a taint",
        "it goes",
        "somebody else removes it",
        "somebody else removes it, with another time",
        "somebody else removes it, with our record",
        "it is being deleted",
    ],
)
def test_only_what_changes_is_written(built, since, soft_taints, written):
    unneeded = {} if since is None else {"n1": since}
    assert bool(marks([built.build()], unneeded, (), soft_taints=soft_taints, most=10)) is written


def test_records_that_go_come_first_and_then_those_that_waited_longest():
    there = [annotated("d").build(), *(node(name).build() for name in "abc"), annotated("e").build()]
    unneeded = {"a": START, "b": START - 60, "c": START}
    found = [(mark.node.name, mark.since) for mark in marks(there, unneeded, (), soft_taints=True, most=4)]
    assert found == [("d", None), ("e", None), ("b", START - 60), ("a", START)]


def test_nodes_whose_removal_goes_on_are_left_alone():
    assert marks([annotated().build()], {}, {"n1"}, soft_taints=True, most=10) == []


@pytest.mark.looptime(start=0)
@pytest.mark.usefixtures("no_threads")
class TestWriting:
    def fleet(self, count: int = 2) -> Fleet:
        fleet = Fleet()
        fleet.group("a", *(f"n{number}" for number in range(count)), unneeded=False)
        return fleet

    async def test_annotation_and_soft_taint_come_and_go_in_one_request_each(self) -> None:
        fleet = self.fleet(1)
        operator = Operator(fleet, scaleDown={"enabled": True, "unneededTime": "1h"})
        operator.records = True
        path = f"{NODES}/n0"
        async with running(operator):
            await asyncio.sleep(10)
            assert fleet.objects[path]["metadata"]["annotations"] == {"kept": "yes", SINCE: NOW}
            assert fleet.spec("n0")["taints"] == [{"key": CANDIDATE, "value": VALUE, "effect": SOFT}]
            assert len(fleet.calls) == 1
            fleet.web("w1", "n0", cpu="3")
            await asyncio.sleep(10)
            assert fleet.objects[path]["metadata"]["annotations"] == {"kept": "yes"}
            assert fleet.spec("n0") == {}
            assert len(fleet.calls) == 2

    async def test_so_many_are_written_a_pass(self) -> None:
        fleet = self.fleet(25)
        operator = Operator(fleet, scaleDown={"enabled": True, "unneededTime": "1h"})
        operator.records = True
        async with running(operator, every=10):
            for passes, written in enumerate((10, 20, 25, 25)):
                await asyncio.sleep(1 if not passes else 10)
                assert len(fleet.calls) == written

    async def test_time_goes_on_in_another_process(self) -> None:
        fleet = self.fleet(1)
        spec = {"scaleDown": {"enabled": True, "unneededTime": "60s"}}
        first, second = Operator(fleet, **spec), Operator(fleet, **spec)
        first.records = second.records = True
        async with running(first):
            await asyncio.sleep(40)
        async with running(second):
            await second.until(lambda: bool(second.outcomes), seconds=40)
        assert second.outcomes[0].done

    async def test_taints_of_others_stand_where_they_stood(self) -> None:
        fleet = self.fleet(1)
        mine = {"key": "mine", "value": "x", "effect": "NoSchedule"}
        fleet.edit(f"{NODES}/n0", spec={"taints": [{"key": CANDIDATE, "value": "1", "effect": SOFT}, mine]})
        operator = Operator(fleet, scaleDown={"enabled": False})
        operator.records = True
        async with running(operator):
            await asyncio.sleep(5)
        assert fleet.spec("n0")["taints"] == [mine]

    async def test_without_an_autoscaler_all_records_go(self) -> None:
        fleet = self.fleet(2)
        settings = RemovalSettings(writes=1, record_after=0.0)
        operator = Operator(fleet, settings=settings, scaleDown={"enabled": True, "unneededTime": "1h"})
        operator.records = True
        async with running(operator):
            await asyncio.sleep(10)
            operator.spec = None
            await asyncio.sleep(10)
        assert all(SINCE not in fleet.objects[f"{NODES}/n{number}"]["metadata"]["annotations"] for number in (0, 1))
        assert all(fleet.spec(f"n{number}") == {} for number in (0, 1))

    async def test_a_request_that_fails_is_found_undone_by_the_next_pass(self) -> None:
        fleet = self.fleet(1)
        operator = Operator(fleet, scaleDown={"enabled": True, "unneededTime": "1h"})
        operator.records = True
        fleet.down = True
        async with running(operator):
            await asyncio.sleep(5)
            fleet.down = False
            await asyncio.sleep(5)
        assert SINCE in fleet.objects[f"{NODES}/n0"]["metadata"]["annotations"]

    async def test_a_soft_taint_does_not_outlive_the_node_that_is_returned(self) -> None:
        fleet = self.fleet(1)
        operator = Operator(fleet, scaleDown={"enabled": True, "unneededTime": "10s", "delayAfterDelete": "0s"})
        operator.records = True
        async with running(operator):
            await operator.until(lambda: bool(fleet.traces()))
            operator.spec = spec_of({"scaleDown": {"enabled": False}})
            await operator.until(lambda: bool(operator.outcomes))
            await asyncio.sleep(10)
        assert fleet.traces() == {}
        assert fleet.spec("n0") == {}


@pytest.mark.parametrize(
    ("built", "since", "written"),
    [
        (node("n1"), START - 10, False),
        (node("n1"), START - 31, True),
        (annotated(since=rfc3339(START - 3600)), START - 10, True),
        (node("n1").taint(CANDIDATE, "1", SOFT), START - 10, True),
        (annotated(), None, True),
    ],
    ids=["for moments", "for long enough", "its record is of another time", "its taint is", "needed again"],
)
def test_a_node_that_is_unneeded_for_moments_costs_no_request(built, since, written) -> None:
    unneeded = {} if since is None else {"n1": since}
    found = marks([built.build()], unneeded, (), soft_taints=True, most=10, begun_by=START - 30)
    assert bool(found) is written
