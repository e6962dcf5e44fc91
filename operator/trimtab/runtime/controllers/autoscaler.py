"""Builds the autoscaler with its dependencies."""

from __future__ import annotations

from collections.abc import Callable

import kopf

from trimtab.autoscaling import handlers as autoscaling
from trimtab.autoscaling.dependencies import AutoscalerDependencies
from trimtab.autoscaling.external import ExternalSources
from trimtab.autoscaling.external.registry import open_sources
from trimtab.autoscaling.machine_autoscalers import KINDS as TARGETS
from trimtab.autoscaling.machine_autoscalers import MachineAutoscalerController
from trimtab.autoscaling.machine_autoscalers import handlers as machine_autoscaling
from trimtab.autoscaling.providers import providers
from trimtab.autoscaling.report import (
    AutoscalerEventReporter,
    AutoscalerMetrics,
    AutoscalerReporter,
    CompatibleMetrics,
    StatusConfigMap,
)
from trimtab.autoscaling.trigger import Trigger
from trimtab.kube.api import LeaderOnlyApi
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.resources import (
    CLUSTER_AUTOSCALERS,
    CLUSTER_MACHINES,
    MACHINE_AUTOSCALERS,
    MACHINES,
    PODS,
    Resource,
)
from trimtab.placement.plan_budget import MIN_DEADLINE
from trimtab.runtime.controllers import RegisterHandlers, SharedDependencies


def build(dependencies: SharedDependencies) -> dict[Resource, RegisterHandlers]:
    """See :func:`~trimtab.runtime.controllers.build_controllers`."""
    informers, api = dependencies.informers, dependencies.api
    trigger = Trigger(SYSTEM_CLOCK)
    targets = _MachineAutoscalers(dependencies, changed=trigger.wake)
    informers.subscribe(PODS, trigger.pod_changed)
    for resource in (MACHINES, CLUSTER_MACHINES):
        informers.subscribe(resource, trigger.machine_changed)
    metrics = AutoscalerMetrics(dependencies.registry)
    compatible = CompatibleMetrics(dependencies.registry) if dependencies.settings.compatible_metrics else None

    def register(registry: kopf.OperatorRegistry) -> None:
        external = dependencies.settings.external
        leader_api = LeaderOnlyApi(api, dependencies.leading)
        sources = ExternalSources()
        if external is not None:
            sources = open_sources(external, api=leader_api, lister=informers.lister)
        services = AutoscalerDependencies(
            api=api,
            shared=dependencies.shared,
            lister=informers.lister,
            clock=SYSTEM_CLOCK,
            disruption_lock=dependencies.disruption_lock,
            stale=targets.not_ready_reason,
            unserved=targets.not_served_reason,
            kwok=external is not None and bool(external.kwok_namespace),
            leading=dependencies.leading,
            trigger=trigger,
            providers={**providers(leader_api), **sources.providers},
            sources=sources,
            machine_autoscalers=lambda: targets.controller.autoscalers.all,
            invalid_machine_autoscalers=lambda: targets.controller.autoscalers.invalid,
            reporter=AutoscalerReporter(
                AutoscalerEventReporter(dependencies.recorder),
                metrics,
                compatible=compatible,
                config_map=StatusConfigMap(leader_api, namespace=dependencies.namespace),
                history=dependencies.history,
            ),
            evictor=dependencies.evictor,
            namespace=dependencies.namespace,
            priority_namespace=dependencies.settings.priority_expander_namespace,
            shared_plans=dependencies.shared_plans,
            mark_delay=dependencies.settings.mark_delay,
            plan_deadline=dependencies.settings.plan_deadline
            or min(MIN_DEADLINE, dependencies.settings.max_inactivity / 2),
        )
        autoscaling.register(registry, services)

        @kopf.on.cleanup(registry=registry)
        async def close_sources(**_: object) -> None:
            await sources.close()

    return {CLUSTER_AUTOSCALERS: register, MACHINE_AUTOSCALERS: targets.register}


class _MachineAutoscalers:
    """Owns the MachineAutoscaler controller, and builds a new one each time the CRD is installed again.

    Args:
        dependencies: the dependencies that all controllers share.
        changed: called when a MachineAutoscaler has changed.

    Attributes:
        controller: the current controller.
    """

    def __init__(self, dependencies: SharedDependencies, *, changed: Callable[[], None]) -> None:
        self._dependencies = dependencies
        self._changed = changed
        self._subscriptions: list[Callable[[], None]] = []
        self.controller = self._make()

    def register(self, registry: kopf.OperatorRegistry) -> None:
        """Register the handlers of MachineAutoscalers."""
        if self.controller.closing:
            for end in self._subscriptions:
                end()
            self.controller = self._make()
        machine_autoscaling.register(registry, self.controller)

    def stale(self) -> str | None:
        """Return the reason why the caches of node groups are stale; ``None`` if they are up to date."""
        return self._dependencies.informers.stale_reason() or self._dependencies.informers.node_groups_stale_reason()

    def not_ready_reason(self) -> str | None:
        """Return the reason why node groups are unknown; ``None`` if they are known.

        Either the caches are stale or the MachineAutoscalers have not been listed yet.
        """
        read = self.controller.synced or not self._dependencies.is_served(MACHINE_AUTOSCALERS)
        return self.stale() or (None if read else "waiting for machineautoscalers")

    def not_served_reason(self) -> str | None:
        """Return the reason why node groups have no size limits; ``None`` if MachineAutoscalers are served."""
        if self._dependencies.is_served(MACHINE_AUTOSCALERS):
            return None
        return f"{MACHINE_AUTOSCALERS.plural}.{MACHINE_AUTOSCALERS.group} is not served"

    def _make(self) -> MachineAutoscalerController:
        dependencies = self._dependencies
        made = MachineAutoscalerController(
            api=dependencies.api,
            recorder=dependencies.recorder,
            leading=dependencies.leading,
            stale=self.stale,
            changed=self._changed,
            metrics=dependencies.queue_metrics,
        )
        self._subscriptions = [
            dependencies.informers.subscribe(each, made.target_changed, replay=True) for each in TARGETS
        ]
        return made
