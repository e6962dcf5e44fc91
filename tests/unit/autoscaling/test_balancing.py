"""Balancing of new nodes among similar groups."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import ZONE, node
from tests.unit.autoscaling.scale_up_helpers import group, pending_pod, pending_pods, planned, reasons, sizes

A, B = {ZONE: "a"}, {ZONE: "b"}


def balanced(*builders: Any, **spec: Any) -> dict[str, tuple[int, int]]:
    return sizes(planned(*builders, balanceSimilarNodeGroups=True, **spec))


def zones(**more: Any) -> list[Any]:
    """Two groups that differ only in their zone."""
    return [group("a", **more).node_labels(A), group("b", **more).node_labels(B)]


def test_new_nodes_are_balanced_among_similar_groups() -> None:
    assert balanced(*zones(), *pending_pods(20)) == {"a": (0, 3), "b": (0, 2)}


def test_without_balancing_one_group_gets_all_nodes() -> None:
    assert sizes(planned(*zones(), *pending_pods(20))) == {"a": (0, 5)}


def test_smaller_group_is_filled_first() -> None:
    small, large = group("a", size=0), group("b", size=3)
    upcoming = pending_pods(12)  # have their places on the nodes that b is getting
    late = [pending_pod(f"x-{number}") for number in range(16)]
    assert balanced(small, large, *upcoming, *late) == {"a": (0, 4)}
    assert balanced(small, large, *upcoming, *late, *(pending_pod(f"y-{number}") for number in range(12))) == {
        "a": (0, 5),
        "b": (3, 5),
    }


def test_group_at_its_maximum_gets_no_node() -> None:
    small = group("a", most=1).node_labels(A)
    assert balanced(small, group("b").node_labels(B), *pending_pods(20)) == {"a": (0, 1), "b": (0, 4)}


def test_cluster_limits_apply_to_all_groups_together() -> None:
    made = planned(*zones(), *pending_pods(20), balanceSimilarNodeGroups=True, resourceLimits={"maxNodesTotal": 3})
    assert sizes(made) == {"a": (0, 2), "b": (0, 1)}
    assert set(reasons(made).values()) == {"MaxNodesTotalReached"}


def test_only_groups_that_fit_the_same_pods_are_balanced() -> None:
    picky = [each.node_selector(A) for each in pending_pods(8)]
    assert balanced(*zones(), *picky) == {"a": (0, 2)}


@pytest.mark.parametrize(
    ("other", "spec", "equal"),
    [
        (group("b"), {}, True),
        (group("b").node_labels({ZONE: "b", "kubernetes.azure.com/agentpool": "b", "agentpool": "b"}), {}, True),
        (group("b").node_labels({"pool": "b"}), {}, False),
        (group("b").node_labels({"pool": "b"}), {"balancingIgnoredLabels": ["pool"]}, True),
        (group("b", cpu="5"), {}, False),
        (group("b", memory="16500Mi"), {}, True),
        (group("b", memory="17Gi"), {}, False),
        (group("b", ephemeral_disk="10Gi"), {}, False),
        (group("b").node_taint("special", effect="PreferNoSchedule"), {}, False),
        (group("b").annotations({"trimtab.dev/reserved": "cpu=100m,memory=0"}), {}, True),
        (group("b").annotations({"trimtab.dev/reserved": "cpu=900m,memory=0"}), {}, False),
    ],
    ids=[
        "equal",
        "another zone",
        "another label",
        "another label that is ignored",
        "another number of cores",
        "nearly the same memory",
        "more memory",
        "another resource",
        "another taint",
        "nearly as much allocatable",
        "less allocatable",
    ],
)
def test_similarity_depends_on_node_templates(other: Any, spec: dict[str, Any], equal: bool) -> None:
    pods = [pending_pod(f"p-{number}", cpu="3") for number in range(4)]
    scale_up = balanced(group("a"), other, *pods, expanders=["MostPods"], **spec)
    assert scale_up == ({"a": (0, 2), "b": (0, 2)} if equal else {"a": (0, 4)})


def test_learned_and_estimated_templates_can_be_similar() -> None:
    owner = group("a", size=1).node_labels(A)
    real = node("n1").zone("a").labels({"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"})
    full = [pending_pod(f"p-{number}", cpu="4") for number in range(3)]
    made = balanced(owner, owner.machine("m").on("n1"), real, group("b").node_labels(B), *full)
    assert made == {"a": (1, 2), "b": (0, 1)}
