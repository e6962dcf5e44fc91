"""The planner: order, what policies share, what they look at, and what they leave alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import HOSTNAME, budget, expression, namespace, node, pod, selector
from tests.fixtures.golden import Golden
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
from trimtab.descheduling.planning import planner
from trimtab.descheduling.strategies.registry import IN_ORDER
from trimtab.kube.objects import OwnerReference


def planned(things: list[Any], *policies: Any) -> Plan:
    return planner.plan_evictions(Snapshot(built(things)), policies, now=NOW)


def test_every_api_strategy_is_registered():
    assert {kind.NAME for kind in IN_ORDER} == set(STRATEGIES)


def test_strategies_run_in_registry_order():
    some = [NODE_TAINTS, NODE_AFFINITY, ANTI_AFFINITY, TOPOLOGY_SPREAD, DUPLICATES, UTILIZATION]
    assert [kind.NAME for kind in IN_ORDER if kind.NAME in some] == some
    objects = [
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
    result = plan(objects, {UTILIZATION: utilization({"cpu": 20}, {"cpu": 50})[UTILIZATION], DUPLICATES: {},
                           ANTI_AFFINITY: {}, **node_affinity()})  # fmt: skip
    assert [(action.pod, action.strategy) for action in result.actions] == [
        ("picky", NODE_AFFINITY),
        ("loner", ANTI_AFFINITY),
        ("twin-1", DUPLICATES),
    ]
    assert kept(result) == {"twin-2": "IrrelevantResource", "foe": "IrrelevantResource", "heavy": "NoImprovement"}


def test_policies_run_in_the_order_of_their_names():
    objects = [*nodes("n1", "n2"), web("a", "n1"), web("b", "n1")]
    result = planned(objects, policy({DUPLICATES: {}}, "second"), policy({DUPLICATES: {}}, "first"))
    assert [(action.pod, action.policy) for action in result.actions] == [("a", "first")]


def test_policies_share_reservations():
    """Each alone would move its pods to the one free slot of n2."""
    objects = [node("n1"), node("n2").allocatable(pods=1)]
    objects += [web(name, "n1", namespace=where) for where in ("shop", "blog") for name in ("a", "b")]
    policies = [policy({DUPLICATES: {}}, where, namespaces={"include": [where]}) for where in ("shop", "blog")]
    result = planned(objects, *policies)
    assert [(action.namespace, action.pod) for action in result.actions] == [("blog", "a")]
    assert {(each.namespace, each.name, each.reason) for each in result.kept} == {
        ("shop", "a", "NoPlace"),
        ("shop", "b", "NoPlace"),
    }


def test_policies_share_pdbs_and_node_limits():
    objects = [*nodes("n1", "n2", "n3"), web("a", "n1"), web("b", "n1"), web("c", "n1")]
    objects.append(budget().selecting(app="web").allowing(1))
    both = [policy({DUPLICATES: {}}, name) for name in ("one", "two")]
    assert moves(planned(objects, *both)) == [("a", "n1", "n2")]
    limited = [policy({DUPLICATES: {}}, name, limits={"perNode": 1}) for name in ("one", "two")]
    assert moves(planned(objects[:-1], *limited)) == [("a", "n1", "n2")]


def test_a_pod_is_moved_once():
    """It leaves n1 for its affinity's sake; that n2 then holds two of its owner is for the next plan to judge."""
    objects = [
        node("n1").labels(disk="hdd"),
        node("n2").labels(disk="ssd").allocatable(cpu="8"),
        node("n3").labels(disk="ssd").allocatable(cpu="1"),
        web("a", "n1").node_selector(disk="ssd"),
        web("b", "n2").node_selector(disk="ssd"),
        web("big", "n3", owner="big").cpu("1"),
    ]
    result = plan(objects, {**node_affinity(), DUPLICATES: {}})
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
def test_scope_selectors_are_applied(spec, expected):
    objects = [
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
        objects[-4] = web("a", "n1").priority(5)
    assert {action.key for action in plan(objects, {DUPLICATES: {}}, **spec).actions} == expected


def test_unknown_namespace_protects_pods_with_selector():
    objects = [*nodes("n1", "n2"), namespace("blog").labels(team="b"), web("a", "n1"), web("b", "n1")]
    objects += [web("a", "n1", namespace="blog"), web("b", "n1", namespace="blog")]
    result = plan(objects, {DUPLICATES: {}}, namespaceSelector={"matchLabels": {"team": "a"}})
    assert moves(result) == []
    assert kept(result) == dict.fromkeys("ab", "UnknownNamespace")


def test_pods_out_of_scope_are_not_reported():
    objects = [*nodes("n1", "n2"), web("a", "n1").volume("emptyDir"), web("b", "n1").volume("emptyDir")]
    assert kept(plan(objects, {DUPLICATES: {}})) == dict.fromkeys("ab", "LocalStorage")
    assert kept(plan(objects, {DUPLICATES: {}}, namespaces={"exclude": ["shop"]})) == {}


def test_a_strategy_that_is_not_enabled_does_nothing():
    objects = [*nodes("n1", "n2"), web("a", "n1"), web("b", "n1")]
    result = plan(objects, {DUPLICATES: {"enabled": False}, **node_affinity()})
    assert (moves(result), kept(result)) == ([], {})


def test_empty_cluster_gives_empty_plan():
    everything = {**node_affinity(), ANTI_AFFINITY: {}, DUPLICATES: {}, **utilization({"cpu": 20}, {"cpu": 50})}
    for objects in ([], nodes("n1"), [web("a"), web("b")], [web("a", "gone"), web("b", "gone")]):
        result = plan(objects, everything)
        assert (result.actions, result.kept) == ((), ())


def test_plan_document_matches_cli_format(golden: Golden):
    objects = [*nodes("n1", "n2"), web("a", "n1"), web("b", "n1").volume("emptyDir")]
    document = msgspec.json.decode(msgspec.json.encode(plan(objects, {DUPLICATES: {}}).document()))
    golden(document["actions"][0].pop("message"))
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
                "uid": "pod-shop-a",
                "owner": "ReplicaSet/web",
            }
        ],
        "kept": [],
        "summary": {"Evict": 1, "kept": 0},
    }


def test_affinity_target_of_moved_pod_is_kept(golden: Golden):
    """Both moves at once would leave the first pod on a node without a pod that matches its affinity."""
    friend = web("friend", "n2", owner="friend").labels(twin="yes")
    twin = pod("twin").labels(app="friend").owned_by("ReplicaSet", "friend").on("n2").priority(100).volume("emptyDir")
    picky = web("picky", "n1", owner="picky").node_selector(disk="ssd")
    picky.affinity(HOSTNAME, labelSelector=selector(twin="yes"))
    objects = [node("n1"), node("n2").labels(disk="ssd"), node("n3"), friend, twin, picky]
    result = plan(objects, {**node_affinity(), DUPLICATES: {}})
    assert moves(result) == [("picky", "n1", "n2")]
    assert kept(result) == {"friend": "NoImprovement", "twin": "LocalStorage"}
    golden(messages(result)["friend"])


def test_owner_without_controller_flag_is_ignored():
    lone = msgspec.structs.replace(web("a", "n1").build(), owners=(OwnerReference("ReplicaSet", "web"),))
    result = plan([*nodes("n1", "n2"), lone, web("b", "n1")], {DUPLICATES: {}})
    assert (moves(result), kept(result)) == ([], {})
