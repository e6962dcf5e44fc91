"""Finds pods that violate required anti-affinity, and the smallest set of pods whose eviction resolves all violations.

The violations form a graph of pods. A term in one topology domain connects all pods that have the term with all pods
that it selects. A :class:`Conflict` stores the two sets of pods instead of the edges, because the number of pairs is
quadratic (fifty million for ten thousand pods of one app in a zone). A hostile tenant can write many terms that select
the same pods. They are stored as one conflict, so that their cost does not grow with their number.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from operator import itemgetter
from typing import Final

import numpy as np
from msgspec import Struct

from trimtab.api.reasons import CAUSE_NOT_SCHEDULED
from trimtab.cluster.affinity import BoundTerm, PodClass
from trimtab.cluster.resources import IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.outcome import Refusal
from trimtab.disruption.protections.causes import Cause, CauseGroup, EvictionCauses, arrival
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Pod


def minimum_vertex_cover(adjacency: Sequence[int], must: int = 0) -> int:
    """Return the smallest vertex cover of a graph.

    If there are several smallest covers, the one that avoids the highest vertices is returned.

    The algorithm is exact. It branches on a vertex of highest degree: either this vertex is in the cover, or all its
    neighbours are. It is exponential in the worst case, but takes at most hundreds of steps for up to sixteen vertices.

    Args:
        adjacency: the neighbours of each vertex as a bit mask; symmetric, without loops.
        must: bit mask of the vertices that must be in the cover.

    Returns:
        The cover as a bit mask. Of two covers of equal size, the one with the smaller mask is returned, so lower
        vertices are preferred.
    """
    everything = (1 << len(adjacency)) - 1
    best = _Best()
    _branch(adjacency, everything & ~must, must, best)
    return best.cover


def bits(mask: int) -> Iterable[int]:
    """Yield the positions of the set bits, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


class _Best:
    """The best cover found so far."""

    def __init__(self) -> None:
        self.cover = 0
        self.size: int | None = None

    def offer(self, cover: int) -> None:
        size = cover.bit_count()
        if self.size is None or (size, cover) < (self.size, self.cover):
            self.size, self.cover = size, cover


