"""Builds the descheduler with its dependencies."""

from __future__ import annotations

from trimtab.descheduling.dependencies import DeschedulerDependencies
from trimtab.descheduling.handlers import PolicyHandlers
from trimtab.descheduling.policy_conflicts import PolicyRegistry
from trimtab.descheduling.report.metrics import DeschedulerMetrics
from trimtab.disruption.executor import Executor
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.resources import (
    DESCHEDULER_POLICIES,
    DESCHEDULING_RUNS,
    Resource,
)
from trimtab.runtime.controllers import RegisterHandlers, SharedDependencies


def build(dependencies: SharedDependencies) -> dict[Resource, RegisterHandlers]:
    """See :func:`~trimtab.runtime.controllers.build_controllers`."""
    metrics = DeschedulerMetrics(dependencies.registry)
    api, recorder, lister = dependencies.api, dependencies.recorder, dependencies.informers.lister
    services = DeschedulerDependencies(
        api=api,
        shared=dependencies.shared,
        executor=Executor(
            api=api,
            recorder=recorder,
            clock=SYSTEM_CLOCK,
            view=lister,
            evictor=dependencies.evictor,
            observe=metrics.ended,
        ),
        recorder=recorder,
        clock=SYSTEM_CLOCK,
        metrics=metrics,
        cycle_lock=dependencies.disruption_lock,
        stale=dependencies.informers.stale_reason,
        leading=dependencies.leading,
        policies=PolicyRegistry(dependencies.settings.scoring, dependencies.shared_plans.settings),
        prometheus=dependencies.prometheus,
        shared_plans=dependencies.shared_plans,
        plan_deadline=dependencies.settings.plan_deadline,
        longest_plan=dependencies.settings.max_inactivity / 2,
    )
    handlers = PolicyHandlers(services)
    return {DESCHEDULER_POLICIES: handlers.register_policies, DESCHEDULING_RUNS: handlers.register_runs}
