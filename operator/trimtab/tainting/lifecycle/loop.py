"""The node lifecycle's loop. It runs in mode Own alone, in one process at a time.

A pass plans on the event loop's thread and acts on nothing itself: workers do what the newest plan says, and whatever
they could not do the next pass finds undone. Passes come when something has changed, when something is due, and every
``nodeMonitorPeriod``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from typing import Final

from trimtab.api import reasons
from trimtab.api.taint_manager_status import ZoneStatus
from trimtab.kube.objects import NODE_LEASES, Lease, Node
from trimtab.tainting.conditions import ready_status
from trimtab.tainting.lifecycle.pods import PodMarks
from trimtab.tainting.lifecycle.record import RecordKeeper
from trimtab.tainting.lifecycle.todo import Todo, todos
from trimtab.tainting.lifecycle.wakes import failed, matters
from trimtab.tainting.lifecycle.work import NodeWork
from trimtab.tainting.lifecycle_memory import LifecycleMemory, recall, remember, shifted
from trimtab.tainting.lifecycle_settings import LifecycleSettings
from trimtab.tainting.planner import LifecyclePlan, given_back, plan_lifecycle
from trimtab.tainting.services import Services

log = logging.getLogger(__name__)

BETWEEN: Final = 0.2
"""Seconds between two passes at least: in an outage something changes all the time."""

SHARE: Final = 10.0
"""A pass is followed by so many times its own time in which there is none."""

AFTER: Final = 0.005
"""Seconds that a pass comes after the moment it is for: one that came just before would find nothing due."""

LOOK_AGAIN: Final = 1.0
"""Seconds between two looks whether something can be done again."""

LONG: Final = 30.0
"""Seconds after which it is a problem that our watches lag behind the API server."""

BEHIND: Final = "nodes renew their Leases and our watches do not tell: nothing is done about nodes until they do"

STEP: Final = 1.0
"""Seconds by which the two clocks may part between two passes; more, and somebody has set the host's clock."""

ENDING: Final = 5.0
"""Seconds for requests that are under way when the loop is stopped, and as many for the record."""


