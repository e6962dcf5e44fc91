"""How zones are and how fast their nodes may be tainted (nodelifecycle's states and rates, v1.36). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from trimtab.api.taint_manager_status import ZoneState
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Node
from trimtab.kube.rules.node_labels import BETA_REGION, BETA_ZONE, REGION, ZONE
from trimtab.tainting.lifecycle_settings import LifecycleSettings

NORMAL: Final = "Normal"
PARTIAL: Final = "PartialDisruption"
FULL: Final = "FullDisruption"

EXCLUDE: Final = "node.kubernetes.io/exclude-disruption"
"""Label of nodes that are not counted, whatever its value; they are tainted as others are."""

FEWEST: Final = 3
"""From so many nodes on that are not ready a zone can be in PartialDisruption."""


class Zone(Struct, frozen=True, gc=False):
    """A zone with the numbers that say how it is.

    Attributes:
        name: ``region/zone`` by the labels of its nodes, ``""`` for nodes without: these make one zone together.
        state: one of :data:`NORMAL`, :data:`PARTIAL`, :data:`FULL`.
        ready: nodes that are ready.
        not_ready: nodes that are not, or have not said so.
        rate: nodes a second that may get a NoExecute taint; 0 for none.
    """

    name: str
    state: ZoneState
    ready: int
    not_ready: int
    rate: float

    @property
    def nodes(self) -> int:
        """Nodes that count."""
        return self.ready + self.not_ready


def zone_of(labels: Labels) -> str:
    """The zone of a node by its labels. Neither part can hold a slash, so no two zones have one name."""
    region = labels.get(BETA_REGION) or labels.get(REGION) or ""
    zone = labels.get(BETA_ZONE) or labels.get(ZONE) or ""
    return f"{region}/{zone}" if region or zone else ""


def zones(nodes: Iterable[Node], ready: Mapping[str, str | None], settings: LifecycleSettings) -> dict[str, Zone]:
    """Every zone that has a node, by name and in its order.

    Args:
        nodes: of the cluster.
        ready: the Ready status of each, by name.
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
    """How a zone with so many nodes is."""
    if not_ready and not ready:
        return FULL
    if not_ready >= FEWEST and not_ready / (ready + not_ready) >= settings.unhealthy_zone_threshold:
        return PARTIAL
    return NORMAL


def rate_of(state: ZoneState, nodes: int, settings: LifecycleSettings) -> float:
    """Nodes a second that may be tainted in a zone of this state and size while not all zones are down."""
    if state == FULL:
        return settings.full_disruption_eviction_rate
    if state == NORMAL:
        return settings.node_eviction_rate
    return settings.secondary_node_eviction_rate if nodes > settings.large_cluster_size_threshold else 0.0


def all_down(found: Iterable[Zone]) -> bool:
    """Whether every zone whose nodes count is in FullDisruption: then it is rather we who are cut off.

    So a cluster of one node, or of one zone that is all down, taints nothing. Zones of excluded nodes say nothing.
    """
    counted = [zone.state for zone in found if zone.nodes]
    return bool(counted) and all(state == FULL for state in counted)
