"""Removes the machines of drained nodes, in one batch per node group at a time, and deletes only the chosen machines.

When a group's size is lowered, the group's controller decides which machine it deletes. It prefers machines with the
deletion annotation, called *marked* machines here. But the controller reads the marks and the size from two caches, and
a new size may reach it before the marks. It would then delete machines with running pods. Therefore a *batch* removes
machines of one group in these steps:

1. Mark the machines after their nodes were drained, so that a marked machine never runs pods that must move.
2. Wait until the marks are old enough (:attr:`RemovalSettings.mark_delay`). If a mark is removed, the wait starts
   again, because the controller may still see the removed mark.
3. Review the nodes again, write the removal record to the group (:mod:`trimtab.autoscaling.actuation.removal_record`),
   and read the marks from the API server.
4. Lower the size by one, and verify which machine is deleted. If it is a marked one, lower the size further. If the
   process is killed, the next process finishes the verification.
5. If an unmarked machine is deleted, stop: remove the marks, back off from the group, and double the mark delay.

Therefore at most one wrong machine is deleted if the controller's cache lags by more than the mark delay, else none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.bounds import plural
from trimtab.api.plan import rfc3339
from trimtab.autoscaling.actuation.drain import pods_to_evict
from trimtab.autoscaling.actuation.group_annotations import GroupAnnotations
from trimtab.autoscaling.actuation.removal import (
    Phase,
    RemovalEnded,
    RemovalSettings,
    aborted,
    failed,
    request_failed,
    superseded,
)
from trimtab.autoscaling.actuation.removal_backoff import RemovalBackoff
from trimtab.autoscaling.actuation.removal_review import FRESH_SECONDS, RemovalReview
from trimtab.autoscaling.groups import GroupMachine, MachineState, NodeGroup
from trimtab.autoscaling.groups.annotations import REMOVAL_IN_PROGRESS
from trimtab.autoscaling.providers import (
    MachineRemoval,
    MarkedMachines,
    Provider,
    ScaleFailure,
    VerifiedRemoval,
    api_group_of,
    failed_machines_tie,
    verify_removal,
)
from trimtab.controller.loop import end_tasks
from trimtab.disruption.outcome import Refusal
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock

log = logging.getLogger(__name__)

MAX_CONFLICTS: Final = 3
"""The maximum number of attempts of a batch to lower the size while another client keeps scaling its group."""

MAX_CACHE_LAG: Final = 30.0
"""Seconds for which the cache may still contain the old size after a successful size change."""

MAX_REQUEST_SECONDS: Final = 30.0
"""Seconds within which a request that got no response may still take effect. No request takes longer."""


class RemovalTicket:
    """The entry of a drained node in a removal batch.

    It is resolved when the node's machine is removed, or when the node must be kept.

    Attributes:
        node: name of the node.
        group: id of the node's group.
        phase: the phase of its batch: Drained, Marked, Removing or Verifying.
        calls: the number of requests sent for the node. A request for several nodes is divided equally among them.
        answer: a future that returns the removed machine, or raises an error with the reason why the node is kept.
            Cancel it to take the node out of the batch.
    """

    def __init__(self, node: str, group: str) -> None:
        self.node = node
        self.group = group
        self.phase = Phase.DRAINED
        self.calls = 0.0
        self.answer: asyncio.Future[RemovedMachine] = asyncio.get_running_loop().create_future()

    @property
    def open(self) -> bool:
        """Return whether the ticket has no result yet."""
        return not self.answer.done()

    @property
    def sent(self) -> bool:
        """Return whether the size is being lowered.

        If so, the node cannot leave the batch until it is known which machine is deleted.
        """
        return self.phase in (Phase.REMOVING, Phase.VERIFYING)


class RemovedMachine(Struct, frozen=True):
    """The result of removing a node's machine.

    Attributes:
        machine: name of the machine.
        removal: the size change; ``None`` if the machine was already being deleted.
        requested_at: the time at which the size change was requested, on the monotonic clock.
    """

    machine: str = ""
    removal: MachineRemoval | None = None
    requested_at: float = 0.0


class RemovalBatches:
    """Manages the removal batches of all groups.

    Args:
        providers: the providers by the API group of the node groups that they scale. Each provider checks before each
            request that this process is the leader.
        api: the API client that writes the groups' annotations. It checks before each request that this process is the
            leader.
        review: reads nodes, pods and node groups, and reviews removals.
        clock: the clock.
        settings: the timeouts and delays of removals.
        not_ready: returns the reason why acting is unsafe now, or ``None``.
        leading: returns whether this process is the leader.
        draining: returns whether a node is being removed.
    """

    def __init__(
        self,
        providers: Mapping[str, Provider],
        api: Api,
        review: RemovalReview,
        clock: Clock,
        settings: RemovalSettings,
        *,
        not_ready: Callable[[], str | None],
        leading: Callable[[], bool],
        draining: Callable[[str], bool],
    ) -> None:
        self.draining = draining
        self._providers = providers
        self.review = review
        self.clock = clock
        self.settings = settings
        self.not_ready = not_ready
        self.leading = leading
        self._waiting: dict[str, list[RemovalTicket]] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}
        self.annotations = GroupAnnotations(api, review, clock, settings, leading=leading)

    @property
    def changing(self) -> frozenset[str]:
        """Return the ids of groups with a batch in progress."""
        return frozenset(id_ for id_, worker in self._workers.items() if not worker.done())

    def join(self, ticket: RemovalTicket) -> None:
        """Add a node to the next batch of its group."""
        self._waiting.setdefault(ticket.group, []).append(ticket)
        worker = self._workers.get(ticket.group)
        if worker is None or worker.done():
            self._workers[ticket.group] = asyncio.create_task(
                self._work(ticket.group), name=f"remove machines of {ticket.group}"
            )

    def provider(self, group: NodeGroup) -> Provider | None:
        """Return the provider that scales a group, or ``None`` if no provider supports its API group."""
        return self._providers.get(api_group_of(group))

    def backoff_reason(self, group: NodeGroup) -> str:
        """Return the reason why no machine of a group may be removed now; empty if removals are allowed.

        A group backs off after its controller deleted a wrong machine.
        """
        self.is_comparing(group)
        return self.observe(group).backoff_reason(self.clock.now())

    def is_comparing(self, group: NodeGroup) -> bool:
        """Return whether it is still unknown which machine was deleted for an earlier process's size change.

        If this call finds the deleted machine, it records the result as if this process had lowered the size.
        """
        waiting, verdict = self.annotations.records.compare(group, now=self.clock.now())
        if verdict is None:
            return waiting
        backoff = self.observe(group)
        if verdict.unexpected and not backoff.backoff_reason(self.clock.now()):
            self._record_wrong_machine(group.id, verdict)
        self.annotations.save_later(group.id)
        return waiting

    async def unmark(self, group: NodeGroup, machines: Sequence[str], *, text: str = "") -> tuple[str, ...]:
        """Remove trimtab's marks from machines.

        After that, the group's next batch waits until the group's controller has seen the change. See
        :meth:`~trimtab.autoscaling.providers.provider.Provider.unmark`.
        """
        provider = self.provider(group)
        if provider is None or not machines:
            return ()
        try:
            return await provider.unmark(group, machines, mark=text)
        finally:
            self.backoff(group.id).marks_changed(self.clock.monotonic())

    async def report_wrong_machine(self, group: str, verdict: VerifiedRemoval) -> str:
        """Record that the group's controller deleted unmarked machines, and back off from the group.

        Returns:
            A message with the deleted machines and the end of the backoff.
        """
        message = self._record_wrong_machine(group, verdict)
        self.annotations.records.settle(group)
        await self.annotations.save(group)
        return message

    def _record_wrong_machine(self, group: str, verdict: VerifiedRemoval) -> str:
        backoff = self.backoff(group)
        before = backoff.mark_delay
        seconds = backoff.record_wrong_machine(self.clock.now())
        deleted_text = f"{', '.join(verdict.unexpected)} {'was' if len(verdict.unexpected) == 1 else 'were'} deleted"
        spared = ", ".join(verdict.kept)
        message = (
            f"{deleted_text} without a mark, instead of {spared}: the machine controller of {group} "
            f"had not observed marks that were {before:g}s old. The autoscaler removes no machine of the group before "
            f"{rfc3339(self.clock.now() + seconds)}; after that, marks must be at least {backoff.mark_delay:g}s old"
        )
        backoff.set_message(message)
        fields = {"reason": reasons.WRONG_MACHINE_REMOVED, "group": group}
        log.warning(
            "The machine controller removed the wrong machines from node group %s: %s", group, message, extra=fields
        )
        return message

    async def stop(self) -> None:
        """Cancel the batches when the process ends."""
        await end_tasks(self._workers.values())
        await self.annotations.stop()

    def backoff(self, group: str) -> RemovalBackoff:
        """Return the removal backoff of a group.

        Args:
            group: id of the group.
        """
        return self.annotations.backoff(group)

    def observe(self, group: NodeGroup) -> RemovalBackoff:
        """Update a group's removal backoff from the group's annotation, and return it."""
        return self.annotations.observe(group)

    async def _work(self, group: str) -> None:
        await self.clock.sleep(self.settings.batch_delay)
        while tickets := [each for each in self._waiting.pop(group, ()) if each.open]:
            try:
                await _RemovalBatch(self, group, tickets).run()
            except RemovalEnded as ended:
                _fail_tickets(tickets, ended)
            except Exception as error:  # a bug here must not leave nodes waiting forever
                log.exception("Failed to remove machines of node group %s: unexpected error", group)
                _fail_tickets(tickets, failed(reasons.SCALE_REFUSED, f"{type(error).__name__}: {error}"))
            self.annotations.records.release(group)
            await self.annotations.save(group)


class _RemovalBatch:
    """One batch: the nodes of one group whose machines are removed together."""

    def __init__(self, batches: RemovalBatches, group: str, tickets: Sequence[RemovalTicket]) -> None:
        self._batches = batches
        self._id = group
        self._tickets = tickets
        self._marked: MarkedMachines | None = None
        self._first = True
        self._conflicts = 0
        self._review, self._clock, self._settings = batches.review, batches.clock, batches.settings
        self._backoff = batches.backoff(group)

    async def run(self) -> None:
        """Remove the machines, and set the result of every ticket.

        Raises:
            RemovalEnded: the machines of the tickets without a result are kept, and their marks have been removed.
        """
        try:
            while found := await self._candidates():
                group, machines = found
                if self._marked is None:
                    await self._mark(group, machines)
                elif self._marked.text and (seconds := self._backoff.seconds_until_old(self._clock.monotonic())):
                    await self._clock.sleep(seconds)
                else:
                    await self._remove(group, machines)
        except RemovalEnded:
            await self._unmark_all()
            raise
        except Exception:
            # While the size is being lowered, removing the marks could make the controller delete other machines.
            if not any(each.open and each.sent for each in self._tickets):
                await self._unmark_all()
            raise

    # --- selecting machines --------------------------------------------------------------------------------------

    async def _candidates(self) -> tuple[NodeGroup, dict[RemovalTicket, GroupMachine]] | None:
        """Wait until the group's controller is idle, and return the group and the machines to remove.

        Tickets that leave the batch are resolved, and their machines are unmarked.

        Returns:
            The group in the current cluster state, and the machine of each remaining ticket; ``None`` if all tickets
            are resolved.

        Raises:
            RemovalEnded: the group no longer exists, or its controller did not become idle in time.
        """
        until = self._clock.monotonic() + self._settings.catch_up_timeout
        while tickets := [each for each in self._tickets if each.open]:
            await self._ready_to_act(until)
            group = await self._group()
            tickets = [each for each in tickets if each.open]  # tickets may be cancelled while groups are built
            if backoff := self._batches.backoff_reason(group):
                raise aborted(Refusal(reasons.WRONG_MACHINE_REMOVED, backoff))
            machines = _machines_of(group, tickets)
            if machines and self._rivals_drain(group, machines):
                await self._clock.sleep(2 * self._settings.poll_interval)
                continue
            busy = _catching_up_reason(group) or _marked_by_others(group, machines, self._marked)
            if self._batches.is_comparing(group):
                busy = "it is unknown which machine was deleted after an earlier process lowered the size"
            if machines and busy:
                if self._clock.monotonic() >= until:
                    raise failed(reasons.SCALE_REFUSED, busy)
                await self._clock.sleep(2 * self._settings.poll_interval)
                continue
            machines = await self._still_empty(_within_minimum(group, machines))
            machines = {ticket: machine for ticket, machine in machines.items() if ticket.open}
            await self._unmark_all_but(group, machines)
            if machines:
                return group, machines
        if self._marked is not None:
            await self._unmark_all()
        return None

    def _rivals_drain(self, group: NodeGroup, machines: Mapping[RemovalTicket, GroupMachine]) -> bool:
        """Return whether the batch must wait for the drain of failed machines that might be deleted instead."""
        if not failed_machines_tie(group):
            return False
        ours = {machine.name for machine in machines.values()}
        failed = [m for m in group.machines if m.state is MachineState.FAILED and m.name not in ours]
        return bool(machines_with_pods([m for m in failed if self._batches.draining(m.node)], self._review))

    async def _group(self) -> NodeGroup:
        found = (await self._review.groups()).by_id.get(self._id)
        if found is None:
            raise aborted(Refusal(reasons.SCALE_TARGET_GONE, f"node group {self._id} no longer exists"))
        return found

    async def _ready_to_act(self, until: float) -> None:
        while why := self._batches.not_ready():
            if self._clock.monotonic() >= until:
                raise aborted(Refusal(reasons.CLUSTER_UNREACHABLE, why))
            await self._clock.sleep(self._settings.poll_interval)

    async def _still_empty(self, machines: Mapping[RemovalTicket, GroupMachine]) -> dict[RemovalTicket, GroupMachine]:
        """Return the machines whose nodes received no pods while the batch waited.

        A pod that tolerates all taints may have been bound to such a node. Deleting the machine would terminate that
        pod without an eviction, and so ignore its PodDisruptionBudget.
        """
        found = {}
        for ticket, machine in machines.items():
            pods = pods_to_evict(self._review.pods(ticket.node), self._review.node(ticket.node))
            if not pods:
                found[ticket] = machine
            elif ticket.open:
                message = f"pod {pods[0].key} was bound to the node while its machine waited to be removed"
                ticket.answer.set_exception(aborted(Refusal(reasons.PODS_KEEP_COMING, message)))
        return found

    # --- marking -------------------------------------------------------------------------------------------------

    async def _mark(self, group: NodeGroup, machines: Mapping[RemovalTicket, GroupMachine]) -> None:
        provider = self._provider(group)
        marked = await provider.mark(*_as_unmarked(group, machines.values()), now=self._clock.now())
        self._backoff.marks_changed(self._clock.monotonic())
        _share_calls(machines, marked.calls)
        if marked.failure is not None:
            await self._after_failure(marked.failure, marked.message)
            return
        self._marked = marked
        for ticket in machines:
            ticket.phase = Phase.MARKED

    async def _unmark_all_but(self, group: NodeGroup, machines: Mapping[RemovalTicket, GroupMachine]) -> None:
        """Remove the delete annotations of the machines that have left the batch.

        The provider may have annotated further machines that the controller could delete instead
        (:attr:`MarkedMachines.added`). They keep the annotation until the batch is empty.

        Args:
            group: the group of the batch.
            machines: the machines that are still in the batch.
        """
        if self._marked is None:
            return
        keep = {machine.name for machine in machines.values()} | ({*self._marked.added} if machines else set())
        dropped = [each.name for each in self._marked.machines if each.name not in keep]
        if dropped and self._marked.text:
            await self._batches.unmark(group, dropped, text=self._marked.text)
        self._marked = replace(self._marked, machines=tuple(m for m in self._marked.machines if m.name in keep))

    async def _unmark_all(self) -> None:
        marked, self._marked = self._marked, None
        group = (await self._review.groups()).by_id.get(self._id)
        if marked is None or group is None or not marked.text:
            return
        there = {each.name for each in group.machines if each.state is not MachineState.DELETING}
        await self._batches.unmark(group, [m.name for m in marked.machines if m.name in there], text=marked.text)

    # --- removing ------------------------------------------------------------------------------------------------

    async def _remove(self, group: NodeGroup, machines: Mapping[RemovalTicket, GroupMachine]) -> None:
        """Lower the size by one step, and verify which machines are deleted.

        Raises:
            RemovalEnded: the provider refuses the change, an unmarked machine was deleted, or another client raised the
                size.
        """
        marked = self._marked
        assert marked is not None
        added = [each for each in group.machines if each.name in marked.added]
        if rivals := machines_with_pods(added, self._review):
            message = f"failed machines {', '.join(rivals)} still run pods and might be deleted instead"
            raise failed(reasons.SCALE_REFUSED, message)
        count = self._backoff.next_step(first=self._first) if marked.text else None
        requested_at = self._clock.monotonic()
        removal = await self._lower_size(group, machines, marked, count)
        if removal is None:
            return
        self._first = False
        if removal.before - removal.after >= len(marked.machines):
            for ticket in machines:
                ticket.phase = Phase.VERIFYING
        verdict = await self._wait_until_settled(removal, requested_at) if marked.text else None
        for ticket, machine in machines.items():
            if ticket.open and (verdict is None or machine.name in verdict.deleted):
                ticket.answer.set_result(RemovedMachine(machine.name, removal, requested_at))
            elif ticket.open:
                ticket.phase = Phase.MARKED
        await self._judge(removal, verdict, marked)

    async def _lower_size(
        self,
        group: NodeGroup,
        machines: Mapping[RemovalTicket, GroupMachine],
        marked: MarkedMachines,
        count: int | None,
    ) -> MachineRemoval | None:
        """Record the size change on the group, and request it.

        Returns:
            The size change; ``None`` if it failed and the next attempt may succeed.
        """
        for ticket in machines:
            ticket.phase = Phase.REMOVING
        if count is not None:
            _share_calls(machines, 1)
            error = await self._batches.annotations.record(group, marked, count)
            if not self._batches.leading():
                raise superseded()
            if error is not None:
                message = f"annotation {REMOVAL_IN_PROGRESS} of {group.kind} {group.key} was not written: {error}"
                raise request_failed(error, reasons.SCALE_UNREACHABLE, message)
        removal = await self._provider(group).remove(group, marked, count=count)
        _share_calls(machines, removal.calls)
        if removal.failure is None or removal.doubt:
            return removal
        for ticket in machines:
            ticket.phase = Phase.DRAINED
        self._marked = None  # the provider has removed the marks
        self._backoff.marks_changed(self._clock.monotonic())
        self._batches.annotations.records.settle(self._id)
        await self._after_failure(removal.failure, removal.message)
        return None

    async def _judge(self, removal: MachineRemoval, verdict: VerifiedRemoval | None, marked: MarkedMachines) -> None:
        if verdict is None:  # not known yet: each removal waits for its own machine
            self._marked = None
            return
        if len(verdict.deleted) >= removal.before - removal.after:
            self._backoff.record_success(len(verdict.deleted))
            await self._batches.annotations.save(self._id)
            self._batches.annotations.records.settle(self._id)
            left = tuple(each for each in marked.machines if each.name not in verdict.deleted)
            self._marked = replace(marked, machines=left) if left else None
            return
        if verdict.unexpected:
            raise failed(reasons.WRONG_MACHINE_REMOVED, await self._batches.report_wrong_machine(self._id, verdict))
        self._batches.annotations.records.settle(self._id)
        message = f"machines {', '.join(verdict.kept)} are kept: the target size is no longer {removal.after}"
        raise failed(reasons.MACHINE_NOT_DELETED, f"{removal.message}; {message}" if removal.message else message)

    async def _wait_until_settled(self, removal: MachineRemoval, requested_at: float) -> VerifiedRemoval | None:
        """Wait until the controller has deleted machines, and return which ones were deleted.

        Returns:
            The verified deletions; ``None`` if the controller did not delete enough machines in time.
        """
        until = self._clock.monotonic() + self._settings.catch_up_timeout
        while self._batches.leading() and self._clock.monotonic() < until:
            await self._clock.sleep(max(FRESH_SECONDS, self._settings.poll_interval))
            if self._batches.not_ready() is not None:
                continue
            group = (await self._review.groups()).by_id.get(self._id)
            if is_visible(group, removal, self._clock.monotonic() - requested_at):
                verdict = verify_removal(removal, group)
                if verdict.settled or len(verdict.deleted) >= removal.before - removal.after:
                    return verdict
        return None

    async def _after_failure(self, failure: ScaleFailure, message: str) -> None:
        """Wait before the next attempt to lower the size.

        Raises:
            RemovalEnded: the provider refuses the change, or other clients scaled the group between too many attempts.
        """
        if failure is ScaleFailure.FORBIDDEN:
            raise aborted(Refusal(failure, message))
        self._conflicts += 1
        if failure is not ScaleFailure.CONFLICT or self._conflicts >= MAX_CONFLICTS:
            raise failed(failure, message)
        await self._clock.sleep(2 * self._settings.poll_interval)

    def _provider(self, group: NodeGroup) -> Provider:
        found = self._batches.provider(group)
        if found is None:
            raise failed(reasons.SCALE_REFUSED, f"no provider supports {group.api_version}")
        return found


async def wait_until_removed(
    found: RemovedMachine,
    group: str,
    *,
    batches: RemovalBatches,
    review: RemovalReview,
    clock: Clock,
    settings: RemovalSettings,
    known_visible: bool,
    check_leading: Callable[[], None],
) -> str:
    """Wait until it is known which machine was deleted after a size change.

    There is no timeout: the size has been lowered, so the controller will delete some machine.

    Args:
        found: the machine to be removed, and the size change.
        group: id of the machine's group.
        batches: records deletions of unmarked machines.
        review: reads the node groups.
        clock: the clock.
        settings: contains the poll interval.
        known_visible: whether the cache is known to contain the new size.
        check_leading: raises an exception if another process may be the leader.

    Returns:
        A message that the machine is being deleted.

    Raises:
        RemovalEnded: the machine is kept, because other machines were deleted or the size was changed again.
    """
    removal = found.removal
    assert removal is not None
    while True:
        check_leading()
        now = (await review.groups()).by_id.get(group)
        if known_visible or is_visible(now, removal, clock.monotonic() - found.requested_at):
            verdict = verify_removal(removal, now)
            if found.machine in verdict.deleted:
                return f"machine {found.machine} deleted: target size lowered from {removal.before} to {removal.after}"
            if found.machine in verdict.kept:
                if verdict.unexpected:
                    why = batches.backoff(group).backoff_reason(clock.now()) or await batches.report_wrong_machine(
                        group, verdict
                    )
                    raise failed(reasons.WRONG_MACHINE_REMOVED, why)
                target = "its node group no longer exists" if now is None else f"the target size is {now.target}"
                message = f"machine {found.machine} is kept: {target}"
                raise failed(
                    reasons.MACHINE_NOT_DELETED, f"{removal.message}; {message}" if removal.message else message
                )
        await clock.sleep(max(FRESH_SECONDS, settings.poll_interval))


def is_visible(group: NodeGroup | None, removal: MachineRemoval, elapsed: float) -> bool:
    """Return whether the cluster state includes the size change, as far as this can be determined.

    Args:
        group: the group in the cluster state; ``None`` if it no longer exists.
        removal: the size change.
        elapsed: seconds since the size change was requested.
    """
    if group is None or group.target != removal.before:
        return True
    return elapsed >= (MAX_REQUEST_SECONDS if removal.doubt else MAX_CACHE_LAG)


def machines_with_pods(machines: Collection[GroupMachine], review: RemovalReview) -> list[str]:
    """Return the names of machines whose nodes run pods that would have to be evicted first."""
    return sorted(
        each.name for each in machines if each.node and pods_to_evict(review.pods(each.node), review.node(each.node))
    )


def _machines_of(group: NodeGroup, tickets: Sequence[RemovalTicket]) -> dict[RemovalTicket, GroupMachine]:
    """Return the machine to remove for each ticket.

    Tickets whose machine no longer exists or is already being deleted are resolved immediately.
    """
    by_node = {machine.node: machine for machine in group.machines if machine.node}
    found = {}
    for ticket in tickets:
        machine = by_node.get(ticket.node)
        if machine is None or machine.state is MachineState.DELETING:
            ticket.answer.set_result(RemovedMachine("" if machine is None else machine.name))
        else:
            found[ticket] = machine
    return found


def _as_unmarked(group: NodeGroup, chosen: Collection[GroupMachine]) -> tuple[NodeGroup, list[GroupMachine]]:
    """Return the group as if none of the chosen machines were marked, so that the provider marks all of them again.

    Marks that are still in the cache may have been removed in the meantime. If a chosen machine had no mark, the
    controller would delete another machine together with its pods.
    """
    names = {machine.name for machine in chosen}
    machines = tuple(replace(each, marked=False) if each.name in names else each for each in group.machines)
    return replace(group, machines=machines), [each for each in machines if each.name in names]


def _catching_up_reason(group: NodeGroup) -> str:
    """Return the reason why the group's controller is not idle; empty if it is idle."""
    alive = sum(machine.state is not MachineState.DELETING for machine in group.machines)
    if alive == group.target:
        return ""
    return f"the group has {alive} machines but a target size of {group.target}: its controller has not caught up"


