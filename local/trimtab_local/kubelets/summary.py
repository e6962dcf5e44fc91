"""Computes what a kubelet measures, and what it does about it: its Summary API response, and the pod that it kills.

The field names are those of kubelet/pkg/apis/stats/v1alpha1. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct

from trimtab.api.node_pressure_policy import (
    ALLOCATABLE_MEMORY_AVAILABLE,
    IMAGEFS_AVAILABLE,
    IMAGEFS_INODES_FREE,
    MEMORY_AVAILABLE,
    NODEFS_AVAILABLE,
    NODEFS_INODES_FREE,
    PID_AVAILABLE,
    ThresholdValue,
)
from trimtab.kube.objects import Node, Pod
from trimtab.kube.rules.quantity import amount, format_amount
from trimtab_local.kubelets.scenario import Disk, PodEntry, Scenario

CONDITIONS: Final = {
    MEMORY_AVAILABLE: "MemoryPressure",
    ALLOCATABLE_MEMORY_AVAILABLE: "MemoryPressure",
    NODEFS_AVAILABLE: "DiskPressure",
    NODEFS_INODES_FREE: "DiskPressure",
    IMAGEFS_AVAILABLE: "DiskPressure",
    IMAGEFS_INODES_FREE: "DiskPressure",
    PID_AVAILABLE: "PIDPressure",
}
_CRITICAL: Final = 2_000_000_000
"""The priority from which on the kubelet does not kill pods."""
_MIRROR: Final = "kubernetes.io/config.mirror"


class PodUse(Struct, frozen=True):
    """The usage of a pod, in bytes, inodes and processes."""

    pod: Pod
    memory: int
    root: int
    logs: int
    volumes: int
    root_inodes: int
    volume_inodes: int
    processes: int

    @classmethod
    def of(cls, pod: Pod, entry: PodEntry, now: float) -> PodUse:
        """Return the usage of a pod at a time."""
        created = pod.created or now
        return cls(
            pod=pod,
            memory=entry.memory.at(now, created=created),
            root=entry.root.at(now, created=created),
            logs=entry.logs.at(now, created=created),
            volumes=entry.volumes.at(now, created=created),
            root_inodes=entry.root_inodes.at(now, created=created),
            volume_inodes=entry.volume_inodes.at(now, created=created),
            processes=entry.processes.at(now, created=created),
        )


class FileSystem(Struct, frozen=True):
    """A file system: bytes and inodes, their totals and how many are used."""

    capacity: int
    used: int
    inodes: int
    inodes_used: int

    @property
    def available(self) -> int:
        """Return the free bytes."""
        return max(0, self.capacity - self.used)

    @property
    def inodes_free(self) -> int:
        """Return the free inodes."""
        return max(0, self.inodes - self.inodes_used)


class Measurement(Struct, frozen=True):
    """What the kubelet of a node measured at ``at``, in seconds since the epoch."""

    node: str
    at: float
    memory: int
    memory_used: int
    nodefs: FileSystem
    imagefs: FileSystem | None
    processes: int
    processes_used: int
    pressure: int | None
    pods: tuple[PodUse, ...]

    @property
    def memory_available(self) -> int:
        """Return the bytes of memory that are not in a working set."""
        return max(0, self.memory - self.memory_used)

    def signals(self) -> dict[str, tuple[int, int]]:
        """Return what is available and the capacity, by eviction signal."""
        images = self.imagefs or self.nodefs
        pods = sum(use.memory for use in self.pods)
        return {
            MEMORY_AVAILABLE: (self.memory_available, self.memory),
            ALLOCATABLE_MEMORY_AVAILABLE: (max(0, self.memory - pods), self.memory),
            NODEFS_AVAILABLE: (self.nodefs.available, self.nodefs.capacity),
            NODEFS_INODES_FREE: (self.nodefs.inodes_free, self.nodefs.inodes),
            IMAGEFS_AVAILABLE: (images.available, images.capacity),
            IMAGEFS_INODES_FREE: (images.inodes_free, images.inodes),
            PID_AVAILABLE: (max(0, self.processes - self.processes_used), self.processes),
        }


def measure(node: Node, pods: Iterable[Pod], scenario: Scenario, now: float) -> Measurement:
    """Return what the kubelet of a node measures.

    Args:
        node: the node.
        pods: the pods on the node. Terminated pods use nothing.
        scenario: the scenario.
        now: seconds since the epoch.
    """
    entry = scenario.node(node)
    uses = tuple(PodUse.of(pod, scenario.pod(pod, node), now) for pod in pods if not pod.terminal)
    created = node.created or now
    capacity = entry.memory.capacity
    layers = sum(use.root for use in uses), sum(use.root_inodes for use in uses)
    volumes = sum(use.logs + use.volumes for use in uses), sum(use.volume_inodes for use in uses)
    together = layers[0] + volumes[0], layers[1] + volumes[1]
    return Measurement(
        node=node.name,
        at=now,
        memory=node.capacity.get("memory", 0) if capacity is None else amount(capacity),
        memory_used=entry.memory.used.at(now, created=created) + sum(use.memory for use in uses),
        nodefs=_file_system(entry.nodefs, volumes if entry.imagefs is not None else together, now, created),
        imagefs=None if entry.imagefs is None else _file_system(entry.imagefs, layers, now, created),
        processes=amount(entry.processes.capacity),
        processes_used=entry.processes.used.at(now, created=created) + sum(use.processes for use in uses),
        pressure=None if entry.memory.pressure is None else entry.memory.pressure.at(now, created=created),
        pods=uses,
    )


def _file_system(disk: Disk, pods: tuple[int, int], now: float, created: float) -> FileSystem:
    return FileSystem(
        capacity=amount(disk.capacity),
        used=disk.used.at(now, created=created) + pods[0],
        inodes=amount(disk.inodes),
        inodes_used=disk.inodes_used.at(now, created=created) + pods[1],
    )


def summary_of(measured: Measurement, *, only_cpu_and_memory: bool = False) -> dict[str, Any]:
    """Return the response of ``/stats/summary``.

    Args:
        measured: the measurement.
        only_cpu_and_memory: whether the request has the parameter ``only_cpu_and_memory=true``.
    """
    at = rfc3339(measured.at)
    memory = {
        "time": at,
        "availableBytes": measured.memory_available,
        "usageBytes": measured.memory_used,
        "workingSetBytes": measured.memory_used,
        "rssBytes": measured.memory_used,
        "pageFaults": 0,
        "majorPageFaults": 0,
    }
    if measured.pressure is not None:
        averages = dict.fromkeys(("avg10", "avg60", "avg300"), float(measured.pressure)) | {"total": 0}
        memory["psi"] = {"full": averages, "some": averages}
    pods_used = sum(use.memory for use in measured.pods)
    node: dict[str, Any] = {
        "nodeName": measured.node,
        "systemContainers": [
            {
                "name": "pods",
                "startTime": at,
                "cpu": _cpu(at),
                "memory": {
                    "time": at,
                    "availableBytes": max(0, measured.memory - pods_used),
                    "usageBytes": pods_used,
                    "workingSetBytes": pods_used,
                },
            }
        ],
        "startTime": at,
        "cpu": _cpu(at),
        "memory": memory,
    }
    if not only_cpu_and_memory:
        images = measured.imagefs or measured.nodefs
        node |= {
            "fs": _fs_json(measured.nodefs, at),
            "runtime": {"imageFs": _fs_json(images, at), "containerFs": _fs_json(images, at)},
            "rlimit": {"time": at, "maxpid": measured.processes, "curproc": measured.processes_used},
        }
    return {"node": node, "pods": [_pod_json(use, at, only_cpu_and_memory) for use in measured.pods]}


def _cpu(at: str) -> dict[str, Any]:
    return {"time": at, "usageNanoCores": 1_000_000, "usageCoreNanoSeconds": 1_000_000}


def _fs_json(system: FileSystem, at: str) -> dict[str, Any]:
    return {
        "time": at,
        "availableBytes": system.available,
        "capacityBytes": system.capacity,
        "usedBytes": system.used,
        "inodesFree": system.inodes_free,
        "inodes": system.inodes,
        "inodesUsed": system.inodes_used,
    }


def _pod_json(use: PodUse, at: str, only_cpu_and_memory: bool) -> dict[str, Any]:
    pod = use.pod
    working = {"time": at, "usageBytes": use.memory, "workingSetBytes": use.memory}
    container: dict[str, Any] = {"name": "main", "startTime": at, "cpu": _cpu(at), "memory": working}
    found: dict[str, Any] = {
        "podRef": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "startTime": at,
        "containers": [container],
        "cpu": _cpu(at),
        "memory": working,
    }
    if only_cpu_and_memory:
        return found
    container["rootfs"] = {"time": at, "usedBytes": use.root, "inodesUsed": use.root_inodes}
    container["logs"] = {"time": at, "usedBytes": use.logs, "inodesUsed": 0}
    volume = {"time": at, "usedBytes": use.volumes, "inodesUsed": use.volume_inodes, "name": "scratch"}
    return found | {
        "volume": [volume],
        "ephemeral-storage": {
            "time": at,
            "usedBytes": use.root + use.logs + use.volumes,
            "inodesUsed": use.root_inodes + use.volume_inodes,
        },
        "process_stats": {"process_count": use.processes},
    }


def rfc3339(seconds: float) -> str:
    """Format a time as the kubelet does: RFC 3339 in seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Crossed(Struct, frozen=True):
    """A hard threshold of a kubelet that is met: less than ``limit`` is available."""

    signal: str
    available: int
    limit: int

    @property
    def condition(self) -> str:
        """Return the node condition."""
        return CONDITIONS[self.signal]

    @property
    def resource(self) -> str:
        """Return the name of the resource in the kubelet's messages."""
        if self.condition == "MemoryPressure":
            return "memory"
        if self.signal == PID_AVAILABLE:
            return "pids"
        return "inodes" if self.signal.endswith("inodesFree") else "ephemeral-storage"


