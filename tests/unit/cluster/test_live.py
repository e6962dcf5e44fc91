"""The live picture: changes wait while somebody has it, and none is lost."""

from __future__ import annotations

import asyncio

import pytest

from tests.builders import HOSTNAME, node, pod, pv, service
from trimtab.cluster.kinds import KINDS
from trimtab.cluster.live import AT_ONCE, LiveCluster
from trimtab.cluster.terms import terms_of


def with_nodes(*names: str) -> LiveCluster:
    live = LiveCluster()
    for name in names:
        live.apply(None, node(name).build())
    return live


async def test_what_arrives_while_it_is_borrowed_waits_in_order() -> None:
    live = with_nodes("n1")
    first, second = pod("web").on("n1").build(), pod("web").on("n1").phase("Running").build()
    async with live.borrow() as snapshot:
        live.apply(None, first)
        live.apply(first, second)
        assert not snapshot.pods
    assert live.pod("shop/web") is second


async def test_what_goes_while_it_is_borrowed_is_gone_afterwards() -> None:
    live = with_nodes("n1")
    there = pod("web").on("n1").build()
    live.apply(None, there)
    async with live.borrow() as snapshot:
        live.apply(there, None)
        assert snapshot.pods
    assert live.pod("shop/web") is None
    assert live.sizes["pods"] == 0


async def test_very_many_changes_are_taken_in_with_room_for_others_in_between() -> None:
    live = with_nodes("n1")
    seen: list[int] = []

    async def look_on() -> None:
        while not seen or seen[-1] < 2 * AT_ONCE + 6:
            seen.append(live.sizes["pods"])
            await asyncio.sleep(0)

    async with live.borrow():
        looking = asyncio.create_task(look_on())
        for number in range(2 * AT_ONCE + 5):
            live.apply(None, pod(f"web-{number}").on("n1").build())
        asyncio.get_running_loop().call_soon(live.apply, None, pod("late").on("n1").build())
    assert live.sizes["pods"] == 2 * AT_ONCE + 6  # what comes meanwhile waits in line as well
    await looking
    assert AT_ONCE in seen


async def test_who_is_cancelled_while_changes_are_taken_in_leaves_none_behind() -> None:
    live = with_nodes("n1")

    async def borrow() -> None:
        async with live.borrow():
            for number in range(3 * AT_ONCE):
                live.apply(None, pod(f"web-{number}").on("n1").build())

    borrowing = asyncio.create_task(borrow())
    await asyncio.sleep(0)
    assert 0 < live.sizes["pods"] < 3 * AT_ONCE
    borrowing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await borrowing
    assert live.sizes["pods"] == 3 * AT_ONCE


def test_it_tells_how_many_objects_of_each_kind_it_holds() -> None:
    live = with_nodes("n1", "n2")
    for each in (pod("a").build(), pv("v").build(), service("s").build()):
        live.apply(None, each)
    sizes = live.sizes
    assert set(sizes) == {resource.plural for resource in KINDS}
    assert {name: number for name, number in sizes.items() if number} == {
        "nodes": 2,
        "pods": 1,
        "persistentvolumes": 1,
        "services": 1,
    }


async def test_nobody_asks_it_anything_while_a_planner_tries_things_out() -> None:
    live = with_nodes("n1")
    async with live.borrow():
        with pytest.raises(RuntimeError, match="borrowed"):
            live.examine(lambda snapshot: len(snapshot.nodes))
    assert live.examine(lambda snapshot: len(snapshot.nodes)) == 1


async def test_a_planner_that_fails_gives_it_back_all_the_same() -> None:
    live = with_nodes("n1")

    async def fail() -> None:
        async with live.borrow():
            live.apply(None, node("n2").build())
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        await fail()
    assert live.sizes["nodes"] == 2


def test_templates_that_are_gone_do_not_pile_up() -> None:
    from trimtab.cluster import affinity, tally
    from trimtab.cluster.snapshot import Snapshot

    snapshot = Snapshot([node("n1").allocatable(cpu="4", memory="8Gi", pods=110).build()])
    limit = 50
    originals = tally._MOST_SPECS, affinity._SPARE
    tally._MOST_SPECS = affinity._SPARE = limit
    try:
        for number in range(3 * limit):
            passing = pod("web").on("n1").labels(version=str(number)).cpu(f"{number + 1}m").build()
            snapshot.put(passing)
            with snapshot.fork():
                assert snapshot.affinity.pod_class("shop", passing.labels)
        assert len(snapshot._tally._amounts) <= limit + 3
        assert snapshot._tally._affinity is not None
        assert max(len(snapshot._tally._affinity._classes), len(snapshot._tally._affinity._terms_of)) <= limit + 3
    finally:
        tally._MOST_SPECS, affinity._SPARE = originals


def test_labels_and_taints_of_nodes_that_are_gone_do_not_pile_up() -> None:
    from trimtab.cluster import nodes
    from trimtab.cluster.snapshot import Snapshot

    limit, original = 20, nodes._SPARE
    nodes._SPARE = limit
    try:
        snapshot = Snapshot([node("stays").taint("old").build(), pod("web").on("stays").labels(app="web").build()])
        table = snapshot.nodes
        term = terms_of(pod("web").labels(app="web").anti_affinity().build()).anti
        for number in range(3 * limit):
            passing = node(f"n{number}").taint("leaving", str(number)).build()
            snapshot.put(passing)
            with snapshot.fork():
                assert snapshot.affinity.matching(term, HOSTNAME).at(table.slot_of["stays"]) == 1
                assert [taint.key for taint in table.taint_sets[table.taints[table.slot_of["stays"]]]] == ["old"]
            snapshot.remove(passing)
        assert len(table.taint_sets) <= limit + 3
        assert len(table.column(HOSTNAME).values) <= limit + 3
    finally:
        nodes._SPARE = original
