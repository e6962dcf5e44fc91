"""What a pass plans, from one picture; and what holds for every history of a cluster."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.fixtures.golden import Golden
from tests.strategies import examples
from tests.unit.tainting.nodes import DEFAULTS, START, World, a_node, a_pod, no_execute_of, watched
from trimtab.api import reasons
from trimtab.api.taint_manager import NodeLifecycle
from trimtab.kube.objects import Taint
from trimtab.tainting.lifecycle.planner import plan_lifecycle
from trimtab.tainting.lifecycle.record import LifecycleState

NOW = START + 1000.0
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


def no_execute(key, second=None):
    return Taint(key, "NoExecute", "", None if second is None else START + second)


def plan(*objects, memory=None, at=NOW):
    return plan_lifecycle(*watched(*objects), DEFAULTS, now=at, memory=memory)


def recorded(made, effect="NoExecute"):
    return [
        (change.node, f"{'+' if change.add else '-'}{change.taint.key.rpartition('/')[2]}", change.reason)
        for change in made.taints
        if change.taint.effect == effect
    ]


WELL = [a_node(f"well{place}") for place in range(5)]
NO_SCHEDULE_TAINT = Taint(UNREACHABLE, "NoSchedule")


@pytest.mark.parametrize(
    ("node", "changes"),
    [
        (a_node("n1"), []),
        (a_node("n1", None), []),
        (a_node("n1", "False"), [("n1", "+not-ready", reasons.NODE_NOT_READY)]),
        (a_node("n1", "Unknown"), [("n1", "+unreachable", reasons.NODE_UNREACHABLE)]),
        (a_node("n1", "Unknown", taints=[no_execute(UNREACHABLE)]), []),
        (
            a_node("n1", "Unknown", taints=[no_execute(NOT_READY)]),
            [("n1", "-not-ready", reasons.NODE_CONDITION_ENDED), ("n1", "+unreachable", reasons.NODE_UNREACHABLE)],
        ),
        (
            a_node("n1", "False", taints=[no_execute(UNREACHABLE)]),
            [("n1", "+not-ready", reasons.NODE_NOT_READY), ("n1", "-unreachable", reasons.NODE_CONDITION_ENDED)],
        ),
        (
            a_node("n1", "False", taints=[no_execute(UNREACHABLE), no_execute(NOT_READY)]),
            [("n1", "-unreachable", reasons.NODE_CONDITION_ENDED)],
        ),
        (
            a_node("n1", taints=[no_execute(UNREACHABLE), no_execute(NOT_READY)]),
            [("n1", "-not-ready", reasons.NODE_RECOVERED), ("n1", "-unreachable", reasons.NODE_RECOVERED)],
        ),
        (a_node("n1", taints=[no_execute("example.com/x"), no_execute("node.kubernetes.io/out-of-service")]), []),
    ],
    ids=[
        "well",
        "has not said anything",
        "not ready",
        "not heard of",
        "tainted already",
        "from not ready to not heard of",
        "heard of again, not ready",
        "both, of which one is right",
        "recovered",
        "taints of others",
    ],
)
def test_one_failed_node_of_six(node, changes):
    assert recorded(plan(node, *WELL)) == changes


def test_swapped_taint_keeps_outage_time():
    [change] = [
        change
        for change in plan(a_node("n1", "Unknown", taints=[no_execute(NOT_READY, 7)]), *WELL).taints
        if change.add and change.taint.effect == "NoExecute"
    ]
    assert change.taint == no_execute(UNREACHABLE, 7)


def test_swap_and_recovery_are_not_rate_limited():
    tainted = [a_node(f"n{place}", "Unknown", taints=[no_execute(NOT_READY, 999)]) for place in range(3)]
    back = [a_node(f"m{place}", taints=[no_execute(NOT_READY, 999)]) for place in range(3)]
    made = plan(*tainted, *back, *WELL, memory=LifecycleState(spent={"": NOW - 1}))
    assert len(recorded(made)) == 3 * 2 + 3


def test_taint_message_has_zone_numbers(golden: Golden):
    made = plan(a_node("n1", "Unknown", since=940, zone="a"), *(replace(node) for node in WELL))
    [change] = [change for change in made.taints if change.taint.effect == "NoExecute"]
    golden(change.message)


def test_all_zones_down_removes_no_execute_and_keeps_no_schedule():
    made = plan(a_node("n1", "Unknown", zone="a", taints=[no_execute(UNREACHABLE)]), a_node("n2", "False", zone="b"))
    assert recorded(made) == [("n1", "-unreachable", reasons.ALL_ZONES_DOWN)]
    assert [node for node, _, _ in recorded(made, "NoSchedule")] == ["n1", "n2"]
    assert made.memory.all_down


def test_rate_continues_from_taint_times_without_record():
    tainted = a_node("n1", "Unknown", taints=[no_execute(UNREACHABLE, 995), NO_SCHEDULE_TAINT])
    made = plan(tainted, a_node("n2", "Unknown"), *WELL)
    assert recorded(made) == []
    assert [(each.node, each.due) for each in made.waiting] == [("n2", START + 996 + 10)]


def test_snapshot_from_file_uses_conditions_only():
    made = plan(a_node("n1", heartbeat=START - 9999.0), *WELL)
    assert not made.probes
    assert not made.taints


def test_settings_have_upstream_defaults():
    upstream = NodeLifecycle()
    periods = upstream.monitor_period_seconds, upstream.monitor_grace_seconds, upstream.startup_grace_seconds
    rates = upstream.node_eviction_rate, upstream.secondary_node_eviction_rate, upstream.full_disruption_rate
    assert (periods, rates) == ((5, 50, 60), (0.1, 0.01, 0.1))
    assert (upstream.large_cluster_size_threshold, upstream.unhealthy_zone_threshold) == (50, 0.55)
    own = NodeLifecycle(node_eviction_rate=0.5, node_monitor_grace_period="2m")
    assert (own.full_disruption_rate, own.monitor_grace_seconds) == (0.5, 120)


# ── what always holds ───────────────────────────────────────────────────────────────────────────────────────────────

NAMES = [f"{zone}{place}" for zone in "abc" for place in range(4)]
KINDS = ["fail", "recover", "kill", "kill unwritten", "wait"]
steps = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.sets(st.sampled_from(NAMES), max_size=5),
    ),
    min_size=1,
    max_size=12,
)


def lived(history, check=lambda _: None) -> World:
    live = World([a_node(name, zone=name[0]) for name in NAMES])
    for what, names in history:
        if what == "fail":
            live.fail(*sorted(names))
        elif what == "recover":
            live.recover(*sorted(names & live.dead))
        elif what.startswith("kill"):
            live.kill(away=len(names), unwritten=what.endswith("unwritten"))
        live.run(live.second + 25, check)
    return live


@settings(max_examples=25, deadline=None)
@given(steps)
def test_rates_are_never_exceeded_despite_kills(history):
    live = lived(history)
    for zone in "abc":
        times = [second for name, second in live.tainted if name[0] == zone]
        assert all(later - sooner >= 10 for sooner, later in pairwise(times))


def outage(kills=()):
    """A zone of four that fails at once, of three zones, with kills at these seconds, some before what is written."""
    live = World([a_node(name, zone=name[0]) for name in NAMES])
    live.run(20)
    live.fail("a0", "a1", "a2", "a3")
    for place, second in enumerate(sorted(kills)):
        live.run(second)
        live.kill(unwritten=place % 2 == 1)
    return live.run(200)


@settings(max_examples=examples(40), deadline=None)
@given(st.sets(st.integers(21, 110), min_size=10, max_size=10))
def test_ten_kills_during_zone_outage_lose_nothing(kills):
    promised, live = outage().tainted, outage(kills)
    assert [name for name, _ in live.tainted] == [name for name, _ in promised]
    for (_, second), (_, expected) in zip(live.tainted, promised, strict=True):
        assert second >= expected


@settings(max_examples=examples(40), deadline=None)
@given(st.sets(st.integers(42, 110), min_size=10, max_size=10))
def test_recorded_silence_limits_delay_by_kills(kills):
    """Each may cost the second of a question that has to be asked anew, and that of a taint's whole seconds."""
    promised, live = outage().tainted, outage(kills)
    for (_, second), (_, expected) in zip(live.tainted, promised, strict=True):
        assert second <= expected + len(kills)


