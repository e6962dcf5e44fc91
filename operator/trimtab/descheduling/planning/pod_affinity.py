"""Indexes of preferred anti-affinity and of required and preferred affinity, counted per topology domain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np
from msgspec import Struct, field

from trimtab.cluster.affinity import AffinityIndex, BoundTerm, affinity_terms, bind
from trimtab.cluster.node_table import DomainCounter
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.term_index import TermIndex, pod_keys
from trimtab.disruption.protections.causes import CauseGroup, EvictionCauses
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Pod


class DomainCounts(Struct, frozen=True):
    """The number of pods per topology domain, excluding terminating pods."""

    all: DomainCounter
    leaving: DomainCounter | None

    def at(self, slot: int) -> int:
        """Return the number of pods in the domain of a slot; 0 if the node does not have the topology label."""
        return self.all.at(slot) - (0 if self.leaving is None else self.leaving.at(slot))

    def by_slot(self) -> IntArray:
        """Return :meth:`at` for all slots: int64, shape (capacity,)."""
        found = self.all.by_slot()
        return found if self.leaving is None else found - self.leaving.by_slot()


def index_terminating_pods(snapshot: Snapshot) -> AffinityIndex | None:
    """Return an index of the terminating pods, whose nodes do not change during planning; ``None`` if none exist."""
    leaving = [pod for pod in snapshot.pods.values() if pod.deleted is not None and not pod.terminal]
    if not leaving:
        return None
    index = AffinityIndex(snapshot.nodes, snapshot.namespace_labels)
    for pod in leaving:
        slot = snapshot.slot(pod)
        if slot is not None:
            index.count(pod, slot, 1)
    return index


class AntiAffinityPreference(Struct, frozen=True):
    """A preferred anti-affinity term of a pod: the selected pods, its weight, and whether it selects the pod itself."""

    picked: DomainCounts
    weight: int
    selects_itself: bool


class SoftAntiAffinity:
    """Computes the preferred anti-affinity weight that a pod violates on a node.

    The weight includes the pod's own terms and other pods' terms that select it. A term is counted once for each pair
    of pods, as in kube-scheduler's scoring, so that the scheduler does not reverse a move to a lower weight. If a move
    changes a pod's weight, it changes the sum over the cluster by the same amount.

    If ``causes`` is set, terms of other pods are counted only if these pods may cause the pod's eviction.

    Args:
        snapshot: the cluster state, which includes planned moves. If ``causes`` is set, moves must be reported as well
            (:meth:`pod_moved`).
        causes: decides which pods may cause the eviction of which others; ``None`` if every pod may cause every
            eviction.
    """

    def __init__(self, snapshot: Snapshot, causes: EvictionCauses | None = None) -> None:
        self._snapshot = snapshot
        self._leaving = index_terminating_pods(snapshot)
        self._stated: dict[tuple[str, int, Labels], tuple[AntiAffinityPreference, ...]] = {}
        self._causes = causes
        self._kind_of: dict[str, CauseGroup] = {}
        self._carriers: defaultdict[str, dict[CauseGroup, AffinityIndex]] = defaultdict(dict)
        """The pods with preferred anti-affinity that are not terminating, by namespace and by the evictions they may
        cause.
        """
        self._crosses = False
        if causes is not None:
            for pod in snapshot.pods.values():
                if pod.spec.affinity.anti_preferred and not pod.terminal and pod.deleted is None:
                    self._count(pod, 1, causes)

    def pod_moved(self, before: Pod, after: Pod) -> None:
        """Count a planned move."""
        if self._causes is not None and before.key in self._kind_of:
            self._count(before, -1, self._causes)
            self._count(after, 1, self._causes)

    def _count(self, pod: Pod, amount: int, causes: EvictionCauses) -> None:
        slot = self._snapshot.nodes.slot_of.get(pod.node)
        if slot is None:
            return
        kind = self._kind_of.get(pod.key)
        if kind is None:
            kind = self._kind_of[pod.key] = causes.kind_of(pod)
            self._crosses |= kind.crosses
        index = self._carriers[pod.namespace].get(kind)
        if index is None:
            index = AffinityIndex(self._snapshot.nodes, self._snapshot.namespace_labels)
            self._carriers[pod.namespace][kind] = index
        index.count(pod, slot, amount)

    def affects(self, pod: Pod) -> bool:
        """Return whether a term of the pod, or a term that selects it, exists. The check is fast."""
        if not self._snapshot.any_pod_affinity:
            return False
        return bool(pod.spec.affinity.anti_preferred) or any(True for _ in self._terms_selecting(pod))

    def cost_here(self, pod: Pod) -> int:
        """Return the weight on the pod's current node; 0 if no term applies."""
        slot = self._snapshot.nodes.slot_of[pod.node]
        cost = sum(weight * counter.at(slot) for counter, weight in self._terms_selecting(pod))
        for stated in self._of(pod):
            cost += stated.weight * stated.picked.at(slot)
            if stated.selects_itself and stated.picked.all.topology.ids[slot] >= 0:
                cost -= 2 * stated.weight  # the pod itself was counted twice: as selected and as having the term
        return cost

    def cost_by_slot(self, pod: Pod) -> IntArray:
        """Return the weight that the pod would have on each node: int64, shape (nodes.capacity,)."""
        nodes = self._snapshot.nodes
        slot = nodes.slot_of[pod.node]
        cost = np.zeros(nodes.capacity, dtype=np.int64)
        for counter, weight in self._terms_selecting(pod):
            cost += weight * counter.by_slot()
        for stated in self._of(pod):
            cost += stated.weight * stated.picked.by_slot()
            ids = stated.picked.all.topology.ids
            if stated.selects_itself and ids[slot] >= 0:
                cost[ids == ids[slot]] -= 2 * stated.weight
        return cost

    def total_cost(self) -> int:
        """Return the sum of the violated preferred anti-affinity weight over all pods."""
        found = 0
        for pod in self._snapshot.pods.values():
            if pod.spec.affinity.anti_preferred and not pod.terminal and pod.deleted is None:
                slot = self._snapshot.slot(pod)
                if slot is None:
                    continue
                for stated in self._of(pod):
                    own = stated.selects_itself and stated.picked.all.topology.ids[slot] >= 0
                    found += stated.weight * (stated.picked.at(slot) - own)
        return found

    def _terms_selecting(self, pod: Pod) -> Iterator[tuple[DomainCounter, int]]:
        """Yield, for each term that selects this pod, a counter of the pods that have the term, and its weight."""
        if self._causes is not None:
            for index in self._causing(pod):
                for counter, weight in index.carriers_drawing(pod):
                    if weight < 0 and counter.counts:
                        yield counter, -weight
            return
        for counter, weight in self._snapshot.affinity.carriers_drawing(pod):
            if weight < 0 and counter.counts:
                yield counter, -weight
        if self._leaving is not None:
            for counter, weight in self._leaving.carriers_drawing(pod):
                if weight < 0:
                    yield counter, weight  # terminating pods were counted above

    def _causing(self, pod: Pod) -> Iterator[AffinityIndex]:
        """Yield indexes of the pods that may cause this pod's eviction."""
        groups = self._carriers.items() if self._crosses else ((pod.namespace, self._carriers.get(pod.namespace, {})),)
        for _, kinds in groups:
            yield from (index for kind, index in kinds.items() if kind.may_evict(pod.namespace, pod.priority))

    def _of(self, pod: Pod) -> tuple[AntiAffinityPreference, ...]:
        if not pod.spec.affinity.anti_preferred:
            return ()
        key = (pod.namespace, id(pod.spec), pod.labels)  # the snapshot keeps the specs, so ids stay valid
        found = self._stated.get(key)
        if found is None:
            labels = self._snapshot.namespace_labels(pod.namespace)
            found = self._stated[key] = tuple(
                AntiAffinityPreference(
                    present(self._snapshot, self._leaving, term),
                    each.weight,
                    term.matches(pod.namespace, pod.labels, labels),
                )
                for each in pod.spec.affinity.anti_preferred
                for term in (bind(each.term, pod.namespace),)
            )
        return found


