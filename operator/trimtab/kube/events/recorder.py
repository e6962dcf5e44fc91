"""Events on objects, through events.k8s.io/v1, without ever holding up or failing what they tell of.

Equal events within a window become one with a growing ``series``. Two token buckets keep the API server (and its etcd,
where events live for an hour) from being flooded: one per object drops what is too much about it, one for all paces the
sending. What cannot be delivered is dropped, counted and logged: an event is news, not state.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from types import TracebackType
from typing import Final, Protocol, Self

from msgspec import Struct

from trimtab.kube import verbs
from trimtab.kube.api import Api, ApiError, Conflict, Forbidden, NotFound, ServerError, TooManyRequests, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.events.event import NORMAL, Event, Occurrence
from trimtab.kube.events.event_series import RecorderLimits, SeriesBook
from trimtab.kube.events.token_bucket import TokenBucket
from trimtab.kube.reference import ObjectReference
from trimtab.kube.resources import EVENTS
from trimtab.kube.retry import Backoff

logger = logging.getLogger(__name__)

CONTROLLER: Final = "trimtab.dev/trimtab"
"""``reportingController``."""

# Why events were dropped: keys of RecorderStatistics.dropped, labels of a metric.
OBJECT_RATE: Final = "ObjectRate"
QUEUE_FULL: Final = "QueueFull"
REFUSED: Final = "Refused"
UNDELIVERED: Final = "Undelivered"
STOPPED: Final = "Stopped"

RETRIES: Final = Backoff(initial=0.5, maximum=15.0, attempts=30)
"""Of one event, over eight minutes in all: longer than a control plane's restart, shorter than the news is worth."""

_DROPS_LOGGED_EVERY: Final = 60.0


class Recorder(Protocol):
    """Where events go; pure code and tests see no more of it than this."""

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
        """Tell that something happened to an object. Returns at once and never raises.

        Args:
            regarding: the object.
            reason: why, one CamelCase word.
            action: what was done, or not: one CamelCase word, such as ``Evict``.
            note: for people; cut at 1 kB.
            type: ``Normal`` or ``Warning``.
            related: another object that has to do with it.
        """
        ...


class RecorderStatistics(Struct, frozen=True):
    """What became of the events so far: those asked for, those that joined a series, requests that went well, drops."""

    recorded: int
    repeated: int
    written: int
    dropped: dict[str, int]
    waiting: int


class EventRecorder:
    """A :class:`Recorder` that writes to the API server from a task of its own.

    Use it as an async context manager, or call :meth:`start` and :meth:`stop`. :meth:`event` may be called before the
    start, and only from the loop's thread.
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
    ) -> None:
        """Prepare; nothing is sent before :meth:`start`.

        Args:
            api: where to write.
            instance: ``reportingInstance``: which replica, usually the pod's name.
            controller: ``reportingController``, a qualified name.
            clock: for times and limits.
            limits: how much is told.
            retries: of one event while the API server does not take it for a passing cause.
        """
        self._api = api
        self._instance = instance
        self._controller = controller
        self._clock = clock
        self._limits = limits or RecorderLimits()
        self._retries = retries
        self._book = SeriesBook(self._limits)
        self._pace = TokenBucket(rate=self._limits.rate, burst=self._limits.burst, now=clock.monotonic())
        self._queue: asyncio.Queue[Event] = asyncio.Queue(self._limits.queue)
        self._refused_until: dict[str, float] = {}
        self._refusals_told: set[tuple[str, type[ApiError]]] = set()
        self._recorded = self._written = 0
        self._dropped: Counter[str] = Counter()
        self._drops_logged = -_DROPS_LOGGED_EVERY
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    def start(self) -> None:
        """Begin sending."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="event-recorder")

    async def stop(self, deadline: float = 5.0) -> None:
        """Send what waits, unpaced, for at most ``deadline`` seconds; drop the rest, and all that comes later."""
        self._stopping = True
        for event in self._book.unwritten():
            self._enqueue(event)
        task, self._task = self._task, None
        if task is not None:
            drained = asyncio.ensure_future(self._queue.join())
            await asyncio.wait({drained}, timeout=deadline)
            for each in (drained, task):
                each.cancel()
            await asyncio.gather(drained, task, return_exceptions=True)
        while not self._queue.empty():
            self._drop(self._queue.get_nowait().occurrence, STOPPED)

    def statistics(self) -> RecorderStatistics:
        """What became of the events so far, for metrics."""
        return RecorderStatistics(
            recorded=self._recorded,
            repeated=self._book.repeated,
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
        occurrence = Occurrence(
            regarding=regarding, reason=reason, action=action, note=note, type=type, related=related
        )
        if self._stopping:
            self._drop(occurrence, STOPPED)
            return
        repeated = self._book.repeated
        event = self._book.observe(occurrence, now=self._clock.now(), monotonic=self._clock.monotonic())
        if event is not None:
            self._enqueue(event)
        elif self._book.repeated == repeated:
            self._drop(occurrence, OBJECT_RATE)

    def _enqueue(self, event: Event) -> None:
        if event.queued:  # what is sent in its turn has the count of that moment
            return
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            self._drop(event.occurrence, QUEUE_FULL)
        else:
            event.queued = True

    def _drop(self, occurrence: Occurrence, cause: str) -> None:
        self._dropped[cause] += 1
        now = self._clock.monotonic()
        if now - self._drops_logged >= _DROPS_LOGGED_EVERY:
            self._drops_logged = now
            logger.warning(
                "Dropped an event on %s (%s: %s): %s; so far: %s",
                occurrence.regarding,
                occurrence.reason,
                occurrence.note,
                cause,
                dict(self._dropped),
            )

    async def _run(self) -> None:
        while True:
            event = await self._queue.get()
            event.queued = False  # what occurs from here on is written in another turn
            try:
                if not self._stopping:
                    await self._clock.sleep(self._pace.wait(self._clock.monotonic()))
                    self._pace.take(self._clock.monotonic())
                await self._deliver(event)
            except Exception:  # an event is never worth an operator
                logger.exception("Cannot write an event on %s", event.occurrence.regarding)
                self._drop(event.occurrence, UNDELIVERED)
            except asyncio.CancelledError:
                self._drop(event.occurrence, STOPPED)
                raise
            finally:
                self._queue.task_done()

    async def _deliver(self, event: Event) -> None:
        """Write one event, however long that takes within the retries."""
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
            except NotFound:  # it has outlived its hour; the series begins anew
                event.written = 0
                event.name = self._book.name(event.occurrence, now=self._clock.now())
        if not event.written:
            body = event.as_json(controller=self._controller, instance=self._instance)
            with suppress(Conflict):  # names are ours alone: an earlier try went through, only its answer was lost
                await verbs.create(self._api, EVENTS, body, namespace=namespace)
        event.written = count
        self._written += 1

    def _refuse(self, occurrence: Occurrence, error: ApiError) -> None:
        """A final no. Where it concerns the namespace, leave that alone for a while, and say so once."""
        self._drop(occurrence, REFUSED)
        if isinstance(error, NotFound | Forbidden):
            self._refused_until[occurrence.namespace] = self._clock.monotonic() + self._limits.refusal
        told = (occurrence.namespace, type(error))
        level = logging.DEBUG if told in self._refusals_told else logging.WARNING
        self._refusals_told.add(told)
        logger.log(level, "No event on %s: %s", occurrence.regarding, error)
