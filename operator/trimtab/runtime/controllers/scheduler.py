"""Builds the scheduler with its dependencies."""

from __future__ import annotations

from functools import partial

from trimtab.kube.api import LeaderOnlyApi
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    SCHEDULER_POLICIES,
    Resource,
)
from trimtab.runtime.controllers import RegisterHandlers, SharedDependencies
from trimtab.scheduling import handlers as scheduling
from trimtab.scheduling.dependencies import SchedulerDependencies
from trimtab.scheduling.preemptor import PreemptionExecutor
from trimtab.scheduling.report import PodConditionWriter, SchedulerMetrics, SchedulerReporter
from trimtab.scheduling.volumes import PodVolumeBinder


def build(dependencies: SharedDependencies) -> dict[Resource, RegisterHandlers]:
    """See :func:`~trimtab.runtime.controllers.build_controllers`."""
    informers, lister = dependencies.informers, dependencies.informers.lister
    api = LeaderOnlyApi(dependencies.api, dependencies.leading)
    conditions = PodConditionWriter(
        api, lister.pod, SYSTEM_CLOCK, metrics=dependencies.queue_metrics.queue("pod_conditions")
    )
    reporter = SchedulerReporter(
        conditions, dependencies.recorder, SchedulerMetrics(dependencies.registry), SYSTEM_CLOCK
    )
    volumes = PodVolumeBinder(
        api=api,
        claims=informers.informer(PERSISTENT_VOLUME_CLAIMS).store,
        volumes=informers.informer(PERSISTENT_VOLUMES).store,
        lister=lister,
        clock=SYSTEM_CLOCK,
    )
    preemptor = partial(
        PreemptionExecutor,
        api=api,
        evictor=dependencies.evictor,
        lister=lister,
        clock=SYSTEM_CLOCK,
        stale=informers.stale_reason,
        reporter=reporter,
    )
    services = SchedulerDependencies(
        api=api,
        shared=dependencies.shared,
        lister=lister,
        subscribe=informers.subscribe,
        clock=SYSTEM_CLOCK,
        stale=informers.stale_reason,
        volumes=volumes,
        preemptor=lambda cancel: preemptor(cancel_binding=cancel),
        reporter=reporter,
    )
    return {SCHEDULER_POLICIES: lambda registry: scheduling.register(registry, services)}
