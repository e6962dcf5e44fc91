"""Rates of user taints hold pods back as long as they say, no longer, and no pod is forgotten."""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Iterable
from typing import Any

import looptime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.api import FakeApi
from tests.fakes.caches import Caches
from tests.fakes.clock import LoopClock
from tests.fakes.taint_reporter import FakeTaintReporter
from trimtab.api.taint_manager import TaintManagerSpec, UserTaintRates
from trimtab.disruption.evictor import Evictor
from trimtab.kube.objects import Pod, Taint
from trimtab.tainting.deadlines import Deadline, TaintDeadlineTracker, TolerationRule
from trimtab.tainting.dependencies import TaintingDependencies
from trimtab.tainting.due_pods import DuePod
from trimtab.tainting.eviction_queue import CATCH_UP, MAX_WAIT, EvictionQueue

pytestmark = pytest.mark.looptime(start=0)

RATE = st.none() | st.sampled_from([0.05, 0.3, 1.0, 7.0, 50.0])
WHO = st.tuples(st.floats(0, 60), st.sampled_from("xyz"), st.sampled_from("ab"))


def due_pod(name: object, *, due: float = 0.0, zone: str = "z", namespace: str = "n", key: str = "a") -> DuePod:
    """A due pod; its node is called after its zone."""
    return DuePod(Deadline(f"{namespace}/{name}", str(name), zone, due, due, Taint(key, "NoExecute"), None))


class Desk:
    """A queue whose workers note when each pod came."""

    def __init__(self, rates: UserTaintRates, *, workers: int = 1000) -> None:
        self.clock = LoopClock()
        self.went: dict[str, float] = {}
        self.unlimited_from: dict[str, float] = {}
        self.caches = Caches()
        self.tracker = TaintDeadlineTracker(self.caches.lister.items_on, TolerationRule())
        self.queue = DeskQueue(self, rates, workers=workers)
        self.pods = self.queue._pods

    async def _process(self, key: str) -> None:
        self.went[key.partition("/")[2]] = round(self.clock.monotonic(), 3)

    def add(self, *pods: DuePod) -> None:
        for pod in pods:
            self.pods[pod.deadline.key] = pod
            self.queue._add(pod)

    def track(self, key: str) -> None:
        """Let the caches and the tracker show a queued pod."""
        deadline = self.pods[key].deadline
        pod = Pod(namespace=deadline.namespace, name=deadline.name, uid=deadline.uid, node=deadline.node)
        self.caches.apply(None, pod)
        self.tracker.deadlines[key] = deadline

    def drop(self, name: str) -> None:
        [key] = [key for key in self.pods if key.endswith(f"/{name}")]
        del self.pods[key]
        self.queue.work.discard(key)

    async def run(self, seconds: float) -> list[str]:
        """Which came within so many seconds, in their order."""
        before = set(self.went)
        running = asyncio.create_task(self.queue.work.run())
        await asyncio.sleep(seconds)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return [name for name in self.went if name not in before]


class DeskQueue(EvictionQueue):
    """Each node is a zone of its own."""

    def __init__(self, desk: Desk, rates: UserTaintRates, *, workers: int) -> None:
        lister = desk.caches.lister
        dependencies = TaintingDependencies(
            api=FakeApi(),
            evictor=Evictor(clock=desk.clock, view=lister),
            lister=lister,
            clock=desk.clock,
            reporter=FakeTaintReporter(),
            stale=lambda: None,
            watches_verified_at=desk.clock.now,
            namespace="trimtab",
        )
        spec = TaintManagerSpec(mode="EvictPods", user_taint_rates=rates)
        super().__init__(dependencies, spec, desk.tracker, workers=workers)
        self._desk = desk

    def change_rates(self, rates: UserTaintRates) -> None:
        self.configure(TaintManagerSpec(mode="EvictPods", user_taint_rates=rates))

    async def _process(self, key: str) -> None:
        await self._desk._process(key)

    def _zone_of(self, name: str) -> str:
        return name

    def _unlimited_from(self, entry: DuePod) -> float | None:
        return self._desk.unlimited_from.get(entry.deadline.uid)


