"""Indexes of volumes: the pods that use them, the attach limits of CSI drivers, and the available PersistentVolumes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeVar

import numpy as np

from trimtab.cluster.node_table import NodeTable
from trimtab.cluster.object_store import ChangeLog, ChangeReader, ObjectStore
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.kube.frozen import NO_LABELS, Labels
from trimtab.kube.objects import (
    CSIDriver,
    CSINode,
    NodeSelector,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    StorageClass,
    Volume,
    VolumeAttachment,
)
from trimtab.kube.rules.in_tree_volumes import MIGRATED, TranslationError, driver_of, handle_of

CLAIMING: Final = frozenset({"persistentVolumeClaim", "ephemeral"})
"""The kinds of volumes that refer to a claim."""

DISKS: Final = frozenset({"gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd"})
"""The kinds of inline volumes that two pods on a node must not share (kube-scheduler v1.36 ``needsRestrictionsCheck``).
"""

COUNTED: Final = CLAIMING | DISKS | frozenset(MIGRATED)

_DiskKey = tuple[str, ...]


class VolumeUsers:
    """The bound pods with volumes of the kinds that filters read.

    Attributes:
        of_claim: the number of pods that use each claim, by the claim's ``namespace/name``. Claims of ephemeral volumes
            are omitted, because only one pod can use them.
        on: the pods on each node slot, by ``namespace/name``.
        changes: the slots where such a pod was added or removed.
    """

    def __init__(self) -> None:
        self.of_claim: dict[str, int] = {}
        self.on: dict[int, dict[str, Pod]] = {}
        self.changes: ChangeLog[int] = ChangeLog()
        self._disks: dict[_DiskKey, dict[int, dict[Volume, int]]] = {}

    def count(self, pod: Pod, slot: int, amount: int) -> None:
        """Add a pod on a slot (``amount`` 1) or remove it (-1)."""
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
        self.changes.append(slot)

    def disk_conflicts(self, volumes: Iterable[Volume]) -> Iterator[int]:
        """Yield the slots where a pod already uses one of these inline disks in a conflicting way.

        A slot may be yielded twice.

        Only inline volumes of different pods conflict. Volumes of claims do not (v1.36 ``isVolumeConflict``).
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
    """Return the fields that are equal in any two conflicting volumes.

    The monitors of rbd volumes only need to overlap.
    """
    return (volume.kind, *(volume.disk[:2] if volume.kind == "rbd" else volume.disk))


def _conflict(volume: Volume, other: Volume) -> bool:
    """Return whether two volumes with the same :func:`_disk_key` conflict.

    EBS volumes always conflict. Other volumes do not conflict if both are read-only.
    """
    if volume.kind == "awsElasticBlockStore":
        return True
    if volume.read_only and other.read_only:
        return False
    return volume.kind != "rbd" or not frozenset(volume.disk[2:]).isdisjoint(other.disk[2:])


class Attachable(NamedTuple):
    """A volume that a CSI driver attaches to nodes: the driver and the volume handle.

    A volume is attached to a node only once, regardless of how many pods on the node use it.
    """

    driver: str
    handle: str


def claim_key(pod: Pod, volume: Volume) -> str | None:
    """Return the ``namespace/name`` of the claim of a pod's volume, or ``None`` if the volume has no claim.

    The claim of an ephemeral volume is named after the pod and the volume.
    """
    if volume.claim:
        return f"{pod.namespace}/{volume.claim}"
    return f"{pod.namespace}/{pod.name}-{volume.name}" if volume.kind == "ephemeral" else None


def ownership_problem(claim: PersistentVolumeClaim, pod: Pod) -> str | None:
    """Return the reason why a claim does not belong to the pod's ephemeral volume, or ``None`` if the pod controls it.

    Source: component-helpers ``ephemeral.VolumeIsForPod``, v0.36.
    """
    for owner in claim.owners:
        if owner.controller and owner.uid == pod.uid:
            return None
        if owner.controller:
            break
    return f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"


