"""Each kind of fault of the API server: informers converge with it, and no eviction is executed twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from tests.api.test_informer import WAYS, informing
from tests.api.test_transport import config_map
from tests.api.test_transport import pod as create_running
from tests.fixtures import fault_proxy as faults
from tests.fixtures.clusters import Cluster, require_local_cluster
from tests.fixtures.fault_proxy import ALL, LIST, READS, WATCHES, WRITES, Fault, FaultProxy
from tests.fixtures.waiting import eventually_async
from trimtab.disruption.evictor.eviction_api import evict_once, send_deletion
from trimtab.disruption.evictor.requests import EvictionRequest, Requester, ResponseCode
from trimtab.disruption.outcome import EVICTED, GONE, REFUSED
from trimtab.kube import verbs
from trimtab.kube.api import ApiError, NotFound, Unreachable
from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.transport import Transport
from trimtab.kube.resources import PODS, Resource
from trimtab.kube.watching import informer as informers
from trimtab_local.cluster import LocalCluster

pytestmark = pytest.mark.live

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
TIMEOUT = 3.0
"""Timeout of a request in seconds."""


class Thing(msgspec.Struct, frozen=True):
    """A ConfigMap, which has no type in the operator."""

    key: str
    uid: str
    resource_version: str
    data: dict[str, str]


def thing(raw: bytes | msgspec.Raw) -> Thing:
    value = msgspec.json.decode(raw)
    metadata = value["metadata"]
    return Thing(
        f"{metadata['namespace']}/{metadata['name']}",
        metadata["uid"],
        metadata["resourceVersion"],
        value.get("data") or {},
    )


@pytest.fixture
def local(cluster: Cluster, request: pytest.FixtureRequest) -> LocalCluster:
    require_local_cluster(request, "the proxy has the certificate of a local API server")
    assert isinstance(cluster, LocalCluster)
    return cluster


@contextmanager
def behind(cluster: LocalCluster, *table: Fault, seed: int = 1) -> Iterator[tuple[FaultProxy, Transport]]:
    with faults.fault_proxy(cluster, table, seed=seed) as proxy:
        config = msgspec.structs.replace(load_config(cluster.kubeconfig), server=proxy.server)
        yield proxy, Transport(config)


# ── Informers ───────────────────────────────────────────────────────────────────────────────────────────────────────


def unserved(name: str) -> dict[str, Any]:
    spec = {"schedulerName": "unserved", "containers": [{"name": "c", "image": "none"}]}
    return {"metadata": {"name": name}, "spec": spec}


async def change_objects(api: Transport, namespace: str, count: int, *, begin: int = 0) -> None:
    """Create, label and delete pods: of three of them one remains as it was created, and one with a label."""
    path = PODS.path(namespace=namespace)
    for number in range(begin, begin + count):
        await api.request("POST", path, body=unserved(f"p{number}"))
        if number % 3 == 1:
            patch = {"metadata": {"labels": {"number": str(number)}}}
            await api.request("PATCH", f"{path}/p{number}", body=patch, content_type=verbs.MERGE_PATCH)
        if number % 3 == 2:
            await api.request("DELETE", f"{path}/p{number}", params={"gracePeriodSeconds": "0"})
        await asyncio.sleep(0.02)


WATCH_FAULTS = [
    faults.GONE,
    faults.TOO_MANY_REQUESTS,
    faults.INTERNAL_ERROR,
    faults.UNAVAILABLE,
    faults.RESET_BEFORE,
    faults.HANG,
    faults.GONE_EVENT,
    faults.RESET_STREAM,
    faults.SILENT,
    faults.HALF_OPEN,
    faults.SLOW_STREAM,
    faults.TRUNCATED_FRAME,
    faults.GARBLED_FRAME,
]
LIST_FAULTS = [
    faults.TOO_MANY_REQUESTS,
    faults.INTERNAL_ERROR,
    faults.UNAVAILABLE,
    faults.RESET_BEFORE,
    faults.HANG,
    faults.SLOW,
    faults.TRUNCATED,
]


async def converges(local: LocalCluster, api: Transport, namespace: str, way: str, *table: Fault) -> None:
    """Change objects while faults are injected; the store must equal the API server's list afterwards."""
    kind = table[0].kind
    wanted = 1 if kind in (faults.SILENT, faults.SLOW_STREAM) else 2  # the watch does not end
    with behind(local, *table) as (proxy, transport):
        async with transport, informing(transport, PODS, way=way, namespace=namespace) as informer:
            for begin in range(0, 300, 12):
                await change_objects(api, namespace, 12, begin=begin)
                if proxy.injected[kind] >= wanted:
                    break
            proxy.enabled = False
            assert proxy.injected[kind] >= wanted

            async def equal() -> bool:
                listed = await api.request("GET", PODS.path(namespace=namespace))
                versions = {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in listed["items"]}
                return bool(versions) and versions == {each.name: each.resource_version for each in informer.store}

            await eventually_async(equal, "all objects are cached")
            assert not informer.broken


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Informers reconnect after two seconds without data, so that a test of hung connections takes no minutes."""
    monkeypatch.setattr(informers, "IDLE_TIMEOUT", 2.0)


@pytest.mark.parametrize("way", ["protobuf streamed", "JSON in pages"])
@pytest.mark.parametrize("kind", WATCH_FAULTS)
async def test_store_converges_after_faults_of_watches(
    local: LocalCluster, api: Transport, namespace: str, brief: None, kind: str, way: str
) -> None:
    fault = Fault(kind, WATCHES, seconds=(0.1, 0.5), begins=0.3, limit=2)
    await converges(local, api, namespace, way, fault)


@pytest.mark.parametrize("kind", LIST_FAULTS)
async def test_store_converges_after_faults_of_lists(
    local: LocalCluster, api: Transport, namespace: str, brief: None, kind: str
) -> None:
    lists = Fault(kind, (LIST,), seconds=(0.1, 0.5), limit=2)
    # A relist follows each of these.
    gone = Fault(faults.GONE_EVENT, WATCHES, begins=0.3)
    await converges(local, api, namespace, "JSON in pages", lists, gone)


async def test_relist_after_garbled_event_does_not_go_back_in_time(
    local: LocalCluster, api: Transport, namespace: str
) -> None:
    """An API server whose watch cache lags would otherwise bring back objects that are deleted."""
    await change_objects(api, namespace, 6)
    stale = Fault(faults.STALE, (LIST,))
    garbled = Fault(faults.GARBLED_FRAME, WATCHES, begins=0.0, limit=1)
    with behind(local, stale, garbled) as (proxy, transport):
        async with transport, informing(transport, PODS, way="JSON in pages", namespace=namespace) as informer:
            await informer.synced()
            removed: list[str] = []
            returned: list[str] = []

            def observe(old: Any, new: Any) -> None:
                if new is None:
                    removed.append(old.uid)
                elif new.uid in removed:
                    returned.append(new.name)

            informer.store.subscribe(observe)
            await eventually_async(lambda: informer.state.phase == "Watching", "the informer watches")
            path = PODS.path("p0", namespace=namespace)
            await api.request("DELETE", path, params={"gracePeriodSeconds": "0"})
            await eventually_async(lambda: informer.statistics().lists >= 2, "the informer lists again")
            await eventually_async(lambda: f"{namespace}/p0" not in informer.store.objects, "the deletion is cached")
            await api.request("POST", PODS.path(namespace=namespace), body=unserved("last"))
            await eventually_async(lambda: f"{namespace}/last" in informer.store.objects, "the creation is cached")
        assert proxy.injected[faults.GARBLED_FRAME] == 1
        assert (proxy.injected[faults.STALE], returned) == (0, [])


@pytest.mark.parametrize("way", WAYS)
async def test_stale_list_is_followed_by_the_missed_events(
    local: LocalCluster, api: Transport, namespace: str, way: str
) -> None:
    await change_objects(api, namespace, 6)
    with behind(local, Fault(faults.STALE, (LIST,))) as (proxy, transport):
        async with transport:
            for number in range(2):
                async with informing(transport, PODS, way=way, namespace=namespace) as informer:
                    await informer.synced()
                    listed = await api.request("GET", PODS.path(namespace=namespace))
                    names = {each["metadata"]["name"] for each in listed["items"]}
                    await eventually_async(
                        lambda names=names, store=informer.store: {each.name for each in store} == names,
                        "the changes are cached",
                    )  # type: ignore[misc]
                await api.request("DELETE", PODS.path("p1", namespace=namespace), params={"gracePeriodSeconds": "0"})
                await api.request("POST", PODS.path(namespace=namespace), body=unserved("p1"))
                await api.request("POST", PODS.path(namespace=namespace), body=unserved(f"later-{number}"))
        assert proxy.injected[faults.STALE] == (1 if "pages" in way else 0)


# ── Requests ────────────────────────────────────────────────────────────────────────────────────────────────────────


READ_FAULTS = [
    faults.TOO_MANY_REQUESTS,
    faults.INTERNAL_ERROR,
    faults.UNAVAILABLE,
    faults.RESET_BEFORE,
    faults.SLOW,
    faults.TRUNCATED,
    faults.REORDERED,
]


@pytest.mark.parametrize("kind", READ_FAULTS)
async def test_reads_are_repeated_until_they_succeed(local: LocalCluster, namespace: str, kind: str) -> None:
    with behind(local, Fault(kind, READS, seconds=(0.1, 0.5), limit=2)) as (proxy, transport):
        async with transport:
            reads = [verbs.get(transport, CONFIG_MAPS, "kube-root-ca.crt", namespace=namespace) for _ in range(4)]
            assert {each["metadata"]["name"] for each in await asyncio.gather(*reads)} == {"kube-root-ca.crt"}
            assert (await verbs.list_objects(transport, CONFIG_MAPS, namespace=namespace)).items
        assert proxy.injected[kind] == 2


async def test_hanging_read_ends_with_its_timeout(local: LocalCluster, namespace: str) -> None:
    with behind(local, Fault(faults.HANG, READS)) as (_, transport):
        async with transport:
            with pytest.raises(Unreachable):
                await verbs.list_objects(transport, CONFIG_MAPS, namespace=namespace, timeout=1.0)


WRITE_FAULTS = [
    faults.CONFLICT,
    faults.CONFLICT_AFTER,
    faults.TOO_MANY_REQUESTS,
    faults.INTERNAL_ERROR,
    faults.INTERNAL_ERROR_AFTER,
    faults.UNAVAILABLE,
    faults.RESET_BEFORE,
    faults.RESET_AFTER,
    faults.HANG,
    faults.HANG_AFTER,
    faults.SLOW,
    faults.TRUNCATED,
    faults.REORDERED,
    faults.WEBHOOK_TIMEOUT,
    faults.WEBHOOK_DENIAL,
]


def request_for(namespace: str, uid: str) -> EvictionRequest:
    return EvictionRequest(namespace=namespace, pod="a", uid=uid, requester=Requester("descheduler", "test"))


async def create_pod(api: Transport, namespace: str) -> str:
    """Create the running pod ``a``, once no other pod has that name; returns its UID."""

    async def absent() -> bool:
        try:
            await verbs.get(api, PODS, "a", namespace=namespace)
        except NotFound:
            return True
        return False

    await eventually_async(absent, "the object is gone")
    return await create_running(api, namespace, "a")


def granted(proxy: FaultProxy, uid: str) -> int:
    return sum(each.uid == uid and each.status < 300 for each in proxy.writes)


@pytest.mark.parametrize("kind", WRITE_FAULTS)
async def test_eviction_is_executed_once(local: LocalCluster, api: Transport, namespace: str, kind: str) -> None:
    """As a StatefulSet does, the test creates another pod of the same name, which no retry may evict."""
    uid = await create_pod(api, namespace)
    fault = Fault(kind, WRITES, resource="pods/eviction", seconds=(0.1, 0.5), limit=2)
    with behind(local, fault) as (proxy, transport):
        async with transport:
            results = []
            for _ in range(4):
                results.append(await evict_once(transport, request_for(namespace, uid), timeout=TIMEOUT))
                if not results[-1].retry:
                    break
            if kind == faults.WEBHOOK_DENIAL:
                assert (results[-1].result, granted(proxy, uid)) == (REFUSED, 0)
                assert (await verbs.get(api, PODS, "a", namespace=namespace))["metadata"]["uid"] == uid
                return
            assert proxy.injected[kind] >= 1
            assert results[-1].result in (EVICTED, GONE)
            assert granted(proxy, uid) == 1
            second = await create_pod(api, namespace)
            proxy.enabled = False
            again = await evict_once(transport, request_for(namespace, uid), timeout=TIMEOUT)
            assert again.result == GONE
            alive = await verbs.get(api, PODS, "a", namespace=namespace)
            assert (alive["metadata"]["uid"], alive["metadata"].get("deletionTimestamp")) == (second, None)


@pytest.mark.parametrize("kind", [faults.RESET_AFTER, faults.INTERNAL_ERROR_AFTER, faults.HANG_AFTER])
async def test_deletion_is_executed_once(local: LocalCluster, api: Transport, namespace: str, kind: str) -> None:
    """aiohttp repeats a DELETE whose pooled connection was reset."""
    uid = await create_pod(api, namespace)
    with behind(local, Fault(kind, WRITES, resource="pods", limit=1)) as (proxy, transport):
        async with transport:
            await transport.request("GET", "/readyz")  # a connection for the pool
            first = await send_deletion(transport, request_for(namespace, uid), timeout=TIMEOUT)
            second = await create_pod(api, namespace)
            again = await send_deletion(transport, request_for(namespace, uid), timeout=TIMEOUT)
        assert first.code in (ResponseCode.IN_DOUBT, ResponseCode.GONE)
        assert again.code is ResponseCode.GONE
        assert granted(proxy, uid) == 1
    assert (await verbs.get(api, PODS, "a", namespace=namespace))["metadata"]["uid"] == second


async def outcomes(transport: Transport, namespace: str, count: int) -> Sequence[BaseException | dict[str, Any]]:
    writes = [
        verbs.create(transport, CONFIG_MAPS, config_map(f"m{number}"), namespace=namespace, timeout=TIMEOUT)
        for number in range(count)
    ]
    return await asyncio.gather(*writes, return_exceptions=True)


async def test_all_faults_at_once_end_in_known_errors(local: LocalCluster, api: Transport, namespace: str) -> None:
    table = [Fault(kind, WRITES, 1 / (len(WRITE_FAULTS) + 1), seconds=(0.1, 0.5)) for kind in WRITE_FAULTS]
    table.append(Fault(faults.TOO_MANY_REQUESTS, ALL, 0.1))
    with behind(local, *table) as (proxy, transport):
        async with transport:
            found = await outcomes(transport, namespace, 60)
        assert not [each for each in found if not isinstance(each, dict | ApiError | Unreachable)]
        stored = {
            each["metadata"]["name"] for each in (await verbs.list_objects(api, CONFIG_MAPS, namespace=namespace)).items
        }
        answered = {each["metadata"]["name"] for each in found if isinstance(each, dict)}
        assert answered <= stored
        assert len(proxy.injected) >= 10
