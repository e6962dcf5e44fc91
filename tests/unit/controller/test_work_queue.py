"""The work queue on virtual time: client-go's guarantees, fairness, rates, backoff, draining, and a model test."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import looptime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from tests.fakes.clock import LoopClock
from trimtab.controller.metrics import WorkQueueMetrics
from trimtab.controller.work_queue import Retry, WorkQueue
from trimtab.kube.api import TooManyRequests, Unreachable
from trimtab.kube.retry import Backoff
from trimtab.kube.token_bucket import KeyedTokenBuckets

pytestmark = pytest.mark.looptime(start=0)

STEADY = Backoff(initial=1.0, factor=2.0, maximum=4.0, jitter=0.0)


class Recorded:
    """A queue whose reconcile records when which key was processed; `takes` seconds each."""

    def __init__(
        self,
        answer: Callable[[str, int], float | Retry | None] = lambda key, number: None,
        *,
        workers: int = 1,
        takes: float = 0.0,
        **options: Any,
    ) -> None:
        self.clock = LoopClock()
        self.calls: list[tuple[str, float]] = []
        self.busy: Counter[str] = Counter()
        self._answer = answer
        self._takes = takes
        self.queue = WorkQueue(self._reconcile, workers=workers, clock=self.clock, retry=STEADY, **options)

    @property
    def keys(self) -> list[str]:
        return [key for key, _ in self.calls]

    async def _reconcile(self, key: str) -> float | Retry | None:
        assert not self.busy[key], "two workers have one key"
        self.busy[key] += 1
        self.calls.append((key, round(self.clock.monotonic(), 3)))
        try:
            if self._takes:
                await asyncio.sleep(self._takes)
            return self._answer(key, self.keys.count(key))
        finally:
            self.busy[key] -= 1

    def add(self, *keys: str) -> None:
        for key in keys:
            self.queue.add(key)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.queue.run())
        await asyncio.sleep(0)
        yield
        assert not task.done()
        task.cancel()
        await asyncio.wait({task})

    async def run(self, seconds: float) -> None:
        async with self.running():
            await asyncio.sleep(seconds)


def fail(error: Exception, times: int = 1) -> Callable[[str, int], None]:
    def answer(_: str, number: int) -> None:
        if number <= times:
            raise error

    return answer


# --- client-go's guarantees ------------------------------------------------------------------------------------------


async def test_a_key_that_waits_is_queued_once() -> None:
    recorded = Recorded()
    recorded.add("a", "b", "a")
    await recorded.run(1)
    assert recorded.keys == ["a", "b"]


async def test_key_added_during_processing_is_processed_again() -> None:
    recorded = Recorded(workers=3, takes=2)
    recorded.add("a")
    async with recorded.running():
        await asyncio.sleep(1)
        recorded.add("a", "a")
        await asyncio.sleep(9)
    assert recorded.calls == [("a", 0), ("a", 2)]


async def test_concurrency_is_limited_to_the_number_of_workers() -> None:
    recorded = Recorded(workers=2, takes=1)
    recorded.add("a", "b", "c", "d", "e")
    await recorded.run(10)
    assert [at for _, at in recorded.calls] == [0, 0, 1, 1, 2]


# --- delays and failures ---------------------------------------------------------------------------------------------


async def test_of_several_delays_the_earliest_counts() -> None:
    recorded = Recorded()
    for seconds in (10, 3, 7):
        recorded.queue.add_after("a", seconds)
    assert recorded.queue.next_due("a") == 3
    await recorded.run(20)
    assert recorded.calls == [("a", 3)]


async def test_a_rescheduled_key_comes_later() -> None:
    recorded = Recorded()
    recorded.queue.add_after("a", 3)
    recorded.queue.reschedule("a", 7)
    await recorded.run(20)
    assert recorded.calls == [("a", 7)]


async def test_expedite_processes_a_delayed_key_now_and_ignores_others() -> None:
    recorded = Recorded()
    async with recorded.running():
        recorded.queue.add_after("a", 10)
        await asyncio.sleep(2)
        recorded.queue.expedite("a")
        recorded.queue.expedite("b")
        await asyncio.sleep(20)
    assert recorded.calls == [("a", 2)]


async def test_key_is_requeued_after_the_returned_delay() -> None:
    recorded = Recorded(lambda _, number: 5.0 if number < 3 else None)
    recorded.add("a")
    await recorded.run(100)
    assert recorded.calls == [("a", 0), ("a", 5), ("a", 10)]


@pytest.mark.parametrize("error", [Unreachable("no"), ValueError("a slip")])
async def test_a_failure_backs_off_and_delays_no_other_key(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    recorded = Recorded(lambda key, number: fail(error, 4)(key, number) if key == "a" else None)
    recorded.add("a", "b")
    await recorded.run(100)
    assert recorded.calls == [("a", 0), ("b", 0), ("a", 1), ("a", 3), ("a", 7), ("a", 11)]
    assert str(error) in caplog.text
    assert recorded.queue.failures("a") == 0
    assert recorded.queue.statistics().retries == 4


async def test_retry_after_of_the_server_is_obeyed() -> None:
    recorded = Recorded(fail(TooManyRequests("slow down", retry_after=30.0)))
    recorded.add("a")
    await recorded.run(100)
    assert recorded.calls == [("a", 0), ("a", 30)]


async def test_a_failure_that_was_reported_already_backs_off_within_its_bounds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    responses = [Retry(), Retry(at_least=3), Retry(at_most=0.5), Retry(backoff=Backoff(initial=0.1, jitter=0.0)), None]
    recorded = Recorded(lambda _, number: responses[number - 1])
    recorded.add("a")
    await recorded.run(100)
    assert recorded.calls == [("a", 0), ("a", 1), ("a", 4), ("a", 4.5), ("a", 5.3)]
    assert not caplog.records


async def test_many_failures_are_retried_slowly() -> None:
    recorded = Recorded(lambda _, number: Retry() if number == 1 else None, workers=8, retries_per_second=10)
    recorded.add(*(f"p{number}" for number in range(100)))
    await recorded.run(100)
    retried = sorted(at for _, at in recorded.calls[100:])
    assert len(retried) == 100
    assert retried[0] == 1
    assert retried[-1] == pytest.approx(9.9)


async def test_a_discarded_key_is_not_processed_wherever_it_waits() -> None:
    rate_limiter = Rates(total=0.1)
    recorded = Recorded(workers=1, takes=1, rate_limiter=rate_limiter)
    recorded.add("free/a", "free/b", "held/a", "held/b")
    recorded.queue.add_after("free/c", 3)
    async with recorded.running():
        await asyncio.sleep(0.5)
        for key in ("free/b", "free/c", "held/b"):
            assert key in recorded.queue
            recorded.queue.discard(key)
            assert key not in recorded.queue
        await asyncio.sleep(100)
    assert recorded.keys == ["free/a", "held/a"]


# --- fairness --------------------------------------------------------------------------------------------------------


def namespace(key: str) -> str:
    return key.partition("/")[0]


async def test_groups_take_turns() -> None:
    recorded = Recorded(takes=1, group_of=namespace)
    recorded.add("a/0", "a/1", "a/2", "b/0", "b/1", "c/0")
    await recorded.run(10)
    assert recorded.keys == ["a/0", "b/0", "c/0", "a/1", "b/1", "a/2"]


async def test_one_group_has_three_quarters_of_the_workers_and_others_the_rest() -> None:
    recorded = Recorded(workers=32, takes=60, group_of=namespace)
    recorded.add(*(f"a/{number}" for number in range(100)))
    async with recorded.running():
        await asyncio.sleep(1)
        assert len(recorded.keys) == 24
        recorded.add(*(f"{group}/{number}" for number in range(100) for group in "bc"))
        await asyncio.sleep(1)
    took = Counter(map(namespace, recorded.keys[24:]))
    assert took["b"] >= 2
    assert took["c"] >= 1


async def test_in_a_group_the_lowest_priority_value_comes_first() -> None:
    recorded = Recorded(takes=1, group_of=namespace, priority_of=lambda key: float(key[-1]))
    recorded.add("a/5", "a/3", "b/9", "a/4", "b/1")
    await recorded.run(10)
    assert recorded.keys == ["a/3", "b/1", "a/4", "b/9", "a/5"]


# --- rates -----------------------------------------------------------------------------------------------------------


class Rates:
    """Limits in all and for each namespace; the namespace `free` has none."""

    def __init__(self, *, total: float | None = None, each: float | None = None) -> None:
        self._total: KeyedTokenBuckets[str] = KeyedTokenBuckets(total)
        self._each: KeyedTokenBuckets[Hashable] = KeyedTokenBuckets(each)

    def flow_of(self, key: str) -> Hashable | None:
        return None if namespace(key) == "free" else namespace(key)

    def next_at(self, flow: Hashable) -> float:
        return self._each.next_at(flow)

    def next_at_any_flow(self) -> float:
        return self._total.next_at("")

    def take(self, key: str, flow: Hashable, now: float) -> None:
        assert namespace(key) == flow
        assert self._total.take("", now)
        assert self._each.take(flow, now)


async def test_a_rate_holds_keys_back_and_the_lowest_priority_value_passes_first() -> None:
    recorded = Recorded(rate_limiter=Rates(total=0.5), workers=9, priority_of=lambda key: float(key[-1]))
    recorded.add("a/3", "b/1", "a/2", "a/0", "free/9")
    async with recorded.running():
        await asyncio.sleep(1)
        assert recorded.queue.statistics().rate_limited == 3
        await asyncio.sleep(9)
    assert recorded.calls == [("a/0", 0), ("free/9", 0), ("b/1", 2), ("a/2", 4), ("a/3", 6)]


async def test_a_group_that_a_rate_holds_back_holds_up_no_other() -> None:
    recorded = Recorded(rate_limiter=Rates(each=0.01), workers=9)
    recorded.add(*(f"a/{number}" for number in range(50)), "b/0")
    await recorded.run(150)
    assert recorded.calls == [("a/0", 0), ("b/0", 0), ("a/1", 100)]


async def test_other_rates_apply_at_once_and_keep_the_order() -> None:
    recorded = Recorded(rate_limiter=Rates(total=0.001), workers=9)
    recorded.add("a/0", "a/1", "b/0", "a/2")
    async with recorded.running():
        await asyncio.sleep(1)
        recorded.queue.set_rate_limiter(Rates(total=1.0))
        await asyncio.sleep(9)
    assert recorded.calls == [("a/0", 0), ("a/1", 1), ("b/0", 2), ("a/2", 3)]


async def test_the_last_key_of_a_line_may_be_discarded_while_the_line_is_shut() -> None:
    recorded = Recorded(rate_limiter=Rates(each=1.0), workers=9)
    recorded.add("a/0", "a/1")
    async with recorded.running():
        await asyncio.sleep(0.5)
        recorded.queue.discard("a/1")
        await asyncio.sleep(5)
        recorded.add("a/2")
        await asyncio.sleep(5)
    assert recorded.calls == [("a/0", 0), ("a/2", 5.5)]


class Tokens:
    """One token for each namespace, which comes back when it is returned."""

    def __init__(self) -> None:
        self.taken: set[Hashable] = set()

    def flow_of(self, key: str) -> Hashable | None:
        return namespace(key)

    def next_at(self, flow: Hashable) -> float:
        return 1000.0 if flow in self.taken else float("-inf")

    def next_at_any_flow(self) -> float:
        return float("-inf")

    def take(self, key: str, flow: Hashable, now: float) -> None:
        assert flow not in self.taken
        self.taken.add(flow)


async def test_key_whose_limit_has_ended_passes_at_the_time_of_its_delay() -> None:
    free: set[str] = set()

    class Ending(Tokens):
        def flow_of(self, key: str) -> Hashable | None:
            return None if key in free else namespace(key)

    recorded = Recorded(rate_limiter=Ending(), workers=9)
    recorded.add("a/0", "a/1", "a/2", "a/3")
    for key, seconds in (("a/1", 5.0), ("a/2", 5.0), ("a/3", 5.0)):
        recorded.queue.add_after(key, seconds)
    recorded.queue.reschedule("a/3", None)
    async with recorded.running():
        await asyncio.sleep(1)
        free |= {"a/1", "a/3"}
        await asyncio.sleep(9)
    assert recorded.calls == [("a/0", 0), ("a/1", 5)]
    assert recorded.queue.statistics().rate_limited == 2


async def test_returned_token_admits_the_next_key_of_the_namespace() -> None:
    tokens = Tokens()
    recorded = Recorded(rate_limiter=tokens, workers=9)
    recorded.add("a/0", "a/1", "b/0", "b/1", "c/0", "c/1")
    async with recorded.running():
        await asyncio.sleep(2)
        recorded.queue.discard("c/1")
        tokens.taken.discard("a")
        recorded.queue.wake()
        recorded.queue.wake()
        await asyncio.sleep(1)
        tokens.taken.discard("c")
        recorded.add("c/2")
        await asyncio.sleep(10)
        assert recorded.queue.statistics().rate_limited == 1
    assert recorded.calls == [("a/0", 0), ("b/0", 0), ("c/0", 0), ("a/1", 2), ("c/2", 3)]


# --- pausing, draining, being cancelled ------------------------------------------------------------------------------


async def test_paused_queue_starts_no_keys_until_resumed() -> None:
    paused = True
    recorded = Recorded(paused=lambda: paused)
    recorded.add("a")
    async with recorded.running():
        await asyncio.sleep(3.1)
        assert not recorded.calls
        paused = False
        await asyncio.sleep(1)
    assert recorded.calls == [("a", 3.25)]


async def test_drain_finishes_keys_in_progress_and_starts_none() -> None:
    recorded = Recorded(takes=2)
    recorded.add("a", "b")
    async with recorded.running():
        await asyncio.sleep(1)
        assert not await recorded.queue.drain(0.5)
        assert await recorded.queue.drain(5)
        await asyncio.sleep(5)
    assert recorded.keys == ["a"]
    assert await recorded.queue.drain(0)


async def test_interrupted_keys_are_processed_by_the_next_run() -> None:
    recorded = Recorded(takes=2, workers=2)
    recorded.add("a", "b", "c")
    await recorded.run(1)
    assert not any(recorded.busy.values())
    await recorded.run(10)
    assert sorted(recorded.keys) == ["a", "a", "b", "b", "c"]


async def test_statistics_are_those_of_a_workqueue() -> None:
    recorded = Recorded(takes=2)
    recorded.add("a", "b", "c")
    recorded.queue.add_after("d", 100)
    async with recorded.running():
        await asyncio.sleep(3)
        statistics = recorded.queue.statistics()
    assert (statistics.depth, statistics.delayed, statistics.processing, statistics.processed) == (1, 1, 1, 1)
    assert statistics.queue_seconds == 2
    assert statistics.work_seconds == 2


# --- the model -------------------------------------------------------------------------------------------------------

KEYS = st.sampled_from(["a/0", "a/1", "a/2", "b/0", "b/1", "c/0"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), KEYS),
        st.tuples(st.just("delay"), KEYS, st.integers(0, 9)),
        st.tuples(st.just("wait"), st.integers(1, 5)),
        st.tuples(st.just("restart")),
    ),
    max_size=40,
)


@pytest.mark.looptime(False)
@given(STEPS, st.integers(1, 4), st.integers(0, 3), st.integers(0, 2))
def test_every_key_is_processed_after_each_request_and_never_twice_at_once(
    steps: list[tuple[Any, ...]], workers: int, takes: int, failures: int
) -> None:
    """The model: a start follows each request, none comes before the first time that was asked for."""

    async def scenario() -> None:
        recorded = Recorded(
            lambda _, number: Retry() if number <= failures else None, workers=workers, takes=takes, group_of=namespace
        )
        wanted: dict[str, float] = {}
        earliest: dict[str, float] = {}
        task = asyncio.create_task(recorded.queue.run())
        for step in steps:
            now = recorded.clock.monotonic()
            match step:
                case "add", key:
                    recorded.queue.add(key)
                    wanted[key] = max(now, wanted.get(key, now))
                    earliest[key] = min(now, earliest.get(key, now))
                case "delay", key, seconds:
                    recorded.queue.add_after(key, seconds)
                    wanted[key] = max(now, wanted.get(key, now))
                    earliest[key] = min(now + seconds, earliest.get(key, now + seconds))
                case "wait", seconds:
                    await asyncio.sleep(seconds)
                case _:
                    task.cancel()
                    await asyncio.wait({task})
                    task = asyncio.create_task(recorded.queue.run())
            assert sum(recorded.busy.values()) <= workers
        await asyncio.sleep(1000)
        for key, at in wanted.items():
            starts = [start for each, start in recorded.calls if each == key]
            assert starts[-1] >= at, "a request came after the last start"
            assert starts[0] >= earliest[key]
        assert {key for key, _ in recorded.calls} == set(wanted)
        statistics = recorded.queue.statistics()
        assert (statistics.depth, statistics.delayed, statistics.processing) == (0, 0, 0)
        task.cancel()
        await asyncio.wait({task})

    with asyncio.Runner(loop_factory=partial(looptime.new_event_loop, noop_cycles=1)) as runner:
        runner.run(scenario())


async def test_reconcile_may_add_keys() -> None:
    queue: WorkQueue

    async def reconcile(key: str) -> None:
        observed.append(key)
        if len(key) < 4:
            queue.add(key + "a")

    observed: list[str] = []
    process: Callable[[str], Awaitable[None]] = reconcile
    queue = WorkQueue(process, workers=1, clock=LoopClock())
    queue.add("a")
    task = asyncio.create_task(queue.run())
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait({task})
    assert observed == ["a", "aa", "aaa", "aaaa"]


async def test_metrics_have_the_figures_of_client_gos_workqueue() -> None:
    registry = CollectorRegistry()

    def value(metric: str) -> float | None:
        return registry.get_sample_value(f"trimtab_workqueue_{metric}", {"name": "pods"})

    def answer(key: str, number: int) -> Retry | None:
        return Retry() if (key, number) == ("a", 1) else None

    recorded = Recorded(answer, takes=10.0, metrics=WorkQueueMetrics(registry).queue("pods"))
    recorded.add("a", "b", "c", "c")
    async with recorded.running():
        await asyncio.sleep(5)
        assert value("depth") == 2  # b and c; the worker has a
        await asyncio.sleep(60)
    assert value("depth") == 0
    assert value("adds_total") == 4  # a twice
    assert value("retries_total") == 1
    assert value("queue_duration_seconds_count") == value("work_duration_seconds_count") == 4
    assert value("queue_duration_seconds_sum") == pytest.approx(recorded.queue.statistics().queue_seconds)
    assert value("work_duration_seconds_sum") == pytest.approx(40.0)


async def test_a_stopped_queue_has_no_depth() -> None:
    registry = CollectorRegistry()
    recorded = Recorded(takes=10.0, metrics=WorkQueueMetrics(registry).queue("pods"))
    recorded.add("a", "b")
    await recorded.run(5)
    assert recorded.queue.statistics().depth == 2  # processed if the queue runs again
    assert registry.get_sample_value("trimtab_workqueue_depth", {"name": "pods"}) == 0
