"""What informers tell of themselves, and what those of one server know of it together."""

from __future__ import annotations

from msgspec import Struct


class ServerAbilities:
    """What to ask a server for: not what it turned out not to know; shared by all informers of that server."""

    def __init__(self) -> None:
        self.protobuf = True
        self.watch_list = True

    def known(self) -> tuple[bool, bool]:
        """What is believed now, to see whether another informer has learnt something since."""
        return self.protobuf, self.watch_list


class InformerState(Struct, frozen=True):
    """What an informer is doing.

    Attributes:
        phase: ``Starting``, ``Listing``, ``Watching``, ``Retrying`` or ``Refused`` (forbidden, or no such resource);
            of optional kinds ``Absent`` (not served) or ``Hidden`` (forbidden) in the place of the last.
        error: why it is retrying, refused, absent or hidden, else ``""``.
        since: when this phase began; seconds since the epoch.
    """

    phase: str
    error: str
    since: float


class InformerStatistics(Struct, frozen=True, kw_only=True):
    """Counters since the start, for metrics; ``broken`` is how many objects are left out now."""

    objects: int
    broken: int
    events: int
    decode_errors: int
    lists: int
    connections: int
    failures: int
    bytes_read: int
