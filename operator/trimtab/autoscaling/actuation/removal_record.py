"""Annotates a node group while its size is being lowered, until the deleted machines are known.

A process may be killed after it lowered the size of a group and before it observed which machine was deleted. Therefore
it writes the annotation ``trimtab.dev/removal-in-progress``, the *removal record*, to the group's object before it
lowers the size, for example::

    trimtab.dev/removal-in-progress: '{"after":9,"before":10,"machines":["e00"],"others":["b00","b01"],"prefix":"m-",
      "time":"2026-11-22T12:01:00Z"}'

The process removes the annotation after it has compared the group's machines with the record. If it is killed before
that, the next process finds the annotation and makes the comparison.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from itertools import takewhile
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from trimtab.autoscaling.groups import MachineState, NodeGroup
from trimtab.autoscaling.groups.annotations import REMOVAL_IN_PROGRESS
from trimtab.autoscaling.providers import MachineRemoval, MarkedMachines, VerifiedRemoval, verify_removal

log = logging.getLogger(__name__)

REQUEST_SECONDS: Final = 30.0
"""Seconds within which a request of a killed process may still lower the size. No request takes longer."""

_MAX_TEXT: Final = 131072
_Size = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Names = tuple[Annotated[str, Meta(max_length=253)], ...]


class RemovalRecord(Struct, frozen=True, rename="camel"):
    """The content of the annotation ``trimtab.dev/removal-in-progress`` on a node group.

    Attributes:
        time: the time at which the annotation was written, immediately before the size was lowered.
        before: the size before the change.
        after: the size after the change.
        prefix: the common prefix of all machine names.
        machines: names of the machines to delete, without the prefix. They have the deletion annotation.
        others: names of all other machines that were not being deleted, without the prefix.
    """

    time: Annotated[datetime, Meta(tz=True)]
    before: _Size
    after: _Size
    prefix: Annotated[str, Meta(max_length=253)]
    machines: _Names
    others: _Names


def planned_removal(group: NodeGroup, marked: MarkedMachines, count: int) -> MachineRemoval:
    """Return the change that lowers a group's size.

    Args:
        group: the group in the current cluster state.
        marked: the group's machines that have the deletion annotation.
        count: the maximum number of machines by which to lower the size.
    """
    alive = {each.name for each in group.machines if each.name and each.state is not MachineState.DELETING}
    chosen = {each.name for each in marked.machines} & alive
    after = group.target - min(count, len(chosen))
    return MachineRemoval(
        group.id, group.target, after, machines=tuple(sorted(chosen)), others=tuple(sorted(alive - chosen))
    )


def encode_record(removal: MachineRemoval, *, now: float) -> str:
    """Return the value of the removal record annotation for a size change.

    Args:
        removal: the size change.
        now: the current time in seconds since the epoch.
    """
    prefix = _common_prefix([*removal.machines, *removal.others])
    record = RemovalRecord(
        time=datetime.fromtimestamp(now, UTC).replace(microsecond=0),
        before=removal.before,
        after=removal.after,
        prefix=prefix,
        machines=tuple(name.removeprefix(prefix) for name in removal.machines),
        others=tuple(name.removeprefix(prefix) for name in removal.others),
    )
    return msgspec.json.encode(record, order="sorted").decode()


def _common_prefix(names: list[str]) -> str:
    pairs = zip(min(names), max(names), strict=False)
    return "".join(letter for letter, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def decode_record(text: str, group: str) -> tuple[MachineRemoval, float]:
    """Parse a removal record annotation.

    Args:
        text: the value of the annotation.
        group: id of the annotated group.

    Returns:
        The size change, and the time at which it was requested, in seconds since the epoch.

    Raises:
        ValueError: the annotation is invalid.
    """
    if len(text) > _MAX_TEXT:
        raise ValueError(f"it has {len(text)} characters, and at most {_MAX_TEXT} are allowed")
    try:
        record = msgspec.json.decode(text, type=RemovalRecord)
    except msgspec.DecodeError as error:
        raise ValueError(f"{error}") from None
    removal = MachineRemoval(
        group,
        record.before,
        record.after,
        machines=tuple(f"{record.prefix}{name}" for name in record.machines),
        others=tuple(f"{record.prefix}{name}" for name in record.others),
    )
    return removal, record.time.timestamp()


class RemovalRecords:
    """Keeps the removal records of all node groups.

    A removal batch of this process writes a record, and compares it later with the machines that were deleted.
    :meth:`compare` compares records that an earlier process, or a batch that ended early, left behind.
    """

    def __init__(self) -> None:
        self._current: dict[str, str] = {}
        self._ours: dict[str, set[str]] = {}
        self._over: set[str] = set()

    def begin(self, removal: MachineRemoval, *, now: float) -> str:
        """Start a record before a batch lowers a size, and return the annotation value to write."""
        text = encode_record(removal, now=now)
        self._current[removal.group] = text
        self._ours.setdefault(removal.group, set()).add(text)
        self._over.discard(removal.group)
        return text

    def settle(self, group: str) -> None:
        """Record that the group's record needs no further comparison, so that its annotation can be removed.

        Call it after the machines were compared, or if the size was not lowered after all.
        """
        if group in self._current:
            self._over.add(group)

    def release(self, group: str) -> None:
        """Record that the group's batch ended.

        If the batch did not find out which machines were deleted, later calls of :meth:`compare` find it out.
        """
        if group not in self._over and group in self._current:
            self._ours[group].discard(self._current.pop(group))

    def is_compared(self, group: str) -> bool:
        """Return whether the group's record is settled, so that its annotation must be removed."""
        return group in self._over

    def removed(self, group: str) -> None:
        """Record that the annotation was removed from the API server. The cache may still contain it."""
        self._over.discard(group)
        self._current.pop(group, None)

    def compare(self, group: NodeGroup, *, now: float) -> tuple[bool, VerifiedRemoval | None]:
        """Compare the record in a group's annotation with the group's machines, unless a batch of this process does so.

        Args:
            group: the group in the current cluster state.
            now: the current time in seconds since the epoch.

        Returns:
            Whether it is still unknown which machines are deleted; and the verified result, if this call determined it,
            else ``None``.
        """
        text = group.template.annotations.get(REMOVAL_IN_PROGRESS, "")
        if not text:
            if group.id not in self._current:
                self._ours.pop(group.id, None)
            return False, None
        ours = self._ours.setdefault(group.id, set())
        if text in ours:
            return False, None
        verdict = VerifiedRemoval()
        try:
            removal, requested_at = decode_record(text, group.id)
        except ValueError as error:
            log.warning("Ignored invalid annotation %s of node group %s: %s", REMOVAL_IN_PROGRESS, group.id, error)
        else:
            lowered = group.target != removal.before
            if not lowered and 0.0 <= now - requested_at < REQUEST_SECONDS:
                return True, None
            if lowered:
                verdict = verify_removal(removal, group)
                if len(verdict.deleted) >= removal.before - removal.after:
                    verdict = VerifiedRemoval(deleted=verdict.deleted)
                elif not verdict.settled:
                    return True, None
        ours.add(text)
        self._current[group.id] = text
        self._over.add(group.id)
        return False, verdict
