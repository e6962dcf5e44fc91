"""The executor on a real API server: controllers replace evicted pods, and the API server enforces budgets."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from tests.fakes.caches import Caches
from tests.fixtures.waiting import eventually_async, patiently
from trimtab.api import reasons
from trimtab.api.plan import Evict
from trimtab.disruption.evictor import Evictor
from trimtab.disruption.evictor.eviction_api import evict_once
from trimtab.disruption.evictor.requests import Requester
from trimtab.disruption.executor import Executor
from trimtab.disruption.executor.owner_queue import request_of
from trimtab.disruption.outcome import EVICTED, GONE, REFUSED, SKIPPED
from trimtab.kube import verbs
from trimtab.kube.api import Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.connection.transport import Transport
from trimtab.kube.events.recorder import EventRecorder
from trimtab.kube.objects import Pod
from trimtab.kube.resources import BUDGETS, EVENTS, PODS, ObjectReference, Resource
from trimtab.kube.watching.informer import Informer
from trimtab.kube.watching.store import Store

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")


class Faulty:
    """An API server behind a bad network: requests fail while it is `cut`, and responses to evictions get `lost`."""

    def __init__(self, api: Transport) -> None:
        self._api = api
        self.cut = False
        self.lose = 0
        self.stream = api.stream

    async def request(self, method: str, path: str, **more: Any) -> Any:
        if self.cut:
            raise Unreachable("the network is cut")
        response = await self._api.request(method, path, **more)
        if self.lose and path.endswith("/eviction"):
            self.lose -= 1
            raise Unreachable("the connection was reset")
        return response


class Stage:
    """A namespace with informers, and an executor that acts there."""

    def __init__(self, api: Transport, namespace: str) -> None:
        self.namespace = namespace
        self.api = Faulty(api)
        self.caches = Caches()
        self.recorder = EventRecorder(api, instance="test")
        self.evictor = Evictor(clock=SYSTEM_CLOCK, view=self.caches.lister)
        self.executor = Executor(
            api=self.api,
            recorder=self.recorder,
            clock=SYSTEM_CLOCK,
            view=self.caches.lister,
            evictor=self.evictor,
        )
        # A name of its own: an equal event of an earlier run would be the same event.
        self.policy = ObjectReference(
            api_version="trimtab.dev/v1alpha1", kind="DeschedulerPolicy", name=f"p-{secrets.token_hex(4)}"
        )
        self.stores: list[Store[Any]] = []
        self._transport = api

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Stage]:
        tasks = []
        budgets: Store[Any] = Store()
        budgets.subscribe(self.caches.shared.apply)
        for resource, store in ((PODS, self.caches.pods), (BUDGETS, budgets)):
            self.stores.append(store)
            informer = Informer(self._transport, resource, store, namespace=self.namespace)
            tasks.append(asyncio.create_task(informer.run()))
            await informer.synced()
        try:
            async with self.recorder:
                yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def pods(self) -> list[Pod]:
        """The running pods by name, without those being deleted."""
        return sorted((pod for pod in self.caches.pods if pod.ready and pod.deleted is None), key=lambda pod: pod.name)

    async def until(self, holds: Callable[[], Any], *, what: str, seconds: float = 60.0) -> Any:
        return await eventually_async(holds, what, seconds=seconds)

    async def deploy(self, name: str, replicas: int) -> list[Pod]:
        body = {
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{"name": "main", "image": "none"}], "terminationGracePeriodSeconds": 1},
                },
            },
        }
        await verbs.create(self._transport, DEPLOYMENTS, body, namespace=self.namespace)

        def there() -> list[Pod]:
            found = [pod for pod in self.pods() if pod.labels.get("app") == name]
            return found if len(found) == replicas else []

        found: list[Pod] = await self.until(there, what=f"{replicas} pods of {name} run")
        return found

    async def budget(self, name: str, app: str, **spec: Any) -> None:
        body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": app}}, **spec}}
        await verbs.create(self._transport, BUDGETS, body, namespace=self.namespace)
        key = f"{self.namespace}/{name}"

        def observed() -> bool:
            found = self.caches.ask(lambda snapshot: snapshot.budgets.get(key))
            return found is not None and 0 < found.generation <= found.observed_generation

        await self.until(observed, what=f"budget {name} is observed")

    def plan(self, *pods: Pod) -> list[Evict]:
        return [
            Evict(
                policy=self.policy.name,
                strategy="RemoveDuplicates",
                namespace=pod.namespace,
                pod=pod.name,
                node=pod.node,
                target="elsewhere",
                reason=reasons.DUPLICATE_ON_NODE,
                message="for the sake of the test",
                uid=pod.uid,
                owner=f"{pod.owners[0].kind}/{pod.owners[0].name}",
            )
            for pod in pods
        ]

    async def execute(
        self, actions: list[Evict], *, seconds: float = patiently(60.0), **more: Any
    ) -> list[tuple[str, str, str]]:
        deadline = SYSTEM_CLOCK.monotonic() + seconds
        outcomes = await self.executor.execute(actions, policy=self.policy, per_minute=600, deadline=deadline, **more)
        assert [outcome.action for outcome in outcomes] == actions
        return [(outcome.result, outcome.reason, outcome.message) for outcome in outcomes]

    async def events(self, namespace: str, **regarding: str) -> list[Mapping[str, Any]]:
        listed = await verbs.list_objects(self._transport, EVENTS, namespace=namespace)
        return [event for event in listed.items if regarding.items() <= event["regarding"].items()]


@pytest.fixture
async def stage(api: Transport, namespace: str) -> AsyncIterator[Stage]:
    async with Stage(api, namespace).running() as running:
        yield running


async def test_pods_of_one_owner_are_evicted_one_at_a_time(stage: Stage) -> None:
    pods = await stage.deploy("web", 3)
    counts: list[int] = []
    for store in stage.stores:
        store.subscribe(lambda _old, _new: counts.append(len(stage.pods())), replay=False)
    outcomes = await stage.execute(stage.plan(*pods))
    assert [result for result, _, _ in outcomes] == [EVICTED] * 3
    await stage.until(lambda: counts and min(counts) <= 2, what="an eviction is seen")
    assert min(counts) == 2
    before = {pod.uid for pod in pods}

    def back() -> bool:  # the last of the old ones may still be on its way out when its eviction was granted
        return len(stage.pods()) == 3 and not {pod.uid for pod in stage.pods()} & before

    await stage.until(back, what="all are back")


async def test_every_eviction_emits_events_on_pod_and_policy(stage: Stage) -> None:
    [pod] = await stage.deploy("web", 1)
    await stage.execute(stage.plan(pod))
    await stage.recorder.stop()
    [on_pod] = [
        event
        for event in await stage.events(stage.namespace, kind="Pod", name=pod.name)
        if event["reason"] == reasons.DUPLICATE_ON_NODE
    ]
    assert on_pod["action"] == "Evict"
    assert on_pod["type"] == "Normal"
    assert on_pod["related"]["name"] == pod.node
    assert f"evicted from {pod.node}: " in on_pod["note"]
    assert on_pod["note"].endswith(" to elsewhere")
    [on_policy] = await stage.events("default", kind="DeschedulerPolicy", name=stage.policy.name)
    assert f"{pod.namespace}/{pod.name}" in on_policy["note"]


async def test_pods_of_an_exhausted_budget_are_not_evicted(stage: Stage) -> None:
    pods = await stage.deploy("web", 2)
    await stage.budget("web", "web", minAvailable=2)
    [(result, reason, message), *rest] = await stage.execute(stage.plan(*pods), seconds=10.0)
    assert (result, reason) == (REFUSED, reasons.DISRUPTION_BUDGET)
    assert "The disruption budget web needs 2 healthy pods and has 2 currently" in message
    assert [outcome[0] for outcome in rest] in ([REFUSED], [SKIPPED])
    assert {pod.uid for pod in stage.pods()} == {pod.uid for pod in pods}
    await stage.recorder.stop()
    warnings = await stage.events(stage.namespace, kind="Pod", name=pods[0].name)
    assert [event["type"] for event in warnings if event["reason"] == reasons.DISRUPTION_BUDGET] == ["Warning"]


async def test_executor_waits_for_a_budget_that_frees_in_time(stage: Stage, api: Transport) -> None:
    pods = await stage.deploy("web", 2)
    await stage.budget("web", "web", minAvailable=2)
    acting = asyncio.create_task(stage.execute(stage.plan(pods[0])))
    await asyncio.sleep(2.0)
    assert not acting.done()
    await verbs.merge_patch(api, BUDGETS, "web", {"spec": {"minAvailable": 1}}, namespace=stage.namespace)
    [(result, _, _)] = await acting
    assert result == EVICTED


async def test_pod_with_another_uid_is_not_evicted(stage: Stage, api: Transport) -> None:
    [pod] = await stage.deploy("web", 1)
    [action] = stage.plan(pod)
    request = request_of(action, owner=None, requester=Requester("descheduler", action.policy))
    response = await evict_once(
        api, msgspec.structs.replace(request, uid="00000000-0000-0000-0000-000000000000"), timeout=patiently(10)
    )
    assert (response.result, response.retry) == (GONE, False)
    response = await evict_once(api, msgspec.structs.replace(request, pod="none"), timeout=patiently(10))
    assert (response.result, response.retry) == (GONE, False)
    assert [each.uid for each in stage.pods()] == [pod.uid]


async def test_eviction_with_a_lost_response_counts_once(stage: Stage) -> None:
    pods = await stage.deploy("web", 2)
    stage.api.lose = 1
    outcomes = await stage.execute(stage.plan(*pods))
    assert [result for result, _, _ in outcomes] == [EVICTED, EVICTED]
    assert "lost" in outcomes[0][2]


@pytest.mark.live
async def test_network_outage_during_a_plan_loses_no_eviction(stage: Stage) -> None:
    pods = [*await stage.deploy("web", 2), *await stage.deploy("db", 2)]
    stage.api.lose = 1

    async def cut() -> None:
        await asyncio.sleep(0.2)
        stage.api.cut = True
        await asyncio.sleep(8)
        stage.api.cut = False

    cutting = asyncio.create_task(cut())
    outcomes = await stage.execute(stage.plan(*pods))
    await cutting
    assert [result for result, _, _ in outcomes] == [EVICTED] * 4
    old = {pod.uid for pod in pods}

    def all_are_others() -> bool:  # an old one may still be on its way out when the last new one is not there yet
        return len(stage.pods()) == 4 and not old & {pod.uid for pod in stage.pods()}

    await stage.until(all_are_others, what="all are back")
