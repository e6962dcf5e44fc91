"""InterPodAffinity: pods around a node that the pod likes, or that like it, speak for it; disliked ones against."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

import numpy as np

from trimtab.cluster.affinity import AffinityIndex
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.terms import as_incoming, bind
from trimtab.cluster.topology import DomainCounter, TopologyKey
from trimtab.kube.objects import Pod, PodSpec
from trimtab.placement.framework import MAX_SCORE

_SPECS: Final = 16_384
_NEVER: Final = 1 << 62
"""Beyond any sum of weights."""

Weighted = tuple[DomainCounter, int]
"""Pods per topology domain, and what each of them adds to the domain's nodes, below 0 where it is disliked."""


class InterPodAffinity:
    """Weights of preferred terms, once per pod that a term picks in the node's domain.

    The pod's own preferred affinity and anti-affinity count the pods that they pick; the preferred terms of the pods
    there, and with weight 1 their required affinity, count where they pick the pod. Sums may be below 0; the lowest
    among the nodes becomes 0 and the highest 100, rounded down; where all are equal, all are 0. A node without the
    topology label gets nothing of a term.

    Source: kube-scheduler v1.36 ``interpodaffinity/scoring.go``. Where no term picks anything it skips the score; that
    comes to 0 for all nodes as well.
    """

    name: ClassVar = "InterPodAffinity"
    weight: ClassVar = 2

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._own: dict[tuple[int, str], tuple[PodSpec, tuple[Weighted, ...]]] = {}
        self._index: AffinityIndex | None = None

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        """See :meth:`~trimtab.placement.framework.Score.scores`."""
        affinity = pod.spec.affinity
        prefers = affinity.pod_preferred or affinity.anti_preferred
        if not prefers and not self._snapshot.any_pod_affinity:
            return 0  # and leave the index alone: it may not have been made
        index = self._snapshot.affinity
        drawn: Iterable[Weighted] = index.carriers_drawing(pod) if self._snapshot.any_pod_affinity else ()
        found = _sums((*self._preferred(pod, index), *drawn) if prefers else drawn)
        if found is None:
            return 0
        low, high = int(np.where(among, found, _NEVER).min()), int(np.where(among, found, -_NEVER).max())
        if low >= high:
            return 0
        scaled: IntArray = (MAX_SCORE * ((found - low) / (high - low))).astype(np.int64)  # as Go: truncated at the end
        return scaled

    def _preferred(self, pod: Pod, index: AffinityIndex) -> tuple[Weighted, ...]:
        """The counters of the pod's own preferences, looked up once per spec and namespace."""
        if self._index is not index or len(self._own) >= _SPECS:
            self._own.clear()
            self._index = index
        key = (id(pod.spec), pod.namespace)
        found = self._own.get(key)
        if found is None:
            affinity = pod.spec.affinity
            weighted = [(each.term, each.weight) for each in affinity.pod_preferred]
            weighted += [(each.term, -each.weight) for each in affinity.anti_preferred]
            bound = ((as_incoming(bind(term, pod.namespace)), weight) for term, weight in weighted)
            counters = tuple((index.matching((term,), term.topology_key), weight) for term, weight in bound)
            found = self._own[key] = (pod.spec, counters)  # the spec is held: its id stays its own
        return found[1]


def _sums(weighted: Iterable[Weighted]) -> IntArray | None:
    """Counts times weights, summed over each slot's domains: int64, shape (capacity,); ``None`` where all are 0."""
    by_topology: dict[TopologyKey, IntArray] = {}
    for counter, weight in weighted:
        if counter.total:
            sums = by_topology.get(counter.topology)
            added = counter.by_domain() * weight
            by_topology[counter.topology] = added if sums is None else sums + added
    total: IntArray | None = None
    for topology, sums in by_topology.items():
        found = sums[topology.ids]
        total = found if total is None else total + found
    return total
