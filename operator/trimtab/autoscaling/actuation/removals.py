"""Manages all node removals of a process: those that plans request, and the leftovers of earlier processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.plan import RemoveNode
from trimtab.autoscaling.actuation.node_markers import records_to_write, removal_markers, write_unneeded_records
from trimtab.autoscaling.actuation.node_removal import NodeRemoval, RemovalDependencies, restore_node, started_state
from trimtab.autoscaling.actuation.removal import (
    DEFAULT_SETTINGS,
    NoObserver,
    Phase,
    RemovalObserver,
    RemovalOutcome,
    RemovalResult,
    RemovalSettings,
    RemovalState,
)
from trimtab.autoscaling.actuation.removal_batch import RemovalBatches
from trimtab.autoscaling.actuation.removal_checks import (
    NOT_READY_NODE_GRACE,
    SETTLE_SECONDS,
    Leftover,
    LeftoverAction,
    StrayMarks,
    is_for_removals,
    leftovers,
    rivals_with_pods,
    start_refusal,
    stop_reasons,
)
from trimtab.autoscaling.actuation.removal_review import Grouping, RemovalReview
from trimtab.autoscaling.groups import Groups, NodeGroup
from trimtab.autoscaling.providers import Provider
from trimtab.cluster.lister import Lister
from trimtab.cluster.shared_snapshot import SharedSnapshot
from trimtab.controller.loop import BackgroundTasks
from trimtab.controller.permissions import permissions
from trimtab.disruption.evictor import Evictor
from trimtab.disruption.outcome import Refusal
from trimtab.kube.api import Api, LeaderOnlyApi
from trimtab.kube.clock import Clock
from trimtab.kube.objects import Node
from trimtab.kube.rules.taints import TO_BE_DELETED

log = logging.getLogger(__name__)

FORBIDDEN_SETTLE_SECONDS: Final = 5.0
"""The same as ``SETTLE_SECONDS`` after a removal that lacked a permission, so that it is retried soon after a grant.

