import asyncio
import logging

import pytest

from tests.fakes.api import FakeApi
from tests.fakes.clock import START, SetClock
from trimtab.kube.api import Forbidden, Invalid, NotFound, ServerError, TooManyRequests, Unreachable
from trimtab.kube.events.event import WrittenEvent, event_name, truncate
from trimtab.kube.events.recorder import MAX_DELAY, URGENT_CHECK, EventRecorder, RecorderLimits
from trimtab.kube.resources import NODES, PODS, ObjectReference
from trimtab.kube.retry import Backoff

POD = ObjectReference.to(PODS, "web-1", namespace="shop", uid="u1")
NODE = ObjectReference.to(NODES, "n1", uid="u2")
SHOP = "/apis/events.k8s.io/v1/namespaces/shop/events"


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


def recorder(api: FakeApi, clock: SetClock, **options) -> EventRecorder:
    return EventRecorder(api, instance="trimtab-0", clock=clock, **options)


def tell(to: EventRecorder, regarding: ObjectReference = POD, *, note: str = "moved away", **options) -> None:
    to.event(regarding, **{"reason": "DuplicateOnNode", "action": "Evict", "note": note} | options)


def stored(api: FakeApi) -> list[dict]:
    return list(api.objects.values())


async def drained(each: EventRecorder) -> None:
    """Until nothing waits; the queue is what the recorder's own task works on."""
    await asyncio.wait_for(each._queue.join(), timeout=10)


async def test_event_is_valid_for_events_k8s_io(api, clock):
    async with recorder(api, clock) as events:
        tell(events, related=NODE, type="Warning")
    [event] = stored(api)
    name = event["metadata"].pop("name")
    del event["metadata"]["resourceVersion"], event["metadata"]["uid"]
    assert name.startswith("web-1.")
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "shop"},
        "eventTime": "2027-01-15T08:00:00.000000Z",
        "reportingController": "trimtab.dev/trimtab",
        "reportingInstance": "trimtab-0",
        "type": "Warning",
        "reason": "DuplicateOnNode",
        "action": "Evict",
        "note": "moved away",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web-1", "uid": "u1"},
        "related": {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u2"},
    }


async def test_events_on_cluster_scoped_objects_lie_in_default(api, clock):
    async with recorder(api, clock) as events:
        tell(events, NODE)
    assert next(iter(api.objects)).startswith("/apis/events.k8s.io/v1/namespaces/default/events/n1.")


async def test_the_time_of_an_event_is_when_it_happened_not_when_it_was_sent(api, clock):
    events = recorder(api, clock)
    tell(events)
    clock.time += 30
    async with events:
        pass
    assert stored(api)[0]["eventTime"] == "2027-01-15T08:00:00.000000Z"


async def test_equal_events_become_one_series(api, clock):
    async with recorder(api, clock) as events:
        tell(events)
        await drained(events)
        clock.time += 60
        tell(events)
        await drained(events)
    [event] = stored(api)
    assert event["series"] == {"count": 2, "lastObservedTime": "2027-01-15T08:01:00.000000Z"}
    assert [call.method for call in api.calls] == ["POST", "PATCH"]
    assert api.calls[1].content_type == "application/merge-patch+json"


async def test_repeats_that_wait_are_sent_as_one_with_their_count(api, clock):
    events = recorder(api, clock)
    for _ in range(100):
        tell(events)
    async with events:
        pass
    assert len(api.calls) == 1
    assert stored(api)[0]["series"]["count"] == 100
    assert events.statistics().repeated == 99


async def test_a_repeat_after_the_window_is_a_new_event(api, clock):
    async with recorder(api, clock) as events:
        tell(events)
        clock.time += 361
        tell(events)
    assert len(stored(api)) == 2


