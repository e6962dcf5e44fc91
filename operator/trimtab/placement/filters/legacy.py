"""Predicates of the legacy scheduler Policy that have no equivalent among the plugins of the scheduling framework.

Source: kubernetes v1.11 ``pkg/scheduler/algorithm/predicates``, on which OpenShift 3.11 is built. The docstring of each
filter lists its intentional differences from v1.11.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import ClassVar

import numpy as np

from trimtab.cluster.node_table import TopologyKey
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import LabelSelector, Node, Pod, PodSpec, Service
from trimtab.kube.rules.in_tree_volumes import MIGRATED
from trimtab.kube.rules.selectors import matches_labels
from trimtab.kube.rules.taints import NO_EXECUTE, find_untolerated_taint
from trimtab.placement.filters.nodes import TaintToleration
from trimtab.placement.filters.volumes import ATTACHABLE_KINDS, NodeVolumeLimits, attached_volumes
from trimtab.placement.interface import Failure, NodeFilter, Reads, StaticFilter
from trimtab.placement.service_selectors import SelectorsOfPods
from trimtab.placement.topology_spread import tables_of


class NodeLabelPresence(StaticFilter):
    """Rejects nodes that lack one of the labels, or nodes that have one of them (``CheckNodeLabelPresence``).

    Args:
        snapshot: the cluster.
        labels: the label keys; values are ignored.
        presence: if true, the node must have all of the labels; if false, it must have none of them.
    """

    name: ClassVar = "CheckNodeLabelPresence"
    reason: ClassVar = "node(s) didn't have the requested labels"

    def __init__(self, snapshot: Snapshot, *, labels: Sequence[str], presence: bool) -> None:
        super().__init__(snapshot)
        self._labels = tuple(labels)
        self._presence = presence

    def key(self, pod: Pod) -> Hashable | None:
        return "every pod"

    def compute(self, pod: Pod) -> BoolArray:
        nodes = self.snapshot.nodes
        passing: BoolArray = np.ones(nodes.capacity, dtype=np.bool_)
        for label in self._labels:
            has: BoolArray = nodes.column(label).ids >= 0
            passing &= has if self._presence else ~has
        return passing


class NodeConditionFilter(StaticFilter):
    """Rejects nodes with a failed condition. Conditions that the node does not report are ignored, except Ready.

    Each distinct set of condition statuses is evaluated once, because thousands of nodes share a few sets.

    Attributes:
        best_effort_only: whether the filter applies only to BestEffort pods.
    """

    reads_conditions: ClassVar = True
    best_effort_only: ClassVar[bool] = False

    @classmethod
    def failed(cls, node: Node) -> tuple[str, ...]:
        """Return the reason of each failed condition of a node; empty if the node passes."""
        return cls.failed_of(node.condition_statuses, node.unschedulable)

    @classmethod
    def failed_of(cls, statuses: Mapping[str, str], cordoned: bool) -> tuple[str, ...]:
        """Return the reasons of :meth:`failed` for nodes with these conditions.

        Args:
            statuses: the status of each condition by the condition's type.
            cordoned: whether the node is cordoned.
        """
        raise NotImplementedError

    def may_concern(self, spec: PodSpec) -> bool:
        return not self.best_effort_only or spec.qos == "BestEffort"

    def key(self, pod: Pod) -> Hashable | None:
        return "every pod" if self.may_concern(pod.spec) else None

    def compute(self, pod: Pod) -> BoolArray:
        nodes = self.snapshot.nodes
        verdicts = [[not self.failed_of(each, cordoned) for cordoned in (False, True)] for each in nodes.condition_sets]
        passing: BoolArray = np.array(verdicts, dtype=np.bool_)[nodes.conditions, nodes.cordoned.astype(np.int64)]
        return passing

    def failures(self, pod: Pod, slots: IntArray) -> Iterable[Failure]:
        groups: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for slot in slots.tolist():
            groups[self.failed(self.snapshot.nodes.node(slot))].append(slot)
        return [(reasons, np.array(found, dtype=np.int64)) for reasons, found in groups.items()]


class CheckNodeCondition(NodeConditionFilter):
    """Rejects nodes that are not ready, have no network or no free disk space, or are cordoned.

    In contrast to v1.11, a node that does not report the Ready condition is not ready.
    """

    name: ClassVar = "CheckNodeCondition"

    @classmethod
    def failed_of(cls, statuses: Mapping[str, str], cordoned: bool) -> tuple[str, ...]:
        conditions = {
            "node(s) were not ready": statuses.get("Ready") != "True",
            "node(s) were out of disk space": statuses.get("OutOfDisk", "False") != "False",
            "node(s) had unavailable network": statuses.get("NetworkUnavailable", "False") != "False",
            "node(s) were unschedulable": cordoned,
        }
        return tuple(reason for reason, failed in conditions.items() if failed)


class NodePressureFilter(NodeConditionFilter):
    """Rejects nodes under one kind of pressure. As in v1.11, the status Unknown is no pressure.

    Attributes:
        condition: the type of the condition.
    """

    condition: ClassVar[str]

    @classmethod
    def failed_of(cls, statuses: Mapping[str, str], cordoned: bool) -> tuple[str, ...]:
        return (cls.reason,) if statuses.get(cls.condition) == "True" else ()


class CheckNodeMemoryPressure(NodePressureFilter):
    """Rejects nodes under memory pressure for BestEffort pods."""

    name: ClassVar = "CheckNodeMemoryPressure"
    reason: ClassVar = "node(s) had memory pressure"
    condition: ClassVar = "MemoryPressure"
    best_effort_only: ClassVar[bool] = True


class CheckNodeDiskPressure(NodePressureFilter):
    """Rejects nodes under disk pressure."""

    name: ClassVar = "CheckNodeDiskPressure"
    reason: ClassVar = "node(s) had disk pressure"
    condition: ClassVar = "DiskPressure"


class CheckNodePIDPressure(NodePressureFilter):
    """Rejects nodes with too few free process IDs."""

    name: ClassVar = "CheckNodePIDPressure"
    reason: ClassVar = "node(s) had pid pressure"
    condition: ClassVar = "PIDPressure"


class NoExecuteTaints(StaticFilter):
    """Rejects nodes with NoExecute taints that the pod does not tolerate. NoSchedule taints are ignored.

    This is ``PodToleratesNodeNoExecuteTaints``, which v1.11 lists in its order of predicates but never registers.
    """

    name: ClassVar = "PodToleratesNodeNoExecuteTaints"
    reason: ClassVar = TaintToleration.reason  # v1.11 has one reason for both predicates of taints

    def key(self, pod: Pod) -> Hashable | None:
        return pod.spec.tolerations

    def compute(self, pod: Pod) -> BoolArray:
        nodes = self.snapshot.nodes
        verdicts = [
            find_untolerated_taint((each for each in taints if each.effect == NO_EXECUTE), pod.spec.tolerations) is None
            for taints in nodes.taint_sets
        ]
        passing: BoolArray = np.array(verdicts, dtype=np.bool_)[nodes.taints]
        return passing


class MaxVolumeCount(NodeFilter):
    """Rejects nodes to which too many volumes of one type would be attached (``MaxPDVolumeCountChecker``).

    The limit is the one that the CSI driver reports in the CSINode object. Otherwise it is the allocatable amount of
    the node, and otherwise ``most``.

    There are two intentional differences from v1.11, because these volumes are migrated to CSI drivers:

    - A volume of the CSI driver counts as well. An inline volume and a PersistentVolume with the same disk count once.
    - v1.11 counts a claim that is not bound, or whose volume is unknown, for every type. Here it counts for the
      provisioner of its StorageClass.

    Args:
        snapshot: the cluster.
        most: the limit of a node that reports none, or ``None`` for the default of v1.11.

    Attributes:
        driver: the CSI driver to which the volumes are migrated.
        resource: the name of the resource by which a kubelet reports the limit.
        default: the default limit.
    """

    name: ClassVar = "NodeVolumeLimits"
    reason: ClassVar = NodeVolumeLimits.reason
    driver: ClassVar[str]
    resource: ClassVar[str]
    default: ClassVar[int]

    def __init__(self, snapshot: Snapshot, *, most: int | None = None) -> None:
        super().__init__(snapshot)
        self._most = self.default if most is None else most

    def may_concern(self, spec: PodSpec) -> bool:
        return any(volume.kind in ATTACHABLE_KINDS for volume in spec.volumes)

    def helped_by(self, pod: Pod, other: Pod) -> bool:
        return bool(other.spec.volumes)

    def passing(self, pod: Pod) -> BoolArray | None:
        if not self.may_concern(pod.spec):
            return None
        nodes = self.snapshot.nodes
        limits: IntArray = np.full(nodes.capacity, self._most, dtype=np.int64)
        column = nodes.axis.column.get(self.resource)
        if column is not None:
            reported = nodes.allocatable[:, column]
            limits = np.where(reported > 0, reported, limits)
        return attached_volumes(self.snapshot).within_limit(pod, self.driver, limits)


class MaxEBSVolumeCount(MaxVolumeCount):
    """Rejects nodes to which too many EBS volumes would be attached."""

    driver: ClassVar = MIGRATED["awsElasticBlockStore"].driver
    resource: ClassVar = "attachable-volumes-aws-ebs"
    default: ClassVar = 39


class MaxGCEPDVolumeCount(MaxVolumeCount):
    """Rejects nodes to which too many GCE persistent disks would be attached."""

    driver: ClassVar = MIGRATED["gcePersistentDisk"].driver
    resource: ClassVar = "attachable-volumes-gce-pd"
    default: ClassVar = 16


class MaxAzureDiskVolumeCount(MaxVolumeCount):
    """Rejects nodes to which too many Azure disks would be attached."""

    driver: ClassVar = MIGRATED["azureDisk"].driver
    resource: ClassVar = "attachable-volumes-azure-disk"
    default: ClassVar = 16


_Combinations = tuple[list[tuple[tuple[bool, str], ...]], IntArray]
"""The distinct combinations of label values, and the index of each slot's combination.

