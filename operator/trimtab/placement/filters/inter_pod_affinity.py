"""InterPodAffinity: required affinity and anti-affinity, the pod's own and that of the pods already there."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from trimtab.cluster.resources import BoolArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.terms import BoundTerm, affinity_terms
from trimtab.kube.objects import Pod

AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"


class InterPodAffinity:
    """Checked in kube-scheduler's order: own affinity, own anti-affinity, that of existing pods (v1.36)."""

    name: ClassVar = "InterPodAffinity"

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def passing(self, pod: Pod) -> BoolArray | None:
        """All three rules, by counters per topology domain."""
        affinity = pod.spec.affinity
        if not affinity.pod_required and not affinity.anti_required and not self._snapshot.any_anti_affinity:
            return None
        passing = self._own_affinity(pod)
        passing &= ~self._own_anti_affinity(pod)
        passing &= ~self._existing_anti_affinity(pod)
        return passing

    def reasons(self, pod: Pod, slot: int) -> tuple[str, ...]:
        """The first rule that fails."""
        if not self._own_affinity(pod)[slot]:
            return (AFFINITY,)
        return (ANTI_AFFINITY,) if self._own_anti_affinity(pod)[slot] else (EXISTING_ANTI_AFFINITY,)

    def _own_affinity(self, pod: Pod) -> BoolArray:
        used: BoolArray = self._snapshot.nodes.used.copy()
        terms = affinity_terms(pod)
        if not terms:
            return used
        index = self._snapshot.affinity
        keys = [term.topology_key for term in terms]
        for key in keys:
            used &= index.topology(key).ids >= 0  # the node must have every topology label
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
                blocked |= index.matching((term,), term.topology_key).by_slot() > 0
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
