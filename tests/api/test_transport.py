"""The transport and its users against a real API server."""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import kopf
import msgspec
import pytest

from tests.fixtures.clusters import Cluster
from tests.fixtures.proxy import CuttableProxy
from tests.fixtures.waiting import patiently
from trimtab.disruption.evictor.eviction_api import send_eviction
from trimtab.disruption.evictor.requests import EvictionRequest, EvictionResponse, Requester, ResponseCode
from trimtab.kube import verbs
from trimtab.kube.api import Conflict, Forbidden, Invalid, NotFound, Unauthorized, Unreachable
from trimtab.kube.connection.config import Login, load_config
from trimtab.kube.connection.credentials import TokenFileCredentials
from trimtab.kube.connection.transport import Transport
from trimtab.kube.events.recorder import EventRecorder
from trimtab.kube.resources import BUDGETS, EVENTS, LEASES, NAMESPACES, NODES, PODS, ObjectReference, Resource
from trimtab.runtime.leader_election.elector import ElectionTimings, LeaderElector

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
PROTOBUF = "application/vnd.kubernetes.protobuf;stream=watch"


def config_map(name: str, **data: str) -> dict:
    return {"metadata": {"name": name}, "data": data}


async def test_transport_reads_text_json_and_errors(api, namespace):
    assert await api.request("GET", "/readyz") == "ok"
    assert (await api.request("GET", "/version"))["major"] == "1"
    with pytest.raises(NotFound, match='configmaps "none" not found'):
        await verbs.get(api, CONFIG_MAPS, "none", namespace=namespace)
    await verbs.create(api, CONFIG_MAPS, config_map("a"), namespace=namespace)
    with pytest.raises(Conflict) as exists:
        await verbs.create(api, CONFIG_MAPS, config_map("a"), namespace=namespace)
    assert exists.value.reason == "AlreadyExists"
    with pytest.raises(Invalid) as invalid:
        await verbs.create(api, CONFIG_MAPS, config_map("NOT A NAME"), namespace=namespace)
    assert invalid.value.causes[0]["field"] == "metadata.name"


async def test_lists_are_paged_and_selected(api, namespace):
    for number in range(7):
        body = {"metadata": {"name": f"m{number}", "labels": {"odd": str(number % 2)}}}
        await verbs.create(api, CONFIG_MAPS, body, namespace=namespace)
    listed = await verbs.list_objects(api, CONFIG_MAPS, namespace=namespace, label_selector="odd in (1),!x", limit=2)
    assert [item["metadata"]["name"] for item in listed.items] == ["m1", "m3", "m5"]
    assert int(listed.resource_version) > 0
    named = await verbs.list_objects(api, CONFIG_MAPS, namespace=namespace, field_selector="metadata.name=m4")
    assert len(named.items) == 1


async def test_patches_and_apply(api, namespace):
    await verbs.apply(api, CONFIG_MAPS, "a", {"data": {"x": "1", "y": "1"}}, namespace=namespace)
    await verbs.merge_patch(api, CONFIG_MAPS, "a", {"data": {"z": "2"}}, namespace=namespace)
    applied = await verbs.apply(api, CONFIG_MAPS, "a", {"data": {"x": "3"}}, namespace=namespace)
    assert applied["data"] == {"x": "3", "z": "2"}
    operations = [{"op": "test", "path": "/data/x", "value": "3"}, {"op": "remove", "path": "/data/z"}]
    patched = await verbs.json_patch(api, CONFIG_MAPS, "a", operations, namespace=namespace)
    assert patched["data"] == {"x": "3"}
    with pytest.raises(Invalid):
        await verbs.json_patch(api, CONFIG_MAPS, "a", operations, namespace=namespace)
    with pytest.raises(Conflict):
        await verbs.apply(
            api, CONFIG_MAPS, "a", {"data": {"x": "4"}}, namespace=namespace, force=False, field_manager="other"
        )


async def test_delete_with_uid_precondition_keeps_another_object(api, namespace):
    await verbs.create(api, CONFIG_MAPS, config_map("a"), namespace=namespace)
    with pytest.raises(Conflict):
        await verbs.delete(api, CONFIG_MAPS, "a", namespace=namespace, uid="11111111-2222-3333-4444-555555555555")
    await verbs.delete(api, CONFIG_MAPS, "a", namespace=namespace)


async def test_rejected_watch_reports_the_error_in_protobuf(api):
    with pytest.raises(Invalid, match="unable to parse"):
        async with api.stream(NODES.path(), params={"labelSelector": "a in ("}, accept=PROTOBUF):
            pytest.fail("the block must not run")


async def test_watch_delivers_changes(api, namespace):
    path = CONFIG_MAPS.path(namespace=namespace)
    async with api.stream(path, params={"watch": "1", "fieldSelector": "metadata.name=seen"}) as chunks:
        await verbs.create(api, CONFIG_MAPS, config_map("seen", big="x" * 500_000), namespace=namespace)
        received = b""
        async for chunk in chunks:
            received += chunk
            if received.endswith(b"\n"):
                break
    event = msgspec.json.decode(received)
    assert (event["type"], len(event["object"]["data"]["big"])) == ("ADDED", 500_000)


