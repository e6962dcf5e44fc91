"""Binding volumes before pods: reservations, selected nodes, waiting, and what makes it fail. On virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.builders import ZONE, node, pod, pv, pvc, storage_class
from tests.fakes.api import Call, FakeApi
from tests.fakes.caches import Caches
from tests.fakes.clock import LoopClock
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.api import Conflict, Forbidden
from trimtab.kube.objects import Node, PersistentVolume, PersistentVolumeClaim, Pod
from trimtab.kube.resources import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES, Resource
from trimtab.kube.watching.store import Store
from trimtab.kube.wire.decode import decode_object
from trimtab.placement.placer import Placer
from trimtab.placement.volume_binding import binder_of, reserve_volumes
from trimtab.scheduling.dependencies import AssumedVolume, VolumeBindingError
from trimtab.scheduling.volumes import BIND_TIMEOUT, BOUND_BY_CONTROLLER, WRITE_ATTEMPTS, PodVolumeBinder

pytestmark = pytest.mark.looptime

SELECTED = "volume.kubernetes.io/selected-node"
KINDS: dict[str, Resource] = {
    "Node": NODES,
    "Pod": PODS,
    "PersistentVolume": PERSISTENT_VOLUMES,
    "PersistentVolumeClaim": PERSISTENT_VOLUME_CLAIMS,
    "StorageClass": STORAGE_CLASSES,
}


class Cluster:
    """A fake API server whose objects reach the stores and a snapshot `lag` seconds after each write.

    `controller`: whether reserved volumes are bound, as kube-controller-manager does, after `delay` seconds.
    """

    def __init__(self, *things: Any, lag: float = 0.0, delay: float = 0.5, controller: bool = True) -> None:
        self.api = FakeApi(before=self._before, after=self._after)
        self.caches = Caches()
        self.claims, self.volumes = Store[PersistentVolumeClaim](), Store[PersistentVolume]()
        self.snapshot = Snapshot()
        self.clock = LoopClock()
        self.lag, self.delay, self.controller = lag, delay, controller
        for thing in things:
            self.put(thing.manifest())
        self.binder = PodVolumeBinder(
            api=self.api, claims=self.claims, volumes=self.volumes, lister=self.caches.lister, clock=self.clock
        )

    def put(self, manifest: dict[str, Any]) -> None:
        """Write an object behind the scheduler's back."""
        self._deliver(self.api.put(_path(manifest), manifest))

    def patch(self, kind: str, name: str, **parts: Any) -> None:
        manifest = self.stored(kind, name)
        for section, values in parts.items():
            manifest[section] = {**manifest.get(section, {}), **values}
        self.put(manifest)

    def stored(self, kind: str, name: str) -> Any:
        namespace = "" if kind == "PersistentVolume" else "shop"
        return self.api.objects[KINDS[kind].path(name, namespace=namespace)]

    def remove(self, kind: str, name: str) -> None:
        namespace = "" if kind in ("PersistentVolume", "Node") else "shop"
        del self.api.objects[KINDS[kind].path(name, namespace=namespace)]
        key = f"{namespace}/{name}" if namespace else name
        stores: dict[str, Store[Any]] = {
            "Pod": self.caches.pods,
            "Node": self.caches.nodes,
            "PersistentVolume": self.volumes,
            "PersistentVolumeClaim": self.claims,
        }
        stores[kind].remove(key)

    def placed(self, name: str, on: str) -> tuple[Pod, list[AssumedVolume]]:
        """The pod and what its placement on the node assumes; the snapshot keeps that for later pods."""
        pending = self.snapshot.pods[f"shop/{name}"]
        slot = self.snapshot.nodes.slot_of[on]
        assert Placer(self.snapshot).feasible(pending)[slot]
        assumed = list(binder_of(self.snapshot).assumed(pending, on))
        reserve_volumes(self.snapshot, pending, on)
        return pending, assumed

    async def bind(self, name: str, on: str = "n1") -> None:
        pending, assumed = self.placed(name, on)
        await self.binder.bind(pending, on, assumed)

    async def _before(self, call: Call) -> None:
        version = call.body["metadata"].get("resourceVersion") if call.method == "PATCH" else None
        if version is not None and version != self.api.objects[call.path]["metadata"]["resourceVersion"]:
            raise Conflict("the object has been modified", status=409, reason="Conflict")

    async def _after(self, call: Call) -> None:
        if call.method != "PATCH":
            return
        stored = self.api.objects[call.path]
        asyncio.get_running_loop().call_later(self.lag, self._deliver, stored)
        if self.controller and "persistentvolumes" in call.path:
            asyncio.get_running_loop().call_later(self.delay, self._complete, stored)

    def _complete(self, volume: dict[str, Any]) -> None:
        self.bound(volume["spec"]["claimRef"]["name"], volume["metadata"]["name"])

    def bound(self, claim_name: str, volume: str) -> None:
        """Bind a claim, as kube-controller-manager does in the end."""
        manifest = self.stored("PersistentVolumeClaim", claim_name)
        annotations = {**manifest["metadata"].get("annotations", {}), "pv.kubernetes.io/bind-completed": "yes"}
        manifest["metadata"]["annotations"] = annotations
        manifest["spec"]["volumeName"] = volume
        self.put(manifest)

    def _deliver(self, manifest: dict[str, Any]) -> None:
        obj = decode_object(manifest)
        if isinstance(obj, Node | Pod):
            self.caches.apply(None, obj)
        elif isinstance(obj, PersistentVolumeClaim):
            self.claims.apply(obj)
        elif isinstance(obj, PersistentVolume):
            self.volumes.apply(obj)
        self.snapshot.put(obj)


