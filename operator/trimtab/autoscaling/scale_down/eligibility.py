"""Determines whether a node may be removed: its utilization, its unneeded time, and the minimum sizes and resources."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.bounds import plural
from trimtab.api.cluster_autoscaler import GIB, ClusterAutoscalerSpec, ResourceLimits, ScaleDown
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.autoscaling.groups import GroupMachine, GroupOptions, Groups, MachineState, NodeGroup
from trimtab.autoscaling.replace.replacement_state import NO_REPLACEMENTS, ReplacementState
from trimtab.autoscaling.scale_down.drainability import long_terminating, of_daemon_set
from trimtab.autoscaling.template.node_template import TO_BE_DELETED
from trimtab.cluster.resources import CPU, MEMORY, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.outcome import Refusal
from trimtab.disruption.protections import MIRROR_ANNOTATION
from trimtab.kube.objects import Node, Pod

ACCELERATOR: Final = "cluster-api/accelerator"
"""Label of nodes that have GPUs, or that will have them once the GPU driver is ready."""

FloatArray = npt.NDArray[np.float64]


class Utilization(Struct, frozen=True, eq=False):
    """The requested resources as a fraction of the allocatable resources, by node slot.

    Attributes:
        cpu: float64, shape (capacity,). Infinite if nothing is allocatable but something is requested.
        memory: float64, shape (capacity,). Infinite if nothing is allocatable but something is requested.
        gpu: float64, shape (capacity,). 0 while a node's GPUs are not ready, NaN for nodes without GPUs.
    """

    cpu: FloatArray
    memory: FloatArray
    gpu: FloatArray

    def of(self, slot: int) -> float:
        """Return the utilization to compare with the threshold.

        On GPU nodes this is the utilization of the GPUs, otherwise the larger of cpu and memory utilization.
        """
        gpu = float(self.gpu[slot])
        return max(float(self.cpu[slot]), float(self.memory[slot])) if np.isnan(gpu) else gpu

    def on_gpus(self, slot: int) -> bool:
        """Return whether the node has GPUs."""
        return not np.isnan(self.gpu[slot])

    def describe(self, slot: int) -> str:
        """Describe the utilization for messages."""
        if self.on_gpus(slot):
            return f"its pods request {percent(self.gpu[slot])} of allocatable GPUs"
        return (
            f"its pods request {percent(self.cpu[slot])} of allocatable cpu and {percent(self.memory[slot])} of memory"
        )


def percent(share: float) -> str:
    """Format a fraction as a percentage with up to two decimals.

    If rounding would turn the percentage into a whole number, up to six significant digits are used, so that 49.9999 %
    is not displayed as 50 %, which may be the threshold.
    """
    value = 100 * float(share)
    short = round(value, 2)
    return f"{value:.6g}%" if short.is_integer() and abs(short - value) > 1e-9 else f"{short:.10g}%"


def threshold_of(spec: ClusterAutoscalerSpec, options: GroupOptions, *, gpu: bool) -> float:
    """Return the utilization threshold for nodes of a group.

    The group's annotation takes precedence over the ClusterAutoscaler's setting.
    """
    down = spec.scaling_down
    if gpu:
        own = options.gpu_utilization_threshold
        return down.gpu_threshold if own is None else own
    own = options.utilization_threshold
    return down.threshold if own is None else own


def utilization(snapshot: Snapshot, spec: ClusterAutoscalerSpec, *, now: float) -> Utilization:
    """Compute the utilization of every node.

    Pods below ``podPriorityThreshold`` and pods long past their grace period are ignored. With
    ``ignoreDaemonsetsUtilization`` and ``ignoreMirrorPodsUtilization``, DaemonSet and mirror pods are subtracted from
    both the requested and the allocatable resources.
    """
    nodes = snapshot.nodes
    allocatable, requested = nodes.allocatable.copy(), nodes.requested.copy()
    cutoff = spec.pod_priority_threshold
    left_out: defaultdict[int, list[Pod]] = defaultdict(list)
    few = [pod for pod in snapshot.pods.values() if pod.deleted is not None or pod.priority < cutoff]
    for pod in few:
        slot = None if pod.terminal else snapshot.slot(pod)
        if slot is not None and (pod.priority < cutoff or long_terminating(pod, now=now)):
            left_out[slot].append(pod)
    for slot, pods in left_out.items():
        for pod in pods:
            requested[slot] -= snapshot.row(pod.spec)
    for pod, slot in _ignored_pods(snapshot, spec):
        row = snapshot.row(pod.spec)
        allocatable[slot] -= row
        if pod not in left_out.get(slot, ()):
            requested[slot] -= row
    return Utilization(
        cpu=_fractions(requested[:, CPU], allocatable[:, CPU]),
        memory=_fractions(requested[:, MEMORY], allocatable[:, MEMORY]),
        gpu=_gpu_fractions(snapshot, allocatable, requested, gpu_types(spec)),
    )


def gpu_types(spec: ClusterAutoscalerSpec) -> frozenset[str]:
    """Return the configured GPU resource names. Names that end in ``/gpu`` are always treated as GPUs."""
    return frozenset(gpu.type for gpu in spec.resource_limits.gpus if "/" in gpu.type)


def has_gpus(node: Node, types: frozenset[str]) -> bool:
    """Return whether a node has GPUs, even if they are not ready yet."""
    if ACCELERATOR in node.labels:
        return True
    return any(
        amount > 0 and (name.endswith("/gpu") or name in types)
        for amounts in (node.capacity, node.allocatable)
        for name, amount in amounts.items()
    )


def _ignored_pods(snapshot: Snapshot, spec: ClusterAutoscalerSpec) -> Iterator[tuple[Pod, int]]:
    """Yield the DaemonSet and mirror pods that the spec excludes from utilization, with the slots of their nodes."""
    daemons, mirrors = spec.ignore_daemonsets_utilization, spec.ignore_mirror_pods_utilization
    if not daemons and not mirrors:
        return
    for pod in snapshot.pods.values():
        if not pod.node or pod.terminal:
            continue
        if (daemons and of_daemon_set(pod)) or (mirrors and MIRROR_ANNOTATION in pod.annotations):
            slot = snapshot.slot(pod)
            if slot is not None:
                yield pod, slot


def _fractions(requested: IntArray, allocatable: IntArray) -> FloatArray:
    share: FloatArray = np.where(requested > 0, np.inf, 0.0)
    np.divide(requested, allocatable, out=share, where=allocatable > 0)
    return share


def _gpu_fractions(snapshot: Snapshot, allocatable: IntArray, requested: IntArray, types: frozenset[str]) -> FloatArray:
    nodes = snapshot.nodes
    share: FloatArray = np.full(nodes.capacity, np.nan)
    columns = [column for name, column in nodes.axis.column.items() if name.endswith("/gpu") or name in types]
    for slot in nodes.slot_of.values():
        if has_gpus(nodes.node(slot), types):
            of_each = [
                float(requested[slot, column] / allocatable[slot, column])
                for column in columns
                if allocatable[slot, column] > 0
            ]
            share[slot] = max(of_each, default=0.0)
    return share


_CORE = 1000
"""Millicores in a core."""


class _ResourceMinimum(Struct, frozen=True):
    """A minimum from ``resourceLimits``, in the units of node capacities.

    Attributes:
        field: the name of the field in ``resourceLimits``.
        minimum: the amount that must remain in the cluster.
        unit: the amount that one unit in ``resourceLimits`` stands for.
        resource: the resource name in node capacities.
        gpu: whether ``resource`` may also be a value of the label :data:`ACCELERATOR`.
    """

    field: str
    minimum: int
    unit: int
    resource: str
    gpu: bool = False

    def of(self, node: Node) -> int:
        """Return the amount of the resource that the cluster loses if the node is removed."""
        amounts = node.capacity or node.allocatable
        if self.gpu and node.labels.get(ACCELERATOR) == self.resource:
            return sum(amount for name, amount in amounts.items() if name.endswith("/gpu"))
        return amounts.get(self.resource, 0)


class ResourceMinimums:
    """Tracks group sizes and cluster resources while node removals are planned.

    Args:
        limits: ``resourceLimits`` of the ClusterAutoscaler.
        nodes: all nodes that are not already being removed, including nodes outside of node groups.
    """

    def __init__(self, limits: ResourceLimits, nodes: Iterable[Node]) -> None:
        there = list(nodes)
        self._names = {node.name for node in there}
        self._floors = list(_minimums(limits))
        self._left = [sum(map(floor.of, there)) for floor in self._floors]
        self._planned_removals: dict[str, int] = {}
        self._sizes: dict[str, int] = {}

    def refusal(self, group: NodeGroup, node: Node) -> Refusal | None:
        """Return the reason why removing the node would violate a minimum, or ``None``.

        The removals planned so far are taken into account.
        """
        planned_removals = self._planned_removals.get(group.id, 0)
        size = self._size(group)
        if size - planned_removals <= group.minimum:
            planned = f", {planned_removals} of which are being removed" if planned_removals else ""
            message = (
                f"{group.kind} {group.key} has {plural(size, 'node')}{planned}, and its minimum is {group.minimum}"
            )
            return Refusal(reasons.NODE_GROUP_MIN_SIZE_REACHED, message)
        for floor, left in zip(self._floors, self._left, strict=True):
            own = floor.of(node)
            if own and left - own < floor.minimum:
                message = (
                    f"the cluster has {left / floor.unit:g} of {floor.field}, {own / floor.unit:g} of them on the "
                    f"node, and the minimum of resourceLimits is {floor.minimum / floor.unit:g}"
                )
                return Refusal(reasons.MINIMAL_RESOURCE_LIMIT_EXCEEDED, message)
        return None

    def _size(self, group: NodeGroup) -> int:
        """Return the smaller of target size and registered nodes, because requested nodes may never register."""
        size = self._sizes.get(group.id)
        if size is None:
            size = min(group.target, sum(name in self._names for name in group.nodes))
            self._sizes[group.id] = size
        return size

    def take(self, group: NodeGroup, node: Node) -> None:
        """Record the planned removal of a node, so that later refusals take it into account."""
        self._planned_removals[group.id] = self._planned_removals.get(group.id, 0) + 1
        for place, floor in enumerate(self._floors):
            self._left[place] -= floor.of(node)


def _minimums(limits: ResourceLimits) -> Iterator[_ResourceMinimum]:
    if limits.cores is not None:
        yield _ResourceMinimum("cores", limits.cores.min * _CORE, _CORE, "cpu")
    if limits.memory is not None:
        yield _ResourceMinimum("memory (GiB)", limits.memory.min * GIB, GIB, "memory")
    for gpu in sorted(limits.gpus, key=lambda each: each.type):
        yield _ResourceMinimum(f"gpus[{gpu.type}]", gpu.min, 1, gpu.type, gpu=True)


SCALE_DOWN_DISABLED: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
"""Node annotation with upstream's name. The value "true" excludes the node from scale-down."""


