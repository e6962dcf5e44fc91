"""Filters that depend on other pods: inter-pod affinity and topology spread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import ClassVar, Final

import numpy as np
from msgspec import Struct

from trimtab.cluster.affinity import AffinityIndex, BoundTerm
from trimtab.cluster.node_table import DomainCounter, TopologyKey
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Pod, PodSpec
from trimtab.kube.rules.selectors import matches_labels
from trimtab.placement.interface import Failure, NodeFilter
from trimtab.placement.topology_spread import (
    DO_NOT_SCHEDULE,
    SYSTEM_DEFAULTS,
    Domains,
    SpreadDefaults,
    SpreadRule,
    SpreadRules,
    global_minimum,
    hard_constraints,
    skews,
)

AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"

_MANY: Final = 256
"""Number of domains above which an array operation is faster than adding the domains to a set."""
_FEW_SLOTS: Final = 64
"""Number of slots up to which comparing their domains one by one is faster than an array over all slots."""
_MANY_COUNTERS: Final = 32
"""If at least this number of anti-affinity terms of other pods match a pod, the domains that they reject are cached."""
_MAX_REJECTED: Final = 1024
"""Maximum number of classes of pods whose rejected domains are cached."""


class _RejectedDomains(Struct):
    """The topology domains where the anti-affinity of bound pods rejects pods of one class.

    Attributes:
        domains: the domains that are rejected because of counters that are not in ``changing``, by topology key.
        changing: the counters that have changed since ``domains`` was first computed, and counters with many domains.
            They are read again each time.
        changes: the :attr:`AffinityIndex.carrier_changes` up to which changes were processed.
    """

    domains: dict[TopologyKey, set[int]] = {}
    changing: dict[DomainCounter, None] = {}
    changes: int = 0


def _collect_domains(counters: Iterable[DomainCounter], domains: dict[TopologyKey, set[int]]) -> list[DomainCounter]:
    """Add the domains with a nonzero count in any of the counters to ``domains``.

    Return the counters with too many domains, which are not added.
    """
    wide = []
    for counter in counters:
        counts = counter.counts
        if not counts:  # almost all, if a tenant writes many terms
            continue
        if len(counts) > _MANY:  # its array is cached
            wide.append(counter)
        else:
            domains.setdefault(counter.topology, set()).update(counts)
    return wide


class InterPodAffinity(NodeFilter):
    """Evaluates the pod's affinity and anti-affinity, then the anti-affinity of bound pods (kube-scheduler v1.36)."""

    name: ClassVar = "InterPodAffinity"

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._rejected: dict[tuple[str, Labels], _RejectedDomains] = {}
        self._index: AffinityIndex | None = None
        """The index that ``_rejected`` belongs to."""
        snapshot.nodes.caches.add(self)

    def forget_removed(self, used: Set[int]) -> None:
        """See :class:`~trimtab.cluster.node_table.SpecCache`."""
        self._rejected.clear()
        self._index = None

    def concerns(self, pod: Pod) -> bool:
        affinity = pod.spec.affinity
        if affinity.pod_required or affinity.anti_required:
            return True
        return self.snapshot.any_anti_affinity and any(
            counter.counts for counter in self.snapshot.affinity.carriers_against(pod)
        )

    def helped_by(self, pod: Pod, other: Pod) -> bool:
        if not pod.spec.affinity.pod_required:
            return False
        return self._all_match(self.snapshot.affinity.incoming_affinity(pod), other)

    def passing(self, pod: Pod) -> BoolArray | None:
        if not self.concerns(pod):
            return None
        if not pod.spec.affinity.pod_required:
            return ~self._rejected_slots(pod, self._own_counters(pod))
        passing = self._own_affinity(pod)
        if passing.any():
            passing &= ~self._rejected_slots(pod, self._own_counters(pod))
        return passing

    def passing_among(self, pod: Pod, slots: IntArray) -> IntArray:
        if pod.spec.affinity.pod_required or len(slots) > _FEW_SLOTS:
            return super().passing_among(pod, slots)
        rejected, counters = self._rejecting(pod)
        domains: dict[TopologyKey, set[int]] = {}
        wide = _collect_domains(chain(self._own_counters(pod), counters), domains)
        many = [(counter.topology, counter.counts) for counter in wide]
        left: list[int] = slots.tolist()
        for topology, found in (*domains.items(), *rejected.items(), *many):
            homes = topology.ids[left].tolist()
            left = [slot for slot, home in zip(left, homes, strict=True) if home not in found]
            if not left:
                return slots[:0]
        return slots if len(left) == len(slots) else np.array(left, dtype=np.int64)

    def rejected_by_others(self, pod: Pod) -> BoolArray | None:
        if not self.snapshot.any_anti_affinity:
            return None
        return self._rejected_slots(pod)

    def failures(self, pod: Pod, slots: IntArray) -> Iterable[Failure]:
        apart = ~self._own_affinity(pod)[slots]
        clashing = self._counted(self._own_counters(pod))[slots] & ~apart
        yield (AFFINITY,), slots[apart]
        yield (ANTI_AFFINITY,), slots[clashing]
        yield (EXISTING_ANTI_AFFINITY,), slots[~apart & ~clashing]

    def _own_affinity(self, pod: Pod) -> BoolArray:
        used: BoolArray = self.snapshot.nodes.used.copy()
        if not pod.spec.affinity.pod_required:
            return used
        index = self.snapshot.affinity
        terms = index.incoming_affinity(pod)
        columns = [self.snapshot.nodes.column(key) for key in dict.fromkeys(term.topology_key for term in terms)]
        if not all(column.known for column in columns):  # the node must have every topology label
            return np.zeros_like(used)
        for column in columns:
            used &= column.ids >= 0
        counters = [index.matching(terms, column.key) for column in columns]
        if not any(counter.counts for counter in counters) and self._all_match(terms, pod):
            return used  # the first of several pods with affinity to each other may run on any node
        for counter in counters:
            used &= counter.by_slot() > 0
        return used

    def _own_counters(self, pod: Pod) -> Sequence[DomainCounter]:
        return self.snapshot.affinity.repelled_by(pod) if pod.spec.affinity.anti_required else ()

    def _rejected_slots(self, pod: Pod, own: Sequence[DomainCounter] = ()) -> BoolArray:
        """Return the slots that the anti-affinity of bound pods rejects, or where a counter in ``own`` is nonzero.

        The result is bool, shape (capacity,).
        """
        domains, counters = self._rejecting(pod)
        found = self._counted(chain(own, counters))
        return found | self._in_domains(domains) if domains else found

    def _rejecting(self, pod: Pod) -> tuple[Mapping[TopologyKey, Set[int]], Iterable[DomainCounter]]:
        """Return the domains that the anti-affinity of bound pods rejects, and counters for further domains.

        The counters must be read again each time. If there are many, these are only those that change during a plan: a
        tenant can write thousands of terms that match every pod, and their counters do not change while other pods are
        placed.
        """
        if not self.snapshot.any_anti_affinity:
            return {}, ()
        index = self.snapshot.affinity
        counters = index.carriers_against(pod)
        if len(counters) < _MANY_COUNTERS:
            return {}, counters
        if index is not self._index:
            self._rejected.clear()
            self._index = index
        key = pod.namespace, pod.labels
        known = self._rejected.pop(key, None)
        changed = None if known is None else index.carriers_changed_since(known.changes)
        if known is None or changed is None:
            known = _RejectedDomains()
            known.changing = dict.fromkeys(_collect_domains(counters, known.domains))
        elif added := [each for each in changed if each in counters and each not in known.changing]:
            known.changing.update(dict.fromkeys(added))
            known.domains = {}
            _collect_domains((each for each in counters if each not in known.changing), known.domains)
        known.changes = index.carrier_changes
        self._rejected[key] = known  # least recently used first
        if len(self._rejected) > _MAX_REJECTED:
            del self._rejected[next(iter(self._rejected))]
        return known.domains, known.changing

    def _counted(self, counters: Iterable[DomainCounter]) -> BoolArray:
        """Return the slots in whose domain at least one counter is nonzero: bool, shape (capacity,), a fresh array.

        A pod may have hundreds of terms, so an array over all slots is created once per topology key instead of once
        per term.
        """
        domains: dict[TopologyKey, set[int]] = {}
        wide = _collect_domains(counters, domains)
        found = self._in_domains(domains)
        for counter in wide:
            found |= counter.by_slot() > 0
        return found

    def _in_domains(self, domains: Mapping[TopologyKey, Set[int]]) -> BoolArray:
        found: BoolArray = np.zeros(self.snapshot.nodes.capacity, dtype=np.bool_)
        for topology, counted in domains.items():
            flags: BoolArray = np.zeros(len(topology.values) + 1, dtype=np.bool_)
            flags[list(counted)] = True
            found |= flags[topology.ids]
        return found

    def _all_match(self, terms: tuple[BoundTerm, ...], pod: Pod) -> bool:
        namespace_labels = self.snapshot.namespace_labels(pod.namespace)
        return all(term.matches(pod.namespace, pod.labels, namespace_labels) for term in terms)


