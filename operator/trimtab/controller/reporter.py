"""Helpers for the reports of controllers: conditions with bounded messages, fields of log lines, and gauges.

    status = next_status(status, not_ready(reasons.INVALID_POLICY, str(error)), generation=3, now=now)
    with report_safely("events"):
        events.report(outcome)

Each controller decides on its own what its status contains and when it is written. A controller with one object has a
:class:`~trimtab.controller.status_reporter.StatusReporter`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Gauge

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.conditions import DEGRADED, PROGRESSING, READY, ConditionStatus, ConditionUpdate, set_conditions
from trimtab.api.descheduler_status import DeschedulerStatus
from trimtab.api.node_pressure_policy import NodePressurePolicyStatus
from trimtab.api.placement_admission import PlacementAdmissionStatus
from trimtab.api.scheduler_policy import SchedulerPolicyStatus
from trimtab.api.taint_manager import TaintManagerStatus
from trimtab.kube.events.event import truncate

log = logging.getLogger(__name__)

R = TypeVar(
    "R",
    ClusterAutoscalerStatus,
    DeschedulerStatus,
    NodePressurePolicyStatus,
    PlacementAdmissionStatus,
    SchedulerPolicyStatus,
    TaintManagerStatus,
)

OTHER_REASON: Final = "Other"
"""The metric label for reasons that trimtab does not define, such as those of machine APIs. It limits the cardinality.
"""

_REASONS: Final = frozenset(value for name, value in vars(reasons).items() if name.isupper() and isinstance(value, str))

MAX_MESSAGE_BYTES: Final = 1500
"""Maximum length of a condition's message in bytes."""


def condition(type_: str, status: ConditionStatus | bool, reason: str, message: str) -> ConditionUpdate:
    """Create a condition whose message is truncated to :data:`MAX_MESSAGE_BYTES` bytes."""
    return ConditionUpdate(type_, status, reason, truncate(message, MAX_MESSAGE_BYTES))


def not_ready(reason: str, message: str) -> tuple[ConditionUpdate, ConditionUpdate]:
    """Return Ready=False and Degraded=True, because nothing can be done for the object.

    For example, its spec is invalid or an iteration failed (:mod:`trimtab.api.conditions`).
    """
    return condition(READY, False, reason, message), condition(DEGRADED, True, reason, message)


def invalid_conditions(reason: str, problem: str, idle: str) -> tuple[ConditionUpdate, ...]:
    """Return the conditions of an object whose spec is invalid.

    Args:
        reason: reason of Ready and Degraded.
        problem: what is invalid.
        idle: what the controller does not do because of that, as the message of Progressing.
    """
    return *not_ready(reason, problem), condition(PROGRESSING, False, reasons.IDLE, idle)


def describe_error(error: Exception) -> str:
    """Return the message for an exception that ended an iteration."""
    return f"{type(error).__name__}: {error}"


def next_status(previous: R, conditions: Iterable[ConditionUpdate], *, generation: int, now: float, **fields: Any) -> R:
    """Return the status after an iteration, or with the reason why no iteration can run.

    Args:
        previous: the previous status. Unchanged conditions keep their transition time.
        conditions: the new conditions; other conditions are kept.
        generation: generation of the spec that was reconciled.
        now: the current time in seconds since the epoch.
        fields: the new values of the fields that the controller reports.
    """
    updated = set_conditions(previous.conditions, conditions, now=now, generation=generation)
    return replace(previous, observed_generation=generation, conditions=updated, **fields)


def pod_fields(key: str, uid: str, node: str) -> dict[str, str]:
    """Return the fields with which a log line refers to a pod, by its ``namespace/name``."""
    namespace, _, name = key.partition("/")
    return {"namespace": namespace, "pod": name, "uid": uid, "node": node}


@contextmanager
def report_safely(what: str) -> Iterator[None]:
    """Log the exceptions of a report, because a failed report must not stop the controller.

    It is also a decorator for functions that only report and return nothing.

    Args:
        what: the kind of report for the log, such as events or metrics.
    """
    try:
        yield
    except Exception:
        log.exception("Failed to report %s", what)


class LabeledGauge:
    """A gauge whose series are replaced together, so that the series of a removed group or zone disappear.

    Args:
        name: name of the metric.
        help_: the help text.
        labels: the names of the labels.
        registry: the Prometheus registry.
    """

    def __init__(self, name: str, help_: str, labels: tuple[str, ...], registry: CollectorRegistry) -> None:
        self.gauge = Gauge(name, help_, labels, registry=registry)
        self._shown: dict[tuple[str, ...], float] = {}

    def show(self, values: Mapping[tuple[str, ...], float]) -> None:
        """Export exactly these values and remove all others. The keys are tuples of label values."""
        for labels in self._shown.keys() - values.keys():
            self.gauge.remove(*labels)
            del self._shown[labels]
        self.set(values)

    def set(self, values: Mapping[tuple[str, ...], float]) -> None:
        """Export these values in addition to the other ones."""
        for labels, value in values.items():
            if self._shown.get(labels) != value:
                self.gauge.labels(*labels).set(value)
                self._shown[labels] = value


def reason_label(reason: str) -> str:
    """Return the metric label of a reason: the reason itself if trimtab defines it, else :data:`OTHER_REASON`."""
    return reason if reason in _REASONS else OTHER_REASON
