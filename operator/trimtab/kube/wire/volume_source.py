"""Projection of volume sources, of pods and of PersistentVolumes: which kind it is, and which disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from trimtab.kube.objects import Volume

VOLUME_KINDS: Final = {
    "host_path": "hostPath",
    "empty_dir": "emptyDir",
    "gce_persistent_disk": "gcePersistentDisk",
    "aws_elastic_block_store": "awsElasticBlockStore",
    "git_repo": "gitRepo",
    "nfs": "nfs",
    "iscsi": "iscsi",
    "glusterfs": "glusterfs",
    "persistent_volume_claim": "persistentVolumeClaim",
    "rbd": "rbd",
    "flex_volume": "flexVolume",
    "cinder": "cinder",
    "cephfs": "cephfs",
    "flocker": "flocker",
    "fc": "fc",
    "azure_file": "azureFile",
    "vsphere_volume": "vsphereVolume",
    "quobyte": "quobyte",
    "azure_disk": "azureDisk",
    "photon_persistent_disk": "photonPersistentDisk",
    "portworx_volume": "portworxVolume",
    "scale_io": "scaleIO",
    "storageos": "storageos",
    "csi": "csi",
    "ephemeral": "ephemeral",
    "image": "image",
}
"""Kinds of volumes that are kept: the message's field and the JSON key, which is :attr:`Volume.kind`.

Left out are configMap, secret, projected and downwardAPI, which no rule reads.
"""

PERSISTENT_KINDS: Final = {
    field: kind
    for field, kind in (VOLUME_KINDS | {"local": "local"}).items()
    if field not in {"empty_dir", "git_repo", "persistent_volume_claim", "ephemeral", "image"}
}
"""Kinds that a PersistentVolume may be of: the message's field and the JSON key, which is its ``source``."""

Disk = tuple[str, ...]

_MIGRATED: Final[dict[str, Callable[[Any], Disk]]] = {
    "gce_persistent_disk": lambda source: (source.pd_name,),
    "aws_elastic_block_store": lambda source: (source.volume_id,),
    "cinder": lambda source: (source.volume_id,),
    "azure_disk": lambda source: (source.disk_uri, source.kind or "Shared"),  # the API server's default
    "portworx_volume": lambda source: (source.volume_id,),
}
"""What tells a disk of a kind that a CSI driver stands in for: of pods as of PersistentVolumes."""

_INLINE: Final[dict[str, Callable[[Any], Disk]]] = {
    **_MIGRATED,
    "iscsi": lambda source: (source.iqn,),
    "rbd": lambda source: (source.pool or "rbd", source.image, *source.monitors),  # the API server's default
}
"""Likewise of inline volumes, with those that pods must not share."""


def project_volume(message: Any) -> Volume | None:
    """A pod's volume, or ``None`` where it is of a kind that no rule reads."""
    source = message.volume_source
    for field, kind in VOLUME_KINDS.items():
        if source.HasField(field):
            return _volume(field, kind, getattr(source, field), message.name)
    return None


def _volume(field: str, kind: str, source: Any, name: str) -> Volume:
    if field == "persistent_volume_claim":
        return Volume(kind=kind, claim=source.claim_name, read_only=source.read_only)
    if field == "empty_dir":
        return Volume(kind=kind, name=name, medium=source.medium)
    if field in {"ephemeral", "host_path"}:
        return Volume(kind=kind, name=name)
    if field == "image":
        return Volume(kind=kind, disk=(source.reference,))
    disk = _INLINE.get(field)
    return Volume(kind=kind) if disk is None else Volume(kind=kind, read_only=source.read_only, disk=disk(source))


def persistent_source(source: Any) -> tuple[str, Disk]:
    """The kind of a PersistentVolume's source and its disk; both empty where there is no source that is known."""
    for field, kind in PERSISTENT_KINDS.items():
        if source.HasField(field):
            disk = _MIGRATED.get(field)
            return kind, () if disk is None else disk(getattr(source, field))
    return "", ()
