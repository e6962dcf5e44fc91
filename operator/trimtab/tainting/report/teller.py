"""What the taint manager's loops tell of while they work; who hears it decides what becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from trimtab.api.taint_manager import TaintManagerSpec
from trimtab.api.taint_manager_status import TaintManagerStatus
from trimtab.tainting.conditions import TaintChange
from trimtab.tainting.deadlines import Deadline

if TYPE_CHECKING:
    from trimtab.tainting.ending.outcome import Ended


class Teller(Protocol):
    """Takes what happens, for events and metrics. Every method returns at once and never raises.

    It may be told of 7,200 pods in one moment, and of 150,000 after a restart; it bounds what it sends by itself, so
    that nobody else need think of it.
    """

    def configure(self, spec: TaintManagerSpec, *, uid: str) -> None:
        """Go by this spec from now on: events say other things in Observe.

        Args:
            spec: of the TaintManager.
            uid: of the TaintManager, which events on nodes name as related.
        """
        ...

    def deadline_set(self, deadline: Deadline, *, before: Deadline | None = None) -> None:
        """A pod's time on its node is limited, or ends at another time than before."""
        ...

    def deadline_dropped(self, deadline: Deadline, *, stays: bool) -> None:
        """A pod's time is not limited any more.

        Args:
            deadline: that it had.
            stays: whether the pod is there and may stay: the deletion is cancelled. If not, the pod, or its node, has
                gone or is going, which is told by :meth:`ended` where we did it.
        """
        ...

    def ended(self, ended: Ended) -> None:
        """What came of ending a pod; one that is refused may be told of at each try."""
        ...

    def taint_changed(self, change: TaintChange, *, uid: str) -> None:
        """A taint was put on a node, or taken off it, by us: the API server has it.

        Args:
            change: what was written.
            uid: of the node.
        """
        ...

    def node(self, name: str, *, uid: str, reason: str, note: str, warning: bool = False) -> None:
        """Something else happened to a node.

        Args:
            name: of the node.
            uid: of the node.
            reason: one of :mod:`trimtab.api.reasons`.
            note: for people, with names and numbers.
            warning: whether it is to be looked at.
        """
        ...

    def observe(self, status: TaintManagerStatus) -> None:
        """How things are now; called with every status that is made, also where it is not written."""
        ...
