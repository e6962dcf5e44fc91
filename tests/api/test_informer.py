"""The informer on a real API server: all wire formats give equal objects, and no change is lost."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from tests.builders import (
    NOW,
    ZONE,
    attachment,
    budget,
    capacity,
    csi_driver,
    csi_node,
    expression,
    job,
    limit_range,
    node,
    pod,
    priority_class,
    pv,
    pvc,
    replica_set,
    replication_controller,
    runtime_class,
    service,
    stateful_set,
    storage_class,
)
from tests.fixtures.clusters import Cluster, kubernetes_version
from tests.fixtures.proxy import CuttableProxy
from tests.fixtures.tainting import make_namespace
from tests.fixtures.waiting import eventually_async
from trimtab.cluster.kinds import POD_DEFAULTS, REQUIRED
from trimtab.kube.api import Gone, NotFound
from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.transport import Transport
from trimtab.kube.resources import (
    BUDGETS,
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    JOBS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RUNTIME_CLASSES,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    Resource,
)
from trimtab.kube.watching.informer import Informer, ServerAbilities
from trimtab.kube.watching.store import Store
from trimtab.kube.wire.decode import decode_json

IMAGE_VOLUMES = (1, 35)
"""The first version that keeps image volumes by default (feature gate ImageVolume)."""
WAYS = {
    "protobuf streamed": (True, True),
    "protobuf in pages": (True, False),
    "JSON streamed": (False, True),
    "JSON in pages": (False, False),
}
SERVED = (*REQUIRED, *POD_DEFAULTS)
"""Kinds that every API server serves."""
BLOB = "https://account.blob.core.windows.net/disks/d.vhd"

RICH = (
    pod("rich")
    .labels({"app.kubernetes.io/name": "rich", "app": "web"})
    .annotations({"descheduler.alpha.kubernetes.io/evict": "true", "other": "x"})
    .cpu("250m", "1")
    .memory("1Gi", "2Gi")
    .host_port(18080, ip="127.0.0.1")
    .container("limited", image="x", resources={"limits": {"cpu": "100m", "ephemeral-storage": "1Gi"}})
    .init_container(
        "side", image="x", restartPolicy="Always", ports=[{"hostPort": 18081, "containerPort": 1, "protocol": "UDP"}]
    )
    .init_container("step", image="x", resources={"requests": {"cpu": "2"}})
    .node_selector(disk="none")
    .node_affinity(expression("zone", "In", "a", "b"), expression("cores", "Gt", "4"))
    .node_affinity(fields=(expression("metadata.name", "In", "n1"),))
    .prefers_nodes(10, expression("zone", "Exists"))
    .affinity("topology.kubernetes.io/zone", namespaces=["a", "b"])
    .affinity("topology.kubernetes.io/zone", preferred=3, namespaceSelector={}, matchLabelKeys=["pod-template-hash"])
    .anti_affinity(namespaceSelector={"matchExpressions": [expression("team", "NotIn", "x")]})
    .anti_affinity(preferred=7, labelSelector={"matchLabels": {"a": "b"}})
    .spread(minDomains=2, nodeAffinityPolicy="Ignore", nodeTaintsPolicy="Honor", matchLabelKeys=["pod-template-hash"])
    .tolerates("dedicated", "db", "NoExecute", seconds=60)
    .tolerates()
    .volume("emptyDir")
    .volume("hostPath", path="/tmp")
    .volume("persistentVolumeClaim", claimName="data", readOnly=True)
    .volume("configMap", name="x")
    .volume("csi", driver="x")
    .grace_period(5)
    .merge(spec={"schedulingGates": [{"name": "example.com/gate"}], "schedulerName": "unserved"})
)
PODS_TO_MAKE = {
    "plain": pod("plain"),
    "rich": RICH,
    "limits alone": pod("limited").limits(cpu="1", memory="1Gi"),
    "host network": pod("host").merge(
        spec={
            "hostNetwork": True,
            "containers": [{"name": "a", "image": "x", "ports": [{"containerPort": 19100}]}],
        }
    ),
    "pod-level resources": pod("level")
    .cpu("100m")
    .limits({"hugepages-2Mi": "4Mi", "cpu": "1", "memory": "1Gi"})
    .requests({"hugepages-2Mi": "4Mi"})
    .merge(spec={"resources": {"limits": {"cpu": "3", "memory": "2Gi"}, "requests": {"memory": "1Gi"}}}),
    "disks": pod("disks")
    .volume("gcePersistentDisk", pdName="pd", readOnly=True)
    .volume("awsElasticBlockStore", volumeID="vol-1")
    .volume("azureDisk", diskName="d", diskURI=BLOB)
    .volume("cinder", volumeID="c")
    .volume("portworxVolume", volumeID="p")
    .volume("iscsi", targetPortal="10.0.0.1", iqn="iqn.2026-11.example:x", lun=1)
    .volume("rbd", monitors=["m2", "m1"], image="i")
    .volume("image", reference="registry.example/data:1")
    .ephemeral("scratch", resources={"requests": {"storage": "1Gi"}}, storageClassName="none"),
    "terminating": pod("terminating").merge(metadata={"finalizers": ["trimtab.dev/test"]}),
}


VOLUME = (
    pv()
    .labels({ZONE: "a"})
    .csi("csi.example", "vol-1")
    .of_class("fast")
    .access("ReadWriteOnce", "ReadOnlyMany")
    .block()
    .claimed_by("data", uid="x")
    .where(expression(ZONE, "In", "a", "b"), expression("cores", "Gt", "4"))
    .on("n1")
)
AZURE_DISK = pv().source("azureDisk", diskName="d", diskURI=BLOB)
CLAIM = pvc("kept").of_class("fast").request("1500Mi").block().selecting(team="shop").selected_node("n1")
# Owners pick none of the pods above: they would adopt them, and delete them to have none.
NAMESPACED: dict[Resource, list[Any]] = {
    PERSISTENT_VOLUME_CLAIMS: [CLAIM, pvc("plain").merge(spec={"storageClassName": None}), pvc("bound").bound_to("x")],
    CSI_STORAGE_CAPACITIES: [capacity("a").largest("1Gi").where(zone="a"), capacity("b", amount=None).where()],
    SERVICES: [service("a").selecting(app="away"), service("b")],
    REPLICATION_CONTROLLERS: [replication_controller("a").selecting(app="away")],
    REPLICA_SETS: [replica_set("a").selecting({"app": "away", "pod-template-hash": "x"})],
    STATEFUL_SETS: [stateful_set("a").selecting(app="away").merge(spec={"serviceName": "a"})],
    LIMIT_RANGES: [limit_range("a").containers(defaultRequest={"cpu": "10m"}, default={"memory": "1Gi"})],
    JOBS: [job("a").merge(spec={"suspend": True, "template": {"spec": {"restartPolicy": "Never"}}})],
}
CLUSTER_WIDE: dict[Resource, list[Any]] = {
    PERSISTENT_VOLUMES: [
        VOLUME,
        pv().source("hostPath", path="/a"),
        pv().source("azureDisk", diskName="d", diskURI=BLOB),
    ],
    STORAGE_CLASSES: [storage_class().topology({ZONE: ("a", "b")}).topology({"disk": ("ssd",)}), storage_class()],
    CSI_NODES: [csi_node().driver("a", 5).driver("b").migrated("kubernetes.io/aws-ebs"), csi_node()],
    CSI_DRIVERS: [csi_driver(storage_capacity=True), csi_driver()],
    RUNTIME_CLASSES: [runtime_class().overhead(cpu="250m").merge(scheduling={"nodeSelector": {"a": "b"}})],
    VOLUME_ATTACHMENTS: [attachment("a", "volume-1", "n1")],
}


@asynccontextmanager
async def informing(
    api: Transport, resource: Resource, *, way: str = "protobuf streamed", **options: Any
) -> AsyncIterator[Informer[Any]]:
    abilities = ServerAbilities()
    abilities.protobuf, abilities.watch_list = WAYS[way]
    informer: Informer[Any] = Informer(api, resource, Store(), abilities=abilities, **options)
    task = asyncio.create_task(informer.run())
    try:
        yield informer
        assert (abilities.protobuf, abilities.watch_list) == WAYS[way], "the server refused what it should know"
    finally:
        task.cancel()
        await asyncio.wait([task])


def written(manifest: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """The manifest for the API server, which sets the UID, in the namespace of the test."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "uid"}
    return {**manifest, "metadata": {**metadata, "namespace": namespace}}


