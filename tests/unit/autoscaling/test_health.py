"""Health of the cluster and its groups, and readiness of nodes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.builders import NodeBuilder, node
from tests.fixtures.golden import Golden
from tests.unit.autoscaling.cluster_state_helpers import T0, A, Observed, groups_of, options
from trimtab.autoscaling.cluster_state import (
    HealthSettings,
    Readiness,
    assess_health,
    readiness_by_node,
)
from trimtab.autoscaling.cluster_state.readiness import node_readiness
from trimtab.autoscaling.groups import GroupOptions, Groups

READY, UNREADY, STARTING, GOING = Readiness.READY, Readiness.UNREADY, Readiness.STARTING, Readiness.GOING
B = "MachineSet/m/b"


def mixed(ready: int, unready: int, *, name: str = "a", start: int = 0) -> Observed:
    words = [f"{name}r{each}=ready@-9999" for each in range(ready)]
    words += [f"{name}u{each}=new@-9999" for each in range(unready)]
    words += [f"{name}s{each}=new@-10" for each in range(start)]
    return Observed(len(words), " ".join(words), name=name)


def judged(*seen: Observed, settings: HealthSettings | None = None) -> tuple[bool, set[str]]:
    groups, nodes = groups_of(*seen)
    node_readiness = readiness_by_node(nodes, groups, now=T0)
    found = assess_health(groups, node_readiness, settings=settings or HealthSettings())
    return bool(found.cluster), set(found.groups)


@pytest.mark.parametrize(
    ("ready", "unready", "unwell"),
    [(0, 3, False), (0, 4, True), (4, 4, True), (5, 4, False), (5, 5, True), (55, 45, False), (54, 46, True)],
    ids=lambda each: str(each),
)
def test_more_than_three_and_more_than_45_percent_must_be_unready(ready: int, unready: int, unwell: bool) -> None:
    assert judged(mixed(ready, unready)) == (unwell, {A} if unwell else set())


def test_starting_nodes_are_not_unready() -> None:
    assert judged(mixed(0, 3, start=50)) == (False, set())
    assert judged(mixed(0, 4, start=4)) == (True, {A})
    assert judged(mixed(0, 4, start=5)) == (False, set())


def test_unhealthy_group_does_not_stop_the_cluster() -> None:
    assert judged(mixed(1, 5), mixed(20, 0, name="b")) == (False, {A})


def test_message_has_the_numbers(golden: Golden) -> None:
    groups, nodes = groups_of(mixed(1, 5))
    found = assess_health(groups, readiness_by_node(nodes, groups, now=T0))

    golden(found.cluster)
    golden(found.groups[A], "2")


def test_thresholds_are_settings() -> None:
    assert judged(mixed(9, 1), settings=HealthSettings(0, 5.0)) == (True, {A})
    assert judged(mixed(0, 9), settings=HealthSettings(9, 0.0)) == (False, set())


def test_empty_cluster_is_healthy() -> None:
    assert judged() == (False, set())


@pytest.mark.parametrize(
    ("builder", "age", "expected"),
    [
        (node(), 5, READY),
        (node(), 9999, READY),
        (node().cordoned(), 9999, READY),
        (node().not_ready(), 5, STARTING),
        (node().not_ready(), 899, STARTING),
        (node().not_ready(), 900, UNREADY),
        (node().taint("startup-taint.cluster-autoscaler.kubernetes.io/gpu"), 5, STARTING),
        (node().taint("example.com/starting"), 5, STARTING),
        (node().taint("example.com/starting"), 900, UNREADY),
        (node().taint("example.com/other"), 5, READY),
        (node().taint("ToBeDeletedByClusterAutoscaler", "1"), 9999, GOING),
        (node().not_ready().taint("ToBeDeletedByClusterAutoscaler", "1"), 5, GOING),
    ],
)
def test_readiness_of_a_node(builder: NodeBuilder, age: float, expected: Readiness) -> None:
    made = replace(builder.build(), created=T0)

    found = node_readiness(made, GroupOptions(), now=T0 + age, startup=("example.com/starting",))

    assert found is expected


def test_group_option_sets_the_startup_time() -> None:
    observed = Observed(1, "x=new@0", options=options(startup_seconds=60))
    groups, nodes = groups_of(observed)

    assert readiness_by_node(nodes, groups, now=T0 + 89) == {"n-x": STARTING}
    assert readiness_by_node(nodes, groups, now=T0 + 91) == {"n-x": UNREADY}
    assert readiness_by_node(nodes, Groups(), now=T0 + 91) == {"n-x": STARTING}
