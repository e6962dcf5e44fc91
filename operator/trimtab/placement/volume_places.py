"""Which nodes volumes can be used on: their node affinity, and the topology of what is yet to be provisioned."""

from __future__ import annotations

from typing import Final

import numpy as np

from trimtab.cluster.free_volumes import Place
from trimtab.cluster.nodes import NodeTable
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.shelves import Shelves
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
_MOST_KEPT: Final = 4096


class Places:
    """Node affinities of volumes as masks; kept until a node's name or labels change."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._terms = NodeMasks()
        self._masks: dict[NodeSelector, BoolArray] = {}
        self._version = -1

    def mask(self, place: Place) -> BoolArray:
        """Which nodes are in a place: bool, shape (capacity,). Kept: callers must not write to it.

        The scheduler shows a volume's affinity labels only, a node without a name (``CheckNodeAffinity``).
        """
        if place is None:
            return self._nodes.used
        if self._version != self._nodes.version or len(self._masks) >= _MOST_KEPT:
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

    def slots(self, place: Place) -> IntArray:
        """The slots of the nodes in a place, ascending."""
        return np.flatnonzero(self.mask(place))

    def having(self, selector: LabelSelector) -> BoolArray:
        """Which nodes a label selector picks; one that Kubernetes could not evaluate picks none."""
        equal = (LabelRequirement(key, "In", (value,)) for key, value in selector.match_labels.items())
        requirements = (*equal, *selector.match_expressions)
        return self.mask(NodeSelector((NodeSelectorTerm(requirements),)) if requirements else None)


def _without_name(term: NodeSelectorTerm) -> NodeSelectorTerm | None:
    """The term on a node whose name is empty, ``None`` where it cannot hold."""
    if not term.match_fields:
        return term
    if any(requirement.operator != "NotIn" for requirement in term.match_fields):
        return None
    labels = term.match_expressions or (LabelRequirement("kubernetes.io/none", "DoesNotExist"),)
    return NodeSelectorTerm(labels)


class BoundVolumes:
    """Where pods can run whose claims are bound (``tryTranslatePVToCSI`` and ``CheckNodeAffinity``).

    In-tree volumes are judged by the affinity of their CSI driver on nodes whose CSINode says that the plugin is
    migrated, and by their own on others.
    """

    def __init__(self, nodes: NodeTable, shelves: Shelves, places: Places) -> None:
        self._nodes = nodes
        self._shelves = shelves
        self._places = places
        self._migrated: dict[str, BoolArray] = {}
        self._made: tuple[int, int] | None = None

    def mask(self, volume: PersistentVolume) -> BoolArray:
        """The nodes that the volume's affinity allows: bool, shape (capacity,); callers must not write to it."""
        own = self._places.mask(volume.node_affinity)
        plugin = MIGRATED.get(volume.source)
        if plugin is None or not plugin.topology_key:
            return own
        migrated = self._where_migrated(plugin.name)
        if migrated is None:
            return own
        translated = self._places.mask(translated_affinity(volume, plugin.topology_key))
        found: BoolArray = np.where(migrated, translated, own)
        return found

    def untranslatable(self, volume: PersistentVolume) -> tuple[BoolArray, str] | None:
        """Where the volume would have to be translated and cannot, with what is wrong; ``None`` where all is well."""
        plugin = MIGRATED.get(volume.source)
        migrated = self._where_migrated(plugin.name) if plugin is not None and volume.disk else None
        if migrated is None:
            return None
        try:
            handle_of(volume.source, volume.disk[0], volume.labels)
        except TranslationError as error:
            return migrated, f"could not translate pv: {error}"
        return None

    def _where_migrated(self, plugin: str) -> BoolArray | None:
        made = (self._nodes.version, self._shelves.revision(CSINode))
        if self._made != made:
            self._made = made
            self._migrated = {}
            for name, csi_node in self._shelves.of(CSINode).items():
                slot = self._nodes.slot_of.get(name)
                if slot is None:
                    continue
                for each in csi_node.migrated:
                    if each not in self._migrated:
                        self._migrated[each] = np.zeros(self._nodes.capacity, dtype=np.bool_)
                    self._migrated[each][slot] = True
        return self._migrated.get(plugin)


class Provisioning:
    """Where a volume could be made for a claim (``checkVolumeProvisions`` and ``hasEnoughCapacity``)."""

    def __init__(self, nodes: NodeTable, shelves: Shelves, places: Places) -> None:
        self._nodes = nodes
        self._shelves = shelves
        self._places = places
        self._capacities: dict[tuple[str, int], BoolArray] = {}
        self._by_class: dict[str, list[CSIStorageCapacity]] = {}
        self._made: tuple[int, int] | None = None

    def allowed(self, claim: PersistentVolumeClaim) -> BoolArray | None:
        """The nodes that the class's topology allows; ``None`` where nothing provisions volumes of the class."""
        storage_class = self._shelves.of(StorageClass)[claim.storage_class or ""]
        if storage_class.provisioner in ("", _NO_PROVISIONER):
            return None
        if not storage_class.allowed_topologies:
            return self._nodes.used
        terms = (
            NodeSelectorTerm(tuple(LabelRequirement(each.key, "In", each.values) for each in topology))
            for topology in storage_class.allowed_topologies
        )
        return self._places.mask(NodeSelector(tuple(terms)))

    def roomy(self, claim: PersistentVolumeClaim) -> BoolArray | None:
        """The nodes with room for the claim; ``None`` where its driver does not tell how much there is.

        A CSIStorageCapacity that is large enough for the claim alone is enough: reserved pods take nothing of it.
        """
        storage_class = self._shelves.of(StorageClass)[claim.storage_class or ""]
        driver = self._shelves.of(CSIDriver).get(storage_class.provisioner)
        if claim.request is None or driver is None or not driver.storage_capacity:
            return None
        self._refresh()
        key = (storage_class.name, claim.request)
        found = self._capacities.get(key)
        if found is None:
            found = self._capacities[key] = self._judge(*key)
        return found

    def _refresh(self) -> None:
        made = (self._nodes.version, self._shelves.revision(CSIStorageCapacity))
        if self._made != made:
            self._made = made
            self._by_class = {}
            for capacity in self._shelves.of(CSIStorageCapacity).values():
                self._by_class.setdefault(capacity.storage_class, []).append(capacity)
            self._capacities.clear()
        elif len(self._capacities) >= _MOST_KEPT:
            self._capacities.clear()

    def _judge(self, storage_class: str, request: int) -> BoolArray:
        roomy: BoolArray = np.zeros(self._nodes.capacity, dtype=np.bool_)
        for capacity in self._by_class.get(storage_class, ()):
            limit = capacity.capacity if capacity.maximum_volume_size is None else capacity.maximum_volume_size
            if limit is not None and limit >= request and capacity.node_topology is not None:
                roomy |= self._places.having(capacity.node_topology)
        return roomy
