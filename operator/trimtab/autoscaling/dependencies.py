"""Defines the dependencies of the autoscaler's controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from msgspec import Struct, field

from trimtab.api.machine_autoscaler import MachineAutoscaler
from trimtab.autoscaling.external.source import ExternalSources
from trimtab.autoscaling.providers import MARK_DELAY, Provider
from trimtab.autoscaling.report import AutoscalerReporter
from trimtab.autoscaling.trigger import Trigger
from trimtab.cluster.lister import Lister
from trimtab.cluster.shared_snapshot import SharedSnapshot
from trimtab.disruption.evictor import Evictor
from trimtab.disruption.shared_plans import SharedPlans
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock
from trimtab.kube.errors import InputError
from trimtab.placement.plan_budget import MIN_DEADLINE


class AutoscalerDependencies(Struct, frozen=True):
    """The dependencies of the autoscaler's controller, reconciler and removals.

    Attributes:
        api: the API server.
        shared: the snapshot that planners share, including node groups.
        lister: reads single objects from the cache.
        clock: the clock.
        disruption_lock: the lock that a controller holds while it plans pod moves or node removals. A descheduler
            policy holds it during its cycle, the autoscaler while it plans and starts removals. If they did not share
            the lock, two planners would rely on the same free capacity.
        stale: returns the reason why the caches are too stale to plan, or ``None`` if they are current. The caches
            include node groups and MachineAutoscalers.
        leading: returns whether this process is the leader.
        trigger: wakes the autoscaler's loop early.
        providers: the providers that scale node groups, by :func:`~trimtab.autoscaling.providers.api_group_of`.
        sources: the external providers of node groups.
        machine_autoscalers: returns the valid MachineAutoscalers.
        invalid_machine_autoscalers: returns the errors of invalid MachineAutoscalers by ``namespace/name``.
        reporter: reports iterations and removals as events, metrics and upstream's status ConfigMap.
        evictor: admits and sends the evictions of all controllers.
        namespace: the namespace of the operator's ConfigMaps.
        priority_namespace: the namespace of the ConfigMap of the Priority expander. If it is empty, the ConfigMap is
            read in ``namespace``, then in the namespaces of MachineAutoscalers.
        mark_delay: the minimum age in seconds of deletion annotations on machines before their group's size is lowered.
        shared_plans: the plans and settings that the controllers of this process share.
        plan_deadline: the maximum seconds for planning one iteration.
        kwok: whether the provider kwok is enabled, which needs further permissions.
        unserved: returns the reason why nothing may be scaled although the caches are up to date, or ``None`` if
            scaling is allowed. For example, the API server does not serve MachineAutoscalers. Removals in progress and
            the clean-up continue.
    """

    api: Api
    shared: SharedSnapshot
    lister: Lister
    clock: Clock
    disruption_lock: asyncio.Lock
    stale: Callable[[], str | None]
    leading: Callable[[], bool]
    trigger: Trigger
    providers: Mapping[str, Provider]
    sources: ExternalSources
    machine_autoscalers: Callable[[], tuple[MachineAutoscaler, ...]]
    invalid_machine_autoscalers: Callable[[], Mapping[str, InputError]]
    reporter: AutoscalerReporter
    evictor: Evictor
    namespace: str = "default"
    priority_namespace: str = ""
    mark_delay: float = MARK_DELAY
    shared_plans: SharedPlans = field(default_factory=SharedPlans)
    plan_deadline: float = MIN_DEADLINE
    unserved: Callable[[], str | None] = lambda: None
    kwok: bool = False
