"""Replays of recorded decisions: each one is compared with what the planners might decide at that moment."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct

from tests.builders import machine_set, node, pod, replica_set
from tests.fixtures.recording import Change
from tests.fixtures.replay import Decision, forecast_in_order, replay
from trimtab.api.cluster_autoscaler import ClusterAutoscaler, ClusterAutoscalerSpec
from trimtab.cluster.snapshot import Snapshot
from trimtab.inspection.cluster import ClusterInput, PolicySet

NOW = 1_795_176_000.0
NO_POLICIES = PolicySet()
AUTOSCALED = PolicySet(cluster_autoscaler=ClusterAutoscaler(spec=ClusterAutoscalerSpec()))


def web(name: str, *, cpu: str = "1", owner: str = "web") -> Any:
    return pod(name).cpu(cpu).owned_by("ReplicaSet", owner).uid(name)


def cluster_of(*objects: Any, policies: PolicySet = NO_POLICIES) -> ClusterInput:
    owners = (replica_set(name, "shop") for name in ("web", "batch"))
    return ClusterInput(snapshot=Snapshot(each.build() for each in (*owners, *objects)), now=NOW, policies=policies)


def changes(*objects: Any) -> list[Change]:
    """Return one change for each object, in this order."""
    return [
        Change(number, each.manifest if isinstance(each, Deleted) else each.manifest(), isinstance(each, Deleted))
        for number, each in enumerate(objects, start=100)
    ]


class Deleted(Struct):
    """A deleted object."""

    manifest: dict[str, Any]


def verdicts(decisions: list[Decision]) -> list[tuple[str, bool, bool]]:
    return [(each.node, each.expected, each.first) for each in decisions]


@pytest.mark.parametrize(
    ("chosen", "expected", "first"),
    [("n1", True, True), ("n2", True, False), ("n3", False, False), ("n4", False, False)],
    ids=["first by name", "tie", "lower score", "too small"],
)
def test_binding_must_choose_a_best_node(chosen: str, expected: bool, first: bool) -> None:
    cluster = cluster_of(
        node("n1"), node("n2"), node("n3"), web("old", cpu="2").on("n3"), node("n4").allocatable(cpu="500m")
    )

    decisions = replay(cluster, changes(web("a"), web("a").on(chosen)))

    assert verdicts(decisions) == [(chosen, expected, first)]
    assert decisions[0].created == 100
    assert "shop/a" not in cluster.snapshot.pods


def test_bindings_are_evaluated_in_the_state_of_their_time() -> None:
    old = web("old", cpu="2").on("n1")
    cluster = cluster_of(node("n1").allocatable(cpu="2"), old)
    deleted = Deleted(old.manifest())

    assert verdicts(replay(cluster, changes(web("a"), deleted, web("a").on("n1")))) == [("n1", True, True)]
    assert verdicts(replay(cluster, changes(web("a"), web("a").on("n1"), deleted))) == [("n1", False, False)]


def test_concurrent_bindings_may_be_stored_in_another_order() -> None:
    cluster = cluster_of(node("n1"), node("n2"), web("old").on("n2"))
    created = (web("big", cpu="4"), web("a"))

    decisions = replay(cluster, changes(*created, web("a").on("n2"), web("big", cpu="4").on("n1")))
    assert verdicts(decisions) == [("n2", True, False), ("n1", True, True)]
    assert verdicts(replay(cluster, changes(*created, web("a").on("n2")))) == [("n2", False, False)]


def test_capacity_of_nominated_pods_is_reserved() -> None:
    cluster = cluster_of(node("n1").allocatable(cpu="1"))

    def high() -> Any:
        return web("high").priority(1000).merge(status={"nominatedNodeName": "n1"})

    assert verdicts(replay(cluster, changes(high(), web("a"), web("a").on("n1")))) == [("n1", False, False)]
    assert verdicts(replay(cluster, changes(high(), high().on("n1")))) == [("n1", True, True)]


@pytest.mark.parametrize(
    ("victim", "expected", "first"),
    [("a", True, False), ("b", True, True), ("older", False, False), ("important", False, False)],
)
def test_victims_that_started_in_the_same_second_are_equal(victim: str, expected: bool, first: bool) -> None:
    def running(name: str) -> Any:
        time = "2026-11-20T11:00:00Z" if name == "older" else "2026-11-20T12:00:00Z"
        return web(name).priority(10 if name == "important" else 0).on("n1").started(time)

    def high() -> Any:
        return web("high", owner="batch").priority(1000)

    cluster = cluster_of(node("n1").allocatable(cpu="4"), *map(running, ("a", "b", "older", "important")))
    marked = running(victim).condition("DisruptionTarget", "True", reason="PreemptionByScheduler")
    nominated = high().merge(status={"nominatedNodeName": "n1"})

    [decision] = replay(cluster, changes(high(), marked, nominated))

    assert [each.name for each in decision.victims] == [victim]
    assert (decision.revision, decision.expected, decision.first) == (101, expected, first)


@pytest.mark.parametrize(("replicas", "expected"), [(2, True), (3, False)])
def test_scale_up_must_be_needed_by_pending_pods(replicas: int, expected: bool) -> None:
    def workers(size: int) -> Any:
        return machine_set("workers").replicas(size).limits(0, 10).capacity(cpu="4", memory="16Gi")

    group = workers(1)
    full = (group, group.machine("m1").on("n1"), node("n1"), web("old", cpu="3").on("n1"))
    cluster = cluster_of(*full, web("a", cpu="3").unschedulable(), policies=AUTOSCALED)

    [decision] = replay(cluster, changes(workers(replicas)))

    assert (decision.pod, decision.expected) == (None, expected)


def test_forecast_in_order_follows_the_recorded_order() -> None:
    cluster = cluster_of(
        node("n1"), node("n2").allocatable(cpu="1"), web("a").on("n1"), web("b", owner="batch").on("n1")
    )
    failed = ("n1",)

    def placed(*names: str) -> list[str]:
        decisions = [
            Decision(revision=number, pod=build.build(), node="n2", expected=True)
            for number, build in enumerate(
                web(name, owner=owner) for name, owner in (each.split("/") for each in names)
            )
        ]
        return sorted(each.name for each in forecast_in_order(cluster, failed, decisions, "shop") if each.node)

    assert placed("x/web") == ["a"]
    assert placed("y/batch") == ["b"]
    assert placed() == ["a"]


def test_forecast_in_order_repeats_choices_among_equals() -> None:
    cluster = cluster_of(node("n1"), node("n2"), node("n3"), web("a").on("n1"))

    def chosen(*, first: bool) -> list[str]:
        decision = Decision(revision=1, pod=web("x").build(), node="n3", expected=True, first=first)
        return [each.node for each in forecast_in_order(cluster, ("n1",), [decision], "shop")]

    assert chosen(first=True) == ["n2"]
    assert chosen(first=False) == ["n3"]


def test_forecast_in_order_recreates_victims() -> None:
    cluster = cluster_of(
        node("n1"),
        node("n2").allocatable(cpu="1"),
        web("low").on("n2"),
        web("high", owner="batch").priority(1000).on("n1"),
    )
    decision = Decision(
        revision=1,
        pod=web("x", owner="batch").priority(1000).build(),
        node="n2",
        victims=(web("low").on("n2").build(),),
        expected=True,
    )

    found = forecast_in_order(cluster, ("n1",), [decision], "shop")

    assert {each.name: each.node for each in found} == {"low": "", "high": "n2"}
