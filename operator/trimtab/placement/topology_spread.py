"""Counts pods for topology spread constraints, for the filter, the score and the planners that balance pods.

A constraint counts the matching pods in each domain (each value of a node label), and limits by how much the count of a
domain may exceed the smallest count. Source: kube-scheduler v1.36.3 ``plugins/podtopologyspread``. Terminating pods,
pods of other namespaces and pods on excluded nodes are not counted. Two quirks of kube-scheduler are reproduced:

- An empty selector matches the pod being placed, but no pod is counted for it (``countPodsMatchSelector``). A nil
  selector matches no pod, even with ``matchLabelKeys``.
- Without any domain, the global minimum is 0 if ``minDomains`` is at least 1 (the default), and otherwise so large that
  every node passes (``MaxInt32``).

The included nodes depend only on a pod's spec and on the nodes, so they are cached until a node changes. Pods are
counted per node, and the counters are updated with every change. The caches are limited, because one array over all
nodes for each of thousands of owners would need hundreds of megabytes.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from trimtab.cluster.affinity import AffinityIndex
from trimtab.cluster.node_table import NodeTable, SlotCounter, TopologyKey
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.spread_selectors import DefaultSelectors, narrow_selector
from trimtab.kube.frozen import NO_LABELS, Labels
from trimtab.kube.objects import LabelSelector, NodeSelector, Pod, PodSpec, Toleration, TopologySpread
from trimtab.kube.rules.node_labels import HOSTNAME, ZONE
from trimtab.kube.rules.selectors import matches_labels
from trimtab.placement.node_masks import affinity_mask, untolerated_mask

_MAX_KEYS: Final = 16_384
_MAX_INCLUSIONS: Final = 64
"""Maximum number of node inclusions whose arrays are cached, about 130 KB each for 5,000 nodes."""
_MAX_DENSE: Final = 128
"""Maximum number of selectors whose counts are cached as an array, 64 KB each for 5,000 nodes."""
_SPARSE: Final = 512
"""Maximum number of nodes with counted pods for which no dense array is used, because it would not be faster."""

Slots = npt.NDArray[np.intp]


class NodeInclusion(Struct, frozen=True, eq=False):
    """Defines which nodes a constraint includes, by its topology key and inclusion policies.

    Instances are compared by identity (:meth:`SpreadTables.inclusion`).

    Attributes:
        topology_key: the label whose values are the domains.
        required: labels that an included node must have.
        affinity: the node selector and required node affinity that an included node must satisfy, or ``None`` if the
            constraint ignores them.
        tolerations: the tolerations that must tolerate an included node's taints, or ``None`` if the constraint ignores
            taints.
    """

    topology_key: str
    required: tuple[str, ...]
    affinity: tuple[Labels, NodeSelector | None] | None
    tolerations: tuple[Toleration, ...] | None


_InclusionKey = tuple[str, tuple[str, ...], tuple[Labels, NodeSelector | None] | None, tuple[Toleration, ...] | None]


class Domains:
    """The domains of a topology key and their included nodes, valid until a node changes.

    Domains are numbered as in :class:`TopologyKey`. Arrays over domains have an additional last entry for nodes without
    the label.

    Attributes:
        domain_of_slot: the domain of each slot: intp, shape (capacity,). Nodes without the label and free slots have
            the index of the last entry.
        counted_domain_of_slot: like ``domain_of_slot``, but excluded nodes also have the index of the last entry.
        eligible: whether each domain has an included node: bool, shape (domains + 1,). The last entry is false.
        empty_value_domain: the domain of the empty label value, or ``None`` if no node has this value.
    """

    __slots__ = ("_all", "counted_domain_of_slot", "domain_of_slot", "eligible", "empty_value_domain")

    def __init__(self, topology: TopologyKey, count: BoolArray) -> None:
        last = len(topology.values)
        self.domain_of_slot: Slots = np.where(topology.ids >= 0, topology.ids, last)
        self.counted_domain_of_slot: Slots = np.where(count, self.domain_of_slot, last)
        self.empty_value_domain = topology.id_of.get("")
        if (
            self.empty_value_domain is not None
        ):  # where the label is not required, its absence and the empty value are one domain
            self.counted_domain_of_slot[count & (self.domain_of_slot == last)] = self.empty_value_domain
        self.eligible: BoolArray = np.bincount(self.counted_domain_of_slot, minlength=last + 1) > 0
        self.eligible[last] = False
        self._all = bool(self.eligible[:last].all())

    def of_eligible(self, counts: IntArray) -> IntArray:
        """Return those of the ``counts`` that belong to domains with an included node."""
        return counts[:-1] if self._all else counts[self.eligible]


class SpreadTables:
    """Caches arrays that the filter and the score for a node table share: domains of inclusions, and dense counts."""

    def __init__(self) -> None:
        self._inclusions: dict[_InclusionKey, NodeInclusion] = {}
        self._domains: dict[NodeInclusion, Domains] = {}
        self._dense: dict[SlotCounter, None] = {}
        self._version = -1

    def inclusion(
        self,
        topology_key: str,
        *,
        required: tuple[str, ...] = (),
        affinity: tuple[Labels, NodeSelector | None] | None = None,
        tolerations: tuple[Toleration, ...] | None = None,
    ) -> NodeInclusion:
        """Return the :class:`NodeInclusion` with these attributes, whose meaning is documented there.

        Calls with equal attributes return the same object, so that arrays are shared.
        """
        if len(self._inclusions) >= _MAX_KEYS:
            self._inclusions.clear()
        key = (topology_key, required, affinity, tolerations)
        found = self._inclusions.get(key)
        if found is None:
            found = self._inclusions[key] = NodeInclusion(*key)
        return found

    def forget_removed(self, used: Set[int]) -> None:  # noqa: ARG002 - domains are cheap to compute again
        """See :class:`~trimtab.cluster.node_table.SpecCache`."""
        self._inclusions.clear()
        self._domains.clear()
        for counter in self._dense:
            counter.forget()
        self._dense.clear()

    def domains(self, snapshot: Snapshot, inclusion: NodeInclusion) -> Domains:
        """Return the current domains of an inclusion. They are cached, so callers must not change them."""
        if self._version != snapshot.nodes.version:
            self._domains.clear()
            self._version = snapshot.nodes.version
        found = self._domains.pop(inclusion, None) or _domains(snapshot, inclusion)
        self._domains[inclusion] = found  # least recently used first
        if len(self._domains) > _MAX_INCLUSIONS:
            del self._domains[next(iter(self._domains))]
        return found

    def counts(self, domains: Domains, counter: SlotCounter | None) -> IntArray:
        """Return the number of pods per domain on included nodes: int64, shape (domains + 1,).

        The last entry is 0.
        """
        places = len(domains.eligible)
        if counter is None or not counter.counts:
            return np.zeros(places, dtype=np.int64)
        where = domains.counted_domain_of_slot
        slots, numbers = self.per_node(counter, len(where))
        if slots is not None:
            where = where[slots]
        found: IntArray = np.bincount(where, weights=numbers, minlength=places).astype(np.int64)
        found[-1] = 0
        return found

    def per_node(self, counter: SlotCounter, capacity: int) -> tuple[Slots | None, IntArray]:
        """Return the number of pods in a counter on each node, in a sparse or dense form.

        If few nodes have counted pods, the result consists of their slots and their numbers of pods, in two arrays of
        equal length, because these are faster to process. Otherwise, it consists of ``None`` and an array over all
        slots. These arrays are cached for the most recently used selectors, so callers must not write to them.
        """
        counts = counter.counts
        if len(counts) <= _SPARSE:
            slots = np.fromiter(counts.keys(), dtype=np.intp, count=len(counts))
            return slots, np.fromiter(counts.values(), dtype=np.int64, count=len(counts))
        self._dense.pop(counter, None)
        self._dense[counter] = None
        if len(self._dense) > _MAX_DENSE:
            oldest = next(iter(self._dense))
            del self._dense[oldest]
            oldest.forget()
        return None, counter.by_slot(capacity)

    def counts_by_slot(self, counter: SlotCounter, capacity: int) -> IntArray:
        """Return the number of pods in a counter on each slot: int64, shape (capacity,).

        The array may be cached, so callers must not write to it.
        """
        slots, numbers = self.per_node(counter, capacity)
        if slots is None:
            return numbers
        found: IntArray = np.zeros(capacity, dtype=np.int64)
        found[slots] = numbers
        return found


_TABLES: Final[WeakKeyDictionary[NodeTable, SpreadTables]] = WeakKeyDictionary()


def tables_of(nodes: NodeTable) -> SpreadTables:
    """Return the tables of a node table. Repeated calls return the same object."""
    found = _TABLES.get(nodes)
    if found is None:
        found = _TABLES[nodes] = SpreadTables()
        nodes.caches.add(found)
    return found


def _domains(snapshot: Snapshot, inclusion: NodeInclusion) -> Domains:
    nodes = snapshot.nodes
    count: BoolArray = nodes.used.copy()
    for key in inclusion.required:
        count &= nodes.column(key).ids >= 0
    if inclusion.affinity is not None:
        count &= affinity_mask(snapshot, *inclusion.affinity)
    if inclusion.tolerations is not None:
        count &= ~untolerated_mask(snapshot, inclusion.tolerations)
    return Domains(nodes.column(inclusion.topology_key), count)


DO_NOT_SCHEDULE: Final = "DoNotSchedule"
SCHEDULE_ANYWAY: Final = "ScheduleAnyway"


def hard_constraints(spec: PodSpec) -> list[TopologySpread]:
    """Return the pod's own constraints that prevent scheduling. Defaults of the scheduler are not included."""
    return [each for each in spec.topology_spread if each.when_unsatisfiable == DO_NOT_SCHEDULE]


