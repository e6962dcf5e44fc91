"""Pods that required anti-affinity forbids to be together, as a graph that is never written out.

A term in one topology domain joins everyone who carries it there with everyone it picks there. Writing out the pairs
would take the square of their number (ten thousand pods of one app in a zone: fifty million); the two lists do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from trimtab.cluster.affinity import AffinityIndex
from trimtab.cluster.resources import IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.terms import BoundTerm
from trimtab.cluster.topology import DomainCounter
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Pod


class Clash(Struct):
    """One anti-affinity term in one topology domain, with at least one pair of pods that it forbids.

    Attributes:
        term: the term.
        value: the domain: the value of the term's topology key.
        carriers: pods there that state the term, by ``namespace/name``.
        picked: pods there that the term picks; a pod may be both.
    """

    term: BoundTerm
    value: str
    carriers: set[str]
    picked: set[str]

    def others(self, key: str) -> Iterator[str]:
        """The pods that one pod is joined with; those joined by both sides come twice."""
        if key in self.carriers:
            yield from (other for other in self.picked if other != key)
        if key in self.picked:
            yield from (other for other in self.carriers if other != key)

    def degree(self, key: str) -> int:
        """How many :meth:`others` there are."""
        both = key in self.carriers and key in self.picked
        return (
            (len(self.picked) if key in self.carriers else 0)
            + (len(self.carriers) if key in self.picked else 0)
            - 2 * both
        )


class Conflicts:
    """All clashes of a snapshot, and which pods are in them.

    Only pods that run or start are in conflict: neither those that have ended nor those on their way out. Whether a
    policy looks at them does not matter.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.clashes = list(find_clashes(snapshot))
        self._of: dict[str, list[Clash]] = {}
        for clash in self.clashes:
            for key in sorted(clash.carriers | clash.picked):
                self._of.setdefault(key, []).append(clash)

    def degree(self, key: str) -> int:
        """How many rules of how many pods the pod's presence breaks; 0 for a pod without conflicts."""
        return sum(clash.degree(key) for clash in self._of.get(key, ()))

    def neighbours(self, key: str) -> set[str]:
        """The pods in conflict with a pod."""
        return {other for clash in self._of.get(key, ()) for other in clash.others(key)}

    def broken(self, key: str) -> list[Clash]:
        """The clashes that a pod is in."""
        return [clash for clash in self._of.get(key, ()) if clash.degree(key)]

    def remove(self, key: str) -> None:
        """Take out a pod that has been moved to where it is in no conflict."""
        for clash in self._of.pop(key, ()):
            clash.carriers.discard(key)
            clash.picked.discard(key)

    def components(self) -> list[list[str]]:
        """Pods that are joined, directly or through others: what is done in one does not matter to another.

        In the order in which the clashes were found, which is that of node names.
        """
        found: list[list[str]] = []
        seen: set[str] = set()
        for start in self._of:
            if start in seen:
                continue
            seen.add(start)
            component, todo = [], [start]
            while todo:
                key = todo.pop()
                component.append(key)
                for clash in self._of[key]:
                    fresh = (clash.carriers | clash.picked) - seen
                    seen |= fresh
                    todo.extend(sorted(fresh))
            found.append(component)
        return found

    def pairs(self) -> set[frozenset[str]]:
        """Every pair of pods in conflict, written out: for tests and small clusters."""
        return {
            frozenset((key, other)) for clash in self.clashes for key in clash.carriers for other in clash.others(key)
        }


class _Rule(Struct):
    """A term as pods of one spec and one set of labels carry it."""

    term: BoundTerm
    domains: IntArray
    matching: DomainCounter
    picks_itself: bool


def required_terms(snapshot: Snapshot, pod: Pod) -> tuple[BoundTerm, ...]:
    """The pod's required anti-affinity, bound."""
    return snapshot.affinity.carried_terms(pod) if pod.spec.affinity.anti_required else ()


def find_clashes(
    snapshot: Snapshot, terms_of: Callable[[Snapshot, Pod], tuple[BoundTerm, ...]] = required_terms
) -> Iterator[Clash]:
    """The clashes of all terms, in an order that depends on names only.

    Args:
        snapshot: the picture.
        terms_of: the terms of a pod that count; preferred ones are none that forbid, but they clash as well.
    """
    if not (snapshot.any_anti_affinity if terms_of is required_terms else snapshot.any_pod_affinity):
        return
    index = snapshot.affinity
    rules: dict[tuple[str, int, Labels], list[_Rule]] = {}
    carriers: dict[tuple[BoundTerm, int], set[str]] = {}
    for slot in snapshot.nodes.order().tolist():
        for pod in snapshot.pods_on(snapshot.nodes.node(slot).name):
            if not pod.spec.affinity.of_pods or not in_conflict(pod):
                continue
            key = (pod.namespace, id(pod.spec), pod.labels)
            if key not in rules:
                rules[key] = list(_rules(snapshot, index, pod, terms_of(snapshot, pod)))
            for rule in rules[key]:
                domain = int(rule.domains[slot])
                # The counter also has pods on their way out; the lists made below have not.
                if domain >= 0 and rule.matching.counts.get(domain, 0) > rule.picks_itself:
                    carriers.setdefault((rule.term, domain), set()).add(pod.key)
    for (term, domain), carrying in carriers.items():
        picked = {pod.key for pod in _picked(snapshot, index, term, domain)}
        if len(carrying | picked) > 1 and picked and (len(picked) > 1 or picked != carrying):
            yield Clash(term, snapshot.nodes.column(term.topology_key).values[domain], carrying, picked)


def in_conflict(pod: Pod) -> bool:
    """Whether a pod counts: it has not ended and is not going."""
    return not pod.terminal and pod.deleted is None


def _rules(snapshot: Snapshot, index: AffinityIndex, pod: Pod, terms: Iterable[BoundTerm]) -> Iterable[_Rule]:
    labels = snapshot.namespace_labels(pod.namespace)
    for term in terms:
        yield _Rule(
            term=term,
            domains=snapshot.nodes.column(term.topology_key).ids,
            matching=index.matching((term,), term.topology_key),
            picks_itself=term.matches(pod.namespace, pod.labels, labels),
        )


def _picked(snapshot: Snapshot, index: AffinityIndex, term: BoundTerm, domain: int) -> Iterator[Pod]:
    ids = snapshot.nodes.column(term.topology_key).ids
    for group in index.picked(term):
        for slot in group.by_slot:
            if ids[slot] != domain:
                continue
            for pod in snapshot.pods_on(snapshot.nodes.node(slot).name):
                if pod.namespace == group.namespace and pod.labels == group.labels and in_conflict(pod):
                    yield pod
