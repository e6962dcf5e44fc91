"""All removals of one process: those that a plan asks for, and what earlier processes left behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.node_removal import RemoveNode
from trimtab.autoscaling.actuation.batches import Batches
from trimtab.autoscaling.actuation.candidates import marks, write_marks
from trimtab.autoscaling.actuation.course import Course, Means, begun
from trimtab.autoscaling.actuation.leftovers import LINGERING, Leftover, Step, leftovers
from trimtab.autoscaling.actuation.objections import JUST_NOW, in_vain, objections
from trimtab.autoscaling.actuation.picture import Grouping, Picture
from trimtab.autoscaling.actuation.removal import Phase, RemovalOutcome, RemovalState, Result, Silent, Teller
from trimtab.autoscaling.actuation.settings import DEFAULTS, RemovalSettings
from trimtab.autoscaling.actuation.stray_marks import StrayMarks
from trimtab.autoscaling.actuation.taking_back import give_back
from trimtab.autoscaling.groups import Groups
from trimtab.autoscaling.providers import Provider
from trimtab.cluster.live import LiveCluster
from trimtab.disruption.refusal import Refusal
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock
from trimtab.kube.guarded import Guarded
from trimtab.kube.objects import Node
from trimtab.kube.rules.taints import TO_BE_DELETED

log = logging.getLogger(__name__)

REFUSED: Final = 120.0
"""Seconds until a removal is asked about again that would come to nothing: else each pass would tell of it."""

LAST_WORD: Final = 20.0
"""Seconds that a stopping process takes to return nodes, by default."""

_HOLDING: Final = frozenset(Phase) - {Phase.VERIFYING, Phase.RETURNING}
"""Phases in which a removal takes one of the places of those that may go on at a time."""


class Removals:
    """Removes nodes; one a process. A pass begins and reconciles, and never waits for a removal.

    Args:
        api: the API server.
        live: the live picture.
        grouping: makes the groups of a snapshot, as passes do.
        providers: by the API group of the groups that they act on. Make them with a :class:`.writing.Guarded` API, so
            that each of their requests is sent only while this process leads.
        clock: where the time comes from.
        leading: whether this process may still act.
        stale: what keeps the picture from being acted on now, ``None`` where nothing does.
        settings: how to wait and try.
        teller: hears of removals as they happen.
    """

    def __init__(
        self,
        *,
        api: Api,
        live: LiveCluster,
        grouping: Grouping,
        providers: Mapping[str, Provider],
        clock: Clock,
        leading: Callable[[], bool],
        stale: Callable[[], str | None],
        settings: RemovalSettings = DEFAULTS,
        teller: Teller | None = None,
    ) -> None:
        self._settings, self._clock = settings, clock
        self._leading, self._stale = leading, stale
        self._api = Guarded(api, leading)
        self._picture = Picture(live, grouping, clock)
        self._batches = Batches(providers, self._picture, clock, settings, self._blind)
        self._means = Means(
            api=api,
            picture=self._picture,
            batches=self._batches,
            clock=clock,
            settings=settings,
            leading=leading,
            stale=stale,
            teller=teller or Silent(),
            at_once=asyncio.Semaphore(settings.in_flight),
        )
        self._courses: dict[str, Course] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._returning: dict[str, RemovalState] = {}
        self._lately: dict[str, tuple[str, float]] = {}
        self._marks = StrayMarks(self._batches.provider, clock)
        self._unmarking: set[asyncio.Task[None]] = set()
        self._recording: asyncio.Task[None] | None = None
        self._outcomes: list[RemovalOutcome] = []
        self._cleaned: dict[str, str] = {}
        self._closing = False
        self.foreign: Mapping[str, str] = {}
        """Nodes with a taint of somebody else's, by name, with its value: left alone, as the last pass saw them."""

    @property
    def going(self) -> Mapping[str, RemovalState]:
        """Removals that go on, by node; nodes among them from which leftovers are being taken away."""
        return {**self._returning, **{name: course.state for name, course in self._courses.items()}}

    @property
    def unmarking(self) -> int:
        """For how many groups marks of machines are being taken off that no removal has set."""
        return len(self._unmarking)

    def take_outcomes(self) -> tuple[RemovalOutcome, ...]:
        """How removals ended since this was last asked, in that order."""
        taken, self._outcomes = tuple(self._outcomes), []
        return taken

    def take_cleaned(self) -> Mapping[str, str]:
        """Nodes from which leftovers of an earlier process were taken since this was last asked, with their UIDs."""
        taken, self._cleaned = self._cleaned, {}
        return taken

    def begin(self, actions: Sequence[RemoveNode], spec: ClusterAutoscalerSpec, groups: Groups) -> tuple[str, ...]:
        """Begin removals that a plan asks for, as many as may go on at a time; the next plan asks for the others.

        Args:
            actions: of the plan, in its order.
            spec: of the ClusterAutoscaler.
            groups: that the plan was made on.

        Returns:
            The names of the nodes whose removal has begun.
        """
        self._picture.spec = spec
        if self._closing or spec.mode != "Act" or self._blind() is not None:
            return ()
        names = []
        for action in actions:
            if (
                action.node in self._courses
                or action.node in self._returning
                or self._just_ended(action.node, action.uid)
            ):
                continue
            state = begun(action, now=self._clock.now())
            refusal = in_vain(action, groups, self._batches.provider, going=self._courses)
            if refusal is not None:
                self._outcomes.append(_not_begun(state, refusal, now=self._clock.now()))
                self._remember(action.node, action.uid, REFUSED)
            elif self._room(empty=state.empty):
                replaced = {action.node} if action.reason == reasons.REPLACEMENT else set()
                self._picture.replaced = self._picture.replaced - {action.node} | replaced
                self._start(Course(state, self._means))
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
        """Hold removals against a pass's own picture: end those that are not to go on, see to what is left of others.

        Args:
            nodes: of the cluster.
            groups: of the same picture.
            spec: of the ClusterAutoscaler; ``None`` where there is none: then everything is returned.
            now: seconds since the epoch.
            marking: ids of groups whose machines somebody else of this process is marking at present.
            halted: why the whole cluster is left as it is, in words; empty where it is not. What can still be returned
                is, then: where so much is unwell, nodes that are well are not to be emptied.
        """
        there = {node.name: node for node in nodes}
        if spec is not None:
            self._picture.spec = spec
        self._lately = {name: end for name, end in self._lately.items() if self._just_ended(name, end[0])}
        against = objections(self._courses, there, groups, spec, now=self._clock.now(), halted=halted)
        for name, refusal in against.items():
            self._courses[name].end(refusal)
        left = leftovers(there.values(), groups, spec, ours=self._ours, settings=self._settings, now=now)
        foreign = {each.node.name: each.signs.tainted or "" for each in left if each.signs.foreign}
        for name in sorted(foreign.keys() - self.foreign.keys()):
            log.warning("node %s has the taint %s of another autoscaler, and is left to it", name, TO_BE_DELETED)
        self.foreign = foreign
        if self._closing or self._blind() is not None:
            return
        for each in left:
            self._see_to(each, may_go_on=not halted and self._room(empty=False))
        swept = [group for group in groups.all if group.id not in marking]
        busy = {*self._courses, *self._returning, *self._lately, *(each.node.name for each in left)}
        for group, names in self._marks.stray(swept, busy=busy):
            task = self._spawn(self._marks.take_off(group, names), f"unmark machines of {group.id}")
            self._unmarking.add(task)
            task.add_done_callback(self._unmarking.discard)

    def record(self, unneeded: Mapping[str, float], nodes: Iterable[Node]) -> None:
        """Write on nodes since when they are unneeded, and take it off those that are needed; without waiting for it.

        Args:
            unneeded: since when nodes are, by name, in seconds since the epoch; empty to take all records away.
            nodes: of the cluster.
        """
        if self._closing or self._blind() is not None:
            return
        if self._recording is not None and not self._recording.done():
            return  # what is not written now is found undone by the next pass
        settings = self._settings
        found = marks(
            nodes,
            unneeded,
            self.going,
            soft_taints=settings.soft_taints,
            most=settings.writes,
            begun_by=self._clock.now() - settings.record_after,
        )
        if found:
            self._recording = self._spawn(write_marks(self._api, found, settings), "record unneeded nodes")

    async def finish(self, seconds: float = LAST_WORD) -> None:
        """End at the process's end: return every node that can still be kept, and leave the others to who comes next.

        Args:
            seconds: for all of it; what is not done by then a later process finds by the signs on the nodes.
        """
        self._closing = True
        for course in self._courses.values():
            course.end(Refusal(reasons.SHUTTING_DOWN, "trimtab is stopping; whoever takes over judges the node anew"))
        until = self._clock.monotonic() + seconds
        while self._leading() and self._clock.monotonic() < until and any(self._to_wait_for()):
            await self._clock.sleep(min(0.1, self._settings.poll))
        await self._batches.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._picture.stop()

    def _to_wait_for(self) -> Iterable[str]:
        yield from self._returning
        yield from (name for name, course in self._courses.items() if course.phase is not Phase.VERIFYING)

    # --- beginning -----------------------------------------------------------------------------------------------

    def _blind(self) -> str | None:
        """What keeps anybody from acting now."""
        return self._stale() if self._leading() else "another process may lead by now"

    def _room(self, *, empty: bool) -> bool:
        """Whether another removal may go on."""
        states = [course.state for course in self._courses.values() if course.phase in _HOLDING]
        most = self._settings.empty_at_once if empty else self._settings.drains_at_once
        return sum(state.empty is empty for state in states) < most

    def _start(self, course: Course) -> None:
        self._courses[course.state.node] = course
        log.info("node %s goes: %s", course.state.node, course.state.why or "begun by an earlier process")
        self._spawn(self._run(course), f"remove node {course.state.node}")

    async def _run(self, course: Course) -> None:
        name = course.state.node
        outcome = await course.run()
        del self._courses[name]
        self._picture.replaced = self._picture.replaced - {name}
        self._remember(name, outcome.uid, LINGERING if outcome.done else JUST_NOW)
        self._outcomes.append(outcome)
        if course.state.resumed and not outcome.done and not outcome.left:
            self._cleaned[name] = outcome.uid
        level = logging.INFO if outcome.done or outcome.result is Result.ABORTED else logging.WARNING
        told = "is removed" if outcome.done else "stays"
        log.log(level, "node %s %s: %s", name, told, outcome.message, extra={"reason": outcome.reason})

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- reconciling ---------------------------------------------------------------------------------------------

    def _remember(self, node: str, uid: str, seconds: float) -> None:
        """That a node's removal has ended: what pictures show of it for some time is no leftover."""
        self._lately[node] = uid, self._clock.monotonic() + seconds

    def _just_ended(self, node: str, uid: str) -> bool:
        ended, until = self._lately.get(node, ("", 0.0))
        return ended == uid and self._clock.monotonic() < until

    def _ours(self, node: Node) -> bool:
        name = node.name
        return name in self._courses or name in self._returning or self._just_ended(name, node.uid)

    def _see_to(self, left: Leftover, *, may_go_on: bool) -> None:
        """Go on with what an earlier process began, or take it back."""
        step = left.step
        if step is Step.GO_ON and not may_go_on:
            step = Step.RETURN
        state = RemovalState(
            node=left.node.name,
            group="" if left.group is None else left.group.id,
            machine=left.machine.key if left.machine is not None and left.machine.name else "",
            phase=Phase.WAITING,
            since=left.signs.since or 0.0,
            message="begun by an earlier process",
            uid=left.node.uid,
            resumed=True,
        )
        if step in (Step.GO_ON, Step.VERIFY):
            self._start(Course(state, self._means, removal=left.removal))
        elif step is Step.RETURN:
            self._returning[state.node] = replace(state, phase=Phase.RETURNING)
            self._spawn(self._return(state), f"return node {state.node}")

    async def _return(self, state: RemovalState) -> None:
        try:
            left = await give_back(self._means, self._api, state.node, state.uid, group=state.group)
        finally:
            del self._returning[state.node]
        self._remember(state.node, state.uid, JUST_NOW)
        if left:
            log.warning("node %s has leftovers of a removal: %s", state.node, left)
        else:
            self._cleaned[state.node] = state.uid
            log.info("node %s is as it was: leftovers of a removal were taken away", state.node)


def _not_begun(state: RemovalState, refusal: Refusal, *, now: float) -> RemovalOutcome:
    return RemovalOutcome(
        node=state.node,
        group=state.group,
        result=Result.ABORTED,
        reason=refusal.reason,
        message=refusal.message,
        started=now,
        finished=now,
        uid=state.uid,
        machine=state.machine,
        why=state.why,
    )
