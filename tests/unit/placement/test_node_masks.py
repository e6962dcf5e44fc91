"""Filters on columns say of each node what the rules say of it alone, whatever nodes come, change and go."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import expression, node, pod
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import LabelRequirement, Node, NodeSelector, NodeSelectorTerm, PodSpec, Taint, Toleration
from trimtab.kube.objects.pod import Affinity, NodeAffinity
from trimtab.kube.rules.selectors import matches_node_selector, matches_node_term, selects_no_node
from trimtab.kube.rules.taints import find_untolerated_taint
from trimtab.placement.filters.nodes import NamedNodes, NodeUnschedulable
from trimtab.placement.node_masks import _masks_of, affinity_mask, matches_required, term_mask, untolerated_mask
from trimtab.placement.placer import Placer

KEYS, VALUES, NAMES = ("a", "b", "gen"), ("x", "y", "", "3", "7", "+8", "07", "9" * 20), ("n1", "n2", "n3", "n4")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)).map(Labels)
operators = st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Like"))


@st.composite
def requirements(draw: st.DrawFn) -> LabelRequirement:
    """Mostly what Kubernetes can evaluate."""
    operator = draw(operators)
    least, most = {"In": (1, 3), "NotIn": (1, 3), "Gt": (1, 1), "Lt": (1, 1)}.get(operator, (0, 0))
    if draw(st.integers(0, 9)) == 0:
        least, most = 0, 2
    values = draw(st.lists(st.sampled_from((*VALUES, "not valid")), min_size=least, max_size=most))
    return LabelRequirement(draw(st.sampled_from(KEYS)), operator, tuple(values))


fields = st.builds(
    LabelRequirement,
    st.just("metadata.name"),
    st.sampled_from(("In", "NotIn", "Exists")),
    st.lists(st.sampled_from((*NAMES, "n9")), min_size=1, max_size=2).map(tuple),
)
terms = st.builds(
    NodeSelectorTerm,
    st.lists(requirements(), max_size=3).map(tuple),
    st.lists(fields, max_size=2).map(tuple),
)
selectors = st.none() | st.lists(terms, max_size=3).map(lambda made: NodeSelector(tuple(made)))
taints = st.lists(st.builds(Taint, st.sampled_from(KEYS), st.sampled_from(EFFECTS), st.sampled_from("xy")), max_size=3)
nodes = st.builds(Node, st.sampled_from(NAMES), labels=labels, taints=taints.map(tuple), unschedulable=st.booleans())
tolerations = st.lists(
    st.builds(
        Toleration,
        st.sampled_from(("", *KEYS)),
        st.sampled_from(("", "Equal", "Exists", "Gt")),
        st.sampled_from("xy"),
        st.sampled_from(("", *EFFECTS)),
    ),
    max_size=2,
).map(tuple)


@st.composite
def histories(draw: st.DrawFn) -> list[Node]:
    """Nodes to put one after the other; one that is there already goes away instead, now and then."""
    return draw(st.lists(nodes, min_size=1, max_size=8))


def by_name(snapshot: Snapshot, mask: Any) -> dict[str, bool]:
    assert mask.dtype == np.bool_
    assert mask.shape == (snapshot.nodes.capacity,)
    assert not (mask & ~snapshot.nodes.used).any()
    return {name: bool(mask[slot]) for name, slot in snapshot.nodes.slot_of.items()}


def recorded(snapshot: Snapshot, rule: Any) -> dict[str, bool]:
    return {name: rule(snapshot.nodes.get(name)) for name in snapshot.nodes.slot_of}


@given(histories(), selectors, labels, st.booleans())
def test_node_affinity_mask_equals_per_node_evaluation(history, required, selector, removing):
    snapshot = Snapshot()
    spec = PodSpec(node_selector=selector, affinity=Affinity(node=NodeAffinity(required=required)))
    for each in history:
        if removing and snapshot.nodes.get(each.name) is not None:
            snapshot.remove(each)
        else:
            snapshot.put(each)
        everything = affinity_mask(snapshot, selector, required)
        assert by_name(snapshot, everything) == recorded(snapshot, lambda node: matches_required(spec, node))
        alone = affinity_mask(snapshot, Labels(), required)
        assert by_name(snapshot, alone) == recorded(
            snapshot, lambda node: matches_node_selector(required, node.labels, node.name)
        )


@given(histories(), terms)
def test_term_mask_equals_per_node_evaluation(history, term):
    snapshot = Snapshot(history)
    found = by_name(snapshot, term_mask(snapshot, term))
    assert found == recorded(snapshot, lambda node: matches_node_term(term, node.labels, node.name))
    assert not (selects_no_node(term) and any(found.values()))


@given(histories(), tolerations)
def test_taint_mask_equals_per_node_evaluation(history, tolerated):
    snapshot = Snapshot()
    for each in history:
        snapshot.put(each)
        found = by_name(snapshot, untolerated_mask(snapshot, tolerated))
        assert found == recorded(snapshot, lambda node: find_untolerated_taint(node.taints, tolerated) is not None)


def test_unused_masks_are_dropped():
    snapshot = Snapshot([node("n1").labels(number="7").build()])
    for number in range(3000):
        term = NodeSelectorTerm((LabelRequirement("number", "In", (str(number),)),))
        assert term_mask(snapshot, term)[0] == (number == 7)


@pytest.mark.parametrize(
    ("candidate", "refusal"),
    [
        pytest.param(pod(), None, id="nothing named"),
        pytest.param(pod().node_affinity(fields=(expression("metadata.name", "In", "n1"),)), None, id="one name"),
        pytest.param(pod().node_affinity(fields=(expression("metadata.name", "In", "n9"),)), None, id="no such node"),
        pytest.param(
            pod().node_affinity(
                fields=(expression("metadata.name", "In", "n1"), expression("metadata.name", "In", "n2"))
            ),
            "pod affinity terms conflict",
            id="two names at once",
        ),
        pytest.param(
            pod()
            .node_affinity(fields=(expression("metadata.name", "In", "n1"), expression("metadata.name", "In", "n2")))
            .node_affinity(fields=(expression("metadata.name", "In", "n1"),)),
            None,
            id="two names at once in one of two terms",
        ),
        pytest.param(
            pod().node_affinity(
                fields=(expression("metadata.name", "In", "n1"), expression("metadata.name", "NotIn", "n1"))
            ),
            None,
            id="only In names a node",
        ),
    ],
)
def test_contradicting_terms_reject_the_pod(candidate, refusal):
    rule = NamedNodes(Snapshot([node("n1").build(), node("n2").build()]))
    assert rule.refusal(candidate.build()) == refusal


def test_pod_tolerating_a_cordon_is_not_affected():
    rule = NodeUnschedulable(Snapshot([node("n1").cordoned().build()]))
    assert rule.concerns(pod().build())
    assert not rule.concerns(pod().tolerates("node.kubernetes.io/unschedulable").build())


def test_selectors_of_deleted_pods_are_not_kept() -> None:
    """The masks and the domains of topology spread are cached for the lifetime of the snapshot."""
    snapshot = Snapshot([node("n1").build(), node("n2").build()])
    wanting = pod("web-1").labels(app="web").node_selector(disk="ssd").spread().build()
    selector = wanting.spec.node_selector
    Placer(snapshot).feasible(wanting)
    del wanting
    kept = sys.getrefcount(selector)

    snapshot.forget_removed()

    unused = Labels({"disk": "hdd"})
    assert kept > sys.getrefcount(selector) == sys.getrefcount(unused)


def test_labels_that_no_node_has_need_no_columns() -> None:
    snapshot = Snapshot([node("n1").labels(disk="ssd").build()])
    many = {f"l{each}": "v" for each in range(100)}
    expressions = [expression(f"e{each}", "In", "v") for each in range(100)]
    selecting = pod("web-1").node_selector(many, disk="ssd").build()
    requiring = pod("web-2").node_affinity(*expressions).build()
    placer = Placer(snapshot)
    placer.feasible(pod("web-0").node_selector(disk="ssd").build())
    columns = len(snapshot.nodes._columns)

    assert not placer.feasible(selecting).any()
    assert not placer.feasible(requiring).any()

    assert len(snapshot.nodes._columns) == columns


@pytest.mark.parametrize("operator", ["In", "NotIn", "DoesNotExist"])
def test_labels_that_no_node_has_need_no_masks(operator: str) -> None:
    snapshot = Snapshot([node("n1").labels(disk="ssd").build()])
    usual = pod("web-0").node_selector(disk="ssd").build()
    Placer(snapshot).feasible(usual)
    values = () if operator == "DoesNotExist" else ("v",)
    many = tuple(LabelRequirement(f"l{each}", operator, values) for each in range(2000))

    assert term_mask(snapshot, NodeSelectorTerm(many)).any() == (operator != "In")

    kept = _masks_of(snapshot.nodes)._kept
    assert usual.spec.node_selector in kept
    assert len(kept) < 10
