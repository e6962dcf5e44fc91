"""Assesses the health of nodes from their heartbeats, without side effects.

A kubelet sends heartbeats by renewing its Lease and by updating the node's status. A node without heartbeats is called
*silent*. The kubelet's clock may be wrong, so its timestamps are not compared with this process's clock. Instead, this
process uses the time at which it observes a change in the timestamps. A restarted process has not observed earlier
changes. For silent nodes it uses the record of the previous process. For other nodes it uses the timestamps in the
objects, but trusts them only after it has watched for a while (see :func:`assess_health`). All times are seconds since
the epoch, and ``now`` is the current time.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.plan import rfc3339
from trimtab.api.taint_manager import NodeLifecycle
from trimtab.kube.node_patches import Operation, add_value, expect_value
from trimtab.kube.objects import NODE_LEASES, Lease, Node

RENEWAL: Final = 10.0
"""Seconds between two renewals of a kubelet's Lease: a quarter of its duration of 40 s (kubelet v1.36)."""

STALE_WATCH_AFTER: Final = 2 * RENEWAL
"""Seconds without any event from the watches after which the node lifecycle pauses."""

ANSWER_AGE: Final = RENEWAL
"""Seconds for which the result of a probe is valid."""


NEVER: Final = -math.inf

Stamp = tuple[float | None, float | None]
"""``renewTime`` of a node's Lease and the heartbeat time in its status, both from the kubelet's clock."""


class NodeHealth(Struct, frozen=True, gc=False, omit_defaults=True, rename={"at": "heard"}):
    """The last heartbeat of a node. That of a deleted node does not apply to a new node with the same name.

    Attributes:
        at: the time at which this process observed the last change in the timestamps.
        renewed: the timestamp in the node's Lease.
        heartbeat: the timestamp in the node's status.
        renewal: seconds between two renewals, derived from the Lease's duration; at least the default.
        believed: if ``at`` was read from the kubelet's clock, the time from which it is trusted. By then a healthy node
            has renewed its Lease, even if its clock is slow.
        recalled: whether the health was restored from the record, and this process has not observed the node yet.
        lost_lease: whether the node had a Lease that no longer exists.
    """

    uid: str
    at: float
    renewed: float | None = None
    heartbeat: float | None = None
    renewal: float = RENEWAL
    believed: float = NEVER
    recalled: bool = False
    lost_lease: bool = False

    @property
    def stamp(self) -> Stamp:
        """Return the timestamps in the node's Lease and status."""
        return self.renewed, self.heartbeat

    def in_doubt(self, now: float, *, within: float = math.inf) -> bool:
        """Return whether the node has been silent for two renewals, longer than a healthy node would be.

        If ``within`` is shorter, that many seconds of silence suffice.
        """
        return now >= self.believed and now - self.at > min(within, 2 * self.renewal)


class ProbeResult(Struct, frozen=True, gc=False):
    """The timestamps of a node's Lease and status, as read from the API server at the time ``at``.

    The read bypasses the watch cache.
    """

    uid: str
    stamp: Stamp
    at: float


def stamp_of(node: Node, lease: Lease | None) -> Stamp:
    """Return the timestamps in a node's Lease and status."""
    return (lease.renewed if lease is not None else None), node.heartbeat


def update_health(
    known: Mapping[str, NodeHealth],
    nodes: Iterable[Node],
    leases: Mapping[str, Lease],
    *,
    now: float,
    changed_at: Mapping[str, float] = {},
) -> dict[str, NodeHealth]:
    """Update the health of all nodes from their Leases and statuses. Deleted nodes are dropped.

    A change that is missing in ``changed_at`` is treated as observed now.
    """
    heard: dict[str, NodeHealth] = {}
    for node in nodes:
        name = node.name
        lease = leases.get(f"{NODE_LEASES}/{name}")
        before, stamp = known.get(name), stamp_of(node, lease)
        # A kubelet renews its Lease after a quarter of the Lease's duration.
        renewal = RENEWAL if lease is None or lease.duration <= 4 * RENEWAL else lease.duration / 4
        if before is None or before.uid != node.uid:
            heard[name] = _first_health(node, stamp, renewal, now)
        elif stamp != before.stamp:
            heard[name] = _updated_health(node, before, stamp, renewal, min(now, changed_at.get(name, now)))
        elif before.recalled or before.renewal != renewal:
            heard[name] = msgspec.structs.replace(before, renewal=renewal, recalled=False)
        else:
            heard[name] = before
    return heard


