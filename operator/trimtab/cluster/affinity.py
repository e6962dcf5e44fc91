"""Pod affinity: terms with resolved namespaces, the pods that they match, and the terms of bound pods.

The index is updated incrementally. Pods of one namespace with identical labels form a *class*, and a term is matched
against each class instead of each pod. The classes that a term matches, and the terms that match a class, are found by
the keys that every match must have (:mod:`trimtab.cluster.term_index`). So the cost does not grow quadratically with
the number of owners if every owner has a term, and the cost of a tenant's terms depends only on the number of pods that
they match.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, KeysView, Sequence, Set, ValuesView
from copy import copy
from functools import lru_cache
from itertools import chain, islice
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from trimtab.cluster.node_table import (
    CountsByTopology,
    DomainCounter,
    DomainCounts,
    NodeTable,
    SlotCounter,
    TopologyKey,
)
from trimtab.cluster.term_index import (
    Key,
    Keys,
    PodIndex,
    TermIndex,
    absent_keys,
    namespace_keys,
    pod_keys,
    selector_keys,
)
from trimtab.kube.frozen import NO_LABELS, Labels
from trimtab.kube.objects import LabelSelector, Pod, PodAffinityTerm, PodSpec
from trimtab.kube.rules.selectors import LabelMatcher, label_matcher, matches_labels

_EVERY: Final = LabelSelector()


class BoundTerm:
    """An affinity term with resolved namespaces. Identical terms of different pods compare equal.

    Instances are immutable.

    The term stores derived values: its hash and the compiled selectors. A separate cache with a size
    limit would thrash if a pod had more terms than the limit.

    Args:
        topology_key: the node label whose values are the domains.
        selector: matches pods by their labels; ``None`` matches no pod.
        namespaces: the names of the namespaces whose pods it matches.
        namespace_selector: selects additional namespaces by their labels.
    """

    __slots__ = (
        "_hash",
        "_incoming",
        "_picks",
        "namespace_selector",
        "namespaces",
        "selector",
        "topology_key",
    )

    def __init__(
        self,
        topology_key: str,
        selector: LabelSelector | None,
        namespaces: frozenset[str],
        namespace_selector: LabelSelector | None = None,
    ) -> None:
        self.topology_key = topology_key
        self.selector = selector
        self.namespaces = namespaces
        self.namespace_selector = namespace_selector
        self._hash = hash((topology_key, selector, namespaces, namespace_selector))
        self._incoming: BoundTerm | None = None
        self._picks: LabelMatcher | None = None

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, BoundTerm)
            and self._hash == other._hash
            and self.topology_key == other.topology_key
            and self.selector == other.selector
            and self.namespaces == other.namespaces
            and self.namespace_selector == other.namespace_selector
        )

    def __repr__(self) -> str:
        return f"BoundTerm({self.topology_key!r}, {self.selector}, {set(self.namespaces)}, {self.namespace_selector})"

    def matches(self, namespace: str, labels: Labels, namespace_labels: Labels) -> bool:
        """Return whether the term matches a pod with these labels in this namespace (``AffinityTerm.Matches``)."""
        listed = namespace in self.namespaces
        if not listed and self.namespace_selector is None:
            return False
        if self._picks is None:
            self._picks = label_matcher(self.selector)
        return self._picks(labels) and (listed or matches_labels(self.namespace_selector, namespace_labels))

    def key_sets(self) -> Iterator[Keys]:
        """Yield the alternative key sets by which the term can be indexed; none if it cannot be indexed.

        Every pod that the term matches has exactly one key of each set. The sets that usually match the fewest pods
        come first.
        """
        yield from selector_keys(self.selector)
        yield from namespace_keys(self.namespaces, self.namespace_selector)

    @property
    def first_keys(self) -> Keys | None:
        """Return the first of :meth:`key_sets`, or ``None`` if no requirement of the term can be indexed.

        It indexes terms where the number of pods per key is not known.
        """
        return next(self.key_sets(), None)

    @property
    def incoming(self) -> BoundTerm:
        """Return the term as kube-scheduler evaluates it for the pod being scheduled (:func:`as_incoming`)."""
        if self._incoming is None:
            self._incoming = self._as_incoming()
        return self._incoming

    def _as_incoming(self) -> BoundTerm:
        if self.namespace_selector is None or not matches_labels(self.namespace_selector, NO_LABELS):
            return self
        if self.namespace_selector == _EVERY:
            return self
        return BoundTerm(self.topology_key, self.selector, self.namespaces, _EVERY)


def bind(term: PodAffinityTerm, namespace: str) -> BoundTerm:
    """Resolve the namespaces to which an affinity term applies, for a pod in ``namespace``.

    If the term has neither namespaces nor a namespace selector, it applies to the pod's own namespace (framework
    ``getNamespacesFromPodAffinityTerm``).
    """
    if not term.namespaces and term.namespace_selector is None:
        namespaces = _only(namespace)
    else:
        namespaces = frozenset(term.namespaces)
    return BoundTerm(term.topology_key, term.selector, namespaces, term.namespace_selector)


@lru_cache(maxsize=4096)
def _only(namespace: str) -> frozenset[str]:
    """Return a set of one namespace. It is shared, because it needs twice as much memory as a term."""
    return frozenset((namespace,))


def as_incoming(term: BoundTerm) -> BoundTerm:
    """Return the term as kube-scheduler v1.36 evaluates it for the pod being scheduled.

    This evaluation deviates from the API definition. The scheduler resolves the namespace selector first and is meant
    to clear it afterwards, but clears it only in a copy (``mergeAffinityTermNamespacesIfNotEmpty``), and then evaluates
    it against empty labels. So a namespace selector that matches empty labels (NotIn and DoesNotExist only) selects
    every namespace. The scheduler evaluates terms of bound pods as defined.
    """
    return term.incoming


class TermsOf(Struct, frozen=True):
    """The affinity terms of a bound pod that affect where other pods are placed.

    Terms in ``anti`` (required anti-affinity) make nodes infeasible. Terms in ``drawing`` add their weight to the
    scores of nodes.
    """

    anti: tuple[BoundTerm, ...] = ()
    drawing: tuple[tuple[BoundTerm, int], ...] = ()


_REQUIRED: Final = 0
"""Placeholder for the weight of required affinity, which is configured per scheduler. The weights of preferred terms
are 1 to 100."""

HARD_POD_AFFINITY_WEIGHT: Final = 1
"""Weight of a bound pod's required affinity in scores (the default of ``hardPodAffinityWeight`` in kube-scheduler
v1.36)."""


def terms_of(pod: Pod) -> TermsOf:
    """Return the terms of a bound pod that affect where other pods are placed.

    Preferred anti-affinity has a negative weight.
    """
    affinity = pod.spec.affinity
    anti = tuple([bind(term, pod.namespace) for term in affinity.anti_required])
    if not (affinity.pod_required or affinity.pod_preferred or affinity.anti_preferred):
        return TermsOf(anti)
    drawing = [(bind(term, pod.namespace), _REQUIRED) for term in affinity.pod_required]
    drawing += [(bind(each.term, pod.namespace), each.weight) for each in affinity.pod_preferred]
    drawing += [(bind(each.term, pod.namespace), -each.weight) for each in affinity.anti_preferred]
    return TermsOf(anti, tuple(drawing))


def affinity_terms(pod: Pod) -> tuple[BoundTerm, ...]:
    """Return the pod's required affinity terms as kube-scheduler evaluates them when it schedules the pod."""
    return tuple(as_incoming(bind(term, pod.namespace)) for term in pod.spec.affinity.pod_required)


