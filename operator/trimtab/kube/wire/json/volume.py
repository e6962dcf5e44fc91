"""Sources of volumes, those of core/v1 pods and those of PersistentVolumes."""

from __future__ import annotations

from msgspec import field

from trimtab.kube.wire.json.base import Message


class Source(Message):
    """A volume source of which only the kind counts."""


class EmptyDirVolumeSource(Message):
    """core/v1 EmptyDirVolumeSource."""

    medium: str = ""


class GCEPersistentDiskVolumeSource(Message):
    """core/v1 GCEPersistentDiskVolumeSource."""

    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStoreVolumeSource(Message):
    """core/v1 AWSElasticBlockStoreVolumeSource."""

    volume_id: str = field(name="volumeID", default="")
    read_only: bool = False


class ISCSIVolumeSource(Message):
    """core/v1 ISCSIVolumeSource."""

    iqn: str = ""
    read_only: bool = False


class RBDVolumeSource(Message):
    """core/v1 RBDVolumeSource."""

    monitors: list[str] = []
    image: str = ""
    pool: str = ""
    read_only: bool = False


class CinderVolumeSource(Message):
    """core/v1 CinderVolumeSource, and what is read of a CinderPersistentVolumeSource."""

    volume_id: str = field(name="volumeID", default="")
    read_only: bool = False


class AzureDiskVolumeSource(Message):
    """core/v1 AzureDiskVolumeSource."""

    disk_uri: str = field(name="diskURI", default="")
    read_only: bool = False
    kind: str = ""


class PortworxVolumeSource(Message):
    """core/v1 PortworxVolumeSource."""

    volume_id: str = field(name="volumeID", default="")
    read_only: bool = False


class ImageVolumeSource(Message):
    """core/v1 ImageVolumeSource."""

    reference: str = ""


class PersistentVolumeClaimSource(Message):
    """core/v1 PersistentVolumeClaimVolumeSource."""

    claim_name: str = ""
    read_only: bool = False


class VolumeSource(Message):
    """core/v1 VolumeSource, as far as it is read."""

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
    """core/v1 Volume, in which JSON has the source's fields inline."""

    name: str = ""

    @property
    def volume_source(self) -> VolumeSource:
        """The source, which protobuf keeps in a message of its own."""
        return self


class CSIPersistentVolumeSource(Message):
    """core/v1 CSIPersistentVolumeSource."""

    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSource(Message):
    """core/v1 PersistentVolumeSource."""

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
