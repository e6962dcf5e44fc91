"""Builds the controllers of a process with their dependencies, and lists the resources that they need."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial

import kopf
from msgspec import Struct, field
from prometheus_client import CollectorRegistry

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
from trimtab.cluster.kinds import KINDS, SNAPSHOT_KINDS
from trimtab.cluster.kinds import TAINTING as NODE_LIFE
from trimtab.cluster.shared_snapshot import SharedSnapshot
from trimtab.cluster.usage.prometheus import Prometheus
from trimtab.controller.history import History
from trimtab.controller.metrics import WorkQueueMetrics
from trimtab.descheduling.dependencies import DeschedulerDependencies
from trimtab.descheduling.handlers import PolicyHandlers
from trimtab.descheduling.policy_conflicts import PolicyRegistry
from trimtab.descheduling.report.metrics import DeschedulerMetrics
from trimtab.disruption.evictor import Evictor
from trimtab.disruption.executor import Executor
from trimtab.disruption.shared_plans import SharedPlans
from trimtab.kube.api import Api, LeaderOnlyApi
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.connection.config import ServerConfig
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.resources import (
    BUDGETS,
    CLUSTER_AUTOSCALERS,
    CLUSTER_MACHINES,
    DESCHEDULER_POLICIES,
    DESCHEDULING_RUNS,
    EVICTION_REQUESTS,
    LEASES,
    MACHINE_AUTOSCALERS,
    MACHINES,
    NODE_PRESSURE_POLICIES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SCHEDULER_POLICIES,
    TAINT_MANAGERS,
    Resource,
)
from trimtab.kube.watching.prober import WatchProber
from trimtab.placement.plan_budget import MIN_DEADLINE
from trimtab.pressure import handlers as pressure
from trimtab.pressure import permissions as pressure_permissions
from trimtab.pressure.dependencies import PressureDependencies
from trimtab.pressure.kubelet_client import KubeletClientSettings, kubelet_reader
from trimtab.pressure.readings import Readings
from trimtab.pressure.report import PressureMetrics, PressureReporter
from trimtab.pressure.resource_metrics import ResourceMetrics
from trimtab.runtime.informers import Informers
from trimtab.runtime.settings import AUTOSCALER, DESCHEDULER, PRESSURE, SCHEDULER, TAINTING, Settings
from trimtab.scheduling import handlers as scheduling
from trimtab.scheduling.dependencies import SchedulerDependencies
from trimtab.scheduling.preemptor import PreemptionExecutor
from trimtab.scheduling.report import PodConditionWriter, SchedulerMetrics, SchedulerReporter
from trimtab.scheduling.volumes import PodVolumeBinder
from trimtab.tainting import handlers as tainting
from trimtab.tainting.dependencies import TaintingDependencies
from trimtab.tainting.report import EventReporter as TaintEventReporter
from trimtab.tainting.report import Reporter as TaintReporter
from trimtab.tainting.report import TaintManagerMetrics

RegisterHandlers = Callable[[kopf.OperatorRegistry], None]
"""Registers the handlers of one custom resource. It is called each time Kopf starts to watch the resource."""


def snapshot_resources(controllers: Collection[str]) -> tuple[Resource, ...]:
    """Return the resources that must be in the snapshot for these controllers to plan."""
    if AUTOSCALER in controllers:
        return SNAPSHOT_KINDS
    return KINDS if DESCHEDULER in controllers or SCHEDULER in controllers else ()


def lister_resources(controllers: Collection[str]) -> tuple[Resource, ...]:
    """Return the resources that these controllers watch in addition to those in the snapshot.

    The taint manager and the node-pressure controller read only the lister. If they run without the other controllers,
    the process keeps no snapshot, because a snapshot needs more memory than the lister.
    """
    if TAINTING in controllers:
        read: tuple[Resource, ...] = (NODES, *NODE_LIFE, PODS)
    elif PRESSURE in controllers:
        read = (NODES, PODS)
    else:
        return ()
    planned = snapshot_resources(controllers)
    return tuple(resource for resource in read if resource not in planned)


def required_custom_resources(controllers: Collection[str]) -> dict[Resource, str]:
    """Return the custom resources that these controllers need, each with the name of the controller."""
    needed = {
        DESCHEDULER: (DESCHEDULER_POLICIES, DESCHEDULING_RUNS),
        AUTOSCALER: (CLUSTER_AUTOSCALERS, MACHINE_AUTOSCALERS),
        TAINTING: (TAINT_MANAGERS,),
        SCHEDULER: (SCHEDULER_POLICIES,),
        PRESSURE: (NODE_PRESSURE_POLICIES,),
    }
    return {each: name for name, resources in needed.items() if name in controllers for each in resources}


class SharedDependencies(Struct, frozen=True):
    """The dependencies that all controllers share.

    Attributes:
        settings: the process settings.
        api: the API client.
        shared: the snapshot that all planners share.
        informers: the informers that keep the snapshot and the lister up to date.
        recorder: posts events.
        registry: the Prometheus registry.
        evictor: admits and sends the evictions of all controllers.
        history: records the actions of all controllers.
        leading: returns whether this process is the leader.
        namespace: namespace in which the operator runs.
        prometheus: the Prometheus server for the queries of policies; ``None`` if none is configured.
        disruption_lock: the lock of the controller that is planning and carrying out disruptions.
        queue_metrics: metrics of the work queues.
        is_served: returns whether the API server serves a custom resource.
        config: the configuration of the connection to the API server.
        shared_plans: plans that controllers publish for each other.
    """

    settings: Settings
    api: Api
    shared: SharedSnapshot
    informers: Informers
    recorder: Recorder
    registry: CollectorRegistry
    evictor: Evictor
    history: History
    leading: Callable[[], bool]
    namespace: str
    prometheus: Prometheus | None
    disruption_lock: asyncio.Lock
    queue_metrics: WorkQueueMetrics
    is_served: Callable[[Resource], bool]
    config: ServerConfig
    shared_plans: SharedPlans = field(default_factory=SharedPlans)


def build_controllers(dependencies: SharedDependencies) -> dict[Resource, RegisterHandlers]:
    """Build the controllers that the settings enable.

    Call it before the informers start, because controllers subscribe to them.

    Returns:
        For each custom resource, the function that registers its handlers.
    """
    made = {
        DESCHEDULER: _descheduler,
        AUTOSCALER: _autoscaler,
        TAINTING: _taint_manager,
        SCHEDULER: _scheduler,
        PRESSURE: _node_pressure,
    }
    if BUDGETS in snapshot_resources(dependencies.settings.controllers):
        dependencies.informers.subscribe(BUDGETS, dependencies.evictor.budgets.budget_changed)
        dependencies.informers.subscribe(EVICTION_REQUESTS, dependencies.evictor.others.changed)
    found: dict[Resource, RegisterHandlers] = {}
    for name, make in made.items():
        if name in dependencies.settings.controllers:
            found |= make(dependencies)
    return found


def _descheduler(dependencies: SharedDependencies) -> dict[Resource, RegisterHandlers]:
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


def _autoscaler(dependencies: SharedDependencies) -> dict[Resource, RegisterHandlers]:
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


def _taint_manager(dependencies: SharedDependencies) -> dict[Resource, RegisterHandlers]:
    informers, lister = dependencies.informers, dependencies.informers.lister
    nodes = informers.informer(NODES)
    leader_api = LeaderOnlyApi(dependencies.api, dependencies.leading)
    watched = [informers.informer(resource) for resource in (NODES, LEASES, PODS)]
    prober = WatchProber(leader_api, watched, SYSTEM_CLOCK)

    def verified_at() -> float | None:
        return prober.verified_at((NODES, LEASES))

    def uid_of(name: str) -> str:
        node = lister.node(name)
        return "" if node is None else node.uid

    metrics = TaintManagerMetrics(dependencies.registry)
    metrics.follow(verified_at, SYSTEM_CLOCK.now)
    events = TaintEventReporter(dependencies.recorder, SYSTEM_CLOCK, uid_of=uid_of)
    reporter = TaintReporter(events, metrics, SYSTEM_CLOCK, history=dependencies.history)
    services = TaintingDependencies(
        api=leader_api,
        evictor=dependencies.evictor,
        lister=lister,
        clock=SYSTEM_CLOCK,
        reporter=reporter,
        stale=lambda: informers.stale_reason_of((NODES, PODS)),
        watches_verified_at=verified_at,
        namespace=dependencies.namespace,
        nodes_in_sync=lambda: nodes.state.phase == "Watching",
        verify_watches=prober.probe,
        stalled_watch=lambda: prober.stalled_reason((NODES, PODS)),
        stale_leases=lambda: informers.stale_reason_of((LEASES,)),
        queue_metrics=dependencies.queue_metrics,
    )
    return {TAINT_MANAGERS: lambda registry: tainting.register(registry, services, post=reporter.run)}


def _scheduler(dependencies: SharedDependencies) -> dict[Resource, RegisterHandlers]:
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


def _node_pressure(dependencies: SharedDependencies) -> dict[Resource, RegisterHandlers]:
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
            readings=lambda: Readings(reader, metrics=metrics),
            queue_metrics=dependencies.queue_metrics,
            close=reader.close,
            requirements=partial(
                pressure_permissions.required_permissions, namespace=dependencies.namespace, kubelets=settings
            ),
        )
        pressure.register(registry, services)

    return {NODE_PRESSURE_POLICIES: register}
