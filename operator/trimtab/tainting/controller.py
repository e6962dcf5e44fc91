"""The controller of the TaintManager: it starts, reconfigures and stops the tasks of the taint manager.

Node and pod events are processed as soon as they arrive: :class:`ClusterObserver` updates the deadlines of the pods
(:mod:`.deadlines`), and :class:`ActiveTasks` sets a timer for each deadline. It passes due pods to the queue that
evicts them (:mod:`.eviction_queue`), and changed nodes to the node lifecycle (:mod:`.lifecycle`).
:class:`TaintManagerController` reconciles every two seconds, and whenever the TaintManager changes. It also writes the
status.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.decode import TAINT_MANAGER, decode_taint_manager, find_former_values
from trimtab.api.schema import FieldError
from trimtab.api.taint_manager import NAME, OBSERVE, TAINT_AND_EVICT, StuckNode, TaintManager, TaintManagerSpec
from trimtab.controller.loop import ControllerLoop, NotReadyReason, TaskSupervisor
from trimtab.controller.permissions import Requirement
from trimtab.controller.progress import PlanSchedule
from trimtab.controller.reporter import report_safely
from trimtab.controller.status_reporter import StatusReporter
from trimtab.controller.timers import Timers
from trimtab.disruption.evictor.requests import TAINTING
from trimtab.kube.clock import CpuTime
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Lease, Node, Pod
from trimtab.kube.resources import TAINT_MANAGERS
from trimtab.kube.watching.prober import CHECK_PERIOD
from trimtab.tainting.deadlines import (
    SINCE_ANNOTATION,
    Deadline,
    DeadlineChange,
    TaintDeadlineTracker,
    TolerationRule,
    subject_to_taints,
)
from trimtab.tainting.dependencies import ActionCounts, TaintingDependencies
from trimtab.tainting.eviction_queue import EvictionQueue
from trimtab.tainting.lifecycle import NodeLifecycleController
from trimtab.tainting.permissions import required_permissions
from trimtab.tainting.report import RECONCILE_PERIOD, Observation, build_status, status_writer
from trimtab.tainting.report.status import refused_pods, stuck_nodes
from trimtab.tainting.since_annotations import SinceAnnotations

log = logging.getLogger(__name__)

STOP_TIMEOUT: Final = 12.0
"""Seconds that the tasks have to finish in-flight requests. Kopf allows 28 seconds for the whole daemon."""

STUCK_NODES_PERIOD: Final = 10.0
"""Seconds between two searches for nodes whose pods are stuck terminating."""


class ClusterObserver:
    """Processes the changes of nodes, pods and Leases. The lister must already reflect them.

    Nodes and pods go to the deadline tracker, and changed deadlines to the tasks and the reporter. Nodes and Leases
    also go to the tasks. In Observe mode, ``tasks`` is ``None``.
    """

    def __init__(self, dependencies: TaintingDependencies) -> None:
        self.tracker = TaintDeadlineTracker(dependencies.lister.items_on, TolerationRule())
        self.tasks: ActiveTasks | None = None
        self._dependencies = dependencies
        self._unsubscribe: Callable[[], None] | None = None
        self._out_of_sync = False

    @property
    def synced(self) -> bool:
        """Return whether the whole cluster has been read."""
        return self._unsubscribe is not None

    def track(self, rule: TolerationRule, *, read_annotations: bool) -> None:
        """Apply a rule for matching tolerations. The first call reads the whole cluster, and subscribes to changes.

        The annotations of nodes are up to date only in the modes EvictPods and TaintAndEvict. An outdated annotation
        may describe a taint that was removed and added again, and would set a deadline too early.
        """
        if self.synced:
            self._forward(self.tracker.set_rule(rule, now=self._dependencies.clock.now()))
            return
        self.tracker.rule = rule
        self._resync(read_annotations=read_annotations)
        self._unsubscribe = self._dependencies.lister.subscribe(self)  # last: if this fails, the next call retries

    def stop(self) -> None:
        """Unsubscribe from changes."""
        if self._unsubscribe is not None:
            self._unsubscribe()

    def resync_after_errors(self) -> None:
        """Resync the whole cluster, and set all timers again, if processing an event has failed."""
        if not self._out_of_sync:
            return
        self._resync(read_annotations=self.tasks is not None)
        if self.tasks is not None:
            self.tasks.set_deadline_timers()
        self._out_of_sync = False

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """Process an added, changed or removed node."""
        with self._resync_on_error(new or old):
            observed = new if new is None or self.tasks is not None else _without_annotation(new)
            in_sync, now = self._dependencies.nodes_in_sync(), self._dependencies.clock.now()
            self._forward(self.tracker.node_changed(old, observed, now=now, in_sync=in_sync))
            if self.tasks is not None:
                self.tasks.node_changed(old, new)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Process an added, changed or removed pod."""
        with self._resync_on_error(new or old):
            self._forward(self.tracker.pod_changed(old, new, now=self._dependencies.clock.now()))

    def lease_changed(self, old: Lease | None, new: Lease | None) -> None:
        """Process an added, renewed or removed node Lease."""
        with self._resync_on_error(new or old):
            if self.tasks is not None and self.tasks.lifecycle is not None:
                self.tasks.lifecycle.lease_changed(old, new)

    def _resync(self, *, read_annotations: bool) -> None:
        lister = self._dependencies.lister
        nodes: Iterable[Node] = lister.nodes.values()
        if not read_annotations:
            nodes = [_without_annotation(node) for node in nodes]
        self._forward(self.tracker.resync(nodes, lister.items(), now=self._dependencies.clock.now()))

    @contextmanager
    def _resync_on_error(self, subject: Node | Pod | Lease | None) -> Iterator[None]:
        try:
            yield
        except Exception:
            key = "an unknown object" if subject is None else subject.key
            log.exception("Failed to process a watch event for %s; resyncing", key)
            self._out_of_sync = True

    def _forward(self, changes: Iterable[DeadlineChange]) -> None:
        for change in changes:
            if self.tasks is not None:
                self.tasks.deadline_changed(change)
            if change.after is not None:
                self._dependencies.reporter.deadline_set(change.after, before=change.before)
            elif change.before is not None:
                pod, nodes = self._dependencies.lister.pod(change.key), self._dependencies.lister.nodes
                same = pod is not None and pod.uid == change.before.uid
                kept = pod is not None and same and subject_to_taints(pod) and pod.node in nodes
                self._dependencies.reporter.deadline_cancelled(change.before, pod_kept=kept)


