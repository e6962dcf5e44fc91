"""Which occurrences are told, and which join an event that was told already. No I/O and no clock of its own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from msgspec import Struct

from trimtab.kube.events.event import Event, Occurrence, event_name
from trimtab.kube.events.token_bucket import TokenBucket
from trimtab.kube.reference import ObjectReference


class RecorderLimits(Struct, frozen=True, kw_only=True):
    """How much is told.

    Attributes:
        window: seconds after its last occurrence in which an equal event joins the series. client-go's is 6 minutes.
        object_rate: events a second about one object, after the burst.
        object_burst: events at once about one object; generous, for a policy tells of each of its evictions.
        rate: requests a second, after the burst, about all objects.
        burst: requests at once.
        queue: events waiting to be sent. An outage of a minute or two must not lose any.
        remembered: series and objects kept in mind; the oldest are forgotten.
        refusal: seconds in which a namespace that refused events (gone, terminating, no RBAC) gets none.
    """

    window: float = 360.0
    object_rate: float = 1.0
    object_burst: float = 200.0
    rate: float = 50.0
    burst: float = 500.0
    queue: int = 5000
    remembered: int = 8192
    refusal: float = 60.0


class SeriesBook:
    """Remembers the events of the last minutes and how much was told of each object."""

    def __init__(self, limits: RecorderLimits) -> None:
        self._limits = limits
        self._events: OrderedDict[Occurrence, Event] = OrderedDict()
        self._seen: dict[Occurrence, float] = {}
        self._buckets: OrderedDict[ObjectReference, TokenBucket] = OrderedDict()
        self._number = 0
        self.repeated = 0

    def observe(self, occurrence: Occurrence, *, now: float, monotonic: float) -> Event | None:
        """Enter an occurrence.

        Returns:
            The event to write, new or grown; ``None`` if the object's rate is used up. A series is counted even then,
            and its next write has the full count.
        """
        event = self._events.get(occurrence)
        if event is not None and monotonic - self._seen[occurrence] <= self._limits.window:
            event.count += 1
            event.last = now
            self.repeated += 1
            self._remember(occurrence, event, monotonic)
            return event if self._allows(occurrence.regarding, monotonic) else None
        if not self._allows(occurrence.regarding, monotonic):
            return None
        event = Event(occurrence, name=self.name(occurrence, now=now), now=now)
        self._remember(occurrence, event, monotonic)
        return event

    def name(self, occurrence: Occurrence, *, now: float) -> str:
        """A name that this process has not given out yet: the time in nanoseconds, pushed on where that is not new."""
        self._number = max(self._number + 1, int(now * 1e9))
        return event_name(occurrence.regarding, self._number)

    def unwritten(self) -> Iterator[Event]:
        """Series that grew since they were last written, and wait in no queue."""
        return (event for event in self._events.values() if 0 < event.written < event.count and not event.queued)

    def _remember(self, occurrence: Occurrence, event: Event, monotonic: float) -> None:
        self._events[occurrence] = event
        self._seen[occurrence] = monotonic
        self._events.move_to_end(occurrence)
        if len(self._events) > self._limits.remembered:
            oldest, _ = self._events.popitem(last=False)
            del self._seen[oldest]

    def _allows(self, regarding: ObjectReference, monotonic: float) -> bool:
        bucket = self._buckets.get(regarding)
        if bucket is None:
            limits = self._limits
            bucket = TokenBucket(rate=limits.object_rate, burst=limits.object_burst, now=monotonic)
            self._buckets[regarding] = bucket
        self._buckets.move_to_end(regarding)
        if len(self._buckets) > self._limits.remembered:
            self._buckets.popitem(last=False)
        return bucket.take(monotonic)
