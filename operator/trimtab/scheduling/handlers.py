"""The Kopf handlers of SchedulerPolicies, which start the scheduler and forward events to the policies' controllers."""

from __future__ import annotations

from typing import Any

import kopf

from trimtab.controller.kopf_handlers import register_loops
from trimtab.kube.resources import SCHEDULER_POLICIES
from trimtab.scheduling.controller import SchedulerNames, SchedulerPolicyController
from trimtab.scheduling.cycle import Scheduler
from trimtab.scheduling.dependencies import SchedulerDependencies


def register(registry: kopf.OperatorRegistry, dependencies: SchedulerDependencies) -> None:
    """Register the handlers of SchedulerPolicy.

    The scheduler runs as long as the Kopf operator. It schedules no pod before a policy names its scheduler.
    """
    scheduler, names = Scheduler(dependencies), SchedulerNames()

    @kopf.on.startup(registry=registry)
    async def start_scheduler(**_: Any) -> None:
        scheduler.start()

    @kopf.on.cleanup(registry=registry)
    async def stop_scheduler(**_: Any) -> None:
        await scheduler.stop()

    register_loops(
        registry,
        SCHEDULER_POLICIES,
        make=lambda name: SchedulerPolicyController(name, dependencies, scheduler, names),
        running={},
    )
