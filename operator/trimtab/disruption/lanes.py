"""Lanes: an owner's evictions one behind the other, owners side by side."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from trimtab.api.plan import SURGE, Evict
from trimtab.cluster.owners import OwnerKey
from trimtab.disruption.answer import Answer
from trimtab.disruption.departure import Departure


@dataclass(slots=True)
class Job:
    """One action on its way.

    Attributes:
        index: its place in the plan.
        action: the eviction.
        tries: requests that were answered by "later", or not at all.
        last: what the latest of them came to.
        asked: whether a request's answer was ever lost, so that the pod may go because of us.
        started: when the pace was taken for it, seconds on the monotonic clock.
        mark: of a surge, the time by which its restart is known again; empty until it was asked for.
        departure: what was begun for the pod and is watched.
    """

    index: int
    action: Evict
    tries: int = 0
    last: Answer | None = None
    asked: bool = False
    started: float | None = None
    mark: str = ""
    departure: Departure | None = None

    @property
    def doubt(self) -> bool:
        """Whether the latest request may have evicted the pod without our knowing."""
        return self.last is not None and self.last.doubt


@dataclass(slots=True)
class Lane:
    """The jobs of one owner in the plan's order. An action without an owner has a lane of its own.

    Attributes:
        owner: the controller, ``None`` where the action names none.
        jobs: what is left; the first is the next one.
        waits_since: since when the owner has been known to be unsettled, seconds on the monotonic clock.
        waits_for: why it is.
        evicted: whether a pod of the lane has been evicted, so that its replacement is worth waiting for longer.
    """

    owner: OwnerKey | None
    jobs: deque[Job] = field(default_factory=deque)
    waits_since: float | None = None
    waits_for: str = ""
    evicted: bool = False

    @property
    def head(self) -> Job:
        """The next job."""
        return self.jobs[0]


class LaneQueue:
    """Lanes that wait for their turn, the one whose next action stands first in the plan before the others."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._ready = [(lane.head.index, lane) for lane in lanes]
        self._later: list[tuple[float, int, Lane]] = []

    def __bool__(self) -> bool:
        return bool(self._ready or self._later)

    def put(self, lane: Lane, *, at: float = 0.0) -> None:
        """Let a lane wait until ``at``, seconds on the monotonic clock."""
        heapq.heappush(self._later, (at, lane.head.index, lane))

    def has_ready(self, now: float) -> bool:
        """Whether some lane may go on now."""
        while self._later and self._later[0][0] <= now:
            _, index, lane = heapq.heappop(self._later)
            heapq.heappush(self._ready, (index, lane))
        return bool(self._ready)

    def pop(self) -> Lane:
        """The first of the ready lanes."""
        return heapq.heappop(self._ready)[1]

    def next_at(self) -> float | None:
        """When the next of the waiting lanes gets ready."""
        return self._later[0][0] if self._later else None

    def drain(self) -> list[Lane]:
        """Take all lanes out."""
        lanes = [lane for _, lane in self._ready] + [lane for _, _, lane in self._later]
        self._ready.clear()
        self._later.clear()
        return lanes


def lanes_of(actions: Sequence[Evict]) -> list[Lane]:
    """The actions by owner, in the order of each lane's first.

    Pods that have run to their end, or go by a rollout, have lanes of their own: their owner misses nothing.
    """
    lanes: dict[object, Lane] = {}
    for index, action in enumerate(actions):
        owner = owner_of(action) if action.target and action.how != SURGE else None
        key: object = index if owner is None else owner
        lane = lanes.setdefault(key, Lane(owner))
        lane.jobs.append(Job(index, action))
    return list(lanes.values())


def owner_of(action: Evict) -> OwnerKey | None:
    """The action's owner as the snapshot keys it, from ``Kind/name``."""
    kind, _, name = action.owner.partition("/")
    return (action.namespace, kind, name) if name else None
