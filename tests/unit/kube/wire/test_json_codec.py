"""Lists and watches in JSON."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.golden import Golden
from trimtab.kube.errors import InputError
from trimtab.kube.wire.codec import Metadata, StatusMessage
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.json_codec import JsonCodec, LineSplitter

CODEC = JsonCodec("Pod", Interner())
LINES = st.lists(st.binary(max_size=200).map(lambda line: line.replace(b"\n", b"").strip()).filter(bool), max_size=10)


@given(LINES, st.lists(st.integers(1, 50), min_size=1, max_size=10))
def test_lines_do_not_depend_on_chunk_boundaries(lines, cuts):
    stream = b"".join(line + b"\n" for line in lines)
    splitter = LineSplitter()
    found, position, turn = [], 0, 0
    while position < len(stream):
        size = cuts[turn % len(cuts)]
        found += splitter.feed(stream[position : position + size])
        position, turn = position + size, turn + 1
    assert found == lines


def test_empty_lines_are_ignored():
    assert list(LineSplitter().feed(b"\n  \n{}\n\r\n")) == [b"{}"]


def test_a_line_may_have_megabytes():
    splitter = LineSplitter()
    chunks = [b"x" * 65536] * 40
    assert [line for chunk in chunks for line in splitter.feed(chunk)] == []
    assert [len(line) for line in splitter.feed(b"\n")] == [65536 * 40]


def _page(body):
    splitter = CODEC.list_splitter()
    assert list(splitter.feed(body[:5])) == list(splitter.feed(body[5:])) == []
    return splitter.end()


def test_a_list_is_decoded_when_it_is_complete():
    page = _page(b'{"metadata": {"resourceVersion": "5"}, "items": [{"a": 1}, {}]}')
    assert [bytes(item) for item in page.items] == [b'{"a": 1}', b"{}"]


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"items": 3}'])
def test_a_body_that_is_not_a_list_is_refused(body, golden: Golden):
    with pytest.raises(InputError) as raised:
        _page(body)
    golden(str(raised.value))


@pytest.mark.parametrize("frame", [b"{", b"{}", b'{"type": "ADDED"}', b"[]"])
def test_a_line_that_is_not_an_event_is_refused(frame, golden: Golden):
    with pytest.raises(InputError) as raised:
        CODEC.frame(frame)
    golden(str(raised.value))


def test_a_list_without_items_is_empty():
    page = _page(b'{"metadata": {"resourceVersion": "5", "continue": "x"}, "items": null}')
    assert (page.resource_version, page.next, page.items) == ("5", "x", [])


def test_invalid_json_has_no_metadata():
    assert CODEC.metadata(b"[]") == Metadata()
    assert CODEC.metadata(b'{"metadata": {"namespace": "a", "name": "b"}}').key == "a/b"


def test_a_status_may_have_a_retry_after():
    raw = b'{"code": 429, "reason": "TooManyRequests", "message": "m", "details": {"retryAfterSeconds": 3}}'
    assert CODEC.status(raw) == StatusMessage(429, "TooManyRequests", "m", 3.0)
    assert CODEC.status(b"oops") == StatusMessage(message="b'oops'")
