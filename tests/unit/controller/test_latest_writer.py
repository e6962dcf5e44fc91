"""The newest of several values is written, one write at a time, at a pace, and again after a failure."""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes.clock import LoopClock
from trimtab.controller.latest_writer import LatestWriter
from trimtab.kube.retry import Backoff

pytestmark = pytest.mark.looptime(start=0)


class Writer(LatestWriter[int]):
    """Records what it sends and when; a send takes a second."""

    def __init__(self, *errors: Exception, between: float = 0.0, attempts: int = 3) -> None:
        retry = Backoff(initial=10.0, maximum=10.0, jitter=0.0, attempts=attempts)
        super().__init__(LoopClock(), "numbers", 0, retry=retry, retried=(OSError,), between=between)
        self.errors = list(errors)
        self.sent: list[tuple[float, int]] = []
        self.failures: list[bool] = []

    async def _send(self, value: int) -> None:
        await asyncio.sleep(1.0)
        if self.errors:
            raise self.errors.pop(0)
        self.sent.append((asyncio.get_running_loop().time(), value))

    def _failed(self, error: Exception, *, retried: bool) -> None:
        self.failures.append(retried)


async def test_values_put_during_a_write_are_coalesced_to_the_latest() -> None:
    writer = Writer()
    for value in (1, 2, 3):
        writer.put(value)
        await asyncio.sleep(0.1)
    assert await writer.flush(10)
    assert writer.sent == [(1.0, 1), (2.0, 3)]


async def test_two_writes_are_so_far_apart_and_a_flush_waits_for_no_pause() -> None:
    writer = Writer(between=5.0)
    writer.put(1)
    await asyncio.sleep(2)
    writer.put(2)
    assert await writer.flush(10)
    assert writer.sent == [(1.0, 1), (7.0, 2)]
    assert asyncio.get_running_loop().time() == 7.0
    await writer.cancel()


async def test_an_error_that_may_be_over_is_retried_and_any_other_gives_up_until_the_next_value() -> None:
    writer = Writer(OSError("cut"), ValueError("a defect"))
    assert not await writer.write(1)
    assert writer.failures == [True, False]
    assert writer.out_of_sync
    assert await writer.write(2)
    assert [value for _, value in writer.sent] == [2]
    assert not writer.out_of_sync


async def test_a_flush_waits_no_longer_than_it_may() -> None:
    writer = Writer(*(OSError("cut") for _ in range(9)), attempts=0)
    writer.put(1)
    assert not await writer.flush(15)
    await writer.stop()
    assert writer.sent == []
    assert asyncio.get_running_loop().time() == 20.0