class AttachableCache:
    """Caches which volume a CSI driver attaches for each claim, until the claim, its volume or a StorageClass changes.

    This follows kube-scheduler v1.36 on a node with a CSINode (``filterAttachableVolumes``). For a bound claim this is
    its PersistentVolume. A claim whose volume does not exist yet is treated as a separate volume of its class's
    provisioner, and a migrated in-tree volume as a volume of its CSI driver. Other volumes are not counted.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._claims = ChangeReader(objects.changes(PersistentVolumeClaim))
        self._volumes = ChangeReader(objects.changes(PersistentVolume))
        self._classes = objects.revision(StorageClass)
        self._of: dict[str, Attachable | None] = {}
        self._naming: defaultdict[str, set[str]] = defaultdict(set)

    def refresh(self) -> tuple[set[str], set[str]] | None:
        """Drop the cached entries whose claim, volume or StorageClass has changed.

        Returns:
            The claims (by ``namespace/name``) and the volumes (by name) whose entries may have changed, or ``None`` if
            all entries may have changed.
        """
        claims, volumes = self._claims.read_changes(), self._volumes.read_changes()
        classes = self._objects.revision(StorageClass)
        if claims is None or volumes is None or classes != self._classes:
            self._classes = classes
            self._of.clear()
            self._naming.clear()
            return None
        for volume in volumes:
            claims |= self._naming.pop(volume, set())  # a lookup adds the claims of the volume again
        for claim in claims:
            self._of.pop(claim, None)
        return claims, volumes

    def of(self, pod: Pod, volume: Volume) -> Attachable | None:
        """Return what a CSI driver attaches for a pod's volume, or ``None`` if it attaches nothing or this is unknown.

        As in the scheduler, no volume is counted for a missing claim of a bound pod, or for an ephemeral volume's claim
        that another pod owns.
        """
        key = claim_key(pod, volume)
        if key is None:
            return _in_tree(volume.kind, volume.disk)
        if volume.kind == "ephemeral":
            claim = self._objects.of(PersistentVolumeClaim).get(key)
            if claim is None or ownership_problem(claim, pod) is not None:
                return None
        return self.of_claim(key)

    def of_claim(self, key: str) -> Attachable | None:
        """Return the volume that a CSI driver attaches for a claim, regardless of the claim's owner.

        ``None`` if there is none.
        """
        if key not in self._of:
            self._of[key] = self._look_up(key)
        return self._of[key]

    def _look_up(self, key: str) -> Attachable | None:
        claim = self._objects.of(PersistentVolumeClaim).get(key)
        if claim is None:
            return None
        if claim.volume:
            self._naming[claim.volume].add(key)
            volume = self._objects.of(PersistentVolume).get(claim.volume)
            if volume is not None:
                return _as_attached(volume)
        storage_class = self._objects.of(StorageClass).get(claim.storage_class) if claim.storage_class else None
        driver = driver_of(storage_class.provisioner) if storage_class is not None else ""
        return Attachable(driver, f"claim of {key}") if driver else None


def _as_attached(volume: PersistentVolume) -> Attachable | None:
    if volume.source == "csi":
        return Attachable(volume.driver, volume.handle) if volume.driver and volume.handle else None
    return _in_tree(volume.source, volume.disk, volume.labels)


def _in_tree(source: str, disk: tuple[str, ...], labels: Labels = NO_LABELS) -> Attachable | None:
    """Return the volume that the CSI driver attaches for an in-tree volume.

    The result is ``None`` if the in-tree plugin is not migrated.
    """
    plugin = MIGRATED.get(source)
    if plugin is None or not disk:
        return None
    try:
        return Attachable(plugin.driver, handle_of(source, disk[0], labels))
    except TranslationError:
        return None


_NO_LIMIT: Final = np.iinfo(np.int64).max

K = TypeVar("K")
V = TypeVar("V")


class AttachedVolumes:
    """Counts attached volumes by node and driver, as kube-scheduler v1.36's NodeVolumeLimits does (``csi.go``).

    A node's count includes the volumes of its pods and other volumes that VolumeAttachments report. Only nodes with a
    CSINode have limits (:class:`AttachableCache`).

    Call :meth:`refresh` before any other method. It updates the counts of the slots that changed.

    Attributes:
        problems: error messages for slots whose volumes cannot be counted, because a pod has an ephemeral volume whose
            claim belongs to another pod.
    """

    def __init__(self, nodes: NodeTable, objects: ObjectStore, users: VolumeUsers) -> None:
        self._nodes = nodes
        self._objects = objects
        self._users = users
        self._attachables = AttachableCache(objects)
        self._pods = ChangeReader(users.changes)
        self._attachments = ChangeReader(objects.changes(VolumeAttachment))
        self.problems: dict[int, str] = {}
        self._limits: dict[str, IntArray] = {}
        self._installed: dict[str, BoolArray] = {}
        self._limits_made: tuple[int, int] | None = None
        self._names: list[str | None] = []
        self._version = -1
        self._used: dict[str, IntArray] = {}
        self._counts: dict[int, Counter[str]] = {}
        self._held: dict[int, set[Attachable]] = {}
        self._holders: defaultdict[Attachable, set[int]] = defaultdict(set)
        self._claims: dict[int, set[str]] = {}
        self._slots_with: defaultdict[str, set[int]] = defaultdict(set)
        self._indexed: dict[str, VolumeAttachment] = {}
        self._attached_to: defaultdict[str, set[str]] = defaultdict(set)
        self._attachments_of: defaultdict[str, set[str]] = defaultdict(set)
        for name in objects.of(VolumeAttachment):
            self._index_attachment(name)

    def attachables(self, pod: Pod) -> set[Attachable]:
        """Return the volumes that must be attached for the pod on a node with a CSINode."""
        return {found for volume in pod.spec.volumes if (found := self._attachables.of(pod, volume)) is not None}

    def not_installed(self, pod: Pod) -> dict[str, BoolArray]:
        """Return the slots without a CSI driver that the pod's volumes need and that nodes must have, by driver.

        The arrays are bool of shape (capacity,). The requirement is ``preventPodSchedulingIfMissing`` of a CSIDriver,
        which the API server stores only if its feature gate VolumeLimitScaling is on.
        """
        if not self._installed:
            return {}
        drivers = sorted({each.driver for each in self.attachables(pod)} & self._installed.keys())
        return {driver: self._nodes.used & ~self._installed[driver] for driver in drivers}

    def limited(self, slot: int) -> bool:
        """Return whether the slot's node has an attach limit for any CSI driver."""
        return any(limit[slot] != _NO_LIMIT for limit in self._limits.values())

    def within_limits(self, pod: Pod) -> BoolArray | None:
        """Return the slots where the pod's volumes are within attach limits: bool, shape (capacity,), a fresh array.

        The result is ``None`` if no node has a limit for the drivers of these volumes. A volume that a pod on the node
        already uses is not counted again. As in the scheduler, a volume that only a VolumeAttachment reports is counted
        twice. If a driver is over its limit, only pods that need further volumes of that driver are rejected.
        """
        passing: BoolArray | None = None
        wanted: defaultdict[str, set[Attachable]] = defaultdict(set)
        for attachable in self.attachables(pod):
            wanted[attachable.driver].add(attachable)
        for driver, attachables in wanted.items():
            limit = self._limits.get(driver)
            if limit is None:
                continue
            fits = self._within(driver, attachables, limit)
            passing = fits if passing is None else passing & fits
        return passing

    def within_limit(self, pod: Pod, driver: str, otherwise: IntArray) -> BoolArray | None:
        """Return the slots where the pod's volumes of one driver are within its attach limit: bool, a fresh array.

        The result is ``None`` if the pod has no such volume.

        Args:
            pod: the pod.
            driver: the CSI driver.
            otherwise: the limits of nodes for which the driver reports none: int64, shape (capacity,).
        """
        attachables = {each for each in self.attachables(pod) if each.driver == driver}
        if not attachables:
            return None
        reported = self._limits.get(driver)
        limit = otherwise if reported is None else np.where(reported == _NO_LIMIT, otherwise, reported)
        return self._within(driver, attachables, limit)

    def _within(self, driver: str, attachables: set[Attachable], limit: IntArray) -> BoolArray:
        fits: BoolArray = self._used_of(driver) <= limit - len(attachables)
        for slot, shared in self._shared(attachables).items():
            more = len(attachables) - shared
            fits[slot] = not more or int(self._used[driver][slot]) + more <= int(limit[slot])
        return fits

    def _shared(self, attachables: set[Attachable]) -> Counter[int]:
        """Return the number of these volumes that the pods of each slot already use."""
        return Counter(slot for attachable in attachables for slot in self._holders.get(attachable, ()))

    # --- updates -----------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Update all counts and attach limits from the snapshot."""
        self._refresh_limits()
        for slot in self._stale():
            self._count(slot)

    def _refresh_limits(self) -> None:
        """Update the attach limits of each driver: int64, shape (capacity,), and the nodes of required drivers.

        Drivers without any limit are omitted.
        """
        made = (self._nodes.version, self._objects.revision(CSINode, CSIDriver))
        if self._limits_made == made:
            return
        self._limits_made = made
        self._limits = {}
        self._installed = {
            name: np.zeros(self._nodes.capacity, dtype=np.bool_)
            for name, driver in self._objects.of(CSIDriver).items()
            if driver.required
        }
        for name, csi_node in self._objects.of(CSINode).items():
            slot = self._nodes.slot_of.get(name)
            if slot is None:
                continue
            for driver in csi_node.drivers:
                if driver.name in self._installed:
                    self._installed[driver.name][slot] = True
                if driver.limit is not None:
                    if driver.name not in self._limits:
                        self._limits[driver.name] = np.full(self._nodes.capacity, _NO_LIMIT, dtype=np.int64)
                    self._limits[driver.name][slot] = driver.limit

    def _stale(self) -> set[int]:
        """Return the slots whose counts may be stale."""
        stale = self._slots_with_other_nodes()
        changed, pods, attachments = (
            self._attachables.refresh(),
            self._pods.read_changes(),
            self._attachments.read_changes(),
        )
        if changed is None or pods is None or attachments is None:
            for name in {*self._indexed, *self._objects.of(VolumeAttachment)}:
                self._index_attachment(name)
            return set(range(self._nodes.capacity))
        stale |= pods
        for name in attachments:
            stale |= self._index_attachment(name)
        claims, volumes = changed
        for claim in claims:
            stale |= self._slots_with.get(claim, set())
        for volume in volumes:
            for name in self._attachments_of.get(volume, ()):
                stale |= self._slot_of(self._indexed[name].node)
        return stale

    def _slots_with_other_nodes(self) -> set[int]:
        if self._version == self._nodes.version:
            return set()
        self._version = self._nodes.version
        names = [None if node is None else node.name for node in self._nodes.at]
        before = self._names + [None] * (len(names) - len(self._names))
        self._names = names
        return {slot for slot, name in enumerate(names) if name != before[slot]}

    def _slot_of(self, node: str) -> set[int]:
        slot = self._nodes.slot_of.get(node)
        return set() if slot is None else {slot}

    def _index_attachment(self, name: str) -> set[int]:
        """Index an attachment by node and volume, and return the slots of its old and its new node."""
        slots: set[int] = set()
        before, now = self._indexed.pop(name, None), self._objects.of(VolumeAttachment).get(name)
        if before is not None:
            _remove(self._attached_to, before.node, name)
            _remove(self._attachments_of, before.volume, name)
            slots |= self._slot_of(before.node)
        if now is not None:
            self._indexed[name] = now
            self._attached_to[now.node].add(name)
            self._attachments_of[now.volume].add(name)
            slots |= self._slot_of(now.node)
        return slots

    def _count(self, slot: int) -> None:
        """Recount the volumes attached to a slot's node. A free slot has none."""
        node = self._nodes.at[slot] if slot < len(self._nodes.at) else None
        claims: set[str] = set()
        attached: set[Attachable] = set()
        self.problems.pop(slot, None)
        if node is not None:
            for pod in self._users.on.get(slot, {}).values():
                claims.update(key for volume in pod.spec.volumes if (key := claim_key(pod, volume)) is not None)
                attached |= self.attachables(pod)
                self._check(pod, slot)
        _replace(self._claims, self._slots_with, slot, claims)
        _replace(self._held, self._holders, slot, attached)
        everything = attached.union(self._attached_by_others(node.name)) if node is not None else attached
        counts = Counter(each.driver for each in everything)
        for driver in self._counts.pop(slot, {}).keys() - counts.keys():
            self._used_of(driver)[slot] = 0
        if counts:
            self._counts[slot] = counts
            for driver, number in counts.items():
                self._used_of(driver)[slot] = number

    def _check(self, pod: Pod, slot: int) -> None:
        for volume in pod.spec.volumes:
            key = claim_key(pod, volume) if volume.kind == "ephemeral" else None
            claim = self._objects.of(PersistentVolumeClaim).get(key) if key is not None else None
            problem = ownership_problem(claim, pod) if claim is not None else None
            if problem is not None:
                self.problems.setdefault(slot, problem)

    def _attached_by_others(self, node: str) -> Iterator[Attachable]:
        """Yield the volumes that VolumeAttachments report for a node.

        Only CSI PersistentVolumes that exist are included.
        """
        for name in self._attached_to.get(node, ()):
            attachment = self._indexed[name]
            volume = self._objects.of(PersistentVolume).get(attachment.volume)
            if attachment.attacher and volume is not None and volume.source == "csi":
                yield Attachable(attachment.attacher, volume.handle)

    def _used_of(self, driver: str) -> IntArray:
        """Return the number of a driver's volumes on each slot: int64, shape (capacity,)."""
        found = self._used.get(driver)
        if found is None:
            found = self._used[driver] = np.zeros(self._nodes.capacity, dtype=np.int64)
        elif len(found) < self._nodes.capacity:
            found = self._used[driver] = np.pad(found, (0, self._nodes.capacity - len(found)))
        return found