def _without_annotation(node: Node) -> Node:
    if SINCE_ANNOTATION not in node.annotations:
        return node
    rest = {key: value for key, value in node.annotations.items() if key != SINCE_ANNOTATION}
    return replace(node, annotations=type(node.annotations)(rest))


class ActiveTasks:
    """Runs and supervises the tasks that evict pods and taint nodes, until the mode changes to Observe.

    ``lifecycle`` is ``None`` except in TaintAndEvict mode.
    """

    def __init__(self, shared: TaintingDependencies, spec: TaintManagerSpec, tracker: TaintDeadlineTracker) -> None:
        dependencies = replace(shared, stale=lambda: shared.stale() or shared.stalled_watch())
        self.eviction_queue = EvictionQueue(dependencies, spec, tracker)
        self.stuck_nodes: tuple[StuckNode, ...] = ()
        self.lifecycle: NodeLifecycleController | None = None
        self._dependencies = dependencies
        self._tracker = tracker
        self._tasks = TaskSupervisor("taint manager", dependencies.clock)
        self.since_annotations = SinceAnnotations(dependencies, tracker.taints)
        self._deadline_timers: Timers[Deadline] = Timers(self.eviction_queue.enqueue, dependencies.clock)

    @property
    def stale(self) -> str | None:
        """Return the reason why acting on the caches is unsafe, including a stalled watch; ``None`` if it is safe."""
        return self._dependencies.stale()

    @property
    def problems(self) -> str:
        """Return the errors of tasks that have failed and will be restarted."""
        return "; ".join(problem for _, problem in sorted(self._tasks.problems.items()))

    async def start(self, spec: TaintManagerSpec) -> None:
        """Start all tasks, and set a timer for each deadline of the tracker."""
        self.set_deadline_timers()
        self.since_annotations.resync()
        if self._dependencies.verify_watches is not None:
            self._tasks.start_periodic("watch verification", self._dependencies.verify_watches, CHECK_PERIOD)
        with report_safely("stuck nodes"):
            await self._find_stuck_nodes()  # the first status already reports them
        self._tasks.start_periodic("stuck nodes", self._find_stuck_nodes, STUCK_NODES_PERIOD)
        self._tasks.start("eviction queue", self.eviction_queue.run)
        self._tasks.start("deadline timers", self._deadline_timers.run)
        self._tasks.start("node annotations", self.since_annotations.run)
        await self._configure_lifecycle(spec)

    def set_deadline_timers(self) -> None:
        """Set a timer for each deadline of the tracker."""
        for deadline in self._tracker.deadlines.values():
            self._deadline_timers.set(deadline.key, deadline.due, deadline)

    async def configure(self, spec: TaintManagerSpec) -> None:
        """Apply a new spec in EvictPods or TaintAndEvict mode."""
        self.eviction_queue.configure(spec)
        await self._configure_lifecycle(spec)

    async def stop(self) -> None:
        """Stop all tasks after their in-flight requests have finished."""
        # 1. While the queue drains, no timer may enqueue another pod and no annotation may be written.
        await self._tasks.cancel("deadline timers")
        await self._tasks.cancel("node annotations")
        try:
            # 2. Wait for in-flight requests.
            await asyncio.gather(self.eviction_queue.stop(STOP_TIMEOUT), self._stop_lifecycle())
        finally:
            # 3. Cancel everything else.
            await self._tasks.cancel()

    def deadline_changed(self, change: DeadlineChange) -> None:
        """Update the timer of a pod and the eviction queue after its deadline has changed."""
        if change.after is None:
            self._deadline_timers.cancel(change.key)
        else:
            self._deadline_timers.set(change.key, change.after.due, change.after)
        self.eviction_queue.deadline_changed(change.key)

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """Process an added, changed or removed node. The tracker and the lister must already reflect the change."""
        node = new or old
        if node is not None:
            self.since_annotations.enqueue(node.name)
            if old is None or new is None or old.taints != new.taints:
                self.eviction_queue.taints_changed(node.name)
        if self.lifecycle is not None:
            self.lifecycle.node_changed(old, new)

    async def _find_stuck_nodes(self) -> None:
        self.stuck_nodes = stuck_nodes(self._dependencies.lister, now=self._dependencies.clock.now())

    async def _configure_lifecycle(self, spec: TaintManagerSpec) -> None:
        """Start, reconfigure or stop the node lifecycle, according to the mode."""
        if spec.mode != TAINT_AND_EVICT:
            await self._stop_lifecycle()
        elif self.lifecycle is not None:
            self.lifecycle.configure(spec.node_lifecycle)
        else:
            dependencies = self._dependencies  # the node lifecycle also pauses while the watch of Leases is stale
            with_leases = replace(dependencies, stale=lambda: dependencies.stale() or dependencies.stale_leases())
            self.lifecycle = NodeLifecycleController(with_leases, spec.node_lifecycle)
            self._tasks.start("node lifecycle", self.lifecycle.run)

    async def _stop_lifecycle(self) -> None:
        if self.lifecycle is None:
            return
        stopping, self.lifecycle = self.lifecycle, None
        await self._tasks.end("node lifecycle", stopping.stop, seconds=STOP_TIMEOUT)


