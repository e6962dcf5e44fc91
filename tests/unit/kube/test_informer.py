"""The informer against a scripted server."""

import asyncio
import logging
import threading
from contextlib import asynccontextmanager

import msgspec
import pytest

from tests.builders import machine_set, node, pod
from tests.fakes.clock import START, LoopClock
from tests.fakes.watch import END, HOLD, Json, Protobuf, ScriptedApi
from tests.fixtures.golden import Golden
from trimtab.kube.api import (
    ApiError,
    Forbidden,
    Gone,
    IdleTimeout,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from trimtab.kube.errors import InputError
from trimtab.kube.resources import DESCHEDULER_POLICIES, MACHINE_SETS, NODES, PODS
from trimtab.kube.watching import informer as informer_module
from trimtab.kube.watching.informer import THREAD_DECODE_BYTES, Informer, ServerAbilities
from trimtab.kube.watching.store import Store

pytestmark = pytest.mark.looptime

BOTH = pytest.mark.parametrize("wire", [Protobuf(), Json()], ids=["protobuf", "json"])
PROTOBUF = Protobuf()
A, B, C = (pod(name).manifest() for name in "abc")


class Watching:
    """A running informer, with the notifications of its store."""

    def __init__(self, api, informer):
        self.api = api
        self.informer = informer
        self.store = informer.store
        self.recorded = []
        self.store.subscribe(lambda old, new: self.recorded.append((old and old.name, new and new.name)))

    def versions(self):
        return {value.name: value.resource_version for value in self.store}


@asynccontextmanager
async def watching(answers, *, resource=PODS, wire=PROTOBUF, **options):
    api = ScriptedApi(list(answers))
    abilities = options.pop("abilities", ServerAbilities())
    if isinstance(wire, Json):
        abilities.protobuf = False
    clock = LoopClock()
    informer = Informer(api, resource, Store(clock=clock), abilities=abilities, clock=clock, **options)
    task = asyncio.create_task(informer.run())
    try:
        yield Watching(api, informer)
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def until(condition):
    """Virtual time passes until the condition holds."""
    for _ in range(20_000):
        if condition():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("it never came to hold")


def initial(wire, *manifests, version=10):
    return [*(wire.event("ADDED", each, version - 1) for each in manifests), wire.bookmark("Pod", version, END)]


@BOTH
async def test_the_store_is_synced_when_the_initial_events_are_through(wire):
    more = asyncio.Event()
    first, second, end = initial(wire, A, B)
    async with watching([[first, second, more, end, HOLD]], wire=wire) as observed:
        await until(lambda: len(observed.store) == 2)
        assert not observed.store.synced
        more.set()
        await observed.informer.synced()
        assert observed.store.synced
        assert observed.informer.state.phase == "Watching"
        assert observed.store.last_event == pytest.approx(START, abs=10)
    requested = observed.api.opened[0]
    assert requested.path == "/api/v1/pods"
    assert requested.params["sendInitialEvents"] == requested.params["allowWatchBookmarks"] == "true"
    assert requested.params["resourceVersionMatch"] == "NotOlderThan"
    assert requested.params["resourceVersion"] == "0"
    assert 290 <= int(requested.params["timeoutSeconds"]) < 320


@BOTH
async def test_watch_events_update_the_store_and_notify_listeners(wire):
    events = [
        wire.event("ADDED", B, 11),
        wire.event("MODIFIED", A, 12),
        wire.event("DELETED", B, 13),
    ]
    async with watching([[*initial(wire, A), *events, HOLD]], wire=wire) as observed:
        await until(lambda: len(observed.recorded) == 4)
        assert observed.recorded == [(None, "a"), (None, "b"), ("a", "a"), ("b", None)]
        assert observed.versions() == {"a": "12"}


@BOTH
@pytest.mark.parametrize("size", [1, 7, 100])
async def test_events_may_be_split_at_any_byte(wire, size):
    stream = b"".join([*initial(wire, A, B), wire.event("MODIFIED", A, 11)])
    chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
    async with watching([[*chunks, HOLD]], wire=wire) as observed:
        await until(lambda: observed.versions() == {"a": "11", "b": "9"})


@BOTH
async def test_event_of_an_unknown_type_is_ignored_with_a_warning(wire, caplog):
    events = [wire.event("RENAMED", A, 11), wire.event("ADDED", B, 12)]
    async with watching([[*initial(wire, A), *events, HOLD]], wire=wire) as observed:
        await until(lambda: "b" in observed.versions())
        assert observed.versions() == {"a": "5", "b": "12"} or set(observed.versions()) == {"a", "b"}
    assert [record.levelno for record in caplog.records if "RENAMED" in record.getMessage()] == [logging.WARNING]


@BOTH
async def test_object_deleted_among_the_initial_events_is_not_stored(wire):
    added, end = initial(wire, A)
    gone = wire.event("DELETED", A, 9)
    async with watching([[added, gone, end, HOLD]], wire=wire) as observed:
        await observed.informer.synced()
        assert observed.versions() == {}


@BOTH
async def test_disconnected_watch_resumes_without_relist(wire):
    half = wire.event("ADDED", B, 12)
    responses = [
        [*initial(wire, A), wire.event("MODIFIED", A, 11), half[:20], Unreachable("reset")],
        [half, HOLD],
    ]
    async with watching(responses, wire=wire) as observed:
        await until(lambda: "b" in observed.versions())
        assert [opened.resumed_at for opened in observed.api.opened] == [None, "11"]
        assert observed.versions() == {"a": "11", "b": "12"}
        assert observed.informer.statistics().lists == 1


@BOTH
async def test_bookmarks_move_the_place_to_resume(wire):
    responses = [[*initial(wire, A), wire.bookmark("Pod", 50), Unreachable("reset")]]
    async with watching(responses, wire=wire) as observed:
        await until(lambda: len(observed.api.opened) == 2)
        assert observed.api.opened[1].resumed_at == "50"


@BOTH
async def test_deletions_move_the_place_to_resume(wire):
    responses = [[*initial(wire, A), wire.event("DELETED", A, 60), Unreachable("reset")]]
    async with watching(responses, wire=wire) as observed:
        await until(lambda: len(observed.api.opened) == 2)
        assert observed.api.opened[1].resumed_at == "60"


@BOTH
async def test_watch_that_ends_regularly_resumes_immediately(wire):
    responses = [[*initial(wire, A), 290], [wire.event("ADDED", B, 11), HOLD]]
    async with watching(responses, wire=wire) as observed:
        await until(lambda: len(observed.store) == 2)
        assert observed.api.opened[1].at == pytest.approx(290, abs=0.01)
        assert observed.informer.statistics().failures == 0


@BOTH
async def test_outage_of_twenty_seconds_loses_no_events(wire):
    api_down = Unreachable("no route to host")

    class Cut(ScriptedApi):
        def stream(self, *args, **options):
            if 5 < asyncio.get_running_loop().time() < 25:
                self.answers.insert(0, api_down)
            return super().stream(*args, **options)

    deleted, late = wire.event("DELETED", A, 11), wire.event("ADDED", C, 12)
    api = Cut([[*initial(wire, A, B), 5, Unreachable("reset")], [deleted, late, HOLD]])
    abilities = ServerAbilities()
    abilities.protobuf = isinstance(wire, Protobuf)
    informer = Informer(api, PODS, Store(), abilities=abilities, clock=LoopClock())
    task = asyncio.create_task(informer.run())
    await until(lambda: {value.name for value in informer.store} == {"b", "c"})
    assert asyncio.get_running_loop().time() < 45
    assert informer.statistics().lists == 1
    assert informer.store.synced
    task.cancel()


@BOTH
@pytest.mark.parametrize("how", ["answer", "event", "event without a code"])
async def test_expired_version_relists_and_notifies_of_removed_objects(wire, how):
    refused = {
        "answer": Gone("too old", status=410),
        "event": [wire.error(410, "Expired", "too old resource version: 10 (99)")],
        "event without a code": [wire.error(0, "Expired")],
    }[how]
    responses = [
        [*initial(wire, A, B), Unreachable("reset")],
        refused,
        [*initial(wire, B, C, version=100), HOLD],
    ]
    async with watching(responses, wire=wire) as observed:
        await until(lambda: "c" in observed.versions())
        await until(lambda: "a" not in observed.versions())
        assert observed.versions() == {"b": "99", "c": "99"}
        assert ("a", None) in observed.recorded
        assert "resourceVersion" not in observed.api.opened[2].params  # the newest there is
        assert observed.informer.statistics().lists == 2


@BOTH
@pytest.mark.parametrize("watch_list", [True, False], ids=["streamed", "in pages"])
@pytest.mark.parametrize("failure", ["garbled event", "not served"])
async def test_relist_is_not_answered_from_a_cache(wire, watch_list, failure):
    """A cache that lags behind the store would restore deleted objects."""
    abilities = ServerAbilities()
    abilities.watch_list = watch_list
    garbled = b"<html>\n" if isinstance(wire, Json) else b"\0\0\0\2\xff\xff"
    listed = [initial(wire, A)] if watch_list else [[wire.listed("Pod", [A], 10)], []]
    failed = [garbled] if failure == "garbled event" else NotFound("no such resource", status=404)
    responses = [*listed, failed, [*initial(wire, A), HOLD] if watch_list else [wire.listed("Pod", [A], 10)]]
    async with watching(responses, wire=wire, abilities=abilities) as observed:
        await until(lambda: observed.informer.statistics().lists == 2)
        lists = [each for each in observed.api.opened if each.resumed_at is None]
        assert [each.params.get("resourceVersion") for each in lists] == ["0", None]


async def test_store_keeps_old_objects_until_the_relist_completes():
    more = asyncio.Event()
    first, *rest = initial(PROTOBUF, B, version=100)
    responses = [[*initial(PROTOBUF, A), PROTOBUF.error(410, "Gone")], [first, more, *rest, HOLD]]
    async with watching(responses) as observed:
        await until(lambda: len(observed.store) == 2)
        assert observed.store.synced
        assert observed.informer.state.phase == "Listing"
        more.set()
        await until(lambda: set(observed.versions()) == {"b"})


async def test_backoff_if_every_watch_is_too_old():
    responses = [Gone("too old", status=410)] * 5
    async with watching([*responses, [*initial(PROTOBUF, A), HOLD]]) as observed:
        await observed.informer.synced()
        pauses = [
            after.at - before.at for before, after in zip(observed.api.opened, observed.api.opened[1:], strict=False)
        ]
        assert pauses[0] == 0
        assert all(pause >= 0.5 for pause in pauses[1:])


async def test_backoff_if_a_new_list_is_too_old():
    responses = [[*initial(PROTOBUF, A), PROTOBUF.error(410, "Gone")]] * 5
    async with watching([*responses, [*initial(PROTOBUF, B), HOLD]]) as observed:
        await until(lambda: "b" in observed.versions())
        pauses = [
            after.at - before.at for before, after in zip(observed.api.opened, observed.api.opened[1:], strict=False)
        ]
        assert pauses[0] == 0
        assert all(pause >= 0.5 for pause in pauses[1:])


@BOTH
async def test_interrupted_initial_events_start_again(wire):
    responses = [
        [wire.event("ADDED", A, 5), Unreachable("reset")],
        [*initial(wire, B), HOLD],
    ]
    async with watching(responses, wire=wire) as observed:
        await observed.informer.synced()
        assert observed.versions() == {"b": "9"}
        assert [opened.resumed_at for opened in observed.api.opened] == [None, None]


@BOTH
async def test_undecodable_object_is_omitted_and_the_stream_continues(wire, caplog):
    bad = pod("a").cpu("1K").manifest()
    events = [wire.event("MODIFIED", bad, 11), wire.event("MODIFIED", bad, 12), wire.event("ADDED", B, 13)]
    async with watching([[*initial(wire, A), *events, HOLD]], wire=wire) as observed:
        await until(lambda: "b" in observed.versions())
        assert observed.versions() == {"b": "13"}
        assert list(observed.informer.broken) == ["shop/a"]
        assert "spec.containers[0].resources.requests.cpu" in observed.informer.broken["shop/a"]
        assert observed.informer.statistics().decode_errors == 2
    complaints = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(complaints) == 1
    assert "shop/a" in complaints[0].getMessage()


@BOTH
@pytest.mark.parametrize("event", ["MODIFIED", "DELETED"])
async def test_an_object_that_is_mended_or_deleted_is_not_broken_any_more(wire, event):
    bad = pod("a").cpu("1K").manifest()
    async with watching([[*initial(wire, bad, B), wire.event(event, A, 12), HOLD]], wire=wire) as observed:
        await until(lambda: observed.informer.statistics().events == 4)
        assert not observed.informer.broken
        assert ("a" in observed.versions()) == (event == "MODIFIED")


@BOTH
async def test_a_broken_object_that_vanished_is_forgotten_with_the_next_list(wire):
    bad = pod("a").cpu("1K").manifest()
    responses = [[*initial(wire, bad), wire.error(410, "Gone")], [*initial(wire, B, version=20), HOLD]]
    async with watching(responses, wire=wire) as observed:
        await until(lambda: "b" in observed.versions())
        await until(lambda: not observed.informer.broken)


async def test_a_bug_in_decoding_hides_one_object_only():
    def decode(raw):
        value = msgspec.json.decode(raw)
        if value["metadata"]["name"] == "a":
            raise KeyError("oops")
        return pod("b").build()

    responses = [[*initial(Json(), A, B), HOLD]]
    async with watching(responses, resource=DESCHEDULER_POLICIES, decode=decode) as observed:
        await observed.informer.synced()
        assert observed.informer.broken == {"shop/a": "KeyError: 'oops'"}
        assert "b" in observed.versions()
        assert observed.api.opened[0].accept == "application/json"


@BOTH
async def test_a_server_without_streamed_lists_is_listed_in_pages(wire):
    abilities = ServerAbilities()
    responses = [
        Invalid("sendInitialEvents is forbidden", status=422),
        [wire.listed("Pod", [A], 9, token="next")],
        [wire.listed("Pod", [B], 10)],
        [wire.event("ADDED", C, 11), Unreachable("reset")],
        [HOLD],
    ]
    async with watching(responses, wire=wire, abilities=abilities) as observed:
        await until(lambda: len(observed.api.opened) == 5)
        assert set(observed.versions()) == {"a", "b", "c"}
        first, second, watch, resumed = observed.api.opened[1:]
        assert (first.params["limit"], first.params["resourceVersion"]) == ("5000", "0")
        assert (second.params["continue"], "resourceVersion" in second.params) == ("next", False)
        assert (watch.resumed_at, resumed.resumed_at) == ("10", "11")
        assert not abilities.watch_list
        assert observed.informer.statistics().failures == 1  # the reset, not the refusal


async def test_truncated_list_is_requested_in_pages():
    """From its cache a server sends all at once, which it ends after a minute whoever reads it."""
    abilities = ServerAbilities()
    abilities.watch_list = False
    body = PROTOBUF.listed("Pod", [A, B], 9)
    responses = [Unreachable("reset"), [body[:-20], Unreachable("reset")], [PROTOBUF.listed("Pod", [B], 20)]]
    async with watching(responses, abilities=abilities) as observed:
        await until(lambda: len(observed.api.opened) == 4)
        assert set(observed.versions()) == {"b"}
        assert [each.params.get("resourceVersion") for each in observed.api.opened[:3]] == ["0", "0", None]
        assert all(each.params["limit"] == "5000" for each in observed.api.opened[:3])


async def test_list_that_ends_early_is_requested_again():
    abilities = ServerAbilities()
    abilities.watch_list = False
    responses = [[PROTOBUF.listed("Pod", [A, B], 9)[:-20]], [PROTOBUF.listed("Pod", [B], 20)]]
    async with watching(responses, abilities=abilities) as observed:
        await until(lambda: set(observed.versions()) == {"b"})
        assert observed.informer.statistics().failures == 1


@BOTH
async def test_pages_that_expire_are_listed_from_the_start(wire):
    abilities = ServerAbilities()
    abilities.watch_list = False
    responses = [
        [wire.listed("Pod", [A], 9, token="next")],
        Gone("The provided continue parameter is too old", status=410),
        [wire.listed("Pod", [B], 20)],
    ]
    async with watching(responses, wire=wire, abilities=abilities) as observed:
        await until(lambda: len(observed.api.opened) == 4)
        assert set(observed.versions()) == {"b"}


@pytest.mark.parametrize("status", [406, 415])
async def test_informer_falls_back_to_json_without_protobuf(status):
    abilities = ServerAbilities()
    responses = [ApiError("not acceptable", status=status), [*initial(Json(), A), HOLD]]
    async with watching(responses, abilities=abilities) as observed:
        await observed.informer.synced()
        assert set(observed.versions()) == {"a"}
        assert not abilities.protobuf
        assert "protobuf" in observed.api.opened[0].accept
        assert observed.api.opened[1].accept == "application/json"


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(ApiError("not acceptable", status=406), id="406"),
        pytest.param([b"<html>\n"], id="garbled"),
    ],
)
async def test_json_only_kind_does_not_disable_protobuf_for_others(failure):
    abilities, wire = ServerAbilities(), Json()
    responses = [failure, [*initial(wire, machine_set("a").manifest()), HOLD]]
    async with watching(responses, resource=MACHINE_SETS, abilities=abilities) as observed:
        await observed.informer.synced()
        assert [value.name for value in observed.store] == ["a"]
        assert {opened.accept for opened in observed.api.opened} == {"application/json"}
        assert abilities.protobuf


