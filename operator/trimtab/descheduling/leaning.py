"""Moved pods with required pod affinity: later moves must not take away what they were moved to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from msgspec import Struct

from trimtab.api.reasons import NO_IMPROVEMENT
from trimtab.cluster.carried import by_labels
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.terms import BoundTerm, affinity_terms
from trimtab.disruption.refusal import Refusal
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer


class Kind(Struct, eq=False):
    """Moved pods of one namespace and spec, which lean on the same pods.

    Attributes:
        terms: the required terms; who is picked by any of them is leant on.
        pods: their keys, by their places in the order of moves.
    """

    terms: tuple[BoundTerm, ...]
    pods: dict[int, str]


class Leaning:
    """Who of the moved pods leans on whom.

    Asked at every move, so pods are filed by what they lean on: in a cluster where every pod states pod affinity, to
    look through all that have moved would take the square of their number.

    Args:
        placer: of the plan's snapshot.
    """

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self._snapshot: Snapshot = placer.snapshot
        self._pods: list[Pod] = []
        self._kinds: dict[tuple[str, int], Kind] = {}
        self._by_pair: defaultdict[tuple[str, str] | None, list[tuple[BoundTerm, Kind]]] = defaultdict(list)
        self._leaning_on: dict[tuple[str, Labels], tuple[Kind, ...]] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def add(self, pod: Pod) -> None:
        """Take note of a pod that was moved; without required pod affinity it leans on nobody."""
        if pod.spec.affinity.pod_required:
            self._kind(pod).pods[len(self._pods)] = pod.key
            self._pods.append(pod)

    def cut(self, length: int) -> None:
        """Forget those that were added last, so that ``length`` are left."""
        while len(self._pods) > length:
            pod = self._pods.pop()
            del self._kind(pod).pods[len(self._pods)]

    def reserve(self, pod: Pod, slot: int) -> Pod | Refusal:
        """The pod in its new place, unless somebody who was moved before leans on it where it is."""
        if not self._pods:
            return self._placer.reserve(pod, slot)
        mark = self._snapshot.mark()
        moved = self._placer.reserve(pod, slot)
        abandoned = self.abandoned(moved)
        if abandoned is None:
            self._snapshot.commit(mark)
            return moved
        self._snapshot.undo(mark)
        text = f"{abandoned} was moved to where its pod affinity finds this pod, and must not be left alone"
        return Refusal(reason=NO_IMPROVEMENT, message=text)

    def abandoned(self, moved: Pod) -> str | None:
        """The first of those that lean on a pod and would not fit any more where they are; the pod is where it goes."""
        there = {place: key for kind in self._leaning_on_it(moved) for place, key in kind.pods.items()}
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
        """Whether the pod could be put where it is."""
        slot = self._snapshot.nodes.slot_of[pod.node]
        mark = self._snapshot.mark()
        fits = bool(self._placer.feasible(self._placer.lift(pod))[slot])
        self._snapshot.undo(mark)
        return fits

    def _kind(self, pod: Pod) -> Kind:
        key = (pod.namespace, id(pod.spec))  # the pods are held, and so are their specs
        found = self._kinds.get(key)
        if found is None:
            found = self._kinds[key] = Kind(affinity_terms(pod), {})
            for term in found.terms:
                self._by_pair[term.pair].append((term, found))
            self._leaning_on.clear()
        return found

    def _leaning_on_it(self, pod: Pod) -> tuple[Kind, ...]:
        key = (pod.namespace, pod.labels)
        found = self._leaning_on.get(key)
        if found is None:
            picking = {id(kind): kind for kind in self._picking(pod)}
            found = self._leaning_on[key] = tuple(picking.values())
        return found

    def _picking(self, pod: Pod) -> Iterator[Kind]:
        labels = self._snapshot.namespace_labels(pod.namespace)
        for term, kind in by_labels(self._by_pair, pod.labels):
            if term.matches(pod.namespace, pod.labels, labels):
                yield kind
