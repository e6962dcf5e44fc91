"""Verifies silent watches: a hung connection cannot be distinguished from a resource without changes.

A watch of Leases becomes silent if its connection hangs, and also if all nodes have failed. A controller that reacts to
the failure of nodes must rule out the first case. So the prober opens a second watch at the resource version of the
first one, for one second. If the second watch delivers nothing, the first one has missed nothing. This costs one
request, regardless of the number of objects, while a list would transfer megabytes.

The result is only as reliable as the API server's watch cache. So a controller also reads the single object before it
acts because of missing heartbeats.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any, Final

from trimtab.kube.api import Api, ApiError, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.resources import Resource
from trimtab.kube.watching.informer import Informer, InformerState

PROBE_AFTER: Final = 6.0
"""Seconds without data after which a watch is probed."""

CHECK_PERIOD: Final = 0.5
"""Seconds between two checks of all watches."""

PROBE_PERIOD: Final = 2.0
"""Seconds between two probes of one watch."""

PROBE_SECONDS: Final = 1
"""Seconds after which the server ends the second watch of a probe."""

HUNG_AFTER: Final = 20.0
"""Seconds without verification after which a watch is considered hung. At least two probes have failed by then."""

CLOCK_SKEW: Final = 1.0
"""Maximum number of seconds by which a stored time may be in the future, after a small correction of the clock."""

ERROR_EVENT_PREFIX: Final = b'{"type":"ERROR"'
"""The first bytes of a stream in which the server rejects a watch, for example because the version is too old."""

PROBE_TIMEOUT: Final = 5.0
"""Timeout of a probe in seconds, including opening the watch."""


class WatchProber:
    """Probes silent watches, and stores the time at which each watch was last verified.

    Args:
        api: the API server.
        informers: the informers whose watches are probed.
        clock: provides the time.
    """

    def __init__(self, api: Api, informers: Sequence[Informer[Any]], clock: Clock) -> None:
        self._api = api
        self._informers = tuple(informers)
        self._clock = clock
        self._probe_succeeded_at: dict[str, float] = {}
        self._probe_succeeded_in: dict[str, InformerState] = {}
        self._probed_at: dict[str, float] = {}  # on the monotonic clock
        self._lagging: dict[str, str] = {}  # the version after which a second watch delivered more

    def verified_at(self, resources: Collection[Resource]) -> float | None:
        """Return when the watches of these resources were last verified. If these times differ, return the earliest.

        Any data from the server verifies a watch, including bookmarks. A probe that delivers nothing verifies it as
        well.

        Returns:
            Seconds since the epoch, or ``None`` if a watch was never verified.
        """
        times = [self._verified_at(each) for each in self._informers if each.resource in resources]
        known = [time for time in times if time is not None]
        return min(known) if known and len(known) == len(times) else None

    def stalled_reason(self, resources: Collection[Resource]) -> str | None:
        """Return why the stores of these resources may be stale, or ``None`` if their watches are verified.

        The reason is that a watch hangs, lags behind or was disconnected. A watch that was disconnected is open again
        before it delivers the missed events. Until its first event, or a probe that finds none, its store is as old as
        the disconnect.

        While :meth:`probe` is not called, every silent watch is considered hung.
        """
        now = self._clock.now()
        silent, unconfirmed, lagging = [], [], []
        for each in self._informers:
            if each.resource not in resources:
                continue
            verified_at = self._verified_at(each)
            if verified_at is None:
                silent.append(f"{each.resource.plural} since the clock was set")
            elif now - verified_at > HUNG_AFTER:
                silent.append(f"{each.resource.plural} for {now - verified_at:.0f} s")
            elif each.version and self._lagging.get(each.path) == each.version:
                lagging.append(each.resource.plural)
            elif self._unconfirmed(each):
                unconfirmed.append(
                    f"no event for {each.resource.plural} since a disconnect {now - verified_at:.0f} s ago"
                )
        if lagging:
            unconfirmed.append(f"the watch lags behind for {', '.join(lagging)}")
        return f"the watch hangs for {', '.join(silent)}" if silent else "; ".join(unconfirmed) or None

    async def probe(self) -> None:
        """Probe the silent watches. Call it every :data:`CHECK_PERIOD` seconds."""
        await asyncio.gather(*(self._check(each) for each in self._informers))

    def _verified_at(self, informer: Informer[Any]) -> float | None:
        """Return when the informer's watch was last verified.

        Times in the future are ignored, because they are from before the clock was set back.
        """
        verified_at, now = None, self._clock.now() + CLOCK_SKEW
        for time in (informer.store.last_event, self._probe_succeeded_at.get(informer.path)):
            if time is not None and time <= now and (verified_at is None or time > verified_at):
                verified_at = time
        return verified_at

    def _unconfirmed(self, informer: Informer[Any]) -> bool:
        """Return whether a resumed watch has delivered nothing yet.

        The method compares states instead of times, because times may change.
        """
        return informer.unconfirmed and self._probe_succeeded_in.get(informer.path) is not informer.state

    async def _check(self, informer: Informer[Any]) -> None:
        verified_at, now = self._verified_at(informer), self._clock.now()
        if verified_at is not None and now - verified_at < PROBE_AFTER and not self._unconfirmed(informer):
            return
        if not informer.version or informer.state.phase != "Watching":
            return
        asking = self._clock.monotonic()
        if asking < self._probed_at.get(informer.path, -PROBE_PERIOD) + PROBE_PERIOD:
            return
        self._probed_at[informer.path], state, version = asking, informer.state, informer.version
        more = await self._second_watch_delivers(informer)
        if more is False:
            self._probe_succeeded_at[informer.path], self._probe_succeeded_in[informer.path] = now, state
        elif more:
            self._lagging[informer.path] = version  # until the first watch delivers something

    async def _second_watch_delivers(self, informer: Informer[Any]) -> bool | None:
        """Return whether a second watch at the same resource version delivers anything.

        The result is ``None`` if the probe failed.
        """
        params = {
            **informer.selectors,
            "watch": "true",
            "resourceVersion": informer.version,
            "timeoutSeconds": str(PROBE_SECONDS),
        }
        try:
            async with (
                asyncio.timeout(PROBE_TIMEOUT),
                self._api.stream(informer.path, params=params, idle_timeout=PROBE_TIMEOUT) as chunks,
            ):
                async for chunk in chunks:
                    return None if chunk.startswith(ERROR_EVENT_PREFIX) else True
        except (ApiError, Unreachable, TimeoutError):
            return None
        return False
