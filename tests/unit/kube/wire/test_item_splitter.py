"""Splitting lists in protobuf into their items while they arrive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protobuf import encode_list
from trimtab.kube.errors import InputError
from trimtab.kube.wire.codec import Page
from trimtab.kube.wire.protobuf import ItemSplitter

ITEMS = [b"a" * 5, b"", b"b" * 127, b"c" * 128, b"d" * 20_000]
BODY = encode_list("Node", ITEMS, resource_version="5", continue_token="next")


def cut(body: bytes, sizes: list[int]) -> tuple[list[bytes], Page | None]:
    """The items and the end of a body that comes in pieces of these sizes, over and over."""
    splitter, found, position, turn = ItemSplitter("Node"), [], 0, 0
    while position < len(body):
        size = sizes[turn % len(sizes)]
        found += splitter.feed(body[position : position + size])
        position, turn = position + size, turn + 1
    return found, splitter.end()


def test_a_list_is_split_into_its_items() -> None:
    assert cut(BODY, [len(BODY)]) == (ITEMS, Page(resource_version="5", next="next", items=[]))


@given(items=st.lists(st.binary(max_size=300), max_size=8), sizes=st.lists(st.integers(1, 50), min_size=1, max_size=8))
def test_items_do_not_depend_on_chunk_boundaries(items, sizes) -> None:
    body = encode_list("Node", items, resource_version="7") + b"\x1a\x00\x22\x00"  # as servers end it: without a type
    assert cut(body, sizes) == (items, Page(resource_version="7", next="", items=[]))


def test_items_are_yielded_before_the_list_is_complete() -> None:
    first = BODY.index(ITEMS[0]) + len(ITEMS[0])
    assert list(ItemSplitter("Node").feed(BODY[:first])) == [ITEMS[0]]


@pytest.mark.parametrize("length", [0, 3, 4, 10, 30, 60, len(BODY) - 1])
def test_a_truncated_list_is_recognized(length) -> None:
    assert cut(BODY[:length], [7])[1] is None


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"kind": "NodeList"}', id="JSON"),
        pytest.param(b"<html>", id="HTML"),
        pytest.param(b"k8s\0\x1a\x00", id="an envelope of other fields"),
        pytest.param(b"k8s\0\x12\x02\x1a\x00", id="a list of other fields"),
        pytest.param(b"k8s\0\x12\x03\x0a\x01\xff", id="garbage for metadata"),
        pytest.param(b"k8s\0\x12" + b"\xff" * 11, id="a length without an end"),
    ],
)
def test_a_body_that_is_not_a_list_is_refused(body) -> None:
    with pytest.raises(InputError, match="is not "):
        cut(body, [len(body)])
