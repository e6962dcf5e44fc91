"""Records events (events.k8s.io/v1) asynchronously, so that they never delay the work that they report or make it fail.

Identical events within a time window become one event with a growing ``series``. Token buckets protect the API server
and etcd, which stores events for an hour. Excess events about one object are dropped, and if the total rate is too
high, requests are delayed. Events that cannot be delivered are dropped, counted and logged, because events are
best-effort and the status of objects is authoritative.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import takewhile
from types import TracebackType
from typing import Final, Protocol, Self

from msgspec import Struct

from trimtab.kube import verbs
from trimtab.kube.api import Api, ApiError, Conflict, Forbidden, NotFound, ServerError, TooManyRequests, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.events.event import MAX_NOTE_BYTES, NORMAL, Event, Occurrence, WrittenEvent, truncate
from trimtab.kube.printable import printable
from trimtab.kube.resources import EVENTS, ObjectReference
from trimtab.kube.retry import Backoff
from trimtab.kube.token_bucket import KeyedTokenBuckets, TokenBucket


class RecorderLimits(Struct, frozen=True, kw_only=True):
    """The limits of an :class:`EventRecorder`.

    Attributes:
        window: an identical event joins the series if it occurs within this number of seconds after the last one. The
            default is client-go's 6 minutes.
        object_rate: the maximum events per second about one object.
        object_burst: the burst of events about one object. It is large, because all evictions of a policy are reported
            on the policy.
        rate: the maximum requests per second for all events.
        burst: the burst of requests for all events.
        queue: the maximum number of queued events. It is large enough that an outage of one or two minutes loses none.
        remembered: the maximum number of series in memory. The oldest are dropped. The default is client-go's 4096.
        refusal: the seconds for which no events are sent to a namespace after the API server rejected one (namespace
            deleted or terminating, or no permission).
    """

    window: float = 360.0
    object_rate: float = 1.0
    object_burst: float = 200.0
    rate: float = 50.0
    burst: float = 500.0
    queue: int = 5000
    remembered: int = 4096
    refusal: float = 60.0


class SendingProgress(Protocol):
    """Receives reports on progress. :class:`trimtab.controller.progress.Component` implements it."""

    def expect(self) -> None:
        """Report that an event was queued."""
        ...

    def begin(self) -> None:
        """Report that an event is being sent."""
        ...

    def idle(self) -> None:
        """Report that no event is queued."""
        ...


class EventCorrelator:
    """Combines occurrences into events, and rate-limits them per object. It performs no I/O and reads no clock.

    Args:
        limits: the limits of the recorder.

    Attributes:
        repeated: the number of occurrences that joined a series.
    """

    def __init__(self, limits: RecorderLimits) -> None:
        self._limits = limits
        self._series: dict[int, Event | WrittenEvent] = {}
        """The series by the hashes of their occurrences, whose notes can be long. If two hashes were equal, one of the
        occurrences would be counted in the series of the other. The least recently observed series is the first. (An
        OrderedDict needs almost twice the memory.)"""
        self._buckets = KeyedTokenBuckets[ObjectReference](limits.object_rate, burst=limits.object_burst)
        self._number = 0
        self.repeated = 0

    def observe(self, occurrence: Occurrence, *, now: float, monotonic: float) -> Event | None:
        """Record an occurrence.

        Args:
            occurrence: what happened.
            now: seconds since the epoch.
            monotonic: seconds on the monotonic clock.

        Returns:
            The new or updated event to write, or ``None`` if the object's rate limit is exceeded. The occurrence is
            counted in its series in either case, so the next write contains the full count.
        """
        allowed = self._buckets.take(occurrence.regarding, monotonic)
        key = hash(occurrence)
        known = self._series.get(key)
        if known is not None and monotonic - known.seen <= self._limits.window:
            event = known if isinstance(known, Event) else Event.continued(occurrence, known)
            event.count += 1
            event.last = now
            self.repeated += 1
        elif allowed:
            event = Event(occurrence, number=self.number(now=now), now=now)
        else:
            return None
        event.seen = monotonic
        self._series.pop(key, None)
        self._series[key] = event
        if len(self._series) > self._limits.remembered:
            del self._series[next(iter(self._series))]
        return event if allowed else None

    def number(self, *, now: float) -> int:
        """Return a number for an event name: the time in nanoseconds, incremented if that was used before."""
        self._number = max(self._number + 1, int(now * 1e9))
        return self._number

    def expire(self, monotonic: float) -> list[Event]:
        """Forget the series that no occurrence can join any longer.

        Returns:
            Those whose latest count was not written and that are not queued.
        """
        unwritten = []
        window = self._limits.window
        for key, known in list(takewhile(lambda each: monotonic - each[1].seen > window, self._series.items())):
            del self._series[key]
            if isinstance(known, Event) and _is_unwritten(known):
                unwritten.append(known)
        return unwritten

    def unwritten(self) -> Iterator[Event]:
        """Yield the events whose latest count was not written and that are not queued."""
        for known in self._series.values():
            if isinstance(known, Event) and _is_unwritten(known):
                yield known

    def shrink(self, event: Event) -> None:
        """Keep only the counts of an event if its latest count was written."""
        key = hash(event.occurrence)
        if event.written == event.count and not event.queued and self._series.get(key) is event:
            self._series[key] = event.without_occurrence()


def _is_unwritten(event: Event) -> bool:
    return 0 < event.written < event.count and not event.queued


logger = logging.getLogger(__name__)

CONTROLLER: Final = "trimtab.dev/trimtab"
"""The ``reportingController`` of all events."""

# The reasons why events were dropped. They are keys of RecorderStatistics.dropped and labels of a metric.
OBJECT_RATE: Final = "ObjectRate"
QUEUE_FULL: Final = "QueueFull"
REFUSED: Final = "Refused"
UNDELIVERED: Final = "Undelivered"
STOPPED: Final = "Stopped"

RETRIES: Final = Backoff(initial=0.5, maximum=15.0, attempts=30)
"""Backoff for one event.

