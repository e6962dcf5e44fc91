"""RemovePodsViolatingNodeAffinity and its parameters."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from trimtab.api.base import Spec, bounded, doc
from trimtab.api.strategies.base import SET, Strategy

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
NodeAffinityType = Literal[
    "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
]


class NodeAffinityParams(Spec, frozen=True):
    """Parameters of RemovePodsViolatingNodeAffinity."""

    node_affinity_type: Annotated[
        tuple[NodeAffinityType, ...],
        bounded(
            "Which rules are looked at: requiredDuringSchedulingIgnoredDuringExecution moves pods whose node no longer "
            "satisfies their node selector or required node affinity, preferredDuringSchedulingIgnoredDuringExecution "
            "pods for which a node of higher preference has room. Without it: the required ones.",
            least=1,
            limit=2,
            **SET,
        ),
    ] = (REQUIRED,)


class RemovePodsViolatingNodeAffinity(Strategy, frozen=True):
    """Moves pods whose node does not, or no longer, satisfy their node affinity to one that does."""

    params: Annotated[NodeAffinityParams, doc("Parameters of RemovePodsViolatingNodeAffinity.")] = NodeAffinityParams()
