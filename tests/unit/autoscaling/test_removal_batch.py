"""Removal batches with a controller whose caches lag: at most one wrong machine is deleted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from datetime import datetime
from functools import partial
from typing import Any

import looptime
import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.fakes.api import Call
from tests.fakes.fleet import BUDGETS, MACHINES, NODES, REMOVAL_IN_PROGRESS, SETS, Fleet
from tests.fixtures.golden import Golden
from tests.strategies import examples
from tests.unit.autoscaling.removal_operator import Operator, kill, killed_after, running
from trimtab.api.plan import rfc3339
from trimtab.autoscaling.actuation import Phase, RemovalSettings
from trimtab.autoscaling.actuation.removal import RemovalEnded
from trimtab.autoscaling.actuation.removal_backoff import RemovalBackoff
from trimtab.autoscaling.actuation.removal_batch import RemovalTicket
from trimtab.autoscaling.actuation.removal_record import decode_record, encode_record, planned_removal
from trimtab.autoscaling.groups import Groups, build_groups
from trimtab.autoscaling.providers import MarkedMachines
from trimtab.kube.api import ServerError
from trimtab.kube.objects import Pod
from trimtab.kube.objects.machine import CLUSTER_API, MACHINE_API

pytestmark = [pytest.mark.looptime(start=0), pytest.mark.usefixtures("no_threads")]

GROUP = "MachineSet/openshift-machine-api/a"
LAGS = [
    pytest.param(lag, marks=() if lag in (0.0, 10.0) else pytest.mark.live, id=str(lag))
    for lag in (0.0, 0.5, 2.0, 5.0, 10.0)
]


def cluster(*, empty: int, busy: int, api_group: str = MACHINE_API) -> Fleet:
    """A group of empty and busy nodes; the machines of the busy ones are first by name."""
    fleet = Fleet(api_group=api_group)
    names = [f"b{number:02}" for number in range(busy)] + [f"e{number:02}" for number in range(empty)]
    fleet.group("a", *names, most=100)
    for number in range(busy):
        fleet.web(f"w{number:02}", names[number], cpu="3")
    return fleet


def of_delay(seconds: float) -> RemovalSettings:
    return RemovalSettings(record_after=0.0, mark_delay=seconds)


def at_rest(fleet: Fleet, size: int) -> bool:
    return fleet.replicas("a") == size == len(fleet.nodes()) and not fleet.traces()


@pytest.mark.parametrize("size_lag", LAGS)
@pytest.mark.parametrize("mark_lag", LAGS)
async def test_only_empty_nodes_are_removed(mark_lag: float, size_lag: float) -> None:
    fleet = cluster(empty=10, busy=10)
    fleet.mark_lag, fleet.size_lag = mark_lag, size_lag
    operator = Operator(fleet)

    async with running(operator):
        await operator.until(lambda: at_rest(fleet, 10))

    assert fleet.nodes() == [f"b{number:02}" for number in range(10)]
    assert fleet.lost == []
    assert all(each.done for each in operator.outcomes)


@pytest.mark.parametrize("mark_lag", LAGS)
async def test_only_empty_nodes_of_cluster_api_are_removed(mark_lag: float) -> None:
    fleet = cluster(empty=10, busy=10, api_group=CLUSTER_API)
    fleet.mark_lag = mark_lag
    operator = Operator(fleet)

    async with running(operator):
        await operator.until(lambda: at_rest(fleet, 10))

    assert fleet.nodes() == [f"b{number:02}" for number in range(10)]
    assert fleet.lost == []
    assert fleet.sent("PATCH", "cluster.x-k8s.io/v1beta2/namespaces/openshift-machine-api/machines/")


@pytest.mark.live
async def test_one_machine_is_lost_if_the_controller_lags_more_than_the_mark_delay(golden: Golden) -> None:
    fleet = cluster(empty=10, busy=10)
    fleet.mark_lag = 10.0
    operator = Operator(fleet, settings=of_delay(2.0))

    async with running(operator):
        await operator.until(lambda: any(each.reason == "WrongMachineRemoved" for each in operator.outcomes))
        assert len(fleet.lost) == 1
        assert fleet.replicas("a") == 19
        held = operator.removals._batches.backoff("MachineSet/openshift-machine-api/a").backoff_reason(
            fleet.clock.now()
        )
        await operator.until(lambda: not fleet.traces())
        await asyncio.sleep(50)
        assert fleet.replicas("a") == 19
        await operator.until(lambda: at_rest(fleet, 10), seconds=3600)

    golden(held)
    golden(held, "2")
    golden(held, "3")
    # The mark delay was 2 s, then 4 s and 8 s; 16 s sufficed.
    assert len(fleet.lost) == 3


@given(
    mark_lag=st.floats(0, 10),
    size_lag=st.floats(0, 10),
    empty=st.integers(1, 12),
    busy=st.integers(1, 12),
    extra=st.lists(st.tuples(st.integers(0, 11), st.floats(0, 40)), max_size=3),
)
@example(mark_lag=10.0, size_lag=0.0, empty=10, busy=12, extra=[(3, 7.0)])
@example(mark_lag=9.039595718986483, size_lag=4.369993261613438, empty=10, busy=1, extra=[(0, 20.74069052574083)])
@settings(max_examples=examples(24), deadline=None)
def test_lagging_caches_delete_no_machine_with_pods(
    mark_lag: float, size_lag: float, empty: int, busy: int, extra: list[tuple[int, float]]
) -> None:
    """A node leaves the batch when a pod is bound to it."""
    fleet = cluster(empty=empty, busy=busy)
    fleet.mark_lag, fleet.size_lag = mark_lag, size_lag
    _run(_with_pods(fleet, empty, busy, extra))
    assert fleet.lost == []


def recorded_removal(fleet: Fleet) -> set[str]:
    """The machines of which the MachineSet's annotation says that its size is lowered for them."""
    text = fleet.objects[f"{SETS}/a"]["metadata"].get("annotations", {}).get(REMOVAL_IN_PROGRESS)
    record = json.loads(text) if text else {"prefix": "", "machines": []}
    return {record["prefix"] + each for each in record["machines"]}


