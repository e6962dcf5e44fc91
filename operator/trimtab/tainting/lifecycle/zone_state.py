"""Computes the state of each zone and the rate at which its nodes are tainted, as in nodelifecycle (v1.36).

The functions have no side effects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from trimtab.api.taint_manager import ZoneState
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Node
from trimtab.kube.rules.node_labels import BETA_REGION, BETA_ZONE, REGION, ZONE
from trimtab.tainting.lifecycle.settings import LifecycleSettings

NORMAL: Final = "Normal"
PARTIAL: Final = "PartialDisruption"
FULL: Final = "FullDisruption"

EXCLUDE: Final = "node.kubernetes.io/exclude-disruption"
"""A node with this label, regardless of its value, is not counted in its zone. It is tainted like other nodes."""

MIN_NOT_READY: Final = 3
"""Minimum number of not-ready nodes in a zone in state PartialDisruption."""


class Zone(Struct, frozen=True, gc=False):
    """The state of a zone, and the node counts that determine it.

    Attributes:
        name: ``region/zone`` from the node labels; ``""`` for nodes without these labels, which form a zone of their
            own.
        state: one of :data:`NORMAL`, :data:`PARTIAL`, :data:`FULL`.
        ready: number of ready nodes.
        not_ready: number of nodes that are not ready or have no Ready condition.
        rate: nodes per second that may get a NoExecute taint.
    """

    name: str
    state: ZoneState
    ready: int
    not_ready: int
    rate: float

    @property
    def nodes(self) -> int:
        """Return the number of counted nodes."""
        return self.ready + self.not_ready


def zone_of(labels: Labels) -> str:
    """Return the zone of a node from its region and zone labels.

    Label values contain no slash, so the name is unique.
    """
    region = labels.get(BETA_REGION) or labels.get(REGION) or ""
    zone = labels.get(BETA_ZONE) or labels.get(ZONE) or ""
    return f"{region}/{zone}" if region or zone else ""


def zones(nodes: Iterable[Node], ready: Mapping[str, str | None], settings: LifecycleSettings) -> dict[str, Zone]:
    """Return every zone that has a node, sorted by name.

    Args:
        nodes: all nodes of the cluster.
        ready: the Ready status of each node, by name.
        settings: thresholds and rates.
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
    return {name: _zone(name, counts[name], settings) for name in sorted(counts)}


def _zone(name: str, count: list[int], settings: LifecycleSettings) -> Zone:
    ready, not_ready = count
    state = state_of(ready, not_ready, settings)
    return Zone(name, state, ready, not_ready, rate_of(state, ready + not_ready, settings))


def state_of(ready: int, not_ready: int, settings: LifecycleSettings) -> ZoneState:
    """Return the state of a zone with these numbers of ready and not-ready nodes."""
    if not_ready and not ready:
        return FULL
    if not_ready >= MIN_NOT_READY and not_ready / (ready + not_ready) >= settings.unhealthy_zone_threshold:
        return PARTIAL
    return NORMAL


def rate_of(state: ZoneState, nodes: int, settings: LifecycleSettings) -> float:
    """Return the nodes per second that may be tainted in a zone of this state and size, unless all zones are down."""
    if state == FULL:
        return settings.full_disruption_eviction_rate
    if state == NORMAL:
        return settings.node_eviction_rate
    return settings.secondary_node_eviction_rate if nodes > settings.large_cluster_size_threshold else 0.0


def all_down(found: Iterable[Zone]) -> bool:
    """Return whether all zones that have counted nodes are in FullDisruption.

    In that case the operator has probably lost its own connectivity, so no node is tainted. This includes clusters with
    a single node or a single zone.
    """
    counted = [zone.state for zone in found if zone.nodes]
    return bool(counted) and all(state == FULL for state in counted)
