"""Lists and watches in JSON."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.kube.errors import InputError
from trimtab.kube.wire.codec import Metadata, StatusMessage
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.json_codec import JsonCodec, LineSplitter

CODEC = JsonCodec("Pod", Interner())
LINES = st.lists(st.binary(max_size=200).map(lambda line: line.replace(b"\n", b"").strip()).filter(bool), max_size=10)


@given(LINES, st.lists(st.integers(1, 50), min_size=1, max_size=10))
def test_lines_are_whole_however_the_stream_is_cut(lines, cuts):
    stream = b"".join(line + b"\n" for line in lines)
    splitter = LineSplitter()
    found, position, turn = [], 0, 0
    while position < len(stream):
        size = cuts[turn % len(cuts)]
        found += splitter.feed(stream[position : position + size])
        position, turn = position + size, turn + 1
    assert found == lines


def test_empty_lines_are_no_events():
    assert list(LineSplitter().feed(b"\n  \n{}\n\r\n")) == [b"{}"]


def test_a_line_of_megabytes_is_a_line():
    splitter = LineSplitter()
    chunks = [b"x" * 65536] * 40
    assert [line for chunk in chunks for line in splitter.feed(chunk)] == []
    assert [len(line) for line in splitter.feed(b"\n")] == [65536 * 40]


def _page(body):
    splitter = CODEC.list_splitter()
    assert list(splitter.feed(body[:5])) == list(splitter.feed(body[5:])) == []
    return splitter.end()


def test_a_list_is_opened_when_all_of_it_is_there():
    page = _page(b'{"metadata": {"resourceVersion": "5"}, "items": [{"a": 1}, {}]}')
    assert [bytes(item) for item in page.items] == [b'{"a": 1}', b"{}"]


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"items": 3}'])
def test_what_is_no_list_is_refused(body):
    with pytest.raises(InputError, match="Pod: is no list"):
        _page(body)


@pytest.mark.parametrize("frame", [b"{", b"{}", b'{"type": "ADDED"}', b"[]"])
def test_what_is_no_event_is_refused(frame):
    with pytest.raises(InputError, match="Pod: is no watch event"):
        CODEC.frame(frame)


def test_a_list_without_items_is_empty():
    page = _page(b'{"metadata": {"resourceVersion": "5", "continue": "x"}, "items": null}')
    assert (page.resource_version, page.next, page.items) == ("5", "x", [])


def test_what_is_no_object_has_no_metadata():
    assert CODEC.metadata(b"[]") == Metadata()
    assert CODEC.metadata(b'{"metadata": {"namespace": "a", "name": "b"}}').key == "a/b"


def test_a_status_says_how_long_to_wait():
    raw = b'{"code": 429, "reason": "TooManyRequests", "message": "m", "details": {"retryAfterSeconds": 3}}'
    assert CODEC.status(raw) == StatusMessage(429, "TooManyRequests", "m", 3.0)
    assert CODEC.status(b"oops") == StatusMessage(message="b'oops'")
