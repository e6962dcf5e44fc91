"""How long to wait before trying again."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from msgspec import Struct


class Backoff(Struct, frozen=True, kw_only=True):
    """Exponential growth with full upper jitter.

    The jitter keeps many clients that lost the same server from coming back in the same instant.

    Attributes:
        initial: seconds before the first retry.
        factor: how much longer each further wait is.
        maximum: seconds that no wait exceeds, before jitter.
        jitter: up to this share is added, at random.
        attempts: tries in all, the first included; 0 means without end.
    """

    initial: float = 0.2
    factor: float = 2.0
    maximum: float = 10.0
    jitter: float = 0.5
    attempts: int = 0

    def delay(self, retry: int, *, random: Callable[[], float] = random.random) -> float:
        """Seconds to wait before the ``retry``-th retry, counted from 0."""
        exponent = min(retry, 64)  # beyond this a float overflows, and `maximum` was reached long ago
        wait: float = min(self.maximum, self.initial * self.factor**exponent)
        return wait * (1.0 + self.jitter * random())

    def exhausted(self, retry: int) -> bool:
        """Whether the ``retry``-th retry, counted from 0, would be one too many."""
        return bool(self.attempts) and retry + 1 >= self.attempts


READS: Final = Backoff(initial=0.2, maximum=2.0, attempts=5)
"""For GETs: rides over a restarting API server behind a load balancer, not over an outage (that is the caller's)."""
