"""Machines taken away together: one group's drained nodes with one change of its size.

Each group has at most one request for its size under way, and the next waits until the group's controller has caught
up with the last: before that nobody could tell which machine goes for which request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.autoscaling.actuation.drain import to_evict
from trimtab.autoscaling.actuation.ending import Ended, aborted, failed
from trimtab.autoscaling.actuation.picture import Picture
from trimtab.autoscaling.actuation.settings import RemovalSettings
from trimtab.autoscaling.groups import GroupMachine, MachineState, NodeGroup
from trimtab.autoscaling.providers import Failure, Provider, Removal, api_group_of
from trimtab.disruption.refusal import Refusal
from trimtab.kube.clock import Clock

log = logging.getLogger(__name__)

CONFLICTS: Final = 3
"""How often a batch is tried whose group somebody scales in between."""


class Ticket:
    """A node that waits for its machine to be taken away.

    Attributes:
        node: its name.
        group: the id of its group.
        sent: whether the request is under way: then there is no way back until its answer is there.
    """

    def __init__(self, node: str, group: str) -> None:
        self.node = node
        self.group = group
        self.sent = False
        self.answer: asyncio.Future[Taken] = asyncio.get_running_loop().create_future()

    @property
    def open(self) -> bool:
        """Whether somebody still waits for the answer."""
        return not self.answer.done()


class Taken(Struct, frozen=True):
    """What came of it.

    Attributes:
        machine: the node's machine.
        removal: what was asked for; ``None`` where the machine was on its way already.
        share: of the requests that were sent.
        asked: when, on the monotonic clock.
    """

    machine: str = ""
    removal: Removal | None = None
    share: float = 0.0
    asked: float = 0.0


class Batches:
    """The batches of all groups.

    Args:
        providers: by the API group of the groups that they act on; each asks before a request whether it may be sent.
        picture: the live picture.
        clock: where the time comes from.
        settings: how to wait.
        may: what keeps anybody from acting now, in words; ``None`` where nothing does.
    """

    def __init__(
        self,
        providers: Mapping[str, Provider],
        picture: Picture,
        clock: Clock,
        settings: RemovalSettings,
        may: Callable[[], str | None],
    ) -> None:
        self._providers = providers
        self._picture = picture
        self._clock = clock
        self._settings = settings
        self._may = may
        self._waiting: dict[str, list[Ticket]] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}

    def join(self, ticket: Ticket) -> None:
        """Take a node into the next batch of its group; cancelling its answer before it is sent takes it out again."""
        self._waiting.setdefault(ticket.group, []).append(ticket)
        worker = self._workers.get(ticket.group)
        if worker is None or worker.done():
            self._workers[ticket.group] = asyncio.create_task(
                self._work(ticket.group), name=f"take machines of {ticket.group} away"
            )

    def provider(self, group: NodeGroup) -> Provider | None:
        """Who acts on a group."""
        return self._providers.get(api_group_of(group))

    async def stop(self) -> None:
        """End the workers: nobody waits any more."""
        for worker in self._workers.values():
            worker.cancel()
        await asyncio.gather(*self._workers.values(), return_exceptions=True)

    async def _work(self, group: str) -> None:
        await self._clock.sleep(self._settings.batch)
        while tickets := [each for each in self._waiting.pop(group, ()) if each.open]:
            try:
                await self._batch(group, tickets)
            except Ended as ended:
                _fail(tickets, ended)
            except Exception as error:  # a defect here must not leave nodes waiting for ever
                log.exception("machines of %s were not taken away", group)
                _fail(tickets, failed(reasons.SCALE_REFUSED, f"{type(error).__name__}: {error}"))

    async def _batch(self, id_: str, tickets: Sequence[Ticket]) -> None:
        """Take the machines of these nodes away; every ticket has its answer afterwards.

        Raises:
            Ended: none of those that are left could be.
        """
        conflicts = 0
        until = self._clock.monotonic() + self._settings.catching_up
        while tickets := [each for each in tickets if each.open]:
            await self._picture_to_act_on(until)
            group = (await self._picture.groups()).by_id.get(id_)
            if group is None:
                raise aborted(Refusal(reasons.SCALE_TARGET_GONE, f"{id_} is no group any more"))
            machines = _machines(group, tickets)
            behind = _behind(group)
            if behind and machines:
                if self._clock.monotonic() >= until:
                    raise failed(reasons.SCALE_REFUSED, behind)
                await self._clock.sleep(2 * self._settings.poll)
                continue
            machines = await self._still_empty(_within_minimum(group, machines))
            if not machines:
                continue
            removal = await self._remove(group, machines)
            if removal is None:
                return
            conflicts += 1
            if conflicts >= CONFLICTS:
                raise failed(removal.failure or reasons.SCALE_CONFLICT, removal.message)
            await self._clock.sleep(2 * self._settings.poll)

    async def _still_empty(self, machines: Mapping[Ticket, GroupMachine]) -> dict[Ticket, GroupMachine]:
        """Those whose nodes no pod has come to while they waited, as one may that tolerates everything.

        With the machine it would go without an eviction, and so without anybody asking its budget.
        """
        found = {}
        for ticket, machine in machines.items():
            pods = to_evict(await self._picture.pods(ticket.node))
            if not pods:
                found[ticket] = machine
            elif ticket.open:
                message = f"pod {pods[0].key} came onto the node while its machine waited to be taken away"
                ticket.answer.set_exception(aborted(Refusal(reasons.PODS_KEEP_COMING, message)))
        return found

    async def _picture_to_act_on(self, until: float) -> None:
        while why := self._may():
            if self._clock.monotonic() >= until:
                raise aborted(Refusal(reasons.CLUSTER_UNREACHABLE, why))
            await self._clock.sleep(self._settings.poll)

    async def _remove(self, group: NodeGroup, machines: Mapping[Ticket, GroupMachine]) -> Removal | None:
        """Ask the provider once; a removal that somebody's edit kept from being is returned, to be tried again.

        Raises:
            Ended: the provider says no.
        """
        provider = self.provider(group)
        if provider is None:
            raise failed(reasons.SCALE_REFUSED, f"nothing here speaks {group.api_version}")
        chosen = {ticket: machine for ticket, machine in machines.items() if ticket.open}
        if not chosen:
            return None
        for ticket in chosen:
            ticket.sent = True
        asked = self._clock.monotonic()
        removal = await provider.remove(*_to_mark(group, chosen.values()), now=self._clock.now())
        for ticket in chosen:
            ticket.sent = False
        if not removal.done and not removal.doubt:
            if removal.failure is Failure.CONFLICT:
                return removal
            raise failed(removal.failure or reasons.SCALE_REFUSED, removal.message)
        for ticket, machine in chosen.items():
            if ticket.open:
                ticket.answer.set_result(Taken(machine.name, removal, removal.calls / len(chosen), asked))
        return None


def _machines(group: NodeGroup, tickets: Sequence[Ticket]) -> dict[Ticket, GroupMachine]:
    """The machines to take away; nodes whose machine is on its way already, or gone, are answered."""
    by_node = {machine.node: machine for machine in group.machines if machine.node}
    found = {}
    for ticket in tickets:
        machine = by_node.get(ticket.node)
        if machine is None or machine.state is MachineState.DELETING:
            ticket.answer.set_result(Taken("" if machine is None else machine.name))
        else:
            found[ticket] = machine
    return found


def _to_mark(group: NodeGroup, chosen: Collection[GroupMachine]) -> tuple[NodeGroup, list[GroupMachine]]:
    """The group as if none of the machines were marked yet: marks that the picture shows may be taken off by now.

    A machine without one would stay, and any other of its group go, with all that runs there.
    """
    names = {machine.name for machine in chosen}
    machines = tuple(replace(each, marked=False) if each.name in names else each for each in group.machines)
    return replace(group, machines=machines), [each for each in machines if each.name in names]


def _behind(group: NodeGroup) -> str:
    """Why the group's controller has yet to catch up, in words; empty where it has."""
    alive = sum(machine.state is not MachineState.DELETING for machine in group.machines)
    if alive == group.target:
        return ""
    return f"the group has {alive} machines and wants {group.target}: its controller has yet to catch up"


def _within_minimum(group: NodeGroup, machines: Mapping[Ticket, GroupMachine]) -> dict[Ticket, GroupMachine]:
    """As many of them as the minimum leaves, by the nodes' names; the others are answered."""
    room = max(0, group.target - group.minimum)
    found = {}
    for number, ticket in enumerate(sorted(machines, key=lambda each: each.node)):
        if number < room:
            found[ticket] = machines[ticket]
            continue
        message = f"{group.kind} {group.key} has {group.target} machines, and must have {group.minimum} at least"
        ticket.answer.set_exception(aborted(Refusal(reasons.NODE_GROUP_MIN_SIZE_REACHED, message)))
    return found


def _fail(tickets: Sequence[Ticket], ended: Ended) -> None:
    for ticket in tickets:
        if ticket.open:
            ticket.answer.set_exception(ended)
