"""Pods that are being bound: what the snapshot counts until the watch has decided."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import node, pod
from trimtab.cluster.assumed_pods import Assumption, ReservedObject
from trimtab.cluster.shared_snapshot import SharedSnapshot
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import PersistentVolume, Pod

NODES = ("a", "b")
PODS = ("p0", "p1", "p2")


class Watched:
    """A shared snapshot with the pods as the watch last delivered them."""

    def __init__(self) -> None:
        self.shared = SharedSnapshot()
        self.seen: dict[str, Pod] = {}
        self.assumed: dict[str, Assumption] = {}
        for name in NODES:
            self.shared.apply(None, node(name).build())

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


OPERATION = st.tuples(st.sampled_from(("pend", "bind", "delete", "assume", "forget")), st.sampled_from(PODS))


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
    assert {key: each.node for key, each in watched.snapshot.pods.items()} == expected
    built: list[Any] = [node(name).build() for name in NODES]
    fresh = Snapshot([*built, *(replace(watched.seen[key], node=on) for key, on in expected.items())])
    assert np.array_equal(watched.snapshot.nodes.requested, fresh.nodes.requested)
