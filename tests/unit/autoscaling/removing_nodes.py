"""An autoscaler's passes, as far as removals go, on a cluster in memory; tests of actuation import it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from tests.fakes.fleet import Fleet
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling import scale_down
from trimtab.autoscaling.actuation import RemovalOutcome, Removals, RemovalSettings
from trimtab.autoscaling.groups import Groups, groups
from trimtab.autoscaling.providers import providers
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.guarded import Guarded
from trimtab.kube.objects import Node

QUICK: dict[str, Any] = {"scaleDown": {"enabled": True, "unneededTime": "1m", "delayAfterDelete": "0s"}}


def spec_of(given: dict[str, Any] | None = None) -> ClusterAutoscalerSpec:
    return msgspec.convert(QUICK | (given or {}), ClusterAutoscalerSpec)


class Operator:
    """One process: passes every few seconds, and what they have begun."""

    def __init__(self, fleet: Fleet, *, settings: RemovalSettings | None = None, **spec: Any) -> None:
        self.fleet = fleet
        self.spec: ClusterAutoscalerSpec | None = spec_of(spec)
        self.outcomes: list[RemovalOutcome] = []
        self.cleaned: dict[str, str] = {}
        self.leading = True
        self.stale: str | None = None
        self.records = False
        self.plans = True
        self.kept: dict[str, str] = {}
        guarded = Guarded(fleet, lambda: self.leading)
        self.removals = Removals(
            api=fleet,
            live=fleet.live,
            grouping=groups,
            providers=providers(guarded),
            clock=fleet.clock,
            leading=lambda: self.leading,
            stale=lambda: self.stale,
            settings=settings or RemovalSettings(record_after=0.0),
        )

    async def one_pass(self) -> None:
        now = self.fleet.clock.now()
        async with self.fleet.live.borrow() as snapshot:
            found = groups(snapshot)
            nodes = nodes_of(snapshot)
            made = scale_down.ScalingDown()
            if self.spec is not None:
                made = scale_down.plan(snapshot, found, self.spec, now=now)
        self.kept = {each.name: f"{each.reason}: {each.message}" for each in made.kept}
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
        """Wait until it holds, with passes going on."""
        end = self.fleet.clock.monotonic() + seconds
        while not holds():
            assert self.fleet.clock.monotonic() < end, f"not within {seconds} s: {self.fleet.traces()}, {self.outcomes}"
            await asyncio.sleep(0.1)

    def ended(self) -> dict[str, str]:
        """How removals ended, by node."""
        return {each.node: each.reason for each in self.outcomes}


def nodes_of(snapshot: Snapshot) -> list[Node]:
    return [snapshot.nodes.node(slot) for slot in snapshot.nodes.slot_of.values()]


@asynccontextmanager
async def running(*operators: Operator, every: float = 2.0) -> AsyncIterator[None]:
    """The cluster lives and the operators pass; at the end everything of theirs is cancelled, as by a kill."""
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
    """Cancel without a word, as kill -9 ends what runs."""
    tasks.discard(asyncio.current_task())
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def found_groups(fleet: Fleet) -> Groups:
    return fleet.live.examine(groups)
