"""Translates in-tree volumes to the CSI drivers to which they are migrated.

Sources: csi-translation-lib v0.36 and kube-scheduler v1.36 (``isCSIMigrationOn``). Of the seven plugins that can be
translated, kube-scheduler treats five as migrated. It does not treat azureFile and vsphereVolume as migrated, so their
volumes never count against attach limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from trimtab.kube.frozen import NO_LABELS
from trimtab.kube.objects.meta import LabelRequirement, NodeSelector, NodeSelectorTerm
from trimtab.kube.objects.storage import PersistentVolume
from trimtab.kube.rules.node_labels import BETA_REGION, BETA_ZONE, REGION, ZONE

ZONE_DELIMITER: Final = "__"
"""The delimiter between the zones in a volume's label."""


class InTreePlugin(Struct, frozen=True, gc=False):
    """A migrated plugin: its name, its CSI driver, and the driver's own zone label on nodes (``""`` if it has none)."""

    name: str
    driver: str
    topology_key: str = ""


MIGRATED: Final = {
    "awsElasticBlockStore": InTreePlugin("kubernetes.io/aws-ebs", "ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone"),
    "gcePersistentDisk": InTreePlugin("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "topology.gke.io/zone"),
    "cinder": InTreePlugin(
        "kubernetes.io/cinder", "cinder.csi.openstack.org", "topology.cinder.csi.openstack.org/zone"
    ),
    "azureDisk": InTreePlugin("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    "portworxVolume": InTreePlugin("kubernetes.io/portworx-volume", "pxd.portworx.com"),
}
"""The migrated plugins by the JSON key of the volume source."""

_DRIVERS: Final = {plugin.name: plugin.driver for plugin in MIGRATED.values()}
_UNMIGRATED: Final = frozenset({"kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"})


def driver_of(provisioner: str) -> str:
    """Return the CSI driver to which a StorageClass's in-tree provisioner is migrated, or ``""`` if it is not."""
    if provisioner in _UNMIGRATED:
        return ""
    return _DRIVERS.get(provisioner, provisioner)


class TranslationError(ValueError):
    """A volume cannot be translated. The message is that of csi-translation-lib."""


def handle_of(source: str, disk: str, labels: Mapping[str, str] = NO_LABELS) -> str:
    """Return the CSI volume handle of an in-tree volume.

    Args:
        source: a key of :data:`MIGRATED`.
        disk: the identity of the disk (:attr:`~trimtab.kube.objects.pod.Volume.disk`).
        labels: the labels of the PersistentVolume, or empty for an inline volume.

    Raises:
        TranslationError: the volume cannot be translated.
    """
    if source == "awsElasticBlockStore":
        return _ebs_handle(disk)
    if source == "gcePersistentDisk":
        return _gce_handle(disk, labels.get(BETA_ZONE) or labels.get(ZONE, ""))
    return disk


def _ebs_handle(disk: str) -> str:
    """Return the volume ID in ``aws://zone/vol-1``, or a plain ID unchanged (``KubernetesVolumeIDToEBSVolumeID``)."""
    if not disk.startswith("aws://"):
        return disk
    path = disk.removeprefix("aws://").partition("/")[2].strip("/")
    if re.fullmatch(r"vol-[^/]*", path) is None:
        problem = f"Invalid format for AWS volume ({disk})"
        raise TranslationError(f"failed to translate Kubernetes ID to EBS Volume ID {problem}")
    return path


def _gce_handle(disk: str, label: str) -> str:
    """Return the handle of a zonal disk, or of a regional disk if the label has several zones."""
    zones = label.split(ZONE_DELIMITER)
    if len(zones) == 1:
        return f"projects/UNSPECIFIED/zones/{zones[0] or 'UNSPECIFIED'}/disks/{disk}"
    return f"projects/UNSPECIFIED/regions/{_gce_region(zones)}/disks/{disk}"


def _gce_region(zones: Iterable[str]) -> str:
    regions = set()
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != 3:
            expected = "zone in unexpected format, expected: {locale}-{region}-{zone}"
            raise TranslationError(f"failed to get region from zones: {expected}, got: {zone}")
        regions.add("-".join(parts[:2]))
    if len(regions) != 1:
        got = " ".join(f"{region}:{{}}" for region in sorted(regions))
        problem = f"multiple or no regions gotten from zones, got: map[{got}]"
        raise TranslationError(f"failed to get region from zones: {problem}")
    return regions.pop()


def translated_affinity(volume: PersistentVolume, topology_key: str) -> NodeSelector | None:
    """Return a volume's node affinity, translated for its CSI driver (``translateTopologyFromInTreeToCSI``).

    The zone label is replaced by that of the driver. If the affinity has no zone, the zones of the volume's label are
    added to every term. The beta region label is replaced by the GA label.

    Args:
        volume: the volume.
        topology_key: the driver's zone label (:attr:`InTreePlugin.topology_key`), which must not be empty.
    """
    zone, region = _labels_in_use(volume)
    affinity = volume.node_affinity
    if any(requirement.values for requirement in _with_key(affinity, zone)):
        affinity = _renamed(affinity, zone, topology_key)
    else:
        zones = sorted({text.strip() for text in volume.labels.get(zone, "").split(ZONE_DELIMITER)} - {""})
        if zones:
            affinity = _with_zones(affinity, LabelRequirement(topology_key, "In", tuple(zones)))
    if region == BETA_REGION and any(requirement.values for requirement in _with_key(affinity, region)):
        affinity = _renamed(affinity, region, REGION)
    return affinity


def _labels_in_use(volume: PersistentVolume) -> tuple[str, str]:
    """Return the zone and region label keys that the volume uses (GA or beta).

    The keys in its node affinity take precedence over those in its labels.
    """
    for zone, region in ((ZONE, REGION), (BETA_ZONE, BETA_REGION)):
        if _with_key(volume.node_affinity, zone):
            return zone, region
    if ZONE not in volume.labels and BETA_ZONE in volume.labels:
        return BETA_ZONE, BETA_REGION
    return ZONE, REGION


def _with_key(affinity: NodeSelector | None, key: str) -> list[LabelRequirement]:
    terms = () if affinity is None else affinity.terms
    return [requirement for term in terms for requirement in term.match_expressions if requirement.key == key]


def _renamed(affinity: NodeSelector | None, old: str, new: str) -> NodeSelector | None:
    if affinity is None:
        return None

    def rename(requirement: LabelRequirement) -> LabelRequirement:
        return msgspec.structs.replace(requirement, key=new) if requirement.key == old else requirement

    return NodeSelector(
        tuple(
            msgspec.structs.replace(term, match_expressions=tuple(map(rename, term.match_expressions)))
            for term in affinity.terms
        )
    )


def _with_zones(affinity: NodeSelector | None, requirement: LabelRequirement) -> NodeSelector:
    terms = (affinity.terms if affinity is not None else ()) or (NodeSelectorTerm(),)
    return NodeSelector(
        tuple(msgspec.structs.replace(term, match_expressions=(*term.match_expressions, requirement)) for term in terms)
    )