class Eligibility:
    """Evaluates the conditions for removing a node, except those that depend on other planned removals.

    Args:
        spec: spec of the ClusterAutoscaler.
        groups: the node groups of the snapshot.
        utilization: the utilization of the nodes.
        replacing: the replacements in progress. Replaced nodes may be removed regardless of their utilization, and
            their replacements are kept.
    """

    def __init__(
        self,
        spec: ClusterAutoscalerSpec,
        groups: Groups,
        utilization: Utilization,
        replacing: ReplacementState = NO_REPLACEMENTS,
    ) -> None:
        self._spec = spec
        self._replacing = replacing
        self._groups = groups
        self._utilization = utilization
        self.machines = {machine.node: machine for group in groups.all for machine in group.machines if machine.node}
        """The machine of each node that belongs to a group, by node name."""
        self._unconfirmed = {
            machine.unconfirmed_node: group
            for group in groups.all
            for machine in group.machines
            if machine.unconfirmed_node
        }

    def refusal(self, node: Node, slot: int) -> Refusal | None:
        """Return the reason why the node is kept regardless of other removals, or ``None`` if it may be removed."""
        if not self._spec.scaling_down.enabled:
            return Refusal(reasons.SCALE_DOWN_DISABLED, "spec.scaleDown.enabled is false")
        planned_removals = self.removal_in_progress(node)
        if planned_removals:
            return Refusal(reasons.CURRENTLY_BEING_DELETED, planned_removals)
        if node.annotations.get(SCALE_DOWN_DISABLED) == "true":
            message = f"the node's annotation {SCALE_DOWN_DISABLED} is true"
            return Refusal(reasons.SCALE_DOWN_DISABLED_ANNOTATION, message)
        group = self._groups.group_of(node.name)
        if group is None:
            return self._not_autoscaled(node)
        if group.paused:
            message = f"{group.kind} {group.key} is paused: {group.paused}"
            return Refusal(reasons.GROUP_PAUSED, message)
        if node.name in self._replacing.new:
            return Refusal(reasons.REPLACEMENT_IN_PROGRESS, "it replaces nodes that have not been removed yet")
        return None if node.name in self._replacing.old else self._utilization_refusal(group, slot)

    def _not_autoscaled(self, node: Node) -> Refusal:
        message = "the node belongs to no autoscaled node group"
        seeming = self._unconfirmed.get(node.name)
        if seeming is not None:
            owner = f"{seeming.kind} {seeming.key}"
            message += f": {owner} may own it, but neither a UID nor an annotation on the node confirms this"
        return Refusal(reasons.NOT_AUTOSCALED, message)

    def removal_in_progress(self, node: Node) -> str:
        """Return the reason why the node is treated as already being removed; empty if it is not."""
        if node.deleted is not None:
            return "the node is being deleted"
        if any(taint.key == TO_BE_DELETED for taint in node.taints):
            return f"the node has the taint {TO_BE_DELETED}"
        machine: GroupMachine | None = self.machines.get(node.name)
        if machine is None or (machine.state is not MachineState.DELETING and not machine.marked):
            return ""
        return f"its machine {machine.key} is {'being deleted' if not machine.marked else 'marked for deletion'}"

    def _utilization_refusal(self, group: NodeGroup, slot: int) -> Refusal | None:
        used = self._utilization
        threshold = threshold_of(self._spec, group.options, gpu=used.on_gpus(slot))
        if used.of(slot) <= threshold:
            return None
        return Refusal(reasons.NOT_UNDERUTILIZED, f"{used.describe(slot)}; the threshold is {percent(threshold)}")