def _path(manifest: dict[str, Any]) -> str:
    metadata = manifest["metadata"]
    return KINDS[manifest["kind"]].path(metadata["name"], namespace=metadata.get("namespace", ""))


def static(name: str, on: str = "n1", size: str = "10Gi") -> Any:
    return pv(name).of_class("local").capacity(size).on(on)


def wanting(name: str, size: str = "1Gi") -> Any:
    return pvc(name, "shop").of_class("local").request(size)


def user(name: str, *claims: str) -> Any:
    made = pod(name, "shop")
    for each in claims:
        made = made.claim(each)
    return made


LOCAL = storage_class("local", "kubernetes.io/no-provisioner")
CLOUD = storage_class("local", "csi.example")
NODE, OTHER = node("n1").labels({ZONE: "a"}), node("n2").labels({ZONE: "b"})


# --- existing volumes ------------------------------------------------------------------------------------------------


async def test_volume_on_the_node_is_reserved_for_the_claim_and_awaited():
    cluster = Cluster(LOCAL, NODE, OTHER, static("v1"), static("v2", "n2"), wanting("data"), user("web", "data"))
    await cluster.bind("web")
    [patch] = cluster.api.sent("PATCH")
    assert patch.path == PERSISTENT_VOLUMES.path("v1")
    assert patch.body["spec"]["claimRef"] == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": "shop",
        "name": "data",
        "uid": "persistentvolumeclaim-shop-data",
    }
    assert patch.body["metadata"]["annotations"] == {BOUND_BY_CONTROLLER: "yes"}
    assert patch.body["metadata"]["resourceVersion"] == "4"
    assert cluster.clock.monotonic() == pytest.approx(0.5)


async def test_pod_whose_claims_are_bound_needs_no_request():
    cluster = Cluster(LOCAL, NODE, static("v1"), wanting("data").bound_to("v1"), user("web", "data"), pod("plain"))
    cluster.patch("PersistentVolume", "v1", spec={"claimRef": {"namespace": "shop", "name": "data", "uid": "u"}})
    for name in ("web", "plain"):
        await cluster.bind(name)
    assert cluster.api.calls == []


async def test_volume_that_a_user_reserved_gets_the_uid_but_no_annotation():
    reserved = static("v1").claimed_by("data", "shop", uid="")
    cluster = Cluster(LOCAL, NODE, static("v0"), reserved, wanting("data"), user("web", "data"))
    await cluster.bind("web")
    [patch] = cluster.api.sent("PATCH")
    assert patch.path == PERSISTENT_VOLUMES.path("v1")
    assert "annotations" not in patch.body["metadata"]


async def test_two_pods_of_one_batch_choose_different_volumes():
    cluster = Cluster(
        LOCAL, NODE, static("v1"), static("v2"), wanting("a"), wanting("b"), user("web-a", "a"), user("web-b", "b")
    )
    await asyncio.gather(cluster.bind("web-a"), cluster.bind("web-b"))
    assert {call.path for call in cluster.api.sent("PATCH")} == {
        PERSISTENT_VOLUMES.path("v1"),
        PERSISTENT_VOLUMES.path("v2"),
    }


