"""Priorities of the legacy scheduler Policy. Their scores are integers from 0 to 10, truncated toward 0 as in Go.

The scheduling framework's plugins with the same names score from 0 to 100, with different formulas
(:mod:`trimtab.placement.scores.nodes`).

Source: kubernetes v1.11 ``pkg/scheduler/algorithm/priorities``, on which OpenShift 3.11 is built. The docstring of each
priority lists its intentional differences from v1.11.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from trimtab.cluster.affinity import HARD_POD_AFFINITY_WEIGHT
from trimtab.cluster.node_table import TopologyKey
from trimtab.cluster.resources import CPU, MEMORY, BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod, Service
from trimtab.placement.scores.images import ImageIndex, normalized_name
from trimtab.placement.scores.nodes import NodeAffinity, TaintToleration, score_on_line
from trimtab.placement.scores.pods import InterPodAffinity
from trimtab.placement.service_selectors import ALL, SelectorsOfPods, selected_pods
from trimtab.placement.slot_cache import Points, SlotCache, Slots
from trimtab.placement.topology_spread import tables_of

MAX_PRIORITY: Final = 10
"""The highest score of a node (v1.11 ``schedulerapi.MaxPriority``)."""

FloatArray = npt.NDArray[np.float64]


class LegacyScore:
    """Base class of priorities: a score of 0 to :data:`MAX_PRIORITY` per node, with a weight.

    Args:
        snapshot: the cluster.
        name: the name of the priority in the scheduler Policy.
        weight: the factor by which the score is multiplied.
    """

    name: str = ""

    def __init__(self, snapshot: Snapshot, *, name: str = "", weight: int = 1) -> None:
        self.snapshot = snapshot
        self.name = name or self.name
        self.weight = weight

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        raise NotImplementedError


class EqualPriority(LegacyScore):
    """Gives every node the score 1."""

    name = "EqualPriority"

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        return 1


class _Allocated(LegacyScore):
    """Base class of priorities that score cpu and memory separately.

    The result is the mean of both scores, rounded down.

    Default requests are assumed for containers without requests.
    """

    def __init__(self, snapshot: Snapshot, *, name: str = "", weight: int = 1) -> None:
        super().__init__(snapshot, name=name, weight=weight)
        self._kept: SlotCache[tuple[int, int], np.int8] = SlotCache(snapshot.nodes)

    def points(self, have: IntArray, taken: IntArray) -> IntArray:
        """Return the score of each resource: int64, shape (n, 2).

        Args:
            have: the allocatable cpu and memory: int64, shape (n, 2).
            taken: the requested amounts after placing the pod: int64, shape (n, 2).
        """
        raise NotImplementedError

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        return self._kept.of(self.snapshot.amounts(pod.spec).scored, self._compute).astype(np.int64)

    def _compute(self, scored: tuple[int, int], slots: Slots) -> Points:
        nodes = self.snapshot.nodes
        have: IntArray = nodes.allocatable[slots, CPU : MEMORY + 1]
        found: IntArray = self.points(have, nodes.nonzero[slots] + scored).sum(axis=1) // 2
        return found.astype(np.int8)


class LeastRequestedPriority(_Allocated):
    """Prefers nodes with more free cpu and memory: ``(capacity - requested) * 10 / capacity``."""

    name = "LeastRequestedPriority"

    def points(self, have: IntArray, taken: IntArray) -> IntArray:
        found: IntArray = np.maximum(have - taken, 0) * MAX_PRIORITY // np.maximum(have, 1)
        return found


class MostRequestedPriority(_Allocated):
    """Prefers nodes with more requested cpu and memory: ``requested * 10 / capacity``.

    The score of a resource is 0 if more of it is requested than the node has.
    """

    name = "MostRequestedPriority"

    def points(self, have: IntArray, taken: IntArray) -> IntArray:
        found: IntArray = np.where(taken > have, 0, taken) * MAX_PRIORITY // np.maximum(have, 1)
        return np.where(have > 0, found, 0)


class RequestedToCapacityRatioPriority(_Allocated):
    """Scores utilization by requests with a piecewise linear function (``requestedToCapacityRatioArguments``).

    Args:
        snapshot: the cluster.
        shape: the points (utilization 0 to 100, score 0 to 10) between which the function is linear, in ascending order
            of utilization.
        name: the name of the priority in the scheduler Policy.
        weight: the factor by which the score is multiplied.
    """

    name = "RequestedToCapacityRatioPriority"

    def __init__(
        self, snapshot: Snapshot, *, shape: Sequence[tuple[int, int]], name: str = "", weight: int = 1
    ) -> None:
        line = [score_on_line(shape, percent) for percent in range(101)]
        self._line: IntArray = np.array(line, dtype=np.int64)
        super().__init__(snapshot, name=name, weight=weight)

    def points(self, have: IntArray, taken: IntArray) -> IntArray:
        free = np.maximum(have - taken, 0) * 100 // np.maximum(have, 1)
        percent = np.where((have == 0) | (taken > have), 100, 100 - free)
        found: IntArray = self._line[percent]
        return found


class BalancedResourceAllocation(_Allocated):
    """Prefers nodes with similar cpu and memory utilization after placing the pod: ``(1 - |cpu - memory|) * 10``.

    The score is 0 if all of the node's cpu or memory, or more, would then be requested.
    """

    name = "BalancedResourceAllocation"

    def _compute(self, scored: tuple[int, int], slots: Slots) -> Points:
        nodes = self.snapshot.nodes
        have: IntArray = nodes.allocatable[slots, CPU : MEMORY + 1]
        taken: IntArray = nodes.nonzero[slots] + scored
        share: FloatArray = np.where(have > 0, taken / np.maximum(have, 1), 1.0)
        apart = np.abs(share[:, 0] - share[:, 1])
        found: IntArray = np.where((share >= 1).any(axis=1), 0.0, (1 - apart) * MAX_PRIORITY).astype(np.int64)
        return found.astype(np.int8)


class InterPodAffinityPriority(LegacyScore):
    """Sums the weights of matching pod affinity terms.

    The lowest sum among the candidates scores 0, and the highest 10.

    The sum 0 is included in the scale, even if no candidate has it.

    Args:
        snapshot: the cluster.
        hard_weight: the weight of the required affinity of bound pods (``hardPodAffinitySymmetricWeight``).
        name: the name of the priority in the scheduler Policy.
        weight: the factor by which the score is multiplied.
    """

    name = "InterPodAffinityPriority"

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        hard_weight: int = HARD_POD_AFFINITY_WEIGHT,
        name: str = "",
        weight: int = 1,
    ) -> None:
        super().__init__(snapshot, name=name, weight=weight)
        self._terms = InterPodAffinity(snapshot, hard_weight=hard_weight)

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        sums = self._terms.sums(pod)
        if sums is None:
            return 0
        there = np.where(among, sums, 0)
        low, high = int(there.min(initial=0)), int(there.max(initial=0))  # 0 counts even if no node has it
        if low == high:
            return 0
        points: FloatArray = MAX_PRIORITY * ((sums - low) / (high - low))
        return points.astype(np.int64)


class NodeAffinityPriority(LegacyScore):
    """Sums the weights of the preferred node affinity terms that match the node. The largest sum scores 10."""

    name = "NodeAffinityPriority"

    def __init__(self, snapshot: Snapshot, *, name: str = "", weight: int = 1) -> None:
        super().__init__(snapshot, name=name, weight=weight)
        self._plugin = NodeAffinity(snapshot, best=MAX_PRIORITY)

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        return self._plugin.scores(pod, among)


class TaintTolerationPriority(LegacyScore):
    """Prefers nodes with fewer untolerated PreferNoSchedule taints.

    A node without such taints scores 10, and the candidate with the most scores 0.
    """

    name = "TaintTolerationPriority"

    def __init__(self, snapshot: Snapshot, *, name: str = "", weight: int = 1) -> None:
        super().__init__(snapshot, name=name, weight=weight)
        self._plugin = TaintToleration(snapshot, best=MAX_PRIORITY)

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        return self._plugin.scores(pod, among)


_MAX_IMAGES: Final = 256
"""Maximum number of cached score arrays: 16 MiB for 8,192 slots."""

_MIB: Final = 1024 * 1024
_SMALLEST: Final = 23 * _MIB
_LARGEST: Final = 1000 * _MIB


class ImageLocalityPriority(LegacyScore):
    """Scores the total size of the images of the pod's containers on the node.

    As in v1.11 (``totalImageSize``), images of init containers and image volumes do not count. The score is 0 below
    23 MiB, 10 for 1000 MiB or more, otherwise 1 to 10.
    """

    name = "ImageLocalityPriority"

    def __init__(self, snapshot: Snapshot, *, name: str = "", weight: int = 1) -> None:
        super().__init__(snapshot, name=name, weight=weight)
        self._images = ImageIndex(snapshot.nodes)
        self._known: dict[tuple[str, ...], IntArray] = {}
        self._version = -1

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        nodes = self.snapshot.nodes
        if self._version != nodes.images_version or len(self._known) >= _MAX_IMAGES:
            self._images.refresh()
            self._known.clear()
            self._version = nodes.images_version
        if not self._images.any:
            return 0
        images = tuple(sorted(normalized_name(container.image) for container in pod.spec.containers))
        found = self._known.get(images)
        if found is None or len(found) != len(among):
            found = self._known[images] = self._points(images, len(among))
        return found

    def _points(self, images: tuple[str, ...], capacity: int) -> IntArray:
        nodes = self.snapshot.nodes
        total: IntArray = np.zeros(capacity, dtype=np.int64)
        for image in images:
            slots = self._images.slots(image)
            if len(slots):
                total[slots] += [nodes.node(slot).images[image] for slot in slots.tolist()]
        between = MAX_PRIORITY * (total - _SMALLEST) // (_LARGEST - _SMALLEST) + 1
        found: IntArray = np.where(total < _SMALLEST, 0, np.where(total >= _LARGEST, MAX_PRIORITY, between))
        return found


class LabelPreference(LegacyScore):
    """Scores 10 for nodes with the label and 0 for the others, or the reverse (``labelPreference``).

    Args:
        snapshot: the cluster.
        label: the label key.
        presence: whether nodes with the label are preferred; otherwise nodes without it are.
        name: the name of the priority in the scheduler Policy.
        weight: the factor by which the score is multiplied.
    """

    name = "LabelPreference"

    def __init__(self, snapshot: Snapshot, *, label: str, presence: bool, name: str = "", weight: int = 1) -> None:
        super().__init__(snapshot, name=name, weight=weight)
        self._label = label
        self._presence = presence

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        has: BoolArray = self.snapshot.nodes.column(self._label).ids >= 0
        return np.where(has == self._presence, MAX_PRIORITY, 0)


PREFER_AVOID_PODS: Final = "scheduler.alpha.kubernetes.io/preferAvoidPods"


class NodePreferAvoidPodsPriority(LegacyScore):
    """Scores 0 if a node's annotation lists the pod's ReplicationController or ReplicaSet, and 10 otherwise."""

    name = "NodePreferAvoidPodsPriority"

    def __init__(self, snapshot: Snapshot, *, name: str = "", weight: int = 1) -> None:
        super().__init__(snapshot, name=name, weight=weight)
        self._avoiding: dict[tuple[str, str], list[int]] = {}
        self._revision = -1

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        owner = pod.controller
        if owner is None or owner.kind not in ("ReplicationController", "ReplicaSet"):
            return MAX_PRIORITY
        if self._revision != self.snapshot.nodes.revision:
            self._read()
        slots = self._avoiding.get((owner.kind, owner.uid))
        if slots is None:
            return MAX_PRIORITY
        found: IntArray = np.full(len(among), MAX_PRIORITY, dtype=np.int64)
        found[slots] = 0
        return found

    def _read(self) -> None:
        """Index the nodes by the controllers whose pods they should avoid, from their annotations."""
        nodes = self.snapshot.nodes
        self._avoiding.clear()
        for slot, node in enumerate(nodes.at):
            text = "" if node is None else node.annotations.get(PREFER_AVOID_PODS, "")
            for controller in _avoided(text) if text else ():
                self._avoiding.setdefault(controller, []).append(slot)
        self._revision = nodes.revision


def _avoided(text: str) -> set[tuple[str, str]]:
    """Return the kind and UID of the controllers that a ``preferAvoidPods`` annotation lists.

    The result is empty if the annotation is invalid.
    """
    try:
        entries = msgspec.json.decode(text)["preferAvoidPods"]
        controllers = [entry["podSignature"]["podController"] for entry in entries]
        return {(each["kind"], each["uid"]) for each in controllers}
    except (msgspec.DecodeError, KeyError, TypeError):
        return set()


_ZONES: Final = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_REGIONS: Final = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
_ZONE_WEIGHT: Final = 2.0 / 3.0


class SelectorSpreadPriority(LegacyScore):
    """Prefers nodes and zones with fewer pods of the same services and controllers.

    The zone has twice the weight of the node. Terminating pods are not counted.

    Args:
        snapshot: the cluster.
        services_only: whether the selectors of controllers are ignored (``ServiceSpreadingPriority``).
        name: the name of the priority in the scheduler Policy.
        weight: the factor by which the score is multiplied.
    """

    name = "SelectorSpreadPriority"

    def __init__(self, snapshot: Snapshot, *, services_only: bool = False, name: str = "", weight: int = 1) -> None:
        super().__init__(snapshot, name=name, weight=weight)
        self._selectors = SelectorsOfPods(snapshot, (Service,) if services_only else ALL)
        self._found: tuple[IntArray, int] = (np.empty(0, dtype=np.int64), 0)
        self._version = -1

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        counter = selected_pods(self.snapshot, pod.namespace, self._selectors.of(pod))
        if counter is None or not counter.counts:
            return MAX_PRIORITY
        counts = tables_of(self.snapshot.nodes).counts_by_slot(counter, len(among))
        counted = counts * among
        most = int(counted.max())
        points = _fewest_first(np.arange(most + 1, dtype=np.float64), float(most))[np.minimum(counts, most)]
        zones, number = self._zones()
        of_zone = np.bincount(zones, weights=counted, minlength=number).astype(np.float64)
        of_zone[0] = 0.0
        by_zone = _ZONE_WEIGHT * _fewest_first(of_zone, float(of_zone.max()))
        combined: FloatArray = points * (1 - _ZONE_WEIGHT) + by_zone[zones]
        return np.where(zones > 0, combined, points).astype(np.int64)

    def _zones(self) -> tuple[IntArray, int]:
        """Return the zone index of each slot (0 if its node has no zone), and the number of indexes.

        A zone is identified by its region and zone labels.
        """
        nodes = self.snapshot.nodes
        if self._version != nodes.version:
            zone, region = (_first_known([nodes.column(key) for key in keys]) for keys in (_ZONES, _REGIONS))
            number = int(zone.max(initial=-1)) + 1
            found: IntArray = np.where((zone < 0) & (region < 0), 0, (region + 1) * (number + 1) + zone + 1)
            self._found = found, int(found.max(initial=0)) + 1
            self._version = nodes.version
        return self._found


def _first_known(columns: list[TopologyKey]) -> IntArray:
    """Return the domain of each slot by the first of two labels that its node has, or -1 if it has neither.

    Domains are numbered so that the same value in either label gives the same number.
    """
    first, second = columns
    offset = len(first.values)
    same: IntArray = np.array([first.id_of.get(value, offset + n) for n, value in enumerate(second.values)] + [-1])
    return np.where(first.ids >= 0, first.ids, same[second.ids])


def _fewest_first(counts: FloatArray, largest: float) -> FloatArray:
    """Return a score for each count, where fewer pods score higher: float64, not rounded, same shape as ``counts``.

    A count of 0 scores 10, and a count of ``largest`` scores 0.
    """
    if largest <= 0:
        return np.full(len(counts), float(MAX_PRIORITY))
    found: FloatArray = MAX_PRIORITY * ((largest - counts) / largest)
    return found


class ServiceAntiAffinityPriority(LegacyScore):
    """Spreads the pods of a service over the values of a node label (``serviceAntiAffinity``).

    The score is ``10 * (pods - pods on nodes with the same value) / pods``, and 0 for nodes without the label. If
    several services select the pod, the first one by name is used; v1.11 uses an arbitrary one.

    Args:
        snapshot: the cluster.
        label: the key of the node label.
        name: the name of the priority in the scheduler Policy.
        weight: the factor by which the score is multiplied.
    """

    name = "ServiceAntiAffinity"

    def __init__(self, snapshot: Snapshot, *, label: str, name: str = "", weight: int = 1) -> None:
        super().__init__(snapshot, name=name, weight=weight)
        self._label = label
        self._services = SelectorsOfPods(snapshot, (Service,))

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        column = self.snapshot.nodes.column(self._label)
        counter = selected_pods(self.snapshot, pod.namespace, self._services.of(pod)[:1])
        if counter is None or not counter.counts:
            return np.where(column.ids >= 0, MAX_PRIORITY, 0)
        counts = tables_of(self.snapshot.nodes).counts_by_slot(counter, len(among))
        total = int(np.where(among, counts, 0).sum())
        if not total:
            return np.where(column.ids >= 0, MAX_PRIORITY, 0)
        labelled = among & (column.ids >= 0)
        of_value = np.bincount(column.ids[labelled], weights=counts[labelled], minlength=len(column.values) + 1)
        points: FloatArray = MAX_PRIORITY * ((total - of_value[column.ids]) / total)
        return np.where(column.ids >= 0, points, 0.0).astype(np.int64)
