"""The states of zones, and the queue and the rate at which their failed nodes are tainted, without side effects.

The states and rates of zones are those of nodelifecycle (v1.36). The queue of a zone is first in, first out. Upstream
removes a waiting node from its queue and adds it again every 5 seconds, so a slow zone taints its nodes in no
particular order, and a restarted process starts with a full bucket. Here the time at which a node failed determines its
position in the queue. The token bucket of a zone has a capacity of one, so its state is the time at which the last node
was taken from the queue. A token is considered spent when the response arrives, because the API server may process the
request at any moment until then. All times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from trimtab.api.taint_manager import NodeLifecycle, ZoneState, ZoneStatus
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Node
from trimtab.kube.rules.node_labels import BETA_REGION, BETA_ZONE, REGION, ZONE

NORMAL: Final = "Normal"
PARTIAL: Final = "PartialDisruption"
FULL: Final = "FullDisruption"

EXCLUDE: Final = "node.kubernetes.io/exclude-disruption"
"""A node with this label, regardless of its value, is not counted in its zone. It is tainted like other nodes."""

MIN_NOT_READY: Final = 3
"""Minimum number of not-ready nodes in a zone in state PartialDisruption."""

BURST: Final = 0.25
"""Maximum delay, in seconds, that one iteration makes up for at a fast rate. Iterations are at least 0.2 s apart."""


def describe_zone(zone: ZoneStatus) -> str:
    """Return the state and the rate of a zone for messages."""
    return (
        f"{zone.state} ({zone.not_ready} of {zone.nodes} nodes not ready); "
        f"failed nodes of the zone are tainted at a rate of at most {zone.nodes_per_second:g} per second"
    )


def zone_name(name: str) -> str:
    """Return the name of a zone for messages."""
    return name or "without a name"


def zone_of(labels: Labels) -> str:
    """Return the zone of a node. Label values contain no slash, so the name is unique."""
    region = labels.get(BETA_REGION) or labels.get(REGION) or ""
    zone = labels.get(BETA_ZONE) or labels.get(ZONE) or ""
    return f"{region}/{zone}" if region or zone else ""


def zones(nodes: Iterable[Node], ready: Mapping[str, str | None], settings: NodeLifecycle) -> dict[str, ZoneStatus]:
    """Return every zone that has a node, sorted by name, from all nodes and their assessed Ready status.

    Its name is ``region/zone`` from the node labels, or ``""`` for nodes without these labels, which form a zone of
    their own. Nodes that have no Ready condition are not ready.
    """
    counts: dict[str, list[int]] = {}
    for node in nodes:
        labels = node.labels
        name = zone_of(labels)
        count = counts.get(name)
        if count is None:
            count = counts[name] = [0, 0]
        if EXCLUDE not in labels:
            count[ready[node.name] != "True"] += 1
    found = {}
    for name, (good, bad) in sorted(counts.items()):
        state = state_of(good, bad, settings)
        rate = rate_of(state, good + bad, settings)
        found[name] = ZoneStatus(name=name, state=state, nodes=good + bad, not_ready=bad, nodes_per_second=rate)
    return found


def state_of(ready: int, not_ready: int, settings: NodeLifecycle) -> ZoneState:
    """Return the state of a zone with these numbers of ready and not-ready nodes."""
    if not_ready and not ready:
        return FULL
    if not_ready >= MIN_NOT_READY and not_ready / (ready + not_ready) >= settings.unhealthy_zone_threshold:
        return PARTIAL
    return NORMAL


def rate_of(state: ZoneState, nodes: int, settings: NodeLifecycle) -> float:
    """Return the nodes per second that may be tainted in a zone of this state and size, unless all zones are down."""
    if state == FULL:
        return settings.full_disruption_rate
    if state == NORMAL:
        return settings.node_eviction_rate
    return settings.secondary_node_eviction_rate if nodes > settings.large_cluster_size_threshold else 0.0


def all_down(found: Iterable[ZoneStatus]) -> bool:
    """Return whether all zones that have counted nodes are in FullDisruption.

    In that case the operator has probably lost its own connectivity, so no node is tainted. This includes clusters with
    a single node or a single zone.
    """
    counted = [zone.state for zone in found if zone.nodes]
    return bool(counted) and all(state == FULL for state in counted)


# --- queues and rates -------------------------------------------------------------------------------------------------


class WaitingNode(Struct, frozen=True, gc=False):
    """A failed node that is queued for tainting, with a code of :mod:`trimtab.api.reasons` for the delay.

    ``place`` is its position in the queue of the zone, starting at 1. ``due`` is the time at which the node will be
    tainted if nothing changes; ``None`` while the rate is 0 or tainting is paused.
    """

    node: str
    zone: str
    place: int
    due: float | None
    reason: str
    message: str


class TakenToken(Struct, frozen=True, gc=False):
    """The rate limit token with which a node is taken from the queue of its zone.

    ``spent`` is the time to store for the zone once the token is spent, or a later one; see :func:`spent_at`.
    """

    zone: str
    rate: float
    spent: float


class QueuedNode(Struct, frozen=True, gc=False):
    """An entry of the queue of failed nodes. The time at which the node failed determines its position.

    A new node with the same name gets a new entry.
    """

    uid: str
    since: float


def failed_at(node: Node, ready: str | None, now: float) -> float:
    """Return the time at which a node stopped being ready; ``now`` if it is unknown.

    If the assessed status ``ready`` differs from that of the object, the status changes now.
    """
    condition = node.ready_condition
    if condition is None or condition.status != ready or condition.since is None:
        return now
    return condition.since


def queued(before: Mapping[str, QueuedNode], failed: Mapping[str, QueuedNode], *, now: float) -> dict[str, QueuedNode]:
    """Return the queue of all failed nodes, sorted by their time of failure.

    ``failed`` has the transition time of their Ready condition. A node whose Ready condition changes from False to
    Unknown keeps its position in the queue ``before``.
    """
    places: dict[str, QueuedNode] = {}
    for name, place in failed.items():
        known = before.get(name)
        earlier = known.since if known is not None and known.uid == place.uid else now
        places[name] = QueuedNode(place.uid, min(now, place.since, earlier))
    return dict(sorted(places.items(), key=lambda item: (item[1].since, item[0])))


def next_at(spent: float | None, rate: float, *, in_flight: int = 0, now: float) -> float | None:
    """Return the time from which the next node may be tainted; ``None`` if the rate is 0.

    ``spent`` is the time at which the last node was tainted, at most ``now`` even if the clock was set back; ``None``
    if none ever was, so that the bucket is full. After a change of the rate, the new rate applies from then. The
    requests of ``in_flight`` nodes are outstanding.
    """
    if rate <= 0.0:
        return None
    if in_flight:
        spent = answered_at(spent, rate, in_flight=in_flight, now=now)
    return now if spent is None else min(spent, now) + 1.0 / rate


def spent_at(at: float, rate: float, *, now: float) -> float:
    """Return the time to store for a node that is taken from the queue now.

    At a slow rate it is ``now``. At a rate of several nodes per iteration it may be earlier, but not before the time
    ``at`` from which the node could have been taken, so that one iteration can take several nodes.
    """
    return now if 1.0 / rate >= BURST else max(at, now - BURST)


def answered_at(spent: float | None, rate: float, *, in_flight: int, now: float) -> float:
    """Return the time to store after the request for a taken node was answered or timed out.

    At a slow rate it is ``now``. At a rate of several nodes per iteration it is earlier, by the part of the burst that
    the taken nodes (including this one) do not use, because the API server may still process requests for them.
    """
    latest = now - max(0.0, BURST - in_flight / rate) if rate > 0.0 else now
    return latest if spent is None else max(spent, latest)
