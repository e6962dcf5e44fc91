"""Which placed pods a selector or an affinity term picks, and which terms placed pods carry, kept incrementally.

Pods of equal labels in one namespace are one class; a term is matched against a class once, never against pods. Both
ways of looking, "which classes does this term pick" and "which terms pick this class", go through a label that every
match must carry, so thousands of owners with a term each do not cost the square of their number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from trimtab.cluster.carried import CarriedTerms, by_labels
from trimtab.cluster.nodes import NodeTable
from trimtab.cluster.terms import BoundTerm, TermsOf, terms_of
from trimtab.cluster.topology import DomainCounter, SlotCounter
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import LabelSelector, Pod, PodSpec

Pair = tuple[str, str]

_SPARE: Final = 1000
"""Classes without pods that are no trouble."""


class Counter(Protocol):
    """What counts the pods of the classes that it watches."""

    def add(self, slot: int, amount: int) -> None:
        """Count ``amount`` more (or less) pods on the node in ``slot``."""
        ...


class PodClass:
    """Pods of one namespace with the same labels, and how many of them each node slot holds.

    ``leaving`` are those of them that are being deleted already.
    """

    __slots__ = ("against", "by_slot", "drawn", "labels", "leaving", "namespace", "stay_watchers", "watchers")

    def __init__(self, namespace: str, labels: Labels) -> None:
        self.namespace = namespace
        self.labels = labels
        self.by_slot: dict[int, int] = {}
        self.leaving: dict[int, int] = {}
        self.watchers: list[Counter] = []
        self.stay_watchers: list[Counter] = []
        self.against: list[tuple[DomainCounter, int]] | None = None
        self.drawn: list[tuple[DomainCounter, int]] | None = None


class AffinityIndex:
    """Counters of pods that selectors and terms pick, and of pods that carry terms, per topology domain or node.

    Args:
        nodes: the node slots.
        namespace_labels: labels of a namespace by name, for namespace selectors.
    """

    def __init__(self, nodes: NodeTable, namespace_labels: Callable[[str], Labels]) -> None:
        self._nodes = nodes
        self._namespace_labels = namespace_labels
        self._classes: dict[tuple[str, Labels], PodClass] = {}
        self._classes_by_pair: defaultdict[Pair, list[PodClass]] = defaultdict(list)
        self._matching: dict[tuple[tuple[BoundTerm, ...], str], DomainCounter] = {}
        self._watches: defaultdict[Pair | None, list[tuple[tuple[BoundTerm, ...], DomainCounter]]] = defaultdict(list)
        self._staying: dict[BoundTerm, SlotCounter] = {}
        self._stay_watches: defaultdict[Pair | None, list[tuple[BoundTerm, SlotCounter]]] = defaultdict(list)
        self._repelling = CarriedTerms(nodes)
        self._drawing = CarriedTerms(nodes)
        self._terms_of: dict[tuple[str, int], tuple[PodSpec, TermsOf]] = {}
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
        _add(group.by_slot, slot, amount)
        self._empty += (not group.by_slot) - was_empty
        for counter in group.watchers:
            counter.add(slot, amount)
        if pod.deleted is not None:
            _add(group.leaving, slot, amount)
        else:
            for counter in group.stay_watchers:
                counter.add(slot, amount)
        if pod.spec.affinity.of_pods:
            terms = self._terms(pod)
            for term in terms.anti:
                self._count_term(self._repelling, term, 1, slot, amount)
            for term, weight in terms.drawing:
                self._count_term(self._drawing, term, weight, slot, amount)

    def pod_class(self, namespace: str, labels: Labels) -> PodClass:
        """The class of pods with these labels, made and matched against the known terms when first seen."""
        key = (namespace, labels)
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = PodClass(namespace, labels)
            self._empty += 1
            for pair in labels.items():
                self._classes_by_pair[pair].append(found)
            for terms, counter in by_labels(self._watches, labels):
                if self._all_match(terms, found):
                    found.watchers.append(counter)
            for term, stay_counter in by_labels(self._stay_watches, labels):
                if self._all_match((term,), found):
                    found.stay_watchers.append(stay_counter)
        return found

    def matching(self, terms: tuple[BoundTerm, ...], topology_key: str) -> DomainCounter:
        """Pods that every one of ``terms`` picks, per domain of ``topology_key``; kept up to date from then on."""
        key = (terms, topology_key)
        found = self._matching.get(key)
        if found is not None:
            return found
        counter = self._matching[key] = DomainCounter(self._nodes.column(topology_key))
        pair = next((term.pair for term in terms if term.pair is not None), None)
        self._watches[pair].append((terms, counter))
        for group in self._candidates(pair):
            if self._all_match(terms, group):
                group.watchers.append(counter)
                for slot, number in group.by_slot.items():
                    counter.add(slot, number)
        return counter

    def staying(self, namespace: str, selector: LabelSelector | None) -> SlotCounter:
        """Pods of a namespace that ``selector`` picks and that are not being deleted, per node; kept up to date.

        That is how topology spread counts (kube-scheduler v1.36 ``countPodsMatchSelector``).
        """
        term = BoundTerm("", selector, frozenset((namespace,)))
        found = self._staying.get(term)
        if found is not None:
            return found
        counter = self._staying[term] = SlotCounter()
        self._stay_watches[term.pair].append((term, counter))
        for group in self._candidates(term.pair):
            if self._all_match((term,), group):
                group.stay_watchers.append(counter)
                for slot, number in group.by_slot.items():
                    staying = number - group.leaving.get(slot, 0)
                    if staying:
                        counter.add(slot, staying)
        return counter

    def picked(self, term: BoundTerm) -> Iterator[PodClass]:
        """The classes that a term picks."""
        for group in self._candidates(term.pair):
            if self._all_match((term,), group):
                yield group

    def carriers_against(self, pod: Pod) -> list[DomainCounter]:
        """For each anti-affinity term on placed pods that picks ``pod``: how many carry it, per domain."""
        group = self.pod_class(pod.namespace, pod.labels)
        if group.against is None:
            group.against = self._repelling.that_pick(group.labels, lambda term: self._all_match((term,), group))
        return [counter for counter, _ in group.against]

    def carriers_drawing(self, pod: Pod) -> list[tuple[DomainCounter, int]]:
        """For each term of placed pods that picks ``pod`` and counts in scores: its carriers per domain, its weight.

        These are preferred affinity (weight above 0) and anti-affinity (below 0), and required affinity, which weighs 1
        (``hardPodAffinityWeight`` of kube-scheduler v1.36's default profile).
        """
        group = self.pod_class(pod.namespace, pod.labels)
        if group.drawn is None:
            group.drawn = self._drawing.that_pick(group.labels, lambda term: self._all_match((term,), group))
        return group.drawn

    def carried_terms(self, pod: Pod) -> tuple[BoundTerm, ...]:
        """The pod's bound anti-affinity terms, the same values for all pods of a template."""
        return self._terms(pod).anti

    def _terms(self, pod: Pod) -> TermsOf:
        key = (pod.namespace, id(pod.spec))
        found = self._terms_of.get(key)
        if found is None:
            found = self._terms_of[key] = (pod.spec, terms_of(pod))  # the spec is held: its id stays its own
        return found[1]

    def _count_term(self, carried: CarriedTerms, term: BoundTerm, weight: int, slot: int, amount: int) -> None:
        counter = carried.find(term, weight)
        if counter is None:
            counter = carried.make(term, weight)
            for group in self._candidates(term.pair):
                known = group.against if carried is self._repelling else group.drawn
                if known is not None and self._all_match((term,), group):
                    known.append((counter, weight))
        counter.add(slot, amount)

    def _candidates(self, pair: Pair | None) -> Iterable[PodClass]:
        """The classes that may carry a label; all of them without one."""
        return list(self._classes.values()) if pair is None else self._classes_by_pair.get(pair, ())

    def _all_match(self, terms: Iterable[BoundTerm], group: PodClass) -> bool:
        namespace_labels = self._namespace_labels(group.namespace)
        return all(term.matches(group.namespace, group.labels, namespace_labels) for term in terms)


def _add(numbers: dict[int, int], slot: int, amount: int) -> None:
    number = numbers.get(slot, 0) + amount
    if number:
        numbers[slot] = number
    else:
        del numbers[slot]
