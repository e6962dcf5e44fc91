"""What is told of pods that do not go."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from trimtab.api.bounds import short
from trimtab.api.scalars import to_time
from trimtab.api.taint_manager_status import RefusedPod, StuckNode
from trimtab.tainting.ending.answer import Answer
from trimtab.tainting.ending.job import Job
from trimtab.tainting.ending.outcome import Ended, What
from trimtab.tainting.ending.stuck import stuck_nodes
from trimtab.tainting.services import Services

LONG: Final = 1024
"""Bytes of a message."""

NOBODY: Final = 3
"""Tries without an answer from which on a pod counts as refused: by nobody, but it does not go."""

EVERY: Final = 10.0
"""Seconds between two looks for nodes whose pods cannot end."""


def refused_pods(jobs: Iterable[Job]) -> tuple[RefusedPod, ...]:
    """The pods that somebody does not let go, the longest due first."""
    refused = [job for job in jobs if _refused(job)]
    return tuple(_told(job) for job in sorted(refused, key=lambda each: (each.deadline.due, each.deadline.key)))


def _refused(job: Job) -> bool:
    if job.last is None:
        return False
    return job.last.what is What.REFUSED or (job.last.what is What.FAILED and job.attempts >= NOBODY)


def _told(job: Job) -> RefusedPod:
    namespace, _, name = job.deadline.key.partition("/")
    message = job.last.message if job.last is not None else ""
    return RefusedPod(
        namespace=namespace,
        pod=name,
        node=job.deadline.node,
        due=to_time(job.deadline.due),
        attempts=job.attempts,
        message=short(message, LONG),
    )


class Tally:
    """Counts what became of pods and tells of it.

    Attributes:
        deleted: pods that were deleted.
        evicted: pods that were evicted.
    """

    def __init__(self, services: Services) -> None:
        self.deleted = 0
        self.evicted = 0
        self._services = services

    def take(self, job: Job, answer: Answer) -> None:
        """Take what became of a pod, or what is in its way."""
        self.deleted += answer.what is What.DELETED
        self.evicted += answer.what is What.EVICTED
        self._services.teller.ended(
            Ended(
                deadline=job.deadline,
                what=answer.what,
                reason=answer.reason,
                message=answer.message,
                attempts=job.attempts,
                at=self._services.clock.now(),
                held=job.held,
                refuser=answer.refuser,
            )
        )


class StuckWatch:
    """Finds the nodes whose pods cannot end, and goes through the cluster for that no more often than need be."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._nodes: tuple[StuckNode, ...] = ()
        self._again = 0.0

    def nodes(self) -> tuple[StuckNode, ...]:
        """By name, as found now or a few seconds ago."""
        now = self._services.clock.monotonic()
        if now >= self._again:
            self._again = now + EVERY
            self._nodes = stuck_nodes(self._services.picture, now=self._services.clock.now())
        return self._nodes
