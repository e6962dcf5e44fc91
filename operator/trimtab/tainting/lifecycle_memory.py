"""What the node lifecycle remembers from pass to pass, and what of it a later process has to know. Pure.

Most of it can be seen in the cluster: that nodes are Unknown and since when, which are tainted. What cannot is written
down: since when nodes have been silent, their places in the queue, when each zone's last node was tainted, and whether
all zones were down. A kill between a change and its record costs at most what changed in between.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from trimtab.kube.objects import Node
from trimtab.tainting.conditions import ready_status, unknown_already
from trimtab.tainting.health import Heard, silent_ones
from trimtab.tainting.queue import Queued, failed_at


class LifecycleMemory(Struct, frozen=True, kw_only=True):
    """What is remembered; times are seconds since the epoch.

    Attributes:
        heard: what is known of each node's life, by name.
        queue: who waits to be tainted, the first first.
        spent: when each zone's last node was taken from the queue.
        all_down: whether all zones were down at the last pass.
        back: when they last ceased to be; ``None`` for never.
        blind_since: since when our watches have said nothing; ``None`` while they are well.
    """

    heard: Mapping[str, Heard] = {}
    queue: Mapping[str, Queued] = {}
    spent: Mapping[str, float] = {}
    all_down: bool = False
    back: float | None = None
    blind_since: float | None = None


class SilentRecord(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A node that has fallen silent, as it is written down."""

    uid: str
    heard: float
    renewed: float | None = None
    heartbeat: float | None = None


class QueueRecord(Struct, frozen=True, rename="camel"):
    """A node's place in the queue, as it is written down."""

    uid: str
    since: float


class LifecycleRecord(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a later process has to know: JSON of some 100 bytes a node that has fallen silent, until it is Unknown.

    Attributes:
        silent: by node; those that are not Unknown yet.
        queue: by node; those whose condition has changed while they waited.
        spent: by zone.
        all_down: see :class:`LifecycleMemory`.
        back: see :class:`LifecycleMemory`.
        blind_since: see :class:`LifecycleMemory`.
    """

    silent: dict[str, SilentRecord] = {}
    queue: dict[str, QueueRecord] = {}
    spent: dict[str, float] = {}
    all_down: bool = False
    back: float | None = None
    blind_since: float | None = None


def remember(memory: LifecycleMemory, nodes: Mapping[str, Node], *, now: float) -> LifecycleRecord:
    """What is to be written down: nothing that the nodes say themselves. It is equal to the last while nothing happens.

    A node that is Unknown says so, and its Ready condition since when, which is its place in the queue but where the
    condition has changed since it failed. So a cluster that is all down needs no long record.

    Args:
        memory: after a pass.
        nodes: as the pass saw them, or later ones, by name.
        now: seconds since the epoch.
    """
    silent = {
        name: SilentRecord(each.uid, each.at, *each.stamp)
        for name, each in silent_ones(memory.heard, now=now).items()
        if name in nodes and not unknown_already(nodes[name])
    }
    queue = {
        name: QueueRecord(each.uid, each.since)
        for name, each in sorted(memory.queue.items())
        if name in nodes and failed_at(nodes[name], ready_status(nodes[name]), now) != each.since
    }
    return LifecycleRecord(
        silent=silent,
        queue=queue,
        spent=dict(sorted(memory.spent.items())),
        all_down=memory.all_down,
        back=memory.back,
        blind_since=memory.blind_since,
    )


def recall(record: LifecycleRecord, *, now: float) -> LifecycleMemory:
    """What a process begins with.

    Times that lie ahead, because a clock was set back, count as now.

    Args:
        record: that another process left; an empty one where there is none.
        now: seconds since the epoch.
    """

    def past(time: float) -> float:
        return min(time, now)

    queue = sorted(record.queue.items(), key=lambda item: (item[1].since, item[0]))
    return LifecycleMemory(
        heard={
            name: Heard(each.uid, (each.renewed, each.heartbeat), past(each.heard), recalled=True)
            for name, each in sorted(record.silent.items())
        },
        queue={name: Queued(each.uid, past(each.since)) for name, each in queue},
        spent={zone: past(time) for zone, time in sorted(record.spent.items())},
        all_down=record.all_down,
        back=None if record.back is None else past(record.back),
        blind_since=None if record.blind_since is None else past(record.blind_since),
    )


def shifted(memory: LifecycleMemory, seconds: float) -> LifecycleMemory:
    """The memory after the clock was set: all that lies back by it still lies as far back.

    Args:
        memory: as it was.
        seconds: by which the clock was set on; negative for back.
    """

    def moved(time: float | None) -> float | None:
        return None if time is None else time + seconds

    return msgspec.structs.replace(
        memory,
        heard={
            name: msgspec.structs.replace(each, at=each.at + seconds, believed=each.believed + seconds)
            for name, each in memory.heard.items()
        },
        spent={zone: time + seconds for zone, time in memory.spent.items()},
        back=moved(memory.back),
        blind_since=moved(memory.blind_since),
    )


def encode_record(record: LifecycleRecord) -> str:
    """The record as JSON; equal records give equal text."""
    return msgspec.json.encode(record, order="deterministic").decode()


def decode_record(text: str) -> LifecycleRecord:
    """The record in a text; an empty one where somebody has made it unreadable: then grace periods begin anew."""
    try:
        return msgspec.json.decode(text, type=LifecycleRecord)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return LifecycleRecord()