async def test_a_server_that_sends_json_unasked_is_understood():
    responses = [[*initial(Json(), A), HOLD], [*initial(Json(), A), HOLD]]
    async with watching(responses) as observed:
        await observed.informer.synced()
        assert set(observed.versions()) == {"a"}


async def test_a_list_that_is_json_unasked_is_understood():
    abilities = ServerAbilities()
    abilities.watch_list = False
    responses = [[Json().listed("Pod", [A], 5)], [Json().listed("Pod", [A], 5)]]
    async with watching(responses, abilities=abilities) as observed:
        await observed.informer.synced()
        assert set(observed.versions()) == {"a"}


async def test_informers_share_detected_abilities():
    abilities = ServerAbilities()
    abilities.protobuf = abilities.watch_list = False
    async with watching(
        [[Json().listed("Node", [node("n1").manifest()], 5)]], resource=NODES, abilities=abilities
    ) as observed:
        await observed.informer.synced()
        assert "sendInitialEvents" not in observed.api.opened[0].params
        assert observed.store.get("n1").resource_version == ""


@BOTH
async def test_invalid_frame_causes_a_relist(wire):
    garbage = b"\x00\x00\x00\x02\xff\xff" if isinstance(wire, Protobuf) else b"not json\n"
    responses = [[*initial(wire, A), garbage, HOLD], [*initial(wire, B, version=20), HOLD]]
    async with watching(responses, wire=wire) as observed:
        await until(lambda: set(observed.versions()) == {"b"})
        assert observed.api.opened[1].accept == observed.api.opened[0].accept


