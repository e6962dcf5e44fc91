"""What a TaintManager must satisfy beyond its schema: the CEL rules in Python."""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.api.check import FieldError, attempt
from trimtab.api.scalars import parse_duration
from trimtab.api.taint_manager import (
    AT_LEAST_A_SECOND,
    AT_MOST_A_WEEK,
    EVICT,
    GRACE_ABOVE_PERIOD,
    LONGEST,
    NAME,
    ONE_FOR_ALL,
    WAIT_WITH_EVICT,
    KeyPolicy,
    NodeLifecycle,
    TaintManager,
)

Errors = Iterator[FieldError]


def check_taint_manager(manager: TaintManager) -> tuple[FieldError, ...]:
    """Everything about a TaintManager that does not make sense."""
    return tuple(_manager(manager))


def _manager(manager: TaintManager) -> Errors:
    if manager.name != NAME:
        yield FieldError("metadata.name", f"{ONE_FOR_ALL}; not {manager.name or 'empty'}")
    seen: set[str] = set()
    for index, policy in enumerate(manager.spec.taints):
        place = f"spec.taints[{index}]"
        if policy.key in seen:
            yield FieldError(f"{place}.key", f"must not be given twice: {policy.key}")
        seen.add(policy.key)
        yield from _policy(place, policy)
    yield from _lifecycle("spec.nodeLifecycle", manager.spec.node_lifecycle)


def _policy(place: str, policy: KeyPolicy) -> Errors:
    if policy.maximum_wait is None:
        return
    if policy.policy != EVICT:
        yield FieldError(f"{place}.maximumWait", WAIT_WITH_EVICT)
    yield from attempt(f"{place}.maximumWait", _at_most_a_week, policy.maximum_wait)


def _lifecycle(place: str, lifecycle: NodeLifecycle) -> Errors:
    wrong = [
        error
        for name, text in (
            ("nodeMonitorPeriod", lifecycle.node_monitor_period),
            ("nodeMonitorGracePeriod", lifecycle.node_monitor_grace_period),
            ("nodeStartupGracePeriod", lifecycle.node_startup_grace_period),
        )
        for error in attempt(f"{place}.{name}", _at_least_a_second, text)
    ]
    yield from wrong
    if not wrong and lifecycle.monitor_grace_seconds <= lifecycle.monitor_period_seconds:
        message = (
            f"{GRACE_ABOVE_PERIOD}: {lifecycle.node_monitor_grace_period} is not longer than "
            f"{lifecycle.node_monitor_period}"
        )
        yield FieldError(f"{place}.nodeMonitorGracePeriod", message)


def _at_least_a_second(text: str) -> None:
    if not 1 <= parse_duration(text) <= LONGEST:
        raise ValueError(f"{AT_LEAST_A_SECOND.message}; not {text}")


def _at_most_a_week(text: str) -> None:
    if parse_duration(text) > LONGEST:
        raise ValueError(f"{AT_MOST_A_WEEK.message}; not {text}")
