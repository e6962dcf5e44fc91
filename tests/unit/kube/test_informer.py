"""The informer against a scripted server."""

import asyncio
import logging
from contextlib import asynccontextmanager

import msgspec
import pytest

from tests.builders import machine_set, node, pod
from tests.fakes.clock import START, LoopClock
from tests.fakes.watch import END, HOLD, Json, Protobuf, ScriptedApi
from trimtab.kube.api import ApiError, Forbidden, Gone, Invalid, NotFound, ServerError, TooManyRequests, Unreachable
from trimtab.kube.errors import InputError
from trimtab.kube.resources import DESCHEDULER_POLICIES, MACHINE_SETS, NODES, PODS
from trimtab.kube.watching.informer import Informer
from trimtab.kube.watching.state import ServerAbilities
from trimtab.kube.watching.store import Store

pytestmark = pytest.mark.looptime

BOTH = pytest.mark.parametrize("wire", [Protobuf(), Json()], ids=["protobuf", "json"])
PROTOBUF = Protobuf()
A, B, C = (pod(name).manifest() for name in "abc")


class Watching:
    """An informer that runs, with what its store told."""

    def __init__(self, api, informer):
        self.api = api
        self.informer = informer
        self.store = informer.store
        self.told = []
        self.store.subscribe(lambda old, new: self.told.append((old and old.name, new and new.name)))

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
    async with watching([[first, second, more, end, HOLD]], wire=wire) as seen:
        await until(lambda: len(seen.store) == 2)
        assert not seen.store.synced
        more.set()
        await seen.informer.synced()
        assert seen.store.synced
        assert seen.informer.state.phase == "Watching"
        assert seen.store.last_event == pytest.approx(START, abs=10)
    asked = seen.api.opened[0]
    assert asked.path == "/api/v1/pods"
    assert asked.params["sendInitialEvents"] == asked.params["allowWatchBookmarks"] == "true"
    assert asked.params["resourceVersionMatch"] == "NotOlderThan"
    assert asked.params["resourceVersion"] == "0"
    assert 290 <= int(asked.params["timeoutSeconds"]) < 320


@BOTH
async def test_events_change_the_store_and_are_told(wire):
    events = [
        wire.event("ADDED", B, 11),
        wire.event("MODIFIED", A, 12),
        wire.event("DELETED", B, 13),
    ]
    async with watching([[*initial(wire, A), *events, HOLD]], wire=wire) as seen:
        await until(lambda: len(seen.told) == 4)
        assert seen.told == [(None, "a"), (None, "b"), ("a", "a"), ("b", None)]
        assert seen.versions() == {"a": "12"}


@BOTH
@pytest.mark.parametrize("size", [1, 7, 100])
async def test_events_may_be_cut_anywhere(wire, size):
    stream = b"".join([*initial(wire, A, B), wire.event("MODIFIED", A, 11)])
    chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
    async with watching([[*chunks, HOLD]], wire=wire) as seen:
        await until(lambda: seen.versions() == {"a": "11", "b": "9"})


@BOTH
async def test_a_cut_connection_resumes_where_it_was_without_listing(wire):
    half = wire.event("ADDED", B, 12)
    answers = [
        [*initial(wire, A), wire.event("MODIFIED", A, 11), half[:20], Unreachable("reset")],
        [half, HOLD],
    ]
    async with watching(answers, wire=wire) as seen:
        await until(lambda: "b" in seen.versions())
        assert [opened.resumed_at for opened in seen.api.opened] == [None, "11"]
        assert seen.versions() == {"a": "11", "b": "12"}
        assert seen.informer.statistics().lists == 1


@BOTH
async def test_bookmarks_move_the_place_to_resume(wire):
    answers = [[*initial(wire, A), wire.bookmark("Pod", 50), Unreachable("reset")]]
    async with watching(answers, wire=wire) as seen:
        await until(lambda: len(seen.api.opened) == 2)
        assert seen.api.opened[1].resumed_at == "50"


@BOTH
async def test_deletions_move_the_place_to_resume(wire):
    answers = [[*initial(wire, A), wire.event("DELETED", A, 60), Unreachable("reset")]]
    async with watching(answers, wire=wire) as seen:
        await until(lambda: len(seen.api.opened) == 2)
        assert seen.api.opened[1].resumed_at == "60"


