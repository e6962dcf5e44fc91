"""Pods that fit after planned evictions need no new node."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import node, pod
from tests.fixtures.golden import Golden
from tests.unit.autoscaling.scale_up_helpers import NOW, group, pending_pod, reasons, sizes
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.plan import rfc3339
from trimtab.api.reasons import FITS_AFTER_MOVES
from trimtab.autoscaling.scale_up import PlanInputs, ScaleUpPlan, scale_up
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.shared_plans import PlannedMove
from trimtab.kube.objects import KubeObject


def running(name: str, on: str, cpu: str = "1") -> Any:
    return pod(name).owned_by("ReplicaSet", "web").cpu(cpu).on(on).ready()


def small(name: str, cpu: str = "2") -> Any:
    return node(name).allocatable(cpu=cpu, memory="16Gi", pods=20)


def moving(built: list[KubeObject], *names: str, to: str = "n2", left: float = 90.0) -> tuple[PlannedMove, ...]:
    pods = {each.name: each for each in built if hasattr(each, "phase")}
    return tuple(
        PlannedMove(pods[name].key, pods[name].uid, pods[name].node, to, "default", NOW + left) for name in names
    )


def planned(builders: list[Any], *names: str, **more: Any) -> ScaleUpPlan:
    built = [each.build() for each in builders]
    snapshot = Snapshot(built)
    inputs = PlanInputs(ClusterAutoscalerSpec(), NOW, moves=moving(built, *names, **more))
    before = dict(snapshot.pods), snapshot.nodes.requested.copy().tolist()
    made = scale_up(snapshot, inputs)
    assert (snapshot.pods, snapshot.nodes.requested.tolist()) == before
    return made


def world(*more: Any) -> list[Any]:
    """n1 is full, n2 has one free cpu, and a pod that requests two is pending."""
    return [group(), small("n1"), small("n2"), running("a", "n1"), running("b", "n1"), running("c", "n2"), *more]


def test_pod_that_fits_after_a_planned_eviction_needs_no_node() -> None:
    cluster = [group(), small("n1"), small("n2", "4"), running("a", "n1"), running("c", "n2", "3")]
    assert sizes(planned([*cluster, pending_pod("wants", "2")])) == {"a": (0, 1)}
    made = planned([*cluster, pending_pod("wants", "2")], "a")
    assert (sizes(made), reasons(made)) == ({}, {"wants": FITS_AFTER_MOVES})


def test_message_names_the_eviction_and_the_remaining_time(golden: Golden) -> None:
    big = pending_pod("wants", "2")
    cluster = [group(), small("n1"), small("n2", "4"), running("a", "n1"), running("c", "n2", "3"), big]
    made = planned(cluster, "a")
    (entry,) = [each for each in made.kept if each.name == "wants"]
    assert (entry.reason, entry.node) == (FITS_AFTER_MOVES, "n1")
    golden(entry.message)


@pytest.mark.parametrize(("seconds", "asks"), [(119, False), (120, True)])
def test_pod_pending_for_two_minutes_gets_a_node_despite_planned_evictions(seconds: int, asks: bool) -> None:
    cluster = [group(), small("n1"), small("n2", "4"), running("a", "n1"), running("c", "n2", "3")]
    wants = pod("wants").cpu("2").memory("1Gi").unschedulable(since=rfc3339(NOW - seconds))
    assert bool(planned([*cluster, wants], "a").actions) is asks


def test_without_the_eviction_a_node_is_added() -> None:
    assert sizes(planned(world(pending_pod("wants", "2")))) == {"a": (0, 1)}


def test_replacement_pod_keeps_its_place_on_the_target() -> None:
    """After pod a moves to n2, a pod of two cpus still fits nowhere: each eviction counts once."""
    assert sizes(planned(world(pending_pod("wants", "2")), "a")) == {"a": (0, 1)}


def test_eviction_does_not_count_if_its_target_is_full() -> None:
    cluster = world(pending_pod("first", "1"), pending_pod("second", "2"))
    cluster = [each for each in cluster if getattr(each, "name", "") != "b"]
    assert sizes(planned(cluster, "a")) == {"a": (0, 1)}


def test_evictions_of_moved_pods_do_not_count() -> None:
    cluster = [
        group(),
        small("n1"),
        small("n2", "4"),
        running("a", "n1"),
        running("c", "n2", "3"),
        pending_pod("w", "2"),
    ]
    built = [each.build() for each in cluster]
    (move,) = moving(built, "a")
    for changed in (
        msgspec.structs.replace(move, uid="another"),
        msgspec.structs.replace(move, node="n2"),
        msgspec.structs.replace(move, pod="shop/none"),
        msgspec.structs.replace(move, target="none"),
    ):
        assert scale_up(Snapshot(built), PlanInputs(ClusterAutoscalerSpec(), NOW, moves=(changed,))).actions


def test_deleting_pod_frees_its_node_without_using_another() -> None:
    cluster = [group(), small("n1"), small("n2"), running("c", "n2", "2"), pending_pod("wants", "2")]
    going = msgspec.structs.replace(running("a", "n1").build(), deleted=NOW)
    built = [*(each.build() for each in cluster), going]
    move = moving(built, "a")
    assert scale_up(Snapshot(built), PlanInputs(ClusterAutoscalerSpec(), NOW)).actions
    assert not scale_up(Snapshot(built), PlanInputs(ClusterAutoscalerSpec(), NOW, moves=move)).actions


@given(
    st.lists(st.tuples(st.sampled_from(["n1", "n2", "n3"]), st.integers(1, 2)), min_size=1, max_size=6),
    st.lists(st.integers(1, 3), max_size=4),
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["n1", "n2", "n3"])), max_size=4),
)
def test_planned_evictions_never_add_nodes_and_change_nothing_unless_they_help(
    pods: list[tuple[str, int]], wanted: list[int], wishes: list[tuple[int, str]]
) -> None:
    built = [
        each.build()
        for each in (
            group(),
            *(small(name, "3") for name in ("n1", "n2", "n3")),
            *(running(f"p{number}", on, str(cpu)) for number, (on, cpu) in enumerate(pods)),
            *(pending_pod(f"w{number}", str(cpu)) for number, cpu in enumerate(wanted)),
        )
    ]
    names = {number: f"p{number}" for number in range(len(pods))}
    moves = tuple(
        each for number, to in dict(wishes).items() if number in names for each in moving(built, names[number], to=to)
    )
    without = scale_up(Snapshot(built), PlanInputs(ClusterAutoscalerSpec(), NOW))
    having = scale_up(Snapshot(built), PlanInputs(ClusterAutoscalerSpec(), NOW, moves=moves))
    assert sum(each.to - each.from_ for each in having.actions) <= sum(each.to - each.from_ for each in without.actions)
    helped = any(each.reason == FITS_AFTER_MOVES for each in having.kept)
    assert helped or having == without
    assert having.reserved == without.reserved


@pytest.mark.parametrize("moves", [(), ("a",)])
def test_snapshot_without_pending_pods_is_unchanged(moves: tuple[str, ...]) -> None:
    made = planned(world(), *moves)
    assert (made.actions, made.kept, made.reserved) == ((), (), ())