A combination has a pair for each label: whether the node has the label, and the value.
"""


class ServiceAffinity(StaticFilter):
    """Places all pods of a service on nodes with the same values of the given labels (``CheckServiceAffinity``).

    If the pod's node selector contains a label, the node must have that value. Otherwise the value must be that of the
    node on which pods of the service run. A label does not restrict the pod if the selector does not contain it and no
    pods of the service run.

    As in v1.11, terminating pods also determine the values. So a service stays in its region if all of its pods
    terminate before the new ones are placed, as in a drain of its only pod.

    There are three intentional differences from v1.11:

    - The pods of the service are those that its selector matches. v1.11 uses pods with labels equal to the pod's own,
      so the pods of a new ReplicaSet ignore those of the old one, and a rollout may move a service to another region.
    - If pods of the service run on nodes with different values, the values with the most pods are used (the first by
      name in a tie). v1.11 uses those of an arbitrary pod.
    - Terminating pods are ignored if other pods of the service run.

    Args:
        snapshot: the cluster.
        labels: the keys of the node labels.
    """

    name: ClassVar = "CheckServiceAffinity"
    reason: ClassVar = "node(s) didn't match service affinity"
    reads: ClassVar[Reads] = "pods"

    def __init__(self, snapshot: Snapshot, *, labels: Sequence[str]) -> None:
        super().__init__(snapshot)
        self._labels = tuple(labels)
        self._services = SelectorsOfPods(snapshot, (Service,))
        self._known: dict[tuple[str, ...], _Combinations] = {}

    def concerns(self, pod: Pod) -> bool:
        return True

    def helped_by(self, pod: Pod, other: Pod) -> bool:
        return other.namespace == pod.namespace and any(
            matches_labels(each, other.labels) for each in self._services.of(pod)
        )

    def passing(self, pod: Pod) -> BoolArray | None:
        nodes = self.snapshot.nodes
        wanted = self.wanted(pod)
        passing: BoolArray = np.ones(nodes.capacity, dtype=np.bool_)
        for label, value in wanted.items():
            column = nodes.column(label)
            passing &= column.ids == column.id_of.get(value, -2)
        return passing

    def wanted(self, pod: Pod) -> dict[str, str]:
        """Return the node labels, with their values, that a node must have for the pod."""
        selector = pod.spec.node_selector
        found = {label: selector[label] for label in self._labels if label in selector}
        missing = tuple(label for label in self._labels if label not in found)
        services = self._services.of(pod) if missing else ()
        if services:
            found.update(self._of_peers(pod, services[0], missing))
        return found

    def _of_peers(self, pod: Pod, selector: LabelSelector, labels: tuple[str, ...]) -> dict[str, str]:
        staying = self.snapshot.affinity.staying(pod.namespace, selector)
        values, which = self._combinations(labels)
        if staying.counts:
            slots, numbers = tables_of(self.snapshot.nodes).per_node(staying, len(which))
        else:
            terminating = self.snapshot.affinity.terminating(pod.namespace, selector)
            if not terminating:
                return {}
            slots, numbers = np.array(list(terminating)), np.array(list(terminating.values()))
        tally = np.bincount(which if slots is None else which[slots], weights=numbers, minlength=len(values))
        best = min(values[place] for place in np.flatnonzero(tally == tally.max()).tolist())
        return {label: value for label, (present, value) in zip(labels, best, strict=True) if present}

    def _combinations(self, labels: tuple[str, ...]) -> _Combinations:
        """Return the combinations of these labels' values on the nodes, cached until a node's labels change."""
        nodes = self.snapshot.nodes
        if self._version != nodes.version:
            self._known.clear()
            self._version = nodes.version
        found = self._known.get(labels)
        if found is None:
            columns = [nodes.column(label) for label in labels]
            table = np.column_stack([column.ids for column in columns])
            distinct, which = np.unique(table, axis=0, return_inverse=True)
            values = [
                tuple(_value(column, domain) for column, domain in zip(columns, row, strict=True))
                for row in distinct.tolist()
            ]
            found = self._known[labels] = (values, which.ravel())
        return found


def _value(column: TopologyKey, domain: int) -> tuple[bool, str]:
    return (True, column.values[domain]) if domain >= 0 else (False, "")
