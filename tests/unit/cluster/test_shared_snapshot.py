"""The shared snapshot: changes wait while it is borrowed, none is lost, and borrowers are served in order."""

from __future__ import annotations

import asyncio
import threading
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import HOSTNAME, node, pod, pv, service
from trimtab.cluster.affinity import terms_of
from trimtab.cluster.kinds import KINDS
from trimtab.cluster.shared_snapshot import SharedSnapshot, free, in_thread
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import KubeObject


def with_nodes(*names: str) -> SharedSnapshot:
    shared = SharedSnapshot()
    for name in names:
        shared.apply(None, node(name).build())
    return shared


async def test_changes_are_queued_in_order_while_borrowed() -> None:
    shared = with_nodes("n1")
    first, second = pod("web").on("n1").build(), pod("web").on("n1").phase("Running").build()
    async with shared.borrow() as snapshot:
        shared.apply(None, first)
        shared.apply(first, second)
        assert not snapshot.pods
    async with shared.borrow() as snapshot:
        assert snapshot.pods["shop/web"] is second


async def test_removals_while_borrowed_are_applied_afterwards() -> None:
    shared = with_nodes("n1")
    there = pod("web").on("n1").build()
    shared.apply(None, there)
    async with shared.borrow() as snapshot:
        shared.apply(there, None)
        assert snapshot.pods
    assert shared.sizes["pods"] == 0


MANY = 5_000
"""Changes that take several slices of the loop's time."""


async def test_applying_many_queued_changes_yields_to_the_event_loop() -> None:
    shared = with_nodes("n1")
    observed: list[int] = []

    async def look_on() -> None:
        while not observed or observed[-1] < MANY + 1:
            observed.append(shared.sizes["pods"])
            await asyncio.sleep(0)

    async with shared.borrow():
        looking = asyncio.create_task(look_on())
        for number in range(MANY):
            shared.apply(None, pod(f"web-{number}").on("n1").build())
        asyncio.get_running_loop().call_soon(shared.apply, None, pod("late").on("n1").build())
    assert shared.sizes["pods"] == MANY + 1  # what comes meanwhile waits in line as well
    await looking
    assert len([number for number in observed if 0 < number < MANY]) >= 2


async def test_time_slices_bound_expensive_changes(monkeypatch) -> None:
    shared = with_nodes("n1")
    turns: list[float] = []

    async def look_on() -> None:
        while True:
            turns.append(time.perf_counter())
            await asyncio.sleep(0)

    put = Snapshot.put

    def expensive(snapshot: Snapshot, obj: KubeObject) -> None:
        until = time.perf_counter() + 0.003
        while time.perf_counter() < until:
            pass
        put(snapshot, obj)

    async with shared.borrow():
        looking = asyncio.create_task(look_on())
        await asyncio.sleep(0)
        for number in range(100):
            shared.apply(None, pod(f"web-{number}").on("n1").build())
        monkeypatch.setattr(Snapshot, "put", expensive)
    looking.cancel()
    gaps = sorted(later - earlier for earlier, later in pairwise(turns))
    assert len(gaps) >= 40  # two changes in each slice of 5 ms
    assert gaps[len(gaps) * 9 // 10] < 0.05
    assert shared.sizes["pods"] == 100


async def test_cancelled_borrower_applies_all_queued_changes() -> None:
    shared = with_nodes("n1")

    async def borrow() -> None:
        async with shared.borrow():
            for number in range(MANY):
                shared.apply(None, pod(f"web-{number}").on("n1").build())

    borrowing = asyncio.create_task(borrow())
    await asyncio.sleep(0)
    assert 0 < shared.sizes["pods"] < MANY
    borrowing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await borrowing
    assert shared.sizes["pods"] == MANY


def test_sizes_count_the_objects_of_each_kind() -> None:
    shared = with_nodes("n1", "n2")
    for each in (pod("a").build(), pv("v").build(), service("s").build()):
        shared.apply(None, each)
    sizes = shared.sizes
    assert set(sizes) == {resource.plural for resource in KINDS}
    assert {name: number for name, number in sizes.items() if number} == {
        "nodes": 2,
        "pods": 1,
        "persistentvolumes": 1,
        "services": 1,
    }


async def test_failing_planner_returns_the_snapshot() -> None:
    shared = with_nodes("n1")

    async def fail() -> None:
        async with shared.borrow():
            shared.apply(None, node("n2").build())
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        await fail()
    assert shared.sizes["nodes"] == 2


class Served:
    """Borrowers of a snapshot, and the order in which they had it."""

    def __init__(self) -> None:
        self.shared = SharedSnapshot()
        self.order: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, name: str, *, short: bool = False, takes: float = 0.0) -> None:
        async def borrow() -> None:
            async with self.shared.borrow(short=short):
                self.order.append(name)
                await asyncio.sleep(takes)

        self.tasks[name] = asyncio.create_task(borrow())
        await asyncio.sleep(0)

    async def end(self) -> list[str]:
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        async with asyncio.timeout(5), self.shared.borrow():
            pass
        return self.order


@pytest.mark.looptime
async def test_planners_are_served_in_order() -> None:
    served = Served()
    for name in ("p1", "p2", "p3", "p4"):
        await served.ask(name, takes=1.0)
    assert await served.end() == ["p1", "p2", "p3", "p4"]


