"""Sends the queued events of one controller at a limited rate, which leaves capacity for those of other controllers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trimtab.kube.clock import Clock
from trimtab.kube.events.event import Occurrence
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.token_bucket import TokenBucket

RATE: Final = 25.0
"""Events per second after the burst. It is half of the recorder's limit for all controllers together."""

BURST: Final = 100.0


class PacedEvents:
    """Sends queued events through the recorder.

    Args:
        recorder: sends the events.
        clock: the monotonic clock.
        take: removes and returns the next queued event; ``None`` if there is none now.
    """

    def __init__(self, recorder: Recorder, clock: Clock, take: Callable[[], Occurrence | None]) -> None:
        self._recorder = recorder
        self._clock = clock
        self._take = take
        self._pace = TokenBucket(rate=RATE, burst=BURST, now=clock.monotonic())

    def send(self) -> None:
        """Send as many queued events as the rate limit allows now. Call it periodically."""
        now = self._clock.monotonic()
        while self._pace.wait(now) <= 0 and (event := self._take()) is not None:
            self._pace.take(now)
            self._recorder.event(
                event.regarding,
                reason=event.reason,
                action=event.action,
                note=event.note,
                type=event.type,
                related=event.related,
            )