async def _with_pods(fleet: Fleet, empty: int, busy: int, extra: list[tuple[int, float]]) -> None:
    operator = Operator(fleet)
    placed: set[str] = set()

    def place(name: str, number: int) -> None:
        if name in fleet.nodes() and not fleet.objects[f"{MACHINES}/m-{name}"]["metadata"].get("deletionTimestamp"):
            batch = operator.removals.active.get(name)
            # The operator reports the phase up to half a second after it has lowered the size.
            lowered = f"m-{name}" in recorded_removal(fleet)
            if not lowered and (batch is None or batch.phase not in (Phase.REMOVING, Phase.VERIFYING)):
                fleet.web(f"x{number}", name, app=f"x{number}", cpu="3")
                placed.add(name)

    async with running(operator):
        for number, (node, at) in enumerate(extra):
            asyncio.get_running_loop().call_later(at, place, f"e{node:02}", number)
        await asyncio.sleep(45)
        await operator.until(lambda: at_rest(fleet, busy + len(placed)), seconds=900)


@given(
    lag=st.floats(0, 10),
    moments=st.lists(st.floats(0.5, 45), min_size=1, max_size=4),
    empty=st.integers(2, 10),
)
@settings(max_examples=12, deadline=None)
@pytest.mark.live
def test_kills_delete_no_wrong_machine(lag: float, moments: list[float], empty: int) -> None:
    fleet = cluster(empty=empty, busy=5)
    fleet.mark_lag = lag
    _run(_killed(fleet, moments))
    assert fleet.lost == []


async def _killed(fleet: Fleet, moments: list[float]) -> None:
    living = asyncio.create_task(fleet.live_on())
    for moment in moments:
        before = asyncio.all_tasks()
        passes = asyncio.create_task(Operator(fleet).passes())
        await asyncio.sleep(moment)
        assert not passes.done()
        await kill(asyncio.all_tasks() - before)
    living.cancel()
    last = Operator(fleet)
    async with running(last):
        await last.until(lambda: at_rest(fleet, 5), seconds=900)


