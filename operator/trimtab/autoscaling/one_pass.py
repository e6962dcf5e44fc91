"""One pass: observe → plan → act → report, with nothing slow in its way.

What takes long (providers, drains, writing to nodes, the status) goes on in tasks beside; a pass begins it, and the
next ones hear what came of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscaler, ClusterAutoscalerSpec
from trimtab.api.node_removal import RemoveNode
from trimtab.api.plan import Plan, ScaleUp
from trimtab.autoscaling.actuation import RemovalOutcome, Removals
from trimtab.autoscaling.actuation.leftovers import goes_anyway
from trimtab.autoscaling.actuation.signs import signs_of
from trimtab.autoscaling.corrections import corrections
from trimtab.autoscaling.external.expander import NAME as GRPC
from trimtab.autoscaling.groups import NO_EXTERNAL_GROUPS, Groups, Problem, groups
from trimtab.autoscaling.growing import Growing, Outcomes, noted
from trimtab.autoscaling.look import Asked, Seen, look
from trimtab.autoscaling.memory import State, recall, remember
from trimtab.autoscaling.priorities import NAME as PRIORITY
from trimtab.autoscaling.priorities import Priorities
from trimtab.autoscaling.report import PassReport, build_status
from trimtab.autoscaling.scale_down import UNNEEDED_SINCE
from trimtab.autoscaling.services import Services
from trimtab.autoscaling.status_keeper import StatusKeeper
from trimtab.autoscaling.telling import Waking, log_pass
from trimtab.autoscaling.template.record import Learned
from trimtab.autoscaling.turn import Turn
from trimtab.cluster.live import in_thread
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.guarded import Guarded
from trimtab.kube.objects import Node
from trimtab.kube.rules.taints import DELETION_CANDIDATE

ACT: Final = "Act"

LAST_WORD: Final = 5.0
"""Seconds that requests to providers get at the process's end."""

RECORDING: Final = 60.0
"""Seconds between two looks at what is to be written down of groups' nodes."""


