"""Volumes, claims and storage topology, which the volume filters of the scheduler read."""

from __future__ import annotations

from msgspec import Struct

from trimtab.kube.frozen import NO_LABELS, Labels
from trimtab.kube.objects.meta import ClusterScoped, LabelSelector, Namespaced, NodeSelector, OwnerReference


class PersistentVolume(ClusterScoped, frozen=True, gc=False):
    """core/v1 PersistentVolume.

    ``capacity`` is the size in bytes. ``claim`` is ``namespace/name`` of the claim that the volume is bound to or
    reserved for, or empty. ``claim_uid`` is the UID of that claim, or empty if a user reserved the volume. ``source``
    is the JSON key of the volume source (``csi``, ``local``, ``hostPath``…); ``driver`` and ``handle`` are the driver
    and volume handle of a CSI volume. ``disk`` is the disk of an in-tree volume that is migrated to a CSI driver (see
    :attr:`Volume.disk`). ``labels`` contains all labels, because claims select volumes by them. ``storage_class`` is
    the value of the older annotation if that is set.
    """

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


class PersistentVolumeClaim(Namespaced, frozen=True, gc=False):
    """core/v1 PersistentVolumeClaim.

    ``volume`` is ``spec.volumeName``. ``bind_completed`` is true if the controller has finished binding (the annotation
    ``pv.kubernetes.io/bind-completed``). ``storage_class`` is the value of the older annotation if that is set, and
    ``None`` if the claim has no class. ``request`` is the requested size in bytes, or ``None`` if absent.
    ``selected_node`` is the node for which a volume is being provisioned (the annotation
    ``volume.kubernetes.io/selected-node``), or ``None`` if absent.
    """

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


class TopologyRequirement(Struct, frozen=True, gc=False):
    """A label that a node must have with one of several values (core/v1 TopologySelectorLabelRequirement)."""

    key: str
    values: tuple[str, ...] = ()


class StorageClass(ClusterScoped, frozen=True, gc=False):
    """storage.k8s.io/v1 StorageClass.

    A node must match one of the terms in ``allowed_topologies``. Without terms, every node is allowed.
    """

    provisioner: str = ""
    binding_mode: str = "Immediate"
    allowed_topologies: tuple[tuple[TopologyRequirement, ...], ...] = ()


class NodeDriver(Struct, frozen=True, gc=False):
    """A CSI driver on a node, with the maximum number of volumes that it can attach, or ``None`` for no limit."""

    name: str
    limit: int | None = None


class CSINode(ClusterScoped, frozen=True, gc=False):
    """storage.k8s.io/v1 CSINode.

    ``migrated`` are the in-tree plugins that are migrated to CSI drivers on the node.
    """

    drivers: tuple[NodeDriver, ...] = ()
    migrated: tuple[str, ...] = ()


class CSIDriver(ClusterScoped, frozen=True, gc=False):
    """storage.k8s.io/v1 CSIDriver.

    ``storage_capacity`` is true if the scheduler must check the driver's free capacity. ``required`` is
    ``preventPodSchedulingIfMissing``: a pod with a volume of the driver runs only on nodes that have the driver.
    """

    storage_capacity: bool = False
    required: bool = False


class CSIStorageCapacity(Namespaced, frozen=True, gc=False):
    """storage.k8s.io/v1 CSIStorageCapacity: the free bytes of a class on the nodes that ``node_topology`` selects.

    ``capacity`` and ``maximum_volume_size`` are ``None`` if the driver does not report them.
    """

    storage_class: str = ""
    node_topology: LabelSelector | None = None
    capacity: int | None = None
    maximum_volume_size: int | None = None


class VolumeAttachment(ClusterScoped, frozen=True, gc=False):
    """storage.k8s.io/v1 VolumeAttachment: a volume that a driver is attaching, or has attached, to a node."""

    attacher: str = ""
    node: str = ""
    volume: str = ""
