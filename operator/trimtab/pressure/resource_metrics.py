"""Reads the memory of nodes from metrics.k8s.io, for nodes whose kubelet cannot be read.

metrics.k8s.io contains neither disks nor PIDs. ``memory.available`` is the capacity of the node minus its usage.

metrics-server has no pages and no field for the node of a pod, so the list for one node is that of all pods: 60 MB for
150,000 pods. It is read only if a node under pressure needs it, at most once per :data:`PODS_PERIOD`, and decoded in a
thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import replace

from trimtab.api.node_pressure_policy import MEMORY_AVAILABLE
from trimtab.cluster.usage.measurement import LARGEST, TIMEOUT, usage_of
from trimtab.kube.api import Api, ApiError, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.objects.node import Node
from trimtab.kube.resources import NODE_METRICS, POD_METRICS
from trimtab.kube.rules.quantity import QuantityError, resource_amount
from trimtab.pressure.measurement import NodeMeasurement, PodUsage, SignalValue
from trimtab.pressure.summary import no_pods

log = logging.getLogger(__name__)

NODES_TIMEOUT: Final = 5.0
"""Timeout of the list of NodeMetrics in seconds. It is small, and the next interval lists it again."""


_Time = Annotated[datetime, Meta(tz=True)]


PODS_PERIOD: Final = 30.0
"""Seconds for which a list of PodMetrics is used. metrics-server measures every 15 to 60 seconds."""

LARGEST_LIST: Final = 256 * 2**20
"""Maximum size of the list of PodMetrics in bytes."""


class _Unavailable(Exception):
    """metrics.k8s.io cannot be read."""


class ResourceMetrics:
    """Reads the memory of nodes from metrics.k8s.io.

    Args:
        api: the API server.
        clock: the clock.
    """

    def __init__(self, api: Api, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._api = api
        self._clock = clock
        self._problem = ""
        self._pods: tuple[float, Mapping[str, PodUsage]] | None = None

    async def read(
        self, nodes: Sequence[Node], *, pods_needed: Callable[[NodeMeasurement], bool]
    ) -> Mapping[str, NodeMeasurement]:
        """Return the measurements by node name. A node without metrics, or with implausible ones, is absent.

        The metrics of all nodes are listed once. Those of all pods, a much longer list, are listed only if a node needs
        them. If that fails, the nodes that need them are absent.

        Args:
            nodes: the nodes to read.
            pods_needed: returns whether the usage of a node's pods is needed.
        """
        try:
            items = await self._list_nodes()
        except _Unavailable as error:
            self._report(str(error))
            return {}
        measured = memory_of_nodes(nodes, items, read_at=self._clock.now())
        under_pressure = [name for name, measurement in measured.items() if pods_needed(measurement)]
        if not under_pressure:
            self._pods = None
        else:
            try:
                pods = await self._list_pods()
            except _Unavailable as error:
                self._report(str(error))
                return {name: each for name, each in measured.items() if name not in under_pressure}
            for name in under_pressure:
                measured[name] = replace(measured[name], pods=lambda: pods)
        self._report("")
        return measured

    async def _list_nodes(self) -> list[Mapping[str, Any]]:
        try:
            answer = await self._api.request("GET", NODE_METRICS.path(), timeout=NODES_TIMEOUT)
        except (ApiError, Unreachable) as error:
            raise _Unavailable(f"{NODE_METRICS.name} cannot be listed: {error}") from error
        items = answer.get("items") if isinstance(answer, Mapping) else None
        if not isinstance(items, list):
            raise _Unavailable(f"{NODE_METRICS.name} cannot be listed: the response is not a list")
        return [{**item, "kind": NODE_METRICS.kind} for item in items if isinstance(item, Mapping)]

    async def _list_pods(self) -> Mapping[str, PodUsage]:
        now = self._clock.monotonic()
        if self._pods is not None and now - self._pods[0] < PODS_PERIOD:
            return self._pods[1]
        self._pods = None
        body = bytearray()
        try:
            async with asyncio.timeout(TIMEOUT), self._api.stream(POD_METRICS.path()) as chunks:
                async for chunk in chunks:
                    body += chunk
                    if len(body) > LARGEST_LIST:
                        raise _Unavailable(f"{POD_METRICS.name} cannot be listed: the response is too large")
            usage = await asyncio.to_thread(_pods, bytes(body))
        except (ApiError, Unreachable, TimeoutError, msgspec.DecodeError) as error:
            raise _Unavailable(f"{POD_METRICS.name} cannot be listed: {error}") from error
        self._pods = now, usage
        return usage

    def _report(self, problem: str) -> None:
        if problem and not self._problem:
            log.info("Failed to read the memory usage of nodes whose kubelets do not respond: %s", problem)
        self._problem = problem


class _ObjectName(Struct, frozen=True, gc=False):
    name: str
    namespace: str


class _ContainerMetrics(Struct, frozen=True, gc=False):
    usage: dict[str, str]


class _PodMetrics(Struct, frozen=True, gc=False):
    metadata: _ObjectName
    containers: list[_ContainerMetrics]


class _PodMetricsList(Struct, frozen=True, gc=False):
    items: list[Raw]


_LIST: Final = msgspec.json.Decoder(_PodMetricsList)
_POD: Final = msgspec.json.Decoder(_PodMetrics)


def _pods(body: bytes) -> Mapping[str, PodUsage]:
    """Decode the usage of pods. Pods with invalid or implausible metrics are skipped, as in :func:`usage_of`.

    Raises:
        msgspec.DecodeError: the response is not a list.
    """
    found: dict[str, PodUsage] = {}
    for raw in _LIST.decode(body).items:
        try:
            pod = _POD.decode(raw)
            used = [resource_amount("memory", each.usage["memory"]) for each in pod.containers]
        except (msgspec.DecodeError, KeyError, QuantityError):
            continue
        if used and min(used) >= 0 and sum(used) <= LARGEST:
            found[f"{pod.metadata.namespace}/{pod.metadata.name}"] = PodUsage(uid="", memory=sum(used))
    return found


def memory_of_nodes(
    nodes: Sequence[Node], items: Sequence[Mapping[str, Any]], *, read_at: float
) -> dict[str, NodeMeasurement]:
    """Return the measurements of nodes, without their pods, by name. Nodes without plausible metrics are absent.

    Args:
        nodes: the nodes.
        items: NodeMetrics, each with its ``kind``. Objects of other kinds are ignored.
        read_at: when they were read, in seconds since the epoch.
    """
    used = usage_of(items, taken=read_at).nodes
    times = {
        item["metadata"]["name"]: _time(item)
        for item in items
        if item.get("kind") == NODE_METRICS.kind and _name(item) in used
    }
    measured: dict[str, NodeMeasurement] = {}
    for node in nodes:
        capacity = node.capacity.get("memory", 0)
        if node.name in used and 0 < used[node.name]["memory"] <= capacity:
            value = SignalValue(capacity - used[node.name]["memory"], capacity, times[node.name])
            measured[node.name] = NodeMeasurement(
                node=node.name,
                source="Metrics",
                read_at=read_at,
                signals={MEMORY_AVAILABLE: value},
                pods=no_pods,
            )
    return measured


def _name(item: Mapping[str, Any]) -> object:
    metadata = item.get("metadata")
    return metadata.get("name") if isinstance(metadata, Mapping) else None


def _time(item: Mapping[str, Any]) -> float | None:
    try:
        return msgspec.convert(item.get("timestamp"), _Time).timestamp()
    except msgspec.ValidationError:
        return None