class UnneededPeriod(Struct, frozen=True):
    """When a node became unneeded, and how long it must have been unneeded before it is removed.

    Attributes:
        since: when the node became unneeded, in seconds since the epoch; ``None`` if this is not stored.
        needed: the seconds for which the node must have been unneeded.
    """

    since: float | None
    needed: float

    def is_over(self, now: float) -> bool:
        """Return whether the node has been unneeded for long enough."""
        return self.since is not None and now - self.since >= self.needed


class UnneededTimes:
    """Determines how long nodes must be unneeded before they are removed.

    Args:
        down: ``scaleDown`` of the ClusterAutoscaler. Its durations are parsed only once, because there may be thousands
            of nodes.
    """

    def __init__(self, down: ScaleDown) -> None:
        self._unneeded = down.unneeded_seconds
        self._unready = down.unready_seconds

    def of(self, node: Node, group: NodeGroup, record: float | None) -> UnneededPeriod:
        """Return the unneeded period of a node.

        A node that is not ready must have been both not ready and unneeded for ``unreadyTime``.
        """
        options = group.options
        if not unready(node):
            own = options.unneeded_seconds
            return UnneededPeriod(record, self._unneeded if own is None else own)
        own = options.unready_seconds
        since = next((each.since for each in node.conditions if each.type == "Ready"), None)
        both = record if record is None or since is None else max(record, since)
        return UnneededPeriod(both, self._unready if own is None else own)


