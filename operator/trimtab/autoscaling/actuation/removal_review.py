"""Reviews nodes during their removal: whether a plan would still remove them, and which pods block the removal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, Generic, TypeVar

from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.plan import RemoveNode
from trimtab.autoscaling import scale_down
from trimtab.autoscaling.actuation.node_markers import CORDONED_BY, REMOVING, removal_markers
from trimtab.autoscaling.groups import Groups
from trimtab.autoscaling.replace.replacement_state import ReplacementState
from trimtab.autoscaling.scale_down.drainability import DrainContext, DrainOutcome, judge_template
from trimtab.cluster.lister import Lister
from trimtab.cluster.shared_snapshot import SharedSnapshot, in_thread
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.budgets import BudgetLedger
from trimtab.disruption.outcome import Refusal
from trimtab.kube.clock import Clock
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Node, Pod
from trimtab.kube.rules.taints import DELETION_CANDIDATE, TO_BE_DELETED

log = logging.getLogger(__name__)

T = TypeVar("T")

Grouping = Callable[[Snapshot], Groups]
"""A function that builds the node groups of a snapshot."""

FRESH_SECONDS: Final = 1.0
"""Seconds for which built groups are reused, because many removals need them at the same time."""

GATHER_SECONDS: Final = 0.05
"""Seconds for which review requests are collected, so that the reviews are made together."""

_LONG_AGO: Final = "1970-01-01T00:00:00Z"


class RemovalReview:
    """Reads nodes, pods and node groups for removals, and reviews nodes that are being removed.

    Single objects are read from the lister. Reviews borrow the shared snapshot and take turns with the planners.

    Args:
        shared: the snapshot that planners share.
        lister: reads single objects from the cache.
        grouping: builds the node groups of a snapshot.
        clock: the clock.
    """

    def __init__(self, shared: SharedSnapshot, lister: Lister, grouping: Grouping, clock: Clock) -> None:
        self._shared = shared
        self._lister = lister
        self._grouping = grouping
        self._clock = clock
        self._groups: tuple[float, Groups] | None = None
        self._making: asyncio.Task[Groups] | None = None
        self._nodes = _ReviewBatch(self._review_nodes, clock)
        self._blockers = _ReviewBatch(self._review_pods, clock)
        self.spec = ClusterAutoscalerSpec()
        """Spec of the ClusterAutoscaler in the last reconcile."""
        self.replaced: frozenset[str] = frozenset()
        """Names of the nodes that are removed because new nodes replace them, regardless of their utilization."""
        self.not_held: frozenset[str] = frozenset()
        """Names of the nodes that pod annotations no longer protect from removal, because ``maxHold`` has passed."""

    def node(self, name: str) -> Node | None:
        """Return the node, or ``None`` if it does not exist."""
        return self._lister.node(name)

    def pods(self, node: str) -> list[Pod]:
        """Return the pods of a node, sorted by ``namespace/name``."""
        return self._lister.pods_on(node)

    async def eviction_blocker(self, key: str) -> Refusal | None:
        """Return the reason why a pod must no longer be evicted, or ``None``.

        The pod may have changed while a PodDisruptionBudget blocked its eviction. PodDisruptionBudgets themselves are
        not checked. Concurrent calls share one borrowed snapshot.
        """
        return await self._blockers.review(key)

    async def groups(self) -> Groups:
        """Return the node groups, which are at most :data:`FRESH_SECONDS` old."""
        if self._groups is not None and self._clock.monotonic() - self._groups[0] < FRESH_SECONDS:
            return self._groups[1]
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._make(), name="build node groups")
        return await asyncio.shield(self._making)

    async def review_node(self, node: str) -> RemoveNode | Refusal:
        """Review a node with trimtab's taint.

        The nodes of concurrent calls are reviewed in one plan, so that no two of them rely on the same free capacity.

        Returns:
            The removal that a plan would contain, or the reason why the plan would keep the node.
        """
        return await self._nodes.review(node)

    async def stop(self) -> None:
        """Wait for the reviews in progress, because they borrow the snapshot until they end."""
        if self._making is not None:
            await asyncio.gather(self._making, return_exceptions=True)
        await self._nodes.stop()
        await self._blockers.stop()

    async def _make(self) -> Groups:
        async with self._shared.borrow() as snapshot:
            found = await in_thread(partial(self._grouping, snapshot))
        self._groups = (self._clock.monotonic(), found)
        return found

    async def _review_nodes(self, names: tuple[str, ...]) -> dict[str, RemoveNode | Refusal]:
        async with self._shared.borrow() as snapshot:
            now = self._clock.now()
            return await in_thread(
                partial(
                    review_nodes,
                    snapshot,
                    self._grouping,
                    self.spec,
                    names,
                    now=now,
                    replaced=self.replaced,
                    not_held=self.not_held,
                )
            )

    async def _review_pods(self, keys: tuple[str, ...]) -> dict[str, Refusal | None]:
        async with self._shared.borrow(short=True) as snapshot:
            return await in_thread(
                partial(eviction_blockers, snapshot, self.spec, keys, now=self._clock.now(), not_held=self.not_held)
            )


class _ReviewBatch(Generic[T]):
    """Collects reviews that are requested at about the same time, and makes them together.

    Args:
        make: reviews the objects with the given names or keys.
        clock: the clock.
    """

    def __init__(self, make: Callable[[tuple[str, ...]], Awaitable[Mapping[str, T]]], clock: Clock) -> None:
        self._make = make
        self._clock = clock
        self._pending: dict[str, asyncio.Future[T]] = {}
        self._making: asyncio.Task[None] | None = None

    async def review(self, name: str) -> T:
        """Review one object, and return the result. The review starts after this call, never before."""
        pending = self._pending.get(name)
        if pending is None:
            pending = self._pending[name] = asyncio.get_running_loop().create_future()
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._make_all(), name="review removals")
        return await asyncio.shield(pending)

    async def stop(self) -> None:
        """Wait for the review in progress."""
        if self._making is not None:
            await asyncio.gather(self._making, return_exceptions=True)

    async def _make_all(self) -> None:
        await self._clock.sleep(GATHER_SECONDS)
        while self._pending:
            pending, self._pending = self._pending, {}
            try:
                found = await self._make(tuple(pending))
            except Exception as error:  # a bug in a rule must not leave a removal waiting
                log.exception("Failed to recheck whether nodes %s can be removed", ", ".join(sorted(pending)))
                for future in pending.values():
                    if not future.done():
                        future.set_exception(error)
                continue
            for name, future in pending.items():
                if not future.done():
                    future.set_result(found[name])


def eviction_blockers(
    snapshot: Snapshot,
    spec: ClusterAutoscalerSpec,
    keys: tuple[str, ...],
    *,
    now: float,
    not_held: frozenset[str] = frozenset(),
) -> dict[str, Refusal | None]:
    """Return the reasons why pods must not be evicted for a removal, by pod key.

    The value is ``None`` if the pod may be evicted. PodDisruptionBudgets are not checked.

    Args:
        snapshot: the cluster state.
        spec: spec of the ClusterAutoscaler.
        keys: the keys of the pods, as ``namespace/name``.
        now: the current time in seconds since the epoch.
        not_held: names of the nodes that pod annotations no longer protect from removal.
    """
    context = DrainContext(
        snapshot, BudgetLedger(snapshot), now, local_storage_blocks=spec.skip_nodes_with_local_storage
    )
    without_holds = replace(context, holds=False)
    found = {}
    for key in keys:
        pod = snapshot.pods.get(key)
        holds = pod is None or pod.node not in not_held
        found[key] = _eviction_blocker(pod, spec, context if holds else without_holds)
    return found


def _eviction_blocker(pod: Pod | None, spec: ClusterAutoscalerSpec, context: DrainContext) -> Refusal | None:
    if pod is None or pod.priority < spec.pod_priority_threshold:
        return None
    verdict = judge_template(pod, context)
    if verdict.outcome not in (DrainOutcome.BLOCK, DrainOutcome.WAIT):
        return None
    return Refusal(verdict.reason or reasons.BLOCKED_BY_POD, f"pod {pod.key}: {verdict.message}")


def review_nodes(
    snapshot: Snapshot,
    grouping: Grouping,
    spec: ClusterAutoscalerSpec,
    nodes: tuple[str, ...],
    *,
    now: float,
    replaced: frozenset[str] = frozenset(),
    not_held: frozenset[str] = frozenset(),
) -> dict[str, RemoveNode | Refusal]:
    """Return whether a new plan would still remove nodes that are being removed.

    The plan treats these nodes as if their removal had not started, and ignores how long they have been unneeded. Other
    nodes that are being removed are not reviewed, and their pods are placed first.

    Args:
        snapshot: the cluster state. The plan is made on a fork of it.
        grouping: builds the node groups of the snapshot.
        spec: spec of the ClusterAutoscaler.
        nodes: names of the nodes to review.
        now: the current time in seconds since the epoch.
        replaced: names of the nodes for which replacement nodes were added.
        not_held: names of the nodes that pod annotations no longer protect from removal.

    Returns:
        For each node name, the removal that the plan contains, or the reason why the plan keeps the node.
    """
    groups = _without_marks(grouping(snapshot), frozenset(nodes))
    with snapshot.fork():
        for name in nodes:
            slot = snapshot.nodes.slot_of.get(name)
            if slot is not None:
                snapshot.put(_without_markers(snapshot.nodes.node(slot)))
        made = scale_down.plan(
            snapshot,
            groups,
            spec,
            now=now,
            only=frozenset(nodes),
            replacing=ReplacementState(old=replaced),
            not_held=not_held,
        )
    found: dict[str, RemoveNode | Refusal] = {action.node: action for action in made.actions}
    for kept in made.kept:
        found[kept.name] = Refusal(kept.reason, kept.message)
    missing = Refusal(reasons.ALREADY_GONE, "the node no longer exists")
    return {name: found.get(name, missing) for name in nodes}


def _without_markers(node: Node) -> Node:
    """Return the node as if its removal had not started and it had been unneeded for long enough."""
    ours = removal_markers(node).ours
    annotations = {key: value for key, value in node.annotations.items() if key not in (REMOVING, CORDONED_BY)}
    return replace(
        node,
        unschedulable=node.unschedulable and CORDONED_BY not in node.annotations,
        taints=tuple(
            taint
            for taint in node.taints
            if taint.key != DELETION_CANDIDATE and not (ours and taint.key == TO_BE_DELETED)
        ),
        annotations=Labels({**annotations, scale_down.UNNEEDED_SINCE: _LONG_AGO}),
    )


def _without_marks(groups: Groups, nodes: frozenset[str]) -> Groups:
    """Return the groups as if the machines of these nodes had no deletion annotation."""
    by_id = dict(groups.by_id)
    for name in sorted(nodes):
        group = groups.group_of(name)
        if group is not None:
            machines = tuple(
                replace(each, marked=False) if each.node in nodes else each for each in by_id[group.id].machines
            )
            by_id[group.id] = replace(by_id[group.id], machines=machines)
    return replace(groups, by_id=by_id)
