"""What NodeAffinity says before it looks at nodes: a pod whose every term names nodes runs on these only."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import ClassVar, Final

from trimtab.cluster.resources import IntArray
from trimtab.kube.objects import Node, NodeSelector, NodeSelectorTerm, Pod
from trimtab.placement.framework import Failure, StaticFilter

CONFLICT: Final = "pod affinity terms conflict"
"""Told of the pod and not of nodes, so the sentence does not count it."""


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

    def allows(self, pod: Pod, node: Node) -> bool:
        """Pass where the node is named."""
        names = named(pod.spec.affinity.node.required)
        return names is None or node.name in names

    def failures(self, pod: Pod, slots: IntArray) -> Iterable[Failure]:
        """The nodes that are not named; all of them where the terms contradict themselves."""
        reason = self.reason if named(pod.spec.affinity.node.required) else CONFLICT
        return (((reason,), slots),)


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
