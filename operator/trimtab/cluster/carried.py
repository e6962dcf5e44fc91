"""The affinity terms that placed pods carry: per term and topology domain, how many carry it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from trimtab.cluster.nodes import NodeTable
from trimtab.cluster.terms import BoundTerm
from trimtab.cluster.topology import DomainCounter
from trimtab.kube.frozen import Labels

Pair = tuple[str, str]
T = TypeVar("T")


class CarriedTerms:
    """Terms of one kind (those that repel, those that draw), each with its weight and its carriers.

    Args:
        nodes: the node slots.
    """

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._counters: dict[tuple[BoundTerm, int], DomainCounter] = {}
        self._by_pair: defaultdict[Pair | None, list[tuple[BoundTerm, int]]] = defaultdict(list)

    def find(self, term: BoundTerm, weight: int) -> DomainCounter | None:
        """The carriers of a term, ``None`` where it was never seen."""
        return self._counters.get((term, weight))

    def make(self, term: BoundTerm, weight: int) -> DomainCounter:
        """A counter for a term that was never seen."""
        found = self._counters[term, weight] = DomainCounter(self._nodes.column(term.topology_key))
        self._by_pair[term.pair].append((term, weight))
        return found

    def that_pick(self, labels: Labels, picks: Callable[[BoundTerm], bool]) -> list[tuple[DomainCounter, int]]:
        """The terms that pick a class of pods, as their carriers and weights.

        Args:
            labels: of the class.
            picks: whether a term picks it, asked only of terms that may.
        """
        return [
            (self._counters[term, weight], weight) for term, weight in by_labels(self._by_pair, labels) if picks(term)
        ]


def by_labels(index: Mapping[Pair | None, list[T]], labels: Labels) -> Iterator[T]:
    """What is filed under one of the labels, and under none."""
    yield from index.get(None, ())
    for pair in labels.items():
        yield from index.get(pair, ())