def _run(coroutine: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=partial(looptime.new_event_loop, noop_cycles=1)) as runner:
        runner.run(coroutine)


async def test_removed_mark_is_set_again_and_the_delay_restarts() -> None:
    fleet = cluster(empty=2, busy=1)
    fleet.mark_lag = 10.0
    operator = Operator(fleet)
    mark = "machine.openshift.io/delete-machine"

    def marked() -> bool:
        return mark in fleet.objects[f"{MACHINES}/m-e01"]["metadata"].get("annotations", {})

    async with running(operator):
        await operator.until(marked)
        await asyncio.sleep(14)
        fleet.edit(f"{MACHINES}/m-e01", metadata={"annotations": {mark: None}})
        await operator.until(lambda: at_rest(fleet, 1))

    assert fleet.nodes() == ["b00"]
    assert fleet.lost == []


async def test_marks_of_a_killed_process_do_not_block_other_nodes() -> None:
    """The markers on nodes tell which they are, even before the first reconcile of leftovers."""
    fleet = cluster(empty=3, busy=1)
    disabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
    fleet.edit("/api/v1/nodes/e02", metadata={"annotations": {disabled: "true"}})
    first = Operator(fleet)
    async with running(first):
        await first.until(lambda: {each.phase for each in first.removals.active.values()} == {Phase.MARKED})
    fleet.edit("/api/v1/nodes/e02", metadata={"annotations": {disabled: None}})

    second = Operator(fleet)
    second.begins_first = True
    async with running(second):
        await second.until(lambda: at_rest(fleet, 1), seconds=60)
        await asyncio.sleep(2)

    assert fleet.nodes() == ["b00"]
    assert fleet.lost == []
    assert set(second.ended().values()) == {"Empty"}


async def test_removal_cancelled_during_the_mark_delay_is_unmarked_and_delays_the_batch() -> None:
    fleet = cluster(empty=3, busy=1)
    fleet.mark_lag = 10.0
    operator = Operator(fleet)

    async with running(operator):
        await operator.until(lambda: {each.phase for each in operator.removals.active.values()} == {Phase.MARKED})
        await asyncio.sleep(10)
        fleet.edit(
            "/api/v1/nodes/e00",
            metadata={"annotations": {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}},
        )
        left = asyncio.get_running_loop().time()
        await operator.until(lambda: fleet.replicas("a") < 4)
        assert asyncio.get_running_loop().time() - left >= 15
        await operator.until(lambda: at_rest(fleet, 2))

    assert fleet.nodes() == ["b00", "e00"]
    assert fleet.lost == []


FAILED = {"phase": "Failed", "errorReason": "Unknown", "errorMessage": "the instance is gone"}


async def test_failed_machine_with_pods_prevents_drains() -> None:
    fleet = cluster(empty=2, busy=1)
    fleet.edit(f"{MACHINES}/m-b00", status=FAILED)
    operator = Operator(fleet)

    async with running(operator):
        await operator.until(lambda: len(operator.outcomes) == 2)

    assert {each.reason for each in operator.outcomes} == {"ScaleRefused"}
    assert fleet.nodes() == ["b00", "e00", "e01"]
    assert not fleet.traces()


async def test_machine_that_fails_during_the_mark_delay_is_not_deleted() -> None:
    fleet = cluster(empty=2, busy=1)
    operator = Operator(fleet)

    async with running(operator):
        await operator.until(lambda: {each.phase for each in operator.removals.active.values()} == {Phase.MARKED})
        fleet.edit(f"{MACHINES}/m-b00", status=FAILED)
        await operator.until(lambda: {"e00", "e01"} <= operator.ended().keys())
        await operator.until(lambda: not fleet.traces())

    assert {each.reason for each in operator.outcomes} == {"ScaleRefused"}
    assert fleet.nodes() == ["b00", "e00", "e01"]
    assert fleet.lost == []


