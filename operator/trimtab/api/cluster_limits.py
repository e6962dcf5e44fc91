"""``spec.resourceLimits`` of a ClusterAutoscaler: how large and how small the whole cluster may get."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from trimtab.api.base import NaturalInt, PositiveInt, Rule, Spec, bounded, doc
from trimtab.api.descheduler_status import list_map

GIB: Final = 1 << 30
"""Bytes of what ``memory`` counts."""

_MAX_AT_LEAST_MIN: Final = Rule(rule="self.max >= self.min", message="must be at least min", field_path=".max")


class ResourceRange(Spec, frozen=True):
    """The least and the most of a resource in the whole cluster, nodes included that no group has."""

    cel: ClassVar[tuple[Rule, ...]] = (_MAX_AT_LEAST_MIN,)

    min: Annotated[NaturalInt, doc("Nodes stay that would bring the cluster below this.")]
    max: Annotated[NaturalInt, doc("Nodes are not added that would bring the cluster above this.")]


class GPULimit(Spec, frozen=True):
    """The least and the most GPUs of one type in the whole cluster."""

    cel: ClassVar[tuple[Rule, ...]] = (_MAX_AT_LEAST_MIN,)

    type: Annotated[
        str,
        Meta(min_length=1, max_length=317),
        doc(
            "The resource that nodes have, nvidia.com/gpu or amd.com/gpu; or the value of the label "
            "cluster-api/accelerator of the nodes whose GPUs are meant."
        ),
    ]
    min: Annotated[NaturalInt, doc("Nodes stay that would bring the cluster below this.")]
    max: Annotated[PositiveInt, doc("Nodes are not added that would bring the cluster above this.")]


class ResourceLimits(Spec, frozen=True):
    """How large and how small the whole cluster may get, control plane and all nodes that no group has included.

    Limits hold back; they never bring a cluster that is outside back into them.
    """

    max_nodes_total: Annotated[
        NaturalInt | None,
        doc(
            "The most nodes in the cluster: all of them, those of the control plane as well, so it must be as large as "
            "they and the maxima of all groups together. 0 is no limit."
        ),
    ] = None
    cores: Annotated[ResourceRange | None, doc("CPU cores in the cluster.")] = None
    memory: Annotated[
        ResourceRange | None, doc("Memory in the cluster in GiB (2^30 bytes): a number, not a quantity such as 64Gi.")
    ] = None
    gpus: Annotated[
        tuple[GPULimit, ...], bounded("GPUs in the cluster, a limit for each type.", limit=16, **list_map("type"))
    ] = ()