class CarriedTerm:
    """An affinity term of bound pods, with its weight and the keys by which it is indexed.

    ``counter`` contains the number of pods with this term in each topology domain.
    """

    __slots__ = ("counter", "keys", "term", "weight")

    def __init__(self, term: BoundTerm, weight: int, counter: DomainCounter, keys: Keys | None) -> None:
        self.term = term
        self.weight = weight
        self.counter = counter
        self.keys = keys


class CarriedTerms:
    """Indexes the terms of bound pods: either those that reject nodes, or those that add to scores.

    Args:
        nodes: the node table.
    """

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._known: dict[tuple[BoundTerm, int], CarriedTerm] = {}
        self._index: TermIndex[CarriedTerm] = TermIndex()

    def __len__(self) -> int:
        return len(self._known)

    def find(self, term: BoundTerm, weight: int) -> CarriedTerm | None:
        """Return the entry of a term, or ``None`` if no entry exists for this term and weight."""
        return self._known.get((term, weight))

    def make(self, term: BoundTerm, weight: int, keys: Keys | None) -> CarriedTerm:
        """Add an entry for a new term and return it.

        ``keys`` are the keys to index it by; ``None`` if it cannot be indexed.
        """
        counter = DomainCounter(self._nodes.column(term.topology_key))
        found = self._known[term, weight] = CarriedTerm(term, weight, counter, keys)
        self._index.add(keys, found)
        return found

    def drop(self, terms: Iterable[CarriedTerm]) -> None:
        """Remove the entries of terms that no bound pod has any longer."""
        terms = list(terms)
        for each in terms:
            del self._known[each.term, each.weight]
        self._index.remove((each.keys, each) for each in terms)

    def matching_terms(
        self, group: PodClass, keys: Iterable[Key], picks: Callable[[BoundTerm], bool]
    ) -> dict[DomainCounter, int]:
        """Return the counter and the weight of each term that matches a class of pods.

        Args:
            group: the class.
            keys: the class's keys (:func:`pod_keys`).
            picks: returns whether a term matches the class. It is called only for terms that may match.
        """
        near = self._index.near(keys, group.labels)
        return {each.counter: each.weight for each in near if picks(each.term)}


