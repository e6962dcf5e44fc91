"""Groups with equal nodes share new ones; which nodes are equal."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import ZONE, node
from tests.unit.autoscaling.scaling import group, planned, reasons, several, sizes, waiting

A, B = {ZONE: "a"}, {ZONE: "b"}


def balanced(*builders: Any, **spec: Any) -> dict[str, tuple[int, int]]:
    return sizes(planned(*builders, balanceSimilarNodeGroups=True, **spec))


def zones(**more: Any) -> list[Any]:
    """Two groups alike but for their zone."""
    return [group("a", **more).node_labels(A), group("b", **more).node_labels(B)]


def test_new_nodes_go_to_equal_groups_in_turn() -> None:
    assert balanced(*zones(), *several(20)) == {"a": (0, 3), "b": (0, 2)}


def test_without_balancing_one_group_gets_them_all() -> None:
    assert sizes(planned(*zones(), *several(20))) == {"a": (0, 5)}


def test_the_smaller_group_catches_up_first() -> None:
    small, large = group("a", size=0), group("b", size=3)
    upcoming = several(12)  # have their places on the nodes that b is getting
    late = [waiting(f"x-{number}") for number in range(16)]
    assert balanced(small, large, *upcoming, *late) == {"a": (0, 4)}
    assert balanced(small, large, *upcoming, *late, *(waiting(f"y-{number}") for number in range(12))) == {
        "a": (0, 5),
        "b": (3, 5),
    }


def test_a_group_that_has_its_largest_size_leaves_the_rest_to_others() -> None:
    small = group("a", most=1).node_labels(A)
    assert balanced(small, group("b").node_labels(B), *several(20)) == {"a": (0, 1), "b": (0, 4)}


def test_limits_of_the_cluster_hold_for_all_together() -> None:
    made = planned(*zones(), *several(20), balanceSimilarNodeGroups=True, resourceLimits={"maxNodesTotal": 3})
    assert sizes(made) == {"a": (0, 2), "b": (0, 1)}
    assert set(reasons(made).values()) == {"MaxNodesTotalReached"}


def test_only_groups_that_help_the_same_pods_share() -> None:
    picky = [each.node_selector(A) for each in several(8)]
    assert balanced(*zones(), *picky) == {"a": (0, 2)}


@pytest.mark.parametrize(
    ("other", "spec", "equal"),
    [
        (group("b"), {}, True),
        (group("b").node_labels({ZONE: "b", "agentpool": "b"}), {}, True),
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
        "another place",
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
def test_groups_are_equal_by_what_their_nodes_are(other: Any, spec: dict[str, Any], equal: bool) -> None:
    pods = [waiting(f"p-{number}", cpu="3") for number in range(4)]
    grown = balanced(group("a"), other, *pods, expanders=["MostPods"], **spec)
    assert grown == ({"a": (0, 2), "b": (0, 2)} if equal else {"a": (0, 4)})


def test_a_learned_template_and_another_one_may_be_equal() -> None:
    owner = group("a", size=1).node_labels(A)
    real = node("n1").zone("a").labels({"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"})
    full = [waiting(f"p-{number}", cpu="4") for number in range(3)]
    made = balanced(owner, owner.machine("m").on("n1"), real, group("b").node_labels(B), *full)
    assert made == {"a": (1, 2), "b": (0, 1)}
