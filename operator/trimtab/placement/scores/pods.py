"""Score plugins that depend on other pods: inter-pod affinity and topology spread."""

from __future__ import annotations

import math
from collections.abc import Iterable, Set
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from trimtab.cluster.affinity import HARD_POD_AFFINITY_WEIGHT, AffinityIndex, as_incoming, bind
from trimtab.cluster.node_table import DomainCounter, TopologyKey
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod, PodSpec
from trimtab.kube.rules.node_labels import HOSTNAME
from trimtab.placement.interface import MAX_SCORE, NO_KEYS
from trimtab.placement.topology_spread import (
    SCHEDULE_ANYWAY,
    SYSTEM_DEFAULTS,
    Domains,
    Slots,
    SpreadDefaults,
    SpreadRule,
    SpreadRules,
)

_SPECS: Final = 16_384
_FEW: Final = 16
"""Maximum number of domains for which counts are added one by one instead of with an array operation."""
_NEVER: Final = 1 << 62
"""A number that is larger than any sum of weights."""

Weighted = tuple[DomainCounter, int]
"""The number of pods per topology domain, and the weight that each pod adds to the score of the domain's nodes. The
weight may be negative."""


class InterPodAffinity:
    """Sums the weights of affinity terms over the matching pods in the node's topology domains.

    The pod's preferred affinity and anti-affinity terms add their weight for each pod that they match. The preferred
    terms of bound pods, and their required affinity with weight 1, add their weight if they match the pod. A term adds
    nothing to nodes without its topology label. Sums may be negative. They are scaled so that the lowest among the
    candidates becomes 0 and the highest 100, rounded down. If all sums are equal, all nodes score 0.

    Source: kube-scheduler v1.36 ``interpodaffinity/scoring.go``. The scheduler skips the score if no term matches any
    pod, which is equivalent to 0 for all nodes.

    Args:
        snapshot: the cluster.
        hard_weight: the weight of the required affinity of bound pods.
        ignore_existing: whether pods without preferred terms of their own are not scored
            (``ignorePreferredTermsOfExistingPods``).
    """

    name: ClassVar = "InterPodAffinity"
    weight: ClassVar = 2

    def __init__(
        self, snapshot: Snapshot, *, hard_weight: int = HARD_POD_AFFINITY_WEIGHT, ignore_existing: bool = False
    ) -> None:
        self._snapshot = snapshot
        self._hard_weight = hard_weight
        self._ignore_existing = ignore_existing
        self._own: dict[tuple[int, str], tuple[PodSpec, tuple[Weighted, ...]]] = {}
        self._index: AffinityIndex | None = None
        snapshot.nodes.caches.add(self)

    def forget_removed(self, used: Set[int]) -> None:
        """See :class:`~trimtab.cluster.node_table.SpecCache`."""
        self._own.clear()
        self._index = None

    def sums(self, pod: Pod) -> IntArray | None:
        """Return the sum of weights for each slot: int64, shape (capacity,), or ``None`` if all sums are 0."""
        affinity = pod.spec.affinity
        prefers = affinity.pod_preferred or affinity.anti_preferred
        if not prefers and (self._ignore_existing or not self._snapshot.any_pod_affinity):
            return None  # do not build the index only for this
        index = self._snapshot.affinity
        carried = self._snapshot.any_pod_affinity
        drawn: Iterable[Weighted] = index.carriers_drawing(pod, self._hard_weight) if carried else ()
        return _sums((*self._preferred(pod, index), *drawn) if prefers else drawn)

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        found = self.sums(pod)
        if found is None:
            return 0
        low, high = int(np.where(among, found, _NEVER).min()), int(np.where(among, found, -_NEVER).max())
        if low >= high:
            return 0
        scaled: IntArray = (MAX_SCORE * ((found - low) / (high - low))).astype(
            np.int64
        )  # truncated at the end, as in Go
        return scaled

    def coupled_by(self, pod: Pod) -> frozenset[str] | None:
        # The terms of other pods keep their sums, because the placed pods carry no terms.
        return None if pod.spec.affinity.has_pod_terms else NO_KEYS

    def _preferred(self, pod: Pod, index: AffinityIndex) -> tuple[Weighted, ...]:
        """Return the counters of the pods that match the pod's own preferred terms, cached per spec and namespace."""
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
            found = self._own[key] = (pod.spec, counters)  # keeps the spec alive
        return found[1]


def _sums(weighted: Iterable[Weighted]) -> IntArray | None:
    """Return the weighted counts, summed over each slot's domains: int64, shape (capacity,).

    The result is ``None`` if all sums are 0.
    """
    by_topology: dict[TopologyKey, IntArray] = {}
    sparse: dict[TopologyKey, dict[int, int]] = {}
    for counter, weight in weighted:
        if not counter.counts:
            continue
        if len(counter.counts) <= _FEW:  # with hundreds of terms, an array for each is slower than individual sums
            domains = sparse.setdefault(counter.topology, {})
            for domain, number in counter.counts.items():
                domains[domain] = domains.get(domain, 0) + number * weight
            continue
        sums = by_topology.get(counter.topology)
        added = counter.by_domain() * weight
        by_topology[counter.topology] = added if sums is None else sums + added
    for topology, domains in sparse.items():
        sums = by_topology.get(topology)
        added = np.zeros(len(topology.values) + 1, dtype=np.int64)
        added[list(domains)] = list(domains.values())
        by_topology[topology] = added if sums is None else sums + added
    total: IntArray | None = None
    for topology, sums in by_topology.items():
        found = sums[topology.ids]
        total = found if total is None else total + found
    return total


