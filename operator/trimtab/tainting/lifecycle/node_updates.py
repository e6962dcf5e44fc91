"""Executes the node updates of the newest plan.

Several nodes are updated concurrently, each with one request at a time. Each request has the observed state of the node
as a precondition. Its result is a return value and not an exception.

Taints are changed with a JSON patch (RFC 6902). It addresses list elements by index, so it tests that each element is
still the observed one. A concurrent edit of another taint is preserved. If a taint that the patch changes was edited,
the API server refuses the whole patch. Patches that add not-ready or unreachable also test the Ready condition, so that
a node that has recovered in the meantime is not tainted.
"""

from __future__ import annotations

import enum
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.plan import rfc3339
from trimtab.controller.work_queue import WorkQueue
from trimtab.kube import verbs
from trimtab.kube.api import Api, ApiError, Conflict, Invalid, NotFound, ServerError, Unreachable
from trimtab.kube.errors import InputError
from trimtab.kube.node_patches import Operation, add_value, expect_value
from trimtab.kube.objects import NODE_LEASES, Lease, Node, Taint
from trimtab.kube.resources import LEASES, NODES
from trimtab.kube.retry import Backoff
from trimtab.kube.rules.taints import NO_EXECUTE, format_taint
from trimtab.kube.wire.decode import decode_object
from trimtab.tainting.dependencies import TaintingDependencies
from trimtab.tainting.lifecycle.node_health import (
    READY,
    READY_KEYS,
    MarkUnknown,
    ProbeResult,
    TaintChange,
    stamp_of,
)
from trimtab.tainting.lifecycle.planner import LifecyclePlan
from trimtab.tainting.lifecycle.zones import TakenToken

log = logging.getLogger(__name__)

TIMEOUT: Final = 10.0
"""Timeout of one request in seconds."""

RETRY: Final = Backoff(initial=0.2, maximum=10.0)
"""Backoff after consecutive failures of one node. Retries never stop. Upstream logs that it requeues a node, but does
not requeue it.
"""


class PatchResult(enum.Enum):
    """The result of a patch."""

    WRITTEN = "Written"
    CONFLICT = "Conflict"  # a test of the JSON patch failed (422), or the write conflicted (409)
    GONE = "Gone"  # the node no longer exists
    FAILED = "Failed"  # no response, or another error


class NodeWriteResult(Struct, frozen=True):
    """The result of patching a node.

    Attributes:
        outcome: the result of the patch.
        certain: whether it is certain that a failed patch was not applied. After a success it has no meaning.
        version: the node's resource version after the patch; ``""`` if it is unknown.
        error: the API server's message, or the reason why there was no response.
    """

    outcome: PatchResult
    certain: bool = True
    version: str = ""
    error: str = ""


async def probe_node(api: Api, node: str, *, now: float) -> ProbeResult | None:
    """Read a node and its Lease from the API server. The requests bypass the API server's watch cache and our caches.

    Args:
        api: the API client.
        node: name of the node.
        now: the current time in seconds since the epoch. Changes that the watches deliver after it are newer than the
            result.

    Returns:
        The result; ``None`` if the node no longer exists.

    Raises:
        ApiError: the API server returned an error.
        Unreachable: no response arrived.
        InputError: the response cannot be decoded.
    """
    try:
        found = decode_object(await verbs.get(api, NODES, node, timeout=TIMEOUT))
    except NotFound:
        return None
    try:
        lease = decode_object(await verbs.get(api, LEASES, node, namespace=NODE_LEASES, timeout=TIMEOUT))
    except NotFound:
        lease = None
    if not isinstance(found, Node) or not (lease is None or isinstance(lease, Lease)):
        raise InputError("is neither a Node nor a Lease", object=f"Node/{node}")
    return ProbeResult(found.uid, stamp_of(found, lease), now)


async def write_mark(api: Api, mark: MarkUnknown) -> NodeWriteResult:
    """Set the conditions of a node without heartbeats to Unknown."""
    return await _patch_node(api, mark.node, mark.operations, subresource="status")


async def write_taints(api: Api, patch: TaintPatch) -> NodeWriteResult:
    """Patch the taints of a node."""
    return await _patch_node(api, patch.node, patch.operations)


