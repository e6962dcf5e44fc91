"""When each node was last heard of. Pure.

A kubelet says that it lives by renewing its Lease and by posting its status. Its clock may be off, so the times it
writes are not compared with ours: what counts is when *we* see them change. A later process has not seen it. It goes by
what this one wrote down of nodes that had fallen silent, and for all others by the times in the objects, which it
believes only after it has listened for a while (see :func:`~trimtab.tainting.health.judging.judge`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from trimtab.kube.objects import NODE_LEASES, Lease, Node
from trimtab.tainting.lifecycle_settings import RENEWAL

NEVER: Final = -math.inf
"""A time before all others."""

_NO_NEWS: Final[Mapping[str, float]] = {}

Stamp = tuple[float | None, float | None]
"""``renewTime`` of a node's Lease and the heartbeat of its status, by the kubelet's clock."""


class Heard(Struct, frozen=True, gc=False):
    """What is known of one node's life.

    Attributes:
        uid: of the node; of a new one of the same name nothing is known.
        stamp: what its Lease and its status say.
        at: when that was seen to be new, by our clock, in seconds since the epoch.
        renewal: seconds between two renewals by what its Lease promises, at least the default's.
        believed: from when on ``at`` counts, where it is only what the kubelet's clock says: by then a node that lives
            has renewed, however slow its clock.
        recalled: whether an earlier process wrote it down, and this one has not looked yet.
        lost_lease: whether it had a Lease, and has none now.
    """

    uid: str
    stamp: Stamp
    at: float
    renewal: float = RENEWAL
    believed: float = NEVER
    recalled: bool = False
    lost_lease: bool = False

    def in_doubt(self, now: float, *, within: float = math.inf) -> bool:
        """Whether it has been silent for longer than a healthy node is: for two renewals.

        Args:
            now: seconds since the epoch.
            within: seconds after which it is in doubt though two renewals take longer.
        """
        return now >= self.believed and now - self.at > min(within, 2 * self.renewal)


class Answer(Struct, frozen=True, gc=False):
    """What the API server says of a node when it is asked itself, not the watch.

    Attributes:
        uid: of the node.
        stamp: of the Lease and the node that were read.
        at: when they were, in seconds since the epoch.
    """

    uid: str
    stamp: Stamp
    at: float


def stamp_of(node: Node, lease: Lease | None) -> Stamp:
    """What a node's Lease and status say of its life."""
    return (lease.renewed if lease is not None else None), node.heartbeat


def listen(
    known: Mapping[str, Heard],
    nodes: Iterable[Node],
    leases: Mapping[str, Lease],
    *,
    now: float,
    news: Mapping[str, float] = _NO_NEWS,
) -> dict[str, Heard]:
    """What is known after looking at the nodes; of nodes that are gone nothing.

    Args:
        known: so far, by node.
        nodes: of the picture.
        leases: of the picture, by ``namespace/name``.
        now: seconds since the epoch.
        news: when the last change of a node's Lease or status was seen, by node; what has changed and is not in it was
            seen just now.
    """
    heard: dict[str, Heard] = {}
    for node in nodes:
        name = node.name
        lease = leases.get(f"{NODE_LEASES}/{name}")
        before, stamp, renewal = known.get(name), stamp_of(node, lease), _renewal(lease)
        if before is None or before.uid != node.uid:
            heard[name] = _first(node, stamp, renewal, now)
        elif stamp != before.stamp:
            heard[name] = _heard_again(node, before, stamp, renewal, min(now, news.get(name, now)))
        elif before.recalled or before.renewal != renewal:
            heard[name] = msgspec.structs.replace(before, renewal=renewal, recalled=False)
        else:
            heard[name] = before
    return heard


def _renewal(lease: Lease | None) -> float:
    """A kubelet renews four times as often as it promises."""
    return RENEWAL if lease is None or lease.duration <= 4 * RENEWAL else lease.duration / 4


def _heard_again(node: Node, before: Heard, stamp: Stamp, renewal: float, now: float) -> Heard:
    lost = stamp[0] is None and (before.lost_lease or before.stamp[0] is not None)
    if not before.recalled:
        return Heard(node.uid, stamp, now, renewal, lost_lease=lost)
    first = _first(node, stamp, renewal, now)  # it has spoken while nobody listened
    return msgspec.structs.replace(first, at=min(now, max(first.at, before.at)), lost_lease=lost)


def _first(node: Node, stamp: Stamp, renewal: float, now: float) -> Heard:
    """A node that this process sees for the first time."""
    said = [time for time in stamp if time is not None]
    created = now if node.created is None else min(now, node.created)  # by the API server's clock, not the kubelet's
    if not said:
        return Heard(node.uid, stamp, created, renewal)
    at = max(said) if node.created is None else max(created, *said)  # the Lease may be a former node's of this name
    return Heard(node.uid, stamp, min(now, at), renewal, believed=now + 2 * renewal)


def excused(known: Mapping[str, Heard], seconds: float, *, now: float) -> dict[str, Heard]:
    """The same after a time in which we could not hear anybody: it counts as no one's silence.

    Where the API server was away, kubelets could not renew either.
    """
    return {
        name: msgspec.structs.replace(each, at=min(now, each.at + seconds), believed=each.believed + seconds)
        for name, each in known.items()
    }


def silent_ones(known: Mapping[str, Heard], *, now: float) -> dict[str, Heard]:
    """Those that have been silent for so long that a later process has to know since when, by name.

    Nodes that speak need no record: whoever comes next hears them soon. So it is short while all is well, and changes
    only as nodes fall silent and return.
    """
    return {name: each for name, each in sorted(known.items()) if each.in_doubt(now)}
