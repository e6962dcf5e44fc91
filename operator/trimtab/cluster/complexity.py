"""Determines which pods are too complex to be moved or placed. Their own spec or their namespace exceeds a limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress
from typing import Any, Final

from trimtab.api import reasons
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import (
    LabelRequirement,
    LabelSelector,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodSpec,
    PreferredNodeTerm,
    TopologySpread,
    WeightedPodTerm,
)
from trimtab.kube.wire.limits import DEFAULT_LIMITS, ComplexityLimits, size_of

_Amounts = tuple[int, int, int, int]
"""Amounts in the order of :data:`_MEASURES`."""

_MEASURES: Final = (
    "affinity terms and spread constraints",
    "values in selectors",
    "bytes of large specs",
    "bytes of annotations",
)


class _Distinct:
    """The distinct objects of one kind that the pods of a namespace share, and the sums of their amounts.

    Attributes:
        sums: the sums, in the order of :data:`_MEASURES`.
    """

    __slots__ = ("_amounts_of", "_found", "_further", "sums")

    def __init__(self, amounts_of: Callable[[Any], _Amounts]) -> None:
        self._amounts_of = amounts_of
        self._found: dict[int, tuple[Any, _Amounts, int]] = {}  # keeps the objects alive, so that no id is reused
        self._further: Counter[int] = Counter()  # the number of pods with the same object in addition to the first
        self.sums = [0] * len(_MEASURES)

    def count(self, value: Any, change: int) -> bool:
        """Count one pod more (1) or less (-1) that has an object, and return whether the sums changed."""
        key = id(value)
        found = self._found.get(key)
        if found is not None and (change > 0 or key in self._further):
            self._further[key] += change
            if not self._further[key]:
                del self._further[key]
            return False
        if found is None:
            amounts = self._amounts_of(value)
            found = self._found[key] = (value, amounts, _bits(amounts))
        else:
            del self._found[key]
        for number, amount in enumerate(found[1]):
            self.sums[number] += change * amount
        return True

    def measures(self, value: Any) -> int:
        """Return the measures to which an object contributes as a bit set. The object need not be counted."""
        found = self._found.get(id(value))
        return _bits(self._amounts_of(value)) if found is None else found[2]


class _Namespace:
    """What the pods of one namespace sum up to.

    Attributes:
        parts: the distinct objects of each kind, in the order of :func:`_parts_of`.
        pods: the number of pods by the measures to which they contribute, as a bit set.
        exceeded: the measures that exceed their limits, as a bit set.
    """

    __slots__ = ("exceeded", "parts", "pods")

    def __init__(self) -> None:
        self.parts = tuple(map(_Distinct, _AMOUNTS_OF_PARTS))
        self.pods: Counter[int] = Counter()
        self.exceeded = 0

    def sums(self) -> tuple[int, ...]:
        """Return the sums, in the order of :data:`_MEASURES`."""
        return tuple(map(sum, zip(*(part.sums for part in self.parts), strict=True)))

    def measures(self, pod: Pod) -> int:
        """Return the measures to which a pod contributes, as a bit set."""
        found = 0
        for part, value in zip(self.parts, _parts_of(pod), strict=True):
            if value:
                found |= part.measures(value)
        return found

    def count(self, pod: Pod, change: int) -> bool:
        """Count one pod more (1) or less (-1), and return whether the sums changed."""
        changed = False
        for part, value in zip(self.parts, _parts_of(pod), strict=True):
            if value:
                changed |= part.count(value, change)
        return changed


class PodComplexity:
    """Sums up what makes the pods of a namespace expensive, and reports which pods exceed the limits.

    Specs and annotations that several pods share are counted once, because a thousand replicas of a Deployment cost no
    more than one. The pods of a DaemonSet have different specs, because the DaemonSet controller replaces the required
    node affinity by the name of a node. Therefore everything else in which selectors occur is counted once as well if
    different specs share it, and the name counts as one value. A term costs no more if different specs contain it, as
    the index of terms contains it once. Owner references do not matter, because a tenant can write any.

    Terminal pods are not counted, because their terms do not affect other pods and pipelines leave thousands of them.
    The result does not depend on the order of the pods: above a limit, every pod that contributes to the sum of the
    namespace is too complex.

    Args:
        limits: the limits per namespace. The limits of a single pod are checked when it is decoded.
    """

    def __init__(self, limits: ComplexityLimits = DEFAULT_LIMITS) -> None:
        self._most = (
            limits.namespace_terms,
            limits.namespace_selector_values,
            limits.namespace_spec_bytes,
            limits.namespace_annotation_bytes,
        )
        self._namespaces: dict[str, _Namespace] = {}
        self._too_complex = 0

    def count(self, pod: Pod, change: int) -> None:
        """Add a pod (``change`` 1) or remove it (-1)."""
        if not (pod.annotations or _may_contribute(pod.spec)) or pod.terminal:
            return  # most pods
        self._too_complex += change if pod.spec.complexity else 0
        found = self._namespaces.get(pod.namespace)
        if found is None:
            found = self._namespaces[pod.namespace] = _Namespace()
        measures = found.measures(pod)
        found.pods[measures] += change
        if found.count(pod, change):
            found.exceeded = _bits([total > most for total, most in zip(found.sums(), self._most, strict=True)])
        if not found.pods[measures]:
            del found.pods[measures]
            if not found.pods:
                del self._namespaces[pod.namespace]

    def exceeded(self, pod: Pod) -> int:
        """Return the measures that the pod's namespace exceeds and to which the pod contributes, as a bit set."""
        found = self._namespaces.get(pod.namespace)
        return found.exceeded and found.exceeded & found.measures(pod) if found is not None else 0

    def refusal(self, pod: Pod) -> tuple[str, str] | None:
        """Return the reason code and message if a pod is too complex to be moved or placed, otherwise ``None``."""
        if pod.spec.complexity:
            return reasons.POD_TOO_COMPLEX, f"the pod has {pod.spec.complexity}"
        exceeded = self.exceeded(pod)
        if not exceeded:
            return None
        sums = zip(self._namespaces[pod.namespace].sums(), _MEASURES, self._most, strict=True)
        texts = [f"{total:,} {text} (at most {most:,})" for total, text, most in compress(sums, _flags(exceeded))]
        message = f"the pods of namespace {pod.namespace} have {', '.join(texts)}, and this pod has some"
        return reasons.NAMESPACE_TOO_COMPLEX, message

    def numbers(self) -> dict[str, int]:
        """Return the number of pods that are too complex to be moved or placed, by reason code."""
        beyond = sum(
            number
            for namespace in self._namespaces.values()
            for measures, number in namespace.pods.items()
            if measures & namespace.exceeded
        )
        return {reasons.POD_TOO_COMPLEX: self._too_complex, reasons.NAMESPACE_TOO_COMPLEX: beyond}


