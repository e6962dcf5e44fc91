"""What became of a run's actions, and who is told."""

from __future__ import annotations

import logging
from typing import Final

from trimtab.disruption.announce import announce
from trimtab.disruption.attempt import Answer
from trimtab.disruption.lanes import Job, Lane
from trimtab.disruption.outcome import EVICTED, FAILED, STARTED, Outcome
from trimtab.disruption.terms import Means, Terms

log = logging.getLogger(__name__)

_TAKEN: Final = frozenset({EVICTED, STARTED})
"""What the owner misses a pod for, or will."""


class Register:
    """The outcomes of one run, in the order of its actions.

    Args:
        number: how many actions there are.
        means: what the run works with.
        terms: what it has to keep to.
    """

    def __init__(self, number: int, means: Means, terms: Terms) -> None:
        self._means = means
        self._terms = terms
        self._outcomes: list[Outcome | None] = [None] * number

    def outcomes(self) -> list[Outcome]:
        """Those that are known."""
        return [outcome for outcome in self._outcomes if outcome is not None]

    def finish(self, lane: Lane, job: Job, answer: Answer) -> None:
        """Note how an action ended, settle what it took of owner and pace, and tell it."""
        book, now = self._means.book, self._means.clock.monotonic()
        if answer.result in _TAKEN:
            if lane.owner is not None:
                book.grant(lane.owner, now=now)
        else:
            if lane.owner is not None:
                book.close(lane.owner, job.action.uid)
            if answer.result != FAILED:  # what fails for one pod may fail for all: then the pace spares the API server
                self.release(job)
        outcome = Outcome(
            action=job.action,
            result=answer.result,
            reason=answer.reason,
            message=answer.message,
            at=self._means.clock.now(),
        )
        self._outcomes[job.index] = outcome
        try:
            announce(outcome, policy=self._terms.policy, recorder=self._means.recorder)
            for observe in (self._means.observe, self._terms.observe):
                if observe is not None:
                    observe(outcome)
        except Exception:  # what is told of an eviction must not hinder the next
            log.exception("could not tell what became of %s", job.action.key)

    def release(self, job: Job) -> None:
        """Give back what the pace had given: nothing was evicted for it."""
        if job.started is not None:
            self._terms.pace.give_back(job.started)
            job.started = None
