"""HighNodeUtilization: which nodes are emptied, where their pods go, and what keeps a node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import budget
from tests.fixtures.golden import Golden
from tests.unit.descheduling.planning import HIGH, NOW, built, kept, messages, moves, packing, plan, policy, web
from tests.unit.descheduling.test_low_node_utilization import app, big, filled
from trimtab.api.strategies import HighNodeUtilizationParams
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.planning.planner import plan_and_measure

CPU = packing({"cpu": 20})
GPU = "example.com/gpu"


def holding(*numbers: int) -> list[Any]:
    """Nodes n1, n2, … of ten CPUs each with so many pods of one: p0, p1, … on the first, then q0, … and r0, …"""
    nodes = [big(f"n{index}") for index in range(1, len(numbers) + 1)]
    pods = zip(numbers, "pqr", strict=False)
    return nodes + [
        each for index, (number, prefix) in enumerate(pods, 1) for each in filled(f"n{index}", number, prefix=prefix)
    ]


def daemon(name: str, on: str) -> Any:
    """A DaemonSet's pod."""
    return web(name, on, owner="", namespace="shop").owned_by("DaemonSet", "agent")


def gpu(name: str, on: str, number: int = 1) -> Any:
    return app(name, on).requests({GPU: str(number)})


@pytest.mark.parametrize(
    ("strategies", "things", "expected"),
    [
        pytest.param(
            CPU,
            holding(2, 3),
            [("p0", "n1", "n2"), ("p1", "n1", "n2")],
            id="all pods of an underutilized node move to another node",
        ),
        pytest.param(
            CPU,
            holding(3, 3),
            [],
            id="no node is underutilized",
        ),
        pytest.param(
            CPU,
            holding(2, 1, 5),
            [("q0", "n2", "n3"), ("p0", "n1", "n3"), ("p1", "n1", "n3")],
            id="the least full node first",
        ),
        pytest.param(
            CPU,
            holding(1, 4, 6),
            [("p0", "n1", "n3")],
            id="the fullest node that fits is the target, as with MostAllocated",
        ),
        pytest.param(
            CPU,
            holding(2, 9, 7),
            [("p0", "n1", "n2"), ("p1", "n1", "n3")],
            id="no node is filled beyond its allocatable",
        ),
        pytest.param(
            # upstream takes pods while there is room, and leaves the node half empty and in use
            CPU,
            holding(2, 9),
            [],
            id="no pod is moved if one fits on no other node",
        ),
        pytest.param(
            CPU,
            [
                big("n1", cpu="10"),
                big("n2"),
                app("s", "n1", "500m"),
                app("l", "n1", "1500m"),
                *filled("n2", 8, prefix="q"),
            ],
            [("l", "n1", "n2"), ("s", "n1", "n2")],
            id="the largest pod first",
        ),
        pytest.param(
            CPU,
            [
                big("n1"),
                big("n2"),
                *filled("n1", 2),
                daemon("d1", "n1"),
                *filled("n2", 3, prefix="q"),
                daemon("d2", "n2"),
            ],
            [("p0", "n1", "n2"), ("p1", "n1", "n2")],
            id="DaemonSet pods are not moved and do not block draining",
        ),
        pytest.param(
            CPU,
            [big("n1"), big("n2"), *filled("n1", 1), app("m", "n1").mirror(), *filled("n2", 3, prefix="q")],
            [("p0", "n1", "n2")],
            id="static pods do not block draining",
        ),
        pytest.param(
            CPU,
            [
                big("n1"),
                big("n2"),
                *filled("n1", 1),
                app("done", "n1", "5").phase("Succeeded"),
                *filled("n2", 3, prefix="q"),
            ],
            [("p0", "n1", "n2")],
            id="terminated pods do not block draining",
        ),
        pytest.param(
            CPU,
            [big("n1"), big("n2"), *filled("n1", 1), app("bye", "n1", "5").deleted(), *filled("n2", 3, prefix="q")],
            [("p0", "n1", "n2")],
            id="terminating pods do not block draining",
        ),
        pytest.param(
            CPU,
            [big("n1"), big("n2"), daemon("d1", "n1"), *filled("n2", 3, prefix="q")],
            [],
            id="a node without other pods is empty already",
        ),
        pytest.param(
            CPU,
            [big("n1").cordoned(), big("n2"), *filled("n1", 1), *filled("n2", 3, prefix="q")],
            [("p0", "n1", "n2")],
            id="a cordoned node is emptied as well",
        ),
        pytest.param(
            CPU,
            [big("n1"), big("n2").cordoned(), *filled("n1", 1), *filled("n2", 3, prefix="q")],
            [],
            id="and is not a target",
        ),
        pytest.param(
            CPU,
            [big("n1"), big("n2").not_ready(), *filled("n1", 1), *filled("n2", 3, prefix="q")],
            [],
            id="a not-ready node is not a target",
        ),
        pytest.param(
            # issue 725 of the descheduler project: it does nothing where all nodes are underutilized
            CPU,
            holding(1, 2, 1),
            [("p0", "n1", "n2"), ("r0", "n3", "n2")],
            id="where all are underutilized the fullest becomes a destination",
        ),
        pytest.param(
            CPU,
            holding(1, 2, 10),
            [("p0", "n1", "n2")],
            id="and so where the others are full",
        ),
        pytest.param(
            CPU,
            holding(1, 2, 9),
            [("p0", "n1", "n3")],
            id="only if no other node fits the pods",
        ),
        pytest.param(
            CPU,
            [big("n1"), big("n2"), *filled("n1", 1)],
            [],
            id="an empty node is no destination",
        ),
        pytest.param(
            packing({"cpu": 20, "memory": 20}),
            [big("n1"), big("n2"), app("a", "n1", memory="3Gi"), *filled("n2", 3, prefix="q")],
            [],
            id="underutilized is at or below all thresholds",
        ),
        pytest.param(
            packing({"pods": 20}),
            [big("n1"), big("n2"), app("a", "n1"), app("b", "n1"), *(app(f"q{index}", "n2") for index in range(3))],
            [("a", "n1", "n2"), ("b", "n1", "n2")],
            id="pods count as a resource",
        ),
        pytest.param(
            packing({GPU: 50}, evictionModes=["OnlyThresholdingResources"]),
            [
                *(big(name, **{GPU: 4}) for name in ("n1", "n2")),
                big("n3"),
                gpu("a", "n1"),
                app("other", "n1").volume("emptyDir"),
                gpu("b", "n2", 3),
                app("more", "n3"),
            ],
            [("a", "n1", "n2")],
            id="only pods that request some resource of the thresholds, by OnlyThresholdingResources",
        ),
        pytest.param(
            packing({GPU: 50}),
            [big("n1"), big("n2", **{GPU: 4}), gpu("a", "n2", 3), *filled("n1", 1)],
            [],
            id="a node that has none of the resources is not underutilized",
        ),
        pytest.param(
            packing({"cpu": 20}, 1),
            holding(1, 3),
            [],
            id="no more underutilized nodes than numberOfNodes",
        ),
        pytest.param(
            packing({"cpu": 20}, 1),
            [big("n1"), big("n2"), big("n3"), *filled("n1", 1), *filled("n2", 3, prefix="q")],
            [("p0", "n1", "n2")],
            id="more than numberOfNodes, the empty one among them",
        ),
    ],
)
def test_nodes_are_drained_completely_or_not_at_all(strategies, things, expected):
    assert moves(plan(things, strategies)) == expected


