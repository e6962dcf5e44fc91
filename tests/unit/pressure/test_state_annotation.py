"""Decoding of the annotation with a node's state: clients that may patch the node can write any text into it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.pressure.state import NO_STATE, decode_state, encode_state
from trimtab.pressure.thresholds import CONDITION_OF

TIME = st.one_of(
    st.sampled_from(["2026-11-23T01:02:03Z", "2026-11-23T01:02:03.5Z", "2026-02-30T00:00:00Z", "", "now"]),
    st.text(max_size=9),
    st.floats(),
    st.none(),
)
KEY = st.sampled_from([*(f"soft/{signal}" for signal in CONDITION_OF), *CONDITION_OF, "MemoryPressure", "x"])
DOCUMENT = st.dictionaries(
    st.sampled_from(["firstMet", "pastGrace", "lastMet", "refusedSince", "evicting", "measuredAt", "x"]),
    st.one_of(st.dictionaries(KEY, TIME, max_size=4), st.lists(KEY, max_size=4), TIME),
)


@given(document=DOCUMENT)
def test_any_annotation_is_decoded_or_ignored(document: dict[str, Any]) -> None:
    state = decode_state(msgspec.json.encode(document).decode())

    assert decode_state(encode_state(state)) == state


@given(text=st.text(max_size=200))
def test_any_text_is_decoded(text: str) -> None:
    decode_state(text)


@pytest.mark.parametrize("text", [None, "", "[]", "3", "[" * 10_000, '{"evicting": "' + "x" * 20_000 + '"}'])
def test_documents_of_another_form_are_ignored(text: str | None) -> None:
    assert decode_state(text) == NO_STATE
