"""Small sets of names and labels, so that pods, nodes and volumes often match."""

from __future__ import annotations

from typing import Final

NAMESPACES: Final = ("red", "blue", "grey")
TEAMS: Final = {"red": {"team": "x"}, "blue": {"team": "y"}, "grey": {}}
APPS: Final = ("a", "b", "c")
TIERS: Final = ("front", "back")
ZONES: Final = ("a", "b", "c")
REGIONS: Final = ("north", "south")
GPU: Final = "example.com/gpu"
REGION: Final = "topology.kubernetes.io/region"
LEGACY_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
IMAGES: Final = {
    "registry.example/app:1": 40_000_000,
    "registry.example/app:2": 700_000_000,
    "registry.example/big:latest": 3_000_000_000,
    "registry.example/side:1": 150_000_000,
    "docker.io/library/tool:latest": 260_000_000,
}
"""Images on nodes, with their sizes in bytes."""

POD_IMAGES: Final = (*IMAGES, "registry.example/big", "registry.example/none:1", "docker.io/library/tool")
CSI: Final = "csi.example.com"
"""A CSI driver with attach limits on nodes."""
CAPACITY: Final = "capacity.example.com"
"""A CSI driver that publishes its storage capacity."""
RUNTIME: Final = "heavy"
"""A runtime class with overhead."""
HIGH: Final = "high"
"""A PriorityClass with ``preemptionPolicy: Never``, so that it has no effect on placement."""
RESTART_FEATURE: Final = "RestartAllContainersOnContainerExits"
"""A feature that nodes declare, and that pods with a matching restart rule require."""
