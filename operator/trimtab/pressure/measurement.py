"""What is known about the resources of a node: the values of its eviction signals and the usage of its pods.

:mod:`.summary` builds measurements from a kubelet's Summary API, and :mod:`.resource_metrics` from metrics.k8s.io.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

Source = Literal["Summary", "Metrics"]

STALE_INTERVALS: Final = 3
"""Number of intervals after which a value is stale."""

MIN_STALE: Final = 30.0
"""Minimum seconds after which a value is stale. Kubelets measure every 10 to 20 seconds."""


def stale_after(interval: float) -> float:
    """Return the number of seconds after which a value is stale, for a monitoring interval in seconds."""
    return max(STALE_INTERVALS * interval, MIN_STALE)


class SignalValue(Struct, frozen=True, gc=False):
    """The value of one eviction signal of a node.

    Attributes:
        available: bytes, inodes or PIDs that are available.
        capacity: the amount that percentages refer to, in the same unit.
        measured_at: when the kubelet measured it, by the node's clock, in seconds since the epoch; ``None`` if it does
            not say. It is compared with earlier values of the same node, and, at the first reading, with its heartbeat
            and with this process's clock.
    """

    available: int
    capacity: int
    measured_at: float | None = None


class PodUsage(Struct, frozen=True, gc=False):
    """The usage of one pod. A value is ``None`` if the source does not contain it.

    Attributes:
        uid: UID of the pod; a pod of the same name with another UID is another pod. ``""`` if the source does not
            contain it (metrics.k8s.io).
        memory: working set in bytes.
        logs: bytes of container logs.
        local_volumes: bytes of local volumes, such as emptyDir.
        root: bytes of the containers' writable layers.
        logs_inodes: inodes of container logs.
        local_volumes_inodes: inodes of local volumes.
        root_inodes: inodes of the containers' writable layers.
        processes: number of processes.
    """

    uid: str
    memory: int | None = None
    logs: int | None = None
    local_volumes: int | None = None
    root: int | None = None
    logs_inodes: int | None = None
    local_volumes_inodes: int | None = None
    root_inodes: int | None = None
    processes: int | None = None


class MemoryStallTimes(Struct, frozen=True, gc=False):
    """The share of time in which all tasks of a node waited for memory (``memory.psi.full``), in percent."""

    avg10: float
    avg60: float
    avg300: float


class NodeMeasurement(Struct, frozen=True):
    """One reading of a node's signals.

    Attributes:
        node: the node's name.
        source: ``Summary`` (the kubelet's Summary API) or ``Metrics`` (metrics.k8s.io, memory only).
        read_at: when it was read, in seconds since the epoch by this process's clock.
        signals: the value of each signal, by the name of the signal. A signal that the source does not contain, or
            whose value is implausible, is absent.
        pods: returns the usage of the node's pods by ``namespace/name``. The pods of a Summary are decoded only when
            they are needed, because few nodes are under pressure.
        memory_stall: PSI of the memory; ``None`` if the kubelet does not report it.
        dedicated_image_fs: whether images are on another file system than the kubelet's volumes.
        split_image_fs: whether writable layers are on that of the volumes nevertheless (containerfs is nodefs).
        problems: descriptions of signals that were left out because their values are implausible, by signal.
    """

    node: str
    source: Source
    read_at: float
    signals: Mapping[str, SignalValue]
    pods: Callable[[], Mapping[str, PodUsage]]
    memory_stall: MemoryStallTimes | None = None
    dedicated_image_fs: bool = False
    split_image_fs: bool = False
    problems: Mapping[str, str] = {}


class ReadFailure(Struct, frozen=True):
    """Why the signals of a node could not be read.

    Attributes:
        node: the node's name.
        reason: a reason code: ``StatsUnreachable``, ``StatsForbidden``, ``StatsInvalid`` or ``StatsStale``.
        message: the details, with the address and the error.
        at: when, in seconds since the epoch.
    """

    node: str
    reason: str
    message: str
    at: float


Reading = NodeMeasurement | ReadFailure
"""The result of one attempt to read a node's signals."""


class NodeReadings(Struct, frozen=True):
    """What was read from a node: the latest result, and recent measurements, oldest first, with or without the latest.

    Attributes:
        latest: the latest result; ``None`` if the node was not read.
        history: the measurements, without pods.
        uid: the UID of the node that was read; empty if it is not known, as in files.
    """

    latest: Reading | None = None
    history: Sequence[NodeMeasurement] = ()
    uid: str = ""


NOT_READ: Final = NodeReadings()
