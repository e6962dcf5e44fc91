"""Writes the outcomes of a run as they become known, not one by one.

A process that is killed in the middle has then told what it did but for the last seconds; a pod that goes in these is
found gone by whoever takes the run up. Nobody is evicted twice in any case: every eviction has the pod's UID.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final, Self

from trimtab.descheduling.runs import progress
from trimtab.descheduling.runs.keeper import RunKeeper
from trimtab.descheduling.runs.lifecycle import Run
from trimtab.disruption.outcome import Outcome

PAUSE: Final = 5.0
"""Seconds between two writes. Each writes the whole list, up to some hundred kilobytes."""


class Journal:
    """The outcomes of one run while it acts; an asynchronous context manager that writes what is left at its end.

    Args:
        keeper: writes.
        run: whose outcomes these are; ``None`` where no run tells of them.
        passing: whether outcomes are told that only say that an action's turn has not come.
    """

    def __init__(self, keeper: RunKeeper, run: Run | None, *, passing: bool) -> None:
        self._keeper = keeper
        self._run = run
        self._passing = passing
        self._shown = frozenset(action.uid for action in run.plan.actions) if run is not None else frozenset()
        self._waiting: list[Outcome] = []
        self._writing: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    def note(self, outcome: Outcome) -> None:
        """An outcome is known; written soon."""
        if self._run is not None and (self._passing or outcome.reason not in progress.PASSING):
            self._waiting.append(outcome)

    async def __aenter__(self) -> Self:
        """Begin to write."""
        if self._run is not None:
            self._writing = asyncio.create_task(self._write_on(), name=f"journal of {self._run.name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the rest."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
        if kind is None or not issubclass(kind, asyncio.CancelledError):
            await self._flush()

    async def _write_on(self) -> None:
        while True:
            await asyncio.sleep(PAUSE)
            await asyncio.shield(asyncio.ensure_future(self._flush()))

    async def _flush(self) -> None:
        async with self._lock:  # a write that was under way when the end came is waited for
            if self._run is None or not self._waiting:
                return
            outcomes, self._waiting = self._waiting, []
            before = self._keeper.get(self._run).status
            self._run = await self._keeper.note(self._run, progress.noted(before, outcomes, shown=self._shown))
