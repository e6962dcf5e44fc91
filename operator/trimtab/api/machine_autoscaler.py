"""MachineAutoscaler: the limits of one group of machines, as OpenShift has it.

It only says how small and how large its target may get; the one ClusterAutoscaler says when that is made use of.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from trimtab.api.base import NaturalInt, ObjectMeta, PositiveInt, Rule, Spec, Status, bounded, doc
from trimtab.api.conditions import Condition
from trimtab.api.descheduler_status import list_map

KIND: Final = "MachineAutoscaler"
API_VERSION: Final = "autoscaling.openshift.io/v1beta1"
MACHINE_API_VERSION: Final = "machine.openshift.io/v1beta1"
CLUSTER_API_PREFIX: Final = "cluster.x-k8s.io/"
CLUSTER_API_KINDS: Final = ("MachineDeployment", "MachineSet", "MachinePool")

TARGETS_HELP: Final = (
    f"must be a MachineSet of {MACHINE_API_VERSION}, or a {', '.join(CLUSTER_API_KINDS[:-1])} or "
    f"{CLUSTER_API_KINDS[-1]} of {CLUSTER_API_PREFIX}v1beta1 or v1beta2"
)


class ScaleTargetRef(Spec, frozen=True):
    """What is scaled: an object in the MachineAutoscaler's own namespace."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule=f"self.apiVersion == '{MACHINE_API_VERSION}' ? self.kind == 'MachineSet' : "
            f"self.apiVersion in ['{CLUSTER_API_PREFIX}v1beta1', '{CLUSTER_API_PREFIX}v1beta2'] && "
            f"self.kind in {list(CLUSTER_API_KINDS)}",
            message=TARGETS_HELP,
        ),
    )

    kind: Annotated[
        str,
        Meta(min_length=1, max_length=63),
        doc("The target's kind: MachineSet; of Cluster API MachineDeployment or MachinePool as well."),
    ]
    name: Annotated[str, Meta(min_length=1, max_length=253), doc("The target's name.")]
    api_version: Annotated[
        str,
        Meta(max_length=253),
        doc(
            "The target's API version. OpenShift's autoscaler takes MachineSets of machine.openshift.io/v1beta1 only; "
            "trimtab takes MachineDeployments, MachineSets and MachinePools of cluster.x-k8s.io as well."
        ),
    ] = MACHINE_API_VERSION


class MachineAutoscalerSpec(Spec, frozen=True):
    """The limits, and whose they are."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="self.maxReplicas >= self.minReplicas",
            message="must be at least minReplicas",
            field_path=".maxReplicas",
        ),
    )

    min_replicas: Annotated[
        NaturalInt,
        doc(
            "The fewest machines that scaling down leaves. A set that is smaller is not raised to it, unless the "
            "ClusterAutoscaler has enforceNodeGroupMinSize: Enabled. With 0 the set can be emptied; to grow again from "
            "nothing it needs annotations that say what its nodes are like."
        ),
    ]
    max_replicas: Annotated[
        PositiveInt, doc("The most machines that scaling up asks for. A set that is larger is not shrunk to it.")
    ]
    scale_target_ref: Annotated[
        ScaleTargetRef, doc("What is scaled, in the same namespace. Only one MachineAutoscaler can have a target.")
    ]


class TargetReference(Status, frozen=True):
    """An object that was found."""

    kind: Annotated[str, Meta(max_length=63), doc("Its kind.")]
    name: Annotated[str, Meta(max_length=253), doc("Its name.")]
    api_version: Annotated[str, Meta(max_length=253), doc("Its API version.")] = ""


class MachineAutoscalerStatus(Status, frozen=True):
    """What became of the limits. OpenShift's own operator writes lastTargetRef alone."""

    observed_generation: Annotated[
        int, Meta(ge=0), doc("The generation of the spec that this status is about.", format="int64")
    ] = 0
    conditions: Annotated[
        tuple[Condition, ...],
        bounded(
            "Ready: whether the target is there, is nobody else's, and has the limits.", limit=16, **list_map("type")
        ),
    ] = ()
    last_target_ref: Annotated[TargetReference | None, doc("The target that the limits were last set for.")] = None
    replicas: Annotated[NaturalInt | None, doc("The size that the target asks for at present.")] = None


class MachineAutoscaler(Spec, frozen=True):
    """How small and how large a set of machines may get.

    The ClusterAutoscaler named default does the scaling; without one nothing is scaled.
    """

    spec: MachineAutoscalerSpec
    metadata: ObjectMeta = ObjectMeta()
    status: MachineAutoscalerStatus = MachineAutoscalerStatus()
    api_version: Literal["autoscaling.openshift.io/v1beta1"] = API_VERSION
    kind: Literal["MachineAutoscaler"] = KIND

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.metadata.namespace}/{self.metadata.name}"
