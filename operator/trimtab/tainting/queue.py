"""Who is tainted next: first in, first out, at a rate that a restart does not reset. Pure.

Upstream takes a waiting node out and puts it back in every 5 seconds, so a slow zone taints in no order, and a new
process starts with a full bucket. Here a node's place is the time at which it failed, and the bucket, which holds one,
is the time at which the last one was taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from trimtab.kube.objects import Node
from trimtab.tainting.conditions import READY, no_execute_taints

BURST: Final = 0.25
"""Seconds for which a rate is made up for that is quicker than passes come: they are 0.2 s apart at least."""


class Queued(Struct, frozen=True, gc=False):
    """A node's place.

    Attributes:
        uid: of the node; a new one of the same name comes in anew.
        since: when it failed, in seconds since the epoch.
    """

    uid: str
    since: float


def queued(before: Mapping[str, Queued], failed: Mapping[str, Queued], *, now: float) -> dict[str, Queued]:
    """The queue with all that have failed and no others, the first first.

    That a node's Ready condition changes again, from False to Unknown, loses it no place while its place is known.

    Args:
        before: the queue so far, by node.
        failed: the nodes that wait, with the time that their Ready condition gives.
        now: seconds since the epoch.
    """
    places: dict[str, Queued] = {}
    for name, place in failed.items():
        known = before.get(name)
        same = known is not None and known.uid == place.uid
        places[name] = Queued(place.uid, min(now, place.since, known.since if known is not None and same else now))
    return dict(sorted(places.items(), key=lambda item: (item[1].since, item[0])))


def failed_at(node: Node, ready: str | None, now: float) -> float:
    """Since when a node is not ready; ``now`` where nothing says so.

    Args:
        node: as it is.
        ready: what we judge its Ready status to be: where the object says otherwise, it is so since now.
        now: seconds since the epoch.
    """
    condition = next((each for each in node.conditions if each.type == READY), None)
    if condition is None or condition.status != ready or condition.since is None:
        return now
    return condition.since


def next_at(spent: float | None, rate: float, *, now: float) -> float | None:
    """When the next one may be taken, in seconds since the epoch; ``None`` for not at this rate.

    A change of the rate counts from the last one that was taken, so no rate is ever exceeded.

    Args:
        spent: when the last one was taken; ``None`` for never, and then the bucket is full.
        rate: how many a second.
        now: a time of ``spent`` beyond it is a clock that was set back, and counts as now.
    """
    if rate <= 0.0:
        return None
    return now if spent is None else min(spent, now) + 1.0 / rate


def spent_at(at: float, rate: float, *, now: float) -> float:
    """What counts as the time at which a node was taken.

    That is now, but at a rate that gives several between two passes: then as many are taken at once.

    Args:
        at: when it might have been taken, see :func:`next_at`.
        rate: how many a second.
        now: seconds since the epoch.
    """
    return now if 1.0 / rate >= BURST else max(at, now - BURST)


def latest_time(node: Node) -> float | None:
    """When a node's NoExecute taints of the node lifecycle were put on, the last of them; ``None`` where none says."""
    times = [taint.time_added for taint in no_execute_taints(node).values() if taint.time_added is not None]
    return max(times, default=None)
