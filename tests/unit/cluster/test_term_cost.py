"""What affinity terms cost: comparisons of terms with classes of pods, counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import HOSTNAME, expression, node, pod, selector
from tests.unit.cluster.worlds import APPS as APP_NAMES
from tests.unit.cluster.worlds import worlds
from trimtab.cluster.affinity import _SPARE_COUNTERS, AffinityIndex, BoundTerm, bind
from trimtab.cluster.node_table import DomainCounter, DomainCounts
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.term_index import PodIndex, TermIndex, absent_keys, pod_keys
from trimtab.kube.frozen import NO_LABELS, Labels
from trimtab.kube.objects import LabelSelector, Pod, PodAffinityTerm
from trimtab.kube.objects.meta import LabelRequirement
from trimtab.placement.placer import Placer

APPS = 300
TERMS = 60
PODS = 7

EVERYWHERE: dict[str, Any] = {"namespaceSelector": {}}


class Comparisons:
    """Counts how often a term is compared with a class."""

    def __init__(self) -> None:
        self.count = 0


@pytest.fixture
def comparisons(monkeypatch: pytest.MonkeyPatch) -> Iterator[Comparisons]:
    counted, real = Comparisons(), BoundTerm.matches

    def matches(term: BoundTerm, *args: Any) -> bool:
        counted.count += 1
        return real(term, *args)

    monkeypatch.setattr(BoundTerm, "matches", matches)
    return counted


def other_tenants() -> Snapshot:
    snapshot = Snapshot([node(f"n{number}").allocatable(pods=1000).build() for number in range(3)])
    for number in range(APPS):
        labels = {"app": f"app-{number}", "tier": f"tier-{number % 3}"}
        snapshot.put(pod(f"p-{number}", f"team-{number % 20}").labels(**labels).on(f"n{number % 3}").build())
    return snapshot


def hostile(kind: str, number: int) -> Pod:
    """A pod with terms over all namespaces, none of which picks another tenant's pod."""
    rare = f"a{number}-"
    terms = {
        "exists": lambda i: [expression(f"{rare}{i}", "Exists")],
        "in": lambda i: [expression(f"{rare}{i}", "In", "x", "y")],
        "common and rare": lambda i: [expression("app", "Exists"), expression(f"{rare}{i}", "Exists")],
        "absent": lambda i: [expression("app", "DoesNotExist"), expression(f"{rare}{i}", "DoesNotExist")],
        "rare and absent": lambda i: [expression("tier", "NotIn", "x"), expression(f"{rare}{i}", "Exists")],
        "namespace": lambda i: [expression(f"{rare}{i}", "DoesNotExist")],
    }
    made = pod(f"hostile-{number}", "tenant").labels(app="hostile").on("n0")
    where = {"namespaceSelector": selector(no="such")} if kind == "namespace" else EVERYWHERE
    for each in range(TERMS):
        made.anti_affinity(f"k{each % 7}", labelSelector={"matchExpressions": terms[kind](each)}, **where)
    return made.build()


KINDS = ("exists", "in", "common and rare", "absent", "rare and absent", "namespace")


@pytest.mark.parametrize("kind", KINDS)
def test_terms_without_matches_cause_few_comparisons(kind: str, comparisons: Comparisons) -> None:
    snapshot = other_tenants()
    index = snapshot.affinity
    for each in snapshot.pods.values():  # planners have asked about every class
        index.carriers_against(each)
    comparisons.count = 0

    for number in range(PODS):
        snapshot.put(hostile(kind, number))
    for number in range(5):
        arriving = pod(f"new-{number}", "team-1").labels(app=f"new-{number}", tier="tier-1").on("n1").build()
        snapshot.put(arriving)
        assert not index.carriers_against(arriving)

    assert comparisons.count <= PODS * TERMS  # each term matched with every class came to PODS * TERMS * APPS


