"""Timelines of the autoscaler's state: observed groups at given seconds, and the resulting state."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.fixtures.golden import Golden
from tests.unit.autoscaling.cluster_state_helpers import (
    MINUTE,
    SPEC,
    T0,
    A,
    Observed,
    after,
    groups_of,
    options,
    reported,
)
from trimtab.api.cluster_autoscaler_status import MAX_GROUPS, MAX_UNNEEDED, ClusterAutoscalerStatus, NodeGroupStatus
from trimtab.autoscaling.cluster_state import (
    AutoscalerState,
    GroupError,
    GroupRecord,
    OpenScaleUp,
    backoff_messages,
    record_scale_up_request,
    record_scale_up_result,
    record_target_decrease,
    state_from_status,
    status_with_state,
)
from trimtab.autoscaling.cluster_state.backoff import clear_backoffs
from trimtab.autoscaling.cluster_state.state import MAX_INCREASES
from trimtab.autoscaling.providers import ScaleFailure, ScaleResult

PROVISION = 15 * MINUTE


def asked(before: int, to: int, time: float = 0, state: AutoscalerState | None = None, **more: Any) -> AutoscalerState:
    scaled = ScaleResult(A, before, to, calls=1, **more)
    return record_scale_up_result(state or AutoscalerState(), scaled, now=T0 + time, seconds=PROVISION)


def open_(state: AutoscalerState, group: str = A) -> list[tuple[int, int, float]]:
    """Target before, requested target, and deadline in seconds."""
    return [(each.from_, each.to, each.deadline - T0) for each in state.scale_ups.get(group, ())]


Step = tuple[float, Observed | ScaleResult, list[tuple[str, int]], dict[str, Any]]

TIMELINES: dict[str, tuple[AutoscalerState, list[Step]]] = {
    "joined nodes close the scale-up and set the boot time": (
        asked(1, 3),
        [
            (10, Observed(3, "x=ready@-9999 y@2 z@2"), [], {"open": [(1, 3, 900)], "upcoming": 2}),
            (40, Observed(3, "x=ready@-9999 y=new@2 z@2"), [], {"open": [(1, 3, 900)], "upcoming": 1}),
            (60, Observed(3, "x=ready@-9999 y=ready@2 z=new@2"), [], {"open": [(1, 3, 900)], "upcoming": 0}),
            (
                70,
                Observed(3, "x=ready@-9999 y=ready@2 z=ready@2"),
                [("ScaleUpCompleted", 2)],
                {"open": [], "boots": (45.0,), "upcoming": 0},
            ),
            (80, Observed(3, "x=ready@-9999 y=ready@2 z=ready@2"), [], {"open": []}),
        ],
    ),
    "late nodes are given up and the group is in backoff": (
        asked(1, 3),
        [
            (899, Observed(3, "x=ready@-9999 y@2"), [], {"open": [(1, 3, 900)], "upcoming": 2, "failures": 0}),
            (
                900,
                Observed(3, "x=ready@-9999 y@2"),
                [("ScaleUpTimedOut", 2)],
                {"open": [], "upcoming": 0, "failures": 1, "until": 1200, "given_up": 2, "shortfall": 1},
            ),
            (
                910,
                Observed(3, "x=ready@-9999 y@2"),
                [],
                {"upcoming": 0, "failures": 1, "until": 1200, "unregistered": ("y",), "shortfall": 1},
            ),
            (920, Observed(2, "x=ready@-9999 y@2"), [], {"given_up": 1, "shortfall": 0, "unregistered": ("y",)}),
            (930, Observed(1, "x=ready@-9999 y-@2"), [], {"given_up": 0, "unregistered": (), "failures": 1}),
        ],
    ),
    "late node is used": (
        asked(0, 2),
        [
            (900, Observed(2, "x@1 y@1"), [("ScaleUpTimedOut", 2)], {"given_up": 2, "unregistered": ()}),
            (901, Observed(2, "x@1 y@1"), [], {"given_up": 2, "unregistered": ("x", "y")}),
            (902, Observed(2, "x=ready@1 y@1"), [], {"given_up": 1, "unregistered": ("y",), "upcoming": 0}),
            (903, Observed(2, "x=ready@1 y=ready@1"), [], {"given_up": 0, "unregistered": ()}),
        ],
    ),
    "machine whose node does not confirm it is never unregistered": (
        asked(0, 2),
        [
            (40, Observed(2, "x~new@1 y@1"), [], {"open": [(0, 2, 900)], "upcoming": 2}),
            (60, Observed(2, "x~ready@1 y@1"), [], {"upcoming": 1}),
            (900, Observed(2, "x~ready@1 y@1"), [("ScaleUpTimedOut", 1)], {"given_up": 1, "unregistered": ()}),
            (901, Observed(2, "x~ready@1 y@1"), [], {"given_up": 1, "unregistered": ("y",), "upcoming": 0}),
            (902, Observed(2, "x!~ready@1 y@1"), [], {"unregistered": ("y",), "upcoming": 0}),
            (903, Observed(2, "x=ready@1 y@1"), [], {"unregistered": ("y",), "upcoming": 0}),
        ],
    ),
    "failed machine whose starting node does not confirm it is not upcoming": (
        asked(0, 1),
        [
            (40, Observed(1, "x!~new@1"), [], {"open": [(0, 1, 900)], "upcoming": 0, "unregistered": ()}),
            (60, Observed(1, "x!~ready@1"), [("ScaleUpCompleted", 1)], {"open": [], "upcoming": 0, "unregistered": ()}),
        ],
    ),
    "late machine whose starting node does not confirm it is not unregistered": (
        asked(0, 2),
        [
            (900, Observed(2, "x~new@1 y@1"), [("ScaleUpTimedOut", 2)], {"given_up": 2, "unregistered": ()}),
            (901, Observed(2, "x~new@1 y@1"), [], {"given_up": 2, "unregistered": ("y",), "upcoming": 0}),
        ],
    ),
    "each scale-up has its own deadline": (
        asked(2, 4, 100, asked(0, 2)),
        [
            (899, Observed(4, "w@1 x@1 y@99 z@99"), [], {"open": [(0, 2, 900), (2, 4, 1000)]}),
            (
                900,
                Observed(4, "w@1 x@1 y@99 z@99"),
                [("ScaleUpTimedOut", 2)],
                {"open": [(2, 4, 1000)], "upcoming": 2},
            ),
            (
                1000,
                Observed(4, "w@1 x@1 y@99 z@99"),
                [("ScaleUpTimedOut", 2)],
                {"open": [], "failures": 1, "until": 1200},
            ),
        ],
    ),
    "joined node counts for the oldest scale-up": (
        asked(2, 5, 100, asked(0, 2)),
        [
            (
                200,
                Observed(5, "v=ready w=ready x=ready y@99 z@99"),
                [("ScaleUpCompleted", 2)],
                {"open": [(2, 5, 1000)]},
            ),
            (
                1000,
                Observed(5, "v=ready w=ready x=ready y@99 z@99"),
                [("ScaleUpTimedOut", 2)],
                {"open": [], "given_up": 2},
            ),
        ],
    ),
    "failed machine starts one backoff at once": (
        asked(1, 4),
        [
            (
                10,
                Observed(4, "x=ready@-9999 y!@2 z!@2 v@2"),
                [("MachineFailed", 2)],
                {
                    "failures": 1,
                    "until": 310,
                    "upcoming": 1,
                    "unregistered": ("y", "z"),
                    "error": "InsufficientResources",
                },
            ),
            (
                20,
                Observed(4, "x=ready@-9999 y!@2 z!@2 v@2"),
                [],
                {"failures": 1, "until": 310, "open": [(3, 4, 900)]},
            ),
            (400, Observed(4, "x=ready@-9999 y!@2 z!@2 v@2"), [], {"failures": 1, "until": 310}),
            (405, ScaleResult(A, 4, 2), [], {}),
            (410, Observed(2, "x=ready@-9999 v=ready@2"), [("ScaleUpCompleted", 1)], {"open": [], "unregistered": ()}),
            (
                420,
                Observed(3, "x=ready@-9999 v=ready@2 u!@415"),
                [("MachineFailed", 1)],
                {"failures": 2, "until": 1020},
            ),
        ],
    ),
    "node that is not ready in time is a failure": (
        asked(1, 2),
        [
            (60, Observed(2, "x=ready@-9999 y=new@1"), [], {"open": [(1, 2, 900)]}),
            (910, Observed(2, "x=ready@-9999 y=new@1"), [], {"open": [(1, 2, 900)], "upcoming": 0}),
            (931, Observed(2, "x=ready@-9999 y=new@1"), [("NodeNotStarted", 1)], {"open": [], "failures": 1}),
            (941, Observed(2, "x=ready@-9999 y=new@1"), [], {"open": [], "failures": 1}),
        ],
    ),
    "group options for provision and startup time": (
        AutoscalerState(),
        [
            (
                0,
                Observed(1, options=options(provision_seconds=60, startup_seconds=20)),
                [],
                {"open": [(0, 1, 60)]},
            ),
            (
                60,
                Observed(1, options=options(provision_seconds=60, startup_seconds=20)),
                [("ScaleUpTimedOut", 1)],
                {"given_up": 1, "shortfall": 1},
            ),
        ],
    ),
    "target lowered by another actor is adopted": (
        asked(1, 5),
        [
            (
                60,
                Observed(3, "x=ready@-9999 y@2 z@2"),
                [("TargetChanged", 2)],
                {"open": [(1, 3, 900)], "upcoming": 2},
            ),
            (70, Observed(3, "x=ready@-9999 y@2 z@2"), [], {"open": [(1, 3, 900)]}),
            (80, Observed(1, "x=ready@-9999"), [("TargetChanged", 2)], {"open": [], "failures": 0}),
        ],
    ),
    "target raised by another actor is awaited": (
        asked(1, 2),
        [
            (60, Observed(4, "x=ready@-9999 y@2"), [("TargetChanged", 2)], {"open": [(1, 2, 900), (2, 4, 960)]}),
            (70, Observed(4, "x=ready@-9999 y@2"), [], {"open": [(1, 2, 900), (2, 4, 960)], "upcoming": 3}),
        ],
    ),
    "target lowered by own removals of machines that were already deleted is no change by another actor": (
        AutoscalerState(targets={A: 6}),
        [
            (
                10,
                Observed(6, "u=ready@-9 v=ready@-9 w=ready@-9 x=ready@-9 y=ready@-9 z-@-9"),
                [],
                {"open": [(5, 6, 910)], "added": None},
            ),
            (
                20,
                Observed(5, "u=ready@-9 v=ready@-9 w=ready@-9 x=ready@-9 y-@-9 z-@-9"),
                [],
                {"open": [(4, 5, 910)], "upcoming": 1, "unobserved": False},
            ),
            (
                41,
                Observed(4, "u=ready@-9 v=ready@-9 w=ready@-9 x=ready@-9 y-@-9"),
                [],
                {"open": [], "upcoming": 0, "failures": 0, "until": None},
            ),
        ],
    ),
    "own removal during an own scale-up leaves the scale-up open": (
        asked(4, 6),
        [
            (40, Observed(6, "u=ready@-9 v=ready@-9 w=ready@-9 x-@-9 y@2"), [], {"open": [(3, 5, 900), (5, 6, 940)]}),
            (50, Observed(5, "u=ready@-9 v=ready@-9 w=ready@-9 x-@-9 y@2"), [], {"open": [(3, 5, 900)], "failures": 0}),
        ],
    ),
    "machine that is deleted before a request is visible does not hide the request": (
        asked(1, 3),
        [
            (1, Observed(1, "x-@-9999"), [], {"open": [(0, 1, 901), (1, 3, 900)], "unobserved": True}),
            (9, Observed(1, "x-@-9999"), [], {"open": [(0, 1, 901), (1, 3, 900)], "unobserved": True}),
            (12, Observed(3, "x-@-9999"), [], {"open": [(0, 1, 901), (1, 3, 900)], "unobserved": False}),
        ],
    ),
    "request that is reverted is a failure even if other nodes are missing": (
        asked(1, 3),
        [
            (35, Observed(3, "x-@-9999"), [], {"open": [(0, 2, 900), (2, 3, 935)]}),
            (
                45,
                Observed(0, "x-@-9999"),
                [("TargetChanged", 2)],
                {"open": [], "failures": 1, "error": "TargetChanged"},
            ),
        ],
    ),
    "target raised without open scale-up counts as added": (
        AutoscalerState(),
        [
            (0, Observed(1, "x=ready@-9999"), [], {"added": None, "open": []}),
            (10, Observed(3, "x=ready@-9999"), [], {"added": 10, "open": [(1, 3, 910)]}),
        ],
    ),
    "replaced machine is awaited and not counted as added": (
        AutoscalerState(),
        [
            (0, Observed(2, "x=ready@-9999 y=ready@-9999"), [], {}),
            (
                10,
                Observed(2, "x=ready@-9999 y-@-9999 z@9"),
                [],
                {"open": [(1, 2, 910)], "added": None, "upcoming": 1},
            ),
            (90, Observed(2, "x=ready@-9999 z=ready@9"), [], {"open": [], "boots": (45.0,)}),
        ],
    ),
    "first machine of a new group is no scale-up": (
        AutoscalerState(),
        [
            (10, Observed(1, "x@9"), [], {"open": [(0, 1, 909)]}),
            (60, Observed(1, "x=ready@9"), [], {"open": [], "boots": (45.0,)}),
        ],
    ),
    "vanished node has the deadline of a new one": (
        AutoscalerState(),
        [
            (0, Observed(2, "x=ready@-9999 y=ready@-9999"), [], {}),
            (10, Observed(2, "x=ready@-9999 y@-9999"), [], {"open": [(1, 2, 910)], "unregistered": ()}),
            (909, Observed(2, "x=ready@-9999 y@-9999"), [], {"open": [(1, 2, 910)], "unregistered": ()}),
            (
                910,
                Observed(2, "x=ready@-9999 y@-9999"),
                [("ScaleUpTimedOut", 1)],
                {"open": [], "unregistered": ("y",)},
            ),
        ],
    ),
    "machines of a killed process are awaited since their creation": (
        AutoscalerState(targets={A: 1}),
        [(100, Observed(3, "x=ready@-9999 y@40 z@41"), [], {"open": [(1, 3, 941)], "added": 41})],
    ),
    "snapshot older than the request is no edit": (
        asked(1, 3),
        [
            (1, Observed(1, "x=ready@-9999"), [], {"open": [(1, 3, 900)], "upcoming": 2, "unobserved": True}),
            (2, Observed(3, "x=ready@-9999"), [], {"open": [(1, 3, 900)], "upcoming": 2, "unobserved": False}),
        ],
    ),
    "unconfirmed scale-up that never shows is dropped": (
        asked(1, 3, doubt=True, failure=ScaleFailure.TIMED_OUT),
        [
            (
                10,
                Observed(1, "x=ready@-9999"),
                [],
                {"open": [(1, 3, 900)], "upcoming": 2, "unobserved": True, "failures": 1},
            ),
            (30, Observed(1, "x=ready@-9999"), [], {"open": [], "upcoming": 0, "unobserved": False}),
        ],
    ),
    "unconfirmed scale-up that shows is open": (
        asked(1, 3, doubt=True, failure=ScaleFailure.TIMED_OUT),
        [
            (10, Observed(3, "x=ready@-9999"), [], {"open": [(1, 3, 900)], "upcoming": 2, "unobserved": False}),
            (50, Observed(3, "x=ready@-9999 y=ready@5 z=ready@5"), [("ScaleUpCompleted", 2)], {"open": []}),
        ],
    ),
    "target without machines is lowered again": (
        asked(0, 5),
        [
            (
                900,
                Observed(5, "x@1 y@1"),
                [("ScaleUpTimedOut", 5)],
                {"shortfall": 3, "unregistered": (), "upcoming": 0},
            ),
            (910, Observed(2, "x@1 y@1"), [], {"shortfall": 0, "unregistered": ("x", "y"), "given_up": 2}),
        ],
    ),
    "failures expire after three hours": (
        AutoscalerState(groups={A: GroupRecord(3, T0 + 60, GroupError(T0, "InsufficientResources"))}, targets={A: 1}),
        [
            (60 + 10799, Observed(1, "x=ready@-9999"), [], {"failures": 3}),
            (60 + 10800, Observed(1, "x=ready@-9999"), [], {"failures": 0, "until": None}),
        ],
    ),
    "times in the future are corrected": (
        AutoscalerState(
            groups={A: GroupRecord(1, T0 + 99_999, GroupError(T0 + 99_999, "X"))},
            scale_ups={A: (OpenScaleUp(0, 1, T0 + 5000, T0 + 99_999),)},
            targets={A: 1},
            last_scale_up=T0 + 7777,
            unneeded={"n": T0 + 7777},
        ),
        [(10, Observed(1, "x@1"), [], {"until": 1810, "open": [(0, 1, 910)], "added": 10})],
    ),
}


@pytest.mark.parametrize("name", TIMELINES)
def test_timeline(name: str) -> None:
    state, steps = TIMELINES[name]
    for time, observed, expected, then in steps:
        if isinstance(observed, ScaleResult):
            state = record_target_decrease(state, observed)
            continue
        state, findings = after(state, time, observed)
        record = state.record(A)
        found = {
            "open": open_(state),
            "upcoming": findings.upcoming.get(A, observed.group.upcoming),
            "unobserved": A in findings.unobserved_requests,
            "failures": record.failures,
            "until": None if record.backoff_until is None else record.backoff_until - T0,
            "given_up": record.given_up,
            "boots": record.boots,
            "error": "" if record.last_error is None else record.last_error.reason,
            "unregistered": tuple(machine.name for machine in findings.unregistered.get(A, ())),
            "shortfall": findings.shortfall.get(A, 0),
            "added": None if state.last_scale_up is None else state.last_scale_up - T0,
        }
        assert reported(findings) == expected, time
        assert {key: found[key] for key in then} == then, time


@pytest.mark.parametrize(
    ("machines", "seconds"),
    [
        pytest.param("x=ready@-9999 y=ready@2 z=ready@11", "56s", id="last node ready at 11+45"),
        pytest.param("x=ready@-9999 y=ready@2 z=ready@900", "300s", id="times in the future"),
    ],
)
def test_duration_of_a_scale_up_ends_when_its_last_node_was_ready(machines: str, seconds: str) -> None:
    _, findings = after(asked(1, 3), 300, Observed(3, machines))
    [finding] = findings.reported
    assert finding.reason == "ScaleUpCompleted"
    assert f" {seconds} after" in finding.message


def test_merged_increases_are_never_given_up_early() -> None:
    state = AutoscalerState()
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
def test_each_consecutive_failure_doubles_the_backoff_up_to_half_an_hour(failures: int, minutes: int) -> None:
    record = GroupRecord(failures, T0 - 1, GroupError(T0 - 400, "ScaleRefused")) if failures else GroupRecord()
    state = AutoscalerState(groups={A: record})

    state = asked(1, 2, state=state, failure=ScaleFailure.REFUSED, message="no")

    assert state.record(A).failures == failures + 1
    assert state.record(A).backoff_until == T0 + minutes * MINUTE
    assert not state.scale_ups


def test_failures_during_backoff_do_not_extend_it() -> None:
    first = asked(1, 2, 0, failure=ScaleFailure.REFUSED)
    second = asked(1, 2, 100, first, failure=ScaleFailure.UNREACHABLE)

    assert second.record(A).backoff_until == first.record(A).backoff_until
    assert second.record(A).failures == 1
    error = second.record(A).last_error
    assert error is not None
    assert error.reason == "ScaleUnreachable"


@pytest.mark.parametrize("failure", [ScaleFailure.CONFLICT, ScaleFailure.NOT_FOUND])
def test_changes_by_other_actors_cause_no_backoff(failure: ScaleFailure) -> None:
    assert asked(1, 2, failure=failure) == AutoscalerState()


def test_refusal_without_a_request_causes_no_backoff() -> None:
    scaled = ScaleResult(A, 1, 2, failure=ScaleFailure.REFUSED)
    assert record_scale_up_result(AutoscalerState(), scaled, now=T0, seconds=PROVISION) == AutoscalerState()


def test_try_again_ends_the_backoff_once() -> None:
    failed = asked(1, 2, failure=ScaleFailure.REFUSED, message="forbidden")
    assert clear_backoffs(failed, "") is failed

    cleared = clear_backoffs(failed, "monday")
    assert (cleared.record(A), cleared.try_again) == (GroupRecord(), "monday")
    assert not backoff_messages(cleared, T0 + 1)

    restarted = state_from_status(status_with_state(cleared))
    again = asked(1, 2, 10, restarted, failure=ScaleFailure.REFUSED)
    assert clear_backoffs(again, "monday") is again, "an earlier process has handled this value"
    assert again.record(A).failures == 1
    assert clear_backoffs(again, "x" * 300).try_again == "x" * 253


def test_backoff_message_is_stable(golden: Golden) -> None:
    state = asked(1, 2, failure=ScaleFailure.REFUSED, message="forbidden")

    words = backoff_messages(state, T0 + 1)

    assert words == backoff_messages(state, T0 + 299)
    golden("\n".join(f"{key}: {text}" for key, text in words.items()))
    assert backoff_messages(state, T0 + 300) == {}
    again = asked(1, 2, 301, state, failure=ScaleFailure.REFUSED)
    golden(backoff_messages(again, T0 + 302)[A], "2")


def test_unanswered_request_is_recorded_first_and_settled_later() -> None:
    state = record_scale_up_request(AutoscalerState(), A, 1, 3, now=T0, seconds=PROVISION)
    assert state.scale_ups[A][0].doubt
    assert state.last_scale_up is None

    done = asked(1, 3, 5, state)
    assert done.scale_ups[A] == (OpenScaleUp(1, 3, T0, T0 + PROVISION),)
    assert done.last_scale_up == T0

    conflict = asked(1, 3, 5, state, failure=ScaleFailure.CONFLICT)
    assert conflict == AutoscalerState(targets={A: 1})


def test_own_target_decrease_is_no_edit() -> None:
    state = asked(3, 5)
    state = record_target_decrease(state, ScaleResult(A, 5, 4))
    state, findings = after(state, 60, Observed(4, "x=ready@-9999 y=ready@-9999 u@2 v@2"))

    assert reported(findings) == []
    assert open_(state) == [(2, 4, 900)]
    assert record_target_decrease(state, ScaleResult(A, 4, 3, failure=ScaleFailure.REFUSED)) == state


def test_failure_of_one_group_does_not_affect_others() -> None:
    sick = asked(1, 3)
    well = Observed(2, "p=ready@-9999 q=new@9", name="b")
    alone, found = after(sick, 20, well)
    state, findings = after(sick, 20, well, Observed(3, "x=ready@-9999 y!@2 z!@2"))

    assert state.record("MachineSet/m/b") == alone.record("MachineSet/m/b")
    assert open_(state, "MachineSet/m/b") == open_(alone, "MachineSet/m/b")
    assert [each for each in findings.reported if each.group != A] == list(found.reported)


def test_failures_of_an_absent_group_are_kept() -> None:
    state = asked(1, 2, failure=ScaleFailure.REFUSED)
    deleted, _ = after(state, 10, Observed(1, name="b"))
    back, _ = after(deleted, 20, Observed(1, "x=ready@-9999"))

    assert back.record(A).backoff_until == T0 + 300
    assert after(deleted, 300 + 10800)[0].groups == {}


def test_groups_without_state_are_dropped_first_from_a_full_status() -> None:
    plain = tuple(NodeGroupStatus(id=f"MachineSet/m/{number:04}") for number in range(MAX_GROUPS))
    status = status_with_state(asked(1, 2), ClusterAutoscalerStatus(node_groups=plain))

    assert len(status.node_groups) == MAX_GROUPS
    assert status.node_groups_omitted == 1
    assert state_from_status(status).scale_ups == asked(1, 2).scale_ups


def test_longest_unneeded_nodes_are_kept_in_a_full_status() -> None:
    unneeded = {f"n-{number:04}": T0 - number for number in range(MAX_UNNEEDED + 7)}
    status = status_with_state(AutoscalerState(unneeded=unneeded))

    assert status.unneeded_omitted == 7
    assert set(unneeded) - set(state_from_status(status).unneeded) == {f"n-{number:04}" for number in range(7)}


def test_other_status_fields_are_unchanged() -> None:
    group = NodeGroupStatus(id=A, min_size=1, max_size=9, ready=3, paused="so it is")
    status = status_with_state(asked(1, 2), ClusterAutoscalerStatus(observed_generation=7, node_groups=(group,)))

    assert status.observed_generation == 7
    [found] = status.node_groups
    assert (found.ready, found.paused, found.target) == (3, "so it is", 2)


def test_invalid_status_entries_are_ignored() -> None:
    status = status_with_state(asked(1, 2))
    [group] = status.node_groups
    assert group.scale_up is not None
    wrong = replace(group, scale_up=replace(group.scale_up, from_=5, to=2))

    assert state_from_status(replace(status, node_groups=(wrong,))).scale_ups == {}


def test_future_times_in_a_status_are_corrected() -> None:
    ahead = T0 + 9999
    state = AutoscalerState(
        last_scale_up=ahead, last_scale_down=ahead, last_scale_down_failure=ahead, unneeded={"n": ahead}
    )

    now, _ = after(state, 10)

    assert (now.last_scale_up, now.last_scale_down, now.last_scale_down_failure) == (T0 + 10,) * 3
    assert now.unneeded == {"n": T0 + 10}


def test_advance_reads_each_group_and_node_once() -> None:
    observed = [
        Observed(12, " ".join(f"g{number}-{each}=ready@-9999" for each in range(10)), name=f"g{number:03}")
        for number in range(50)
    ]
    groups, nodes = groups_of(*observed)
    state, findings = after(AutoscalerState(), 5, *observed)

    assert len(nodes) == 500
    assert len(state.scale_ups) == len(groups.all) == 50
    assert findings.reported == ()


def test_provision_time_comes_from_the_spec() -> None:
    spec = msgspec.structs.replace(SPEC, max_node_provision_time="1m")
    state, _ = after(AutoscalerState(), 0, Observed(2), spec=spec)

    assert open_(state) == [(0, 2, 60)]
