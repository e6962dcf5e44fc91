"""Estimates when a signal of a node reaches a threshold, from its recent values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations
from statistics import median
from typing import Final

from msgspec import Struct

from trimtab.pressure.measurement import NodeMeasurement
from trimtab.pressure.thresholds import Threshold

MIN_VALUES: Final = 3
"""The number of values from which a trend is computed. Two values cannot show that a change lasts."""

MAX_VALUES: Final = 6
"""The number of most recent values that are used: one minute at the default interval. More would hide a new trend."""


class Trend(Struct, frozen=True):
    """The trend of a signal.

    Attributes:
        per_second: the change of the signal per second, in its unit; negative if less and less is available.
        seconds_to: seconds until the threshold is met if the trend continues; 0 if it is met; ``None`` if the signal
            does not approach the threshold.
    """

    per_second: float
    seconds_to: float | None


def trend_of(values: Sequence[tuple[float, int]], threshold: int) -> Trend | None:
    """Return the trend of a signal towards a threshold.

    The slope is the median of the slopes between any two values (the Theil-Sen estimator), so that a single outlier
    does not change it.

    Args:
        values: times in seconds and values, in any order. Of several values with the same time, the last one counts.
        threshold: the value below which the threshold is met.

    Returns:
        the trend; ``None`` if there are fewer than :data:`MIN_VALUES` values with different times.
    """
    distinct = sorted(dict(values).items())[-MAX_VALUES:]
    if len(distinct) < MIN_VALUES:
        return None
    slope = median((value2 - value1) / (at2 - at1) for (at1, value1), (at2, value2) in combinations(distinct, 2))
    distance = distinct[-1][1] - threshold
    if distance < 0:
        return Trend(slope, 0.0)
    return Trend(slope, distance / -slope if slope < 0.0 else None)


def rough_seconds_to(thresholds: Iterable[Threshold], first: NodeMeasurement, last: NodeMeasurement) -> float:
    """Return roughly how many seconds it takes until a node meets another threshold; infinite if none is approached.

    Two measurements are much cheaper to compare than :func:`trend_of` is to compute, so that of thousands of nodes the
    few with a trend can be found.
    """
    soonest, elapsed = math.inf, last.read_at - first.read_at
    for threshold in thresholds:
        now, before = last.signals.get(threshold.signal), first.signals.get(threshold.signal)
        if now is None or before is None or now.available >= before.available or elapsed <= 0:
            continue
        distance = now.available - threshold.value.of(now.capacity)
        if distance >= 0:
            soonest = min(soonest, distance * elapsed / (before.available - now.available))
    return soonest


def seconds_to_thresholds(
    thresholds: Iterable[Threshold], history: Sequence[NodeMeasurement], *, within: float
) -> dict[Threshold, float]:
    """Return the seconds until a node meets each threshold, if its trend continues, where these are few.

    Args:
        thresholds: the thresholds of the node's policy.
        history: the node's measurements, oldest first.
        within: maximum number of seconds. Thresholds that are met already, or later, are omitted.
    """
    found = {}
    for threshold in thresholds:
        value = history[-1].signals.get(threshold.signal) if history else None
        if value is None:
            continue
        limit = threshold.value.of(value.capacity)
        trend = trend_of(values_of(threshold.signal, history), limit) if value.available >= limit else None
        if trend is not None and trend.seconds_to is not None and trend.seconds_to <= within:
            found[threshold] = trend.seconds_to
    return found


def values_of(signal: str, history: Iterable[NodeMeasurement]) -> list[tuple[float, int]]:
    """Return the times and values of a signal in a node's measurements, without repeated readings of one value.

    The times are the kubelet's if it reports them, because they are exact. Otherwise they are those of the readings.
    """
    found = [(each.read_at, each.signals[signal]) for each in history if signal in each.signals]
    if all(value.measured_at is not None for _, value in found):
        return [(value.measured_at or 0.0, value.available) for _, value in found]
    return [(read_at, value.available) for read_at, value in found]
