"""Cycles and preemptions together: many preemptors, graceful victims, failures. On virtual time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from tests.builders import node, pod
from tests.fakes.clock import LoopClock
from tests.fakes.recorder import FakeRecorder
from tests.fakes.scheduler import SCHEDULER, SchedulerWorld
from trimtab.disruption.evictor import Evictor
from trimtab.kube.api import Api, LeaderOnlyApi, NotFound, ServerError
from trimtab.kube.objects import Pod, PodCondition
from trimtab.scheduling.dependencies import CancelBinding, Preemptor, SchedulerDependencies
from trimtab.scheduling.preemptor import PreemptionExecutor
from trimtab.scheduling.report import PodConditionWriter, SchedulerMetrics, SchedulerReporter

pytestmark = pytest.mark.looptime


class PreemptingWorld(SchedulerWorld):
    """A scheduler that preempts: evicted pods terminate for `grace` seconds.

    Attributes:
        preemption_latency: seconds that each request of a preemption takes.
        removed: the victims in the order of the granted requests.
        fail: probability that a request of a preemption fails.
        stale_after_nomination: seconds for which the caches are stale after each nomination.
        shortest_grace: the shortest time, as a share of `grace`, after which a victim ends.
    """

    def __init__(
        self, *, grace: float = 0.5, lag: float = 0.05, fail: float = 0.0, preemption_latency: float = 0.01
    ) -> None:
        self.grace, self.fail, self.preemption_latency = grace, fail, preemption_latency
        self.stale_after_nomination = 0.0
        self.shortest_grace = 1.0
        self.removed: list[str] = []
        self.on: dict[str, str] = {}
        self._random = random.Random(1)
        super().__init__(lag=lag)
        self.reports.preempted = self._preempted  # type: ignore[method-assign]

    def _preempted(self, victim: Pod, preemptor: Pod, node: str) -> None:
        assert victim.priority < preemptor.priority
        self.on[victim.key] = node

    def _preemptor(self, cancel: CancelBinding) -> Preemptor:
        clock = LoopClock()
        return PreemptionExecutor(
            api=LeaderOnlyApi(self, lambda: self.leading),
            evictor=Evictor(clock=clock, view=self.caches.lister),
            lister=self.caches.lister,
            clock=clock,
            stale=lambda: self.stale,
            reporter=self.reports,
            cancel_binding=cancel,
        )

    async def request(self, method: str, path: str, *, body: Any = None, **more: Any) -> Any:
        if path.endswith("/binding") or method == "GET":
            return await super().request(method, path, body=body, **more)
        await asyncio.sleep(self.preemption_latency)
        if self._random.random() < self.fail:
            raise ServerError("etcdserver: request timed out", status=500)
        key = "/".join(path.split("/")[4:7:2])
        found = self.caches.pods.get(key)
        if found is None:
            raise NotFound(f"{key} not found", status=404)
        loop = asyncio.get_running_loop()
        if path.endswith("/status"):
            if "nominatedNodeName" in body["status"]:
                loop.call_later(self.lag, self._nominated, key, body["status"])
                if self.stale_after_nomination:
                    self.stale = "the watch lags behind"
                    loop.call_later(self.stale_after_nomination, setattr, self, "stale", None)
            return {"metadata": {"uid": found.uid}, "spec": {"nodeName": self._bound.get(key, "")}}
        self.removed.append(key)
        loop.call_later(self.lag, self._terminate, key)
        grace = self.grace * self._random.uniform(self.shortest_grace, 1.0)
        loop.call_later(self.lag + grace, self._delete, key)
        return {}

    def _nominated(self, key: str, status: dict[str, Any]) -> None:
        found = self.caches.pods.get(key)
        if found is not None:
            names = ("type", "status", "reason", "message")
            written = tuple(PodCondition(*map(each.get, names)) for each in status.get("conditions", ()))
            conditions = written or found.conditions
            self.put(replace(found, nominated_node=status["nominatedNodeName"] or "", conditions=conditions))

    def _terminate(self, key: str) -> None:
        self.put(replace(self.pod(key), deleted=1.0))

    def _delete(self, key: str) -> None:
        if self.caches.pods.get(key) is not None:
            self.delete(key)

    def full(self, nodes: int, pods: int) -> None:
        """Nodes that are full of pods of low priority."""
        for number in range(nodes):
            cpu = {"cpu": str(pods), "memory": "32Gi", "pods": "110"}
            self.put(node(f"n{number}").merge(status={"allocatable": cpu}))
            self.put(*(pod(f"low-{number}-{each}").on(f"n{number}").cpu("1").labels(app="low") for each in range(pods)))

    def preemptors(self, count: int, *, priority: int = 100, prefix: str = "high", sizes: int = 1) -> None:
        """Pods that need 1 to `sizes` CPUs, in turn."""
        for number in range(count):
            made = pod(f"{prefix}-{number}").cpu(str(1 + number % sizes)).priority(priority).labels(app=prefix)
            self.put(made.merge(spec={"schedulerName": SCHEDULER}))

    def bound(self, prefix: str) -> dict[str, str]:
        return {key: on for key, on in self.reports.bound.items() if key.startswith(f"shop/{prefix}-")}

    def assert_replaced(self, prefix: str, count: int) -> None:
        """Each preemptor runs in the place of one victim, and no pod was removed in vain."""
        bound = self.bound(prefix)
        assert len(bound) == count
        assert len(self.removed) == len(set(self.removed)) == count
        assert Counter(bound.values()) == Counter(self.on[key] for key in self.removed)


@pytest.mark.parametrize("grace", [0.0, 0.5, 30.0])
async def test_as_many_victims_as_preemptors(grace: float) -> None:
    async with PreemptingWorld(grace=grace) as world:
        world.full(20, 4)
        world.preemptors(50)
        await asyncio.sleep(grace + 60.0)
        world.assert_replaced("high", 50)


@pytest.mark.parametrize("fail", [0.0, 0.2])
async def test_preemptors_of_different_sizes_do_not_take_the_places_of_each_other(fail: float) -> None:
    async with PreemptingWorld(grace=20.0, fail=fail) as world:
        world.shortest_grace = 0.1
        world.full(30, 4)
        for wave in range(6):
            world.preemptors(6, prefix=f"wave{wave}", sizes=3)
            await asyncio.sleep(4.0)
        await asyncio.sleep(300.0)
        assert len(world.reports.bound) == 36
        won: Counter[str] = Counter()
        for key, on in world.reports.bound.items():
            won[on] += 1 + int(key.rsplit("-", 1)[1]) % 3
        assert Counter(world.on[key] for key in world.removed) == won


class CountingWorld(PreemptingWorld):
    """Counts the requests by their purpose, including those of the reporter; events are not among them."""

    def __init__(self, **more: float) -> None:
        self.counts: Counter[str] = Counter()
        super().__init__(**more)

    def dependencies(self, api: Api) -> SchedulerDependencies:
        clock = LoopClock()
        conditions = PodConditionWriter(api, self.caches.lister.pod, clock)
        metrics = SchedulerMetrics(CollectorRegistry())
        self.reports = SchedulerReporter(conditions, FakeRecorder(), metrics, clock)  # type: ignore[assignment]
        return super().dependencies(api)

    async def request(self, method: str, path: str, *, body: Any = None, **more: Any) -> Any:
        status = (body or {}).get("status") or {}
        if "nominatedNodeName" in status:
            self.counts["nominate"] += 1
        elif "conditions" in status:
            self.counts[status["conditions"][0]["type"]] += 1
        else:
            self.counts[path.rsplit("/", 1)[1]] += 1
        return await super().request(method, path, body=body, **more)


async def test_preemptor_costs_four_requests_besides_events() -> None:
    async with CountingWorld(grace=0.5) as world:
        world.full(20, 4)
        world.preemptors(50)
        await asyncio.sleep(60.0)
        assert all(world.node_of(f"shop/high-{number}") for number in range(50))
        assert world.counts == dict.fromkeys(("nominate", "eviction", "DisruptionTarget", "binding"), 50)


async def test_failed_requests_cause_no_further_victims() -> None:
    async with PreemptingWorld(fail=0.3) as world:
        world.full(20, 4)
        world.preemptors(50)
        await asyncio.sleep(300.0)
        world.assert_replaced("high", 50)


async def test_pods_of_lower_priority_do_not_take_the_places() -> None:
    async with PreemptingWorld(grace=10.0) as world:
        world.full(10, 4)
        world.preemptors(20)
        await asyncio.sleep(5.0)
        world.preemptors(20, priority=50, prefix="middle")
        await asyncio.sleep(120.0)
        assert len(world.bound("high")) == 20
        assert len(world.bound("middle")) == 20
        assert len(world.removed) == 40


async def test_pods_of_the_same_priority_that_come_later_preempt_others() -> None:
    async with PreemptingWorld(grace=3.0) as world:
        world.full(10, 4)
        for wave in range(4):
            world.preemptors(5, prefix=f"wave{wave}")
            await asyncio.sleep(1.7)
        await asyncio.sleep(60.0)
        assert len(world.removed) == 20
        assert len(world.reports.bound) == 20


async def test_pod_that_relied_on_the_victims_of_a_deleted_preemptor_preempts_itself() -> None:
    async with PreemptingWorld(preemption_latency=2.0) as world:
        world.full(1, 4)
        world.put(pod("large").cpu("4").priority(50).merge(spec={"schedulerName": SCHEDULER}))
        await asyncio.sleep(0.5)
        world.preemptors(1)  # it fits once the victims of the other have ended
        await asyncio.sleep(0.5)
        world.delete("shop/large")
        await asyncio.sleep(60.0)
        world.assert_replaced("high", 1)


async def test_preemption_that_stale_caches_interrupt_is_repeated() -> None:
    async with PreemptingWorld(grace=120.0) as world:
        world.full(1, 10)
        world.preemptors(5)
        await asyncio.sleep(5.0)
        assert len(world.removed) == 5
        world.stale_after_nomination = 1.0
        world.preemptors(5, prefix="later")
        await asyncio.sleep(30.0)
        assert len(set(world.removed)) == 10, "terminating victims of other pods do not make them wait"


async def test_lost_lease_ends_the_preemptions() -> None:
    async with PreemptingWorld() as world:
        world.full(10, 4)
        world.preemptors(10)
        world.leading = False
        await asyncio.sleep(30.0)
        assert world.removed == []


async def test_restarted_scheduler_waits_for_the_victims_of_the_former_one() -> None:
    async with PreemptingWorld(grace=20.0) as world:
        world.full(10, 4)
        world.preemptors(10)
        await asyncio.sleep(5.0)
        assert len(world.removed) == 10
        nominated = {key: each.nominated_node for key, each in world.caches.pods.objects.items() if each.nominated_node}
        assert len(nominated) == 10
        later = PreemptingWorld(grace=20.0)
        later.put(*world.caches.nodes.objects.values(), *world.caches.pods.objects.values())
    async with later:
        await asyncio.sleep(10.0)
        assert later.removed == [], "their victims still terminate"
        for key in world.removed:
            later.delete(key)
        await asyncio.sleep(20.0)
        assert later.reports.bound == nominated
        assert later.removed == []
