"""Pod affinity terms bound to the namespace of the pod that states them, and how they match (kube-scheduler v1.36)."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from trimtab.kube.frozen import NO_LABELS, Labels
from trimtab.kube.objects import LabelSelector, Pod, PodAffinityTerm
from trimtab.kube.rules.selectors import matches_labels

_EVERY: Final = LabelSelector()


class BoundTerm(Struct, frozen=True, gc=False):
    """A term with its namespaces spelt out; equal terms of many pods are one key."""

    topology_key: str
    selector: LabelSelector | None
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None = None

    def matches(self, namespace: str, labels: Labels, namespace_labels: Labels) -> bool:
        """Whether the term picks a pod with these labels in this namespace (framework ``AffinityTerm.Matches``)."""
        if namespace not in self.namespaces and (
            self.namespace_selector is None or not matches_labels(self.namespace_selector, namespace_labels)
        ):
            return False
        return matches_labels(self.selector, labels)

    @property
    def pair(self) -> tuple[str, str] | None:
        """A label that every match carries, to look matches up by; ``None`` where the selector fixes none."""
        if self.selector is None:
            return None
        for key, value in self.selector.match_labels.items():
            return key, value
        for expression in self.selector.match_expressions:
            if expression.operator == "In" and len(expression.values) == 1:
                return expression.key, expression.values[0]
        return None


def bind(term: PodAffinityTerm, namespace: str) -> BoundTerm:
    """Spell out the namespaces of a term stated by a pod in ``namespace``.

    No namespaces and no namespace selector mean the pod's own (framework ``getNamespacesFromPodAffinityTerm``).
    """
    namespaces = frozenset(term.namespaces)
    if not namespaces and term.namespace_selector is None:
        namespaces = frozenset((namespace,))
    return BoundTerm(term.topology_key, term.selector, namespaces, term.namespace_selector)


def as_incoming(term: BoundTerm) -> BoundTerm:
    """The term as kube-scheduler v1.36 reads it on the pod that it is placing, which is not quite what it says.

    The scheduler looks the selected namespaces up beforehand and means to drop the selector then, but drops that of a
    copy (``mergeAffinityTermNamespacesIfNotEmpty``), and goes on to compare it with no labels at all. So a namespace
    selector that a namespace without labels would satisfy (NotIn and DoesNotExist alone) selects every namespace. On
    pods that are there already, the same term means what it says.
    """
    if term.namespace_selector is None or not matches_labels(term.namespace_selector, NO_LABELS):
        return term
    return msgspec.structs.replace(term, namespace_selector=_EVERY)


class TermsOf(Struct, frozen=True):
    """What a placed pod's terms mean to others: ``anti`` keeps away, ``drawing`` counts in scores by its weight."""

    anti: tuple[BoundTerm, ...] = ()
    drawing: tuple[tuple[BoundTerm, int], ...] = ()


_HARD_WEIGHT: Final = 1
"""What required affinity of a placed pod weighs (``hardPodAffinityWeight``, kube-scheduler v1.36's default)."""


def terms_of(pod: Pod) -> TermsOf:
    """The terms that a pod carries once it is placed, bound; preferred anti-affinity weighs below 0."""
    affinity = pod.spec.affinity
    drawing = [(bind(term, pod.namespace), _HARD_WEIGHT) for term in affinity.pod_required]
    drawing += [(bind(each.term, pod.namespace), each.weight) for each in affinity.pod_preferred]
    drawing += [(bind(each.term, pod.namespace), -each.weight) for each in affinity.anti_preferred]
    anti = tuple(bind(term, pod.namespace) for term in affinity.anti_required)
    return TermsOf(anti, tuple(drawing))


def affinity_terms(pod: Pod) -> tuple[BoundTerm, ...]:
    """The pod's required affinity, bound, as the scheduler reads it: it concerns only pods that are being placed."""
    return tuple(as_incoming(bind(term, pod.namespace)) for term in pod.spec.affinity.pod_required)
