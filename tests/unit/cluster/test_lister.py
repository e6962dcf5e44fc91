"""The lister: what the stores have at every moment, whatever a planner tries meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import node, pod
from tests.fakes.caches import Caches
from trimtab.cluster.shared_snapshot import in_thread
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.workloads.owners import OwnerKey, owner_key
from trimtab.kube.objects import NODE_LEASES, Lease, Node, OwnerReference, Pod
from trimtab.placement.placer import Placer

OWNER = OwnerKey("shop", "ReplicaSet", "web")


def a_cluster() -> tuple[Caches, Pod]:
    caches = Caches()
    for name in ("n1", "n2"):
        caches.apply(None, node(name).allocatable(cpu="4", memory="8Gi", pods=110).build())
    web = pod("web-1").on("n1").owned_by("ReplicaSet", "web").phase("Running").build()
    caches.apply(None, web)
    return caches, web


def test_objects_are_found_by_name_node_and_owner() -> None:
    caches, web = a_cluster()
    pending = pod("web-0").owned_by("ReplicaSet", "web").build()
    lease = Lease(namespace=NODE_LEASES, name="n1")
    for each in (pending, lease):
        caches.apply(None, each)
    lister = caches.lister
    assert lister.pod("shop/web-1") is web
    assert (lister.pods_on("n1"), lister.pods_on("n2")) == ([web], [])
    assert lister.owned_by(OWNER) == [pending, web]
    assert list(lister.items()) == [("shop/web-1", web), ("shop/web-0", pending)]
    assert (lister.lease("n1"), lister.lease("n2")) == (lease, None)
    assert [each and each.name for each in (lister.node("n1"), lister.node("n3"))] == ["n1", None]


async def test_tentative_changes_of_a_planner_are_invisible() -> None:
    caches, web = a_cluster()
    lister = caches.lister
    async with caches.shared.borrow() as snapshot:
        with snapshot.fork():
            Placer(snapshot).reserve(snapshot.pods["shop/web-1"], snapshot.nodes.slot_of["n2"])
            snapshot.remove(snapshot.nodes.node(snapshot.nodes.slot_of["n1"]))
            assert snapshot.pods["shop/web-1"].node == "n2"
            assert lister.pod("shop/web-1") is web
            assert (lister.pods_on("n1"), lister.pods_on("n2"), lister.owned_by(OWNER)) == ([web], [], [web])
            assert lister.node("n1") is not None


async def test_changes_are_visible_while_a_planner_runs_in_a_thread() -> None:
    caches, web = a_cluster()
    lister = caches.lister
    loop, tried, go = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def plan(snapshot: Snapshot) -> None:
        with snapshot.fork():
            snapshot.move(snapshot.pods["shop/web-1"], "n2")
            loop.call_soon_threadsafe(tried.set)
            assert go.wait(10)

    async def planner() -> None:
        async with caches.shared.borrow() as snapshot:
            await in_thread(lambda: plan(snapshot))

    planning = asyncio.create_task(planner())
    await tried.wait()
    assert lister.pod("shop/web-1") is web
    going = replace(web, deleted=1.0)
    caches.apply(web, going)
    assert (lister.pod("shop/web-1"), lister.pods_on("n1"), lister.owned_by(OWNER)) == (going, [going], [going])
    caches.apply(going, None)
    assert (lister.pod("shop/web-1"), lister.pods_on("n1"), lister.owned_by(OWNER)) == (None, [], [])
    go.set()
    await planning
    assert caches.shared.sizes["pods"] == 0


def test_listeners_read_the_change_they_are_called_for() -> None:
    caches, observed = Caches(), []

    class Reader:
        def node_changed(self, _old: Node | None, new: Node | None) -> None:
            observed.append(new is not None and caches.lister.node(new.name) is new)

        def lease_changed(self, _old: Lease | None, new: Lease | None) -> None:
            observed.append(new is not None and caches.lister.lease(new.name) is new)

        def pod_changed(self, _old: Pod | None, new: Pod | None) -> None:
            expected = [] if new is None else [new]
            observed.append(caches.lister.pods_on("n1") == caches.lister.owned_by(OWNER) == expected)

    end = caches.lister.subscribe(Reader())
    web = pod("web-1").on("n1").owned_by("ReplicaSet", "web").build()
    caches.apply(None, node("n1").build())
    caches.apply(None, Lease(namespace=NODE_LEASES, name="n1"))
    caches.apply(None, web)
    caches.apply(web, replace(web, deleted=1.0))
    caches.apply(web, None)
    assert observed == [True] * 5
    end()
    caches.apply(None, web)
    assert len(observed) == 5


def a_pod(name: str, on: str, owner: str, uid: int, controls: bool, version: int) -> Pod:
    owners = (OwnerReference(kind="ReplicaSet", name=owner, uid=owner, controller=controls),) if owner else ()
    return Pod(
        namespace="shop", name=name, uid=f"{name}-{uid}", node=on, owners=owners, resource_version=str(version or "")
    )


pods = st.builds(
    a_pod,
    name=st.sampled_from(["p1", "p2", "p3", "p4"]),
    on=st.sampled_from(["", "n1", "n2"]),
    owner=st.sampled_from(["", "a", "b"]),
    uid=st.integers(0, 1),
    controls=st.booleans(),
    version=st.integers(0, 3),
)
changes = st.one_of(
    st.tuples(st.just("apply"), st.lists(pods, min_size=1, max_size=1)),
    st.tuples(st.just("remove"), st.lists(pods, min_size=1, max_size=1)),
    st.tuples(st.just("relist"), st.lists(pods, max_size=4)),
)


@given(st.lists(changes, max_size=30), st.integers(0, 10))
def test_lister_equals_a_scan_of_the_store_after_random_changes(
    steps: list[tuple[str, list[Pod]]], unread: int
) -> None:
    caches = Caches()
    for step, (kind, what) in enumerate(steps):
        if kind == "relist":
            caches.pods.replace(what)
        elif kind == "apply":
            caches.pods.apply(what[0])
        else:
            caches.pods.remove(what[0].key)
        if step >= unread:
            equals_a_search(caches)


def equals_a_search(caches: Caches) -> None:
    there = sorted(caches.pods, key=lambda each: each.key)
    on, of = defaultdict[str, list[Pod]](list), defaultdict[OwnerKey | None, list[Pod]](list)
    for each in there:
        on[each.node].append(each)
        of[owner_key(each)].append(each)
    lister = caches.lister
    for name in ("n1", "n2", "n3"):
        assert lister.pods_on(name) == on[name]
        assert dict(lister.items_on(name)) == {each.key: each for each in on[name]}
    for owner in ("a", "b", "c"):
        key = OwnerKey("shop", "ReplicaSet", owner, owner)
        assert lister.owned_by(key) == of[key]
    assert all(lister.pod(each.key) is each for each in there)
    assert sorted(lister.items()) == [(each.key, each) for each in there]
    assert len(lister._by_node) == len({each.node for each in there if each.node})
    assert len(lister._by_owner) == len({owner_key(each) for each in there} - {None})
