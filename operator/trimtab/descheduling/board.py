"""What all policies of a plan share: one picture, one placer, one gate, one list of moves."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from trimtab.api.plan import Evict, Kept
from trimtab.cluster.rollouts import Rollouts
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.leaning import Leaning
from trimtab.descheduling.overlap import Overlap
from trimtab.disruption.gate import Gate
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer


class Guard(Protocol):
    """A strategy's objection to moves of the strategies after it: what it has repaired is not undone by them."""

    unwelcome_text: str

    def may_object(self) -> bool:
        """Whether there is any pod to whose moves it could object; asked once, so that it need not be asked of each."""
        ...

    def objections(self, pod: Pod) -> Collection[int]:
        """The slots where the pod would make the strategy's measure rise."""
        ...


class Watcher(Protocol):
    """Whoever keeps count of what is where and so must hear of every move."""

    def moved(self, before: Pod, after: Pod) -> None:
        """Take note of a planned move; one that is taken back is told as a move the other way round."""
        ...


class Board:
    """What all policies of a plan share: one picture, one placer, one gate, one list of moves.

    Args:
        snapshot: inside a fork that the caller holds.
        now: seconds since the epoch.
        rollouts: the Deployments, for policies with ``singleReplica: Surge``.
        leaving: pods that are being evicted in the background already.
    """

    def __init__(
        self, snapshot: Snapshot, *, now: float, rollouts: Rollouts | None = None, leaving: Iterable[Pod] = ()
    ) -> None:
        self.snapshot = snapshot
        self.now = now
        self.placer = Placer(snapshot)
        self.gate = Gate(snapshot, now=now, rollouts=rollouts, leaving=leaving)
        self.actions: list[Evict] = []
        self.kept: list[Kept] = []
        self.moved: set[str] = set()
        self.leaning = Leaning(self.placer)
        self.overlap = Overlap(self.placer)
        self.watchers: tuple[Watcher, ...] = ()
