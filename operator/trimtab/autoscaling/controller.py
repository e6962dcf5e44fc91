"""Runs the ClusterAutoscaler's iterations every ten seconds, or earlier if triggered.

Each iteration starts from the state in the cluster: the ClusterAutoscaler's status, nodes and node groups. State in
memory may be lost at any time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import NAME, ClusterAutoscaler
from trimtab.api.conditions import DEGRADED, READY, find_condition
from trimtab.api.decode import decode_cluster_autoscaler
from trimtab.api.descheduler_status import TRY_AGAIN
from trimtab.autoscaling.dependencies import AutoscalerDependencies
from trimtab.autoscaling.machine_autoscalers.targets import TargetKey
from trimtab.autoscaling.permissions import required_permissions
from trimtab.autoscaling.reconciler import Reconciler
from trimtab.autoscaling.report import status_writer
from trimtab.controller.loop import ControllerLoop, NotReadyReason
from trimtab.controller.permissions import Requirement
from trimtab.controller.progress import PlanSchedule
from trimtab.controller.reporter import condition, describe_error
from trimtab.controller.status_reporter import StatusReporter
from trimtab.kube.api import LeaderOnlyApi
from trimtab.kube.errors import InputError
from trimtab.kube.resources import CLUSTER_AUTOSCALERS

log = logging.getLogger(__name__)

PERIOD: Final = 10.0
"""Seconds from the start of an iteration to the start of the next, unless an event triggers it earlier.

