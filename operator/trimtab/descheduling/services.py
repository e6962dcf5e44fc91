"""What the loops of all policies share, made once by the composition root."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from trimtab.cluster.live import LiveCluster
from trimtab.cluster.prometheus import Prometheus
from trimtab.descheduling.metrics import DeschedulerMetrics
from trimtab.descheduling.peers import Peers
from trimtab.disruption.executor import Executor
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock
from trimtab.kube.events.recorder import Recorder


class Services(Struct, frozen=True):
    """What every cycle needs, made once by the composition root.

    Attributes:
        api: the API server.
        live: the picture of the cluster.
        executor: carries plans out.
        recorder: posts events.
        clock: where the time comes from.
        metrics: the descheduler's metrics.
        turn: held by the one policy whose cycle runs.
        stale: what keeps the picture from being planned on now, ``None`` where nothing does.
        leading: whether this process may still act; false by time alone once the lease could have run out, so that
            even a process that was paused in the middle does not evict beside its successor.
        peers: the policies that run side by side.
        prometheus: whom policies' queries are put to; ``None`` where nobody has said.
    """

    api: Api
    live: LiveCluster
    executor: Executor
    recorder: Recorder
    clock: Clock
    metrics: DeschedulerMetrics
    turn: asyncio.Lock
    stale: Callable[[], str | None]
    leading: Callable[[], bool]
    peers: Peers
    prometheus: Prometheus | None = None
