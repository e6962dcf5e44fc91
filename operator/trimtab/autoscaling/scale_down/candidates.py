"""Nodes that might go, in the order in which that is tried.

First those that have been recorded for long enough, then those that are recorded, then all others: a node's time goes
on only while it is found unneeded, and must not begin anew because another one was tried first. Of these the empty ones
first; then what saves most per pod that has to move. Of alike nodes in several zones the zone with the most nodes comes
first, so that zones stay as even as that allows. Ties by name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final

from msgspec import Struct

from trimtab.autoscaling.groups import NodeGroup
from trimtab.autoscaling.scale_down.kinds import Known
from trimtab.kube.objects import Node
from trimtab.kube.rules.node_labels import BETA_REGION, BETA_ZONE, HOSTNAME, REGION, ZONE

ZONES: Final = (ZONE, BETA_ZONE)
_OWN: Final = frozenset({HOSTNAME, REGION, BETA_REGION, *ZONES})
"""Labels in which alike nodes differ, as upstream has it for groups that are balanced."""

Preference = tuple[int, bool, float, str]


class Candidate(Struct, frozen=True, eq=False):
    """A node that might go.

    Attributes:
        node: the node.
        slot: its slot.
        group: its group.
        pods: those on it, with their kinds.
        moving: how many of them need a place elsewhere.
        saving: how large the node is, compared with the largest of the cluster: 1 for each resource in which it is.
        since: since when it is recorded as unneeded, in seconds since the epoch; ``None`` without a record.
        needed: for how many seconds it must have been.
        blocked: whether a pod keeps it whatever else happens; then it takes pods like a node that stays.
        turn: 0 where it has been for long enough, 1 where it is recorded, else 2.
    """

    node: Node
    slot: int
    group: NodeGroup
    pods: Known
    moving: int
    saving: float
    since: float | None
    needed: float
    turn: int
    blocked: bool = False

    @property
    def preference(self) -> Preference:
        """The smaller, the sooner."""
        return self.turn, self.moving > 0, -self.saving / max(1, self.moving), self.node.name


def family(node: Node, ignored: frozenset[str]) -> Hashable:
    """What alike nodes have in common: what they hold, memory to a GiB, and labels that do not say where they are."""
    amounts = node.capacity or node.allocatable
    held = tuple(
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
        if key not in _OWN and key not in ignored and value not in own
    )
    return held, labels


def zone(node: Node) -> str:
    """The node's zone; empty where it does not say."""
    return next((node.labels[key] for key in ZONES if key in node.labels), "")


class _Family:
    """Alike nodes by zone: how many there are, and which of them are still to be tried."""

    def __init__(self) -> None:
        self.left: dict[str, int] = {}
        self.queues: dict[str, deque[Candidate]] = {}

    def head(self) -> str | None:
        """The zone whose turn it is."""
        waiting = [place for place, queue in self.queues.items() if queue]
        if not waiting:
            return None

        def key(place: str) -> tuple[int, bool, int, Preference]:
            preference = self.queues[place][0].preference
            return *preference[:2], -self.left[place], preference

        return min(waiting, key=key)


class Turns:
    """Gives candidates one after the other; what becomes of one decides whose turn is next.

    Args:
        candidates: in any order.
        peers: all nodes of groups that stay if nothing is planned, the candidates among them.
        ignored: labels in which alike nodes may differ.
    """

    def __init__(self, candidates: Iterable[Candidate], peers: Iterable[Node], ignored: Sequence[str]) -> None:
        self._ignored = frozenset(ignored)
        families: dict[Hashable, _Family] = {}
        for node in peers:
            own = families.setdefault(family(node, self._ignored), _Family())
            own.left[zone(node)] = own.left.get(zone(node), 0) + 1
        for candidate in sorted(candidates, key=lambda each: each.preference):
            own = families[family(candidate.node, self._ignored)]
            own.queues.setdefault(zone(candidate.node), deque()).append(candidate)
        self._families = families
        self._places: dict[str, tuple[_Family, str]] = {}

    def expected(self) -> list[Candidate]:
        """All candidates in the order that comes about if each of them goes."""
        copies = []
        for own in self._families.values():
            copy = _Family()
            copy.left = dict(own.left)
            copy.queues = {place: deque(queue) for place, queue in own.queues.items()}
            copies.append(copy)
        found = []
        for copy, place, candidate in _turns(copies):
            copy.left[place] -= 1
            found.append(candidate)
        return found

    def __iter__(self) -> Iterator[Candidate]:
        """The candidates; :meth:`gone` is to be told of each that goes before the next is asked for."""
        for own, place, candidate in _turns(list(self._families.values())):
            self._places[candidate.node.name] = own, place
            yield candidate

    def gone(self, candidate: Candidate) -> None:
        """Count a candidate that goes."""
        own, place = self._places[candidate.node.name]
        own.left[place] -= 1


def _turns(families: list[_Family]) -> Iterator[tuple[_Family, str, Candidate]]:
    """Families take turns by their heads' preferences; within each, zones by how many nodes they have left."""
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