@pytest.mark.looptime
async def test_short_borrowers_wait_for_at_most_one_plan() -> None:
    served = Served()
    await served.ask("plan 1", takes=1.0)
    await served.ask("plan 2", takes=1.0)
    await served.ask("plan 3", takes=1.0)
    for name in ("a", "b", "c"):
        await served.ask(name, short=True)
    assert await served.end() == ["plan 1", "a", "b", "c", "plan 2", "plan 3"]


@pytest.mark.looptime
async def test_short_borrowers_do_not_starve_planners() -> None:
    served = Served()
    await served.ask("plan 1", takes=1.0)
    await served.ask("a", short=True, takes=0.5)
    await served.ask("plan 2", takes=1.0)
    await asyncio.sleep(1.2)  # "a" has it: borrowers that ask now are served after the plan that waits
    await served.ask("b", short=True)
    await served.ask("c", short=True)
    await served.ask("plan 3")
    assert await served.end() == ["plan 1", "a", "plan 2", "b", "c", "plan 3"]


@pytest.mark.looptime
@pytest.mark.parametrize("short", [False, True])
async def test_cancelled_waiting_borrowers_are_skipped(short: bool) -> None:
    served = Served()
    await served.ask("plan", takes=1.0)
    for name in ("a", "b", "c"):
        await served.ask(name, short=short)
    served.tasks["a"].cancel()
    served.tasks["c"].cancel()
    assert await served.end() == ["plan", "b"]


async def test_borrower_cancelled_on_acquisition_hands_the_lock_over() -> None:
    served = Served()
    release = asyncio.Event()

    async def hold() -> None:
        async with served.shared.borrow():
            await release.wait()
        served.tasks["a"].cancel()  # the snapshot is handed to it, and it has not run yet

    holding = asyncio.create_task(hold())
    await asyncio.sleep(0)
    await served.ask("a")
    await served.ask("b")
    release.set()
    await holding
    assert await served.end() == ["b"]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.booleans()), max_size=20))
def test_every_borrower_is_served_once_and_exclusively(asked: list[tuple[bool, int, bool]]) -> None:
    async def run() -> None:
        shared, inside, served = SharedSnapshot(), [0], [0]

        async def borrow(short: bool, hops: int) -> None:
            async with shared.borrow(short=short):
                inside[0] += 1
                assert inside[0] == 1
                try:
                    for _ in range(hops):
                        await asyncio.sleep(0)
                finally:
                    inside[0] -= 1
                served[0] += 1

        tasks = []
        for short, hops, cancelled in asked:
            tasks.append(asyncio.create_task(borrow(short, hops)))
            await asyncio.sleep(0)
            if cancelled:
                tasks[-1].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(each is None or isinstance(each, asyncio.CancelledError) for each in done)
        assert served[0] >= sum(not cancelled for _, _, cancelled in asked)
        async with shared.borrow():
            pass
        assert not shared._borrowers.active

    asyncio.run(run())


def test_caches_of_deleted_templates_are_bounded() -> None:
    from trimtab.cluster import affinity, pod_accounting
    from trimtab.cluster.snapshot import Snapshot

    snapshot = Snapshot([node("n1").allocatable(cpu="4", memory="8Gi", pods=110).build()])
    limit = 50
    originals = pod_accounting._MAX_SPECS, affinity._SPARE
    pod_accounting._MAX_SPECS = affinity._SPARE = limit
    try:
        for number in range(3 * limit):
            passing = pod("web").on("n1").labels(version=str(number)).cpu(f"{number + 1}m").build()
            snapshot.put(passing)
            with snapshot.fork():
                assert snapshot.affinity.pod_class("shop", passing.labels)
        assert len(snapshot._accounting._amounts) <= limit + 3
        assert snapshot._accounting._affinity is not None
        assert (
            max(len(snapshot._accounting._affinity._classes), len(snapshot._accounting._affinity._carrying))
            <= limit + 3
        )
    finally:
        pod_accounting._MAX_SPECS, affinity._SPARE = originals


def test_caches_of_deleted_nodes_are_bounded() -> None:
    from trimtab.cluster import node_table
    from trimtab.cluster.snapshot import Snapshot

    limit, original = 20, node_table._SPARE
    node_table._SPARE = limit
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
        node_table._SPARE = original


async def test_thread_is_awaited_even_if_cancelled_repeatedly() -> None:
    release = threading.Event()
    task = asyncio.create_task(in_thread(lambda: release.wait(10)))
    try:
        for _ in range(3):
            await asyncio.sleep(0.01)
            task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
    finally:
        release.set()
    await asyncio.wait({task})
    assert task.cancelled()


async def test_short_borrowers_are_served_round_robin_by_namespace() -> None:
    shared, served = SharedSnapshot(), []

    async def recheck(namespace: str) -> None:
        async with shared.borrow(short=True, namespace=namespace):
            served.append(namespace)

    async with shared.borrow():
        tasks = [asyncio.create_task(recheck(name)) for name in ("tenant",) * 50 + ("bank", "shop", "bank")]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert served[:5] == ["tenant", "bank", "shop", "tenant", "bank"]
    assert served.count("tenant") == 50


async def test_freed_objects_are_deleted_in_another_thread() -> None:
    deleted: list[int] = []

    class Watched:
        def __del__(self) -> None:
            deleted.append(threading.get_ident())

    objects = [Watched() for _ in range(250)]
    await free(objects)
    assert objects == []
    assert len(deleted) == 250
    assert threading.get_ident() not in deleted
