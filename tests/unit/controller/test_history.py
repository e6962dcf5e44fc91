"""The writer of the history: batches, bounds, restarts, conflicts, lost responses, missing permissions, pruning."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from tests.fakes.api import Call, FakeApi
from tests.fakes.clock import LoopClock
from trimtab.api.history_record import HistoryEntry
from trimtab.api.scalars import to_time
from trimtab.controller.history import (
    FLUSH_INTERVAL,
    MAX_MESSAGE,
    PERMISSION_RETRY,
    PRUNE_INTERVAL,
    SAME_REFUSAL,
    WRITER_LABEL,
    HistoryLimits,
    HistoryMetrics,
    HistoryWriter,
)
from trimtab.inspection.history import entries_of
from trimtab.kube.api import Forbidden, Invalid, NotFound, Unreachable
from trimtab.kube.clock import calendar_time
from trimtab.kube.verbs import METADATA

pytestmark = pytest.mark.looptime
PATH = "/apis/trimtab.dev/v1alpha1/historyrecords"
CLOCK = LoopClock()
DAY = 86400.0


def entry(number: int = 0, **fields: Any) -> HistoryEntry:
    values: dict[str, Any] = {"controller": "descheduler", "action": "Evict", "reason": "DuplicateOnNode"}
    values |= {"namespace": "shop", "pod": f"web-{number}", "uid": f"uid-{number}", "node": "n1"}
    return HistoryEntry(time=to_time(CLOCK.now()), **(values | fields))


class Server(FakeApi):
    """Sets the creation time, as an API server does."""

    def _create(self, call: Call) -> Any:
        stored = super()._create(call)
        stored["metadata"]["creationTimestamp"] = calendar_time(CLOCK.now()).isoformat()
        return stored

    @property
    def records(self) -> list[dict[str, Any]]:
        return [item | {"kind": "HistoryRecord"} for item in self.objects.values()]

    @property
    def pods(self) -> list[str]:
        return [each.pod for each in entries_of(self.records)]


def writer_of(api: FakeApi, *, name: str = "trimtab", registry: CollectorRegistry | None = None, **limits: Any) -> Any:
    metrics = HistoryMetrics(registry or CollectorRegistry())
    return HistoryWriter(api, clock=CLOCK, writer=name, limits=HistoryLimits(**limits), metrics=metrics)


@asynccontextmanager
async def running(writer: HistoryWriter, *, stop: bool = True) -> AsyncIterator[HistoryWriter]:
    task = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if stop:
            await writer.stop()


async def test_entries_are_appended_to_one_record() -> None:
    api = Server()
    async with running(writer_of(api)) as writer:
        for number in range(5):
            writer.add(entry(number))
            await asyncio.sleep(10)
    [record] = api.records
    assert record["spec"]["count"] == 5
    assert (record["spec"]["first"], record["spec"]["last"]) == tuple(
        record["spec"]["entries"][at]["time"] for at in (0, -1)
    )
    assert record["metadata"]["labels"][WRITER_LABEL] == "trimtab"
    assert api.pods == [f"web-{number}" for number in range(5)]


async def test_entries_within_the_interval_are_one_request() -> None:
    api = Server()
    async with running(writer_of(api)) as writer:
        writer.add(entry(0))
        await asyncio.sleep(0.1)
        for number in range(1, 100):
            writer.add(entry(number))
            await asyncio.sleep(FLUSH_INTERVAL / 200)
        await asyncio.sleep(FLUSH_INTERVAL)
    assert [call.method for call in api.sent() if call.method != "GET"] == ["POST", "PATCH"]
    assert len(api.pods) == 100


async def test_entries_that_arrive_during_writes_wait_for_the_interval() -> None:
    api = Server()

    async def slow(_: Call) -> None:
        await asyncio.sleep(0.1)

    api.before = slow
    async with running(writer_of(api)) as writer:
        for number in range(100):
            writer.add(entry(number))
            await asyncio.sleep(FLUSH_INTERVAL / 50)
        await asyncio.sleep(2 * FLUSH_INTERVAL)
    writes = [call for call in api.sent() if call.method != "GET"]
    assert len(writes) == 3
    assert {call.accept for call in writes} == {METADATA}
    assert len(api.pods) == 100


@pytest.mark.parametrize(("entries", "records"), [(250, 1), (251, 2), (7200, 29)])
async def test_a_full_record_is_followed_by_another(entries: int, records: int) -> None:
    api = Server()
    async with running(writer_of(api)) as writer:
        for number in range(entries):
            writer.add(entry(number))
        await asyncio.sleep(1)
        assert len(api.sent("POST")) == records
    assert {each["spec"]["count"] for each in api.records[:-1]} <= {250}
    assert sorted(api.pods) == sorted(f"web-{number}" for number in range(entries))


async def test_records_are_bounded_in_bytes() -> None:
    api, text = Server(), "x" * 2000
    async with running(writer_of(api, record_bytes=5000)) as writer:
        for number in range(20):
            writer.add(entry(number, message=text, result_message=text))
    sizes = [len(str(each["spec"])) for each in api.records]
    assert max(sizes) < 6000
    assert len(api.pods) == 20
    assert {len(each.message.encode()) for each in entries_of(api.records)} == {MAX_MESSAGE}


async def test_a_restart_continues_the_newest_own_record() -> None:
    api = Server()
    async with running(writer_of(api, name="other")) as writer:
        writer.add(entry(99))
    async with running(writer_of(api, record_entries=3)) as writer:
        for number in range(4):
            writer.add(entry(number))
    await asyncio.sleep(60)
    async with running(writer_of(api, record_entries=3)) as writer:
        writer.add(entry(4))
    counts: dict[str, list[int]] = {"other": [], "trimtab": []}
    for each in api.records:
        counts[each["metadata"]["labels"][WRITER_LABEL]].append(each["spec"]["count"])
    assert counts == {"other": [1], "trimtab": [3, 2]}


async def test_a_killed_process_loses_only_what_it_had_not_written() -> None:
    api = Server()
    async with running(writer_of(api), stop=False) as writer:
        writer.add(entry(0))
        await asyncio.sleep(1)
        writer.add(entry(1))
    async with running(writer_of(api)) as writer:
        writer.add(entry(2))
    assert api.pods == ["web-0", "web-2"]
    assert len(api.records) == 1


async def test_stop_writes_what_waits() -> None:
    api = Server()
    writer = writer_of(api)
    writer.add(entry(0))
    await writer.stop()
    assert api.pods == ["web-0"]


async def test_stop_ends_in_time_if_the_server_does_not_respond() -> None:
    async def hang(_: Call) -> None:
        await asyncio.sleep(3600)

    writer = writer_of(Server(before=hang))
    writer.add(entry(0))
    began = CLOCK.monotonic()
    await writer.stop()
    assert CLOCK.monotonic() - began <= 5.0


@pytest.mark.parametrize("lost", ["POST", "PATCH"])
@pytest.mark.parametrize("stored", [True, False])
async def test_a_lost_response_duplicates_and_loses_nothing(lost: str, stored: bool) -> None:
    api = Server()
    failing = [lost]

    async def lose(call: Call) -> None:
        if failing and call.method == failing[0]:
            failing.pop()
            raise Unreachable("connection reset")

    if stored:
        api.after = lose
    else:
        api.before = lose
    async with running(writer_of(api)) as writer:
        for number in range(3):
            writer.add(entry(number))
            await asyncio.sleep(0 if number else 20)
        await asyncio.sleep(60)
        assert not writer.problem
    assert [len(each["spec"]["entries"]) for each in api.records] == [3]
    assert api.pods == ["web-0", "web-1", "web-2"]


@pytest.mark.parametrize("change", ["modified", "deleted", "recreated"])
async def test_a_record_that_another_client_changed_is_not_extended(change: str) -> None:
    api = Server()
    async with running(writer_of(api)) as writer:
        writer.add(entry(0))
        await asyncio.sleep(10)
        [(path, record)] = api.objects.items()
        assert record["metadata"]["labels"][WRITER_LABEL] == "trimtab"
        del api.objects[path]
        if change != "deleted":
            changed = {**record, "spec": {"entries": []}, "metadata": {**record["metadata"]}}
            if change == "recreated":
                del changed["metadata"]["uid"]
            api.put(path, changed)
        writer.add(entry(1))
        await asyncio.sleep(10)
        writer.add(entry(2))
    assert api.pods == ["web-1", "web-2"]
    assert len(api.records) == (1 if change == "deleted" else 2)


async def test_oldest_records_are_deleted_by_number() -> None:
    api = Server()
    async with running(writer_of(api, records=3, record_entries=2)) as writer:
        for number in range(11):
            writer.add(entry(number))
            await asyncio.sleep(5)
    assert api.pods == [f"web-{number}" for number in range(6, 11)]
    assert len(api.sent("DELETE")) == 3


async def test_records_of_all_writers_are_deleted_by_age() -> None:
    api = Server()
    async with running(writer_of(api, name="replaced")) as writer:
        writer.add(entry(0))
    async with running(writer_of(api, max_age=7 * DAY)) as writer:
        for day in range(20):
            writer.add(entry(day + 1))
            await asyncio.sleep(DAY)
    kept = entries_of(api.records)
    ages = [CLOCK.now() - each.time.timestamp() for each in kept]
    assert 7 * DAY < max(ages) < 9 * DAY
    assert "web-0" not in api.pods
    assert len(api.sent("DELETE")) == 21 - len(api.records)


async def test_the_queue_is_bounded_and_drops_the_oldest(caplog: pytest.LogCaptureFixture) -> None:
    api, registry = Server(down=True), CollectorRegistry()
    async with running(writer_of(api, registry=registry, queue=100)) as writer:
        for number in range(150):
            writer.add(entry(number))
        await asyncio.sleep(300)
        assert (writer.waiting(), registry.get_sample_value("trimtab_history_entries_waiting")) == (100, 100)
        assert len(api.calls) < 15
        api.down = False
        await asyncio.sleep(120)
        assert writer.problem == ""
    assert api.pods == [f"web-{number}" for number in range(50, 150)]
    assert registry.get_sample_value("trimtab_history_entries_dropped_total") == 50
    assert registry.get_sample_value("trimtab_history_entries_written_total") == 100
    assert [each.levelname for each in caplog.records if each.name == "trimtab.controller.history"].count(
        "WARNING"
    ) == 2


async def test_writing_resumes_soon_after_the_permission_is_granted() -> None:
    api = Server()
    api.fail(Forbidden("historyrecords is forbidden", status=403), times=10**6)
    async with running(writer_of(api)) as writer:
        writer.add(entry(0))
        await asyncio.sleep(600)
        assert "forbidden" in writer.problem
        api.faults.clear()
        await asyncio.sleep(PERMISSION_RETRY)
        assert (api.pods, writer.problem) == (["web-0"], "")


async def test_writing_begins_when_the_crd_is_installed() -> None:
    api = Server()
    api.fail(NotFound("the server could not find the requested resource", status=404), times=8)
    async with running(writer_of(api)) as writer:
        writer.add(entry(0))
        await asyncio.sleep(600)
    assert api.pods == ["web-0"]


async def test_entries_that_the_server_rejects_do_not_block_later_ones() -> None:
    api = Server()
    api.fail(Invalid("unsupported value", status=422), method="POST")
    async with running(writer_of(api)) as writer:
        writer.add(entry(0))
        await asyncio.sleep(5)
        writer.add(entry(1))
    assert api.pods == ["web-1"]


@pytest.mark.parametrize("fields", [{"reason": ""}, {"pod": "x" * 300}, {"controller": "other"}, {"taint": "x" * 600}])
async def test_an_invalid_entry_is_dropped(fields: dict[str, Any]) -> None:
    api = Server()
    async with running(writer_of(api)) as writer:
        writer.add(entry(0, **fields))
        writer.add(entry(1))
    assert api.pods == ["web-1"]


async def test_control_characters_are_escaped() -> None:
    api = Server()
    async with running(writer_of(api)) as writer:
        writer.add(entry(0, message="\x1b[2J\nforged"))
    [found] = entries_of(api.records)
    assert found.message == r"\x1b[2J\nforged"


@pytest.mark.parametrize(
    ("other", "after", "number"),
    [
        ({}, 60.0, 1),
        ({}, SAME_REFUSAL + 60, 2),
        ({"result_reason": "Webhook"}, 60.0, 2),
        ({"controller": "autoscaler"}, 60.0, 2),
        ({"uid": "uid-new"}, 60.0, 2),
        ({"result": "Succeeded", "result_reason": None}, 60.0, 2),
    ],
)
async def test_the_same_refusal_is_recorded_once_an_hour(other: dict[str, Any], after: float, number: int) -> None:
    api = Server()
    refused = entry(0, result="Refused", result_reason="DisruptionBudget")
    async with running(writer_of(api)) as writer:
        writer.add(refused)
        await asyncio.sleep(after)
        writer.add(replace(refused, time=to_time(CLOCK.now()), **other))
    assert len(entries_of(api.records)) == number


async def test_an_idle_writer_sends_one_list_an_hour() -> None:
    api = Server()
    async with running(writer_of(api)):
        await asyncio.sleep(10 * PRUNE_INTERVAL)
    assert 9 <= len(api.calls) <= 11


async def test_without_records_nothing_is_kept() -> None:
    api = Server()
    async with running(writer_of(api, records=0)) as writer:
        writer.add(entry(0))
        await asyncio.sleep(60)
        assert writer.waiting() == 0
    assert not api.calls


async def test_an_unexpected_error_does_not_end_the_task() -> None:
    api = Server()
    api.fail(RuntimeError("bug"))
    async with running(writer_of(api)) as writer:
        writer.add(entry(0))
        await asyncio.sleep(300)
    assert api.pods == ["web-0"]