async def test_all_claims_of_a_pod_are_bound_the_smallest_to_the_smallest_volume():
    things = [static("small", size="2Gi"), static("large", size="9Gi"), wanting("big", "5Gi"), wanting("little", "1Gi")]
    cluster = Cluster(LOCAL, NODE, *things, user("web", "big", "little"))
    await cluster.bind("web")
    assert cluster.stored("PersistentVolume", "small")["spec"]["claimRef"]["name"] == "little"
    assert cluster.stored("PersistentVolume", "large")["spec"]["claimRef"]["name"] == "big"


async def test_unrelated_change_of_the_volume_repeats_the_write_with_the_new_version():
    cluster = Cluster(LOCAL, NODE, static("v1"), wanting("data"), user("web", "data"))
    pending, assumed = cluster.placed("web", "n1")
    cluster.patch("PersistentVolume", "v1", metadata={"labels": {"seen": "yes"}})
    await cluster.binder.bind(pending, "n1", assumed)
    assert len(cluster.api.sent("PATCH")) == 2
    assert cluster.stored("PersistentVolume", "v1")["spec"]["claimRef"]["name"] == "data"


async def test_volume_that_another_claim_has_taken_fails():
    cluster = Cluster(LOCAL, NODE, static("v1"), wanting("data"), user("web", "data"))
    pending, assumed = cluster.placed("web", "n1")
    cluster.patch("PersistentVolume", "v1", spec={"claimRef": {"namespace": "other", "name": "data", "uid": "u"}})
    with pytest.raises(VolumeBindingError, match="v1"):
        await cluster.binder.bind(pending, "n1", assumed)
    assert cluster.stored("PersistentVolume", "v1")["spec"]["claimRef"]["namespace"] == "other"


async def test_volume_that_was_deleted_and_created_again_fails():
    cluster = Cluster(LOCAL, NODE, static("v1"), wanting("data"), user("web", "data"))
    pending, assumed = cluster.placed("web", "n1")
    cluster.patch("PersistentVolume", "v1", metadata={"uid": "another"})
    with pytest.raises(VolumeBindingError):
        await cluster.binder.bind(pending, "n1", assumed)


async def test_refused_write_is_raised():
    cluster = Cluster(LOCAL, NODE, static("v1"), wanting("data"), user("web", "data"))
    cluster.api.fail(Forbidden("no", status=403), path="persistentvolumes")
    with pytest.raises(Forbidden):
        await cluster.bind("web")


# --- provisioning ----------------------------------------------------------------------------------------------------


async def test_claim_without_volume_gets_the_selected_node_and_waits_for_its_volume():
    cluster = Cluster(CLOUD, NODE, wanting("data"), user("web", "data"))
    binding = asyncio.create_task(cluster.bind("web"))
    await asyncio.sleep(30.0)
    [patch] = cluster.api.sent("PATCH")
    assert patch.path == PERSISTENT_VOLUME_CLAIMS.path("data", namespace="shop")
    assert patch.body["metadata"]["annotations"] == {SELECTED: "n1"}
    assert not binding.done()
    cluster.put(static("made").claimed_by("data", "shop").manifest())
    cluster.bound("data", "made")
    await binding
    assert cluster.clock.monotonic() == pytest.approx(30.0, abs=0.1)


async def test_removed_annotation_means_that_provisioning_failed():
    cluster = Cluster(CLOUD, NODE, wanting("data"), user("web", "data"))
    binding = asyncio.create_task(cluster.bind("web"))
    await asyncio.sleep(1.0)
    manifest = cluster.stored("PersistentVolumeClaim", "data")
    del manifest["metadata"]["annotations"]
    cluster.put(manifest)
    with pytest.raises(VolumeBindingError, match="provisioning failed"):
        await binding


async def test_version_before_the_write_does_not_count_as_failed_provisioning():
    cluster = Cluster(CLOUD, NODE, wanting("data"), user("web", "data"), lag=5.0)
    binding = asyncio.create_task(cluster.bind("web"))
    await asyncio.sleep(3.0)
    assert not binding.done()
    binding.cancel()


