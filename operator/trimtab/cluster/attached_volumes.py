"""How many volumes of each CSI driver are attached to each node, and how many may be."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final, TypeVar

import numpy as np

from trimtab.cluster.attachables import Attachable, Attachables, claim_key, not_owned
from trimtab.cluster.changes import Reader
from trimtab.cluster.nodes import NodeTable
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.shelves import Shelves
from trimtab.cluster.volume_users import VolumeUsers
from trimtab.kube.objects import CSINode, PersistentVolume, PersistentVolumeClaim, Pod, VolumeAttachment

_NO_LIMIT: Final = np.iinfo(np.int64).max

K = TypeVar("K")
V = TypeVar("V")


class AttachedVolumes:
    """Volumes by node and driver, counted as kube-scheduler v1.36's NodeVolumeLimits does (``csi.go``).

    A node's count is of what its pods use and, beyond that, of what VolumeAttachments say is still there. Only nodes
    with a CSINode have limits, so that volumes are told as on such nodes (:class:`Attachables`).

    Slots where something changed are counted anew; :meth:`refresh` does that, and all else expects it was called.

    Attributes:
        problems: by slot, what keeps its volumes from being counted: a pod there has an ephemeral volume whose claim is
            another's.
    """

    def __init__(self, nodes: NodeTable, shelves: Shelves, users: VolumeUsers) -> None:
        self._nodes = nodes
        self._shelves = shelves
        self._users = users
        self._attachables = Attachables(shelves)
        self._pods = Reader(users.changes)
        self._attachments = Reader(shelves.changes(VolumeAttachment))
        self.problems: dict[int, str] = {}
        self._limits: dict[str, IntArray] = {}
        self._limits_made: tuple[int, int] | None = None
        self._names: list[str | None] = []
        self._version = -1
        self._used: dict[str, IntArray] = {}
        self._counts: dict[int, Counter[str]] = {}
        self._held: dict[int, set[Attachable]] = {}
        self._holders: defaultdict[Attachable, set[int]] = defaultdict(set)
        self._claims: dict[int, set[str]] = {}
        self._slots_with: defaultdict[str, set[int]] = defaultdict(set)
        self._filed: dict[str, VolumeAttachment] = {}
        self._attached_to: defaultdict[str, set[str]] = defaultdict(set)
        self._attachments_of: defaultdict[str, set[str]] = defaultdict(set)
        for name in shelves.of(VolumeAttachment):
            self._file(name)

    def attachables(self, pod: Pod) -> set[Attachable]:
        """What the pod needs attached, on a node that has a CSINode."""
        return {found for volume in pod.spec.volumes if (found := self._attachables.of(pod, volume)) is not None}

    def limited(self, slot: int) -> bool:
        """Whether the node has a limit, for whatever driver."""
        return any(limit[slot] != _NO_LIMIT for limit in self._limits.values())

    def within_limits(self, pod: Pod) -> BoolArray | None:
        """Where the pod's volumes can be attached besides those that are: bool, shape (capacity,), a fresh array.

        ``None`` where no limit concerns them. A volume that a pod on the node uses already costs nothing; one that
        only a VolumeAttachment names is counted twice, as the scheduler does it. A driver that is beyond its limit
        stops only pods that need more of it.
        """
        passing: BoolArray | None = None
        wanted: defaultdict[str, set[Attachable]] = defaultdict(set)
        for attachable in self.attachables(pod):
            wanted[attachable.driver].add(attachable)
        for driver, attachables in wanted.items():
            limit = self._limits.get(driver)
            if limit is None:
                continue
            fits: BoolArray = self._used_of(driver) <= limit - len(attachables)
            for slot, shared in self._shared(attachables).items():
                more = len(attachables) - shared
                fits[slot] = not more or int(self._used[driver][slot]) + more <= int(limit[slot])
            passing = fits if passing is None else passing & fits
        return passing

    def _shared(self, attachables: set[Attachable]) -> Counter[int]:
        """How many of the volumes pods on a slot use already."""
        return Counter(slot for attachable in attachables for slot in self._holders.get(attachable, ()))

    # --- keeping up --------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Bring all counts and limits up to date."""
        self._refresh_limits()
        for slot in self._stale():
            self._count(slot)

    def _refresh_limits(self) -> None:
        """Limits by driver: int64, shape (capacity,); drivers that no CSINode gives a limit are left out."""
        made = (self._nodes.version, self._shelves.revision(CSINode))
        if self._limits_made == made:
            return
        self._limits_made = made
        self._limits = {}
        for name, csi_node in self._shelves.of(CSINode).items():
            slot = self._nodes.slot_of.get(name)
            if slot is None:
                continue
            for driver in csi_node.drivers:
                if driver.limit is not None:
                    if driver.name not in self._limits:
                        self._limits[driver.name] = np.full(self._nodes.capacity, _NO_LIMIT, dtype=np.int64)
                    self._limits[driver.name][slot] = driver.limit

    def _stale(self) -> set[int]:
        """The slots whose counts may be wrong."""
        stale = self._slots_with_other_nodes()
        changed, pods, attachments = self._attachables.refresh(), self._pods.news(), self._attachments.news()
        if changed is None or pods is None or attachments is None:
            for name in {*self._filed, *self._shelves.of(VolumeAttachment)}:
                self._file(name)
            return set(range(self._nodes.capacity))
        stale |= pods
        for name in attachments:
            stale |= self._file(name)
        claims, volumes = changed
        for claim in claims:
            stale |= self._slots_with.get(claim, set())
        for volume in volumes:
            for name in self._attachments_of.get(volume, ()):
                stale |= self._slot_of(self._filed[name].node)
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

    def _file(self, name: str) -> set[int]:
        """File an attachment under its node and volume; returns the slots of the nodes that it was and is on."""
        slots: set[int] = set()
        before, now = self._filed.pop(name, None), self._shelves.of(VolumeAttachment).get(name)
        if before is not None:
            _remove(self._attached_to, before.node, name)
            _remove(self._attachments_of, before.volume, name)
            slots |= self._slot_of(before.node)
        if now is not None:
            self._filed[name] = now
            self._attached_to[now.node].add(name)
            self._attachments_of[now.volume].add(name)
            slots |= self._slot_of(now.node)
        return slots

    def _count(self, slot: int) -> None:
        """Count a slot anew; a free one has nothing."""
        node = self._nodes.at[slot] if slot < len(self._nodes.at) else None
        claims: set[str] = set()
        held: set[Attachable] = set()
        self.problems.pop(slot, None)
        if node is not None:
            for pod in self._users.on.get(slot, {}).values():
                claims.update(key for volume in pod.spec.volumes if (key := claim_key(pod, volume)) is not None)
                held |= self.attachables(pod)
                self._check(pod, slot)
        _replace(self._claims, self._slots_with, slot, claims)
        _replace(self._held, self._holders, slot, held)
        everything = held.union(self._left_behind(node.name)) if node is not None else held
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
            claim = self._shelves.of(PersistentVolumeClaim).get(key) if key is not None else None
            problem = not_owned(claim, pod) if claim is not None else None
            if problem is not None:
                self.problems.setdefault(slot, problem)

    def _left_behind(self, node: str) -> Iterator[Attachable]:
        """What attachments say is on a node; only CSI volumes that exist count."""
        for name in self._attached_to.get(node, ()):
            attachment = self._filed[name]
            volume = self._shelves.of(PersistentVolume).get(attachment.volume)
            if attachment.attacher and volume is not None and volume.source == "csi":
                yield Attachable(attachment.attacher, volume.handle)

    def _used_of(self, driver: str) -> IntArray:
        """How many volumes of a driver each slot has: int64, shape (capacity,)."""
        found = self._used.get(driver)
        if found is None:
            found = self._used[driver] = np.zeros(self._nodes.capacity, dtype=np.int64)
        elif len(found) < self._nodes.capacity:
            found = self._used[driver] = np.pad(found, (0, self._nodes.capacity - len(found)))
        return found


def _replace(on: dict[int, set[K]], slots_with: defaultdict[K, set[int]], slot: int, now: set[K]) -> None:
    """Set what a slot has, and keep the way back from it to the slots."""
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
