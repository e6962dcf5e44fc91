"""The affinity index against counting by hand."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import HOSTNAME, ZONE, namespace, node, pod, selector
from tests.unit.cluster.worlds import Maker, makers, worlds
from trimtab.cluster.affinity import BoundTerm, bind, terms_of
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import NO_LABELS
from trimtab.kube.objects import LabelRequirement, LabelSelector, Pod
from trimtab.kube.rules.selectors import matches_labels


def picks(snapshot: Snapshot, term: BoundTerm, candidate: Pod) -> bool:
    return term.matches(candidate.namespace, candidate.labels, snapshot.namespace_labels(candidate.namespace))


def placed(snapshot: Snapshot) -> list[Pod]:
    return [each for each in snapshot.pods.values() if snapshot.slot(each) is not None and not each.terminal]


def same_domain(snapshot: Snapshot, key: str, one: str, other: str) -> bool:
    first, second = (snapshot.nodes.get(name).labels.get(key) for name in (one, other))
    return first is not None and first == second


@given(worlds(), makers.map(Maker.term))
def test_matching_counts_selected_pods_per_domain(world, term):
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
def test_carriers_against_counts_terms_that_select_a_pod(world):
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
def test_picked_returns_the_pod_classes_selected_by_a_term(world, term):
    snapshot = Snapshot(world)
    bound = bind(term, "shop")
    picked = {(group.namespace, group.labels) for group in snapshot.affinity.picked(bound) if group.by_slot}
    assert picked == {(each.namespace, each.labels) for each in placed(snapshot) if picks(snapshot, bound, each)}


@given(worlds(), st.lists(makers.map(Maker.term), max_size=3), st.booleans())
def test_staying_any_counts_each_pod_once_in_any_order(world, terms, late):
    selectors = [term.selector for term in terms if term.selector is not None]
    first, last = (world, []) if late else ([each for each in world if not isinstance(each, Pod)], world)
    snapshot = Snapshot(first)
    counter = snapshot.affinity.staying_any("shop", selectors)
    for each in last:
        snapshot.put(each)
    expected = Counter(
        each.node
        for each in placed(snapshot)
        if each.namespace == "shop"
        and each.deleted is None
        and any(matches_labels(selector, each.labels) for selector in selectors)
    )
    assert {snapshot.nodes.node(slot).name: number for slot, number in counter.counts.items()} == expected
    with snapshot.fork():
        for each in placed(snapshot):
            snapshot.remove(each)
        assert not counter.counts


@given(worlds(), makers.map(Maker.term))
def test_selection_is_kept_up_to_date_and_shared_by_equal_terms(world, term):
    snapshot, index = Snapshot([]), Snapshot(world).affinity
    bound, alike = bind(term, "shop"), bind(term, "shop")
    assert set(index.selection(bound)) == set(index.picked(bound))
    assert index.selection(alike) is index.selection(bound)
    for each in world:
        snapshot.put(each)
        found = snapshot.affinity.selection(bound)
        assert len(found) == len(set(found))
        assert set(found) == set(snapshot.affinity.picked(bound))


def test_selections_that_no_plan_reads_are_dropped():
    snapshot = Snapshot([node("n1").build(), pod("a").labels(app="a").on("n1").build()])
    [term] = terms_of(pod("b").anti_affinity(HOSTNAME, labelSelector=selector(app="a")).build()).anti
    index = snapshot.affinity
    kept = index.selection(term)
    assert len(kept) == 1
    for _ in range(68):
        index.prune()
    assert not index._selections
    assert not index._equal_selections


def test_changed_carriers_are_known_for_a_limited_time(monkeypatch):
    monkeypatch.setattr("trimtab.cluster.affinity._CHANGES", 2)
    snapshot = Snapshot([node("n1").build(), node("n2").build(), pod("a").labels(app="a").on("n1").build()])
    index, carrier = snapshot.affinity, pod("b").anti_affinity(HOSTNAME, labelSelector=selector(app="a"))
    began = index.carrier_changes
    snapshot.put(carrier.on("n1").build())
    assert index.carriers_changed_since(began) == list(index.carriers_against(pod("a").labels(app="a").build()))
    for number in range(6):
        snapshot.put(carrier.on(f"n{1 + number % 2}").build())
    assert index.carriers_changed_since(began) is None
    assert len(index.carriers_changed_since(index.carrier_changes)) == 0


def test_counter_of_a_term_is_independent_of_its_creation_time():
    objects = [node("n1").zone("x"), node("n2").zone("x"), pod("a").labels(app="a").on("n1")]
    late, early = (Snapshot([item.build() for item in objects]) for _ in range(2))
    carrier = pod("b").labels(app="b").anti_affinity(ZONE, labelSelector=selector(app="a")).build()
    [term] = terms_of(carrier).anti
    early.affinity.matching((term,), ZONE)
    for snapshot in (late, early):
        snapshot.put(pod("c").labels(app="a").on("n2").build())
        assert snapshot.affinity.matching((term,), ZONE).total == 2


@given(worlds(), st.lists(makers.map(Maker.term), min_size=1, max_size=6))
def test_counters_include_pods_of_classes_that_are_added_later(world, terms):
    bound = [bind(term, "shop") for term in terms]
    pods = [each for each in world if isinstance(each, Pod)]
    snapshot = Snapshot([each for each in world if not isinstance(each, Pod)])
    counters = [snapshot.affinity.matching((term,), term.topology_key) for term in bound]
    for each in pods:
        snapshot.put(each)
    for term, counter in zip(bound, counters, strict=True):
        for name, slot in snapshot.nodes.slot_of.items():
            expected = sum(
                picks(snapshot, term, each) and same_domain(snapshot, term.topology_key, each.node, name)
                for each in placed(snapshot)
            )
            assert counter.by_slot()[slot] == counter.at(slot) == expected
    for each in pods:
        snapshot.remove(each)
    assert not any(counter.counts for counter in counters)


def test_terms_share_counts_while_they_match_the_same_classes():
    apps = [pod(f"p{number}").labels(app=f"a{number}").on("n1") for number in range(3)]
    snapshot = Snapshot([item.build() for item in [node("n1").zone("x"), node("n2").zone("y"), *apps]])
    absent = [{"matchExpressions": [{"key": f"k{number}", "operator": "DoesNotExist"}]} for number in range(50)]
    carrier = pod("carrier")
    for each in absent:
        carrier.anti_affinity(ZONE, labelSelector=each)
    counters = [snapshot.affinity.matching((term,), ZONE) for term in terms_of(carrier.build()).anti]
    assert len(counters) == 50
    assert len({id(counter.counts) for counter in counters}) == 1

    with snapshot.fork():
        snapshot.put(pod("q").labels(k7="v").on("n2").build())
        assert len({id(counter.counts) for counter in counters}) == 2
        assert [counter.total for counter in counters] == [3 if number == 7 else 4 for number in range(50)]
        snapshot.put(pod("r").labels(app="a1").on("n2").build())
        assert [counter.total for counter in counters] == [4 if number == 7 else 5 for number in range(50)]
    assert [counter.total for counter in counters] == [3] * 50


def test_counts_of_a_label_that_no_node_has_begin_when_a_node_gets_it():
    snapshot = Snapshot([node("n1").build(), pod("a").labels(app="a").on("n1").build()])
    [term] = terms_of(pod("b").anti_affinity("rack", labelSelector=selector(app="a")).build()).anti
    counter = snapshot.affinity.matching((term,), "rack")
    snapshot.put(pod("c").labels(app="a").on("n1").build())
    assert counter.total == 0
    snapshot.put(node("n1").labels(rack="r1").build())
    assert counter.total == 2
    snapshot.remove(pod("c").build())
    assert counter.total == 1


def test_changed_namespace_labels_update_the_index():
    snapshot = Snapshot([node("n1").build(), pod("a", "blog").labels(app="a").on("n1").build()])
    carrier = pod("b").anti_affinity(HOSTNAME, labelSelector=selector(app="a"), namespaceSelector=selector(team="x"))
    [term] = terms_of(carrier.build()).anti
    assert snapshot.affinity.matching((term,), HOSTNAME).total == 0
    with snapshot.fork():
        snapshot.put(namespace("blog").labels(team="x").build())
        assert snapshot.affinity.matching((term,), HOSTNAME).total == 1
    assert snapshot.affinity.matching((term,), HOSTNAME).total == 0


def test_index_of_mostly_deleted_pods_is_rebuilt():
    snapshot = Snapshot([node("n1").allocatable(pods=5000).build(), pod("a").labels(app="a").on("n1").build()])
    index = snapshot.affinity
    for number in range(1100):
        one = pod("rolling").labels(app="r", revision=str(number)).on("n1").build()
        snapshot.put(one)
    with snapshot.fork():
        assert snapshot.affinity is not index
        assert not snapshot.affinity.overgrown(0)
    index = snapshot.affinity
    with snapshot.fork():
        assert snapshot.affinity is index


def test_index_is_rebuilt_if_few_deleted_pods_had_many_labels():
    snapshot = Snapshot([node("n1").allocatable(pods=5000).build(), pod("a").labels(app="a").on("n1").build()])
    index = snapshot.affinity
    for number in range(20):
        snapshot.put(pod("large").labels(**{f"l{number}-{each}": "v" for each in range(100)}).on("n1").build())
    snapshot.forget_removed()
    assert snapshot.affinity is not index
    index = snapshot.affinity
    for number in range(20):
        snapshot.put(pod("large").labels(app=str(number)).on("n1").build())
    snapshot.forget_removed()
    assert snapshot.affinity is index


def test_index_is_kept_if_only_pending_pods_have_many_labels() -> None:
    snapshot = Snapshot([node("n1").build(), pod("a").labels(app="a").on("n1").build()])
    index = snapshot.affinity
    waiting = [
        pod(f"p{number}").labels({f"l{each}": str(number) for each in range(128)}).build() for number in range(9)
    ]
    for each in waiting:
        snapshot.put(each)
        index.carriers_against(each)
    snapshot.forget_removed()
    assert snapshot.affinity is index
    for each in waiting:
        snapshot.remove(each)
    snapshot.forget_removed()
    assert snapshot.affinity is not index


@pytest.mark.parametrize("distinct", ["labels", "terms"])
@pytest.mark.parametrize("node_name", ["", "n1"])
def test_index_is_not_rebuilt_because_of_existing_pods(distinct: str, node_name: str) -> None:
    """The next plan would add what the index has for them again."""
    snapshot = Snapshot([node("n1").allocatable(pods=5000).build(), pod("a").labels(app="a").on("n1").build()])
    index = snapshot.affinity
    pods = []
    for number in range(1100):
        own = {"labels": "b", "terms": "c", distinct: str(number)}
        made = pod(f"p{number}").labels(app=own["labels"]).anti_affinity(labelSelector=selector(app=own["terms"]))
        pods.append(made.on(node_name).build())
        snapshot.put(pods[-1])
        index.carriers_against(pods[-1])
        index.carried_terms(pods[-1])
    with snapshot.fork():
        assert snapshot.affinity is index
    for each in pods:
        snapshot.remove(each)
    with snapshot.fork():
        assert snapshot.affinity is not index or (node_name and distinct == "terms")  # those are removed one by one


def test_counters_that_are_no_longer_read_are_dropped() -> None:
    snapshot = Snapshot([node("n1").build(), pod("a").labels(app="a").on("n1").build()])
    index = snapshot.affinity
    values = tuple(str(each) for each in range(100))
    selectors = [LabelSelector(NO_LABELS, (LabelRequirement("app", "In", ("a", f"b{n}", *values)),)) for n in range(20)]
    terms = [BoundTerm(HOSTNAME, each, frozenset(["shop"])) for each in selectors]
    for term in terms:
        index.matching((term,), HOSTNAME)
        index.staying("shop", term.selector)
    snapshot.forget_removed()
    assert snapshot.affinity is index
    snapshot.forget_removed()
    assert snapshot.affinity is not index
    assert [*snapshot.affinity.classes] == [*index.classes]
    index = snapshot.affinity
    assert not index._matching
    assert not index._staying
    assert not index._watches
    assert not index._stay_watches
    matching, staying = index.matching((terms[0],), HOSTNAME), index.staying("shop", terms[0].selector)
    snapshot.put(pod("b").labels(app="a").on("n1").build())
    assert matching.total == sum(staying.counts.values()) == 2


def test_terms_of_deleted_pending_pods_are_not_kept() -> None:
    snapshot = Snapshot([node("n1").build()])
    staying, gone = (pod(name).anti_affinity(name).build() for name in ("a", "b"))
    snapshot.put(staying)
    terms = [snapshot.affinity.carried_terms(each) for each in (staying, gone)]
    snapshot.forget_removed()
    assert snapshot.affinity.carried_terms(staying) is terms[0]
    assert snapshot.affinity.carried_terms(gone) is not terms[1]