def made_cluster_wide(client: Any, resource: Resource, prefix: str) -> list[str]:
    """Create cluster-scoped objects with unique names; returns their paths."""
    paths = []
    for index, builder in enumerate(CLUSTER_WIDE[resource]):
        manifest = builder.merge(metadata={"name": f"{prefix}-{index}"}).manifest()
        del manifest["metadata"]["uid"]
        client.request("POST", resource.path(), manifest)
        paths.append(resource.path(f"{prefix}-{index}"))
    return paths


@pytest.fixture(scope="module")
def objects(cluster: Cluster) -> Iterator[str]:
    """Objects with every projected field, in a namespace of their own; tests only read them."""
    client = cluster.client
    namespace = f"test-{secrets.token_hex(4)}"
    make_namespace(client, namespace)
    for builder in PODS_TO_MAKE.values():
        client.request("POST", PODS.path(namespace=namespace), written(builder.manifest(), namespace))
    client.request("DELETE", PODS.path("terminating", namespace=namespace))
    for built in (
        budget("a").selecting(app="web").unhealthy_policy("AlwaysAllow"),
        budget("b").merge(spec={"selector": {"matchExpressions": [expression("app", "In", "web", "db")]}}),
        budget("c").selecting(),
    ):
        manifest = built.merge(spec={"minAvailable": "50%"}).manifest()
        client.request("POST", BUDGETS.path(namespace=namespace), written(manifest, namespace))
    for resource, builders in NAMESPACED.items():
        for builder in builders:
            client.request("POST", resource.path(namespace=namespace), written(builder.manifest(), namespace))
    paths = [path for resource in CLUSTER_WIDE for path in made_cluster_wide(client, resource, namespace)]
    tainted = (
        node(f"{namespace}-n")
        .zone("a")
        .taint("dedicated", "db", added=NOW)
        .provider_id("kwok://n")
        .cordoned()
        .image("registry.example/app:1", "registry.example/app@sha256:x", size=1 << 33)
        .image("registry.example/other:1", size=7)
    )
    high = priority_class(f"{namespace}-high", 1000)
    for resource, manifest in ((NODES, tainted.manifest()), (PRIORITY_CLASSES, high.manifest())):
        del manifest["metadata"]["uid"]
        client.request("POST", resource.path(), manifest)
    yield namespace
    client.request(
        "PATCH",
        PODS.path("terminating", namespace=namespace),
        {"metadata": {"finalizers": None}},
        content_type="application/merge-patch+json",
    )
    client.request("DELETE", NODES.path(f"{namespace}-n"))
    client.request("DELETE", PRIORITY_CLASSES.path(f"{namespace}-high"))
    for path in paths:
        client.request("DELETE", path)
    client.request("DELETE", NAMESPACES.path(namespace))


