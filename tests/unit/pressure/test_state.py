"""The node annotation with the state."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.pressure.nodes import START
from trimtab.kube.wire.projection.annotations import meaningful
from trimtab.pressure.state import (
    ANNOTATION,
    CONDITION_TYPES,
    NO_STATE,
    NodeState,
    decode_state,
    encode_state,
    stored_measurement_time,
    stored_time,
)
from trimtab.pressure.thresholds import CONDITION_OF

TIMES = st.floats(min_value=0.0, max_value=4e9).map(stored_time)
KEYS = st.sampled_from([f"{hardness}/{signal}" for hardness in ("hard", "soft") for signal in CONDITION_OF])


@st.composite
def states(draw: st.DrawFn) -> NodeState:
    first_met = dict(sorted(draw(st.dictionaries(KEYS, TIMES)).items()))
    return NodeState(
        first_met=first_met,
        past_grace=tuple(key for key in first_met if draw(st.booleans())),
        last_met=draw(st.dictionaries(st.sampled_from(sorted(CONDITION_TYPES)), TIMES)),
        refused_since=draw(st.dictionaries(st.text(max_size=40), TIMES, max_size=5)),
        evicting=draw(st.text(max_size=40)),
        measured_at=draw(st.dictionaries(st.sampled_from(sorted(CONDITION_OF)), TIMES)),
    )


@given(states())
def test_decoding_returns_what_was_encoded(state: NodeState) -> None:
    text = encode_state(state)
    assert (text is None) == (not state)
    assert decode_state(text) == state


def test_annotation_is_readable_json() -> None:
    state = NodeState(
        first_met={"soft/memory.available": START},
        past_grace=("soft/memory.available",),
        last_met={"MemoryPressure": START},
        refused_since={"uid-web": START + 1.5},
        evicting="uid-web",
        measured_at={"memory.available": START - 3},
    )
    assert json.loads(encode_state(state) or "") == {
        "firstMet": {"soft/memory.available": "2025-11-23T06:00:00.000Z"},
        "pastGrace": ["soft/memory.available"],
        "lastMet": {"MemoryPressure": "2025-11-23T06:00:00.000Z"},
        "refusedSince": {"uid-web": "2025-11-23T06:00:01.500Z"},
        "evicting": "uid-web",
        "measuredAt": {"memory.available": "2025-11-23T05:59:57.000Z"},
    }


def test_node_without_state_has_no_annotation() -> None:
    assert encode_state(NO_STATE) is None
    assert decode_state(None) is decode_state("") is NO_STATE


def test_annotation_is_stored_by_the_watch() -> None:
    assert meaningful([(ANNOTATION, "{}")]) == {ANNOTATION: "{}"}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("nonsense", id="not JSON"),
        pytest.param("[1, 2]", id="a list"),
        pytest.param("null", id="null"),
        pytest.param('{"firstMet": ["soft/memory.available"]}', id="a list instead of a map"),
        pytest.param('{"firstMet": {"soft/memory.available": 1763877600}}', id="a number instead of a time"),
        pytest.param('{"firstMet": {"soft/memory.available": "yesterday"}}', id="no time"),
        pytest.param('{"firstMet": {"soft/memory.available": "2025-11-23T06:00:00"}}', id="no time zone"),
        pytest.param('{"firstMet": {"soft/memory.available": "9999-99-99T00:00:00Z"}}', id="no such day"),
        pytest.param('{"firstMet": {"memory.available": "2025-11-23T06:00:00Z"}}', id="unknown key"),
        pytest.param('{"lastMet": {"Ready": "2025-11-23T06:00:00Z"}}', id="unknown condition"),
        pytest.param('{"pastGrace": ["soft/memory.available"]}', id="past its grace, but not met"),
        pytest.param('{"evicting": 5, "measuredAt": {"cpu": "2025-11-23T06:00:00Z"}}', id="other types and signals"),
        pytest.param("[" * 10_000, id="deep"),
        pytest.param('{"evicting": "' + "x" * 20_000 + '"}', id="huge"),
        pytest.param(
            json.dumps({"refusedSince": {str(each): "2025-11-23T06:00:00Z" for each in range(200)}}), id="too many"
        ),
    ],
)
def test_invalid_annotations_are_ignored(text: str) -> None:
    assert not decode_state(text)


def test_valid_entries_next_to_invalid_ones_are_used() -> None:
    text = '{"lastMet": {"MemoryPressure": "2025-11-23T06:00:00Z", "DiskPressure": "?"}, "more": 1}'
    assert decode_state(text) == NodeState(last_met={"MemoryPressure": START})


@given(st.text() | st.recursive(st.none() | st.booleans() | st.text(), st.lists, max_leaves=5).map(json.dumps))
def test_decoding_never_fails(text: str) -> None:
    decode_state(text)


@given(st.floats(min_value=0.0, max_value=4e9))
def test_stored_times_are_exact_to_the_millisecond(at: float) -> None:
    """The times of measurements are rounded up, so that no measurement is newer than itself."""
    assert math.isclose(stored_time(at), at, abs_tol=0.00101)
    assert stored_measurement_time(at) >= at
    assert math.isclose(stored_measurement_time(at), at, abs_tol=0.00201)


def test_refusal_keeps_the_first_time() -> None:
    state = NO_STATE.refused("uid-web", START)
    assert state.refused_since == {"uid-web": START}
    assert state.refused("uid-web", START + 60) is state


def test_refusal_of_a_pod_that_is_ranked_higher_replaces_that_of_the_lowest() -> None:
    """Otherwise, the pods of one tenant keep another one's pod from being deleted after deleteAfter."""
    pods = [f"uid-{number:03}" for number in range(128)]
    state = NO_STATE
    for number, uid in enumerate(pods):
        state = state.refused(uid, START + number, ranked=pods)

    assert state.refused("uid-last", START + 200, ranked=[*pods, "uid-last"]) is state
    assert state.refused("uid-hog", START + 200, ranked=["uid-hog", *pods]).refused_since == {
        "uid-hog": START + 200,
        **{uid: START + number for number, uid in enumerate(pods[:-1])},
    }
    assert state.refused("uid-hog", START + 200, ranked=["uid-hog", *pods[1:]]).refused_since.keys() == {
        "uid-hog",
        *pods[1:],
    }


def test_state_of_any_number_of_refused_pods_can_be_decoded() -> None:
    state = NO_STATE
    for number in range(300):
        state = state.refused(f"{number:036}", START)
    assert len(state.refused_since) == 128
    assert decode_state(encode_state(state)) == state
