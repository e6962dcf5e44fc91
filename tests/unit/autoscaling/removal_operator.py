"""The removals of the autoscaler's iterations on an in-memory cluster, for tests of the actuation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from tests.fakes.api import Call
from tests.fakes.fleet import Fleet
from tests.fakes.history import FakeHistory
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling import scale_down
from trimtab.autoscaling.actuation import RemovalOutcome, Removals, RemovalSettings
from trimtab.autoscaling.groups import Groups, build_groups
from trimtab.autoscaling.providers import providers
from trimtab.autoscaling.report.history import AutoscalerHistory
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.evictor import Evictor
from trimtab.disruption.limits import EvictionLimits
from trimtab.kube.api import LeaderOnlyApi
from trimtab.kube.objects import Node

QUICK: dict[str, Any] = {"scaleDown": {"enabled": True, "unneededTime": "1m", "delayAfterDelete": "0s"}}


def spec_of(given: dict[str, Any] | None = None) -> ClusterAutoscalerSpec:
    return msgspec.convert(QUICK | (given or {}), ClusterAutoscalerSpec)


class Operator:
    """One process that reconciles removals every few seconds."""

    begins_first = False
    """Whether removals start before leftovers are reconciled, as in the reconciler."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        settings: RemovalSettings | None = None,
        limits: EvictionLimits | None = None,
        **spec: Any,
    ) -> None:
        self.fleet = fleet
        self.spec: ClusterAutoscalerSpec | None = spec_of(spec)
        self.outcomes: list[RemovalOutcome] = []
        self.cleaned: dict[str, str] = {}
        self.leading = True
        self.stale: str | None = None
        self.records = False
        self.plans = True
        self.kept: dict[str, str] = {}
        self.history = FakeHistory()
        self.evictor = Evictor(clock=fleet.clock, view=fleet.caches.lister, limits=limits)
        guarded = LeaderOnlyApi(fleet, lambda: self.leading)
        self.removals = Removals(
            api=fleet,
            shared=fleet.caches.shared,
            lister=fleet.caches.lister,
            grouping=build_groups,
            providers=providers(guarded),
            clock=fleet.clock,
            leading=lambda: self.leading,
            stale=lambda: self.stale,
            evictor=self.evictor,
            observer=AutoscalerHistory(self.history),
            settings=settings or RemovalSettings(record_after=0.0),
        )

    async def one_pass(self) -> None:
        now = self.fleet.clock.now()
        async with self.fleet.caches.shared.borrow() as snapshot:
            found = build_groups(snapshot)
            nodes = nodes_of(snapshot)
            made = scale_down.ScaleDownPlan()
            if self.spec is not None:
                made = scale_down.plan(snapshot, found, self.spec, now=now)
        self.kept = {each.name: f"{each.reason}: {each.message}" for each in made.kept}
        if self.begins_first and self.spec is not None:
            self.removals.begin(made.actions, self.spec, found)
        await self.removals.reconcile(nodes, found, self.spec, now=now)
        if self.spec is not None and self.plans:
            self.removals.begin(made.actions, self.spec, found)
        if self.records:
            self.removals.record(made.unneeded, nodes)
        self.outcomes += self.removals.take_outcomes()
        self.cleaned |= self.removals.take_cleaned()

    async def passes(self, *, every: float = 2.0) -> None:
        while True:
            await self.one_pass()
            await asyncio.sleep(every)

    async def until(self, holds: Callable[[], bool], *, seconds: float = 300.0) -> None:
        """Wait until a condition holds, while reconciles continue."""
        end = self.fleet.clock.monotonic() + seconds
        while not holds():
            state = f"{self.fleet.traces()}, {self.outcomes}, {dict(self.removals.active)}, {self.kept}"
            assert self.fleet.clock.monotonic() < end, f"not within {seconds} s: {state}"
            await asyncio.sleep(0.1)

    def cordons(self) -> list[tuple[str, str, str]]:
        """The recorded cordons and uncordons with their nodes and reasons, in order."""
        changes = ("Cordon", "Uncordon")
        return [(each.action, each.node, each.reason) for each in self.history.entries if each.action in changes]

    def ended(self) -> dict[str, str]:
        """The reasons of ended removals, by node."""
        return {each.node: each.reason for each in self.outcomes}


def nodes_of(snapshot: Snapshot) -> list[Node]:
    return [snapshot.nodes.node(slot) for slot in snapshot.nodes.slot_of.values()]


@asynccontextmanager
async def running(*operators: Operator, every: float = 2.0) -> AsyncIterator[None]:
    """Run the cluster and the operators; on exit cancel all their tasks, as a kill would."""
    before = asyncio.all_tasks()
    fleet = operators[0].fleet
    living = [asyncio.create_task(fleet.live_on())]
    living += [asyncio.create_task(each.passes(every=every)) for each in operators]
    try:
        yield
    finally:
        failed = [task.exception() for task in living if task.done()]
        await kill(asyncio.all_tasks() - before)
        assert not failed


async def kill(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel a task without cleanup, as kill -9 would."""
    tasks.discard(asyncio.current_task())
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def killed_after(fleet: Fleet, request: int, *, answered: bool, settings: RemovalSettings | None = None) -> None:
    """Run a process and kill it after its nth request, which the API server has applied."""
    count = 0
    over = asyncio.Event()

    async def die(call: Call) -> None:
        nonlocal count
        count += call.method != "GET"
        if count == request:
            over.set()
            if not answered:
                await asyncio.sleep(3600)

    fleet.after = die
    first = Operator(fleet, settings=settings)
    before = asyncio.all_tasks()
    living = {asyncio.create_task(fleet.live_on()), asyncio.create_task(first.passes())}
    waiting = asyncio.create_task(over.wait())
    await asyncio.wait({waiting}, timeout=40)
    waiting.cancel()
    await kill((asyncio.all_tasks() - before) | living)
    fleet.after = None


def found_groups(fleet: Fleet) -> Groups:
    return fleet.caches.ask(build_groups)
