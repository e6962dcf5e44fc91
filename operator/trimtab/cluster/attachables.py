"""Volumes of pods as CSI drivers attach them to nodes."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from trimtab.cluster.changes import Reader
from trimtab.cluster.shelves import Shelves
from trimtab.kube.frozen import NO_LABELS, Labels
from trimtab.kube.objects import PersistentVolume, PersistentVolumeClaim, Pod, StorageClass, Volume
from trimtab.kube.rules.in_tree_volumes import MIGRATED, TranslationError, driver_of, handle_of


class Attachable(NamedTuple):
    """A volume as a driver attaches it; equal ones are attached to a node once, however many pods use them."""

    driver: str
    handle: str


def claim_key(pod: Pod, volume: Volume) -> str | None:
    """``namespace/name`` of the claim behind a pod's volume; an ephemeral one's is named after pod and volume."""
    if volume.claim:
        return f"{pod.namespace}/{volume.claim}"
    return f"{pod.namespace}/{pod.name}-{volume.name}" if volume.kind == "ephemeral" else None


def not_owned(claim: PersistentVolumeClaim, pod: Pod) -> str | None:
    """What is wrong where the pod is not the controller of its ephemeral volume's claim, else ``None``.

    Source: component-helpers ``ephemeral.VolumeIsForPod``, v0.36.
    """
    for owner in claim.owners:
        if owner.controller and owner.uid == pod.uid:
            return None
        if owner.controller:
            break
    return f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"


class Attachables:
    """What stands behind claims, looked up once and kept until claim, volume or a class changes.

    As kube-scheduler v1.36 tells it on a node that has a CSINode (``filterAttachableVolumes``): a bound claim is its
    volume, one whose volume does not exist yet is a volume of its own, of its class's provisioner. In-tree volumes are
    their CSI driver's where they are migrated; all others are nothing to attach.
    """

    def __init__(self, shelves: Shelves) -> None:
        self._shelves = shelves
        self._claims = Reader(shelves.changes(PersistentVolumeClaim))
        self._volumes = Reader(shelves.changes(PersistentVolume))
        self._classes = shelves.revision(StorageClass)
        self._of: dict[str, Attachable | None] = {}
        self._naming: defaultdict[str, set[str]] = defaultdict(set)

    def refresh(self) -> tuple[set[str], set[str]] | None:
        """Forget what changed.

        Returns:
            The claims, by ``namespace/name``, and the volumes, by name, that may be something else than they were;
            ``None`` where all may.
        """
        claims, volumes = self._claims.news(), self._volumes.news()
        classes = self._shelves.revision(StorageClass)
        if claims is None or volumes is None or classes != self._classes:
            self._classes = classes
            self._of.clear()
            self._naming.clear()
            return None
        for volume in volumes:
            claims |= self._naming.pop(volume, set())  # who names it is noted again when it is looked up
        for claim in claims:
            self._of.pop(claim, None)
        return claims, volumes

    def of(self, pod: Pod, volume: Volume) -> Attachable | None:
        """A pod's volume; ``None`` where there is nothing to attach or it cannot be told.

        A claim that is not there counts nothing, as for the scheduler with pods that are placed, nor does the claim of
        an ephemeral volume that is another's.
        """
        key = claim_key(pod, volume)
        if key is None:
            return _in_tree(volume.kind, volume.disk)
        if volume.kind == "ephemeral":
            claim = self._shelves.of(PersistentVolumeClaim).get(key)
            if claim is None or not_owned(claim, pod) is not None:
                return None
        return self.of_claim(key)

    def of_claim(self, key: str) -> Attachable | None:
        """What stands behind a claim, whosever it is."""
        if key not in self._of:
            self._of[key] = self._look_up(key)
        return self._of[key]

    def _look_up(self, key: str) -> Attachable | None:
        claim = self._shelves.of(PersistentVolumeClaim).get(key)
        if claim is None:
            return None
        if claim.volume:
            self._naming[claim.volume].add(key)
            volume = self._shelves.of(PersistentVolume).get(claim.volume)
            if volume is not None:
                return _as_attached(volume)
        storage_class = self._shelves.of(StorageClass).get(claim.storage_class) if claim.storage_class else None
        driver = driver_of(storage_class.provisioner) if storage_class is not None else ""
        return Attachable(driver, f"claim of {key}") if driver else None


def _as_attached(volume: PersistentVolume) -> Attachable | None:
    if volume.source == "csi":
        return Attachable(volume.driver, volume.handle) if volume.driver and volume.handle else None
    return _in_tree(volume.source, volume.disk, volume.labels)


def _in_tree(source: str, disk: tuple[str, ...], labels: Labels = NO_LABELS) -> Attachable | None:
    """What the CSI driver attaches; nothing for a plugin that is not migrated or a volume that has no counterpart."""
    plugin = MIGRATED.get(source)
    if plugin is None or not disk:
        return None
    try:
        return Attachable(plugin.driver, handle_of(source, disk[0], labels))
    except TranslationError:
        return None
