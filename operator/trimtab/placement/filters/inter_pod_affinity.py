"""InterPodAffinity: required affinity and anti-affinity, the pod's own and that of the pods already there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.terms import BoundTerm, affinity_terms, as_incoming
from trimtab.kube.objects import Pod, PodSpec
from trimtab.placement.framework import Failure, Reads

AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"


class InterPodAffinity:
    """Checked in kube-scheduler's order: own affinity, own anti-affinity, that of existing pods (v1.36)."""

    name: ClassVar = "InterPodAffinity"
    reads: ClassVar[Reads] = "pods"

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def may_concern(self, spec: PodSpec) -> bool:
        """Always: pods that are there may state terms against it."""
        del spec
        return True

    def concerns(self, pod: Pod) -> bool:
        """Where the pod states terms, or a term on some placed pod picks it."""
        affinity = pod.spec.affinity
        if affinity.pod_required or affinity.anti_required:
            return True
        return self._snapshot.any_anti_affinity and any(
            counter.total for counter in self._snapshot.affinity.carriers_against(pod)
        )

    def refusal(self, pod: Pod) -> str | None:
        """Never: it depends on the nodes."""
        del pod
        return None

    def passing(self, pod: Pod) -> BoolArray | None:
        """All three rules, by counters per topology domain."""
        if not self.concerns(pod):
            return None
        passing = self._own_affinity(pod)
        passing &= ~self._own_anti_affinity(pod)
        passing &= ~self._existing_anti_affinity(pod)
        return passing

    def failures(self, pod: Pod, slots: IntArray) -> Iterable[Failure]:
        """The first rule that fails."""
        apart = ~self._own_affinity(pod)[slots]
        clashing = self._own_anti_affinity(pod)[slots] & ~apart
        yield (AFFINITY,), slots[apart]
        yield (ANTI_AFFINITY,), slots[clashing]
        yield (EXISTING_ANTI_AFFINITY,), slots[~apart & ~clashing]

    def _own_affinity(self, pod: Pod) -> BoolArray:
        used: BoolArray = self._snapshot.nodes.used.copy()
        terms = affinity_terms(pod)
        if not terms:
            return used
        index = self._snapshot.affinity
        keys = [term.topology_key for term in terms]
        for key in keys:
            used &= self._snapshot.nodes.column(key).ids >= 0  # the node must have every topology label
        counters = [index.matching(terms, key) for key in keys]
        if all(counter.total == 0 for counter in counters) and self._matches_itself(pod, terms):
            return used  # the first of a series that wants to be together may go anywhere
        for counter in counters:
            used &= counter.by_slot() > 0
        return used

    def _own_anti_affinity(self, pod: Pod) -> BoolArray:
        blocked: BoolArray = np.zeros(self._snapshot.nodes.capacity, dtype=np.bool_)
        if pod.spec.affinity.anti_required:
            index = self._snapshot.affinity
            for term in index.carried_terms(pod):
                blocked |= index.matching((as_incoming(term),), term.topology_key).by_slot() > 0
        return blocked

    def _existing_anti_affinity(self, pod: Pod) -> BoolArray:
        blocked: BoolArray = np.zeros(self._snapshot.nodes.capacity, dtype=np.bool_)
        if self._snapshot.any_anti_affinity:
            for counter in self._snapshot.affinity.carriers_against(pod):
                if counter.total:
                    blocked |= counter.by_slot() > 0
        return blocked

    def _matches_itself(self, pod: Pod, terms: tuple[BoundTerm, ...]) -> bool:
        namespace_labels = self._snapshot.namespace_labels(pod.namespace)
        return all(term.matches(pod.namespace, pod.labels, namespace_labels) for term in terms)
