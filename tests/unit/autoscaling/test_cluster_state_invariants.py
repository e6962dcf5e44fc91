"""Invariants of the autoscaler's state for any history of a cluster."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.autoscaling.cluster_state_helpers import SPEC, T0, A, Observed, groups_of, restarted
from trimtab.autoscaling.cluster_state import (
    AutoscalerState,
    GroupError,
    GroupRecord,
    OpenScaleUp,
    advance,
    record_scale_up_result,
    record_target_decrease,
)
from trimtab.autoscaling.cluster_state.backoff import LONGEST, is_backing_off, record_failure, with_expired_failures
from trimtab.autoscaling.cluster_state.state import (
    MAX_BOOTS,
    MAX_INCREASES,
    MAX_TROUBLED,
    ending_at,
    merge_closest,
    missing_by_increase,
    requested_nodes,
    without_newest,
)
from trimtab.autoscaling.providers import ScaleFailure, ScaleResult

IDS = st.sampled_from([f"MachineSet/m/{letter}" for letter in "abc"])
TIMES = st.integers(0, 20_000).map(lambda number: T0 + number)
WORDS = st.text(max_size=20)
CODES = st.text(min_size=1, max_size=20)
RECORDS = st.builds(
    GroupRecord,
    failures=st.integers(1, 9),
    backoff_until=st.none() | TIMES,
    last_error=st.none() | st.builds(GroupError, TIMES, CODES, WORDS),
    boots=st.lists(st.integers(0, 9999).map(lambda tenths: tenths / 10), max_size=MAX_BOOTS).map(tuple),
    given_up=st.integers(0, 9),
    known_failures=st.lists(CODES, max_size=MAX_TROUBLED).map(tuple),
)


@st.composite
def chains(draw: Any) -> tuple[OpenScaleUp, ...]:
    """Scale-ups, each beginning at the target at which the one before ends."""
    bottom, found = draw(st.integers(0, 5)), []
    for _ in range(draw(st.integers(1, MAX_INCREASES))):
        top = bottom + draw(st.integers(1, 5))
        found.append(OpenScaleUp(bottom, top, draw(TIMES), draw(TIMES), draw(st.booleans()), draw(st.booleans())))
        bottom = top
    return tuple(found)


STATES = st.builds(
    AutoscalerState,
    groups=st.dictionaries(IDS, RECORDS),
    scale_ups=st.dictionaries(IDS, chains()),
    targets=st.dictionaries(IDS, st.integers(1, 50)),
    unneeded=st.dictionaries(CODES, TIMES),
    last_scale_up=st.none() | TIMES,
    last_scale_down=st.none() | TIMES,
    last_scale_down_failure=st.none() | TIMES,
)

MACHINES = st.lists(
    st.tuples(st.sampled_from("tuvwxyz"), st.sampled_from(["", "!", "-", "=new", "=ready", "!=ready"])),
    unique_by=lambda each: each[0],
    max_size=6,
)
"""What of a group's machines is there: names and states."""

STEPS = st.lists(
    st.tuples(
        st.integers(1, 700),
        st.integers(0, 8),
        MACHINES,
        st.none() | st.sampled_from([*ScaleFailure]),
        st.booleans(),
        st.integers(-2, 3),
    ),
    min_size=1,
    max_size=8,
)
"""Seconds until a pass, the target and the machines that it sees, and what it then asks for, with what outcome."""


@given(STATES)
def test_status_round_trip_keeps_the_state(state: AutoscalerState) -> None:
    assert restarted(state) == state


def play(steps: list[Any], *, restart: bool) -> list[Any]:
    """The states of all iterations, with or without a restart before each."""
    state, time, made = AutoscalerState(), T0, []
    born: dict[str, float] = {}
    for seconds, target, machines, failure, doubt, more in steps:
        time += seconds
        for name, _ in machines:
            born.setdefault(name, time - T0 - 3)
        observed = Observed(target, " ".join(f"{name}{how}@{born[name]:g}" for name, how in machines))
        groups, nodes = groups_of(observed)
        state, findings = advance(restarted(state) if restart else state, groups, nodes, SPEC, time)
        scaled = ScaleResult(A, target, target + more, failure=failure, doubt=failure is not None and doubt, calls=1)
        if more > 0:
            state = record_scale_up_result(state, scaled, now=time, seconds=900)
        elif more < 0 and target + more >= 0:
            state = record_target_decrease(state, scaled)
        made.append((state, findings, groups.by_id[A], time))
    return made