@settings(max_examples=25, deadline=None)
@given(steps)
def test_only_failed_nodes_are_tainted(history):
    def check(live: World) -> None:
        for name, node in live.nodes.items():
            if name not in live.dead:
                assert not no_execute_of(node), (name, live.second)

    live = lived(history, check)
    assert {name for name, _ in live.unknown} <= {name for _, names in history for name in names}


@settings(max_examples=25, deadline=None)
@given(steps)
def test_zone_taints_nodes_in_order_of_failure(history):
    def check(live: World) -> None:
        waits = {name: place.since for name, place in live.memory.queue.items()}
        for name in live.plan.taken:
            others = [waits[each.node] for each in live.plan.waiting if each.node[0] == name[0]]
            assert all(waits[name] <= since for since in others)

    lived(history, check)


objects = st.lists(
    st.builds(
        lambda name, ready, zone, since, taints, cordoned: a_node(
            name, ready, zone=zone, since=since, taints=[no_execute(key, 5) for key in taints], unschedulable=cordoned
        ),
        st.sampled_from([f"n{place}" for place in range(12)]),
        st.sampled_from(["True", "False", "Unknown", None]),
        st.sampled_from(["", "a", "b"]),
        st.integers(0, 900),
        st.sets(st.sampled_from([NOT_READY, UNREACHABLE, "example.com/x"])),
        st.booleans(),
    ),
    max_size=12,
    unique_by=lambda node: node.name,
)


@settings(max_examples=examples(150), deadline=None)
@given(objects, st.randoms())
def test_object_order_does_not_matter(nodes, random):
    pods = [a_pod(f"web-{place}", f"n{place}") for place in range(12)]
    shuffled = [*nodes, *pods]
    random.shuffle(shuffled)
    assert plan(*nodes, *pods) == plan(*shuffled)


@settings(max_examples=examples(150), deadline=None)
@given(objects)
def test_at_most_one_node_per_zone_is_taken(nodes):
    made = plan(*nodes)
    zones = [token.zone for token in made.taken.values()]
    assert len(zones) == len(set(zones))
    put = {change.node for change in made.taints if change.add and change.taint.effect == "NoExecute"}
    waits = {each.node for each in made.waiting}
    assert not put & waits
    for node in nodes:
        failed = any(each.type == "Ready" and each.status != "True" for each in node.conditions)
        if failed and not made.memory.all_down:
            assert (node.name in put) + (node.name in waits) + bool(no_execute_of(node)) >= 1
        if not failed:
            assert node.name not in put | waits