PAUSE_RATIO: Final = 20
"""Minimum pause between two iterations, as a multiple of the CPU time of a report. With 150,000 deadlines a report
takes about 15 ms.
"""

MAX_PAUSE: Final = 10.0
"""Maximum seconds of that pause, after which the status may be out of date."""

REMOVE_TIMEOUT: Final = 10.0
"""Timeout in seconds for removing trimtab's annotation from the nodes when the mode changes to Observe."""

CLEAN_UP_TIMEOUT: Final = 60.0
"""Timeout in seconds for removing the annotation when the TaintManager is deleted. Kopf retries a failed removal."""

LISTING_PERIOD: Final = 0.2
"""Seconds between two checks of whether all nodes and pods have been listed."""


class TaintManagerController(ControllerLoop[TaintManager]):
    """Reconciles the TaintManager."""

    resource = TAINT_MANAGERS

    def __init__(self, dependencies: TaintingDependencies) -> None:
        super().__init__("taint manager", dependencies.clock)
        self._dependencies = dependencies = replace(dependencies, counts=ActionCounts())
        self._observer = ClusterObserver(dependencies)
        self._applied: TaintManagerSpec | None = None
        self._former_values: tuple[FieldError, ...] = ()
        self._stale = NotReadyReason()
        self._stale_leases = NotReadyReason()
        self._status = StatusReporter(
            status_writer(dependencies.api, dependencies.clock),
            dependencies.clock,
            reason=reasons.INVALID_TAINT_MANAGER,
            idle="the spec is invalid: no pod is evicted and no node is tainted",
        )

    async def clean_up(self) -> None:
        """Remove trimtab's annotation from all nodes after the TaintManager was deleted. The taints stay on the nodes.

        Raises:
            TimeoutError: some nodes still have the annotation.
        """
        async with asyncio.timeout(CLEAN_UP_TIMEOUT):
            while self._dependencies.stale() is not None:
                await self._dependencies.clock.sleep(LISTING_PERIOD)
        left = await SinceAnnotations(self._dependencies, {}).remove_all(CLEAN_UP_TIMEOUT)
        if left:
            raise TimeoutError(f"{left} nodes still have an annotation of trimtab")

    async def stop(self) -> None:
        """Stop the status writer after :meth:`clean_up`. Call it only if :meth:`run` was never called."""
        await self._status.stop()

    # --- the loop -----------------------------------------------------------------------------------------------------

    @property
    def _plan_schedule(self) -> PlanSchedule:
        return PlanSchedule(TAINT_MANAGERS, NAME, RECONCILE_PERIOD)

    async def _reconcile(self, manager: TaintManager) -> float:
        spec, pause = manager.spec, RECONCILE_PERIOD
        # 1. Wait until all nodes and pods are listed, because deadlines are incomplete before. Later, stale caches
        #    pause the tasks that evict and taint, but not this loop.
        if not self._observer.synced and self._dependencies.stale() is not None:
            pause = LISTING_PERIOD
        else:
            # 2. Track deadlines with the toleration rule of the spec.
            if spec is not self._applied:
                self._dependencies.reporter.configure(spec, uid=self.uid)
            self._observer.track(TolerationRule.of(spec), read_annotations=spec.mode != OBSERVE)
            # 3. Start, reconfigure or stop the tasks that act on events.
            await self._configure_tasks(spec)
            # 4. Resync if an event could not be processed. An error there must not keep a changed mode from applying.
            self._observer.resync_after_errors()
        # 5. Report the state in status, events and metrics. With many deadlines this is slow, so the pause is longer.
        #    (The loop's own rest would also delay a changed spec.)
        cost = CpuTime(self._dependencies.clock)
        status = build_status(self._observe(spec), self._status.current, base=self._status.resumed.counts)
        self._status.put(status)
        self._dependencies.reporter.observe(status)
        return max(pause, min(MAX_PAUSE, PAUSE_RATIO * cost.seconds))

    async def _invalid(self, problem: InputError) -> float:
        await self._stop_tasks()
        self._status.invalid(problem, generation=self.generation, waiting_evictions=())
        return RECONCILE_PERIOD

    async def _failed(self, error: Exception) -> float:
        self._status.failed(error, generation=self.generation)
        return RECONCILE_PERIOD

    async def _finish(self) -> None:
        await self._stop_tasks(remove_annotations=self.deleted)
        self._observer.stop()
        await self._status.stop()

    # --- its object ---------------------------------------------------------------------------------------------------

    def _decode(self, body: Mapping[str, Any]) -> TaintManager:
        manager = decode_taint_manager(dict(body))
        if (former := find_former_values(body, TAINT_MANAGER)) != self._former_values:
            for each in former:
                log.warning(
                    "The stored TaintManager contains a value from an earlier trimtab version; apply the new value: %s",
                    each,
                )
            self._former_values = former
        return manager

    def _requirements(self, obj: TaintManager) -> tuple[Requirement, ...]:
        return required_permissions(obj.spec, namespace=self._dependencies.namespace)

    def _resume(self, status: Mapping[str, Any]) -> None:
        self._status.resume(status)

    # --- the steps ----------------------------------------------------------------------------------------------------

    async def _configure_tasks(self, spec: TaintManagerSpec) -> None:
        """Start, reconfigure or stop the eviction and taint tasks, according to the mode."""
        observer = self._observer
        if spec is not self._applied:
            started = "Started the taint manager in %s mode: %d nodes with NoExecute taints, %d pods with a deadline"
            log.info(started, spec.mode, len(observer.tracker.taints), len(observer.tracker.deadlines))
        if spec.mode == OBSERVE:
            await self._stop_tasks()
        elif observer.tasks is None:
            observer.tasks = ActiveTasks(self._dependencies, spec, observer.tracker)
            try:
                await observer.tasks.start(spec)
            except Exception:
                await self._stop_tasks(remove_annotations=False)  # the next iteration starts all of them again
                raise
        elif spec is not self._applied:
            await observer.tasks.configure(spec)
        self._applied = spec

    async def _stop_tasks(self, *, remove_annotations: bool = True) -> None:
        """Stop the eviction and taint tasks, and remove trimtab's annotation from the nodes, as it would be outdated.

        If another process takes over, the annotations are kept: that process reads them.
        """
        tasks, self._observer.tasks = self._observer.tasks, None
        if tasks is None:
            return
        log.info("Stopping the taint manager; waiting for in-flight requests")
        await tasks.stop()
        if remove_annotations and (left := await tasks.since_annotations.remove_all(REMOVE_TIMEOUT)):
            log.warning("Failed to remove annotation %s from %d nodes; it is outdated there", SINCE_ANNOTATION, left)

    def _observe(self, spec: TaintManagerSpec) -> Observation:
        """Collect the data for the status and the metrics."""
        dependencies, tasks, tracker = self._dependencies, self._observer.tasks, self._observer.tracker
        now = dependencies.clock.monotonic()
        stale_leases = self._stale_leases.lasting(dependencies.stale_leases(), now)
        observed = Observation(
            now=dependencies.clock.now(),
            mode=spec.mode,
            generation=self.generation,
            stale=self._stale.lasting(dependencies.stale() if tasks is None else tasks.stale, now),
            synced=self._observer.synced,
            actions=dependencies.counts,
            deadlines=tracker.deadlines.values(),
            tainted_nodes=len(tracker.taints),
        )
        if tasks is None:
            return observed
        queue, lifecycle, previous = tasks.eviction_queue, tasks.lifecycle, self._status.current.waiting_evictions
        return replace(
            observed,
            waiting=queue.waiting,
            held=queue.held,
            waiting_evictions=dependencies.evictor.waiting_status(TAINTING, previous=previous),
            refused=refused_pods(queue.pods),
            stuck=tasks.stuck_nodes,
            zones=() if lifecycle is None else lifecycle.zones,
            lifecycle_problem="" if lifecycle is None else "; ".join(filter(None, (stale_leases, lifecycle.problem))),
            task_failures=tasks.problems,
        )
