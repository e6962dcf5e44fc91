import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.kube.clock import micro_time
from trimtab.kube.retry import Backoff
from trimtab.kube.token_bucket import ALWAYS, KeyedTokenBuckets, SlidingWindow, TokenBucket


def test_waits_double_up_to_the_maximum():
    backoff = Backoff(initial=1.0, maximum=10.0, jitter=0.0)
    assert [backoff.delay(retry) for retry in range(6)] == [1, 2, 4, 8, 10, 10]


@given(retry=st.integers(0, 10_000), jitter=st.floats(0, 1), rand=st.floats(0, 1, exclude_max=True))
def test_jitter_only_adds_and_nothing_overflows(retry, jitter, rand):
    backoff = Backoff(initial=0.5, maximum=30.0, jitter=jitter)
    plain = Backoff(initial=0.5, maximum=30.0, jitter=0.0).delay(retry)
    assert plain <= backoff.delay(retry, random=lambda: rand) <= 30.0 * 2


@pytest.mark.parametrize(("attempts", "retries"), [(1, 0), (3, 2), (0, 100)])
def test_attempts_count_the_first_try(attempts, retries):
    backoff = Backoff(attempts=attempts)
    assert all(not backoff.exhausted(retry) for retry in range(retries))
    assert backoff.exhausted(retries) == bool(attempts)


@given(rate=st.floats(0.1, 100), burst=st.integers(1, 50), steps=st.lists(st.floats(0, 10), min_size=1, max_size=200))
def test_a_bucket_never_gives_more_than_its_burst_and_rate(rate, burst, steps):
    bucket = TokenBucket(rate=rate, burst=burst, now=100.0)
    now, taken = 100.0, 0
    for step in steps:
        now += step
        taken += bucket.take(now)
        assert taken <= burst + rate * (now - 100.0) + 1e-6


@given(rate=st.floats(0.1, 100), burst=st.integers(1, 5))
def test_after_the_wait_there_is_a_token(rate, burst):
    bucket = TokenBucket(rate=rate, burst=burst, now=0.0)
    for _ in range(burst):
        assert bucket.wait(0.0) == 0.0
        assert bucket.take(0.0)
    assert not bucket.take(0.0)
    assert bucket.take(bucket.wait(0.0) + 1e-6)


def test_clock_set_back_grants_no_tokens():
    bucket = TokenBucket(rate=1.0, burst=1, now=100.0)
    assert bucket.take(100.0)
    assert not bucket.take(50.0)
    assert not bucket.take(100.5)
    assert bucket.take(101.0)


def test_micro_times_have_six_digits():
    assert micro_time(1_795_176_000.5) == "2026-11-20T12:00:00.500000Z"


def test_a_restart_grants_no_new_burst():
    assert TokenBucket(rate=1.0, burst=5, now=100.0, last=100.0).wait(100.0) == 1.0
    assert TokenBucket(rate=1.0, burst=5, now=100.0, last=98.5).wait(100.0) == 0.0
    bucket = TokenBucket(rate=1.0, burst=5, now=100.0, last=98.0)
    assert [bucket.take(100.0) for _ in range(3)] == [True, True, False]
    assert TokenBucket(rate=1.0, burst=1, now=100.0, last=500.0).wait(100.0) == 1.0, "a clock that was set back"


def test_token_is_returned_once_and_only_if_it_was_the_last():
    bucket = TokenBucket(rate=1.0, burst=1, now=10.0)
    assert bucket.take(10.0)
    bucket.give_back(10.0)
    bucket.give_back(10.0)
    assert bucket.wait(10.0) == 0.0
    assert bucket.take(10.0)
    assert bucket.take(11.0)
    bucket.give_back(10.0)
    assert bucket.wait(11.0) == 1.0


def test_each_key_has_a_bucket_and_full_ones_are_forgotten():
    buckets: KeyedTokenBuckets[str] = KeyedTokenBuckets(1.0, burst=2)
    assert [buckets.take("a", 0.0) for _ in range(3)] == [True, True, False]
    assert buckets.take("b", 0.0)
    assert (buckets.next_at("a"), buckets.next_at("b"), buckets.next_at("c")) == (1.0, 0.0, ALWAYS)
    for number in range(10_000):
        buckets.take(f"n{number}", float(number))
    assert len(buckets) < 3000


def test_without_a_rate_there_is_no_limit():
    buckets: KeyedTokenBuckets[str] = KeyedTokenBuckets(None)
    assert all(buckets.take("a", 0.0) for _ in range(100))
    assert buckets.next_at("a") == ALWAYS


@given(
    limits=st.lists(st.tuples(st.integers(1, 9), st.floats(1, 60)), min_size=1, max_size=3),
    pauses=st.lists(st.floats(0, 100), max_size=60),
)
def test_no_interval_has_more_events_than_its_window_allows(limits, pauses):
    window, now, times = SlidingWindow(*limits), 0.0, []
    for pause in pauses:
        now += pause
        while (wait := window.wait(now)) > 0.0:
            now += max(wait, 1e-6)
        window.take(now)
        times.append(now)
    for number, seconds in limits:
        assert all(later - first >= seconds - 1e-3 for first, later in zip(times, times[number:], strict=False))


def test_an_event_that_came_to_nothing_leaves_its_window():
    window = SlidingWindow((1, 60.0))
    window.take(1.0)
    assert window.wait(2.0) == 59.0
    window.give_back(1.0)
    window.give_back(1.0)
    assert window.wait(2.0) == 0.0


def test_other_limits_count_past_events():
    window = SlidingWindow((10, 60.0))
    window.take(0.0)
    window.limit((1, 60.0))
    assert window.wait(0.0) == 60.0
