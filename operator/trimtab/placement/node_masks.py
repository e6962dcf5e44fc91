"""Computes which nodes match a pod's node selector, node affinity and tolerations, for all nodes at once.

Filters, scores, topology spread and volumes share these masks. They are evaluated once per distinct label value or
taint set instead of once per node.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from trimtab.cluster.node_table import NodeTable, TopologyKey
from trimtab.cluster.resources import BoolArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import LabelRequirement, Node, NodeSelector, NodeSelectorTerm, PodSpec, Toleration
from trimtab.kube.rules.selectors import matches_node_selector, matches_node_term, selects_no_node
from trimtab.kube.rules.taints import find_untolerated_taint

_MAX_MASKS: Final = 1024
"""Maximum number of masks per node table: 8 MiB for 8,192 slots."""

_MATCHING_ABSENT: Final = ("DoesNotExist", "NotIn")
"""The operators that match a node without the label."""


def matches_required(spec: PodSpec, node: Node) -> bool:
    """Return whether a node satisfies a pod's node selector and required node affinity.

    Source: component-helpers ``nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)``, v0.36.
    """
    labels = node.labels
    for key, value in spec.node_selector.items():
        if labels.get(key) != value:
            return False
    required = spec.affinity.node.required
    return required is None or matches_node_selector(required, labels, node.name)


def affinity_mask(snapshot: Snapshot, node_selector: Labels, required: NodeSelector | None) -> BoolArray:
    """Return which nodes satisfy a node selector and a required node affinity.

    This evaluates :func:`matches_required` for all nodes.

    Args:
        snapshot: the cluster.
        node_selector: required labels; may be empty.
        required: terms of which at least one must match, or ``None`` for no requirement. No node satisfies an empty
            list of terms.

    Returns:
        A fresh array: bool, shape (nodes.capacity,), false in free slots.
    """
    nodes = snapshot.nodes
    masks = _masks_of(nodes)
    passing: BoolArray = nodes.used.copy()
    if required is not None:
        passing[:] = False
        for term in required.terms:
            passing |= masks.term(nodes, term)
    if node_selector:
        passing &= masks.labels(nodes, node_selector)
    return passing


def term_mask(snapshot: Snapshot, term: NodeSelectorTerm) -> BoolArray:
    """Return which nodes match all expressions of one term. An empty or invalid term matches no node.

    Returns:
        A cached array: bool, shape (nodes.capacity,), false in free slots. Callers must not write to it.
    """
    return _masks_of(snapshot.nodes).term(snapshot.nodes, term)


def untolerated_mask(snapshot: Snapshot, tolerations: tuple[Toleration, ...]) -> BoolArray:
    """Return which nodes have a NoSchedule or NoExecute taint that none of the tolerations tolerates.

    Each distinct taint set is evaluated once, because thousands of nodes share a few dozen taint sets.

    Returns:
        A fresh array: bool, shape (nodes.capacity,), false in free slots.
    """
    nodes = snapshot.nodes
    verdicts = [find_untolerated_taint(taints, tolerations) is not None for taints in nodes.taint_sets]
    found: BoolArray = np.array(verdicts, dtype=np.bool_)[nodes.taints]
    return found


class NodeMasks:
    """Computes which nodes match single requirements and terms, cached until a node's name or labels change.

    Computing a mask costs one operation per distinct value of the label (for In and NotIn, per requested value), and
    one vectorized operation over an array of all nodes.
    """

    def __init__(self) -> None:
        self._kept: dict[LabelRequirement | NodeSelectorTerm | Labels, BoolArray] = {}
        self._version = -1

    def term(self, nodes: NodeTable, term: NodeSelectorTerm) -> BoolArray:
        """Return the mask of a term (:func:`term_mask`)."""
        found = self._find(nodes, term)
        if found is None:
            found = self._kept[term] = self._judge(nodes, term)
        return found

    def requirement(self, nodes: NodeTable, requirement: LabelRequirement) -> BoolArray:
        """Return which nodes' labels satisfy a valid requirement on a label that some node has.

        The result is cached as for :func:`term_mask`.
        """
        found = self._find(nodes, requirement)
        if found is None:
            found = self._kept[requirement] = _on_labels(nodes, requirement)
        return found

    def labels(self, nodes: NodeTable, labels: Labels) -> BoolArray:
        """Return which nodes have all these labels. The result is cached, because many pods share a node selector."""
        found = self._find(nodes, labels)
        if found is None:
            found = nodes.used.copy()
            if all(key in nodes.label_keys for key in labels):
                for key, value in labels.items():
                    found &= self.requirement(nodes, LabelRequirement(key, "In", (value,)))
            else:  # a pod may select thousands of labels that no node has
                found[:] = False
            self._kept[labels] = found
        return found

    def forget_removed(self, used: Set[int]) -> None:  # noqa: ARG002 - masks are cheap to compute again
        """See :class:`~trimtab.cluster.node_table.SpecCache`."""
        self._kept.clear()

    def _find(self, nodes: NodeTable, key: LabelRequirement | NodeSelectorTerm | Labels) -> BoolArray | None:
        if self._version != nodes.version or len(self._kept) >= _MAX_MASKS:
            self._kept.clear()
            self._version = nodes.version
        return self._kept.get(key)

    def _judge(self, nodes: NodeTable, term: NodeSelectorTerm) -> BoolArray:
        if selects_no_node(term):
            return np.zeros(nodes.capacity, dtype=np.bool_)
        known: list[LabelRequirement] = []
        for requirement in term.match_expressions:
            if requirement.key in nodes.label_keys:
                known.append(requirement)
            elif requirement.operator not in _MATCHING_ABSENT:  # tenants can require thousands of labels
                return np.zeros(nodes.capacity, dtype=np.bool_)
        passing: BoolArray = nodes.used.copy()
        for requirement in known:
            passing &= self.requirement(nodes, requirement)
        for requirement in term.match_fields:
            passing &= _on_name(nodes, requirement)
        return passing


_MASKS: Final[WeakKeyDictionary[NodeTable, NodeMasks]] = WeakKeyDictionary()
"""The masks of each node table, which the filter, the score and topology spread share because they use the same terms.
"""


def _masks_of(nodes: NodeTable) -> NodeMasks:
    found = _MASKS.get(nodes)
    if found is None:
        found = _MASKS[nodes] = NodeMasks()
        nodes.caches.add(found)
    return found


def _on_labels(nodes: NodeTable, requirement: LabelRequirement) -> BoolArray:
    """Return the nodes whose labels satisfy a requirement.

    NotIn and DoesNotExist match nodes without the label; the other operators do not.
    """
    holds: BoolArray
    column = nodes.column(requirement.key)
    match requirement.operator:
        case "Exists":
            holds = column.ids >= 0
        case "DoesNotExist":
            holds = column.ids < 0
        case "In":
            holds = _has_one_of(column, requirement.values)
        case "NotIn":
            holds = ~_has_one_of(column, requirement.values)
        case _:  # Gt and Lt: evaluate each distinct value
            term = NodeSelectorTerm(match_expressions=(requirement,))
            verdicts = [matches_node_term(term, {column.key: value}, "") for value in column.values]
            holds = np.array([*verdicts, False], dtype=np.bool_)[column.ids]  # last entry: slots without the label
    return holds


def _has_one_of(column: TopologyKey, values: Iterable[str]) -> BoolArray:
    wanted = [domain for value in values if (domain := column.id_of.get(value)) is not None]
    holds: BoolArray
    if len(wanted) == 1:
        holds = column.ids == wanted[0]
    else:
        verdicts = np.zeros(len(column.values) + 1, dtype=np.bool_)  # last entry: slots without the label
        verdicts[wanted] = True
        holds = verdicts[column.ids]
    return holds


def _on_name(nodes: NodeTable, requirement: LabelRequirement) -> BoolArray:
    """Return the nodes that satisfy a ``matchFields`` requirement: ``metadata.name`` In or NotIn a list of names."""
    slots = [slot for value in requirement.values if (slot := nodes.slot_of.get(value)) is not None]
    listed: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
    listed[slots] = True
    return listed if requirement.operator == "In" else ~listed
