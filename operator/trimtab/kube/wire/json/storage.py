"""Volumes, claims and what storage.k8s.io/v1 says of them."""

from __future__ import annotations

from msgspec import field

from trimtab.kube.wire.json.base import Message, Quantities, Quantity
from trimtab.kube.wire.json.meta import LabelSelector, NodeSelector, ObjectMeta, ResourceRequirements
from trimtab.kube.wire.json.volume import PersistentVolumeSource


class ObjectReference(Message):
    """core/v1 ObjectReference."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(Message):
    """core/v1 VolumeNodeAffinity."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(PersistentVolumeSource):
    """core/v1 PersistentVolumeSpec, in which JSON has the source's fields inline."""

    capacity: Quantities = {}
    access_modes: list[str] = []
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    volume_mode: str = ""
    node_affinity: VolumeNodeAffinity | None = None
    volume_attributes_class_name: str | None = None

    @property
    def persistent_volume_source(self) -> PersistentVolumeSource:
        """The source, which protobuf keeps in a message of its own."""
        return self


class PersistentVolumeStatus(Message):
    """core/v1 PersistentVolumeStatus."""

    phase: str = ""


class PersistentVolume(Message):
    """core/v1 PersistentVolume."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PersistentVolumeSpec = field(default_factory=PersistentVolumeSpec)
    status: PersistentVolumeStatus = field(default_factory=PersistentVolumeStatus)


class PersistentVolumeClaimSpec(Message):
    """core/v1 PersistentVolumeClaimSpec."""

    access_modes: list[str] = []
    resources: ResourceRequirements = field(default_factory=ResourceRequirements)
    volume_name: str = ""
    selector: LabelSelector | None = None
    storage_class_name: str | None = None
    volume_mode: str = ""
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimStatus(Message):
    """core/v1 PersistentVolumeClaimStatus."""

    phase: str = ""


class PersistentVolumeClaim(Message):
    """core/v1 PersistentVolumeClaim."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PersistentVolumeClaimSpec = field(default_factory=PersistentVolumeClaimSpec)
    status: PersistentVolumeClaimStatus = field(default_factory=PersistentVolumeClaimStatus)


class TopologySelectorLabelRequirement(Message):
    """core/v1 TopologySelectorLabelRequirement."""

    key: str = ""
    values: list[str] = []


class TopologySelectorTerm(Message):
    """core/v1 TopologySelectorTerm."""

    match_label_expressions: list[TopologySelectorLabelRequirement] = []


class StorageClass(Message):
    """storage.k8s.io/v1 StorageClass."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    provisioner: str = ""
    volume_binding_mode: str = ""
    allowed_topologies: list[TopologySelectorTerm] = []


class VolumeNodeResources(Message):
    """storage.k8s.io/v1 VolumeNodeResources."""

    count: int | None = None


class CSINodeDriver(Message):
    """storage.k8s.io/v1 CSINodeDriver."""

    name: str = ""
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(Message):
    """storage.k8s.io/v1 CSINodeSpec."""

    drivers: list[CSINodeDriver] = []


class CSINode(Message):
    """storage.k8s.io/v1 CSINode."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: CSINodeSpec = field(default_factory=CSINodeSpec)


class CSIDriverSpec(Message):
    """storage.k8s.io/v1 CSIDriverSpec."""

    storage_capacity: bool = False


class CSIDriver(Message):
    """storage.k8s.io/v1 CSIDriver."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: CSIDriverSpec = field(default_factory=CSIDriverSpec)


class CSIStorageCapacity(Message):
    """storage.k8s.io/v1 CSIStorageCapacity."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


class VolumeAttachmentSource(Message):
    """storage.k8s.io/v1 VolumeAttachmentSource."""

    persistent_volume_name: str = ""


class VolumeAttachmentSpec(Message):
    """storage.k8s.io/v1 VolumeAttachmentSpec."""

    attacher: str = ""
    source: VolumeAttachmentSource = field(default_factory=VolumeAttachmentSource)
    node_name: str = ""


class VolumeAttachment(Message):
    """storage.k8s.io/v1 VolumeAttachment."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: VolumeAttachmentSpec = field(default_factory=VolumeAttachmentSpec)
