"""How zones are, and how fast their nodes may be tainted."""

import pytest
from msgspec.structs import replace

from tests.unit.tainting.nodes import DEFAULTS, START, a_node
from trimtab.kube.frozen import FrozenMap
from trimtab.kube.objects import Taint
from trimtab.tainting.lifecycle.planner import latest_taint_time
from trimtab.tainting.lifecycle.zones import (
    FULL,
    NORMAL,
    PARTIAL,
    QueuedNode,
    all_down,
    answered_at,
    failed_at,
    next_at,
    queued,
    rate_of,
    spent_at,
    state_of,
    zone_of,
    zones,
)

OLD, NEW = "failure-domain.beta.kubernetes.io/", "topology.kubernetes.io/"


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        ({}, ""),
        ({NEW + "zone": "a"}, "/a"),
        ({NEW + "region": "eu"}, "eu/"),
        ({NEW + "region": "eu", NEW + "zone": "a"}, "eu/a"),
        ({OLD + "region": "eu", OLD + "zone": "a"}, "eu/a"),
        ({OLD + "zone": "old", NEW + "zone": "new"}, "/old"),
        ({OLD + "zone": "", NEW + "zone": "new"}, "/new"),
        ({OLD + "region": "eu", NEW + "zone": "a"}, "eu/a"),
    ],
    ids=["none", "zone", "region", "both", "old labels", "the old one wins", "an empty one is none", "mixed"],
)
def test_zone_is_read_from_labels(labels, name):
    assert zone_of(FrozenMap(labels)) == name


@pytest.mark.parametrize(
    ("ready", "not_ready", "state", "rate"),
    [
        (0, 0, NORMAL, 0.1),
        (1, 0, NORMAL, 0.1),
        (10, 2, NORMAL, 0.1),
        (1, 2, NORMAL, 0.1),
        (2, 3, PARTIAL, 0.0),
        (3, 3, NORMAL, 0.1),
        (9, 11, PARTIAL, 0.0),
        (10, 10, NORMAL, 0.1),
        (20, 30, PARTIAL, 0.0),
        (20, 31, PARTIAL, 0.01),
        (0, 1, FULL, 0.1),
        (0, 100, FULL, 0.1),
    ],
    ids=[
        "no node counts",
        "one node",
        "two of twelve",
        "two of three are too few",
        "three of five",
        "three of six are too few of them",
        "the threshold itself",
        "just below it",
        "fifty nodes are not large",
        "fifty-one are",
        "a single node",
        "all of a hundred",
    ],
)
def test_zone_has_upstream_state_and_rate(ready, not_ready, state, rate):
    assert state_of(ready, not_ready, DEFAULTS) == state
    assert rate_of(state, ready + not_ready, DEFAULTS) == rate


def test_full_disruption_has_its_own_rate():
    settings = replace(DEFAULTS, full_disruption_eviction_rate=0.02)
    assert [rate_of(state, 10, settings) for state in (NORMAL, FULL)] == [0.1, 0.02]


def counted(*nodes):
    return zones(nodes, {node.name: "True" if node.ready else "Unknown" for node in nodes}, DEFAULTS)


def excluded(node):
    return replace(node, labels=FrozenMap({**node.labels, "node.kubernetes.io/exclude-disruption": ""}))


def test_excluded_nodes_are_not_counted():
    found = counted(a_node("n1", zone="a"), excluded(a_node("n2", "Unknown", zone="a")))
    assert (found["/a"].nodes, found["/a"].not_ready) == (1, 0)


@pytest.mark.parametrize(
    ("nodes", "down"),
    [
        ([], False),
        ([a_node("n1")], False),
        ([a_node("n1", "Unknown")], True),
        ([a_node("n1", "Unknown", zone="a"), a_node("n2", "False", zone="b")], True),
        ([a_node("n1", "Unknown", zone="a"), a_node("n2", zone="b")], False),
        ([a_node("n1", "Unknown", zone="a"), excluded(a_node("n2", zone="b"))], True),
        ([excluded(a_node("n1", "Unknown"))], False),
    ],
    ids=["no node", "one that is well", "one", "all zones", "one zone", "the rest is excluded", "all is excluded"],
)
def test_all_zones_are_down_without_counted_ready_nodes(nodes, down):
    assert all_down(counted(*nodes).values()) is down