@given(STEPS)
def test_restart_between_any_two_steps_changes_nothing(steps: list[Any]) -> None:
    assert play(steps, restart=True) == play(steps, restart=False)


@given(STEPS)
def test_upcoming_never_exceeds_requested_nodes_that_are_missing(steps: list[Any]) -> None:
    for state, findings, group, time in play(steps, restart=False):
        upcoming = findings.upcoming.get(A, group.upcoming)
        assert upcoming >= 0
        if A not in findings.unobserved_requests:
            assert upcoming <= group.upcoming
        deleted = {machine.name for machine in findings.unregistered.get(A, ())}
        assert not deleted & {machine.name for machine in group.machines if machine.node}
        assert findings.shortfall.get(A, 0) <= max(0, group.target - len(group.machines) + _going(group))
        for each in state.scale_ups.get(A, ()):
            assert 0 <= each.from_ < each.to
            assert each.since <= time
            assert each.deadline <= time + SPEC.provision_seconds
        assert len(state.scale_ups.get(A, ())) <= MAX_INCREASES


def _going(group: Any) -> int:
    return sum(machine.state == "Deleting" for machine in group.machines)


@given(STEPS)
def test_no_node_is_awaited_beyond_its_deadline(steps: list[Any]) -> None:
    for state, findings, group, time in play(steps, restart=False):
        starting = sum(bool(machine.node) for machine in group.machines)
        late = [each for each in state.scale_ups.get(A, ()) if each.deadline <= time]
        assert requested_nodes(late) <= starting or A in findings.unobserved_requests


@given(STEPS)
def test_missing_nodes_are_given_up_eventually(steps: list[Any]) -> None:
    *before, (_, target, machines, _, _, _) = steps
    still = (target, machines, None, False, 0)
    played = play([*before, (1, *still), (40, *still), (901, *still), (1, *still)], restart=False)
    state, findings, group, _ = played[-1]

    nodes = sum(bool(machine.node) and machine.state != "Deleting" for machine in group.machines)
    assert not state.scale_ups
    assert findings.upcoming.get(A, group.upcoming) == 0
    set_right = len(findings.unregistered.get(A, ())) + findings.shortfall.get(A, 0)
    assert set_right >= min(group.target, max(0, group.target - nodes))


@given(st.lists(st.integers(0, 4000), min_size=1, max_size=30))
def test_further_failure_never_shortens_the_backoff(pauses: list[int]) -> None:
    record, now = GroupRecord(), T0
    for pause in pauses:
        now += pause
        before = with_expired_failures(record, now)
        record = record_failure(before, GroupError(now, "X"), now)
        assert record.backoff_until is not None
        assert is_backing_off(record, now)
        assert record.backoff_until >= (before.backoff_until or 0)
        assert record.backoff_until <= now + LONGEST
        assert record.failures in (before.failures, before.failures + 1)


@given(chains(), st.integers(0, 60))
def test_splitting_increases_loses_no_node(increases: tuple[OpenScaleUp, ...], number: int) -> None:
    everything = requested_nodes(increases)

    assert requested_nodes(without_newest(increases, number)) == max(0, everything - number)
    assert sum(missing_by_increase(increases, number)) == min(number, everything)
    target = increases[-1].to + number
    assert [each.size for each in ending_at(increases, target)] == [each.size for each in increases]
    assert ending_at(increases, target)[-1].to == target
    assert merge_closest(increases) == increases


def test_times_of_a_status_are_whole_seconds() -> None:
    state = record_scale_up_result(AutoscalerState(), ScaleResult(A, 1, 2, calls=1), now=T0 + 0.987654, seconds=900)

    assert state.scale_ups[A][0].since == T0
    assert datetime.fromtimestamp(state.scale_ups[A][0].deadline, UTC).microsecond == 0
