"""Pods around a node that the pod's affinity, or theirs, speaks against."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import ClassVar

import numpy as np

from trimtab.cluster.resources import IntArray
from trimtab.cluster.terms import BoundTerm, as_incoming, terms_of
from trimtab.kube.objects import Node, Pod
from trimtab.placement.remedies.costs import MOVE, MOVE_EACH
from trimtab.placement.remedies.framework import NEVER, Case, Costs, Step
from trimtab.placement.remedies.victims import MOST, clear


class EvictNeighbours:
    """The pods go that must not be together with this one, whoever of them says so.

    They may be on other nodes of the same zone. Only a few are looked for: where there are more, a node that has none
    is cheaper.
    """

    reason: ClassVar = "EvictNeighbours"
    rules: ClassVar = frozenset(("InterPodAffinity",))
    evicts: ClassVar = True

    def bound(self, case: Case, rule: str) -> Costs | float:
        """By how many there are."""
        del rule
        numbers = [counter for _, counter in _against(case)]
        if not numbers:
            return NEVER
        most: IntArray = np.maximum.reduce(numbers)  # a pod may be named by several terms
        return np.where((most > 0) & (most <= MOST), MOVE + MOVE_EACH * most, NEVER)

    def steps(self, case: Case, node: Node, rule: str) -> Iterator[Step]:
        """One step."""
        del rule
        slot = case.snapshot.nodes.slot_of[node.name]
        victims: dict[str, Pod] = {}
        there: Counter[str] = Counter()
        for topology_key, numbers in _against(case):
            if 0 < numbers[slot] <= MOST:
                there[topology_key] += int(numbers[slot])
        for topology_key, number in there.items():  # a pod that several terms name is counted by each of them
            clashing = (pod for pod in _around(case, slot, topology_key) if _clash(case, pod))
            victims |= {pod.key: pod for pod in islice(clashing, number)}
        step = clear(case, node, victims.values(), reason=self.reason, why="required anti-affinity keeps them apart")
        if step:
            yield step


def _against(case: Case) -> list[tuple[str, IntArray]]:
    """For each term that may speak against nodes, its topology key and how many pods there are per slot."""
    index = case.snapshot.affinity
    found = []
    for term in index.carried_terms(case.pod) if case.pod.spec.affinity.anti_required else ():
        counter = index.matching((as_incoming(term),), term.topology_key)
        found.append((term.topology_key, counter.by_slot()))
    carriers = (counter for counter in index.carriers_against(case.pod) if counter.total)
    return found + [(counter.topology.key, counter.by_slot()) for counter in carriers]


def _around(case: Case, slot: int, topology_key: str) -> Iterator[Pod]:
    """The pods of the nodes of the slot's domain, the slot's own first; whoever asks stops when it has all it wants."""
    nodes = case.snapshot.nodes
    domains = nodes.column(topology_key).ids
    others = np.flatnonzero(nodes.used & (domains == domains[slot])).tolist()
    for there in (slot, *(other for other in others if other != slot)):
        yield from (pod for pod in case.snapshot.pods_on(nodes.node(there).name) if not pod.terminal)


def _clash(case: Case, other: Pod) -> bool:
    mine = (as_incoming(term) for term in terms_of(case.pod).anti)
    theirs = terms_of(other).anti if other.spec.affinity.anti_required else ()
    return any(_picks(case, term, other) for term in mine) or any(_picks(case, term, case.pod) for term in theirs)


def _picks(case: Case, term: BoundTerm, pod: Pod) -> bool:
    return term.matches(pod.namespace, pod.labels, case.snapshot.namespace_labels(pod.namespace))