def two_failed() -> Fleet:
    """Two failed machines whose nodes run pods, and capacity for the pods in another group."""
    fleet = Fleet()
    fleet.group("a", "f1", "f2")
    fleet.group("b", "s1", unneeded=False)
    fleet.web("w1", "f1", cpu="600m")
    fleet.web("w2", "f2", cpu="600m")
    fleet.web("w3", "s1", app="big", cpu="2")
    for name in ("f1", "f2"):
        fleet.edit(f"{MACHINES}/m-{name}", status=FAILED)
    return fleet


async def test_failed_machines_with_pods_are_drained_together() -> None:
    fleet = two_failed()
    operator = Operator(fleet)
    sizes: list[tuple[int, set[str]]] = []

    async def before(call: Call) -> None:
        if call.path.endswith("/scale") and call.method == "PATCH":
            sizes.append((call.body[-1]["value"], {pod["spec"].get("nodeName", "") for pod in fleet.app("web")}))

    fleet.before = before
    async with running(operator):
        await operator.until(lambda: fleet.nodes() == ["s1"] and not fleet.traces(), seconds=900)
        await operator.until(lambda: {"f1", "f2"} <= operator.ended().keys())

    assert fleet.lost == []
    assert sorted(fleet.evictions) == ["w1", "w2"]
    assert all(not on & {"f1", "f2"} for _, on in sizes), "no size falls while a failed machine's node runs pods"
    assert {operator.ended()[name] for name in ("f1", "f2")} == {"Underutilized"}


async def test_failed_machine_waits_only_for_drains_in_progress() -> None:
    """The PDB of the other one allows no eviction, so its removal ends, and no machine of the group is removed."""
    fleet = two_failed()
    fleet.web("w4", "f2", app="guarded", cpu="100m")
    fleet.web("w5", "s1", app="guarded", cpu="100m")
    fleet.guard("guarded", 2)
    fleet.edit(f"{BUDGETS}/guarded", status={"disruptionsAllowed": 1})
    fleet.frozen = True
    operator = Operator(fleet)

    async with running(operator):
        await operator.until(lambda: {"f1", "f2"} <= operator.ended().keys(), seconds=600)
        await operator.until(lambda: not fleet.traces())
    assert operator.ended()["f2"] == "NotEnoughPdb"
    assert operator.ended()["f1"] == "ScaleRefused"
    assert fleet.replicas("a") == 2
    assert fleet.lost == []


async def test_failed_machine_whose_node_does_not_confirm_it_prevents_the_drain() -> None:
    """The node f2 was deleted and registered again. Its machine might be deleted with the pods on f2."""
    fleet = two_failed()
    fleet.edit(f"{MACHINES}/m-f2", status={"nodeRef": {"name": "f2", "uid": "of the deleted node"}})
    operator = Operator(fleet)
    async with running(operator):
        await operator.until(lambda: operator.ended().get("f1") == "ScaleRefused")
        await operator.until(lambda: not fleet.traces())
    assert fleet.evictions == []
    assert fleet.replicas("a") == 2


async def test_failed_machines_refused_at_different_times_start_together() -> None:
    fleet = two_failed()
    operator = Operator(fleet)
    fleet.edit(f"{NODES}/f2", metadata={"annotations": {"trimtab.dev/unneeded-since": rfc3339(fleet.clock.now())}})
    async with running(operator):
        await operator.until(lambda: operator.ended().get("f1") == "ScaleRefused")
        await operator.until(lambda: fleet.nodes() == ["s1"] and not fleet.traces(), seconds=900)
    assert fleet.lost == []


async def test_failed_machines_of_cluster_api_block_no_removal() -> None:
    fleet = cluster(empty=2, busy=1, api_group=CLUSTER_API)
    fleet.edit(f"{fleet.machines}/m-b00", status={"phase": "Failed"})
    operator = Operator(fleet)

    async with running(operator):
        await operator.until(lambda: at_rest(fleet, 1))

    assert fleet.nodes() == ["b00"]
    assert fleet.lost == []


