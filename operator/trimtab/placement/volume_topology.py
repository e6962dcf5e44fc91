"""Computes on which nodes PersistentVolumes can be used (node affinity) or provisioned (topology and capacity)."""

from __future__ import annotations

from typing import Final

import numpy as np

from trimtab.cluster.node_table import NodeTable
from trimtab.cluster.object_store import ObjectStore
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.volumes import VolumeAffinity
from trimtab.kube.objects import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    LabelRequirement,
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from trimtab.kube.rules.in_tree_volumes import MIGRATED, TranslationError, handle_of, translated_affinity
from trimtab.placement.node_masks import NodeMasks

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_MAX_KEPT: Final = 4096


class VolumeAffinityMasks:
    """Computes which nodes match the node affinities of volumes, cached until a node's name or labels change."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._terms = NodeMasks()
        self._masks: dict[NodeSelector, BoolArray] = {}
        self._version = -1

    def mask(self, place: VolumeAffinity) -> BoolArray:
        """Return the nodes that match the node affinity of a volume: bool, shape (capacity,).

        The array is cached, so callers must not write to it. As in kube-scheduler, only the node's labels are
        evaluated, not its name (``CheckNodeAffinity``).
        """
        if place is None:
            return self._nodes.used
        if self._version != self._nodes.version or len(self._masks) >= _MAX_KEPT:
            self._masks.clear()
            self._version = self._nodes.version
        found = self._masks.get(place)
        if found is None:
            found = np.zeros(self._nodes.capacity, dtype=np.bool_)
            for term in place.terms:
                nameless = _without_name(term)
                if nameless is not None:
                    found |= self._terms.term(self._nodes, nameless)
            self._masks[place] = found
        return found

    def slots(self, place: VolumeAffinity) -> IntArray:
        """Return the slots of the nodes that match the node affinity of a volume, in ascending order."""
        return np.flatnonzero(self.mask(place))

    def having(self, selector: LabelSelector) -> BoolArray:
        """Return the nodes that a label selector matches: bool, shape (capacity,).

        An invalid selector matches no node.
        """
        equal = (LabelRequirement(key, "In", (value,)) for key, value in selector.match_labels.items())
        requirements = (*equal, *selector.match_expressions)
        return self.mask(NodeSelector((NodeSelectorTerm(requirements),)) if requirements else None)


def _without_name(term: NodeSelectorTerm) -> NodeSelectorTerm | None:
    """Return a term without its requirements on the node's name, or ``None`` if no empty name can satisfy them."""
    if not term.match_fields:
        return term
    if any(requirement.operator != "NotIn" for requirement in term.match_fields):
        return None
    labels = term.match_expressions or (LabelRequirement("kubernetes.io/none", "DoesNotExist"),)
    return NodeSelectorTerm(labels)


class BoundVolumes:
    """Computes where pods with bound claims can run (``tryTranslatePVToCSI`` and ``CheckNodeAffinity``).

    On nodes whose CSINode lists the in-tree plugin as migrated, an in-tree volume has the node affinity of its CSI
    translation. On other nodes it has its own.
    """

    def __init__(self, nodes: NodeTable, objects: ObjectStore, masks: VolumeAffinityMasks) -> None:
        self._nodes = nodes
        self._objects = objects
        self._masks_by_affinity = masks
        self._migrated: dict[str, BoolArray] = {}
        self._made: tuple[int, int] | None = None

    def mask(self, volume: PersistentVolume) -> BoolArray:
        """Return the nodes on which the volume can be used according to its node affinity: bool, shape (capacity,).

        Callers must not write to it.
        """
        own = self._masks_by_affinity.mask(volume.node_affinity)
        plugin = MIGRATED.get(volume.source)
        if plugin is None or not plugin.topology_key:
            return own
        migrated = self._nodes_with_migration(plugin.name)
        if migrated is None:
            return own
        translated = self._masks_by_affinity.mask(translated_affinity(volume, plugin.topology_key))
        found: BoolArray = np.where(migrated, translated, own)
        return found

    def untranslatable(self, volume: PersistentVolume) -> tuple[BoolArray, str] | None:
        """Return the nodes on which an in-tree volume must be translated to CSI but cannot be, and the error.

        The result is ``None`` if there are no such nodes.
        """
        plugin = MIGRATED.get(volume.source)
        migrated = self._nodes_with_migration(plugin.name) if plugin is not None and volume.disk else None
        if migrated is None:
            return None
        try:
            handle_of(volume.source, volume.disk[0], volume.labels)
        except TranslationError as error:
            return migrated, f"could not translate pv: {error}"
        return None

    def _nodes_with_migration(self, plugin: str) -> BoolArray | None:
        made = (self._nodes.version, self._objects.revision(CSINode))
        if self._made != made:
            self._made = made
            self._migrated = {}
            for name, csi_node in self._objects.of(CSINode).items():
                slot = self._nodes.slot_of.get(name)
                if slot is None:
                    continue
                for each in csi_node.migrated:
                    if each not in self._migrated:
                        self._migrated[each] = np.zeros(self._nodes.capacity, dtype=np.bool_)
                    self._migrated[each][slot] = True
        return self._migrated.get(plugin)


