"""Feature mixes: how often nodes and pods of a cluster use each feature.

A pod that uses all features nearly always fails at the first filters. So half of the clusters focus on one feature, and
the other features are rare in them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tests.differential.generator.rng import RandomSource


@dataclass(frozen=True)
class FeatureMix:
    """How rare each feature is: a value of N means one in N pods or nodes.

    Attributes:
        uncommon_requests: extended resources, huge pages, sidecars, overhead.
        host_ports: host ports.
        node_affinity: node selectors, node affinity and tolerations.
        taints: nodes with taints and cordoned nodes.
        pod_affinity: required pod affinity, and independently required anti-affinity.
        preferred_pod_affinity: preferred pod affinity, and independently preferred anti-affinity.
        spread: topology spread constraints.
        volumes: volumes.
    """

    uncommon_requests: int = 1
    host_ports: int = 10
    node_affinity: int = 1
    taints: int = 1
    pod_affinity: int = 8
    preferred_pod_affinity: int = 4
    spread: int = 4
    volumes: int = 4


_RARE: Final = FeatureMix(
    uncommon_requests=20,
    host_ports=40,
    node_affinity=20,
    taints=20,
    pod_affinity=40,
    preferred_pod_affinity=20,
    spread=20,
    volumes=20,
)

MIXES: Final = {
    "everything": FeatureMix(),
    "resources": replace(_RARE, uncommon_requests=1, host_ports=3),
    "node-affinity": replace(_RARE, node_affinity=1, taints=1),
    "pod-affinity": replace(_RARE, pod_affinity=2, preferred_pod_affinity=3),
    "spread": replace(_RARE, spread=1, node_affinity=6, taints=4),
    "volumes": replace(_RARE, volumes=1),
}
"""Feature mixes by name."""


def random_mix(rng: RandomSource) -> str:
    """Choose ``everything`` for half of the clusters, and a single focus for the others."""
    return "everything" if rng.one_in(2) else rng.pick(*(name for name in MIXES if name != "everything"))