def _branch(adjacency: Sequence[int], left: int, cover: int, best: _Best) -> None:
    degrees = [(adjacency[vertex] & left).bit_count() if left >> vertex & 1 else 0 for vertex in range(len(adjacency))]
    most = max(degrees, default=0)
    if most <= 1:
        best.offer(cover | _of_single_edges(adjacency, left))
        return
    least = -(-sum(degrees) // (2 * most))  # no vertex covers more than `most` of the remaining edges
    if best.size is not None and cover.bit_count() + least > best.size:
        return
    vertex = degrees.index(most)
    without = left & ~(1 << vertex)
    _branch(adjacency, without, cover | 1 << vertex, best)
    neighbours = adjacency[vertex] & left
    _branch(adjacency, without & ~neighbours, cover | neighbours, best)


def _of_single_edges(adjacency: Sequence[int], left: int) -> int:
    """Return the lower vertex of each edge as a bit mask. The edges must not share vertices."""
    cover = 0
    for vertex in bits(left):
        if (adjacency[vertex] & left) >> vertex:  # the other end has a higher number
            cover |= 1 << vertex
    return cover


class Conflict(Struct):
    """Anti-affinity terms that select the same pods in one topology domain, and at least one pair of pods in conflict.

    Attributes:
        topology_key: the topology key of the terms.
        value: the domain, as the value of the topology key.
        carriers: the pods in the domain that have some of the terms: ``namespace/name`` to number of terms.
        picked: the pods in the domain that the terms select. A pod may be both a carrier and selected.
        terms: the total number of terms, which is the sum over ``carriers``.
        first: the cached result of :meth:`first_carrier`; ``""`` until it is requested.
    """

    topology_key: str
    value: str
    carriers: dict[str, int]
    picked: set[str]
    terms: int = 0
    first: str = ""

    def __post_init__(self) -> None:
        self.terms = sum(self.carriers.values())

    @property
    def keys(self) -> set[str]:
        """Return the keys of all pods in the conflict."""
        return self.picked.union(self.carriers)

    def remove(self, key: str) -> None:
        """Remove a pod."""
        self.terms -= self.carriers.pop(key, 0)
        self.picked.discard(key)
        self.first = ""

    def first_carrier(self) -> str:
        """Return the carrier whose name sorts first. The conflict must have a carrier."""
        self.first = self.first or min(self.carriers)
        return self.first

    def others(self, key: str) -> Iterator[str]:
        """Yield the pods that conflict with a pod. A pod that conflicts in both directions is yielded twice."""
        if key in self.carriers:
            yield from (other for other in self.picked if other != key)
        if key in self.picked:
            yield from (other for other in self.carriers if other != key)

    def degree(self, key: str) -> int:
        """Return the number of pods that conflict with a pod, each counted once per term."""
        own = self.carriers.get(key, 0)
        if key not in self.picked:
            return own * len(self.picked)
        return own * (len(self.picked) - 2) + self.terms


_OF_NO_NAMESPACE: Final = ("", 0)
"""The group of selected pods whose eviction no pod in the conflict may cause."""


class ConflictRoles:
    """The pods of one conflict, grouped by which of them may cause the eviction of which others.

    A pod that has the term may always be evicted, because it violates its own rule. A selected pod may be evicted if a
    pod with the term may cause its eviction. A conflict with thousands of pods has only a few groups.

    Args:
        conflict: a conflict with pods of several namespaces or priorities.
        pods: the pods by ``namespace/name``.
        causes: decides which pods may cause the eviction of which others.
        bystanders: selected pods whose eviction none of the pods may cause.

    Attributes:
        crosses: whether any of the pods may cause evictions in other namespaces.
    """

    def __init__(
        self, conflict: Conflict, pods: Mapping[str, Pod], causes: EvictionCauses, bystanders: Set[str] = frozenset()
    ) -> None:
        self._conflict = conflict
        self._kind_of: dict[str, CauseGroup] = {}
        self._alike_of: dict[str, tuple[str, int]] = {}
        self._carriers: defaultdict[str, dict[CauseGroup, dict[str, int]]] = defaultdict(dict)
        """The numbers of terms of pods, by namespace and by the evictions that they may cause."""
        self._terms: Counter[CauseGroup] = Counter()
        self._others: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        """Selected pods without the term, by namespace and priority."""
        if bystanders:
            self._others[_OF_NO_NAMESPACE] = set(bystanders)
        first, tied = math.inf, False
        if causes.crosses:
            arrivals = [came for key in conflict.picked if (came := arrival(pods[key])) is not None]
            first = min(arrivals, default=math.inf)
            tied = arrivals.count(first) > 1
        for key in sorted(conflict.carriers):
            pod = pods[key]
            kind = causes.kind_of(pod)
            came = arrival(pod)
            if kind.crosses and came is not None and came >= first:
                alone = came == first and not tied and key in conflict.picked
                if not alone:  # a scheduler would have rejected this node, see came_first
                    kind = CauseGroup(kind.namespace, kind.priority, crosses=False)
            self._kind_of[key] = kind
            number = conflict.carriers[key]
            self._carriers[pod.namespace].setdefault(kind, {})[key] = number
            self._terms[kind] += number
        for key in conflict.picked - conflict.carriers.keys() - bystanders:
            alike = self._alike_of[key] = pods[key].namespace, pods[key].priority
            self._others[alike].add(key)
        self.crosses = any(kind.crosses for kind in self._kind_of.values())

    def causing(self, pod: Pod) -> Iterator[Mapping[str, int]]:
        """Yield the groups of pods that may cause the eviction of a selected pod, those of its own namespace first.

        Each group maps pods to the number of terms that they have.
        """
        for kind in self._causing_kinds(pod):
            yield self._carriers[kind.namespace][kind]

    def reasons(self, pod: Pod) -> int:
        """Return the number of terms of other pods that may cause the eviction of a selected pod."""
        own = self._kind_of.get(pod.key)
        terms = sum(self._terms[kind] for kind in self._causing_kinds(pod))
        if own is None or not own.may_evict(pod.namespace, pod.priority):
            return terms
        return terms - self._conflict.carriers[pod.key]

    def _causing_kinds(self, pod: Pod) -> Iterator[CauseGroup]:
        namespaces = [pod.namespace] if pod.namespace in self._carriers else []
        if self.crosses:
            namespaces += [namespace for namespace in self._carriers if namespace != pod.namespace]
        for namespace in namespaces:
            for kind, keys in self._carriers[namespace].items():
                if keys and kind.may_evict(pod.namespace, pod.priority):
                    yield kind

    def forced(self, among: Iterable[str], stays: Collection[str]) -> Iterator[str]:
        """Yield the pods in ``among`` that must move if the pods in ``stays`` do not.

        See :meth:`AntiAffinityConflicts.forced`.
        """
        conflict = self._conflict
        carriers = [key for key in stays if key in conflict.carriers]
        both = [key for key in carriers if key in conflict.picked]
        staying = {self._alike_of[key] for key in stays if key in self._alike_of}
        kinds = {self._kind_of[key] for key in stays if key in self._kind_of}
        known: dict[CauseGroup, bool] = {}
        for key in among:
            kind, alike = self._kind_of.get(key), self._alike_of.get(key)
            if kind is not None:
                if kind not in known:
                    known[kind] = any(
                        keys and (each in staying or not kind.may_evict(*each)) for each, keys in self._others.items()
                    )
                opposite = carriers if key in conflict.picked else both
                if known[kind] or any(other != key for other in opposite):
                    yield key
            elif alike is not None and any(each.may_evict(*alike) for each in kinds):
                yield key

    def joined(self) -> Iterator[set[str]]:
        """Yield groups of pods. If two pods in a group conflict, either of them may be moved."""
        if self.crosses:
            yield self._conflict.keys
            return
        yield self._conflict.carriers.keys() & self._conflict.picked
        found = {namespace: set().union(*kinds.values()) for namespace, kinds in self._carriers.items()}
        for (namespace, _), keys in self._others.items():
            if namespace in found:
                found[namespace] |= keys
        yield from found.values()

    def remove(self, key: str) -> None:
        """Remove a pod from the conflict's groups."""
        kind, alike = self._kind_of.pop(key, None), self._alike_of.pop(key, None)
        if kind is not None:
            self._terms[kind] -= self._carriers[kind.namespace][kind].pop(key)
        if alike is not None:
            self._others[alike].discard(key)


class AntiAffinityConflicts:
    """All conflicts in a snapshot and the pods that are involved in them.

    Terminated and terminating pods are ignored. Pods outside the policy's scope are included.

    Args:
        snapshot: the cluster.
        causes: decides which pods may cause the eviction of which others; ``None`` if every pod may cause every
            eviction.
    """

    def __init__(self, snapshot: Snapshot, causes: EvictionCauses | None = None) -> None:
        self._pods = snapshot.pods
        self._causes = causes
        self.conflicts = list(find_conflicts(snapshot))
        self._of: dict[str, list[Conflict]] = {}
        self._roles: dict[int, ConflictRoles] = {}
        """Roles of conflicts with pods of several namespaces or priorities, by the identity of the conflict. In other
        conflicts every pod may be evicted.
        """
        self._involved: Set[str] | None = None
        """The pods whose eviction a pod in conflict may cause; ``None`` for all pods."""
        if causes is not None and self.conflicts:
            carriers = {key: self._pods[key] for conflict in self.conflicts for key in conflict.carriers}
            if not (causes.crosses and any(causes.kind_of(pod).crosses for pod in carriers.values())):
                causing = {pod.namespace for pod in carriers.values()}
                self._involved = {key for key, pod in self._pods.items() if pod.namespace in causing}
        for conflict in self.conflicts:
            bystanders = self._bystanders(conflict)
            keys = sorted(conflict.keys - bystanders)
            for key in keys:
                self._of.setdefault(key, []).append(conflict)
            if causes is not None and (bystanders or self._differ(keys)):
                self._roles[id(conflict)] = ConflictRoles(conflict, self._pods, causes, bystanders)

    def bystanders(self) -> list[tuple[str, Cause]]:
        """Return the pods in conflict whose namespaces have no pod that may cause their eviction, and one cause each.

        They are not in :meth:`components`. A hostile tenant can write terms that select most pods of a cluster.
        """
        found: dict[str, Cause] = {}
        for conflict in self.conflicts:
            bystanders = self._bystanders(conflict) - found.keys() if conflict.carriers else ()
            if bystanders:
                found |= dict.fromkeys(bystanders, Cause(self._pods[conflict.first_carrier()], enforced=True))
        return sorted(found.items(), key=itemgetter(0))

    def _bystanders(self, conflict: Conflict) -> Set[str]:
        """Return the pods that only pods of other namespaces select, which cannot cause their eviction."""
        return frozenset() if self._involved is None else conflict.picked - self._involved

    def _differ(self, keys: Iterable[str]) -> bool:
        """Return whether the pods differ in namespace or priority."""
        pods = map(self._pods.__getitem__, keys)
        first = next(pods)
        return any(pod.namespace != first.namespace or pod.priority != first.priority for pod in pods)

    def degree(self, key: str) -> int:
        """Return the number of violations that the pod is involved in."""
        return sum(conflict.degree(key) for conflict in self._of.get(key, ()))

    def involved(self, key: str) -> bool:
        """Return whether the pod is involved in a violation."""
        return any(conflict.degree(key) for conflict in self._of.get(key, ()))

    def neighbours(self, key: str) -> set[str]:
        """Return the keys of the pods that conflict with a pod."""
        return {other for conflict in self._of.get(key, ()) for other in conflict.others(key)}

    def reasons(self, key: str) -> int:
        """Return the number of the violations counted by :meth:`degree` that justify the eviction of the pod."""
        return sum(self._reasons(conflict, key) for conflict in self._of.get(key, ()))

    def _reasons(self, conflict: Conflict, key: str) -> int:
        roles = self._roles.get(id(conflict))
        if roles is None:
            return conflict.degree(key)
        picked = key in conflict.picked
        own = conflict.carriers.get(key, 0) * (len(conflict.picked) - picked)
        return own + roles.reasons(self._pods[key]) if picked else own

    def forced(self, among: Collection[str], stays: Collection[str]) -> set[str]:
        """Return the pods that must move to resolve the violations if other pods do not move.

        Args:
            among: keys of the pods to check.
            stays: keys of the pods in the same groups that do not move. If two pods of different groups conflict
                (:meth:`choices`), the one that has the term must move in any case.
        """
        found: set[str] = set()
        for conflict in {id(conflict): conflict for key in among for conflict in self._of.get(key, ())}.values():
            roles = self._roles.get(id(conflict))
            if roles is not None:
                found.update(roles.forced(among, stays))
                continue
            carriers = [key for key in stays if key in conflict.carriers]
            picked = [key for key in stays if key in conflict.picked]
            for kept, others in ((carriers, conflict.picked), (picked, set(conflict.carriers))):
                if kept:
                    found.update(others if len(kept) > 1 else others - {kept[0]})
        return found

    def causes_of(self, key: str) -> tuple[Cause, ...]:
        """Return the cause of a pod's eviction as a tuple with one item; empty if the pod has no conflicts.

        The cause is the pod itself if it has a violated term. Otherwise it is a pod with a violated term that may cause
        the eviction. If there is none either, it is any pod with a violated term.
        """
        pod, foreign, refused = self._pods[key], "", ""
        for conflict in self.broken(key):
            if key in conflict.carriers and (len(conflict.picked) > 1 or key not in conflict.picked):
                return (Cause(pod),)
            roles = self._roles.get(id(conflict))
            causing = conflict.carriers if roles is None else next(roles.causing(pod), {})
            other = min(causing, default="")
            if not other:
                refused = refused or conflict.first_carrier()
            elif self._pods[other].namespace == pod.namespace:
                return (Cause(self._pods[other], enforced=True),)
            else:
                foreign = foreign or other
        chosen = foreign or refused
        return (Cause(self._pods[chosen], enforced=True),) if chosen else ()

    def uncaused(self, key: str) -> Refusal | None:
        """Return a refusal if the pod is in conflict but no pod may cause its eviction; otherwise ``None``."""
        if self._causes is None or not self.involved(key) or self.reasons(key):
            return None
        causes = self.causes_of(key)
        refusal = self._causes.refusal_of(self._pods[key], causes)
        text = f"{causes[0].pod.key} of another namespace causes the violation, but was not placed by a scheduler"
        return refusal or Refusal(CAUSE_NOT_SCHEDULED, text)

    def broken(self, key: str) -> list[Conflict]:
        """Return the conflicts that a pod is involved in."""
        return [conflict for conflict in self._of.get(key, ()) if conflict.degree(key)]

    def remove(self, key: str) -> None:
        """Remove a pod, because it was moved to a node where it has no conflicts."""
        for conflict in self._of.pop(key, ()):
            roles = self._roles.get(id(conflict))
            if roles is not None:
                roles.remove(key)
            conflict.remove(key)

    def components(self) -> list[list[str]]:
        """Return the connected components of pods in conflict, which can be resolved independently.

        They are in the order in which their conflicts were found, which is by node name.
        """
        return _connected(self._of, (conflict.keys & self._of.keys() for conflict in self.conflicts))

    def choices(self, component: list[str]) -> list[list[str]]:
        """Split a component into groups of pods that are connected by conflicts in which either pod may be moved.

        A conflict in which only one of the two pods may be evicted does not connect them, because it leaves no choice.
        Therefore a pod whose term selects all pods of a zone does not join them into one large group.
        """
        conflicts = {id(conflict): conflict for key in component for conflict in self._of.get(key, ())}
        if conflicts.keys().isdisjoint(self._roles):
            return [component]
        groups = []
        for number, conflict in conflicts.items():
            roles = self._roles.get(number)
            groups += [conflict.keys] if roles is None else list(roles.joined())
        return _connected(component, groups)

    def pairs(self) -> set[frozenset[str]]:
        """Return every pair of pods in conflict, for tests and small clusters."""
        return {
            frozenset((key, other))
            for conflict in self.conflicts
            for key in conflict.carriers
            for other in conflict.others(key)
        }


def _connected(keys: Iterable[str], groups: Iterable[set[str]]) -> list[list[str]]:
    """Return the connected components of the pods in ``keys``, in the order of ``keys``.

    Pods are connected if they are in the same group.
    """
    joining = list(groups)
    of: defaultdict[str, list[int]] = defaultdict(list)
    for number, group in enumerate(joining):
        for key in group:
            of[key].append(number)
    found: list[list[str]] = []
    seen: set[str] = set()
    for start in keys:
        if start in seen:
            continue
        seen.add(start)
        component, todo = [], [start]
        while todo:
            key = todo.pop()
            component.append(key)
            for number in of.get(key, ()):
                fresh = joining[number] - seen
                joining[number] = set()  # all of its keys have been visited
                seen |= fresh
                todo.extend(sorted(fresh))
        found.append(component)
    return found


class _Rule(Struct):
    """A term and its counts for pods that share a spec and labels."""

    term: BoundTerm
    domains: IntArray
    numbers: Mapping[int, int]
    """The number of selected pods in each domain, including terminating pods."""
    picks_itself: bool


def required_terms(snapshot: Snapshot, pod: Pod) -> tuple[BoundTerm, ...]:
    """Return the pod's required anti-affinity terms."""
    return snapshot.affinity.carried_terms(pod) if pod.spec.affinity.anti_required else ()


MERGED_FROM: Final = 8
"""Number of terms above which those that select the same pods in one domain are stored as one conflict.

Fewer terms are stored as separate conflicts, because the order of conflicts decides between equally good victims.
"""

_NARROW: Final = 8
"""Maximum number of pod classes that a term can select to have a counter of its own, which placement uses as well.

Terms that select more classes share counts, because a tenant can write thousands of terms that select most pods.
"""


def find_conflicts(
    snapshot: Snapshot, terms_of: Callable[[Snapshot, Pod], tuple[BoundTerm, ...]] = required_terms
) -> Iterator[Conflict]:
    """Yield the conflicts of all terms, in an order that depends only on names.

    Args:
        snapshot: the cluster.
        terms_of: returns the terms of a pod to consider; by default the required ones.
    """
    if not (snapshot.any_anti_affinity if terms_of is required_terms else snapshot.any_pod_affinity):
        return
    selected = _SelectedPods(snapshot)
    carriers = _violated_terms(snapshot, selected, terms_of)
    alike: dict[tuple[str, int, int], list[set[str]]] = {}
    for (term, domain), carrying in carriers.items():
        alike.setdefault(selected.kind(term, domain), []).append(carrying)
    merged: set[tuple[str, int, int]] = set()
    for (term, domain), carrying in carriers.items():
        kind = selected.kind(term, domain)
        if kind in merged:
            continue
        numbers: dict[str, int] = dict.fromkeys(carrying, 1)
        if len(alike[kind]) > MERGED_FROM:
            merged.add(kind)
            numbers = Counter(key for each in alike[kind] for key in each)
        picked = selected.keys(term, domain)
        if picked and len(picked.union(numbers)) > 1 and (len(picked) > 1 or picked != numbers.keys()):
            value = snapshot.nodes.column(term.topology_key).values[domain]
            yield Conflict(term.topology_key, value, numbers, set(picked))


def _violated_terms(
    snapshot: Snapshot, selected: _SelectedPods, terms_of: Callable[[Snapshot, Pod], tuple[BoundTerm, ...]]
) -> dict[tuple[BoundTerm, int], set[str]]:
    """Return the pods that violate their own terms, by term and domain.

    These are the pods that have a term and are in a domain where the term selects another pod.
    """
    rules: dict[tuple[str, int, Labels], list[_Rule]] = {}
    carriers: dict[tuple[BoundTerm, int], set[str]] = {}
    for slot in snapshot.nodes.order().tolist():
        for pod in snapshot.pods_on(snapshot.nodes.node(slot).name):
            if not pod.spec.affinity.has_pod_terms or not in_conflict(pod):
                continue
            key = (pod.namespace, id(pod.spec), pod.labels)
            if key not in rules:
                rules[key] = list(_rules(snapshot, selected, pod, terms_of(snapshot, pod)))
            for rule in rules[key]:
                domain = int(rule.domains[slot])
                # The numbers include terminating pods, which are not in the conflicts.
                if domain >= 0 and rule.numbers.get(domain, 0) > rule.picks_itself:
                    carriers.setdefault((rule.term, domain), set()).add(pod.key)
    return carriers


def in_conflict(pod: Pod) -> bool:
    """Return whether a pod can be in conflict, because it is neither terminated nor terminating."""
    return not pod.terminal and pod.deleted is None


def _rules(snapshot: Snapshot, selected: _SelectedPods, pod: Pod, terms: Iterable[BoundTerm]) -> Iterable[_Rule]:
    labels = snapshot.namespace_labels(pod.namespace)
    for term in terms:
        yield _Rule(
            term=term,
            domains=snapshot.nodes.column(term.topology_key).ids,
            numbers=selected.numbers(term),
            picks_itself=term.matches(pod.namespace, pod.labels, labels),
        )


class _Placed(Struct, frozen=True):
    """The number of pods of each class on each node: int64 arrays of shape (entries,), one entry per class and node."""

    classes: IntArray
    slots: IntArray
    numbers: IntArray


class _SelectedPods:
    """Finds and caches the pods that terms select.

    Hundreds of terms may select the same pods, so the results are cached by the selected pod classes.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._index = snapshot.affinity
        self._classes: dict[BoundTerm, tuple[PodClass, ...]] = {}
        self._entries: dict[int, IntArray] = {}
        self._numbers: dict[tuple[str, int], Mapping[int, int]] = {}
        self._in_domain: dict[tuple[str, int, int], set[str]] = {}
        self._keys: dict[int, dict[tuple[str, Labels], list[str]]] = {}

    def kind(self, term: BoundTerm, domain: int) -> tuple[str, int, int]:
        """Return a cache key, which is the same for all terms that select the same pods in the domain."""
        return term.topology_key, domain, id(self._selection(term))

    def numbers(self, term: BoundTerm) -> Mapping[int, int]:
        """Return the number of selected pods in each domain of the term's topology key."""
        classes = self._selection(term)
        if len(classes) <= _NARROW:
            return self._index.matching((term,), term.topology_key).counts
        key = term.topology_key, id(classes)
        found = self._numbers.get(key)
        if found is None:
            entries = self._entries_of(classes)
            domains = self._snapshot.nodes.column(term.topology_key).ids[self._placed.slots[entries]]
            counts = np.bincount(domains + 1, weights=self._placed.numbers[entries])
            labelled = np.flatnonzero(counts[1:])
            found = self._numbers[key] = dict(
                zip(labelled.tolist(), counts[labelled + 1].astype(int).tolist(), strict=True)
            )
        return found

    def keys(self, term: BoundTerm, domain: int) -> set[str]:
        """Return the pods that a term selects in a domain, as ``namespace/name``. Callers must not change the set."""
        kind = self.kind(term, domain)
        found = self._in_domain.get(kind)
        if found is None:
            found = self._in_domain[kind] = set()
            ids, classes = self._snapshot.nodes.column(term.topology_key).ids, self._selection(term)
            if len(classes) <= _NARROW:
                for group in classes:
                    for slot in group.by_slot:
                        if ids[slot] == domain:
                            found.update(self._on(group, slot))
                return found
            by_number = {group.number: group for group in classes}
            entries = self._entries_of(classes)
            entries = entries[ids[self._placed.slots[entries]] == domain]
            places = zip(self._placed.classes[entries].tolist(), self._placed.slots[entries].tolist(), strict=True)
            for number, slot in places:
                found.update(self._on(by_number[number], slot))
        return found

    @cached_property
    def _placed(self) -> _Placed:
        places = [(each.number, slot, number) for each in self._index.classes for slot, number in each.by_slot.items()]
        table = np.array(places, dtype=np.int64).reshape(-1, 3)
        return _Placed(*(np.ascontiguousarray(column) for column in table.T))

    def _entries_of(self, classes: tuple[PodClass, ...]) -> IntArray:
        """Return the indexes of the entries of :attr:`_placed` that belong to the given classes: int64."""
        found = self._entries.get(id(classes))
        if found is None:
            flags = np.zeros(len(self._index.classes), dtype=np.bool_)
            flags[[group.number for group in classes]] = True
            found = self._entries[id(classes)] = np.flatnonzero(flags[self._placed.classes])
        return found

    def _selection(self, term: BoundTerm) -> tuple[PodClass, ...]:
        """Return the pod classes that a term selects, and keep a reference so that the id of the tuple stays valid."""
        found = self._classes.get(term)
        if found is None:
            found = self._classes[term] = self._index.selection(term)
        return found

    def _on(self, group: PodClass, slot: int) -> Sequence[str]:
        """Return the keys of the pods of a class that are on the node and can be in conflict."""
        found = self._keys.get(slot)
        if found is None:
            found = self._keys[slot] = {}
            for pod in self._snapshot.pods_on(self._snapshot.nodes.node(slot).name):
                if in_conflict(pod):
                    found.setdefault((pod.namespace, pod.labels), []).append(pod.key)
        return found.get((group.namespace, group.labels), ())