Until the permission is granted, the check of permissions keeps the removal from starting again.
"""

REFUSAL_BACKOFF: Final = 120.0
"""Seconds until a refused removal is retried, so that not every reconcile reports the refusal."""

SHUTDOWN_TIMEOUT: Final = 20.0
"""Default seconds that a stopping process may take to roll back nodes."""

_COUNTED_PHASES: Final = frozenset(Phase) - {Phase.VERIFYING, Phase.RETURNING}
"""The phases in which a removal counts toward the limits on concurrent removals."""


class Removals:
    """Starts node removals and checks them in each reconcile. There is one instance per process.

    Each removal runs in its own task, so the autoscaler's reconcile loop never waits for a removal.

    Args:
        api: the API server.
        shared: the snapshot that planners share.
        lister: reads single objects from the cache.
        grouping: builds the node groups of a snapshot in the same way as the iterations do.
        providers: the providers by the API group of the node groups that they scale. Each provider must check before
            each request that this process is the leader.
        clock: the clock.
        leading: returns whether this process is the leader.
        stale: returns the reason why the cluster state is stale, or ``None`` if it is up to date.
        evictor: admits and sends evictions.
        settings: the limits, timeouts and backoffs of removals.
        observer: called when removals start and end.
    """

    def __init__(
        self,
        *,
        api: Api,
        shared: SharedSnapshot,
        lister: Lister,
        grouping: Grouping,
        providers: Mapping[str, Provider],
        clock: Clock,
        leading: Callable[[], bool],
        stale: Callable[[], str | None],
        evictor: Evictor,
        settings: RemovalSettings = DEFAULT_SETTINGS,
        observer: RemovalObserver | None = None,
    ) -> None:
        self._settings, self._clock = settings, clock
        self._leading, self._stale = leading, stale
        self._api = LeaderOnlyApi(api, leading)
        self._review = RemovalReview(shared, lister, grouping, clock)
        self._batches = RemovalBatches(
            providers,
            self._api,
            self._review,
            clock,
            settings,
            not_ready=self._not_ready_reason,
            leading=leading,
            draining=lambda node: node in self._removals,
        )
        self._dependencies = RemovalDependencies(
            api=api,
            review=self._review,
            batches=self._batches,
            clock=clock,
            settings=settings,
            leading=leading,
            stale=stale,
            observer=observer or NoObserver(),
            at_once=asyncio.Semaphore(settings.max_in_flight),
            evictor=evictor,
        )
        self._permissions = permissions()
        self._removals: dict[str, NodeRemoval] = {}
        self._tasks = BackgroundTasks()
        self._rolling_back: dict[str, RemovalState] = {}
        self._recently_ended: dict[str, tuple[str, float]] = {}
        self._refusals: dict[str, tuple[str, float]] = {}
        self._marks = StrayMarks(self._batches, clock)
        self._unmarking = BackgroundTasks()
        self._recording: asyncio.Task[None] | None = None
        self._outcomes: list[RemovalOutcome] = []
        self._cleaned_nodes: dict[str, str] = {}
        self._closing = False
        self.foreign: Mapping[str, str] = {}
        """The nodes that another autoscaler had tainted at the last reconcile: the value of the taint by node name.

        The operator does not act on them.
        """

    @property
    def running(self) -> frozenset[str]:
        """Return the names of the nodes that are being removed, without those whose removal is being rolled back."""
        return frozenset(self._removals)

    @property
    def active(self) -> Mapping[str, RemovalState]:
        """Return the removals and rollbacks in progress by node name."""
        return {**self._rolling_back, **{name: removal.state for name, removal in self._removals.items()}}

    @property
    def changing(self) -> frozenset[str]:
        """Return the ids of the groups with a removal batch in progress.

        The batch adds deletion annotations to the group's machines or lowers its size.
        """
        return self._batches.changing

    def backoff_reason(self, group: NodeGroup) -> str:
        """Return the reason why no machine of a group may be removed now; empty if removals are allowed.

        A group backs off after its controller deleted a wrong machine.
        """
        return self._batches.backoff_reason(group)

    def clear_backoffs(self, groups: Groups) -> tuple[str, ...]:
        """End all removal backoffs and the waits after refused removals.

        Args:
            groups: the current node groups.

        Returns:
            The ids of the groups that were in backoff or had a longer mark delay.
        """
        self._refusals.clear()
        cleared = tuple(group.id for group in groups.all if self._batches.observe(group).clear())
        for id_ in cleared:
            self._batches.annotations.save_later(id_)
        return cleared

    def mark_delay(self, group: NodeGroup) -> float:
        """Return the minimum age in seconds of deletion annotations before the group's size is lowered."""
        return self._batches.observe(group).mark_delay

    @property
    def unmarking(self) -> int:
        """Return the number of groups whose stray deletion annotations are being removed."""
        return len(self._unmarking)

    def take_outcomes(self) -> tuple[RemovalOutcome, ...]:
        """Return the outcomes of the removals that ended since the last call, in order."""
        taken, self._outcomes = tuple(self._outcomes), []
        return taken

    def ignore_holds(self, nodes: frozenset[str]) -> None:
        """Set the nodes that pod annotations no longer protect from removal, because ``maxHold`` has passed."""
        self._review.not_held = nodes

    def take_cleaned(self) -> Mapping[str, str]:
        """Return the UIDs of the nodes that were cleaned of leftovers since the last call, by node name."""
        taken, self._cleaned_nodes = self._cleaned_nodes, {}
        return taken

    def begin(self, actions: Sequence[RemoveNode], spec: ClusterAutoscalerSpec, groups: Groups) -> tuple[str, ...]:
        """Start the removals of a plan, up to the limits on concurrent removals.

        Removals beyond the limits are not started; later plans contain them again.

        Args:
            actions: the removals in the order of the plan.
            spec: spec of the ClusterAutoscaler.
            groups: the node groups that the plan is based on.

        Returns:
            The names of the nodes whose removal was started.
        """
        self._review.spec = spec
        if self._closing or spec.mode != "Act" or self._not_ready_reason() is not None or self._lacks_permission():
            return ()
        names = []
        due = [action for action in actions if not self._must_wait(action, groups)]
        drained = self._drained_together(due, groups)
        for action in due:
            if self._was_just_refused(action):
                continue
            state = started_state(action, now=self._clock.now())
            refusal = start_refusal(action, groups, self._batches, removing=self._removals, drained=drained)
            if refusal is not None:
                self._outcomes.append(_refused_outcome(state, refusal, now=self._clock.now()))
                message = "Did not start the removal of node %s (%s): %s"
                fields = {"node": action.node, "group": action.group, "reason": refusal.reason}
                log.info(message, action.node, refusal.reason, refusal.message, extra=fields)
                self._refusals[action.node] = action.uid, self._clock.monotonic() + REFUSAL_BACKOFF
            elif self._has_free_slot(empty=state.empty):
                replaced = {action.node} if action.reason == reasons.REPLACEMENT else set()
                self._review.replaced = self._review.replaced - {action.node} | replaced
                self._start(NodeRemoval(state, self._dependencies))
                names.append(action.node)
        return tuple(names)

    async def reconcile(
        self,
        nodes: Iterable[Node],
        groups: Groups,
        spec: ClusterAutoscalerSpec | None,
        *,
        now: float,
        marking: Collection[str] = (),
        halted: str = "",
    ) -> None:
        """Check the removals against a snapshot.

        Stop removals that must not continue, and resume or roll back the leftovers of earlier processes.

        Args:
            nodes: all nodes of the cluster.
            groups: the node groups of the same snapshot.
            spec: spec of the ClusterAutoscaler; ``None`` if it does not exist. In that case all removals are rolled
                back.
            now: the current time in seconds since the epoch.
            marking: ids of the groups on whose machines a scale-up is writing deletion annotations.
            halted: the reason why the cluster is too unhealthy to remove nodes; empty if it is healthy. If it is set,
                removals that can still be cancelled are rolled back.
        """
        current = {node.name: node for node in nodes}
        if spec is not None:
            self._review.spec = spec
        self._recently_ended = {
            name: end for name, end in self._recently_ended.items() if self._has_just_ended(name, end[0])
        }
        self._refusals = {name: end for name, end in self._refusals.items() if self._clock.monotonic() < end[1]}
        stops = stop_reasons(self._removals, current, groups, spec, now=self._clock.now(), halted=halted)
        for name, refusal in stops.items():
            self._removals[name].cancel(refusal)
        left = leftovers(current.values(), groups, spec, ours=self._is_active, settings=self._settings, now=now)
        foreign = {each.node.name: each.markers.tainted or "" for each in left if each.markers.foreign}
        for name in sorted(foreign.keys() - self.foreign.keys()):
            log.warning(
                "Ignored node %s for scale-down because another autoscaler added taint %s to the node",
                name,
                TO_BE_DELETED,
                extra={"node": name},
            )
        self.foreign = foreign
        if self._closing or self._not_ready_reason() is not None:
            return
        for group in groups.all:
            self._batches.is_comparing(group)
        for each in left:
            self._resolve_leftover(each, may_go_on=not halted and self._has_free_slot(empty=False))
        checked = [group for group in groups.all if group.id not in marking]
        busy = {*self._removals, *self._rolling_back, *self._recently_ended, *(each.node.name for each in left)}
        for group, names in self._marks.due(checked, busy=busy):
            self._unmarking.start(self._marks.unmark(group, names), f"unmark machines of {group.id}")

    def record(self, unneeded: Mapping[str, float], nodes: Iterable[Node]) -> None:
        """Start updating the unneeded-since annotations of nodes in the background.

        The annotation is written to unneeded nodes, and removed from nodes that are needed again.

        Args:
            unneeded: for each unneeded node, when it became unneeded, in seconds since the epoch. If it is empty, all
                annotations are removed.
            nodes: all nodes of the cluster.
        """
        if self._closing or self._not_ready_reason() is not None:
            return
        if self._recording is not None and not self._recording.done():
            return  # the next iteration writes the missing annotations
        settings = self._settings
        found = records_to_write(
            nodes,
            unneeded,
            self.active,
            soft_taints=settings.soft_taints,
            limit=settings.max_record_writes,
            begun_by=self._clock.now() - settings.record_after,
        )
        if found:
            work = write_unneeded_records(self._api, found, settings)
            self._recording = self._tasks.start(work, "record unneeded nodes")

    async def finish(self, seconds: float = SHUTDOWN_TIMEOUT) -> None:
        """Stop all removals when the process ends.

        Removals that can still be cancelled are rolled back. The next leader continues the others.

        Args:
            seconds: the timeout. A later process finds unfinished removals by the taints and annotations on the nodes.
        """
        self._closing = True
        for removal in self._removals.values():
            removal.cancel(Refusal(reasons.SHUTTING_DOWN, "trimtab is stopping; the next leader reviews the node"))
        until = self._clock.monotonic() + seconds
        while self._leading() and self._clock.monotonic() < until and any(self._unfinished()):
            await self._clock.sleep(min(0.1, self._settings.poll_interval))
        await self._batches.stop()
        await asyncio.gather(self._tasks.stop(), self._unmarking.stop())
        await self._review.stop()

    def _unfinished(self) -> Iterable[str]:
        yield from self._rolling_back
        yield from (name for name, removal in self._removals.items() if removal.phase is not Phase.VERIFYING)

    # --- starting -----------------------------------------------------------------------------------------------

    def _not_ready_reason(self) -> str | None:
        """Return the reason why acting is unsafe now, or ``None``."""
        return self._stale() if self._leading() else "another process may be the leader by now"

    def _lacks_permission(self) -> bool:
        """Return whether a removal would fail because the service account is known to lack a permission for it."""
        return any(is_for_removals(each) for each in self._permissions.missing)

    def _must_wait(self, action: RemoveNode, groups: Groups) -> bool:
        """Return whether a removal or rollback of the node is in progress, or its leftovers must be handled first."""
        return (
            action.node in self._removals
            or action.node in self._rolling_back
            or self._has_just_ended(action.node, action.uid)
            or self._marks.settling(groups.by_id.get(action.group), left=self._has_leftovers)
        )

    def _drained_together(self, due: Sequence[RemoveNode], groups: Groups) -> frozenset[str]:
        """Return the nodes whose failed machines can be drained together with all others of their group.

        When the size is lowered, the group's controller may delete any of the group's failed machines. So either all of
        them are drained at the same time, or none.
        """
        drained = frozenset(self._removals)
        for id_ in {action.group for action in due}:
            rivals = rivals_with_pods(groups.by_id.get(id_), self._batches.review)
            new = rivals - drained
            if new and new <= {action.node for action in due} and len(new) <= self._free_slots(empty=False):
                drained |= new
                for node in new:  # earlier refusals named the other nodes, which are drained now
                    self._refusals.pop(node, None)
        return drained

    def _has_free_slot(self, *, empty: bool) -> bool:
        return self._free_slots(empty=empty) > 0

    def _free_slots(self, *, empty: bool) -> int:
        """Return how many more removals of empty nodes, or of nodes with pods, may start."""
        states = [removal.state for removal in self._removals.values() if removal.phase in _COUNTED_PHASES]
        most = self._settings.max_empty if empty else self._settings.max_drains
        return most - sum(state.empty is empty for state in states)

    def _start(self, removal: NodeRemoval) -> None:
        self._removals[removal.state.node] = removal
        state = removal.state
        fields = {"node": state.node, "group": state.group, "reason": state.why}
        if state.resumed:
            log.info("Resumed the removal of node %s, started by an earlier process", state.node, extra=fields)
        else:
            log.info("Started the removal of node %s (%s): %s", state.node, state.why, state.message, extra=fields)
        self._tasks.start(self._run(removal), f"remove node {removal.state.node}")

    async def _run(self, removal: NodeRemoval) -> None:
        name = removal.state.node
        outcome = await removal.run()
        del self._removals[name]
        self._review.replaced = self._review.replaced - {name}
        settle = FORBIDDEN_SETTLE_SECONDS if outcome.forbidden else SETTLE_SECONDS
        self._remember_ended(name, outcome.uid, NOT_READY_NODE_GRACE if outcome.done else settle)
        self._outcomes.append(outcome)
        if removal.state.resumed and not outcome.done and not outcome.left:
            self._cleaned_nodes[name] = outcome.uid
        level = logging.INFO if outcome.done or outcome.result is RemovalResult.ABORTED else logging.WARNING
        result = "Removed" if outcome.done else "Kept"
        fields = {"node": name, "group": outcome.group, "reason": outcome.reason}
        log.log(level, "%s node %s (%s): %s", result, name, outcome.reason, outcome.message, extra=fields)

    # --- reconciling ---------------------------------------------------------------------------------------------

    def _remember_ended(self, node: str, uid: str, seconds: float) -> None:
        """Record that a removal ended.

        For ``seconds``, taints and annotations on the node are not treated as leftovers, because a snapshot may be
        stale.
        """
        self._recently_ended[node] = uid, self._clock.monotonic() + seconds

    def _has_leftovers(self, node: str) -> bool:
        """Return whether the node may have markers of a removal that ended or that an earlier process started."""
        if node in self._removals:
            return False
        found = self._review.node(node)
        return (
            node in self._recently_ended
            or node in self._rolling_back
            or (found is not None and removal_markers(found).any)
        )

    def _was_just_refused(self, action: RemoveNode) -> bool:
        refused, until = self._refusals.get(action.node, ("", 0.0))
        return refused == action.uid and self._clock.monotonic() < until

    def _has_just_ended(self, node: str, uid: str) -> bool:
        ended, until = self._recently_ended.get(node, ("", 0.0))
        return ended == uid and self._clock.monotonic() < until

    def _is_active(self, node: Node) -> bool:
        name = node.name
        return name in self._removals or name in self._rolling_back or self._has_just_ended(name, node.uid)

    def _resolve_leftover(self, left: Leftover, *, may_go_on: bool) -> None:
        """Resume or roll back a removal that an earlier process started."""
        step = left.action
        backoff = left.group is not None and self._batches.backoff_reason(left.group)
        if step is LeftoverAction.RESUME and left.group is not None and self._batches.is_comparing(left.group):
            return
        if step is LeftoverAction.RESUME and (backoff or not may_go_on):
            step = LeftoverAction.ROLL_BACK
        if step is not LeftoverAction.VERIFY and self._lacks_permission():
            return
        state = RemovalState(
            node=left.node.name,
            group="" if left.group is None else left.group.id,
            machine=left.machine.key if left.machine is not None and left.machine.name else "",
            phase=Phase.WAITING,
            since=left.markers.since or 0.0,
            message="started by an earlier process",
            uid=left.node.uid,
            resumed=True,
        )
        if step in (LeftoverAction.RESUME, LeftoverAction.VERIFY):
            self._start(NodeRemoval(state, self._dependencies, removal=left.removal))
        elif step is LeftoverAction.ROLL_BACK:
            self._rolling_back[state.node] = replace(state, phase=Phase.RETURNING)
            self._tasks.start(self._roll_back(state), f"roll back node {state.node}")

    async def _roll_back(self, state: RemovalState) -> None:
        try:
            left = await restore_node(
                self._dependencies, self._api, state.node, state.uid, group=state.group, why=_STARTED_EARLIER
            )
        finally:
            del self._rolling_back[state.node]
        self._remember_ended(state.node, state.uid, SETTLE_SECONDS)
        if left:
            log.warning(
                "Failed to roll back the removal of node %s, which an earlier process started; retrying: %s",
                state.node,
                left,
                extra={"node": state.node},
            )
        else:
            self._cleaned_nodes[state.node] = state.uid
            message = "Rolled back the removal of node %s, which an earlier process started"
            log.info(message, state.node, extra={"node": state.node})


_STARTED_EARLIER: Final = Refusal(reasons.CLUSTER_AUTOSCALER_CLEANUP, "an earlier process cordoned the node")


def _refused_outcome(state: RemovalState, refusal: Refusal, *, now: float) -> RemovalOutcome:
    return RemovalOutcome(
        node=state.node,
        group=state.group,
        result=RemovalResult.ABORTED,
        reason=refusal.reason,
        message=refusal.message,
        started=now,
        finished=now,
        uid=state.uid,
        machine=state.machine,
        why=state.why,
    )