@pytest.mark.parametrize("kind", KINDS)
def test_late_index_causes_no_more_comparisons(kind: str, comparisons: Comparisons) -> None:
    snapshot = other_tenants()
    for number in range(PODS):
        snapshot.put(hostile(kind, number))
    index = snapshot.affinity
    assert all(not index.carriers_against(each) for each in snapshot.pods.values() if each.namespace != "tenant")
    assert comparisons.count <= PODS * TERMS


def test_recounting_a_pod_causes_no_comparisons(comparisons: Comparisons) -> None:
    snapshot = other_tenants()
    index = snapshot.affinity
    terms = hostile("exists", 0)
    snapshot.put(terms)
    comparisons.count = 0
    snapshot.remove(terms)
    snapshot.put(terms)
    assert comparisons.count == 0
    assert index is snapshot.affinity


@pytest.mark.parametrize("kind", KINDS)
def test_unused_terms_are_dropped(kind: str) -> None:
    snapshot = other_tenants()
    index = snapshot.affinity
    stays = pod("stays", "team-1").labels(app="stays").anti_affinity(HOSTNAME, labelSelector={}, **EVERYWHERE).on("n1")
    snapshot.put(stays.build())
    for number in range(PODS):
        snapshot.put(hostile(kind, number))
    requested = [index.carriers_against(each) for each in snapshot.pods.values()]
    for number in range(PODS):
        snapshot.remove(hostile(kind, number))
    with snapshot.fork():
        assert snapshot.affinity is index
    assert len(index._repelling) == 1
    assert len(index._carrying) == 1
    assert all(len(index.carriers_against(each)) == 1 for each in snapshot.pods.values())
    snapshot.put(hostile(kind, 0))
    assert len(index._repelling) == 1 + TERMS
    assert requested


REQUIREMENTS = st.one_of(
    st.builds(
        LabelRequirement,
        st.sampled_from(("app", "team", "none")),
        st.sampled_from(("In", "NotIn")),
        st.lists(st.sampled_from((*APP_NAMES, "x", "y")), min_size=1, max_size=3).map(tuple),
    ),
    st.builds(LabelRequirement, st.sampled_from(("app", "team")), st.sampled_from(("Exists", "DoesNotExist"))),
)
SELECTORS = st.builds(
    LabelSelector,
    st.sampled_from((NO_LABELS, Labels({"app": "a"}), Labels({"app": "a", "team": "x"}))),
    st.lists(REQUIREMENTS, max_size=3).map(tuple),
)
NAMESPACE_SETS = st.sampled_from(((), ("blog",), ("blog", "shop")))


@given(worlds(), st.builds(PodAffinityTerm, st.just("zone"), SELECTORS, NAMESPACE_SETS, st.none() | SELECTORS))
def test_lookup_keys_find_every_selected_pod(world: list[Any], stated: PodAffinityTerm) -> None:
    snapshot = Snapshot(world)
    term = bind(stated, "shop")
    pods: PodIndex[str] = PodIndex()
    filed: list[TermIndex[BoundTerm]] = []
    for keys in (*term.key_sets(), pods.rarest(term.key_sets(), absent_keys(term.selector)), None):
        filed.append(TermIndex())
        filed[-1].add(keys, term)
    picked = set()
    for each in snapshot.pods.values():
        labels = snapshot.namespace_labels(each.namespace)
        pods.add(pod_keys(each.namespace, each.labels, labels), each.labels, each.key)
        if term.matches(each.namespace, each.labels, labels):
            picked.add(each.key)
            keys = pod_keys(each.namespace, each.labels, labels)
            assert all(list(index.near(keys, each.labels)) == [term] for index in filed)
    for keys in (*term.key_sets(), pods.rarest(term.key_sets(), absent_keys(term.selector)), None):
        near = list(pods.near(keys))
        assert picked <= set(near)
        assert len(near) == len(set(near))


def test_equal_terms_share_a_key() -> None:
    one, other = (bind(stated, "shop") for stated in hostile("in", 0).spec.affinity.anti_required[:2])
    again = bind(hostile("in", 0).spec.affinity.anti_required[0], "shop")
    assert one == again
    assert hash(one) == hash(again)
    assert len({one, other, again}) == 2
    assert one != HOSTNAME