def _marked_by_others(
    group: NodeGroup, machines: Mapping[RemovalTicket, GroupMachine], marked: MarkedMachines | None
) -> str:
    """Return a message about machines that another program marked and that might be deleted instead.

    The message is empty if there are none.
    """
    ours = {machine.name for machine in machines.values()}
    ours |= set() if marked is None else {machine.name for machine in marked.machines}
    rivals = [
        m.name for m in group.machines if m.marked and m.state is not MachineState.DELETING and m.name not in ours
    ]
    names = ", ".join(sorted(rivals))
    return f"machines {names} are marked by another program and might be deleted instead" if rivals else ""


def _within_minimum(
    group: NodeGroup, machines: Mapping[RemovalTicket, GroupMachine]
) -> dict[RemovalTicket, GroupMachine]:
    """Return the machines that can be removed without violating the group's minimum size, in the order of node names.

    The other tickets are resolved with a refusal.
    """
    room = max(0, group.target - group.minimum)
    found = {}
    for number, ticket in enumerate(sorted(machines, key=lambda each: each.node)):
        if number < room:
            found[ticket] = machines[ticket]
            continue
        message = f"{group.kind} {group.key} has {plural(group.target, 'machine')}, and its minimum is {group.minimum}"
        ticket.answer.set_exception(aborted(Refusal(reasons.NODE_GROUP_MIN_SIZE_REACHED, message)))
    return found


def _share_calls(tickets: Collection[RemovalTicket], calls: int) -> None:
    for ticket in tickets:
        ticket.calls += calls / len(tickets)


def _fail_tickets(tickets: Sequence[RemovalTicket], ended: RemovalEnded) -> None:
    for ticket in tickets:
        if ticket.open:
            ticket.answer.set_exception(ended)
