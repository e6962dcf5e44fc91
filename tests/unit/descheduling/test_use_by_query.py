"""LowNodeUtilization by a query's shares: who counts as full, who goes when pods are measured and when they are not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import node
from tests.unit.descheduling.planning import NOW, built, deviation, kept, messages, moves, policy, utilization, web
from tests.unit.descheduling.test_low_node_utilization import app, big, filled, with_params
from trimtab.api.plan import Plan
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.usage import Usage
from trimtab.descheduling import planner

QUERY: dict[str, Any] = {"metricsUtilization": {"source": "Prometheus", "prometheus": {"query": "load"}}}
LOAD = with_params(utilization({"MetricResource": 20}, {"MetricResource": 50}), **QUERY)
FIVE = with_params(utilization({"MetricResource": 20}, {"MetricResource": 50}), **QUERY, evictionLimits={"node": 5})
TWO = [big("n1"), big("n2")]


def loads(nodes: dict[str, float], pods: dict[str, float] | None = None, **more: Any) -> Usage:
    """The shares of nodes, and the parts of pods in them."""
    return Usage(
        nodes={name: {"MetricResource": round(share * 1e6)} for name, share in nodes.items()},
        pods={f"shop/{name}": {"MetricResource": round(share * 1e6)} for name, share in (pods or {}).items()},
        **more,
    )


def plan(things: list[Any], usage: Usage | None, strategies: dict[str, Any] = LOAD) -> Plan:
    usages = {} if usage is None else {"default": usage}
    return planner.plan(Snapshot(built(things)), [policy(strategies)], now=NOW, usages=usages)


@pytest.mark.parametrize(
    ("things", "usage", "strategies", "expected"),
    [
        pytest.param(
            [*TWO, *filled("n1", 9)], loads({"n1": 0.5, "n2": 0.1}), LOAD, [], id="what is requested is not load"
        ),
        pytest.param(
            [*TWO, *filled("n1", 3)],
            loads({"n1": 0.7, "n2": 0.1}),
            LOAD,
            [("p0", "n1", "n2")],
            id="as long as parts are guessed one pod goes at a time",
        ),
        pytest.param(
            [*TWO, *filled("n1", 4)],
            loads({"n1": 0.8, "n2": 0}),
            FIVE,
            [("p0", "n1", "n2"), ("p1", "n1", "n2")],
            id="or as many as the limit says, until by what is guessed nothing is too much",
        ),
        pytest.param(
            [*TWO, app("idle", "n1", "10m", "1Mi"), app("busy", "n1", "4", "4Gi"), app("middle", "n1", "2", "2Gi")],
            loads({"n1": 0.6, "n2": 0.1}),
            LOAD,
            [("middle", "n1", "n2")],
            id="of pods that are guessed the smallest goes whose part ends it",
        ),
        pytest.param(
            [*TWO, web("a", "n1", owner="a"), web("b", "n1", owner="b"), web("c", "n1", owner="c")],
            loads({"n1": 0.6, "n2": 0.1}),
            LOAD,
            [("a", "n1", "n2")],
            id="pods that request nothing share the load by their number",
        ),
        pytest.param(
            [*TWO, *filled("n1", 3)],
            loads({"n1": 0.7, "n2": 0.1}, {"p0": 0.02, "p1": 0.1, "p2": 0.25}),
            LOAD,
            [("p2", "n1", "n2")],
            id="of pods that were measured the one goes that ends it",
        ),
        pytest.param(
            [*TWO, *filled("n1", 3)],
            loads({"n1": 0.7, "n2": 0.1}, {"p0": 0.1, "p1": 0.1, "p2": 0}),
            LOAD,
            [("p0", "n1", "n2"), ("p1", "n1", "n2")],
            id="and as many as it takes",
        ),
        pytest.param(
            [*TWO, *filled("n1", 2)],
            loads({"n1": 0.9, "n2": 0.2}, {"p0": 0.31, "p1": 0.31}),
            LOAD,
            [],
            id="no node is filled beyond its target",
        ),
        pytest.param(
            [big("n1", cpu="20"), big("n2"), *filled("n1", 2)],
            loads({"n1": 0.6, "n2": 0.1}, {"p0": 0.25, "p1": 0.15}),
            LOAD,
            [("p1", "n1", "n2")],
            id="on a node of half the cpu a part is twice as large",
        ),
        pytest.param(
            [big("n1"), big("n2", cpu="40"), *filled("n1", 2)],
            loads({"n1": 0.9, "n2": 0.19}, {"p0": 0.5, "p1": 0.7}),
            LOAD,
            [("p0", "n1", "n2")],
            id="on a larger one it is smaller",
        ),
        pytest.param(
            [*TWO, *filled("n1", 3, cpu="1"), *filled("n2", 10, cpu="100m", prefix="q")],
            loads({"n1": 0.7, "n2": 0.1}),
            LOAD,
            [],
            id="an idle node whose requests leave no room takes nothing",
        ),
        pytest.param(
            [*TWO, app("p0", "n1", "3").deleted(), *filled("n1", 3, prefix="q")],
            loads({"n1": 0.7, "n2": 0}, {"p0": 0.3, "q0": 0.3}),
            LOAD,
            [],
            id="the part of pods on their way out no longer counts",
        ),
        pytest.param(
            [*TWO, big("n3"), *filled("n1", 2)],
            loads({"n1": 0.6, "n2": 0.2, "n3": 0.4}),
            deviation({"MetricResource": 10}, {"MetricResource": 10}, **QUERY),
            [("p0", "n1", "n2")],
            id="deviations are counted from the mean of the shares",
        ),
    ],
)
def test_shares_decide_what_is_full_and_who_goes(
    things: list[Any], usage: Usage, strategies: dict[str, Any], expected: list[Any]
) -> None:
    assert moves(plan(things, usage, strategies)) == expected


def test_the_numbers_are_the_querys() -> None:
    made = plan([*TWO, *filled("n1", 3)], loads({"n1": 0.705, "n2": 0.1}))
    told = "MetricResource 70% of n1 is above its target 50%; n2 is at 10%, by real use"
    assert made.actions[0].message == told


def test_what_is_kept_only_because_parts_are_guessed_is_told_so() -> None:
    made = plan([*TWO, *filled("n1", 4)], loads({"n1": 0.8, "n2": 0}))
    assert kept(made) == {"p1": "LimitReached"}
    assert messages(made)["p1"] == (
        "without podQuery and evictionLimits.node one pod goes at a time, as its part is only guessed, "
        "and 1 eviction is planned for node n1"
    )


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        pytest.param(None, "nobody has measured", id="nobody was asked"),
        pytest.param(loads({}, problem="prometheus: query: no"), "prometheus: query: no", id="nobody answered"),
        pytest.param(loads({"n2": 0}, remarks={"n1": "3 series"}), "3 series", id="something is wrong with it"),
        pytest.param(loads({"n2": 0}), "no measurement of it", id="no word on the node"),
        pytest.param(loads({"10.0.0.1:9100": 0.9}), "none is a node's, 10.0.0.1:9100 for one", id="names of none"),
    ],
)
def test_a_node_without_a_share_gives_and_gets_nothing_and_the_reason_is_told(usage: Usage | None, words: str) -> None:
    made = plan([*TWO, *filled("n1", 9)], usage)
    assert moves(made) == []
    assert kept(made)["n1"] == "NotMeasured"
    assert words in messages(made)["n1"]


def test_nodes_that_were_not_measured_do_not_keep_the_others() -> None:
    made = plan([*TWO, big("n3"), *filled("n1", 3)], loads({"n1": 0.7, "n3": 0.1}))
    assert moves(made) == [("p0", "n1", "n3")]
    assert kept(made)["n2"] == "NotMeasured"


def test_every_move_lowers_the_measure_by_the_query() -> None:
    usages = {"default": loads({"n1": 0.7, "n2": 0}, {"p0": 0.125, "p1": 0.125})}
    things = built([*TWO, *filled("n1", 2)])
    _, (measured,) = planner.plan_and_measure(Snapshot(things), [policy(LOAD)], now=NOW, usages=usages)
    assert measured.before == pytest.approx((20.0,))
    assert measured.after == (0.0,)


def test_a_node_whose_size_cannot_be_true_was_not_measured() -> None:
    """Its load would be beyond what is counted with, and no plan be made at all."""
    made = plan(
        [*TWO, node("n3").allocatable(cpu="9e15", memory="64Gi", pods="110"), *filled("n1", 3)],
        loads({"n1": 0.7, "n2": 0.1, "n3": 0.1}),
    )
    assert moves(made) == [("p0", "n1", "n2")]
    assert kept(made)["n3"] == "NotMeasured"
