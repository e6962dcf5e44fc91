"""What tells a removal whether to go on: its end, the lease, the picture; asked before each request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from trimtab.api import reasons
from trimtab.autoscaling.actuation.ending import aborted, superseded
from trimtab.autoscaling.actuation.settings import RemovalSettings
from trimtab.disruption.refusal import Refusal
from trimtab.kube.clock import Clock

Leading = Callable[[], bool]
Stale = Callable[[], str | None]


class Steering:
    """Of one removal; a :class:`~trimtab.autoscaling.actuation.ending.Control`.

    Args:
        clock: where the time comes from.
        settings: how long a picture may be stale.
        leading: whether this process may still act.
        stale: what keeps the picture from being acted on now, ``None`` where nothing does.
        say: told what is being waited for.
    """

    def __init__(
        self, clock: Clock, settings: RemovalSettings, leading: Leading, stale: Stale, say: Callable[[str], None]
    ) -> None:
        self._clock, self._settings = clock, settings
        self._leading, self._stale = leading, stale
        self._against: Refusal | None = None
        self.say = say
        self.stopping = asyncio.Event()
        """Set once the removal is to end."""

    def end(self, refusal: Refusal) -> None:
        """Let the removal end at its next step; the first word counts."""
        self._against = self._against or refusal
        self.stopping.set()

    def lead(self) -> None:
        """Go on only in a process that may act.

        Raises:
            Ended: another may by now.
        """
        if not self._leading():
            raise superseded()

    async def checkpoint(self) -> None:
        """See :class:`~trimtab.autoscaling.actuation.ending.Control`."""
        began = self._clock.monotonic()
        while True:
            self.lead()
            if self._against is not None:
                raise aborted(self._against)
            why = self._stale()
            if why is None:
                return
            if self._clock.monotonic() - began >= self._settings.blind:
                raise aborted(Refusal(reasons.CLUSTER_UNREACHABLE, f"the picture of the cluster is not current: {why}"))
            self.say(f"the picture of the cluster is not current: {why}")
            await self.pause(self._settings.poll)

    async def pause(self, seconds: float) -> None:
        """See :class:`~trimtab.autoscaling.actuation.ending.Control`."""
        tasks = {asyncio.create_task(self._clock.sleep(seconds)), asyncio.create_task(self.stopping.wait())}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