class SpreadDefaults(Struct, frozen=True):
    """The default constraints, for pods that have none of their own (``PodTopologySpreadArgs``).

    Their selectors are derived from a pod's services and controller.

    Attributes:
        constraints: the constraints, without selectors.
        system: whether these are kube-scheduler's built-in constraints, for which nodes may lack the topology labels.
    """

    constraints: tuple[TopologySpread, ...]
    system: bool = False

    def concern(self, when: str) -> bool:
        """Return whether there are default constraints with this ``whenUnsatisfiable``."""
        return any(each.when_unsatisfiable == when for each in self.constraints)


SYSTEM_DEFAULTS: Final = SpreadDefaults(
    (TopologySpread(3, HOSTNAME, SCHEDULE_ANYWAY), TopologySpread(5, ZONE, SCHEDULE_ANYWAY)), system=True
)
"""kube-scheduler's default constraints (``systemDefaultConstraints``)."""

_ANY_NODE: Final = (NO_LABELS, None)
_NO_DOMAIN: Final = 2**31 - 1
_MAX_TEMPLATES: Final = 16_384


class SpreadConstraint(Struct, frozen=True):
    """A constraint as the scheduler evaluates it for one pod: with ``matchLabelKeys`` merged and defaults set."""

    max_skew: int
    topology_key: str
    selector: LabelSelector | None
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False

    @property
    def counted(self) -> LabelSelector | None:
        """Return the selector of the pods to count, or ``None`` if the constraint counts no pod."""
        selector = self.selector
        if selector is None or not (selector.match_labels or selector.match_expressions):
            return None
        return selector