@pytest.mark.parametrize(
    "other", [{"note": "x"}, {"reason": "X"}, {"action": "X"}, {"type": "Warning"}, {"related": NODE}]
)
async def test_different_occurrences_are_separate_events(api, clock, other):
    async with recorder(api, clock) as events:
        tell(events)
        tell(events, **other)
    assert len(stored(api)) == 2


async def test_expired_event_is_created_again(api, clock):
    async with recorder(api, clock) as events:
        tell(events)
        await drained(events)
        api.objects.clear()
        tell(events)
    assert [call.method for call in api.calls] == ["POST", "PATCH", "POST"]
    assert len(stored(api)) == 1


async def test_oldest_events_are_forgotten(api, clock):
    """A forgotten event is created again instead of counted."""
    limits = RecorderLimits(remembered=2)
    others = [ObjectReference.to(PODS, f"web-{number}", namespace="shop", uid=f"u{number}") for number in (2, 3)]
    async with recorder(api, clock, limits=limits) as events:
        for regarding in (POD, *others, POD):
            tell(events, regarding)
            await drained(events)
    assert [call.method for call in api.calls] == ["POST"] * 4


async def test_series_that_goes_on_is_not_forgotten(api, clock):
    limits = RecorderLimits(remembered=2)
    others = [ObjectReference.to(PODS, f"web-{number}", namespace="shop", uid=f"u{number}") for number in (2, 3)]
    async with recorder(api, clock, limits=limits) as events:
        for regarding in (POD, others[0], POD, others[1], POD):
            tell(events, regarding)
            await drained(events)
    assert [call.method for call in api.calls] == ["POST", "POST", "PATCH", "POST", "PATCH"]


async def test_too_much_about_one_object_is_dropped_and_others_are_not_hurt(api, clock, caplog):
    limits = RecorderLimits(object_burst=3, object_rate=1 / 60)
    async with recorder(api, clock, limits=limits) as events:
        for number in range(10):
            tell(events, note=str(number))
        tell(events, NODE)
    assert len(stored(api)) == 4
    assert events.statistics().dropped == {"ObjectRate": 7}
    assert len([record for record in caplog.records if "Dropped an event" in record.message]) == 1


async def test_a_series_keeps_its_count_while_its_object_is_over_the_rate(api, clock):
    limits = RecorderLimits(object_burst=1, object_rate=1 / 3600)
    async with recorder(api, clock, limits=limits) as events:
        tell(events)
        await drained(events)
        for _ in range(5):
            tell(events)
        await drained(events)
        assert "series" not in stored(api)[0]
    assert stored(api)[0]["series"]["count"] == 6
    assert events.statistics().dropped == {}


async def test_series_that_has_ended_is_not_kept_and_its_count_is_written(api, clock):
    limits = RecorderLimits(object_burst=1, object_rate=1 / 3600)
    async with recorder(api, clock, limits=limits) as events:
        tell(events)
        await drained(events)
        for _ in range(5):
            tell(events)
        clock.time += 361
        tell(events, NODE)
        await drained(events)
        assert sorted(each.get("series", {}).get("count", 1) for each in stored(api)) == [1, 6]
        assert len(events._correlator._series) == 1


async def test_long_notes_are_cut_and_not_kept_once_they_are_written(api, clock):
    events = recorder(api, clock)
    tell(events, note="x" * 100_000)
    [queued] = events._correlator._series.values()
    assert len(queued.occurrence.note.encode()) == 1024
    async with events:
        await drained(events)
        assert [type(each) for each in events._correlator._series.values()] == [WrittenEvent]
    assert len(stored(api)[0]["note"].encode()) == 1024


async def test_a_series_goes_on_after_its_occurrence_was_dropped_from_memory(api, clock):
    async with recorder(api, clock) as events:
        for _ in range(3):
            tell(events)
            await drained(events)
        [other] = stored(api)
        assert other["series"]["count"] == 3
        api.objects.clear()  # the API server deletes events after an hour
        tell(events)
        await drained(events)
    assert [call.method for call in api.calls] == ["POST", "PATCH", "PATCH", "PATCH", "POST"]
    [again] = stored(api)
    assert again["series"]["count"] == 4
    assert again["eventTime"] == other["eventTime"]
    assert again["metadata"]["name"] != other["metadata"]["name"]