async def test_resumed_watch_is_unconfirmed_until_its_first_event():
    word = PROTOBUF.event("MODIFIED", A, version=11)
    async with watching([[*initial(PROTOBUF, A), 1], Unreachable("cut"), [5, word, HOLD]]) as observed:
        await until(lambda: observed.informer.state.phase == "Watching")
        assert not observed.informer.unconfirmed
        await until(lambda: len(observed.api.opened) == 3)
        await asyncio.sleep(2)
        assert observed.informer.state.phase == "Watching"
        assert observed.informer.unconfirmed
        await asyncio.sleep(4)
        assert not observed.informer.unconfirmed


@pytest.mark.parametrize(
    ("error", "phase"),
    [
        pytest.param(Forbidden("pods is forbidden", status=403), "Refused", id="forbidden"),
        pytest.param(NotFound("no such resource", status=404), "Refused", id="not found"),
        pytest.param(ServerError("etcd is away", status=503), "Retrying", id="server error"),
        pytest.param(Unreachable("refused"), "Retrying", id="unreachable"),
    ],
)
async def test_rejected_requests_back_off_and_show_in_the_state(error, phase):
    async with watching([error] * 8 + [[*initial(PROTOBUF, A), HOLD]]) as observed:
        await until(lambda: len(observed.api.opened) == 3)
        assert observed.informer.state.phase == phase
        assert observed.informer.state.error == str(error)
        await until(observed.store.objects.__len__)
        assert observed.informer.state.phase == "Watching"
        pauses = [
            after.at - before.at for before, after in zip(observed.api.opened, observed.api.opened[1:], strict=False)
        ]
        assert pauses[0] < 8
        assert max(pauses) <= 90
        if phase == "Refused":
            assert pauses[0] >= 5
            assert pauses[-1] >= 60 if isinstance(error, NotFound) else pauses[-1] == pytest.approx(5)
        else:
            assert max(pauses) <= 15


