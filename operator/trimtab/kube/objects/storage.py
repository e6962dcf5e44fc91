"""Volumes, claims and what says where they can be: read by the four volume filters of kube-scheduler."""

from __future__ import annotations

from msgspec import Struct

from trimtab.kube.frozen import NO_LABELS, Labels
from trimtab.kube.objects.meta import OwnerReference
from trimtab.kube.objects.selector import LabelSelector, NodeSelector


class PersistentVolume(Struct, frozen=True, gc=False):
    """core/v1 PersistentVolume.

    ``capacity`` is its storage in bytes. ``claim`` is ``namespace/name`` of the claim it is bound or reserved to, empty
    where it is free, and ``claim_uid`` that claim's UID, empty for a volume reserved by hand. ``source`` is the JSON
    key of the volume source (``csi``, ``local``, ``hostPath``…); ``driver`` and ``handle`` are those of a CSI volume.
    ``disk`` is that of an in-tree volume that a CSI driver stands in for, as :attr:`Volume.disk` of an inline one.
    Labels are all kept: claims select volumes by them. ``storage_class`` is the older annotation where that is given.
    """

    name: str
    uid: str = ""
    resource_version: str = ""
    labels: Labels = NO_LABELS
    deleted: float | None = None
    capacity: int = 0
    access_modes: tuple[str, ...] = ()
    storage_class: str = ""
    attributes_class: str | None = None
    volume_mode: str = "Filesystem"
    claim: str = ""
    claim_uid: str = ""
    node_affinity: NodeSelector | None = None
    source: str = ""
    driver: str = ""
    handle: str = ""
    disk: tuple[str, ...] = ()
    phase: str = ""

    @property
    def key(self) -> str:
        """The name."""
        return self.name


class PersistentVolumeClaim(Struct, frozen=True, gc=False):
    """core/v1 PersistentVolumeClaim.

    ``volume`` is ``spec.volumeName``; ``bind_completed`` says that the controller has finished binding (the annotation
    ``pv.kubernetes.io/bind-completed``). ``storage_class`` is nil where the claim names none at all, the older
    annotation where that is given. ``request`` is in bytes, nil where the claim asks for no size. ``selected_node`` is
    the node for which a volume is being provisioned (the annotation ``volume.kubernetes.io/selected-node``), nil
    without the annotation.
    """

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    deleted: float | None = None
    owners: tuple[OwnerReference, ...] = ()
    volume: str = ""
    bind_completed: bool = False
    storage_class: str | None = None
    attributes_class: str | None = None
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    request: int | None = None
    selector: LabelSelector | None = None
    phase: str = ""
    selected_node: str | None = None

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class TopologyRequirement(Struct, frozen=True, gc=False):
    """One label that a node must have with one of the values (core/v1 TopologySelectorLabelRequirement)."""

    key: str
    values: tuple[str, ...] = ()


class StorageClass(Struct, frozen=True, gc=False):
    """storage.k8s.io/v1 StorageClass; ``allowed_topologies`` are terms of which one must hold, none means anywhere."""

    name: str
    uid: str = ""
    resource_version: str = ""
    provisioner: str = ""
    binding_mode: str = "Immediate"
    allowed_topologies: tuple[tuple[TopologyRequirement, ...], ...] = ()

    @property
    def key(self) -> str:
        """The name."""
        return self.name


class NodeDriver(Struct, frozen=True, gc=False):
    """A CSI driver on a node and how many volumes it can attach there, nil for no limit."""

    name: str
    limit: int | None = None


class CSINode(Struct, frozen=True, gc=False):
    """storage.k8s.io/v1 CSINode; ``migrated`` names the in-tree plugins that CSI drivers stand in for on the node."""

    name: str
    uid: str = ""
    resource_version: str = ""
    drivers: tuple[NodeDriver, ...] = ()
    migrated: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name, which is the node's."""
        return self.name


class CSIDriver(Struct, frozen=True, gc=False):
    """storage.k8s.io/v1 CSIDriver; ``storage_capacity`` says that the scheduler must look at its free capacity."""

    name: str
    uid: str = ""
    resource_version: str = ""
    storage_capacity: bool = False

    @property
    def key(self) -> str:
        """The name."""
        return self.name


class CSIStorageCapacity(Struct, frozen=True, gc=False):
    """storage.k8s.io/v1 CSIStorageCapacity: bytes left of a class on the nodes that ``node_topology`` picks.

    ``capacity`` and ``maximum_volume_size`` are nil where the driver does not say.
    """

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    storage_class: str = ""
    node_topology: LabelSelector | None = None
    capacity: int | None = None
    maximum_volume_size: int | None = None

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class VolumeAttachment(Struct, frozen=True, gc=False):
    """storage.k8s.io/v1 VolumeAttachment: that a volume is, or is to be, attached to a node by a driver."""

    name: str
    uid: str = ""
    resource_version: str = ""
    attacher: str = ""
    node: str = ""
    volume: str = ""

    @property
    def key(self) -> str:
        """The name."""
        return self.name