async def _patch_node(api: Api, node: str, operations: Any, *, subresource: str = "") -> NodeWriteResult:
    try:
        answer = await verbs.json_patch(api, NODES, node, operations, subresource=subresource, timeout=TIMEOUT)
    except (Conflict, Invalid) as error:
        return NodeWriteResult(PatchResult.CONFLICT, error=str(error))
    except NotFound as error:
        return NodeWriteResult(PatchResult.GONE, error=str(error))
    except (ApiError, Unreachable) as error:
        certain = isinstance(error, ApiError) and not isinstance(error, ServerError)
        return NodeWriteResult(PatchResult.FAILED, certain, error=f"{type(error).__name__}: {error}")
    return NodeWriteResult(PatchResult.WRITTEN, version=str((answer.get("metadata") or {}).get("resourceVersion", "")))


WORKERS: Final = 16
"""Number of nodes that are updated concurrently."""

MAX_QUIET_FAILURES: Final = 3
"""Number of consecutive failures after which a node no longer blocks the queue of its zone, and an event is emitted."""


WATCH_TIMEOUT: Final = 30.0
"""Seconds within which the watch must show a write or the deletion of a node. After that, the node is planned again,
because the response was wrong: a proxy in front of a starting API server may answer every request with 404.
"""


RETRIES_PER_SECOND: Final = 100
"""Maximum retries per second of all nodes, unless the delay would exceed :data:`MAX_RETRY_DELAY`."""

MAX_RETRY_DELAY: Final = 30.0
"""Maximum seconds until a node is retried, regardless of the number of failed nodes."""


class NodeUpdate(Struct, frozen=True, kw_only=True):
    """The update of one node. Its requests are sent in the order of the attributes.

    Attributes:
        node: the node object that was planned.
        token: the rate limit token with which the plan took the node from its zone's queue; ``None`` if it did not.
        probe: whether to probe the node, before it is set to Unknown.
        mark: the patch that sets the node's conditions to Unknown; ``None`` if it is not needed.
        patch: the patch of the node's taints; ``None`` if it is not needed.
    """

    node: Node
    token: TakenToken | None = None
    probe: bool = False
    mark: MarkUnknown | None = None
    patch: TaintPatch | None = None

    @property
    def changes_no_execute(self) -> bool:
        """Return whether the update adds or removes a NoExecute taint."""
        return self.patch is not None and any(each.taint.effect == NO_EXECUTE for each in self.patch.changes)


MAX_UPDATES: Final = 500
"""Maximum number of nodes per iteration. The workers cannot finish more before the next iteration plans them again."""


def node_updates(plan: LifecyclePlan, nodes: Mapping[str, Node], *, most: int = MAX_UPDATES) -> dict[str, NodeUpdate]:
    """Return the updates of a plan by node name, the most urgent first: NoExecute taints, then conditions, then probes.

    Args:
        plan: the plan of an iteration.
        nodes: the planned nodes, by name.
        most: maximum number of updates. Nodes that were taken from a queue come first.
    """
    marks = {each.node: each for each in plan.unknown}
    changing = {each.node for each in plan.taints}
    changing_no_execute = {each.node for each in plan.taints if each.taint.effect == NO_EXECUTE}

    def urgency(name: str) -> tuple[int, float, str]:
        if name in changing_no_execute:
            return (0 if name in plan.taken else 1, 0.0, name)
        if name in marks or name not in plan.probes:
            return (2 if name in marks else 3, 0.0, name)
        return (4, -plan.probes[name], name)

    chosen = sorted((name for name in {*plan.probes, *marks, *changing} if name in nodes), key=urgency)[:most]
    wanted = set(chosen)
    changes = {each.node: each for each in patches((each for each in plan.taints if each.node in wanted), nodes)}
    return {
        name: NodeUpdate(
            node=nodes[name],
            token=plan.taken.get(name),
            probe=name in plan.probes,
            mark=marks.get(name),
            patch=changes.get(name),
        )
        for name in chosen
    }


class _UnconfirmedWrite(Struct, frozen=True):
    """A write that the watch does not show yet, with the resource versions that the node had before it."""

    update: NodeUpdate
    versions: frozenset[str]
    until: float


class SpentToken(Struct, frozen=True):
    """A rate limit token whose request was answered or timed out.

    Attributes:
        token: the token.
        in_flight: number of outstanding requests in the zone, including this one.
        at: the time of the response or timeout, in seconds since the epoch.
    """

    token: TakenToken
    in_flight: int
    at: float


