"""Writes the state, the conditions and the taints of nodes under pressure, and removes them afterwards.

    writer.put(node, NodeMarks(state, {"MemoryPressure": "memory.available is 400Mi"}, taint=True))   # returns at once
    stored = await writer.written(node.name, seconds=10.0)
    await writer.run()

The writer is level-triggered. It compares the marks that a node should have with those that the watch shows, and writes
only the difference. If another client removes a mark, the next :meth:`NodeWriter.put` restores it.

The annotation and the taints are one JSON patch. It tests the elements that it changes, so that concurrent changes by
the kubelet, the taint manager or an autoscaler are preserved. The conditions are a strategic merge patch by type, which
does not touch those of the kubelet.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct, field

from trimtab.api.node_pressure_policy import PressureCondition
from trimtab.api.plan import rfc3339
from trimtab.api.reasons import THRESHOLD_MET
from trimtab.cluster.lister import Lister
from trimtab.controller.metrics import QueueMetrics
from trimtab.controller.work_queue import WorkQueue
from trimtab.kube import verbs
from trimtab.kube.api import Api, ApiError, NotFound, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.events.event import truncate
from trimtab.kube.node_patches import (
    NodeChange,
    NodeFields,
    Operation,
    append_taints,
    expect_value,
    patch_node,
    remove_annotation,
    remove_taints,
    set_annotations,
)
from trimtab.kube.objects import Node
from trimtab.kube.resources import NODES
from trimtab.kube.retry import Backoff
from trimtab.kube.rules.taints import NO_SCHEDULE
from trimtab.pressure.state import ANNOTATION, CONDITION_TYPES, NO_STATE, TAINT_KEYS, NodeState, encode_state

log = logging.getLogger(__name__)

WORKERS: Final = 16
"""Number of nodes that are written concurrently."""

TIMEOUT: Final = 10.0
"""Timeout of one request in seconds."""

RETRY: Final = Backoff(initial=0.5, maximum=15.0)
"""Backoff of a node that cannot be written."""

STALE_DELAY: Final = 1.0
"""Seconds until a node is written again if the caches are stale."""

WATCH_TIMEOUT: Final = 5.0
"""Seconds within which the watch must show a write. After that, the node is written again."""

MAX_MESSAGE_BYTES: Final = 512
"""Maximum length of a condition's message in bytes."""


class NodeMarks(Struct, frozen=True):
    """The annotation, the conditions and the taints that a node under pressure has from trimtab.

    Attributes:
        state: the state in the node's annotation.
        conditions: the message of each pressure condition.
        taint: whether the node has a NoSchedule taint for each condition.
    """

    state: NodeState = NO_STATE
    conditions: Mapping[PressureCondition, str] = field(default_factory=dict)
    taint: bool = False

    @property
    def annotation(self) -> str | None:
        """Return the value of the annotation; ``None`` if the node must not have it."""
        return encode_state(self.state)

    @property
    def taint_keys(self) -> frozenset[str]:
        """Return the keys of the taints that the node must have."""
        return frozenset(TAINT_KEYS[each] for each in self.conditions) if self.taint else frozenset()

    @property
    def condition_types(self) -> frozenset[str]:
        """Return the types of the conditions that the node must have."""
        return frozenset(CONDITION_TYPES[each] for each in self.conditions)

    def shown_by(self, node: Node) -> bool:
        """Return whether a node has exactly these marks."""
        return (
            node.annotations.get(ANNOTATION) == self.annotation
            and _taint_keys(node) == self.taint_keys
            and _condition_types(node) == self.condition_types
        )


NO_MARKS: Final = NodeMarks()

_NOTHING: Final = ("", NO_MARKS)
_KEYS: Final = frozenset(TAINT_KEYS.values())
_TYPES: Final = frozenset(CONDITION_TYPES.values())


def has_marks(node: Node) -> bool:
    """Return whether a node has the annotation, a condition or a taint of the node-pressure controller."""
    return (
        ANNOTATION in node.annotations
        or any(each.key in _KEYS for each in node.taints)
        or any(each.type in _TYPES for each in node.conditions)
    )


