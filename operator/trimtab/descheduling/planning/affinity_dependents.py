"""Tracks moved pods with required pod affinity, so that later moves do not break their affinity."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from trimtab.api.reasons import NO_IMPROVEMENT
from trimtab.cluster.affinity import BoundTerm, affinity_terms
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.term_index import TermIndex, pod_keys
from trimtab.disruption.outcome import Refusal
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer


class DependentGroup(Struct, eq=False):
    """Pods with the same namespace and spec that the plan moves. Their pod affinity selects the same pods.

    Attributes:
        terms: the required terms. The moved pods depend on every pod that a term selects.
        pods: maps the index of each move to the key of the moved pod.
    """

    terms: tuple[BoundTerm, ...]
    pods: dict[int, str]


class AffinityDependents:
    """Finds the moved pods that depend on a pod through required pod affinity.

    Pods are indexed by their terms, because every move is checked. If every pod had pod affinity, scanning all moved
    pods would take quadratic time.

    Args:
        placer: the placer of the plan's snapshot.
    """

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self._snapshot: Snapshot = placer.snapshot
        self._pods: list[Pod] = []
        self._kinds: dict[tuple[str, int], DependentGroup] = {}
        self._by_term: TermIndex[tuple[BoundTerm, DependentGroup]] = TermIndex()
        self._leaning_on: dict[tuple[str, Labels], tuple[DependentGroup, ...]] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def add(self, pod: Pod) -> None:
        """Record a pod that the plan moves. A pod without required pod affinity is ignored."""
        if pod.spec.affinity.pod_required:
            self._kind(pod).pods[len(self._pods)] = pod.key
            self._pods.append(pod)

    def cut(self, length: int) -> None:
        """Remove the most recently added pods until ``length`` pods remain."""
        while len(self._pods) > length:
            pod = self._pods.pop()
            del self._kind(pod).pods[len(self._pods)]

    def reserve(self, pod: Pod, slot: int) -> Pod | Refusal:
        """Reserve the node at a slot for the pod, and return the moved pod.

        If that violates the required pod affinity of a pod that was moved before, a refusal is returned instead.
        """
        if not self._pods:
            return self._placer.reserve(pod, slot)
        mark = self._snapshot.mark()
        moved = self._placer.reserve(pod, slot)
        abandoned = self.abandoned(moved)
        if abandoned is None:
            self._snapshot.commit(mark)
            return moved
        self._snapshot.undo(mark)
        text = f"{abandoned}, whose required pod affinity selects this pod, is planned to move to a node near it"
        return Refusal(reason=NO_IMPROVEMENT, message=text)

    def abandoned(self, moved: Pod) -> str | None:
        """Return the key of the first moved pod that no longer fits its node because another pod has moved.

        Args:
            moved: the pod that has moved.

        Returns:
            The first such pod among those whose required pod affinity selects ``moved``; ``None`` if there is none.
        """
        there = {place: key for kind in self._dependents_of(moved) for place, key in kind.pods.items()}
        known: dict[tuple[str, int, Labels, str], bool] = {}
        for place in sorted(there):
            key = there[place]
            if key == moved.key:
                continue
            pod = self._snapshot.pods[key]
            alike = (pod.namespace, id(pod.spec), pod.labels, pod.node)
            fits = known.get(alike) if not pod.spec.volumes else None
            if fits is None:
                fits = known[alike] = self._fits(pod)
            if not fits:
                return key
        return None

    def _fits(self, pod: Pod) -> bool:
        """Return whether the pod's current node would still accept it."""
        slot = self._snapshot.nodes.slot_of[pod.node]
        mark = self._snapshot.mark()
        fits = bool(self._placer.feasible(self._placer.unbind(pod))[slot])
        self._snapshot.undo(mark)
        return fits

    def _kind(self, pod: Pod) -> DependentGroup:
        key = (pod.namespace, id(pod.spec))  # the pods are kept, so that the ids of their specs stay valid
        found = self._kinds.get(key)
        if found is None:
            found = self._kinds[key] = DependentGroup(affinity_terms(pod), {})
            for term in found.terms:
                self._by_term.add(term.first_keys, (term, found))
            self._leaning_on.clear()
        return found

    def _dependents_of(self, pod: Pod) -> tuple[DependentGroup, ...]:
        key = (pod.namespace, pod.labels)
        found = self._leaning_on.get(key)
        if found is None:
            picking = {id(kind): kind for kind in self._groups_selecting(pod)}
            found = self._leaning_on[key] = tuple(picking.values())
        return found

    def _groups_selecting(self, pod: Pod) -> Iterator[DependentGroup]:
        labels = self._snapshot.namespace_labels(pod.namespace)
        keys = pod_keys(pod.namespace, pod.labels, labels)
        for term, kind in self._by_term.near(keys, pod.labels):
            if term.matches(pod.namespace, pod.labels, labels):
                yield kind
