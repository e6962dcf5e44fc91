"""Removes one node, from adding the taint to the deletion of its machine, or rolls the removal back.

Each step leaves taints and annotations on the node (:mod:`trimtab.autoscaling.actuation.node_markers`). If the process
ends, a later process reads them and resumes the removal or rolls it back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.plan import RemoveNode
from trimtab.autoscaling.actuation.drain import Drain, daemon_set_pods, pods_to_evict
from trimtab.autoscaling.actuation.node_markers import (
    DELAY_DELETION,
    markers_of,
    taint_and_cordon,
    untaint_and_uncordon,
)
from trimtab.autoscaling.actuation.removal import (
    Phase,
    RemovalEnded,
    RemovalObserver,
    RemovalOutcome,
    RemovalResult,
    RemovalSettings,
    RemovalState,
    aborted,
    failed,
    request_failed,
    superseded,
)
from trimtab.autoscaling.actuation.removal_batch import (
    RemovalBatches,
    RemovalTicket,
    RemovedMachine,
    wait_until_removed,
)
from trimtab.autoscaling.actuation.removal_review import RemovalReview
from trimtab.autoscaling.groups import MachineState
from trimtab.autoscaling.providers import MachineRemoval
from trimtab.controller.loop import end_tasks
from trimtab.disruption.evictor import Evictor
from trimtab.disruption.outcome import Refusal
from trimtab.kube.api import (
    Api,
    ApiError,
    Conflict,
    Invalid,
    LeaderOnlyApi,
    NotLeading,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from trimtab.kube.clock import Clock
from trimtab.kube.node_patches import NodeFields, Operation, patch_node
from trimtab.kube.objects import Node, Pod

Leading = Callable[[], bool]
Stale = Callable[[], str | None]


class StopControl:
    """Implements :class:`~trimtab.autoscaling.actuation.removal.RemovalControl` for one removal.

    Args:
        clock: the clock.
        settings: contains how long the cluster state may be stale.
        leading: returns whether this process is the leader.
        stale: returns the reason why the cluster state is stale, or ``None`` if it is up to date.
        state: the initial state of the removal.

    Attributes:
        state: the state of the removal.
        stopping: an event that is set when the removal must stop.
    """

    def __init__(
        self,
        clock: Clock,
        settings: RemovalSettings,
        leading: Leading,
        stale: Stale,
        state: RemovalState,
    ) -> None:
        self._clock, self._settings = clock, settings
        self._leading, self._stale = leading, stale
        self._stop_reason: Refusal | None = None
        self.state = state
        self.stopping = asyncio.Event()

    def cancel(self, refusal: Refusal) -> None:
        """Stop the removal at its next checkpoint. If it is called again, the first reason is kept."""
        self._stop_reason = self._stop_reason or refusal
        self.stopping.set()

    def check_leading(self) -> None:
        """Check that this process is the leader.

        Raises:
            RemovalEnded: another process may be the leader.
        """
        if not self._leading():
            raise superseded()

    async def checkpoint(self) -> None:
        """See :class:`~trimtab.autoscaling.actuation.removal.RemovalControl`."""
        began = self._clock.monotonic()
        while True:
            self.check_leading()
            if self._stop_reason is not None:
                raise aborted(self._stop_reason)
            why = self._stale()
            if why is None:
                return
            if self._clock.monotonic() - began >= self._settings.stale_timeout:
                raise aborted(Refusal(reasons.CLUSTER_UNREACHABLE, f"the cluster state is stale: {why}"))
            self.report_progress(f"the cluster state is stale: {why}")
            await self.pause(self._settings.poll_interval)

    def report_progress(self, message: str) -> None:
        """See :class:`~trimtab.autoscaling.actuation.removal.RemovalControl`."""
        self.state = replace(self.state, message=message)

    async def pause(self, seconds: float) -> None:
        """See :class:`~trimtab.autoscaling.actuation.removal.RemovalControl`."""
        tasks = {asyncio.create_task(self._clock.sleep(seconds)), asyncio.create_task(self.stopping.wait())}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(tasks)


log = logging.getLogger(__name__)

_MESSAGES = {
    Phase.MARKED: "waiting until the mark of the machine is old enough before lowering the size of the node group",
    Phase.REMOVING: "checking the marks of the machines and lowering the size of the node group",
    Phase.VERIFYING: "verifying which machine is deleted after the size of the node group was lowered",
}

MAX_ROUNDS = 3
"""The maximum number of times that a node is drained if new pods keep being bound to it."""


class RemovalDependencies(Struct, frozen=True, kw_only=True):
    """The dependencies that all node removals share.

    :class:`~trimtab.autoscaling.actuation.removals.Removals` creates and documents them.
    """

    api: Api
    review: RemovalReview
    batches: RemovalBatches
    clock: Clock
    settings: RemovalSettings
    leading: Leading
    stale: Stale
    observer: RemovalObserver
    at_once: asyncio.Semaphore
    evictor: Evictor


class NodeRemoval:
    """Removes one node. Each instance handles a single removal.

    Args:
        state: the initial state. If an earlier process started the removal, ``since`` is the time at which it added the
            taint.
        dependencies: the dependencies that all removals share.
        removal: the size change that an earlier process requested, if the only remaining step is to verify that the
            machine is deleted; otherwise ``None``.
    """

    def __init__(
        self, state: RemovalState, dependencies: RemovalDependencies, *, removal: MachineRemoval | None = None
    ) -> None:
        self._dependencies = dependencies
        self._clock, self._settings = dependencies.clock, dependencies.settings
        self._api = LeaderOnlyApi(dependencies.api, dependencies.leading)
        self._removal = removal
        self._resumed_verification = removal is not None
        self._control = StopControl(
            dependencies.clock, dependencies.settings, dependencies.leading, dependencies.stale, state
        )
        self._ticket: RemovalTicket | None = None
        self._drain = Drain(
            state.node,
            api=self._api,
            review=dependencies.review,
            clock=dependencies.clock,
            settings=dependencies.settings,
            at_once=dependencies.at_once,
            control=self._control,
            evictor=dependencies.evictor,
        )

    # --- called by Removals --------------------------------------------------------------------------------------

    @property
    def state(self) -> RemovalState:
        """Return the current state."""
        return self._control.state

    @property
    def phase(self) -> Phase:
        """Return the current phase."""
        return self.state.phase

    @property
    def can_cancel(self) -> bool:
        """Return whether the removal can still be cancelled, so that the node is kept."""
        sent = self._ticket is not None and self._ticket.sent
        return self.phase not in (Phase.VERIFYING, Phase.RETURNING) and not sent

    def cancel(self, refusal: Refusal) -> None:
        """Cancel the removal and roll it back.

        This has no effect if the size has been lowered or a rollback is in progress.
        """
        if self.phase not in (Phase.VERIFYING, Phase.RETURNING):
            self._control.cancel(refusal)

    async def run(self) -> RemovalOutcome:
        """Run the removal and return its outcome. It never raises an exception."""
        try:
            await self._run_steps()
            outcome = self._outcome(RemovalResult.REMOVED, self.state.why, f"{self.state.message}")
        except RemovalEnded as ended:
            outcome = await self._roll_back(ended)
        except Exception as error:  # a bug in one removal must neither stop others nor leave the node tainted
            log.exception("Failed to remove node %s: unexpected error; rolling back", self.state.node)
            outcome = await self._roll_back(failed(reasons.REMOVAL_FAILED, f"{type(error).__name__}: {error}"))
        self._dependencies.observer.ended(outcome)
        return outcome

    def _change(self, **fields: Any) -> None:
        self._control.state = replace(self.state, **fields)

    def _enter(self, phase: Phase, message: str = "") -> None:
        self._change(phase=phase, message=message)

    # --- the steps -----------------------------------------------------------------------------------------------

    async def _run_steps(self) -> None:
        if self._removal is None:
            # 1. Taint and cordon the node. A resumed removal checks that its taint is still there.
            await (self._check_taint() if self.state.resumed else self._taint())
            # 2. Wait for pods that a scheduler assigned to the node before it observed the taint.
            await self._wait_for_schedulers()
            # 3. Review the node again, and evict its pods.
            await self._drain_node()
            # 4. Honour annotations that delay the deletion.
            await self._wait_for_delay_annotations()
            # 5. Mark the machine and lower the group's size, in a batch with other nodes of the group.
            taken = await self._remove_machine()
            self._removal = taken.removal
            if taken.removal is None:
                self._control.report_progress("the node's machine was already being deleted")
                return
        else:
            taken = RemovedMachine(self._removal.machines[0], self._removal)
        # 6. Verify that the controller deletes this machine.
        removal = taken.removal
        assert removal is not None
        self._enter(Phase.VERIFYING, f"target size lowered from {removal.before} to {removal.after}")
        self._control.report_progress(
            await wait_until_removed(
                taken,
                self.state.group,
                batches=self._dependencies.batches,
                review=self._dependencies.review,
                clock=self._clock,
                settings=self._settings,
                known_visible=self._resumed_verification,
                check_leading=self._control.check_leading,
            )
        )

    async def _taint(self) -> None:
        """Add the taint, the cordon and trimtab's annotations in one request."""
        await self._control.checkpoint()
        node = await self._node()
        cordon = self._dependencies.review.spec.scaling_down.cordon_node_before_terminating == "Enabled"
        build = taint_and_cordon(int(self.state.since), cordon=cordon)
        cordoned = False

        def change(fields: NodeFields) -> Sequence[Operation]:
            nonlocal cordoned
            cordoned = cordon and (not fields.unschedulable or markers_of(fields).cordoned)
            return build(fields)

        try:
            exists = await patch_node(
                self._api,
                node.name,
                node.uid,
                change,
                fields=NodeFields.from_cache(node),
                timeout=self._settings.timeout,
            )
        except (ApiError, Unreachable) as error:
            await self._control.checkpoint()
            raise request_failed(error, reasons.NODE_UPDATE_FAILED, f"the node was not tainted: {error}") from None
        if not exists:
            raise aborted(Refusal(reasons.ALREADY_GONE, "the node no longer exists, or a new node has its name"))
        self._change(cordoned=cordoned)
        self._dependencies.observer.began(self.state)

    async def _check_taint(self) -> None:
        """Check that the earlier process's taint is still on the node.

        The node is read from the API server, because the cache may be stale.

        Raises:
            RemovalEnded: the taint was removed.
        """
        await self._control.checkpoint()
        found = False

        def read_markers(fields: NodeFields) -> tuple[()]:
            nonlocal found
            found = markers_of(fields).ours
            return ()

        try:
            await patch_node(self._api, self.state.node, self.state.uid, read_markers, timeout=self._settings.timeout)
        except (ApiError, Unreachable) as error:
            await self._control.checkpoint()
            raise request_failed(error, reasons.NODE_UPDATE_FAILED, f"the node could not be read: {error}") from None
        if not found:
            raise aborted(Refusal(reasons.TAINT_REMOVED, "the deletion taint of an earlier process was removed"))
        # A mark left by the earlier process would block other removals of the group while this one drains.
        left = await unmark_machine(self._dependencies, self.state.node, self.state.group, None)
        if left:
            raise failed(reasons.SCALE_UNREACHABLE, f"{left} was not removed")

    async def _wait_for_schedulers(self) -> None:
        self._enter(Phase.WAITING, "waiting until schedulers observe the taint")
        delay = self._settings.taint_delay
        if self.state.resumed:
            delay = min(delay, max(0.0, self.state.since + delay - self._clock.now()))
        await self._control.pause(delay)
        await self._control.checkpoint()

    async def _drain_node(self) -> None:
        """Review the node and evict its pods, until all pods that must be evicted are gone."""
        self._enter(Phase.EVICTING, "reviewing the node")
        drained = False
        for _ in range(MAX_ROUNDS):
            await self._review()
            pods = self._pods_to_evict()
            if not pods and not drained:
                await self._drain.evict(())  # waits for pods that other clients are deleting
                break
            await self._drain.evict(pods)
            drained = True
            if not self._pods_to_evict():
                break
        else:
            raise failed(reasons.PODS_KEEP_COMING, f"new pods were bound to the node after each of {MAX_ROUNDS} drains")
        settings = self._settings
        by_default = (
            settings.evict_daemon_sets_of_drained
            if drained or not self.state.empty
            else settings.evict_daemon_sets_of_empty
        )
        daemons = daemon_set_pods(await self._pods(), by_default=by_default)
        if daemons:
            self._enter(Phase.EVICTING_DAEMON_SETS, f"evicting {len(daemons)} DaemonSet pods")
            await self._drain.evict_daemon_sets(daemons)
        if drained:
            self._enter(Phase.DRAINED, "reviewing the drained node")
            await self._review()  # evicted pods may not have fit elsewhere

    async def _review(self) -> None:
        """Check that a new plan would still remove the node.

        Raises:
            RemovalEnded: the plan would keep the node.
        """
        await self._control.checkpoint()
        found = await self._dependencies.review.review_node(self.state.node)
        await self._control.checkpoint()
        if isinstance(found, Refusal):
            raise aborted(Refusal(found.reason, f"kept after a review: {found.message}"))
        if not self.state.why:
            self._change(why=found.reason)

    async def _wait_for_delay_annotations(self) -> None:
        """Wait until no annotation delays the deletion, for at most ``delay_deletion_timeout``."""
        until = self._clock.monotonic() + self._settings.delay_deletion_timeout
        while self._clock.monotonic() < until:
            asking = sorted(key for key in (await self._node()).annotations if key.startswith(DELAY_DELETION))
            if not asking:
                return
            self._enter(Phase.DELAYED, f"the node's annotation {asking[0]} delays the deletion")
            await self._control.checkpoint()
            await self._control.pause(self._settings.poll_interval)

    async def _remove_machine(self) -> RemovedMachine:
        """Remove the machine in a batch with the machines of other drained nodes of the group.

        Raises:
            RemovalEnded: the machine was not removed.
        """
        self._enter(Phase.DRAINED, "waiting for other nodes of its group to be drained")
        await self._control.checkpoint()
        self._ticket = ticket = RemovalTicket(self.state.node, self.state.group)
        self._dependencies.batches.join(ticket)
        stopping = asyncio.create_task(self._control.stopping.wait())
        try:
            while not ticket.answer.done():
                waited: set[asyncio.Future[Any]] = {ticket.answer} if ticket.sent else {ticket.answer, stopping}
                await asyncio.wait(waited, timeout=self._settings.poll_interval, return_when=asyncio.FIRST_COMPLETED)
                if ticket.phase is not self.phase:
                    self._enter(ticket.phase, _MESSAGES.get(ticket.phase, ""))
                if not ticket.sent and stopping.done() and not ticket.answer.done():
                    break
        finally:
            await end_tasks([stopping])
        if not ticket.answer.done():
            ticket.answer.cancel()
            await self._control.checkpoint()
        return await ticket.answer

    # --- the end -------------------------------------------------------------------------------------------------

    async def _roll_back(self, ended: RemovalEnded) -> RemovalOutcome:
        left = ""
        if not ended.silent and self._dependencies.leading():
            self._enter(Phase.RETURNING, f"rolling back: {ended.refusal.message}")
            state = self.state
            left = await restore_node(
                self._dependencies,
                self._api,
                state.node,
                state.uid,
                group=state.group,
                removal=self._removal,
                why=ended.refusal,
            )
        return replace(
            self._outcome(ended.result, ended.refusal.reason, ended.refusal.message),
            refused="" if ended.pod is None else ended.pod.key,
            refused_uid="" if ended.pod is None else ended.pod.uid,
            left=left,
        )

    def _outcome(self, result: RemovalResult, reason: str, message: str) -> RemovalOutcome:
        state = self.state
        return RemovalOutcome(
            node=state.node,
            group=state.group,
            result=result,
            reason=reason,
            message=message,
            evicted=dict(self._drain.evicted),
            calls=self._api.calls + (0.0 if self._ticket is None else self._ticket.calls),
            started=state.since,
            finished=self._clock.now(),
            uid=state.uid,
            machine=state.machine,
            why=state.why,
        )

    async def _node(self) -> Node:
        node = self._dependencies.review.node(self.state.node)
        if node is None or (self.state.uid and node.uid != self.state.uid):
            raise aborted(Refusal(reasons.ALREADY_GONE, "the node no longer exists, or a new node has its name"))
        return node

    async def _pods(self) -> list[Pod]:
        return self._dependencies.review.pods(self.state.node)

    def _pods_to_evict(self) -> list[Pod]:
        review = self._dependencies.review
        return pods_to_evict(review.pods(self.state.node), review.node(self.state.node))