def logged(caplog, *levels):
    return [record.levelno for record in caplog.records if record.levelno in levels]


async def test_an_idle_watch_logs_nothing_at_info_or_above_for_ten_minutes(caplog):
    caplog.set_level(logging.DEBUG)

    class Idle(ScriptedApi):
        """A server without bookmarks: it ends each watch in its time, and the client gives up on silence before."""

        @asynccontextmanager
        async def stream(self, path, *, params=None, idle_timeout=60.0, **more):
            seconds = float(params["timeoutSeconds"])
            silent = [seconds] if seconds < idle_timeout else [idle_timeout, IdleTimeout("Timeout on reading data")]
            self.answers = [[*initial(PROTOBUF, A), *silent] if "sendInitialEvents" in params else silent]
            async with super().stream(path, params=params, idle_timeout=idle_timeout, **more) as chunks:
                yield chunks

    api, clock, states = Idle(), LoopClock(), set()
    informer = Informer(api, PODS, Store(clock=clock), clock=clock)
    task = asyncio.create_task(informer.run())
    await asyncio.wait_for(informer.synced(), 5)
    for _ in range(6000):
        await asyncio.sleep(0.1)
        states.add(informer.state.phase)
    task.cancel()
    assert not logged(caplog, logging.INFO, logging.WARNING, logging.ERROR)
    assert len(logged(caplog, logging.DEBUG)) == 1, "once silence has been seen, the server ends the watches"
    assert states == {"Watching"}
    assert informer.statistics().failures == 0
    requested = [float(each.params["timeoutSeconds"]) for each in api.opened]
    assert [seconds < 75 for seconds in requested] == [False] + [True] * (len(requested) - 1)