class _Stored(Struct, frozen=True, gc=False):
    """The marks that were last written to a node, and the time of the write on the monotonic clock."""

    uid: str
    marks: NodeMarks
    at: float


class NodeWriter:
    """Writes the marks of nodes. One writer writes the nodes of all policies.

    Args:
        api: the API client. It sends no request once another process may be the leader.
        lister: the cache of nodes.
        clock: the wall clock and the monotonic clock.
        stale: returns the reason why the cache is too old to act on; ``None`` if it is up to date.
        metrics: the metrics of the work queue; ``None`` to export none.

    Attributes:
        problems: the errors of the nodes whose last write failed, by node name.
    """

    def __init__(
        self,
        api: Api,
        lister: Lister,
        clock: Clock,
        *,
        stale: Callable[[], str | None],
        metrics: QueueMetrics | None = None,
    ) -> None:
        self.problems: dict[str, str] = {}
        self._api = api
        self._lister = lister
        self._clock = clock
        self._stale = stale
        self._wanted: dict[str, tuple[str, NodeMarks]] = {}  # with the node's UID
        self._stored: dict[str, _Stored] = {}
        self._waiting: defaultdict[str, list[asyncio.Future[None]]] = defaultdict(list)
        self._queue = WorkQueue(self._reconcile, workers=WORKERS, clock=clock, retry=RETRY, metrics=metrics)

    def put(self, node: Node, marks: NodeMarks) -> None:
        """Set the marks that a node should have, and return immediately."""
        name = node.name
        if marks == NO_MARKS and name not in self._stored and not has_marks(node):
            self._wanted.pop(name, None)  # nearly all nodes
            return
        self._wanted[name] = node.uid, marks
        if not self._is_current(node, marks):
            self._queue.add(name)

    def marks_of(self, name: str) -> NodeMarks:
        """Return the marks that a node should have."""
        return self._wanted.get(name, _NOTHING)[1]

    def is_marking(self, name: str) -> bool:
        """Return whether a node should have marks, or is being written, so that the watch may not show them yet."""
        return self.marks_of(name) != NO_MARKS or name in self._queue

    def forget_deleted_nodes(self) -> None:
        """Drop the nodes that do not exist any more."""
        for name in (self._wanted.keys() | self._stored.keys()) - self._lister.nodes.keys():
            self._forget(name)

    async def written(self, name: str, *, seconds: float) -> bool:
        """Wait until the API server has stored the marks of a node.

        Args:
            name: name of the node.
            seconds: timeout in seconds.

        Returns:
            Whether they were stored in time.
        """
        node = self._lister.node(name)
        if node is None:
            return False
        if self._is_current(node, self.marks_of(name)):
            return True
        stored = asyncio.get_running_loop().create_future()
        self._waiting[name].append(stored)
        self._queue.add(name)
        try:
            async with asyncio.timeout(seconds):
                await stored
        except TimeoutError:
            return False
        finally:
            self._waiting[name].remove(stored)
            if not self._waiting[name]:
                del self._waiting[name]
        return True

    async def run(self) -> None:
        """Write nodes until cancelled."""
        await self._queue.run()

    async def stop(self, seconds: float) -> bool:
        """Start no further write, wait for those in flight, and return whether all have ended in time."""
        return await self._queue.drain(seconds)

    def _is_current(self, node: Node, marks: NodeMarks) -> bool:
        """Return whether the node has the marks, according to the last write or else according to the watch."""
        stored = self._stored.get(node.name)
        if stored is not None and (stored.uid != node.uid or self._clock.monotonic() >= stored.at + WATCH_TIMEOUT):
            del self._stored[node.name]
            stored = None
        return marks.shown_by(node) if stored is None else stored.marks == marks

    async def _reconcile(self, name: str) -> float | None:
        node, (uid, marks) = self._lister.node(name), self._wanted.get(name, _NOTHING)
        if node is None or node.deleted is not None or uid not in ("", node.uid):
            self._forget(name)
            return None
        if not self._is_current(node, marks):
            if self._stale() is not None:
                return STALE_DELAY
            try:
                exists = await self._write(node, marks)
            except (ApiError, Unreachable) as error:
                self._stored.pop(name, None)  # the node may have either marks now
                self.problems[name] = f"{type(error).__name__}: {error}"
                raise
            if not exists:
                self._forget(name)
                return None
            self._stored[name] = _Stored(node.uid, marks, self._clock.monotonic())
        self.problems.pop(name, None)
        if self.marks_of(name) != marks:  # changed during the request
            self._queue.add(name)
            return None
        for each in self._waiting.get(name, ()):
            if not each.done():
                each.set_result(None)
        if marks == NO_MARKS:
            self._wanted.pop(name, None)
        return None

    async def _write(self, node: Node, marks: NodeMarks) -> bool:
        """Write the differences, and return whether the node exists.

        The annotation is written first: the state must not be lost, even if the process is killed right afterwards.
        """
        fields = NodeFields.from_cache(node)
        stored = self._stored.get(node.name)
        before = None if stored is None else stored.marks
        if not await patch_node(self._api, node.name, node.uid, _change_of(marks), fields=fields, timeout=TIMEOUT):
            return False
        shown = _condition_types(node) if before is None else before.condition_types
        conditions = self._conditions(marks, shown)
        if not conditions:
            return True
        try:
            await verbs.patch_conditions(self._api, NODES, node.name, conditions, uid=node.uid, timeout=TIMEOUT)
        except NotFound:
            return False
        return True

    def _conditions(self, marks: NodeMarks, shown: frozenset[str]) -> list[dict[str, Any]]:
        """Return the conditions to add, and the types to remove, as elements of a strategic merge patch."""
        now = rfc3339(self._clock.now())
        found: list[dict[str, Any]] = []
        for name, message in sorted(marks.conditions.items()):
            if CONDITION_TYPES[name] not in shown:
                found.append(
                    {
                        "type": CONDITION_TYPES[name],
                        "status": "True",
                        "reason": THRESHOLD_MET,
                        "message": truncate(message, MAX_MESSAGE_BYTES),
                        "lastHeartbeatTime": now,
                        "lastTransitionTime": now,
                    }
                )
        return found + [{"$patch": "delete", "type": each} for each in sorted(shown - marks.condition_types)]

    def _forget(self, name: str) -> None:
        """Drop a node that does not exist any more, or was replaced. :meth:`written` then times out."""
        self._wanted.pop(name, None)
        self._stored.pop(name, None)
        self.problems.pop(name, None)


def _change_of(marks: NodeMarks) -> NodeChange:
    """Return a function that builds the patch of a node's annotation and taints."""

    def change(fields: NodeFields) -> list[Operation]:
        operations: list[Operation] = []
        wanted, found = marks.annotation, fields.annotations.get(ANNOTATION)
        if wanted is None and found is not None:
            operations += remove_annotation(fields, ANNOTATION)
        elif wanted is not None and wanted != found:
            operations += set_annotations(fields, {ANNOTATION: wanted})
        shown = {each["key"] for each in fields.taints} & _KEYS
        for key in sorted(marks.taint_keys - shown):
            taint = {"key": key, "effect": NO_SCHEDULE}
            operations += append_taints(fields, taint)
            fields = NodeFields(fields.uid, (*fields.taints, taint), False, fields.annotations, fields.annotated)
        operations += remove_taints(fields, *(shown - marks.taint_keys))
        return [expect_value("/metadata/uid", fields.uid), *operations] if operations else []

    return change


def _taint_keys(node: Node) -> frozenset[str]:
    return frozenset(each.key for each in node.taints if each.key in _KEYS)


def _condition_types(node: Node) -> frozenset[str]:
    return frozenset(each.type for each in node.conditions if each.type in _TYPES)
