"""Random schedules of requesters that share one evictor, one owner and one PodDisruptionBudget. On virtual time.

Responses are late, get lost or refuse, watches lag, and the operator restarts. The API server is a small model: it
grants an eviction if the budget allows a disruption, and a controller replaces the pod.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tests.fakes.clock import LoopClock
from tests.unit.disruption.world import budget_refusal
from trimtab.api import reasons
from trimtab.cluster.workloads.owners import OwnerKey, owner_key
from trimtab.disruption.evictor import Evictor, Permit
from trimtab.disruption.evictor.requests import (
    AUTOSCALER,
    DESCHEDULER,
    EVICTION_CONDITION,
    TAINTING,
    EvictionRequest,
    Requester,
)
from trimtab.disruption.outcome import DELETED, EVICTED, GONE
from trimtab.kube.api import NotFound, Unreachable
from trimtab.kube.objects import LabelSelector, OwnerReference, Pod, PodDisruptionBudget

pytestmark = pytest.mark.looptime

TAINTS = Requester(TAINTING, "default")
DRAIN = Requester(AUTOSCALER, "removal of node n1")
POLICY = Requester(DESCHEDULER, "spread", "RemoveDuplicates")
WITHIN: float = 1200.0
"""Seconds within which each requester must have had all its pods evicted."""


class Cluster:
    """Pods of one owner and one budget, with an API server, a controller and watches that lag."""

    def __init__(self, chance: random.Random, allowed: int) -> None:
        self.chance = chance
        self.clock = LoopClock()
        self.pods: dict[str, Pod] = {}
        self.budget = PodDisruptionBudget(
            namespace="shop", name="web", selector=LabelSelector(), disruptions_allowed=allowed
        )
        self.granted: Counter[str] = Counter()
        self.in_flight: list[str] = []
        self.most_in_flight = 0
        self.violations: list[str] = []
        self.evictor = self.restarted()
        self._tasks: set[asyncio.Task[None]] = set()
        for number in range(8):
            self._add(f"web-{number}")

    def restarted(self) -> Evictor:
        """Return the evictor of a new process, which knows only the cluster."""
        self.evictor = Evictor(clock=self.clock, view=self)
        self.evictor.budgets.budget_changed(None, self.budget)
        return self.evictor

    def pod(self, key: str) -> Pod | None:
        return self.pods.get(key)

    def desired_replicas(self, owner: OwnerKey) -> int | None:
        return None

    def owned_by(self, owner: OwnerKey) -> Sequence[Pod]:
        return list(self.pods.values())

    async def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> Any:
        name = path.split("/")[6]
        if method == "GET":
            return self._read(name)
        self._check_order(name)
        self.in_flight.append(name)
        self.most_in_flight = max(self.most_in_flight, len(set(self.in_flight)))
        try:
            await asyncio.sleep(self.chance.uniform(0.0, 0.5))
            luck = self.chance.random()
            if luck < 0.1:
                raise Unreachable("the connection was refused")
            self._evict(name, body["deleteOptions"]["preconditions"]["uid"])
            if luck < 0.2:
                raise Unreachable("the response was lost")
        finally:
            self.in_flight.remove(name)
        return {"kind": "Status", "status": "Success"}

    def _check_order(self, name: str) -> None:
        sent = next(each for each in self.evictor._in_progress.in_flight() if each.pod == name)
        if sent.deadline is None and self.budget.disruptions_allowed <= 1:
            urgent = [
                each.request.pod
                for each in self.evictor.waiting()
                if each.reason == reasons.WAITING_FOR_BUDGET
                and each.request.deadline is not None
                and each.request.pod != name
            ]
            if urgent:
                self.violations.append(f"{name} before {urgent}")

    def _read(self, name: str) -> Any:
        pod = self.pods.get(f"shop/{name}")
        if pod is None:
            raise NotFound("not found", status=404)
        metadata: dict[str, Any] = {"name": name, "namespace": "shop", "uid": pod.uid}
        status: dict[str, Any] = {}
        if pod.deleted is not None:
            metadata["deletionTimestamp"] = "2026-11-20T12:00:00Z"
            kind, reason = EVICTION_CONDITION
            status["conditions"] = [{"type": kind, "status": "True", "reason": reason}]
        return {"metadata": metadata, "status": status}

    def _evict(self, name: str, uid: str) -> None:
        pod = self.pods.get(f"shop/{name}")
        if pod is None or pod.uid != uid:
            raise NotFound("not found", status=404)
        if pod.deleted is not None:
            return
        if self.budget.disruptions_allowed <= 0:
            raise budget_refusal()
        self.granted[name] += 1
        self._write_budget(-1, (*self.budget.disrupted_pods, name))
        self._start(self._replace(pod))

    def _write_budget(self, change: int, disrupted: tuple[str, ...]) -> None:
        before = self.budget
        self.budget = msgspec.structs.replace(
            before, disruptions_allowed=before.disruptions_allowed + change, disrupted_pods=disrupted
        )
        self._start(self._show(before, self.budget))

    async def _show(self, before: PodDisruptionBudget, after: PodDisruptionBudget) -> None:
        await asyncio.sleep(0.3)  # the same lag for all statuses keeps their order
        self.evictor.budgets.budget_changed(before, after)

    async def _replace(self, pod: Pod) -> None:
        self.pods[pod.key] = msgspec.structs.replace(pod, deleted=self.clock.now())
        await asyncio.sleep(self.chance.uniform(0.1, 5.0))
        del self.pods[pod.key]
        made = self._add(f"{pod.name}x", ready=False)
        await asyncio.sleep(self.chance.uniform(0.5, 5.0))
        self.pods[made.key] = msgspec.structs.replace(made, ready=True)
        self._write_budget(1, tuple(each for each in self.budget.disrupted_pods if each != pod.name))

    def _add(self, name: str, *, ready: bool = True) -> Pod:
        owners = (OwnerReference(kind="ReplicaSet", name="web", uid="web", controller=True),)
        pod = Pod("shop", name, f"uid-{name}", owners=owners, node="n1", phase="Running", ready=ready)
        self.pods[pod.key] = pod
        return pod

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def evicted(cluster: Cluster, name: str, requester: Requester, *, deadline: float | None) -> None:
    """Request the eviction of a pod as the controllers do, until it has ended."""
    while True:
        pod = cluster.pods.get(f"shop/{name}")
        if pod is None or pod.deleted is not None:
            return
        request = EvictionRequest(
            namespace="shop",
            pod=name,
            uid=pod.uid,
            node=pod.node,
            owner=owner_key(pod),
            requester=requester,
            settle=deadline is None,
            deadline=deadline,
        )
        found = cluster.evictor.admit(request, pod)
        pause = cluster.chance.uniform(0.3, 1.0)
        if isinstance(found, Permit):
            answer = await cluster.evictor.evict(found, cluster, timeout=10.0)  # type: ignore[arg-type]
            if answer.result in (EVICTED, DELETED, GONE):
                return
            pause = cluster.chance.uniform(1.0, 10.0)
        await asyncio.sleep(pause)


async def run(seed: int) -> Cluster:
    chance = random.Random(seed)
    cluster = Cluster(chance, allowed=chance.choice((1, 1, 2)))
    names = [f"web-{number}" for number in range(8)]
    chance.shuffle(names)
    wanted = [(name, TAINTS, 60.0 * number) for number, name in enumerate(names[:3])]
    wanted += [(name, DRAIN, None) for name in names[2:6]]
    wanted += [(name, POLICY, None) for name in names[4:]]

    async def later(name: str, requester: Requester, deadline: float | None) -> None:
        await asyncio.sleep(chance.uniform(0.0, 20.0))
        await evicted(cluster, name, requester, deadline=deadline)

    def start() -> list[asyncio.Task[None]]:
        return [asyncio.create_task(later(*each)) for each in wanted]

    tasks = start()
    for _ in range(chance.randrange(3)):
        await asyncio.sleep(chance.uniform(1.0, 40.0))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        cluster.restarted()
        tasks = start()
    async with asyncio.timeout(WITHIN):
        await asyncio.gather(*tasks)
    await asyncio.sleep(20.0)
    assert set(cluster.granted) == set(names)
    return cluster


@pytest.mark.parametrize("first", range(0, 200, 20))
async def test_shared_budget_is_spent_once_and_on_deadlines_first(first: int) -> None:
    for seed in range(first, first + 20):
        cluster = await run(seed)
        allowed = cluster.budget.disruptions_allowed
        assert max(cluster.granted.values()) == 1, seed
        assert cluster.most_in_flight <= allowed, seed
        assert not cluster.violations, (seed, cluster.violations)
