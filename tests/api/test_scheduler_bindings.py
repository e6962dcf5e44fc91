"""The scheduler's cycle and bindings on a real API server: lost answers, foreign pods, recreated pods, full nodes."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tests.fakes.scheduler import Preemptions, Reports, Volumes
from tests.fixtures.waiting import eventually_async
from trimtab.cluster.shared_snapshot import SharedSnapshot
from trimtab.kube import verbs
from trimtab.kube.api import Conflict, NotFound, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.connection.transport import Transport
from trimtab.kube.objects import Pod
from trimtab.kube.resources import NODES, PODS
from trimtab.placement.registry import DEFAULT, MOST_ALLOCATED
from trimtab.runtime.informers import Informers
from trimtab.scheduling.cycle import Scheduler
from trimtab.scheduling.dependencies import SchedulerDependencies
from trimtab_local.nodes import node

POOL = "example.com/pool"
NODE_COUNT, PER_NODE = 4, 50


class Faulty:
    """An API server behind a bad network: the answers of every third binding are lost."""

    def __init__(self, api: Transport) -> None:
        self._api = api
        self.stream = api.stream
        self.lose = False
        self.bindings: list[tuple[str, str]] = []
        self.before: Callable[[str], Any] | None = None

    async def request(self, method: str, path: str, **more: Any) -> Any:
        if not path.endswith("/binding"):
            return await self._api.request(method, path, **more)
        self.bindings.append((path, more["body"]["target"]["name"]))
        if self.before is not None:
            await self.before(path)
        response = await self._api.request(method, path, **more)
        if self.lose and len(self.bindings) % 3 == 0:
            raise Unreachable("the connection was reset")
        return response


class Stage:
    """A pool of nodes that only the test's pods use, and a scheduler with informers."""

    def __init__(self, api: Transport, namespace: str) -> None:
        self.namespace = namespace
        self.name = f"s-{secrets.token_hex(4)}"
        self.transport = api
        self.api = Faulty(api)
        shared = SharedSnapshot()
        self.informers = Informers(api, shared)
        self.reports = Reports()
        self.scheduler = Scheduler(
            SchedulerDependencies(
                api=self.api,
                shared=shared,
                lister=self.informers.lister,
                subscribe=self.informers.subscribe,
                clock=SYSTEM_CLOCK,
                stale=self.informers.stale_reason,
                volumes=Volumes(),
                preemptor=Preemptions().made,
                reporter=self.reports,
            )
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Stage]:
        names = [f"{self.name}-{number}" for number in range(NODE_COUNT)]
        capacity = {"cpu": "5", "memory": "32Gi", "pods": "110"}
        for name in names:
            taint = {"key": POOL, "value": self.name, "effect": "NoSchedule"}
            manifest = node(name, zone="z", capacity=capacity, labels={POOL: self.name}, taints=[taint])
            await verbs.create(self.transport, NODES, manifest)
        self.informers.start()
        try:
            await self.until(lambda: all(self._open(name) for name in names), what="the nodes are ready")
            self.scheduler.start()
            yield self
        finally:
            await self.scheduler.stop()
            await self.informers.stop()
            for name in names:
                await verbs.delete(self.transport, NODES, name)

    def _open(self, name: str) -> bool:
        found = self.informers.lister.node(name)
        return found is not None and len(found.taints) == 1 and self.informers.stale_reason() is None

    async def until(self, holds: Callable[[], Any], *, what: str, seconds: float = 60.0) -> None:
        await eventually_async(holds, what, seconds=seconds)

    async def create(self, name: str, *, scheduler: str = "", **spec: Any) -> None:
        body = {
            "metadata": {"name": name},
            "spec": {
                "schedulerName": scheduler or self.name,
                "nodeSelector": {POOL: self.name},
                "tolerations": [{"key": POOL, "operator": "Exists"}],
                "containers": [{"name": "app", "image": "app", "resources": {"requests": {"cpu": "100m"}}}],
                "terminationGracePeriodSeconds": 0,
                **spec,
            },
        }
        await verbs.create(self.transport, PODS, body, namespace=self.namespace)

    async def create_many(self, prefix: str, count: int, **more: Any) -> None:
        names = iter(range(count))

        async def work() -> None:
            for number in names:
                await self.create(f"{prefix}-{number}", **more)

        await asyncio.gather(*(work() for _ in range(8)))

    def pods(self) -> list[Pod]:
        return [each for each in self.informers.lister._pods if each.namespace == self.namespace]

    def nodes(self, prefix: str = "") -> Counter[str]:
        return Counter(each.node for each in self.pods() if each.node and each.name.startswith(prefix))