async def test_silent_watch_counts_as_disconnected_until_data_arrives():
    hung = asyncio.Event()

    class Hanging(ScriptedApi):
        @asynccontextmanager
        async def stream(self, path, **more):
            if len(self.opened) == 1:
                await hung.wait()
            async with super().stream(path, **more) as chunks:
                yield chunks

    api, clock = Hanging([[*initial(PROTOBUF, A), 75, IdleTimeout("silence")], [5, HOLD]]), LoopClock()
    informer = Informer(api, PODS, Store(clock=clock), clock=clock)
    task = asyncio.create_task(informer.run())
    await asyncio.sleep(80)
    assert (informer.state.phase, informer.unconfirmed) == ("Retrying", True)
    hung.set()
    await asyncio.sleep(1)
    assert (informer.state.phase, informer.unconfirmed) == ("Watching", True), "nothing was heard yet"
    task.cancel()


async def test_short_watches_end_after_the_first_event():
    responses = [
        [*initial(PROTOBUF, A), 75, IdleTimeout("silence")],
        [10, PROTOBUF.event("MODIFIED", A, version=11)],
        [HOLD],
    ]
    async with watching(responses) as observed:
        await until(lambda: len(observed.api.opened) == 3)
        assert [float(each.params["timeoutSeconds"]) >= 290 for each in observed.api.opened] == [True, False, True]


