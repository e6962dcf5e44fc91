"""Decides which thresholds a node meets, for how long, and which pressure conditions it has.

The rules are those of the kubelet's eviction manager (``synchronize`` in ``pkg/kubelet/eviction``, v1.36), with four
differences:

- The state lasts across restarts (:mod:`.state`).
- A signal without a current value changes nothing: its thresholds stay as they were, and none of them is due. The
  kubelet treats them as no longer met.
- A transition period of 0 shows a condition while one of its thresholds is met. The kubelet never shows it.
- A soft threshold with a grace period of 0 is soft. The kubelet treats it as a hard one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api.node_pressure_policy import MEMORY_AVAILABLE, PRESSURE_CONDITIONS, PressureCondition
from trimtab.pressure.measurement import NodeMeasurement
from trimtab.pressure.state import NodeState, stored_time
from trimtab.pressure.thresholds import CONDITION_OF, MEMORY_STALL, Threshold

STALL_UNITS: Final = 10_000
"""Values of :data:`~trimtab.pressure.thresholds.MEMORY_STALL` are integers: parts per 10,000 of the time."""

CLOCK_STEP: Final = 300.0
"""A measurement that is older than the last one by more seconds shows that the node's clock was set back."""


class MetThreshold(Struct, frozen=True):
    """A threshold that a node meets.

    Attributes:
        threshold: the threshold.
        available: the value of its signal in bytes, inodes or PIDs; for a memory stall, the share of the time in
            :data:`STALL_UNITS`.
        limit: the value of the threshold in the same unit.
        since: when it was first met, in seconds since the epoch.
        due: whether it has been met for its grace period, with stats that are newer than at the last eviction.
        past_grace: whether it has been met for its grace period.
    """

    threshold: Threshold
    available: int
    limit: int
    since: float
    due: bool
    past_grace: bool = False


class Step(Struct, frozen=True):
    """The result of :func:`advance`.

    Attributes:
        state: the new state; the same object if nothing changed.
        met: the thresholds that are met, in the order of :func:`~trimtab.pressure.thresholds.thresholds_of`. A
            threshold whose signal has no current value is absent.
        conditions: the pressure conditions of the node.
        due: the first threshold because of which a pod must be evicted; ``None`` if there is none.
    """

    state: NodeState
    met: tuple[MetThreshold, ...]
    conditions: frozenset[PressureCondition]
    due: MetThreshold | None


def advance(
    state: NodeState,
    measurement: NodeMeasurement | None,
    thresholds: Sequence[Threshold],
    *,
    transition: float,
    now: float,
) -> Step:
    """Apply one measurement to a node's state.

    Args:
        state: the node's state.
        measurement: the current measurement; ``None`` if there is none, which changes no threshold.
        thresholds: the policy's thresholds.
        transition: seconds for which no threshold of a condition may have been met before the condition is removed.
        now: the time in seconds since the epoch.
    """
    if measurement is None:
        return Step(state, (), _conditions(state), None)
    met: list[MetThreshold] = []
    first_met: dict[str, float] = {}
    past_grace: list[str] = []
    for threshold in thresholds:
        key = threshold.key
        since = state.first_met.get(key)
        value = value_of(threshold, measurement)
        if value is None:
            if since is not None:
                first_met[key] = since
                if key in state.past_grace:
                    past_grace.append(key)
            continue
        available, limit, resolved = value
        reached = available >= limit if threshold.signal == MEMORY_STALL else available < limit
        if not reached and not (key in state.past_grace and available < resolved):
            continue
        if since is None or since > now:
            since = stored_time(now)
        first_met[key] = since
        over = now - since >= threshold.grace
        if over:
            past_grace.append(key)
        due = over and is_newer(threshold.signal, state.measured_at, measurement)
        met.append(MetThreshold(threshold, available, limit, since, due, over))
    last_met = _last_met(state, first_met, transition, now)
    state = _with(state, first_met, tuple(past_grace), last_met)
    return Step(state, tuple(met), _conditions(state), next((each for each in met if each.due), None))


def value_of(threshold: Threshold, measurement: NodeMeasurement) -> tuple[int, int, int] | None:
    """Return the value of a threshold's signal, the threshold, and the value at which it is resolved.

    The result is ``None`` if the measurement does not contain the signal. A memory stall is resolved as soon as its
    threshold is no longer met, so the third value is 0.
    """
    if threshold.signal == MEMORY_STALL:
        stall = measurement.memory_stall
        if stall is None or MEMORY_AVAILABLE not in measurement.signals:  # the time of both is that of the signal
            return None
        percent: float = getattr(stall, threshold.window)
        return round(percent * STALL_UNITS / 100.0), threshold.value.of(STALL_UNITS), 0
    found = measurement.signals.get(threshold.signal)
    if found is None:
        return None
    limit = threshold.value.of(found.capacity)
    return found.available, limit, limit + threshold.minimum_reclaim.of(found.capacity)


def measured_at(signal: str, measurement: NodeMeasurement) -> float | None:
    """Return when the kubelet measured a signal, by the node's clock; ``None`` if it does not say."""
    found = measurement.signals.get(MEMORY_AVAILABLE if signal == MEMORY_STALL else signal)
    return None if found is None else found.measured_at


def is_newer(signal: str, before: Mapping[str, float], measurement: NodeMeasurement) -> bool:
    """Return whether the signal was measured after the given time of the signal (``thresholdsUpdatedStats``)."""
    at, last = measured_at(signal, measurement), before.get(signal)
    return at is None or last is None or at > last or at < last - CLOCK_STEP


def _last_met(
    state: NodeState, first_met: Mapping[str, float], transition: float, now: float
) -> dict[PressureCondition, float]:
    """Return when a threshold of each condition was last met, without those longer ago than the transition period."""
    found: dict[PressureCondition, float] = {}
    met_now, met_before = _conditions_of(first_met), _conditions_of(state.first_met)
    for condition in PRESSURE_CONDITIONS:
        at = state.last_met.get(condition)
        if condition in met_now:
            found[condition] = stored_time(now) if at is None or at > now or condition not in met_before else at
            continue
        if condition in met_before or (at is not None and at > now):
            at = stored_time(now)
        if at is not None and now - at < transition:
            found[condition] = at
    return found


def _with(
    state: NodeState,
    first_met: Mapping[str, float],
    past_grace: tuple[str, ...],
    last_met: Mapping[PressureCondition, float],
) -> NodeState:
    past_grace = tuple(sorted(past_grace))
    if state.first_met == first_met and state.past_grace == past_grace and state.last_met == last_met:
        return state
    return replace(state, first_met=first_met, past_grace=past_grace, last_met=last_met)


def _conditions(state: NodeState) -> frozenset[PressureCondition]:
    return frozenset(condition for condition in PRESSURE_CONDITIONS if condition in state.last_met)


def _conditions_of(keys: Iterable[str]) -> frozenset[PressureCondition]:
    return frozenset(CONDITION_OF[key.partition("/")[2]] for key in keys)