def crossed(measured: Measurement, thresholds: Mapping[str, ThresholdValue]) -> list[Crossed]:
    """Return the thresholds that are met, in the order of ``thresholds``."""
    signals = measured.signals()
    found = []
    for signal, value in thresholds.items():
        available, capacity = signals.get(signal, (0, 0))
        if capacity and available < value.of(capacity):
            found.append(Crossed(signal, available, value.of(capacity)))
    return found


def victim_of(measured: Measurement, threshold: Crossed) -> PodUse | None:
    """Return the pod that the kubelet kills for a threshold, or ``None`` if it may kill none.

    Pods that use more than they request come first, then those with a lower priority, then those with a larger usage
    above the request. Mirror pods and critical pods are never killed.
    """
    able = [
        use
        for use in measured.pods
        if use.pod.priority < _CRITICAL and _MIRROR not in use.pod.annotations and use.pod.deleted is None
    ]
    return min(able, key=lambda use: _rank(use, threshold, dedicated=measured.imagefs is not None), default=None)


def _rank(use: PodUse, threshold: Crossed, *, dedicated: bool) -> tuple[bool, int, int]:
    used, request = _usage(use, threshold, dedicated=dedicated), 0
    if threshold.resource in ("memory", "ephemeral-storage"):
        request = use.pod.spec.requests.get(threshold.resource, 0)
    return used <= request, use.pod.priority, request - used


