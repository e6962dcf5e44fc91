"""Exponential backoff with jitter."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from msgspec import Struct


class Backoff(Struct, frozen=True, kw_only=True):
    """Exponential backoff. Random jitter prevents many clients of one server from retrying at the same time.

    Attributes:
        initial: the delay before the first retry in seconds.
        factor: the factor by which the delay grows with each retry.
        maximum: the maximum delay in seconds, before jitter is added.
        jitter: the maximum random addition, as a fraction of the delay.
        attempts: the maximum number of attempts, including the first one, or 0 for no limit.
    """

    initial: float = 0.2
    factor: float = 2.0
    maximum: float = 10.0
    jitter: float = 0.5
    attempts: int = 0

    def delay(self, retry: int, *, random: Callable[[], float] = random.random) -> float:
        """Return the delay in seconds before a retry.

        Args:
            retry: the number of the retry, counted from 0.
            random: returns a random number from 0 to 1.
        """
        exponent = min(retry, 64)  # a larger one may overflow a float, and `maximum` is reached long before
        wait: float = min(self.maximum, self.initial * self.factor**exponent)
        return wait * (1.0 + self.jitter * random())

    def exhausted(self, retry: int) -> bool:
        """Return whether all attempts have been made, so that this retry (counted from 0) must not be made."""
        return bool(self.attempts) and retry + 1 >= self.attempts


READS: Final = Backoff(initial=0.2, maximum=2.0, attempts=5)
"""Backoff for GET requests. It bridges the restart of one API server behind a load balancer, but not an outage."""