def _replace(on: dict[int, set[K]], slots_with: defaultdict[K, set[int]], slot: int, now: set[K]) -> None:
    """Set the values of a slot, and update the reverse index from value to slots."""
    before = on.pop(slot, set())
    if now:
        on[slot] = now
    for gone in before - now:
        _remove(slots_with, gone, slot)
    for come in now - before:
        slots_with[come].add(slot)


def _remove(index: defaultdict[K, set[V]], key: K, value: V) -> None:
    there = index[key]
    there.discard(value)
    if not there:
        del index[key]


VolumeAffinity = NodeSelector | None
"""A volume's node affinity, or ``None`` if the volume can be used on every node. The volumes of a zone share one
object."""


class ClassVolumes:
    """The available PersistentVolumes of one StorageClass.

    Attributes:
        places: the capacity and name of each available volume, smallest first, by node affinity. An entry is kept after
            its last volume is used.
        changes: the node affinities whose volumes changed.
    """

    __slots__ = ("changes", "places")

    def __init__(self) -> None:
        self.places: dict[VolumeAffinity, list[tuple[int, str]]] = {}
        self.changes: ChangeLog[VolumeAffinity] = ChangeLog()

    def add(self, volume: PersistentVolume) -> None:
        """Add a volume that has become available."""
        insort(self.places.setdefault(volume.node_affinity, []), (volume.capacity, volume.name))
        self.changes.append(volume.node_affinity)

    def drop(self, volume: PersistentVolume) -> None:
        """Remove a volume that is no longer available. Pass the version of the volume that was added."""
        there = self.places[volume.node_affinity]
        del there[bisect_left(there, (volume.capacity, volume.name))]
        self.changes.append(volume.node_affinity)