@BOTH
async def test_a_watch_that_ends_in_time_goes_on_at_once(wire):
    answers = [[*initial(wire, A), 290], [wire.event("ADDED", B, 11), HOLD]]
    async with watching(answers, wire=wire) as seen:
        await until(lambda: len(seen.store) == 2)
        assert seen.api.opened[1].at == pytest.approx(290, abs=0.01)
        assert seen.informer.statistics().failures == 0


@BOTH
async def test_a_network_that_is_cut_for_twenty_seconds_loses_nothing(wire):
    api_down = Unreachable("no route to host")

    class Cut(ScriptedApi):
        def stream(self, *args, **options):
            if 5 < asyncio.get_running_loop().time() < 25:
                self.answers.insert(0, api_down)
            return super().stream(*args, **options)

    gone, late = wire.event("DELETED", A, 11), wire.event("ADDED", C, 12)
    api = Cut([[*initial(wire, A, B), 5, Unreachable("reset")], [gone, late, HOLD]])
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
async def test_a_version_that_is_too_old_leads_to_a_new_list_that_tells_what_vanished(wire, how):
    refused = {
        "answer": Gone("too old", status=410),
        "event": [wire.error(410, "Expired", "too old resource version: 10 (99)")],
        "event without a code": [wire.error(0, "Expired")],
    }[how]
    answers = [
        [*initial(wire, A, B), Unreachable("reset")],
        refused,
        [*initial(wire, B, C, version=100), HOLD],
    ]
    async with watching(answers, wire=wire) as seen:
        await until(lambda: "c" in seen.versions())
        await until(lambda: "a" not in seen.versions())
        assert seen.versions() == {"b": "99", "c": "99"}
        assert ("a", None) in seen.told
        assert "resourceVersion" not in seen.api.opened[2].params  # the newest there is
        assert seen.informer.statistics().lists == 2


async def test_the_old_picture_stands_until_the_new_list_is_through():
    more = asyncio.Event()
    first, *rest = initial(PROTOBUF, B, version=100)
    answers = [[*initial(PROTOBUF, A), PROTOBUF.error(410, "Gone")], [first, more, *rest, HOLD]]
    async with watching(answers) as seen:
        await until(lambda: len(seen.store) == 2)
        assert seen.store.synced
        assert seen.informer.state.phase == "Listing"
        more.set()
        await until(lambda: set(seen.versions()) == {"b"})


async def test_a_server_that_always_says_too_old_is_not_asked_without_a_pause():
    answers = [Gone("too old", status=410)] * 5
    async with watching([*answers, [*initial(PROTOBUF, A), HOLD]]) as seen:
        await seen.informer.synced()
        pauses = [after.at - before.at for before, after in zip(seen.api.opened, seen.api.opened[1:], strict=False)]
        assert pauses[0] == 0
        assert all(pause >= 0.5 for pause in pauses[1:])


@BOTH
async def test_initial_events_that_were_cut_begin_anew(wire):
    answers = [
        [wire.event("ADDED", A, 5), Unreachable("reset")],
        [*initial(wire, B), HOLD],
    ]
    async with watching(answers, wire=wire) as seen:
        await seen.informer.synced()
        assert seen.versions() == {"b": "9"}
        assert [opened.resumed_at for opened in seen.api.opened] == [None, None]


@BOTH
async def test_an_object_that_cannot_be_read_is_left_out_and_the_stream_goes_on(wire, caplog):
    bad = pod("a").cpu("1K").manifest()
    events = [wire.event("MODIFIED", bad, 11), wire.event("MODIFIED", bad, 12), wire.event("ADDED", B, 13)]
    async with watching([[*initial(wire, A), *events, HOLD]], wire=wire) as seen:
        await until(lambda: "b" in seen.versions())
        assert seen.versions() == {"b": "13"}
        assert list(seen.informer.broken) == ["shop/a"]
        assert "spec.containers[0].resources.requests.cpu" in seen.informer.broken["shop/a"]
        assert seen.informer.statistics().decode_errors == 2
    complaints = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(complaints) == 1
    assert "shop/a" in complaints[0].getMessage()


@BOTH
@pytest.mark.parametrize("event", ["MODIFIED", "DELETED"])
async def test_an_object_that_is_mended_or_deleted_is_not_broken_any_more(wire, event):
    bad = pod("a").cpu("1K").manifest()
    async with watching([[*initial(wire, bad, B), wire.event(event, A, 12), HOLD]], wire=wire) as seen:
        await until(lambda: seen.informer.statistics().events == 4)
        assert not seen.informer.broken
        assert ("a" in seen.versions()) == (event == "MODIFIED")


