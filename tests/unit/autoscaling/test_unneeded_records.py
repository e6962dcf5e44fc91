"""Records of unneeded nodes: what is written, when, and with how few requests."""

from __future__ import annotations

import asyncio

import pytest

from tests.builders import node
from tests.fakes.clock import START
from tests.fakes.fleet import NODES, SINCE, TO_BE_DELETED, Fleet
from tests.unit.autoscaling.removal_operator import Operator, running, spec_of
from trimtab.api.plan import rfc3339
from trimtab.autoscaling.actuation import RemovalSettings
from trimtab.autoscaling.actuation.node_markers import REMOVING, records_to_write

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
def test_only_changed_records_are_written(built, since, soft_taints, written):
    unneeded = {} if since is None else {"n1": since}
    assert bool(records_to_write([built.build()], unneeded, (), soft_taints=soft_taints, limit=10)) is written


def test_records_to_remove_come_first_then_the_longest_unneeded():
    there = [annotated("d").build(), *(node(name).build() for name in "abc"), annotated("e").build()]
    unneeded = {"a": START, "b": START - 60, "c": START}
    found = [(mark.node.name, mark.since) for mark in records_to_write(there, unneeded, (), soft_taints=True, limit=4)]
    assert found == [("d", None), ("e", None), ("b", START - 60), ("a", START)]


def test_nodes_being_removed_get_no_record():
    assert records_to_write([annotated().build()], {}, {"n1"}, soft_taints=True, limit=10) == []


@pytest.mark.looptime(start=0)
@pytest.mark.usefixtures("no_threads")
class TestWriting:
    def fleet(self, count: int = 2) -> Fleet:
        fleet = Fleet()
        fleet.group("a", *(f"n{number}" for number in range(count)), unneeded=False)
        return fleet

    async def test_annotation_and_soft_taint_change_in_one_request(self) -> None:
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

    async def test_writes_per_iteration_are_limited(self) -> None:
        fleet = self.fleet(25)
        operator = Operator(fleet, scaleDown={"enabled": True, "unneededTime": "1h"})
        operator.records = True
        async with running(operator, every=10):
            for passes, written in enumerate((10, 20, 25, 25)):
                await asyncio.sleep(1 if not passes else 10)
                assert len(fleet.calls) == written

    async def test_unneeded_time_survives_a_restart(self) -> None:
        fleet = self.fleet(1)
        spec = {"scaleDown": {"enabled": True, "unneededTime": "60s"}}
        settings = RemovalSettings(record_after=0.0, mark_delay=0.0)
        first, second = Operator(fleet, settings=settings, **spec), Operator(fleet, settings=settings, **spec)
        first.records = second.records = True
        async with running(first):
            await asyncio.sleep(40)
        async with running(second):
            await second.until(lambda: bool(second.outcomes), seconds=40)
        assert second.outcomes[0].done

    async def test_other_taints_keep_their_order(self) -> None:
        fleet = self.fleet(1)
        mine = {"key": "mine", "value": "x", "effect": "NoSchedule"}
        fleet.edit(f"{NODES}/n0", spec={"taints": [{"key": CANDIDATE, "value": "1", "effect": SOFT}, mine]})
        operator = Operator(fleet, scaleDown={"enabled": False})
        operator.records = True
        async with running(operator):
            await asyncio.sleep(5)
        assert fleet.spec("n0")["taints"] == [mine]

    async def test_deleting_the_autoscaler_removes_all_records(self) -> None:
        fleet = self.fleet(2)
        settings = RemovalSettings(max_record_writes=1, record_after=0.0)
        operator = Operator(fleet, settings=settings, scaleDown={"enabled": True, "unneededTime": "1h"})
        operator.records = True
        async with running(operator):
            await asyncio.sleep(10)
            operator.spec = None
            await asyncio.sleep(10)
        assert all(SINCE not in fleet.objects[f"{NODES}/n{number}"]["metadata"]["annotations"] for number in (0, 1))
        assert all(fleet.spec(f"n{number}") == {} for number in (0, 1))

    async def test_failed_write_is_retried_by_the_next_iteration(self) -> None:
        fleet = self.fleet(1)
        operator = Operator(fleet, scaleDown={"enabled": True, "unneededTime": "1h"})
        operator.records = True
        fleet.down = True
        async with running(operator):
            await asyncio.sleep(5)
            fleet.down = False
            await asyncio.sleep(5)
        assert SINCE in fleet.objects[f"{NODES}/n0"]["metadata"]["annotations"]

    async def test_rollback_removes_the_soft_taint(self) -> None:
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
    ids=["briefly", "long enough", "record with another time", "taint with another time", "needed again"],
)
def test_briefly_unneeded_node_costs_no_request(built, since, written) -> None:
    unneeded = {} if since is None else {"n1": since}
    found = records_to_write([built.build()], unneeded, (), soft_taints=True, limit=10, begun_by=START - 30)
    assert bool(found) is written