class NodeUpdater:
    """Executes node updates.

    A newer plan replaces updates that have not started. After a write, the node is not written again until the watch
    shows the change. After a failure, the node is retried with backoff. The update of a node that the plan took from
    its zone's queue holds a rate limit token. Until the request is sent, the token can be returned.

    Args:
        services: the dependencies of the taint manager.
        done: called whenever the update of a node has ended.

    Attributes:
        probe_results: the API server's responses for probed nodes, by node name.
    """

    def __init__(self, services: TaintingDependencies, *, done: Callable[[], None]) -> None:
        self.probe_results: dict[str, ProbeResult] = {}
        self._services = services
        self._done = done
        self._pending: dict[str, NodeUpdate] = {}
        self._busy: dict[str, NodeUpdate] = {}
        self._given_up: list[NodeUpdate] = []
        self._spent: list[SpentToken] = []
        self._failures: dict[str, int] = {}
        self._again: dict[str, float] = {}
        self._unseen: dict[str, _UnconfirmedWrite] = {}
        self._queue = WorkQueue(
            self._update, workers=WORKERS, clock=services.clock, metrics=services.queue_metrics.queue("node-updates")
        )

    # ── for the loop ────────────────────────────────────────────────────────────────────────────────────────────

    def take_back(self) -> list[NodeUpdate]:
        """Drop the updates that have not started.

        Return those of them that hold a rate limit token, and the failed updates that still hold one.
        """
        left = [update for update in (*self._pending.values(), *self._given_up) if update.token is not None]
        self._drop_pending()
        self._given_up.clear()
        return left

    def take_spent(self) -> list[SpentToken]:
        """Return the tokens whose requests were answered since the previous call, in the order of the responses."""
        spent, self._spent = self._spent, []
        return spent

    def in_flight(self) -> Counter[str]:
        """Return the number of outstanding requests that hold a rate limit token, by zone."""
        return Counter(each.token.zone for each in self._busy.values() if each.token is not None)

    def under_way(self) -> list[NodeUpdate]:
        """Return the updates that hold a rate limit token and have not ended yet."""
        return [update for update in (*self._busy.values(), *self._pending.values()) if update.token is not None]

    def forget_outdated(self, *, now: float, age: float) -> None:
        """Remove writes that the watch has confirmed, old probe results, and data of deleted nodes.

        Args:
            now: the current time in seconds since the epoch.
            age: seconds for which a probe result is valid.
        """
        nodes, present = self._services.lister.nodes, self._services.clock.monotonic()
        self._unseen = {
            name: each
            for name, each in self._unseen.items()
            if (node := nodes.get(name)) is not None
            and node.uid == each.update.node.uid
            and node.resource_version in each.versions
            and present < each.until
        }
        self.probe_results = {
            name: each for name, each in self.probe_results.items() if name in nodes and now - each.at <= age
        }
        self._again = {name: at for name, at in self._again.items() if at > present and name in nodes}

    def resting(self) -> frozenset[str]:
        """Return the nodes that do not block the queue of their zone.

        These are nodes whose NoExecute taint is being written, and nodes whose update has failed repeatedly.
        """
        on_its_way = [name for name, update in self._busy.items() if update.changes_no_execute]
        on_its_way += [name for name, each in self._unseen.items() if each.update.changes_no_execute]
        return frozenset(
            (*on_its_way, *(name for name in self._again if self._failures.get(name, 0) >= MAX_QUIET_FAILURES))
        )

    def put(self, updates: Mapping[str, NodeUpdate]) -> list[NodeUpdate]:
        """Queue updates in this order.

        Return the updates that hold a rate limit token and cannot start now. The caller gives their tokens back.
        """
        left = []
        self._failures = {name: many for name, many in self._failures.items() if name in updates or name in self._again}
        for name, update in updates.items():
            if name not in self._busy and name not in self._unseen and name not in self._again:
                self._pending[name] = update
                self._queue.add(name)
            elif update.token is not None:
                left.append(update)
        return left

    def next_try(self) -> float | None:
        """Return the time of the next retry on the monotonic clock; ``None`` if no node has failed."""
        return min(self._again.values(), default=None)

    async def settled(self, seconds: float) -> bool:
        """Start no further update, wait for in-flight requests, and return whether all have ended in time."""
        self._drop_pending()
        return await self._queue.drain(seconds)

    # ── workers ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Execute updates until cancelled."""
        await self._queue.run()

    def _drop_pending(self) -> None:
        for name in self._pending:
            self._queue.discard(name)
        self._pending.clear()

    async def _update(self, name: str) -> None:
        update = self._pending.pop(name, None)
        if update is None:
            return
        self._busy[name] = update
        sent = True
        try:
            sent = await self._do(update)
        except Exception:
            log.exception("Failed to update node %s: unexpected error", name)
            self._failed(update, NodeWriteResult(PatchResult.FAILED, certain=False))
        finally:
            if update.token is not None and sent:
                now = self._services.clock.now()
                self._spent.append(SpentToken(update.token, self.in_flight()[update.token.zone], now))
            elif update.token is not None:
                self._given_up.append(update)
            del self._busy[name]
            self._done()

    async def _do(self, update: NodeUpdate) -> bool:
        """Send the requests for a node, and return whether its taints may have been written."""
        if self._services.stale() is not None:
            return False
        if update.probe and not await self._probe(update):
            return False
        versions = [update.node.resource_version]
        failure = await self._mark(update, versions) or await self._taint(update, versions)
        if failure is not None:
            self._failed(update, failure)
        else:
            self._failures.pop(update.node.name, None)
            self._again.pop(update.node.name, None)
        old = frozenset(versions) - {versions[-1]}
        if old:
            self._wait_for_watch(update, old)
        return failure is None or not failure.certain

    def _stop_until_deletion_is_visible(self, update: NodeUpdate) -> None:
        """Send no further request for a node that no longer exists, until the watch shows the deletion."""
        self._wait_for_watch(update, frozenset((update.node.resource_version,)))

    def _wait_for_watch(self, update: NodeUpdate, versions: frozenset[str]) -> None:
        self._unseen[update.node.name] = _UnconfirmedWrite(
            update, versions, self._services.clock.monotonic() + WATCH_TIMEOUT
        )

    async def _probe(self, update: NodeUpdate) -> bool:
        name = update.node.name
        try:
            answer = await probe_node(self._services.api, name, now=self._services.clock.now())
        except (ApiError, Unreachable, InputError) as error:
            self._retry_later(name)
            log.warning("Failed to probe node %s, whose heartbeat is overdue; retrying: %s", name, error)
            return False
        if answer is None:
            self._stop_until_deletion_is_visible(update)
            return False
        self.probe_results[name] = answer
        return True

    async def _mark(self, update: NodeUpdate, versions: list[str]) -> NodeWriteResult | None:
        """Set the conditions to Unknown and return the failure, if any.

        Append the new resource version to ``versions``.
        """
        if update.mark is None:
            return None
        written = await write_mark(self._services.api, update.mark)
        if written.outcome is not PatchResult.WRITTEN:
            return replace(written, certain=True)  # no patch of the taints was sent
        versions.append(written.version)
        log.info("Set conditions of node %s to Unknown: %s", update.node.name, update.mark.message)
        self._report(update, update.mark.reason, f"set its conditions to Unknown: {update.mark.message}")
        return None

    async def _taint(self, update: NodeUpdate, versions: list[str]) -> NodeWriteResult | None:
        """Patch the taints and return the failure, if any. Append the new resource version to ``versions``."""
        if update.patch is None:
            return None
        written = await write_taints(self._services.api, update.patch)
        if written.outcome is not PatchResult.WRITTEN:
            return written
        versions.append(written.version)
        for change in update.patch.changes:
            self._services.counts.nodes_tainted += change.add and change.taint.effect == NO_EXECUTE
            self._services.reporter.taint_changed(change, uid=update.node.uid)
            _log(change)
        return None

    def _failed(self, update: NodeUpdate, written: NodeWriteResult) -> None:
        name = update.node.name
        if written.outcome is PatchResult.GONE:
            self._stop_until_deletion_is_visible(update)
            return
        failures = self._retry_later(name)
        if written.outcome is PatchResult.FAILED or failures >= MAX_QUIET_FAILURES:
            log.warning("Failed to update node %s; retrying: %s", name, written.error)
        if failures == MAX_QUIET_FAILURES:
            self._report(update, reasons.NODE_UPDATE_FAILED, f"failed to update the node; retrying: {written.error}")

    def _retry_later(self, name: str) -> int:
        """Delay the next attempt for a node with backoff, and return its number of consecutive failures."""
        failures = self._failures.get(name, 0)
        self._failures[name] = failures + 1
        wait = max(RETRY.delay(failures), min(MAX_RETRY_DELAY, len(self._again) / RETRIES_PER_SECOND))
        self._again[name] = self._services.clock.monotonic() + wait
        return failures + 1

    def _report(self, update: NodeUpdate, reason: str, note: str) -> None:
        self._services.reporter.node_event(
            update.node.name, uid=update.node.uid, reason=reason, note=note, warning=True
        )