@BOTH
async def test_a_broken_object_that_vanished_is_forgotten_with_the_next_list(wire):
    bad = pod("a").cpu("1K").manifest()
    answers = [[*initial(wire, bad), wire.error(410, "Gone")], [*initial(wire, B, version=20), HOLD]]
    async with watching(answers, wire=wire) as seen:
        await until(lambda: "b" in seen.versions())
        await until(lambda: not seen.informer.broken)


async def test_a_bug_in_decoding_hides_one_object_only():
    def decode(raw):
        value = msgspec.json.decode(raw)
        if value["metadata"]["name"] == "a":
            raise KeyError("oops")
        return pod("b").build()

    answers = [[*initial(Json(), A, B), HOLD]]
    async with watching(answers, resource=DESCHEDULER_POLICIES, decode=decode) as seen:
        await seen.informer.synced()
        assert seen.informer.broken == {"shop/a": "KeyError: 'oops'"}
        assert "b" in seen.versions()
        assert seen.api.opened[0].accept == "application/json"


@BOTH
async def test_a_server_without_streamed_lists_is_listed_in_pages(wire):
    abilities = ServerAbilities()
    answers = [
        Invalid("sendInitialEvents is forbidden", status=422),
        [wire.listed("Pod", [A], 9, token="next")],
        [wire.listed("Pod", [B], 10)],
        [wire.event("ADDED", C, 11), Unreachable("reset")],
        [HOLD],
    ]
    async with watching(answers, wire=wire, abilities=abilities) as seen:
        await until(lambda: len(seen.api.opened) == 5)
        assert set(seen.versions()) == {"a", "b", "c"}
        first, second, watch, resumed = seen.api.opened[1:]
        assert (first.params["limit"], first.params["resourceVersion"]) == ("5000", "0")
        assert (second.params["continue"], "resourceVersion" in second.params) == ("next", False)
        assert (watch.resumed_at, resumed.resumed_at) == ("10", "11")
        assert not abilities.watch_list
        assert seen.informer.statistics().failures == 1  # the reset, not the refusal


async def test_a_list_that_was_cut_is_asked_for_in_pages():
    """From its cache a server sends all at once, which it ends after a minute whoever reads it."""
    abilities = ServerAbilities()
    abilities.watch_list = False
    body = PROTOBUF.listed("Pod", [A, B], 9)
    answers = [Unreachable("reset"), [body[:-20], Unreachable("reset")], [PROTOBUF.listed("Pod", [B], 20)]]
    async with watching(answers, abilities=abilities) as seen:
        await until(lambda: len(seen.api.opened) == 4)
        assert set(seen.versions()) == {"b"}
        assert [each.params.get("resourceVersion") for each in seen.api.opened[:3]] == ["0", "0", None]
        assert all(each.params["limit"] == "5000" for each in seen.api.opened[:3])


@BOTH
async def test_pages_that_expire_are_listed_from_the_start(wire):
    abilities = ServerAbilities()
    abilities.watch_list = False
    answers = [
        [wire.listed("Pod", [A], 9, token="next")],
        Gone("The provided continue parameter is too old", status=410),
        [wire.listed("Pod", [B], 20)],
    ]
    async with watching(answers, wire=wire, abilities=abilities) as seen:
        await until(lambda: len(seen.api.opened) == 4)
        assert set(seen.versions()) == {"b"}


@pytest.mark.parametrize("status", [406, 415])
async def test_a_server_without_protobuf_is_asked_for_json(status):
    abilities = ServerAbilities()
    answers = [ApiError("not acceptable", status=status), [*initial(Json(), A), HOLD]]
    async with watching(answers, abilities=abilities) as seen:
        await seen.informer.synced()
        assert set(seen.versions()) == {"a"}
        assert not abilities.protobuf
        assert "protobuf" in seen.api.opened[0].accept
        assert seen.api.opened[1].accept == "application/json"


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(ApiError("not acceptable", status=406), id="406"),
        pytest.param([b"<html>\n"], id="garbled"),
    ],
)
async def test_a_kind_that_is_read_in_json_only_takes_protobuf_from_no_other(failure):
    abilities, wire = ServerAbilities(), Json()
    answers = [failure, [*initial(wire, machine_set("a").manifest()), HOLD]]
    async with watching(answers, resource=MACHINE_SETS, abilities=abilities) as seen:
        await seen.informer.synced()
        assert [value.name for value in seen.store] == ["a"]
        assert {opened.accept for opened in seen.api.opened} == {"application/json"}
        assert abilities.protobuf