# ── the queue ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("node", "ready", "second"),
    [
        (a_node(ready="False", since=10), "False", 10),
        (a_node(ready="True", since=10), "Unknown", 99),
        (a_node(ready=None), "Unknown", 99),
    ],
    ids=["as it stands", "as we assess_health it, since now", "without a condition"],
)
def test_node_failure_time_is_condition_transition(node, ready, second):
    assert failed_at(node, ready, START + 99) == START + second


def test_queue_is_sorted_by_failure_time_and_name():
    failed = {
        "c": QueuedNode("c", 5.0),
        "b": QueuedNode("b", 7.0),
        "a": QueuedNode("a", 7.0),
        "d": QueuedNode("d", 1.0),
    }
    assert list(queued({}, failed, now=10.0)) == ["d", "c", "a", "b"]


def test_changed_condition_keeps_place_in_queue():
    before = queued({}, {"a": QueuedNode("a", 1.0), "b": QueuedNode("b", 2.0)}, now=3.0)
    after = queued(before, {"a": QueuedNode("a", 9.0), "b": QueuedNode("b", 2.0)}, now=10.0)
    assert after == before
    assert list(after) == ["a", "b"]


def test_new_node_with_same_name_is_queued_from_scratch():
    before = queued({}, {"a": QueuedNode("a", 1.0), "b": QueuedNode("b", 2.0)}, now=3.0)
    assert list(queued(before, {"a": QueuedNode("new", 9.0), "b": QueuedNode("b", 2.0)}, now=10.0)) == ["b", "a"]


def test_future_time_counts_as_now():
    assert queued({}, {"a": QueuedNode("a", 99.0)}, now=3.0) == {"a": QueuedNode("a", 3.0)}


@pytest.mark.parametrize(
    ("spent", "rate", "at"),
    [
        (None, 0.1, 100.0),
        (95.0, 0.1, 105.0),
        (95.0, 0.01, 195.0),
        (None, 0.0, None),
        (95.0, 0.0, None),
        (500.0, 0.1, 110.0),
        (1.0, 0.1, 11.0),
    ],
    ids=["never", "lately", "at another rate", "no rate", "no rate any more", "a clock set back", "long ago"],
)
def test_next_node_is_taken_one_interval_after_the_last(spent, rate, at):
    assert next_at(spent, rate, now=100.0) == at


@pytest.mark.parametrize(
    ("at", "rate", "spent"),
    [(90.0, 0.1, 100.0), (99.9, 4.0, 100.0), (99.9, 10.0, 99.9), (90.0, 10.0, 99.75), (100.0, 10.0, 100.0)],
    ids=["slow", "four a second", "quicker than passes come", "no more than a burst", "right now"],
)
def test_fast_rate_is_caught_up_within_a_burst(at, rate, spent):
    assert spent_at(at, rate, now=100.0) == spent


@pytest.mark.parametrize(
    ("spent", "rate", "in_flight", "counted"),
    [
        (None, 0.1, 1, 100.0),
        (90.0, 0.1, 1, 100.0),
        (101.0, 0.1, 1, 101.0),
        (90.0, 0.0, 1, 100.0),
        (99.0, 100.0, 5, 99.8),
        (99.9, 100.0, 5, 99.9),
        (99.0, 100.0, 50, 100.0),
    ],
)
def test_token_counts_from_the_response(spent, rate, in_flight, counted):
    assert answered_at(spent, rate, in_flight=in_flight, now=100.0) == pytest.approx(counted)


@pytest.mark.parametrize(
    ("taints", "time"),
    [
        ([], None),
        ([Taint("node.kubernetes.io/unreachable", "NoExecute")], None),
        ([Taint("node.kubernetes.io/unreachable", "NoExecute", "", 50.0)], 50.0),
        (
            [
                Taint("node.kubernetes.io/unreachable", "NoExecute", "", 50.0),
                Taint("node.kubernetes.io/not-ready", "NoExecute", "", 70.0),
                Taint("node.kubernetes.io/not-ready", "NoSchedule", "", 90.0),
                Taint("example.com/x", "NoExecute", "", 90.0),
            ],
            70.0,
        ),
    ],
    ids=["none", "without a time", "one", "the last of both, and of no other"],
)
def test_latest_taint_time_is_read(taints, time):
    assert latest_taint_time(a_node("n1", taints=taints)) == time
