"""What is known of a removal: how far it is while it goes on, and how it ended. Values, for whoever tells of them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from msgspec import Struct


class Phase(StrEnum):
    """How far a removal is, in the order in which they come."""

    TAINTING = "Tainting"
    """The node gets its taint, and its cordon where that is wanted."""
    WAITING = "Waiting"
    """Whoever was about to put a pod on the node has a moment to see the taint."""
    EVICTING = "Evicting"
    """It was judged again and holds; the pods are evicted, and waited for until they are gone."""
    EVICTING_DAEMON_SETS = "EvictingDaemonSets"
    """Only pods of DaemonSets are left; they are evicted as far as that goes."""
    DELAYED = "Delayed"
    """The node's annotations ask for its deletion to wait."""
    DRAINED = "Drained"
    """Nothing keeps the node any more; it waits for others of its group that are about to be so far."""
    REMOVING = "Removing"
    """The machine is being marked, and the group's size lowered."""
    VERIFYING = "Verifying"
    """The size is lowered; whether the right machine goes is being looked at."""
    RETURNING = "Returning"
    """The removal has ended without the node; taint, cordon and marks are taken back."""


class Result(StrEnum):
    """How a removal ended."""

    REMOVED = "Removed"
    """The machine is gone, or being deleted."""
    FAILED = "Failed"
    """It was tried and did not work: no node is tried for ``delayAfterFailure``."""
    ABORTED = "Aborted"
    """The node is to stay after all, or nobody is to act: no failure."""


class RemovalState(Struct, frozen=True):
    """A removal that goes on.

    Attributes:
        node: its name.
        group: the id of the node's group.
        machine: ``namespace/name``; empty where the node shows none.
        phase: how far it is.
        since: when it began, in seconds since the epoch: the taint's time.
        message: what it does or waits for, in words.
        uid: of the node.
        why: why the node goes: Underutilized, Empty or Unready.
        empty: whether no pod had to be moved when it began.
        resumed: whether an earlier process began it.
    """

    node: str
    group: str
    machine: str
    phase: Phase
    since: float
    message: str = ""
    uid: str = ""
    why: str = ""
    empty: bool = False
    resumed: bool = False


class RemovalOutcome(Struct, frozen=True):
    """How a removal ended.

    Attributes:
        node: its name.
        group: the id of the node's group.
        result: how it ended.
        reason: of a node that went why it did (Underutilized, Empty, Unready), else why not: a code of
            :mod:`trimtab.api.reasons`.
        message: the same in words.
        evicted: the pods that were evicted, ``namespace/name``, with their UIDs; those of DaemonSets included.
        calls: requests that were sent for it; of what was sent for several nodes of a group, its share.
        started: when it began, in seconds since the epoch.
        finished: when it ended, in seconds since the epoch.
        uid: of the node.
        machine: ``namespace/name``; empty where the node shows none.
        why: why the node was to go, also where it did not.
        refused: the pod that kept the node, ``namespace/name``; empty where none did.
        refused_uid: of that pod.
        left: what could not be taken back, in words; :meth:`Removals.reconcile` tries again. Empty where all was.
    """

    node: str
    group: str
    result: Result
    reason: str
    message: str
    evicted: Mapping[str, str] = {}
    calls: float = 0.0
    started: float = 0.0
    finished: float = 0.0
    uid: str = ""
    machine: str = ""
    why: str = ""
    refused: str = ""
    refused_uid: str = ""
    left: str = ""

    @property
    def done(self) -> bool:
        """Whether the node went."""
        return self.result is Result.REMOVED

    @property
    def failed(self) -> bool:
        """Whether it counts for ``delayAfterFailure``."""
        return self.result is Result.FAILED


class Teller(Protocol):
    """Hears of removals as they happen, for what cannot wait for the end of a pass. Never raises."""

    def began(self, state: RemovalState) -> None:
        """A node has its taint."""
        ...

    def ended(self, outcome: RemovalOutcome) -> None:
        """A removal ended; the outcome is also in :meth:`Removals.take_outcomes`."""
        ...


class Silent:
    """A :class:`Teller` that tells nobody."""

    def began(self, state: RemovalState) -> None:
        """See :class:`Teller`."""

    def ended(self, outcome: RemovalOutcome) -> None:
        """See :class:`Teller`."""
