"""The loop of the node lifecycle. It runs only in TaintAndEvict mode and in the leading process.

An iteration plans from the caches and sends no requests. Workers execute the newest plan. The next iteration plans
failed updates again. An iteration starts when a node changes (not at its heartbeats), when the update of a node has
ended, when a grace period ends, when the rate of a zone allows the next taint, and every ``nodeMonitorPeriod``.

A node whose kubelet stops sends no event, so a timer starts its iteration (``next_iteration`` of the plan), and the
node is planned twice:

1. Its grace period ends. The plan probes the node (:attr:`~.node_health.HealthVerdict.PROBE`).
2. The API server has answered, which wakes the loop. If it has no newer heartbeat either, the plan sets the node's
   conditions to Unknown, and taints the node as soon as the rate of its zone allows it.
"""

from __future__ import annotations

import logging
from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.taint_manager import NAME, NodeLifecycle, ZoneStatus
from trimtab.controller.loop import Loop, NotReadyReason, TaskSupervisor
from trimtab.controller.progress import PlanSchedule
from trimtab.kube.objects import NODE_LEASES, Lease, Node
from trimtab.kube.resources import TAINT_MANAGERS
from trimtab.tainting.dependencies import TaintingDependencies
from trimtab.tainting.lifecycle.node_health import STALE_WATCH_AFTER
from trimtab.tainting.lifecycle.node_updates import NodeUpdater, node_updates
from trimtab.tainting.lifecycle.planner import LifecyclePlan, plan_lifecycle, spend_token
from trimtab.tainting.lifecycle.pod_readiness import PodReadinessMarker
from trimtab.tainting.lifecycle.record import LifecycleState, RecordWriter, build_record, restore_state, shift_times
from trimtab.tainting.lifecycle.zones import TakenToken

log = logging.getLogger(__name__)

MIN_PERIOD: Final = 0.2
"""Minimum seconds between two iterations. In an outage, nodes change all the time."""

PAUSE_RATIO: Final = 10.0
"""Minimum pause after an iteration, as a multiple of the CPU time of that iteration."""

MAX_PAUSE: Final = 2.0
"""Maximum seconds of that pause, so that a failed node is noticed within seconds even if an iteration is expensive."""

DEADLINE_MARGIN: Final = 0.005
"""Seconds by which an iteration starts after a deadline, because just before the deadline nothing would be due."""

NOT_READY_PERIOD: Final = 1.0
"""Seconds between two checks of whether stale watches are up to date again."""

WATCH_LAG_TIMEOUT: Final = 30.0
"""Seconds after which the status reports that the watches lag behind the API server."""

WATCH_BEHIND_MESSAGE: Final = (
    "the watches lag behind the API server, where nodes renew their Leases: no node is tainted until the watches catch "
    "up"
)

CLOCK_TOLERANCE: Final = 1.0
"""Maximum seconds by which the wall clock and the monotonic clock may diverge between two iterations.

A larger difference means that the host's clock was set.
"""

STOP_TIMEOUT: Final = 5.0
"""Seconds to wait for in-flight requests when the loop stops, and then for the final write of the ConfigMap."""


