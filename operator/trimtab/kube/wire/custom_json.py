"""Custom resources of other projects, and EvictionRequests, as structs for JSON and YAML.

Custom resources have no protobuf form, so these structs are the schema. All fields except those of type Any are written
to snapshot files. One struct reads a kind of both APIs in all versions. If the two APIs store the same value in
different fields, the struct contains both fields, and :mod:`trimtab.kube.wire.projection.machine` reads the right one.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from trimtab.kube.wire.json_base import Int32, Message
from trimtab.kube.wire.slim_json import ObjectMeta, Taint


class NodeReference(Message):
    """The node of a machine (core/v1 ObjectReference). In Cluster API's v1beta2 it contains only the name."""

    name: str = ""
    uid: str = ""


class FailureOfOld(Message):
    """The failure fields of Cluster API's v1beta1, which v1beta2 contains in ``status.deprecated.v1beta1``."""

    failure_reason: str = ""
    failure_message: str = ""


class Deprecated(Message):
    """``status.deprecated`` of Cluster API's v1beta2."""

    v1beta1: FailureOfOld = field(default_factory=FailureOfOld)


class MachineTaint(Taint):
    """A taint that a machine's node receives. In Cluster API (v1.12) it has a propagation policy."""

    propagation: str = ""


class MachineSpec(Message):
    """The spec of a machine. ``clusterName`` exists only in Cluster API."""

    cluster_name: str = ""
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    provider_id: str = field(name="providerID", default="")
    taints: list[MachineTaint] = []


class MachineStatus(Message):
    """The status of a machine.

    The fields ``error…`` exist only in the Machine API, and ``failure…`` only in Cluster API.
    """

    node_ref: NodeReference | None = None
    phase: str = ""
    error_reason: str = ""
    error_message: str = ""
    failure_reason: str = ""
    failure_message: str = ""
    deprecated: Deprecated = field(default_factory=Deprecated)


class Machine(Message):
    """A Machine of either API."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: MachineSpec = field(default_factory=MachineSpec)
    status: MachineStatus = field(default_factory=MachineStatus)


class ClusterMachine(Machine):
    """cluster.x-k8s.io Machine."""


class TemplateMachineSpec(MachineSpec):
    """The spec of the machines of a template. Each API has one of the two fields for the machine type.

    Both fields are in the provider's own format, so any value is accepted.
    """

    provider_spec: Any = None
    infrastructure_ref: Any = None


class MachineTemplateSpec(Message):
    """The template of the machines of a node group."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: TemplateMachineSpec = field(default_factory=TemplateMachineSpec)


class Deletion(Message):
    """``spec.deletion`` of Cluster API's v1beta2. Its v1beta1 has ``deletePolicy`` instead."""

    order: str = ""


class MachineSetSpec(Message):
    """The spec of a MachineSet, MachineDeployment or MachinePool. ``clusterName`` exists only in Cluster API."""

    cluster_name: str = ""
    replicas: Int32 | None = None
    template: MachineTemplateSpec = field(default_factory=MachineTemplateSpec)
    delete_policy: str = ""
    deletion: Deletion = field(default_factory=Deletion)
    paused: bool = False
    authoritative_api: str = field(name="authoritativeAPI", default="")
    provider_id_list: list[str] = field(name="providerIDList", default_factory=list)


class MachineSetStatus(Message):
    """The status of a MachineSet, MachineDeployment or MachinePool."""

    authoritative_api: str = field(name="authoritativeAPI", default="")
    node_refs: list[NodeReference] = []
    error_reason: str = ""
    error_message: str = ""
    failure_reason: str = ""
    failure_message: str = ""
    deprecated: Deprecated = field(default_factory=Deprecated)


class MachineSet(Message):
    """A MachineSet of either API."""

    api_version: str = ""
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: MachineSetSpec = field(default_factory=MachineSetSpec)
    status: MachineSetStatus = field(default_factory=MachineSetStatus)


class ClusterMachineSet(MachineSet):
    """cluster.x-k8s.io MachineSet."""


class MachineDeployment(MachineSet):
    """cluster.x-k8s.io MachineDeployment."""


class MachinePool(MachineSet):
    """cluster.x-k8s.io MachinePool."""


class TargetReference(Message):
    """The workload whose pods a VerticalPodAutoscaler changes."""

    api_version: str = ""
    kind: str = ""
    name: str = ""


class UpdatePolicy(Message):
    """How a VerticalPodAutoscaler applies its recommendation."""

    update_mode: str = ""


class VerticalPodAutoscalerSpec(Message):
    """The spec of a VerticalPodAutoscaler."""

    target_ref: TargetReference | None = None
    update_policy: UpdatePolicy | None = None


class VerticalPodAutoscaler(Message):
    """autoscaling.k8s.io/v1 VerticalPodAutoscaler."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: VerticalPodAutoscalerSpec = field(default_factory=VerticalPodAutoscalerSpec)


class EvictionPodReference(Message):
    """The pod that an EvictionRequest is to evict."""

    name: str = ""
    uid: str = ""


class EvictionTarget(Message):
    """The target of an EvictionRequest."""

    pod: EvictionPodReference | None = None


class PodEvictionRequestSpec(Message):
    """The spec of an EvictionRequest."""

    target: EvictionTarget = field(default_factory=EvictionTarget)
    requester: str = ""
    intent: str = ""


class EvictionRequestCondition(Message):
    """A condition of an EvictionRequest."""

    type: str = ""
    status: str = ""


class PodEvictionRequestStatus(Message):
    """The status of an EvictionRequest."""

    conditions: tuple[EvictionRequestCondition, ...] = ()


class PodEvictionRequest(Message):
    """lifecycle.k8s.io/v1alpha1 EvictionRequest."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PodEvictionRequestSpec = field(default_factory=PodEvictionRequestSpec)
    status: PodEvictionRequestStatus = field(default_factory=PodEvictionRequestStatus)
