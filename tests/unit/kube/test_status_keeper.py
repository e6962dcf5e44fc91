"""The keeper of a status: the newest one is written, one write at a time, and nothing that fails holds its maker up."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from msgspec import Struct

from tests.fakes.api import Call, FakeApi
from tests.fakes.clock import LoopClock
from trimtab.kube.api import ApiError, Forbidden, NotFound, ServerError, TooManyRequests, Unreachable
from trimtab.kube.resources import TAINT_MANAGERS
from trimtab.kube.status_keeper import TRIES, StatusKeeper

pytestmark = pytest.mark.looptime(start=0)

PATH = TAINT_MANAGERS.path("default")
EVERY = 10.0


class Status(Struct, frozen=True):
    """A number, and a word that is worth a write of its own."""

    number: int = 0
    word: str = ""


def worth_writing(old: Status, new: Status, *, written: float | None, now: float) -> bool:
    if written is None or old.word != new.word:
        return old != new
    return old != new and now - written >= EVERY


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi()
    api.put(PATH, {"status": {}})
    return api


@pytest.fixture
def keeper(api: FakeApi) -> StatusKeeper[Status]:
    return StatusKeeper(
        api,
        LoopClock(),
        resource=TAINT_MANAGERS,
        name="default",
        empty=Status(),
        patch=msgspec.to_builtins,
        worth_writing=worth_writing,
    )


def numbers(api: FakeApi) -> list[int]:
    """What was sent, tries that failed among it."""
    return [call.body["status"]["number"] for call in api.calls]


async def test_it_is_written_to_the_status_alone(api: FakeApi, keeper: StatusKeeper[Status]) -> None:
    keeper.put(Status(1))
    await keeper.flush(1.0)
    [call] = api.calls
    assert (call.path, call.content_type) == (f"{PATH}/status", "application/merge-patch+json")
    assert call.body == {"status": {"number": 1, "word": ""}}


async def test_what_comes_while_one_is_written_is_written_after_it_and_only_the_newest(
    api: FakeApi, keeper: StatusKeeper[Status]
) -> None:
    async def slowly(_: Call) -> None:
        await asyncio.sleep(1.0)

    api.before = slowly
    keeper.put(Status(1, "a"))
    await asyncio.sleep(0.5)
    keeper.put(Status(2, "b"))
    keeper.put(Status(3, "c"))
    await keeper.flush(10.0)
    assert numbers(api) == [1, 3]


async def test_what_is_not_worth_it_waits_for_its_time_or_the_end(api: FakeApi, keeper: StatusKeeper[Status]) -> None:
    keeper.put(Status(1))
    await keeper.flush(1.0)
    keeper.put(Status(2))
    await keeper.flush(1.0)
    assert numbers(api) == [1]
    await asyncio.sleep(EVERY)
    keeper.put(Status(3))
    await keeper.flush(1.0)
    assert numbers(api) == [1, 3]
    keeper.put(Status(4))
    await keeper.stop()
    assert numbers(api) == [1, 3]
    await keeper.stop(everything=True)
    assert numbers(api) == [1, 3, 4]


@pytest.mark.parametrize(
    "error", [Unreachable("down"), ServerError("ill", status=503), TooManyRequests("slow", status=429)]
)
async def test_what_passes_is_tried_again(api: FakeApi, keeper: StatusKeeper[Status], error: Exception) -> None:
    api.fail(error, times=2)
    keeper.put(Status(1))
    await keeper.flush(60.0)
    assert numbers(api) == [1, 1, 1]
    assert api.objects[PATH]["status"]["number"] == 1


async def test_an_outage_is_given_up_until_the_next_one_comes(api: FakeApi, keeper: StatusKeeper[Status]) -> None:
    api.down = True
    keeper.put(Status(1))
    await keeper.flush(60.0)
    assert numbers(api) == [1] * TRIES
    api.down = False
    keeper.put(Status(2))
    await keeper.flush(60.0)
    assert api.objects[PATH]["status"]["number"] == 2


@pytest.mark.parametrize("error", [NotFound("gone", status=404), Forbidden("no", status=403)])
async def test_what_does_not_pass_is_not_tried_again(
    api: FakeApi, keeper: StatusKeeper[Status], error: ApiError
) -> None:
    api.fail(error)
    keeper.put(Status(1))
    await keeper.flush(60.0)
    assert numbers(api) == [1]


async def test_it_goes_on_from_what_stands_in_the_cluster(api: FakeApi, keeper: StatusKeeper[Status]) -> None:
    keeper.take_up({"number": 7, "later": "field"})
    assert keeper.status == Status(7)
    keeper.put(Status(7))
    await keeper.flush(1.0)
    assert api.calls == []


async def test_one_that_cannot_be_read_starts_anew(
    keeper: StatusKeeper[Status], caplog: pytest.LogCaptureFixture
) -> None:
    keeper.take_up({"number": "many"})
    assert keeper.status == Status()
    assert "the status of TaintManager default cannot be read" in caplog.text
