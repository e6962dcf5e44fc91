"""The placer: what it finds is what judging node by node finds, and its sentence is kube-scheduler's."""

from __future__ import annotations

import re
from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import node, pod
from tests.unit.cluster.worlds import Maker, fingerprint, makers, worlds
from trimtab.cluster.affinity import BoundTerm, affinity_terms, terms_of
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Node, Pod
from trimtab.kube.rules.selectors import matches_node_selector
from trimtab.kube.rules.taints import find_untolerated_taint
from trimtab.placement.feasibility import fit_error_message
from trimtab.placement.placer import Placer


def fits(snapshot: Snapshot, candidate: Pod, host: Node) -> bool:
    """Kube-scheduler's rules for one node, pod by pod, without any index."""
    there = [each for each in snapshot.pods_on(host.name) if not each.terminal]
    return (
        not (host.unschedulable and not candidate.spec.tolerations)
        and find_untolerated_taint(host.taints, candidate.spec.tolerations) is None
        and candidate.spec.node_selector.items() <= host.labels.items()
        and matches_node_selector(candidate.spec.affinity.node.required, host.labels, host.name)
        and not (candidate.spec.host_ports and any(each.spec.host_ports for each in there))
        and len(there) < host.allocatable.get("pods", 0)
        and all(
            sum(each.spec.requests.get(name, 0) for each in there) + amount <= host.allocatable.get(name, 0)
            for name, amount in candidate.spec.requests.items()
        )
        and friends(snapshot, candidate, host)
        and not any(clash(snapshot, candidate, other, host) for other in placed(snapshot))
    )


def placed(snapshot: Snapshot) -> list[Pod]:
    return [each for each in snapshot.pods.values() if snapshot.slot(each) is not None and not each.terminal]


def picks(snapshot: Snapshot, term: BoundTerm, other: Pod) -> bool:
    return term.matches(other.namespace, other.labels, snapshot.namespace_labels(other.namespace))


def together(snapshot: Snapshot, key: str, host: Node, other: Pod) -> bool:
    theirs = snapshot.nodes.get(other.node).labels.get(key)
    return theirs is not None and host.labels.get(key) == theirs


def friends(snapshot: Snapshot, candidate: Pod, host: Node) -> bool:
    terms = affinity_terms(candidate)
    if not terms:
        return True
    if any(term.topology_key not in host.labels for term in terms):
        return False
    good = [each for each in placed(snapshot) if all(picks(snapshot, term, each) for term in terms)]
    if not any(term.topology_key in snapshot.nodes.get(each.node).labels for each in good for term in terms) and all(
        picks(snapshot, term, candidate) for term in terms
    ):
        return True
    return all(any(together(snapshot, term.topology_key, host, each) for each in good) for term in terms)


def clash(snapshot: Snapshot, candidate: Pod, other: Pod, host: Node) -> bool:
    return any(
        picks(snapshot, term, picked) and together(snapshot, term.topology_key, host, other)
        for states, picked in ((candidate, other), (other, candidate))
        for term in terms_of(states).anti
    )


@given(worlds(), makers.map(lambda make: Maker.pod(make, "candidate", None, ("",))))
def test_feasible_equals_per_node_evaluation(world, candidate):
    """Volumes and spread aside, which have references of their own."""
    spec = msgspec.structs.replace(candidate.spec, volumes=(), topology_spread=())
    candidate = msgspec.structs.replace(candidate, spec=spec)
    snapshot = Snapshot(world)
    placer = Placer(snapshot)
    found = {snapshot.nodes.node(int(slot)).name for slot in np.flatnonzero(placer.feasible(candidate))}
    assert found == {
        snapshot.nodes.node(slot).name
        for slot in snapshot.nodes.slot_of.values()
        if fits(snapshot, candidate, snapshot.nodes.node(slot))
    }


@given(worlds(pods_least=1), st.data())
def test_feasible_reflects_changes(world, data):
    """One placer asked before and after pods are moved answers as a new one does."""
    snapshot = Snapshot(world)
    placer = Placer(snapshot)
    keys = sorted(snapshot.pods)
    for _ in range(4):
        moving = snapshot.pods[data.draw(st.sampled_from(keys))]
        names = sorted(snapshot.nodes.slot_of)
        requested = snapshot.pods[data.draw(st.sampled_from(keys))]
        snapshot.move(moving, data.draw(st.sampled_from(names)))
        with snapshot.fork():
            lifted = placer.unbind(snapshot.pods[requested.key])
            assert (placer.feasible(lifted) == Placer(snapshot).feasible(lifted)).all()
            assert placer.unschedulable_message(lifted) == Placer(snapshot).unschedulable_message(lifted)