@pytest.mark.parametrize(
    ("lasts", "warned"), [(10, False), (60, True)], ids=["a restart of the server", "an outage that lasts"]
)
async def test_lasting_failures_are_logged_once_and_recovery_is_logged(caplog, lasts, warned):
    caplog.set_level(logging.DEBUG)

    class Away(ScriptedApi):
        @asynccontextmanager
        async def stream(self, path, **more):
            if 20 <= asyncio.get_running_loop().time() < 20 + lasts:
                raise Unreachable("refused")
            async with super().stream(path, **more) as chunks:
                yield chunks

    api, clock = Away([[*initial(PROTOBUF, A), 20], [1, PROTOBUF.event("MODIFIED", A, version=11), HOLD]]), LoopClock()
    informer = Informer(api, PODS, Store(clock=clock), clock=clock)
    task = asyncio.create_task(informer.run())
    await asyncio.sleep(200)
    assert logged(caplog, logging.INFO, logging.WARNING) == ([logging.WARNING, logging.INFO] if warned else [])
    assert informer.state.phase == "Watching"
    task.cancel()


async def test_rejected_requests_are_logged_once_immediately(caplog):
    async with watching([Forbidden("pods is forbidden", status=403)] * 5) as observed:
        await until(lambda: len(observed.api.opened) == 5)
    assert logged(caplog, logging.INFO, logging.WARNING) == [logging.WARNING]