def _log(change: TaintChange) -> None:
    taint = format_taint(change.taint)
    fields = {"node": change.node, "taint": taint, "reason": change.reason, "detail": change.message}
    done = "Added taint %s to node %s: %s" if change.add else "Removed taint %s from node %s: %s"
    log.info(done, taint, change.node, change.message, extra=fields)


class TaintPatch(Struct, frozen=True):
    """All taint changes of one node.

    Attributes:
        node: name of the node.
        changes: the taint changes, additions first.
        operations: the operations of the JSON patch. It tests the UID of the node, so that a recreated node with the
            same name is not modified.
    """

    node: str
    changes: tuple[TaintChange, ...]
    operations: tuple[Operation, ...]


def patches(changes: Iterable[TaintChange], nodes: Mapping[str, Node]) -> tuple[TaintPatch, ...]:
    """Build one patch per node, sorted by name. Nodes that no longer exist are omitted.

    Args:
        changes: the taint changes of all nodes, each at most once.
        nodes: the nodes for which the changes were planned, by name.
    """
    by_node: dict[str, list[TaintChange]] = {}
    for change in changes:
        by_node.setdefault(change.node, []).append(change)
    return tuple(_patch(nodes[name], by_node[name]) for name in sorted(by_node) if name in nodes)


def _patch(node: Node, changes: list[TaintChange]) -> TaintPatch:
    ordered = sorted(changes, key=lambda each: (not each.add, each.taint.key, each.taint.effect))
    operations: list[Operation] = [expect_value("/metadata/uid", node.uid)]
    added = [each.taint for each in ordered if each.add]
    operations += _guards(node, added)
    operations += _additions(node, added)
    operations += _removals(node, [each.taint for each in ordered if not each.add])
    return TaintPatch(node.name, tuple(ordered), tuple(operations))