def unready(node: Node) -> bool:
    """Return whether the node's Ready condition is not True. A node without the condition is treated as ready."""
    return any(each.type == "Ready" and each.status != "True" for each in node.conditions)


def not_long_enough(node: Node, waiting: UnneededPeriod, *, now: float) -> Refusal:
    """Return the reason why an unneeded node is kept for now."""
    reason = reasons.NOT_UNREADY_LONG_ENOUGH if unready(node) else reasons.NOT_UNNEEDED_LONG_ENOUGH
    what = "unready and unneeded" if unready(node) else "unneeded"
    if waiting.since is None:
        message = f"{what} now, but not in the last iteration (required: {waiting.needed:.10g}s)"
    elif waiting.since > now:
        message = f"{what}, but its recorded time is {elapsed(waiting.since - now)} in the future"
    else:
        message = f"{what} for {elapsed(now - waiting.since)} (required: {waiting.needed:.10g}s)"
    return Refusal(reason, message)


def elapsed(seconds: float) -> str:
    """Format a duration in whole seconds, rounded down, so that an unfinished period is not displayed as finished."""
    return f"{int(seconds)}s"


def scale_down_delay(spec: ClusterAutoscalerSpec, status: ClusterAutoscalerStatus, *, now: float) -> Refusal | None:
    """Return the reason why a recent scale-up, removal or failed removal still delays removals, or ``None``."""
    down = spec.scaling_down
    for what, field, reason, time, seconds in (
        (
            "nodes were added",
            "delayAfterAdd",
            reasons.DELAY_AFTER_ADD,
            status.last_scale_up,
            down.delay_after_add_seconds,
        ),
        (
            "a node was removed",
            "delayAfterDelete",
            reasons.DELAY_AFTER_DELETE,
            status.last_scale_down,
            down.delay_after_delete_seconds,
        ),
        (
            "removing a node failed",
            "delayAfterFailure",
            reasons.DELAY_AFTER_FAILURE,
            status.last_scale_down_failure,
            down.delay_after_failure_seconds,
        ),
    ):
        if time is not None and now - time.timestamp() < seconds:
            message = f"{what} {elapsed(max(0.0, now - time.timestamp()))} ago, and {field} is {seconds:.10g}s"
            return Refusal(reason, message)
    return None


