"""Builds the controllers of a process with their dependencies, and lists the resources that they need."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from importlib import import_module
from typing import TYPE_CHECKING, Final

import kopf
from msgspec import Struct, field
from prometheus_client import CollectorRegistry

from trimtab.cluster.kinds import KINDS, SNAPSHOT_KINDS
from trimtab.cluster.kinds import TAINTING as NODE_LIFE
from trimtab.cluster.usage.prometheus import Prometheus
from trimtab.controller.history import History
from trimtab.controller.metrics import WorkQueueMetrics
from trimtab.disruption.evictor import Evictor
from trimtab.disruption.shared_plans import SharedPlans
from trimtab.kube.api import Api
from trimtab.kube.connection.config import ServerConfig
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.resources import (
    BUDGETS,
    CLUSTER_AUTOSCALERS,
    DESCHEDULER_POLICIES,
    DESCHEDULING_RUNS,
    EVICTION_REQUESTS,
    MACHINE_AUTOSCALERS,
    NODE_PRESSURE_POLICIES,
    NODES,
    PODS,
    SCHEDULER_POLICIES,
    TAINT_MANAGERS,
    Resource,
)
from trimtab.pressure.readings import PublishedReadings
from trimtab.runtime.informers import Informers
from trimtab.runtime.settings import AUTOSCALER, DESCHEDULER, PRESSURE, SCHEDULER, TAINTING, Settings

if TYPE_CHECKING:
    from trimtab.cluster.shared_snapshot import SharedSnapshot

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
        shared_snapshot: the snapshot that all planners share; ``None`` if no controller needs one.
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
        published_readings: what the node-pressure controllers have read from nodes, for the inspection API.
    """

    settings: Settings
    api: Api
    shared_snapshot: SharedSnapshot | None
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
    published_readings: PublishedReadings = field(default_factory=PublishedReadings)

    @property
    def shared(self) -> SharedSnapshot:
        """Return the snapshot that all planners share, for a controller that needs it."""
        assert self.shared_snapshot is not None, "snapshot_resources does not contain the controller"
        return self.shared_snapshot


_MODULES: Final = {
    DESCHEDULER: "descheduler",
    AUTOSCALER: "autoscaler",
    TAINTING: "taint_manager",
    SCHEDULER: "scheduler",
    PRESSURE: "node_pressure",
}
"""The module that builds each controller. Those of other controllers are not imported, because they and NumPy, which
not all controllers use, need 25 MB."""


def build_controllers(dependencies: SharedDependencies) -> dict[Resource, RegisterHandlers]:
    """Build the controllers that the settings enable.

    Call it before the informers start, because controllers subscribe to them.

    Returns:
        For each custom resource, the function that registers its handlers.
    """
    if BUDGETS in snapshot_resources(dependencies.settings.controllers):
        dependencies.informers.subscribe(BUDGETS, dependencies.evictor.budgets.budget_changed)
        dependencies.informers.subscribe(EVICTION_REQUESTS, dependencies.evictor.others.changed)
    found: dict[Resource, RegisterHandlers] = {}
    for name, module in _MODULES.items():
        if name in dependencies.settings.controllers:
            found |= import_module(f"{__name__}.{module}").build(dependencies)
    return found
