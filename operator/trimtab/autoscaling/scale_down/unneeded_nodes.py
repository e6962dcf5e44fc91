"""Tracks how long nodes have been unneeded, and orders the removal candidates of scale-down.

The time at which a node became unneeded is stored in three places: trimtab's annotation on the node, the
ClusterAutoscaler's status, and the value of the soft taint DeletionCandidateOfClusterAutoscaler, which upstream's
autoscaler sets too. If the times differ, the latest is used. The three are removed once the node is needed again, but
not at the same time, so an older time may be from an earlier period.

Candidates are tried in three tiers: nodes that have been unneeded for long enough, then nodes with a stored time, then
all others. An iteration that does not find a node unneeded resets its time. Therefore nodes with a stored time are
tried before new ones, so that trying another node first does not reset it. Within a tier, empty nodes come first, then
those that save the most resources per pod that must move. Among similar nodes in several zones, the zone with the most
nodes comes first, so that zones stay balanced. Ties are broken by name.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.autoscaling.groups import NodeGroup
from trimtab.autoscaling.scale_down.equivalence import ClassifiedPods
from trimtab.autoscaling.template.node_template import DELETION_CANDIDATE
from trimtab.cluster.disruption_signals import maintenance_condition, unneeded_since
from trimtab.disruption.outcome import Refusal
from trimtab.kube.objects import Node
from trimtab.kube.rules.node_labels import BETA_REGION, BETA_ZONE, HOSTNAME, REGION, ZONE


class ScaleDownPause(Struct, frozen=True):
    """The reasons why nodes must not be removed, regardless of their utilization.

    The unneeded times of the nodes are preserved, because a temporary problem is no reason to reset them. Upstream
    resets all times.

    Attributes:
        cluster: the reason why no node of the cluster may be removed; empty if removals are allowed.
        groups: the reason why no node of a group may be removed, by group id.
    """

    cluster: str = ""
    groups: Mapping[str, str] = {}

    def refusal(self, group: NodeGroup) -> Refusal | None:
        """Return the reason why no node of the group may be removed, or ``None``."""
        if self.cluster:
            return Refusal(reasons.CLUSTER_UNHEALTHY, self.cluster)
        if group.id in self.groups:
            return Refusal(reasons.GROUP_UNHEALTHY, f"{group.kind} {group.key}: {self.groups[group.id]}")
        return None


NOT_PAUSED: Final = ScaleDownPause()


_SECONDS: Final = re.compile(r"[0-9]{1,11}")


def recorded_unneeded(nodes: Iterable[Node], status: ClusterAutoscalerStatus) -> dict[str, float]:
    """Return for each unneeded node when it became unneeded, in seconds since the epoch.

    If the annotation, the soft taint and the status differ, the latest time is used. The status names nodes; a time
    before the node's creation is that of an earlier node of the same name.
    """
    nodes = list(nodes)
    in_status = of_present_nodes({each.name: each.since.timestamp() for each in status.unneeded}, nodes)
    found = {}
    for node in nodes:
        times = [unneeded_since(node), in_status.get(node.name), _taint_time(node)]
        known = [time for time in times if time is not None]
        if known:
            found[node.name] = max(known)
    return found


def of_present_nodes(times: Mapping[str, float], nodes: Iterable[Node]) -> dict[str, float]:
    """Return the times by node name, without those of nodes that were deleted and created again since."""
    created = {node.name: node.created for node in nodes if node.created is not None and node.name in times}
    return {name: time for name, time in times.items() if time >= created.get(name, time)}


def next_unneeded_records(unneeded: Iterable[str], records: Mapping[str, float], *, now: float) -> dict[str, float]:
    """Return the unneeded times after an iteration.

    Unneeded nodes keep their time, or start now. All other nodes lose their time.

    Args:
        unneeded: names of the nodes that the iteration found to be unneeded.
        records: the unneeded times before the iteration, by node name.
        now: the current time in seconds since the epoch.

    Returns:
        The time at which each node became unneeded, sorted by node name. A time in the future is replaced with ``now``;
        otherwise the node would wait longer than configured.
    """
    return {name: min(records.get(name, now), now) for name in sorted(unneeded)}


def _taint_time(node: Node) -> float | None:
    """Return the time in the value of the soft taint.

    If the value is not a time, return the taint's ``timeAdded``.
    """
    for taint in node.taints:
        if taint.key == DELETION_CANDIDATE:
            return float(taint.value) if _SECONDS.fullmatch(taint.value) else taint.time_added
    return None


ZONES: Final = (ZONE, BETA_ZONE)
_PLACE_LABELS: Final = frozenset({HOSTNAME, REGION, BETA_REGION, *ZONES})
"""Labels in which similar nodes may differ, as defined by upstream for balanced groups."""

Preference = tuple[int, bool, bool, float, str]


class RemovalCandidate(Struct, frozen=True, eq=False):
    """A node that scale-down may remove.

    Attributes:
        node: the node.
        slot: slot of the node in the snapshot.
        group: the node group of the node.
        pods: the pods of the node with their equivalence classes.
        moving: the number of pods that need another node.
        saving: the saved resources: the node's cpu plus its memory, each as a fraction of the largest node's.
        since: the stored time at which the node became unneeded, in seconds since the epoch; ``None`` if no time is
            stored.
        needed: the seconds for which the node must have been unneeded.
        tier: 0 if the node has been unneeded for long enough, 1 if it has a stored time, else 2.
        blocked: whether a pod blocks the removal in any case. If so, the node may receive pods like a node that is
            kept.
    """

    node: Node
    slot: int
    group: NodeGroup
    pods: ClassifiedPods
    moving: int
    saving: float
    since: float | None
    needed: float
    tier: int
    blocked: bool = False

    @property
    def preference(self) -> Preference:
        """Return the sort key. Candidates with smaller keys are tried first."""
        planned = maintenance_condition(self.node) is not None
        return self.tier, not planned, self.moving > 0, -self.saving / max(1, self.moving), self.node.name


def similarity_key(node: Node, ignored: frozenset[str]) -> Hashable:
    """Return a key that similar nodes share: cpu, memory rounded to GiB, GPUs, and labels except location labels."""
    amounts = node.capacity or node.allocatable
    resources = tuple(
        sorted(
            (name, round(amount / 2**30) if name == "memory" else amount)
            for name, amount in amounts.items()
            if name in ("cpu", "memory") or name.endswith("/gpu")
        )
    )
    own = (node.name, node.labels.get(HOSTNAME))
    labels = frozenset(
        (key, value)
        for key, value in node.labels.items()
        if key not in _PLACE_LABELS and key not in ignored and value not in own
    )
    return resources, labels


def zone_of(node: Node) -> str:
    """Return the node's zone, or an empty string if it has no zone label."""
    return next((node.labels[key] for key in ZONES if key in node.labels), "")