def limits(spec: UserTaintRates, *pods: DuePod) -> EvictionQueue:
    desk = Desk(spec)
    desk.pods.update((pod.deadline.key, pod) for pod in pods)
    return desk.queue


async def test_without_rate_no_pod_is_rate_limited() -> None:
    pod = due_pod("p")
    assert limits(UserTaintRates(), pod).flow_of("n/p") is None


async def test_rate_applies_to_user_taints_only() -> None:
    pod = due_pod("p", key="node.kubernetes.io/unreachable")
    assert limits(UserTaintRates(total=1), pod).flow_of("n/p") is None
    assert limits(UserTaintRates(total=1), due_pod("p")).flow_of("n/p") == ("", "z", "n")


@pytest.mark.parametrize(
    ("spec", "others"),
    [
        (UserTaintRates(total=2), {("", "z", "n"), ("", "z", "m"), ("", "y", "n"), ("", "y", "m")}),
        (UserTaintRates(per_zone=2), {("", "z", "n"), ("", "z", "m")}),
        (UserTaintRates(per_namespace=2), {("", "z", "n"), ("", "y", "n")}),
    ],
    ids=["total", "zone", "namespace"],
)
async def test_each_rate_limits_its_scope(spec: UserTaintRates, others: set[tuple[str, str, str]]) -> None:
    rates = limits(spec)
    for _ in range(2):  # the first, and what may be made up for
        rates.take("n/p", ("", "z", "n"), 100)
    lines = {("", zone, name) for zone in "yz" for name in "mn"}
    assert {line for line in lines if max(rates.next_at_any_flow(), rates.next_at(line)) > 100} == others


async def test_pause_is_not_caught_up() -> None:
    desk = Desk(UserTaintRates(total=1))
    desk.add(*(due_pod(number, due=number) for number in range(3)))
    await desk.run(1000)
    desk.add(*(due_pod(number, due=number) for number in range(3, 9)))
    assert len(await desk.run(2.5)) == 3


async def test_unused_token_is_returned_once() -> None:
    desk = Desk(UserTaintRates(total=0.01))
    first, second = due_pod("p1", due=1), due_pod("p2", due=2)
    desk.add(first, second)
    assert await desk.run(10) == ["p1"]
    desk.queue._return_tokens(first)
    desk.queue._return_tokens(first)
    assert await desk.run(1) == ["p2"]
    desk.add(due_pod("p3", due=3))
    assert await desk.run(80) == []


async def test_earliest_deadline_is_processed_first() -> None:
    desk = Desk(UserTaintRates(total=1))
    desk.add(*(due_pod(f"p{due}", due=due) for due in (5, 3, 9, 1)))
    assert desk.queue.work.statistics().rate_limited == 4
    assert await desk.run(10) == ["p1", "p3", "p5", "p9"]
    assert desk.queue.work.statistics().rate_limited == 0


async def test_rate_limited_namespace_does_not_block_others() -> None:
    desk = Desk(UserTaintRates(per_namespace=0.01))
    desk.add(*(due_pod(f"a{number}", due=number, namespace="a") for number in range(100)))
    desk.add(due_pod("b", due=1000, namespace="b"))
    assert await desk.run(1) == ["a0", "b"]


async def test_removed_pod_takes_no_token() -> None:
    desk = Desk(UserTaintRates(total=1))
    desk.add(*(due_pod(f"p{number}", due=number) for number in range(4)))
    desk.drop("p0")
    desk.drop("p2")
    assert desk.queue.work.statistics().rate_limited == 2
    assert await desk.run(3) == ["p1", "p3"]


async def test_emptied_flow_opens_again() -> None:
    desk = Desk(UserTaintRates(per_namespace=1))
    desk.add(due_pod("p0", due=0), due_pod("p1", due=1))
    assert await desk.run(0.5) == ["p0"]
    desk.drop("p1")
    assert await desk.run(10) == []
    desk.add(due_pod("p2", due=2))
    assert await desk.run(1) == ["p2"]