async def test_ticket_cancelled_while_groups_are_built_leaves_the_batch() -> None:
    fleet = cluster(empty=1, busy=1)
    batches = Operator(fleet).removals._batches
    cancelled, kept = RemovalTicket("without-a-machine", GROUP), RemovalTicket("e00", GROUP)
    build = batches.review.groups

    async def cancel_meanwhile() -> Groups:
        cancelled.answer.cancel()
        return await build()

    batches.review.groups = cancel_meanwhile  # type: ignore[method-assign]
    living = asyncio.create_task(fleet.live_on())
    batches.join(cancelled)
    batches.join(kept)
    removed = await kept.answer
    await kill({living})

    assert removed.machine == "m-e00"


async def test_unexpected_error_in_a_batch_leaves_no_marks() -> None:
    fleet = cluster(empty=1, busy=1)
    batches = Operator(fleet).removals._batches
    ticket = RemovalTicket("e00", GROUP)

    def fail_once_marked(node: str) -> list[Pod]:
        if fleet.traces():
            raise RuntimeError("a defect")
        return []

    batches.review.pods = fail_once_marked  # type: ignore[method-assign]
    batches.join(ticket)
    with pytest.raises(RemovalEnded, match="RuntimeError: a defect"):
        await ticket.answer

    assert ticket.phase is Phase.MARKED
    assert not fleet.traces()


async def test_unexpected_error_after_lowering_the_size_keeps_the_marks() -> None:
    """The controller has not chosen a machine yet; without the mark it would delete another one."""
    fleet = cluster(empty=1, busy=1)
    fleet.deletes = False
    batches = Operator(fleet).removals._batches
    ticket = RemovalTicket("e00", GROUP)
    build = batches.review.groups
    failures = iter([True])

    async def fail_once_lowered() -> Groups:
        if fleet.replicas("a") == 1 and next(failures, False):
            raise RuntimeError("a defect")
        return await build()

    batches.review.groups = fail_once_lowered  # type: ignore[method-assign]
    batches.join(ticket)
    with pytest.raises(RemovalEnded, match="RuntimeError: a defect"):
        await ticket.answer

    assert next(failures, False) is False
    assert "m-e00" in fleet.traces()


async def test_size_is_read_before_each_step() -> None:
    """Another client raises the size between two steps: the batch continues from the new size with these machines."""
    fleet = cluster(empty=6, busy=2)
    operator = Operator(fleet)
    raised = False

    async def raise_once(call: Call) -> None:
        nonlocal raised
        if call.path.endswith("scale") and call.method == "PATCH" and not raised and fleet.replicas("a") == 7:
            raised = True
            fleet.edit(f"{SETS}/a", spec={"replicas": 8})
            asyncio.get_running_loop().call_later(3, lambda: fleet.edit(f"{SETS}/a", spec={"replicas": 7}))

    fleet.before = raise_once
    async with running(operator):
        await operator.until(lambda: at_rest(fleet, 2), seconds=600)
    assert fleet.lost == []


BACKOFF = "trimtab.dev/removal-backoff"


def annotation(fleet: Fleet) -> dict[str, Any]:
    text = fleet.objects[f"{fleet.sets}/a"]["metadata"].get("annotations", {}).get(BACKOFF)
    return {} if text is None else msgspec.json.decode(text)


def annotating(fleet: Fleet) -> list[Call]:
    return [call for call in fleet.sent("PATCH", f"{fleet.sets.removeprefix('/apis/')}/a") if BACKOFF in str(call.body)]


@pytest.mark.parametrize("api_group", [MACHINE_API, CLUSTER_API])
async def test_backoff_and_mark_delay_survive_a_restart(api_group: str) -> None:
    fleet = cluster(empty=6, busy=10, api_group=api_group)
    fleet.mark_lag = 10.0
    first = Operator(fleet, settings=of_delay(6.0))
    async with running(first):
        await first.until(lambda: bool(annotation(fleet)))
    lost_at = fleet.clock.now()
    assert len(fleet.lost) == 1
    written = annotation(fleet)
    assert (written["markDelaySeconds"], written["wrongMachines"]) == (12.0, 1)
    until = datetime.fromisoformat(written["until"]).timestamp()
    assert 55 < until - lost_at <= 60

    second = Operator(fleet, settings=of_delay(6.0))
    async with running(second):
        while fleet.clock.now() < until:
            assert fleet.replicas("a") == 15
            await asyncio.sleep(0.5)
        assert not fleet.traces()
        assert "WrongMachineRemoved" in second.ended().values()
        await second.until(lambda: at_rest(fleet, 10), seconds=900)

    # With a mark delay of 12 s, above the lag of 10 s, no other wrong machine is deleted.
    assert len(fleet.lost) == 1
    del written["wrongMachines"]  # it counts those in a row
    assert annotation(fleet) == written
    assert len(annotating(fleet)) == 2


