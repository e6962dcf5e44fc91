"""What a cluster is about.

A pod that has to pass everything at once fails at the first few rules, nearly always. So half of all clusters are about
one thing, which most of their pods ask for, and the rest is rare there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tests.differential.generator.chance import Chance


@dataclass(frozen=True)
class Theme:
    """How often something is drawn: of so many pods or nodes, one.

    Attributes:
        amounts: uncommon requests: extended resources, huge pages, sidecars, overhead.
        ports: host ports.
        nodes: rules on nodes: selectors, affinity, tolerations.
        taints: nodes with taints and cordons.
        pods: required affinity, and as often required anti-affinity.
        wishes: preferred affinity and anti-affinity.
        spread: spread constraints.
        volumes: volumes.
    """

    amounts: int = 1
    ports: int = 10
    nodes: int = 1
    taints: int = 1
    pods: int = 8
    wishes: int = 4
    spread: int = 4
    volumes: int = 4


_RARE: Final = Theme(amounts=20, ports=40, nodes=20, taints=20, pods=40, wishes=20, spread=20, volumes=20)

THEMES: Final = {
    "everything": Theme(),
    "amounts": replace(_RARE, amounts=1, ports=3),
    "nodes": replace(_RARE, nodes=1, taints=1),
    "pods": replace(_RARE, pods=2, wishes=3),
    "spread": replace(_RARE, spread=1, nodes=6, taints=4),
    "volumes": replace(_RARE, volumes=1),
}
"""What clusters are about, by name."""


def random_theme(chance: Chance) -> str:
    """Everything at once in every other cluster."""
    return "everything" if chance.one_in(2) else chance.pick(*(name for name in THEMES if name != "everything"))
