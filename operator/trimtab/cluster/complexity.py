"""Determines which pods are too complex to be moved or placed. Their own spec or their namespace exceeds a limit."""

from __future__ import annotations

from collections import Counter

from trimtab.api import reasons
from trimtab.kube.objects import Pod, PodSpec
from trimtab.kube.wire.limits import DEFAULT_LIMITS, ComplexityLimits


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
        self._pods: Counter[tuple[str, int]] = Counter()
        self._specs: dict[tuple[str, int], PodSpec] = {}  # keeps the specs alive, so that their ids are not reused
        self._terms: Counter[str] = Counter()
        self._stating: Counter[str] = Counter()
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
        key = (pod.namespace, id(spec))
        before = self._pods[key]
        self._stating[pod.namespace] += amount
        if not before:
            self._specs[key] = spec
            self._terms[pod.namespace] += terms
        self._pods[key] = before + amount
        if not self._pods[key]:
            del self._pods[key], self._specs[key]
            self._terms[pod.namespace] -= terms
            if not self._stating[pod.namespace]:
                del self._terms[pod.namespace], self._stating[pod.namespace]

    def beyond(self, namespace: str) -> bool:
        """Return whether the pods of a namespace together exceed the limit per namespace."""
        return self._terms.get(namespace, 0) > self._most

    def refusal(self, pod: Pod) -> tuple[str, str] | None:
        """Return the reason code and message if a pod is too complex to be moved or placed, otherwise ``None``."""
        if pod.spec.complexity:
            return reasons.POD_TOO_COMPLEX, f"the pod has {pod.spec.complexity}"
        if self._terms and self.beyond(pod.namespace) and terms_of(pod.spec):
            number = self._terms[pod.namespace]
            message = (
                f"the pods of namespace {pod.namespace} have {number:,} affinity terms and spread constraints "
                f"(at most {self._most:,}), and this pod has some"
            )
            return reasons.NAMESPACE_TOO_COMPLEX, message
        return None

    def numbers(self) -> dict[str, int]:
        """Return the number of pods that are too complex to be moved or placed, by reason code."""
        beyond = sum(number for namespace, number in self._stating.items() if self.beyond(namespace))
        return {reasons.POD_TOO_COMPLEX: self._too_complex, reasons.NAMESPACE_TOO_COMPLEX: beyond}


def terms_of(spec: PodSpec) -> int:
    """Return the number of pod affinity terms and topology spread constraints of a spec."""
    affinity = spec.affinity
    if not affinity.has_pod_terms:
        return len(spec.topology_spread)
    required, preferred = (*affinity.pod_required, *affinity.anti_required), affinity.pod_preferred
    return len(required) + len(preferred) + len(affinity.anti_preferred) + len(spec.topology_spread)