def present(snapshot: Snapshot, leaving: AffinityIndex | None, *terms: BoundTerm) -> DomainCounts:
    """Return the number of pods that all ``terms`` select, per domain of the first term's topology key."""
    key = terms[0].topology_key
    return DomainCounts(
        snapshot.affinity.matching(terms, key), None if leaving is None else leaving.matching(terms, key)
    )


def preferred_terms(snapshot: Snapshot, pod: Pod) -> tuple[BoundTerm, ...]:
    """Return the pod's preferred anti-affinity terms, for :func:`~.anti_affinity_conflicts.find_conflicts`."""
    del snapshot
    return tuple(bind(each.term, pod.namespace) for each in pod.spec.affinity.anti_preferred)


Kind = tuple[str, int, Labels]
"""A key that pods with equal terms share: the namespace, the id of the spec, and the labels."""


class AffinityPreference(Struct, frozen=True):
    """A preferred affinity term: the selected pods, its weight, and whether it selects the pods that have the term."""

    term: BoundTerm
    picked: DomainCounts
    weight: int
    selects_itself: bool

    def unmet(self, slot: int, own: int) -> bool:
        """Return whether the domain of a slot contains no selected pods, not counting ``own`` of them."""
        return self.picked.at(slot) - own <= 0


class AffinityGroup(Struct):
    """Pods with equal affinity terms.

    Attributes:
        required: the required terms. A pod matches them only if it matches all of them.
        matches: the number of matching pods, per domain of each term's topology key.
        selects_itself: whether the pods of the group match the required terms themselves.
        preferences: the preferred terms.
        pods: the group's placed pods (``namespace/name`` to slot), excluding terminated and terminating ones.
    """

    required: tuple[BoundTerm, ...]
    matches: tuple[DomainCounts, ...]
    selects_itself: bool
    preferences: tuple[AffinityPreference, ...]
    pods: dict[str, int] = field(default_factory=dict)

    def violated(self, slot: int) -> bool:
        """Return whether the required terms are violated for a pod of the group on the node at a slot.

        The terms are evaluated as the scheduler does, so terminating pods still match. The first pod of a group that
        selects itself may be placed in any domain that has all topology labels.
        """
        if not self.matches:
            return False
        domains = [int(each.all.topology.ids[slot]) for each in self.matches]
        if min(domains) < 0:
            return True
        pairs = zip(self.matches, domains, strict=True)
        if all(each.all.counts.get(domain, 0) > self.selects_itself for each, domain in pairs):
            return False
        return not self.selects_itself or any(each.all.total > 1 for each in self.matches)

    def unmet_weight(self, slot: int) -> int:
        """Return the weight of the preferred terms that are not met for a pod of the group on the node at a slot."""
        return sum(each.weight for each in self.preferences if each.unmet(slot, _own_match(each, slot)))


