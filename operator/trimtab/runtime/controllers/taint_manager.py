"""Builds the taint manager with its dependencies."""

from __future__ import annotations

from trimtab.kube.api import LeaderOnlyApi
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.resources import (
    LEASES,
    NODES,
    PODS,
    TAINT_MANAGERS,
    Resource,
)
from trimtab.kube.watching.prober import WatchProber
from trimtab.runtime.controllers import RegisterHandlers, SharedDependencies
from trimtab.tainting import handlers as tainting
from trimtab.tainting.dependencies import TaintingDependencies
from trimtab.tainting.report import Reporter, TaintManagerMetrics


def build(dependencies: SharedDependencies) -> dict[Resource, RegisterHandlers]:
    """See :func:`~trimtab.runtime.controllers.build_controllers`."""
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
    reporter = Reporter(dependencies.recorder, SYSTEM_CLOCK, metrics, uid_of=uid_of, history=dependencies.history)
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
    return {TAINT_MANAGERS: lambda registry: tainting.register(registry, services)}
