"""The history of actions: where controllers report what they did, for ``trimtab history`` and ``trimtab explain``.

Example::

    history.add(HistoryEntry(time=to_time(now), controller="autoscaler", action="ScaleUp", reason=..., ...))

A background task appends the entries to HistoryRecords. What can go wrong, and what happens then:

- The API server is slow, not reachable, or refuses the requests: entries wait in a bounded queue, the task retries with
  backoff, and if the queue is full, the oldest entries are dropped and counted.
- A response is lost: the task sends the same write again. It has the record's resource version, or a name that is used
  once, as its precondition. If the precondition fails, the task reads the record and continues if it has the entries.
- Another client changed or deleted the record: the task starts a new one with the entries that are not written yet.
- The process is killed: entries of the last two seconds are lost. The next process continues the newest record.
- More is done than fits in all records: the oldest record is deleted, so the history is shorter.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Counter, Gauge

from trimtab.api.bounds import stored_size
from trimtab.api.history_record import MAX_ENTRIES, HistoryEntry, HistoryRecordSpec
from trimtab.controller.loop import Wakeup
from trimtab.controller.progress import Component, current_component
from trimtab.kube import verbs
from trimtab.kube.api import Api, ApiError, Conflict, Forbidden, Invalid, NotFound, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.events.event import RecentlyReported, truncate
from trimtab.kube.printable import printable
from trimtab.kube.resources import HISTORY_RECORDS
from trimtab.kube.retry import Backoff

log = logging.getLogger(__name__)

WRITER_LABEL: Final = "trimtab.dev/history-writer"
"""The label of a record with the Lease of the operator that writes it."""

MAX_MESSAGE: Final = 512
"""Maximum number of characters of a message. Longer messages are truncated."""

FLUSH_INTERVAL: Final = 2.0
"""Minimum number of seconds between two writes, unless a record is full."""

PRUNE_INTERVAL: Final = 3600.0
"""Seconds between two deletions of records by age."""

SAME_REFUSAL: Final = 3600.0
"""Seconds for which the same refusal of the same action on the same object is not recorded again."""

FINAL_TIMEOUT: Final = 5.0
"""Maximum number of seconds of the last write when the process stops."""

RETRY: Final = Backoff(initial=1.0, maximum=60.0)
PERMISSION_RETRY: Final = 5.0
"""Seconds until the next attempt if a permission is missing, so that writing resumes soon after it is granted."""


class History(Protocol):
    """Takes the actions of controllers. Adding never blocks, fails or does I/O."""

    def add(self, entry: HistoryEntry) -> None:
        """Record an action whose result is known."""
        ...


class NoHistory:
    """Discards all entries, for tests and for processes that do not keep a history."""

    def add(self, entry: HistoryEntry) -> None:
        """Discard the entry."""


class HistoryLimits(Struct, frozen=True, kw_only=True):
    """The limits of the history, for example ``HistoryLimits(records=100, max_age=30 * 86400.0)``.

    Attributes:
        records: maximum number of records of one operator; 0 to keep no history.
        max_age: seconds after which an entry is deleted. Entries are deleted with their record, up to a seventh of this
            time later.
        record_entries: maximum number of entries of one record.
        record_bytes: maximum size of the entries of one record in bytes.
        queue: maximum number of entries that wait to be written.
    """

    records: int = 40
    max_age: float = 7 * 86400.0
    record_entries: int = MAX_ENTRIES
    record_bytes: int = 128 * 1024
    queue: int = 10_000

    @property
    def record_span(self) -> float:
        """Return the seconds after which a record is not extended any more, so that all its entries expire together."""
        return self.max_age / 7


class HistoryMetrics:
    """The metrics of the history."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.written = Counter(
            "trimtab_history_entries_written", "Actions that were written to HistoryRecords.", registry=registry
        )
        self.dropped = Counter(
            "trimtab_history_entries_dropped",
            "Actions that are missing from the history, because HistoryRecords could not be written for too long.",
            registry=registry,
        )
        self.waiting = Gauge(
            "trimtab_history_entries_waiting", "Actions that are not written to HistoryRecords yet.", registry=registry
        )


class _Record(Struct, frozen=True):
    """One of the writer's records, as it is stored or, in a write, as it will be stored.

    Attributes:
        name: its name.
        created: when it was created, in seconds since the epoch.
        uid: its UID; empty if it is not stored yet.
        version: its resource version; empty if it is not stored yet.
        entries: its entries.
        size: the size of the entries in bytes.
    """

    name: str
    created: float
    uid: str = ""
    version: str = ""
    entries: tuple[HistoryEntry, ...] = ()
    size: int = 0