It allows retries for about eight minutes, which is longer than a restart of the control plane.
"""

MAX_DELAY: Final = 10.0
"""Maximum seconds for which an event waits while urgent requests are in flight."""

URGENT_CHECK: Final = 0.2
"""Seconds between two checks for urgent requests while an event waits for them."""

_DROPS_LOGGED_EVERY: Final = 60.0


class Recorder(Protocol):
    """The interface for recording events."""

    def event(
        self,
        regarding: ObjectReference,
        *,
        reason: str,
        action: str,
        note: str,
        type: str = NORMAL,  # noqa: A002  the API's own name
        related: ObjectReference | None = None,
    ) -> None:
        """Record an event about an object. The method returns immediately and never raises.

        Args:
            regarding: the object.
            reason: the reason as one CamelCase word.
            action: the action that was done or not done, as one CamelCase word such as ``Evict``.
            note: the message, which is truncated to 1 kB.
            type: ``Normal`` or ``Warning``.
            related: a second object, such as the policy that caused it.
        """
        ...


class RecorderStatistics(Struct, frozen=True):
    """Counters of events since the start.

    Attributes:
        recorded: the number of calls of :meth:`Recorder.event`.
        repeated: the number of occurrences that joined a series.
        written: the number of successful requests.
        dropped: the number of dropped events by cause.
        waiting: the current number of queued events.
    """

    recorded: int
    repeated: int
    written: int
    dropped: dict[str, int]
    waiting: int


class EventRecorder:
    """A :class:`Recorder` that writes to the API server in a background task.

    Use it as an async context manager, or run :meth:`run` as a task and call :meth:`stop` before its end. Call
    :meth:`event` only from the event loop's thread. It may be called before :meth:`run`.
    """

    def __init__(
        self,
        api: Api,
        *,
        instance: str,
        controller: str = CONTROLLER,
        clock: Clock = SYSTEM_CLOCK,
        limits: RecorderLimits | None = None,
        retries: Backoff = RETRIES,
        progress: SendingProgress | None = None,
        urgent: Callable[[], bool] | None = None,
    ) -> None:
        """Create a recorder. It sends nothing before :meth:`run`.

        Args:
            api: the API server.
            instance: the ``reportingInstance``, which identifies the replica; usually the pod's name.
            controller: the ``reportingController``, a qualified name.
            clock: provides the time.
            limits: the rate and size limits, or ``None`` for the defaults.
            retries: the backoff of one event after transient errors.
            progress: receives reports on the progress of :meth:`run`; ``None`` for no reports.
            urgent: returns whether many urgent requests are in flight, such as evictions. An event waits for them for
                up to :data:`MAX_DELAY` seconds.
        """
        self._api = api
        self._instance = instance
        self._controller = controller
        self._clock = clock
        self._limits = limits or RecorderLimits()
        self._retries = retries
        self._correlator = EventCorrelator(self._limits)
        self._rate = TokenBucket(rate=self._limits.rate, burst=self._limits.burst, now=clock.monotonic())
        self._queue: asyncio.Queue[Event] = asyncio.Queue(self._limits.queue)
        self._refused_until: dict[str, float] = {}
        self._refusals_logged: set[tuple[str, type[ApiError]]] = set()
        self._recorded = self._written = 0
        self._dropped: Counter[str] = Counter()
        self._drops_logged = -_DROPS_LOGGED_EVERY
        self._task: asyncio.Task[None] | None = None
        self._running = self._stopping = False
        self._progress = progress
        self._urgent = urgent or (lambda: False)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.run(), name="event-recorder")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self, deadline: float = 5.0) -> None:
        """Send the queued events without a rate limit for at most ``deadline`` seconds, and drop the rest.

        :meth:`run` must still be running.
        """
        self._stopping = True
        for event in self._correlator.unwritten():
            self._enqueue(event)
        if self._running or self._task is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(deadline):
                    await self._queue.join()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        while not self._queue.empty():
            self._drop(self._queue.get_nowait().occurrence, STOPPED)

    def statistics(self) -> RecorderStatistics:
        """Return the current counters, for metrics."""
        return RecorderStatistics(
            recorded=self._recorded,
            repeated=self._correlator.repeated,
            written=self._written,
            dropped=dict(self._dropped),
            waiting=self._queue.qsize(),
        )

    def event(
        self,
        regarding: ObjectReference,
        *,
        reason: str,
        action: str,
        note: str,
        type: str = NORMAL,  # noqa: A002
        related: ObjectReference | None = None,
    ) -> None:
        """See :meth:`Recorder.event`."""
        self._recorded += 1
        note = truncate(printable(note), MAX_NOTE_BYTES)  # a series keeps it, and tenants can make it longer
        occurrence = Occurrence(
            regarding=regarding, reason=reason, action=action, note=note, type=type, related=related
        )
        if self._stopping:
            self._drop(occurrence, STOPPED)
            return
        monotonic = self._clock.monotonic()
        for expired in self._correlator.expire(monotonic):
            self._enqueue(expired)
        repeated = self._correlator.repeated
        event = self._correlator.observe(occurrence, now=self._clock.now(), monotonic=monotonic)
        if event is not None:
            self._enqueue(event)
        elif self._correlator.repeated == repeated:
            self._drop(occurrence, OBJECT_RATE)

    def _enqueue(self, event: Event) -> None:
        if event.queued:  # the queued write will contain the latest count
            return
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            self._drop(event.occurrence, QUEUE_FULL)
        else:
            event.queued, event.queued_at = True, self._clock.monotonic()
            if self._progress is not None:
                self._progress.expect()

    def _drop(self, occurrence: Occurrence, cause: str) -> None:
        self._dropped[cause] += 1
        now = self._clock.monotonic()
        if now - self._drops_logged >= _DROPS_LOGGED_EVERY:
            self._drops_logged = now
            logger.warning(
                "Dropped an event about %s (%s: %s) because of %s; events dropped so far: %s",
                occurrence.regarding,
                occurrence.reason,
                occurrence.note,
                cause,
                dict(self._dropped),
            )

    async def run(self) -> None:
        """Send events until cancelled."""
        self._running = True
        try:
            while True:
                if self._progress is not None and self._queue.empty():
                    self._progress.idle()
                await self._send(await self._queue.get())
        finally:
            self._running = False

    async def _send(self, event: Event) -> None:
        if self._progress is not None:
            self._progress.begin()
        event.queued = False  # later occurrences need another write
        try:
            await self._let_urgent_pass(event)
            if not self._stopping:
                await self._clock.sleep(self._rate.wait(self._clock.monotonic()))
                self._rate.take(self._clock.monotonic())
            await self._deliver(event)
        except Exception:  # a failed event must not stop the recorder
            logger.exception("Failed to write an event about %s", event.occurrence.regarding)
            self._drop(event.occurrence, UNDELIVERED)
        except asyncio.CancelledError:
            self._drop(event.occurrence, STOPPED)
            raise
        finally:
            self._queue.task_done()

    async def _let_urgent_pass(self, event: Event) -> None:
        """Wait while urgent requests are in flight, because an event would slow them down."""
        until = event.queued_at + MAX_DELAY
        while self._urgent() and not self._stopping and self._clock.monotonic() < until:
            if self._progress is not None:
                self._progress.begin()
            await self._clock.sleep(URGENT_CHECK)

    async def _deliver(self, event: Event) -> None:
        """Write one event, with retries after transient errors."""
        namespace = event.occurrence.namespace
        if self._clock.monotonic() < self._refused_until.get(namespace, 0.0):
            self._drop(event.occurrence, REFUSED)
            return
        retry = 0
        while True:
            try:
                await self._write(event)
                return
            except (Unreachable, TooManyRequests, ServerError) as error:
                if self._retries.exhausted(retry):
                    self._drop(event.occurrence, UNDELIVERED)
                    return
                wait = (error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0
                await self._clock.sleep(max(wait, self._retries.delay(retry)))
                retry += 1
            except ApiError as error:
                self._refuse(event.occurrence, error)
                return

    async def _write(self, event: Event) -> None:
        count, namespace = event.count, event.occurrence.namespace
        if event.written:
            patch = {"series": event.series()}
            try:
                await verbs.merge_patch(self._api, EVENTS, event.name, patch, namespace=namespace)
            except NotFound:  # the event has expired after an hour, so create a new one
                event.written = 0
                event.number = self._correlator.number(now=self._clock.now())
        if not event.written:
            body = event.as_json(controller=self._controller, instance=self._instance)
            with suppress(Conflict):  # names are unique, so an earlier attempt succeeded and its response was lost
                await verbs.create(self._api, EVENTS, body, namespace=namespace)
        event.written = count
        self._written += 1
        self._correlator.shrink(event)

    def _refuse(self, occurrence: Occurrence, error: ApiError) -> None:
        """Handle a permanent error: log it, and if it affects the whole namespace, pause events for that namespace."""
        self._drop(occurrence, REFUSED)
        if isinstance(error, NotFound | Forbidden):
            self._refused_until[occurrence.namespace] = self._clock.monotonic() + self._limits.refusal
        refusal = (occurrence.namespace, type(error))
        level = logging.DEBUG if refusal in self._refusals_logged else logging.WARNING
        self._refusals_logged.add(refusal)
        logger.log(level, "The API server rejected an event about %s: %s", occurrence.regarding, error)
