"""Projection of volumes, claims and what storage.k8s.io says of them, from protobuf, JSON and YAML alike.

Each function takes a message (see :mod:`trimtab.kube.wire.fields`) and an interner, and raises
:class:`~trimtab.kube.wire.fields.FieldError` where the name is missing or a quantity cannot be read.
"""

from __future__ import annotations

from typing import Any, Final

from trimtab.kube.objects import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    NodeDriver,
    NodeSelector,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    TopologyRequirement,
    VolumeAttachment,
)
from trimtab.kube.wire import fields
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.volume_source import persistent_source

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
OLDER_STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"


def project_persistent_volume(message: Any, interner: Interner) -> PersistentVolume:
    """Project a PersistentVolume, with the API server's default for the volume mode."""
    metadata, spec = message.metadata, message.spec
    string, source = interner.string, spec.persistent_volume_source
    kind, disk = persistent_source(source)
    claim = spec.claim_ref if spec.HasField("claim_ref") else None
    return PersistentVolume(
        name=fields.required(metadata.name, "metadata.name"),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        labels=fields.labels(metadata.labels, interner),
        deleted=fields.seconds(metadata, "deletion_timestamp"),
        capacity=fields.resource(spec.capacity, "storage", "spec.capacity") or 0,
        access_modes=interner.share(tuple(spec.access_modes)),
        storage_class=string(metadata.annotations.get(OLDER_STORAGE_CLASS, spec.storage_class_name)),
        attributes_class=_attributes_class(spec, interner),
        volume_mode=string(spec.volume_mode or "Filesystem"),
        claim=f"{claim.namespace or 'default'}/{claim.name}" if claim is not None else "",
        claim_uid=claim.uid if claim is not None else "",
        node_affinity=_node_affinity(spec, interner),
        source=kind,
        driver=string(source.csi.driver) if kind == "csi" else "",
        handle=source.csi.volume_handle if kind == "csi" else "",
        disk=disk,
        phase=string(message.status.phase or "Pending"),
    )


def _attributes_class(spec: Any, interner: Interner) -> str | None:
    if not spec.HasField("volume_attributes_class_name"):
        return None
    return interner.string(spec.volume_attributes_class_name)


def _node_affinity(spec: Any, interner: Interner) -> NodeSelector | None:
    if not spec.HasField("node_affinity") or not spec.node_affinity.HasField("required"):
        return None
    return interner.share(fields.node_selector(spec.node_affinity.required))


def project_persistent_volume_claim(message: Any, interner: Interner) -> PersistentVolumeClaim:
    """Project a PersistentVolumeClaim, with the API server's default for the volume mode."""
    metadata, spec = message.metadata, message.spec
    string, annotations = interner.string, metadata.annotations
    storage_class = spec.storage_class_name if spec.HasField("storage_class_name") else None
    if OLDER_STORAGE_CLASS in annotations:
        storage_class = annotations[OLDER_STORAGE_CLASS]
    return PersistentVolumeClaim(
        namespace=string(metadata.namespace or "default"),
        name=fields.required(metadata.name, "metadata.name"),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        deleted=fields.seconds(metadata, "deletion_timestamp"),
        owners=fields.owners(metadata.owner_references, interner),
        volume=spec.volume_name,
        bind_completed=BIND_COMPLETED in annotations,
        storage_class=None if storage_class is None else string(storage_class),
        attributes_class=_attributes_class(spec, interner),
        access_modes=interner.share(tuple(spec.access_modes)),
        volume_mode=string(spec.volume_mode or "Filesystem"),
        request=fields.resource(spec.resources.requests, "storage", "spec.resources.requests"),
        selector=fields.label_selector(spec, "selector"),
        selected_node=string(annotations[SELECTED_NODE]) if SELECTED_NODE in annotations else None,
        phase=string(message.status.phase or "Pending"),
    )


def project_storage_class(message: Any, interner: Interner) -> StorageClass:
    """Project a StorageClass, with the API server's default for the binding mode."""
    metadata = message.metadata
    return StorageClass(
        name=interner.string(fields.required(metadata.name, "metadata.name")),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        provisioner=interner.string(message.provisioner),
        binding_mode=interner.string(message.volume_binding_mode or "Immediate"),
        allowed_topologies=tuple(
            tuple(
                TopologyRequirement(key=expression.key, values=tuple(expression.values))
                for expression in term.match_label_expressions
            )
            for term in message.allowed_topologies
        ),
    )


def project_csi_node(message: Any, interner: Interner) -> CSINode:
    """Project a CSINode; lists of drivers are shared, as most nodes have the same."""
    metadata = message.metadata
    migrated = metadata.annotations.get(MIGRATED_PLUGINS, "")
    return CSINode(
        name=interner.string(fields.required(metadata.name, "metadata.name")),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        drivers=interner.share(tuple(_node_driver(driver) for driver in message.spec.drivers)),
        migrated=interner.share(tuple(migrated.split(","))) if migrated else (),
    )


def _node_driver(message: Any) -> NodeDriver:
    limited = message.HasField("allocatable") and message.allocatable.HasField("count")
    return NodeDriver(name=message.name, limit=message.allocatable.count if limited else None)


def project_csi_driver(message: Any, interner: Interner) -> CSIDriver:
    """Project a CSIDriver."""
    metadata = message.metadata
    return CSIDriver(
        name=interner.string(fields.required(metadata.name, "metadata.name")),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        storage_capacity=message.spec.storage_capacity,
    )


def project_csi_storage_capacity(message: Any, interner: Interner) -> CSIStorageCapacity:
    """Project a CSIStorageCapacity."""
    metadata = message.metadata
    return CSIStorageCapacity(
        namespace=interner.string(metadata.namespace or "default"),
        name=fields.required(metadata.name, "metadata.name"),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        storage_class=interner.string(message.storage_class_name),
        node_topology=interner.share(fields.label_selector(message, "node_topology")),
        capacity=fields.quantity(message, "capacity", "capacity"),
        maximum_volume_size=fields.quantity(message, "maximum_volume_size", "maximumVolumeSize"),
    )


def project_volume_attachment(message: Any, interner: Interner) -> VolumeAttachment:
    """Project a VolumeAttachment; of an inline volume, which has no PersistentVolume, the volume is empty."""
    metadata, spec = message.metadata, message.spec
    return VolumeAttachment(
        name=fields.required(metadata.name, "metadata.name"),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        attacher=interner.string(spec.attacher),
        node=interner.string(spec.node_name),
        volume=spec.source.persistent_volume_name,
    )
