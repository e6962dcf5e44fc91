"""When a run expires, may act, and may be deleted; how its status goes on."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.golden import Golden
from tests.unit.descheduling.runs.runs import HOUR, NOW, move, run
from trimtab.api.conditions import find_condition
from trimtab.api.descheduling_run import DeschedulingRunStatus
from trimtab.descheduling.runs import lifecycle
from trimtab.descheduling.runs.lifecycle import Run, RunEnding
from trimtab.disruption.outcome import EVICTED, FAILED, GONE, REFUSED, SKIPPED, Outcome

A, B = move("a"), move("b")
WAITING = run(A, B)
ACTING = msgspec.structs.replace(
    WAITING, approved=True, status=lifecycle.mark_approved(WAITING.status, now=NOW + HOUR - 1)
)


@pytest.mark.parametrize(
    ("found", "generation", "newest", "now", "expected"),
    [
        pytest.param(WAITING, 1, WAITING.name, NOW + 1, None, id="waits"),
        pytest.param(WAITING, 1, WAITING.name, NOW + HOUR, ("Expired", "ApprovalExpired"), id="not approved in time"),
        pytest.param(WAITING, 2, WAITING.name, NOW + 1, ("Expired", "Superseded"), id="the spec has changed"),
        pytest.param(WAITING, 1, "newer", NOW + 1, ("Expired", "Superseded"), id="a newer run"),
        pytest.param(ACTING, 1, WAITING.name, NOW + HOUR + 60, None, id="approved in time, carried out after it"),
        pytest.param(ACTING, 1, "newer", NOW + HOUR, None, id="a run being executed is not superseded by a plan"),
        pytest.param(ACTING, 1, WAITING.name, NOW + 2 * HOUR, ("Expired", "ApprovalExpired"), id="not done in time"),
        pytest.param(ACTING, 2, WAITING.name, NOW + HOUR, ("Expired", "Superseded"), id="changed while it acted"),
        pytest.param(run(A, mode="Act"), 1, "x", NOW, ("Interrupted", "RunInterrupted"), id="left by a killed process"),
    ],
)
def test_run_expires_because_of_changes(
    found: Run, generation: int, newest: str, now: float, expected: tuple[str, str] | None
) -> None:
    how = lifecycle.expiry(found, generation=generation, newest=newest, now=now)
    assert (None if how is None else (how.phase, how.reason)) == expected


def test_early_end_reports_progress(golden: Golden) -> None:
    outcome = Outcome(A, EVICTED, "Evicted", "", NOW)
    status = lifecycle.add_outcomes(ACTING.status, [outcome], shown={A.uid, B.uid})
    how = lifecycle.expiry(msgspec.structs.replace(ACTING, status=status), generation=2, newest="", now=NOW + HOUR)
    assert how is not None
    golden(how.message)


@pytest.mark.parametrize(
    ("mode", "moves", "phase", "conditions"),
    [
        ("Simulate", 1, "Simulated", {"Complete": ("True", "Simulated")}),
        ("Simulate", 0, "Completed", {"Complete": ("True", "RunCompleted")}),
        (
            "Approve",
            1,
            "Pending",
            {"Approved": ("False", "WaitingForApproval"), "Complete": ("False", "WaitingForApproval")},
        ),
        ("Approve", 0, "Completed", {"Complete": ("True", "RunCompleted")}),
        ("Act", 1, "Acting", {"Complete": ("False", "CycleRunning")}),
        ("Act", 0, "Completed", {"Complete": ("True", "RunCompleted")}),
    ],
)
def test_new_run_reports_pending_approval(
    mode: str, moves: int, phase: str, conditions: dict[str, tuple[str, str]]
) -> None:
    status = run(*[A] * moves, mode=mode).status
    assert status.phase == phase
    assert {each.type: (each.status, each.reason) for each in status.conditions} == conditions
    assert (status.completed is None) is (phase in {"Pending", "Acting"})


def test_approval_is_recorded_once() -> None:
    again = lifecycle.mark_approved(ACTING.status, now=NOW + 9 * HOUR)
    assert again is ACTING.status
    assert ACTING.act_until == NOW + 2 * HOUR - 1


def test_omitted_outcomes_are_only_counted() -> None:
    moves = [move(str(index)) for index in range(6)]
    results = [EVICTED, REFUSED, GONE, SKIPPED, FAILED, EVICTED]
    known = [Outcome(action, result, "R", "m", NOW) for action, result in zip(moves, results, strict=True)]
    status = lifecycle.add_outcomes(DeschedulingRunStatus(), known, shown={action.uid for action in moves[:5]})
    assert (status.evicted, status.refused, status.skipped) == (2, 2, 2)
    assert [outcome.result for outcome in status.outcomes] == results[:5]


def test_many_long_outcomes_lose_their_messages_and_nothing_else() -> None:
    moves = [move(f"{index:03}" + "x" * 250, uid=f"{index:064}") for index in range(500)]
    known = [Outcome(action, SKIPPED, "R" * 128, "ü" * 900, NOW) for action in moves]
    status = lifecycle.add_outcomes(DeschedulingRunStatus(), known, shown={action.uid for action in moves})
    assert len(status.outcomes) == 500
    assert status.outcomes[0].message
    assert not status.outcomes[-1].message
    assert len(msgspec.json.encode(status)) < 768 * 1024


@pytest.mark.parametrize("waiting", [True, False], ids=["waiting", "acting"])
def test_an_expired_run_keeps_whether_it_was_approved(waiting: bool) -> None:
    before = (WAITING if waiting else ACTING).status
    status = lifecycle.mark_ended(before, RunEnding("Expired", "Superseded", "run x is newer"), now=NOW)
    found = find_condition(status.conditions, "Approved")
    assert status.phase == "Expired"
    assert found is not None
    assert (found.status, found.reason) == (("False", "Superseded") if waiting else ("True", "Approved"))


def at(hour: float, phase: str, *, completed: float | None = None, approved: bool = False) -> Run:
    status = DeschedulingRunStatus(phase=phase)  # type: ignore[arg-type]
    if approved:
        status = lifecycle.mark_approved(status, now=NOW)
    status = msgspec.structs.replace(status, phase=phase)
    if completed is not None:
        status = lifecycle.mark_completed(status, now=completed)
        status = msgspec.structs.replace(status, phase=phase)
    return run(A, time=NOW + hour, status=status)


@pytest.mark.parametrize(
    ("runs", "limit", "gone"),
    [
        pytest.param([at(1, "Expired"), at(2, "Expired"), at(3, "Expired")], 2, [1], id="the oldest"),
        pytest.param([at(3, "Expired"), at(1, "Expired"), at(2, "Expired")], 1, [1, 2], id="in any order"),
        pytest.param([at(1, "Pending"), at(2, "Expired"), at(3, "Expired")], 1, [2], id="none that waits"),
        pytest.param([at(1, "Acting"), at(2, "Simulated")], 1, [], id="none that acts"),
        pytest.param([at(1, "Completed", completed=NOW - 1, approved=True), at(2, "Expired")], 1, [], id="just done"),
        pytest.param(
            [at(1, "Completed", completed=NOW - 601, approved=True), at(2, "Expired")], 1, [1], id="done long ago"
        ),
        pytest.param([at(1, "Completed", completed=NOW - 1), at(2, "Expired")], 1, [1], id="done unasked"),
        pytest.param([at(1, "Expired"), at(2, "Pending")], 0, [1], id="all except pending runs"),
    ],
)
def test_surplus_runs_are_deleted(runs: list[Run], limit: int, gone: list[int]) -> None:
    found = lifecycle.surplus_runs(runs, limit=limit, now=NOW)
    assert [each.plan.time.timestamp() - NOW for each in found] == gone


@given(st.lists(st.sampled_from(["Pending", "Acting", "Expired", "Completed", "Simulated"]), max_size=20))
def test_open_runs_are_never_deleted(phases: list[str]) -> None:
    runs = [at(index, phase) for index, phase in enumerate(phases)]
    deleted = lifecycle.surplus_runs(runs, limit=3, now=NOW)
    assert not any(each.open for each in deleted)
    assert len(deleted) <= max(0, len(runs) - 3)


def test_next_expiry_is_earliest() -> None:
    assert lifecycle.next_expiry([]) is None
    assert lifecycle.next_expiry([at(0, "Expired")]) is None
    assert lifecycle.next_expiry([WAITING, run(A, time=NOW + 5)]) == NOW + HOUR


def test_undecodable_run_is_ignored() -> None:
    assert lifecycle.read_run({"metadata": {"name": "x"}, "spec": {"plan": {"policy": 3}}}) is None
