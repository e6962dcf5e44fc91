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
        doc("Kind of the node group: MachineSet or, for Cluster API, MachineDeployment, MachineSet or MachinePool."),
    ]
    name: Annotated[str, Meta(min_length=1, max_length=253), doc("Name of the node group.")]
    api_version: Annotated[
        str,
        Meta(max_length=253),
        doc(
            "API version of the node group. For the Machine API, the version must be machine.openshift.io/v1beta1. For "
            "Cluster API, the version must be cluster.x-k8s.io/v1beta1 or cluster.x-k8s.io/v1beta2."
        ),
    ] = MACHINE_API_VERSION


class MachineAutoscalerSpec(Spec, frozen=True):
    """Minimum and maximum number of nodes, and the node group to which these limits apply."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="self.maxReplicas >= self.minReplicas",
            message="maxReplicas must be at least minReplicas",
            field_path=".maxReplicas",
        ),
    )

    min_replicas: Annotated[
        NaturalInt,
        doc(
            "Minimum number of nodes in the node group. Scale-down does not go below this number. A smaller node group "
            "is scaled up to this number only if enforceNodeGroupMinSize of the ClusterAutoscaler is Enabled. If 0, "
            "scale-down can remove all nodes. A node group that has never had a node can be scaled up only if its "
            "provider or its annotations with the prefix capacity.cluster-autoscaler.kubernetes.io describe its nodes."
        ),
    ]
    max_replicas: Annotated[
        PositiveInt,
        doc(
            "Maximum number of nodes in the node group. Scale-up does not make the node group larger than this number. "
            "A node group that is already larger is not scaled down to this number."
        ),
    ]
    scale_target_ref: Annotated[
        ScaleTargetRef,
        doc(
            "Reference to the node group whose size this MachineAutoscaler limits. The node group must be in the "
            "namespace of the MachineAutoscaler. Only one MachineAutoscaler can refer to a node group."
        ),
    ]


class TargetReference(Status, frozen=True):
    """A reference to the node group."""

    kind: Annotated[str, Meta(max_length=63), doc("Kind of the node group, for example MachineSet.")]
    name: Annotated[str, Meta(max_length=253), doc("Name of the node group.")]
    api_version: Annotated[str, Meta(max_length=253), doc("API version of the node group.")] = ""


class MachineAutoscalerStatus(Status, frozen=True):
    """Observed status of the MachineAutoscaler. In OpenShift's MachineAutoscaler, lastTargetRef is the only field."""

    observed_generation: ObservedGeneration = 0
    state: Annotated[str, state_meta("MachineAutoscaler")] = ""
    conditions: Annotated[
        tuple[Condition, ...],
        condition_list(
            "Current conditions of the MachineAutoscaler. Ready is True if the node group exists, belongs to no other "
            "MachineAutoscaler, and has the annotations for the minimum and maximum size. PermissionsMissing is True "
            "if trimtab's service account lacks permissions that the MachineAutoscaler needs."
        ),
    ] = ()
    last_target_ref: Annotated[
        TargetReference | None,
        doc(
            "Reference to the node group on which the operator last set the annotations for the minimum and maximum "
            "size."
        ),
    ] = None
    replicas: Annotated[
        NaturalInt | None,
        doc(
            "Target size of the node group (spec.replicas). Unset if the node group does not exist or cannot be the "
            "target of this MachineAutoscaler."
        ),
    ] = None


class MachineAutoscaler(Spec, frozen=True):
    """Sets the minimum and maximum size of a node group, such as a MachineSet.

    The ClusterAutoscaler named default scales the node group within these limits. Without a ClusterAutoscaler, the node
    group is not scaled.
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