FULLER = [big("n2"), *filled("n2", 4, prefix="q")]


@pytest.mark.parametrize(
    ("things", "spec", "reasons"),
    [
        pytest.param(
            [app("a", "n1", "1").volume("emptyDir")], {}, {"a": "LocalStorage", "n1": "LocalStorage"}, id="protected"
        ),
        pytest.param(
            [app("a", "n1", "1"), budget().selecting(app="a").allowing(0)],
            {},
            {"a": "DisruptionBudget", "n1": "DisruptionBudget"},
            id="a budget",
        ),
        pytest.param(
            [app("a", "n1", "1"), web("b", "n1", owner="a"), budget().selecting(app="a").allowing(1)],
            {},
            {"b": "DisruptionBudget", "n1": "DisruptionBudget"},
            id="a budget for one of two",
        ),
        pytest.param(
            filled("n1", 2),
            {"limits": {"perNode": 1}},
            {"p1": "LimitReached", "n1": "LimitReached"},
            id="a limit for one of two",
        ),
        pytest.param(
            filled("n1", 1), {"namespaces": {"include": ["blog"]}}, {"n1": "NotInScope"}, id="not the policy's pods"
        ),
        pytest.param(
            [app("a", "n1", "11").node_selector(disk="ssd")], {}, {}, id="a node that is not underutilized is not named"
        ),
        pytest.param(
            [app("a", "n1", "1").node_selector(disk="ssd")], {}, {"a": "NoPlace", "n1": "NoPlace"}, id="no place"
        ),
    ],
)
def test_blocking_pods_are_reported_with_node(things, spec, reasons):
    result = plan([big("n1"), *FULLER, *things], CPU, **spec)
    assert moves(result) == []
    assert kept(result) == reasons


