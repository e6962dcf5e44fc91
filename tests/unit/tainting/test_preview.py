"""What ``trimtab plan`` says of nodes and pods because of taints, from one picture and no memory."""

from __future__ import annotations

from itertools import permutations

import pytest
from msgspec.structs import replace

from tests.unit.tainting.nodes import START, a_node, a_pod
from trimtab.api import reasons
from trimtab.api.plan import TaintNode
from trimtab.api.taint_manager import NodeLifecycle, TaintManagerSpec
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Taint, Toleration
from trimtab.tainting.preview import plan_taints

NOW = START + 1000.0
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
WELL = [a_node(f"well{place}") for place in range(5)]


def plan(*objects, mode="TaintAndEvict", **lifecycle):
    spec = TaintManagerSpec(mode=mode, node_lifecycle=NodeLifecycle(**lifecycle))
    return plan_taints(Snapshot(objects), spec, now=NOW)


def recorded(made):
    return [
        (each.node, "+" if isinstance(each, TaintNode) else "-", each.taint.key.rpartition("/")[2], each.taint.effect)
        for each in made.taints
    ]


def tolerating(pod, key, seconds=300):
    toleration = Toleration(key=key, operator="Exists", effect="NoExecute", seconds=seconds)
    return replace(pod, spec=replace(pod.spec, tolerations=(toleration,)), started=START)


def ends(made):
    return [(each.pod, each.due) for each in made.deletions]


def test_failed_node_is_tainted_and_its_pods_have_deadlines():
    made = plan(a_node("n1", "Unknown"), tolerating(a_pod("web", "n1"), UNREACHABLE), a_pod("bare", "n1"), *WELL)

    assert recorded(made) == [
        ("n1", "+", "unreachable", "NoExecute"),
        ("n1", "+", "unreachable", "NoSchedule"),
    ]
    assert {each.reason for each in made.taints} == {reasons.NODE_UNREACHABLE}
    assert ends(made) == [("bare", "2026-11-20T12:16:40Z"), ("web", "2026-11-20T12:21:40Z")]


def test_recovered_node_is_untainted_and_keeps_its_pods():
    taints = [Taint(UNREACHABLE, effect, "", START) for effect in ("NoExecute", "NoSchedule")]
    made = plan(a_node("n1", taints=taints), a_pod("web", "n1"), *WELL)

    assert recorded(made) == [("n1", "-", "unreachable", "NoExecute"), ("n1", "-", "unreachable", "NoSchedule")]
    assert ends(made) == []


def test_swapped_taint_keeps_deadlines():
    taints = [Taint(NOT_READY, "NoExecute", "", START + 900)]
    pods = [tolerating(a_pod("old", "n1"), NOT_READY), tolerating(a_pod("new", "n1"), UNREACHABLE)]
    made = plan(a_node("n1", "Unknown", taints=taints), *pods, *WELL)

    assert ("n1", "+", "unreachable", "NoExecute") in recorded(made)
    assert ("n1", "-", "not-ready", "NoExecute") in recorded(made)
    assert ends(made) == [("old", "2026-11-20T12:16:40Z"), ("new", "2026-11-20T12:20:00Z")]


def test_other_taints_keep_their_deadlines():
    taints = [Taint("example.com/x", "NoExecute", "", START), Taint(UNREACHABLE, "NoExecute", "", START)]
    made = plan(a_node("n1", taints=taints), tolerating(a_pod("web", "n1"), UNREACHABLE), *WELL)

    assert recorded(made) == [("n1", "-", "unreachable", "NoExecute")]
    [deleted] = made.deletions
    assert deleted.taint.key == "example.com/x"


def test_queued_nodes_are_kept_with_due_time():
    failed = [a_node(f"n{place}", "False", since=place) for place in range(1, 4)]
    made = plan(*failed, *WELL, *[a_pod(f"web-{place}", f"n{place}") for place in range(1, 4)])

    assert [each for each in recorded(made) if each[3] == "NoExecute"] == [("n1", "+", "not-ready", "NoExecute")]
    waiting = [each for each in made.kept if each.kind == "Node"]
    assert [(each.name, each.reason, each.strategy, each.policy) for each in waiting] == [
        ("n2", reasons.EVICTION_RATE_LIMITED, "TaintManager", "default"),
        ("n3", reasons.EVICTION_RATE_LIMITED, "TaintManager", "default"),
    ]
    assert "0.1 per second; due at 2026-11-20T12:16:50Z" in waiting[0].message
    assert "due at 2026-11-20T12:17:00Z" in waiting[1].message
    assert ends(made) == [("web-1", "2026-11-20T12:16:40Z")]


@pytest.mark.parametrize("rate", [0.0, 1000.0], ids=["no rate", "any rate"])
def test_disrupted_small_zone_is_kept_with_reason(rate):
    failed = [a_node(f"n{place}", "False", zone="a") for place in range(1, 5)]
    made = plan(*failed, *WELL, a_node("n5", zone="a"), node_eviction_rate=rate)

    assert [each for each in recorded(made) if each[3] == "NoExecute"] == []
    assert [(each.name, each.reason) for each in made.kept] == [
        (f"n{place}", reasons.ZONE_DISRUPTED) for place in range(1, 5)
    ]
    assert "its turn" not in made.kept[0].message


def test_all_zones_down_is_planned_with_reason():
    tainted = a_node("n1", "Unknown", taints=[Taint(UNREACHABLE, "NoExecute", "", START)])
    made = plan(tainted, a_node("n2", "False"), a_pod("web", "n1"), a_pod("db", "n2"))

    assert [each for each in recorded(made) if each[3] == "NoExecute"] == [("n1", "-", "unreachable", "NoExecute")]
    assert ends(made) == []
    assert [(each.name, each.reason) for each in made.kept] == [("n2", reasons.ALL_ZONES_DOWN)]


@pytest.mark.parametrize("mode", ["Observe", "EvictPods"])
def test_evict_pods_mode_plans_pods_only(mode):
    tainted = a_node("n2", taints=[Taint(UNREACHABLE, "NoExecute", "", START)])
    made = plan(a_node("n1", "Unknown"), tainted, a_pod("web", "n2"), mode=mode)

    assert made.taints is None
    assert ends(made) == [("web", "2026-11-20T12:16:40Z")]
    assert made.kept == ()


def test_object_order_does_not_change_the_plan():
    objects = [a_node("n1", "Unknown"), a_node("n2", "False"), a_node("n3"), a_pod("a", "n1"), a_pod("b", "n2")]
    made = {repr(plan(*order)) for order in permutations(objects)}

    assert len(made) == 1