_SPARE: Final = 1000
"""The index is not rebuilt before more than this number of classes have no pods."""

_SPARE_COUNTERS: Final = 1024
"""The index is not rebuilt before it has more than this number of unused counters.

An unused counter is still updated for every pod that its terms match. With a smaller number, the terms of a tenant's
pending pods would cause a rebuild in nearly every plan, because the plans of one controller do not read the counters of
another one.
"""

_CHANGES: Final = 4096
"""Minimum number of changed anti-affinity counters that the index remembers
(:meth:`AffinityIndex.carriers_changed_since`).
"""

_SPARE_SIZE: Final = 1000
"""Neither classes nor counters are dropped before more than this number of labels, or values in selectors, are unused.

Fewer use at most a megabyte.
"""


_MAX_SELECTED: Final = 500_000
"""Maximum number of entries in the cached results of :meth:`AffinityIndex.selection`."""

_SELECTION_ROUNDS: Final = 64
"""A cached selection is dropped if this number of consecutive plans and validations did not use it.

The number is large because the descheduler plans less often than the autoscaler.
"""

_UNGROUPED: Final = 2
"""Maximum number of terms of a spec whose counters are updated one by one."""

_ROUNDS: Final = 2
"""A counter is considered unused if this number of consecutive plans and validations did not read it."""


class PodClass:
    """The pods of one namespace that have identical labels, and their number on each node slot.

    ``leaving`` contains the number of terminating pods on each slot. ``number`` numbers the classes in the order in
    which they were added, starting with 0.
    """

    __slots__ = (
        "against",
        "by_slot",
        "drawn",
        "labels",
        "leaving",
        "namespace",
        "namespace_labels",
        "number",
        "stay_watchers",
        "watchers",
    )

    def __init__(
        self, number: int, namespace: str, labels: Labels, namespace_labels: Labels, watchers: CountsByTopology
    ) -> None:
        self.number = number
        self.namespace = namespace
        self.namespace_labels = namespace_labels
        self.labels = labels
        self.by_slot: dict[int, int] = {}
        self.leaving: dict[int, int] | None = None  # most classes have no terminating pods
        self.watchers = watchers
        self.stay_watchers: list[SlotCounter] | None = None
        self.against: dict[DomainCounter, int] | None = None
        self.drawn: dict[DomainCounter, int] | None = None

    def matched_by(self, term: BoundTerm) -> bool:
        """Return whether a term matches the pods of the class."""
        return term.matches(self.namespace, self.labels, self.namespace_labels)

    def add_stay_watcher(self, counter: SlotCounter) -> None:
        """Add a counter that is updated for the pods of the class that are not terminating."""
        if self.stay_watchers is None:
            self.stay_watchers = []
        self.stay_watchers.append(counter)


class _SharedCounts:
    """The counts of pods that several terms share as long as they match the same classes.

    So the cost of moving a pod depends on the number of different sets of classes, and not on the number of terms. A
    tenant can write hundreds of terms that match all pods.

    Attributes:
        topology: the topology key.
        counts: the counts.
        classes: the classes that the terms match, in the order in which they were added to the index.
        code: the sum of the hashes of their numbers.
        counters: the counters of the terms.
    """

    __slots__ = ("classes", "code", "counters", "counts", "topology")

    def __init__(self, topology: TopologyKey, counts: DomainCounts, classes: list[PodClass]) -> None:
        self.topology = topology
        self.counts = counts
        self.classes = classes
        self.code = sum(hash((group.number,)) for group in classes)
        self.counters: list[DomainCounter] = []

    def add_counter(self) -> DomainCounter:
        """Return a new counter with these counts."""
        counter = DomainCounter(self.topology, self.counts)
        self.counters.append(counter)
        return counter

    @property
    def key(self) -> _SharingKey:
        """Return a key, which is equal for equal topology keys and classes, and rarely equal for others."""
        return self.topology, len(self.classes), self.code


_SharingKey = tuple[TopologyKey, int, int]


