"""Placing many pods one after the other: what was reserved holds when it is checked again from scratch."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import node, pod
from tests.unit.cluster.worlds import Maker, fingerprint, makers, worlds
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import KubeObject, Pod
from trimtab.placement.placer import Placer, Scorer
from trimtab.placement.registry import DEFAULT, MOST_ALLOCATED, Profile


def waiting(make: Maker, number: int) -> list[Pod]:
    """Pending pods of few specs, so that classes repeat."""
    shared = [make.spec() for _ in range(3)]
    made = (make.pod(f"new-{index:02}", make.pick(*shared)) for index in range(number))
    return [msgspec.structs.replace(each, node="", deleted=None, phase="Pending") for each in made]


def overcommitted(snapshot: Snapshot) -> dict[str, set[str]]:
    """The resources of which nodes hold more than they have."""
    table = snapshot.nodes
    return {
        name: {
            resource
            for column, resource in enumerate(table.axis.names)
            if table.requested[slot, column] > table.allocatable[slot, column]
        }
        for name, slot in table.slot_of.items()
    }


@given(worlds(), makers, st.integers(0, 14))
def test_placement_does_not_overcommit(world, make, number):
    snapshot = Snapshot(world)
    before = overcommitted(snapshot)
    placed = Placer(snapshot).place(waiting(make, number))
    wanted = {each.pod.node for each in placed if each.pod.node}
    after = overcommitted(snapshot)
    # A node may hold too much beforehand; what a placed pod asks for, it had.
    assert all(after[name] <= before[name] for name in wanted)
    assert len(placed) == number
    assert all(bool(each.pod.node) != bool(each.message) for each in placed)


@given(worlds(), makers, st.integers(1, 10))
def test_every_placement_passes_all_filters_when_checked_again_from_scratch(world, make, number):
    snapshot = Snapshot(world)
    pods = waiting(make, number)
    placed = Placer(snapshot).place(pods)
    observed: list[KubeObject] = list(world)
    for each, requested in zip(placed, pods, strict=True):
        fresh = Snapshot(observed)
        placer = Placer(fresh)
        fits = placer.feasible(requested)
        if each.pod.node:
            slot = fresh.nodes.slot_of[each.pod.node]
            assert fits[slot]
            assert slot in placer.scorer.best(requested, fits)
            reserved = placer.reserve(requested, slot)
            assert reserved == each.pod
            observed = everything(fresh)
        else:
            assert not fits.any()
            assert each.message == placer.unschedulable_message(requested)


def everything(snapshot: Snapshot) -> list[KubeObject]:
    """All objects, after what a reservation does to claims and volumes as well."""
    found: list[KubeObject] = [snapshot.nodes.node(slot) for slot in snapshot.nodes.order().tolist()]
    return [*found, *snapshot.pods.values(), *snapshot.objects.all_objects()]


@given(worlds(), makers, st.integers(0, 10))
def test_placement_in_a_fork_is_undone(world, make, number):
    snapshot = Snapshot(world)
    before = fingerprint(snapshot)
    placer = Placer(snapshot)
    pods = waiting(make, number)
    with snapshot.fork():
        first = placer.place(pods)
    assert fingerprint(snapshot) == before
    with snapshot.fork():
        assert placer.place(pods) == first  # what the placer keeps knows of the undoing


@given(worlds(), makers)
def test_breakdown_adds_up_to_totals(world, make):
    snapshot = Snapshot(world)
    placer = Placer(snapshot)
    [requested] = waiting(make, 1)
    fits = placer.feasible(requested)
    if fits.any():
        parts = placer.scorer.breakdown(requested, fits)
        totals = placer.scorer.totals(requested, fits)
        assert (sum(parts.values())[fits] == totals[fits]).all()
        assert (totals[~fits] == -1).all()
        assert placer.choose(requested, fits) == placer.scorer.best(requested, fits)[0]


@pytest.mark.parametrize(
    ("profile", "expected"),
    [(DEFAULT, ["n2", "n3", "n1", "n2"]), (MOST_ALLOCATED, ["n1", "n1", "n2", "n2"])],
    ids=["the emptiest first", "the fullest first"],
)
def test_each_pod_sees_previous_reservations(profile: Profile, expected: list[str]):
    objects = [node(f"n{number}").allocatable(cpu="4", memory="4Gi") for number in (1, 2, 3)]
    there = pod("there").on("n1").cpu("1").memory("1Gi")
    snapshot = Snapshot([each.build() for each in (*objects, there)])
    pods = [pod(f"p{number}").cpu("1500m").memory("1500Mi").build() for number in range(4)]
    assert [each.pod.node for each in Placer(snapshot, profile).place(pods)] == expected


def test_equal_pending_pods_get_current_messages():
    snapshot = Snapshot([node("n1").allocatable(cpu="2").build(), node("n2").allocatable(cpu="1").build()])
    pods = [pod(f"p{number}").cpu("1500m").build() for number in range(2)]
    small = pod("small").cpu("1").build()
    last = pod("last").cpu("1500m").build()
    placed = Placer(snapshot).place([*pods, small, last])
    assert [each.pod.node for each in placed] == ["n1", "", "n2", ""]
    assert placed[1].message == placed[3].message == "0/2 nodes are available: 2 Insufficient cpu."


def test_pods_are_not_placed_without_nodes():
    [placed] = Placer(Snapshot()).place([pod("p").build()])
    assert not placed.pod.node
    assert not np.any(Placer(Snapshot()).feasible(pod("p").build()))


def test_pod_that_fits_nowhere_is_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    scored: list[str] = []
    totals = Scorer.totals

    def counted(scorer: Scorer, candidate: Pod, among: BoolArray) -> IntArray:
        scored.append(candidate.name)
        return totals(scorer, candidate, among)

    monkeypatch.setattr(Scorer, "totals", counted)
    snapshot = Snapshot([node("n1").allocatable(cpu="2").build()])
    placed = Placer(snapshot).place([pod("large").cpu("3").build(), pod("small").cpu("1").build()])
    assert [each.pod.node for each in placed] == ["", "n1"]
    assert scored == ["small"]


def test_oversized_pod_fits_on_no_node_and_does_not_affect_others() -> None:
    greedy_plan = (
        pod("greedy").requests({"memory": "8Ei", "cpu": "1Ei"}).merge(spec={"overhead": {"cpu": "1Ei"}}).build()
    )
    snapshot = Snapshot([node("n1").build(), greedy_plan])

    (placed,) = Placer(snapshot).place([greedy_plan])

    assert placed.message == "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."