class AvailableVolumes:
    """The available PersistentVolumes by class and node affinity, and the volumes that are reserved for a claim.

    Call :meth:`refresh` before any other method.

    A volume is available if kube-scheduler v1.36 would bind it (component-helpers ``FindMatchingVolume``): phase
    Available, not reserved and not terminating.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._changed = ChangeReader(objects.changes(PersistentVolume))
        self._classes: dict[str, ClassVolumes] = {}
        self._indexed: dict[str, PersistentVolume] = {}
        self._reserved: defaultdict[str, set[str]] = defaultdict(set)
        for name in objects.of(PersistentVolume):
            self._index_volume(name)

    def refresh(self) -> None:
        """Update the index from the object store."""
        news = self._changed.read_changes()
        for name in news if news is not None else {*self._indexed, *self._objects.of(PersistentVolume)}:
            self._index_volume(name)

    def of_class(self, name: str) -> ClassVolumes:
        """Return the available volumes of a StorageClass. Repeated calls return the same object."""
        return self._classes.setdefault(name, ClassVolumes())

    def reserved(self, claim: PersistentVolumeClaim) -> Iterator[PersistentVolume]:
        """Yield the volumes of the claim's class that are reserved for it, by name.

        A volume that was reserved manually has no claim UID, so it is reserved for any claim with that name
        (``IsVolumeBoundToClaim``).
        """
        for name in sorted(self._reserved.get(claim.key, ())):
            volume = self._indexed[name]
            if volume.storage_class == (claim.storage_class or "") and volume.claim_uid in ("", claim.uid):
                yield volume

    def _index_volume(self, name: str) -> None:
        old, new = self._indexed.pop(name, None), self._objects.of(PersistentVolume).get(name)
        if old is not None and old is not new:
            if old.claim:
                self._reserved[old.claim].discard(name)
                if not self._reserved[old.claim]:
                    del self._reserved[old.claim]
            elif _is_free(old):
                self.of_class(old.storage_class).drop(old)
        if new is None:
            return
        self._indexed[name] = new
        if old is new:
            return
        if new.claim:
            self._reserved[new.claim].add(name)
        elif _is_free(new):
            self.of_class(new.storage_class).add(new)


def _is_free(volume: PersistentVolume) -> bool:
    return not volume.claim and volume.phase == "Available" and volume.deleted is None
