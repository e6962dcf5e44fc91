"""Builds the node-pressure controller with its dependencies."""

from __future__ import annotations

from functools import partial

import kopf

from trimtab.kube.api import LeaderOnlyApi
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.resources import (
    NODE_PRESSURE_POLICIES,
    NODES,
    PODS,
    Resource,
)
from trimtab.pressure import handlers as pressure
from trimtab.pressure import permissions as pressure_permissions
from trimtab.pressure.dependencies import PressureDependencies
from trimtab.pressure.kubelet_client import KubeletClientSettings, kubelet_reader
from trimtab.pressure.readings import Readings
from trimtab.pressure.report import PressureMetrics, PressureReporter
from trimtab.pressure.resource_metrics import ResourceMetrics
from trimtab.runtime.controllers import RegisterHandlers, SharedDependencies


def build(dependencies: SharedDependencies) -> dict[Resource, RegisterHandlers]:
    """See :func:`~trimtab.runtime.controllers.build_controllers`."""
    informers, api = dependencies.informers, LeaderOnlyApi(dependencies.api, dependencies.leading)
    reporter = PressureReporter(
        dependencies.recorder, PressureMetrics(dependencies.registry), SYSTEM_CLOCK, history=dependencies.history
    )
    metrics = ResourceMetrics(api)

    def register(registry: kopf.OperatorRegistry) -> None:
        settings = dependencies.settings.kubelets or KubeletClientSettings()
        reader = kubelet_reader(settings, api, dependencies.config, namespace=dependencies.namespace)
        services = PressureDependencies(
            api=api,
            evictor=dependencies.evictor,
            lister=informers.lister,
            clock=SYSTEM_CLOCK,
            stale=lambda: informers.stale_reason_of((NODES, PODS)),
            reporter=reporter,
            readings=lambda: Readings(reader, metrics=metrics, published=dependencies.published_readings),
            queue_metrics=dependencies.queue_metrics,
            close=reader.close,
            requirements=partial(
                pressure_permissions.required_permissions, namespace=dependencies.namespace, kubelets=settings
            ),
        )
        pressure.register(registry, services)

    return {NODE_PRESSURE_POLICIES: register}
