"""MachineAutoscaler: the minimum and maximum size of one node group, as in OpenShift.

It only sets limits; the ClusterAutoscaler scales the node group within them. For example::

    apiVersion: autoscaling.openshift.io/v1beta1
    kind: MachineAutoscaler
    metadata:
      name: workers-a
      namespace: openshift-machine-api
    spec:
      minReplicas: 1
      maxReplicas: 12
      scaleTargetRef:
        apiVersion: machine.openshift.io/v1beta1
        kind: MachineSet
        name: workers-a
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from trimtab.api.base import NaturalInt, ObjectMeta, PositiveInt, Rule, Spec, Status, doc
from trimtab.api.conditions import Condition, ObservedGeneration, condition_list
from trimtab.api.state import state_meta

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
    """The node group to scale, in the MachineAutoscaler's namespace."""

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
        doc("The target's kind: MachineSet, or for Cluster API also MachineDeployment or MachinePool."),
    ]
    name: Annotated[str, Meta(min_length=1, max_length=253), doc("The target's name.")]
    api_version: Annotated[
        str,
        Meta(max_length=253),
        doc(
            "The target's API version. trimtab supports MachineSets of machine.openshift.io/v1beta1, and "
            "MachineDeployments, MachineSets and MachinePools of cluster.x-k8s.io; OpenShift's autoscaler "
            "supports only MachineSets of machine.openshift.io/v1beta1."
        ),
    ] = MACHINE_API_VERSION


class MachineAutoscalerSpec(Spec, frozen=True):
    """The minimum and maximum size, and the node group that they apply to."""

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
            "The minimum size for scale-down. A smaller node group is scaled up to it only if the "
            "ClusterAutoscaler sets enforceNodeGroupMinSize: Enabled. With 0, the group can be scaled down to "
            "zero. A group that has never had a node can be scaled up only if its provider, or annotations with "
            "the prefix capacity.cluster-autoscaler.kubernetes.io, describe its nodes."
        ),
    ]
    max_replicas: Annotated[
        PositiveInt, doc("The maximum size for scale-up. A larger node group is not scaled down to it.")
    ]
    scale_target_ref: Annotated[
        ScaleTargetRef,
        doc("The node group to scale, in the same namespace. A node group can have only one MachineAutoscaler."),
    ]


class TargetReference(Status, frozen=True):
    """A reference to the node group."""

    kind: Annotated[str, Meta(max_length=63), doc("The target's kind.")]
    name: Annotated[str, Meta(max_length=253), doc("The target's name.")]
    api_version: Annotated[str, Meta(max_length=253), doc("The target's API version.")] = ""


class MachineAutoscalerStatus(Status, frozen=True):
    """Whether the limits are in effect. OpenShift's own operator writes only lastTargetRef."""

    observed_generation: ObservedGeneration = 0
    state: Annotated[str, state_meta("the reason of Ready if it is True")] = ""
    conditions: Annotated[
        tuple[Condition, ...],
        condition_list(
            "The condition Ready: whether the target exists, is not owned by another MachineAutoscaler, and has "
            "the annotations for the minimum and maximum size."
        ),
    ] = ()
    last_target_ref: Annotated[TargetReference | None, doc("The target whose annotations were last set.")] = None
    replicas: Annotated[NaturalInt | None, doc("The current target size of the node group.")] = None


class MachineAutoscaler(Spec, frozen=True):
    """Sets the minimum and maximum size of a node group, such as a MachineSet.

    The ClusterAutoscaler named default scales the node group; without it nothing is scaled.
    """

    spec: MachineAutoscalerSpec
    metadata: ObjectMeta = ObjectMeta()
    status: MachineAutoscalerStatus = MachineAutoscalerStatus()
    api_version: Literal["autoscaling.openshift.io/v1beta1"] = API_VERSION
    kind: Literal["MachineAutoscaler"] = KIND

    @property
    def key(self) -> str:
        """Return ``namespace/name``."""
        return f"{self.metadata.namespace}/{self.metadata.name}"