UNEVEN: Final = "node(s) didn't match pod topology spread constraints"
UNLABELLED: Final = "node(s) didn't match pod topology spread constraints (missing required label)"


class PodTopologySpread(NodeFilter):
    """Rejects nodes where the pod would violate a DoNotSchedule constraint, or that lack its topology label (v1.36).

    See :mod:`trimtab.placement.topology_spread` for how pods are counted. An excluded node is judged by the pods on the
    included nodes of its domain. The reason is that of the first violated constraint in the pod's order.
    kube-scheduler's default constraints are soft, so that a pod without constraints passes on every node.

    Args:
        snapshot: the cluster.
        defaults: the constraints for pods that have none of their own.
    """

    name: ClassVar = "PodTopologySpread"

    def __init__(self, snapshot: Snapshot, *, defaults: SpreadDefaults = SYSTEM_DEFAULTS) -> None:
        super().__init__(snapshot)
        self._rules = SpreadRules(snapshot, defaults)
        self._hard_defaults = defaults.concern(DO_NOT_SCHEDULE)

    def may_concern(self, spec: PodSpec) -> bool:
        if not spec.topology_spread:
            return self._hard_defaults
        return bool(hard_constraints(spec))

    def _of(self, pod: Pod) -> tuple[SpreadRule, ...]:
        return self._rules.hard(pod) if pod.spec.topology_spread else self._rules.default(pod, DO_NOT_SCHEDULE)

    def helped_by(self, pod: Pod, other: Pod) -> bool:
        return other.namespace == pod.namespace and any(
            rule.constraint.counted is not None and matches_labels(rule.constraint.counted, other.labels)
            for rule in self._of(pod)
        )

    def passing(self, pod: Pod) -> BoolArray | None:
        mask: BoolArray | None = None
        for rule in self._of(pod):
            domains, holds = self._verdicts(rule)
            passing = holds[domains.domain_of_slot]
            mask = passing if mask is None else mask & passing
        return mask

    def failures(self, pod: Pod, slots: IntArray) -> Iterator[Failure]:
        for rule in self._of(pod):
            domains, holds = self._verdicts(rule)
            home = domains.domain_of_slot[slots]
            unlabelled = home == len(holds) - 1
            if unlabelled.any():
                yield (UNLABELLED,), slots[unlabelled]
            uneven = ~holds[home] & ~unlabelled
            if uneven.any():
                yield (UNEVEN,), slots[uneven]
            slots = slots[holds[home]]

    def _verdicts(self, rule: SpreadRule) -> tuple[Domains, BoolArray]:
        """Return the domains of a constraint's topology key, and which of them pass: bool, shape (domains + 1,).

        The last entry stands for nodes without the label, and is false.
        """
        domains, counts = self._rules.count(rule)
        smallest = global_minimum(domains.of_eligible(counts), rule.constraint.min_domains)
        holds: BoolArray = skews(counts, smallest, own=rule.own) <= rule.constraint.max_skew
        holds[-1] = False
        return domains, holds
