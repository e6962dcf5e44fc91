"""The planner: order, what policies share, what they look at, and what they leave alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import HOSTNAME, budget, expression, namespace, node, pod, selector
from tests.unit.descheduling.planning import (
    ANTI_AFFINITY,
    DUPLICATES,
    NODE_AFFINITY,
    NODE_TAINTS,
    NOW,
    TOPOLOGY_SPREAD,
    UTILIZATION,
    built,
    kept,
    messages,
    moves,
    node_affinity,
    nodes,
    plan,
    policy,
    utilization,
    web,
)
from trimtab.api.plan import Plan
from trimtab.api.strategies import STRATEGIES
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling import planner
from trimtab.descheduling.strategies.registry import IN_ORDER
from trimtab.kube.objects import OwnerReference


def planned(things: list[Any], *policies: Any) -> Plan:
    return planner.plan(Snapshot(built(things)), policies, now=NOW)


def test_every_strategy_of_the_api_is_there():
    assert {kind.NAME for kind in IN_ORDER} == set(STRATEGIES)


def test_violations_come_first_and_balance_last():
    some = [NODE_TAINTS, NODE_AFFINITY, ANTI_AFFINITY, TOPOLOGY_SPREAD, DUPLICATES, UTILIZATION]
    assert [kind.NAME for kind in IN_ORDER if kind.NAME in some] == some
    things = [
        node("n1").labels(disk="hdd"),
        node("n2").labels(disk="ssd"),
        node("n3").labels(disk="ssd"),
        web("twin-1", "n1", owner="twin"),
        web("twin-2", "n1", owner="twin"),
        web("picky", "n1", owner="picky").node_affinity(expression("disk", "In", "ssd")),
        web("loner", "n1", owner="loner").anti_affinity(HOSTNAME, labelSelector=selector(app="foe")),
        web("foe", "n1", owner="foe").priority(5),
        web("heavy", "n1", owner="heavy").cpu("3"),
    ]
    result = plan(things, {UTILIZATION: utilization({"cpu": 20}, {"cpu": 50})[UTILIZATION], DUPLICATES: {},
                           ANTI_AFFINITY: {}, **node_affinity()})  # fmt: skip
    assert [(action.pod, action.strategy) for action in result.actions] == [
        ("picky", NODE_AFFINITY),
        ("loner", ANTI_AFFINITY),
        ("twin-1", DUPLICATES),
    ]
    assert kept(result) == {"twin-2": "IrrelevantResource", "foe": "IrrelevantResource", "heavy": "NoImprovement"}


def test_policies_run_in_the_order_of_their_names():
    things = [*nodes("n1", "n2"), web("a", "n1"), web("b", "n1")]
    result = planned(things, policy({DUPLICATES: {}}, "second"), policy({DUPLICATES: {}}, "first"))
    assert [(action.pod, action.policy) for action in result.actions] == [("a", "first")]


def test_policies_share_places():
    """Each alone would move its pods to the one free slot of n2."""
    things = [node("n1"), node("n2").allocatable(pods=1)]
    things += [web(name, "n1", namespace=where) for where in ("shop", "blog") for name in ("a", "b")]
    policies = [policy({DUPLICATES: {}}, where, namespaces={"include": [where]}) for where in ("shop", "blog")]
    result = planned(things, *policies)
    assert [(action.namespace, action.pod) for action in result.actions] == [("blog", "a")]
    assert {(each.namespace, each.name, each.reason) for each in result.kept} == {
        ("shop", "a", "NoPlace"),
        ("shop", "b", "NoPlace"),
    }


def test_policies_share_budgets_and_evictions_per_node():
    things = [*nodes("n1", "n2", "n3"), web("a", "n1"), web("b", "n1"), web("c", "n1")]
    things.append(budget().selecting(app="web").allowing(1))
    both = [policy({DUPLICATES: {}}, name) for name in ("one", "two")]
    assert moves(planned(things, *both)) == [("a", "n1", "n2")]
    limited = [policy({DUPLICATES: {}}, name, limits={"perNode": 1}) for name in ("one", "two")]
    assert moves(planned(things[:-1], *limited)) == [("a", "n1", "n2")]


def test_a_pod_is_moved_once():
    """It leaves n1 for its affinity's sake; that n2 then holds two of its owner is for the next plan to judge."""
    things = [
        node("n1").labels(disk="hdd"),
        node("n2").labels(disk="ssd").allocatable(cpu="8"),
        node("n3").labels(disk="ssd").allocatable(cpu="1"),
        web("a", "n1").node_selector(disk="ssd"),
        web("b", "n2").node_selector(disk="ssd"),
        web("big", "n3", owner="big").cpu("1"),
    ]
    result = plan(things, {**node_affinity(), DUPLICATES: {}})
    assert moves(result) == [("a", "n1", "n2"), ("b", "n2", "n3")]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, {"shop/a", "blog/a"}, id="everything"),
        pytest.param({"namespaces": {"include": ["shop"]}}, {"shop/a"}, id="namespaces included"),
        pytest.param({"namespaces": {"exclude": ["shop"]}}, {"blog/a"}, id="namespaces excluded"),
        pytest.param({"namespaceSelector": {"matchLabels": {"team": "a"}}}, {"shop/a"}, id="namespaces selected"),
        pytest.param({"podSelector": {"matchLabels": {"move": "me"}}}, {"shop/b"}, id="pods selected"),
        pytest.param({"nodeSelector": {"matchLabels": {"pool": "x"}}}, {"shop/a"}, id="nodes selected"),
        pytest.param({"priorityThreshold": {"value": 5}}, {"blog/a"}, id="a priority threshold"),
        pytest.param({"limits": {"perNamespace": 1, "perCycle": 1}}, {"blog/a"}, id="a limit"),
    ],
)
def test_a_policy_says_what_it_looks_at(spec, expected):
    things = [
        *(node(name).labels(pool="x") for name in ("n1", "n2")),
        *(node(name).labels(pool="y") for name in ("n3", "n4")),
        namespace("shop").labels(team="a"),
        web("a", "n1").priority(5),
        web("b", "n1").priority(5).labels(move="me"),
        web("a", "n3", namespace="blog"),
        web("b", "n3", namespace="blog"),
    ]
    if "podSelector" in spec:
        # the pod that is not selected still takes its share, and so the other one goes
        things[-4] = web("a", "n1").priority(5)
    assert {action.key for action in plan(things, {DUPLICATES: {}}, **spec).actions} == expected


