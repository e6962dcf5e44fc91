"""The messages of ``slim.proto`` as structs, for JSON and YAML.

Made by `make proto`: change the schema, not this file.
"""

from __future__ import annotations

from msgspec import field

from trimtab.kube.wire.json_base import FieldsV1, Int32, Int64, Message, Quantities, Quantity, Time


class OwnerReference(Message):
    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = False


class ManagedFieldsEntry(Message):
    fields_v1: FieldsV1 | None = None


class ObjectMeta(Message):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []
    managed_fields: list[ManagedFieldsEntry] = []


class Source(Message):
    pass


class EmptyDirVolumeSource(Message):
    medium: str = ""


class GCEPersistentDiskVolumeSource(Message):
    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStoreVolumeSource(Message):
    volume_id: str = field(name="volumeID", default="")
    read_only: bool = False


class ISCSIVolumeSource(Message):
    iqn: str = ""
    read_only: bool = False


class PersistentVolumeClaimSource(Message):
    claim_name: str = ""
    read_only: bool = False


class RBDVolumeSource(Message):
    monitors: list[str] = []
    image: str = ""
    pool: str = ""
    read_only: bool = False


class CinderVolumeSource(Message):
    volume_id: str = field(name="volumeID", default="")
    read_only: bool = False


class AzureDiskVolumeSource(Message):
    disk_uri: str = field(name="diskURI", default="")
    read_only: bool = False
    kind: str = ""


class PortworxVolumeSource(Message):
    volume_id: str = field(name="volumeID", default="")
    read_only: bool = False


class ImageVolumeSource(Message):
    reference: str = ""


class VolumeSource(Message):
    host_path: Source | None = None
    empty_dir: EmptyDirVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    git_repo: Source | None = None
    nfs: Source | None = None
    iscsi: ISCSIVolumeSource | None = None
    glusterfs: Source | None = None
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    rbd: RBDVolumeSource | None = None
    flex_volume: Source | None = None
    cinder: CinderVolumeSource | None = None
    cephfs: Source | None = None
    flocker: Source | None = None
    fc: Source | None = None
    azure_file: Source | None = None
    vsphere_volume: Source | None = None
    quobyte: Source | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    photon_persistent_disk: Source | None = None
    portworx_volume: PortworxVolumeSource | None = None
    scale_io: Source | None = field(name="scaleIO", default=None)
    storageos: Source | None = None
    csi: Source | None = None
    ephemeral: Source | None = None
    image: ImageVolumeSource | None = None


class Volume(VolumeSource):
    name: str = ""

    @property
    def volume_source(self) -> VolumeSource:
        return self


class ContainerPort(Message):
    host_port: Int32 = 0
    container_port: Int32 = 0
    protocol: str = ""
    host_ip: str = field(name="hostIP", default="")


class ResourceRequirements(Message):
    limits: Quantities = {}
    requests: Quantities = {}


class ContainerRestartRule(Message):
    action: str = ""


class Container(Message):
    name: str = ""
    image: str = ""
    ports: list[ContainerPort] = []
    resources: ResourceRequirements = field(default_factory=ResourceRequirements)
    restart_policy: str = ""
    restart_policy_rules: list[ContainerRestartRule] = []


class Requirement(Message):
    key: str = ""
    operator: str = ""
    values: list[str] = []


class NodeSelectorTerm(Message):
    match_expressions: list[Requirement] = []
    match_fields: list[Requirement] = []


class NodeSelector(Message):
    node_selector_terms: list[NodeSelectorTerm] = []


class PreferredSchedulingTerm(Message):
    weight: Int32 = 0
    preference: NodeSelectorTerm = field(default_factory=NodeSelectorTerm)


class NodeAffinity(Message):
    required: NodeSelector | None = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: list[PreferredSchedulingTerm] = field(name="preferredDuringSchedulingIgnoredDuringExecution", default_factory=list)


class LabelSelector(Message):
    match_labels: dict[str, str] = {}
    match_expressions: list[Requirement] = []


class PodAffinityTerm(Message):
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    topology_key: str = ""
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedPodAffinityTerm(Message):
    weight: Int32 = 0
    pod_affinity_term: PodAffinityTerm = field(default_factory=PodAffinityTerm)


class PodAffinity(Message):
    required: list[PodAffinityTerm] = field(name="requiredDuringSchedulingIgnoredDuringExecution", default_factory=list)
    preferred: list[WeightedPodAffinityTerm] = field(name="preferredDuringSchedulingIgnoredDuringExecution", default_factory=list)


class Affinity(Message):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Message):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class TopologySpreadConstraint(Message):
    max_skew: Int32 = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str = ""
    node_taints_policy: str = ""
    match_label_keys: list[str] = []