async def test_changed_rates_keep_the_order() -> None:
    desk = Desk(UserTaintRates(total=0.001))
    desk.add(*(due_pod(f"p{number}", due=-number) for number in range(4)))
    assert await desk.run(1) == ["p3"]
    desk.queue.change_rates(UserTaintRates(per_zone=1))
    assert await desk.run(1.5) == ["p2", "p1"]
    desk.queue.change_rates(UserTaintRates())
    assert await desk.run(0.1) == ["p0"]
    assert desk.pods["n/p0"].held_since is None
    assert desk.pods["n/p0"].held == pytest.approx(2.5, abs=0.1)


async def test_pod_of_failed_node_bypasses_rates_after_the_clock_was_set_forward() -> None:
    desk = Desk(UserTaintRates(total=0.0001))
    desk.add(due_pod("p1"))
    assert await desk.run(1.0) == ["p1"]
    desk.unlimited_from["p2"] = desk.clock.now() + 300
    desk.add(due_pod("p2"))
    assert await desk.run(1.0) == []
    desk.clock.skew = 400.0
    assert await desk.run(MAX_WAIT) == ["p2"]


async def test_pod_of_failed_node_bypasses_rates() -> None:
    desk = Desk(UserTaintRates(total=0.001))
    desk.add(due_pod("p1", due=1))
    await desk.run(1)
    desk.unlimited_from["p2"] = desk.clock.now() + 5
    desk.add(due_pod("p2", due=2), due_pod("p3", due=3))
    assert await desk.run(4) == []
    assert await desk.run(3) == ["p2"]
    desk.unlimited_from["p3"] = desk.clock.now() - 100
    desk.track("n/p3")
    desk.queue.deadline_changed("n/p3")
    assert await desk.run(2) == ["p3"]


async def test_ten_thousand_pods_in_a_thousand_flows_keep_the_rate() -> None:
    desk = Desk(UserTaintRates(total=1000, per_zone=100))
    desk.add(*(due_pod(n, due=n, zone=str(n % 10), namespace=str(n % 1000)) for n in range(10_000)))
    assert len(await desk.run(2)) >= 1900


@settings(max_examples=40)
@given(total=RATE, zone=RATE, namespace=RATE, pods=st.lists(WHO, max_size=40), drops=st.sets(st.integers(0, 39)))
def test_rates_are_never_exceeded_and_starve_no_pod(
    total: float | None,
    zone: float | None,
    namespace: float | None,
    pods: list[tuple[float, str, str]],
    drops: set[int],
) -> None:
    async def live() -> dict[int, float]:
        desk = Desk(UserTaintRates(total=total, per_zone=zone, per_namespace=namespace))
        running = asyncio.create_task(desk.queue.work.run())
        for due, number in sorted((due, number) for number, (due, _, _) in enumerate(pods)):
            await asyncio.sleep(max(0.0, due - desk.clock.monotonic()))
            made = due_pod(number, due=due, zone=pods[number][1], namespace=pods[number][2])
            desk.add(made)
            if number in drops:
                desk.drop(str(number))
        await asyncio.sleep(2000)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return {int(name): at for name, at in desk.went.items()}

    went = _virtually(live())
    assert set(went) == set(range(len(pods))) - drops
    assert all(at >= pods[number][0] - 1e-3 for number, at in went.items())
    _not_faster(total, went.values())
    for key in "xyz":
        _not_faster(zone, (at for number, at in went.items() if pods[number][1] == key))
    for key in "ab":
        _not_faster(namespace, (at for number, at in went.items() if pods[number][2] == key))


def _not_faster(rate: float | None, times: Iterable[float]) -> None:
    if rate is None:
        return
    ordered = sorted(times)
    for index, begin in enumerate(ordered):
        for end in ordered[index:]:
            number = bisect.bisect_right(ordered, end) - index
            assert number <= rate * (end - begin + CATCH_UP + 2e-3) + 1 + 1e-6


def _virtually(work: Any) -> dict[int, float]:
    loop = looptime.new_event_loop(start=0)
    try:
        found: dict[int, float] = loop.run_until_complete(work)
    finally:
        loop.close()
    return found