@pytest.mark.parametrize("resource", SERVED, ids=[kind.plural for kind in SERVED])
@pytest.mark.parametrize("way", WAYS)
async def test_all_list_encodings_give_equal_values(api: Transport, objects: str, resource: Resource, way: str) -> None:
    async with informing(api, resource, way=way) as informer:
        await informer.synced()
        assert len(informer.store) > 0
        assert not informer.broken

        async def equal() -> bool:
            listed = await api.request("GET", resource.path())
            values = [decode_json(resource.kind, msgspec.json.encode(item)) for item in listed["items"]]
            return {value.key: value for value in values} == informer.store.objects

        await eventually_async(equal, "all objects are cached")


async def test_our_defaults_equal_the_api_servers(api: Transport, cluster: Cluster, objects: str) -> None:
    dropped = () if kubernetes_version(cluster.client) >= IMAGE_VOLUMES else ("image",)
    async with informing(api, PODS, namespace=objects) as informer:
        await informer.synced()
        for builder in PODS_TO_MAKE.values():
            ours = builder.build()
            theirs = informer.store.objects[f"{objects}/{ours.name}"]
            assert theirs.spec.requests == ours.spec.requests, ours.name
            assert theirs.spec.qos == ours.spec.qos, ours.name
            assert theirs.spec.pod_resources == ours.spec.pod_resources, ours.name
            assert theirs.spec.host_ports == ours.spec.host_ports, ours.name
            volumes = tuple(volume for volume in ours.spec.volumes if volume.kind not in dropped)
            assert theirs.spec.volumes == volumes, ours.name
            assert theirs.spec.termination_grace_period == ours.spec.termination_grace_period, ours.name