def _usage(use: PodUse, threshold: Crossed, *, dedicated: bool) -> int:
    if threshold.resource == "memory":
        return use.memory
    if threshold.resource == "pids":
        return use.processes
    images = threshold.signal.startswith("imagefs")
    layers, others = (
        (use.root_inodes, use.volume_inodes) if threshold.resource == "inodes" else (use.root, use.logs + use.volumes)
    )
    return layers + others if not dedicated else layers if images else others


def killed_status(use: PodUse, threshold: Crossed, now: float) -> dict[str, Any]:
    """Return the status that the kubelet writes for a pod that it kills."""
    name = "memory" if threshold.resource == "memory" else ""
    message = (
        f"The node was low on resource: {threshold.resource}. Threshold quantity: "
        f"{format_amount(name, threshold.limit)}, available: {format_amount(name, threshold.available)}. "
    )
    if threshold.resource == "memory":
        request = format_amount("memory", use.pod.spec.requests.get("memory", 0))
        message += (
            f"Container main was using {format_amount('memory', use.memory)}, request is {request}, has larger "
            "consumption of memory. "
        )
    disrupted = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "TerminationByKubelet",
        "message": message,
        "lastTransitionTime": rfc3339(now),
    }
    return {"phase": "Failed", "reason": "Evicted", "message": message, "conditions": [disrupted]}


def condition(type_: str, *, met: bool, now: float) -> dict[str, str]:
    """Return a pressure condition of a node as the kubelet writes it."""
    reasons = {
        "MemoryPressure": ("KubeletHasInsufficientMemory", "KubeletHasSufficientMemory"),
        "DiskPressure": ("KubeletHasDiskPressure", "KubeletHasNoDiskPressure"),
        "PIDPressure": ("KubeletHasInsufficientPID", "KubeletHasSufficientPID"),
    }
    return {
        "type": type_,
        "status": "True" if met else "False",
        "reason": reasons[type_][0 if met else 1],
        "lastHeartbeatTime": rfc3339(now),
        "lastTransitionTime": rfc3339(now),
    }
