"""kube-scheduler's sentence on a pod that fits nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NO_NODES: Final = "no nodes available to schedule pods"
"""What the scheduler says in a cluster without nodes (v1.36 ``ErrNoNodesAvailable``)."""


def sentence(number: int, counts: Mapping[str, int], *, fits: int = 0) -> str:
    """The aggregated sentence as kube-scheduler v1.36 writes it (``FitError.Error``), without its preemption clause.

    A node counts once per reason; the counted texts are sorted as strings, so "10 x" comes before "2 x".

    Args:
        number: of nodes.
        counts: of nodes by reason; reasons without a node are left out.
        fits: how many nodes are available: above 0 the scheduler says nothing, and this is our sentence in its shape.
    """
    texts = sorted(f"{count} {reason}" for reason, count in counts.items() if count)
    start = f"{fits}/{number} nodes are available"
    if texts:
        return f"{start}: {', '.join(texts)}."
    return f"{start}." if fits else f"{start}:"


def refused(number: int, refusal: str) -> str:
    """The sentence where the pod is refused before any node is looked at (``FitError.Error``, PreFilter message)."""
    return f"0/{number} nodes are available: {refusal}."