@pytest.mark.parametrize("answered", [True, False], ids=["answered", "unanswered"])
@pytest.mark.parametrize("request_number", range(1, 24))
@pytest.mark.live
async def test_wrong_machine_is_noticed_after_a_kill_at_any_request(request_number: int, answered: bool) -> None:
    """The controller never sees a mark in time, so each lowering of the size deletes a wrong machine."""
    fleet = cluster(empty=3, busy=5)
    fleet.mark_lag = 1000.0
    await killed_after(fleet, request_number, answered=answered, settings=of_delay(2.0))

    successor = Operator(fleet, settings=of_delay(2.0))
    async with running(successor):
        await successor.until(lambda: bool(annotation(fleet)) and not fleet.traces())
        await asyncio.sleep(15)
    assert len(fleet.lost) == 1
    assert fleet.replicas("a") == 7
    assert (annotation(fleet)["markDelaySeconds"], annotation(fleet)["wrongMachines"]) == (4.0, 1)


@given(moments=st.lists(st.floats(7.0, 14.0), min_size=1, max_size=4))
@example(moments=[8.05])
@settings(max_examples=12, deadline=None)
def test_wrong_machine_is_noticed_after_a_kill_at_any_time(moments: list[float]) -> None:
    fleet = cluster(empty=3, busy=5)
    fleet.mark_lag = 1000.0
    _run(_noticed(fleet, moments))
    assert annotation(fleet)["wrongMachines"] == len(fleet.lost) == 1


async def _noticed(fleet: Fleet, moments: list[float]) -> None:
    for moment in moments:
        before = asyncio.all_tasks()
        living = asyncio.create_task(fleet.live_on())
        passes = asyncio.create_task(Operator(fleet, settings=of_delay(2.0)).passes())
        await asyncio.sleep(moment)
        assert not passes.done()
        await kill((asyncio.all_tasks() - before) | {living})
    last = Operator(fleet, settings=of_delay(2.0))
    async with running(last):
        await last.until(lambda: bool(annotation(fleet)) and not fleet.traces())
        await asyncio.sleep(15)


async def test_record_without_a_size_change_expires() -> None:
    fleet = cluster(empty=2, busy=3)
    group = fleet.caches.ask(build_groups).by_id[GROUP]
    marked = MarkedMachines(GROUP, tuple(each for each in group.machines if each.name == "m-e00"))
    text = encode_record(planned_removal(group, marked, 1), now=fleet.clock.now())
    fleet.edit(f"{SETS}/a", metadata={"annotations": {REMOVAL_IN_PROGRESS: text}})
    operator = Operator(fleet)
    async with running(operator):
        await asyncio.sleep(25)
        assert fleet.replicas("a") == 5
        assert "a" in fleet.traces()
        await operator.until(lambda: at_rest(fleet, 3))
    assert fleet.lost == []
    assert not annotation(fleet)


