"""Own writes: what the snapshot shows of bindings, evictions and changes until the watch has caught up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import machine_set, node, pod
from tests.fakes.api import FakeApi
from tests.fakes.clock import START, SetClock
from trimtab.cluster.kinds import SNAPSHOT_KINDS
from trimtab.cluster.own_writes import EXPIRY, Assumption, OwnWrite, RecordingApi, ReservedObject
from trimtab.cluster.shared_snapshot import SharedSnapshot
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.api import NotFound, TooManyRequests
from trimtab.kube.objects import KubeObject, MachineSet, Node, PersistentVolume, Pod

NODES = ("a", "b")
PODS = ("p0", "p1", "p2")


class Watched:
    """A shared snapshot with the pods as the watch last delivered them."""

    def __init__(self) -> None:
        self.clock = SetClock()
        self.shared = SharedSnapshot(SNAPSHOT_KINDS, clock=self.clock)
        self.seen: dict[str, Pod] = {}
        self.assumed: dict[str, Assumption] = {}
        for name in NODES:
            self.shared.apply(None, node(name).merge(metadata={"resourceVersion": "10"}).build())

    @property
    def snapshot(self) -> Snapshot:
        return self.shared._snapshot

    def deliver(self, new: Pod) -> None:
        self.shared.apply(self.seen.get(new.key), new)
        self.seen[new.key] = new

    def delete(self, key: str) -> None:
        self.shared.apply(self.seen.pop(key), None)

    def assume(self, key: str, on: str, *reserved: ReservedObject) -> Assumption:
        pending = self.seen[key]
        for each in reserved:
            self.snapshot.put(each.new)
        assumption = Assumption(pending, self.snapshot.move(pending, on), reserved)
        self.shared.assume(assumption)
        return assumption

    def end(self, key: str) -> None:
        """Evict or delete a pod."""
        now = self.clock.now()
        self.shared.record(OwnWrite.of_ended_pod(key, self.seen[key].uid, now=now, at=now))

    def change(self, changed: KubeObject) -> None:
        """Change an object; the API server has returned it."""
        self.shared.record(OwnWrite.of_changed_object(changed, at=self.clock.monotonic()))

    def node_of(self, key: str) -> str:
        return self.snapshot.pods[key].node


@pytest.fixture
def watched() -> Watched:
    found = Watched()
    found.deliver(pod("p0").build())
    return found


def test_pending_update_keeps_the_pod_on_its_node_and_forgetting_returns_the_update(watched: Watched) -> None:
    assumption = watched.assume("shop/p0", "a")
    watched.deliver(replace(watched.seen["shop/p0"], resource_version="7"))
    assert (watched.node_of("shop/p0"), watched.snapshot.pods["shop/p0"].resource_version) == ("a", "7")
    watched.shared.forget(assumption)
    assert (watched.node_of("shop/p0"), watched.snapshot.pods["shop/p0"].resource_version) == ("", "7")


@pytest.mark.parametrize("on", NODES)
def test_watch_decides_where_the_pod_is(watched: Watched, on: str) -> None:
    assumption = watched.assume("shop/p0", "a")
    watched.deliver(replace(watched.seen["shop/p0"], node=on))
    watched.shared.forget(assumption)
    assert watched.node_of("shop/p0") == on


def test_deleted_pod_leaves_and_its_successor_is_not_assumed(watched: Watched) -> None:
    assumption = watched.assume("shop/p0", "a")
    watched.delete("shop/p0")
    assert "shop/p0" not in watched.snapshot.pods
    watched.deliver(pod("p0").merge(metadata={"uid": "another"}).build())
    watched.shared.forget(assumption)
    assert watched.node_of("shop/p0") == ""


async def test_forgetting_waits_for_the_planner_that_has_the_snapshot(watched: Watched) -> None:
    assumption = watched.assume("shop/p0", "a")
    async with watched.shared.borrow():
        watched.shared.forget(assumption)
        watched.deliver(replace(watched.seen["shop/p0"], resource_version="7"))
        assert watched.node_of("shop/p0") == "a"
    assert (watched.node_of("shop/p0"), watched.snapshot.pods["shop/p0"].resource_version) == ("", "7")


@pytest.mark.parametrize("ending", ["forgotten", "deleted", "elsewhere", "bound", "replaced"])
def test_reserved_volume_is_released_unless_the_pod_or_the_watch_has_it(watched: Watched, ending: str) -> None:
    free = PersistentVolume(name="pv", uid="pv")
    taken = replace(free, claim="shop/data", claim_uid="c")
    watched.shared.apply(None, free)
    assumption = watched.assume("shop/p0", "a", ReservedObject(free, taken))
    expected = free
    if ending == "forgotten":
        watched.shared.forget(assumption)
    elif ending == "deleted":
        watched.delete("shop/p0")
    elif ending == "elsewhere":
        watched.deliver(replace(watched.seen["shop/p0"], node="b"))
    elif ending == "bound":
        watched.deliver(replace(watched.seen["shop/p0"], node="a"))
        expected = taken
    else:
        expected = replace(taken, resource_version="9")
        watched.shared.apply(free, expected)
        watched.shared.forget(assumption)
    assert watched.snapshot.objects.of(PersistentVolume)["pv"] is expected


class TestEndedPods:
    def test_pod_is_terminating_until_the_watch_shows_it(self, watched: Watched) -> None:
        watched.end("shop/p0")
        assert watched.snapshot.pods["shop/p0"].deleted == START + 30
        watched.deliver(replace(watched.seen["shop/p0"], resource_version="7"))  # the condition DisruptionTarget
        assert watched.snapshot.pods["shop/p0"].resource_version == "7"
        assert watched.snapshot.pods["shop/p0"].deleted == START + 30
        watched.deliver(replace(watched.seen["shop/p0"], resource_version="8", deleted=START + 5))
        assert watched.snapshot.pods["shop/p0"].deleted == START + 5

    def test_pod_that_is_gone_is_gone(self, watched: Watched) -> None:
        watched.end("shop/p0")
        watched.delete("shop/p0")
        watched.deliver(pod("p0").merge(metadata={"uid": "another"}).build())
        assert watched.snapshot.pods["shop/p0"].deleted is None

    def test_another_pod_of_the_name_is_not_terminating(self, watched: Watched) -> None:
        watched.shared.record(OwnWrite.of_ended_pod("shop/p0", "another", now=START, at=START))
        watched.shared.record(OwnWrite.of_ended_pod("shop/none", "u", now=START, at=START))
        assert watched.snapshot.pods["shop/p0"] is watched.seen["shop/p0"]

    async def test_write_that_no_watch_reports_expires(self, watched: Watched) -> None:
        watched.end("shop/p0")
        watched.clock.time += EXPIRY - 1
        async with watched.shared.borrow() as snapshot:
            assert snapshot.pods["shop/p0"].deleted is not None
        watched.clock.time += 1
        async with watched.shared.borrow() as snapshot:
            assert snapshot.pods["shop/p0"] is watched.seen["shop/p0"]

    async def test_planner_sees_no_write_that_is_made_while_it_plans(self, watched: Watched) -> None:
        async with watched.shared.borrow() as snapshot:
            watched.end("shop/p0")
            assert snapshot.pods["shop/p0"].deleted is None
        assert watched.snapshot.pods["shop/p0"].deleted is not None


class TestChangedObjects:
    def tainted(self, version: str, *taints: str) -> Node:
        made = node("a").merge(metadata={"resourceVersion": version})
        for each in taints:
            made = made.taint(each)
        return made.build()

    def taints(self, watched: Watched) -> list[str]:
        found = watched.snapshot.nodes.get("a")
        assert found is not None
        return [each.key for each in found.taints]

    def test_node_is_tainted_until_the_watch_has_caught_up(self, watched: Watched) -> None:
        watched.change(self.tainted("20", "ours"))
        assert self.taints(watched) == ["ours"]
        watched.shared.apply(None, self.tainted("15", "theirs"))  # a change before ours, which contains it
        assert self.taints(watched) == ["ours"]
        watched.shared.apply(None, self.tainted("20", "ours"))
        watched.shared.apply(None, self.tainted("21"))
        assert self.taints(watched) == []

    def test_responses_may_arrive_in_any_order(self, watched: Watched) -> None:
        watched.change(self.tainted("20", "first", "second"))
        watched.change(self.tainted("19", "first"))
        watched.shared.apply(None, self.tainted("18"))
        assert self.taints(watched) == ["first", "second"]

    def test_later_change_of_the_watch_is_kept(self, watched: Watched) -> None:
        watched.shared.apply(None, self.tainted("30", "later"))
        watched.change(self.tainted("20", "ours"))
        assert self.taints(watched) == ["later"]

    async def test_expired_change_returns_to_what_the_watch_reported_last(self, watched: Watched) -> None:
        watched.change(self.tainted("20", "ours"))
        watched.change(self.tainted("21", "ours", "more"))
        watched.shared.apply(None, self.tainted("15", "theirs"))
        watched.clock.time += EXPIRY
        async with watched.shared.borrow():
            assert self.taints(watched) == ["theirs"]

    def test_size_is_shown_at_once(self, watched: Watched) -> None:
        group = machine_set("workers").replicas(3).merge(metadata={"resourceVersion": "10"}).build()
        watched.shared.apply(None, group)
        metadata = {"namespace": group.namespace, "name": "workers", "uid": group.uid, "resourceVersion": "11"}
        scale = {"kind": "Scale", "metadata": metadata, "spec": {"replicas": 5}}
        watched.shared.record(OwnWrite.of_size(MachineSet, scale, at=START))
        assert watched.snapshot.objects.of(MachineSet)[group.key].replicas == 5
        watched.shared.apply(group, replace(group, resource_version="12", replicas=4))
        assert watched.snapshot.objects.of(MachineSet)[group.key].replicas == 4

    def test_kind_that_is_not_watched_is_not_stored(self) -> None:
        shared = SharedSnapshot(())
        shared.record(OwnWrite.of_changed_object(node("a").build(), at=START))
        assert not shared._own_writes


POD = "/api/v1/namespaces/shop/pods/p0"
POLICY = "/apis/trimtab.dev/v1alpha1/deschedulerpolicies/p/status"
EVICTION = {"metadata": {"name": "p0", "namespace": "shop"}, "deleteOptions": {"preconditions": {"uid": "u0"}}}
SCALE = {
    "kind": "Scale",
    "metadata": {"name": "a", "namespace": "machines", "uid": "u1", "resourceVersion": "9"},
    "spec": {"replicas": 2},
}
NODE = node("a").manifest()


class Answering(FakeApi):
    """Answers each request with what the test gives."""

    answer: Any = None

    def _answer(self, call: Any) -> Any:
        del call
        return self.answer


class TestRecordingApi:
    @pytest.mark.parametrize(
        ("method", "path", "body", "answer", "recorded"),
        [
            ("POST", f"{POD}/eviction", EVICTION, {"kind": "Status"}, (Pod, "shop/p0", "u0")),
            (
                "DELETE",
                "/api/v1/namespaces/shop/pods/p0",
                {"preconditions": {"uid": "u0"}},
                b"",
                (Pod, "shop/p0", "u0"),
            ),
            ("PATCH", "/api/v1/nodes/a", [], NODE, (Node, "a", NODE["metadata"]["uid"])),
            ("PATCH", "/api/v1/nodes/a/status", {}, NODE, (Node, "a", NODE["metadata"]["uid"])),
            (
                "PATCH",
                "/apis/machine.openshift.io/v1beta1/namespaces/machines/machinesets/a/scale",
                [],
                SCALE,
                (MachineSet, "machines/a", "u1"),
            ),
            ("DELETE", POD, None, {}, None),
            ("PATCH", "/api/v1/nodes/a", [], b"metadata only", None),
            ("PATCH", "/api/v1/nodes/a", [], {**NODE, "spec": {"taints": 5}}, None),
            ("PATCH", "/apis/apps/v1/namespaces/shop/deployments/web/scale", [], SCALE, None),
            (
                "PATCH",
                "/apis/trimtab.dev/v1alpha1/deschedulerpolicies/p/status",
                {},
                {"kind": "DeschedulerPolicy"},
                None,
            ),
            ("POST", "/apis/events.k8s.io/v1/namespaces/shop/events", {}, {"kind": "Event"}, None),
            ("POST", "/api/v1/nodes", {}, NODE, None),
            ("GET", "/api/v1/nodes/a", None, NODE, None),
        ],
        ids=[
            "eviction",
            "deletion",
            "node",
            "node status",
            "size",
            "any pod of the name",
            "no object",
            "undecodable",
            "no node group",
            "custom resource",
            "event",
            "created",
            "read",
        ],
    )
    async def test_granted_writes_are_recorded(
        self, method: str, path: str, body: Any, answer: Any, recorded: tuple[type, str, str] | None
    ) -> None:
        server, found = Answering(), []
        server.answer = answer
        api = RecordingApi(server, found.append, SetClock())
        assert await api.request(method, path, body=body) == answer
        assert [(each.kind, each.key, each.uid) for each in found] == ([recorded] if recorded else [])

    @pytest.mark.parametrize("error", [TooManyRequests("budget", status=429), NotFound("gone", status=404)])
    async def test_refused_write_is_not_recorded(self, error: Exception) -> None:
        server, found = FakeApi(), []
        server.fail(error)
        api = RecordingApi(server, found.append, SetClock())
        with pytest.raises(type(error)):
            await api.request("POST", "/api/v1/namespaces/shop/pods/p0/eviction", body=EVICTION)
        assert found == []

    async def test_streams_are_passed_on(self) -> None:
        server = FakeApi(chunks={"/api/v1/pods": [b"a", b"b"]})
        async with RecordingApi(server, [].append, SetClock()).stream("/api/v1/pods") as chunks:
            assert [chunk async for chunk in chunks] == [b"a", b"b"]


OPERATION = st.tuples(st.sampled_from(("pend", "bind", "delete", "assume", "forget", "end")), st.sampled_from(PODS))


@given(st.lists(st.tuples(OPERATION, st.sampled_from(NODES)), max_size=30))
def test_counts_equal_those_of_a_new_snapshot(steps: list[tuple[tuple[str, str], str]]) -> None:
    watched = Watched()
    expected: dict[str, str] = {}
    for number, ((what, name), on) in enumerate(steps):
        key = f"shop/{name}"
        there = watched.seen.get(key)
        if what == "pend" and (there is None or not there.node):
            watched.deliver(replace(there or pod(name).cpu("1").build(), resource_version=str(number)))
            expected.setdefault(key, "")
        elif what == "bind" and there is not None and not there.node:
            watched.deliver(replace(there, node=on))
            expected[key] = on
        elif what == "delete" and there is not None:
            watched.delete(key)
            del expected[key]
        elif what == "assume" and there is not None and not expected[key]:
            watched.assumed[key] = watched.assume(key, on)
            expected[key] = on
        elif what == "forget" and key in watched.assumed:
            assumption = watched.assumed.pop(key)
            watched.shared.forget(assumption)
            if there is not None and there.uid == assumption.pending.uid:
                expected[key] = there.node
        elif what == "end" and there is not None:
            watched.end(key)
    assert {key: each.node for key, each in watched.snapshot.pods.items()} == expected
    built: list[Any] = [node(name).build() for name in NODES]
    fresh = Snapshot([*built, *(replace(watched.seen[key], node=on) for key, on in expected.items())])
    assert np.array_equal(watched.snapshot.nodes.requested, fresh.nodes.requested)
