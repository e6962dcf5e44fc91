"""Policies that would undo each other are named, both of them, with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.golden import Golden
from tests.unit.descheduling.planning import DUPLICATES, packing, policy, utilization
from trimtab.descheduling.policy_conflicts import PolicyConflict, conflicts

FILL = packing({"cpu": 20})
EVEN = utilization({"cpu": 20}, {"cpu": 50})


def on(pool: str) -> dict[str, Any]:
    return {"nodeSelector": {"matchLabels": {"pool": pool}}}


def among(*pools: str) -> dict[str, Any]:
    return {"nodeSelector": {"matchExpressions": [{"key": "pool", "operator": "In", "values": list(pools)}]}}


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        pytest.param(policy(EVEN, "a"), policy(FILL, "b"), True, id="over all nodes"),
        pytest.param(policy(EVEN, "a", mode="Act"), policy(FILL, "b"), True, id="a simulating policy is reported, too"),
        pytest.param(policy(EVEN, "a", **on("x")), policy(FILL, "b", **on("x")), True, id="over the same nodes"),
        pytest.param(policy(EVEN, "a", **on("x")), policy(FILL, "b"), True, id="over all nodes and some of them"),
        pytest.param(policy(EVEN, "a", **among("x", "y")), policy(FILL, "b", **on("y")), True, id="some in common"),
        pytest.param(policy(EVEN, "a", **on("x")), policy(FILL, "b", **on("y")), False, id="over different nodes"),
        pytest.param(policy(EVEN, "a", **among("x")), policy(FILL, "b", **among("y", "z")), False, id="other values"),
        pytest.param(policy(EVEN, "a"), policy({DUPLICATES: {}}, "b"), False, id="strategies that agree"),
        pytest.param(policy(EVEN, "a"), policy(EVEN, "b"), False, id="the same strategy twice"),
        pytest.param(policy(EVEN, "a"), policy(FILL | {DUPLICATES: {}}, "b"), True, id="next to other strategies"),
    ],
)
def test_policies_conflict_on_common_nodes(first, second, named):
    assert bool(conflicts([first, second])) is named
    assert conflicts([first, second]) == conflicts([second, first])


def test_a_conflict_names_both_policies_and_why(golden: Golden):
    [found] = conflicts([policy(FILL, "fill"), policy(EVEN, "even")])
    assert found == PolicyConflict("even", "fill", "PolicyConflict", found.message)
    golden(found.message)


@pytest.mark.parametrize(
    ("first", "second", "apart"),
    [
        pytest.param(("In", "a", "b"), ("NotIn", "a", "b", "c"), True, id="all that one allows the other forbids"),
        pytest.param(("In", "a", "b"), ("NotIn", "a"), False, id="one value is left"),
        pytest.param(("NotIn", "a"), ("NotIn", "b"), False, id="two that forbid"),
        pytest.param(("In", "a"), ("DoesNotExist",), True, id="a value and none"),
        pytest.param(("Exists",), ("DoesNotExist",), True, id="there and not there"),
        pytest.param(("NotIn", "a"), ("DoesNotExist",), False, id="a label that is missing has no forbidden value"),
        pytest.param(("In", "a"), ("Exists",), False, id="a value is there"),
    ],
)
def test_contradicting_node_selectors_avoid_conflict(first, second, apart):
    def wanting(operator: str, *values: str) -> dict[str, Any]:
        expression = {"key": "pool", "operator": operator, **({"values": list(values)} if values else {})}
        return {"nodeSelector": {"matchExpressions": [expression]}}

    policies = [policy(EVEN, "a", **wanting(*first)), policy(FILL, "b", **wanting(*second))]
    assert (conflicts(policies) == ()) is apart


def test_different_label_keys_do_not_avoid_conflict():
    assert conflicts([policy(EVEN, "a", **on("x")), policy(FILL, "b", nodeSelector={"matchLabels": {"disk": "ssd"}})])


@pytest.mark.parametrize(
    ("scoring", "strategies", "held"),
    [
        pytest.param("LeastAllocated", FILL, True, id="emptying nodes that the scheduler fills first"),
        pytest.param("MostAllocated", EVEN, True, id="relieving nodes that the scheduler fills first"),
        pytest.param("MostAllocated", FILL, False, id="both fill"),
        pytest.param("LeastAllocated", EVEN, False, id="both level"),
        pytest.param("MostAllocated", {DUPLICATES: {}}, False, id="neither"),
        pytest.param(None, FILL, False, id="unknown scoring of the scheduler"),
    ],
)
def test_scheduler_scoring_may_conflict_with_policy(scoring, strategies, held):
    found = conflicts([policy(strategies, "a")], scoring=scoring)
    assert [(each.names, each.reason) for each in found] == ([({"a"}, "SchedulerConflict")] if held else [])


def test_conflict_with_the_scheduler_describes_its_effect(golden: Golden):
    [found] = conflicts([policy(FILL, "fill")], scoring="LeastAllocated")
    golden(found.message)


def test_policy_may_conflict_with_itself():
    [found] = conflicts([policy(EVEN | FILL, "both")])
    assert (found.first, found.second) == ("both", "both")


def test_every_conflicting_pair_is_reported():
    found = conflicts([policy(FILL, "c"), policy(EVEN, "a"), policy(EVEN, "b")])
    assert [(each.first, each.second) for each in found] == [("a", "c"), ("b", "c")]
