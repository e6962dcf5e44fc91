"""Sharing of equal values, and that unused values are dropped."""

from tests.builders import expression, pod
from trimtab.kube.frozen import FrozenMap
from trimtab.kube.objects import PodSpec
from trimtab.kube.wire import intern
from trimtab.kube.wire.decode import decode_object
from trimtab.kube.wire.intern import Interner


def test_equal_values_become_the_same():
    interner = Interner()
    one = interner.share(FrozenMap(app="web"))
    assert interner.share(FrozenMap(app="web")) is one
    assert interner.string(str(10**6)) is interner.string(str(10**6))


def test_spec_is_created_once_per_key():
    interner = Interner()
    made = []

    def make():
        made.append(1)
        return PodSpec(scheduler_name="x")

    first = interner.spec(b"one", make)
    assert interner.spec(b"one", make) is first
    assert interner.spec(b"two", make) is first
    assert len(made) == 2


def test_unreferenced_values_are_dropped():
    interner = Interner()
    kept = interner.share(FrozenMap(app="kept"))
    interner.share(FrozenMap(app="dropped"))
    interner.prune()
    assert interner.statistics().values == 1
    assert interner.share(FrozenMap(app="kept")) is kept


def test_the_parts_of_a_dropped_spec_are_dropped_with_it():
    interner = Interner()
    kept = decode_object(pod("a").cpu("1").labels(app="a").owned_by("ReplicaSet", "a").manifest(), interner=interner)
    decode_object(
        pod("b").cpu("2").tolerates("x").node_affinity(expression("a", "Exists")).labels(app="b").manifest(),
        interner=interner,
    )
    before = interner.statistics()
    interner.prune()
    after = interner.statistics()
    assert (before.specs, after.specs) == (2, 1)
    again = decode_object(pod("c").cpu("1").labels(app="a").owned_by("ReplicaSet", "a").manifest(), interner=interner)
    assert again.spec is kept.spec
    assert again.labels is kept.labels
    assert again.owners is kept.owners
    assert interner.statistics().values == after.values


def test_a_spec_known_by_two_keys_is_dropped_too():
    interner = Interner()
    for key in (b"one", b"two"):
        interner.spec(key, lambda: PodSpec(scheduler_name="x"))
    interner.prune()
    assert interner.statistics().specs == interner.statistics().values == 0


def test_tables_are_pruned_when_they_have_doubled(monkeypatch):
    monkeypatch.setattr(intern, "_MIN_PRUNE_SIZE", 10)
    interner = Interner()
    interner.prune()
    kept = [interner.share(("kept", number)) for number in range(20)]
    assert interner.prune_if_grown()
    assert interner.statistics().values == len(kept)
    for number in range(20):
        interner.share(("dropped", number))
    assert not interner.prune_if_grown()
    interner.share(("dropped", len(kept)))
    assert interner.prune_if_grown()
    assert interner.statistics().values == len(kept)


def test_values_shared_while_pruning_are_kept() -> None:
    interner = Interner()
    kept = [interner.share((number, "kept")) for number in range(2_000)]
    for number in range(3_000):
        interner.share((number, "dropped"))
    shared = []
    for number, _ in enumerate(interner.pruning()):
        shared.append(interner.share((2_999 - number, "dropped")))
        shared.append(interner.share((number, "new")))
        assert not interner.has_doubled
    assert all(interner.share((number, "kept")) is value for number, value in enumerate(kept))
    assert all(interner.share((*value,)) is value for value in shared)
    assert 2_000 < interner.statistics().values < 2_000 + 2 * len(shared) + 1