async def test_a_server_that_sends_json_unasked_is_understood():
    answers = [[*initial(Json(), A), HOLD], [*initial(Json(), A), HOLD]]
    async with watching(answers) as seen:
        await seen.informer.synced()
        assert set(seen.versions()) == {"a"}


async def test_a_list_that_is_json_unasked_is_understood():
    abilities = ServerAbilities()
    abilities.watch_list = False
    answers = [[Json().listed("Pod", [A], 5)], [Json().listed("Pod", [A], 5)]]
    async with watching(answers, abilities=abilities) as seen:
        await seen.informer.synced()
        assert set(seen.versions()) == {"a"}


async def test_what_one_informer_learns_spares_the_others():
    abilities = ServerAbilities()
    abilities.protobuf = abilities.watch_list = False
    async with watching(
        [[Json().listed("Node", [node("n1").manifest()], 5)]], resource=NODES, abilities=abilities
    ) as seen:
        await seen.informer.synced()
        assert "sendInitialEvents" not in seen.api.opened[0].params
        assert seen.store.get("n1").resource_version == ""


@BOTH
async def test_a_frame_that_is_no_event_leads_to_a_new_list(wire):
    garbage = b"\x00\x00\x00\x02\xff\xff" if isinstance(wire, Protobuf) else b"not json\n"
    answers = [[*initial(wire, A), garbage, HOLD], [*initial(wire, B, version=20), HOLD]]
    async with watching(answers, wire=wire) as seen:
        await until(lambda: set(seen.versions()) == {"b"})
        assert seen.api.opened[1].accept == seen.api.opened[0].accept


async def test_what_happened_during_a_cut_counts_as_untold_until_the_first_word():
    word = PROTOBUF.event("MODIFIED", A, version=11)
    async with watching([[*initial(PROTOBUF, A), 1], Unreachable("cut"), [5, word, HOLD]]) as seen:
        await until(lambda: seen.informer.state.phase == "Watching")
        assert not seen.informer.untold
        await until(lambda: len(seen.api.opened) == 3)
        await asyncio.sleep(2)
        assert seen.informer.state.phase == "Watching"
        assert seen.informer.untold
        await asyncio.sleep(4)
        assert not seen.informer.untold


@pytest.mark.parametrize(
    ("error", "phase"),
    [
        pytest.param(Forbidden("pods is forbidden", status=403), "Refused", id="forbidden"),
        pytest.param(NotFound("no such resource", status=404), "Refused", id="not found"),
        pytest.param(ServerError("etcd is away", status=503), "Retrying", id="server error"),
        pytest.param(Unreachable("refused"), "Retrying", id="unreachable"),
    ],
)
async def test_what_is_refused_is_tried_again_ever_more_slowly_and_shows(error, phase):
    async with watching([error] * 8 + [[*initial(PROTOBUF, A), HOLD]]) as seen:
        await until(lambda: len(seen.api.opened) == 3)
        assert seen.informer.state.phase == phase
        assert seen.informer.state.error == str(error)
        await until(seen.store.objects.__len__)
        assert seen.informer.state.phase == "Watching"
        pauses = [after.at - before.at for before, after in zip(seen.api.opened, seen.api.opened[1:], strict=False)]
        assert pauses[0] < 8
        assert max(pauses) <= 90
        if phase == "Refused":
            assert pauses[0] >= 5
            assert pauses[-1] >= 60
        else:
            assert max(pauses) <= 15


async def test_a_resource_that_was_not_found_is_listed_when_it_comes_back():
    answers = [
        [*initial(PROTOBUF, A), Unreachable("reset")],
        NotFound("no such resource", status=404),
        [*initial(PROTOBUF, B, version=3), HOLD],
    ]
    async with watching(answers) as seen:
        await until(lambda: set(seen.versions()) == {"b"})


REFUSALS = pytest.mark.parametrize(
    "error", [Forbidden("pods is forbidden", status=403), NotFound("no such resource", status=404)], ids=["403", "404"]
)


@REFUSALS
async def test_a_server_that_has_just_started_and_knows_no_roles_yet_is_asked_again_soon(error):
    begun, listed = [*initial(PROTOBUF, A), Unreachable("reset")], [*initial(PROTOBUF, B, version=30), HOLD]
    async with watching([begun, Unreachable("refused"), error, error, error, listed]) as seen:
        await until(lambda: "b" in seen.versions())
        assert seen.api.opened[-1].at - seen.api.opened[2].at < 6


