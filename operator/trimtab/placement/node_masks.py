"""Which nodes a pod's selectors, affinity and tolerations let it have, for all nodes at once.

Filters, scores, topology spread and volumes ask the same; judged per label value and set of taints, never per node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from trimtab.cluster.nodes import NodeTable
from trimtab.cluster.resources import BoolArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.topology import TopologyKey
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import LabelRequirement, Node, NodeSelector, NodeSelectorTerm, PodSpec, Toleration
from trimtab.kube.rules.selectors import matches_node_selector, matches_node_term, selects_no_node
from trimtab.kube.rules.taints import untolerated

_MOST_MASKS: Final = 1024
"""Masks kept per node table: 8 MiB on 8,192 slots."""


def matches_required(spec: PodSpec, node: Node) -> bool:
    """Whether a node satisfies a pod's node selector and required node affinity.

    Source: component-helpers ``nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)``, v0.36.
    """
    labels = node.labels
    for key, value in spec.node_selector.items():
        if labels.get(key) != value:
            return False
    required = spec.affinity.node.required
    return required is None or matches_node_selector(required, labels, node.name)


def affinity_mask(snapshot: Snapshot, node_selector: Labels, required: NodeSelector | None) -> BoolArray:
    """Which nodes satisfy a node selector and a required node affinity: :func:`matches_required` of all at once.

    Args:
        snapshot: the picture.
        node_selector: labels that must all be there; empty for none.
        required: terms of which one must hold; ``None`` where nothing is required, without terms no node passes.

    Returns:
        bool, shape (nodes.capacity,), a fresh array; false in free slots.
    """
    nodes = snapshot.nodes
    masks = _masks_of(nodes)
    passing: BoolArray = nodes.used.copy()
    if required is not None:
        passing[:] = False
        for term in required.terms:
            passing |= masks.term(nodes, term)
    for key, value in node_selector.items():
        passing &= masks.requirement(nodes, LabelRequirement(key, "In", (value,)))
    return passing


def term_mask(snapshot: Snapshot, term: NodeSelectorTerm) -> BoolArray:
    """Which nodes one term picks, all its expressions together; a term that is empty or cannot be evaluated, none.

    Returns:
        bool, shape (nodes.capacity,), false in free slots. Kept: callers must not write to it.
    """
    return _masks_of(snapshot.nodes).term(snapshot.nodes, term)


def untolerated_mask(snapshot: Snapshot, tolerations: tuple[Toleration, ...]) -> BoolArray:
    """Which nodes have a NoSchedule or NoExecute taint that no toleration tolerates.

    Judged per set of taints: thousands of nodes share a few dozen.

    Returns:
        bool, shape (nodes.capacity,), a fresh array; false in free slots.
    """
    nodes = snapshot.nodes
    verdicts = [untolerated(taints, tolerations) is not None for taints in nodes.taint_sets]
    found: BoolArray = np.array(verdicts, dtype=np.bool_)[nodes.taints]
    return found


class NodeMasks:
    """Which nodes single requirements and terms pick, kept until a node's name or labels change.

    The cost is that of the distinct values of a label (with In and NotIn, of the values asked for) and of one pass
    over an array, whatever the number of nodes that share a value.
    """

    def __init__(self) -> None:
        self._kept: dict[LabelRequirement | NodeSelectorTerm, BoolArray] = {}
        self._version = -1

    def term(self, nodes: NodeTable, term: NodeSelectorTerm) -> BoolArray:
        """See :func:`term_mask`."""
        found = self._find(nodes, term)
        if found is None:
            found = self._kept[term] = self._judge(nodes, term)
        return found

    def requirement(self, nodes: NodeTable, requirement: LabelRequirement) -> BoolArray:
        """Which nodes' labels satisfy a valid requirement; as kept as :func:`term_mask`."""
        found = self._find(nodes, requirement)
        if found is None:
            found = self._kept[requirement] = _on_labels(nodes, requirement)
        return found

    def _find(self, nodes: NodeTable, key: LabelRequirement | NodeSelectorTerm) -> BoolArray | None:
        if self._version != nodes.version or len(self._kept) >= _MOST_MASKS:
            self._kept.clear()
            self._version = nodes.version
        return self._kept.get(key)

    def _judge(self, nodes: NodeTable, term: NodeSelectorTerm) -> BoolArray:
        if selects_no_node(term):
            return np.zeros(nodes.capacity, dtype=np.bool_)
        passing: BoolArray = nodes.used.copy()
        for requirement in term.match_expressions:
            passing &= self.requirement(nodes, requirement)
        for requirement in term.match_fields:
            passing &= _on_name(nodes, requirement)
        return passing


_MASKS: Final[WeakKeyDictionary[NodeTable, NodeMasks]] = WeakKeyDictionary()
"""One per node table: the filter, the score and topology spread ask for the same terms."""


def _masks_of(nodes: NodeTable) -> NodeMasks:
    found = _MASKS.get(nodes)
    if found is None:
        found = _MASKS[nodes] = NodeMasks()
    return found


def _on_labels(nodes: NodeTable, requirement: LabelRequirement) -> BoolArray:
    """NotIn and DoesNotExist hold where the label is absent, the others do not."""
    column = nodes.column(requirement.key)
    holds: BoolArray
    match requirement.operator:
        case "Exists":
            holds = column.ids >= 0
        case "DoesNotExist":
            holds = column.ids < 0
        case "In":
            holds = _has_one_of(column, requirement.values)
        case "NotIn":
            holds = ~_has_one_of(column, requirement.values)
        case _:  # Gt and Lt: no way around reading each value
            term = NodeSelectorTerm(match_expressions=(requirement,))
            verdicts = [matches_node_term(term, {column.key: value}, "") for value in column.values]
            holds = np.array([*verdicts, False], dtype=np.bool_)[column.ids]  # the last for slots without the label
    return holds


def _has_one_of(column: TopologyKey, values: Iterable[str]) -> BoolArray:
    wanted = [domain for value in values if (domain := column.id_of.get(value)) is not None]
    holds: BoolArray
    if len(wanted) == 1:
        holds = column.ids == wanted[0]
    else:
        verdicts = np.zeros(len(column.values) + 1, dtype=np.bool_)  # the last for slots without the label
        verdicts[wanted] = True
        holds = verdicts[column.ids]
    return holds


def _on_name(nodes: NodeTable, requirement: LabelRequirement) -> BoolArray:
    """``metadata.name`` In or NotIn one name: all that matchFields can say."""
    slots = [slot for value in requirement.values if (slot := nodes.slot_of.get(value)) is not None]
    listed: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
    listed[slots] = True
    return listed if requirement.operator == "In" else ~listed