class NodeLifecycleController(Loop):
    """Runs the iterations of the node lifecycle. :mod:`~trimtab.tainting.lifecycle.planner` decides what to do.

    Attributes:
        held: the reason why the node lifecycle is paused, as a code of :mod:`trimtab.api.reasons`; ``""`` if it is not
            paused.
        zones: the zones of the last iteration, sorted by name.
    """

    def __init__(self, dependencies: TaintingDependencies, settings: NodeLifecycle) -> None:
        super().__init__(
            "node lifecycle", dependencies.clock, rest=MIN_PERIOD, rest_share=PAUSE_RATIO, max_rest=MAX_PAUSE
        )
        self.held = ""
        self.zones: tuple[ZoneStatus, ...] = ()
        self._dependencies = dependencies
        self._settings = settings
        self._record_writer = RecordWriter(dependencies.api, dependencies.clock, namespace=dependencies.namespace)
        self._updater = NodeUpdater(dependencies, spend=self._spend_token, done=self.wake)
        self._marker = PodReadinessMarker(replace(dependencies, stale=lambda: self.held or dependencies.stale()))
        self._state = LifecycleState()
        self._plan: LifecyclePlan | None = None
        self._last_changes: dict[str, float] = {}
        self._failure = ""
        self._offset = 0.0  # of the wall clock from the monotonic clock; run() sets it
        self._hold_reason = NotReadyReason(WATCH_LAG_TIMEOUT)

    @property
    def problem(self) -> str:
        """Return why an iteration or the ConfigMap failed, or that the watches lag for long; ``""`` if neither."""
        if self._failure or self._record_writer.problem:
            return self._failure or self._record_writer.problem
        if self.held != reasons.WATCHES_BEHIND:
            return ""
        return self._hold_reason.lasting(WATCH_BEHIND_MESSAGE, self._dependencies.clock.monotonic())

    def configure(self, settings: NodeLifecycle) -> None:
        """Apply new settings, and start an iteration."""
        self._settings = settings
        self.wake()

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """Process an added, changed or removed node. A heartbeat does not start an iteration.

        The lister must already reflect the change.
        """
        if new is not None and (old is None or old.heartbeat != new.heartbeat):
            self._last_changes[new.name] = self._dependencies.clock.now()
        if affects_plan(old, new):
            self.wake()
        if new is not None and became_not_ready(old, new):
            note = f"became not ready: condition Ready is {new.ready_status or 'missing'}"
            self._dependencies.reporter.node_event(new.name, uid=new.uid, reason=reasons.NODE_NOT_READY, note=note)

    def lease_changed(self, old: Lease | None, new: Lease | None) -> None:
        """Store the time at which a Lease was renewed, which starts no iteration."""
        if new is not None and new.namespace == NODE_LEASES and (old is None or old.renewed != new.renewed):
            self._last_changes[new.name] = self._dependencies.clock.now()

    # ── the loop ────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Restore the state from the ConfigMap, then iterate until stopped or cancelled."""
        record = await self._record_writer.load(until=lambda: self.closing)
        if record is None:
            return
        now = self._dependencies.clock.now()
        self._state, self._offset = restore_state(record, now=now), now - self._dependencies.clock.monotonic()
        tasks = TaskSupervisor("node lifecycle", self._dependencies.clock)
        tasks.start("node updates", self._updater.run)
        tasks.start("patches of pods", self._marker.run)
        try:
            await self._iterate_until_closed()
            await self._end()
        finally:
            await tasks.cancel()
            await self._record_writer.cancel()

    async def stop(self) -> None:
        """Start no further iteration. :meth:`run` finishes in-flight requests, writes the ConfigMap and returns."""
        self.close()

    async def _end(self) -> None:
        self._marker.put({})
        if not await self._updater.settled(STOP_TIMEOUT):
            log.warning("Stopped the node lifecycle controller while its API requests were still in flight")
        self._record()
        if not await self._record_writer.flush(STOP_TIMEOUT):
            problem = self._record_writer.problem or "timeout"
            log.warning("Failed to write the ConfigMap with the state of the node lifecycle: %s", problem)

    # ── an iteration ────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _plan_schedule(self) -> PlanSchedule:
        return PlanSchedule(TAINT_MANAGERS, NAME, self._settings.monitor_period_seconds)

    async def _iterate(self) -> float:
        now = self._dependencies.clock.now()
        # 1. Shift stored times if the host's clock was set, and drop the updates that were not started.
        self._correct_clock_change(now)
        self._updater.drop_pending()
        # 2. Pause while the watches are stale, because a node without heartbeats may then be healthy. If they have been
        #    stale for longer, the planner pauses, and records since when: this time extends the grace periods.
        verified = self._dependencies.watches_verified_at()
        stale = self._dependencies.stale() is not None
        if verified is None or (stale and now - verified <= STALE_WATCH_AFTER):
            self._plan = None
            self._hold(reasons.STALE_WATCHES)
        else:
            # 3. Plan, and pass the plan to the workers, or pause if the plan requires it.
            self._updater.forget_outdated(now=now)
            self._act(self._plan_iteration(verified, now))
            # 4. Persist the state from which a restarted process continues.
            self._record()
        self._failure = ""
        return self._pause()

    async def _failed(self, error: Exception) -> float:
        self._failure = f"iteration failed: {type(error).__name__}: {error}"
        return self._pause()

    def _pause(self) -> float:
        """Return the seconds until the next iteration if nothing wakes the loop, including :data:`MIN_PERIOD`."""
        clock, period = self._dependencies.clock, self._settings.monitor_period_seconds
        pause = MIN_PERIOD + (min(NOT_READY_PERIOD, period) if self.held else period)
        if self._plan is not None and self._plan.next_iteration is not None:
            pause = min(pause, self._plan.next_iteration - clock.now() + DEADLINE_MARGIN)
        return max(0.01, pause)

    def _plan_iteration(self, watches_verified_at: float, now: float) -> LifecyclePlan:
        plan = plan_lifecycle(
            self._dependencies.lister.nodes,
            self._dependencies.lister.leases,
            self._settings,
            now=now,
            memory=self._state,
            watches_verified_at=watches_verified_at,
            probe_results=self._updater.probe_results,
            changed_at=self._last_changes,
            resting=self._updater.resting(),
            in_flight=self._updater.in_flight(),
        )
        self._state, self._plan = plan.memory, plan
        if not plan.held:
            self._last_changes = {}
        return plan

    def _hold(self, reason: str) -> None:
        if self.held != reason:
            log.warning("Paused the node lifecycle controller (%s); it adds no taints until it resumes", reason)
        self.held = reason
        self._hold_reason.lasting(reason, self._dependencies.clock.monotonic())

    def _act(self, plan: LifecyclePlan) -> None:
        if plan.held:
            self._hold(plan.held)
            return
        if self.held:
            log.info("Resumed the node lifecycle controller")
        self.held = ""
        if not plan.probes:  # outstanding probes may still show that the watches lag
            self._hold_reason.lasting(None, self._dependencies.clock.monotonic())
        self._updater.put(node_updates(plan, self._dependencies.lister.nodes))
        self._marker.put(plan.failed)
        self.zones = tuple(plan.zones.values())

    def _spend_token(self, token: TakenToken, in_flight: int, at: float) -> None:
        self._correct_clock_change(at)
        self._state = spend_token(self._state, token, in_flight, at)

    def _record(self) -> None:
        """Persist the state.

        If the process is killed after a taint was written, the next process reads the time of that taint from the node.
        The next node of the zone is therefore tainted neither earlier nor later than the zone's rate allows.
        """
        nodes = self._dependencies.lister.nodes
        self._record_writer.put(build_record(self._state, nodes, now=self._dependencies.clock.now()))

    def _correct_clock_change(self, now: float) -> None:
        """Shift the stored times if the host's clock was set. Otherwise, nodes would appear to be silent since then."""
        offset = now - self._dependencies.clock.monotonic()
        step = offset - self._offset
        if abs(step) > CLOCK_TOLERANCE:
            log.warning("The host's clock jumped by %+.1f s; adjusting recorded timestamps", step)
            self._state = shift_times(self._state, step)
            self._last_changes = {}
            self._updater.probe_results.clear()
            self._offset = offset


_PLANNED_FIELDS: Final = attrgetter("uid", "taints", "unschedulable", "labels", "conditions")


def affects_plan(old: Node | None, new: Node | None) -> bool:
    """Return whether a change to a node can affect the plan. A heartbeat or a new image cannot."""
    if old is None or new is None:
        return True
    return bool(_PLANNED_FIELDS(old) != _PLANNED_FIELDS(new))


def became_not_ready(old: Node | None, new: Node | None) -> bool:
    """Return whether a node was ready before the change and no longer is."""
    return old is not None and new is not None and old.uid == new.uid and old.ready and not new.ready
