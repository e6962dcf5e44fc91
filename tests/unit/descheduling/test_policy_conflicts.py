"""Policies that would undo each other are named, both of them, with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import node
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
        pytest.param(policy(EVEN, "a", mode="Act"), policy(FILL, "b"), True, id="a simulation is told as well"),
        pytest.param(policy(EVEN, "a", **on("x")), policy(FILL, "b", **on("x")), True, id="over the same nodes"),
        pytest.param(policy(EVEN, "a", **on("x")), policy(FILL, "b"), True, id="over all nodes and some of them"),
        pytest.param(policy(EVEN, "a", **among("x", "y")), policy(FILL, "b", **on("y")), True, id="some in common"),
        pytest.param(policy(EVEN, "a", **on("x")), policy(FILL, "b", **on("y")), False, id="over different nodes"),
        pytest.param(policy(EVEN, "a", **among("x")), policy(FILL, "b", **among("y", "z")), False, id="other values"),
        pytest.param(policy(EVEN, "a", suspend=True), policy(FILL, "b"), False, id="one is suspended"),
        pytest.param(policy(EVEN, "a"), policy({DUPLICATES: {}}, "b"), False, id="strategies that agree"),
        pytest.param(policy(EVEN, "a"), policy(EVEN, "b"), False, id="the same strategy twice"),
        pytest.param(policy(EVEN, "a"), policy(FILL | {DUPLICATES: {}}, "b"), True, id="beside other strategies"),
    ],
)
def test_two_policies_conflict_where_they_meet(first, second, named):
    assert bool(conflicts([first, second])) is named
    assert conflicts([first, second]) == conflicts([second, first])


def test_a_conflict_names_both_policies_and_why():
    [found] = conflicts([policy(FILL, "fill"), policy(EVEN, "even")])
    assert found == PolicyConflict(
        "even",
        "fill",
        "LowNodeUtilization of policy even and HighNodeUtilization of policy fill look at the same nodes: one fills "
        "underutilized nodes, the other empties them, and each would undo what the other did",
    )


def test_with_the_clusters_nodes_policies_meet_on_nodes_and_not_in_theory():
    policies = [policy(EVEN, "a", **on("x")), policy(FILL, "b", nodeSelector={"matchLabels": {"disk": "ssd"}})]
    apart = [node("n1").labels(pool="x").build(), node("n2").labels(disk="ssd").build()]
    assert conflicts(policies)
    assert conflicts(policies, apart) == ()
    both = [node(name).labels(pool="x", disk="ssd").build() for name in ("n4", "n3")]
    [found] = conflicts(policies, [*apart, *both])
    assert "look at node n3 and 1 more: " in found.message


def test_one_policy_may_oppose_itself():
    [found] = conflicts([policy(EVEN | FILL, "both")])
    assert (found.first, found.second) == ("both", "both")


def test_every_pair_is_told():
    found = conflicts([policy(FILL, "c"), policy(EVEN, "a"), policy(EVEN, "b")])
    assert [(each.first, each.second) for each in found] == [("a", "c"), ("b", "c")]
