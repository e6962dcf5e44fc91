"""Prices in ``trimtab plan``: what new nodes cost, and what removals and replacements save."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import machine_set, node, pod
from tests.fixtures.golden import Golden
from tests.unit.autoscaling.scale_up_helpers import group, pending_pods
from tests.unit.inspection.clusters import cluster_of
from trimtab.inspection.node import explain_node
from trimtab.inspection.planning import joint_plan

PRICE = "trimtab.dev/price"
SINCE = "2026-11-20T11:00:00Z"
AUTOSCALER = """\
apiVersion: autoscaling.openshift.io/v1
kind: ClusterAutoscaler
metadata: {name: default}
spec: {scaleDown: {enabled: true, unneededTime: 5m}}
"""


def documents(plan: Any) -> list[dict[str, Any]]:
    return [each for each in plan.document()["actions"] if each["action"] in ("ScaleUp", "RemoveNode")]


def removable(*, price: str | None) -> list[Any]:
    made = machine_set().limits(0, 5).replicas(2)
    if price is not None:
        made.annotations({PRICE: price})
    return [
        made,
        made.machine("workers-a-1").on("n1"),
        made.machine("workers-a-2").on("n2"),
        node("n1").annotations({"trimtab.dev/unneeded-since": SINCE}),
        node("n2"),
        pod("w").on("n2").cpu("3").owned_by("ReplicaSet", "w").ready(),
    ]


def test_scale_up_has_the_price_of_the_new_nodes() -> None:
    plan = joint_plan(
        cluster_of(group("a", cpu="2", memory="8Gi").annotations({PRICE: "0.11"}), *pending_pods(4), autoscaler={})
    )
    assert [(each["to"], each["hourlyCost"]) for each in documents(plan)] == [(2, 0.22)]
    assert plan.costs() == {"hourlyCost": 0.22, "savings": 0}


def test_removal_saves_the_price_of_the_node(run, write, policy, golden: Golden) -> None:
    options = ("--cluster", write("c.json", *removable(price="0.5")), "--policy", policy(AUTOSCALER))
    options += ("--now", "2026-11-20T12:00:00Z")
    result = run("plan", *options, "-o", "json")

    document = msgspec.json.decode(result.stdout)
    assert [each["savings"] for each in document["actions"]] == [0.5]
    assert document["summary"] == {
        "Evict": 0, "RemoveNode": 1, "ScaleUp": 0, "kept": 1, "hourlyCost": 0, "savings": 0.5,
    }  # fmt: skip
    golden(run("plan", *options).stdout)


@pytest.mark.parametrize("price", [None, "cheap"])
def test_without_prices_nothing_is_said(price: str | None) -> None:
    plan = joint_plan(cluster_of(*removable(price=price), autoscaler={"scaleDown": {"enabled": True}}))

    assert plan.costs() == {}
    assert not any({"savings", "hourlyCost"} & each.keys() for each in documents(plan))


def test_node_has_the_price_and_the_utilization_that_scale_down_compares() -> None:
    document = explain_node(
        cluster_of(*removable(price="0.5"), autoscaler={"scaleDown": {"enabled": True, "utilizationThreshold": "0.6"}}),
        "n2",
    )
    assert (document["nodeGroup"], document["hourlyCost"]) == ("openshift-machine-api/workers-a", 0.5)
    assert (document["utilization"]["value"], document["utilization"]["threshold"]) == (0.75, 0.6)
