"""The node-lifecycle settings as numbers, by the names of kube-controller-manager's flags."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from trimtab.api.taint_manager import NodeLifecycle

RENEWAL: Final = 10.0
"""Seconds between two renewals of a kubelet's Lease: a quarter of the 40 s that it promises (kubelet v1.36)."""


class LifecycleSettings(Struct, frozen=True, kw_only=True):
    """When nodes count as failed and how fast they are tainted; upstream's defaults (v1.36).

    Attributes:
        node_monitor_period: seconds between two looks at the nodes.
        node_monitor_grace_period: seconds that a node may be silent before it counts as Unknown.
        node_startup_grace_period: the same of a node that has not said yet whether it is ready.
        node_eviction_rate: nodes a second that get a NoExecute taint in a zone that is Normal.
        secondary_node_eviction_rate: the same in a zone in PartialDisruption with more nodes than the threshold.
        large_cluster_size_threshold: of how many nodes a zone must have more for the secondary rate; it is 0 else.
        unhealthy_zone_threshold: the share of nodes that are not ready from which a zone is in PartialDisruption.
        full_disruption_eviction_rate: nodes a second in a zone in FullDisruption while others are not; ours.
        stale_watch_after: seconds without a proof that our watches work after which nothing is done; ours.
        answer_age: seconds for which the answer of a live GET counts; ours.
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
    """The settings of a TaintManager as numbers, so that durations are read once and not per node."""
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
