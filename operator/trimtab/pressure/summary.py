"""Builds measurements from a kubelet's Summary API (``/stats/summary``, ``k8s.io/kubelet/pkg/apis/stats/v1alpha1``).

The signals are computed as by the kubelet (``makeSignalObservations`` in ``pkg/kubelet/eviction/helpers.go``). A node
may be compromised, so nothing in a summary is trusted: a value that cannot be right is left out and reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Raw, Struct, field

from trimtab.api.node_pressure_policy import (
    ALLOCATABLE_MEMORY_AVAILABLE,
    CONTAINERFS_AVAILABLE,
    CONTAINERFS_INODES_FREE,
    IMAGEFS_AVAILABLE,
    IMAGEFS_INODES_FREE,
    MEMORY_AVAILABLE,
    NODEFS_AVAILABLE,
    NODEFS_INODES_FREE,
    PID_AVAILABLE,
)
from trimtab.pressure.measurement import MemoryStallTimes, NodeMeasurement, PodUsage, SignalValue
from trimtab.pressure.thresholds import MEMORY_STALL

LARGEST: Final = 2**60
"""Bytes, inodes or PIDs above which a value is implausible: an exbibyte."""

SAME_FILE_SYSTEM: Final = 0.01
"""Share of the capacity by which two readings of one file system may differ, because the kubelet reads them at
different times."""

LARGE: Final = 256 * 2**10
MAX_COMMAS: Final = 200_000
"""Maximum number of commas in a response above :data:`LARGE` bytes. The summary of 500 pods has about 40,000. A million
small values would block the event loop for half a second."""

MAX_PODS: Final = 2000
"""Number of pods above which none of them is decoded."""

PODS_CONTAINER: Final = "pods"
"""The name of the system container that contains all pods (``SystemContainerPods``)."""

_NULL: Final = Raw(b"null")
_Time = Annotated[datetime, Meta(tz=True)]


class InvalidSummary(ValueError):
    """The response is not the summary of the node. The message contains the reason."""


class _Stall(Struct, frozen=True, gc=False):
    avg10: float = 0.0
    avg60: float = 0.0
    avg300: float = 0.0


class _Psi(Struct, frozen=True, gc=False):
    full: _Stall | None = None


class _Memory(Struct, frozen=True, gc=False, rename="camel"):
    time: _Time | None = None
    available_bytes: int | None = None
    working_set_bytes: int | None = None
    psi: _Psi | None = None


class _FileSystem(Struct, frozen=True, gc=False, rename="camel"):
    time: _Time | None = None
    available_bytes: int | None = None
    capacity_bytes: int | None = None
    inodes_free: int | None = None
    inodes: int | None = None


class _Limits(Struct, frozen=True, gc=False):
    time: _Time | None = None
    maxpid: int | None = None
    curproc: int | None = None


class _Runtime(Struct, frozen=True, gc=False, rename="camel"):
    image_fs: _FileSystem | None = None
    container_fs: _FileSystem | None = None


class _SystemContainer(Struct, frozen=True, gc=False):
    name: str = ""
    memory: _Memory | None = None


class _Node(Struct, frozen=True, gc=False, rename="camel"):
    node_name: str
    system_containers: list[_SystemContainer] | None = None
    memory: _Memory | None = None
    fs: _FileSystem | None = None
    runtime: _Runtime | None = None
    rlimit: _Limits | None = None


class _Summary(Struct, frozen=True, gc=False):
    node: _Node
    pods: Raw = _NULL


class _Used(Struct, frozen=True, gc=False, rename="camel"):
    used_bytes: int | None = None
    inodes_used: int | None = None


class _Volume(_Used, frozen=True, gc=False):
    pvc_ref: Raw = field(name="pvcRef", default=_NULL)


class _Container(Struct, frozen=True, gc=False):
    rootfs: _Used | None = None
    logs: _Used | None = None


class _Processes(Struct, frozen=True, gc=False):
    process_count: int | None = None


class _PodReference(Struct, frozen=True, gc=False):
    name: str
    namespace: str
    uid: str


class _Pod(Struct, frozen=True, gc=False):
    pod_ref: _PodReference = field(name="podRef")
    containers: list[_Container] | None = None
    memory: _Memory | None = None
    volume: list[_Volume] | None = None
    ephemeral_storage: _Used | None = field(name="ephemeral-storage", default=None)
    process_stats: _Processes | None = None


_SUMMARY: Final = msgspec.json.Decoder(_Summary)
_PODS: Final = msgspec.json.Decoder(list[Raw] | None)
_POD: Final = msgspec.json.Decoder(_Pod)


def read_summary(body: bytes, *, node: str, read_at: float) -> NodeMeasurement:
    """Build the measurement of a node from the response of its kubelet.

    Args:
        body: the response, as JSON.
        node: the name of the node whose kubelet was asked.
        read_at: the current time in seconds since the epoch.

    Raises:
        InvalidSummary: the response is not a summary, or that of another node.
    """
    if len(body) > LARGE and body.count(b",") > MAX_COMMAS:
        raise InvalidSummary(f"the response has more than {MAX_COMMAS} values")
    try:
        summary = _SUMMARY.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidSummary(f"the response is not a summary: {error}") from error
    found = summary.node
    if found.node_name != node:
        raise InvalidSummary(f"the response is the summary of another node, {found.node_name[:253]!r}")
    signals = _Signals()
    stall = _read_memory(signals, found)
    runtime = found.runtime or _Runtime()
    signals.add_file_system(NODEFS_AVAILABLE, NODEFS_INODES_FREE, found.fs)
    signals.add_file_system(IMAGEFS_AVAILABLE, IMAGEFS_INODES_FREE, runtime.image_fs)
    signals.add_file_system(CONTAINERFS_AVAILABLE, CONTAINERFS_INODES_FREE, runtime.container_fs)
    limits = found.rlimit
    if limits is not None and limits.maxpid is not None and limits.curproc is not None:
        signals.add(PID_AVAILABLE, limits.maxpid - limits.curproc, limits.maxpid, limits.time)
    dedicated = _are_different(found.fs, runtime.image_fs)
    return NodeMeasurement(
        node=node,
        source="Summary",
        read_at=read_at,
        signals=signals.values,
        pods=_LazyPods(summary.pods),
        memory_stall=stall,
        dedicated_image_fs=dedicated,
        split_image_fs=dedicated
        and runtime.container_fs is not None
        and not _are_different(found.fs, runtime.container_fs),
        problems=signals.problems,
    )


class _Signals:
    """Collects the plausible values of signals, and the problems of the others."""

    def __init__(self) -> None:
        self.values: dict[str, SignalValue] = {}
        self.problems: dict[str, str] = {}

    def add(self, signal: str, available: int, capacity: int, time: datetime | None) -> None:
        if 0 <= available <= capacity <= LARGEST:
            self.values[signal] = SignalValue(available, capacity, None if time is None else time.timestamp())
        else:
            self.problems[signal] = f"implausible: {_shown(available)} of {_shown(capacity)} are available"

    def add_file_system(self, bytes_signal: str, inodes_signal: str, found: _FileSystem | None) -> None:
        if found is None:
            return
        if found.available_bytes is not None and found.capacity_bytes is not None:
            self.add(bytes_signal, found.available_bytes, found.capacity_bytes, found.time)
        # Btrfs and others allocate inodes dynamically, and report 0 of 0.
        if found.inodes_free is not None and found.inodes is not None and (found.inodes or found.inodes_free):
            self.add(inodes_signal, found.inodes_free, found.inodes, found.time)


def _shown(value: int) -> str:
    return str(value) if abs(value) < 2**64 else "a number of more than 64 bits"


def _read_memory(signals: _Signals, node: _Node) -> MemoryStallTimes | None:
    memory = node.memory
    if memory is not None and memory.available_bytes is not None and memory.working_set_bytes is not None:
        if memory.working_set_bytes > 0:
            signals.add(
                MEMORY_AVAILABLE,
                memory.available_bytes,
                memory.available_bytes + memory.working_set_bytes,
                memory.time,
            )
        else:  # cAdvisor reports 0 if it fails to read the cgroup
            signals.problems[MEMORY_AVAILABLE] = (
                f"implausible: a working set of {_shown(memory.working_set_bytes)} bytes"
            )
    for each in node.system_containers or ():
        pods = each.memory
        if each.name == PODS_CONTAINER and pods is not None:
            if pods.available_bytes is not None and pods.working_set_bytes is not None:
                capacity = pods.available_bytes + pods.working_set_bytes
                signals.add(ALLOCATABLE_MEMORY_AVAILABLE, pods.available_bytes, capacity, pods.time)
            break
    stall = memory.psi.full if memory is not None and memory.psi is not None else None
    if stall is None:
        return None
    if not all(0.0 <= share <= 100.0 for share in (stall.avg10, stall.avg60, stall.avg300)):
        signals.problems[MEMORY_STALL] = f"implausible: {stall.avg10}, {stall.avg60} and {stall.avg300} percent"
        return None
    return MemoryStallTimes(stall.avg10, stall.avg60, stall.avg300)


def _are_different(node: _FileSystem | None, images: _FileSystem | None) -> bool:
    """Return whether images are on another file system than the kubelet's volumes.

    A summary does not identify file systems (the kubelet compares their devices), so their sizes are compared.
    """
    if node is None or images is None or node.capacity_bytes is None or images.capacity_bytes is None:
        return False
    if (node.capacity_bytes, node.inodes) != (images.capacity_bytes, images.inodes):
        return True
    return _differ(node.available_bytes, images.available_bytes, node.capacity_bytes) or _differ(
        node.inodes_free, images.inodes_free, node.inodes or 0
    )


def _differ(one: int | None, other: int | None, capacity: int) -> bool:
    return one is not None and other is not None and abs(one - other) > SAME_FILE_SYSTEM * capacity


class _LazyPods:
    """Returns the usage of a node's pods. The JSON is decoded at the first call."""

    __slots__ = ("_raw", "_usage")

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self._usage: Mapping[str, PodUsage] | None = None

    def __call__(self) -> Mapping[str, PodUsage]:
        if self._usage is None:
            self._usage, self._raw = _pods(self._raw), _NULL
        return self._usage


