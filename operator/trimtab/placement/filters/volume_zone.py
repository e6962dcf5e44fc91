"""VolumeZone: the zone and region labels of bound volumes must be those of the node."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import ClassVar, Final

import numpy as np

from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import PersistentVolume, PersistentVolumeClaim, Pod, PodSpec, StorageClass
from trimtab.kube.rules.in_tree_volumes import ZONE_DELIMITER
from trimtab.kube.rules.node_labels import BETA_REGION, BETA_ZONE, REGION, ZONE
from trimtab.placement.framework import Failure, Reads

_KEYS: Final = {BETA_ZONE: ZONE, BETA_REGION: REGION, ZONE: ZONE, REGION: REGION}
"""The labels that are read, in the scheduler's order, with the label to look at where a node lacks the first."""

_Topology = tuple[str, frozenset[str]]
_MOST_KEPT: Final = 1024


class VolumeZone:
    """A node without any zone or region label passes; one that has some must have all that the volumes have (v1.36).

    Only claims that the pod names are looked at, not those of ephemeral volumes. A label may name several zones; one
    that names an empty zone is ignored.
    """

    name: ClassVar = "VolumeZone"
    reads: ClassVar[Reads] = "pods"  # not "node": the pod's spec alone does not tell its volumes
    reason: ClassVar = "node(s) had no available volume zone"

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._verdicts: dict[Hashable, BoolArray] = {}
        self._version = -1

    def may_concern(self, spec: PodSpec) -> bool:
        """Where it has volumes."""
        return bool(spec.volumes)

    def concerns(self, pod: Pod) -> bool:
        """Where a bound volume has such a label."""
        return bool(self._topologies(pod))

    def refusal(self, pod: Pod) -> str | None:
        """What keeps the volumes' zones from being known (``getPVbyPod``)."""
        for volume in pod.spec.volumes:
            if volume.claim:
                problem = self._problem(pod.namespace, volume.claim)
                if problem is not None:
                    return problem
        return None

    def passing(self, pod: Pod) -> BoolArray | None:
        """The nodes in the zones of all volumes."""
        topologies = self._topologies(pod)
        if not topologies:
            return None
        nodes = self._snapshot.nodes
        if self._version != nodes.version or len(self._verdicts) >= _MOST_KEPT:
            self._verdicts.clear()
            self._version = nodes.version
        found = self._verdicts.get(topologies)
        if found is None:
            found = self._verdicts[topologies] = self._judge(topologies)
        return found

    def failures(self, pod: Pod, slots: IntArray) -> Iterable[Failure]:
        """One text for all."""
        del pod
        return (((self.reason,), slots),)

    def _topologies(self, pod: Pod) -> frozenset[_Topology]:
        if not any(volume.claim for volume in pod.spec.volumes):
            return frozenset()
        return frozenset(topology for volume in self._volumes(pod) for topology in _topologies_of(volume))

    def _volumes(self, pod: Pod) -> Iterator[PersistentVolume]:
        shelves = self._snapshot.shelves
        for volume in pod.spec.volumes:
            claim = shelves.of(PersistentVolumeClaim).get(f"{pod.namespace}/{volume.claim}") if volume.claim else None
            persistent = shelves.of(PersistentVolume).get(claim.volume) if claim is not None else None
            if persistent is not None:
                yield persistent

    def _judge(self, topologies: frozenset[_Topology]) -> BoolArray:
        nodes = self._snapshot.nodes
        passing: BoolArray = np.ones(nodes.capacity, dtype=np.bool_)
        for key, values in topologies:
            held = self._allowed(key, values)
            if _KEYS[key] != key:
                held = np.where(nodes.column(key).ids >= 0, held, self._allowed(_KEYS[key], values))
            passing &= held
        constrained = np.logical_or.reduce([nodes.column(key).ids >= 0 for key in _KEYS])
        passing |= ~constrained
        return passing

    def _allowed(self, key: str, values: frozenset[str]) -> BoolArray:
        column = self._snapshot.nodes.column(key)
        verdicts = [value in values for value in column.values]
        allowed: BoolArray = np.array([*verdicts, False], dtype=np.bool_)[column.ids]  # the last for no label
        return allowed

    def _problem(self, namespace: str, name: str) -> str | None:
        shelves = self._snapshot.shelves
        claim = shelves.of(PersistentVolumeClaim).get(f"{namespace}/{name}")
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if claim.volume:
            known = claim.volume in shelves.of(PersistentVolume)
            return None if known else f'persistentvolume "{claim.volume}" not found'
        if not claim.storage_class:
            return "PersistentVolumeClaim had no pv name and storageClass name"
        storage_class = shelves.of(StorageClass).get(claim.storage_class)
        if storage_class is None:
            return f'storageclass.storage.k8s.io "{claim.storage_class}" not found'
        return None if storage_class.binding_mode == "WaitForFirstConsumer" else "PersistentVolume had no name"


def _topologies_of(volume: PersistentVolume) -> Iterator[_Topology]:
    for key in _KEYS:
        text = volume.labels.get(key)
        if text is not None:
            values = frozenset(zone.strip() for zone in text.split(ZONE_DELIMITER))
            if "" not in values:
                yield key, values
