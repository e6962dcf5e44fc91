"""Try to take a node out: every pod that needs a place gets one on the nodes that stay, or nothing changes.

What only nodes and amounts decide is placed on columns (:mod:`trimtab.autoscaling.scale_down.room`), many pods at once.
Only when a pod comes whose place depends on other pods (affinity, spread, ports, volumes) are the places found so far
written into the snapshot, each once, and the nodes that go taken out of it: what goes counts as no domain, or spread
constraints would be held against a node that is about to be gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby

from msgspec import Struct

from trimtab.autoscaling.scale_down.kinds import Drain, Kinds, Known, Likes
from trimtab.autoscaling.scale_down.room import Room
from trimtab.autoscaling.scale_down.sentence import no_place, no_room
from trimtab.cluster.nodes import NodeTable
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Node, Pod
from trimtab.placement.placer import Placer

Wanted = tuple[tuple[int, int], ...]


class Attempt(Struct, frozen=True):
    """How taking a node out went.

    Attributes:
        drain: what the drain rules say; with a blocking pod nothing was tried.
        moves: the pods and their new nodes, in the order in which places were found.
        stuck: the pod that found no place, ``None`` where all did.
        sentence: why not.
    """

    drain: Drain
    moves: tuple[tuple[Pod, str], ...] = ()
    stuck: Pod | None = None
    sentence: str = ""

    @property
    def done(self) -> bool:
        """Whether the node can go; else all is as before."""
        return self.drain.blocking is None and self.stuck is None


class Simulation:
    """Nodes that go, one after the other, on one snapshot; in a fork of it.

    Args:
        placer: of the snapshot.
        kinds: of its pods, with the ledger of budgets.
        room: the nodes that may take pods.
    """

    def __init__(self, placer: Placer, kinds: Kinds, room: Room) -> None:
        self._placer = placer
        self._snapshot: Snapshot = placer.snapshot
        self._nodes: NodeTable = placer.snapshot.nodes
        self._kinds = kinds
        self._room = room
        self._unwritten: list[tuple[Pod, str]] = []
        self._going: list[Node] = []
        self._gone: set[int] = set()
        self._made: list[tuple[int, Wanted, int]] = []
        self._found: list[tuple[Pod, str]] = []
        self.takers: set[str] = set()
        """Names of the nodes that have taken pods: they stay."""

    def attempt(self, node: Node, pods: Known) -> Attempt:
        """Take a node out, if its pods may go and all find places.

        Args:
            node: one that has taken no pods itself.
            pods: those on it, of :meth:`~trimtab.autoscaling.scale_down.kinds.Kinds.on`.
        """
        drain = self._kinds.drain(pods)
        if drain.blocking is not None:
            return Attempt(drain)
        slot = self._nodes.slot_of[node.name]
        self._room.close(slot)
        self._gone.add(slot)
        self._made, self._found = [], []
        aware = any(kind.likes is None for _, kind in drain.moving)
        stuck = self._among_others(node, drain.moving) if aware else self._by_amounts(drain.moving)
        if stuck is not None:
            for taker, wanted, count in self._made:
                self._room.take(taker, wanted, -count)
            self._room.reopen(slot)
            self._gone.discard(slot)
            self._kinds.take_back(drain.evicted)
            return Attempt(drain, stuck=stuck[0], sentence=stuck[1])
        if not aware:
            self._unwritten += self._found
            self._going.append(node)
        self.takers.update(target for _, target in self._found)
        return Attempt(drain, moves=tuple(self._found))

    def settle(self, pods: Sequence[Pod]) -> None:
        """Give pods their places beforehand that need one whatever goes: pending ones, and those of nodes that go.

        A pod that finds none is left out: it will have to wait for a new node.

        Args:
            pods: the most important first; those that are on a node leave it.
        """
        hopeless: set[int] = set()
        for likes, alike in groupby(pods, key=lambda pod: self._kinds.of(pod).likes):
            self._made, self._found = [], []
            if likes is None:
                self._write()
                for pod in alike:
                    self._reserve(self._placer.lift(pod))
            elif likes.number not in hopeless:
                if self._place(likes, list(alike)) is not None:
                    hopeless.add(likes.number)
                self._unwritten += self._found
            self.takers.update(target for _, target in self._found)

    def leave_out(self, node: Node) -> None:
        """Count a node as gone that is on its way out already."""
        self._going.append(node)
        self._gone.add(self._nodes.slot_of[node.name])

    def _by_amounts(self, moving: Known) -> tuple[Pod, str] | None:
        """Place pods by likes, the largest first; returns the first that finds no place, and why."""
        groups: defaultdict[int, list[Pod]] = defaultdict(list)
        likes: dict[int, Likes] = {}
        for pod, kind in moving:
            if kind.likes is not None:
                groups[kind.likes.number].append(pod)
                likes[kind.likes.number] = kind.likes
        for number in sorted(groups, key=lambda each: _largest_first(likes[each], groups[each])):
            stuck = self._place(likes[number], groups[number])
            if stuck is not None:
                return stuck, no_room(self._placer, self._room, likes[number], self._gone)
        return None

    def _place(self, likes: Likes, pods: Sequence[Pod]) -> Pod | None:
        placed = 0
        for slot, count in self._room.find(likes, len(pods)):
            self._room.take(slot, likes.wanted, count)
            self._made.append((slot, likes.wanted, count))
            name = self._nodes.node(slot).name
            self._found += [(pod, name) for pod in pods[placed : placed + count]]
            placed += count
        return pods[placed] if placed < len(pods) else None

    def _among_others(self, node: Node, moving: Known) -> tuple[Pod, str] | None:
        """Place pods with a snapshot that knows all that is planned; first those that others have a say about."""
        self._write()
        mark = self._snapshot.mark()
        lifted = {pod.key: self._placer.lift(pod) for pod, _ in moving}
        self._snapshot.remove(node)
        stuck: tuple[Pod, str] | None = None
        for pod, kind in moving:
            if kind.likes is None and not self._reserve(lifted[pod.key]):
                stuck = pod, no_place(self._placer, self._room, lifted[pod.key])
                break
        if stuck is None:
            before = len(self._found)
            stuck = self._by_amounts(moving)
            for pod, target in self._found[before:]:
                self._snapshot.move(lifted[pod.key], target)
        if stuck is None:
            self._snapshot.commit(mark)
        else:
            self._snapshot.undo(mark)
        return stuck

    def _reserve(self, pod: Pod) -> bool:
        """Place a pod that is off its node where the snapshot lets it, the first in the order of the room."""
        slot = self._room.first(self._placer.feasible(pod))
        if slot is None:
            return False
        wanted = self._snapshot.amounts(pod.spec).wanted
        self._placer.reserve(pod, slot)
        self._room.take(slot, wanted, 1)
        self._made.append((slot, wanted, 1))
        self._found.append((pod, self._nodes.node(slot).name))
        return True

    def _write(self) -> None:
        """Bring the snapshot up to date with what was found on columns alone."""
        for pod, target in self._unwritten:
            self._snapshot.move(pod, target)
        for node in self._going:
            self._snapshot.remove(node)
        self._unwritten.clear()
        self._going.clear()
        self._gone.clear()


def _largest_first(likes: Likes, pods: Sequence[Pod]) -> tuple[list[tuple[int, int]], str]:
    return [(column, -amount) for column, amount in likes.wanted], pods[0].key
