"""Thresholds, grace periods and conditions. The cases of the kubelet are those of its ``helpers_test.go`` (v1.36).

The kubelet's tests call one step of ``synchronize`` each. Here, a state and a measurement are the input of the whole.
``TestMakeSignalObservations`` belongs to :mod:`trimtab.pressure.summary`, and ``TestHasNodeConditions`` tests a helper.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.pressure.nodes import MEMORY, NODEFS, START, measured, stalled
from trimtab.api.node_pressure_policy import MemoryStall, NodePressurePolicySpec
from trimtab.kube.rules.quantity import amount
from trimtab.pressure.measurement import NodeMeasurement
from trimtab.pressure.state import NO_STATE, NodeState, decode_state, encode_state
from trimtab.pressure.state_machine import Step, advance
from trimtab.pressure.thresholds import Threshold, thresholds_of

MINUTE = 60.0
TRANSITION = 300.0


def thresholds(**fields: Any) -> tuple[Threshold, ...]:
    return thresholds_of(NodePressurePolicySpec(**fields))


HARD = thresholds(eviction_hard={MEMORY: "1Gi"}, eviction_minimum_reclaim={MEMORY: "500Mi"})
BOTH = thresholds(
    eviction_hard={MEMORY: "1Gi"}, eviction_soft={MEMORY: "2Gi"}, eviction_soft_grace_period={MEMORY: "1m"}
)
HARD_KEY, SOFT_KEY = f"hard/{MEMORY}", f"soft/{MEMORY}"


def step(
    state: NodeState,
    measurement: NodeMeasurement | None,
    limits: tuple[Threshold, ...],
    *,
    now: float = START,
    transition: float = TRANSITION,
) -> Step:
    return advance(state, measurement, limits, transition=transition, now=now)


def keys(found: Step) -> list[str]:
    return [each.threshold.key for each in found.met]


# The kubelet's cases.

RESOLVING = NodeState(first_met={HARD_KEY: START - 10}, past_grace=(HARD_KEY,))


@pytest.mark.parametrize(
    ("state", "available", "expected"),
    [
        pytest.param(NO_STATE, None, [], id="empty"),
        pytest.param(NO_STATE, "500Mi", [HARD_KEY], id="threshold-met-memory"),
        pytest.param(NO_STATE, "2Gi", [], id="threshold-not-met"),
        pytest.param(RESOLVING, "1.05Gi", [HARD_KEY], id="threshold-met-with-min-reclaim"),
        pytest.param(RESOLVING, "2Gi", [], id="threshold-not-met-with-min-reclaim"),
        pytest.param(NO_STATE, "1.05Gi", [], id="min-reclaim does not apply before the threshold is met"),
        pytest.param(NO_STATE, "1Gi", [], id="exactly the threshold"),
        pytest.param(RESOLVING, "1524Mi", [], id="exactly the threshold and the reclaim"),
    ],
)
def test_thresholds_met(state: NodeState, available: str | None, expected: list[str]) -> None:
    """``TestThresholdsMet``."""
    values = {} if available is None else {MEMORY: available}
    assert keys(step(state, measured(values, now=START), HARD)) == expected


PERCENTAGES = thresholds(eviction_hard={MEMORY: "20%", NODEFS: "30%"}, eviction_minimum_reclaim={MEMORY: "5%"})


@pytest.mark.parametrize(
    ("state", "memory", "disk", "expected"),
    [
        pytest.param(NO_STATE, "100Mi", "100Gi", [HARD_KEY, f"hard/{NODEFS}"], id="BothMet"),
        pytest.param(NO_STATE, "300Mi", "400Gi", [], id="NoneMet"),
        pytest.param(NO_STATE, "300Mi", "100Gi", [f"hard/{NODEFS}"], id="DiskMet"),
        pytest.param(NO_STATE, "100Mi", "400Gi", [HARD_KEY], id="MemoryMet"),
        pytest.param(RESOLVING, "225Mi", None, [HARD_KEY], id="MemoryMetWithMinReclaim"),
        pytest.param(RESOLVING, "300Mi", None, [], id="MemoryNotMetWithMinReclaim"),
    ],
)
def test_percentage_thresholds_met(state: NodeState, memory: str, disk: str | None, expected: list[str]) -> None:
    """``TestPercentageThresholdsMet``."""
    values = {MEMORY: (memory, "1000Mi")} | ({} if disk is None else {NODEFS: (disk, "1000Gi")})
    found = step(state, measured(values, now=START), PERCENTAGES)
    assert keys(found) == expected
    assert {each.threshold.signal: each.limit for each in found.met if each.threshold.signal == MEMORY} in (
        {},
        {MEMORY: amount("200Mi")},
    )


@pytest.mark.parametrize(
    ("first_met", "expected"),
    [
        pytest.param({}, START, id="no-previous-observation"),
        pytest.param({HARD_KEY: START - MINUTE}, START - MINUTE, id="previous-observation"),
        pytest.param({HARD_KEY: START + MINUTE}, START, id="in the future: a clock was set back"),
    ],
)
def test_first_observation(first_met: dict[str, float], expected: float) -> None:
    """``TestThresholdsFirstObservedAt``."""
    found = step(NodeState(first_met=first_met), measured({MEMORY: "500Mi"}, now=START), HARD)
    assert found.state.first_met == {HARD_KEY: expected}
    assert [each.since for each in found.met] == [expected]
    cleared = step(NodeState(first_met=first_met), measured({MEMORY: "5Gi"}, now=START), HARD)
    assert cleared.state.first_met == {}


@pytest.mark.parametrize(
    ("available", "first_met", "due"),
    [
        pytest.param("3Gi", {}, [], id="empty"),
        pytest.param("500Mi", {HARD_KEY: START, SOFT_KEY: START}, [HARD_KEY], id="hard-threshold-met"),
        pytest.param("1500Mi", {SOFT_KEY: START}, [], id="soft-threshold-not-met"),
        pytest.param("1500Mi", {SOFT_KEY: START - 2 * MINUTE}, [SOFT_KEY], id="soft-threshold-met"),
        pytest.param("1500Mi", {SOFT_KEY: START - 59.999}, [], id="a millisecond too early"),
        pytest.param("1500Mi", {SOFT_KEY: START - MINUTE}, [SOFT_KEY], id="exactly the grace period"),
    ],
)
def test_grace_periods(available: str, first_met: dict[str, float], due: list[str]) -> None:
    """``TestThresholdsMetGracePeriod``."""
    found = step(NodeState(first_met=first_met), measured({MEMORY: available}, now=START), BOTH)
    assert [each.threshold.key for each in found.met if each.due] == due
    assert found.state.past_grace == tuple(due)
    assert (found.due.threshold.key if found.due else None) == (due[0] if due else None)


@pytest.mark.parametrize(
    ("at", "last", "due"),
    [
        pytest.param(None, None, True, id="no-time"),
        pytest.param(None, START, True, id="no-time, but an earlier one"),
        pytest.param(START, None, True, id="no-last-observation"),
        pytest.param(START, START + MINUTE, False, id="time-machine"),
        pytest.param(START, START, False, id="same-observation"),
        pytest.param(START + MINUTE, START, True, id="new-observation"),
        pytest.param(START, START + 3600, True, id="the node's clock was set back by an hour"),
    ],
)
def test_stats_must_be_newer_than_at_the_last_eviction(at: float | None, last: float | None, due: bool) -> None:
    """``TestThresholdsUpdatedStats``. The kubelet compares with the last observation, which is as old or newer."""
    state = NodeState(first_met={HARD_KEY: START}, measured_at={} if last is None else {MEMORY: last})
    reading = measured({MEMORY: "500Mi"}, now=START, at=at, timeless=at is None)
    found = step(state, reading, HARD)
    assert [(each.due, each.past_grace) for each in found.met] == [(due, True)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param({}, set(), id="empty-list"),
        pytest.param({MEMORY: "1Mi"}, {"MemoryPressure"}, id="memory.available"),
        pytest.param({"allocatableMemory.available": "1Mi"}, {"MemoryPressure"}, id="allocatableMemory.available"),
        pytest.param({"imagefs.inodesFree": "1", NODEFS: "1"}, {"DiskPressure"}, id="two of one condition"),
        pytest.param({"pid.available": "1", NODEFS: "1"}, {"DiskPressure", "PIDPressure"}, id="two conditions"),
    ],
)
def test_node_conditions(values: dict[str, str], expected: set[str]) -> None:
    """``TestNodeConditions``."""
    signals = (MEMORY, "allocatableMemory.available", NODEFS, "imagefs.inodesFree", "pid.available")
    found = step(NO_STATE, measured(values, now=START), thresholds(eviction_hard=dict.fromkeys(signals, "10%")))
    assert found.conditions == expected


@pytest.mark.parametrize(
    ("available", "first_met", "last_met", "expected"),
    [
        pytest.param("500Mi", {}, {}, START, id="no-previous-observation"),
        pytest.param("500Mi", {}, {"MemoryPressure": START - MINUTE}, START, id="previous-observation"),
        pytest.param("5Gi", {}, {"MemoryPressure": START - MINUTE}, START - MINUTE, id="old-observation"),
        pytest.param(
            "500Mi",
            {HARD_KEY: START - MINUTE},
            {"MemoryPressure": START - MINUTE},
            START - MINUTE,
            id="while it is met, the time is not written again",
        ),
        pytest.param(
            "5Gi",
            {HARD_KEY: START - 600},
            {"MemoryPressure": START - 600},
            START,
            id="the transition period begins when it is no longer met",
        ),
        pytest.param("5Gi", {}, {"MemoryPressure": START + 600}, START, id="in the future: a clock was set back"),
    ],
)
def test_last_observation_of_a_condition(
    available: str, first_met: dict[str, float], last_met: dict[str, float], expected: float
) -> None:
    """``TestNodeConditionsLastObservedAt``."""
    state = NodeState(first_met=first_met, last_met=last_met)
    found = step(state, measured({MEMORY: available}, now=START), HARD)
    assert found.state.last_met == {"MemoryPressure": expected}
    assert found.conditions == {"MemoryPressure"}


@pytest.mark.parametrize(
    ("age", "transition", "expected"),
    [
        pytest.param(MINUTE, 2 * MINUTE, {"MemoryPressure"}, id="in-period"),
        pytest.param(MINUTE, 30.0, set(), id="out-of-period"),
        pytest.param(MINUTE, MINUTE, set(), id="exactly the period"),
    ],
)
def test_transition_period(age: float, transition: float, expected: set[str]) -> None:
    """``TestNodeConditionsObservedSince``."""
    state = NodeState(last_met={"MemoryPressure": START - age})
    found = step(state, measured({MEMORY: "5Gi"}, now=START), HARD, transition=transition)
    assert found.conditions == expected
    assert found.state.last_met.keys() == expected


# Where the rules differ from the kubelet's.


def test_condition_shows_without_a_transition_period() -> None:
    """The kubelet never reports a condition if the period is 0."""
    found = step(NO_STATE, measured({MEMORY: "500Mi"}, now=START), HARD, transition=0.0)
    assert found.conditions == {"MemoryPressure"}
    after = step(found.state, measured({MEMORY: "5Gi"}, now=START + 10), HARD, now=START + 10, transition=0.0)
    assert (after.conditions, bool(after.state)) == (frozenset(), False)


def test_soft_threshold_without_a_grace_period_is_soft() -> None:
    """The kubelet would kill the pod within one second."""
    limits = thresholds(eviction_soft={MEMORY: "1Gi"}, eviction_soft_grace_period={MEMORY: "0s"})
    found = step(NO_STATE, measured({MEMORY: "500Mi"}, now=START), limits)
    assert found.due is not None
    assert not found.due.threshold.hard


def test_without_a_measurement_nothing_changes() -> None:
    state = NodeState(first_met={SOFT_KEY: START - 600}, last_met={"MemoryPressure": START - 600})
    found = step(state, None, BOTH)
    assert found.state is state
    assert (found.met, found.due, found.conditions) == ((), None, {"MemoryPressure"})


def test_signal_without_a_value_changes_nothing() -> None:
    """The kubelet forgets that its threshold was met."""
    state = NodeState(
        first_met={f"soft/{NODEFS}": START - 600},
        past_grace=(f"soft/{NODEFS}",),
        last_met={"DiskPressure": START - 600},
    )
    limits = thresholds(
        eviction_hard={MEMORY: "1Gi"}, eviction_soft={NODEFS: "1Gi"}, eviction_soft_grace_period={NODEFS: "1m"}
    )
    found = step(state, measured({MEMORY: "5Gi"}, now=START), limits)
    assert found.state is state
    assert (found.met, found.due, found.conditions) == ((), None, {"DiskPressure"})


def test_threshold_that_the_policy_no_longer_has_is_forgotten() -> None:
    state = NodeState(
        first_met={HARD_KEY: START - 10, f"hard/{NODEFS}": START - 10},
        past_grace=(HARD_KEY, f"hard/{NODEFS}"),
        last_met={"MemoryPressure": START - 10, "DiskPressure": START - 10},
    )
    found = step(state, measured({MEMORY: "500Mi", NODEFS: "1"}, now=START), HARD)
    assert (set(found.state.first_met), found.state.past_grace) == ({HARD_KEY}, (HARD_KEY,))
    assert found.state.last_met == {"MemoryPressure": START - 10, "DiskPressure": START}


def test_minimum_reclaim_does_not_shorten_a_grace_period() -> None:
    """A soft threshold that is no longer met within its grace period is not met, as in the kubelet."""
    limits = thresholds(
        eviction_soft={MEMORY: "1Gi"},
        eviction_soft_grace_period={MEMORY: "30s"},
        eviction_minimum_reclaim={MEMORY: "1Gi"},
    )
    first = step(NO_STATE, measured({MEMORY: "900Mi"}, now=START), limits)
    later = START + 30
    assert keys(step(first.state, measured({MEMORY: "1100Mi"}, now=later), limits, now=later)) == []
    due = step(first.state, measured({MEMORY: "900Mi"}, now=later), limits, now=later)
    assert due.due is not None
    assert keys(step(due.state, measured({MEMORY: "1100Mi"}, now=later + 10), limits, now=later + 10)) == [SOFT_KEY]


@pytest.mark.parametrize(
    ("percent", "met"),
    [pytest.param(19.99, False, id="below"), pytest.param(20.0, True, id="equal"), pytest.param(100.0, True, id="all")],
)
def test_memory_stall_is_met_at_or_above_its_share(percent: float, met: bool) -> None:
    limits = thresholds(memory_stall=MemoryStall(percent=20.0, grace_period="1m"))
    reading = measured({MEMORY: "5Gi"}, now=START, memory_stall=stalled(percent))
    found = step(NO_STATE, reading, limits)
    assert [(each.available, each.limit, each.due) for each in found.met] == [(round(percent * 100), 2000, False)] * met
    assert found.conditions == ({"MemoryPressure"} if met else set())


def test_memory_stall_that_the_kubelet_does_not_report_is_unknown() -> None:
    limits = thresholds(memory_stall=MemoryStall(percent=20.0))
    assert step(NO_STATE, measured({MEMORY: "1Mi"}, now=START), limits).state is NO_STATE


def test_memory_stall_is_unknown_without_the_time_of_the_memory() -> None:
    """Stale signals are left out of measurements. PSI has no time of its own."""
    limits = thresholds(memory_stall=MemoryStall(percent=20.0))
    assert step(NO_STATE, measured({NODEFS: "1Gi"}, now=START, memory_stall=stalled(90.0)), limits).state is NO_STATE


# Properties.

VALUES = st.one_of(
    st.none(), st.just({}), st.sampled_from(["500Mi", "1500Mi", "2200Mi", "5Gi"]).map(lambda x: {MEMORY: x})
)
LIMITS = thresholds(
    eviction_hard={MEMORY: "1Gi"},
    eviction_soft={MEMORY: "2Gi"},
    eviction_soft_grace_period={MEMORY: "25s"},
    eviction_minimum_reclaim={MEMORY: "300Mi"},
)
READINGS = st.lists(st.tuples(st.floats(min_value=0.001, max_value=400.0), VALUES), max_size=40)


@given(READINGS)
def test_restart_at_any_time_changes_nothing(readings: list[tuple[float, dict[str, str] | None]]) -> None:
    """A state that is encoded and decoded after each step is the same as one that is not."""
    now = START
    kept, restored = NO_STATE, NO_STATE
    for seconds, values in readings:
        now += seconds
        reading = None if values is None else measured(values, now=now)
        one, other = step(kept, reading, LIMITS, now=now), step(restored, reading, LIMITS, now=now)
        assert one == other
        kept, restored = one.state, decode_state(encode_state(other.state))


@given(READINGS)
def test_conditions_never_flap_faster_than_the_transition_period(
    readings: list[tuple[float, dict[str, str] | None]],
) -> None:
    now, state = START, NO_STATE
    shown_since: float | None = None
    last_met = START
    for seconds, values in readings:
        now += seconds
        found = step(state, None if values is None else measured(values, now=now), LIMITS, now=now)
        state = found.state
        if found.met:
            last_met = now
        if found.conditions:
            shown_since = now if shown_since is None else shown_since
        elif shown_since is not None:
            assert now - last_met >= TRANSITION - 0.002
            shown_since = None
        assert not found.met or found.conditions
        assert found.due is None or found.due in found.met


@given(READINGS)
def test_soft_threshold_is_due_only_after_its_grace_period(
    readings: list[tuple[float, dict[str, str] | None]],
) -> None:
    """All readings with a value within the grace period before are below the threshold, or the reclaim is missing."""
    now, state = START, NO_STATE
    seen: list[tuple[float, int]] = []
    for seconds, values in readings:
        now += seconds
        if values:
            seen.append((now, amount(values[MEMORY])))
        found = step(state, None if values is None else measured(values, now=now), LIMITS, now=now)
        state = found.state
        for met in found.met:
            if met.due and not met.threshold.hard:
                low = [value < amount("2348Mi") for at, value in seen if now - 25.0 <= at]
                assert all(low)
                assert now - met.since >= 25.0
