"""VolumeRestrictions: disks that two pods must not share, and claims that only one pod may use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.volume_users import DISKS
from trimtab.kube.objects import PersistentVolumeClaim, Pod, PodSpec
from trimtab.placement.framework import Failure, Reads

DISK = "node(s) had no available disk"
IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
READ_WRITE_ONCE_POD = "ReadWriteOncePod"


class VolumeRestrictions:
    """Inline disks conflict per node, a ReadWriteOncePod claim in use keeps the pod from every node (v1.36).

    Claims of ephemeral volumes are not looked at: they have one user by nature.
    """

    name: ClassVar = "VolumeRestrictions"
    reads: ClassVar[Reads] = "pods"

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def may_concern(self, spec: PodSpec) -> bool:
        """Where it has claims or disks."""
        return any(volume.claim or volume.kind in DISKS for volume in spec.volumes)

    def concerns(self, pod: Pod) -> bool:
        """Where the pod has a disk of a kind that conflicts, or a claim."""
        return any(volume.claim or volume.kind in DISKS for volume in pod.spec.volumes)

    def refusal(self, pod: Pod) -> str | None:
        """The first claim that does not exist."""
        claims = self._snapshot.shelves.of(PersistentVolumeClaim)
        for volume in pod.spec.volumes:
            if volume.claim and f"{pod.namespace}/{volume.claim}" not in claims:
                return f'persistentvolumeclaim "{volume.claim}" not found'
        return None

    def passing(self, pod: Pod) -> BoolArray | None:
        """All nodes or none where a claim is in use, else all but those where a disk is taken."""
        taken = list(self._snapshot.volume_users.disk_conflicts(pod.spec.volumes))
        if self._in_use(pod):
            return np.zeros(self._snapshot.nodes.capacity, dtype=np.bool_)
        if not taken:
            return None
        passing: BoolArray = self._snapshot.nodes.used.copy()
        passing[taken] = False
        return passing

    def failures(self, pod: Pod, slots: IntArray) -> Iterable[Failure]:
        """The disk before the claim."""
        conflicting: BoolArray = np.zeros(self._snapshot.nodes.capacity, dtype=np.bool_)
        conflicting[list(self._snapshot.volume_users.disk_conflicts(pod.spec.volumes))] = True
        yield (DISK,), slots[conflicting[slots]]
        yield (IN_USE,), slots[~conflicting[slots]]

    def _in_use(self, pod: Pod) -> bool:
        users = self._snapshot.volume_users.of_claim
        claims = self._snapshot.shelves.of(PersistentVolumeClaim)
        for volume in pod.spec.volumes:
            if volume.claim:
                key = f"{pod.namespace}/{volume.claim}"
                claim = claims.get(key)
                if claim is not None and READ_WRITE_ONCE_POD in claim.access_modes and users.get(key):
                    return True
        return False
