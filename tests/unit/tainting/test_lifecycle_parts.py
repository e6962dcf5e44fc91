"""Parts of the node lifecycle's loop: the order of acting, the record's size, what wakes it, a clock that is set."""

import pytest
from msgspec.structs import replace

from tests.unit.tainting.nodes import DEFAULTS, START, a_node, watched
from trimtab.kube.frozen import FrozenMap
from trimtab.kube.objects import NODE_LEASES, Lease, NodeCondition, Taint
from trimtab.tainting.lifecycle.controller import affects_plan, became_not_ready
from trimtab.tainting.lifecycle.node_health import NodeHealth, ProbeResult, update_health
from trimtab.tainting.lifecycle.node_updates import node_updates
from trimtab.tainting.lifecycle.planner import plan_lifecycle
from trimtab.tainting.lifecycle.record import (
    MAX_BYTES,
    LifecycleState,
    encode_record,
    shift_times,
    truncate_record,
)
from trimtab.tainting.lifecycle.zones import QueuedNode

NOW = START + 1000.0
UNREACHABLE = "node.kubernetes.io/unreachable"


# ── the order of acting ─────────────────────────────────────────────────────────────────────────────────────────────


def planned():
    """A plan with a bit of everything, on nodes that are named after what is to be done with them."""
    well = [replace(a_node(f"well{place}"), heartbeat=NOW) for place in range(4)]
    known = {name: NodeHealth(f"uid-{name}", START, None, START) for name in ("mark", "ask", "longer")}
    known["longer"] = replace(known["longer"], at=START - 50)
    nodes = [
        *(replace(a_node(name), heartbeat=START) for name in known),
        a_node("take", "False", since=5, heartbeat=NOW),
        a_node("free", heartbeat=NOW, taints=[Taint(UNREACHABLE, "NoExecute")]),
        a_node("cordoned", heartbeat=NOW, unschedulable=True),
        *well,
    ]
    responses = {"mark": ProbeResult("uid-mark", (None, START), NOW)}
    plan = plan_lifecycle(
        *watched(*nodes), DEFAULTS, now=NOW, memory=LifecycleState(heard=known), probe_results=responses
    )
    return plan, {node.name: node for node in nodes}


def test_updates_are_ordered_by_urgency():
    plan, nodes = planned()
    found = node_updates(plan, nodes)
    assert list(found) == ["take", "free", "mark", "cordoned", "longer", "ask"]
    assert found["take"].token == plan.taken["take"]
    assert found["free"].changes_no_execute
    assert found["mark"].mark is not None
    assert found["mark"].changes
    assert found["ask"].probe


def test_truncated_updates_keep_the_most_urgent():
    plan, nodes = planned()
    assert list(node_updates(plan, nodes, most=2)) == ["take", "free"]


def test_deleted_nodes_have_no_update():
    plan, nodes = planned()
    del nodes["mark"]
    assert "mark" not in node_updates(plan, nodes)


# ── who rests, and what was heard when ──────────────────────────────────────────────────────────────────────────────


def test_resting_node_keeps_its_place_in_the_queue():
    nodes = [
        a_node("n1", "False", since=1),
        a_node("n2", "False", since=2),
        *(a_node(f"w{place}") for place in range(5)),
    ]
    sight = watched(*nodes)
    assert list(plan_lifecycle(*sight, DEFAULTS, now=NOW).taken) == ["n1"]
    plan = plan_lifecycle(*sight, DEFAULTS, now=NOW, resting={"n1"})
    assert list(plan.taken) == ["n2"]
    assert [each.node for each in plan.waiting] == ["n1"]
    assert not plan_lifecycle(*sight, DEFAULTS, now=NOW, resting={"n1", "n2"}).taken


@pytest.mark.parametrize(
    ("news", "at"),
    [({}, 1000.0), ({"n1": NOW - 3}, 997.0), ({"n1": NOW + 5}, 1000.0)],
    ids=["not told", "three seconds ago", "a time ahead"],
)
def test_renewal_counts_from_its_observation(news, at):
    before = {"n1": NodeHealth("uid-n1", START, START, None)}
    leases = {f"{NODE_LEASES}/n1": Lease(NODE_LEASES, "n1", renewed=START + 10)}
    assert update_health(before, [a_node()], leases, now=NOW, changed_at=news)["n1"].at == START + at


