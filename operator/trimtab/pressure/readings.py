"""Reads the signals of all nodes once per interval, and keeps the latest reading and a short history of each node.

What can go wrong, and what happens then:

- A kubelet hangs or is slow: its read ends with a timeout. Other reads do not wait for it, and :meth:`Readings.refresh`
  returns at the end of its interval even if reads are in progress.
- A kubelet fails repeatedly: it is read less often (:data:`RETRIES`), and the memory is taken from metrics.k8s.io.
- The kubelet responds, but its values are old: the signals are left out, and the node is reported as ``StatsStale`` if
  no signal remains.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, overload

import msgspec

from trimtab.api.node_pressure_policy import SIGNALS
from trimtab.api.reasons import STATS_INVALID, STATS_STALE
from trimtab.controller.loop import end_tasks
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.objects.node import Node
from trimtab.kube.retry import Backoff
from trimtab.pressure.measurement import (
    MemoryStallTimes,
    NodeMeasurement,
    NodeReadings,
    ReadFailure,
    Reading,
    SignalValue,
    Source,
    stale_after,
)
from trimtab.pressure.summary import no_pods

log = logging.getLogger(__name__)

HISTORY: Final = 12
"""Number of measurements that are kept of each node: two minutes at the default interval."""

MIN_STALE_METRICS: Final = 120.0
"""Minimum seconds after which a signal of metrics.k8s.io is stale. metrics-server measures every 15 to 60 seconds
(``--metric-resolution``)."""

RETRIES: Final = Backoff(initial=5.0, maximum=30.0)
"""Backoff of nodes that cannot be read. The first retry is in the next interval or the one after it. It is short:
kubelets of nodes under pressure are slow to respond, and the memory may be used up a minute after one has recovered."""

SPREAD: Final = 0.8
"""Share of the interval over which reads are spread. The rest is for the last of them to end."""

TICK: Final = 0.02
"""Minimum seconds between two batches of reads."""


class ReadError(Exception):
    """A node could not be read.

    Attributes:
        reason: a reason code, see :class:`~trimtab.pressure.measurement.ReadFailure`.
        message: the details.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class NodeReader(Protocol):
    """Reads the signals of one node. :class:`~trimtab.pressure.kubelet_client.DirectKubelets` implements it."""

    async def read(self, node: Node, *, only_memory: bool) -> NodeMeasurement:
        """Read the signals of a node within a few seconds.

        Args:
            node: the node.
            only_memory: whether disks and PIDs are not needed.

        Raises:
            ReadError: the node cannot be read.
        """
        ...


class MetricsReader(Protocol):
    """Reads the memory of nodes from metrics.k8s.io.

    :class:`~trimtab.pressure.resource_metrics.ResourceMetrics` implements it.
    """

    async def read(
        self, nodes: Sequence[Node], *, pods_needed: Callable[[NodeMeasurement], bool]
    ) -> Mapping[str, NodeMeasurement]:
        """Return the measurements by node name. A node without metrics is absent; the method does not raise."""
        ...


def always(_measurement: NodeMeasurement) -> bool:
    """Return ``True``: the pods of each measurement are needed."""
    return True


class PublishedReadings:
    """The readings of all policies of this process, for documents about nodes."""

    def __init__(self) -> None:
        self._open: list[Readings] = []

    def add(self, readings: Readings) -> None:
        """Publish the readings of a policy."""
        self._open.append(readings)

    def remove(self, readings: Readings) -> None:
        """Publish the readings of a policy no longer."""
        if readings in self._open:
            self._open.remove(readings)

    def of_nodes(self) -> dict[str, NodeReadings] | None:
        """Return what was read from each node, by name; ``None`` if this process reads no nodes.

        Call it on the event loop. The result does not change with the next readings.
        """
        if not self._open:
            return None
        return {name: found for readings in self._open for name, found in readings.of_nodes()}


