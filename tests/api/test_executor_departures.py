"""Background evictions surge restarts of single replicas, and evictions that webhooks take over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from tests.api.test_executor import DEPLOYMENTS, Stage
from tests.fixtures.clusters import Cluster
from tests.fixtures.evacuations import Evacuations, evacuations
from tests.fixtures.waiting import eventually_async
from trimtab.api import reasons
from trimtab.api.plan import SURGE, Evict
from trimtab.cluster.workloads.rollouts import read_rollouts
from trimtab.disruption.background_evictions import IN_PROGRESS, REQUEST_EVICT_ONLY
from trimtab.disruption.outcome import EVICTED, REFUSED, STARTED
from trimtab.kube import verbs
from trimtab.kube.connection.transport import Transport
from trimtab.kube.objects import Pod
from trimtab.kube.resources import PODS
from trimtab_local.cluster import LocalCluster


@pytest.fixture
async def stage(api: Transport, namespace: str) -> AsyncIterator[Stage]:
    async with Stage(api, namespace).running() as running:
        yield running


def surges(stage: Stage, *pods: Pod) -> list[Evict]:
    return [msgspec.structs.replace(action, how=SURGE) for action in stage.plan(*pods)]


@asynccontextmanager
async def least_ready(stage: Stage) -> AsyncIterator[list[int]]:
    """The lowest number of Ready pods over all watch events."""
    least = [len(stage.pods())]
    for store in stage.stores:  # the caches have the change by then
        store.subscribe(lambda _old, _new: least.append(len(stage.pods())), replay=False)
    yield least


async def rolled_out(stage: Stage, api: Transport, name: str) -> bool:
    found = (await read_rollouts(api)).found[f"{stage.namespace}/{name}"]
    return found.observed_generation >= found.generation and found.available == found.updated == found.pods == 1


async def settle(stage: Stage, api: Transport, name: str) -> None:
    await eventually_async(lambda: rolled_out(stage, api, name), f"Deployment {name} is rolled out", pause=0.1)


async def test_single_replica_with_exhausted_budget_is_restarted_by_surge(stage: Stage, api: Transport) -> None:
    [pod] = await stage.deploy("web", 1)
    await stage.budget("web", "web", minAvailable=1)
    await settle(stage, api, "web")
    async with least_ready(stage) as least:
        [(result, reason, _)] = await stage.execute(surges(stage, pod))
    assert (result, reason) == (EVICTED, reasons.ROLLED_OUT)
    assert min(least) == 1
    assert max(least) == 2
    await stage.until(lambda: [each.uid != pod.uid for each in stage.pods()] == [True], what="the new pod is alone")


async def test_deployment_in_rollout_is_not_restarted(stage: Stage, api: Transport) -> None:
    [pod] = await stage.deploy("web", 1)
    await settle(stage, api, "web")
    image = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "next"}]
    held = [{"op": "add", "path": "/spec/template/spec/nodeName", "value": "nowhere"}]
    patched = await verbs.json_patch(api, DEPLOYMENTS, "web", [*image, *held], namespace=stage.namespace)
    [(result, reason, message)] = await stage.execute(surges(stage, pod))
    assert (result, reason) == (REFUSED, reasons.ROLLOUT_IN_PROGRESS), message
    after = await verbs.get(api, DEPLOYMENTS, "web", namespace=stage.namespace)
    assert after["metadata"]["generation"] == patched["metadata"]["generation"]


async def test_deployment_with_recreate_strategy_is_not_restarted(stage: Stage, api: Transport) -> None:
    [pod] = await stage.deploy("web", 1)
    spec = {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}}
    await verbs.merge_patch(api, DEPLOYMENTS, "web", spec, namespace=stage.namespace)
    await settle(stage, api, "web")
    [(result, reason, _)] = await stage.execute(surges(stage, pod))
    assert (result, reason) == (REFUSED, reasons.CANNOT_SURGE)
    assert [each.uid for each in stage.pods()] == [pod.uid]


@pytest.fixture
def webhook(cluster: Cluster, namespace: str) -> Iterator[Evacuations]:
    if not isinstance(cluster, LocalCluster):
        pytest.skip("an API server in a container does not reach a webhook on this machine's loopback")
    with evacuations(cluster.client, ca=cluster.ca, namespace=namespace) as found:
        yield found


async def machine(stage: Stage, api: Transport) -> Pod:
    body = {
        "metadata": {
            "name": "virt-launcher-vm",
            "labels": {"app": "vm"},
            "annotations": {REQUEST_EVICT_ONLY: ""},
        },
        "spec": {"containers": [{"name": "compute", "image": "none"}], "terminationGracePeriodSeconds": 1},
    }
    await verbs.create(api, PODS, body, namespace=stage.namespace)
    found: list[Pod] = await stage.until(stage.pods, what="the machine runs")
    return found[0]


async def mark(stage: Stage, api: Transport, value: str | None) -> None:
    patch = {"metadata": {"annotations": {IN_PROGRESS: value}}}
    await verbs.merge_patch(api, PODS, "virt-launcher-vm", patch, namespace=stage.namespace)


def plan(stage: Stage, pod: Pod) -> list[Evict]:
    action = Evict(
        policy=stage.policy.name,
        strategy="RemovePodsViolatingNodeTaints",
        namespace=pod.namespace,
        pod=pod.name,
        node=pod.node,
        target="elsewhere",
        reason=reasons.NODE_TAINTS_VIOLATED,
        message="for the sake of the test",
        uid=pod.uid,
    )
    return [action]


async def test_eviction_in_background_is_requested_once_and_tracked_to_completion(
    stage: Stage, api: Transport, webhook: Evacuations
) -> None:
    pod = await machine(stage, api)
    acting = asyncio.create_task(stage.execute(plan(stage, pod)))
    await stage.until(lambda: webhook.asked, what="the webhook is asked")
    await mark(stage, api, "true")
    await asyncio.sleep(3.0)
    assert not acting.done()
    await verbs.delete(api, PODS, pod.name, namespace=stage.namespace)  # as virt-controller does once it has moved
    [(result, reason, _)] = await acting
    assert (result, reason) == (EVICTED, reasons.EVACUATED)
    assert webhook.asked == [pod.name]


async def test_aborted_background_eviction_is_reported(stage: Stage, api: Transport, webhook: Evacuations) -> None:
    pod = await machine(stage, api)
    acting = asyncio.create_task(stage.execute(plan(stage, pod)))
    await stage.until(lambda: webhook.asked, what="the webhook is asked")
    await mark(stage, api, "true")
    await stage.until(lambda: IN_PROGRESS in stage.pods()[0].annotations, what="the mark is seen")
    await asyncio.sleep(1.0)
    await mark(stage, api, None)
    [(result, reason, _)] = await acting
    assert (result, reason) == (REFUSED, reasons.EVACUATION_FAILED)
    assert [each.uid for each in stage.pods()] == [pod.uid]


async def test_background_eviction_beyond_the_timeout_counts_as_in_flight(
    stage: Stage, api: Transport, webhook: Evacuations
) -> None:
    pod = await machine(stage, api)
    [(result, reason, message)] = await stage.execute(plan(stage, pod), seconds=10.0)
    assert (result, reason) == (STARTED, reasons.EVICTION_IN_BACKGROUND)
    assert f"Eviction triggered evacuation of VMI {stage.namespace}/{pod.name}" in message