This corresponds to upstream's scan interval.
"""

PERIOD_AFTER_ACTION: Final = 1.0
"""Seconds from the start of an iteration to the start of the next, if it scaled up or removed a node."""

MIN_PAUSE: Final = 0.2
"""Minimum pause between two iterations in seconds. A slow iteration is followed by a pause of the same length."""

NOT_READY_PERIOD: Final = 0.5
"""Seconds until the controller checks again whether acting is safe."""

CLEAN_UP_TIMEOUT: Final = 150.0
"""Timeout in seconds for rolling back all nodes when the ClusterAutoscaler is deleted."""


class AutoscalerController(ControllerLoop[ClusterAutoscaler]):
    """Runs the iterations of the ClusterAutoscaler until it is deleted or the process stops.

    Args:
        dependencies: the autoscaler's dependencies.
    """

    resource = CLUSTER_AUTOSCALERS

    def __init__(self, dependencies: AutoscalerDependencies) -> None:
        super().__init__("autoscaler", dependencies.clock, wakeup=dependencies.trigger, rest=MIN_PAUSE, rest_share=1.0)
        self._dependencies = dependencies
        writer = status_writer(LeaderOnlyApi(dependencies.api, dependencies.leading), dependencies.clock)
        self._status = StatusReporter(
            writer,
            dependencies.clock,
            reason=reasons.INVALID_AUTOSCALER,
            idle="the spec is invalid: nothing is scaled",
        )
        self._reconciler = Reconciler(dependencies, writer)
        dependencies.shared_plans.settings.listen(dependencies.trigger.wake)
        self._not_ready = NotReadyReason()
        self._started = 0.0

    def observe(self, body: Mapping[str, Any]) -> None:
        """Process an event of the ClusterAutoscaler. A new value of trimtab.dev/try-again starts an iteration."""
        asked = str((body["metadata"].get("annotations") or {}).get(TRY_AGAIN, ""))
        if asked != self._reconciler.try_again:
            self._reconciler.try_again = asked
            self._dependencies.trigger.wake()
        super().observe(body)

    def end(self) -> None:
        """End :meth:`run` because the ClusterAutoscaler was deleted.

        This also happens if a user removed its finalizer.
        """
        self._dependencies.shared_plans.settings.set_autoscaler(None)
        super().end()

    async def clean_up(self) -> None:
        """Roll back all removals, and remove the autoscaler's taints and annotations from nodes and machines.

        Raises:
            TimeoutError: some taints or annotations could not be removed in time.
        """
        clock = self._dependencies.clock
        async with asyncio.timeout(CLEAN_UP_TIMEOUT):
            left = 1
            while left:
                if self._dependencies.stale() is None:
                    left = await self._reconciler.clean_up()
                if left:
                    await clock.sleep(NOT_READY_PERIOD)

    async def stop(self) -> None:
        """Stop the tasks that :meth:`clean_up` started, if :meth:`run` was not called."""
        await self._reconciler.stop()

    # --- the loop -----------------------------------------------------------------------------------------------------

    @property
    def _plan_schedule(self) -> PlanSchedule:
        return PlanSchedule(CLUSTER_AUTOSCALERS, NAME, PERIOD)

    async def _reconcile(self, autoscaler: ClusterAutoscaler) -> float:
        clock = self._dependencies.clock
        began, self._started = clock.monotonic(), clock.now()
        if self._key is not None:  # the kinds of node groups may have changed
            self._permissions.require(self._key, self._requirements(autoscaler))
        # 1. Wait for current caches. Other controllers may use the disruption lock meanwhile.
        if not self._ready():
            self._reconciler.release_lock()
            return max(0.0, NOT_READY_PERIOD - (clock.monotonic() - began))
        # 2. Run one iteration: observe, plan, act and report. Slow work (providers, drains, status) runs in tasks.
        acted = await self._reconciler.reconcile(autoscaler)
        # 3. Requeue: soon after an action, since the action changes the cluster, else after the period.
        return max(0.0, (PERIOD_AFTER_ACTION if acted else PERIOD) - (clock.monotonic() - began))

    async def _invalid(self, problem: InputError) -> float:
        """Roll back the removals in progress and scale nothing, because the spec is invalid."""
        self._status.invalid(problem, generation=self.generation, waiting_evictions=())
        if self._dependencies.stale() is None:
            await self._reconciler.reconcile_removals(None)
        return PERIOD

    async def _failed(self, error: Exception) -> float:
        self._status.failed(error, generation=self.generation)
        if self.object is not None:
            self._reconciler.report_failure(self.object, self._started, describe_error(error))
        return PERIOD

    async def _finish(self) -> None:
        if self.deleted:
            try:
                await self.clean_up()
            except Exception:  # the first iteration of the next ClusterAutoscaler removes them
                log.exception(
                    "Failed to remove taints and annotations from some nodes after the ClusterAutoscaler was deleted"
                )
        await self._reconciler.stop()

    # --- the ClusterAutoscaler --------------------------------------------------------------------------------------

    def _decode(self, body: Mapping[str, Any]) -> ClusterAutoscaler:
        return decode_cluster_autoscaler(dict(body))

    def _resume(self, status: Mapping[str, Any]) -> None:
        self._reconciler.resume(status)

    def _spec_changed(self) -> None:
        if self.object is not None:
            self._dependencies.trigger.bypassed_schedulers = frozenset(self.object.spec.scale_up.bypassed_schedulers)
        self._dependencies.shared_plans.settings.set_autoscaler(self.object)

    def _requirements(self, obj: ClusterAutoscaler) -> tuple[Requirement, ...]:
        autoscalers = self._dependencies.machine_autoscalers()
        targets = (TargetKey.of_reference(each.spec.scale_target_ref, "").resource() for each in autoscalers)
        return required_permissions(
            obj,
            namespace=self._dependencies.namespace,
            targets=[target for target in targets if target is not None],
            kwok=self._dependencies.kwok,
            priority_namespace=self._dependencies.priority_namespace,
        )

    def _ready(self) -> bool:
        """Return whether it is safe to plan and act.

        If it has been unsafe for some time, report the reason in the status.
        """
        reason = self._dependencies.stale() or self._dependencies.unserved()
        lasting = self._not_ready.lasting(reason, self._dependencies.clock.monotonic())
        if lasting:
            conditions = [condition(DEGRADED, True, reasons.CLUSTER_UNREACHABLE, lasting)]
            if find_condition(self._status.current.conditions, READY) is None:
                message = "no iteration has completed yet"
                conditions.append(condition(READY, "Unknown", reasons.WAITING_FOR_FIRST_ITERATION, message))
            self._status.set(*conditions, generation=self.generation, waiting_evictions=())
        return reason is None