def _own_match(preference: AffinityPreference, slot: int) -> int:
    return int(preference.selects_itself and preference.picked.all.topology.ids[slot] >= 0)


class PodAffinityIndex:
    """An index of all pods with pod affinity.

    Args:
        snapshot: the cluster state. Planned moves must be reported (:meth:`pod_moved`).
        required: whether to consider required terms.
        preferred: whether to consider preferred terms.
    """

    def __init__(self, snapshot: Snapshot, *, required: bool, preferred: bool) -> None:
        self._snapshot = snapshot
        self._required = required
        self._preferred = preferred
        self._leaving: AffinityIndex | None = index_terminating_pods(snapshot) if snapshot.any_pod_affinity else None
        self.groups: dict[Kind, AffinityGroup] = {}
        self._by_term: TermIndex[AffinityGroup] = TermIndex()
        self._groups_selecting: dict[tuple[str, Labels], tuple[AffinityGroup, ...]] = {}
        for key, pod in snapshot.pods.items() if snapshot.any_pod_affinity else ():
            slot = snapshot.slot(pod)
            if slot is not None and self.has_terms(pod) and not pod.terminal and pod.deleted is None:
                self.group_of(pod).pods[key] = slot

    def has_terms(self, pod: Pod) -> bool:
        """Return whether the pod has terms of the kinds that this index considers."""
        affinity = pod.spec.affinity
        return bool((self._required and affinity.pod_required) or (self._preferred and affinity.pod_preferred))

    def group_of(self, pod: Pod) -> AffinityGroup:
        """Return the group of a pod. :meth:`has_terms` must be true for the pod."""
        key = (pod.namespace, id(pod.spec), pod.labels)  # the snapshot keeps the specs, so ids stay valid
        found = self.groups.get(key)
        if found is None:
            found = self.groups[key] = self._read(pod)
            for keys in dict.fromkeys(
                (
                    *(each.term.first_keys for each in found.preferences),
                    *(each.first_keys for each in found.required[:1]),
                )
            ):
                self._by_term.add(keys, found)
            self._groups_selecting.clear()
        return found

    def pod_moved(self, before: Pod, after: Pod) -> None:
        """Count a planned move."""
        if self.has_terms(before):
            pods = self.group_of(before).pods
            if before.key in pods:
                pods[before.key] = self._snapshot.nodes.slot_of[after.node]

    def groups_selecting(self, pod: Pod) -> tuple[AffinityGroup, ...]:
        """Return the groups that have a term that selects the pod."""
        key = (pod.namespace, pod.labels)
        found = self._groups_selecting.get(key)
        if found is None:
            picked = self._matcher(pod)
            # Look up by labels that every match must have, because there may be thousands of groups.
            keys = pod_keys(pod.namespace, pod.labels, self._snapshot.namespace_labels(pod.namespace))
            near = {id(group): group for group in self._by_term.near(keys, pod.labels)}
            found = self._groups_selecting[key] = tuple(
                group
                for group in near.values()
                if (group.required and all(map(picked, group.required)))
                or any(picked(each.term) for each in group.preferences)
            )
        return found

    def score(self, groups: Iterable[AffinityGroup]) -> tuple[int, int]:
        """Return the number of pods with violated required terms, and the weight of unmet preferred terms.

        Both are summed over the given groups.
        """
        violated, missing = 0, 0
        for group in groups:
            for slot in group.pods.values():
                violated += group.violated(slot)
                missing += group.unmet_weight(slot) if group.preferences else 0
        return violated, missing

    def satisfying_nodes(self, pod: Pod) -> BoolArray:
        """Return the nodes where other pods match the pod's required terms: bool, shape (nodes.capacity,).

        Terminating pods are not counted.
        """
        group, nodes = self.group_of(pod), self._snapshot.nodes
        home = nodes.slot_of[pod.node]
        found: BoolArray = nodes.used.copy()
        for each in group.matches:
            ids = each.all.topology.ids
            own = ids[home] if group.selects_itself else -1
            found &= (ids >= 0) & (each.by_slot() - ((ids == own) & (ids >= 0)) > 0)
        return found

    def preference_weights(self, pod: Pod) -> tuple[IntArray, IntArray]:
        """Return two weights of the pod's preferred terms for each node: int64, shape (nodes.capacity,).

        The first is the total weight of unmet terms. The second is the weight of each term multiplied by the number of
        matching pods, as in kube-scheduler's score. The pod itself is not counted.
        """
        nodes = self._snapshot.nodes
        home = nodes.slot_of[pod.node]
        missing, found = (np.zeros(nodes.capacity, dtype=np.int64) for _ in range(2))
        for each in self.group_of(pod).preferences:
            ids = each.picked.all.topology.ids
            number = each.picked.by_slot()
            if each.selects_itself and ids[home] >= 0:
                number = number - (ids == ids[home])
            missing += each.weight * (number <= 0)
            found += each.weight * number
        return missing, found

    def harm_to_others(self, pod: Pod) -> tuple[BoolArray, IntArray]:
        """Return for each node how a move of the pod to it would affect the pod affinity of other pods.

        Returns:
            Two arrays of shape (nodes.capacity,). bool: whether a required term of another pod would be violated.
            int64: the preferred weight that other pods would lose. It may be too high but never too low, because pods
            that would gain weight are not considered.
        """
        nodes = self._snapshot.nodes
        forbidden: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
        missing: IntArray = np.zeros(nodes.capacity, dtype=np.int64)
        picked = self._matcher(pod)
        for group in self.groups_selecting(pod):
            if group.required and all(map(picked, group.required)):
                for each in group.matches:
                    forbidden |= self._required_harm(pod, group, each)
            for preference in group.preferences:
                if picked(preference.term):
                    left, elsewhere = self._pods_left_alone(pod, group, preference.picked, preference.selects_itself)
                    if left:
                        missing += preference.weight * left * elsewhere
        return forbidden, missing

    def _required_harm(self, pod: Pod, group: AffinityGroup, matches: DomainCounts) -> BoolArray:
        nodes, ids = self._snapshot.nodes, matches.all.topology.ids
        if ids[nodes.slot_of[pod.node]] < 0:
            forbidden: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
            if (
                group.selects_itself and matches.all.total == 1
            ):  # only the first pod of the group may be placed in any domain
                for key, slot in group.pods.items():
                    if key != pod.key:
                        forbidden |= (ids >= 0) & (ids != ids[slot])
            return forbidden
        left, elsewhere = self._pods_left_alone(pod, group, matches, group.selects_itself)
        return elsewhere if left else np.zeros(nodes.capacity, dtype=np.bool_)

    def _pods_left_alone(
        self, pod: Pod, group: AffinityGroup, picked: DomainCounts, selects_itself: bool
    ) -> tuple[int, BoolArray]:
        """Return the number of other pods of the group whose domain would contain no other selected pod if it moved.

        The second value marks the slots outside that domain.
        """
        nodes, ids = self._snapshot.nodes, picked.all.topology.ids
        home = nodes.slot_of[pod.node]
        elsewhere: BoolArray = ids != ids[home]
        if ids[home] < 0 or picked.at(home) - selects_itself > 1:
            return 0, elsewhere
        there = (slot for key, slot in group.pods.items() if key != pod.key)
        return sum(bool(ids[slot] == ids[home]) for slot in there), elsewhere

    def _matcher(self, pod: Pod) -> _TermMatcher:
        return _TermMatcher(pod, self._snapshot.namespace_labels(pod.namespace))

    def _read(self, pod: Pod) -> AffinityGroup:
        affinity = pod.spec.affinity
        picks = self._matcher(pod)
        required = affinity_terms(pod) if self._required else ()
        preferences = ((bind(each.term, pod.namespace), each.weight) for each in affinity.pod_preferred)
        return AffinityGroup(
            required=required,
            matches=tuple(self._matches(required)),
            selects_itself=bool(required) and all(map(picks, required)),
            preferences=tuple(
                AffinityPreference(term, present(self._snapshot, self._leaving, term), weight, picks(term))
                for term, weight in (preferences if self._preferred else ())
            ),
        )

    def _matches(self, terms: tuple[BoundTerm, ...]) -> Iterator[DomainCounts]:
        index, leaving = self._snapshot.affinity, self._leaving
        for key in dict.fromkeys(term.topology_key for term in terms):
            yield DomainCounts(index.matching(terms, key), None if leaving is None else leaving.matching(terms, key))


class _TermMatcher:
    """Evaluates whether terms select one pod."""

    def __init__(self, pod: Pod, namespace_labels: Labels) -> None:
        self._pod = pod
        self._namespace_labels = namespace_labels

    def __call__(self, term: BoundTerm) -> bool:
        return term.matches(self._pod.namespace, self._pod.labels, self._namespace_labels)
