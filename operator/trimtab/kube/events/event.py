"""An events.k8s.io/v1 Event with the API's length limits, and the rule for combining occurrences into one event."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection
from itertools import takewhile
from typing import Any, Final

from msgspec import Struct

from trimtab.kube.clock import micro_time
from trimtab.kube.printable import printable
from trimtab.kube.resources import ObjectReference

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

MAX_NOTE_BYTES: Final = 1024
"""Maximum length of ``note`` in events.k8s.io/v1."""

MAX_REASON_LENGTH: Final = 128
"""Maximum length of ``reason`` and ``action`` in events.k8s.io/v1."""

CLUSTER_SCOPED_NAMESPACE: Final = "default"
"""The namespace of events about cluster-scoped objects."""

_NAME_LENGTH: Final = 253
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9.-]+")


class Occurrence(Struct, frozen=True, kw_only=True):
    """Something that happened to an object, regardless of when.

    Identical occurrences are counted in the series of one event.

    Attributes:
        regarding: the object that the event is about.
        reason: the reason as one CamelCase word.
        action: the action that was done or not done, as one CamelCase word.
        note: the message.
        type: ``Normal`` or ``Warning``.
        related: a second object, such as the policy that caused it.
    """

    regarding: ObjectReference
    reason: str
    action: str
    note: str
    type: str = NORMAL
    related: ObjectReference | None = None

    @property
    def namespace(self) -> str:
        """Return the namespace of the Event: the namespace of the object, or :data:`CLUSTER_SCOPED_NAMESPACE`."""
        return self.regarding.namespace or CLUSTER_SCOPED_NAMESPACE


class WrittenEvent(Struct, frozen=True, gc=False):
    """What is kept of an :class:`Event` whose latest count was written, until the same occurrence is observed again.

    An event has about 1 kB, and the scheduler reports several events about each pod.

    Attributes:
        number: the number in the event's name.
        count: the number of times that the occurrence was observed.
        first: time of the first occurrence, in seconds since the epoch.
        seen: time of the last occurrence on the monotonic clock, in seconds.
    """

    number: int
    count: int
    first: float
    seen: float


class Event:
    """An occurrence, with the number of times that it was observed and the number that the API server has stored.

    The two numbers differ while an update is outstanding.
    """

    __slots__ = ("count", "first", "last", "number", "occurrence", "queued", "queued_at", "seen", "written")

    def __init__(self, occurrence: Occurrence, *, number: int, now: float) -> None:
        self.occurrence = occurrence
        self.number = number
        self.count = 1
        self.first = now
        self.last = now
        self.seen = 0.0
        self.written = 0
        self.queued = False
        self.queued_at = 0.0

    @classmethod
    def continued(cls, occurrence: Occurrence, written: WrittenEvent) -> Event:
        """Return the event to which a written event belongs. Its occurrence was observed again."""
        event = cls(occurrence, number=written.number, now=written.first)
        event.count = event.written = written.count
        return event

    def without_occurrence(self) -> WrittenEvent:
        """Return what is kept of this event."""
        return WrittenEvent(self.number, self.count, self.first, self.seen)

    @property
    def name(self) -> str:
        """Return the name of the Event, which is unique."""
        return event_name(self.occurrence.regarding, self.number)

    def series(self) -> dict[str, Any]:
        """Return the Event's ``series`` field, with the count and the time of the last occurrence."""
        return {"count": self.count, "lastObservedTime": micro_time(self.last)}

    def as_json(self, *, controller: str, instance: str) -> dict[str, Any]:
        """Return the complete Event as JSON, with strings truncated to the limits of the API."""
        what = self.occurrence
        body: dict[str, Any] = {
            "metadata": {"name": self.name, "namespace": what.namespace},
            "eventTime": micro_time(self.first),
            "reportingController": controller,
            "reportingInstance": instance[:MAX_REASON_LENGTH],
            "type": what.type,
            "reason": what.reason[:MAX_REASON_LENGTH],
            "action": what.action[:MAX_REASON_LENGTH],
            "note": truncate(printable(what.note), MAX_NOTE_BYTES),
            "regarding": what.regarding.as_json(),
        }
        if what.related is not None:
            body["related"] = what.related.as_json()
        if self.count > 1:
            body["series"] = self.series()
        return body


def event_name(regarding: ObjectReference, number: int) -> str:
    """Return the name of an Event about an object, in client-go's form ``<object>.<hex>``.

    The object's name is shortened if necessary.
    """
    suffix = f".{number:x}"
    stem = _NOT_IN_NAMES.sub("-", regarding.name.lower())[: _NAME_LENGTH - len(suffix)].strip("-.")
    return (stem or "event") + suffix


def truncate(text: str, limit: int) -> str:
    """Truncate a string to ``limit`` bytes of UTF-8, with an ellipsis at the end if anything was removed.

    The cut is between two words, unless the last word is longer than half of the rest.
    """
    encoded = text.encode()
    if len(encoded) <= limit:
        return text
    kept = encoded[: limit - 3].decode(errors="ignore")
    words = kept if text[len(kept)].isspace() else kept.rpartition(" ")[0]
    return (words.rstrip() if len(words) > len(kept) // 2 else kept) + "…"


REPEAT_WINDOW: Final = 300.0
"""Seconds for which the same message about the same thing is not reported again (cluster-autoscaler's value)."""

MAX_REMEMBERED: Final = 20_000


class RecentlyReported:
    """Remembers recently reported messages, so that they are not repeated. A key identifies what a message is about.

    Args:
        window: the seconds for which the same message for a key is not reported again.
        most: the maximum number of keys. The least recently reported keys are dropped.
        forget: whether a key is also dropped once the window has passed. Callers that report first what was reported
            longest ago need the older ones as well, and call :meth:`forget_except`.
    """

    def __init__(self, *, window: float = REPEAT_WINDOW, most: int = MAX_REMEMBERED, forget: bool = True) -> None:
        self._window = window
        self._most = most
        self._forget = forget
        self._reported: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """The hash of the message and its time. Tenants can make messages as long as some kilobytes."""

    def __len__(self) -> int:
        return len(self._reported)

    def last(self, key: str) -> float:
        """Return when a message was last reported for a key, or 0 if none was."""
        return self._reported.get(key, (0, 0.0))[1]

    def is_new(self, key: str, text: str, *, now: float) -> bool:
        """Return whether the message for a key should be reported, because it has changed or the window has passed."""
        before = self._reported.get(key)
        return before is None or before[0] != hash(text) or now - before[1] >= self._window

    def first(self, key: str, text: str, *, now: float) -> bool:
        """Return whether the message for a key should be reported, and if so record that it is."""
        new = self.is_new(key, text, now=now)
        if new:
            self.note(key, text, now=now)
        return new

    def note(self, key: str, text: str, *, now: float) -> None:
        """Record that a message was reported for a key."""
        self._reported[key] = (hash(text), now)
        self._reported.move_to_end(key)
        while self._is_dropped(next(iter(self._reported.values()))[1], now):
            self._reported.popitem(last=False)

    def forget_except(self, keys: Collection[str], *, now: float) -> None:
        """Drop the keys for which the window has passed, except for the given ones."""
        passed = list(takewhile(lambda each: now - each[1][1] > self._window, self._reported.items()))
        for key, _ in passed:
            if key not in keys:
                del self._reported[key]

    def _is_dropped(self, oldest: float, now: float) -> bool:
        return len(self._reported) > self._most or (self._forget and now - oldest > self._window)
