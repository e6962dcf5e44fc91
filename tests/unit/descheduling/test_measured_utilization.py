"""LowNodeUtilization by real use: who counts as full, who goes, and what is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.golden import Golden
from tests.unit.descheduling.planning import NOW, built, deviation, kept, messages, moves, policy, utilization
from tests.unit.descheduling.test_low_node_utilization import app, big, filled, with_params
from trimtab.api.plan import Plan
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.usage.measurement import Usage
from trimtab.descheduling.planning import planner

BY_USE: dict[str, Any] = {"metricsUtilization": {"source": "KubernetesMetrics"}}
CPU = with_params(utilization({"cpu": 20}, {"cpu": 50}), **BY_USE)


def plan(things: list[Any], usage: Usage | None, strategies: dict[str, Any] = CPU) -> Plan:
    usages = {} if usage is None else {"default": usage}
    return planner.plan_evictions(Snapshot(built(things)), [policy(strategies)], now=NOW, usages=usages)


def used(nodes: dict[str, float], pods: dict[str, float] | None = None, problem: str = "") -> Usage:
    """Cores that nodes and pods use."""
    return Usage(
        nodes={name: {"cpu": int(cores * 1000), "memory": 0} for name, cores in nodes.items()},
        pods={f"shop/{name}": {"cpu": int(cores * 1000), "memory": 0} for name, cores in (pods or {}).items()},
        problem=problem,
    )


TWO = [big("n1"), big("n2")]


@pytest.mark.parametrize(
    ("things", "usage", "expected"),
    [
        pytest.param([*TWO, *filled("n1", 7)], used({"n1": 3, "n2": 1}), [], id="requested but not used is not full"),
        pytest.param(
            [*TWO, *filled("n1", 2)],
            used({"n1": 6, "n2": 1}, {"p0": 0.5, "p1": 1.5}),
            [("p1", "n1", "n2")],
            id="usage without requests counts, and the pod whose usage removes the excess is evicted",
        ),
        pytest.param(
            [*TWO, *filled("n1", 2)],
            used({"n1": 6, "n2": 1}, {"p0": 0}),
            [("p1", "n1", "n2")],
            id="a pod without usage is not moved, and requests are used for unmeasured pods",
        ),
        pytest.param(
            [*TWO, *filled("n1", 2)],
            used({"n1": 8, "n2": 2}, {"p0": 4, "p1": 3}),
            [("p1", "n1", "n2")],
            id="no target exceeds its target utilization by usage",
        ),
        pytest.param(
            [*TWO, *filled("n1", 3), *filled("n2", 10, cpu="100m", prefix="q")],
            used({"n1": 8, "n2": 1}, {"p0": 1, "p1": 1, "p2": 1}),
            [],
            id="an idle node without unrequested capacity is not a target",
        ),
        pytest.param(
            [*TWO, *filled("n1", 3)],
            used({"n1": 7, "n2": 0}, {"p0": 1, "p1": 1, "p2": 1}),
            [("p0", "n1", "n2"), ("p1", "n1", "n2")],
            id="moved usage counts immediately",
        ),
        pytest.param(
            [*TWO, app("p0", "n1", "1").deleted(), *filled("n1", 3, prefix="q")],
            used({"n1": 6, "n2": 0}, {"p0": 1}),
            [],
            id="usage of terminating pods does not count",
        ),
    ],
)
def test_measured_utilization_selects_nodes_and_victims(things: list[Any], usage: Usage, expected: list[Any]) -> None:
    assert moves(plan(things, usage)) == expected


def test_messages_name_measured_utilization(golden: Golden) -> None:
    made = plan([*TWO, *filled("n1", 1)], used({"n1": 6, "n2": 1}))
    golden(made.actions[0].message)


def test_unmeasured_node_is_ignored_and_reported() -> None:
    objects = [*TWO, big("n3"), *filled("n1", 7), *filled("n3", 1, prefix="q")]
    made = plan(objects, used({"n3": 6}))
    assert moves(made) == []
    assert kept(made) == {"n1": "NotMeasured", "n2": "NotMeasured", "n3": "NoUnderutilizedNodes"}
    made = plan(objects, used({"n1": 9, "n3": 1}, {"p0": 4}))
    assert moves(made) == [("p0", "n1", "n3")]
    assert kept(made) == {"n2": "NotMeasured"}


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        pytest.param(None, "no measurement has been made", id="no measurement"),
        pytest.param(used({}, problem="nodes.metrics.k8s.io is not served"), "is not served", id="no response"),
        pytest.param(used({}), "the source has no value for it", id="no word on the node"),
    ],
)
def test_requests_do_not_replace_missing_measurements(usage: Usage | None, words: str) -> None:
    made = plan([*TWO, *filled("n1", 7)], usage)
    assert moves(made) == []
    assert kept(made) == {"n1": "NotMeasured", "n2": "NotMeasured"}
    assert words in messages(made)["n1"]


def test_mean_covers_only_measured_nodes() -> None:
    strategies = deviation({"cpu": 10}, {"cpu": 10}, **BY_USE)
    objects = [big("n1"), big("n2"), big("n3"), *filled("n1", 2), *filled("n3", 9, prefix="q")]
    assert moves(plan(objects, used({"n1": 6, "n2": 2}), strategies)) == [("p0", "n1", "n2")]


def test_every_move_lowers_the_measure_by_use() -> None:
    objects = [*TWO, *filled("n1", 3)]
    usages = {"default": used({"n1": 7, "n2": 0}, {"p0": 1, "p1": 1, "p2": 1})}
    _, (measured,) = planner.plan_and_measure(Snapshot(built(objects)), [policy(CPU)], now=NOW, usages=usages)
    assert (measured.before, measured.after) == ((20.0,), (0.0,))


def test_other_resources_still_count_by_requests() -> None:
    strategies = with_params(utilization({"pods": 20}, {"pods": 50}), **BY_USE)
    made = plan([*TWO, *filled("n1", 6)], used({"n1": 0, "n2": 0}), strategies)
    assert len(moves(made)) == 1


def test_refusal_is_not_cached_for_pods_using_less() -> None:
    objects = [*TWO, *filled("n1", 4)]
    made = plan(objects, used({"n1": 9, "n2": 2}, {"p0": 4.5, "p1": 4.6, "p2": 1, "p3": 5}))
    assert moves(made) == [("p2", "n1", "n2")]
    assert kept(made) == {"p0": "NoImprovement", "p1": "NoImprovement", "p3": "NoImprovement"}
    assert len(set(messages(made).values())) == 1