def _updated_health(node: Node, before: NodeHealth, stamp: Stamp, renewal: float, now: float) -> NodeHealth:
    lost = stamp[0] is None and (before.lost_lease or before.renewed is not None)
    if not before.recalled:
        return NodeHealth(node.uid, now, *stamp, renewal, lost_lease=lost)
    first = _first_health(node, stamp, renewal, now)  # the kubelet renewed while no process watched
    return msgspec.structs.replace(first, at=min(now, max(first.at, before.at)), lost_lease=lost)


def _first_health(node: Node, stamp: Stamp, renewal: float, now: float) -> NodeHealth:
    said = [time for time in stamp if time is not None]
    created = now if node.created is None else min(now, node.created)  # from the API server's clock, not the kubelet's
    if not said:
        return NodeHealth(node.uid, created, *stamp, renewal)
    at = max(said) if node.created is None else max(created, *said)  # the Lease may belong to an earlier node
    return NodeHealth(node.uid, min(now, at), *stamp, renewal, believed=now + 2 * renewal)


def extend_health(known: Mapping[str, NodeHealth], seconds: float, *, now: float) -> dict[str, NodeHealth]:
    """Extend the health of all nodes, so that no node is considered silent because the watches were stale so long.

    While the API server was unavailable, kubelets could not renew their Leases either.
    """
    return {
        name: msgspec.structs.replace(each, at=min(now, each.at + seconds), believed=each.believed + seconds)
        for name, each in known.items()
    }


STATUS_GRACE_PERIOD: Final = 480.0
"""Grace period in seconds of a node whose Lease was deleted. Kubelets update an unchanged status every 5 minutes, or up
to 50 % later (kubelet v1.36 ``nodeStatusReportFrequency``, ``calculateDelay``).
"""


class HealthVerdict(enum.Enum):
    """The result of assessing a node's health."""

    HEALTHY = "Healthy"  # a heartbeat was observed within the grace period
    PROBE = "Probe"  # the watches show no heartbeat within the grace period; the API server must be asked
    WATCH_BEHIND = "WatchBehind"  # the API server has a newer Lease or status than the watches: they are stale
    UNKNOWN = "Unknown"  # the API server has confirmed that there is no heartbeat within the grace period
    ALREADY_UNKNOWN = "AlreadyUnknown"  # no heartbeat within the grace period, and the conditions are already Unknown


class HealthAssessment(Struct, frozen=True, gc=False):
    """The assessed health of a node, with the numbers that determine it.

    ``silent`` are the seconds since the node's last heartbeat, ``grace`` is its grace period in seconds, and ``due`` is
    the time at which that ends.
    """

    verdict: HealthVerdict
    silent: float
    grace: float
    due: float


