"""Determines which pods are too complex to be moved or placed. Their own spec or their namespace exceeds a limit."""

from __future__ import annotations

from collections import Counter

from trimtab.api import reasons
from trimtab.kube.objects import Pod, PodSpec
from trimtab.kube.wire.limits import DEFAULT_LIMITS, ComplexityLimits


class _Namespace:
    """What the pods of one namespace with affinity terms or spread constraints sum up to.

    Attributes:
        pods: the number of pods.
        terms: the number of terms of their distinct specs.
        specs: the specs by their ids. They are kept alive, so that the ids are not reused.
        further: the number of pods with the same spec in addition to the first.
    """

    __slots__ = ("further", "pods", "specs", "terms")

    def __init__(self) -> None:
        self.pods = 0
        self.terms = 0
        self.specs: dict[int, PodSpec] = {}
        self.further: Counter[int] = Counter()


class PodComplexity:
    """Counts the affinity terms and spread constraints per namespace, and reports which pods exceed the limits.

    Terms of pods with identical specs are counted once, because a thousand replicas of a Deployment cost no more than
    one. Terminal pods are not counted, because their terms do not affect other pods and pipelines leave thousands of
    them. The result does not depend on the order of the pods: above the limit, every pod of the namespace that has
    terms is too complex.

    Args:
        limits: the limits per namespace. The limits of a single pod are checked when it is decoded.
    """

    def __init__(self, limits: ComplexityLimits = DEFAULT_LIMITS) -> None:
        self._most = limits.namespace_terms
        self._namespaces: dict[str, _Namespace] = {}
        self._too_complex = 0

    def count(self, pod: Pod, amount: int) -> None:
        """Add a pod (``amount`` 1) or remove it (-1)."""
        spec = pod.spec
        if not (spec.complexity or spec.topology_spread or spec.affinity.has_pod_terms) or pod.terminal:
            return  # almost all pods
        self._too_complex += amount if spec.complexity else 0
        terms = terms_of(spec)
        if not terms:
            return
        found = self._namespaces.get(pod.namespace)
        if found is None:
            found = self._namespaces[pod.namespace] = _Namespace()
        found.pods += amount
        key = id(spec)
        if key not in found.specs:
            found.specs[key] = spec
            found.terms += terms
        elif amount > 0 or key in found.further:
            found.further[key] += amount
            if not found.further[key]:
                del found.further[key]
        else:
            del found.specs[key]
            found.terms -= terms
            if not found.pods:
                del self._namespaces[pod.namespace]

    def beyond(self, namespace: str) -> bool:
        """Return whether the pods of a namespace together exceed the limit per namespace."""
        found = self._namespaces.get(namespace)
        return found is not None and found.terms > self._most

    def refusal(self, pod: Pod) -> tuple[str, str] | None:
        """Return the reason code and message if a pod is too complex to be moved or placed, otherwise ``None``."""
        if pod.spec.complexity:
            return reasons.POD_TOO_COMPLEX, f"the pod has {pod.spec.complexity}"
        if self._namespaces and self.beyond(pod.namespace) and terms_of(pod.spec):
            number = self._namespaces[pod.namespace].terms
            message = (
                f"the pods of namespace {pod.namespace} have {number:,} affinity terms and spread constraints "
                f"(at most {self._most:,}), and this pod has some"
            )
            return reasons.NAMESPACE_TOO_COMPLEX, message
        return None

    def numbers(self) -> dict[str, int]:
        """Return the number of pods that are too complex to be moved or placed, by reason code."""
        beyond = sum(each.pods for each in self._namespaces.values() if each.terms > self._most)
        return {reasons.POD_TOO_COMPLEX: self._too_complex, reasons.NAMESPACE_TOO_COMPLEX: beyond}


def terms_of(spec: PodSpec) -> int:
    """Return the number of pod affinity terms and topology spread constraints of a spec."""
    affinity = spec.affinity
    if not affinity.has_pod_terms:
        return len(spec.topology_spread)
    required, preferred = (*affinity.pod_required, *affinity.anti_required), affinity.pod_preferred
    return len(required) + len(preferred) + len(affinity.anti_preferred) + len(spec.topology_spread)