class Lifecycle:
    """Looks at the nodes whenever something has changed or is due, and does what :mod:`~trimtab.tainting.planner` says.

    Args:
        services: what loops need.
        settings: grace periods, thresholds, rates.

    Attributes:
        held: why nothing is done at present, one of :mod:`trimtab.api.reasons`; empty where it is.
    """

    def __init__(self, services: Services, settings: LifecycleSettings) -> None:
        self.held = ""
        self._services = services
        self._settings = settings
        self._keeper = RecordKeeper(services.api, services.clock, namespace=services.namespace)
        self._work = NodeWork(services, done=self._look_soon)
        self._pods = PodMarks(services)
        self._memory = LifecycleMemory()
        self._plan: LifecyclePlan | None = None
        self._zones: tuple[ZoneStatus, ...] = ()
        self._news: dict[str, float] = {}
        self._wake = asyncio.Event()
        self._closing = False
        self._failure = ""
        self._offset: float | None = None
        self._held_since: float | None = None

    # ── what is to be known of it ───────────────────────────────────────────────────────────────────────────────

    @property
    def zones(self) -> tuple[ZoneStatus, ...]:
        """All zones as of the last pass, by name."""
        return self._zones

    @property
    def waiting(self) -> int:
        """How many nodes wait to be tainted."""
        return sum(zone.waiting for zone in self._zones)

    @property
    def nodes_tainted(self) -> int:
        """NoExecute taints that this process has put on nodes."""
        return self._work.tainted

    @property
    def problem(self) -> str:
        """What keeps the loop, or its record, from going on, in words; empty where nothing does."""
        if self._failure or self._keeper.problem:
            return self._failure or self._keeper.problem
        if self.held != reasons.WATCHES_BEHIND or self._held_since is None:
            return ""
        return BEHIND if self._services.clock.monotonic() - self._held_since >= LONG else ""

    # ── what it is told ─────────────────────────────────────────────────────────────────────────────────────────

    def configure(self, settings: LifecycleSettings) -> None:
        """Go by these settings from now on."""
        self._settings = settings
        self._look_soon()

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """A node came, changed or went; the picture has it already. A mere heartbeat wakes nobody."""
        if new is not None and (old is None or old.heartbeat != new.heartbeat):
            self._news[new.name] = self._services.clock.now()
        if matters(old, new):
            self._look_soon()
        if new is not None and failed(old, new):
            note = f"is not ready any more: condition Ready is {ready_status(new) or 'missing'}"
            self._services.teller.node(new.name, uid=new.uid, reason=reasons.NODE_NOT_READY, note=note)

    def lease_changed(self, old: Lease | None, new: Lease | None) -> None:
        """A Lease came, was renewed or went; only the time is noted at which that was seen."""
        if new is not None and new.namespace == NODE_LEASES and (old is None or old.renewed != new.renewed):
            self._news[new.name] = self._services.clock.now()

    # ── the loop ────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Read the record back, then look and act until stopped or cancelled."""
        self._offset = None
        record = await self._keeper.load(until=lambda: self._closing)
        if record is None:
            return
        self._memory = recall(record, now=self._services.clock.now())
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._work.run(), name="see to nodes"),
                group.create_task(self._pods.run(), name="mark pods of failed nodes"),
                group.create_task(self._keeper.run(), name="keep the node lifecycle's record"),
            ]
            while not self._closing:
                self._wake.clear()
                began = self._services.clock.monotonic()
                self._look_safely()
                took = self._services.clock.monotonic() - began
                await self._services.clock.sleep(max(BETWEEN, took * SHARE))
                await self._next()
            await self._end()
            for task in tasks:
                task.cancel()

    async def stop(self) -> None:
        """Begin nothing more; :meth:`run` lets what was begun end, writes the record and returns, for good."""
        self._closing = True
        self._wake.set()

    async def _end(self) -> None:
        self._pods.put({})
        if not await self._work.settled(ENDING):
            log.warning("requests about nodes were under way and are given up")
        self._give_back(self._work.take_back())
        self._record()
        await self._keeper.flush(ENDING)

    def _look_soon(self) -> None:
        self._wake.set()

    async def _next(self) -> None:
        """Wait for a reason for a pass."""
        try:
            async with asyncio.timeout(self._pause()):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _pause(self) -> float:
        clock = self._services.clock
        pause = min(LOOK_AGAIN, self._settings.node_monitor_period) if self.held else self._settings.node_monitor_period
        if self._plan is not None and self._plan.next_look is not None:
            pause = min(pause, self._plan.next_look - clock.now() + AFTER)
        again = self._work.next_try()
        if again is not None:
            pause = min(pause, again - clock.monotonic())
        return max(0.01, pause)

    # ── a pass ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _look_safely(self) -> None:
        """A pass; whatever goes wrong ends in the log and in :attr:`problem`, never in the loop."""
        try:
            self._look()
        except Exception as error:
            log.exception("a pass over the nodes failed")
            self._failure = f"a pass over the nodes failed: {type(error).__name__}: {error}"
        else:
            self._failure = ""

    def _look(self) -> None:
        now = self._services.clock.now()
        self._mind_the_clock(now)
        self._give_back(self._work.take_back())
        heard = self._services.heard()
        blind = self._services.stale() is not None or heard is None
        if heard is None or (blind and now - heard <= self._settings.stale_watch_after):
            self._plan = None
            self._hold(reasons.STALE_WATCHES)
            return
        self._work.look(now=now, age=self._settings.answer_age)
        picture, news = self._services.picture, self._news
        self._news = {}
        plan = plan_lifecycle(
            picture,
            self._settings,
            now=now,
            memory=self._memory,
            watching=heard,
            answers=self._work.answers,
            news=news,
            resting=self._work.resting(),
        )
        self._memory, self._plan = plan.memory, plan
        if plan.held:
            self._news = news
            self._hold(plan.held)
        else:
            self._act(plan)
        self._record()

    def _hold(self, reason: str) -> None:
        if self.held != reason:
            log.warning("nothing is done about nodes: %s", reason)
            if self._held_since is None:
                self._held_since = self._services.clock.monotonic()
        self.held = reason
        self._pods.put({})

    def _act(self, plan: LifecyclePlan) -> None:
        if self.held:
            log.info("nodes are seen to again")
        self.held = ""
        if not plan.ask:  # else some are only asked anew, and may yet say that our watches lag behind
            self._held_since = None
        self._give_back(self._work.put(todos(plan, self._services.picture.nodes)))
        self._pods.put(plan.failed)
        waiting = Counter(each.zone for each in plan.waiting)
        self._zones = tuple(
            ZoneStatus(
                name=name,
                state=zone.state,
                nodes=zone.nodes,
                not_ready=zone.not_ready,
                nodes_per_second=0.0 if plan.memory.all_down else zone.rate,
                waiting=waiting[name],
            )
            for name, zone in plan.zones.items()
        )

    def _give_back(self, left: list[Todo]) -> None:
        self._memory = _without(self._memory, left)

    def _record(self) -> None:
        """Have written what the next process has to know, without taints that may never be put on.

        Those that are tell it themselves, by their time: so a kill in between neither delays the next node of the zone
        nor lets it go sooner.
        """
        memory = _without(self._memory, self._work.under_way())
        nodes = self._services.picture.nodes
        self._keeper.put(remember(memory, nodes, now=self._services.clock.now()))

    def _mind_the_clock(self, now: float) -> None:
        """A clock that was set is nobody's silence: what is remembered is moved along with it."""
        offset = now - self._services.clock.monotonic()
        step = 0.0 if self._offset is None else offset - self._offset
        if abs(step) > STEP:
            log.warning("the clock was set by %+.1f s; what is known of nodes is moved along", step)
            self._memory = shifted(self._memory, step)
            self._news = {}
            self._work.answers.clear()
        if self._offset is None or abs(step) > STEP:
            self._offset = offset


def _without(memory: LifecycleMemory, left: Iterable[Todo]) -> LifecycleMemory:
    for todo in left:
        memory = given_back(memory, todo.plan, todo.node.name)
    return memory