def assess_health(
    node: Node, heard: NodeHealth, probed: ProbeResult | None, settings: NodeLifecycle, *, now: float
) -> HealthAssessment:
    """Assess the health of a node.

    As in upstream, a node has failed if ``now > heard + grace``. There are two exceptions. If this process started
    while the node was silent, it knows only the time on the kubelet's clock; such a node first gets the time of two
    renewals. A node whose Lease was deleted gets :data:`STATUS_GRACE_PERIOD`, because kubelets cannot renew after the
    namespace of the Leases was deleted, although they are healthy. ``probed`` is ``None`` if the node was not probed.
    """
    grace = float(settings.startup_grace_seconds if node.ready_status is None else settings.monitor_grace_seconds)
    if heard.lost_lease:
        grace = max(grace, STATUS_GRACE_PERIOD)
    due = max(heard.at + grace, heard.believed)
    silent = max(0.0, now - heard.at)
    if probed is not None and (probed.uid != node.uid or now - probed.at > ANSWER_AGE):
        probed = None
    if probed is not None and probed.stamp != heard.stamp:
        verdict = HealthVerdict.WATCH_BEHIND if probed.at >= heard.at else HealthVerdict.HEALTHY
    elif now <= due:
        verdict = HealthVerdict.HEALTHY
    elif unknown_already(node):
        verdict = HealthVerdict.ALREADY_UNKNOWN
    else:
        verdict = HealthVerdict.PROBE if probed is None else HealthVerdict.UNKNOWN
    return HealthAssessment(verdict, silent, grace, due)


_STOPPED_MESSAGE: Final = "Kubelet stopped posting node status."
_NEVER_POSTED_MESSAGE: Final = "Kubelet never posted node status."
"""Upstream's message, which users and alerts search for."""


class MarkUnknown(Struct, frozen=True):
    """A JSON patch of the status subresource that sets the conditions of a failed node to Unknown.

    The API server refuses it if the node has changed in the meantime. ``reason`` is a code of
    :mod:`trimtab.api.reasons`.
    """

    node: str
    operations: tuple[Operation, ...]
    reason: str
    message: str


def mark_unknown(node: Node, assessment: HealthAssessment, *, now: float) -> MarkUnknown:
    """Build the patch that sets the conditions of a failed node to Unknown. They are not all Unknown already."""
    places = {condition.type: place for place, condition in enumerate(node.conditions)}
    unknown = {"status": UNKNOWN, "lastTransitionTime": rfc3339(now)}
    stopped = {**unknown, "reason": reasons.NODE_STATUS_UNKNOWN, "message": _STOPPED_MESSAGE}
    operations: list[Operation] = []
    added: list[dict[str, str]] = []
    for kind in MARKED:
        place = places.get(kind)
        if place is None:  # the heartbeat time of a condition that the kubelet never posted is upstream's
            heartbeat = rfc3339(now if node.created is None else node.created)
            why = {"reason": reasons.NODE_STATUS_NEVER_UPDATED, "message": _NEVER_POSTED_MESSAGE}
            added.append({"type": kind, "lastHeartbeatTime": heartbeat, **unknown, **why})
        elif node.conditions[place].status != UNKNOWN:
            path = f"/status/conditions/{place}"
            operations += [add_value(f"{path}/{field}", value) for field, value in stopped.items()]
    if added and not node.conditions:
        operations.append(add_value("/status/conditions", added))
    else:
        operations += [add_value("/status/conditions/-", each) for each in added]
    return MarkUnknown(
        node=node.name,
        operations=(
            expect_value("/metadata/uid", node.uid),
            expect_value("/metadata/resourceVersion", node.resource_version),
            *operations,
        ),
        reason=reasons.NODE_STATUS_NEVER_UPDATED if node.ready_status is None else reasons.NODE_STATUS_UNKNOWN,
        message=f"no heartbeat for {assessment.silent:.0f}s; the grace period is {assessment.grace:.0f}s",
    )


READY: Final = "Ready"
UNKNOWN: Final = "Unknown"
MARKED: Final = (READY, "MemoryPressure", "DiskPressure", "PIDPressure")
"""The conditions of a node without heartbeats that are set to Unknown: those that the kubelet reports."""


def unknown_already(node: Node) -> bool:
    """Return whether all conditions in :data:`MARKED` are Unknown."""
    return {each.type for each in node.conditions if each.status == UNKNOWN}.issuperset(MARKED)
