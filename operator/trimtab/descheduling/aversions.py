"""How much placed pods would rather not be together: preferred anti-affinity, counted as the scheduler counts it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from trimtab.cluster.affinity import AffinityIndex
from trimtab.cluster.resources import IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.terms import BoundTerm, bind
from trimtab.cluster.topology import DomainCounter
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Pod


class Present(Struct, frozen=True):
    """Pods per topology domain, but for those on their way out: these are soon no one's neighbours."""

    all: DomainCounter
    leaving: DomainCounter | None

    def at(self, slot: int) -> int:
        """How many are in the domain of a slot; 0 where the node lacks the label."""
        return self.all.at(slot) - (0 if self.leaving is None else self.leaving.at(slot))

    def by_slot(self) -> IntArray:
        """The same of all slots: int64, shape (capacity,)."""
        found = self.all.by_slot()
        return found if self.leaving is None else found - self.leaving.by_slot()


def index_of_leaving(snapshot: Snapshot) -> AffinityIndex | None:
    """An index of the pods on their way out alone, ``None`` where there are none. They stay where they are."""
    leaving = [pod for pod in snapshot.pods.values() if pod.deleted is not None and not pod.terminal]
    if not leaving:
        return None
    index = AffinityIndex(snapshot.nodes, snapshot.namespace_labels)
    for pod in leaving:
        slot = snapshot.slot(pod)
        if slot is not None:
            index.count(pod, slot, 1)
    return index


class Stated(Struct, frozen=True):
    """One preferred anti-affinity term of a pod: whom it picks, what each weighs, and whether the pod itself."""

    picked: Present
    weight: int
    itself: bool


class Aversions:
    """The weight that a pod's presence costs: what it has against those around it, and they against it.

    Counted once for each pair of pods and term, as kube-scheduler counts when it scores nodes: what is moved to where
    this is less is not sent back for it. Moving a pod changes the cluster's sum by exactly what its own cost changes.

    Args:
        snapshot: the picture; moves on it are seen at once.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._leaving = index_of_leaving(snapshot)
        self._stated: dict[tuple[str, int, Labels], tuple[Stated, ...]] = {}

    def concerns(self, pod: Pod) -> bool:
        """Whether the pod's place matters to anyone; cheap."""
        if not self._snapshot.any_pod_affinity:
            return False
        return bool(pod.spec.affinity.anti_preferred) or any(True for _ in self._against(pod))

    def here(self, pod: Pod) -> int:
        """What the pod costs where it is, 0 for nothing."""
        slot = self._snapshot.nodes.slot_of[pod.node]
        cost = sum(weight * counter.at(slot) for counter, weight in self._against(pod))
        for stated in self._of(pod):
            cost += stated.weight * stated.picked.at(slot)
            if stated.itself and stated.picked.all.topology.ids[slot] >= 0:
                cost -= 2 * stated.weight  # it was counted as picked and as carrier
        return cost

    def everywhere(self, pod: Pod) -> IntArray:
        """What the pod would cost on each node: int64, shape (nodes.capacity,)."""
        nodes = self._snapshot.nodes
        slot = nodes.slot_of[pod.node]
        cost = np.zeros(nodes.capacity, dtype=np.int64)
        for counter, weight in self._against(pod):
            cost += weight * counter.by_slot()
        for stated in self._of(pod):
            cost += stated.weight * stated.picked.by_slot()
            ids = stated.picked.all.topology.ids
            if stated.itself and ids[slot] >= 0:
                cost[ids == ids[slot]] -= 2 * stated.weight
        return cost

    def total(self) -> int:
        """The sum over all pods that state something."""
        found = 0
        for pod in self._snapshot.pods.values():
            if pod.spec.affinity.anti_preferred and not pod.terminal and pod.deleted is None:
                slot = self._snapshot.slot(pod)
                if slot is None:
                    continue
                for stated in self._of(pod):
                    own = stated.itself and stated.picked.all.topology.ids[slot] >= 0
                    found += stated.weight * (stated.picked.at(slot) - own)
        return found

    def _against(self, pod: Pod) -> Iterator[tuple[DomainCounter, int]]:
        """The carriers of terms that would rather not be with the pod, and what each term weighs."""
        for counter, weight in self._snapshot.affinity.carriers_drawing(pod):
            if weight < 0 and counter.total:
                yield counter, -weight
        if self._leaving is not None:
            for counter, weight in self._leaving.carriers_drawing(pod):
                if weight < 0:
                    yield counter, weight  # they were counted above and will not stay

    def _of(self, pod: Pod) -> tuple[Stated, ...]:
        if not pod.spec.affinity.anti_preferred:
            return ()
        key = (pod.namespace, id(pod.spec), pod.labels)  # the snapshot holds the specs of its pods
        found = self._stated.get(key)
        if found is None:
            labels = self._snapshot.namespace_labels(pod.namespace)
            found = self._stated[key] = tuple(
                Stated(
                    present(self._snapshot, self._leaving, term),
                    each.weight,
                    term.matches(pod.namespace, pod.labels, labels),
                )
                for each in pod.spec.affinity.anti_preferred
                for term in (bind(each.term, pod.namespace),)
            )
        return found


def present(snapshot: Snapshot, leaving: AffinityIndex | None, *terms: BoundTerm) -> Present:
    """The pods that all of the terms pick, per domain of the first one's topology key."""
    key = terms[0].topology_key
    return Present(snapshot.affinity.matching(terms, key), None if leaving is None else leaving.matching(terms, key))


def preferred_terms(snapshot: Snapshot, pod: Pod) -> tuple[BoundTerm, ...]:
    """The pod's preferred anti-affinity, bound; see :func:`trimtab.descheduling.conflicts.find_clashes`."""
    del snapshot
    return tuple(bind(each.term, pod.namespace) for each in pod.spec.affinity.anti_preferred)
