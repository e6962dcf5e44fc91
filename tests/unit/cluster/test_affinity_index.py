"""The affinity index against counting by hand."""

from __future__ import annotations

from hypothesis import given

from tests.builders import HOSTNAME, ZONE, namespace, node, pod, selector
from tests.unit.cluster.worlds import Maker, makers, worlds
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.terms import BoundTerm, bind, terms_of
from trimtab.kube.objects import Pod


def picks(snapshot: Snapshot, term: BoundTerm, candidate: Pod) -> bool:
    return term.matches(candidate.namespace, candidate.labels, snapshot.namespace_labels(candidate.namespace))


def placed(snapshot: Snapshot) -> list[Pod]:
    return [each for each in snapshot.pods.values() if snapshot.slot(each) is not None and not each.terminal]


def same_domain(snapshot: Snapshot, key: str, one: str, other: str) -> bool:
    first, second = (snapshot.nodes.get(name).labels.get(key) for name in (one, other))
    return first is not None and first == second


@given(worlds(), makers.map(Maker.term))
def test_matching_counts_what_a_term_picks_in_each_domain(world, term):
    snapshot = Snapshot(world)
    bound = bind(term, "shop")
    counter = snapshot.affinity.matching((bound,), bound.topology_key)
    by_slot = counter.by_slot()
    for name, slot in snapshot.nodes.slot_of.items():
        expected = sum(
            picks(snapshot, bound, each) and same_domain(snapshot, bound.topology_key, each.node, name)
            for each in placed(snapshot)
        )
        assert by_slot[slot] == counter.at(slot) == expected
    on_labelled = [each for each in placed(snapshot) if bound.topology_key in snapshot.nodes.get(each.node).labels]
    assert counter.total == sum(picks(snapshot, bound, each) for each in on_labelled)


@given(worlds())
def test_carriers_against_counts_the_terms_that_pick_a_pod(world):
    snapshot = Snapshot(world)
    for candidate in snapshot.pods.values():
        against = [counter.by_slot() for counter in snapshot.affinity.carriers_against(candidate)]
        for name, slot in snapshot.nodes.slot_of.items():
            expected = sum(
                picks(snapshot, term, candidate) and same_domain(snapshot, term.topology_key, each.node, name)
                for each in placed(snapshot)
                for term in terms_of(each).anti
            )
            assert sum(int(by_slot[slot]) for by_slot in against) == expected


@given(worlds(), makers.map(Maker.term))
def test_picked_names_the_classes_that_a_term_picks(world, term):
    snapshot = Snapshot(world)
    bound = bind(term, "shop")
    picked = {(group.namespace, group.labels) for group in snapshot.affinity.picked(bound) if group.by_slot}
    assert picked == {(each.namespace, each.labels) for each in placed(snapshot) if picks(snapshot, bound, each)}


def test_a_term_first_asked_for_late_counts_as_if_asked_for_early():
    things = [node("n1").zone("x"), node("n2").zone("x"), pod("a").labels(app="a").on("n1")]
    late, early = (Snapshot([thing.build() for thing in things]) for _ in range(2))
    carrier = pod("b").labels(app="b").anti_affinity(ZONE, labelSelector=selector(app="a")).build()
    [term] = terms_of(carrier).anti
    early.affinity.matching((term,), ZONE)
    for snapshot in (late, early):
        snapshot.put(pod("c").labels(app="a").on("n2").build())
        assert snapshot.affinity.matching((term,), ZONE).total == 2


def test_changed_namespace_labels_are_seen():
    snapshot = Snapshot([node("n1").build(), pod("a", "blog").labels(app="a").on("n1").build()])
    carrier = pod("b").anti_affinity(HOSTNAME, labelSelector=selector(app="a"), namespaceSelector=selector(team="x"))
    [term] = terms_of(carrier.build()).anti
    assert snapshot.affinity.matching((term,), HOSTNAME).total == 0
    with snapshot.fork():
        snapshot.put(namespace("blog").labels(team="x").build())
        assert snapshot.affinity.matching((term,), HOSTNAME).total == 1
    assert snapshot.affinity.matching((term,), HOSTNAME).total == 0


def test_an_index_full_of_pods_that_are_gone_is_made_anew():
    snapshot = Snapshot([node("n1").allocatable(pods=5000).build(), pod("a").labels(app="a").on("n1").build()])
    index = snapshot.affinity
    for number in range(1100):
        one = pod("rolling").labels(app="r", revision=str(number)).on("n1").build()
        snapshot.put(one)
    with snapshot.fork():
        assert snapshot.affinity is not index
        assert not snapshot.affinity.overgrown
    index = snapshot.affinity
    with snapshot.fork():
        assert snapshot.affinity is index