async def test_resource_is_listed_when_it_is_served_again():
    responses = [
        [*initial(PROTOBUF, A), Unreachable("reset")],
        NotFound("no such resource", status=404),
        [*initial(PROTOBUF, B, version=3), HOLD],
    ]
    async with watching(responses) as observed:
        await until(lambda: set(observed.versions()) == {"b"})


REFUSALS = pytest.mark.parametrize(
    "error", [Forbidden("pods is forbidden", status=403), NotFound("no such resource", status=404)], ids=["403", "404"]
)


@REFUSALS
async def test_forbidden_after_a_restart_is_retried_soon(error):
    begun, listed = [*initial(PROTOBUF, A), Unreachable("reset")], [*initial(PROTOBUF, B, version=30), HOLD]
    async with watching([begun, Unreachable("refused"), error, error, error, listed]) as observed:
        await until(lambda: "b" in observed.versions())
        assert observed.api.opened[-1].at - observed.api.opened[2].at < 6


@REFUSALS
async def test_revoked_permission_is_retried_with_backoff(error):
    async with watching([[*initial(PROTOBUF, A), Unreachable("reset")], *([error] * 12)]) as observed:
        await until(lambda: len(observed.api.opened) == 11)
        assert observed.informer.state.phase == "Refused"
        pause = observed.api.opened[-1].at - observed.api.opened[-2].at
        assert pause >= 60 if isinstance(error, NotFound) else pause == pytest.approx(5)


async def test_version_expired_during_an_outage_is_relisted_immediately():
    outage = [Unreachable("refused")] * 4
    old = Gone("too old resource version", status=410)
    async with watching(
        [[*initial(PROTOBUF, A), Unreachable("reset")], *outage, old, [*initial(PROTOBUF, B), HOLD]]
    ) as observed:
        await until(lambda: "b" in observed.versions())
        assert observed.api.opened[-1].at - observed.api.opened[-2].at < 0.2


async def test_an_overloaded_server_is_given_the_time_it_asks_for():
    slow = TooManyRequests("slow down", status=429, retry_after=40.0)
    async with watching([slow, [*initial(PROTOBUF, A), HOLD]]) as observed:
        await observed.informer.synced()
        assert observed.api.opened[1].at >= 40


async def test_an_error_event_that_is_not_about_versions_resumes_after_a_pause():
    responses = [[*initial(PROTOBUF, A), PROTOBUF.error(500, "InternalError", "etcd")], [HOLD]]
    async with watching(responses) as observed:
        await until(lambda: len(observed.api.opened) == 2)
        assert observed.api.opened[1].resumed_at == "10"
        assert observed.api.opened[1].at >= 0.5


async def test_backoff_if_the_server_closes_each_watch():
    async with watching([[*initial(PROTOBUF, A)], *([[]] * 20)]) as observed:
        await until(lambda: len(observed.api.opened) == 8)
        assert observed.api.opened[-1].at > 10


