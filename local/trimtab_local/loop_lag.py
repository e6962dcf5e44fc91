"""Reads the lag of an operator's event loop from its metrics.

before = loop_lags(process)
...
lags = loop_lags(process) - before
lags.quantile(0.99)     # seconds
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from trimtab_local.install import OperatorProcess

BUCKET: Final = re.compile(r'^trimtab_event_loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)$', re.MULTILINE)


class Lags:
    """A histogram of lags.

    Args:
        counts: the number of lags up to a number of seconds, by these seconds. The last number is infinity.
    """

    def __init__(self, counts: Mapping[float, float]) -> None:
        self._counts = dict(counts)

    def __sub__(self, other: Lags) -> Lags:
        """Return the lags that were measured since the other histogram."""
        return Lags({bound: count - other._counts.get(bound, 0.0) for bound, count in self._counts.items()})

    @property
    def count(self) -> int:
        """Return the number of lags."""
        return int(max(self._counts.values(), default=0))

    def quantile(self, share: float) -> float:
        """Return the seconds that a share of the lags does not exceed, interpolated within a bucket.

        For 1.0 the result is the upper limit of the longest lag's bucket.
        """
        wanted = share * self.count
        for (low, below), (bound, up_to) in pairwise([(0.0, 0.0), *sorted(self._counts.items())]):
            if up_to >= wanted and up_to > below:
                return low if bound == float("inf") else low + (bound - low) * (wanted - below) / (up_to - below)
        return 0.0


def loop_lags(process: OperatorProcess) -> Lags:
    """Return the lags that an operator has measured since its start; none if it does not answer."""
    return Lags({float(bound): float(count) for bound, count in BUCKET.findall(process.get("/metrics") or "")})
