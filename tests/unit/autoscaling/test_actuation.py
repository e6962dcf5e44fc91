"""Removing nodes, on a cluster in memory and a virtual clock: the order of steps, and what each failure leaves."""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes.fleet import TO_BE_DELETED, Fleet
from tests.unit.autoscaling.removing_nodes import Operator, running
from trimtab.autoscaling.actuation import Result

pytestmark = [pytest.mark.looptime(start=0), pytest.mark.usefixtures("no_threads")]


async def test_an_empty_node_goes_for_three_requests() -> None:
    fleet = Fleet()
    fleet.group("a", "n1")
    operator = Operator(fleet)

    async with running(operator):
        await operator.until(lambda: not fleet.nodes() and bool(operator.outcomes))

    [outcome] = operator.outcomes
    assert (outcome.result, outcome.reason, outcome.evicted) == (Result.REMOVED, "Empty", {})
    assert [call.path.rpartition("/")[2] for call in fleet.calls] == ["n1", "m-n1", "scale"]
    assert outcome.calls == 3
    assert fleet.replicas("a") == 0


async def test_several_empty_nodes_go_with_two_requests_each_and_one_for_all() -> None:
    fleet = Fleet()
    fleet.group("a", *"123456789")
    operator = Operator(fleet)

    async with running(operator):
        await operator.until(lambda: not fleet.nodes() and len(operator.outcomes) == 9)

    assert len(fleet.calls) == 2 * 9 + 1
    assert sum(outcome.calls for outcome in operator.outcomes) == pytest.approx(19)


async def test_a_node_is_tainted_and_cordoned_in_one_request_before_its_pods_are_evicted() -> None:
    fleet = Fleet()
    fleet.group("a", "n1")
    fleet.group("b", "n2", unneeded=False)
    fleet.web("w1", "n1")
    fleet.web("w2", "n2", cpu="3")
    operator = Operator(fleet)

    async with running(operator):
        await operator.until(lambda: bool(fleet.sent(path="eviction")))
        first, *_ = fleet.calls
        spec = fleet.spec("n1")
        annotations = fleet.objects["/api/v1/nodes/n1"]["metadata"]["annotations"]
        assert spec["unschedulable"] is True
        assert [taint["key"] for taint in spec["taints"]] == [TO_BE_DELETED]
        assert annotations["trimtab.dev/removing"] == spec["taints"][0]["value"]
        assert annotations["trimtab.dev/cordoned-by"] == "cluster-autoscaler"
        assert annotations["kept"] == "yes"
        assert first.method == "PATCH"
        assert first.path == "/api/v1/nodes/n1"
        assert fleet.clock.monotonic() >= 5
        await operator.until(lambda: bool(operator.outcomes))

    [outcome] = operator.outcomes
    assert (outcome.result, outcome.reason) == (Result.REMOVED, "Underutilized")
    assert outcome.evicted == {"shop/w1": "pod-shop-w1"}
    assert [each["spec"]["nodeName"] for each in fleet.app("web")] == ["n2", "n2"]


async def test_nothing_is_left_where_the_node_is_to_stay() -> None:
    fleet = Fleet()
    fleet.group("a", "n1")
    operator = Operator(fleet)
    async with running(operator):
        await operator.until(lambda: bool(fleet.traces()))
        fleet.web("w1", cpu="3")
        await operator.until(lambda: bool(operator.outcomes))
        operator.plans = False
        [outcome] = operator.outcomes
        assert (outcome.result, outcome.reason) == (Result.ABORTED, "NeededForOtherPods")
        assert fleet.traces() == {}
        await asyncio.sleep(1)
    assert [each["spec"].get("nodeName") for each in fleet.app("web")] == ["n1"]