class Readings:
    """The latest reading of each node of one policy, and a short history.

    Args:
        reader: reads kubelets. Several policies may share it.
        metrics: reads the memory of nodes that ``reader`` cannot read; ``None`` to read it nowhere else.
        published: where the readings are published until they are closed; ``None`` to publish them nowhere.
        clock: the clock.
    """

    def __init__(
        self,
        reader: NodeReader,
        *,
        metrics: MetricsReader | None = None,
        published: PublishedReadings | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._published = published
        if published is not None:
            published.add(self)
        self._reader = reader
        self._metrics = metrics
        self._clock = clock
        self._nodes: dict[str, _ReadState] = {}
        self._in_progress: dict[str, asyncio.Task[None]] = {}

    def latest(self, name: str) -> Reading | None:
        """Return the result of the last attempt to read a node, by the node's name; ``None`` before the first one."""
        found = self._nodes.get(name)
        return None if found is None else found.latest

    def failure(self, name: str) -> ReadFailure | None:
        """Return why the kubelet of a node cannot be read, even if metrics.k8s.io supplies its memory."""
        found = self._nodes.get(name)
        return None if found is None else found.failure

    def history(self, name: str) -> Sequence[NodeMeasurement]:
        """Return the last measurements of a node, oldest first, including the latest one.

        All of them are of the same source, and their timestamps differ. They contain no pods, and their capacities are
        those of the latest one.
        """
        found = self._nodes.get(name)
        return () if found is None else _History(name, found.source, tuple(found.packed), found.capacities)

    def of_nodes(self) -> Iterator[tuple[str, NodeReadings]]:
        """Yield the name of each node, and what was read from it."""
        for name, found in self._nodes.items():
            yield name, NodeReadings(found.latest, self.history(name), found.uid)

    async def refresh(
        self,
        nodes: Sequence[Node],
        *,
        only_memory: bool,
        interval: float = 0.0,
        pods_needed: Callable[[NodeMeasurement], bool] = always,
    ) -> None:
        """Read all nodes, and forget the nodes that are not listed.

        Call this method once per interval. It returns when all nodes have been read, at the latest at the end of the
        interval. Reads that have not ended by then go on, and a node is not read twice at the same time.

        Args:
            nodes: the nodes of the policy.
            only_memory: whether no threshold of the policy needs disks and PIDs. Such readings are much cheaper for
                the kubelets.
            interval: seconds over which the reads are spread. With 0, all nodes are read at once, and this method
                waits for all of them.
            pods_needed: returns whether the usage of a node's pods is needed, which is the case if a threshold is met.
                The pods of other measurements are dropped, because those of 5,000 nodes occupy 200 MB.
        """
        self._forget({node.name: node.uid for node in nodes})
        begin = self._clock.monotonic()
        due = [node for node in sorted(nodes, key=_name) if self._is_due(node.name, begin)]
        reads: list[asyncio.Task[None]] = []
        step = interval * SPREAD / max(1, len(due))
        for number, node in enumerate(due):
            wait = begin + number * step - self._clock.monotonic()
            if wait > TICK:
                await self._clock.sleep(wait)
            read = self._read(node, only_memory=only_memory, interval=interval, pods_needed=pods_needed)
            task = self._in_progress[node.name] = asyncio.create_task(read)
            task.add_done_callback(partial(self._end, node.name))
            reads.append(task)
        if reads:
            remaining = begin + interval - self._clock.monotonic() if interval else None
            await asyncio.wait(reads, timeout=None if remaining is None else max(0.0, remaining))
        await self._read_metrics(nodes, interval, pods_needed)

    async def close(self) -> None:
        """Cancel the reads in progress."""
        if self._published is not None:
            self._published.remove(self)
        await end_tasks(self._in_progress.values())

    def _forget(self, uids: Mapping[str, str]) -> None:
        """Forget the nodes that are not listed, and those that were replaced by another node with the same name."""
        for name in [name for name, each in self._nodes.items() if uids.get(name) != each.uid]:
            del self._nodes[name]
            task = self._in_progress.pop(name, None)
            if task is not None:
                task.cancel()

    def _end(self, name: str, task: asyncio.Task[None]) -> None:
        if self._in_progress.get(name) is task:
            del self._in_progress[name]

    def _is_due(self, name: str, now: float) -> bool:
        found = self._nodes.get(name)
        return name not in self._in_progress and (found is None or found.retry_at <= now)

    async def _read(
        self, node: Node, *, only_memory: bool, interval: float, pods_needed: Callable[[NodeMeasurement], bool]
    ) -> None:
        found = self._nodes.setdefault(node.name, _ReadState(node.uid))
        try:
            measurement = await self._reader.read(node, only_memory=only_memory)
            measurement = found.without_stale_signals(measurement, node, self._clock, interval)
        except ReadError as error:
            self._fail(node.name, found, error.reason, error.message)
        except Exception as error:  # hostile input of one node must not end the readings of all nodes
            log.exception("Failed to read the eviction signals of node %s: unexpected error", node.name)
            self._fail(node.name, found, STATS_INVALID, f"{type(error).__name__}: {error}")
        else:
            found.failures, found.retry_at, found.failure = 0, 0.0, None
            found.record(measurement if pods_needed(measurement) else _without_pods(measurement))

    def _fail(self, name: str, found: _ReadState, reason: str, message: str) -> None:
        failure = ReadFailure(node=name, reason=reason, message=message, at=self._clock.now())
        if found.failure is None:
            log.debug("Failed to read the eviction signals of node %s (%s): %s", name, reason, message)
        found.failure = failure
        found.retry_at = self._clock.monotonic() + RETRIES.delay(found.failures)
        found.failures += 1
        if found.source != "Metrics" or not isinstance(found.latest, NodeMeasurement):
            found.latest = failure

    async def _read_metrics(
        self, nodes: Iterable[Node], interval: float, pods_needed: Callable[[NodeMeasurement], bool]
    ) -> None:
        """Read the memory of the nodes whose kubelet cannot be read."""
        unread = [node for node in nodes if self.failure(node.name) is not None]
        if not unread or self._metrics is None:
            return
        measured = await self._metrics.read(unread, pods_needed=pods_needed)
        for node in unread:
            found = self._nodes.get(node.name)
            if found is None or found.failure is None:
                continue  # in the meantime, the node was deleted, or the kubelet has responded
            try:
                if node.name in measured:
                    found.record(found.without_stale_signals(measured[node.name], node, self._clock, interval))
                    continue
            except ReadError:
                pass  # the failure of the kubelet says more
            found.latest = found.failure


class _ReadState:
    """The readings of one node.

    Attributes:
        uid: UID of the node.
        latest: the latest reading.
        failure: why the kubelet cannot be read; ``None`` if it was read.
        failures: number of failed reads in a row.
        retry_at: the time from which on the kubelet is read again, by the monotonic clock.
        source: the source of the measurements in ``packed``.
        packed: the last measurements, see :func:`_pack`.
        capacities: the latest capacity of each signal, in the order of :data:`SIGNALS`.
    """

    __slots__ = ("_times", "capacities", "failure", "failures", "latest", "packed", "retry_at", "source", "uid")

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.latest: Reading | None = None
        self.failure: ReadFailure | None = None
        self.failures = 0
        self.retry_at = 0.0
        self.source: Source = "Summary"
        self.packed: list[bytes] = []  # a deque has 600 bytes of its own
        self.capacities = array("q", (0,) * len(SIGNALS))
        self._times: dict[Source, array[float]] = {}
        """When each signal was measured, and since when that is so by the monotonic clock: two numbers a signal."""

    def record(self, measurement: NodeMeasurement) -> None:
        if measurement.source != self.source:  # the sources do not define memory.available alike
            self.packed.clear()
            self.source = measurement.source
        before = self.latest
        if not (isinstance(before, NodeMeasurement) and self.packed and _same_times(before, measurement)):
            self.packed.append(_pack(measurement))
            del self.packed[:-HISTORY]
            for signal, value in measurement.signals.items():
                self.capacities[_INDEX[signal]] = value.capacity
        self.latest = measurement

    def without_stale_signals(
        self, measurement: NodeMeasurement, node: Node, clock: Clock, interval: float
    ) -> NodeMeasurement:
        """Return the measurement without signals whose timestamp has not changed for some intervals.

        The first timestamp may already be old, because the kubelet may have stopped measuring before this process
        started. Its age is that by this process's clock, but at least the time to the node's last heartbeat, which is
        by the same clock as the timestamp. If the node's clock is slow, a signal therefore counts as stale until its
        timestamp changes for the first time.

        Raises:
            ReadError: all signals are stale.
        """
        now, known = clock.monotonic(), max(clock.now(), node.heartbeat or 0.0)
        limit = max(stale_after(interval), MIN_STALE_METRICS if measurement.source == "Metrics" else 0.0)
        stale: dict[str, float] = {}
        times = self._times.get(measurement.source)
        if times is None:
            times = self._times[measurement.source] = array("d", (_NO_TIME, 0.0) * len(SIGNALS))
        for signal, value in measurement.signals.items():
            if value.measured_at is None:
                continue
            index = 2 * _INDEX[signal]
            before = times[index]
            if before != value.measured_at:
                times[index] = value.measured_at
                times[index + 1] = now - max(0.0, known - value.measured_at) if before == _NO_TIME else now
            if now - times[index + 1] >= limit:
                stale[signal] = now - times[index + 1]
        if not stale:
            return measurement
        if len(stale) == len(measurement.signals):
            raise ReadError(STATS_STALE, f"the stats were not measured for {max(stale.values()):.0f}s")
        signals = {signal: value for signal, value in measurement.signals.items() if signal not in stale}
        problems = {signal: f"stale: not measured for {seconds:.0f}s" for signal, seconds in stale.items()}
        return msgspec.structs.replace(measurement, signals=signals, problems={**measurement.problems, **problems})


def _name(node: Node) -> str:
    return node.name


def _without_pods(measurement: NodeMeasurement) -> NodeMeasurement:
    return msgspec.structs.replace(measurement, pods=no_pods)


def _same_times(one: NodeMeasurement, other: NodeMeasurement) -> bool:
    return one.signals.keys() == other.signals.keys() and all(
        value.measured_at is not None and value.measured_at == other.signals[signal].measured_at
        for signal, value in one.signals.items()
    )


_READ_AT: Final = struct.Struct("<d?ddd")
_SIGNAL: Final = struct.Struct("<Bqd")
_NO_TIME: Final = float("-inf")
_INDEX: Final[Mapping[str, int]] = {signal: index for index, signal in enumerate(SIGNALS)}


def _pack(measurement: NodeMeasurement) -> bytes:
    """Pack the values of a measurement, except for the capacities. Objects would occupy ten times as much memory."""
    stall = measurement.memory_stall
    shares = (0.0, 0.0, 0.0) if stall is None else (stall.avg10, stall.avg60, stall.avg300)
    return _READ_AT.pack(measurement.read_at, stall is not None, *shares) + b"".join(
        _SIGNAL.pack(
            _INDEX[signal],
            value.available,
            _NO_TIME if value.measured_at is None else value.measured_at,
        )
        for signal, value in measurement.signals.items()
    )


def _unpack(node: str, source: Source, packed: bytes, capacities: Sequence[int]) -> NodeMeasurement:
    read_at, has_stall, *shares = _READ_AT.unpack_from(packed)
    return NodeMeasurement(
        node=node,
        source=source,
        read_at=read_at,
        signals={
            SIGNALS[index]: SignalValue(available, capacities[index], None if time == _NO_TIME else time)
            for index, available, time in _SIGNAL.iter_unpack(packed[_READ_AT.size :])
        },
        pods=no_pods,
        memory_stall=MemoryStallTimes(*shares) if has_stall else None,
    )


class _History(Sequence[NodeMeasurement]):
    """Measurements that are unpacked when they are accessed, because few nodes are under pressure."""

    __slots__ = ("_capacities", "_node", "_packed", "_source")

    def __init__(self, node: str, source: Source, packed: tuple[bytes, ...], capacities: Sequence[int]) -> None:
        self._node = node
        self._source = source
        self._packed = packed
        self._capacities = capacities

    def __len__(self) -> int:
        return len(self._packed)

    @overload
    def __getitem__(self, index: int) -> NodeMeasurement: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[NodeMeasurement]: ...
    def __getitem__(self, index: int | slice) -> NodeMeasurement | Sequence[NodeMeasurement]:
        if isinstance(index, slice):
            return _History(self._node, self._source, self._packed[index], self._capacities)
        return _unpack(self._node, self._source, self._packed[index], self._capacities)

    def __iter__(self) -> Iterator[NodeMeasurement]:
        return (_unpack(self._node, self._source, packed, self._capacities) for packed in self._packed)
