"""Defines the dependencies that the controllers of all policies share. They are created once at startup."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from msgspec import Struct, field

from trimtab.cluster.shared_snapshot import SharedSnapshot
from trimtab.cluster.usage.prometheus import Prometheus
from trimtab.descheduling.policy_conflicts import PolicyRegistry
from trimtab.descheduling.report.metrics import DeschedulerMetrics
from trimtab.disruption.executor import Executor
from trimtab.disruption.shared_plans import SharedPlans
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock
from trimtab.kube.events.recorder import Recorder


class DeschedulerDependencies(Struct, frozen=True):
    """Dependencies of the controllers and cycles of all policies: clients, the snapshot, the executor and registries.

    Attributes:
        api: the API server.
        shared: the snapshot that all planners share.
        executor: executes plans.
        recorder: emits events.
        clock: the source of the current time.
        metrics: the descheduler's metrics.
        cycle_lock: lock that is held by the policy whose cycle is running.
        stale: returns the reason why the caches are too old for planning; ``None`` if they are fresh enough.
        leading: returns whether this process may still act. The result becomes false as soon as the lease may have
            expired, so that a process that was paused does not evict pods alongside the new leader.
        policies: registry of all policies and their conflicts.
        shared_plans: the plans that the descheduler and the autoscaler share.
        plan_deadline: maximum duration of planning in seconds; ``None`` for half of the policy's interval, within
            bounds.
        longest_plan: upper bound of that default in seconds, because the process exits if a plan takes much longer.
        prometheus: evaluates the policies' queries; ``None`` if no server is configured.
    """

    api: Api
    shared: SharedSnapshot
    executor: Executor
    recorder: Recorder
    clock: Clock
    metrics: DeschedulerMetrics
    cycle_lock: asyncio.Lock
    stale: Callable[[], str | None]
    leading: Callable[[], bool]
    policies: PolicyRegistry
    prometheus: Prometheus | None = None
    shared_plans: SharedPlans = field(default_factory=SharedPlans)
    plan_deadline: float | None = None
    longest_plan: float = math.inf