@given(worlds(), makers.map(lambda make: Maker.pod(make, "candidate", None, ("",))))
def test_verdicts_masks_and_message_agree(world, candidate):
    snapshot = Snapshot(world)
    nodes, placer = snapshot.nodes, Placer(snapshot)
    verdicts = placer.node_verdicts(candidate)
    feasible = placer.feasible(candidate)
    assert [verdict.node for verdict in verdicts] == sorted(snapshot.nodes.slot_of)
    for verdict in verdicts:
        assert verdict.fits == feasible[snapshot.nodes.slot_of[verdict.node]] == (not verdict.reasons)
    refusal = placer.refusal(candidate)
    if refusal is not None:
        assert placer.unschedulable_message(candidate) == f"0/{len(verdicts)} nodes are available: {refusal}."
        assert {verdict.reasons for verdict in verdicts} == {(refusal,)}
        return
    reasons = Counter(reason for verdict in verdicts for reason in verdict.reasons)
    assert placer.unschedulable_message(candidate) == fit_error_message(
        len(verdicts), reasons, fits=sum(verdict.fits for verdict in verdicts)
    )
    failed = {
        nodes.node(int(slot)).name for _, mask in placer.failing_filters(candidate) for slot in np.flatnonzero(mask)
    }
    assert failed == {verdict.node for verdict in verdicts if not verdict.fits}


@given(worlds(pods_least=1), st.data())
def test_pods_ignoring_others_can_be_evaluated_in_place(world, data):
    snapshot = Snapshot(world)
    placer = Placer(snapshot)
    candidate = snapshot.pods[data.draw(st.sampled_from(sorted(snapshot.pods)))]
    here = snapshot.slot(candidate)
    if here is None or not placer.ignores_other_pods(candidate):
        return

    in_place = placer.feasible(placer.replacement(candidate))
    with snapshot.fork():
        lifted = placer.feasible(placer.unbind(candidate))
    in_place[here] = lifted[here] = False
    assert (in_place == lifted).all()


def test_emptiest_node_is_chosen_and_ties_are_broken_by_name():
    objects = [node("n3"), node("n1"), node("n2"), pod("a").on("n1").cpu("1")]
    snapshot = Snapshot([item.build() for item in objects])
    placer = Placer(snapshot)
    candidate = pod("p").cpu("1").build()
    chosen = placer.choose(candidate, placer.feasible(candidate))
    assert chosen is not None
    assert snapshot.nodes.node(chosen).name == "n2"
    assert placer.choose(candidate, np.zeros(snapshot.nodes.capacity, dtype=np.bool_)) is None


def test_reservation_holds_until_undone():
    snapshot = Snapshot([node("n1").build(), node("n2").cordoned().build()])
    placer = Placer(snapshot)
    first, second = (pod(name).cpu("3").build() for name in ("a", "b"))
    before = fingerprint(snapshot)
    with snapshot.fork():
        placer.reserve(first, snapshot.nodes.slot_of["n1"])
        assert placer.unschedulable_message(second) == (
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable."
        )
    assert fingerprint(snapshot) == before
    assert placer.feasible(second)[snapshot.nodes.slot_of["n1"]]


@pytest.mark.parametrize(
    ("number", "counts", "expected"),
    [
        (0, {}, "0/0 nodes are available:"),
        (2, {"Insufficient cpu": 2}, "0/2 nodes are available: 2 Insufficient cpu."),
        (
            13,
            {"Insufficient cpu": 2, "Too many pods": 10, "Insufficient memory": 1, "nothing": 0},
            "0/13 nodes are available: 1 Insufficient memory, 10 Too many pods, 2 Insufficient cpu.",
        ),
    ],
    ids=["no nodes", "one reason", "counted texts are sorted as texts"],
)
def test_message_equals_kube_scheduler(number, counts, expected):
    assert fit_error_message(number, counts) == expected


def test_additional_filters_count_only_feasible_nodes():
    objects = [node("n1"), node("n2").taint("x"), node("n3")]
    snapshot = Snapshot([item.build() for item in objects])
    unplaced = np.zeros(snapshot.nodes.capacity, dtype=np.bool_)
    all_but_first = ~unplaced
    all_but_first[snapshot.nodes.slot_of["n1"]] = False
    text = Placer(snapshot).unschedulable_message(
        pod("p").build(), ((all_but_first, "node(s) one"), (unplaced, "node(s) two"))
    )
    assert text == "0/3 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) one, 1 node(s) two."
    assert sum(map(int, re.findall(r"(\d+) node\(s\)", text))) == 3


def test_changed_nodes_are_evaluated_again():
    snapshot = Snapshot([node("n1").build()])
    placer = Placer(snapshot)
    candidate = pod("p").node_selector(disk="ssd").build()
    assert not placer.feasible(candidate).any()
    snapshot.put(node("n1").labels(disk="ssd").build())
    assert placer.feasible(candidate).sum() == 1
    snapshot.put(node("n2").labels(disk="ssd").build())
    assert placer.feasible(candidate).sum() == 2
    snapshot.put(node("n2").labels(disk="ssd").cordoned().build())
    assert placer.feasible(candidate).sum() == 1
