"""Any bytes that a kubelet may send: parsers return plausible values or their own errors, however the bytes arrive."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trimtab.pressure.kubelet_connections import InvalidResponse, _ClosedByServer, _ResponseParser
from trimtab.pressure.measurement import NodeMeasurement
from trimtab.pressure.summary import LARGEST, InvalidSummary, read_summary

NUMBERS = st.one_of(
    st.none(), st.integers(), st.integers(-5, 5), st.sampled_from([2**63, 2**64 - 1, LARGEST, 1.5, 1e300, "1", True])
)
TIMES = st.sampled_from(["2026-11-23T06:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", None, "", 5])
FIELDS = (
    "availableBytes",
    "workingSetBytes",
    "capacityBytes",
    "inodesFree",
    "inodes",
    "maxpid",
    "curproc",
    "usedBytes",
)
PART = st.none() | st.dictionaries(st.sampled_from(FIELDS), NUMBERS).flatmap(
    lambda values: TIMES.map(lambda time: values | {"time": time})
)
STALL = st.fixed_dictionaries({"full": st.dictionaries(st.sampled_from(["avg10", "avg60", "avg300"]), NUMBERS)})
NODE = st.fixed_dictionaries(
    {
        "nodeName": st.just("n1"),
        "memory": PART.flatmap(lambda part: STALL.map(lambda stall: part and {**part, "psi": stall})),
        "fs": PART,
        "rlimit": PART,
        "runtime": st.none() | st.fixed_dictionaries({"imageFs": PART, "containerFs": PART}),
        "systemContainers": st.none() | st.lists(st.fixed_dictionaries({"name": st.just("pods"), "memory": PART})),
    }
)
POD = st.fixed_dictionaries(
    {
        "podRef": st.fixed_dictionaries({"name": st.just("a"), "namespace": st.just("b"), "uid": st.just("c")}),
        "memory": PART,
        "containers": st.none() | st.lists(st.fixed_dictionaries({"rootfs": PART, "logs": PART}), max_size=2),
        "volume": st.none() | st.lists(PART, max_size=2),
        "ephemeral-storage": PART,
    }
)
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["node", "pods", "nodeName"]), inner),
)


def check(found: NodeMeasurement) -> None:
    for value in found.signals.values():
        assert 0 <= value.available <= value.capacity <= LARGEST
    assert not found.signals.keys() & found.problems.keys()
    for usage in found.pods().values():
        for name in usage.__struct_fields__[1:]:
            amount = getattr(usage, name)
            assert amount is None or amount >= 0
    if found.memory_stall is not None:
        assert 0 <= found.memory_stall.avg60 <= 100


@given(NODE, st.lists(POD, max_size=3))
def test_summary_has_plausible_values_or_is_invalid(node: Any, pods: Any) -> None:
    with suppress(InvalidSummary):
        check(read_summary(json.dumps({"node": node, "pods": pods}).encode(), node="n1", read_at=1.0))


@given(ANYTHING.map(lambda value: json.dumps(value).encode()) | st.binary())
def test_other_documents_are_invalid(body: bytes) -> None:
    with suppress(InvalidSummary):
        check(read_summary(body, node="n1", read_at=1.0))


def parse(data: bytes, cuts: list[int]) -> _ResponseParser:
    """Feed the parser pieces that end at the cuts."""
    parser = _ResponseParser()
    edges = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    for begin, end in pairwise(edges):
        if not parser.done:
            parser.feed(memoryview(data[begin:end]))
    return parser


CUTS = st.lists(st.integers(0, 300), max_size=20)
BODIES = st.binary(max_size=200)


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=5), CUTS)
def test_chunked_response_is_the_same_in_any_pieces(chunks: list[bytes], cuts: list[int]) -> None:
    data = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    data += b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    parser = parse(data, cuts)
    assert (parser.done, parser.keep_alive, parser.status) == (True, True, 200)
    assert bytes(parser.body) == b"".join(chunks)


@given(BODIES, CUTS)
def test_response_with_a_length_is_the_same_in_any_pieces(body: bytes, cuts: list[int]) -> None:
    parser = parse(b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body), cuts)
    assert (parser.done, parser.status, bytes(parser.body)) == (True, 404, body)


@given(BODIES, CUTS)
def test_response_without_a_length_lasts_until_the_end(body: bytes, cuts: list[int]) -> None:
    parser = parse(b"HTTP/1.1 200 OK\r\n\r\n" + body, cuts)
    assert not parser.done
    parser.end()
    assert (parser.done, parser.keep_alive, bytes(parser.body)) == (True, False, body)


PIECES = st.lists(
    st.sampled_from(
        [
            b"HTTP/1.1 200 OK\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Content-Length: 3\r\n",
            b"\r\n",
            b"3\r\nabc\r\n",
            b"0",
        ]
    )
    | st.binary(max_size=10),
    max_size=10,
).map(b"".join)


@given(PIECES, CUTS)
def test_any_bytes_are_a_response_or_invalid(data: bytes, cuts: list[int]) -> None:
    with suppress(InvalidResponse, _ClosedByServer):
        parser = parse(data, cuts)
        if not parser.done:
            parser.end()
        assert parser.done
