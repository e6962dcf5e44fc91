"""Executes the node updates of the newest plan.

Several nodes are updated concurrently, each with one request at a time. Each request has the observed state of the node
as a precondition.

Taints are changed with a JSON patch (RFC 6902). It addresses list elements by index, so it tests that each element is
still the observed one. A concurrent edit of another taint is preserved. If a taint that the patch changes was edited,
the API server refuses the whole patch.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.plan import rfc3339
from trimtab.controller.expectations import Expectations
from trimtab.controller.work_queue import WorkQueue
from trimtab.kube import verbs
from trimtab.kube.api import Api, ApiError, Conflict, Invalid, NotFound, ServerError, Unreachable
from trimtab.kube.errors import InputError
from trimtab.kube.node_patches import NodeFields, Operation, append_taints, expect_value
from trimtab.kube.objects import NODE_LEASES, Lease, Node, Taint
from trimtab.kube.resources import LEASES, NODES
from trimtab.kube.retry import Backoff
from trimtab.kube.rules.taints import NO_EXECUTE
from trimtab.kube.wire.decode import decode_object
from trimtab.tainting.dependencies import REQUEST_TIMEOUT, TaintingDependencies
from trimtab.tainting.lifecycle.node_health import ANSWER_AGE, READY, MarkUnknown, ProbeResult, stamp_of
from trimtab.tainting.lifecycle.planner import READY_KEYS, LifecyclePlan, TaintChange
from trimtab.tainting.lifecycle.zones import TakenToken

log = logging.getLogger(__name__)

RETRY: Final = Backoff(initial=0.2, maximum=10.0)
"""Backoff after consecutive failures of one node. Retries never stop. Upstream logs that it requeues a node, but does
not requeue it.
"""

WORKERS: Final = 16
"""Number of nodes that are updated concurrently."""

MAX_QUIET_FAILURES: Final = 3
"""Number of consecutive failures after which a node no longer blocks the queue of its zone, and an event is emitted."""

WATCH_TIMEOUT: Final = 30.0
"""Seconds within which the watch must show a write or the deletion of a node. After that, the node is planned again: a
proxy in front of a starting API server may answer every request with 404.
"""

RETRIES_PER_SECOND: Final = 100
"""Maximum retries per second of all nodes, unless the delay would exceed :data:`MAX_RETRY_DELAY`."""

MAX_RETRY_DELAY: Final = 30.0
"""Maximum seconds until a node is retried, regardless of the number of failed nodes."""

MAX_UPDATES: Final = 500
"""Maximum number of nodes per iteration. The workers cannot finish more before the next iteration plans them again."""


async def probe_node(api: Api, node: str, *, now: float) -> ProbeResult | None:
    """Read a node and its Lease from the API server. The requests bypass the API server's watch cache and our caches.

    Changes that the watches deliver after ``now`` are newer than the result. It is ``None`` if the node does not exist.
    """
    try:
        found = decode_object(await verbs.get(api, NODES, node, timeout=REQUEST_TIMEOUT))
    except NotFound:
        return None
    try:
        lease = decode_object(await verbs.get(api, LEASES, node, namespace=NODE_LEASES, timeout=REQUEST_TIMEOUT))
    except NotFound:
        lease = None
    if not isinstance(found, Node) or not (lease is None or isinstance(lease, Lease)):
        raise InputError("is neither a Node nor a Lease", object=f"Node/{node}")
    return ProbeResult(found.uid, stamp_of(found, lease), now)


class NodeUpdate(Struct, frozen=True, kw_only=True):
    """The update of one node: a probe, a patch of its conditions, and a patch of its taints, in this order.

    ``token`` is the one with which the plan took the node from its zone's queue. Of the changes, additions come first.
    """

    node: Node
    token: TakenToken | None = None
    probe: bool = False
    mark: MarkUnknown | None = None
    changes: tuple[TaintChange, ...] = ()

    @property
    def changes_no_execute(self) -> bool:
        """Return whether the update adds or removes a NoExecute taint."""
        return any(each.taint.effect == NO_EXECUTE for each in self.changes)


def node_updates(plan: LifecyclePlan, nodes: Mapping[str, Node], *, most: int = MAX_UPDATES) -> dict[str, NodeUpdate]:
    """Return the updates of a plan by node name, the most urgent first, at most ``most``.

    The order is: nodes that were taken from a queue, other NoExecute taints, conditions, other taints, and probes.
    """
    marks = {each.node: each for each in plan.unknown}
    changes: dict[str, list[TaintChange]] = {}
    for each in plan.taints:
        changes.setdefault(each.node, []).append(each)
    updates = [
        NodeUpdate(
            node=nodes[name],
            token=plan.taken.get(name),
            probe=name in plan.probes,
            mark=marks.get(name),
            changes=tuple(sorted(changes.get(name, ()), key=lambda each: not each.add)),
        )
        for name in {*plan.probes, *marks, *changes}
        if name in nodes
    ]

    def urgency(update: NodeUpdate) -> tuple[int, float, str]:
        name = update.node.name
        if update.changes_no_execute:
            return (0 if update.token else 1, 0.0, name)
        if update.mark or not update.probe:
            return (2 if update.mark else 3, 0.0, name)
        return (4, -plan.probes[name], name)

    return {each.node.name: each for each in sorted(updates, key=urgency)[:most]}


class NodeUpdater:
    """Executes node updates.

    A newer plan replaces updates that have not started. After a write, the node is not written again until the watch
    shows the change. After a failure, the node is retried with backoff. The update of a node that the plan took from
    its zone's queue holds a rate limit token, which is spent when the API server may have added the taint.

    ``spend`` is called when a token is spent, with the number of updates of its zone that hold a token, including its
    own, and with the time of the response. ``done`` is called when the update of a node has ended, and when a node that
    has failed may be planned again.
    """

    def __init__(
        self,
        dependencies: TaintingDependencies,
        *,
        spend: Callable[[TakenToken, int, float], None],
        done: Callable[[], None],
    ) -> None:
        self.probe_results: dict[str, ProbeResult] = {}
        self._dependencies = dependencies
        self._spend = spend
        self._done = done
        self._pending: dict[str, NodeUpdate] = {}
        self._busy: dict[str, NodeUpdate] = {}
        self._failures: dict[str, int] = {}
        self._written: Expectations[Node, NodeUpdate] = Expectations(
            dependencies.lister.node, dependencies.clock, timeout=WATCH_TIMEOUT
        )
        self._queue = WorkQueue(
            self._update,
            workers=WORKERS,
            clock=dependencies.clock,
            metrics=dependencies.queue_metrics.queue("node-updates"),
        )

    def drop_pending(self) -> None:
        """Drop the updates that have not started."""
        for name in self._pending:
            self._queue.discard(name)
        self._pending.clear()

    def in_flight(self) -> Counter[str]:
        """Return the number of updates that hold a rate limit token and have not ended yet, by zone."""
        updates = (*self._busy.values(), *self._pending.values())
        return Counter(each.token.zone for each in updates if each.token is not None)

    def forget_outdated(self, *, now: float) -> None:
        """Remove old probe results, and data of deleted nodes, including their backoff."""
        nodes = self._dependencies.lister.nodes
        self.probe_results = {
            name: each for name, each in self.probe_results.items() if name in nodes and now - each.at <= ANSWER_AGE
        }
        for name in [name for name in self._failures if name not in nodes]:
            self._queue.discard(name)
            del self._failures[name]

    def resting(self) -> frozenset[str]:
        """Return the nodes that do not block the queue of their zone.

        Their NoExecute taint is being written, or their update has failed repeatedly.
        """
        written = [write.value for name in self._written if (write := self._written.pending(name)) is not None]
        failing = {name for name, many in self._failures.items() if many >= MAX_QUIET_FAILURES and self._delayed(name)}
        updates = (*self._busy.values(), *written)
        return frozenset(failing.union(each.node.name for each in updates if each.changes_no_execute))

    def put(self, updates: Mapping[str, NodeUpdate]) -> None:
        """Queue updates in this order, except those of nodes that cannot be updated now."""
        self._failures = {name: many for name, many in self._failures.items() if name in updates or self._delayed(name)}
        for name, update in updates.items():
            if name not in self._busy and not self._delayed(name) and self._written.pending(name) is None:
                self._pending[name] = update
                self._queue.add(name)

    async def settled(self, seconds: float) -> bool:
        """Start no further update, wait for in-flight requests, and return whether all have ended in time."""
        self.drop_pending()
        return await self._queue.drain(seconds)

    async def run(self) -> None:
        """Execute updates until cancelled."""
        await self._queue.run()

    async def _update(self, name: str) -> None:
        update = self._pending.pop(name, None)
        if update is None:
            self._done()
            return
        self._busy[name] = update
        tainted = True
        try:
            tainted = self._dependencies.stale() is None and await self._send(update)
        except Exception:
            log.exception("Failed to update node %s: unexpected error", name)
            self._failed(update, "")
        finally:
            in_flight = self.in_flight()
            del self._busy[name]
            if update.token is not None and tainted:
                self._spend(update.token, in_flight[update.token.zone], self._dependencies.clock.now())
            self._done()

    async def _send(self, update: NodeUpdate) -> bool:
        """Send the requests for a node, and return whether its taints may have been written."""
        if update.probe and not await self._probe(update):
            return False
        name, versions = update.node.name, [update.node.resource_version]
        tainting = False
        try:
            # 1. Set the conditions to Unknown.
            if update.mark is not None:
                versions.append(await self._patch(name, update.mark.operations, subresource="status"))
                log.info("Set conditions of node %s to Unknown: %s", name, update.mark.message)
                self._report(update, update.mark.reason, f"set its conditions to Unknown: {update.mark.message}")
            # 2. Patch the taints.
            if update.changes:
                tainting = True
                versions.append(await self._patch(name, taint_patch(update.node, update.changes)))
                for change in update.changes:
                    self._dependencies.counts.nodes_tainted += change.add and change.taint.effect == NO_EXECUTE
                    self._dependencies.reporter.taint_changed(change, uid=update.node.uid)
            self._failures.pop(name, None)
        except NotFound:
            tainting = False
            self._wait_for_watch(update, versions[:1])
        except (Conflict, Invalid) as error:  # the node has changed since it was planned
            tainting = False
            self._failed(update, str(error), quiet=True)
        except (ApiError, Unreachable) as error:
            tainting = tainting and isinstance(error, ServerError | Unreachable)
            self._failed(update, f"{type(error).__name__}: {error}")
        if former := frozenset(versions) - {versions[-1]}:  # it is empty after a patch that changed nothing
            self._wait_for_watch(update, former)
        return tainting

    async def _patch(self, name: str, operations: Iterable[Operation], *, subresource: str = "") -> str:
        """Patch a node, and return its new resource version; ``""`` if it is unknown."""
        answer = await verbs.json_patch(
            self._dependencies.api, NODES, name, tuple(operations), subresource=subresource, timeout=REQUEST_TIMEOUT
        )
        return str((answer.get("metadata") or {}).get("resourceVersion", ""))

    def _wait_for_watch(self, update: NodeUpdate, versions: Iterable[str]) -> None:
        """Send no further request for a node until the watch shows another version than these, or its deletion."""
        node, former = update.node, frozenset(versions)
        self._written.expect(node.name, node.uid, update, shown_by=lambda node: node.resource_version not in former)

    async def _probe(self, update: NodeUpdate) -> bool:
        name = update.node.name
        try:
            answer = await probe_node(self._dependencies.api, name, now=self._dependencies.clock.now())
        except (ApiError, Unreachable, InputError) as error:
            self._retry_later(name)
            log.warning("Failed to probe node %s, whose heartbeat is overdue; retrying: %s", name, error)
            return False
        if answer is None:
            self._wait_for_watch(update, (update.node.resource_version,))
            return False
        self.probe_results[name] = answer
        return True

    def _failed(self, update: NodeUpdate, error: str, *, quiet: bool = False) -> None:
        name = update.node.name
        failures = self._retry_later(name)
        if not quiet or failures >= MAX_QUIET_FAILURES:
            log.warning("Failed to update node %s; retrying: %s", name, error)
        if failures == MAX_QUIET_FAILURES:
            self._report(update, reasons.NODE_UPDATE_FAILED, f"failed to update the node; retrying: {error}")

    def _retry_later(self, name: str) -> int:
        """Delay the next attempt for a node with backoff, and return its number of consecutive failures."""
        failures = self._failures.get(name, 0)
        self._failures[name] = failures + 1
        crowd = min(MAX_RETRY_DELAY, self._queue.statistics().delayed / RETRIES_PER_SECOND)
        self._queue.reschedule(name, max(RETRY.delay(failures), crowd))
        return failures + 1

    def _delayed(self, name: str) -> bool:
        return self._queue.next_due(name) is not None

    def _report(self, update: NodeUpdate, reason: str, note: str) -> None:
        node = update.node
        self._dependencies.reporter.node_event(node.name, uid=node.uid, reason=reason, note=note, warning=True)


def taint_patch(node: Node, changes: Sequence[TaintChange]) -> list[Operation]:
    """Build the JSON patch of a node's taints.

    It tests the UID of the node, so that a recreated node with the same name is not modified, and the Ready condition
    from which an added taint follows, so that a node that has recovered in the meantime is not tainted.
    """
    added = [_written(each.taint) for each in changes if each.add]
    removed = {(each.taint.key, each.taint.effect) for each in changes if not each.add}
    operations = [expect_value("/metadata/uid", node.uid)]
    status = next((status for status, key in READY_KEYS.items() if any(taint["key"] == key for taint in added)), None)
    index = next((index for index, each in enumerate(node.conditions) if each.type == READY), None)
    if status is not None and index is not None:
        path = f"/status/conditions/{index}"
        operations += [expect_value(f"{path}/type", READY), expect_value(f"{path}/status", status)]
    operations += append_taints(NodeFields.from_cache(node), *added)  # at the end, so that they shift no index
    for place, taint in reversed([*enumerate(node.taints)]):  # no removal shifts the index of another
        if (taint.key, taint.effect) in removed:
            path = f"/spec/taints/{place}"
            operations += [expect_value(f"{path}/key", taint.key), expect_value(f"{path}/effect", taint.effect)]
            operations.append({"op": "remove", "path": path})
    return operations


def _written(taint: Taint) -> dict[str, Any]:
    written = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    if taint.time_added is not None:
        written["timeAdded"] = rfc3339(taint.time_added)
    return {key: value for key, value in written.items() if value}