class Named(Message):
    name: str = ""


class PodSchedulingGroup(Message):
    pod_group_name: str = ""


class PodSpec(Message):
    volumes: list[Volume] = []
    containers: list[Container] = []
    restart_policy: str = ""
    termination_grace_period_seconds: Int64 | None = None
    node_selector: dict[str, str] = {}
    node_name: str = ""
    host_network: bool = False
    affinity: Affinity | None = None
    scheduler_name: str = ""
    init_containers: list[Container] = []
    tolerations: list[Toleration] = []
    priority_class_name: str = ""
    priority: Int32 | None = None
    runtime_class_name: str = ""
    preemption_policy: str = ""
    overhead: Quantities = {}
    topology_spread_constraints: list[TopologySpreadConstraint] = []
    scheduling_gates: list[Named] = []
    resource_claims: list[Named] = []
    resources: ResourceRequirements | None = None
    scheduling_group: PodSchedulingGroup | None = None


class Condition(Message):
    type: str = ""
    status: str = ""
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class ContainerStateWaiting(Message):
    reason: str = ""


class ContainerStateTerminated(Message):
    exit_code: Int32 = 0
    reason: str = ""


class ContainerState(Message):
    waiting: ContainerStateWaiting | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Message):
    name: str = ""
    state: ContainerState = field(default_factory=ContainerState)
    restart_count: Int32 = 0
    allocated_resources: Quantities = {}
    resources: ResourceRequirements | None = None


class PodStatus(Message):
    phase: str = ""
    conditions: list[Condition] = []
    reason: str = ""
    start_time: Time | None = None
    container_statuses: list[ContainerStatus] = []
    qos_class: str = ""
    init_container_statuses: list[ContainerStatus] = []
    nominated_node_name: str = ""
    ephemeral_container_statuses: list[ContainerStatus] = []
    allocated_resources: Quantities = {}
    resources: ResourceRequirements | None = None


class Pod(Message):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)


class Taint(Message):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: Time | None = None


class NodeSpec(Message):
    provider_id: str = field(name="providerID", default="")
    unschedulable: bool = False
    taints: list[Taint] = []


class NodeCondition(Message):
    type: str = ""
    status: str = ""
    last_heartbeat_time: Time | None = None
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class NodeAddress(Message):
    type: str = ""
    address: str = ""


class DaemonEndpoint(Message):
    port: Int32 = field(name="Port", default=0)


class NodeDaemonEndpoints(Message):
    kubelet_endpoint: DaemonEndpoint = field(default_factory=DaemonEndpoint)


class ContainerImage(Message):
    names: list[str] = []
    size_bytes: Int64 = 0


class NodeStatus(Message):
    capacity: Quantities = {}
    allocatable: Quantities = {}
    conditions: list[NodeCondition] = []
    addresses: list[NodeAddress] = []
    daemon_endpoints: NodeDaemonEndpoints = field(default_factory=NodeDaemonEndpoints)
    images: list[ContainerImage] = []
    declared_features: list[str] = []


class Node(Message):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)


class Namespace(Message):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)


class PodDisruptionBudgetSpec(Message):
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = ""


class PodDisruptionBudgetStatus(Message):
    observed_generation: Int64 = 0
    disrupted_pods: dict[str, Time | None] = {}
    disruptions_allowed: Int32 = 0
    current_healthy: Int32 = 0
    desired_healthy: Int32 = 0
    expected_pods: Int32 = 0


class PodDisruptionBudget(Message):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PodDisruptionBudgetSpec = field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = field(default_factory=PodDisruptionBudgetStatus)


class PriorityClass(Message):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    value: Int32 = 0
    global_default: bool = False


class LimitRangeItem(Message):
    type: str = ""
    max: Quantities = {}
    min: Quantities = {}
    default: Quantities = {}
    default_request: Quantities = {}


class LimitRangeSpec(Message):
    limits: list[LimitRangeItem] = []


class LimitRange(Message):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: LimitRangeSpec = field(default_factory=LimitRangeSpec)


class Overhead(Message):
    pod_fixed: Quantities = {}


class Scheduling(Message):
    node_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []


class RuntimeClass(Message):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    overhead: Overhead = field(default_factory=Overhead)
    scheduling: Scheduling = field(default_factory=Scheduling)


class CSIPersistentVolumeSource(Message):
    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSource(Message):
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    host_path: Source | None = None
    glusterfs: Source | None = None
    nfs: Source | None = None
    rbd: Source | None = None
    iscsi: Source | None = None
    cinder: CinderVolumeSource | None = None
    cephfs: Source | None = None
    fc: Source | None = None
    flocker: Source | None = None
    flex_volume: Source | None = None
    azure_file: Source | None = None
    vsphere_volume: Source | None = None
    quobyte: Source | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    photon_persistent_disk: Source | None = None
    portworx_volume: PortworxVolumeSource | None = None
    scale_io: Source | None = field(name="scaleIO", default=None)
    local: Source | None = None
    storageos: Source | None = None
    csi: CSIPersistentVolumeSource | None = None