class Provisioning:
    """Computes where volumes can be provisioned for claims (``checkVolumeProvisions`` and ``hasEnoughCapacity``)."""

    def __init__(self, nodes: NodeTable, objects: ObjectStore, masks: VolumeAffinityMasks) -> None:
        self._nodes = nodes
        self._objects = objects
        self._masks_by_affinity = masks
        self._capacities: dict[tuple[str, int], BoolArray] = {}
        self._by_class: dict[str, list[CSIStorageCapacity]] = {}
        self._made: tuple[int, int] | None = None

    def allowed(self, claim: PersistentVolumeClaim) -> BoolArray | None:
        """Return the nodes that the class's ``allowedTopologies`` permit: bool, shape (capacity,).

        The result is ``None`` if the class has no provisioner.
        """
        storage_class = self._objects.of(StorageClass)[claim.storage_class or ""]
        if storage_class.provisioner in ("", _NO_PROVISIONER):
            return None
        if not storage_class.allowed_topologies:
            return self._nodes.used
        terms = (
            NodeSelectorTerm(tuple(LabelRequirement(each.key, "In", each.values) for each in topology))
            for topology in storage_class.allowed_topologies
        )
        return self._masks_by_affinity.mask(NodeSelector(tuple(terms)))

    def with_capacity(self, claim: PersistentVolumeClaim) -> BoolArray | None:
        """Return the nodes with enough storage capacity for the claim: bool, shape (capacity,).

        The result is ``None`` if the claim's driver does not report capacity. One CSIStorageCapacity must be large
        enough for the claim; other claims are ignored. Volumes of previously reserved pods are not subtracted.
        """
        storage_class = self._objects.of(StorageClass)[claim.storage_class or ""]
        driver = self._objects.of(CSIDriver).get(storage_class.provisioner)
        if claim.request is None or driver is None or not driver.storage_capacity:
            return None
        self._refresh()
        key = (storage_class.name, claim.request)
        found = self._capacities.get(key)
        if found is None:
            found = self._capacities[key] = self._judge(*key)
        return found

    def forget_claims(self) -> None:
        """Drop the cached masks, one for each size that a claim requests or has requested."""
        self._capacities.clear()

    def _refresh(self) -> None:
        made = (self._nodes.version, self._objects.revision(CSIStorageCapacity))
        if self._made != made:
            self._made = made
            self._by_class = {}
            for capacity in self._objects.of(CSIStorageCapacity).values():
                self._by_class.setdefault(capacity.storage_class, []).append(capacity)
            self._capacities.clear()
        elif len(self._capacities) >= _MAX_KEPT:
            self._capacities.clear()

    def _judge(self, storage_class: str, request: int) -> BoolArray:
        with_capacity: BoolArray = np.zeros(self._nodes.capacity, dtype=np.bool_)
        for capacity in self._by_class.get(storage_class, ()):
            limit = capacity.capacity if capacity.maximum_volume_size is None else capacity.maximum_volume_size
            if limit is not None and limit >= request and capacity.node_topology is not None:
                with_capacity |= self._masks_by_affinity.having(capacity.node_topology)
        return with_capacity