# ── Who we are ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_rotated_token_is_reloaded(cluster, namespace, tmp_path):
    config = msgspec.structs.replace(
        load_config(cluster.kubeconfig), login=Login(authorization="Bearer stale"), kubeconfig=""
    )
    token = tmp_path / "token"
    token.write_text(cluster.service_account_token(namespace, "default"))
    async with Transport(config, credentials=TokenFileCredentials(config.login, str(token))) as transport:
        with pytest.raises(Forbidden, match=f"system:serviceaccount:{namespace}:default"):
            await transport.request("GET", NODES.path())
    async with Transport(config) as transport:
        with pytest.raises(Unauthorized):
            await transport.request("GET", NODES.path())


async def test_kubeconfig_of_a_service_account_is_loaded(cluster: Cluster, namespace: str, tmp_path: Path):
    path = cluster.service_account_kubeconfig(namespace, "default", path=tmp_path / "config")
    async with Transport(load_config(path)) as transport:
        review = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview")
        response = await verbs.create(transport, review, {})
    assert response["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:default"


# ── Evictions ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def pod(api: Transport, namespace: str, name: str) -> str:
    """Create a pod in phase Running on a node without a kubelet; returns its UID."""
    body = {
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "containers": [{"name": "c", "image": "none"}],
            "nodeName": "nowhere",
            "terminationGracePeriodSeconds": 0,
        },
    }
    created = await verbs.create(api, PODS, body, namespace=namespace)
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"status": {"phase": "Running", "conditions": [ready]}}
    await verbs.merge_patch(api, PODS, name, status, namespace=namespace, subresource="status")
    return str(created["metadata"]["uid"])


async def budget(api: Transport, namespace: str, name: str, app: str) -> None:
    body = {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}}
    await verbs.create(api, BUDGETS, body, namespace=namespace)


async def test_eviction_responses_are_decoded(api, namespace):
    free, kept, twice = [await pod(api, namespace, name) for name in ("free", "kept", "twice")]
    await budget(api, namespace, "kept", "kept")
    await budget(api, namespace, "twice-1", "twice")
    await budget(api, namespace, "twice-2", "twice")

    async def evict(name: str, uid: str, grace_period: int | None = None) -> EvictionResponse:
        requester = Requester("descheduler", "test")
        request = EvictionRequest(
            namespace=namespace, pod=name, uid=uid, requester=requester, grace_period=grace_period
        )
        return await send_eviction(api, request, timeout=patiently(10))

    refused = await evict("kept", kept)
    assert refused.code is ResponseCode.BUDGET
    assert "disruption budget kept" in refused.message
    assert (await evict("twice", twice)).code is ResponseCode.SEVERAL_BUDGETS
    assert (await evict("free", kept)).code is ResponseCode.GONE
    assert "deletionTimestamp" not in (await verbs.get(api, PODS, "free", namespace=namespace))["metadata"]
    assert (await evict("free", free, grace_period=0)).granted
    assert (await evict("never", free)).code is ResponseCode.GONE


# ── Events ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def events(api: Transport, namespace: str, name: str) -> list[dict]:
    listed = await verbs.list_objects(api, EVENTS, namespace=namespace)
    return [each for each in listed.items if each["regarding"]["name"] == name]


async def test_api_server_accepts_events_and_series(api, namespace):
    regarding = ObjectReference.to(CONFIG_MAPS, "a", namespace=namespace, uid="u")
    about = {"reason": "DuplicateOnNode", "action": "Evict", "note": "ä" * 2000}
    async with EventRecorder(api, instance="test_1234", controller="trimtab.dev/trimtab") as recorder:
        recorder.event(regarding, **about, related=ObjectReference.to(NODES, "n1"))
        recorder.event(regarding, **about | {"note": "again"})
        await recorder._queue.join()
        recorder.event(regarding, **about | {"note": "again"})
        recorder.event(regarding, **about | {"note": "twice at once"}, type="Warning")
        recorder.event(regarding, **about | {"note": "twice at once"}, type="Warning")
    assert recorder.statistics().dropped == {}
    observed = {each["note"][:5]: each for each in await events(api, namespace, "a")}
    assert set(observed) == {"äääää", "again", "twice"}
    assert observed["again"]["series"]["count"] == 2
    assert observed["twice"]["series"]["count"] == 2
    assert observed["äääää"]["related"]["name"] == "n1"


async def test_api_server_accepts_events_on_cluster_scoped_objects(api, namespace):
    regarding = ObjectReference.to(NAMESPACES, namespace)
    async with EventRecorder(api, instance="test") as recorder:
        recorder.event(regarding, reason="Idle", action="Wait", note="nothing to do")
    assert recorder.statistics().dropped == {}
    assert len(await events(api, "default", namespace)) == 1


