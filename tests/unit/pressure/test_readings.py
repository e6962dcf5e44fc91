"""The readings of many nodes: spread, timeouts, backoff, staleness, history and metrics.k8s.io."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import pytest

from tests.fakes.clock import START, LoopClock
from trimtab.kube.objects.node import Node
from trimtab.pressure.measurement import (
    MemoryStallTimes,
    NodeMeasurement,
    PodUsage,
    ReadFailure,
    SignalValue,
)
from trimtab.pressure.readings import HISTORY, PublishedReadings, ReadError, Readings
from trimtab.pressure.summary import no_pods

pytestmark = pytest.mark.looptime(start=0)

INTERVAL = 10.0
MEMORY = "memory.available"
DISK = "nodefs.available"


def nodes(*names: str) -> list[Node]:
    return [Node(name=name) for name in names]


class Kubelets:
    """Kubelets whose stats have the time of the read, unless the test says otherwise.

    Attributes:
        stuck: the timestamps of signals since the start, by node, instead of the time of the read.
        skew: seconds by which the clock of a node is fast.
    """

    def __init__(self) -> None:
        self.takes: dict[str, float] = {}
        self.failing: dict[str, str] = {}
        self.stuck: dict[str, dict[str, float]] = {}
        self.skew: dict[str, float] = {}
        self.raising: dict[str, Exception] = {}
        self.reads: list[tuple[float, str]] = []
        self.active = 0

    async def read(self, node: Node, *, only_memory: bool) -> NodeMeasurement:
        now = asyncio.get_running_loop().time()
        self.reads.append((now, node.name))
        await asyncio.sleep(self.takes.get(node.name, 0.01))
        if node.name in self.raising:
            raise self.raising[node.name]
        if node.name in self.failing:
            raise ReadError(self.failing[node.name], f"{node.name} failed")
        times = {MEMORY: now} | ({} if only_memory else {DISK: now}) | self.stuck.get(node.name, {})
        skew = START + self.skew.get(node.name, 0.0)
        return NodeMeasurement(
            node=node.name,
            source="Summary",
            read_at=now,
            signals={signal: SignalValue(100 + int(now), 1000, skew + at) for signal, at in times.items()},
            pods=lambda: {"shop/web": PodUsage("uid")},
        )

    def times(self, name: str) -> list[float]:
        return [round(at, 1) for at, each in self.reads if each == name]


class Metrics:
    def __init__(self) -> None:
        self.absent: set[str] = set()
        self.asked: list[list[str]] = []
        self.stuck: dict[str, float] = {}

    async def read(
        self, nodes: Sequence[Node], *, pods_needed: Callable[[NodeMeasurement], bool]
    ) -> Mapping[str, NodeMeasurement]:
        now = asyncio.get_running_loop().time()
        self.asked.append([node.name for node in nodes])
        signals = {MEMORY: SignalValue(5, 10, START + self.stuck.get(MEMORY, now))}
        return {
            node.name: NodeMeasurement(node=node.name, source="Metrics", read_at=now, signals=signals, pods=no_pods)
            for node in nodes
            if node.name not in self.absent
        }


@pytest.fixture
def kubelets() -> Kubelets:
    return Kubelets()


@pytest.fixture
async def readings(kubelets: Kubelets) -> AsyncIterator[Readings]:
    found = Readings(kubelets, clock=LoopClock())
    yield found
    await found.close()


async def run(readings: Readings, number: int, *names: str, only_memory: bool = False) -> None:
    """Refresh once per interval, as the controller does."""
    loop = asyncio.get_running_loop()
    for _ in range(number):
        begin = loop.time()
        await readings.refresh(nodes(*names), only_memory=only_memory, interval=INTERVAL)
        await asyncio.sleep(max(0.0, begin + INTERVAL - loop.time()))


def signals(readings: Readings, name: str) -> Mapping[str, SignalValue]:
    found = readings.latest(name)
    assert isinstance(found, NodeMeasurement), found
    return found.signals


def reason(readings: Readings, name: str) -> str:
    found = readings.latest(name)
    assert isinstance(found, ReadFailure), found
    return found.reason


async def test_reads_are_spread_over_the_interval(readings: Readings, kubelets: Kubelets) -> None:
    names = [f"n{index:03}" for index in range(200)]
    loop = asyncio.get_running_loop()
    await readings.refresh(nodes(*names), only_memory=False, interval=INTERVAL)
    assert 7.9 <= loop.time() <= 8.1  # the rest of the interval is for planning
    per_second = [sum(second <= at < second + 1 for at, _ in kubelets.reads) for second in range(8)]
    assert per_second == [pytest.approx(25, abs=1)] * 8
    assert all(isinstance(readings.latest(name), NodeMeasurement) for name in names)


async def test_each_node_is_read_at_the_same_offset_of_each_interval(readings: Readings, kubelets: Kubelets) -> None:
    await run(readings, 3, "n4", "n2", "n1", "n3")
    assert [kubelets.times(name) for name in ("n1", "n2", "n3", "n4")] == [
        [0, 10, 20],
        [2, 12, 22],
        [4, 14, 24],
        [6, 16, 26],
    ]


async def test_without_an_interval_all_nodes_are_read_at_once(readings: Readings, kubelets: Kubelets) -> None:
    kubelets.takes = {"n1": 3.0}
    await readings.refresh(nodes("n1", "n2"), only_memory=False)
    assert asyncio.get_running_loop().time() == pytest.approx(3.0)
    assert {name for name in ("n1", "n2") if signals(readings, name)} == {"n1", "n2"}


async def test_only_memory_is_passed_on(readings: Readings) -> None:
    await readings.refresh(nodes("n1"), only_memory=True)
    assert signals(readings, "n1").keys() == {MEMORY}


async def test_a_node_is_unknown_before_its_first_read(readings: Readings) -> None:
    assert (readings.latest("n1"), readings.failure("n1"), readings.history("n1")) == (None, None, ())


async def test_hanging_reads_delay_neither_others_nor_the_interval(readings: Readings, kubelets: Kubelets) -> None:
    names = [f"n{index:02}" for index in range(20)]
    kubelets.takes = dict.fromkeys(names[:10], 25.0)
    kubelets.failing = dict.fromkeys(names[:10], "StatsUnreachable")
    loop = asyncio.get_running_loop()
    for number in (1, 2):
        begin = loop.time()
        await readings.refresh(nodes(*names), only_memory=False, interval=INTERVAL)
        assert loop.time() - begin <= INTERVAL + 0.1
        assert {len(kubelets.times(name)) for name in names[10:]} == {number}
    assert {len(kubelets.times(name)) for name in names[:10]} == {1}  # no second read while the first one hangs
    assert readings.latest("n00") is None
    await asyncio.sleep(10)
    assert reason(readings, "n00") == "StatsUnreachable"


async def test_failing_nodes_are_read_less_often_until_they_respond(readings: Readings, kubelets: Kubelets) -> None:
    kubelets.failing = {"n1": "StatsUnreachable"}
    await run(readings, 30, "n1", "n2")
    gaps = [later - earlier for earlier, later in zip(kubelets.times("n1"), kubelets.times("n1")[1:], strict=False)]
    assert gaps[0] <= 2 * INTERVAL
    assert 30 <= gaps[-1] <= 50
    assert len(kubelets.times("n2")) == 30
    kubelets.failing = {}
    await run(readings, 10, "n1", "n2")
    assert readings.failure("n1") is None
    kubelets.reads.clear()
    await run(readings, 3, "n1", "n2")
    assert len(kubelets.times("n1")) == 3


async def test_unexpected_error_of_one_node_does_not_affect_others(
    readings: Readings, kubelets: Kubelets, caplog: pytest.LogCaptureFixture
) -> None:
    kubelets.raising = {"n1": ZeroDivisionError("surprise")}
    await readings.refresh(nodes("n1", "n2"), only_memory=False)
    assert reason(readings, "n1") == "StatsInvalid"
    assert signals(readings, "n2")
    assert "surprise" in caplog.text


async def test_stats_whose_timestamps_do_not_change_are_stale_after_three_intervals(
    readings: Readings, kubelets: Kubelets
) -> None:
    await run(readings, 1, "n1")
    kubelets.stuck = {"n1": {MEMORY: 0.0, DISK: 0.0}}
    await run(readings, 2, "n1")
    assert len(signals(readings, "n1")) == 2
    await run(readings, 1, "n1")
    assert reason(readings, "n1") == "StatsStale"
    kubelets.stuck = {}
    await run(readings, 3, "n1")
    assert len(signals(readings, "n1")) == 2


HOUR = 3600.0


@pytest.mark.parametrize(
    ("age", "heartbeat", "skew", "stale"),
    [
        pytest.param(29, None, 0, False, id="29 s old"),
        pytest.param(30, None, 0, True, id="30 s old"),
        pytest.param(2 * HOUR, 10, 0, True, id="frozen two hours ago"),
        pytest.param(2 * HOUR, 10, 2 * HOUR, True, id="frozen, and the timestamp is now by a fast clock"),
        pytest.param(2 * HOUR, 5 * HOUR, 2 * HOUR, False, id="no clock shows it: the last heartbeat is older"),
        pytest.param(20, 300, HOUR, False, id="current, by a fast clock"),
        pytest.param(20, 300, -HOUR, True, id="current, by a slow clock"),
    ],
)
async def test_age_of_the_first_stats_is_that_by_this_clock_or_by_the_heartbeat(
    readings: Readings, kubelets: Kubelets, age: float, heartbeat: float | None, skew: float, stale: bool
) -> None:
    """The kubelet may have stopped to measure before the operator started."""
    kubelets.stuck, kubelets.skew = {"n1": {MEMORY: -age}}, {"n1": skew}
    node = Node(name="n1", heartbeat=None if heartbeat is None else START + skew - heartbeat)
    await readings.refresh([node], only_memory=True, interval=INTERVAL)
    if stale:
        assert reason(readings, "n1") == "StatsStale"
    else:
        assert signals(readings, "n1").keys() == {MEMORY}
    kubelets.stuck = {}
    await asyncio.sleep(INTERVAL)
    await readings.refresh([node], only_memory=True, interval=INTERVAL)
    assert signals(readings, "n1").keys() == {MEMORY}


async def test_metrics_that_were_frozen_before_they_were_needed_are_not_used(kubelets: Kubelets) -> None:
    metrics = Metrics()
    metrics.stuck = {MEMORY: -HOUR}
    readings = Readings(kubelets, metrics=metrics, clock=LoopClock())
    await run(readings, 2, "n1")
    kubelets.failing = {"n1": "StatsForbidden"}
    await run(readings, 1, "n1")
    assert reason(readings, "n1") == "StatsForbidden"
    metrics.stuck = {}
    await run(readings, 1, "n1")
    assert signals(readings, "n1").keys() == {MEMORY}


async def test_one_stale_signal_is_left_out_and_reported(readings: Readings, kubelets: Kubelets) -> None:
    kubelets.stuck = {"n1": {DISK: 0.0}}
    await run(readings, 4, "n1")
    found = readings.latest("n1")
    assert isinstance(found, NodeMeasurement)
    assert (found.signals.keys(), found.problems.keys()) == ({MEMORY}, {DISK})


async def test_stats_are_not_stale_if_the_interval_is_shorter_than_the_kubelets(
    readings: Readings, kubelets: Kubelets
) -> None:
    kubelets.stuck = {"n1": {MEMORY: 0.0, DISK: 0.0}}
    for _ in range(5):
        await readings.refresh(nodes("n1"), only_memory=False, interval=5.0)
        assert signals(readings, "n1")
        await asyncio.sleep(5.0)


@pytest.mark.parametrize("jump", [-86400.0, 1e9], ids=["back a day", "far into the future"])
async def test_clock_jump_does_not_make_signals_stale(readings: Readings, kubelets: Kubelets, jump: float) -> None:
    for number in range(8):
        kubelets.stuck = {"n1": {MEMORY: jump + number, DISK: jump + number}} if number > 2 else {}
        await run(readings, 1, "n1")
        assert len(signals(readings, "n1")) == 2


async def test_history_has_the_last_measurements_oldest_first(readings: Readings) -> None:
    await run(readings, HISTORY + 3, "n1")
    history = readings.history("n1")
    assert [each.read_at for each in history] == [INTERVAL * number for number in range(3, HISTORY + 3)]
    assert history[-1].signals == signals(readings, "n1")
    assert [each.read_at for each in history[-2:]] == [INTERVAL * (HISTORY + 1), INTERVAL * (HISTORY + 2)]
    with pytest.raises(LookupError):
        history[0].pods()


async def test_readings_are_published_until_they_are_closed(kubelets: Kubelets) -> None:
    published = PublishedReadings()
    assert published.of_nodes() is None
    readings = Readings(kubelets, published=published, clock=LoopClock())
    assert published.of_nodes() == {}
    await run(readings, 3, "n1")
    found = published.of_nodes()
    assert found is not None
    assert list(found) == ["n1"]
    history = [each.read_at for each in found["n1"].history]
    assert (found["n1"].latest, len(history)) == (readings.latest("n1"), 3)
    await run(readings, 1, "n1")
    assert [each.read_at for each in found["n1"].history] == history, "it is read in another thread"
    await readings.close()
    assert published.of_nodes() is None


async def test_history_has_each_measurement_of_the_kubelet_once(readings: Readings, kubelets: Kubelets) -> None:
    kubelets.stuck = {"n1": {MEMORY: 0.0, DISK: 0.0}}
    await run(readings, 3, "n1")
    assert len(readings.history("n1")) == 1


async def test_history_keeps_missing_times_and_stall_times() -> None:
    stall = MemoryStallTimes(1.5, 2.0, 100.0)

    class One:
        async def read(self, node: Node, *, only_memory: bool) -> NodeMeasurement:
            values = {MEMORY: SignalValue(2**60, 2**60), "pid.available": SignalValue(0, 5, START + 7.25)}
            return NodeMeasurement(
                node=node.name, source="Summary", read_at=1.0, signals=values, pods=dict, memory_stall=stall
            )

    readings = Readings(One(), clock=LoopClock())
    await readings.refresh(nodes("n1"), only_memory=False)
    (found,) = readings.history("n1")
    latest = readings.latest("n1")
    assert isinstance(latest, NodeMeasurement)
    assert (found.signals, found.memory_stall) == (latest.signals, stall)


async def test_pods_are_kept_only_where_they_are_needed(readings: Readings) -> None:
    await readings.refresh(
        nodes("n1", "n2"), only_memory=False, pods_needed=lambda measurement: measurement.node == "n1"
    )
    kept, dropped = readings.latest("n1"), readings.latest("n2")
    assert isinstance(kept, NodeMeasurement)
    assert isinstance(dropped, NodeMeasurement)
    assert kept.pods() == {"shop/web": PodUsage("uid")}
    with pytest.raises(LookupError):
        dropped.pods()


async def test_removed_nodes_are_forgotten_and_their_reads_end(readings: Readings, kubelets: Kubelets) -> None:
    kubelets.takes = {"n1": 100.0}
    await run(readings, 1, "n1", "n2")
    await run(readings, 1, "n3")
    assert (readings.latest("n1"), readings.latest("n2")) == (None, None)
    kubelets.takes = {}
    await run(readings, 1, "n1", "n2")  # a node of the same name is read at once
    assert signals(readings, "n1")


async def test_metrics_supply_the_memory_of_nodes_that_cannot_be_read(kubelets: Kubelets) -> None:
    metrics = Metrics()
    readings = Readings(kubelets, metrics=metrics, clock=LoopClock())
    await run(readings, 2, "n1", "n2")
    assert metrics.asked == []
    kubelets.failing = {"n1": "StatsForbidden"}
    await run(readings, 3, "n1", "n2")
    found, failure = readings.latest("n1"), readings.failure("n1")
    assert isinstance(found, NodeMeasurement)
    assert failure is not None
    assert (found.source, failure.reason) == ("Metrics", "StatsForbidden")
    assert {each.source for each in readings.history("n1")} == {"Metrics"}
    assert metrics.asked == [["n1"]] * 3
    metrics.absent = {"n1"}
    await run(readings, 1, "n1", "n2")
    assert reason(readings, "n1") == "StatsForbidden"
    kubelets.failing = {}
    await run(readings, 8, "n1", "n2")
    assert signals(readings, "n1").keys() == {MEMORY, DISK}
    assert {each.source for each in readings.history("n1")} == {"Summary"}


async def test_metrics_may_be_measured_less_often_than_kubelets_measure(kubelets: Kubelets) -> None:
    metrics = Metrics()
    metrics.stuck = {MEMORY: 0.0}
    readings = Readings(kubelets, metrics=metrics, clock=LoopClock())
    kubelets.failing = {"n1": "StatsForbidden"}
    await run(readings, 12, "n1")
    assert signals(readings, "n1").keys() == {MEMORY}
    await run(readings, 2, "n1")
    assert reason(readings, "n1") == "StatsForbidden"
