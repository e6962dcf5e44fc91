"""Patches of nodes: they add before they take away, and are refused where the node has moved on."""

import pytest
from msgspec.structs import replace

from tests.unit.tainting.nodes import START, a_node, apply_all, written
from trimtab.kube.objects import NodeCondition, Taint
from trimtab.tainting.lifecycle.node_updates import node_updates, taint_patch
from trimtab.tainting.lifecycle.planner import LifecyclePlan, TaintChange
from trimtab.tainting.lifecycle.record import LifecycleState

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
GPU = Taint("example.com/gpu", "NoSchedule", "yes")


def put(key, effect="NoExecute", node="n1"):
    return TaintChange(node, Taint(key, effect, "", START), True, "NodeUnreachable", "")


def take(key, effect="NoExecute", node="n1"):
    return TaintChange(node, Taint(key, effect), False, "NodeRecovered", "")


def operations(node, *changes):
    return [(each["op"], each["path"]) for each in taint_patch(node, changes)]


def test_first_taint_creates_the_list():
    node = a_node(ready="Unknown")
    assert operations(node, put(UNREACHABLE)) == [
        ("test", "/metadata/uid"),
        ("test", "/status/conditions/3/type"),
        ("test", "/status/conditions/3/status"),
        ("test", "/spec/taints"),
        ("add", "/spec/taints"),
    ]


def test_swap_adds_before_it_removes():
    node = a_node(ready="Unknown", taints=[GPU, Taint(NOT_READY, "NoExecute"), Taint(NOT_READY, "NoSchedule")])
    assert operations(node, take(NOT_READY), put(UNREACHABLE))[3:] == [
        ("add", "/spec/taints/-"),
        ("test", "/spec/taints/1/key"),
        ("test", "/spec/taints/1/effect"),
        ("remove", "/spec/taints/1"),
    ]
    after = written(node, [take(NOT_READY), put(UNREACHABLE)])
    assert [(taint.key, taint.effect) for taint in after.taints] == [
        (GPU.key, "NoSchedule"),
        (NOT_READY, "NoSchedule"),
        (UNREACHABLE, "NoExecute"),
    ]


def test_taints_of_nodes_under_pressure_are_kept():
    memory = Taint("pressure.trimtab.dev/memory", "NoSchedule")
    node = a_node(ready="Unknown", taints=[Taint(NOT_READY, "NoExecute"), memory, Taint(NOT_READY, "NoSchedule")])
    after = written(node, [take(NOT_READY), take(NOT_READY, "NoSchedule"), put(UNREACHABLE)])
    assert [(taint.key, taint.effect) for taint in after.taints] == [
        (memory.key, "NoSchedule"),
        (UNREACHABLE, "NoExecute"),
    ]


def test_changes_of_a_node_are_one_patch():
    nodes = {"n1": a_node("n1"), "n2": a_node("n2")}
    changes = (take(NOT_READY, node="n2"), take("y"), put(NOT_READY), put(NOT_READY, "NoSchedule"), put("x", node="n9"))
    plan = LifecyclePlan(now=START, taints=changes, memory=LifecycleState())
    made = {name: update.changes for name, update in node_updates(plan, nodes).items()}
    assert made == {"n1": (changes[2], changes[3], changes[1]), "n2": (changes[0],)}


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda node: replace(node, uid="another"),
        lambda node: replace(node, taints=(GPU, *node.taints)),
        lambda node: replace(node, taints=node.taints[:1]),
        lambda node: replace(
            node,
            conditions=tuple(
                NodeCondition(each.type, "True") if each.type == "Ready" else each for each in node.conditions
            ),
        ),
    ],
    ids=["recreated", "taints moved", "a taint gone", "recovered"],
)
def test_patch_fails_if_the_node_has_changed(meanwhile):
    node = a_node(ready="Unknown", taints=[GPU, Taint(NOT_READY, "NoExecute")])
    patch = taint_patch(node, [put(UNREACHABLE), take(NOT_READY)])
    now = meanwhile(node)
    body = {
        "metadata": {"uid": now.uid},
        "spec": {"taints": [{"key": taint.key, "effect": taint.effect} for taint in now.taints]},
        "status": {"conditions": [{"type": each.type, "status": each.status} for each in now.conditions]},
    }
    with pytest.raises((AssertionError, IndexError)):
        apply_all(body, patch)


def test_taint_time_is_rfc3339():
    node = a_node(ready="Unknown")
    assert taint_patch(node, [put(UNREACHABLE)])[-1]["value"] == [
        {"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": "2026-11-20T12:00:00Z"}
    ]