ANNOTATION_HOLDS: Final = frozenset({reasons.NOT_SAFE_TO_EVICT_ANNOTATION, reasons.BLOCKED_BY_ON_COMPLETION_POD})
"""Reasons of drain rules that no longer block a removal after ``maxHold``."""


def held_too_long(held: Mapping[str, float], spec: ClusterAutoscalerSpec, *, now: float) -> frozenset[str]:
    """Return the names of nodes that pods have protected from removal for ``maxHold`` or longer.

    The result is empty if ``maxHold`` is not set. A pod protects its node if the only obstacle to the removal is an
    annotation of the pod, or a PodDisruptionBudget that allows no disruptions. The status of the ClusterAutoscaler
    stores when this began. The time is kept as long as the node is a removal candidate, so changing the annotation or
    replacing the pod does not start a new period. Users of the cluster cannot write the status.

    After ``maxHold``, annotations no longer block the removal. PodDisruptionBudgets still do; a node that they block
    for longer is kept with the reason HeldTooLong, so that an administrator can act.

    Args:
        held: for each blocked node, when its removal became blocked, in seconds since the epoch.
        spec: spec of the ClusterAutoscaler.
        now: the current time in seconds since the epoch.
    """
    longest = spec.scaling_down.max_hold_seconds
    if longest is None:
        return frozenset()
    return frozenset(name for name, since in held.items() if now - since >= longest)