class HistoryWriter:
    """Writes the actions of all controllers of the process to HistoryRecords.

    Call :meth:`add` only from the event loop's thread. Run :meth:`run` in a task while this process is the leader.

    Args:
        api: the API server.
        clock: provides the time.
        writer: identifies the operator: the name of its Lease. After a restart, its newest record is continued.
        limits: the limits.
        metrics: the metrics; ``None`` if they are not exported.
    """

    def __init__(
        self,
        api: Api,
        *,
        clock: Clock,
        writer: str,
        limits: HistoryLimits | None = None,
        metrics: HistoryMetrics | None = None,
    ) -> None:
        self._api = api
        self._clock = clock
        self._label = writer[:63].strip("-_.")
        self._prefix = writer[:200].strip("-.")
        self._limits = limits or HistoryLimits()
        self._queue: deque[tuple[HistoryEntry, int]] = deque()
        self._refusals = RecentlyReported(window=SAME_REFUSAL)
        self._wakeup = Wakeup()
        self._known: dict[str, tuple[str, float]] | None = None
        """The UID and creation time of each own record by name, the oldest first; ``None`` before they are listed."""
        self._current: _Record | None = None
        self._wanted: _Record | None = None
        """The record that is being written, until it is known whether the write succeeded."""
        self._component = Component("history")  # until it runs
        self._number = 0
        self._pruned_at = 0.0
        self._failures = 0
        self._problem = ""
        self._dropped = 0
        self._metrics = metrics
        if metrics is not None:
            metrics.waiting.set_function(self.waiting)

    def waiting(self) -> int:
        """Return the number of entries that are not known to be written."""
        return len(self._queue) + len(self._unwritten())

    @property
    def problem(self) -> str:
        """Return why the history cannot be written now; ``""`` if it can."""
        return self._problem

    def add(self, entry: HistoryEntry) -> None:
        """See :meth:`History.add`. The same refusal of the same action is recorded once an hour."""
        if not self._limits.records:
            return
        try:
            bounded = _bounded(entry)
        except msgspec.ValidationError:
            log.exception("Failed to add an action to the HistoryRecords: %s", printable(repr(entry)))
            self._drop(1, "an entry is invalid")
            return
        if self._repeats_refusal(bounded):
            return
        self._queue.append((bounded, stored_size(bounded) + 1))
        while len(self._queue) > self._limits.queue:
            self._queue.popleft()
            self._drop(1, self._problem or "too many entries")
        self._wakeup.wake()
        self._component.expect()

    async def recent(self, *, since: float) -> list[HistoryEntry]:
        """Return the entries of the own records from ``since`` (seconds since the epoch) on, the newest first.

        Raises:
            ApiError: the API server refuses a request.
            Unreachable: there was no response.
        """
        found: list[HistoryEntry] = []
        if not self._limits.records:
            return found
        for name in reversed(await self._own_records()):
            try:
                entries = _entries(await verbs.get(self._api, HISTORY_RECORDS, name)) or ()
            except NotFound:
                continue
            found += [entry for entry in reversed(entries) if entry.time.timestamp() >= since]
            if not entries or entries[0].time.timestamp() < since:
                break  # earlier records are older
        return found

    async def run(self) -> None:
        """Write entries until cancelled."""
        if not self._limits.records:
            await asyncio.Event().wait()
        component = self._component = current_component()
        while True:
            component.begin()
            delay = FLUSH_INTERVAL
            try:
                await self._flush()
                await self._prune_by_age()
                self._recovered()
            except (ApiError, Unreachable) as error:
                delay = self._failed(error)
            except Exception:  # the history must not end the process
                log.exception("Failed to write HistoryRecords; retrying")
                delay = RETRY.maximum
            component.succeed(delay)
            await self._clock.sleep(delay)
            if not self.waiting() and not self._problem:
                component.succeed(PRUNE_INTERVAL)
                await self._wakeup.wait(PRUNE_INTERVAL)

    async def stop(self) -> None:
        """Write the entries that wait, for a few seconds at most. Call it after :meth:`run` was cancelled."""
        try:
            async with asyncio.timeout(FINAL_TIMEOUT):
                while self.waiting():
                    await self._flush()
        except (ApiError, Unreachable, TimeoutError) as error:
            log.warning(
                "Lost %d HistoryRecord entries that could not be written during shutdown: %s", self.waiting(), error
            )

    # --- writing ------------------------------------------------------------------------------------------------------

    async def _flush(self) -> None:
        """Write all entries that wait now. Those that are added in the meantime wait for the next call.

        Raises:
            ApiError: the API server refuses a request.
            Unreachable: there was no response.
        """
        self._wakeup.clear()
        due = self.waiting()
        while due > 0 and self.waiting():
            known = await self._own_records()
            wanted = self._wanted = self._wanted or self._next()
            number = len(self._unwritten())
            stored: _Record | None
            try:
                stored = await self._send(wanted)
            except (Conflict, NotFound) as error:
                if not wanted.version and isinstance(error, NotFound):
                    raise  # the CRD is not installed
                stored = await self._read_back(wanted)
            except Invalid as error:
                log.warning(
                    "The API server rejected HistoryRecord entries; dropping the entries: %s", printable(str(error))
                )
                self._drop(number, "the API server rejected them")
                self._wanted = self._current = None
                due -= number
                continue
            if stored is None:  # the record was changed or deleted
                self._queue.extendleft((entry, stored_size(entry) + 1) for entry in reversed(self._unwritten()))
                self._wanted = self._current = None
                continue
            new = wanted.name not in known
            known.setdefault(wanted.name, (stored.uid, stored.created))
            if self._metrics is not None:
                self._metrics.written.inc(number)
            self._current, self._wanted = stored, None
            due -= number
            if new:
                await self._prune_by_number(known)

    def _next(self) -> _Record:
        """Return the current record, or a new one, with as many of the waiting entries as fit."""
        now, limits = self._clock.now(), self._limits
        record = self._current
        if record is None or now - record.created >= limits.record_span or not self._fits(record):
            self._current = None
            record = _Record(self._new_name(), now)
        entries, size = list(record.entries), record.size
        while self._queue and len(entries) < limits.record_entries:
            entry, bytes_ = self._queue[0]
            if entries and size + bytes_ > limits.record_bytes:
                break
            self._queue.popleft()
            entries.append(entry)
            size += bytes_
        return replace(record, entries=tuple(entries), size=size)

    def _fits(self, record: _Record) -> bool:
        limits, (_, size) = self._limits, self._queue[0]
        return len(record.entries) < limits.record_entries and record.size + size <= limits.record_bytes

    async def _send(self, wanted: _Record) -> _Record:
        spec = msgspec.to_builtins(_spec(wanted.entries))
        if wanted.version:
            patch = {"metadata": {"resourceVersion": wanted.version}, "spec": spec}
            answer = await verbs.merge_patch(self._api, HISTORY_RECORDS, wanted.name, patch, accept=verbs.METADATA)
            return _stored(answer, wanted)
        labels = {"app.kubernetes.io/managed-by": "trimtab", WRITER_LABEL: self._label}
        body = {"metadata": {"name": wanted.name, "labels": labels}, "spec": spec}
        return _stored(await verbs.create(self._api, HISTORY_RECORDS, body, accept=verbs.METADATA), wanted)

    async def _read_back(self, wanted: _Record) -> _Record | None:
        """Return the stored record if it has exactly the wanted entries, because the response to a write was lost."""
        try:
            found = await verbs.get(self._api, HISTORY_RECORDS, wanted.name)
        except NotFound:
            return None
        return _stored(found, wanted) if _entries(found) == wanted.entries else None

    def _unwritten(self) -> tuple[HistoryEntry, ...]:
        """Return the new entries of the write in progress."""
        wanted, current = self._wanted, self._current
        if wanted is None:
            return ()
        return wanted.entries[0 if current is None or current.name != wanted.name else len(current.entries) :]

    def _new_name(self) -> str:
        """Return a new name. Names of one writer are in the order of creation, which timestamps in seconds are not."""
        self._number = max(self._number + 1, int(self._clock.now() * 1000))
        return f"{self._prefix}-{self._number}-{secrets.token_hex(3)}"

    # --- records ------------------------------------------------------------------------------------------------------

    async def _own_records(self) -> dict[str, tuple[str, float]]:
        """Return the own records. The first call lists them and continues the newest."""
        if self._known is not None:
            return self._known
        found = await self._list()
        own = {name: (uid, created) for name, uid, created, label in found if label == self._label}
        newest = next(reversed(own), None)
        if newest is not None and self._current is None:
            try:
                self._current = _continued(await verbs.get(self._api, HISTORY_RECORDS, newest))
            except NotFound:
                del own[newest]
        self._known = own
        return own

    async def _list(self) -> list[tuple[str, str, float, str]]:
        """Return name, UID, creation time and writer of all records, the oldest first."""
        answer = await self._api.request("GET", HISTORY_RECORDS.path(), accept=verbs.METADATA_LIST)
        found = []
        for item in answer.get("items") or ():
            metadata = item["metadata"]
            created = _creation_time(metadata)
            label = (metadata.get("labels") or {}).get(WRITER_LABEL, "")
            found.append(
                (metadata["name"], metadata.get("uid", ""), self._clock.now() if created is None else created, label)
            )
        return sorted(found, key=lambda each: (each[2], each[0]))

    async def _prune_by_number(self, known: dict[str, tuple[str, float]]) -> None:
        for name in list(known)[: max(0, len(known) - self._limits.records)]:
            await self._delete(name, known[name][0])
            del known[name]

    async def _prune_by_age(self) -> None:
        """Delete the records of all writers whose last entry is too old, once an hour."""
        now, limits = self._clock.now(), self._limits
        if now - self._pruned_at < PRUNE_INTERVAL:
            return
        for name, uid, created, _ in await self._list():
            if now - created >= limits.max_age + limits.record_span:
                await self._delete(name, uid)
                (self._known or {}).pop(name, None)
                if self._current is not None and self._current.name == name:
                    self._current = None
        self._pruned_at = now

    async def _delete(self, name: str, uid: str) -> None:
        try:
            await verbs.delete(self._api, HISTORY_RECORDS, name, uid=uid)
        except (NotFound, Conflict):
            return  # another process has deleted it

    # --- failures -----------------------------------------------------------------------------------------------------

    def _failed(self, error: ApiError | Unreachable) -> float:
        """Log the first of several failures, and return the seconds until the next attempt."""
        text = printable(str(error))
        if not self._problem:
            log.warning("Failed to write HistoryRecords; retrying: %s", text)
        self._problem = text
        delay = RETRY.delay(self._failures)
        self._failures += 1
        if isinstance(error, Forbidden):
            return PERMISSION_RETRY
        return max(delay, (error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0)

    def _recovered(self) -> None:
        if self._failures:
            log.info("Resumed writing HistoryRecords; %d entries were dropped in the meantime", self._dropped)
        self._failures, self._problem, self._dropped = 0, "", 0

    def _drop(self, number: int, reason: str) -> None:
        if not self._dropped:
            log.warning("Dropping HistoryRecord entries: %s", reason)
        self._dropped += number
        if self._metrics is not None:
            self._metrics.dropped.inc(number)

    def _repeats_refusal(self, entry: HistoryEntry) -> bool:
        """Return whether the same refusal or failure was recorded within an hour."""
        if entry.result not in ("Refused", "Failed"):
            return False
        subject = entry.uid or f"{entry.namespace}/{entry.pod}" if entry.pod else entry.node or entry.node_group
        key = f"{entry.controller} {entry.policy} {entry.action} {subject}"
        now, text = self._clock.now(), entry.result_reason or ""
        return not self._refusals.first(key, text, now=now)


def _bounded(entry: HistoryEntry) -> HistoryEntry:
    """Return the entry with messages without control characters and of limited length.

    Raises:
        msgspec.ValidationError: a value is not allowed by the CRD.
    """
    message, details = (truncate(printable(text), MAX_MESSAGE) for text in (entry.message, entry.result_message))
    entry = replace(entry, message=message, result_message=details)
    return msgspec.convert(msgspec.to_builtins(entry), HistoryEntry)


def _spec(entries: tuple[HistoryEntry, ...]) -> HistoryRecordSpec:
    times = [entry.time for entry in entries]
    return HistoryRecordSpec(first=min(times), last=max(times), count=len(entries), entries=entries)


def _entries(manifest: Mapping[str, Any]) -> tuple[HistoryEntry, ...] | None:
    """Return the entries of a record; ``None`` if one is invalid, for example because a later version wrote it."""
    try:
        return msgspec.convert((manifest.get("spec") or {}).get("entries") or (), tuple[HistoryEntry, ...])
    except msgspec.ValidationError:
        return None


def _creation_time(metadata: Mapping[str, Any]) -> float | None:
    try:
        return datetime.fromisoformat(metadata.get("creationTimestamp") or "").timestamp()
    except ValueError:
        return None


def _stored(manifest: Mapping[str, Any], wanted: _Record) -> _Record:
    metadata = manifest["metadata"]
    return replace(wanted, uid=metadata.get("uid", ""), version=metadata.get("resourceVersion", ""))


def _continued(manifest: Mapping[str, Any]) -> _Record | None:
    """Return the record for further entries; ``None`` if it cannot be continued."""
    entries, metadata = _entries(manifest), manifest["metadata"]
    created = _creation_time(metadata)
    if not entries or created is None:
        return None
    size = sum(stored_size(entry) + 1 for entry in entries)
    return _stored(manifest, _Record(metadata["name"], created, entries=entries, size=size))