class ObjectReference(Message):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(Message):
    required: NodeSelector | None = None


class PersistentVolumeSpec(PersistentVolumeSource):
    capacity: Quantities = {}
    access_modes: list[str] = []
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    volume_mode: str = ""
    node_affinity: VolumeNodeAffinity | None = None
    volume_attributes_class_name: str | None = None

    @property
    def persistent_volume_source(self) -> PersistentVolumeSource:
        return self


class PersistentVolumeStatus(Message):
    phase: str = ""


class PersistentVolume(Message):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PersistentVolumeSpec = field(default_factory=PersistentVolumeSpec)
    status: PersistentVolumeStatus = field(default_factory=PersistentVolumeStatus)


class PersistentVolumeClaimSpec(Message):
    access_modes: list[str] = []
    resources: ResourceRequirements = field(default_factory=ResourceRequirements)
    volume_name: str = ""
    selector: LabelSelector | None = None
    storage_class_name: str | None = None
    volume_mode: str = ""
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimStatus(Message):
    phase: str = ""


class PersistentVolumeClaim(Message):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PersistentVolumeClaimSpec = field(default_factory=PersistentVolumeClaimSpec)
    status: PersistentVolumeClaimStatus = field(default_factory=PersistentVolumeClaimStatus)


class TopologySelectorLabelRequirement(Message):
    key: str = ""
    values: list[str] = []


class TopologySelectorTerm(Message):
    match_label_expressions: list[TopologySelectorLabelRequirement] = []


class StorageClass(Message):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    provisioner: str = ""
    volume_binding_mode: str = ""
    allowed_topologies: list[TopologySelectorTerm] = []


class VolumeNodeResources(Message):
    count: Int32 | None = None


class CSINodeDriver(Message):
    name: str = ""
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(Message):
    drivers: list[CSINodeDriver] = []


class CSINode(Message):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: CSINodeSpec = field(default_factory=CSINodeSpec)


class CSIDriverSpec(Message):
    storage_capacity: bool = False
    prevent_pod_scheduling_if_missing: bool = False


class CSIDriver(Message):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: CSIDriverSpec = field(default_factory=CSIDriverSpec)


class CSIStorageCapacity(Message):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


class VolumeAttachmentSource(Message):
    persistent_volume_name: str = ""


class VolumeAttachmentSpec(Message):
    attacher: str = ""
    source: VolumeAttachmentSource = field(default_factory=VolumeAttachmentSource)
    node_name: str = ""


class VolumeAttachment(Message):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: VolumeAttachmentSpec = field(default_factory=VolumeAttachmentSpec)


class ServiceSpec(Message):
    selector: dict[str, str] = {}


class Service(Message):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ServiceSpec = field(default_factory=ServiceSpec)


class PodTemplateSpec(Message):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PodSpec = field(default_factory=PodSpec)


class ReplicationControllerSpec(Message):
    replicas: Int32 | None = None
    selector: dict[str, str] = {}
    template: PodTemplateSpec | None = None


class ReplicationController(Message):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ReplicationControllerSpec = field(default_factory=ReplicationControllerSpec)


class ReplicaSetSpec(Message):
    replicas: Int32 | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)


class ReplicaSet(Message):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ReplicaSetSpec = field(default_factory=ReplicaSetSpec)


class StatefulSetSpec(Message):
    replicas: Int32 | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)


class StatefulSetStatus(Message):
    update_revision: str = ""


class StatefulSet(Message):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: StatefulSetSpec = field(default_factory=StatefulSetSpec)
    status: StatefulSetStatus = field(default_factory=StatefulSetStatus)


class DaemonSetSpec(Message):
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)


class DaemonSetStatus(Message):
    current_number_scheduled: Int32 | None = None
    desired_number_scheduled: Int32 | None = None


class DaemonSet(Message):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: DaemonSetSpec = field(default_factory=DaemonSetSpec)
    status: DaemonSetStatus = field(default_factory=DaemonSetStatus)


class JobSpec(Message):
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)


class JobStatus(Message):
    conditions: list[Condition] = []


class Job(Message):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: JobSpec = field(default_factory=JobSpec)
    status: JobStatus = field(default_factory=JobStatus)


class LeaseSpec(Message):
    holder_identity: str = ""
    lease_duration_seconds: Int32 = 0
    renew_time: Time | None = None


class Lease(Message):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: LeaseSpec = field(default_factory=LeaseSpec)