async def test_volume_that_does_not_suit_the_node_fails():
    cluster = Cluster(CLOUD, NODE, wanting("data"), user("web", "data"))
    binding = asyncio.create_task(cluster.bind("web"))
    await asyncio.sleep(1.0)
    cluster.put(static("made", on="n2").claimed_by("data", "shop").manifest())
    cluster.bound("data", "made")
    with pytest.raises(VolumeBindingError, match="affinity"):
        await binding


async def test_claim_for_which_another_node_was_selected_meanwhile_fails():
    cluster = Cluster(CLOUD, NODE, wanting("data"), user("web", "data"))
    pending, assumed = cluster.placed("web", "n1")
    cluster.patch("PersistentVolumeClaim", "data", metadata={"annotations": {SELECTED: "n2"}})
    with pytest.raises(VolumeBindingError, match="another component"):
        await cluster.binder.bind(pending, "n1", assumed)


async def test_unrelated_change_of_the_claim_repeats_the_write():
    cluster = Cluster(CLOUD, NODE, wanting("data"), user("web", "data"))
    pending, assumed = cluster.placed("web", "n1")
    cluster.patch("PersistentVolumeClaim", "data", metadata={"finalizers": ["kubernetes.io/pvc-protection"]})
    binding = asyncio.create_task(cluster.binder.bind(pending, "n1", assumed))
    await asyncio.sleep(1.0)
    assert cluster.stored("PersistentVolumeClaim", "data")["metadata"]["annotations"][SELECTED] == "n1"
    binding.cancel()


async def test_claim_with_selected_node_is_awaited_after_a_restart():
    cluster = Cluster(CLOUD, NODE, wanting("data").selected_node("n1"), user("web", "data"))
    binding = asyncio.create_task(cluster.bind("web"))
    await asyncio.sleep(10.0)
    assert not binding.done()
    cluster.put(static("made").claimed_by("data", "shop").manifest())
    cluster.bound("data", "made")
    await binding


async def test_claims_that_are_never_bound_time_out():
    cluster = Cluster(CLOUD, NODE, wanting("data"), user("web", "data"))
    with pytest.raises(VolumeBindingError, match="timed out"):
        await cluster.bind("web")
    assert cluster.clock.monotonic() == pytest.approx(BIND_TIMEOUT, abs=1.0)


@pytest.mark.parametrize("kind", [LOCAL, CLOUD], ids=["existing", "provisioned"])
async def test_writes_that_always_conflict_are_given_up(kind: Any):
    cluster = Cluster(kind, NODE, *([static("v1")] if kind is LOCAL else []), wanting("data"), user("web", "data"))
    for _ in range(WRITE_ATTEMPTS + 1):
        cluster.api.fail(Conflict("modified", status=409), method="PATCH")
    with pytest.raises(Conflict):
        await cluster.bind("web")
    assert len(cluster.api.sent("PATCH")) == WRITE_ATTEMPTS


@pytest.mark.parametrize("metadata", [{"uid": "another"}, {"deletionTimestamp": "2026-11-22T00:00:00Z"}])
async def test_claim_that_was_deleted_meanwhile_gets_no_node(metadata: dict[str, str]):
    cluster = Cluster(CLOUD, NODE, wanting("data"), user("web", "data"))
    pending, assumed = cluster.placed("web", "n1")
    cluster.patch("PersistentVolumeClaim", "data", metadata=metadata)
    with pytest.raises(VolumeBindingError, match="was deleted"):
        await cluster.binder.bind(pending, "n1", assumed)
    assert SELECTED not in cluster.stored("PersistentVolumeClaim", "data")["metadata"].get("annotations", {})


async def test_claim_that_another_component_bound_meanwhile_gets_no_node():
    cluster = Cluster(CLOUD, NODE, wanting("data"), user("web", "data"))
    pending, assumed = cluster.placed("web", "n1")
    cluster.patch("PersistentVolumeClaim", "data", spec={"volumeName": "v9"})
    with pytest.raises(VolumeBindingError, match="another component"):
        await cluster.binder.bind(pending, "n1", assumed)


