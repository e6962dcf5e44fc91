"""Backs off from a node group whose controller deleted a machine without the deletion annotation.

In this module a *mark* is the annotation on a machine that tells the group's controller to delete this machine before
others. The backoff is stored in an annotation of the group's object, so that it survives restarts and leader changes,
for example::

    trimtab.dev/removal-backoff: '{"message":"m-b00 was deleted without a mark, …","until":"2026-11-22T12:01:00Z",
      "markDelaySeconds":30.0,"wrongMachines":1}'

The status of the ClusterAutoscaler cannot store it, because OpenShift's CRD of that kind prunes unknown fields. A group
has no annotation until its controller deletes a machine without a mark.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from trimtab.autoscaling.actuation.removal import RemovalSettings
from trimtab.kube.events.event import truncate

log = logging.getLogger(__name__)

MAX_MESSAGE: Final = 1024
_MAX_TEXT: Final = 8192
_NO_TIME: Final = 1e-6
"""Shorter durations (in seconds) are treated as 0, so that a rounding error does not cause repeated short waits."""


class BackoffRecord(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The content of the annotation ``trimtab.dev/removal-backoff``.

    Attributes:
        message: a description of the wrong deletion and of the wait.
        until: the end of the backoff. No machine of the group is removed before this time.
        mark_delay_seconds: the minimum age of marks before the size is lowered.
        wrong_machines: the number of consecutive deletions of machines without a mark.
    """

    message: Annotated[str, Meta(max_length=MAX_MESSAGE)] = ""
    until: Annotated[datetime, Meta(tz=True)] = datetime.fromtimestamp(0, UTC)
    mark_delay_seconds: Annotated[float, Meta(ge=0, le=86400)] = 0.0
    wrong_machines: Annotated[int, Meta(ge=0, le=64)] = 0


class RemovalBackoff:
    """The removal backoff of one group: the required age of marks, and the end of the backoff.

    Args:
        settings: contains the initial mark delay and the backoff parameters.
    """

    def __init__(self, settings: RemovalSettings) -> None:
        self._settings = settings
        self._record = BackoffRecord()
        self._annotated = ""
        self._written = ""
        self._changed = False
        self._marks_changed = float("-inf")
        self._right = 0

    # --- the annotation ------------------------------------------------------------------------------------------

    def observe(self, annotation: str, *, now: float) -> None:
        """Adopt the annotation if another process wrote it. A missing annotation resets the backoff.

        Until the cache contains this process's last write, the annotation can only lengthen the backoff.

        Args:
            annotation: the annotation of the group's object in the cache; empty if the object has none.
            now: the current time in seconds since the epoch.
        """
        if annotation == self._annotated:
            return
        self._annotated = annotation
        if self._written and annotation == self._written:
            self._written = ""
            return
        try:
            found = _decode(annotation) if annotation else BackoffRecord()
        except ValueError as error:
            log.warning("Ignored an invalid removal-backoff annotation of a node group: %s", error)
            return
        latest = datetime.fromtimestamp(now + self._settings.wrong_machine_backoff.maximum, UTC)
        found = replace(found, until=min(found.until, latest))
        if not self._written and not self._changed:
            self._record = found
            return
        self._record = BackoffRecord(
            self._record.message or found.message,
            max(self._record.until, found.until),
            max(self._record.mark_delay_seconds, found.mark_delay_seconds),
            max(self._record.wrong_machines, found.wrong_machines),
        )

    @property
    def unwritten(self) -> str:
        """Return the annotation value to write; empty if the backoff has not changed since the last write."""
        return msgspec.json.encode(self._record).decode() if self._changed else ""

    def clear(self) -> bool:
        """Reset the backoff and the mark delay, and return whether there was anything to reset.

        The new annotation value must then be written, else the next process finds the old backoff.
        """
        if self._record == BackoffRecord():
            return False
        self._record, self._changed = BackoffRecord(), True
        return True

    def mark_written(self, annotation: str) -> None:
        """Record that the annotation was written. The cache may not contain it yet."""
        self._changed = self.unwritten != annotation
        self._written = "" if annotation == self._annotated else annotation

    # --- marks ---------------------------------------------------------------------------------------------------

    @property
    def mark_delay(self) -> float:
        """Return how old marks must be before the size is lowered, in seconds.

        Each deletion of a wrong machine doubles it permanently, up to ``max_mark_delay``.
        """
        settings = self._settings
        longest = max(settings.mark_delay, settings.max_mark_delay)
        return min(max(settings.mark_delay, self._record.mark_delay_seconds), longest)

    def marks_changed(self, now: float) -> None:
        """Record that marks were set or removed.

        Args:
            now: the time on the monotonic clock.
        """
        self._marks_changed = now

    def seconds_until_old(self, now: float) -> float:
        """Return the number of seconds until the marks are old enough; 0 if they already are.

        Args:
            now: the time on the monotonic clock.
        """
        missing = self._marks_changed + self.mark_delay - now
        return missing if missing > _NO_TIME else 0.0

    # --- deletions -----------------------------------------------------------------------------------------------

    def next_step(self, *, first: bool) -> int:
        """Return the number by which to lower the size in the next step.

        The first step of a batch is 1. Later steps are twice the number of machines that have been deleted correctly
        since the last wrong deletion.

        Args:
            first: whether the batch has not lowered the size yet.
        """
        return 1 if first else max(1, 2 * self._right)

    def record_success(self, machines: int) -> None:
        """Record that marked machines were deleted."""
        self._right += machines
        if self._record.wrong_machines:
            self._record = replace(self._record, wrong_machines=0)
            self._changed = True

    def record_wrong_machine(self, now: float) -> float:
        """Record that a machine without a mark was deleted.

        Args:
            now: the current time in seconds since the epoch.

        Returns:
            The duration of the backoff in seconds.
        """
        seconds = self._settings.wrong_machine_backoff.delay(self._record.wrong_machines)
        self._right = 0
        settings = self._settings
        longest = max(settings.mark_delay, settings.max_mark_delay)
        self._record = BackoffRecord(
            until=datetime.fromtimestamp(now + seconds, UTC).replace(microsecond=0),
            mark_delay_seconds=min(2 * self.mark_delay, longest),
            wrong_machines=min(self._record.wrong_machines + 1, 64),
        )
        self._changed = True
        return seconds

    def set_message(self, message: str) -> None:
        """Record why the group is in backoff."""
        self._record = replace(self._record, message=truncate(message, MAX_MESSAGE))

    def backoff_reason(self, now: float) -> str:
        """Return the reason why no machine of the group may be removed now; empty if removals are allowed.

        Args:
            now: the current time in seconds since the epoch.
        """
        if now >= self._record.until.timestamp():
            return ""
        return self._record.message or "a machine was deleted without a mark"


def _decode(annotation: str) -> BackoffRecord:
    if len(annotation) > _MAX_TEXT:
        raise ValueError(f"it has {len(annotation)} characters, and at most {_MAX_TEXT} are allowed")
    try:
        return msgspec.json.decode(annotation, type=BackoffRecord)
    except msgspec.DecodeError as error:
        raise ValueError(f"{error}") from None