class Passes:
    """Passes of one ClusterAutoscaler, and what goes on between them.

    Args:
        services: what they need.
        keeper: writes the status.
    """

    def __init__(self, services: Services, keeper: StatusKeeper) -> None:
        self._services = services
        self._keeper = keeper
        self._state = State()
        self._external = NO_EXTERNAL_GROUPS
        self._priorities = Priorities(services.api, services.namespace)
        self._growing = Growing(services.providers, services.clock, wake=services.trigger.wake)
        self._learned = Learned(Guarded(services.api, services.leading), clock=services.clock.monotonic)
        self._learning: asyncio.Task[Any] | None = None
        self._recorded = -RECORDING
        self._groups = Groups()
        self._turn = Turn(services.turn, services.trigger.wake)
        self._removals = Removals(
            api=services.api,
            live=services.live,
            grouping=self._grouping,
            providers=services.providers,
            clock=services.clock,
            leading=services.leading,
            stale=services.stale,
            teller=Waking(services.reporter, services.trigger),
        )

    def take_up(self, wire: Mapping[str, Any]) -> None:
        """Go on where an earlier process ended."""
        self._keeper.take_up(wire)
        self._state = recall(self._keeper.status)

    async def run(self, autoscaler: ClusterAutoscaler) -> bool:
        """One pass.

        Returns:
            Whether something was done that makes another look worth while soon.
        """
        try:
            return await self._run(autoscaler)
        finally:
            self._turn.give_back()

    async def hold(self, spec: ClusterAutoscalerSpec | None) -> None:
        """Look after what goes on already, where no pass can be made.

        Args:
            spec: to go by; ``None`` to return all nodes that are being removed.
        """
        self._turn.give_back()
        async with self._services.live.borrow() as snapshot:
            found = await in_thread(partial(self._grouping, snapshot))
            nodes = [node for node in snapshot.nodes.at if node is not None]
        await self._removals.reconcile(nodes, found, spec, now=self._services.clock.now())

    async def clean_up(self) -> int:
        """Take everything of ours from nodes and machines; returns on how many nodes there is still some of it."""
        async with self._services.live.borrow() as snapshot:
            found = await in_thread(partial(self._grouping, snapshot))
            nodes = [node for node in snapshot.nodes.at if node is not None]
        await self._removals.reconcile(nodes, found, None, now=self._services.clock.now())
        self._removals.record({}, nodes)
        self._removals.take_outcomes()
        going = self._removals.going
        left = (node for node in nodes if node.name not in going and (signs_of(node).any or marked(node)))
        return len(going) + self._removals.unmarking + sum(not goes_anyway(node, found) for node in left)

    def failed(self, autoscaler: ClusterAutoscaler, started: float, error: str) -> None:
        """Tell of a pass that ended with an error, where passes are counted."""
        report = PassReport(
            started=started,
            finished=self._services.clock.now(),
            mode=autoscaler.spec.mode,
            generation=autoscaler.metadata.generation,
            plan=Plan(now=started),
            groups=self._groups,
            memory=self._state,
            going=self._removals.going,
            error=error,
            uid=autoscaler.metadata.uid,
        )
        self._services.reporter.tell(report, autoscaler.spec)

    def let_others(self) -> None:
        """Where no pass can be made, the turn is others'."""
        self._turn.give_back()

    async def stop(self) -> None:
        """End at the process's end: what is in flight is finished, or left so that the next process finds it."""
        await self._turn.leave()
        outcomes, _ = await asyncio.gather(self._growing.finish(LAST_WORD), self._removals.finish())
        self._note(outcomes, ClusterAutoscalerSpec())
        self._count(self._removals.take_outcomes())
        if self._learning is not None:
            self._learning.cancel()
            await asyncio.gather(self._learning, return_exceptions=True)
        self._keeper.status = remember(self._state, self._keeper.status)
        await self._keeper.stop()
        await self._services.reporter.stop()

    # --- a pass --------------------------------------------------------------------------------------------------

    async def _run(self, autoscaler: ClusterAutoscaler) -> bool:
        services, spec = self._services, autoscaler.spec
        started, clocked = services.clock.now(), time.perf_counter()
        self._external = await services.sources.observe(spec)
        priorities = await self._priorities.read() if await self._may_need_priorities(spec) else {}
        asked_at = time.perf_counter()
        ours = await self._turn.take()
        asked = Asked(
            spec=spec,
            status=self._keeper.status,
            state=self._state,
            now=started,
            machine_autoscalers=services.machine_autoscalers(),
            external=self._external,
            priorities=priorities,
            recording=self._record_now(spec),
        )
        seen = await services.sources.advisor.advised(lambda advice: self._look(replace(asked, advice=advice)))
        planned_at = time.perf_counter()
        self._state, self._groups = seen.state, seen.groups
        gone = await self._act(seen, spec, ours=ours)
        outcomes = self._note(self._growing.take(), spec)
        ended = self._removals.take_outcomes()
        self._count(ended)
        report = PassReport(
            started=started,
            finished=services.clock.now(),
            mode=spec.mode,
            generation=autoscaler.metadata.generation,
            plan=seen.plan,
            groups=seen.groups,
            memory=self._state,
            readiness=seen.standing,
            totals=seen.totals,
            waiting=seen.waiting,
            grown=outcomes.grown,
            going=self._removals.going,
            ended=ended,
            corrected=outcomes.corrected,
            health=seen.health,
            told=seen.findings.told,
            cleaned=self._removals.take_cleaned(),
            problems=self._problems(spec),
            phases={
                "observe": asked_at - clocked,
                "plan": planned_at - asked_at,
                "act": time.perf_counter() - planned_at,
            },
            uid=autoscaler.metadata.uid,
        )
        services.reporter.tell(report, spec)
        previous = self._keeper.status
        status = await in_thread(partial(build_status, report, previous))  # of many pods and groups there is much
        if self._keeper.status is previous:  # else another ClusterAutoscaler has been taken up meanwhile
            self._keeper.put(status)
        log_pass(report)
        return bool(gone) or bool(ended) or any(each.scaled.done for each in outcomes.grown)

    async def _look(self, asked: Asked) -> Seen:
        async with self._services.live.borrow() as snapshot:
            return await in_thread(partial(look, snapshot, asked))

    async def _act(self, seen: Seen, spec: ClusterAutoscalerSpec, *, ours: bool) -> Sequence[str]:
        """Do what is planned, as far as it may be done now; what is refused here the next pass plans again."""
        services = self._services
        scaling = seen.plan.scaling or ()
        gone: Sequence[str] = ()
        acting = spec.mode == ACT and services.leading() and services.stale() is None
        removals = [each for each in scaling if isinstance(each, RemoveNode)]
        if acting and removals:
            if ours:
                gone = self._removals.begin(removals, spec, seen.groups)
            else:
                self._turn.stand_in_line()
        self._turn.give_back()
        if acting:
            self._keeper.status = replace(self._keeper.status, replacements=seen.replacements)
            self._growing.begin([each for each in scaling if isinstance(each, ScaleUp)], seen.groups)
            if not seen.health.cluster:
                self._growing.correct(corrections(seen.findings, seen.groups), seen.groups)
        await self._removals.reconcile(
            seen.nodes.values(),
            seen.groups,
            spec,
            now=services.clock.now(),
            marking=self._growing.marking,
            halted=seen.health.cluster,
        )
        if acting:
            self._removals.record(seen.state.unneeded, seen.nodes.values())
        elif spec.mode != ACT:  # nobody keeps them true now, and later they would be believed
            self._removals.record({}, [node for node in seen.nodes.values() if UNNEEDED_SINCE in node.annotations])
        if acting and seen.records:
            self._learning = asyncio.create_task(self._learned.write(seen.records), name="write what nodes are like")
        await self._growing.settled()
        return gone

    def _record_now(self, spec: ClusterAutoscalerSpec) -> bool:
        """Whether it is time to see what is to be written down of groups' nodes."""
        now = self._services.clock.monotonic()
        idle = self._learning is None or self._learning.done()
        if spec.mode != ACT or not idle or now - self._recorded < RECORDING:
            return False
        self._recorded = now
        return True

    def _note(self, outcomes: Outcomes, spec: ClusterAutoscalerSpec) -> Outcomes:
        """Remember what came of asking for nodes, and what is asked and not answered."""
        running, now = self._growing.running, self._services.clock.now()
        self._state = noted(self._state, outcomes, running, self._groups, spec, now=now)
        return outcomes

    def _count(self, ended: Sequence[RemovalOutcome]) -> None:
        """Remember how removals ended."""
        for each in ended:
            if each.done:
                self._state = replace(self._state, last_scale_down=max(each.finished, self._state.last_scale_down or 0))
            elif each.failed:
                latest = max(each.finished, self._state.last_scale_down_failure or 0)
                self._state = replace(self._state, last_scale_down_failure=latest)

    async def _may_need_priorities(self, spec: ClusterAutoscalerSpec) -> bool:
        if PRIORITY not in spec.expanders:
            self._priorities.problem = None
            return False
        async with self._services.live.borrow() as snapshot:
            return any(not pod.terminal for _, pod in snapshot.unbound())

    def _problems(self, spec: ClusterAutoscalerSpec) -> tuple[Problem, ...]:
        found = [] if self._priorities.problem is None or PRIORITY not in spec.expanders else [self._priorities.problem]
        advisor = self._services.sources.advisor
        found += [] if advisor.problem is None or GRPC not in spec.expanders else [advisor.problem]
        for key, error in sorted(self._services.invalid_machine_autoscalers().items()):
            namespace, _, name = key.partition("/")
            found.append(Problem("MachineAutoscaler", namespace, name, reasons.INVALID_MACHINE_AUTOSCALER, str(error)))
        return tuple(found)

    def _grouping(self, snapshot: Snapshot) -> Groups:
        return groups(snapshot, self._services.machine_autoscalers(), self._external)


def marked(node: Node) -> bool:
    """Whether it stands on the node that nobody needs it."""
    return UNNEEDED_SINCE in node.annotations or any(taint.key == DELETION_CANDIDATE for taint in node.taints)
