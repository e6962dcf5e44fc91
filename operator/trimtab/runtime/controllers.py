"""Which controllers a process runs: what each watches, which definitions it waits for, and how it is put together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import kopf
from msgspec import Struct
from prometheus_client import CollectorRegistry

from trimtab.autoscaling import handlers as autoscaling
from trimtab.autoscaling.external import Sources
from trimtab.autoscaling.external.registry import open_sources
from trimtab.autoscaling.machine_autoscalers import KINDS as TARGETS
from trimtab.autoscaling.machine_autoscalers import MachineAutoscalerController
from trimtab.autoscaling.machine_autoscalers import handlers as machine_autoscaling
from trimtab.autoscaling.providers import providers
from trimtab.autoscaling.report import AutoscalerMetrics, CompatibleMetrics, EventTeller, Reporter, StatusConfigMap
from trimtab.autoscaling.services import Services as AutoscalerServices
from trimtab.autoscaling.trigger import Trigger
from trimtab.cluster.kinds import EVERYTHING, KINDS
from trimtab.cluster.kinds import TAINTING as NODE_LIFE
from trimtab.cluster.live import LiveCluster
from trimtab.cluster.prometheus import Prometheus
from trimtab.descheduling import handlers as descheduling
from trimtab.descheduling.metrics import DeschedulerMetrics
from trimtab.descheduling.peers import Peers
from trimtab.descheduling.services import Services as DeschedulerServices
from trimtab.disruption.executor import Executor
from trimtab.kube.api import Api
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.guarded import Guarded
from trimtab.kube.resources import (
    CLUSTER_AUTOSCALERS,
    CLUSTER_MACHINES,
    DESCHEDULER_POLICIES,
    DESCHEDULING_RUNS,
    LEASES,
    MACHINE_AUTOSCALERS,
    MACHINES,
    NODES,
    PODS,
    TAINT_MANAGERS,
    Resource,
)
from trimtab.kube.watching.proof import WatchProof
from trimtab.runtime.settings import AUTOSCALER, DESCHEDULER, TAINTING, Settings
from trimtab.runtime.watches import Watches
from trimtab.tainting import handlers as tainting
from trimtab.tainting.picture import Picture
from trimtab.tainting.report import EventTeller as TaintTeller
from trimtab.tainting.report import Reporter as TaintReporter
from trimtab.tainting.report import TaintManagerMetrics
from trimtab.tainting.services import Services as TaintingServices

Register = Callable[[kopf.OperatorRegistry], None]
"""Registers the handlers of a controller; called once this process leads."""


def kinds_of(controllers: Collection[str]) -> tuple[Resource, ...]:
    """What is watched for the picture that these controllers plan on."""
    if AUTOSCALER in controllers:
        return EVERYTHING
    return KINDS if DESCHEDULER in controllers else ()


def apart_of(controllers: Collection[str]) -> tuple[Resource, ...]:
    """What is watched for these controllers and is no part of the picture that planners borrow.

    The taint manager has a picture of its own: alone it spares the other one, which is the larger.
    """
    if TAINTING not in controllers:
        return ()
    planned = kinds_of(controllers)
    return tuple(resource for resource in (NODES, *NODE_LIFE, PODS) if resource not in planned)


def definitions_of(controllers: Collection[str]) -> tuple[Resource, ...]:
    """Our resources that must be served before these controllers start."""
    found: list[Resource] = []
    if DESCHEDULER in controllers:
        found += DESCHEDULER_POLICIES, DESCHEDULING_RUNS
    if AUTOSCALER in controllers:
        found += CLUSTER_AUTOSCALERS, MACHINE_AUTOSCALERS
    if TAINTING in controllers:
        found.append(TAINT_MANAGERS)
    return tuple(found)


class Parts(Struct, frozen=True):
    """What controllers are made of, and have in common.

    Attributes:
        settings: of the process.
        api: the API server.
        live: the picture.
        watches: keep it.
        recorder: posts events.
        registry: of metrics.
        leading: whether this process may still act.
        namespace: the operator's own.
        prometheus: whom policies' queries are put to.
        turn: held by whoever plans moves.
    """

    settings: Settings
    api: Api
    live: LiveCluster
    watches: Watches
    recorder: Recorder
    registry: CollectorRegistry
    leading: Callable[[], bool]
    namespace: str
    prometheus: Prometheus | None
    turn: asyncio.Lock


def controllers(parts: Parts) -> list[Register]:
    """Make the controllers that the settings name; call it before the watches start, for some listen to them."""
    made = {DESCHEDULER: _descheduler, AUTOSCALER: _autoscaler, TAINTING: _taint_manager}
    return [make(parts) for name, make in made.items() if name in parts.settings.controllers]


def _descheduler(parts: Parts) -> Register:
    metrics = DeschedulerMetrics(parts.registry)
    api, recorder, live = parts.api, parts.recorder, parts.live
    services = DeschedulerServices(
        api=api,
        live=live,
        executor=Executor(api=api, recorder=recorder, clock=SYSTEM_CLOCK, view=live, observe=metrics.ended),
        recorder=recorder,
        clock=SYSTEM_CLOCK,
        metrics=metrics,
        turn=parts.turn,
        stale=parts.watches.stale,
        leading=parts.leading,
        peers=Peers(parts.settings.scoring),
        prometheus=parts.prometheus,
    )
    return lambda registry: descheduling.register(registry, services)


def _autoscaler(parts: Parts) -> Register:
    watches, api = parts.watches, parts.api
    trigger = Trigger(SYSTEM_CLOCK)

    def stale() -> str | None:
        return watches.stale() or watches.stale_groups()

    targets = MachineAutoscalerController(
        api=api, recorder=parts.recorder, leading=parts.leading, stale=stale, changed=trigger.wake
    )
    for resource in TARGETS:
        watches.listen(resource, targets.target_changed)
    watches.listen(PODS, trigger.pod_changed)
    for resource in (MACHINES, CLUSTER_MACHINES):
        watches.listen(resource, trigger.machine_changed)
    external = parts.settings.external
    guarded = Guarded(api, parts.leading)
    sources = Sources()
    if external is not None:
        sources = open_sources(external, api=guarded, snapshot=lambda: parts.live.present)

    def blind() -> str | None:
        wrong = stale()
        return wrong or (None if targets.synced else "waiting for machineautoscalers")

    services = AutoscalerServices(
        api=api,
        live=parts.live,
        clock=SYSTEM_CLOCK,
        turn=parts.turn,
        stale=blind,
        leading=parts.leading,
        trigger=trigger,
        providers={**providers(guarded), **sources.providers},
        sources=sources,
        machine_autoscalers=lambda: targets.autoscalers.all,
        invalid_machine_autoscalers=lambda: targets.autoscalers.invalid,
        reporter=Reporter(
            EventTeller(parts.recorder),
            AutoscalerMetrics(parts.registry),
            compatible=CompatibleMetrics(parts.registry) if parts.settings.compatible_metrics else None,
            config_map=StatusConfigMap(guarded, namespace=parts.namespace),
        ),
        namespace=parts.namespace,
    )

    def register(registry: kopf.OperatorRegistry) -> None:
        machine_autoscaling.register(registry, targets)
        autoscaling.register(registry, services)

        @kopf.on.cleanup(registry=registry)
        async def close_sources(**_: object) -> None:
            await sources.close()

    return register


def _taint_manager(parts: Parts) -> Register:
    watches, picture = parts.watches, Picture()
    watches.listen(NODES, picture.node_changed)
    watches.listen(LEASES, picture.lease_changed)
    watches.listen(PODS, picture.pod_changed)
    nodes = watches.informer(NODES)
    guarded = Guarded(parts.api, parts.leading)
    watched = [watches.informer(resource) for resource in (NODES, LEASES, PODS)]
    proof = WatchProof(guarded, watched, SYSTEM_CLOCK)

    def heard() -> float | None:
        return proof.heard((NODES, LEASES))

    metrics = TaintManagerMetrics(parts.registry)
    metrics.follow(heard, SYSTEM_CLOCK.now)
    events = TaintTeller(parts.recorder, SYSTEM_CLOCK, uid_of=picture.uid_of)
    reporter = TaintReporter(events, metrics, SYSTEM_CLOCK)
    services = TaintingServices(
        api=guarded,
        picture=picture,
        clock=SYSTEM_CLOCK,
        teller=reporter,
        stale=lambda: watches.stale_of((NODES, PODS)),
        heard=heard,
        namespace=parts.namespace,
        followed=lambda: nodes.state.phase == "Watching",
        prove=proof.run,
        hung=lambda: proof.hung((NODES, PODS)),
        blind=lambda: watches.stale_of((LEASES,)),
    )
    return lambda registry: tainting.register(registry, services, telling=reporter.run)
