"""The tasks of the taint manager that evict pods and taint nodes. They run in the modes EvictPods and TaintAndEvict.

The tasks are the deadline timers, the eviction queue, the node annotations and, in TaintAndEvict mode, the node
lifecycle. They are created from scratch each time the mode changes from Observe, because their
state is in the deadline tracker, in the cluster and in the ConfigMap of the node lifecycle.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

import msgspec

from trimtab.api.taint_manager import TAINT_AND_EVICT, TaintManagerSpec
from trimtab.controller.loop import TaskSupervisor
from trimtab.controller.timers import Timers
from trimtab.kube.objects import Lease, Node
from trimtab.kube.watching.prober import CHECK_PERIOD
from trimtab.tainting.deadlines import Deadline, DeadlineChange, TaintDeadlineTracker
from trimtab.tainting.dependencies import TaintingDependencies
from trimtab.tainting.eviction import EvictionQueue
from trimtab.tainting.lifecycle import NodeLifecycleController
from trimtab.tainting.lifecycle.settings import lifecycle_settings
from trimtab.tainting.since_annotations import SinceAnnotations

log = logging.getLogger(__name__)

STOP_TIMEOUT: Final = 12.0
"""Seconds that the tasks have to finish in-flight requests. Kopf allows 28 seconds for the whole daemon."""


class ActiveTasks:
    """Runs and supervises the tasks that evict pods and taint nodes, until the mode changes to Observe.

    Args:
        dependencies: dependencies of the taint manager.
        spec: the spec of the TaintManager, in EvictPods or TaintAndEvict mode.
        tracker: tracks the deadlines of all pods.

    Attributes:
        eviction_queue: evicts and deletes due pods.
        lifecycle: taints failed nodes; ``None`` except in TaintAndEvict mode.
    """

    def __init__(
        self, dependencies: TaintingDependencies, spec: TaintManagerSpec, tracker: TaintDeadlineTracker
    ) -> None:
        services = msgspec.structs.replace(
            dependencies, stale=lambda: dependencies.stale() or dependencies.stalled_watch()
        )
        self.eviction_queue = EvictionQueue(
            services, spec, deadline_of=tracker.deadlines.get, deadlines_of=tracker.deadlines_of
        )
        self.lifecycle: NodeLifecycleController | None = None
        self._services = services
        self._spec = spec
        self._tracker = tracker
        self._tasks = TaskSupervisor("taint manager", services.clock)
        self._since_annotations = SinceAnnotations(services, tracker.taints)
        self._deadline_timers: Timers[Deadline] = Timers(self.eviction_queue.due, services.clock)
        self._tainted_before = 0  # taints of node lifecycles that have stopped

    @property
    def stale(self) -> str | None:
        """Return the reason why acting on the caches is unsafe, including a stalled watch; ``None`` if it is safe."""
        return self._services.stale()

    @property
    def problems(self) -> tuple[str, ...]:
        """Return the errors of tasks that have failed and will be restarted, sorted by task."""
        return tuple(self._tasks.problems[name] for name in sorted(self._tasks.problems))

    @property
    def nodes_tainted(self) -> int:
        """Return the number of NoExecute taints that were added to nodes since :meth:`start`."""
        return self._tainted_before + (self.lifecycle.nodes_tainted if self.lifecycle is not None else 0)

    async def start(self) -> None:
        """Start all tasks, and set a timer for each deadline of the tracker."""
        for deadline in self._tracker.deadlines.values():
            self._deadline_timers.set(deadline.key, deadline.due, deadline)
        self._since_annotations.resync()
        if self._services.verify_watches is not None:
            self._tasks.start_periodic("watch verification", self._services.verify_watches, CHECK_PERIOD)
        self._tasks.start("eviction queue", self.eviction_queue.run)
        self._tasks.start("eviction rates", self.eviction_queue.run_timers)
        self._tasks.start("deadline timers", self._deadline_timers.run)
        self._tasks.start("node annotations", self._since_annotations.run)
        await self._configure_lifecycle(self._spec)

    async def configure(self, spec: TaintManagerSpec) -> None:
        """Apply a new spec in EvictPods or TaintAndEvict mode."""
        self._spec = spec
        self.eviction_queue.configure(spec)
        await self._configure_lifecycle(spec)

    async def stop(self) -> None:
        """Stop all tasks after their in-flight requests have finished."""
        # 1. While the queue drains, no timer may enqueue another pod and no annotation may be written.
        await self._tasks.cancel("deadline timers")
        await self._tasks.cancel("node annotations")
        # 2. Wait for in-flight requests.
        await asyncio.gather(self._stop_evictions(), self._stop_lifecycle())
        # 3. Cancel everything else.
        await self._tasks.cancel()

    async def remove_annotations(self, seconds: float) -> int:
        """Remove trimtab's annotation from all nodes. Call it after :meth:`stop`.

        Args:
            seconds: timeout in seconds.

        Returns:
            The number of nodes that still have the annotation.
        """
        return await self._since_annotations.remove_all(seconds)

    def deadlines_changed(self, changes: Iterable[DeadlineChange]) -> None:
        """Update the timers and the eviction queue after deadlines have changed."""
        for change in changes:
            if change.after is None:
                self._deadline_timers.cancel(change.key)
            else:
                self._deadline_timers.set(change.key, change.after.due, change.after)
            self.eviction_queue.changed(change.key)

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """Process an added, changed or removed node. The tracker and the lister must already reflect the change."""
        node = new or old
        if node is not None:
            self._since_annotations.enqueue(node.name)
            if old is None or new is None or old.taints != new.taints:
                self.eviction_queue.node_changed(node.name)
        if self.lifecycle is not None:
            self.lifecycle.node_changed(old, new)

    def lease_changed(self, old: Lease | None, new: Lease | None) -> None:
        """Process an added, renewed or removed node Lease."""
        if self.lifecycle is not None:
            self.lifecycle.lease_changed(old, new)

    async def _configure_lifecycle(self, spec: TaintManagerSpec) -> None:
        """Start, reconfigure or stop the node lifecycle, according to the mode."""
        if spec.mode != TAINT_AND_EVICT:
            await self._stop_lifecycle()
        elif self.lifecycle is not None:
            self.lifecycle.configure(lifecycle_settings(spec.node_lifecycle))
        else:
            services, settings = self._lifecycle_dependencies(), lifecycle_settings(spec.node_lifecycle)
            self.lifecycle = NodeLifecycleController(services, settings)
            self._tasks.start("node lifecycle", self.lifecycle.run)

    def _lifecycle_dependencies(self) -> TaintingDependencies:
        """Return the dependencies of the node lifecycle, which also pauses while the watch of Leases is stale."""
        services = self._services
        return msgspec.structs.replace(services, stale=lambda: services.stale() or services.stale_leases())

    async def _stop_lifecycle(self) -> None:
        if self.lifecycle is None:
            return
        stopping, self.lifecycle = self.lifecycle, None
        await self._tasks.end("node lifecycle", stopping.stop, seconds=STOP_TIMEOUT)
        self._tainted_before += stopping.nodes_tainted

    async def _stop_evictions(self) -> None:
        try:
            await self.eviction_queue.stop(STOP_TIMEOUT)
        except Exception:
            log.exception("Failed to stop the taint manager's eviction queue")