async def test_node_that_is_selected_already_is_not_written_again():
    cluster = Cluster(CLOUD, NODE, wanting("data"), user("web", "data"))
    pending, assumed = cluster.placed("web", "n1")
    cluster.patch("PersistentVolumeClaim", "data", metadata={"annotations": {SELECTED: "n1"}})
    binding = asyncio.create_task(cluster.binder.bind(pending, "n1", assumed))
    await asyncio.sleep(1.0)
    assert not binding.done()
    assert len(cluster.api.sent("PATCH")) == 1, "the refused one"
    cluster.bound("data", "made")
    await asyncio.sleep(1.0)
    assert not binding.done(), "the cache does not contain the volume yet"
    cluster.put(static("made").claimed_by("data", "shop").manifest())
    await asyncio.sleep(2.0)
    assert binding.done()
    await binding


async def test_volume_that_is_reserved_for_the_claim_already_is_not_written_again():
    cluster = Cluster(LOCAL, NODE, static("v1"), wanting("data"), user("web", "data"))
    pending, assumed = cluster.placed("web", "n1")
    uid = cluster.stored("PersistentVolumeClaim", "data")["metadata"]["uid"]
    cluster.patch("PersistentVolume", "v1", spec={"claimRef": {"namespace": "shop", "name": "data", "uid": uid}})
    asyncio.get_running_loop().call_later(3.0, cluster.bound, "data", "v1")
    await cluster.binder.bind(pending, "n1", assumed)
    assert len(cluster.api.sent("PATCH")) == 1, "the refused one"
    assert 3.0 <= cluster.clock.monotonic() < 5.0


# --- pods that share a claim -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [LOCAL, CLOUD], ids=["existing", "provisioned"])
async def test_pods_that_share_a_claim_write_it_once_and_both_wait(kind: Any):
    cluster = Cluster(kind, NODE, *([static("v1")] if kind is LOCAL else []), wanting("data"))
    for name in ("web-1", "web-2"):
        cluster.put(user(name, "data").manifest())
    both = asyncio.gather(cluster.bind("web-1"), cluster.bind("web-2"))
    await asyncio.sleep(0.2)
    assert not both.done()
    if kind is CLOUD:
        cluster.put(static("v1").claimed_by("data", "shop").manifest())
        cluster.bound("data", "v1")
    await both
    assert len(cluster.api.sent("PATCH")) == 1


async def test_pod_that_shares_a_claim_fails_with_the_pod_that_writes_it():
    cluster = Cluster(LOCAL, NODE, static("v1"), wanting("data"), user("web-1", "data"), user("web-2", "data"))
    cluster.api.fail(Forbidden("no", status=403), path="persistentvolumes")
    results = await asyncio.gather(cluster.bind("web-1"), cluster.bind("web-2"), return_exceptions=True)
    assert [type(each) for each in results] == [Forbidden, VolumeBindingError]
    assert cluster.clock.monotonic() < 10.0


# --- what ends the wait ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name"),
    [("Pod", "web"), ("Node", "n1"), ("PersistentVolume", "v1"), ("PersistentVolumeClaim", "data")],
)
async def test_deleted_object_ends_the_wait(kind: str, name: str):
    cluster = Cluster(LOCAL, NODE, static("v1"), wanting("data"), user("web", "data"), controller=False)
    binding = asyncio.create_task(cluster.bind("web"))
    await asyncio.sleep(1.0)
    cluster.remove(kind, name)
    with pytest.raises(VolumeBindingError):
        await binding
    assert cluster.clock.monotonic() < 5.0


async def test_reset_reservation_ends_the_wait():
    cluster = Cluster(LOCAL, NODE, static("v1"), wanting("data"), user("web", "data"), controller=False)
    binding = asyncio.create_task(cluster.bind("web"))
    await asyncio.sleep(1.0)
    manifest = cluster.stored("PersistentVolume", "v1")
    del manifest["spec"]["claimRef"]
    cluster.put(manifest)
    with pytest.raises(VolumeBindingError, match="reset"):
        await binding


async def test_cancelled_binding_leaves_no_state_behind():
    cluster = Cluster(LOCAL, NODE, static("v1"), wanting("data"), user("web", "data"), controller=False)
    binding = asyncio.create_task(cluster.bind("web"))
    await asyncio.sleep(1.0)
    binding.cancel()
    await asyncio.gather(binding, return_exceptions=True)
    assert not cluster.binder._waiting
    assert not cluster.binder._announced_claims