def started_state(action: RemoveNode, *, now: float) -> RemovalState:
    """Return the initial state of a planned removal."""
    return RemovalState(
        node=action.node,
        group=action.group,
        machine=action.machine,
        phase=Phase.TAINTING,
        since=float(int(now)),
        uid=action.uid,
        why=action.reason,
        message=action.message,
        empty=not action.moves,
    )


_RETRIED = (Conflict, Invalid, ServerError, TooManyRequests, Unreachable)
"""Errors after which the rollback of a node is retried."""


async def restore_node(
    dependencies: RemovalDependencies,
    api: Api,
    node: str,
    uid: str,
    *,
    group: str,
    removal: MachineRemoval | None = None,
    why: Refusal,
) -> str:
    """Roll back a node: remove the deletion annotation of its machine, and the node's taint, cordon and annotations.

    The machine's annotation is removed first. Otherwise new pods could be bound to the untainted node although the
    controller would still delete its machine before others. Until the annotation is removed, the node stays tainted and
    cordoned, except in the last attempt.

    Args:
        dependencies: the dependencies that all removals share.
        api: the API client. It sends requests only while this process is the leader.
        node: name of the node.
        uid: UID of the node; empty to accept any node with that name.
        group: id of the node's group.
        removal: the size change, if one was requested. Its machines are processed even if the cache does not contain
            their deletion annotations yet.
        why: why the node is kept.

    Returns:
        A description of what could not be rolled back and why; empty if the rollback is complete. The next reconcile
        retries it.
    """
    clock, settings = dependencies.clock, dependencies.settings
    until = clock.monotonic() + settings.rollback_timeout
    tries = 0
    cleanup = _Cleanup(why)
    while True:
        try:
            unmarked = await unmark_machine(dependencies, node, group, removal)
            if not unmarked or clock.monotonic() >= until:
                await cleanup.patch(dependencies, api, node, uid)
        except NotLeading as error:
            return str(error)
        except _RETRIED as error:
            left = f"taint and cordon: {error}"
        except ApiError as error:
            return f"taint and cordon: {error}"
        except Exception as error:  # a bug here must not keep the removal running
            log.exception("Failed to roll back the removal of node %s: unexpected error", node)
            return f"{type(error).__name__}: {error}"
        else:
            left = unmarked
        if not left or clock.monotonic() >= until:
            return left
        await clock.sleep(settings.error_backoff.delay(tries))
        tries += 1