@pytest.mark.parametrize("way", WAYS)
async def test_informer_receives_changes(api: Transport, cluster: Cluster, namespace: str, way: str) -> None:
    path = PODS.path(namespace=namespace)
    manifest = written(pod("a").merge(spec={"schedulerName": "unserved"}).manifest(), namespace)
    async with informing(api, PODS, way=way, namespace=namespace) as informer:
        await informer.synced()
        assert not informer.store.objects
        await api.request("POST", path, body=manifest)
        await eventually_async(lambda: len(informer.store) == 1, "the pod is cached")
        patch = {"metadata": {"labels": {"a": "b"}}}
        await api.request("PATCH", f"{path}/a", body=patch, content_type="application/merge-patch+json")
        await eventually_async(
            lambda: informer.store.objects[f"{namespace}/a"].labels == {"a": "b"}, "the new label is cached"
        )
        await api.request("DELETE", f"{path}/a", params={"gracePeriodSeconds": "0"})
        await eventually_async(lambda: not informer.store.objects, "the deletion is cached")
        assert informer.statistics().connections <= 2


@pytest.mark.parametrize("way", WAYS)
async def test_only_a_pod_created_on_a_node_is_named(api: Transport, namespace: str, way: str) -> None:
    """Binding a pod leaves no entry in managedFields, nor does a later change of the pod."""
    path = PODS.path(namespace=namespace)
    for name, node_name in (("bound", ""), ("named", "n1")):
        spec = {"schedulerName": "unserved"} | ({"nodeName": node_name} if node_name else {})
        await api.request("POST", path, body=written(pod(name).merge(spec=spec).manifest(), namespace))
    target = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "bound"}, "target": {"name": "n1"}}
    await api.request("POST", f"{path}/bound/binding", body=target)
    found = await api.request("GET", f"{path}/bound")
    found["metadata"]["labels"] = {"a": "b"}
    await api.request("PUT", f"{path}/bound", body=found)
    async with informing(api, PODS, way=way, namespace=namespace) as informer:
        await informer.synced()
        assert {each.name: (each.node, each.node_name_managed) for each in informer.store.objects.values()} == {
            "bound": ("n1", False),
            "named": ("n1", True),
        }


class Outdated(Transport):
    """When armed, it resumes the next watch from a resource version that the server has compacted."""

    armed = False

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str] | None = None, **options: Any
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        params = params or {}
        outdated = self.armed and "watch" in params and "sendInitialEvents" not in params
        if outdated:
            params = {**params, "resourceVersion": "1"}
        try:
            async with super().stream(path, params=params, **options) as chunks:
                yield chunks
        except Gone:  # as an answer, or out of the stream; a connection that failed does not count
            self.armed = False
            raise


class Thing(msgspec.Struct, frozen=True):
    """A custom kind that is created late, so that the server has no resource version 1 of it."""

    key: str
    uid: str
    resource_version: str


THING = {"apiVersion": "test.trimtab.dev/v1", "kind": "Thing"}
THINGS = Resource("test.trimtab.dev", "v1", "things", "Thing", namespaced=False)
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.test.trimtab.dev"},
    "spec": {
        "group": "test.trimtab.dev",
        "scope": "Cluster",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
    },
}


def thing(raw: bytes | msgspec.Raw) -> Thing:
    metadata = msgspec.json.decode(raw)["metadata"]
    return Thing(metadata["name"], metadata["uid"], metadata["resourceVersion"])


@pytest.fixture
async def things(cluster: Cluster) -> AsyncIterator[None]:
    """A custom kind that is created late, so that the server has no resource version 1 of it."""
    client, definitions = cluster.client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    client.request("POST", definitions, DEFINITION)
    yield
    client.request("DELETE", f"{definitions}/things.test.trimtab.dev")

    async def away() -> bool:
        try:
            client.request("GET", f"{definitions}/things.test.trimtab.dev")
        except NotFound:
            return True
        return False

    await eventually_async(away, "the kind is gone")


