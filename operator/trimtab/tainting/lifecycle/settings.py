"""The settings of the node lifecycle as numbers, named after the flags of kube-controller-manager."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from trimtab.api.taint_manager import NodeLifecycle

RENEWAL: Final = 10.0
"""Seconds between two renewals of a kubelet's Lease: a quarter of its duration of 40 s (kubelet v1.36)."""

STALE_WATCH_AFTER: Final = 2 * RENEWAL
"""Seconds without any event from the watches after which the node lifecycle pauses."""

ANSWER_AGE: Final = RENEWAL
"""Seconds for which the result of a probe is valid."""


class LifecycleSettings(Struct, frozen=True, kw_only=True):
    """The fields of :class:`~trimtab.api.taint_manager.NodeLifecycle` as seconds and rates, with upstream's defaults.

    Planning reads them for each node, so durations are not parsed each time. ``node_monitor_period`` is the maximum
    between two iterations, in addition to the minimum of 0.2 s.
    """

    node_monitor_period: float = 5.0
    node_monitor_grace_period: float = 50.0
    node_startup_grace_period: float = 60.0
    node_eviction_rate: float = 0.1
    secondary_node_eviction_rate: float = 0.01
    large_cluster_size_threshold: int = 50
    unhealthy_zone_threshold: float = 0.55
    full_disruption_eviction_rate: float = 0.1


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