def stated(pod: Pod, when: str) -> tuple[SpreadConstraint, ...]:
    """Return the pod's constraints with this ``whenUnsatisfiable``, in the pod's order."""
    return tuple(
        _read(each, _selector(each, pod.labels)) for each in pod.spec.topology_spread if each.when_unsatisfiable == when
    )


def _selector(constraint: TopologySpread, labels: Labels) -> LabelSelector | None:
    own = {key: labels[key] for key in constraint.match_label_keys if key in labels}
    return narrow_selector(constraint.selector, own) if constraint.selector is not None and own else constraint.selector


def _read(constraint: TopologySpread, selector: LabelSelector | None) -> SpreadConstraint:
    return SpreadConstraint(
        max_skew=constraint.max_skew,
        topology_key=constraint.topology_key,
        selector=selector,
        min_domains=1 if constraint.min_domains is None else constraint.min_domains,
        honors_affinity=constraint.node_affinity_policy in ("", "Honor"),
        honors_taints=constraint.node_taints_policy == "Honor",
    )


def global_minimum(counts: IntArray, min_domains: int = 1) -> int:
    """Return the smallest count, from which the skew is measured.

    The result is 0 if there are fewer domains than ``min_domains``.

    Args:
        counts: the count of each domain with an included node: int64, shape (domains,).
        min_domains: the constraint's ``minDomains``, or 1 if it is unset.
    """
    if len(counts) < min_domains:
        return 0
    return int(counts.min()) if len(counts) else _NO_DOMAIN


def skews(counts: IntArray, smallest: int, *, own: int = 0) -> IntArray:
    """Return the skew of each domain: by how much it would exceed the global minimum after placing the pod there.

    A node passes if the result for its domain is at most ``maxSkew``.

    Args:
        counts: the number of counted pods in each domain: int64.
        smallest: the result of :func:`global_minimum`.
        own: 1 if the selector matches the pod being placed, otherwise 0.
    """
    return counts + (own - smallest)