FloatArray = npt.NDArray[np.float64]


class PodTopologySpread:
    """Prefers topology domains with fewer matching pods, for all ScheduleAnyway constraints of the pod (v1.36).

    The pods of a domain are weighted by the logarithm of the number of domains among the candidates, so that many hosts
    do not outweigh few zones. The default constraints apply to pods without constraints of their own, and count the
    pods that the pod's services and controller select. A pod that has only DoNotSchedule constraints is not scored.

    Two quirks of kube-scheduler are reproduced. For the hostname key, pods are counted per node, regardless of the
    inclusion policies. Nodes that lack one of the topology labels score 0. With the system's default constraints, such
    nodes are not counted for that label, but they add one domain for the empty value.

    Args:
        snapshot: the cluster.
        defaults: the constraints for pods that have none of their own.
    """

    name: ClassVar = "PodTopologySpread"
    weight: ClassVar = 2

    def __init__(self, snapshot: Snapshot, *, defaults: SpreadDefaults = SYSTEM_DEFAULTS) -> None:
        self._snapshot = snapshot
        self._rules = SpreadRules(snapshot, defaults)

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        rules = self._of(pod)
        if not rules:
            return 0
        slots: Slots = np.flatnonzero(among)
        tables = [self._rules.tables.domains(self._snapshot, rule.inclusion) for rule in rules]
        if rules[0].inclusion.required:
            slots = _labelled(slots, tables)
        found: IntArray = np.zeros(len(among), dtype=np.int64)
        if not len(slots):
            return found
        total: FloatArray = np.zeros(len(slots), dtype=np.float64)
        for rule, domains in zip(rules, tables, strict=True):
            if rule.constraint.topology_key == HOSTNAME:
                total += self._by_node(rule, domains, slots, len(among))
            else:
                total += self._by_domain(rule, domains, slots)
        found[slots] = _normalized(_rounded(total))
        return found

    def coupled_by(self, pod: Pod) -> frozenset[str]:
        return frozenset(rule.constraint.topology_key for rule in self._of(pod))

    def _of(self, pod: Pod) -> tuple[SpreadRule, ...]:
        return self._rules.soft(pod) if pod.spec.topology_spread else self._rules.default(pod, SCHEDULE_ANYWAY)

    def _by_domain(self, rule: SpreadRule, domains: Domains, slots: Slots) -> FloatArray:
        """Return the raw score of each slot for a constraint: float64, shape (slots,). A higher raw score is worse.

        The raw score increases with the number of counted pods in the slot's domain. Nodes without the label have 0.
        """
        home = domains.domain_of_slot[slots]
        counts = self._rules.tables.counts(domains, rule.counter)
        present = np.bincount(home, minlength=len(counts)) > 0
        if domains.empty_value_domain is not None:
            present[domains.empty_value_domain] |= present[-1]
            present[-1] = False
        points = _points(counts, rule, int(np.count_nonzero(present)))
        points[-1] = 0.0
        return points[home]

    def _by_node(self, rule: SpreadRule, domains: Domains, slots: Slots, capacity: int) -> FloatArray:
        """Return the raw score of each slot for a constraint on the hostname: float64, shape (slots,). Higher is worse.

        The raw score increases with the number of counted pods on the node itself.
        """
        counts: IntArray = np.zeros(capacity, dtype=np.int64)
        if rule.counter is not None:
            there, numbers = self._rules.tables.per_node(rule.counter, capacity)
            if there is None:
                counts = numbers
            else:
                counts[there] = numbers
        points = _points(counts[slots], rule, len(slots))
        points[domains.domain_of_slot[slots] == len(domains.eligible) - 1] = 0.0
        return points


def _labelled(slots: Slots, tables: list[Domains]) -> Slots:
    """Return the slots whose nodes have the topology labels of all constraints."""
    for domains in tables:
        labelled = domains.domain_of_slot[slots] != len(domains.eligible) - 1
        if not labelled.all():
            slots = slots[labelled]
    return slots


def _points(counts: IntArray, rule: SpreadRule, size: int) -> FloatArray:
    """Return the raw score of each count; more pods give a higher raw score (``scoreForCount``).

    The raw score is ``count * log(size + 2) + maxSkew - 1``, where ``size`` is the number of domains.
    """
    found: FloatArray = counts.astype(np.float64) * math.log(size + 2)
    found += rule.constraint.max_skew - 1
    return found


def _rounded(points: FloatArray) -> IntArray:
    """Round half away from zero as Go's ``math.Round`` does.

    NumPy rounds half to even. No value is negative.
    """
    whole: FloatArray = np.trunc(points)
    return whole.astype(np.int64) + (points - whole >= 0.5)


def _normalized(points: IntArray) -> IntArray:
    """Scale raw scores to 0 to 100, where the lowest raw score is best (``NormalizeScore``).

    All slots score 100 if all raw scores are 0.
    """
    most, fewest = int(points.max()), int(points.min())
    if most <= 0:
        return np.full(len(points), MAX_SCORE, dtype=np.int64)
    found: IntArray = MAX_SCORE * (most + fewest - points) // most
    return found