async def test_event_that_occurs_again_while_it_is_written_keeps_its_occurrence(api, clock):
    events = recorder(api, clock)
    tell(events)
    [event] = events._correlator._series.values()
    event.written, event.queued = 1, True
    events._correlator.shrink(event)
    assert list(events._correlator._series.values()) == [event]
    event.count, event.queued = 2, False
    events._correlator.shrink(event)
    assert list(events._correlator._series.values()) == [event]


async def test_objects_without_recent_events_are_forgotten(api, clock):
    events = recorder(api, clock, limits=RecorderLimits(queue=1))
    for number in range(5000):
        clock.time += 1
        tell(events, ObjectReference.to(PODS, f"web-{number}", namespace="shop", uid=f"u{number}"))
    assert len(events._correlator._buckets) <= 1024


async def test_lone_surrogate_in_a_note_is_escaped(api, clock):
    async with recorder(api, clock) as events:
        tell(events, note="unreadable: \udcff")
    assert stored(api)[0]["note"] == r"unreadable: \udcff"


async def test_sending_is_paced(api, clock):
    limits = RecorderLimits(burst=2, rate=1)
    async with recorder(api, clock, limits=limits) as events:
        for number in range(5):
            tell(events, note=str(number))
        await drained(events)
        assert clock.time == pytest.approx(START + 3)


async def test_a_full_queue_drops_and_never_blocks(api, clock):
    events = recorder(api, clock, limits=RecorderLimits(queue=2))
    for number in range(5):
        tell(events, note=str(number))
    assert events.statistics().dropped == {"QueueFull": 3}
    async with events:
        pass
    assert len(stored(api)) == 2


@pytest.mark.parametrize(
    "error", [Unreachable("cut"), TooManyRequests("slow", status=429), ServerError("broken", status=500)]
)
async def test_an_outage_loses_nothing(api, clock, error):
    api.fail(error, times=5)
    async with recorder(api, clock) as events:
        tell(events, note="1")
        tell(events, note="2")
        await drained(events)
    assert len(stored(api)) == 2
    assert events.statistics().written == 2


async def test_an_event_that_cannot_be_delivered_is_given_up(api, clock):
    api.fail(Unreachable("cut"), times=3)
    async with recorder(api, clock, retries=Backoff(attempts=3)) as events:
        tell(events, note="1")
        tell(events, note="2")
        await drained(events)
    assert events.statistics().dropped == {"Undelivered": 1}
    assert [event["note"] for event in stored(api)] == ["2"]


async def test_lost_response_creates_no_second_event(api, clock):
    async def lost(_call) -> None:
        api.after = None
        raise Unreachable("cut")

    api.after = lost
    async with recorder(api, clock) as events:
        tell(events)
        await drained(events)
    assert len(api.calls) == 2
    assert len(stored(api)) == 1


@pytest.mark.parametrize("error", [NotFound("namespaces shop not found", status=404), Forbidden("no", status=403)])
async def test_backoff_for_a_namespace_that_rejects_events(api, clock, error, caplog):
    caplog.set_level(logging.DEBUG)
    api.fail(error, times=100, path=SHOP)
    async with recorder(api, clock) as events:
        for number in range(3):
            tell(events, note=str(number))
        tell(events, NODE)
        await drained(events)
        clock.time += 61
        tell(events, note="later")
        await drained(events)
    assert len(api.sent("POST", SHOP)) == 2
    assert len(stored(api)) == 1
    assert events.statistics().dropped == {"Refused": 4}
    assert [record.levelname for record in caplog.records if "rejected an event" in record.message] == [
        "WARNING",
        "DEBUG",
    ]


