import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.kube.clock import micro_time
from trimtab.kube.events.token_bucket import TokenBucket
from trimtab.kube.retry import Backoff


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


def test_a_clock_that_goes_back_gives_no_tokens():
    bucket = TokenBucket(rate=1.0, burst=1, now=100.0)
    assert bucket.take(100.0)
    assert not bucket.take(50.0)
    assert not bucket.take(100.5)
    assert bucket.take(101.0)


def test_micro_times_have_six_digits():
    assert micro_time(1_795_176_000.5) == "2026-11-20T12:00:00.500000Z"
