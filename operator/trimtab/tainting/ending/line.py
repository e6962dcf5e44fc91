"""The line in which pods stand for a worker, so that no namespace takes all workers."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import Final

from trimtab.tainting.ending.job import Job

SHARE: Final = 3
"""A namespace may have so many times the workers that are free: 24 of 32 alone, 6 more a second one, and so on."""


class Line:
    """Namespaces take turns, and the pods of one go in the order in which they came.

    Where a webhook keeps each request of a namespace waiting for ten seconds, the others' pods go meanwhile: there is
    always a worker left for them.

    Args:
        workers: how many there are.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._jobs: dict[str, deque[Job]] = {}
        self._turns: deque[str] = deque()
        self._busy: Counter[str] = Counter()
        self._all_busy = 0
        self._idle: deque[asyncio.Future[Job]] = deque()

    def put(self, job: Job) -> None:
        """A pod comes."""
        namespace = _namespace(job)
        if namespace not in self._jobs:
            self._jobs[namespace] = deque()
            self._turns.append(namespace)
        self._jobs[namespace].append(job)
        self._hand_out()

    async def next(self) -> Job:
        """The next one for a worker, once there is one; :meth:`done` has to follow."""
        waits: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        self._idle.append(waits)
        self._hand_out()
        try:
            return await waits
        except asyncio.CancelledError:
            if waits.done() and not waits.cancelled():  # handed out to a worker that is ended
                self.done(waits.result())
                self.put(waits.result())
            raise

    def done(self, job: Job) -> None:
        """A worker has ended with a pod, for now."""
        namespace = _namespace(job)
        self._all_busy -= 1
        self._busy[namespace] -= 1
        if not self._busy[namespace]:
            del self._busy[namespace]
        self._hand_out()

    def _hand_out(self) -> None:
        passed = 0
        while passed < len(self._turns) and self._worker():
            namespace = self._turns.popleft()
            if self._busy[namespace] >= SHARE * (self._workers - self._all_busy):
                self._turns.append(namespace)
                passed += 1
                continue
            jobs = self._jobs[namespace]
            self._busy[namespace] += 1
            self._all_busy += 1
            self._idle.popleft().set_result(jobs.popleft())
            if jobs:
                self._turns.append(namespace)
            else:
                del self._jobs[namespace]
            passed = 0

    def _worker(self) -> bool:
        """Whether a worker waits; those that were ended meanwhile do not."""
        while self._idle and self._idle[0].done():
            self._idle.popleft()
        return bool(self._idle)


def _namespace(job: Job) -> str:
    return job.deadline.key.partition("/")[0]
