"""What NodeAffinity says before it looks at nodes: a pod whose every term names nodes runs on these only."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar, Final

import numpy as np

from trimtab.cluster.resources import BoolArray
from trimtab.kube.objects import NodeSelector, NodeSelectorTerm, Pod
from trimtab.placement.framework import StaticFilter

CONFLICT: Final = "pod affinity terms conflict"
"""Each term names two nodes at once: told of the pod and not of nodes."""


class NamedNodes(StaticFilter):
    """Nodes that no term's ``matchFields`` name are never looked at, whatever else is wrong with them.

    That is how DaemonSets' pods find their nodes. kube-scheduler v1.36 does it in NodeAffinity's PreFilter, hence
    before every filter; only ``In`` on ``metadata.name`` counts, and all terms must have it, for one of them suffices.
    """

    name: ClassVar = "NodeAffinity"
    reason: ClassVar = "node(s) didn't satisfy plugin(s) [NodeAffinity]"

    def key(self, pod: Pod) -> Hashable | None:
        """The names, ``None`` where some term names none."""
        return named(pod.spec.affinity.node.required)

    def refusal(self, pod: Pod) -> str | None:
        """Where terms name nodes, but each of them contradicts itself."""
        names = named(pod.spec.affinity.node.required)
        return CONFLICT if names is not None and not names else None

    def judge(self, pod: Pod) -> BoolArray:
        """Pass the nodes that are named."""
        nodes = self.snapshot.nodes
        passing: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
        for name in named(pod.spec.affinity.node.required) or ():
            slot = nodes.slot_of.get(name)
            if slot is not None:
                passing[slot] = True
        return passing


def named(selector: NodeSelector | None) -> frozenset[str] | None:
    """The nodes that a required node affinity names, ``None`` where it leaves other nodes open."""
    if selector is None or not selector.terms:
        return None
    names: frozenset[str] = frozenset()
    for term in selector.terms:
        found = _named_by(term)
        if found is None:
            return None
        names |= found
    return names


def _named_by(term: NodeSelectorTerm) -> frozenset[str] | None:
    found: frozenset[str] | None = None
    for requirement in term.match_fields:
        if requirement.key == "metadata.name" and requirement.operator == "In":
            values = frozenset(requirement.values)
            found = values if found is None else found & values
    return found