class _Sharing:
    """Finds the counts of terms by the classes that they match."""

    def __init__(self) -> None:
        self._of_counts: dict[int, _SharedCounts] = {}  # by the id of the counts, which it keeps alive
        self._by_key: dict[_SharingKey, _SharedCounts] = {}

    def counter(self, topology: TopologyKey, classes: list[PodClass]) -> DomainCounter:
        """Return a counter of the pods of these classes."""
        shared = _SharedCounts(topology, DomainCounts(), classes)
        known = self._by_key.get(shared.key)
        if known is not None and known.classes == classes:
            return known.add_counter()
        for group in classes:
            group.watchers.append(topology, shared.counts)
            for slot, number in group.by_slot.items():
                domain = topology.ids.item(slot)
                if domain >= 0:
                    shared.counts.add(domain, number)
        self._add(shared)
        return shared.add_counter()

    def add_class(self, group: PodClass, counters: Iterable[DomainCounter]) -> None:
        """Add a new class, which has no pods yet, to the classes that these counters count."""
        matching: dict[int, list[DomainCounter]] = {}
        for counter in counters:
            matching.setdefault(id(counter.counts), []).append(counter)
        for number, found in matching.items():
            shared = self._of_counts[number]
            if len(found) < len(shared.counters):
                shared = self._split(shared, found)
            elif self._by_key.get(shared.key) is shared:
                del self._by_key[shared.key]
            shared.classes.append(group)
            shared.code += hash((group.number,))
            group.watchers.append(shared.topology, shared.counts)
            self._add(shared)

    def _split(self, shared: _SharedCounts, counters: list[DomainCounter]) -> _SharedCounts:
        """Give some of the counters that share counts their own counts."""
        split = _SharedCounts(shared.topology, DomainCounts(shared.counts), list(shared.classes))
        for group in split.classes:
            group.watchers.append(split.topology, split.counts)
        leaving = set(map(id, counters))
        shared.counters = [each for each in shared.counters if id(each) not in leaving]
        split.counters = counters
        for counter in counters:
            counter.counts = split.counts
        return split

    def _add(self, shared: _SharedCounts) -> None:
        self._of_counts[id(shared.counts)] = shared
        self._by_key.setdefault(shared.key, shared)


C = TypeVar("C")


class _UsedCounter(Generic[C]):
    """A counter, the sequence number of the plan or validation that last read it, and the size of its terms."""

    __slots__ = ("counter", "round", "size")

    def __init__(self, counter: C, round_: int, terms: Iterable[BoundTerm]) -> None:
        self.counter = counter
        self.round = round_
        self.size = sum(1 + _number_of_values(term.selector) for term in terms)


class _Selection:
    """The classes that a term selects among the first ``known`` classes of the index.

    ``round`` is the sequence number of the plan or validation that last used the selection.
    """

    __slots__ = ("classes", "known", "round")

    def __init__(self, classes: tuple[PodClass, ...], known: int, round_: int) -> None:
        self.classes = classes
        self.known = known
        self.round = round_


class _TermsOfSpec:
    """The affinity terms that all pods with one namespace and spec share.

    The counters are created when the first of these pods is bound. Most specs have one or two terms, whose counters
    need no grouping by topology key.
    """

    __slots__ = ("counted", "grouped", "incoming", "pods", "repelled", "round", "spec", "terms")

    def __init__(self, spec: PodSpec, terms: TermsOf) -> None:
        self.spec = spec  # keeps the spec alive, so that its id is not reused
        self.terms = terms
        self.counted: tuple[CarriedTerm, ...] | None = None
        self.grouped: CountsByTopology | None = None
        self.incoming: tuple[BoundTerm, ...] | None = None
        self.repelled: tuple[DomainCounter, ...] = ()
        self.round = -1  # of ``repelled``
        self.pods = 0

    @property
    def anti(self) -> Iterator[DomainCounter]:
        """Return the counters of the required anti-affinity terms."""
        return (each.counter for each in (self.counted or ())[: len(self.terms.anti)])


