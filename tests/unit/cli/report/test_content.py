"""What the page tells, as values."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings

from tests.builders import node, pod
from tests.unit.cli.report.pages import reported
from tests.unit.descheduling.planning import DUPLICATES, NOW, failed, policy, restarts, web
from tests.unit.descheduling.test_invariants import after, policies, worlds
from trimtab.cli.report.content import usage
from trimtab.cli.report.measures import LABELS, SINGLE_LABELS, measure_labels
from trimtab.cli.report.rows import GROUPS, SINGLE, excerpt, histogram, rows, shares
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.planning.planner import plan_and_measure, plan_evictions
from trimtab.descheduling.strategies.registry import IN_ORDER


def test_moved_pod_counts_on_its_target():
    made = reported([node("n1"), node("n2"), web("a", "n1").cpu("1"), web("b", "n1").cpu("1")], {DUPLICATES: {}}).usage

    assert (made.names, made.resources) == (("n1", "n2"), ("cpu", "memory", "pods"))
    assert made.before[:, 0].tolist() == [50, 0]
    assert made.after[:, 0].tolist() == [25, 25]
    assert (made.leaving.tolist(), made.arriving.tolist()) == ([1, 0], [0, 1])


def test_restarted_pod_is_not_counted_as_moved():
    made = reported([node("n1"), web("a", "n1").cpu("1").restarted(200)], restarts())

    assert [action.target for action in made.plan.actions] == ["n1"]
    assert made.usage.before.tolist() == made.usage.after.tolist()
    assert made.usage.leaving.tolist() == [0]


def test_failed_pod_frees_no_resources():
    deleted = web("a", "n1").cpu("1").phase("Failed")
    made = reported([node("n1"), deleted], failed(minPodLifetimeSeconds=0))

    assert [action.target for action in made.plan.actions] == [""]
    assert made.usage.before.tolist() == made.usage.after.tolist()
    assert made.usage.leaving.tolist() == [1]


def test_requested_extended_resources_are_shown():
    objects = [
        node("n1").allocatable({"example.com/gpu": 4, "example.com/idle": 2}),
        node("n2"),
        web("a", "n1").requests({"example.com/gpu": "1"}),
    ]
    made = reported(objects, {DUPLICATES: {}}).usage

    assert made.resources == ("cpu", "memory", "pods", "example.com/gpu")
    assert made.before[0, 3] == 25
    assert np.isnan(made.before[1, 3])


@settings(max_examples=60)
@given(worlds(), policies())
def test_usage_after_equals_the_cluster_after_the_plan(world, given_policy):
    snapshot = Snapshot(world)
    done = plan_evictions(snapshot, [given_policy], now=NOW)
    then = Snapshot(after(world, done))
    made = usage(done, snapshot)

    order, columns = then.nodes.order(), [then.nodes.axis.column[name] for name in made.resources]
    have, want = then.nodes.allocatable[order][:, columns], then.nodes.requested[order][:, columns]
    expected = np.full(have.shape, np.nan)
    np.divide(100.0 * want, have, out=expected, where=have > 0)
    np.testing.assert_array_equal(made.after, expected)
    assert made.leaving.sum() >= made.arriving.sum()


@settings(max_examples=60)
@given(worlds(), policies())
def test_measures_do_not_change_plans_and_never_get_worse(world, given_policy):
    snapshot = Snapshot(world)
    made, measures = plan_and_measure(snapshot, [given_policy], now=NOW)

    assert made == plan_evictions(Snapshot(world), [given_policy], now=NOW)
    assert [each.strategy for each in measures] == [
        kind.NAME for kind in IN_ORDER if kind.NAME in dict(given_policy.spec.strategies.enabled())
    ]
    moved = Counter(action.strategy for action in made.actions)
    first = next((each for each in measures), None)
    assert first is None or first.after <= first.before
    assert all(each.after == each.before for each in measures) or moved


def test_every_measure_has_labels():
    assert {kind.NAME for kind in IN_ORDER} <= set(LABELS)
    assert set(SINGLE_LABELS) <= set(LABELS)
    for name, texts in LABELS.items():
        assert measure_labels(name, len(texts)) == texts
    assert measure_labels("Unheard", 2) == ("measure 1", "measure 2")


@pytest.mark.parametrize(
    "strategies", [{kind.NAME: {}} for kind in IN_ORDER if kind.NAME in LABELS], ids=lambda s: str(*s)
)
def test_every_number_of_a_measure_has_a_label(strategies):
    if next(iter(strategies)) in {"RemovePodsHavingTooManyRestarts", "PodLifeTime"}:
        strategies = {
            name: {"params": {"podRestartThreshold": 1} if "Restarts" in name else {"maxPodLifeTimeSeconds": 9}}
            for name in strategies
        }
    _, [measured] = plan_and_measure(Snapshot(), [policy(strategies)], now=NOW)
    assert not any(text.startswith("measure ") for text in measure_labels(measured.strategy, len(measured.before)))


def test_few_nodes_have_a_row_each_by_name():
    made = reported([node("n2"), node("n1").cordoned(), web("a", "n1")], {DUPLICATES: {}}).usage

    assert [(row.label, row.detail, row.nodes) for row in rows(made)] == [("n1", "n1 (cordoned)", 1), ("n2", "n2", 1)]


def test_many_nodes_are_grouped_by_how_full_they_are():
    number = 2 * SINGLE
    objects = [node(f"n{index:03}") for index in range(number)]
    objects += [pod(f"p{index}").on(f"n{index:03}").cpu(f"{25 * index}m") for index in range(number)]
    shown = rows(reported(objects, {DUPLICATES: {}}).usage)

    assert len(shown) <= GROUPS
    assert sum(row.nodes for row in shown) == number
    fullness = [row.before[0] for row in shown]
    assert fullness == sorted(fullness, reverse=True)
    assert (shown[0].label, shown[-1].label) == ("1\u20134", "157\u2013160")


def test_a_histogram_counts_each_node_once():
    values = np.array([0.0, 9.99, 10.0, 55.0, 99.9, 100.0, 100.1, 240.0, np.nan])

    assert histogram(values) == (2, 1, 0, 0, 0, 1, 0, 0, 0, 2, 2)


@pytest.mark.parametrize(
    ("sizes", "most", "expected"),
    [
        pytest.param({"a": 2, "b": 3}, 10, {"a": 2, "b": 3}, id="all fit"),
        pytest.param({"rare": 1, "b": 50, "c": 50}, 21, {"rare": 1, "b": 10, "c": 10}, id="the rare are shown whole"),
        pytest.param({"a": 9, "b": 9, "c": 9}, 1, {"a": 1, "b": 1, "c": 1}, id="one of each at least"),
    ],
)
def test_groups_share_the_shown_rows(sizes, most, expected):
    assert shares(Counter(sizes), most) == expected


def test_excerpt_keeps_order_and_positions():
    items = ["a1", "b1", "a2", "a3", "b2", "a4"]

    assert excerpt(items, lambda item: item[0], 4) == [(0, "a1"), (1, "b1"), (2, "a2"), (4, "b2")]
    assert excerpt(items, lambda item: item[0], None) == list(enumerate(items))