@REFUSALS
async def test_a_right_that_is_taken_away_for_good_is_asked_for_ever_more_slowly(error):
    async with watching([[*initial(PROTOBUF, A), Unreachable("reset")], *([error] * 12)]) as seen:
        await until(lambda: len(seen.api.opened) == 11)
        assert seen.informer.state.phase == "Refused"
        assert seen.api.opened[-1].at - seen.api.opened[-2].at >= 60


async def test_a_version_that_became_too_old_during_an_outage_is_listed_anew_at_once():
    outage = [Unreachable("refused")] * 4
    old = Gone("too old resource version", status=410)
    async with watching(
        [[*initial(PROTOBUF, A), Unreachable("reset")], *outage, old, [*initial(PROTOBUF, B), HOLD]]
    ) as seen:
        await until(lambda: "b" in seen.versions())
        assert seen.api.opened[-1].at - seen.api.opened[-2].at < 0.2


async def test_an_overloaded_server_is_given_the_time_it_asks_for():
    slow = TooManyRequests("slow down", status=429, retry_after=40.0)
    async with watching([slow, [*initial(PROTOBUF, A), HOLD]]) as seen:
        await seen.informer.synced()
        assert seen.api.opened[1].at >= 40


async def test_an_error_event_that_is_not_about_versions_resumes_after_a_pause():
    answers = [[*initial(PROTOBUF, A), PROTOBUF.error(500, "InternalError", "etcd")], [HOLD]]
    async with watching(answers) as seen:
        await until(lambda: len(seen.api.opened) == 2)
        assert seen.api.opened[1].resumed_at == "10"
        assert seen.api.opened[1].at >= 0.5


async def test_a_server_that_hangs_up_at_once_is_not_asked_without_a_pause():
    async with watching([[*initial(PROTOBUF, A)], *([[]] * 20)]) as seen:
        await until(lambda: len(seen.api.opened) == 8)
        assert seen.api.opened[-1].at > 10


async def test_selectors_and_namespace_are_asked_of_the_server():
    options = {"namespace": "shop", "label_selector": "app=web", "field_selector": "status.phase!=Failed"}
    async with watching([[*initial(PROTOBUF, A), HOLD]], **options) as seen:
        await seen.informer.synced()
    asked = seen.api.opened[0]
    assert asked.path == "/api/v1/namespaces/shop/pods"
    assert (asked.params["labelSelector"], asked.params["fieldSelector"]) == ("app=web", "status.phase!=Failed")


async def test_others_get_their_turn_while_many_objects_are_decoded():
    turns = 0

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    chunk = b"".join(initial(PROTOBUF, *(pod(f"p{number}").manifest() for number in range(2_000))))
    task = asyncio.create_task(other())
    async with watching([[chunk, HOLD]]) as seen:
        await seen.informer.synced()
    task.cancel()
    assert turns >= 10


async def test_pods_of_a_template_share_their_spec_in_the_store():
    async with watching([[*initial(PROTOBUF, A, B), HOLD]]) as seen:
        await seen.informer.synced()
        one, other = seen.store
        assert one.spec is other.spec


async def test_statistics_count_what_happened():
    async with watching([[*initial(PROTOBUF, A, B), HOLD]]) as seen:
        await seen.informer.synced()
        statistics = seen.informer.statistics()
    assert (statistics.objects, statistics.events, statistics.lists) == (2, 3, 1)
    assert (statistics.connections, statistics.failures, statistics.broken) == (1, 0, 0)
    assert statistics.bytes_read > 100


async def test_what_a_listener_raises_ends_the_informer():
    api = ScriptedApi([[*initial(PROTOBUF, A), HOLD]])
    store = Store()

    def listener(old, new):
        raise RuntimeError("the snapshot is wrong from here on")

    store.subscribe(listener)
    with pytest.raises(RuntimeError, match="snapshot"):
        await Informer(api, PODS, store, clock=LoopClock()).run()
    assert api.closed == 1


async def test_an_input_error_of_a_decoder_names_the_object():
    def decode(raw):
        raise InputError("is wrong", object="DeschedulerPolicy/default", field="spec.mode")

    manifest = {"kind": "DeschedulerPolicy", "metadata": {"name": "default"}}
    async with watching([[*initial(Json(), manifest), HOLD]], resource=DESCHEDULER_POLICIES, decode=decode) as seen:
        await seen.informer.synced()
        assert seen.informer.broken == {"default": "DeschedulerPolicy/default: spec.mode: is wrong"}
