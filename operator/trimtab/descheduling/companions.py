"""Which placed pods are with the pods that their pod affinity asks for, and who of them another pod's going would hurt.

Pods of one spec, namespace and set of labels ask the same and are asked about together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np
from msgspec import Struct, field

from trimtab.cluster.affinity import AffinityIndex
from trimtab.cluster.carried import by_labels
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.terms import BoundTerm, affinity_terms, bind
from trimtab.descheduling.aversions import Present, index_of_leaving, present
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Pod

Kind = tuple[str, int, Labels]
"""Namespace, identity of the spec, labels."""


class Liking(Struct, frozen=True):
    """A preferred term: whom it picks, its weight, and whether it picks the pods that state it."""

    term: BoundTerm
    picked: Present
    weight: int
    itself: bool

    def unmet(self, slot: int, own: int) -> bool:
        """Whether nobody that it picks is around a slot, ``own`` pods there not counted."""
        return self.picked.at(slot) - own <= 0


class Asking(Struct):
    """Pods that ask the same.

    Attributes:
        required: the required terms; a pod answers them only if it satisfies all.
        answers: pods that satisfy all of them, per domain of each term's topology key.
        itself: whether the pods that ask answer each other.
        likings: the preferred terms.
        pods: those that are placed, by ``namespace/name`` with their slots; not those at their end or on their way out.
    """

    required: tuple[BoundTerm, ...]
    answers: tuple[Present, ...]
    itself: bool
    likings: tuple[Liking, ...]
    pods: dict[str, int] = field(default_factory=dict)

    def violated(self, slot: int) -> bool:
        """Whether the required terms do not hold for a pod of these in a slot, as the scheduler would judge it there.

        Pods on their way out still answer: they do to the scheduler. The first pod of those that answer each other may
        be anywhere where all topology labels are.
        """
        if not self.answers:
            return False
        domains = [int(each.all.topology.ids[slot]) for each in self.answers]
        if min(domains) < 0:
            return True
        pairs = zip(self.answers, domains, strict=True)
        if all(each.all.counts.get(domain, 0) > self.itself for each, domain in pairs):
            return False
        return not self.itself or any(each.all.total > 1 for each in self.answers)

    def missing(self, slot: int) -> int:
        """The weight of the preferred terms that nobody meets for a pod of these in a slot."""
        return sum(each.weight for each in self.likings if each.unmet(slot, _own(each, slot)))


def _own(liking: Liking, slot: int) -> int:
    return int(liking.itself and liking.picked.all.topology.ids[slot] >= 0)


class Companions:
    """All pods that ask for others.

    Args:
        snapshot: the picture; who moves pods on it says so (:meth:`moved`).
        required: whether required terms are looked at.
        preferred: whether preferred ones are.
    """

    def __init__(self, snapshot: Snapshot, *, required: bool, preferred: bool) -> None:
        self._snapshot = snapshot
        self._required = required
        self._preferred = preferred
        self._leaving: AffinityIndex | None = index_of_leaving(snapshot) if snapshot.any_pod_affinity else None
        self.kinds: dict[Kind, Asking] = {}
        self._by_pair: defaultdict[tuple[str, str] | None, list[Asking]] = defaultdict(list)
        self._asking_for: dict[tuple[str, Labels], tuple[Asking, ...]] = {}
        for key, pod in snapshot.pods.items() if snapshot.any_pod_affinity else ():
            slot = snapshot.slot(pod)
            if slot is not None and self.asks(pod) and not pod.terminal and pod.deleted is None:
                self.of(pod).pods[key] = slot

    def asks(self, pod: Pod) -> bool:
        """Whether the pod states a term that is looked at."""
        affinity = pod.spec.affinity
        return bool((self._required and affinity.pod_required) or (self._preferred and affinity.pod_preferred))

    def of(self, pod: Pod) -> Asking:
        """What a pod that :meth:`asks` asks for."""
        key = (pod.namespace, id(pod.spec), pod.labels)  # the snapshot holds the specs of its pods
        found = self.kinds.get(key)
        if found is None:
            found = self.kinds[key] = self._read(pod)
            pairs = {each.term.pair for each in found.likings} | {each.pair for each in found.required[:1]}
            for pair in pairs:
                self._by_pair[pair].append(found)
            self._asking_for.clear()
        return found

    def moved(self, before: Pod, after: Pod) -> None:
        """Take note of a move."""
        if self.asks(before):
            pods = self.of(before).pods
            if before.key in pods:
                pods[before.key] = self._snapshot.nodes.slot_of[after.node]

    def asking_for(self, pod: Pod) -> tuple[Asking, ...]:
        """Those some of whose terms pick the pod."""
        key = (pod.namespace, pod.labels)
        found = self._asking_for.get(key)
        if found is None:
            picked = self._picked(pod)
            # By a label that every match must carry: thousands of kinds ask for one other each.
            near = {id(asking): asking for asking in by_labels(self._by_pair, pod.labels)}
            found = self._asking_for[key] = tuple(
                asking
                for asking in near.values()
                if (asking.required and all(map(picked, asking.required)))
                or any(picked(each.term) for each in asking.likings)
            )
        return found

    def score(self, askings: Iterable[Asking]) -> tuple[int, int]:
        """Pods whose required terms do not hold, and the weight of preferred terms that nobody meets."""
        violated, missing = 0, 0
        for asking in askings:
            for slot in asking.pods.values():
                violated += asking.violated(slot)
                missing += asking.missing(slot) if asking.likings else 0
        return violated, missing

    def places(self, pod: Pod) -> BoolArray:
        """Where pods that stay answer the pod's required terms, itself aside: bool, shape (nodes.capacity,)."""
        asking, nodes = self.of(pod), self._snapshot.nodes
        home = nodes.slot_of[pod.node]
        found: BoolArray = nodes.used.copy()
        for each in asking.answers:
            ids = each.all.topology.ids
            own = ids[home] if asking.itself else -1
            found &= (ids >= 0) & (each.by_slot() - ((ids == own) & (ids >= 0)) > 0)
        return found

    def weights(self, pod: Pod) -> tuple[IntArray, IntArray]:
        """What the pod would miss of its preferences on each node, and the weight of all that it would find there.

        The latter once for each pod that a term picks, as kube-scheduler's score has it. Both int64, shape
        (nodes.capacity,); the pod itself is not counted.
        """
        nodes = self._snapshot.nodes
        home = nodes.slot_of[pod.node]
        missing, found = (np.zeros(nodes.capacity, dtype=np.int64) for _ in range(2))
        for each in self.of(pod).likings:
            ids = each.picked.all.topology.ids
            number = each.picked.by_slot()
            if each.itself and ids[home] >= 0:
                number = number - (ids == ids[home])
            missing += each.weight * (number <= 0)
            found += each.weight * number
        return missing, found

    def hurt(self, pod: Pod) -> tuple[BoolArray, IntArray]:
        """Where the pod must not go for others' sake, and the weight that others would miss: both by slot.

        Never less than it comes to: those whom the pod's coming would help are not counted.

        Returns:
            bool, shape (nodes.capacity,): where required terms of some pod would hold no longer; int64, same shape.
        """
        nodes = self._snapshot.nodes
        forbidden: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
        missing: IntArray = np.zeros(nodes.capacity, dtype=np.int64)
        picked = self._picked(pod)
        for asking in self.asking_for(pod):
            if asking.required and all(map(picked, asking.required)):
                for each in asking.answers:
                    forbidden |= self._forsaken(pod, asking, each)
            for liking in asking.likings:
                if picked(liking.term):
                    left, elsewhere = self._left(pod, asking, liking.picked, liking.itself)
                    if left:
                        missing += liking.weight * left * elsewhere
        return forbidden, missing

    def _forsaken(self, pod: Pod, asking: Asking, answers: Present) -> BoolArray:
        nodes, ids = self._snapshot.nodes, answers.all.topology.ids
        if ids[nodes.slot_of[pod.node]] < 0:
            forbidden: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
            if asking.itself and answers.all.total == 1:  # who was the first of a series would be so no longer
                for key, slot in asking.pods.items():
                    if key != pod.key:
                        forbidden |= (ids >= 0) & (ids != ids[slot])
            return forbidden
        left, elsewhere = self._left(pod, asking, answers, asking.itself)
        return elsewhere if left else np.zeros(nodes.capacity, dtype=np.bool_)

    def _left(self, pod: Pod, asking: Asking, picked: Present, itself: bool) -> tuple[int, BoolArray]:
        """How many others of these have only this pod around them, and the slots from where it would not be."""
        nodes, ids = self._snapshot.nodes, picked.all.topology.ids
        home = nodes.slot_of[pod.node]
        elsewhere: BoolArray = ids != ids[home]
        if ids[home] < 0 or picked.at(home) - itself > 1:
            return 0, elsewhere
        there = (slot for key, slot in asking.pods.items() if key != pod.key)
        return sum(bool(ids[slot] == ids[home]) for slot in there), elsewhere

    def _picked(self, pod: Pod) -> _Picks:
        return _Picks(pod, self._snapshot.namespace_labels(pod.namespace))

    def _read(self, pod: Pod) -> Asking:
        affinity = pod.spec.affinity
        picks = self._picked(pod)
        required = affinity_terms(pod) if self._required else ()
        likings = ((bind(each.term, pod.namespace), each.weight) for each in affinity.pod_preferred)
        return Asking(
            required=required,
            answers=tuple(self._answers(required)),
            itself=bool(required) and all(map(picks, required)),
            likings=tuple(
                Liking(term, present(self._snapshot, self._leaving, term), weight, picks(term))
                for term, weight in (likings if self._preferred else ())
            ),
        )

    def _answers(self, terms: tuple[BoundTerm, ...]) -> Iterator[Present]:
        index, leaving = self._snapshot.affinity, self._leaving
        for key in dict.fromkeys(term.topology_key for term in terms):
            yield Present(index.matching(terms, key), None if leaving is None else leaving.matching(terms, key))


class _Picks:
    """Whether terms pick one pod."""

    def __init__(self, pod: Pod, namespace_labels: Labels) -> None:
        self._pod = pod
        self._namespace_labels = namespace_labels

    def __call__(self, term: BoundTerm) -> bool:
        return term.matches(self._pod.namespace, self._pod.labels, self._namespace_labels)
