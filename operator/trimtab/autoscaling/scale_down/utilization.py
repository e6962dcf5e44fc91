"""How much of a node its pods request, as upstream reckons it: what real use is plays no part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.groups import GroupOptions
from trimtab.autoscaling.scale_down.drainability.daemon_set import of_daemon_set
from trimtab.autoscaling.scale_down.drainability.long_terminating import long_terminating
from trimtab.cluster.resources import CPU, MEMORY, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.protections.mirror_pod import ANNOTATION as MIRROR
from trimtab.kube.objects import Node, Pod

ACCELERATOR: Final = "cluster-api/accelerator"
"""On nodes that have GPUs, or will have them once their driver is ready."""

FloatArray = npt.NDArray[np.float64]


class Utilization(Struct, frozen=True, eq=False):
    """What is requested of what is allocatable, node by node.

    Attributes:
        cpu: float64, shape (capacity,): a share; infinite where nothing is allocatable and something requested.
        memory: the same.
        gpu: the same of GPUs, 0 where they are not ready; not a number on nodes without any.
    """

    cpu: FloatArray
    memory: FloatArray
    gpu: FloatArray

    def of(self, slot: int) -> float:
        """What is compared with the threshold: of a node with GPUs only these, else the larger of cpu and memory."""
        gpu = float(self.gpu[slot])
        return max(float(self.cpu[slot]), float(self.memory[slot])) if np.isnan(gpu) else gpu

    def on_gpus(self, slot: int) -> bool:
        """Whether the node has GPUs."""
        return not np.isnan(self.gpu[slot])

    def told(self, slot: int) -> str:
        """The same in words."""
        if self.on_gpus(slot):
            return f"requested of what is allocatable: {percent(self.gpu[slot])} of gpus"
        return f"requested of what is allocatable: cpu {percent(self.cpu[slot])}, memory {percent(self.memory[slot])}"


def percent(share: float) -> str:
    """A share as people read it, not rounded to a threshold that it is not at."""
    return f"{100 * float(share):.6g}%"


def threshold_of(spec: ClusterAutoscalerSpec, options: GroupOptions, *, gpu: bool) -> float:
    """The threshold that a node of a group is compared with: the group's own, else the ClusterAutoscaler's."""
    down = spec.scaling_down
    if gpu:
        own = options.gpu_utilization_threshold
        return down.gpu_threshold if own is None else own
    own = options.utilization_threshold
    return down.threshold if own is None else own


def utilization(snapshot: Snapshot, spec: ClusterAutoscalerSpec, *, now: float) -> Utilization:
    """The utilization of every node.

    Pods count that keep nodes: not those below ``podPriorityThreshold``, nor those that should have ended long ago.
    Pods of DaemonSets count unless ``ignoreDaemonsetsUtilization``, mirror pods unless ``ignoreMirrorPodsUtilization``;
    then neither they nor what they take of a node do.
    """
    nodes = snapshot.nodes
    have, want = nodes.allocatable.copy(), nodes.requested.copy()
    lesser = spec.pod_priority_threshold
    left_out: defaultdict[int, list[Pod]] = defaultdict(list)
    few = [pod for pod in snapshot.pods.values() if pod.deleted is not None or pod.priority < lesser]
    for pod in few:
        slot = None if pod.terminal else snapshot.slot(pod)
        if slot is not None and (pod.priority < lesser or long_terminating(pod, now=now)):
            left_out[slot].append(pod)
    for slot, pods in left_out.items():
        for pod in pods:
            want[slot] -= snapshot.row(pod.spec)
    for pod, slot in _ignored(snapshot, spec):
        row = snapshot.row(pod.spec)
        have[slot] -= row
        if pod not in left_out.get(slot, ()):
            want[slot] -= row
    return Utilization(
        cpu=_share(want[:, CPU], have[:, CPU]),
        memory=_share(want[:, MEMORY], have[:, MEMORY]),
        gpu=_gpus(snapshot, have, want, gpu_types(spec)),
    )


def gpu_types(spec: ClusterAutoscalerSpec) -> frozenset[str]:
    """Names of resources that are GPUs, beside all that end in ``/gpu``."""
    return frozenset(gpu.type for gpu in spec.resource_limits.gpus if "/" in gpu.type)


def has_gpus(node: Node, types: frozenset[str]) -> bool:
    """Whether a node has GPUs, ready or not."""
    if ACCELERATOR in node.labels:
        return True
    return any(
        amount > 0 and (name.endswith("/gpu") or name in types)
        for amounts in (node.capacity, node.allocatable)
        for name, amount in amounts.items()
    )


def _ignored(snapshot: Snapshot, spec: ClusterAutoscalerSpec) -> Iterator[tuple[Pod, int]]:
    """Pods that come with a node and are not to count, with the slots of their nodes."""
    daemons, mirrors = spec.ignore_daemonsets_utilization, spec.ignore_mirror_pods_utilization
    if not daemons and not mirrors:
        return
    for pod in snapshot.pods.values():
        if not pod.node or pod.terminal:
            continue
        if (daemons and of_daemon_set(pod)) or (mirrors and MIRROR in pod.annotations):
            slot = snapshot.slot(pod)
            if slot is not None:
                yield pod, slot


def _share(want: IntArray, have: IntArray) -> FloatArray:
    share: FloatArray = np.where(want > 0, np.inf, 0.0)
    np.divide(want, have, out=share, where=have > 0)
    return share


def _gpus(snapshot: Snapshot, have: IntArray, want: IntArray, types: frozenset[str]) -> FloatArray:
    nodes = snapshot.nodes
    share: FloatArray = np.full(nodes.capacity, np.nan)
    columns = [column for name, column in nodes.axis.column.items() if name.endswith("/gpu") or name in types]
    for slot in nodes.slot_of.values():
        if has_gpus(nodes.node(slot), types):
            of_each = [float(want[slot, column] / have[slot, column]) for column in columns if have[slot, column] > 0]
            share[slot] = max(of_each, default=0.0)
    return share