def _guards(node: Node, added: list[Taint]) -> list[Operation]:
    """Return tests that the node has not recovered, so that the added taint still matches its Ready status."""
    keys = {taint.key for taint in added}
    for status, key in READY_KEYS.items():
        if key not in keys:
            continue
        for place, condition in enumerate(node.conditions):
            if condition.type == READY:
                path = f"/status/conditions/{place}"
                return [expect_value(f"{path}/type", READY), expect_value(f"{path}/status", status)]
    return []


def _additions(node: Node, added: list[Taint]) -> list[Operation]:
    if added and not node.taints:
        return [expect_value("/spec/taints", None), add_value("/spec/taints", [_written(taint) for taint in added])]
    return [add_value("/spec/taints/-", _written(taint)) for taint in added]


def _removals(node: Node, removed: list[Taint]) -> list[Operation]:
    """Return the removals, starting with the last index, so that no removal shifts the index of another.

    Additions are appended to the list and shift no index.
    """
    operations: list[Operation] = []
    gone = {(taint.key, taint.effect) for taint in removed}
    for place in range(len(node.taints) - 1, -1, -1):
        taint = node.taints[place]
        if (taint.key, taint.effect) in gone:
            path = f"/spec/taints/{place}"
            operations += [expect_value(f"{path}/key", taint.key), expect_value(f"{path}/effect", taint.effect)]
            operations.append({"op": "remove", "path": path})
    return operations


def _written(taint: Taint) -> dict[str, str]:
    written = {"key": taint.key, "effect": taint.effect}
    if taint.value:
        written["value"] = taint.value
    if taint.time_added is not None:
        written["timeAdded"] = rfc3339(taint.time_added)
    return written
