"""What became of a pod whose time on its node was over."""

from __future__ import annotations

import enum

from msgspec import Struct

from trimtab.tainting.deadlines.rule import Deadline


class What(enum.Enum):
    """How it ended, or that it has not yet."""

    DELETED = "Deleted"  # the API server took the deletion, or the pod went after one whose answer was lost
    EVICTED = "Evicted"  # it granted the eviction, likewise
    GONE = "Gone"  # somebody else had deleted the pod, or another one had its name: nothing was done
    NOT_DUE = "NotDue"  # its time is not over any more, or taints do not end it: nothing was done
    REFUSED = "Refused"  # a webhook, a PodDisruptionBudget or a missing right said no; it is tried again
    FAILED = "Failed"  # no answer came, or the API server could not answer; it is tried again


class Ended(Struct, frozen=True, kw_only=True, gc=False):
    """What became of a pod whose time was over.

    Of a pod that is refused, or for which no answer comes, this comes with every try.

    Attributes:
        deadline: of the pod, as it counted in the end.
        what: how it ended, or what was in the way.
        reason: a code of :mod:`trimtab.api.reasons`.
        message: the same in words, with names and numbers; the server's own where it refused.
        attempts: how often it was tried, this time included.
        at: seconds since the epoch.
        held: seconds for which a rate of user taints held the pod back; they are part of the lateness.
        refuser: who refused: a webhook's name, ``PodDisruptionBudget``; ``""`` where nobody did or nobody knows who.
    """

    deadline: Deadline
    what: What
    reason: str
    message: str
    attempts: int
    at: float
    held: float = 0.0
    refuser: str = ""

    @property
    def lateness(self) -> float:
        """Seconds from the pod's time to this, never less than 0."""
        return max(0.0, self.at - self.deadline.due)
