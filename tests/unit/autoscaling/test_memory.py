"""What the autoscaler remembers, as timelines: what it sees at which second, and what it makes of that."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.unit.autoscaling.remembering import MINUTE, SPEC, T0, A, Seen, after, groups_of, options, told
from trimtab.api.cluster_autoscaler_status import MAX_GROUPS, MAX_UNNEEDED, ClusterAutoscalerStatus, NodeGroupStatus
from trimtab.autoscaling.memory import (
    GroupRecord,
    OpenScaleUp,
    State,
    Trouble,
    answered,
    backoff_words,
    begun,
    lowered,
    recall,
    remember,
)
from trimtab.autoscaling.memory.state import MAX_INCREASES
from trimtab.autoscaling.providers import Failure, Scaled

PROVISION = 15 * MINUTE


def asked(before: int, to: int, time: float = 0, state: State | None = None, **more: Any) -> State:
    scaled = Scaled(A, before, to, calls=1, **more)
    return answered(state or State(), scaled, now=T0 + time, seconds=PROVISION)


def open_(state: State, group: str = A) -> list[tuple[int, int, float]]:
    """From, to, and the deadline from the start."""
    return [(each.from_, each.to, each.deadline - T0) for each in state.scale_ups.get(group, ())]


Step = tuple[float, Seen | Scaled, list[tuple[str, int]], dict[str, Any]]

TIMELINES: dict[str, tuple[State, list[Step]]] = {
    "nodes that come close the increase, and their boot time is kept": (
        asked(1, 3),
        [
            (10, Seen(3, "x=ready@-9999 y@2 z@2"), [], {"open": [(1, 3, 900)], "upcoming": 2}),
            (40, Seen(3, "x=ready@-9999 y=new@2 z@2"), [], {"open": [(1, 3, 900)], "upcoming": 1}),
            (60, Seen(3, "x=ready@-9999 y=ready@2 z=new@2"), [], {"open": [(1, 3, 900)], "upcoming": 0}),
            (
                70,
                Seen(3, "x=ready@-9999 y=ready@2 z=ready@2"),
                [("ScaleUpCompleted", 2)],
                {"open": [], "boots": (45.0,), "upcoming": 0},
            ),
            (80, Seen(3, "x=ready@-9999 y=ready@2 z=ready@2"), [], {"open": []}),
        ],
    ),
    "nodes that do not come in time are given up, and the group backs off": (
        asked(1, 3),
        [
            (899, Seen(3, "x=ready@-9999 y@2"), [], {"open": [(1, 3, 900)], "upcoming": 2, "failures": 0}),
            (
                900,
                Seen(3, "x=ready@-9999 y@2"),
                [("ScaleUpTimedOut", 2)],
                {"open": [], "upcoming": 0, "failures": 1, "until": 1200, "given_up": 2, "shortfall": 1},
            ),
            (
                910,
                Seen(3, "x=ready@-9999 y@2"),
                [],
                {"upcoming": 0, "failures": 1, "until": 1200, "hopeless": ("y",), "shortfall": 1},
            ),
            (920, Seen(2, "x=ready@-9999 y@2"), [], {"given_up": 1, "shortfall": 0, "hopeless": ("y",)}),
            (930, Seen(1, "x=ready@-9999 y-@2"), [], {"given_up": 0, "hopeless": (), "failures": 1}),
        ],
    ),
    "one that comes late is welcome": (
        asked(0, 2),
        [
            (900, Seen(2, "x@1 y@1"), [("ScaleUpTimedOut", 2)], {"given_up": 2, "hopeless": ()}),
            (901, Seen(2, "x@1 y@1"), [], {"given_up": 2, "hopeless": ("x", "y")}),
            (902, Seen(2, "x=ready@1 y@1"), [], {"given_up": 1, "hopeless": ("y",), "upcoming": 0}),
            (903, Seen(2, "x=ready@1 y=ready@1"), [], {"given_up": 0, "hopeless": ()}),
        ],
    ),
    "each increase has its own deadline": (
        asked(2, 4, 100, asked(0, 2)),
        [
            (899, Seen(4, "w@1 x@1 y@99 z@99"), [], {"open": [(0, 2, 900), (2, 4, 1000)]}),
            (900, Seen(4, "w@1 x@1 y@99 z@99"), [("ScaleUpTimedOut", 2)], {"open": [(2, 4, 1000)], "upcoming": 2}),
            (1000, Seen(4, "w@1 x@1 y@99 z@99"), [("ScaleUpTimedOut", 2)], {"open": [], "failures": 1, "until": 1200}),
        ],
    ),
    "what comes counts for the oldest increase": (
        asked(2, 5, 100, asked(0, 2)),
        [
            (200, Seen(5, "v=ready w=ready x=ready y@99 z@99"), [("ScaleUpCompleted", 2)], {"open": [(2, 5, 1000)]}),
            (1000, Seen(5, "v=ready w=ready x=ready y@99 z@99"), [("ScaleUpTimedOut", 2)], {"open": [], "given_up": 2}),
        ],
    ),
    "a machine that fails makes the group back off at once, once": (
        asked(1, 4),
        [
            (
                10,
                Seen(4, "x=ready@-9999 y!@2 z!@2 v@2"),
                [("MachineFailed", 2)],
                {"failures": 1, "until": 310, "upcoming": 1, "hopeless": ("y", "z"), "error": "InsufficientResources"},
            ),
            (20, Seen(4, "x=ready@-9999 y!@2 z!@2 v@2"), [], {"failures": 1, "until": 310, "open": [(3, 4, 900)]}),
            (400, Seen(4, "x=ready@-9999 y!@2 z!@2 v@2"), [], {"failures": 1, "until": 310}),
            (405, Scaled(A, 4, 2), [], {}),
            (410, Seen(2, "x=ready@-9999 v=ready@2"), [("ScaleUpCompleted", 1)], {"open": [], "hopeless": ()}),
            (420, Seen(3, "x=ready@-9999 v=ready@2 u!@415"), [("MachineFailed", 1)], {"failures": 2, "until": 1020}),
        ],
    ),
    "a node that joins and does not become ready in time is a failure": (
        asked(1, 2),
        [
            (60, Seen(2, "x=ready@-9999 y=new@1"), [], {"open": [(1, 2, 900)]}),
            (910, Seen(2, "x=ready@-9999 y=new@1"), [], {"open": [(1, 2, 900)], "upcoming": 0}),
            (931, Seen(2, "x=ready@-9999 y=new@1"), [("NodeNotStarted", 1)], {"open": [], "failures": 1}),
            (941, Seen(2, "x=ready@-9999 y=new@1"), [], {"open": [], "failures": 1}),
        ],
    ),
    "a group's own times to join and to start": (
        State(),
        [
            (0, Seen(1, options=options(provision_seconds=60, startup_seconds=20)), [], {"open": [(0, 1, 60)]}),
            (
                60,
                Seen(1, options=options(provision_seconds=60, startup_seconds=20)),
                [("ScaleUpTimedOut", 1)],
                {"given_up": 1, "shortfall": 1},
            ),
        ],
    ),
    "a target that somebody lowers is the truth": (
        asked(1, 5),
        [
            (60, Seen(3, "x=ready@-9999 y@2 z@2"), [("TargetChanged", 2)], {"open": [(1, 3, 900)], "upcoming": 2}),
            (70, Seen(3, "x=ready@-9999 y@2 z@2"), [], {"open": [(1, 3, 900)]}),
            (80, Seen(1, "x=ready@-9999"), [("TargetChanged", 2)], {"open": [], "failures": 0}),
        ],
    ),
    "a target that somebody raises is waited for as well": (
        asked(1, 2),
        [
            (60, Seen(4, "x=ready@-9999 y@2"), [("TargetChanged", 2)], {"open": [(1, 2, 900), (2, 4, 960)]}),
            (70, Seen(4, "x=ready@-9999 y@2"), [], {"open": [(1, 2, 900), (2, 4, 960)], "upcoming": 3}),
        ],
    ),
    "a target that somebody raised while nothing was open counts as added": (
        State(),
        [
            (0, Seen(1, "x=ready@-9999"), [], {"added": None, "open": []}),
            (10, Seen(3, "x=ready@-9999"), [], {"added": 10, "open": [(1, 3, 910)]}),
        ],
    ),
    "a machine that is replaced is waited for, and does not count as added": (
        State(),
        [
            (0, Seen(2, "x=ready@-9999 y=ready@-9999"), [], {}),
            (10, Seen(2, "x=ready@-9999 y-@-9999 z@9"), [], {"open": [(1, 2, 910)], "added": None, "upcoming": 1}),
            (90, Seen(2, "x=ready@-9999 z=ready@9"), [("ScaleUpCompleted", 1)], {"open": []}),
        ],
    ),
    "a node that vanishes has as long to come back as a new one": (
        State(),
        [
            (0, Seen(2, "x=ready@-9999 y=ready@-9999"), [], {}),
            (10, Seen(2, "x=ready@-9999 y@-9999"), [], {"open": [(1, 2, 910)], "hopeless": ()}),
            (909, Seen(2, "x=ready@-9999 y@-9999"), [], {"open": [(1, 2, 910)], "hopeless": ()}),
            (910, Seen(2, "x=ready@-9999 y@-9999"), [("ScaleUpTimedOut", 1)], {"open": [], "hopeless": ("y",)}),
        ],
    ),
    "machines that a killed process asked for are waited for since they were made": (
        State(targets={A: 1}),
        [(100, Seen(3, "x=ready@-9999 y@40 z@41"), [], {"open": [(1, 3, 941)], "added": 41})],
    ),
    "a picture from before the request is no edit": (
        asked(1, 3),
        [
            (1, Seen(1, "x=ready@-9999"), [], {"open": [(1, 3, 900)], "upcoming": 2, "asked": True}),
            (2, Seen(3, "x=ready@-9999"), [], {"open": [(1, 3, 900)], "upcoming": 2, "asked": False}),
        ],
    ),
    "an increase in doubt that the target does not show in time was none": (
        asked(1, 3, doubt=True, failure=Failure.TIMED_OUT),
        [
            (10, Seen(1, "x=ready@-9999"), [], {"open": [(1, 3, 900)], "upcoming": 2, "asked": True, "failures": 1}),
            (30, Seen(1, "x=ready@-9999"), [], {"open": [], "upcoming": 0, "asked": False}),
        ],
    ),
    "an increase in doubt that the target shows is open": (
        asked(1, 3, doubt=True, failure=Failure.TIMED_OUT),
        [
            (10, Seen(3, "x=ready@-9999"), [], {"open": [(1, 3, 900)], "upcoming": 2, "asked": False}),
            (50, Seen(3, "x=ready@-9999 y=ready@5 z=ready@5"), [("ScaleUpCompleted", 2)], {"open": []}),
        ],
    ),
    "a group that makes no machines is lowered again": (
        asked(0, 5),
        [
            (900, Seen(5, "x@1 y@1"), [("ScaleUpTimedOut", 5)], {"shortfall": 3, "hopeless": (), "upcoming": 0}),
            (910, Seen(2, "x@1 y@1"), [], {"shortfall": 0, "hopeless": ("x", "y"), "given_up": 2}),
        ],
    ),
    "failures are forgotten after three hours": (
        State(groups={A: GroupRecord(3, T0 + 60, Trouble(T0, "InsufficientResources"))}, targets={A: 1}),
        [
            (60 + 10799, Seen(1, "x=ready@-9999"), [], {"failures": 3}),
            (60 + 10800, Seen(1, "x=ready@-9999"), [], {"failures": 0, "until": None}),
        ],
    ),
    "times ahead are brought back": (
        State(
            groups={A: GroupRecord(1, T0 + 99_999, Trouble(T0 + 99_999, "X"))},
            scale_ups={A: (OpenScaleUp(0, 1, T0 + 5000, T0 + 99_999),)},
            targets={A: 1},
            last_scale_up=T0 + 7777,
            unneeded={"n": T0 + 7777},
        ),
        [(10, Seen(1, "x@1"), [], {"until": 1810, "open": [(0, 1, 910)], "added": 10})],
    ),
}


@pytest.mark.parametrize("name", TIMELINES)
def test_a_timeline(name: str) -> None:
    state, steps = TIMELINES[name]
    for time, seen, expected, then in steps:
        if isinstance(seen, Scaled):
            state = lowered(state, seen)
            continue
        state, findings = after(state, time, seen)
        record = state.record(A)
        found = {
            "open": open_(state),
            "upcoming": findings.upcoming.get(A, seen.group.upcoming),
            "asked": A in findings.asked,
            "failures": record.failures,
            "until": None if record.backoff_until is None else record.backoff_until - T0,
            "given_up": record.given_up,
            "boots": record.boots,
            "error": "" if record.last_error is None else record.last_error.reason,
            "hopeless": tuple(machine.name for machine in findings.hopeless.get(A, ())),
            "shortfall": findings.shortfall.get(A, 0),
            "added": None if state.last_scale_up is None else state.last_scale_up - T0,
        }
        assert told(findings) == expected, time
        assert {key: found[key] for key in then} == then, time


def test_increases_of_one_group_are_bounded_and_none_is_given_up_early() -> None:
    state = State()
    for number in range(20):
        state = asked(number, number + 1, 10 * number, state)

    increases = state.scale_ups[A]
    assert len(increases) == MAX_INCREASES
    assert sum(each.size for each in increases) == 20
    for number in range(20):
        own = next(each for each in increases if each.from_ <= number < each.to)
        assert own.deadline >= T0 + 10 * number + PROVISION
    assert increases[-1].deadline == T0 + 190 + PROVISION


@pytest.mark.parametrize(
    ("failures", "minutes"), [(0, 5), (1, 10), (2, 20), (3, 30), (4, 30), (1000, 30)], ids=lambda each: str(each)
)
def test_each_failure_in_a_row_backs_off_for_twice_as_long_up_to_half_an_hour(failures: int, minutes: int) -> None:
    record = GroupRecord(failures, T0 - 1, Trouble(T0 - 400, "ScaleRefused")) if failures else GroupRecord()
    state = State(groups={A: record})

    state = asked(1, 2, state=state, failure=Failure.REFUSED, message="no")

    assert state.record(A).failures == failures + 1
    assert state.record(A).backoff_until == T0 + minutes * MINUTE
    assert not state.scale_ups


def test_failures_while_a_group_backs_off_do_not_make_it_longer() -> None:
    first = asked(1, 2, 0, failure=Failure.REFUSED)
    second = asked(1, 2, 100, first, failure=Failure.UNREACHABLE)

    assert second.record(A).backoff_until == first.record(A).backoff_until
    assert second.record(A).failures == 1
    error = second.record(A).last_error
    assert error is not None
    assert error.reason == "ScaleUnreachable"


@pytest.mark.parametrize("failure", [Failure.CONFLICT, Failure.NOT_FOUND])
def test_a_group_does_not_back_off_for_what_others_changed(failure: Failure) -> None:
    assert asked(1, 2, failure=failure) == State()


def test_what_is_refused_without_a_request_is_the_plans_affair() -> None:
    scaled = Scaled(A, 1, 2, failure=Failure.REFUSED)
    assert answered(State(), scaled, now=T0, seconds=PROVISION) == State()


def test_words_of_a_backoff_stay_the_same_while_it_lasts() -> None:
    state = asked(1, 2, failure=Failure.REFUSED, message="forbidden")

    words = backoff_words(state, T0 + 1)

    assert words == backoff_words(state, T0 + 299)
    assert words == {
        A: "it failed to bring nodes (ScaleRefused: forbidden), so nothing is asked of it until 2026-11-20T12:05:00Z"
    }
    assert backoff_words(state, T0 + 300) == {}
    again = asked(1, 2, 301, state, failure=Failure.REFUSED)
    assert backoff_words(again, T0 + 302)[A].startswith("it failed to bring nodes for the 2nd time in a row (")


def test_a_request_without_an_answer_is_written_down_before_and_settled_by_it() -> None:
    state = begun(State(), A, 1, 3, now=T0, seconds=PROVISION)
    assert state.scale_ups[A][0].doubt
    assert state.last_scale_up is None

    done = asked(1, 3, 5, state)
    assert done.scale_ups[A] == (OpenScaleUp(1, 3, T0, T0 + PROVISION),)
    assert done.last_scale_up == T0

    conflict = asked(1, 3, 5, state, failure=Failure.CONFLICT)
    assert conflict == State(targets={A: 1})


def test_a_lower_target_of_our_own_is_no_edit() -> None:
    state = asked(3, 5)
    state = lowered(state, Scaled(A, 5, 4))
    state, findings = after(state, 60, Seen(4, "x=ready@-9999 y=ready@-9999 u@2 v@2"))

    assert told(findings) == []
    assert open_(state) == [(2, 4, 900)]
    assert lowered(state, Scaled(A, 4, 3, failure=Failure.REFUSED)) == state


def test_one_groups_trouble_is_only_its_own() -> None:
    sick = asked(1, 3)
    well = Seen(2, "p=ready@-9999 q=new@9", name="b")
    alone, found = after(sick, 20, well)
    state, findings = after(sick, 20, well, Seen(3, "x=ready@-9999 y!@2 z!@2"))

    assert state.record("MachineSet/m/b") == alone.record("MachineSet/m/b")
    assert open_(state, "MachineSet/m/b") == open_(alone, "MachineSet/m/b")
    assert [each for each in findings.told if each.group != A] == list(found.told)


def test_failures_of_a_group_that_is_not_there_are_kept_for_its_return() -> None:
    state = asked(1, 2, failure=Failure.REFUSED)
    gone, _ = after(state, 10, Seen(1, name="b"))
    back, _ = after(gone, 20, Seen(1, "x=ready@-9999"))

    assert back.record(A).backoff_until == T0 + 300
    assert after(gone, 300 + 10800)[0].groups == {}


def test_more_groups_than_a_status_holds_leave_those_out_of_which_nothing_is_remembered() -> None:
    plain = tuple(NodeGroupStatus(id=f"MachineSet/m/{number:04}") for number in range(MAX_GROUPS))
    status = remember(asked(1, 2), ClusterAutoscalerStatus(node_groups=plain))

    assert len(status.node_groups) == MAX_GROUPS
    assert status.node_groups_omitted == 1
    assert recall(status).scale_ups == asked(1, 2).scale_ups


def test_of_too_many_unneeded_nodes_the_longest_unneeded_are_remembered() -> None:
    unneeded = {f"n-{number:04}": T0 - number for number in range(MAX_UNNEEDED + 7)}
    status = remember(State(unneeded=unneeded))

    assert status.unneeded_omitted == 7
    assert set(unneeded) - set(recall(status).unneeded) == {f"n-{number:04}" for number in range(7)}


def test_everything_else_of_a_status_stays() -> None:
    group = NodeGroupStatus(id=A, min_size=1, max_size=9, ready=3, paused="so it is")
    status = remember(asked(1, 2), ClusterAutoscalerStatus(observed_generation=7, node_groups=(group,)))

    assert status.observed_generation == 7
    [found] = status.node_groups
    assert (found.ready, found.paused, found.target) == (3, "so it is", 2)


def test_a_status_that_makes_no_sense_is_read_as_far_as_it_does() -> None:
    status = remember(asked(1, 2))
    [group] = status.node_groups
    assert group.scale_up is not None
    wrong = replace(group, scale_up=replace(group.scale_up, from_=5, to=2))

    assert recall(replace(status, node_groups=(wrong,))).scale_ups == {}


def test_times_ahead_in_a_status_are_brought_back_by_a_pass() -> None:
    ahead = T0 + 9999
    state = State(last_scale_up=ahead, last_scale_down=ahead, last_scale_down_failure=ahead, unneeded={"n": ahead})

    now, _ = after(state, 10)

    assert (now.last_scale_up, now.last_scale_down, now.last_scale_down_failure) == (T0 + 10,) * 3
    assert now.unneeded == {"n": T0 + 10}


def test_a_pass_over_many_groups_and_nodes_reads_each_once() -> None:
    seen = [
        Seen(12, " ".join(f"g{number}-{each}=ready@-9999" for each in range(10)), name=f"g{number:03}")
        for number in range(50)
    ]
    groups, nodes = groups_of(*seen)
    state, findings = after(State(), 5, *seen)

    assert len(nodes) == 500
    assert len(state.scale_ups) == len(groups.all) == 50
    assert findings.told == ()


def test_the_spec_says_how_long_machines_may_take() -> None:
    spec = msgspec.structs.replace(SPEC, max_node_provision_time="1m")
    state, _ = after(State(), 0, Seen(2), spec=spec)

    assert open_(state) == [(0, 2, 60)]
