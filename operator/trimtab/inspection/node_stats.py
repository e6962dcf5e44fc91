"""The stats of nodes: the summaries of kubelets, and NodeMetrics and PodMetrics where there is no summary.

Only the fields of a summary that planners read are kept, because 5,000 summaries of 100 KB each would be in memory
otherwise, and because users share snapshot files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct, field

from trimtab.kube.errors import InputError
from trimtab.pressure.measurement import NodeMeasurement, NodeReadings, PodUsage, ReadFailure
from trimtab.pressure.summary import InvalidSummary, read_summary

if TYPE_CHECKING:
    from trimtab.cluster.snapshot import Snapshot


# --- the fields of a summary that planners read -----------------------------------------------------------------------


class _Memory(Struct, rename="camel", omit_defaults=True, gc=False):
    time: str | None = None
    available_bytes: int | None = None
    working_set_bytes: int | None = None
    rss_bytes: int | None = None
    psi: dict[str, dict[str, float]] | None = None


class _FileSystem(Struct, rename="camel", omit_defaults=True, gc=False):
    time: str | None = None
    available_bytes: int | None = None
    capacity_bytes: int | None = None
    inodes_free: int | None = None
    inodes: int | None = None


class _Used(Struct, rename="camel", omit_defaults=True, gc=False):
    used_bytes: int | None = None
    inodes_used: int | None = None


class _Claim(Struct, gc=False):
    """A reference to a PersistentVolumeClaim. Only its presence matters."""


class _Volume(_Used, omit_defaults=True, gc=False):
    pvc_ref: _Claim | None = field(name="pvcRef", default=None)


class _Processes(Struct, omit_defaults=True, gc=False):
    process_count: int | None = None


class _PodReference(Struct, gc=False):
    name: str
    namespace: str
    uid: str = ""


class _Container(Struct, omit_defaults=True, gc=False):
    name: str = ""
    memory: _Memory | None = None
    rootfs: _Used | None = None
    logs: _Used | None = None


class _Pod(Struct, omit_defaults=True):
    pod_ref: _PodReference = field(name="podRef")
    containers: list[_Container] | None = None
    memory: _Memory | None = None
    volume: list[_Volume] | None = None
    ephemeral_storage: _Used | None = field(name="ephemeral-storage", default=None)
    process_stats: _Processes | None = None


class _Limits(Struct, omit_defaults=True, gc=False):
    time: str | None = None
    maxpid: int | None = None
    curproc: int | None = None


class _Runtime(Struct, rename="camel", omit_defaults=True, gc=False):
    image_fs: _FileSystem | None = None
    container_fs: _FileSystem | None = None


class _SystemContainer(Struct, omit_defaults=True, gc=False):
    name: str = ""
    memory: _Memory | None = None


class _Node(Struct, rename="camel", omit_defaults=True):
    node_name: str
    system_containers: list[_SystemContainer] | None = None
    memory: _Memory | None = None
    fs: _FileSystem | None = None
    runtime: _Runtime | None = None
    rlimit: _Limits | None = None


class _Summary(Struct):
    node: _Node
    pods: list[_Pod] | None


_DECODER: Final = msgspec.json.Decoder(_Summary)
_ENCODER: Final = msgspec.json.Encoder()


def slim_summary(body: bytes | msgspec.Raw) -> tuple[str, bytes]:
    """Return the name of the node of a summary, and the summary with only the fields that planners read.

    Raises:
        InvalidSummary: the body is not a summary.
    """
    try:
        found = _DECODER.decode(body)
        return found.node.node_name, _ENCODER.encode(found)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise InvalidSummary(f"the response is not a summary: {error}") from None


# --- stats of all nodes -----------------------------------------------------------------------------------------------


class _Head(Struct):
    """The part of a document by which a summary is recognized. A summary has no kind."""

    node: Any = None
    pods: msgspec.Raw = msgspec.Raw(b"")


_HEAD: Final = msgspec.json.Decoder(_Head)


class NodeStats:
    """Collects what is known about the resources of nodes.

    Attributes:
        metrics: NodeMetrics and PodMetrics, for nodes without a summary.
        failures: why the summaries of nodes could not be read, by name.
    """

    def __init__(self) -> None:
        self.metrics: Sequence[Mapping[str, Any]] = ()
        self.failures: dict[str, ReadFailure] = {}
        self._summaries: dict[str, list[bytes]] = {}

    def take(self, content: msgspec.Raw | Mapping[str, Any]) -> bool:
        """Add a document without a kind if it is a summary, and return whether it is.

        Raises:
            InputError: it has the form of a summary, and a field is invalid.
        """
        raw = content if isinstance(content, msgspec.Raw) else _ENCODER.encode(content)
        try:
            head = _HEAD.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        if not isinstance(head.node, dict) or "nodeName" not in head.node or not bytes(head.pods):
            return False
        try:
            name, summary = slim_summary(raw)
            read_summary(summary, node=name, read_at=0.0)
        except InvalidSummary as error:
            raise InputError(str(error), object=f"stats of node {head.node['nodeName']}") from None
        self.add(name, summary)
        return True

    def add(self, name: str, summary: bytes) -> None:
        """Add the summary of a node. There may be several of one node, measured at different times."""
        self._summaries.setdefault(name, []).append(summary)

    def __bool__(self) -> bool:
        return bool(self._summaries or self.failures or self.metrics)

    def readings(self, snapshot: Snapshot, *, now: float) -> Mapping[str, NodeReadings]:
        """Return what was read from each node, by name.

        The latest summary of a node counts as read now, because files may be old, and earlier ones as read as much
        earlier as the kubelet measured them earlier.
        """
        from trimtab.cluster.usage.measurement import usage_of
        from trimtab.pressure.resource_metrics import memory_of_nodes

        nodes = [node for node in snapshot.nodes.at if node and node.name not in self._summaries]
        of_metrics = memory_of_nodes(nodes, self.metrics, read_at=now)
        used = usage_of(self.metrics, taken=now).pods if of_metrics else {}
        pods = {key: PodUsage(uid="", memory=amounts["memory"]) for key, amounts in used.items()}
        found = {}
        for name in sorted(snapshot.nodes.slot_of):
            measured = [read_summary(each, node=name, read_at=now) for each in self._summaries.get(name, ())]
            measured.sort(key=_measured_at)
            if measured:
                last = _measured_at(measured[-1])
                history = tuple(
                    msgspec.structs.replace(each, read_at=now - (last - _measured_at(each))) for each in measured[:-1]
                )
                found[name] = NodeReadings(measured[-1], history)
                continue
            if name in of_metrics:
                found[name] = NodeReadings(msgspec.structs.replace(of_metrics[name], pods=lambda: pods))
            elif name in self.failures:
                found[name] = NodeReadings(self.failures[name])
        return found

    def resident_memory(self, name: str) -> dict[tuple[str, str], int]:
        """Return the resident memory of a node's containers in bytes, by pod (``namespace/name``) and container."""
        bodies = self._summaries.get(name, ())
        latest = max((_DECODER.decode(each) for each in bodies), key=_summary_time, default=None)
        if latest is None:
            return {}
        return {
            (f"{pod.pod_ref.namespace}/{pod.pod_ref.name}", container.name): container.memory.rss_bytes
            for pod in latest.pods or ()
            for container in pod.containers or ()
            if container.memory is not None and container.memory.rss_bytes is not None
        }


class OperatorStats(NodeStats):
    """What the operator has read from nodes, with a short history.

    It has the usage of pods only for nodes that are close to a threshold, and not the resident memory of containers.

    Args:
        held: what was read from each node, by name.
    """

    def __init__(self, held: Mapping[str, NodeReadings]) -> None:
        super().__init__()
        self._held = held

    def readings(self, snapshot: Snapshot, *, now: float) -> Mapping[str, NodeReadings]:  # noqa: ARG002
        """Return what was read from each node, by name. A node that was recreated since then has no readings."""
        nodes = snapshot.nodes
        return {
            name: found
            for name, found in self._held.items()
            if name in nodes.slot_of and found.uid in ("", nodes.node(nodes.slot_of[name]).uid)
        }


def _measured_at(measurement: NodeMeasurement) -> float:
    return max((value.measured_at or 0.0 for value in measurement.signals.values()), default=0.0)


def _summary_time(summary: _Summary) -> str:
    memory = summary.node.memory
    return (memory.time or "") if memory is not None else ""
