"""Which policy handles a node, and where policies conflict."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import node
from trimtab.api.decode import decode_node_pressure_policy
from trimtab.api.node_pressure_policy import NodePressurePolicy
from trimtab.pressure.assignment import assign_nodes, policy_conflicts, threshold_conflicts

GI = 1024**3


def policy(name: str, **spec: Any) -> NodePressurePolicy:
    document = {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "NodePressurePolicy",
        "metadata": {"name": name},
        "spec": {"evictionHard": {"memory.available": "1Gi"}, **spec},
    }
    return decode_node_pressure_policy(document)


def selecting(name: str, **labels: str) -> NodePressurePolicy:
    return policy(name, nodeSelector={"matchLabels": labels})


NODES = [node("n2").labels(pool="a").build(), node("n1").labels(pool="b").build(), node("n3").build()]


@pytest.mark.parametrize("backwards", [False, True])
def test_first_policy_by_name_handles_a_node(backwards: bool) -> None:
    policies = [selecting("a", pool="a"), policy("b"), selecting("c", pool="b")]
    found = assign_nodes(NODES, policies[::-1] if backwards else policies)

    assert {name: each.name for name, each in found.policies.items()} == {"n1": "b", "n2": "a", "n3": "b"}
    assert found.overlaps == {("b", "a"): ("n2",), ("c", "b"): ("n1",)}
    assert [(each.policy, each.other, each.reason, each.nodes) for each in policy_conflicts(found)] == [
        ("b", "a", "NodesHandledByOtherPolicy", ("n2",)),
        ("c", "b", "NodesHandledByOtherPolicy", ("n1",)),
    ]


def test_node_that_no_policy_selects_has_none() -> None:
    found = assign_nodes(NODES, [selecting("a", pool="a")])

    assert list(found.policies) == ["n2"]
    assert policy_conflicts(found) == ()


@pytest.mark.parametrize(
    ("own", "kubelet", "capacity", "conflicts"),
    [
        ("100Mi", {}, None, True),  # the kubelet's default is 100Mi
        ("101Mi", {}, None, False),
        ("500Mi", {"memory.available": "1Gi"}, None, True),
        ("5%", {"memory.available": "5%"}, None, True),
        ("6%", {"memory.available": "5%"}, None, False),
        ("5%", {"memory.available": "1Gi"}, None, False),  # they cannot be compared without a capacity
        ("5%", {"memory.available": "1Gi"}, 10 * GI, True),
        ("5%", {"memory.available": "1Gi"}, 40 * GI, False),
        ("1Gi", {"nodefs.available": "10%"}, 10 * GI, False),  # the kubelet has no threshold of that signal
    ],
)
def test_thresholds_that_are_not_above_the_kubelets(
    own: str, kubelet: dict[str, str], capacity: int | None, conflicts: bool
) -> None:
    made = policy("a", evictionHard={"memory.available": own}, kubeletEvictionHard=kubelet)
    capacities = None if capacity is None else {"n1": {"memory.available": capacity}}
    found = threshold_conflicts(made, capacities)

    assert [each.reason for each in found] == (["ThresholdNotAboveKubelet"] if conflicts else [])


def test_conflict_names_the_nodes_on_which_it_exists() -> None:
    made = policy("a", evictionHard={"memory.available": "5%"}, kubeletEvictionHard={"memory.available": "1Gi"})
    capacities = {name: {"memory.available": size * GI} for name, size in (("n3", 8), ("n1", 10), ("n2", 100))}

    assert [each.nodes for each in threshold_conflicts(made, capacities)] == [("n1", "n3")]


@pytest.mark.parametrize(
    ("soft", "hard", "capacity", "conflicts"),
    [
        ("5%", "1Gi", None, False),  # they cannot be compared without a capacity
        ("5%", "1Gi", 10, True),
        ("10%", "1Gi", 10, True),  # equal
        ("5%", "1Gi", 40, False),
        ("1Gi", "5%", 10, False),
        ("1Gi", "5%", 40, True),
        ("5%", "0%", 10, False),  # no threshold
    ],
)
def test_soft_thresholds_that_are_not_above_the_hard_ones_on_a_node(
    soft: str, hard: str, capacity: int | None, conflicts: bool
) -> None:
    made = policy(
        "a",
        evictionHard={"memory.available": hard},
        evictionSoft={"memory.available": soft},
        evictionSoftGracePeriod={"memory.available": "1m"},
    )
    sizes = {} if capacity is None else {"n1": {"memory.available": capacity * GI}, "n2": {"nodefs.available": GI}}
    found = [(each.reason, each.nodes) for each in threshold_conflicts(made, sizes)]

    assert found == ([("SoftThresholdNotAboveHard", ("n1",))] if conflicts else [])


def test_soft_threshold_may_be_in_conflict_with_the_hard_one_and_the_kubelets() -> None:
    made = policy(
        "a",
        evictionHard={"memory.available": "2Gi"},
        evictionSoft={"memory.available": "5%"},
        evictionSoftGracePeriod={"memory.available": "1m"},
        kubeletEvictionHard={"memory.available": "1Gi"},
    )
    sizes = {f"n{size}": {"memory.available": size * GI} for size in (10, 30, 50)}
    found = [(each.reason, each.nodes) for each in threshold_conflicts(made, sizes)]

    assert found == [
        ("ThresholdNotAboveKubelet", ("n10",)),
        ("SoftThresholdNotAboveHard", ("n10", "n30")),
    ]


def test_soft_thresholds_are_compared_too() -> None:
    made = policy(
        "a",
        evictionHard={},
        evictionSoft={"memory.available": "50Mi"},
        evictionSoftGracePeriod={"memory.available": "1m"},
        memoryStall={"percent": 10},
    )

    assert [each.reason for each in threshold_conflicts(made)] == ["ThresholdNotAboveKubelet"]
