"""Binding volumes before pods, against a real API server whose kube-controller-manager completes the bindings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from tests.builders import expression, pod, pv, pvc, storage_class
from tests.fixtures.clusters import Cluster
from tests.fixtures.waiting import eventually_async, patiently
from trimtab.cluster.kinds import SNAPSHOT_KINDS
from trimtab.cluster.shared_snapshot import SharedSnapshot
from trimtab.kube import verbs
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.connection.transport import Transport
from trimtab.kube.resources import (
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
    ObjectReference,
    Resource,
)
from trimtab.placement.placer import Placer
from trimtab.placement.volume_binding import binder_of
from trimtab.runtime.informers import Informers
from trimtab.scheduling.dependencies import AssumedVolume, VolumeBindingError
from trimtab.scheduling.volumes import PodVolumeBinder

CLAIMED = "pv.kubernetes.io/bound-by-controller"
SELECTED = "volume.kubernetes.io/selected-node"


class World:
    """A namespace with volumes of a class of its own, and a scheduler that places and binds one pod at a time."""

    def __init__(self, api: Transport, namespace: str, nodes: Sequence[str]) -> None:
        self.api, self.namespace, self.nodes = api, namespace, nodes
        self.class_name = f"class-{namespace}"
        self.shared = SharedSnapshot(SNAPSHOT_KINDS)
        self.informers = Informers(api, self.shared, SNAPSHOT_KINDS)
        self.binder = PodVolumeBinder(
            api=api,
            claims=self.informers.informer(PERSISTENT_VOLUME_CLAIMS).store,
            volumes=self.informers.informer(PERSISTENT_VOLUMES).store,
            lister=self.informers.lister,
            clock=SYSTEM_CLOCK,
            timeout=patiently(20.0),
        )

    async def create(self, resource: Resource, builder: Any) -> dict[str, Any]:
        manifest = builder.manifest()
        manifest.pop("status", None)
        manifest["metadata"].pop("uid")
        return await verbs.create(self.api, resource, manifest, namespace=manifest["metadata"].get("namespace", ""))

    async def volume(self, name: str, node: str) -> str:
        """Create a local volume on a node, and return its name."""
        name = f"{self.namespace}-{name}"
        made = pv(name).of_class(self.class_name).source("local", path="/mnt").on(node)
        await self.create(PERSISTENT_VOLUMES, made)
        return name

    async def pod_with_claim(self, name: str) -> None:
        await self.create(PERSISTENT_VOLUME_CLAIMS, pvc(name, self.namespace).of_class(self.class_name))
        manifest = pod(name, self.namespace).claim(name).merge(spec={"schedulerName": "tests"})
        await self.create(PODS, manifest)

    async def planned(self, name: str, node: str | None = None) -> tuple[str, list[AssumedVolume]]:
        """The node that a pod fits on and what placing it there assumes, when the caches show that it fits."""

        async def fits() -> tuple[str, list[AssumedVolume]] | None:
            async with self.shared.borrow() as snapshot:
                pending = snapshot.pods.get(f"{self.namespace}/{name}")
                if pending is not None:
                    feasible = Placer(snapshot).feasible(pending)
                    names = [snapshot.nodes.node(int(slot)).name for slot in feasible.nonzero()[0]]
                    if names and node in (None, *names):
                        chosen = node or names[0]
                        return chosen, list(binder_of(snapshot).assumed(pending, chosen))
            return None

        return await eventually_async(fits, f"{name} fits on {node or 'a node'}")

    async def bind(self, name: str, node: str, assumed: Sequence[AssumedVolume]) -> None:
        pending = self.informers.lister.pod(f"{self.namespace}/{name}")
        assert pending is not None
        await self.binder.bind(pending, node, assumed)

    async def get(self, resource: Resource, name: str) -> dict[str, Any]:
        namespace = self.namespace if resource.namespaced else ""
        return await verbs.get(self.api, resource, name, namespace=namespace)

    async def synced(self) -> bool:
        return self.informers.check() is None

    async def running(self) -> bool:
        return bool((await self.get(PODS, "web"))["status"].get("phase") == "Running")

    async def bound(self) -> Any:
        """The claim ``web`` once it is bound. The binder waits for less: the controller sets the phase last."""
        claim = await self.get(PERSISTENT_VOLUME_CLAIMS, "web")
        return claim if claim["status"]["phase"] == "Bound" else None

    async def selected(self) -> Any:
        """The claim ``data`` once a node is selected for it."""
        claim = await self.get(PERSISTENT_VOLUME_CLAIMS, "data")
        return claim if SELECTED in claim["metadata"].get("annotations", {}) else None


@pytest.fixture
async def world(api: Transport, cluster: Cluster, namespace: str) -> AsyncIterator[World]:
    nodes = sorted(each["metadata"]["name"] for each in cluster.client.request("GET", NODES.path())["items"])
    found = World(api, namespace, nodes)
    made = storage_class(found.class_name, "kubernetes.io/no-provisioner")
    await found.create(STORAGE_CLASSES, made)
    found.informers.start()
    await eventually_async(found.synced, "the caches have synced")
    async with asyncio.timeout(patiently(60)):
        yield found
    await found.informers.stop()
    await verbs.delete(api, STORAGE_CLASSES, found.class_name)
    for each in (await verbs.list_objects(api, PERSISTENT_VOLUMES)).items:
        if each["metadata"]["name"].startswith(namespace):
            await verbs.delete(api, PERSISTENT_VOLUMES, each["metadata"]["name"])


async def test_pod_runs_on_the_node_of_its_local_volume(world: World) -> None:
    volume = await world.volume("a", world.nodes[1])
    await world.pod_with_claim("web")
    node, assumed = await world.planned("web")
    assert node == world.nodes[1]
    await world.bind("web", node, assumed)
    claim = await eventually_async(world.bound, "the claim is bound")
    stored = await world.get(PERSISTENT_VOLUMES, volume)
    assert claim["spec"]["volumeName"] == volume
    assert stored["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
    assert stored["metadata"]["annotations"][CLAIMED] == "yes"
    target = ObjectReference.to(NODES, node).as_json()
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "web"}, "target": target}
    path = PODS.path("web", namespace=world.namespace, subresource="binding")
    await world.api.request("POST", path, body=body)
    await eventually_async(world.running, "the pod runs")


async def test_two_plans_for_one_volume_bind_it_once(world: World) -> None:
    volume = await world.volume("a", world.nodes[0])
    for name in ("one", "two"):
        await world.pod_with_claim(name)
    plans = {name: await world.planned(name) for name in ("one", "two")}
    results = await asyncio.gather(
        *(world.bind(name, node, assumed) for name, (node, assumed) in plans.items()), return_exceptions=True
    )
    [failed] = [each for each in results if each is not None]
    assert isinstance(failed, VolumeBindingError)
    winner = ("one", "two")[results.index(None)]
    assert (await world.get(PERSISTENT_VOLUMES, volume))["spec"]["claimRef"]["name"] == winner


async def test_provisioned_volume_is_awaited_on_the_selected_node(world: World) -> None:
    class_name = f"{world.class_name}-made"
    await world.create(STORAGE_CLASSES, storage_class(class_name, "csi.example"))
    await world.create(PERSISTENT_VOLUME_CLAIMS, pvc("data", world.namespace).of_class(class_name))
    await world.create(PODS, pod("web", world.namespace).claim("data").merge(spec={"schedulerName": "tests"}))
    node, assumed = await world.planned("web", world.nodes[2])
    binding = asyncio.create_task(world.bind("web", node, assumed))
    claim = await eventually_async(world.selected, "a node is selected for the claim")  # as the provisioner
    assert claim["metadata"]["annotations"][SELECTED] == node
    made = pv(f"{world.namespace}-made").of_class(class_name).where(expression("kubernetes.io/hostname", "In", node))
    made = made.claimed_by("data", world.namespace, uid=claim["metadata"]["uid"])
    await world.create(PERSISTENT_VOLUMES, made)
    await binding
    assert (await world.get(PERSISTENT_VOLUME_CLAIMS, "data"))["spec"]["volumeName"] == f"{world.namespace}-made"
    await verbs.delete(world.api, STORAGE_CLASSES, class_name)


async def test_failed_provisioning_ends_the_wait(world: World) -> None:
    class_name = f"{world.class_name}-failing"
    await world.create(STORAGE_CLASSES, storage_class(class_name, "csi.example"))
    await world.create(PERSISTENT_VOLUME_CLAIMS, pvc("data", world.namespace).of_class(class_name))
    await world.create(PODS, pod("web", world.namespace).claim("data").merge(spec={"schedulerName": "tests"}))
    node, assumed = await world.planned("web", world.nodes[0])
    binding = asyncio.create_task(world.bind("web", node, assumed))
    await eventually_async(world.selected, "a node is selected for the claim")
    removal = {"metadata": {"annotations": {SELECTED: None}}}
    await verbs.merge_patch(world.api, PERSISTENT_VOLUME_CLAIMS, "data", removal, namespace=world.namespace)
    with pytest.raises(VolumeBindingError, match="provisioning failed"):
        await binding
    await verbs.delete(world.api, STORAGE_CLASSES, class_name)
