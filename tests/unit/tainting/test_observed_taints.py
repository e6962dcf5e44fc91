"""Since when a node's taints stand: across swaps, restarts, clocks that are wrong, and nodes of one name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tainting.deadlines import START, node, taint
from trimtab.kube.objects import Node, Taint
from trimtab.tainting.deadlines import NodeTaints, observe_taints, since_annotation

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


def since(taints: NodeTaints) -> dict[str, float]:
    return {each.taint.key: each.since - START for each in taints.observed}


def after(*steps: tuple[float, tuple[Taint, ...]], uid: str = "u1") -> NodeTaints:
    """What is known after a node was seen with these taints at these times."""
    known: NodeTaints | None = None
    for at, taints in steps:
        known = observe_taints(node(*taints, uid=uid), known, now=START + at)
    assert known is not None
    return known


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([(50, (taint("a", added=10),))], {"a": 10}),
        ([(50, (taint("a", added=None),))], {"a": 50}),
        ([(50, (taint("a", added=80),))], {"a": 50}),
        ([(50, (taint("a", added=80),)), (90, (taint("a", added=80),))], {"a": 50}),
        ([(50, (taint("a", added=None),)), (70, (taint("a", added=None),))], {"a": 50}),
        ([(50, (taint("a", added=None),)), (60, ()), (70, (taint("a", added=None),))], {"a": 70}),
        ([(50, (taint("a", added=10),)), (70, (taint("a", added=60),))], {"a": 60}),
        ([(50, (taint("a", "v", added=None),)), (70, (taint("a", "w", added=None),))], {"a": 70}),
        ([(50, (taint("a", added=None),)), (70, (taint("a", added=None), taint("b", added=None)))], {"a": 50, "b": 70}),
        ([(50, (taint("a", effect="NoSchedule"),))], {}),
        ([(0, (taint(NOT_READY, added=0),)), (60, (taint(UNREACHABLE, added=60),))], {UNREACHABLE: 0}),
        ([(0, (taint(UNREACHABLE, added=0),)), (60, (taint(NOT_READY, added=None),))], {NOT_READY: 0}),
        (
            [
                (0, (taint(NOT_READY, added=0),)),
                (60, (taint(NOT_READY, added=0), taint(UNREACHABLE, added=60))),
                (61, (taint(UNREACHABLE, added=60),)),
                (90, (taint(NOT_READY, added=90),)),
            ],
            {NOT_READY: 0},
        ),
        (
            [(0, (taint(NOT_READY, added=0),)), (30, ()), (60, (taint(UNREACHABLE, added=60),))],
            {UNREACHABLE: 60},
        ),
        ([(0, (taint("a", added=0),)), (60, (taint("b", added=60),))], {"b": 60}),
    ],
    ids=[
        "the time it tells",
        "where it tells none, when it was first seen",
        "where that is still to come, when it was first seen",
        "which stays so when that has come",
        "a later look changes nothing",
        "taken off and put on again it begins again",
        "put on again unseen, with a new time, as well",
        "another value is another taint",
        "a second taint has its own time",
        "other effects do not count",
        "unreachable in the place of not-ready keeps its time",
        "not-ready in the place of unreachable as well",
        "in two steps, and back",
        "not after the node was well in between",
        "other keys are no swap",
    ],
)
def test_observed_taint_time(steps: list[tuple[float, tuple[Taint, ...]]], expected: dict[str, float]) -> None:
    assert since(after(*steps)) == expected


def test_new_node_with_same_name_is_observed_from_scratch() -> None:
    first = observe_taints(node(taint(added=None)), None, now=START)

    assert since(observe_taints(node(taint(added=None), uid="u2"), first, now=START + 60)) == {"a": 60}


def restarted(known: NodeTaints, seen: Node, *, at: float) -> NodeTaints:
    """What a new process knows of the node, which has the note of the old one."""
    return observe_taints(node(*seen.taints, uid=seen.uid, since=since_annotation(known) or ""), None, now=START + at)


STEPS = {
    "no time": [(50, (taint("a", added=None),))],
    "a time to come": [(50, (taint("a", "v", added=80),))],
    "a swap": [(0, (taint(NOT_READY, added=0),)), (60, (taint(UNREACHABLE, added=60),))],
    "all at once": [
        (0, (taint(NOT_READY, added=0), taint("a", added=None))),
        (60, (taint(UNREACHABLE, added=60), taint("a", added=None), taint("b", added=20))),
    ],
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_restart_keeps_taint_times(steps: list[tuple[float, tuple[Taint, ...]]]) -> None:
    before = after(*steps)

    assert restarted(before, node(*steps[-1][1]), at=5000) == before


def test_taints_with_own_time_need_no_annotation() -> None:
    assert since_annotation(after((50, (taint("a", added=10), taint("b", added=20))))) is None
    assert since_annotation(after((50, ()))) is None


def test_annotation_is_short_json() -> None:
    assert since_annotation(after((50.25, (taint("a", added=None), taint("b", added=20))))) == (
        '[{"key":"a","since":"2027-01-15T08:00:50.250000Z"}]'
    )


@pytest.mark.parametrize(
    "changed", [taint("b", added=None), taint("a", "v", added=None), taint("a", added=40)], ids=["key", "value", "time"]
)
def test_annotation_applies_to_its_taint_only(changed: Taint) -> None:
    text = since_annotation(after((10, (taint("a", added=None),))))
    assert text is not None

    (each,) = observe_taints(node(changed, since=text), None, now=START + 90).observed
    assert each.since == (changed.time_added or START + 90)


def test_annotation_of_removed_taint_is_ignored() -> None:
    noted = since_annotation(after((10, (taint("a", added=None),))))
    assert noted is not None
    deleted = observe_taints(node(since=noted), None, now=START + 20)

    assert since(observe_taints(node(taint("a", added=None), since=noted), deleted, now=START + 90)) == {"a": 90}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "null",
        "3",
        "[3]",
        '[{"key":"a"}]',
        '[{"key":"a","since":"soon"}]',
        '[{"key":"a","since":7}]',
        '[{"key":"a","since":"2026-01-01T00:00:00"}]',
        '[{"key":"a","since":"0001-01-01T00:00:00"}]',
        "[" + ",".join(['{"key":"a","since":"2026-01-01T00:00:00Z"}'] * 65) + "]",
    ],
)
def test_invalid_annotation_is_ignored(text: str) -> None:
    assert since(observe_taints(node(taint(added=None), since=text), None, now=START + 5)) == {"a": 5}


def test_future_annotation_time_counts_as_now() -> None:
    text = '[{"key":"a","since":"2099-01-01T00:00:00Z"}]'

    assert since(observe_taints(node(taint(added=None), since=text), None, now=START + 5)) == {"a": 5}


@given(text=st.text(max_size=60))
def test_random_annotations_never_fail(text: str) -> None:
    assert set(since(observe_taints(node(taint(added=None), since=text), None, now=START))) == {"a"}


@given(
    looks=st.lists(
        st.tuples(
            st.sampled_from([None, 0, 30, 500]), st.sampled_from(["a", NOT_READY, UNREACHABLE]), st.integers(0, 100)
        ),
        min_size=1,
        max_size=8,
    )
)
def test_observed_time_is_never_in_the_future(looks: list[tuple[float | None, str, int]]) -> None:
    known, at = None, 0.0
    for added, key, pause in looks:
        at += pause
        known = observe_taints(node(taint(key, added=added)), known, now=START + at)
        assert all(each.since <= START + at for each in known.observed)
