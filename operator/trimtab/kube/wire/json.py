"""The wire form of the core kinds in JSON and YAML.

The structs mirror ``slim.proto``: the same names in snake case, the same ``HasField``, so that one projection reads
both. Unknown fields are ignored (a cluster dump holds all of them); known ones must have the right type. What may be
absent with a meaning is ``None``, everything else has Go's zero value.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct, field

Time = Annotated[datetime, Meta(tz=True)]
Quantities = dict[str, str | int | float]
"""Quantities as text or, as the API server takes them too, as bare numbers."""


class Message(Struct, rename="camel", omit_defaults=True, gc=False):
    """What all wire structs share: keys in camel case, and protobuf's way to ask what is there."""

    def HasField(self, name: str) -> bool:  # noqa: N802 (protobuf's name)
        """Whether an optional field is there; asked only of fields that may be ``None``."""
        return getattr(self, name) is not None


class OwnerReference(Message):
    """metav1.OwnerReference."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Message):
    """metav1.ObjectMeta."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []


class Requirement(Message):
    """metav1.LabelSelectorRequirement and core/v1 NodeSelectorRequirement."""

    key: str = ""
    operator: str = ""
    values: list[str] = []


class LabelSelector(Message):
    """metav1.LabelSelector."""

    match_labels: dict[str, str] = {}
    match_expressions: list[Requirement] = []


class NodeSelectorTerm(Message):
    """core/v1 NodeSelectorTerm."""

    match_expressions: list[Requirement] = []
    match_fields: list[Requirement] = []


class NodeSelector(Message):
    """core/v1 NodeSelector."""

    node_selector_terms: list[NodeSelectorTerm] = []


class PreferredSchedulingTerm(Message):
    """core/v1 PreferredSchedulingTerm."""

    weight: int = 0
    preference: NodeSelectorTerm = field(default_factory=NodeSelectorTerm)


class NodeAffinity(Message):
    """core/v1 NodeAffinity, its two long names cut short."""

    required: NodeSelector | None = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: list[PreferredSchedulingTerm] = field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default_factory=list
    )


class PodAffinityTerm(Message):
    """core/v1 PodAffinityTerm."""

    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    topology_key: str = ""
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedPodAffinityTerm(Message):
    """core/v1 WeightedPodAffinityTerm."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = field(default_factory=PodAffinityTerm)


class PodAffinity(Message):
    """core/v1 PodAffinity and PodAntiAffinity, their two long names cut short."""

    required: list[PodAffinityTerm] = field(name="requiredDuringSchedulingIgnoredDuringExecution", default_factory=list)
    preferred: list[WeightedPodAffinityTerm] = field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default_factory=list
    )


class Affinity(Message):
    """core/v1 Affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Message):
    """core/v1 Toleration."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class TopologySpreadConstraint(Message):
    """core/v1 TopologySpreadConstraint."""

    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = ""
    node_taints_policy: str = ""
    match_label_keys: list[str] = []


class ContainerPort(Message):
    """core/v1 ContainerPort."""

    host_port: int = 0
    container_port: int = 0
    protocol: str = ""
    host_ip: str = field(name="hostIP", default="")


class ResourceRequirements(Message):
    """core/v1 ResourceRequirements."""

    limits: Quantities = {}
    requests: Quantities = {}


class Container(Message):
    """core/v1 Container."""

    name: str = ""
    image: str = ""
    ports: list[ContainerPort] = []
    resources: ResourceRequirements = field(default_factory=ResourceRequirements)
    restart_policy: str = ""


class Source(Message):
    """A volume source of which only the kind counts."""


class PersistentVolumeClaimSource(Message):
    """core/v1 PersistentVolumeClaimVolumeSource."""

    claim_name: str = ""
    read_only: bool = False


class Volume(Message):
    """core/v1 Volume and, as JSON has it inline, VolumeSource."""

    host_path: Source | None = None
    empty_dir: Source | None = None
    gce_persistent_disk: Source | None = None
    aws_elastic_block_store: Source | None = None
    git_repo: Source | None = None
    nfs: Source | None = None
    iscsi: Source | None = None
    glusterfs: Source | None = None
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    rbd: Source | None = None
    flex_volume: Source | None = None
    cinder: Source | None = None
    cephfs: Source | None = None
    flocker: Source | None = None
    fc: Source | None = None
    azure_file: Source | None = None
    vsphere_volume: Source | None = None
    quobyte: Source | None = None
    azure_disk: Source | None = None
    photon_persistent_disk: Source | None = None
    portworx_volume: Source | None = None
    scale_io: Source | None = field(name="scaleIO", default=None)
    storageos: Source | None = None
    csi: Source | None = None
    ephemeral: Source | None = None
    image: Source | None = None

    @property
    def volume_source(self) -> Volume:
        """The source, which protobuf keeps in a message of its own."""
        return self


class Named(Message):
    """A scheduling gate or a resource claim: only the name counts."""

    name: str = ""


class PodSpec(Message):
    """core/v1 PodSpec."""

    volumes: list[Volume] = []
    containers: list[Container] = []
    restart_policy: str = ""
    termination_grace_period_seconds: int | None = None
    node_selector: dict[str, str] = {}
    node_name: str = ""
    host_network: bool = False
    affinity: Affinity | None = None
    scheduler_name: str = ""
    init_containers: list[Container] = []
    tolerations: list[Toleration] = []
    priority_class_name: str = ""
    priority: int | None = None
    preemption_policy: str = ""
    overhead: Quantities = {}
    topology_spread_constraints: list[TopologySpreadConstraint] = []
    scheduling_gates: list[Named] = []
    resource_claims: list[Named] = []
    resources: ResourceRequirements | None = None


class Condition(Message):
    """A condition of a pod or node."""

    type: str = ""
    status: str = ""
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class ContainerStatus(Message):
    """core/v1 ContainerStatus."""

    name: str = ""
    restart_count: int = 0
    allocated_resources: Quantities = {}
    resources: ResourceRequirements | None = None


class PodStatus(Message):
    """core/v1 PodStatus."""

    phase: str = ""
    conditions: list[Condition] = []
    reason: str = ""
    start_time: Time | None = None
    container_statuses: list[ContainerStatus] = []
    qos_class: str = ""
    init_container_statuses: list[ContainerStatus] = []
    nominated_node_name: str = ""
    allocated_resources: Quantities = {}
    resources: ResourceRequirements | None = None


class Pod(Message):
    """core/v1 Pod."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)


class Taint(Message):
    """core/v1 Taint."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: Time | None = None


class NodeSpec(Message):
    """core/v1 NodeSpec."""

    provider_id: str = field(name="providerID", default="")
    unschedulable: bool = False
    taints: list[Taint] = []


class NodeStatus(Message):
    """core/v1 NodeStatus."""

    capacity: Quantities = {}
    allocatable: Quantities = {}
    conditions: list[Condition] = []


class Node(Message):
    """core/v1 Node."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)


class PodDisruptionBudgetSpec(Message):
    """policy/v1 PodDisruptionBudgetSpec."""

    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = ""


class PodDisruptionBudgetStatus(Message):
    """policy/v1 PodDisruptionBudgetStatus."""

    observed_generation: int = 0
    disrupted_pods: dict[str, Any] = {}
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0


class PodDisruptionBudget(Message):
    """policy/v1 PodDisruptionBudget."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PodDisruptionBudgetSpec = field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = field(default_factory=PodDisruptionBudgetStatus)


class Namespace(Message):
    """core/v1 Namespace."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)


class PriorityClass(Message):
    """scheduling.k8s.io/v1 PriorityClass."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    value: int = 0
    global_default: bool = False