@pytest.mark.parametrize(
    ("replicas", "gone", "wrong"),
    [
        (4, ["m-e00"], 0),
        (4, ["m-b00"], 1),
        (3, ["m-b00", "m-e01"], 1),
        (3, ["m-e00", "m-e01"], 0),
        (4, ["m-b00", "m-e00"], 0),
        (6, [], 0),
    ],
    ids=["marked", "unmarked", "two unmarked", "one of two marked", "marked and unmarked", "scaled up since"],
)
async def test_record_is_compared_with_the_remaining_machines(replicas: int, gone: list[str], wrong: int) -> None:
    fleet = cluster(empty=2, busy=3)
    group = fleet.caches.ask(build_groups).by_id[GROUP]
    marked = MarkedMachines(GROUP, tuple(each for each in group.machines if each.name == "m-e00"))
    text = encode_record(planned_removal(group, marked, 1), now=fleet.clock.now())
    assert decode_record(text, GROUP)[0] == planned_removal(group, marked, 1)
    fleet.edit(f"{SETS}/a", metadata={"annotations": {REMOVAL_IN_PROGRESS: text}}, spec={"replicas": replicas})
    for name in gone:
        fleet.drop(f"{MACHINES}/{name}")
    operator = Operator(fleet)
    await operator.one_pass()
    await asyncio.sleep(1)
    assert annotation(fleet).get("wrongMachines", 0) == wrong
    assert "a" not in fleet.traces()


@pytest.mark.parametrize("text", ["no", "{}", '{"before": -1}', "x" * 200000])
async def test_invalid_record_is_removed(text: str) -> None:
    fleet = cluster(empty=0, busy=1)
    fleet.edit(f"{SETS}/a", metadata={"annotations": {REMOVAL_IN_PROGRESS: text}})
    operator = Operator(fleet)
    await operator.one_pass()
    await asyncio.sleep(1)
    assert "a" not in fleet.traces()


async def test_size_is_not_lowered_if_the_record_cannot_be_written() -> None:
    fleet = cluster(empty=1, busy=1)

    async def refuse(call: Call) -> None:
        if REMOVAL_IN_PROGRESS in str(call.body):
            raise ServerError("overloaded", status=500)

    fleet.before = refuse
    operator = Operator(fleet)
    async with running(operator):
        await operator.until(lambda: bool(operator.outcomes))
        await operator.until(lambda: not fleet.traces())
    assert operator.ended() == {"e00": "ScaleUnreachable"}
    assert fleet.replicas("a") == 2


async def test_failed_write_of_the_backoff_is_retried() -> None:
    fleet = cluster(empty=3, busy=5)
    fleet.mark_lag = 10.0
    operator = Operator(fleet, settings=of_delay(2.0))
    refused = 0

    async def refuse(call: Call) -> None:
        nonlocal refused
        if BACKOFF in str(call.body) and refused < 3:
            refused += 1
            raise ServerError("overloaded", status=500)

    fleet.before = refuse
    async with running(operator):
        await operator.until(lambda: refused == 1)
        assert len(fleet.lost) == 1
        await operator.until(lambda: bool(annotation(fleet)))
    assert refused == 3
    assert len(fleet.lost) == 1


async def test_node_stays_tainted_until_its_machine_is_unmarked() -> None:
    """Without the taint, pods would be bound to the node whose machine is deleted first."""
    fleet = cluster(empty=1, busy=1)
    operator = Operator(fleet)
    refuses = True

    async def refuse(call: Call) -> None:
        if refuses and call.method == "PATCH" and call.path.startswith(fleet.machines) and isinstance(call.body, list):
            raise ServerError("overloaded", status=500)

    fleet.before = refuse
    async with running(operator):
        await operator.until(lambda: {each.phase for each in operator.removals.active.values()} == {Phase.MARKED})
        disabled = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
        fleet.edit("/api/v1/nodes/e00", metadata={"annotations": disabled})
        await operator.until(lambda: {each.phase for each in operator.removals.active.values()} == {Phase.RETURNING})
        await asyncio.sleep(20)
        assert "ToBeDeletedByClusterAutoscaler" in fleet.traces()["e00"]
        refuses = False
        await operator.until(lambda: not fleet.traces(), seconds=10)
    assert fleet.lost == []


def test_group_without_wrong_machines_gets_no_annotation() -> None:
    backoff = RemovalBackoff(RemovalSettings())
    backoff.record_success(3)
    assert backoff.unwritten == ""


