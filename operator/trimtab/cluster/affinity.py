"""Who matches which affinity term in which topology domain, kept incrementally.

Pods of equal labels in one namespace are one class; a term is matched against a class once, never against pods. Both
ways of looking, "which classes does this term pick" and "which terms pick this class", go through a label that every
match must carry, so thousands of owners with a term each do not cost the square of their number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from trimtab.cluster.nodes import NodeTable
from trimtab.cluster.terms import BoundTerm, anti_affinity_terms
from trimtab.cluster.topology import DomainCounter, TopologyKey
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Pod, PodSpec

Pair = tuple[str, str]
T = TypeVar("T")

_SPARE: Final = 1000
"""Classes without pods that are no trouble."""


class PodClass:
    """Pods of one namespace with the same labels, and how many of them each node slot holds."""

    __slots__ = ("against", "by_slot", "labels", "namespace", "watchers")

    def __init__(self, namespace: str, labels: Labels) -> None:
        self.namespace = namespace
        self.labels = labels
        self.by_slot: dict[int, int] = {}
        self.watchers: list[DomainCounter] = []
        self.against: list[DomainCounter] | None = None


class AffinityIndex:
    """Counters per (term, topology domain): of pods that a term picks, and of pods that carry an anti-affinity term.

    Args:
        nodes: the node slots.
        namespace_labels: labels of a namespace by name, for namespace selectors.
    """

    def __init__(self, nodes: NodeTable, namespace_labels: Callable[[str], Labels]) -> None:
        self._nodes = nodes
        self._namespace_labels = namespace_labels
        self._classes: dict[tuple[str, Labels], PodClass] = {}
        self._classes_by_pair: defaultdict[Pair, list[PodClass]] = defaultdict(list)
        self._topologies: dict[str, TopologyKey] = {}
        self._matching: dict[tuple[tuple[BoundTerm, ...], str], DomainCounter] = {}
        self._watches: defaultdict[Pair | None, list[tuple[tuple[BoundTerm, ...], DomainCounter]]] = defaultdict(list)
        self._carrying: dict[BoundTerm, DomainCounter] = {}
        self._carried_by_pair: defaultdict[Pair | None, list[BoundTerm]] = defaultdict(list)
        self._terms_of: dict[tuple[str, int], tuple[PodSpec, tuple[BoundTerm, ...]]] = {}
        self._empty = 0

    @property
    def overgrown(self) -> bool:
        """Whether most of what is held is about pods that are gone: every rollout brings a label value of its own.

        The index never forgets a class or a term by itself; whoever holds it makes it anew when this is so.
        """
        classes = len(self._classes)
        return self._empty > max(_SPARE, classes // 2) or len(self._terms_of) > 2 * classes + _SPARE

    def count(self, pod: Pod, slot: int, amount: int) -> None:
        """Count a pod in (``amount`` 1) or out (-1) on the node in ``slot``."""
        group = self.pod_class(pod.namespace, pod.labels)
        was_empty = not group.by_slot
        number = group.by_slot.get(slot, 0) + amount
        if number:
            group.by_slot[slot] = number
        else:
            del group.by_slot[slot]
        self._empty += (not group.by_slot) - was_empty
        for counter in group.watchers:
            counter.add(slot, amount)
        if pod.spec.affinity.anti_required:
            for term in self.carried_terms(pod):
                self._carrier(term).add(slot, amount)

    def refresh(self, slot: int) -> None:
        """Read the slot's labels again; only while no pod is counted there."""
        for topology in self._topologies.values():
            topology.refresh(slot)

    def topology(self, key: str) -> TopologyKey:
        """The domains of a node label key."""
        found = self._topologies.get(key)
        if found is None:
            found = self._topologies[key] = TopologyKey(key, self._nodes)
        return found

    def pod_class(self, namespace: str, labels: Labels) -> PodClass:
        """The class of pods with these labels, made and matched against the known terms when first seen."""
        key = (namespace, labels)
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = PodClass(namespace, labels)
            self._empty += 1
            for pair in labels.items():
                self._classes_by_pair[pair].append(found)
            for terms, counter in self._by_labels(self._watches, labels):
                if self._all_match(terms, found):
                    found.watchers.append(counter)
        return found

    def matching(self, terms: tuple[BoundTerm, ...], topology_key: str) -> DomainCounter:
        """Pods that every one of ``terms`` picks, per domain of ``topology_key``; kept up to date from then on."""
        key = (terms, topology_key)
        found = self._matching.get(key)
        if found is not None:
            return found
        counter = self._matching[key] = DomainCounter(self.topology(topology_key))
        pair = next((term.pair for term in terms if term.pair is not None), None)
        self._watches[pair].append((terms, counter))
        for group in list(self._classes.values()) if pair is None else self._classes_by_pair.get(pair, ()):
            if self._all_match(terms, group):
                group.watchers.append(counter)
                for slot, number in group.by_slot.items():
                    counter.add(slot, number)
        return counter

    def picked(self, term: BoundTerm) -> Iterator[PodClass]:
        """The classes that a term picks."""
        pair = term.pair
        for group in list(self._classes.values()) if pair is None else self._classes_by_pair.get(pair, ()):
            if self._all_match((term,), group):
                yield group

    def carriers_against(self, pod: Pod) -> list[DomainCounter]:
        """For each anti-affinity term on placed pods that picks ``pod``: how many carry it, per domain."""
        group = self.pod_class(pod.namespace, pod.labels)
        if group.against is None:
            group.against = [
                self._carrying[term]
                for term in self._by_labels(self._carried_by_pair, pod.labels)
                if self._all_match((term,), group)
            ]
        return group.against

    def carried_terms(self, pod: Pod) -> tuple[BoundTerm, ...]:
        """The pod's bound anti-affinity terms, the same values for all pods of a template."""
        key = (pod.namespace, id(pod.spec))
        found = self._terms_of.get(key)
        if found is None:
            found = self._terms_of[key] = (pod.spec, anti_affinity_terms(pod))  # the spec is held: its id stays its own
        return found[1]

    def _carrier(self, term: BoundTerm) -> DomainCounter:
        found = self._carrying.get(term)
        if found is None:
            found = self._carrying[term] = DomainCounter(self.topology(term.topology_key))
            self._carried_by_pair[term.pair].append(term)
            for group in self._classes.values() if term.pair is None else self._classes_by_pair.get(term.pair, ()):
                if group.against is not None and self._all_match((term,), group):
                    group.against.append(found)
        return found

    def _all_match(self, terms: Iterable[BoundTerm], group: PodClass) -> bool:
        namespace_labels = self._namespace_labels(group.namespace)
        return all(term.matches(group.namespace, group.labels, namespace_labels) for term in terms)

    @staticmethod
    def _by_labels(index: Mapping[Pair | None, list[T]], labels: Labels) -> Iterator[T]:
        yield from index.get(None, ())
        for pair in labels.items():
            yield from index.get(pair, ())
