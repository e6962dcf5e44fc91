"""Where pods of overutilized nodes can go: the underutilized node with most room left, if any takes the pod."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.descheduling.burden import Burden
from trimtab.descheduling.context import Context, Wish, pending
from trimtab.descheduling.room import Room
from trimtab.descheduling.utilization import Level, room_below_target
from trimtab.descheduling.victims import Amounts
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod

_NOT_A_DESTINATION: Final = "node(s) were not underutilized, or would have been above targetThresholds"

_STUCK: Final = 16
"""Of pods that request the same so many that no node takes are remembered, each using less of something than others."""


class Kind(NamedTuple):
    """What follows from a pod's spec: its requests, the nodes that suit it, and both as what pods have in common."""

    row: IntArray
    eligible: BoolArray
    likes: tuple[bytes, int]


class Destinations:
    """Finds a place for one pod after the other.

    Args:
        context: of the strategy.
        burden: how full nodes are.
        measured: the targets of what is measured, which are kept below by real use.
        room: the nodes that pods are moved to.
    """

    def __init__(self, context: Context, burden: Burden, measured: Sequence[Level], room: Room) -> None:
        self._context = context
        self._snapshot = context.snapshot
        self._placer = context.placer
        self._burden = burden
        self._measured = measured
        self._room = room
        self._kinds: dict[int, Kind] = {}
        self._stuck: dict[tuple[bytes, int], list[tuple[Amounts, Refusal]]] = {}

    def find(self, pod: Pod) -> int | Refusal:
        """The destination with most room left, or why there is none."""
        context, room = self._context, self._room
        row, eligible, likes = self._kind(pod)
        plain = self._placer.plain(pod)
        uses = self._uses(pod)
        for least, known in self._stuck.get(likes, ()) if plain else ():
            if all(one >= other for one, other in zip(uses, least, strict=True)):
                return known
        cool = self._cool(pod)
        objections = [slots for slots, _ in context.objections(pod)]
        unwelcome = objections[0] if len(objections) == 1 else {slot for slots in objections for slot in slots}
        also = _both(cool, None if plain else self._suitable_neighbours(pod))
        slot = room.best(row, eligible, unwelcome, also)
        if slot is not None:
            return slot
        accepting = room.accepting(row)
        refusal = context.find(pod, Wish(accepting if cool is None else accepting & cool, _NOT_A_DESTINATION))
        if plain and isinstance(refusal, Refusal) and room.best(row, eligible, (), cool) is None:
            # told in these words of all pods alike that use as much or more, whichever node is their own
            stuck = self._stuck.setdefault(likes, [])
            stuck[:] = [(uses, refusal), *stuck[: _STUCK - 1]]
        return refusal

    def take(self, pod: Pod, slot: int) -> None:
        """Count a pod that was moved to a slot."""
        self._room.take(slot, self._kind(pod).row)

    def _kind(self, pod: Pod) -> Kind:
        found = self._kinds.get(id(pod.spec))  # the snapshot holds the specs of its pods, so ids stay theirs
        if found is None:
            row, eligible = self._snapshot.row(pod.spec), self._placer.eligible(pending(pod))
            found = self._kinds[id(pod.spec)] = Kind(row, eligible, (row.tobytes(), id(eligible)))
        return found

    def _uses(self, pod: Pod) -> Amounts:
        """What the pod uses of what is measured and has a target; nothing by requests."""
        if not self._burden.measures:
            return ()
        amounts = self._burden.of(pod)
        return tuple(int(amounts[level.column]) for level in self._measured)

    def _cool(self, pod: Pod) -> BoolArray | None:
        return cool(self._burden, self._measured, pod) if self._burden.measures else None  # else Room sees to it

    def _suitable_neighbours(self, pod: Pod) -> BoolArray:
        """The slots whose pods, and those of the nodes around them, let the pod in; its own presence aside."""
        mark = self._snapshot.mark()
        try:
            return self._placer.neighbourly(self._placer.lift(pod))
        finally:
            self._snapshot.undo(mark)


def cool(burden: Burden, measured: Sequence[Level], pod: Pod) -> BoolArray:
    """The slots that stay at or below every target with what the pod really uses: bool, shape (nodes.capacity,)."""
    present, row = burden.present(), burden.of(pod)
    mask: BoolArray = burden.known.copy()
    for level in measured:
        most = room_below_target(burden.table.allocatable[:, level.column], level.target)
        mask &= present[:, level.column] + row[level.column] <= most
    return mask


def _both(one: BoolArray | None, other: BoolArray | None) -> BoolArray | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other