class SpreadRule(Struct, frozen=True, eq=False):
    """A constraint of one pod, with the data for evaluating it.

    Attributes:
        constraint: the constraint.
        own: 1 if the constraint's selector matches the pod itself, otherwise 0.
        inclusion: the included nodes.
        counter: the number of matching pods per node, or ``None`` if the selector cannot match any pod.
    """

    constraint: SpreadConstraint
    own: int
    inclusion: NodeInclusion
    counter: SlotCounter | None


class SpreadRules:
    """Creates the spread rules of pods, cached per pod template.

    Args:
        snapshot: the cluster.
        defaults: the constraints for pods that have none of their own.
    """

    def __init__(self, snapshot: Snapshot, defaults: SpreadDefaults = SYSTEM_DEFAULTS) -> None:
        self._snapshot = snapshot
        self._defaults = defaults
        self._selectors = DefaultSelectors(snapshot.objects)
        self._index: AffinityIndex | None = None
        self._known: dict[tuple[object, ...], tuple[PodSpec, tuple[SpreadRule, ...]]] = {}
        self.tables = tables_of(snapshot.nodes)
        snapshot.nodes.caches.add(self)

    def forget_removed(self, used: Set[int]) -> None:  # noqa: ARG002 - see SpreadTables, whose inclusions it refers to
        """See :class:`~trimtab.cluster.node_table.SpecCache`."""
        self._known.clear()
        self._index = None
        self._selectors.clear()

    def hard(self, pod: Pod) -> tuple[SpreadRule, ...]:
        """Return the rules for the pod's own DoNotSchedule constraints.

        Nodes that lack the topology label of any of them are excluded.
        """
        if not pod.spec.topology_spread:
            return ()
        return self._of(pod, DO_NOT_SCHEDULE, None)

    def soft(self, pod: Pod) -> tuple[SpreadRule, ...]:
        """Return the rules for the pod's own ScheduleAnyway constraints.

        Nodes that lack the topology label of any of them are excluded.
        """
        if not pod.spec.topology_spread:
            return ()
        return self._of(pod, SCHEDULE_ANYWAY, None)

    def default(self, pod: Pod, when: str) -> tuple[SpreadRule, ...]:
        """Return the default rules with this ``whenUnsatisfiable`` for a pod without constraints.

        They count the pods that the pod's services and controller select. The result is empty if no service or
        controller selects the pod.
        """
        if not self._defaults.concern(when):
            return ()
        selector = self._selectors.of(pod)
        return () if selector is None else self._of(pod, when, selector)

    def count(self, rule: SpreadRule) -> tuple[Domains, IntArray]:
        """Return the domains of a rule, and the number of pods in each: int64, shape (domains + 1,).

        The last entry is 0.

        Pass ``domains.of_eligible(counts)`` to :func:`global_minimum`, and the counts to :func:`skews`. The label value
        of a domain is in ``nodes.column(topology_key).values``.
        """
        domains = self.tables.domains(self._snapshot, rule.inclusion)
        return domains, self.tables.counts(domains, rule.counter)

    def _of(self, pod: Pod, when: str, deduced: LabelSelector | None) -> tuple[SpreadRule, ...]:
        index = self._snapshot.affinity
        if self._index is not index or len(self._known) >= _MAX_TEMPLATES:
            self._known.clear()
            self._index = index
        key = (pod.namespace, id(pod.spec), pod.labels, when, deduced)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = (pod.spec, self._make(pod, when, deduced))  # keeps the spec alive
        return found[1]

    def _make(self, pod: Pod, when: str, deduced: LabelSelector | None) -> tuple[SpreadRule, ...]:
        if deduced is None:
            constraints = stated(pod, when)
        else:
            listed = (each for each in self._defaults.constraints if each.when_unsatisfiable == when)
            constraints = tuple(_read(each, deduced) for each in listed)
        by_system = deduced is not None and self._defaults.system
        required = () if by_system else tuple(each.topology_key for each in constraints)
        return tuple(self._rule(pod, each, required) for each in constraints)

    def _rule(self, pod: Pod, constraint: SpreadConstraint, required: tuple[str, ...]) -> SpreadRule:
        spec, selector = pod.spec, constraint.counted
        affinity = spec.node_selector, spec.affinity.node.required
        inclusion = self.tables.inclusion(
            constraint.topology_key,
            required=required,
            affinity=affinity if constraint.honors_affinity and affinity != _ANY_NODE else None,
            tolerations=spec.tolerations if constraint.honors_taints else None,
        )
        counter = None if selector is None else self._snapshot.affinity.staying(pod.namespace, selector)
        return SpreadRule(constraint, int(matches_labels(constraint.selector, pod.labels)), inclusion, counter)
