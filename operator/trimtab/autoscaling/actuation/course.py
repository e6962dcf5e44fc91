"""The course of one removal, from the taint to the machine that goes; or back to how the node was.

Each step leaves the cluster such that a later process finds by the signs on the node what was begun
(:mod:`trimtab.autoscaling.actuation.signs`), and goes on with it or takes it back.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.node_removal import RemoveNode
from trimtab.autoscaling.actuation.batches import Batches, Taken, Ticket
from trimtab.autoscaling.actuation.drain import Drain, daemon_pods, to_evict
from trimtab.autoscaling.actuation.ending import Ended, aborted, failed
from trimtab.autoscaling.actuation.picture import Picture
from trimtab.autoscaling.actuation.removal import Phase, RemovalOutcome, RemovalState, Result, Teller
from trimtab.autoscaling.actuation.settings import RemovalSettings
from trimtab.autoscaling.actuation.signs import DELAY_DELETION, Seen, marking
from trimtab.autoscaling.actuation.steering import Leading, Stale, Steering
from trimtab.autoscaling.actuation.taking_back import give_back, unmark
from trimtab.autoscaling.actuation.verifying import Verifying
from trimtab.autoscaling.actuation.writing import write
from trimtab.autoscaling.providers import Removal
from trimtab.disruption.refusal import Refusal
from trimtab.kube.api import Api, ApiError, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.guarded import Guarded
from trimtab.kube.objects import Node, Pod

log = logging.getLogger(__name__)

ROUNDS = 3
"""How often a node is drained onto which pods keep coming."""


class Means(Struct, frozen=True, kw_only=True):
    """What all removals work with; see :class:`~trimtab.autoscaling.actuation.removals.Removals`."""

    api: Api
    picture: Picture
    batches: Batches
    clock: Clock
    settings: RemovalSettings
    leading: Leading
    stale: Stale
    teller: Teller
    at_once: asyncio.Semaphore


class Course:
    """One removal.

    Args:
        state: what it begins as; of one that an earlier process began its ``since`` is the taint's time.
        means: what it works with.
        removal: what was asked of the group already, where only the machine's going is waited for.
    """

    def __init__(self, state: RemovalState, means: Means, *, removal: Removal | None = None) -> None:
        self.state = state
        self._means = means
        self._clock, self._settings = means.clock, means.settings
        self._api = Guarded(means.api, means.leading)
        self._removal = removal
        self._found = removal is not None
        self._calls = 0.0
        self._steering = Steering(means.clock, means.settings, means.leading, means.stale, self.say)
        self._ticket: Ticket | None = None
        self._drain = Drain(
            state.node,
            api=self._api,
            picture=means.picture,
            clock=means.clock,
            settings=means.settings,
            at_once=means.at_once,
            control=self._steering,
        )

    # --- from outside --------------------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        """How far it is."""
        return self.state.phase

    @property
    def can_end(self) -> bool:
        """Whether the node can still be kept."""
        sent = self._ticket is not None and self._ticket.sent
        return self.phase not in (Phase.VERIFYING, Phase.RETURNING) and not sent

    def end(self, refusal: Refusal) -> None:
        """Let it end and the node be as it was, unless it is too late for that."""
        if self.phase not in (Phase.VERIFYING, Phase.RETURNING):
            self._steering.end(refusal)

    async def run(self) -> RemovalOutcome:
        """Go through it. Nothing is raised, whatever happens to the node."""
        try:
            await self._steps()
            outcome = self._outcome(Result.REMOVED, self.state.why, f"{self.state.message}")
        except Ended as ended:
            outcome = await self._ended(ended)
        except Exception as error:  # a defect in one removal must neither stop others nor leave the node behind
            log.exception("the removal of node %s failed in an unforeseen way", self.state.node)
            outcome = await self._ended(failed(reasons.REMOVAL_FAILED, f"{type(error).__name__}: {error}"))
        self._means.teller.ended(outcome)
        return outcome

    def say(self, message: str) -> None:
        """Tell what is being waited for."""
        self.state = replace(self.state, message=message)

    def _go(self, phase: Phase, message: str = "") -> None:
        self.state = replace(self.state, phase=phase, message=message)

    # --- the steps -----------------------------------------------------------------------------------------------

    async def _steps(self) -> None:
        if self._removal is None:
            await (self._find_taint() if self.state.resumed else self._taint())
            await self._wait()
            await self._empty()
            await self._delayed()
            taken = await self._take_away()
            self._calls += taken.share
            self._removal = taken.removal
            if taken.removal is None:
                self.say("its machine was on its way already")
                return
        else:
            taken = Taken(self._removal.machines[0], self._removal)
        removal = taken.removal
        assert removal is not None
        self._go(Phase.VERIFYING, f"{removal.before} machines were asked for, now {removal.after}")
        verifying = Verifying(self._means.picture, self._means.batches, self._clock, self._settings)
        self.say(await verifying.until_gone(taken, self.state.group, seen=self._found, leading=self._steering.lead))

    async def _taint(self) -> None:
        """One request: taint, cordon, and that they are ours."""
        await self._steering.checkpoint()
        node = await self._node()
        cordon = self._means.picture.spec.scaling_down.cordon_node_before_terminating == "Enabled"
        change = marking(int(self.state.since), cordon=cordon)
        try:
            there = await write(
                self._api, node.name, node.uid, change, seen=Seen.guess(node), timeout=self._settings.timeout
            )
        except (ApiError, Unreachable) as error:
            await self._steering.checkpoint()
            raise failed(reasons.NODE_NOT_WRITTEN, f"the node was not tainted: {error}") from None
        if not there:
            raise aborted(Refusal(reasons.ALREADY_GONE, "the node is gone, or another has its name"))
        self._means.teller.began(self.state)

    async def _find_taint(self) -> None:
        """Be sure that the taint of the one who began is still there: what the picture shows may be old.

        Raises:
            Ended: it is not.
        """
        await self._steering.checkpoint()
        found = False

        def look(seen: Seen) -> tuple[()]:
            nonlocal found
            found = seen.signs.ours
            return ()

        try:
            await write(self._api, self.state.node, self.state.uid, look, timeout=self._settings.timeout)
        except (ApiError, Unreachable) as error:
            await self._steering.checkpoint()
            raise failed(reasons.NODE_NOT_WRITTEN, f"the node could not be read: {error}") from None
        if not found:
            raise aborted(Refusal(reasons.TAINT_TAKEN_OFF, "the taint that an earlier process had set is gone"))
        # What it marked would stand in the way of others of the group, should this one take longer.
        left = await unmark(self._means, self.state.node, self.state.group, None)
        if left:
            raise failed(reasons.SCALE_UNREACHABLE, f"{left} was not taken off")

    async def _wait(self) -> None:
        self._go(Phase.WAITING, "whoever is about to put a pod on the node has a moment to see the taint")
        delay = self._settings.taint_delay
        if self.state.resumed:
            delay = min(delay, max(0.0, self.state.since + delay - self._clock.now()))
        await self._steering.pause(delay)
        await self._steering.checkpoint()

    async def _empty(self) -> None:
        """Judge the node again and evict what is there, until nothing is that has to be."""
        self._go(Phase.EVICTING, "judging it again")
        drained = False
        for _ in range(ROUNDS):
            await self._judge()
            pods = await self._pods()
            if not to_evict(pods) and not drained:
                await self._drain.evict(())  # only what somebody else is deleting
                break
            await self._drain.evict(to_evict(pods))
            drained = True
            if not to_evict(await self._pods()):
                break
        else:
            raise failed(reasons.PODS_KEEP_COMING, f"pods came onto the node again after each of {ROUNDS} drains")
        settings = self._settings
        told = settings.daemon_sets_of_drained if drained or not self.state.empty else settings.daemon_sets_of_empty
        daemons = daemon_pods(await self._pods(), unless_told=told)
        if daemons:
            self._go(Phase.EVICTING_DAEMON_SETS, f"{len(daemons)} pods of DaemonSets are evicted")
            await self._drain.evict_daemon_sets(daemons)
        if drained:
            self._go(Phase.DRAINED, "seeing whether it is needed after all")
            await self._judge()  # what was evicted may have found no place

    async def _judge(self) -> None:
        """Go on only if the plan would still remove the node.

        Raises:
            Ended: it would not.
        """
        await self._steering.checkpoint()
        found = await self._means.picture.still_goes(self.state.node)
        await self._steering.checkpoint()
        if isinstance(found, Refusal):
            raise aborted(Refusal(found.reason, f"judged again, it stays: {found.message}"))
        if not self.state.why:
            self.state = replace(self.state, why=found.reason)

    async def _delayed(self) -> None:
        """Wait while annotations ask for it, but not for ever."""
        until = self._clock.monotonic() + self._settings.delay_deletion
        while self._clock.monotonic() < until:
            asking = sorted(key for key in (await self._node()).annotations if key.startswith(DELAY_DELETION))
            if not asking:
                return
            self._go(Phase.DELAYED, f"its annotation {asking[0]} asks for it")
            await self._steering.checkpoint()
            await self._steering.pause(self._settings.poll)

    async def _take_away(self) -> Taken:
        """Have the machine taken away, together with others of the group that are so far.

        Raises:
            Ended: it was not.
        """
        self._go(Phase.DRAINED, "waiting for others of its group that are about to be so far")
        await self._steering.checkpoint()
        self._ticket = ticket = Ticket(self.state.node, self.state.group)
        self._means.batches.join(ticket)
        stopping = asyncio.create_task(self._steering.stopping.wait())
        try:
            while not ticket.answer.done():
                waited: set[asyncio.Future[Any]] = {ticket.answer} if ticket.sent else {ticket.answer, stopping}
                await asyncio.wait(waited, timeout=self._settings.poll, return_when=asyncio.FIRST_COMPLETED)
                if ticket.sent:
                    self._go(Phase.REMOVING, "the machine is being marked, and the group's size lowered")
                elif stopping.done() and not ticket.answer.done():
                    break
        finally:
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)
        if not ticket.answer.done():
            ticket.answer.cancel()
            await self._steering.checkpoint()
        return await ticket.answer

    # --- the end -------------------------------------------------------------------------------------------------

    async def _ended(self, ended: Ended) -> RemovalOutcome:
        """Take back what was done, and say how it ended."""
        left = ""
        if not ended.silent and self._means.leading():
            self._go(Phase.RETURNING, f"it stays: {ended.refusal.message}")
            state = self.state
            left = await give_back(
                self._means, self._api, state.node, state.uid, group=state.group, removal=self._removal
            )
        return replace(
            self._outcome(ended.result, ended.refusal.reason, ended.refusal.message),
            refused="" if ended.pod is None else ended.pod.key,
            refused_uid="" if ended.pod is None else ended.pod.uid,
            left=left,
        )

    def _outcome(self, result: Result, reason: str, message: str) -> RemovalOutcome:
        state = self.state
        return RemovalOutcome(
            node=state.node,
            group=state.group,
            result=result,
            reason=reason,
            message=message,
            evicted=dict(self._drain.evicted),
            calls=self._api.calls + self._calls,
            started=state.since,
            finished=self._clock.now(),
            uid=state.uid,
            machine=state.machine,
            why=state.why,
        )

    async def _node(self) -> Node:
        node = await self._means.picture.node(self.state.node)
        if node is None or (self.state.uid and node.uid != self.state.uid):
            raise aborted(Refusal(reasons.ALREADY_GONE, "the node is gone, or another has its name"))
        return node

    async def _pods(self) -> list[Pod]:
        return await self._means.picture.pods(self.state.node)


def begun(action: RemoveNode, *, now: float) -> RemovalState:
    """What a planned removal begins as."""
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