async def test_requests_contain_selectors_and_namespace():
    options = {"namespace": "shop", "label_selector": "app=web", "field_selector": "status.phase!=Failed"}
    async with watching([[*initial(PROTOBUF, A), HOLD]], **options) as observed:
        await observed.informer.synced()
    requested = observed.api.opened[0]
    assert requested.path == "/api/v1/namespaces/shop/pods"
    assert (requested.params["labelSelector"], requested.params["fieldSelector"]) == ("app=web", "status.phase!=Failed")


async def test_other_tasks_run_while_many_objects_are_decoded():
    turns = 0

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    chunk = b"".join(initial(PROTOBUF, *(pod(f"p{number}").manifest() for number in range(12_000))))
    task = asyncio.create_task(other())
    async with watching([[chunk, HOLD]]) as observed:
        await observed.informer.synced()
    task.cancel()
    assert turns >= 10


async def test_pods_of_a_template_share_their_spec_in_the_store():
    async with watching([[*initial(PROTOBUF, A, B), HOLD]]) as observed:
        await observed.informer.synced()
        one, other = observed.store
        assert one.spec is other.spec


async def test_statistics_count_events():
    async with watching([[*initial(PROTOBUF, A, B), HOLD]]) as observed:
        await observed.informer.synced()
        statistics = observed.informer.statistics()
    assert (statistics.objects, statistics.events, statistics.lists) == (2, 3, 1)
    assert (statistics.connections, statistics.failures, statistics.broken) == (1, 0, 0)
    assert statistics.bytes_read > 100


async def test_exception_of_a_listener_ends_the_informer():
    api = ScriptedApi([[*initial(PROTOBUF, A), HOLD]])
    store = Store()

    def listener(old, new):
        raise RuntimeError("the snapshot is wrong from here on")

    store.subscribe(listener)
    with pytest.raises(RuntimeError, match="snapshot"):
        await Informer(api, PODS, store, clock=LoopClock()).run()
    assert api.closed == 1


async def test_an_input_error_of_a_decoder_names_the_object(golden: Golden):
    def decode(raw):
        raise InputError("is wrong", object="DeschedulerPolicy/default", field="spec.mode")

    manifest = {"kind": "DeschedulerPolicy", "metadata": {"name": "default"}}
    async with watching([[*initial(Json(), manifest), HOLD]], resource=DESCHEDULER_POLICIES, decode=decode) as observed:
        await observed.informer.synced()
        golden("\n".join(f"{key}: {text}" for key, text in observed.informer.broken.items()))


@BOTH
async def test_large_objects_are_decoded_in_a_thread_in_their_order(wire, monkeypatch):
    threads = {}
    decode = informer_module.try_decode

    def noted(codec, raw):
        value = decode(codec, raw)
        threads[value.name, value.resource_version] = threading.current_thread() is threading.main_thread()
        return value

    monkeypatch.setattr(informer_module, "try_decode", noted)
    large = pod("a").manifest()
    large["metadata"]["annotations"] = {"example.com/notes": "x" * (2 * THREAD_DECODE_BYTES)}
    events = [wire.event("MODIFIED", large, 11), wire.event("MODIFIED", A, 12), wire.event("ADDED", B, 13)]
    async with watching([[*initial(wire, A), *events, HOLD]], wire=wire) as observed:
        await until(lambda: len(observed.recorded) == 4)
        assert observed.recorded == [(None, "a"), ("a", "a"), ("a", "a"), (None, "b")]
        assert threads == {("a", "9"): True, ("a", "11"): False, ("a", "12"): True, ("b", "13"): True}
        assert observed.store.get("shop/a").spec is observed.store.get("shop/b").spec


async def test_pod_decoded_in_a_thread_shares_its_spec_with_its_siblings():
    manifests = [pod(name).manifest() for name in "ab"]
    manifests[0]["metadata"]["annotations"] = {"example.com/notes": "x" * (2 * THREAD_DECODE_BYTES)}
    async with watching([[*initial(PROTOBUF, *manifests), HOLD]]) as observed:
        await observed.informer.synced()
        assert observed.store.get("shop/a").spec is observed.store.get("shop/b").spec
