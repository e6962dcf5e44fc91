"""Which of a policy's strategies evict for the sake of it, so that doing so again and again is no loop."""

from __future__ import annotations

from typing import Any, Final

from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.strategies import PodLifeTimeParams

NONE: Final[frozenset[str]] = frozenset()


def routine(spec: DeschedulerPolicySpec) -> frozenset[str]:
    """The names of strategies whose next pod is as it should be, wherever it runs, until its time has come again.

    That is PodLifeTime by age alone: each pod grows old. In a state that is to be short the next pod may be at once
    again, as after too many restarts: then the eviction has not helped.
    """
    enabled: dict[str, Any] = dict(spec.strategies.enabled())
    found = enabled.get("PodLifeTime")
    if found is None:
        return NONE
    params: PodLifeTimeParams = found.params
    by_state = params.states or params.conditions or params.exit_codes
    return NONE if by_state else frozenset({"PodLifeTime"})
