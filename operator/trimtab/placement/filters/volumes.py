"""Filters for volumes: exclusive disks and claims, attach limits, volume binding and zones."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import ClassVar, Final
from weakref import WeakKeyDictionary

import numpy as np

from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.volumes import CLAIMING, DISKS, AttachedVolumes, claim_key, ownership_problem
from trimtab.kube.objects import (
    CSIDriver,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodSpec,
    StorageClass,
    Volume,
)
from trimtab.kube.rules.in_tree_volumes import MIGRATED, ZONE_DELIMITER
from trimtab.kube.rules.node_labels import BETA_REGION, BETA_ZONE, REGION, ZONE
from trimtab.placement.interface import Failure, NodeFilter, Reads
from trimtab.placement.volume_binding import AFFINITY, BINDING, ERROR, MISSING, SPACE, binder_of, claims_of, has_claims

DISK = "node(s) had no available disk"
IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
READ_WRITE_ONCE_POD = "ReadWriteOncePod"


class VolumeRestrictions(NodeFilter):
    """Rejects nodes where a conflicting inline disk is in use.

    Rejects all nodes if a ReadWriteOncePod claim is in use (v1.36).

    Claims of ephemeral volumes are ignored, because only one pod can use them.
    """

    name: ClassVar = "VolumeRestrictions"

    def may_concern(self, spec: PodSpec) -> bool:
        return any(volume.claim or volume.kind in DISKS for volume in spec.volumes)

    def helped_by(self, pod: Pod, other: Pod) -> bool:
        return False

    def refusal(self, pod: Pod) -> str | None:
        claims = self.snapshot.objects.of(PersistentVolumeClaim)
        for volume in pod.spec.volumes:
            if volume.claim and f"{pod.namespace}/{volume.claim}" not in claims:
                return f'persistentvolumeclaim "{volume.claim}" not found'
        return None

    def passing(self, pod: Pod) -> BoolArray | None:
        taken = list(self.snapshot.volume_users.disk_conflicts(pod.spec.volumes))
        if self._in_use(pod):
            return np.zeros(self.snapshot.nodes.capacity, dtype=np.bool_)
        if not taken:
            return None
        passing: BoolArray = self.snapshot.nodes.used.copy()
        passing[taken] = False
        return passing

    def failures(self, pod: Pod, slots: IntArray) -> Iterable[Failure]:
        conflicting: BoolArray = np.zeros(self.snapshot.nodes.capacity, dtype=np.bool_)
        conflicting[list(self.snapshot.volume_users.disk_conflicts(pod.spec.volumes))] = True
        yield (DISK,), slots[conflicting[slots]]
        yield (IN_USE,), slots[~conflicting[slots]]

    def _in_use(self, pod: Pod) -> bool:
        users = self.snapshot.volume_users.of_claim
        claims = self.snapshot.objects.of(PersistentVolumeClaim)
        for volume in pod.spec.volumes:
            if volume.claim:
                key = f"{pod.namespace}/{volume.claim}"
                claim = claims.get(key)
                if claim is not None and READ_WRITE_ONCE_POD in claim.access_modes and users.get(key):
                    return True
        return False


ATTACHABLE_KINDS: Final = CLAIMING | frozenset(MIGRATED)
_ATTACHED: Final[WeakKeyDictionary[Snapshot, AttachedVolumes]] = WeakKeyDictionary()


def attached_volumes(snapshot: Snapshot) -> AttachedVolumes:
    """Return the current numbers of attached volumes. All filters of a snapshot share them."""
    attached = _ATTACHED.get(snapshot)
    if attached is None:
        attached = _ATTACHED[snapshot] = AttachedVolumes(snapshot.nodes, snapshot.objects, snapshot.volume_users)
    attached.refresh()
    return attached


class NodeVolumeLimits(NodeFilter):
    """Rejects nodes whose attach limits would be exceeded (:class:`~trimtab.cluster.volumes.AttachedVolumes`).

    A node without a driver that its CSIDriver requires is rejected (feature gate VolumeLimitScaling, on by default in
    v1.37). Pods with missing claims are rejected earlier, by VolumeRestrictions and VolumeBinding.
    """

    name: ClassVar = "NodeVolumeLimits"
    reason: ClassVar = "node(s) exceed max volume count"

    def may_concern(self, spec: PodSpec) -> bool:
        return any(volume.kind in ATTACHABLE_KINDS for volume in spec.volumes)

    def concerns(self, pod: Pod) -> bool:
        objects = self.snapshot.objects
        return any(volume.kind in ATTACHABLE_KINDS for volume in pod.spec.volumes) and (
            bool(objects.of(CSINode)) or any(each.required for each in objects.of(CSIDriver).values())
        )

    def helped_by(self, pod: Pod, other: Pod) -> bool:
        return bool(other.spec.volumes)  # it may have attached the same volume

    def passing(self, pod: Pod) -> BoolArray | None:
        if not self.concerns(pod):
            return None
        attached = attached_volumes(self.snapshot)
        passing = attached.within_limits(pod)
        for missing in attached.not_installed(pod).values():
            passing = ~missing if passing is None else passing & ~missing
        errors = self.errors(pod)
        if errors:
            passing = self.snapshot.nodes.used.copy() if passing is None else passing
            passing[list(errors)] = False
        return passing

    def errors(self, pod: Pod) -> dict[int, str]:
        if not self.concerns(pod):
            return {}
        attached = attached_volumes(self.snapshot)
        if not attached.problems or not attached.attachables(pod):
            return {}
        return {slot: text for slot, text in attached.problems.items() if attached.limited(slot)}

    def failures(self, pod: Pod, slots: IntArray) -> Iterator[Failure]:
        errors = self.errors(pod)
        for slot in slots.tolist():
            if slot in errors:
                yield (errors[slot],), np.array([slot])
        left = slots[[slot not in errors for slot in slots.tolist()]] if errors else slots
        for driver, missing in attached_volumes(self.snapshot).not_installed(pod).items():
            yield (f"{driver} CSI driver is not installed on the node",), left[missing[left]]
            left = left[~missing[left]]
        if len(left):
            yield (self.reason,), left


REASONS: Final = (
    (AFFINITY, "node(s) didn't match PersistentVolume's node affinity"),
    (BINDING, "node(s) didn't find available persistent volumes to bind"),
    (SPACE, "node(s) did not have enough free storage"),
    (MISSING, "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"),
)
"""The conflict codes with their reasons, in the order in which ``FindPodVolumes`` appends them.