def test_pods_of_a_namespace_that_is_not_known_are_kept_where_namespaces_are_selected():
    things = [*nodes("n1", "n2"), namespace("blog").labels(team="b"), web("a", "n1"), web("b", "n1")]
    things += [web("a", "n1", namespace="blog"), web("b", "n1", namespace="blog")]
    result = plan(things, {DUPLICATES: {}}, namespaceSelector={"matchLabels": {"team": "a"}})
    assert moves(result) == []
    assert kept(result) == dict.fromkeys("ab", "UnknownNamespace")


def test_pods_out_of_scope_are_not_named():
    things = [*nodes("n1", "n2"), web("a", "n1").volume("emptyDir"), web("b", "n1").volume("emptyDir")]
    assert kept(plan(things, {DUPLICATES: {}})) == dict.fromkeys("ab", "LocalStorage")
    assert kept(plan(things, {DUPLICATES: {}}, namespaces={"exclude": ["shop"]})) == {}


def test_a_strategy_that_is_not_enabled_does_nothing():
    things = [*nodes("n1", "n2"), web("a", "n1"), web("b", "n1")]
    result = plan(things, {DUPLICATES: {"enabled": False}, **node_affinity()})
    assert (moves(result), kept(result)) == ([], {})


def test_without_nodes_or_pods_there_is_nothing_to_do():
    everything = {**node_affinity(), ANTI_AFFINITY: {}, DUPLICATES: {}, **utilization({"cpu": 20}, {"cpu": 50})}
    for things in ([], nodes("n1"), [web("a"), web("b")], [web("a", "gone"), web("b", "gone")]):
        result = plan(things, everything)
        assert (result.actions, result.kept) == ((), ())


def test_a_plan_as_a_document_is_what_the_command_line_promises():
    things = [*nodes("n1", "n2"), web("a", "n1"), web("b", "n1").volume("emptyDir")]
    document = msgspec.json.decode(msgspec.json.encode(plan(things, {DUPLICATES: {}}).document()))
    assert document == {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "Plan",
        "now": "2026-11-20T12:00:00Z",
        "actions": [
            {
                "action": "Evict",
                "policy": "default",
                "strategy": "RemoveDuplicates",
                "namespace": "shop",
                "pod": "a",
                "node": "n1",
                "target": "n2",
                "reason": "DuplicateOnNode",
                "message": "2 pods of ReplicaSet shop/web on n1; n2 has none",
                "uid": "pod-shop-a",
                "owner": "ReplicaSet/web",
            }
        ],
        "kept": [],
        "summary": {"Evict": 1, "kept": 0},
    }


def test_a_pod_that_was_moved_to_its_friend_keeps_the_friend():
    """Both moves at once would leave the first pod where its affinity finds nobody."""
    friend = web("friend", "n2", owner="friend").labels(twin="yes")
    twin = pod("twin").labels(app="friend").owned_by("ReplicaSet", "friend").on("n2").priority(100).volume("emptyDir")
    picky = web("picky", "n1", owner="picky").node_selector(disk="ssd")
    picky.affinity(HOSTNAME, labelSelector=selector(twin="yes"))
    things = [node("n1"), node("n2").labels(disk="ssd"), node("n3"), friend, twin, picky]
    result = plan(things, {**node_affinity(), DUPLICATES: {}})
    assert moves(result) == [("picky", "n1", "n2")]
    assert kept(result) == {"friend": "NoImprovement", "twin": "LocalStorage"}
    assert messages(result)["friend"] == (
        "shop/picky was moved to where its pod affinity finds this pod, and must not be left alone"
    )


def test_an_owner_that_is_not_the_controller_is_none():
    lone = msgspec.structs.replace(web("a", "n1").build(), owners=(OwnerReference("ReplicaSet", "web"),))
    result = plan([*nodes("n1", "n2"), lone, web("b", "n1")], {DUPLICATES: {}})
    assert (moves(result), kept(result)) == ([], {})
