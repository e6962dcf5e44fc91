"""What strategies ask of places."""

from __future__ import annotations

from msgspec import Struct

from trimtab.cluster.resources import BoolArray, IntArray


class Wish(Struct, frozen=True):
    """Where a strategy would have a pod.

    Attributes:
        among: bool, shape (nodes.capacity,): the nodes on which its measure falls.
        otherwise: what is told of a node that would take the pod but is not among them; counted, so it begins with
            ``node(s)``.
        rank: int64, same shape: nodes of lesser rank first; ``None`` where all are alike.
        stay: whether the pod's own node will do as well, for the violation goes with the pod, wherever the next one is.
    """

    among: BoolArray
    otherwise: str
    rank: IntArray | None = None
    stay: bool = False
