"""The state that the node lifecycle keeps between iterations, and the part of it that is persisted for a restart.

Most of the state can be read from the cluster: the Unknown nodes with the time of the change, and the taints. The
*record* is the rest, which is persisted in a ConfigMap: the time at which nodes stopped sending heartbeats, positions
in the queue that the node objects do not show, the time at which the last node of each zone was tainted, and whether
all zones were down. If the process is killed between a change and the write of the record, at most that change is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trimtab.controller.latest_writer import LatestWriter
from trimtab.kube.api import Api, ApiError, NotFound, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.objects import Node
from trimtab.kube.resources import CONFIG_MAPS
from trimtab.kube.retry import Backoff
from trimtab.kube.verbs import create, get, merge_patch
from trimtab.tainting.dependencies import REQUEST_TIMEOUT
from trimtab.tainting.lifecycle.node_health import NodeHealth, unknown_already
from trimtab.tainting.lifecycle.zones import QueuedNode, failed_at


class LifecycleState(
    Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename={"heard": "silent", "all_down": "allDown", "stale_since": "blindSince"},
):
    """The state that an iteration passes to the next one. All times are seconds since the epoch.

    Attributes:
        heard: the health of each node, by name.
        queue: the failed nodes that are queued for tainting, by name and in the order of the queue.
        spent: for each zone, the time at which the last node was taken from the queue.
        all_down: whether all zones were down in the last iteration.
        back: the time at which the last outage of all zones ended; ``None`` for never.
        stale_since: the time at which the watches became stale; ``None`` while they work.
    """

    heard: Mapping[str, NodeHealth] = {}
    queue: Mapping[str, QueuedNode] = {}
    spent: Mapping[str, float] = {}
    all_down: bool = False
    back: float | None = None
    stale_since: float | None = None


def build_record(memory: LifecycleState, nodes: Mapping[str, Node], *, now: float) -> LifecycleState:
    """Build the record: the state without what a new process can observe or restore from the Node objects.

    Its ``heard`` has the nodes that have stopped sending heartbeats and are not Unknown yet, about 100 bytes for each.
    Its ``queue`` has the nodes whose Ready condition has changed since they failed: the position of the others follows
    from ``lastTransitionTime`` of that condition. The record is therefore small even if all nodes have failed, and it
    changes only when a node changes its state. ``nodes`` are those of the iteration or newer ones.
    """
    # The entries are new objects with the default ``believed``: msgspec omits a default only if it is the same object,
    # and it encodes another -inf as null, which decode_record() would refuse.
    silent = {
        name: NodeHealth(each.uid, each.at, each.renewed, each.heartbeat)
        for name, each in memory.heard.items()
        if each.in_doubt(now) and name in nodes and not unknown_already(nodes[name])
    }
    queue = {
        name: each
        for name, each in memory.queue.items()
        if name in nodes and failed_at(nodes[name], nodes[name].ready_status, now) != each.since
    }
    return replace(memory, heard=silent, queue=queue)


def restore_state(record: LifecycleState, *, now: float) -> LifecycleState:
    """Build the initial state of a process from the record.

    Times in the future, which occur if the clock was set back, are replaced with the current time.
    """
    heard = {name: replace(each, recalled=True) for name, each in record.heard.items()}
    queue = {name: QueuedNode(each.uid, min(each.since, now)) for name, each in record.queue.items()}
    return _with_times(replace(record, heard=heard, queue=queue), lambda time: min(time, now))


def shift_times(memory: LifecycleState, seconds: float) -> LifecycleState:
    """Shift all times after the host's clock was set forward by ``seconds``, so that each is as long ago as before."""
    return _with_times(memory, lambda time: time + seconds)


def _with_times(memory: LifecycleState, changed: Callable[[float], float]) -> LifecycleState:
    """Return the state with changed times, except the times of failure, which are read from the API server."""
    return replace(
        memory,
        heard={
            name: replace(each, at=changed(each.at), believed=changed(each.believed))
            for name, each in memory.heard.items()
        },
        spent={zone: changed(time) for zone, time in memory.spent.items()},
        back=None if memory.back is None else changed(memory.back),
        stale_since=None if memory.stale_since is None else changed(memory.stale_since),
    )