@pytest.mark.parametrize("way", ["JSON streamed", "JSON in pages"])
@pytest.mark.usefixtures("things")
async def test_expired_resource_version_causes_a_relist(admin: Path, cluster: Cluster, way: str) -> None:
    client = cluster.client
    proxy = CuttableProxy(urlsplit(client.server).port or 443)
    config = msgspec.structs.replace(load_config(admin), server=f"https://127.0.0.1:{proxy.port}")

    async def served() -> bool:
        try:
            for name in ("kept", "gone"):
                client.request("POST", THINGS.path(), {**THING, "metadata": {"name": name}})
        except NotFound:
            return False
        return True

    await eventually_async(served, "the kind is served")
    async with Outdated(config) as api, informing(api, THINGS, way=way, decode=thing) as informer:
        await informer.synced()
        client.request("POST", THINGS.path(), {**THING, "metadata": {"name": "watched"}})
        await eventually_async(lambda: len(informer.store) == 3, "the watch is established")
        proxy.cut()
        client.request("DELETE", THINGS.path("gone"))
        api.armed = True
        proxy.mend()
        await eventually_async(
            lambda: informer.statistics().lists >= 2, "the informer lists again"
        )  # a busy server may refuse the first attempt
        assert not api.armed
        assert set(informer.store.objects) == {"kept", "watched"}
    proxy.close()


async def test_informer_misses_no_change_over_a_network_outage(admin: Path, cluster: Cluster, namespace: str) -> None:
    client, path = cluster.client, PODS.path(namespace=namespace)

    def create(name: str) -> None:
        built = pod(name).merge(spec={"schedulerName": "unserved"})
        client.request("POST", path, written(built.manifest(), namespace))

    proxy = CuttableProxy(urlsplit(client.server).port or 443)
    config = msgspec.structs.replace(load_config(admin), server=f"https://127.0.0.1:{proxy.port}")
    create("kept")
    create("gone")
    async with Transport(config) as api, informing(api, PODS, namespace=namespace) as informer:
        reported: list[tuple[str, str]] = []
        informer.store.subscribe(lambda old, new: reported.append((old.name if old else "", new.name if new else "")))
        await informer.synced()
        proxy.cut()
        await eventually_async(lambda: informer.state.phase == "Retrying", "the informer retries")
        create("new")
        client.request("DELETE", f"{path}/gone", params={"gracePeriodSeconds": "0"})
        proxy.mend()
        await eventually_async(
            lambda: {value.name for value in informer.store} == {"kept", "new"}, "the changes are cached"
        )
        assert ("gone", "") in reported
        assert informer.statistics().lists == 1
        assert informer.state.phase == "Watching"
    proxy.close()


async def test_informer_state_contains_the_rejection(api: Transport) -> None:
    unknown = Resource("trimtab.dev", "v1", "nothings", "Nothing")
    async with informing(api, unknown, decode=lambda raw: raw) as informer:
        await eventually_async(lambda: informer.state.phase == "Refused", "the list is refused")
        assert "could not find the requested resource" in informer.state.error or "404" in informer.state.error


async def test_informer_state_contains_the_selector_error(api: Transport) -> None:
    informer: Informer[Any] = Informer(api, PODS, Store(), label_selector="a in (")
    task = asyncio.create_task(informer.run())
    await eventually_async(lambda: informer.state.phase == "Retrying", "the informer retries")
    assert "unable to parse" in informer.state.error
    task.cancel()
    await asyncio.wait([task])


async def test_informer_state_contains_forbidden(cluster: Cluster, admin: Path, namespace: str) -> None:
    token = cluster.client.request(
        "POST",
        f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    )["status"]["token"]
    config = load_config(admin)
    login = msgspec.structs.replace(config.login, authorization=f"Bearer {token}", certificate=b"", key=b"")
    config = msgspec.structs.replace(config, login=login, kubeconfig="")
    async with Transport(config) as api, informing(api, PODS) as informer:
        await eventually_async(lambda: informer.state.phase == "Refused", "the list is refused")
        assert "cannot" in informer.state.error
        assert "pods" in informer.state.error
