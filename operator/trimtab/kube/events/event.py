"""One events.k8s.io/v1 Event: what the API server takes as valid, and when two of them are the same."""

from __future__ import annotations

import re
from typing import Any, Final

from msgspec import Struct

from trimtab.kube.clock import micro_time
from trimtab.kube.reference import ObjectReference

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

NOTE_BYTES: Final = 1024
"""events.k8s.io/v1: ``note`` is at most 1 kB."""

WORD_LENGTH: Final = 128
"""events.k8s.io/v1: ``reason`` and ``action`` are at most 128 characters."""

CLUSTER_SCOPED: Final = "default"
"""Where the API server wants events about objects without a namespace."""

_NAME_LENGTH: Final = 253
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9.-]+")


class Occurrence(Struct, frozen=True, kw_only=True):
    """What happened, without when: two occurrences that are equal are one event in a series.

    Attributes:
        regarding: the object it happened to.
        reason: why, one CamelCase word.
        action: what was done or not done, one CamelCase word.
        note: for people.
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
        """Where its Event is stored: beside the object."""
        return self.regarding.namespace or CLUSTER_SCOPED


class Event:
    """An occurrence on its way to the API server, with how often it was seen and how much of that is written there."""

    __slots__ = ("count", "first", "last", "name", "occurrence", "queued", "written")

    def __init__(self, occurrence: Occurrence, *, name: str, now: float) -> None:
        self.occurrence = occurrence
        self.name = name
        self.count = 1
        self.first = now
        self.last = now
        self.written = 0
        self.queued = False

    def series(self) -> dict[str, Any]:
        """``series``: how often, and when last."""
        return {"count": self.count, "lastObservedTime": micro_time(self.last)}

    def as_json(self, *, controller: str, instance: str) -> dict[str, Any]:
        """The whole Event. Every limit of the API is kept here, so that no caller has to know them."""
        what = self.occurrence
        body: dict[str, Any] = {
            "metadata": {"name": self.name, "namespace": what.namespace},
            "eventTime": micro_time(self.first),
            "reportingController": controller,
            "reportingInstance": instance[:WORD_LENGTH],
            "type": what.type,
            "reason": what.reason[:WORD_LENGTH],
            "action": what.action[:WORD_LENGTH],
            "note": cut(what.note, NOTE_BYTES),
            "regarding": what.regarding.as_json(),
        }
        if what.related is not None:
            body["related"] = what.related.as_json()
        if self.count > 1:
            body["series"] = self.series()
        return body


def event_name(regarding: ObjectReference, number: int) -> str:
    """``<object>.<hex>``, as client-go names events; the object's name is made to fit where it does not."""
    suffix = f".{number:x}"
    stem = _NOT_IN_NAMES.sub("-", regarding.name.lower())[: _NAME_LENGTH - len(suffix)].strip("-.")
    return (stem or "event") + suffix


def cut(text: str, limit: int) -> str:
    """The text in at most ``limit`` bytes of UTF-8, with an ellipsis where something is left out."""
    encoded = text.encode()
    if len(encoded) <= limit:
        return text
    return encoded[: limit - 3].decode(errors="ignore") + "…"
