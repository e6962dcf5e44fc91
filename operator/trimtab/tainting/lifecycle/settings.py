"""The settings of the node lifecycle as numbers, named after the flags of kube-controller-manager."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from trimtab.api.taint_manager import NodeLifecycle

RENEWAL: Final = 10.0
"""Seconds between two renewals of a kubelet's Lease. It is a quarter of the Lease's duration of 40 s (kubelet v1.36).
"""


class LifecycleSettings(Struct, frozen=True, kw_only=True):
    """Determines when nodes are considered failed, and the rate at which they are tainted.

    The defaults are upstream's (v1.36).

    Attributes:
        node_monitor_period: maximum seconds between two iterations, in addition to the minimum of 0.2 s.
        node_monitor_grace_period: seconds without a heartbeat after which the conditions of a node are set to Unknown.
        node_startup_grace_period: the grace period of a node without a Ready condition, in seconds.
        node_eviction_rate: nodes per second that get a NoExecute taint in a zone in state Normal.
        secondary_node_eviction_rate: nodes per second in a zone in state PartialDisruption that is larger than
            ``large_cluster_size_threshold``.
        large_cluster_size_threshold: number of nodes that a zone must exceed for the secondary rate. In a smaller zone
            in state PartialDisruption the rate is 0.
        unhealthy_zone_threshold: fraction of not-ready nodes at which a zone is in state PartialDisruption.
        full_disruption_eviction_rate: nodes per second in a zone in state FullDisruption while other zones are not.
            Upstream has no such setting.
        stale_watch_after: seconds without any event from the watches after which the node lifecycle pauses. Upstream
            has no such setting.
        answer_age: seconds for which the result of a probe is valid. Upstream has no such setting.
    """

    node_monitor_period: float = 5.0
    node_monitor_grace_period: float = 50.0
    node_startup_grace_period: float = 60.0
    node_eviction_rate: float = 0.1
    secondary_node_eviction_rate: float = 0.01
    large_cluster_size_threshold: int = 50
    unhealthy_zone_threshold: float = 0.55
    full_disruption_eviction_rate: float = 0.1
    stale_watch_after: float = 2 * RENEWAL
    answer_age: float = RENEWAL


def lifecycle_settings(spec: NodeLifecycle) -> LifecycleSettings:
    """Convert the node lifecycle settings of a TaintManager to numbers."""
    return LifecycleSettings(
        node_monitor_period=float(spec.monitor_period_seconds),
        node_monitor_grace_period=float(spec.monitor_grace_seconds),
        node_startup_grace_period=float(spec.startup_grace_seconds),
        node_eviction_rate=spec.node_eviction_rate,
        secondary_node_eviction_rate=spec.secondary_node_eviction_rate,
        large_cluster_size_threshold=spec.large_cluster_size_threshold,
        unhealthy_zone_threshold=spec.unhealthy_zone_threshold,
        full_disruption_eviction_rate=spec.full_disruption_rate,
    )