async def test_an_invalid_event_is_dropped_and_the_next_one_sent(api, clock, caplog):
    api.fail(Invalid("note: too long", status=422))
    async with recorder(api, clock) as events:
        tell(events, note="1")
        tell(events, note="2")
    assert len(stored(api)) == 1
    assert "note: too long" in caplog.text


async def test_a_fault_of_our_own_does_not_end_the_recorder(api, clock, caplog):
    api.fail(KeyError("bug"))
    async with recorder(api, clock) as events:
        tell(events, note="1")
        tell(events, note="2")
    assert len(stored(api)) == 1
    assert events.statistics().dropped == {"Undelivered": 1}


async def test_stop_sends_queued_events(api, clock):
    events = recorder(api, clock, limits=RecorderLimits(burst=1, rate=0.001))
    for number in range(20):
        tell(events, note=str(number))
    async with events:
        pass
    assert len(stored(api)) == 20


async def test_stop_drops_and_counts_events_after_its_deadline(api, clock):
    never = asyncio.Event()

    async def hang(_call) -> None:
        await never.wait()

    api.before = hang
    events = recorder(api, clock)
    sending = asyncio.create_task(events.run())
    await asyncio.sleep(0)
    for number in range(3):
        tell(events, note=str(number))
    await events.stop(deadline=0.05)
    sending.cancel()
    await asyncio.wait({sending})
    tell(events, note="too late")
    assert events.statistics().dropped == {"Stopped": 4}


def test_recorder_can_be_stopped_before_start(api, clock):
    events = recorder(api, clock)
    tell(events)
    assert events.statistics().waiting == 1


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [("abc", 3, "abc"), ("abcdef", 5, "ab…"), ("äöü" * 400, 1024, "äöü" * 170 + "…"), ("", 3, "")],
)
def test_notes_are_truncated_at_whole_characters(text, limit, expected):
    assert truncate(text, limit) == expected
    assert len(truncate(text, limit).encode()) <= limit


@pytest.mark.parametrize(
    ("name", "expected"),
    [("web-1", "web-1.ff"), ("system:Node", "system-node.ff"), ("x" * 300, "x" * 250 + ".ff"), ("::", "event.ff")],
)
def test_event_names_are_valid_for_any_object_name(name, expected):
    assert event_name(ObjectReference(kind="ClusterRole", name=name), 255) == expected


async def test_many_events_in_one_instant_have_different_names(api, clock):
    async with recorder(api, clock) as events:
        for number in range(50):
            tell(events, note=str(number))
    assert len(stored(api)) == 50


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("one two three", 13, "one two three"),
        ("one two three", 12, "one two…"),
        ("one two three", 10, "one two…"),
        ("x" * 20, 10, "xxxxxxx…"),
        ("a " + "x" * 20, 10, "a xxxxx…"),
        ("äää ööö", 10, "äää…"),
    ],
)
def test_truncation_ends_at_a_word(text: str, limit: int, expected: str) -> None:
    assert truncate(text, limit) == expected
    assert len(expected.encode()) <= limit


async def test_events_wait_for_urgent_requests_but_not_longer_than_the_limit(api, clock):
    urgent, began = True, clock.monotonic()
    async with recorder(api, clock, urgent=lambda: urgent) as events:
        tell(events, note="first")
        await drained(events)
        assert MAX_DELAY <= clock.monotonic() - began < MAX_DELAY + 2 * URGENT_CHECK
        urgent, again = False, clock.monotonic()
        tell(events, note="second")
        await drained(events)
        assert clock.monotonic() - again < URGENT_CHECK
    assert len(stored(api)) == 2


async def test_stop_does_not_wait_for_urgent_requests(api, clock):
    async with recorder(api, clock, urgent=lambda: True) as events:
        tell(events)
    assert len(stored(api)) == 1
    assert clock.monotonic() - SetClock().monotonic() < MAX_DELAY
