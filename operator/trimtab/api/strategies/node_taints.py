"""RemovePodsViolatingNodeTaints and its parameters."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from trimtab.api.base import Spec, bounded, doc
from trimtab.api.strategies.base import SET, Strategy

_KEY: Final = "[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?"
_VALUE: Final = "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
TaintName = Annotated[
    str,
    Meta(
        description="A taint's key, or key=value; key= is the taint without a value. Not its effect.",
        min_length=1,
        max_length=381,
        pattern=f"^{_KEY}(=({_VALUE})?)?$",
    ),
]
"""A key has at most 253 + 1 + 63 characters, a value 63."""


class NodeTaintsParams(Spec, frozen=True):
    """Parameters of RemovePodsViolatingNodeTaints."""

    include_prefer_no_schedule: Annotated[
        bool,
        doc(
            "Whether PreferNoSchedule taints are looked at as well: pods move to a node that has fewer of those that "
            "they do not tolerate."
        ),
    ] = False
    excluded_taints: Annotated[
        tuple[TaintName, ...],
        bounded(
            "Taints that are not looked at, by key or key=value, e.g. node.kubernetes.io/unschedulable for the nodes "
            "that are cordoned. Not together with includedTaints.",
            least=1,
            limit=64,
            **SET,
        ),
    ] = ()
    included_taints: Annotated[
        tuple[TaintName, ...],
        bounded(
            "The only taints that are looked at, by key or key=value. Without it: all but those of excludedTaints, and "
            "but node.kubernetes.io/not-ready and unreachable, with which tolerationSeconds deals, and those of nodes "
            "that a cluster autoscaler takes away.",
            least=1,
            limit=64,
            **SET,
        ),
    ] = ()


class RemovePodsViolatingNodeTaints(Strategy, frozen=True):
    """Moves pods that do not tolerate a NoSchedule taint of their node to a node that takes them."""

    at_most_one_of: ClassVar[tuple[str, ...]] = ("excludedTaints", "includedTaints")

    params: Annotated[NodeTaintsParams, doc("Parameters of RemovePodsViolatingNodeTaints.")] = NodeTaintsParams()
