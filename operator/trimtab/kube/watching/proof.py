"""Whether a watch that says nothing still works: asked of the API server, where nobody has reason to say anything.

A watch of Leases falls silent when its connection hangs, and just so when all nodes have died: who has to act on the
second must not take it for the first. A second watch, from the version up to which the first has told everything, ends
after a second. Where it brings nothing, there was nothing to tell. It costs one request, however many objects there
are; listing them to compare would cost megabytes.

It shows what the API server's cache has. Whoever acts on silence asks for the single object besides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any, Final

from trimtab.kube.api import Api, ApiError, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.resources import Resource
from trimtab.kube.watching.informer import Informer
from trimtab.kube.watching.state import InformerState

SILENT: Final = 6.0
"""Seconds without a word after which a watch is asked after."""

LOOK: Final = 0.5
"""Seconds between two looks at the watches."""

BETWEEN: Final = 2.0
"""Seconds between two questions after one watch."""

ASKING: Final = 1
"""Seconds after which the server ends the second watch."""

HUNG: Final = 20.0
"""Seconds without a proof after which a watch that should be working counts as one that hangs: two questions failed."""

AHEAD: Final = 1.0
"""Seconds by which a time may be ahead of the clock that has since been corrected a little."""

REFUSED: Final = b'{"type":"ERROR"'
"""How a watch begins that the server refuses once it has answered, as where the version is too old."""

PATIENCE: Final = 5.0
"""Seconds that it has in all, opening included."""


class WatchProof:
    """When watches last proved that they work.

    Args:
        api: the server.
        informers: that watch.
        clock: the time.
    """

    def __init__(self, api: Api, informers: Sequence[Informer[Any]], clock: Clock) -> None:
        self._api = api
        self._informers = tuple(informers)
        self._clock = clock
        self._proved: dict[str, float] = {}
        self._shown: dict[str, InformerState] = {}  # in which state it was
        self._asked: dict[str, float] = {}  # when, by the monotonic clock
        self._behind: dict[str, str] = {}  # the version from which on a second watch was told more

    def heard(self, resources: Collection[Resource]) -> float | None:
        """When the one of these that has been silent for longest last proved that it works.

        Whatever the server sends is a proof, a bookmark too, and so is a second watch that brings nothing.

        Returns:
            Seconds since the epoch, ``None`` for never.
        """
        times = [self._heard(each) for each in self._informers if each.resource in resources]
        known = [time for time in times if time is not None]
        return min(known) if known and len(known) == len(times) else None

    def hung(self, resources: Collection[Resource]) -> str | None:
        """Which of these says nothing and cannot be shown to work, in words; ``None`` for none.

        A watch that was cut is open again before it has told what happened meanwhile: until its first word, or a proof
        that there is none, what is known is as old as the outage.

        It says so of every watch that has nothing to tell while :meth:`run` does not run.
        """
        now = self._clock.now()
        silent, cut, behind = [], [], []
        for each in self._informers:
            heard = self._heard(each)
            if each.resource not in resources:
                continue
            if heard is None:
                silent.append(f"{each.resource.plural} since the clock was set")
            elif now - heard > HUNG:
                silent.append(f"{each.resource.plural} for {now - heard:.0f} s")
            elif each.version and self._behind.get(each.path) == each.version:
                behind.append(each.resource.plural)
            elif self._untold(each):
                cut.append(
                    f"{each.resource.plural} have not been told since their watch was cut {now - heard:.0f} s ago"
                )
        if behind:
            cut.append(f"a second watch is told more of {', '.join(behind)}")
        return f"the watch hangs of {', '.join(silent)}" if silent else "; ".join(cut) or None

    async def run(self) -> None:
        """Ask after those that are silent, until cancelled."""
        while True:
            await asyncio.gather(*(self._look(each) for each in self._informers))
            await self._clock.sleep(LOOK)

    def _heard(self, informer: Informer[Any]) -> float | None:
        """When, but for times that are still to come: they are of before the clock was set back."""
        times, now = [informer.store.last_event, self._proved.get(informer.path)], self._clock.now() + AHEAD
        return max((time for time in times if time is not None and time <= now), default=None)

    def _untold(self, informer: Informer[Any]) -> bool:
        """Whether a watch goes on after a cut, and has said nothing yet; by no clock, for those are set."""
        return informer.untold and self._shown.get(informer.path) is not informer.state

    async def _look(self, informer: Informer[Any]) -> None:
        heard, now = self._heard(informer), self._clock.now()
        if heard is not None and now - heard < SILENT and not self._untold(informer):
            return
        if not informer.version or informer.state.phase != "Watching":
            return
        asking = self._clock.monotonic()
        if asking < self._asked.get(informer.path, -BETWEEN) + BETWEEN:
            return
        self._asked[informer.path], state, version = asking, informer.state, informer.version
        more = await self._told_more(informer)
        if more is False:
            self._proved[informer.path], self._shown[informer.path] = now, state
        elif more:
            self._behind[informer.path] = version  # of no account once the first one has told something, too

    async def _told_more(self, informer: Informer[Any]) -> bool | None:
        """Whether a second watch from where the first one is brings anything; ``None`` where that could not be seen."""
        params = {
            **informer.selectors,
            "watch": "true",
            "resourceVersion": informer.version,
            "timeoutSeconds": str(ASKING),
        }
        try:
            async with (
                asyncio.timeout(PATIENCE),
                self._api.stream(informer.path, params=params, idle_timeout=PATIENCE) as chunks,
            ):
                async for chunk in chunks:
                    return None if chunk.startswith(REFUSED) else True
        except (ApiError, Unreachable, TimeoutError):
            return None
        return False
