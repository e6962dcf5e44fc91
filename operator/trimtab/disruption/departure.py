"""What was begun for a pod and goes on by itself, watched to its end: a rollout, or an eviction that was taken over."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from trimtab.api.plan import SURGE, Evict
from trimtab.api.reasons import EVACUATED, EVACUATION_FAILED, ROLLED_OUT
from trimtab.disruption.answer import Answer
from trimtab.disruption.background import IN_PROGRESS, LONGEST
from trimtab.disruption.outcome import EVICTED, REFUSED
from trimtab.kube.objects import Pod


@dataclass(slots=True)
class Departure:
    """A pod on its way out.

    Attributes:
        begun: what is said of it as long as it has not ended.
        surge: whether a rollout renews the pod; else it is moved in the background.
        until: when watching ends, seconds on a monotonic clock.
        marked: whether the pod has said that it is being moved.
    """

    begun: Answer
    surge: bool
    until: float
    marked: bool = False

    def look(self, action: Evict, pod: Pod | None, *, now: float) -> Answer | None:
        """How it ended, or ``None`` while it goes on.

        Args:
            action: what was begun.
            pod: what has the pod's name now.
            now: seconds on a monotonic clock.
        """
        if pod is None or pod.uid != action.uid or pod.deleted is not None or pod.terminal:
            if self.surge:
                return Answer(EVICTED, ROLLED_OUT, f"Deployment {action.deployment} has its new pod")
            return Answer(EVICTED, EVACUATED, "it was moved in the background")
        if not self.surge:
            if IN_PROGRESS in pod.annotations:
                self.marked = True
            elif self.marked:
                return Answer(REFUSED, EVACUATION_FAILED, "who had taken the eviction over has given it up")
        if now < self.until:
            return None
        if self.surge:
            return self.last_word("is not done yet")
        message = f"who has taken the eviction over has not moved the pod within {LONGEST:.0f}s"
        return Answer(REFUSED, EVACUATION_FAILED, message)

    def last_word(self, why: str) -> Answer:
        """What is said where watching ends before it does."""
        what = "the rollout" if self.surge else "the eviction in the background"
        return msgspec.structs.replace(self.begun, message=f"{self.begun.message}; {what} {why}, and goes on by itself")


def departure(action: Evict, begun: Answer, *, now: float, rollout: float) -> Departure:
    """Watch what was begun just now (seconds on a monotonic clock), a rollout for so many seconds."""
    surge = action.how == SURGE
    return Departure(begun=begun, surge=surge, until=now + (rollout if surge else LONGEST))