A node may have several.
"""

UNBOUND: Final = "pod has unbound immediate PersistentVolumeClaims"


class VolumeBinding(NodeFilter):
    """Rejects nodes where claims cannot be bound (:class:`~trimtab.placement.volume_binding.VolumeBinder`, v1.36)."""

    name: ClassVar = "VolumeBinding"
    reads: ClassVar[Reads] = "pods"  # not "node": other pods bind volumes, and equal specs may have different claims

    def may_concern(self, spec: PodSpec) -> bool:
        return bool(spec.volumes)

    def concerns(self, pod: Pod) -> bool:
        return has_claims(pod)

    def helped_by(self, pod: Pod, other: Pod) -> bool:
        return bool(other.spec.volumes)  # a volume may be reserved for a claim that both use

    def refusal(self, pod: Pod) -> str | None:
        if not has_claims(pod):
            return None
        for volume in pod.spec.volumes:
            key = claim_key(pod, volume)
            problem = self._problem(pod, volume, key) if key is not None else None
            if problem is not None:
                return problem
        return UNBOUND if claims_of(self.snapshot.objects, pod).immediate else None

    def passing(self, pod: Pod) -> BoolArray | None:
        if not has_claims(pod):
            return None
        passing: BoolArray = binder_of(self.snapshot).conflicts(pod) == 0
        return passing

    def failures(self, pod: Pod, slots: IntArray) -> Iterator[Failure]:
        codes = binder_of(self.snapshot).conflicts(pod)[slots]
        for code in sorted(set(codes.tolist())):
            if code != ERROR:
                yield tuple(text for bit, text in REASONS if code & bit), slots[codes == code]
        errors = self.errors(pod)
        for text in sorted(set(errors.values())):
            there = [slot for slot in slots[codes == ERROR].tolist() if errors[slot] == text]
            yield (text,), np.array(there, dtype=np.int64)

    def errors(self, pod: Pod) -> dict[int, str]:
        return binder_of(self.snapshot).errors(pod) if has_claims(pod) else {}

    def _problem(self, pod: Pod, volume: Volume, key: str) -> str | None:
        claim = self.snapshot.objects.of(PersistentVolumeClaim).get(key)
        name = key.partition("/")[2]
        ephemeral = volume.kind == "ephemeral"
        if claim is None:
            if ephemeral:
                return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
            return f'persistentvolumeclaim "{name}" not found'
        if claim.phase == "Lost":
            return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.volume}"'
        if claim.deleted is not None:
            return f'persistentvolumeclaim "{name}" is being deleted'
        return ownership_problem(claim, pod) if ephemeral else None


_ZONE_KEYS: Final = {BETA_ZONE: ZONE, BETA_REGION: REGION, ZONE: ZONE, REGION: REGION}
"""The zone and region labels in the scheduler's order, each with the label that is read if a node lacks the first one.
"""

_Topology = tuple[str, frozenset[str]]
_MAX_KEPT: Final = 1024


class VolumeZone(NodeFilter):
    """Rejects nodes whose zone and region labels do not match those of the volumes (v1.36).

    Nodes without zone and region labels pass. Claims of ephemeral volumes are ignored. The label of a volume may list
    several zones; a label with an empty zone is ignored.
    """

    name: ClassVar = "VolumeZone"
    reads: ClassVar[Reads] = "pods"  # not "node": equal specs may have different volumes
    reason: ClassVar = "node(s) had no available volume zone"

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._verdicts: dict[Hashable, BoolArray] = {}
        self._version = -1

    def may_concern(self, spec: PodSpec) -> bool:
        return bool(spec.volumes)

    def concerns(self, pod: Pod) -> bool:
        return bool(self._topologies(pod))

    def helped_by(self, pod: Pod, other: Pod) -> bool:
        return False

    def refusal(self, pod: Pod) -> str | None:
        for volume in pod.spec.volumes:
            if volume.claim:
                problem = self._problem(pod.namespace, volume.claim)
                if problem is not None:
                    return problem
        return None

    def passing(self, pod: Pod) -> BoolArray | None:
        topologies = self._topologies(pod)
        if not topologies:
            return None
        nodes = self.snapshot.nodes
        if self._version != nodes.version or len(self._verdicts) >= _MAX_KEPT:
            self._verdicts.clear()
            self._version = nodes.version
        found = self._verdicts.get(topologies)
        if found is None:
            found = self._verdicts[topologies] = self._judge(topologies)
        return found

    def _topologies(self, pod: Pod) -> frozenset[_Topology]:
        if not any(volume.claim for volume in pod.spec.volumes):
            return frozenset()
        return frozenset(topology for volume in self._volumes(pod) for topology in _topologies_of(volume))

    def _volumes(self, pod: Pod) -> Iterator[PersistentVolume]:
        objects = self.snapshot.objects
        for volume in pod.spec.volumes:
            claim = objects.of(PersistentVolumeClaim).get(f"{pod.namespace}/{volume.claim}") if volume.claim else None
            persistent = objects.of(PersistentVolume).get(claim.volume) if claim is not None else None
            if persistent is not None:
                yield persistent

    def _judge(self, topologies: frozenset[_Topology]) -> BoolArray:
        nodes = self.snapshot.nodes
        passing: BoolArray = np.ones(nodes.capacity, dtype=np.bool_)
        for key, values in topologies:
            allowed = self._allowed(key, values)
            if _ZONE_KEYS[key] != key:
                allowed = np.where(nodes.column(key).ids >= 0, allowed, self._allowed(_ZONE_KEYS[key], values))
            passing &= allowed
        constrained = np.logical_or.reduce([nodes.column(key).ids >= 0 for key in _ZONE_KEYS])
        passing |= ~constrained
        return passing

    def _allowed(self, key: str, values: frozenset[str]) -> BoolArray:
        column = self.snapshot.nodes.column(key)
        verdicts = [value in values for value in column.values]
        allowed: BoolArray = np.array([*verdicts, False], dtype=np.bool_)[column.ids]  # last entry: no label
        return allowed

    def _problem(self, namespace: str, name: str) -> str | None:
        objects = self.snapshot.objects
        claim = objects.of(PersistentVolumeClaim).get(f"{namespace}/{name}")
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if claim.volume:
            known = claim.volume in objects.of(PersistentVolume)
            return None if known else f'persistentvolume "{claim.volume}" not found'
        if not claim.storage_class:
            return "PersistentVolumeClaim had no pv name and storageClass name"
        storage_class = objects.of(StorageClass).get(claim.storage_class)
        if storage_class is None:
            return f'storageclass.storage.k8s.io "{claim.storage_class}" not found'
        return None if storage_class.binding_mode == "WaitForFirstConsumer" else "PersistentVolume had no name"


def _topologies_of(volume: PersistentVolume) -> Iterator[_Topology]:
    for key in _ZONE_KEYS:
        text = volume.labels.get(key)
        if text is not None:
            values = frozenset(zone.strip() for zone in text.split(ZONE_DELIMITER))
            if "" not in values:
                yield key, values