class _Cleanup:
    """Removes the taint, cordon and annotations of a removal from a node, and reports that the node was uncordoned.

    Args:
        why: why the node is kept.
    """

    def __init__(self, why: Refusal) -> None:
        self._why = why
        self._cordoned = False

    async def patch(self, dependencies: RemovalDependencies, api: Api, node: str, uid: str) -> None:
        """Patch the node. See :func:`~trimtab.kube.node_patches.patch_node` for the errors."""
        exists = await patch_node(api, node, uid, self._change, timeout=dependencies.settings.timeout)
        if exists and self._cordoned:
            dependencies.observer.uncordoned(node, uid, self._why, at=dependencies.clock.now())

    def _change(self, fields: NodeFields) -> list[Operation]:
        # A patch whose response was lost may have removed the cordon that an earlier attempt saw.
        self._cordoned = self._cordoned or (fields.unschedulable and markers_of(fields).cordoned)
        return untaint_and_uncordon(fields)


async def unmark_machine(
    dependencies: RemovalDependencies, node: str, group: str, removal: MachineRemoval | None
) -> str:
    """Remove trimtab's deletion annotation from the node's machine.

    Returns:
        A description of the annotations that could not be removed; empty if none is left.
    """
    found = (await dependencies.review.groups()).by_id.get(group)
    if found is None:
        return ""
    ours = () if removal is None else removal.machines
    marked = [
        each.name
        for each in found.machines
        if each.node == node and each.state is not MachineState.DELETING and (each.marked or each.name in ours)
    ]
    left = await dependencies.batches.unmark(found, marked, text="" if removal is None else removal.mark)
    return f"the mark of machine {', '.join(left)}" if left else ""