def test_own_terms_are_looked_up_once_in_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[str] = []
    matching = AffinityIndex.matching

    def counted(index: AffinityIndex, terms: tuple[BoundTerm, ...], topology_key: str) -> DomainCounter:
        looked_up.append(topology_key)
        return matching(index, terms, topology_key)

    monkeypatch.setattr(AffinityIndex, "matching", counted)
    snapshot = other_tenants()
    pending = replace(hostile("exists", 0), node="")
    placer = Placer(snapshot)
    for number in range(1, 3):
        with snapshot.fork():
            assert placer.feasible(pending).any()
            snapshot.move(pending, "n1")
            assert placer.feasible(replace(pending, name="other")).any()
        assert len(looked_up) == number * TERMS


def test_rarely_read_counters_cause_no_rebuild() -> None:
    """The counters of a tenant's pending pods are read in one of several plans."""
    snapshot = other_tenants()
    terms = [
        bind(term, "tenant") for number in range(PODS) for term in hostile("exists", number).spec.affinity.anti_required
    ]
    rebuilds = 0
    for number in range(64):
        index = snapshot.affinity
        with snapshot.fork():
            rebuilds += snapshot.affinity is not index
            for term in terms if number % 4 == 0 else ():
                snapshot.affinity.matching((term,), HOSTNAME)
    assert not rebuilds


def test_terms_of_pods_that_are_replaced_again_and_again_do_not_accumulate() -> None:
    """A tenant that replaces its pending pods before each plan keeps the counters of few plans."""
    snapshot, most = other_tenants(), 0
    for number in range(40):
        new = [
            bind(term, "tenant")
            for place in range(PODS)
            for term in hostile("exists", 100 * number + place).spec.affinity.anti_required
        ]
        with snapshot.fork():
            for term in new:
                snapshot.affinity.matching((term,), HOSTNAME)
        most = max(most, len(snapshot.affinity._matching))
    assert most <= _SPARE_COUNTERS + 5 * PODS * TERMS


def test_few_slots_are_compared_with_few_sets_whatever_the_number_of_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    """The terms of a tenant's pods, which a plan has just placed, are not compared one by one for another's pod."""
    snapshot = Snapshot([node(f"n{number}").allocatable(pods=1000).build() for number in range(80)])
    placer, compared = Placer(snapshot), 0
    slots = np.array([snapshot.nodes.slot_of[f"n{number}"] for number in range(70, 80)])
    other = pod("other", "team-1").labels(app="other").build()

    def contains(counts: DomainCounts, domain: int) -> bool:
        nonlocal compared
        compared += 1
        return dict.__contains__(counts, domain)

    monkeypatch.setattr(DomainCounts, "__contains__", contains, raising=False)
    with snapshot.fork():
        placer.feasible(other)
        for number in range(20):
            made = pod(f"hostile-{number}", "tenant").labels(app="hostile")
            for each in range(TERMS):
                excluded = expression("app", "NotIn", f"z-{number}-{each}")
                made.anti_affinity(HOSTNAME, labelSelector={"matchExpressions": [excluded]}, **EVERYWHERE)
            placer.reserve(made.build(), snapshot.nodes.slot_of[f"n{number}"])
            placer.feasible(other)
        compared = 0
        assert placer.feasible_among(other, slots).tolist() == slots.tolist()
    assert compared < 2 * TERMS


def test_unused_counters_are_dropped() -> None:
    snapshot = other_tenants()
    index = snapshot.affinity
    requested = hostile("exists", 0).spec.affinity.anti_required
    wanted = bind(requested[0], "tenant")
    unused = [
        bind(term, "tenant") for number in range(20) for term in hostile("exists", number).spec.affinity.anti_required
    ]
    for term in unused:
        index.matching((term,), HOSTNAME)
    rounds = 0
    while snapshot.affinity is index:
        with snapshot.fork():
            snapshot.affinity.matching((wanted,), HOSTNAME)
        rounds += 1
        assert rounds < 40
    with snapshot.fork():
        assert len(snapshot.affinity._matching) <= 1