class _SimilarNodes:
    """A set of similar nodes by zone: the number of remaining nodes, and the candidates not tried yet."""

    def __init__(self) -> None:
        self.left: dict[str, int] = {}
        self.queues: dict[str, deque[RemovalCandidate]] = {}

    def head(self) -> str | None:
        """Return the zone of the next candidate, or ``None`` if no candidate is left."""
        waiting = [place for place, queue in self.queues.items() if queue]
        if not waiting:
            return None

        def key(place: str) -> tuple[int, bool, bool, int, Preference]:
            preference = self.queues[place][0].preference
            return *preference[:3], -self.left[place], preference

        return min(waiting, key=key)


class RemovalOrder:
    """Iterates over removal candidates. The removal of a candidate affects which one is next.

    Args:
        candidates: the candidates in any order.
        peers: all nodes of node groups that are not already being removed, including the candidates.
        ignored: labels in which similar nodes may differ, in addition to :data:`_PLACE_LABELS`.
    """

    def __init__(self, candidates: Iterable[RemovalCandidate], peers: Iterable[Node], ignored: Sequence[str]) -> None:
        self._ignored = frozenset(ignored)
        families: dict[Hashable, _SimilarNodes] = {}
        for node in peers:
            own = families.setdefault(similarity_key(node, self._ignored), _SimilarNodes())
            own.left[zone_of(node)] = own.left.get(zone_of(node), 0) + 1
        for candidate in sorted(candidates, key=lambda each: each.preference):
            own = families[similarity_key(candidate.node, self._ignored)]
            own.queues.setdefault(zone_of(candidate.node), deque()).append(candidate)
        self._families = families
        self._places: dict[str, tuple[_SimilarNodes, str]] = {}

    def expected(self) -> list[RemovalCandidate]:
        """Return all candidates in the order that results if every one of them is removed."""
        copies = []
        for own in self._families.values():
            copy = _SimilarNodes()
            copy.left = dict(own.left)
            copy.queues = {place: deque(queue) for place, queue in own.queues.items()}
            copies.append(copy)
        found = []
        for copy, place, candidate in _interleaved(copies):
            copy.left[place] -= 1
            found.append(candidate)
        return found

    def __iter__(self) -> Iterator[RemovalCandidate]:
        """Iterate over the candidates.

        If a candidate is removed, call :meth:`mark_removed` before requesting the next one.
        """
        for own, place, candidate in _interleaved(list(self._families.values())):
            self._places[candidate.node.name] = own, place
            yield candidate

    def mark_removed(self, candidate: RemovalCandidate) -> None:
        """Record that a candidate is removed."""
        own, place = self._places[candidate.node.name]
        own.left[place] -= 1


def _interleaved(families: list[_SimilarNodes]) -> Iterator[tuple[_SimilarNodes, str, RemovalCandidate]]:
    """Yield the candidates of all sets of similar nodes by preference.

    Within a set, the zone with the most remaining nodes comes first.
    """
    heap: list[tuple[Preference, int, str]] = []
    for number, own in enumerate(families):
        place = own.head()
        if place is not None:
            heap.append((own.queues[place][0].preference, number, place))
    heapify(heap)
    while heap:
        _, number, place = heap[0]
        own = families[number]
        yield own, place, own.queues[place].popleft()
        following = own.head()
        if following is None:
            heappop(heap)
        else:
            heapreplace(heap, (own.queues[following][0].preference, number, following))
