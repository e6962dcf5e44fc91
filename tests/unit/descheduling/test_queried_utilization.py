"""LowNodeUtilization by a query's shares: who counts as full, who goes when pods are measured and when they are not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import node
from tests.fixtures.golden import Golden
from tests.unit.descheduling.planning import NOW, built, deviation, kept, messages, moves, policy, utilization, web
from tests.unit.descheduling.test_low_node_utilization import app, big, filled, with_params
from trimtab.api.plan import Plan
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.usage.measurement import Usage
from trimtab.descheduling.planning import planner

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
    return planner.plan_evictions(Snapshot(built(things)), [policy(strategies)], now=NOW, usages=usages)


@pytest.mark.parametrize(
    ("things", "usage", "strategies", "expected"),
    [
        pytest.param([*TWO, *filled("n1", 9)], loads({"n1": 0.5, "n2": 0.1}), LOAD, [], id="requests are not load"),
        pytest.param(
            [*TWO, *filled("n1", 3)],
            loads({"n1": 0.7, "n2": 0.1}),
            LOAD,
            [("p0", "n1", "n2")],
            id="with estimates, one pod is evicted per cycle",
        ),
        pytest.param(
            [*TWO, *filled("n1", 4)],
            loads({"n1": 0.8, "n2": 0}),
            FIVE,
            [("p0", "n1", "n2"), ("p1", "n1", "n2")],
            id="with a limit, pods are evicted until the estimate is below the target",
        ),
        pytest.param(
            [*TWO, app("idle", "n1", "10m", "1Mi"), app("busy", "n1", "4", "4Gi"), app("middle", "n1", "2", "2Gi")],
            loads({"n1": 0.6, "n2": 0.1}),
            LOAD,
            [("middle", "n1", "n2")],
            id="the smallest pod whose estimate removes the excess is evicted",
        ),
        pytest.param(
            [*TWO, web("a", "n1", owner="a"), web("b", "n1", owner="b"), web("c", "n1", owner="c")],
            loads({"n1": 0.6, "n2": 0.1}),
            LOAD,
            [("a", "n1", "n2")],
            id="pods without requests share the load equally",
        ),
        pytest.param(
            [*TWO, *filled("n1", 3)],
            loads({"n1": 0.7, "n2": 0.1}, {"p0": 0.02, "p1": 0.1, "p2": 0.25}),
            LOAD,
            [("p2", "n1", "n2")],
            id="the measured pod that removes the excess is evicted",
        ),
        pytest.param(
            [*TWO, *filled("n1", 3)],
            loads({"n1": 0.7, "n2": 0.1}, {"p0": 0.1, "p1": 0.1, "p2": 0}),
            LOAD,
            [("p0", "n1", "n2"), ("p1", "n1", "n2")],
            id="as many measured pods as necessary are evicted",
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
            id="an idle node without unrequested capacity is not a target",
        ),
        pytest.param(
            [*TWO, app("p0", "n1", "3").deleted(), *filled("n1", 3, prefix="q")],
            loads({"n1": 0.7, "n2": 0}, {"p0": 0.3, "q0": 0.3}),
            LOAD,
            [],
            id="load of terminating pods does not count",
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
def test_query_values_select_nodes_and_victims(
    things: list[Any], usage: Usage, strategies: dict[str, Any], expected: list[Any]
) -> None:
    assert moves(plan(things, usage, strategies)) == expected


def test_messages_have_query_values() -> None:
    made = plan([*TWO, *filled("n1", 3)], loads({"n1": 0.705, "n2": 0.1}))
    recorded = (
        "the MetricResource utilization of n1 is 70%, above the target of 50%; n2 is at 10%, by measured utilization"
    )
    assert made.actions[0].message == recorded


def test_estimated_usage_limits_evictions_with_reason(golden: Golden) -> None:
    made = plan([*TWO, *filled("n1", 4)], loads({"n1": 0.8, "n2": 0}))
    assert kept(made) == {"p1": "LimitReached"}
    golden(messages(made)["p1"])


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        pytest.param(None, "no measurement has been made", id="no measurement"),
        pytest.param(loads({}, problem="prometheus: query: no"), "prometheus: query: no", id="no response"),
        pytest.param(loads({"n2": 0}, remarks={"n1": "3 series"}), "3 series", id="something is wrong with it"),
        pytest.param(loads({"n2": 0}), "the source has no value for it", id="no word on the node"),
        pytest.param(loads({"10.0.0.1:9100": 0.9}), "is a node of the cluster, e.g. 10.0.0.1:9100", id="names of none"),
    ],
)
def test_unmeasured_node_is_no_source_or_target(usage: Usage | None, words: str) -> None:
    made = plan([*TWO, *filled("n1", 9)], usage)
    assert moves(made) == []
    assert kept(made)["n1"] == "NotMeasured"
    assert words in messages(made)["n1"]


def test_unmeasured_nodes_do_not_block_others() -> None:
    made = plan([*TWO, big("n3"), *filled("n1", 3)], loads({"n1": 0.7, "n3": 0.1}))
    assert moves(made) == [("p0", "n1", "n3")]
    assert kept(made)["n2"] == "NotMeasured"


def test_every_move_lowers_the_measure_by_the_query() -> None:
    usages = {"default": loads({"n1": 0.7, "n2": 0}, {"p0": 0.125, "p1": 0.125})}
    objects = built([*TWO, *filled("n1", 2)])
    _, (measured,) = planner.plan_and_measure(Snapshot(objects), [policy(LOAD)], now=NOW, usages=usages)
    assert measured.before == pytest.approx((20.0,))
    assert measured.after == (0.0,)


def test_node_with_invalid_size_counts_as_unmeasured() -> None:
    """Its load would be beyond what is counted with, and no plan be made at all."""
    made = plan(
        [*TWO, node("n3").allocatable(cpu="9e15", memory="64Gi", pods="110"), *filled("n1", 3)],
        loads({"n1": 0.7, "n2": 0.1, "n3": 0.1}),
    )
    assert moves(made) == [("p0", "n1", "n2")]
    assert kept(made)["n3"] == "NotMeasured"
