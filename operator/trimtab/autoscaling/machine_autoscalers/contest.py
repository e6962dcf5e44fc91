"""When annotations are put back: at once, but not for ever against somebody who keeps changing them."""

from __future__ import annotations

from collections import deque
from typing import Final

from trimtab.kube.clock import Clock

AT_MOST: Final = 5
"""Times within :data:`WITHIN` that one target's annotations are put back."""

WITHIN: Final = 60.0
"""Seconds."""


class Contest:
    """Counts how often annotations were put back.

    Another controller that is sure of other values would answer each of our writes with one of its own. The autoscaler
    itself goes by the MachineAutoscaler, whatever the annotations say, so nothing is lost by waiting.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: dict[str, deque[float]] = {}

    def pause(self, key: str) -> float:
        """Seconds until the target of a MachineAutoscaler may be put right again; 0 for now."""
        times = self._times.get(key)
        if times is None or len(times) < AT_MOST:
            return 0.0
        return max(0.0, times[0] + WITHIN - self._clock.monotonic())

    def count(self, key: str) -> None:
        """Note that it was put right."""
        self._times.setdefault(key, deque(maxlen=AT_MOST)).append(self._clock.monotonic())

    def forget(self, key: str) -> None:
        """Forget one that is gone."""
        self._times.pop(key, None)