def terms_of(spec: PodSpec) -> int:
    """Return the number of pod affinity terms and topology spread constraints of a spec."""
    affinity = spec.affinity
    if not affinity.has_pod_terms:
        return len(spec.topology_spread)
    required, preferred = (*affinity.pod_required, *affinity.anti_required), affinity.pod_preferred
    return len(required) + len(preferred) + len(affinity.anti_preferred) + len(spec.topology_spread)


def _may_contribute(spec: PodSpec) -> bool:
    if spec.node_selector or spec.topology_spread or spec.kibibytes or spec.complexity:
        return True
    affinity = spec.affinity
    return affinity.has_pod_terms or affinity.node.required is not None or bool(affinity.node.preferred)


def _parts_of(pod: Pod) -> tuple[Any, ...]:
    """Return the parts of a pod that other pods may share, in the order of :data:`_AMOUNTS_OF_PARTS`."""
    spec = pod.spec
    affinity = spec.affinity
    return (
        spec,
        spec.node_selector,
        affinity.node.preferred,
        affinity.pod_required,
        affinity.pod_preferred,
        affinity.anti_required,
        affinity.anti_preferred,
        spec.topology_spread,
        pod.annotations,
    )


def _amounts_of_spec(spec: PodSpec) -> _Amounts:
    """Return the amounts of a spec without those of its parts."""
    required = spec.affinity.node.required
    return 0, _values_of_terms(required.terms if required else ()), spec.kibibytes << 10, 0


def _amounts_of_terms(terms: tuple[PodAffinityTerm, ...]) -> _Amounts:
    values = sum(
        len(each.namespaces) + _values_of_selector(each.selector) + _values_of_selector(each.namespace_selector)
        for each in terms
    )
    return len(terms), values, 0, 0


def _amounts_of_weighted_terms(weighted: tuple[WeightedPodTerm, ...]) -> _Amounts:
    return _amounts_of_terms(tuple(each.term for each in weighted))


def _amounts_of_spread(constraints: tuple[TopologySpread, ...]) -> _Amounts:
    return len(constraints), sum(_values_of_selector(each.selector) for each in constraints), 0, 0


def _values_of_selector(selector: LabelSelector | None) -> int:
    return 0 if selector is None else len(selector.match_labels) + _values_of(selector.match_expressions)


def _amounts_of_node_selector(labels: Labels) -> _Amounts:
    return 0, len(labels), 0, 0


def _amounts_of_preferred_nodes(preferred: tuple[PreferredNodeTerm, ...]) -> _Amounts:
    return 0, _values_of_terms(each.term for each in preferred), 0, 0


def _values_of_terms(terms: Iterable[NodeSelectorTerm]) -> int:
    """Return the number of expressions, of their values, and of node names in ``matchFields``."""
    return sum(
        _values_of(term.match_expressions) + sum(len(each.values) for each in term.match_fields) for term in terms
    )


def _values_of(expressions: Iterable[LabelRequirement]) -> int:
    return sum(1 + len(each.values) for each in expressions)


def _amounts_of_annotations(annotations: Labels) -> _Amounts:
    return 0, 0, 0, size_of(annotations)


_AMOUNTS_OF_PARTS: Final[tuple[Callable[[Any], _Amounts], ...]] = (
    _amounts_of_spec,
    _amounts_of_node_selector,
    _amounts_of_preferred_nodes,
    _amounts_of_terms,
    _amounts_of_weighted_terms,
    _amounts_of_terms,
    _amounts_of_weighted_terms,
    _amounts_of_spread,
    _amounts_of_annotations,
)


def _bits(values: Sequence[int]) -> int:
    """Return a bit set of the positions of the values that are not 0."""
    return sum(1 << number for number, value in enumerate(values) if value)


def _flags(bits: int) -> Iterator[int]:
    return (bits >> number & 1 for number in range(len(_MEASURES)))