@pytest.fixture
async def stage(api: Transport, namespace: str) -> AsyncIterator[Stage]:
    async with Stage(api, namespace).running() as running:
        yield running


async def test_pods_of_several_profiles_fill_the_nodes_exactly(stage: Stage) -> None:
    """Foreign pods take a tenth of the room, and the answers of a third of the bindings are lost."""
    total = NODE_COUNT * PER_NODE
    await stage.create_many("foreign", total // 10, scheduler="default-scheduler")
    await stage.until(lambda: stage.nodes("foreign").total() == total // 10, what="the foreign pods are bound")
    stage.api.lose = True
    stage.scheduler.set_profile(stage.name, DEFAULT)
    stage.scheduler.set_profile(f"{stage.name}-packing", MOST_ALLOCATED)
    await stage.create_many("spread", total // 2)
    await stage.create_many("packed", total // 2, scheduler=f"{stage.name}-packing")
    await stage.until(lambda: stage.nodes().total() == total, what="the nodes are full")
    await stage.until(lambda: len(stage.reports.bound) == total * 9 // 10, what="all bindings are reported")
    await asyncio.sleep(1.0)
    assert stage.nodes() == {f"{stage.name}-{number}": PER_NODE for number in range(NODE_COUNT)}
    by_path = Counter(path for path, _ in stage.api.bindings)
    assert len(by_path) == len(stage.reports.bound) == total * 9 // 10
    assert len(set(stage.api.bindings)) == len(by_path), "a binding without an answer is repeated with the same node"
    assert stage.reports.failures == []
    assert sum(not each.node for each in stage.pods()) == total // 10


async def test_recreated_pod_is_not_bound_on_behalf_of_the_old_one(stage: Stage) -> None:
    async def recreate(_path: str) -> None:
        stage.api.before = None
        await verbs.delete(stage.transport, PODS, "web", namespace=stage.namespace, grace_period=0)
        with suppress(NotFound):
            while await verbs.get(stage.transport, PODS, "web", namespace=stage.namespace):
                pass
        await stage.create("web", nodeSelector={POOL: "nowhere"})

    stage.api.before = recreate
    stage.scheduler.set_profile(stage.name, DEFAULT)
    await stage.create("web")
    await stage.until(lambda: stage.reports.rejects, what="the new pod is unschedulable")
    assert len(stage.api.bindings) == 1
    assert stage.reports.bound == {}
    found = await verbs.get(stage.transport, PODS, "web", namespace=stage.namespace)
    assert "nodeName" not in found["spec"]


async def test_pod_that_is_bound_by_someone_else_is_left_there(stage: Stage) -> None:
    other = f"{stage.name}-3"

    async def bind_first(path: str) -> None:
        stage.api.before = None
        target = {"apiVersion": "v1", "kind": "Node", "name": other}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "web"}, "target": target}
        await stage.transport.request("POST", path, body=body)

    stage.api.before = bind_first
    stage.scheduler.set_profile(stage.name, DEFAULT)
    await stage.create("web")
    await stage.until(lambda: stage.nodes("web").total() == 1, what="the pod is bound")
    await asyncio.sleep(2.5)
    assert stage.nodes("web") == {other: 1}
    assert len(stage.api.bindings) == 1


async def test_api_server_refuses_a_binding_with_another_uid(stage: Stage) -> None:
    await stage.create("web", scheduler="unserved")
    path = PODS.path("web", namespace=stage.namespace, subresource="binding")
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "web", "uid": "00000000-0000-0000-0000-000000000000"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": f"{stage.name}-0"},
    }
    with pytest.raises(Conflict, match="UID"):
        await stage.transport.request("POST", path, body=body)
