"""What became of a planned eviction."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from trimtab.api.plan import Evict

EVICTED: Final = "Evicted"
"""The API server took the eviction."""

STARTED: Final = "Started"
"""It was begun and goes on by itself, but had not ended when the cycle did: a rollout, or what somebody took over."""

REFUSED: Final = "Refused"
"""A budget, or the check right before the eviction, said no."""

GONE: Final = "Gone"
"""There was nothing left to evict: the pod had gone, or another one had its name. Counts as nothing."""

SKIPPED: Final = "Skipped"
"""It was not tried: its turn did not come, or the plan no longer held for it."""

FAILED: Final = "Failed"
"""It was tried and did not succeed, for another cause than a budget."""


class Outcome(Struct, frozen=True):
    """How one action of a plan ended.

    Attributes:
        action: the planned eviction.
        result: one of this module's constants.
        reason: a code of :mod:`trimtab.api.reasons`: why it ended so.
        message: the same in words: the API server's, or ours with names and numbers.
        at: seconds since the epoch.
    """

    action: Evict
    result: str
    reason: str
    message: str
    at: float
