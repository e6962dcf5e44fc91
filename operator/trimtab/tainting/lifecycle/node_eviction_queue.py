"""Determines which failed node is tainted next, at a rate that continues after a restart.

The queue of a zone is first in, first out. Upstream removes a waiting node from its queue and adds it again every 5
seconds, so a slow zone taints its nodes in no particular order, and a restarted process starts with a full bucket. Here
the time at which a node failed determines its position in the queue. The token bucket of a zone has a capacity of one,
so its state is the time at which the last node was taken from the queue. A token is considered spent when the response
arrives, because the API server may process the request at any moment until then. The functions have no side effects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from trimtab.kube.objects import Node
from trimtab.tainting.lifecycle.node_conditions import READY, no_execute_taints

BURST: Final = 0.25
"""Maximum delay, in seconds, that one iteration makes up for at a fast rate. Iterations are at least 0.2 s apart."""


class QueuedNode(Struct, frozen=True, gc=False):
    """An entry of the queue of failed nodes.

    Attributes:
        uid: UID of the node. A new node with the same name gets a new entry.
        since: the time at which the node failed, in seconds since the epoch. It determines the position in the queue.
    """

    uid: str
    since: float


def queued(before: Mapping[str, QueuedNode], failed: Mapping[str, QueuedNode], *, now: float) -> dict[str, QueuedNode]:
    """Return the queue of all failed nodes, sorted by their time of failure.

    A node whose Ready condition changes from False to Unknown keeps its position.

    Args:
        before: the previous queue, by node name.
        failed: the failed nodes with the transition time of their Ready condition, by node name.
        now: the current time in seconds since the epoch.
    """
    places: dict[str, QueuedNode] = {}
    for name, place in failed.items():
        known = before.get(name)
        same = known is not None and known.uid == place.uid
        places[name] = QueuedNode(place.uid, min(now, place.since, known.since if known is not None and same else now))
    return dict(sorted(places.items(), key=lambda item: (item[1].since, item[0])))


def failed_at(node: Node, ready: str | None, now: float) -> float:
    """Return the time at which a node stopped being ready, in seconds since the epoch; ``now`` if it is unknown.

    Args:
        node: the current object.
        ready: the assessed Ready status. If it differs from that of the object, the status changes now.
        now: the current time in seconds since the epoch.
    """
    condition = next((each for each in node.conditions if each.type == READY), None)
    if condition is None or condition.status != ready or condition.since is None:
        return now
    return condition.since


def next_at(spent: float | None, rate: float, *, now: float) -> float | None:
    """Return the time from which the next node may be tainted, in seconds since the epoch; ``None`` if the rate is 0.

    Args:
        spent: the time at which the last node was taken from the queue; ``None`` if none ever was, so that the bucket
            is full.
        rate: nodes per second. After a change of the rate, the new rate applies from the last taken node.
        now: the current time in seconds since the epoch. If ``spent`` is later because the clock was set back, ``now``
            is used instead.
    """
    if rate <= 0.0:
        return None
    return now if spent is None else min(spent, now) + 1.0 / rate


def spent_at(at: float, rate: float, *, now: float) -> float:
    """Return the time to store for a node that is taken from the queue now.

    At a slow rate it is ``now``. At a rate of several nodes per iteration it may be earlier, so that one iteration can
    take several nodes.

    Args:
        at: the time from which the node could have been taken, see :func:`next_at`.
        rate: nodes per second.
        now: the current time in seconds since the epoch.
    """
    return now if 1.0 / rate >= BURST else max(at, now - BURST)


def answered_at(spent: float | None, rate: float, *, in_flight: int, now: float) -> float:
    """Return the time to store after the request for a taken node was answered or timed out.

    At a slow rate it is ``now``. At a rate of several nodes per iteration it is earlier, by the part of the burst that
    the outstanding requests do not use. The API server may still process all of these requests.

    Args:
        spent: the time that is stored so far.
        rate: nodes per second.
        in_flight: number of outstanding requests, including the answered one; at least 1.
        now: the current time in seconds since the epoch.
    """
    latest = now - max(0.0, BURST - in_flight / rate) if rate > 0.0 else now
    return latest if spent is None else max(spent, latest)


def latest_taint_time(node: Node) -> float | None:
    """Return the latest ``timeAdded`` of the NoExecute taints not-ready and unreachable; ``None`` if both lack it."""
    times = [taint.time_added for taint in no_execute_taints(node).values() if taint.time_added is not None]
    return max(times, default=None)
