"""The state that the node lifecycle keeps between iterations, and the part of it that is persisted for a restart.

Most of the state can be read from the cluster: the Unknown nodes with the time of the change, and the taints. The
*record* is the rest, which is persisted in a ConfigMap: the time at which nodes stopped sending heartbeats, positions
in the queue that the node objects do not show, the time at which the last node of each zone was tainted, and whether
all zones were down. If the process is killed between a change and the write of the record, at most that change is lost.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from trimtab.kube.objects import Node
from trimtab.tainting.lifecycle.node_conditions import ready_status, unknown_already
from trimtab.tainting.lifecycle.node_eviction_queue import QueuedNode, failed_at
from trimtab.tainting.lifecycle.node_health import NodeHealth, silent_nodes


class LifecycleState(Struct, frozen=True, kw_only=True):
    """The state that an iteration passes to the next one. All times are seconds since the epoch.

    Attributes:
        heard: the health of each node, by name.
        queue: the failed nodes that are queued for tainting, by name and in the order of the queue.
        spent: for each zone, the time at which the last node was taken from the queue.
        all_down: whether all zones were down in the last iteration.
        back: the time at which the last outage of all zones ended; ``None`` for never.
        stale_since: the time at which the watches became stale; ``None`` while they work.
    """

    heard: Mapping[str, NodeHealth] = {}
    queue: Mapping[str, QueuedNode] = {}
    spent: Mapping[str, float] = {}
    all_down: bool = False
    back: float | None = None
    stale_since: float | None = None


class SilentRecord(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The persisted health of a node without heartbeats."""

    uid: str
    heard: float
    renewed: float | None = None
    heartbeat: float | None = None


class QueueRecord(Struct, frozen=True, rename="camel"):
    """The persisted queue entry of a failed node."""

    uid: str
    since: float


class LifecycleRecord(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The persisted part of :class:`LifecycleState`, as JSON.

    It has about 100 bytes for each node that has stopped sending heartbeats and is not Unknown yet.

    Attributes:
        silent: the health of these nodes, by name.
        queue: the queue entries of nodes whose Ready condition has changed since they failed, by name.
        spent: see :class:`LifecycleState`.
        all_down: see :class:`LifecycleState`.
        back: see :class:`LifecycleState`.
        blind_since: ``stale_since`` of :class:`LifecycleState`.
    """

    silent: dict[str, SilentRecord] = {}
    queue: dict[str, QueueRecord] = {}
    spent: dict[str, float] = {}
    all_down: bool = False
    back: float | None = None
    blind_since: float | None = None


def build_record(memory: LifecycleState, nodes: Mapping[str, Node], *, now: float) -> LifecycleRecord:
    """Build the record from the state. Everything that can be restored from the Node objects is omitted.

    For example, the queue position of an Unknown node follows from ``lastTransitionTime`` of its Ready condition. It is
    recorded only if that condition has changed since the node failed. The record is therefore small even if all nodes
    have failed, and it changes only when a node changes its state.

    Args:
        memory: the state after an iteration.
        nodes: the nodes of the iteration or newer ones, by name.
        now: the current time in seconds since the epoch.
    """
    silent = {
        name: SilentRecord(each.uid, each.at, *each.stamp)
        for name, each in silent_nodes(memory.heard, now=now).items()
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
        blind_since=memory.stale_since,
    )


def restore_state(record: LifecycleRecord, *, now: float) -> LifecycleState:
    """Build the initial state of a process from the record.

    Times in the future, which occur if the clock was set back, are replaced with the current time.

    Args:
        record: the record of the previous process; an empty record if there is none.
        now: the current time in seconds since the epoch.
    """

    def past(time: float) -> float:
        return min(time, now)

    queue = sorted(record.queue.items(), key=lambda item: (item[1].since, item[0]))
    return LifecycleState(
        heard={
            name: NodeHealth(each.uid, (each.renewed, each.heartbeat), past(each.heard), recalled=True)
            for name, each in sorted(record.silent.items())
        },
        queue={name: QueuedNode(each.uid, past(each.since)) for name, each in queue},
        spent={zone: past(time) for zone, time in sorted(record.spent.items())},
        all_down=record.all_down,
        back=None if record.back is None else past(record.back),
        stale_since=None if record.blind_since is None else past(record.blind_since),
    )


def shift_times(memory: LifecycleState, seconds: float) -> LifecycleState:
    """Shift all times after the host's clock was set, so that each time is as long ago as before.

    Args:
        memory: the state before the clock was set.
        seconds: the seconds by which the clock was set forward; negative if it was set back.
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
        stale_since=moved(memory.stale_since),
    )


def encode_record(record: LifecycleRecord) -> str:
    """Encode the record as JSON. Equal records result in identical text."""
    return msgspec.json.encode(record, order="deterministic").decode()


def decode_record(text: str) -> LifecycleRecord:
    """Decode the record. Invalid text results in an empty record, so that the grace periods start again."""
    try:
        return msgspec.json.decode(text, type=LifecycleRecord)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return LifecycleRecord()
