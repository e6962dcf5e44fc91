"""The snapshot leaves no trace of how it came about: undone, reordered, kept or built anew, it is the same."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.cluster.worlds import CLAIMS, NODE_NAMES, SHELVED, Maker, fingerprint, makers, worlds
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import KubeObject, Pod

POD_NAMES = tuple(f"p{number:02}" for number in range(6))


def objects() -> st.SearchStrategy[KubeObject]:
    """Any object, new or with the name of one that may be there."""
    return st.one_of(
        st.builds(Maker.node, makers, st.sampled_from(NODE_NAMES)),
        st.builds(Maker.pod, makers, st.sampled_from(POD_NAMES)),
        st.builds(Maker.pod, makers, st.sampled_from(POD_NAMES)),
        st.builds(Maker.budget, makers),
        st.builds(Maker.namespace, makers),
        st.builds(Maker.claim, makers, st.sampled_from(CLAIMS)),
        st.builds(Maker.volume, makers, st.sampled_from(CLAIMS)),
    )


def changes() -> st.SearchStrategy[list[tuple[bool, KubeObject]]]:
    """Objects that come (or change) and objects that go."""
    return st.lists(st.tuples(st.booleans(), objects()), max_size=12)


def apply(snapshot: Snapshot, steps: list[tuple[bool, KubeObject]]) -> None:
    for comes, obj in steps:
        if comes:
            snapshot.put(obj)
        else:
            snapshot.remove(obj)


def everything(snapshot: Snapshot) -> list[KubeObject]:
    found: list[KubeObject] = [snapshot.nodes.node(slot) for slot in snapshot.nodes.order().tolist()]
    found.extend(snapshot.pods.values())
    for kind in SHELVED:
        found.extend(snapshot.objects.of(kind).values())
    return found


@given(worlds(), changes())
def test_fork_restores_the_snapshot(world, steps):
    snapshot = Snapshot(world)
    before = fingerprint(snapshot)
    with snapshot.fork():
        apply(snapshot, steps)
        fingerprint(snapshot)  # reads build indexes, which are part of what must be undone
    assert fingerprint(snapshot) == before


def test_fork_with_an_error_closes_its_mark():
    snapshot, make = Snapshot(), Maker(1)

    def failing() -> None:
        with snapshot.fork():
            snapshot.mark()
            snapshot.put(make.node("n1"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    snapshot.put(make.node("n2"))

    assert snapshot.mark() == 0  # nothing is recorded outside of forks
    assert [each.name for each in everything(snapshot)] == ["n2"]


@given(worlds(pods_least=4), changes(), st.randoms(use_true_random=False))
def test_bulk_undo_equals_undo_one_by_one(world, steps, chance):
    snapshot = Snapshot(world)
    before = fingerprint(snapshot)
    with pytest.MonkeyPatch.context() as patch, snapshot.fork():
        patch.setattr("trimtab.cluster.snapshot._MANY", 4)
        apply(snapshot, [(comes, obj) for comes, obj in steps if isinstance(obj, Pod)])
        with snapshot.fork():
            for pod in list(snapshot.pods.values()) * 2:
                snapshot.move(pod, chance.choice((*NODE_NAMES, "gone", "")))
    assert fingerprint(snapshot) == before


@given(worlds(pods_least=4), changes(), st.randoms(use_true_random=False))
def test_moves_mixed_with_other_changes_are_undone(world, steps, chance):
    snapshot = Snapshot(world)
    before = fingerprint(snapshot)
    with pytest.MonkeyPatch.context() as patch, snapshot.fork():
        patch.setattr("trimtab.cluster.snapshot._MANY", 4)
        for comes, obj in steps:
            if isinstance(obj, Pod):
                apply(snapshot, [(comes, obj)])
            for pod in list(snapshot.pods.values()):
                snapshot.move(pod, chance.choice((*NODE_NAMES, "gone", "")))
    assert fingerprint(snapshot) == before


@given(worlds())
def test_owners_with_colocated_pods_have_two_active_pods_on_a_node(world):
    snapshot = Snapshot(world)
    for _ in range(2):
        expected = set()
        for owner in snapshot.owners():
            living = [pod for pod in snapshot.owned_by(owner) if pod.node and not pod.terminal and pod.deleted is None]
            if len({pod.node for pod in living}) < len(living):
                expected.add(owner)
        assert snapshot.owners_with_colocated_pods() == sorted(expected)
        for pod in list(snapshot.pods.values()):
            snapshot.move(pod, "n1")


@given(worlds(), changes(), changes(), changes())
def test_forks_nest(world, first, second, third):
    snapshot = Snapshot(world)
    with snapshot.fork():
        apply(snapshot, first)
        between = fingerprint(snapshot)
        with snapshot.fork():
            apply(snapshot, second)
        assert fingerprint(snapshot) == between
        mark = snapshot.mark()
        apply(snapshot, third)
        snapshot.commit(mark)
        after = fingerprint(snapshot)
    rebuilt = Snapshot(world)
    assert fingerprint(snapshot) == fingerprint(rebuilt)
    apply(rebuilt, first + third)
    assert after == fingerprint(rebuilt)


@given(worlds(), changes())
def test_updated_snapshot_equals_a_new_one(world, steps):
    snapshot = Snapshot(world)
    fingerprint(snapshot)
    apply(snapshot, steps)
    assert fingerprint(snapshot) == fingerprint(Snapshot(everything(snapshot)))


@given(worlds(), st.randoms(use_true_random=False))
def test_snapshot_is_independent_of_arrival_order(world, chance):
    shuffled = list(world)
    chance.shuffle(shuffled)
    assert fingerprint(Snapshot(shuffled)) == fingerprint(Snapshot(world))


@given(worlds())
def test_columns_are_sums_over_bound_pods(world):
    snapshot = Snapshot(world)
    for name, slot in snapshot.nodes.slot_of.items():
        there = [pod for pod in snapshot.pods.values() if pod.node == name and not pod.terminal]
        for resource, column in snapshot.nodes.axis.column.items():
            wanted = len(there) if resource == "pods" else sum(pod.spec.requests.get(resource, 0) for pod in there)
            assert snapshot.nodes.requested[slot, column] == wanted


def test_pod_counts_when_its_node_is_added():
    chance = random.Random(1)
    from tests.builders import node, pod

    things = [node("n1").build(), *(pod(f"p{i}").on("n1").cpu("100m").build() for i in range(5))]
    for _ in range(5):
        chance.shuffle(things)
        snapshot = Snapshot(things)
        assert snapshot.nodes.utilization(snapshot.nodes.slot_of["n1"])["cpu"] == pytest.approx(12.5)


def test_additional_resources_widen_the_table():
    from tests.builders import node, pod

    many = {f"example.com/r{number}": 3 for number in range(20)}
    wanted = dict.fromkeys(many, "2")
    snapshot = Snapshot([node("n1").build(), pod("a").on("n1").cpu("1").build()])
    with snapshot.fork():
        snapshot.put(node("n2").allocatable(many).build())
        snapshot.put(pod("b").on("n2").requests(wanted).build())
        slot = snapshot.nodes.slot_of["n2"]
        assert all(snapshot.nodes.utilization(slot)[name] == pytest.approx(100 * 2 / 3) for name in many)
    snapshot.put(pod("c").on("n1").cpu("1").build())
    assert snapshot.nodes.utilization(snapshot.nodes.slot_of["n1"])["cpu"] == pytest.approx(50.0)