def test_excluded_namespaces_keep_nodes():
    objects = [big("n1"), *FULLER, web("a", "n1", namespace="blog").cpu("1"), *filled("n1", 1)]
    result = plan(objects, packing({"cpu": 20}, evictableNamespaces={"exclude": ["blog"]}))
    assert moves(result) == []
    assert kept(result) == {"a": "NamespaceNotEvictable", "n1": "NamespaceNotEvictable"}


def test_failed_drain_consumes_no_budget_or_limit():
    """n1 fails for its second pod; the one disruption that its first would have taken is n3's."""
    objects = [big("n1"), *FULLER, app("a", "n1", "1500m"), app("stuck", "n1").node_selector(disk="ssd"), big("n3")]
    objects += [web("b", "n3", owner="a").cpu("2"), budget().selecting(app="a").allowing(1)]
    result = plan(objects, CPU)
    assert moves(result) == [("b", "n3", "n2")]
    assert kept(result) == {"stuck": "NoPlace", "n1": "NoPlace"}


def test_only_selected_nodes_are_considered():
    objects = [big("n1").labels(pool="a"), big("n2"), big("n3").labels(pool="a"), *filled("n1", 1)]
    objects += [*filled("n2", 5, prefix="q"), *filled("n3", 4, prefix="r")]
    assert moves(plan(objects, CPU, nodeSelector={"matchLabels": {"pool": "a"}})) == [("p0", "n1", "n3")]


def test_the_measure_is_the_number_of_underutilized_nodes_in_use():
    objects = [big("n1"), *FULLER, *filled("n1", 2), big("n3"), daemon("d", "n3")]
    _, [measured] = plan_and_measure(Snapshot(built(objects)), [policy(CPU)], now=NOW)
    assert (measured.before, measured.after) == ((1.0, 2.0), (0.0, 0.0))


def test_messages_have_compared_values(golden: Golden):
    result = plan([big("n1"), *FULLER, *filled("n1", 2)], packing({"cpu": 20, "memory": 30}))
    assert [action.reason for action in result.actions] == ["NodeUnderutilized"] * 2
    golden(result.actions[0].message)
    result = plan([big("n1"), *FULLER, app("a", "n1", "1").volume("emptyDir")], CPU)
    golden(messages(result)["n1"], "2")
    result = plan([big("n1"), *filled("n1", 1)], packing({"cpu": 20}, 3))
    golden(messages(result)["n1"], "3")


def test_without_thresholds_nothing_is_underutilized():
    """The API refuses it where the strategy is enabled; the types allow it."""
    assert HighNodeUtilizationParams().node_resource_utilization_thresholds is None
    assert moves(plan([big("n1"), *FULLER, *filled("n1", 1)], {HIGH: {}})) == []