def test_annotation_is_adopted_and_its_removal_resets_the_backoff() -> None:
    one, other = RemovalBackoff(RemovalSettings()), RemovalBackoff(RemovalSettings())
    one.record_wrong_machine(1000.0)
    one.set_message("m-1 was deleted")
    text = one.unwritten
    one.mark_written(text)
    assert one.unwritten == ""

    one.observe("", now=1001.0)  # the cluster state is from before the write
    assert (one.backoff_reason(1001.0), one.mark_delay) == ("m-1 was deleted", 30.0)
    for each in (one, other):
        each.observe(text, now=1002.0)
        assert (each.backoff_reason(1002.0), each.backoff_reason(1060.0), each.mark_delay) == (
            "m-1 was deleted",
            "",
            30.0,
        )
        assert each.unwritten == ""
    assert other.record_wrong_machine(2000.0) == 120.0
    one.observe(other.unwritten, now=2000.0)
    assert one.mark_delay == 60.0

    one.observe("", now=2001.0)
    assert (one.backoff_reason(2001.0), one.mark_delay) == ("", 15.0)


def test_cleared_backoff_is_written_and_survives_a_restart() -> None:
    backoff, restarted = RemovalBackoff(RemovalSettings()), RemovalBackoff(RemovalSettings())
    assert not backoff.clear()
    backoff.record_wrong_machine(1000.0)
    old = backoff.unwritten
    backoff.mark_written(old)
    backoff.observe(old, now=1001.0)

    assert backoff.clear()
    assert (backoff.backoff_reason(1002.0), backoff.mark_delay) == ("", 15.0)
    text = backoff.unwritten
    backoff.mark_written(text)
    for each in (backoff, restarted):
        each.observe(text, now=1003.0)
        assert (each.backoff_reason(1003.0), each.mark_delay, each.unwritten) == ("", 15.0, "")


def test_annotation_observed_before_the_answer_to_its_write_can_be_removed() -> None:
    backoff = RemovalBackoff(RemovalSettings())
    backoff.record_wrong_machine(1000.0)
    text = backoff.unwritten
    backoff.observe(text, now=1001.0)
    backoff.mark_written(text)

    backoff.observe("", now=1002.0)
    assert (backoff.backoff_reason(1002.0), backoff.mark_delay) == ("", 15.0)


@pytest.mark.parametrize(
    "text", ["no", "[]", '{"until": "tomorrow"}', '{"markDelaySeconds": -1}', '{"wrongMachines": 1e9}', "x" * 9000]
)
def test_invalid_annotation_is_ignored(text: str, caplog: pytest.LogCaptureFixture) -> None:
    backoff = RemovalBackoff(RemovalSettings())
    backoff.observe(text, now=1000.0)
    backoff.observe(text, now=1001.0)
    assert (backoff.backoff_reason(1000.0), backoff.mark_delay, backoff.unwritten) == ("", 15.0, "")
    assert len(caplog.records) == 1


def test_annotation_cannot_exceed_the_maximum_backoff() -> None:
    backoff = RemovalBackoff(RemovalSettings())
    backoff.observe('{"until": "2999-01-01T00:00:00Z", "markDelaySeconds": 80000}', now=1000.0)
    assert backoff.backoff_reason(2799.0)
    assert not backoff.backoff_reason(2800.0)
    assert backoff.mark_delay == 300.0


def test_wrong_machine_doubles_the_delay_and_resets_the_step() -> None:
    backoff = RemovalBackoff(RemovalSettings(mark_delay=15.0))
    assert [backoff.next_step(first=True), backoff.next_step(first=False)] == [1, 1]
    backoff.record_success(1)
    assert [backoff.next_step(first=True), backoff.next_step(first=False)] == [1, 2]
    backoff.record_success(2)
    assert backoff.next_step(first=False) == 6

    seconds = [backoff.record_wrong_machine(1000.0) for _ in range(7)]
    assert backoff.next_step(first=False) == 1
    assert seconds == [60.0, 120.0, 240.0, 480.0, 960.0, 1800.0, 1800.0]
    assert backoff.mark_delay == 300.0
    backoff.record_success(5)
    assert backoff.mark_delay == 300.0
    assert backoff.record_wrong_machine(1000.0) == 60.0