def no_pods() -> Mapping[str, PodUsage]:
    """Return nothing, in place of the pods of a measurement whose pods were not needed.

    Raises:
        LookupError: always, because pods without a usage would be the first ones to evict.
    """
    raise LookupError("the usage of this node's pods was not kept, because no threshold was met")


def _pods(raw: Raw) -> Mapping[str, PodUsage]:
    """Decode the usage of pods. Invalid entries are skipped, as if the kubelet had no stats of the pod."""
    try:
        entries = _PODS.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    usage: dict[str, PodUsage] = {}
    if entries is not None and len(entries) > MAX_PODS:
        return usage
    for entry in entries or ():
        try:
            pod = _POD.decode(entry)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        usage[f"{pod.pod_ref.namespace}/{pod.pod_ref.name}"] = _pod_usage(pod)
    return usage


def _pod_usage(pod: _Pod) -> PodUsage:
    containers = pod.containers or ()
    root = _total(container.rootfs for container in containers)
    logs = _total(container.logs for container in containers)
    volumes = _total(volume for volume in pod.volume or () if volume.pvc_ref == _NULL)
    all_local = pod.ephemeral_storage or _Used()
    return PodUsage(
        uid=pod.pod_ref.uid,
        memory=_plausible(pod.memory.working_set_bytes) if pod.memory is not None else None,
        logs=logs.used_bytes,
        local_volumes=_local(volumes.used_bytes, all_local.used_bytes, root.used_bytes, logs.used_bytes),
        root=root.used_bytes,
        logs_inodes=logs.inodes_used,
        local_volumes_inodes=_local(volumes.inodes_used, all_local.inodes_used, root.inodes_used, logs.inodes_used),
        root_inodes=root.inodes_used,
        processes=_plausible(pod.process_stats.process_count) if pod.process_stats is not None else None,
    )


def _local(volumes: int | None, total: int | None, root: int | None, logs: int | None) -> int | None:
    """Return the usage of a pod's local volumes on disk.

    A summary lists volumes in memory (Secrets, tokens, emptyDir with medium Memory) like those on disk, but counts only
    those on disk in ``ephemeral-storage``. That also contains writable layers, and logs.
    """
    total = _plausible(total)
    if volumes is None or total is None:
        return volumes
    return min(volumes, max(0, total - (root or 0) - (logs or 0)))


def _total(parts: Iterable[_Used | None]) -> _Used:
    """Add up usages. A sum is ``None`` if no part has a value."""
    used = inodes = None
    for part in parts:
        if part is None:
            continue
        more_used, more_inodes = _plausible(part.used_bytes), _plausible(part.inodes_used)
        if more_used is not None:
            used = more_used + (used or 0)
        if more_inodes is not None:
            inodes = more_inodes + (inodes or 0)
    return _Used(used, inodes)


def _plausible(value: int | None) -> int | None:
    return value if value is not None and 0 <= value <= LARGEST else None
