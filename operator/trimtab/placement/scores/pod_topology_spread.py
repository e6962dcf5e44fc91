"""PodTopologySpread: the fewer pods of its kind around a node, the better."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.spread_selectors import DefaultSelectors
from trimtab.kube.objects import Pod
from trimtab.kube.rules.node_labels import HOSTNAME
from trimtab.placement.framework import MAX_SCORE
from trimtab.placement.spread_domains import Domains, Slots
from trimtab.placement.topology_spread import Rule, Rules

FloatArray = npt.NDArray[np.float64]


class PodTopologySpread:
    """How few pods are where the pod's ScheduleAnyway constraints count them, over all constraints (v1.36).

    A domain's pods weigh the logarithm of the number of domains among the nodes to choose from, so that zones are not
    drowned by hosts. A pod that states no constraint at all is spread over hosts and zones with the pods that its
    services and its controller pick; one that only states hard ones is not scored.

    Quirks of kube-scheduler that are kept: hosts are not counted by label but by node, whatever the policies on nodes
    say; with stated constraints nodes that lack one of the labels score 0, while by default they are just not counted
    for that label, though they make one domain more, that of the empty value.
    """

    name: ClassVar = "PodTopologySpread"
    weight: ClassVar = 2

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._rules = Rules(snapshot)
        self._selectors = DefaultSelectors(snapshot.shelves)

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        """See :meth:`~trimtab.placement.framework.Score.scores`."""
        rules = self._of(pod)
        if not rules:
            return 0
        slots: Slots = np.flatnonzero(among)
        stated = bool(pod.spec.topology_spread)
        tables = [self._rules.tables.domains(self._snapshot, rule.ground) for rule in rules]
        if stated:
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

    def _of(self, pod: Pod) -> tuple[Rule, ...]:
        if pod.spec.topology_spread:
            return self._rules.soft(pod)
        selector = self._selectors.of(pod)
        return () if selector is None else self._rules.default(pod, selector)

    def _by_domain(self, rule: Rule, domains: Domains, slots: Slots) -> FloatArray:
        """The points of each slot for a label: float64, shape (slots,), 0 without the label."""
        home = domains.home[slots]
        counts = self._rules.tables.counts(domains, rule.counter)
        present = np.bincount(home, minlength=len(counts)) > 0
        if domains.blank is not None:
            present[domains.blank] |= present[-1]
            present[-1] = False
        points = _points(counts, rule, int(np.count_nonzero(present)))
        points[-1] = 0.0
        return points[home]

    def _by_node(self, rule: Rule, domains: Domains, slots: Slots, capacity: int) -> FloatArray:
        """The same for the host name: the pods on the node itself count."""
        counts: IntArray = np.zeros(capacity, dtype=np.int64)
        if rule.counter is not None:
            there, numbers = self._rules.tables.per_node(rule.counter, capacity)
            if there is None:
                counts = numbers
            else:
                counts[there] = numbers
        points = _points(counts[slots], rule, len(slots))
        points[domains.home[slots] == len(domains.eligible) - 1] = 0.0
        return points


def _labelled(slots: Slots, tables: list[Domains]) -> Slots:
    """The slots that have a domain in each of the tables."""
    for domains in tables:
        labelled = domains.home[slots] != len(domains.eligible) - 1
        if not labelled.all():
            slots = slots[labelled]
    return slots


def _points(counts: IntArray, rule: Rule, size: int) -> FloatArray:
    """The more, the worse: a pod weighs log(size + 2), and maxSkew waters differences down (``scoreForCount``)."""
    found: FloatArray = counts.astype(np.float64) * math.log(size + 2)
    found += rule.constraint.max_skew - 1
    return found


def _rounded(points: FloatArray) -> IntArray:
    """To integers, halves away from zero as Go's ``math.Round`` (NumPy's goes to the even one); none is below 0."""
    whole: FloatArray = np.trunc(points)
    return whole.astype(np.int64) + (points - whole >= 0.5)


def _normalized(points: IntArray) -> IntArray:
    """0 to 100, the fewest points best; all 100 where there are none (``NormalizeScore``)."""
    most, fewest = int(points.max()), int(points.min())
    if most <= 0:
        return np.full(len(points), MAX_SCORE, dtype=np.int64)
    found: IntArray = MAX_SCORE * (most + fewest - points) // most
    return found
