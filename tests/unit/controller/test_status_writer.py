"""The newest status is written, one write at a time, and a failure does not delay the code that makes it."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.fakes.api import Call, FakeApi
from tests.fakes.clock import LoopClock
from trimtab.api import base
from trimtab.controller.status_writer import RETRY, StatusWriter, write_status, write_when
from trimtab.kube.api import ApiError, Forbidden, NotFound, ServerError, TooManyRequests, Unreachable
from trimtab.kube.resources import TAINT_MANAGERS
from trimtab.kube.verbs import METADATA_ONLY

pytestmark = pytest.mark.looptime(start=0)

PATH = TAINT_MANAGERS.path("default")
EVERY = 10.0


class Status(base.Status, frozen=True):
    """A number, and a word that is worth a write of its own."""

    number: int = 0
    word: str = ""


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi()
    api.put(PATH, {"status": {}})
    return api


@pytest.fixture
def writer(api: FakeApi) -> StatusWriter[Status]:
    return StatusWriter(
        api,
        LoopClock(),
        resource=TAINT_MANAGERS,
        name="default",
        empty=Status(),
        should_write=write_when(lambda status: status.word, period=EVERY),
    )


def numbers(api: FakeApi) -> list[int]:
    """What was sent, tries that failed among it."""
    return [call.body["status"]["number"] for call in api.calls]


async def test_only_the_status_subresource_is_patched(api: FakeApi, writer: StatusWriter[Status]) -> None:
    writer.put(Status(1))
    await writer.flush(1.0)
    [call] = api.calls
    assert (call.path, call.content_type) == (f"{PATH}/status", "application/merge-patch+json")
    assert call.accept == METADATA_ONLY, "a response with the status has tens of kilobytes"
    assert call.body == {"status": {"number": 1, "word": None}}


async def test_only_the_latest_status_put_during_a_write_is_written_next(
    api: FakeApi, writer: StatusWriter[Status]
) -> None:
    async def slowly(_: Call) -> None:
        await asyncio.sleep(1.0)

    api.before = slowly
    writer.put(Status(1, "a"))
    await asyncio.sleep(0.5)
    writer.put(Status(2, "b"))
    writer.put(Status(3, "c"))
    await writer.flush(10.0)
    assert numbers(api) == [1, 3]


async def test_postponed_status_is_written_when_due_or_on_stop(api: FakeApi, writer: StatusWriter[Status]) -> None:
    writer.put(Status(1))
    await writer.flush(1.0)
    writer.put(Status(2))
    await writer.flush(1.0)
    assert numbers(api) == [1]
    await asyncio.sleep(EVERY)
    writer.put(Status(3))
    await writer.flush(1.0)
    assert numbers(api) == [1, 3]
    writer.put(Status(4))
    await writer.stop()
    assert numbers(api) == [1, 3]
    await writer.stop(everything=True)
    assert numbers(api) == [1, 3, 4]


@pytest.mark.parametrize(
    "error", [Unreachable("down"), ServerError("ill", status=503), TooManyRequests("slow", status=429)]
)
async def test_transient_errors_are_retried(api: FakeApi, writer: StatusWriter[Status], error: Exception) -> None:
    api.fail(error, times=2)
    writer.put(Status(1))
    await writer.flush(60.0)
    assert numbers(api) == [1, 1, 1]
    assert api.objects[PATH]["status"]["number"] == 1


async def test_write_is_given_up_in_an_outage_until_the_next_status(api: FakeApi, writer: StatusWriter[Status]) -> None:
    api.down = True
    writer.put(Status(1))
    await writer.flush(60.0)
    assert numbers(api) == [1] * RETRY.attempts
    api.down = False
    writer.put(Status(2))
    await writer.flush(60.0)
    assert api.objects[PATH]["status"]["number"] == 2


@pytest.mark.parametrize("error", [NotFound("gone", status=404), Forbidden("no", status=403)])
async def test_permanent_errors_are_not_retried(api: FakeApi, writer: StatusWriter[Status], error: ApiError) -> None:
    api.fail(error)
    writer.put(Status(1))
    await writer.flush(60.0)
    assert numbers(api) == [1]


@pytest.mark.parametrize("error", [Unreachable("down"), Forbidden("no", status=403)])
async def test_a_writer_that_gave_up_is_behind_until_the_cluster_has_the_status(
    api: FakeApi, writer: StatusWriter[Status], error: Exception
) -> None:
    assert not writer.out_of_sync
    api.fail(error, times=RETRY.attempts or 1)
    await writer.write(Status(1))
    api.faults.clear()
    assert writer.out_of_sync
    await writer.write(Status(1))
    assert not writer.out_of_sync
    assert api.objects[PATH]["status"]["number"] == 1
    await writer.write(Status(2))
    assert not writer.out_of_sync, "it is not worth writing yet, and nothing failed"


async def test_writer_without_pending_status_is_in_sync(api: FakeApi, writer: StatusWriter[Status]) -> None:
    await writer.write(Status(1))
    api.fail(Forbidden("no", status=403))
    await writer.write(Status(1, "a"))
    assert writer.out_of_sync
    writer.put(Status(1))
    assert not writer.out_of_sync


async def test_the_status_of_an_object_that_does_not_exist_is_not_behind(
    api: FakeApi, writer: StatusWriter[Status]
) -> None:
    api.fail(NotFound("gone", status=404))
    await writer.write(Status(1))
    assert not writer.out_of_sync


async def test_resume_does_not_rewrite_an_equal_status(api: FakeApi, writer: StatusWriter[Status]) -> None:
    writer.resume({"number": 7, "later": "field"})
    assert writer.status == Status(7)
    writer.put(Status(7))
    await writer.flush(1.0)
    assert api.calls == []


async def test_undecodable_status_is_rebuilt_from_empty(
    writer: StatusWriter[Status], caplog: pytest.LogCaptureFixture
) -> None:
    writer.resume({"number": "many"})
    assert writer.status == Status()
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_a_write_can_be_waited_for(api: FakeApi, writer: StatusWriter[Status]) -> None:
    api.fail(ServerError("ill", status=503))
    await writer.write(Status(1))
    assert api.objects[PATH]["status"]["number"] == 1
    await writer.write(Status(1))
    assert numbers(api) == [1, 1]


async def test_awaited_write_raises_after_its_retries(api: FakeApi) -> None:
    api.down = True
    with pytest.raises(Unreachable):
        await write_status(api, TAINT_MANAGERS, "default", Status(1), clock=LoopClock())
    assert numbers(api) == [1] * RETRY.attempts
    api.down = False
    response = await write_status(api, TAINT_MANAGERS, "default", Status(2), clock=LoopClock())
    assert response["status"]["number"] == 2


async def test_write_has_the_uid_as_precondition(api: FakeApi) -> None:
    api.put(PATH, {"metadata": {"uid": "u1"}, "status": {}})
    await write_status(api, TAINT_MANAGERS, "default", Status(1), uid="u1", clock=LoopClock())
    assert api.calls[-1].body["metadata"] == {"uid": "u1"}


async def test_amended_status_is_built_on_and_written_with_the_next_change(
    api: FakeApi, writer: StatusWriter[Status]
) -> None:
    writer.amend(Status(1, "kept"))
    await asyncio.sleep(1.0)
    assert api.calls == []

    assert writer.status == Status(1, "kept")
    writer.put(msgspec.structs.replace(writer.status, number=2))
    await writer.flush(1.0)

    [call] = api.calls
    assert call.body == {"status": {"number": 2, "word": "kept"}}
