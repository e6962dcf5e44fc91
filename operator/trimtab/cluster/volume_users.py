"""Which placed pods use volumes, per claim, disk and node: what volume filters ask of pods that are there already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from trimtab.cluster.changes import Changes
from trimtab.kube.objects import Pod, Volume
from trimtab.kube.rules.in_tree_volumes import MIGRATED

CLAIMING: Final = frozenset({"persistentVolumeClaim", "ephemeral"})
"""Kinds of volumes that stand for a claim."""

DISKS: Final = frozenset({"gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd"})
"""Kinds of inline volumes that two pods on a node must not share (kube-scheduler v1.36 ``needsRestrictionsCheck``)."""

COUNTED: Final = CLAIMING | DISKS | frozenset(MIGRATED)

_DiskKey = tuple[str, ...]


class VolumeUsers:
    """Placed pods that have volumes of a kind that rules read; the others leave no trace here.

    Attributes:
        of_claim: how many pods use a claim, by the claim's ``namespace/name``; claims of ephemeral volumes are left
            out, as only one pod can use them.
        on: the pods of each node slot, by ``namespace/name``.
        changes: the slots where such a pod came or went.
    """

    def __init__(self) -> None:
        self.of_claim: dict[str, int] = {}
        self.on: dict[int, dict[str, Pod]] = {}
        self.changes: Changes[int] = Changes()
        self._disks: dict[_DiskKey, dict[int, dict[Volume, int]]] = {}

    def count(self, pod: Pod, slot: int, amount: int) -> None:
        """Count a pod in (``amount`` 1) or out (-1) on the node in ``slot``."""
        counted = [volume for volume in pod.spec.volumes if volume.kind in COUNTED]
        if not counted:
            return
        if amount > 0:
            self.on.setdefault(slot, {})[pod.key] = pod
        else:
            there = self.on[slot]
            del there[pod.key]
            if not there:
                del self.on[slot]
        for volume in counted:
            if volume.claim:
                key = f"{pod.namespace}/{volume.claim}"
                number = self.of_claim.get(key, 0) + amount
                if number:
                    self.of_claim[key] = number
                else:
                    del self.of_claim[key]
            elif volume.kind in DISKS:
                self._count_disk(volume, slot, amount)
        self.changes.note(slot)

    def disk_conflicts(self, volumes: Iterable[Volume]) -> Iterator[int]:
        """The slots where a pod holds one of these disks so that no other may; a slot may come twice.

        Only inline volumes conflict, not those behind claims, and not two within one pod (v1.36 ``isVolumeConflict``).
        """
        for volume in volumes:
            if volume.kind in DISKS:
                for slot, there in self._disks.get(_disk_key(volume), {}).items():
                    if any(_conflict(volume, other) for other in there):
                        yield slot

    def _count_disk(self, volume: Volume, slot: int, amount: int) -> None:
        key = _disk_key(volume)
        slots = self._disks.setdefault(key, {})
        there = slots.setdefault(slot, {})
        number = there.get(volume, 0) + amount
        if number:
            there[volume] = number
            return
        del there[volume]
        if not there:
            del slots[slot]
        if not slots:
            del self._disks[key]


def _disk_key(volume: Volume) -> _DiskKey:
    """What two conflicting volumes have in common; the monitors of an rbd image need only overlap."""
    return (volume.kind, *(volume.disk[:2] if volume.kind == "rbd" else volume.disk))


def _conflict(volume: Volume, other: Volume) -> bool:
    """Whether two volumes of one :func:`_disk_key` exclude each other: EBS volumes always, others unless read-only."""
    if volume.kind == "awsElasticBlockStore":
        return True
    if volume.read_only and other.read_only:
        return False
    return volume.kind != "rbd" or not frozenset(volume.disk[2:]).isdisjoint(other.disk[2:])