def test_taint_with_future_time_does_not_block():
    tainted = a_node("n1", "Unknown", taints=[Taint(UNREACHABLE, "NoExecute", "", NOW + 3600)])
    plan = plan_lifecycle(
        *watched(tainted, a_node("n2", "False"), *(a_node(f"w{place}") for place in range(5))),
        DEFAULTS,
        now=NOW,
    )
    assert list(plan.taken) == ["n2"]


# ── what wakes the loop ─────────────────────────────────────────────────────────────────────────────────────────────

NODE = a_node()


@pytest.mark.parametrize(
    ("old", "new", "wakes"),
    [
        (None, NODE, True),
        (NODE, None, True),
        (NODE, NODE, False),
        (NODE, replace(NODE, heartbeat=NOW, resource_version="2"), False),
        (NODE, replace(NODE, images=FrozenMap({"app": 1})), False),
        (NODE, replace(NODE, annotations=FrozenMap({"a": "b"})), False),
        (NODE, replace(NODE, uid="another"), True),
        (NODE, replace(NODE, unschedulable=True), True),
        (NODE, replace(NODE, taints=(Taint("a", "NoSchedule"),)), True),
        (NODE, replace(NODE, labels=FrozenMap({"topology.kubernetes.io/zone": "b"})), True),
        (NODE, replace(NODE, conditions=(NodeCondition("Ready", "False", since=NOW),)), True),
    ],
    ids=[
        "came",
        "went",
        "the same",
        "heartbeat",
        "image",
        "annotation",
        "made anew",
        "cordoned",
        "tainted",
        "another zone",
        "condition",
    ],
)
def test_node_changes_that_affect_the_plan(old, new, wakes):
    assert affects_plan(old, new) is wakes


@pytest.mark.parametrize(
    ("old", "new", "has_failed"),
    [
        (NODE, a_node(ready="False"), True),
        (NODE, a_node(ready="Unknown"), True),
        (NODE, NODE, False),
        (a_node(ready="False"), a_node(ready="Unknown"), False),
        (None, a_node(ready="False"), False),
        (NODE, None, False),
        (NODE, a_node(ready="False", uid="another"), False),
    ],
    ids=["not ready", "unknown", "the same", "was not ready before", "came so", "went", "another node of its name"],
)
def test_transition_to_not_ready_is_detected(old, new, has_failed):
    assert became_not_ready(old, new) is has_failed


# ── what is remembered ──────────────────────────────────────────────────────────────────────────────────────────────


def test_truncated_record_keeps_longest_silent_nodes():
    silent = {f"node-{place:05}.example.internal": NodeHealth("u" * 36, START + place) for place in range(20_000)}
    queue = {name: QueuedNode("u" * 36, each.at) for name, each in silent.items()}
    record = LifecycleState(heard=silent, queue=queue, spent={"": NOW}, all_down=True)
    kept = truncate_record(record)
    assert len(encode_record(kept)) <= MAX_BYTES
    assert len(kept.heard) >= 2500
    assert set(kept.heard) == set(list(silent)[: len(kept.heard)])
    assert set(kept.queue) == set(list(queue)[: len(kept.queue)])
    assert (kept.spent, kept.all_down) == (record.spent, True)
    assert truncate_record(kept) == kept


def test_clock_change_shifts_times_and_keeps_queue_order():
    memory = LifecycleState(
        heard={"n1": NodeHealth("u", 100.0, 1.0, 2.0, believed=120.0)},
        queue={"n2": QueuedNode("u", 50.0)},
        spent={"": 90.0},
        back=80.0,
    )
    moved = shift_times(memory, 3600.0)
    assert moved.heard["n1"] == NodeHealth("u", 3700.0, 1.0, 2.0, believed=3720.0)
    assert (moved.spent, moved.back, moved.stale_since) == ({"": 3690.0}, 3680.0, None)
    assert moved.queue == memory.queue
    assert shift_times(moved, -3600.0) == memory