class AffinityIndex:
    """Counts pods per topology domain or node: pods that match selectors or terms, and pods that have terms themselves.

    Args:
        nodes: the node table.
        namespace_labels: returns the labels of a namespace by name, for namespace selectors.
    """

    def __init__(self, nodes: NodeTable, namespace_labels: Callable[[str], Labels]) -> None:
        self._nodes = nodes
        self._namespace_labels = namespace_labels
        self._classes: dict[tuple[str, Labels], PodClass] = {}
        self._class_index: PodIndex[PodClass] = PodIndex()
        self._matching: dict[tuple[tuple[BoundTerm, ...], str], _UsedCounter[DomainCounter]] = {}
        self._watches: TermIndex[tuple[tuple[BoundTerm, ...], DomainCounter]] = TermIndex()
        self._sharing = _Sharing()
        self._staying: dict[BoundTerm | tuple[BoundTerm, ...], _UsedCounter[SlotCounter]] = {}
        self._stay_watches: TermIndex[tuple[BoundTerm, SlotCounter]] = TermIndex()
        self._repelling = CarriedTerms(nodes)
        self._changed_carriers: list[DomainCounter] = []
        self._forgotten_changes = 0
        self._drawing = CarriedTerms(nodes)
        self._carrying: dict[tuple[str, int], _TermsOfSpec] = {}
        self._selections: dict[BoundTerm, _Selection] = {}
        self._equal_selections: dict[tuple[PodClass, ...], tuple[PodClass, ...]] = {}
        self._selected = 0
        """Total number of classes in the tuples of ``_equal_selections``."""
        self._empty = 0
        self._round = 0
        self._reclaimed = 0
        """The value of ``_round`` at the last call of :meth:`forget_removed`."""
        self._unused = 0
        self._specs = 0
        """Number of entries in ``_carrying`` that have bound pods."""
        self._idle: set[tuple[str, int]] = set()
        """The keys of the entries in ``_carrying`` whose terms have counters but no longer any pods."""

    def overgrown(self, pending: int) -> bool:
        """Return whether most of the index belongs to deleted pods.

        Such data accumulates because every rollout adds pods with a new template hash label.

        The index itself never removes a class. Its owner must drop and rebuild the index when this method returns true.

        Args:
            pending: the number of pods that are not bound. Each of them may have a class without bound pods, and terms
                of its own, which the next plan would add again.
        """
        classes, terms = len(self._classes), len(self._repelling) + len(self._drawing)
        return (
            self._empty - pending > max(_SPARE, classes // 2)
            or len(self._carrying) > 2 * (classes + self._specs + pending) + _SPARE
            or self._unused > max(_SPARE_COUNTERS, classes + terms)
        )

    def is_stale(self, waiting: Container[tuple[str, Labels]]) -> bool:
        """Return whether more than a fifth of the classes belong to deleted pods, so that a rebuild is worthwhile.

        Args:
            waiting: the namespaces and labels of the pods that are not bound.
        """
        if not self._empty:
            return False
        labels = sum(1 + len(group.labels) for group in self._classes.values())
        empty = (key[1] for key, group in self._classes.items() if not group.by_slot and key not in waiting)
        return sum(1 + len(each) for each in empty) > max(_SPARE_SIZE, labels // 5)

    def forget_removed(self, used: Set[int]) -> AffinityIndex:
        """Drop the terms of specs that no pod has any longer, and the counters if many of them are no longer read.

        Call this method only between plans.

        Args:
            used: the ids of the specs that existing pods have.

        Returns:
            The index to use from now on: a new one if counters were dropped. Callers that keep counters between plans
            compare the index in any case, because it is sometimes rebuilt.
        """
        self._carrying = {key: each for key, each in self._carrying.items() if each.pods or key[1] in used}
        counters: list[_UsedCounter[Any]] = [*self._matching.values(), *self._staying.values()]
        unused = sum(each.size for each in counters if each.round < self._reclaimed)
        self._reclaimed = self._round
        if unused <= max(_SPARE_SIZE, sum(each.size for each in counters) // 5):
            return self
        made = copy(self)  # with the same classes
        made.drop_counters()
        return made

    def drop_counters(self) -> None:
        """Drop the counters of pods that match selectors or terms. They are created again when they are read.

        Counters that callers still have are not updated afterwards.
        """
        self._matching, self._watches, self._sharing = {}, TermIndex(), _Sharing()
        self._staying, self._stay_watches = {}, TermIndex()
        self._unused = 0
        for carried in self._carrying.values():
            carried.repelled, carried.round = (), -1
        for group in self._classes.values():
            group.watchers, group.stay_watchers = CountsByTopology(self._nodes), None

    def prune(self) -> None:
        """Remove the terms that no bound pod has any longer, so that their counters are no longer updated.

        Call this method only between plans.
        """
        self._round += 1
        if self._round % _ROUNDS == 0:
            recent = self._round - _ROUNDS
            self._unused = sum(each.round < recent for each in self._matching.values())
            self._unused += sum(each.round < recent for each in self._staying.values())
            self._drop_selections(before=self._round - _SELECTION_ROUNDS)
        if not self._idle:
            return
        idle = [self._carrying.pop(key) for key in self._idle]
        self._idle.clear()
        live = {id(term) for each in self._carrying.values() for term in each.counted or ()}
        gone = {id(term): term for each in idle for term in each.counted or () if id(term) not in live}
        for kind in (self._repelling, self._drawing):
            dropped = [term for term in gone.values() if kind.find(term.term, term.weight) is term]
            for term in dropped:
                for group in self._class_index.near(term.keys):
                    known = group.against if kind is self._repelling else group.drawn
                    if known is not None:
                        known.pop(term.counter, None)
            kind.drop(dropped)

    def add_all(self, placed: Iterable[tuple[Pod, int]]) -> None:
        """Add pods, each with its slot, to an empty index."""
        with_terms = []
        classes = self._classes
        for pod, slot in placed:
            group = classes.get((pod.namespace, pod.labels)) or self.pod_class(pod.namespace, pod.labels)
            if pod.spec.affinity.has_pod_terms:
                with_terms.append((pod, group, slot))
            else:
                self._count_labels(pod, group, slot, 1)
        for pod, group, slot in with_terms:  # after all classes, so that terms are indexed by their rarest key
            self._count_labels(pod, group, slot, 1)
            self._count_terms(pod, slot, 1)

    def count(self, pod: Pod, slot: int, amount: int) -> None:
        """Add a pod on a slot (``amount`` 1) or remove it (-1)."""
        self._count_labels(pod, self.pod_class(pod.namespace, pod.labels), slot, amount)
        if pod.spec.affinity.has_pod_terms:
            self._count_terms(pod, slot, amount)

    def count_move(self, pod: Pod, old: int, new: int) -> None:
        """Move a pod from slot ``old`` to slot ``new``; -1 means no node."""
        group = self.pod_class(pod.namespace, pod.labels)
        has_terms = pod.spec.affinity.has_pod_terms
        for slot, amount in ((old, -1), (new, 1)):
            if slot >= 0:
                self._count_labels(pod, group, slot, amount)
                if has_terms:
                    self._count_terms(pod, slot, amount)

    def _count_labels(self, pod: Pod, group: PodClass, slot: int, amount: int) -> None:
        was_empty = not group.by_slot
        _add(group.by_slot, slot, amount)
        self._empty += (not group.by_slot) - was_empty
        group.watchers.add(slot, amount)
        if pod.deleted is not None:
            if group.leaving is None:
                group.leaving = {}
            _add(group.leaving, slot, amount)
        elif group.stay_watchers is not None:
            for counter in group.stay_watchers:
                counter.add(slot, amount)

    def pod_class(self, namespace: str, labels: Labels) -> PodClass:
        """Return the class of the pods in a namespace with exactly these labels. Create the class if necessary.

        A new class is matched against the terms that have counters.
        """
        key = (namespace, labels)
        found = self._classes.get(key)
        if found is None:
            namespace_labels = self._namespace_labels(namespace)
            keys = pod_keys(namespace, labels, namespace_labels)
            found = PodClass(len(self._classes), namespace, labels, namespace_labels, CountsByTopology(self._nodes))
            self._classes[key] = found
            self._empty += 1
            self._class_index.add(keys, labels, found)
            if self._watches or self._stay_watches:
                self._watch(found, keys)
        return found

    def _watch(self, group: PodClass, keys: list[Key]) -> None:
        """Find the counters whose terms match a new class."""
        watches = self._watches.near(keys, group.labels)
        self._sharing.add_class(group, [counter for terms, counter in watches if all(map(group.matched_by, terms))])
        for term, stay_counter in self._stay_watches.near(keys, group.labels):
            # a counter of several terms is found once for each of them that may match
            if group.matched_by(term) and stay_counter not in (group.stay_watchers or ()):
                group.add_stay_watcher(stay_counter)

    def matching(self, terms: tuple[BoundTerm, ...], topology_key: str) -> DomainCounter:
        """Return a counter, per domain of ``topology_key``, of the pods that match all ``terms``.

        The counter is updated with every later change.
        """
        key = (terms, topology_key)
        found = self._matching.get(key)
        if found is not None:
            found.round = self._round
            return found.counter
        keys = self._rarest(terms)
        classes = [group for group in self._class_index.near(keys) if all(map(group.matched_by, terms))]
        classes.sort(key=lambda group: group.number)
        counter = self._sharing.counter(self._nodes.column(topology_key), classes)
        self._matching[key] = _UsedCounter(counter, self._round, terms)
        self._watches.add(keys, (terms, counter))
        return counter

    def staying(self, namespace: str, selector: LabelSelector | None) -> SlotCounter:
        """Return a counter, per node, of the non-terminating pods in a namespace that match the selector.

        The counter is updated when pods change. It counts pods as topology spread does (kube-scheduler v1.36
        ``countPodsMatchSelector``).
        """
        term = BoundTerm("", selector, frozenset((namespace,)))
        return self._count_staying(term, (term,))

    def staying_any(self, namespace: str, selectors: Iterable[LabelSelector]) -> SlotCounter:
        """Return a counter, per node, of the non-terminating pods in a namespace that match any of the selectors.

        The counter is updated when pods change. A pod that matches several selectors is counted once.
        """
        terms = tuple(dict.fromkeys(BoundTerm("", selector, frozenset((namespace,))) for selector in selectors))
        return self._count_staying(terms[0] if len(terms) == 1 else terms, terms)

    def _count_staying(self, key: BoundTerm | tuple[BoundTerm, ...], terms: tuple[BoundTerm, ...]) -> SlotCounter:
        """Return the counter of the non-terminating pods that match at least one of the terms.

        It is cached under ``key``.
        """
        found = self._staying.get(key)
        if found is not None:
            found.round = self._round
            return found.counter
        counter = SlotCounter()
        self._staying[key] = _UsedCounter(counter, self._round, terms)
        matching: dict[int, PodClass] = {}
        for term in terms:
            keys = self._rarest((term,))
            self._stay_watches.add(keys, (term, counter))
            matching |= {id(group): group for group in self._class_index.near(keys) if group.matched_by(term)}
        for group in matching.values():
            group.add_stay_watcher(counter)
            for slot, number in group.by_slot.items():
                staying = number - (0 if group.leaving is None else group.leaving.get(slot, 0))
                if staying:
                    counter.add(slot, staying)
        return counter

    def terminating(self, namespace: str, selector: LabelSelector | None) -> Counter[int]:
        """Return the number of terminating pods in a namespace that match the selector, by slot."""
        found: Counter[int] = Counter()
        for group in self.picked(BoundTerm("", selector, frozenset((namespace,)))):
            found.update(group.leaving or {})
        return found

    def picked(self, term: BoundTerm) -> Iterator[PodClass]:
        """Yield the classes of pods that match a term."""
        for group in self._class_index.near(self._rarest((term,))):
            if group.matched_by(term):
                yield group

    def selection(self, term: BoundTerm) -> tuple[PodClass, ...]:
        """Return the classes of pods that match a term. The result is cached.

        Terms that match the same classes get the same tuple.
        """
        found = self._selections.get(term)
        if found is None or found.known < len(self._classes):
            found = self._selections[term] = self._select(term, found)
        found.round = self._round
        return found.classes

    def _select(self, term: BoundTerm, known: _Selection | None) -> _Selection:
        number = len(self._classes)
        if known is None:
            classes = tuple(sorted(self.picked(term), key=lambda group: group.number))
        else:
            added = islice(self._classes.values(), known.known, None)
            classes = (*known.classes, *(group for group in added if group.matched_by(term)))
        if classes not in self._equal_selections:
            if self._selected > _MAX_SELECTED:
                self._drop_selections(before=self._round + 1)
            self._selected += len(classes)
        return _Selection(self._equal_selections.setdefault(classes, classes), number, self._round)

    def _drop_selections(self, *, before: int) -> None:
        self._selections = {term: each for term, each in self._selections.items() if each.round >= before}
        self._equal_selections = {each.classes: each.classes for each in self._selections.values()}
        self._selected = sum(map(len, self._equal_selections))

    def carriers_against(self, pod: Pod) -> KeysView[DomainCounter]:
        """Return a counter for each anti-affinity term of bound pods that matches ``pod``.

        The counter contains the number of pods that have the term, per topology domain.
        """
        group = self.pod_class(pod.namespace, pod.labels)
        if group.against is None:
            group.against = self._matching_terms(self._repelling, group)
        return group.against.keys()

    @property
    def classes(self) -> ValuesView[PodClass]:
        """Return all classes of pods, in the order in which they were added."""
        return self._classes.values()

    @property
    def carrier_changes(self) -> int:
        """Return how many times a counter of required anti-affinity terms has changed since the index was built."""
        return self._forgotten_changes + len(self._changed_carriers)

    def carriers_changed_since(self, number: int) -> Sequence[DomainCounter] | None:
        """Return the counters of required anti-affinity terms that have changed since a given :attr:`carrier_changes`.

        Args:
            number: the earlier value of :attr:`carrier_changes`.

        Returns:
            The counters in the order of their changes, possibly with duplicates, or ``None`` if the index no longer
            remembers all of these changes.
        """
        if number < self._forgotten_changes:
            return None
        return self._changed_carriers[number - self._forgotten_changes :]

    def carriers_drawing(
        self, pod: Pod, hard_weight: int = HARD_POD_AFFINITY_WEIGHT
    ) -> list[tuple[DomainCounter, int]]:
        """Return the counter and the weight of each term of bound pods that matches ``pod`` and affects scores.

        These are terms of preferred affinity (positive weight), preferred anti-affinity (negative weight) and required
        affinity.

        Args:
            pod: the pod.
            hard_weight: the weight of required affinity.
        """
        group = self.pod_class(pod.namespace, pod.labels)
        if group.drawn is None:
            group.drawn = self._matching_terms(self._drawing, group)
        return [(counter, weight or hard_weight) for counter, weight in group.drawn.items()]

    def _matching_terms(self, carried: CarriedTerms, group: PodClass) -> dict[DomainCounter, int]:
        keys = pod_keys(group.namespace, group.labels, group.namespace_labels)
        return carried.matching_terms(group, keys, group.matched_by)

    def carried_terms(self, pod: Pod) -> tuple[BoundTerm, ...]:
        """Return the pod's own required anti-affinity terms, with resolved namespaces.

        The result contains the same objects for all pods of a template.
        """
        return self._carried(pod).terms.anti

    def incoming_affinity(self, pod: Pod) -> tuple[BoundTerm, ...]:
        """Return the pod's required affinity terms (:func:`affinity_terms`), cached.

        The result contains the same objects for all pods of a template.
        """
        carried = self._carried(pod)
        if carried.incoming is None:
            carried.incoming = affinity_terms(pod)
        return carried.incoming

    def repelled_by(self, pod: Pod) -> Sequence[DomainCounter]:
        """Return a counter for each of the pod's own required anti-affinity terms, of the pods that the term matches.

        They are looked up once per plan, because a pod with many terms may be evaluated many times.
        """
        carried = self._carried(pod)
        if carried.round != self._round:
            terms = carried.terms.anti
            carried.repelled = tuple([self.matching((as_incoming(term),), term.topology_key) for term in terms])
            carried.round = self._round
        return carried.repelled

    def _carried(self, pod: Pod) -> _TermsOfSpec:
        key = (pod.namespace, id(pod.spec))
        found = self._carrying.get(key)
        if found is None:
            found = self._carrying[key] = _TermsOfSpec(pod.spec, terms_of(pod))
        return found

    def _count_terms(self, pod: Pod, slot: int, amount: int) -> None:
        carried = self._carried(pod)
        counted = carried.counted
        if counted is None:
            counted = self._start_counting(carried)
        carried.pods += amount
        if not carried.pods:
            self._specs -= 1
            self._idle.add((pod.namespace, id(pod.spec)))
        elif carried.pods == amount:
            self._specs += 1
            self._idle.discard((pod.namespace, id(pod.spec)))
        if carried.grouped is not None:
            carried.grouped.add(slot, amount)
        else:
            for each in counted:
                each.counter.add(slot, amount)
        self._changed_carriers.extend(carried.anti)
        if len(self._changed_carriers) > 2 * _CHANGES:
            self._forgotten_changes += len(self._changed_carriers) - _CHANGES
            del self._changed_carriers[:-_CHANGES]

    def _start_counting(self, carried: _TermsOfSpec) -> tuple[CarriedTerm, ...]:
        terms = carried.terms
        counted = [self._counted(self._repelling, term, 1) for term in terms.anti]
        if terms.drawing:
            counted += [self._counted(self._drawing, term, weight) for term, weight in terms.drawing]
        if len(counted) > _UNGROUPED:
            carried.grouped = CountsByTopology(self._nodes)
            for each in counted:
                carried.grouped.append(each.counter.topology, each.counter.counts)
        carried.counted = tuple(counted)
        return carried.counted

    def _counted(self, carried: CarriedTerms, term: BoundTerm, weight: int) -> CarriedTerm:
        """Return the entry of a term. A new term is added and matched against the existing classes."""
        found = carried.find(term, weight)
        if found is None:
            keys = self._rarest((term,))
            found = carried.make(term, weight, keys)
            for group in self._class_index.near(keys):
                known = group.against if carried is self._repelling else group.drawn
                if known is not None and group.matched_by(term):
                    known[found.counter] = weight
        return found

    def _rarest(self, terms: tuple[BoundTerm, ...]) -> Keys | None:
        """Return the key set that narrows down the classes matching all terms the most (:meth:`PodIndex.rarest`)."""
        options = chain.from_iterable(term.key_sets() for term in terms)
        absent = chain.from_iterable(absent_keys(term.selector) for term in terms)
        return self._class_index.rarest(options, absent)


def _number_of_values(selector: LabelSelector | None) -> int:
    if selector is None:
        return 0
    return len(selector.match_labels) + sum(1 + len(each.values) for each in selector.match_expressions)


def _add(numbers: dict[int, int], slot: int, amount: int) -> None:
    number = numbers.get(slot, 0) + amount
    if number:
        numbers[slot] = number
    else:
        del numbers[slot]
