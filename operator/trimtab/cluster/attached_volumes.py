"""How many volumes of each CSI driver are attached to each node, and how many may be."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from trimtab.cluster.changes import Reader
from trimtab.cluster.nodes import NodeTable
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.shelves import Shelves
from trimtab.cluster.volume_users import VolumeUsers
from trimtab.kube.objects import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    StorageClass,
    Volume,
    VolumeAttachment,
)
from trimtab.kube.rules.in_tree_volumes import MIGRATED, driver_of

_NO_LIMIT: Final = np.iinfo(np.int64).max
_Reference = tuple[type, str]


class Attachable(NamedTuple):
    """A volume as drivers attach it; equal ones are attached to a node once, however many pods use them."""

    driver: str
    handle: str


def claim_key(pod: Pod, volume: Volume) -> str | None:
    """``namespace/name`` of the claim behind a pod's volume; an ephemeral one's is named after pod and volume."""
    if volume.claim:
        return f"{pod.namespace}/{volume.claim}"
    return f"{pod.namespace}/{pod.name}-{volume.name}" if volume.kind == "ephemeral" else None


class AttachedVolumes:
    """Volumes by node and driver, counted as kube-scheduler v1.36's NodeVolumeLimits does (``csi.go``).

    A node's count is of what its pods use and, beyond that, what VolumeAttachments say is still there. A volume that
    is yet to be provisioned counts under its class's provisioner. In-tree volumes that are migrated count as their CSI
    driver's, on nodes that have a CSINode; others have no limit and matter to nobody.

    Only slots where something changed are counted anew; :meth:`refresh` does that, and all else expects it was called.

    Attributes:
        limits: by driver, int64, shape (nodes.capacity,); drivers that no CSINode gives a limit are absent.
    """

    def __init__(self, nodes: NodeTable, shelves: Shelves, users: VolumeUsers) -> None:
        self._nodes = nodes
        self._shelves = shelves
        self._users = users
        self._pods = Reader(users.changes)
        self._claims = Reader(shelves.changes(PersistentVolumeClaim))
        self._volumes = Reader(shelves.changes(PersistentVolume))
        self._attachments = Reader(shelves.changes(VolumeAttachment))
        self._classes = -1
        self.limits: dict[str, IntArray] = {}
        self._limits_made: tuple[int, int] | None = None
        self._names: list[str | None] = []
        self._version = -1
        self._used: dict[str, IntArray] = {}
        self._counts: dict[int, Counter[str]] = {}
        self._held: dict[int, set[Attachable]] = {}
        self._holders: defaultdict[Attachable, set[int]] = defaultdict(set)
        self._read: dict[int, set[_Reference]] = {}
        self._readers: defaultdict[_Reference, set[int]] = defaultdict(set)
        self._node_of: dict[str, str] = {}
        self._attached_to: defaultdict[str, set[str]] = defaultdict(set)
        for name in shelves.of(VolumeAttachment):
            self._file(name)

    # --- reading -----------------------------------------------------------------------------------------------

    def attachables(self, pod: Pod) -> set[Attachable]:
        """What the pod needs attached on a node that has a CSINode; volumes that cannot be told are left out."""
        return {found for volume in pod.spec.volumes if (found := self._attachable(pod, volume, set())) is not None}

    def within_limits(self, pod: Pod) -> BoolArray | None:
        """Where the pod's volumes can be attached besides those that are: bool, shape (capacity,), a fresh array.

        ``None`` where no limit concerns them. A volume that a pod on the node uses already costs nothing; one that
        only a VolumeAttachment names is counted twice, as the scheduler does it. A driver that is beyond its limit
        stops only pods that need more of it.
        """
        passing: BoolArray | None = None
        wanted: defaultdict[str, list[Attachable]] = defaultdict(list)
        for attachable in self.attachables(pod):
            wanted[attachable.driver].append(attachable)
        for driver, attachables in wanted.items():
            limit = self.limits.get(driver)
            if limit is None:
                continue
            more: IntArray = np.full(len(limit), len(attachables), dtype=np.int64)
            for attachable in attachables:
                more[list(self._holders.get(attachable, ()))] -= 1
            fits: BoolArray = (self._used_of(driver) + more <= limit) | (more == 0)
            passing = fits if passing is None else passing & fits
        return passing

    # --- keeping up --------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Bring all counts and limits up to date."""
        self._refresh_limits()
        for slot in self._stale():
            self._count(slot)

    def _refresh_limits(self) -> None:
        made = (self._nodes.version, self._shelves.revision(CSINode))
        if self._limits_made == made:
            return
        self._limits_made = made
        self.limits = {}
        for name, csi_node in self._shelves.of(CSINode).items():
            slot = self._nodes.slot_of.get(name)
            if slot is None:
                continue
            for driver in csi_node.drivers:
                if driver.limit is not None:
                    if driver.name not in self.limits:
                        self.limits[driver.name] = np.full(self._nodes.capacity, _NO_LIMIT, dtype=np.int64)
                    self.limits[driver.name][slot] = driver.limit

    def _stale(self) -> set[int]:
        """The slots whose counts may be wrong."""
        stale = self._slots_with_other_nodes()
        pods, claims = self._pods.news(), self._claims.news()
        volumes, attachments = self._volumes.news(), self._attachments.news()
        classes = self._shelves.revision(StorageClass)
        if pods is None or claims is None or volumes is None or attachments is None or classes != self._classes:
            self._classes = classes
            for name in [*self._node_of, *self._shelves.of(VolumeAttachment)]:
                self._file(name)
            return set(range(self._nodes.capacity))
        for name in attachments:
            stale |= self._file(name)
        stale |= pods
        for key in claims:
            stale |= self._readers.get((PersistentVolumeClaim, key), set())
        for key in volumes:
            stale |= self._readers.get((PersistentVolume, key), set())
        return stale

    def _slots_with_other_nodes(self) -> set[int]:
        if self._version == self._nodes.version:
            return set()
        self._version = self._nodes.version
        names = [None if node is None else node.name for node in self._nodes.at]
        before = self._names + [None] * (len(names) - len(self._names))
        self._names = names
        return {slot for slot, name in enumerate(names) if name != before[slot]}

    def _file(self, name: str) -> set[int]:
        """File an attachment under its node; returns the slots of the nodes that it was and is on."""
        before = self._node_of.pop(name, None)
        if before is not None:
            self._attached_to[before].discard(name)
        attachment = self._shelves.of(VolumeAttachment).get(name)
        if attachment is not None:
            self._node_of[name] = attachment.node
            self._attached_to[attachment.node].add(name)
        nodes = (before, None if attachment is None else attachment.node)
        return {slot for node in nodes if node is not None and (slot := self._nodes.slot_of.get(node)) is not None}

    def _count(self, slot: int) -> None:
        """Count a slot anew."""
        self._forget(slot)
        node = self._nodes.at[slot] if slot < len(self._nodes.at) else None
        if node is None:
            return
        read: set[_Reference] = set()
        held = {
            found
            for pod in self._users.on.get(slot, {}).values()
            for volume in pod.spec.volumes
            if (found := self._attachable(pod, volume, read)) is not None
        }
        counts = Counter(each.driver for each in held.union(self._left_behind(node.name, read)))
        if held:
            self._held[slot] = held
        if read:
            self._read[slot] = read
        for attachable in held:
            self._holders[attachable].add(slot)
        for reference in read:
            self._readers[reference].add(slot)
        if counts:
            self._counts[slot] = counts
            for driver, number in counts.items():
                self._used_of(driver)[slot] = number

    def _forget(self, slot: int) -> None:
        for attachable in self._held.pop(slot, ()):
            _remove(self._holders, attachable, slot)
        for reference in self._read.pop(slot, ()):
            _remove(self._readers, reference, slot)
        for driver in self._counts.pop(slot, ()):
            self._used_of(driver)[slot] = 0

    def _used_of(self, driver: str) -> IntArray:
        """How many volumes of a driver each slot has: int64, shape (capacity,)."""
        found = self._used.get(driver)
        if found is None:
            found = self._used[driver] = np.zeros(self._nodes.capacity, dtype=np.int64)
        elif len(found) < self._nodes.capacity:
            found = self._used[driver] = np.pad(found, (0, self._nodes.capacity - len(found)))
        return found

    # --- telling volumes ---------------------------------------------------------------------------------------

    def _attachable(self, pod: Pod, volume: Volume, read: set[_Reference]) -> Attachable | None:
        """A pod's volume as it is attached; what was looked up is added to ``read``.

        A claim that is not there is not counted, as the scheduler does it for placed pods. Where a placed pod's
        ephemeral volume has the claim of another pod, the scheduler gives up; here it is not counted.
        """
        key = claim_key(pod, volume)
        if key is None:
            plugin = MIGRATED.get(volume.kind)
            return Attachable(plugin.driver, volume.disk[0]) if plugin is not None and volume.disk else None
        read.add((PersistentVolumeClaim, key))
        claim = self._shelves.of(PersistentVolumeClaim).get(key)
        if claim is None or (volume.kind == "ephemeral" and not owned_by(claim, pod)):
            return None
        if claim.volume:
            read.add((PersistentVolume, claim.volume))
            persistent = self._shelves.of(PersistentVolume).get(claim.volume)
            if persistent is not None:
                return _as_attached(persistent)
        return self._to_provision(claim)

    def _to_provision(self, claim: PersistentVolumeClaim) -> Attachable | None:
        """A volume that does not exist yet, known by its claim."""
        storage_class = self._shelves.of(StorageClass).get(claim.storage_class or "")
        driver = driver_of(storage_class.provisioner) if storage_class is not None else ""
        return Attachable(driver, f"claim of {claim.key}") if driver else None

    def _left_behind(self, node: str, read: set[_Reference]) -> Iterator[Attachable]:
        """What attachments say is on a node; only CSI volumes that exist count."""
        for name in self._attached_to.get(node, ()):
            attachment = self._shelves.of(VolumeAttachment)[name]
            if not attachment.attacher or not attachment.volume:
                continue
            read.add((PersistentVolume, attachment.volume))
            persistent = self._shelves.of(PersistentVolume).get(attachment.volume)
            if persistent is not None and persistent.source == "csi":
                yield Attachable(attachment.attacher, persistent.handle)


def owned_by(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    """Whether the pod is the claim's controller (component-helpers ``ephemeral.VolumeIsForPod``, v0.36)."""
    for owner in claim.owners:
        if owner.controller:
            return owner.uid == pod.uid
    return False


def _as_attached(volume: PersistentVolume) -> Attachable | None:
    if volume.source == "csi":
        return Attachable(volume.driver, volume.handle) if volume.driver and volume.handle else None
    plugin = MIGRATED.get(volume.source)
    return Attachable(plugin.driver, volume.handle or f"volume {volume.name}") if plugin is not None else None


def _remove(
    index: defaultdict[_Reference, set[int]] | defaultdict[Attachable, set[int]], key: object, slot: int
) -> None:
    slots = index[key]  # type: ignore[index]
    slots.discard(slot)
    if not slots:
        del index[key]  # type: ignore[arg-type]