async def test_events_of_a_deleted_namespace_are_dropped(api):
    regarding = ObjectReference.to(PODS, "web-1", namespace="never-was")
    async with EventRecorder(api, instance="test") as recorder:
        recorder.event(regarding, reason="Idle", action="Wait", note="nothing to do")
    assert recorder.statistics().dropped == {"Refused": 1}


# ── The lease ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_released_lease_is_acquired_by_the_follower_at_once(api, namespace):
    async with LeaderElector(api, namespace=namespace, name="trimtab", identity="b") as second:
        async with LeaderElector(api, namespace=namespace, name="trimtab", identity="a") as first:
            await first.acquire()
            assert first.leading
            waiting = asyncio.create_task(second.acquire())
            await asyncio.sleep(3)
            assert not waiting.done()
            began = asyncio.get_running_loop().time()
        await asyncio.wait_for(waiting, timeout=patiently(10))
        assert asyncio.get_running_loop().time() - began < patiently(0.5)
        taken = await verbs.get(api, LEASES, "trimtab", namespace=namespace)
    assert taken["spec"]["holderIdentity"] == "b"
    assert taken["spec"]["leaseTransitions"] == 1


# ── A cut network ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_short_network_outage_loses_neither_events_nor_lease(cluster, api, namespace):
    proxy = CuttableProxy(urlsplit(cluster.server).port or 443)
    config = msgspec.structs.replace(load_config(cluster.kubeconfig), server=f"https://127.0.0.1:{proxy.port}")
    regarding = ObjectReference.to(CONFIG_MAPS, "cut", namespace=namespace)
    timings = ElectionTimings(lease_duration=round(patiently(24)), renew_deadline=patiently(18), retry_period=0.5)
    async with (
        Transport(config) as transport,
        LeaderElector(transport, namespace=namespace, name="cut", timings=timings) as elector,
        EventRecorder(transport, instance="test") as recorder,
    ):
        await elector.acquire()
        for number in range(30):
            recorder.event(regarding, reason="Idle", action="Wait", note=f"event {number}")
            if number == 10:
                proxy.cut()
                with pytest.raises(Unreachable):
                    await transport.request("POST", CONFIG_MAPS.path(namespace=namespace), body=config_map("lost"))
            if number == 20:
                reading = asyncio.create_task(transport.request("GET", NODES.path()))
                await asyncio.sleep(1)
                proxy.mend()
                assert (await reading)["kind"] == "NodeList"
        await asyncio.wait_for(recorder._queue.join(), timeout=patiently(30))
        assert elector.leading
    assert recorder.statistics().dropped == {}
    assert len(await events(api, namespace, "cut")) == 30
    proxy.close()


# ── Kopf on our session ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_kopf_uses_our_session(api, cluster, namespace, tmp_path):
    """The token is rotated while Kopf watches: its next request must carry the new one without a new login."""
    account = await _admin_account(api, namespace)
    token = tmp_path / "token"
    token.write_text(cluster.service_account_token(namespace, account))
    config = msgspec.structs.replace(
        load_config(cluster.kubeconfig), login=Login(authorization="Bearer stale"), kubeconfig="", namespace=namespace
    )
    registry, logins, observed = kopf.OperatorRegistry(), [], asyncio.Queue()
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.process.ultimate_exiting_timeout = None
    async with Transport(config, credentials=TokenFileCredentials(config.login, str(token))) as transport:

        @kopf.on.login(registry=registry)
        async def login(**_):
            logins.append(1)
            return kopf.AiohttpSession(
                aiohttp_session=transport.borrowed_session(),
                server=transport.server,
                default_namespace=transport.default_namespace,
            )

        @kopf.on.create("configmaps", registry=registry, labels={"watched": "yes"})
        async def created(name, patch, **_):
            patch.setdefault("data", {})["seen"] = name

        @kopf.on.event("configmaps", registry=registry, labels={"watched": "yes"})
        async def changed(body, **_):
            if "seen" in body.get("data", {}):
                observed.put_nowait(body["data"]["seen"])

        stop, ready = asyncio.Event(), asyncio.Event()
        operator = asyncio.create_task(
            kopf.operator(
                registry=registry, settings=settings, namespaces=[namespace], stop_flag=stop, ready_flag=ready
            )
        )
        await asyncio.wait_for(ready.wait(), timeout=patiently(30))
        body = {"metadata": {"name": "a", "labels": {"watched": "yes"}}}
        await verbs.create(api, CONFIG_MAPS, body, namespace=namespace)
        assert await asyncio.wait_for(observed.get(), timeout=patiently(30)) == "a"
        stop.set()
        await asyncio.wait_for(operator, timeout=patiently(30))
        assert logins == [1]
        assert await transport.request("GET", "/readyz") == "ok"


async def _admin_account(api: Transport, namespace: str) -> str:
    binding = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
    body = {
        "metadata": {"name": "admin"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    }
    await verbs.create(api, binding, body, namespace=namespace)
    return "default"