def encode_record(record: LifecycleState) -> str:
    """Encode the record as JSON. Equal records result in identical text."""
    return msgspec.json.encode(record, order="deterministic").decode()


def decode_record(text: str) -> LifecycleState:
    """Decode the record. Invalid text results in an empty record, so that the grace periods start again."""
    try:
        return msgspec.json.decode(text, type=LifecycleState)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return LifecycleState()


log = logging.getLogger(__name__)

NAME: Final = "trimtab-taint-manager"
KEY: Final = "lifecycle"

WRITE_PERIOD: Final = 1.0
"""Minimum seconds between two writes. In an outage, nodes stop renewing their Leases one after another."""

MAX_BYTES: Final = 900_000
"""Maximum size of the record in bytes. A ConfigMap may contain 1 MiB."""

RETRY: Final = Backoff(initial=0.5, maximum=10.0)


class RecordWriter(LatestWriter[LifecycleState]):
    """Reads the record of the node lifecycle from its ConfigMap, and writes it when it changes.

    ``problem`` is the reason why the last request failed; ``""`` if it succeeded.
    """

    def __init__(self, api: Api, clock: Clock, *, namespace: str) -> None:
        super().__init__(
            clock,
            "the node lifecycle's record",
            LifecycleState(),
            retry=RETRY,
            retried=(ApiError, Unreachable),
            between=WRITE_PERIOD,
        )
        self.problem = ""
        self._api = api
        self._namespace = namespace

    async def load(self, *, until: Callable[[], bool]) -> LifecycleState | None:
        """Read the record of the previous process, and retry until that succeeds.

        The node lifecycle does not start without it, because grace periods and rates would start again. The result is
        ``None`` if ``until`` returned true first.
        """
        failures = 0
        while not until():
            try:
                found = await get(self._api, CONFIG_MAPS, NAME, namespace=self._namespace, timeout=REQUEST_TIMEOUT)
            except NotFound:
                found = {}
            except (ApiError, Unreachable) as error:
                self._report("read", error)
                await self._clock.sleep(RETRY.delay(failures))
                failures += 1
                continue
            self.problem = ""
            self.value = self._written = decode_record(str((found.get("data") or {}).get(KEY, "")) or "{}")
            return self.value
        return None

    async def _send(self, value: LifecycleState) -> None:
        text = encode_record(truncate_record(value))
        body: dict[str, Any] = {"data": {KEY: text}}
        try:
            await merge_patch(self._api, CONFIG_MAPS, NAME, body, namespace=self._namespace, timeout=REQUEST_TIMEOUT)
        except NotFound:
            body["metadata"] = {"name": NAME, "namespace": self._namespace}
            await create(self._api, CONFIG_MAPS, body, namespace=self._namespace, timeout=REQUEST_TIMEOUT)
        self.problem = ""

    def _failed(self, error: Exception, *, retried: bool) -> None:  # noqa: ARG002  each is reported the same
        self._report("written", error)

    def _report(self, what: str, error: Exception) -> None:
        former, self.problem = self.problem, f"ConfigMap {self._namespace}/{NAME} could not be {what}: {error}"
        if former != self.problem:
            log.warning("Failed to access the ConfigMap with the state of the node lifecycle: %s", self.problem)


def truncate_record(record: LifecycleState) -> LifecycleState:
    """Omit the nodes that stopped renewing their Leases last, so that the record fits into a ConfigMap.

    About 6,000 nodes fit. If the process restarts, the others get a new grace period.
    """
    while len(encode_record(record)) > MAX_BYTES:
        silent = sorted(record.heard, key=lambda name: (record.heard[name].at, name))
        queue = sorted(record.queue, key=lambda name: (record.queue[name].since, name))
        record = replace(
            record,
            heard={name: record.heard[name] for name in silent[: len(silent) // 2]},
            queue={name: record.queue[name] for name in queue[: len(queue) // 2]},
        )
    return record
