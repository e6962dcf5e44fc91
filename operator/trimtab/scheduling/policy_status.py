"""Builds and writes the status of SchedulerPolicies: conditions, the queue, totals and reasons of unschedulable pods.

status = build_status(PolicyObservation(...), previous=writer.status, base=counts_of_earlier_processes)
writer.put(status)
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.bounds import named, plural
from trimtab.api.conditions import CONFLICTING, DEGRADED, PROGRESSING, READY, ConditionUpdate
from trimtab.api.scheduler_policy import (
    QueueCounts,
    SchedulerPolicyStatus,
    SchedulingCounts,
    UnschedulableReason,
)
from trimtab.controller.reporter import condition, next_status
from trimtab.controller.status_writer import StatusWriter, urgent_conditions, write_when
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock
from trimtab.kube.resources import SCHEDULER_POLICIES

WRITE_PERIOD: Final = 5.0
"""Minimum seconds between two writes of the status if only numbers differ. Every cycle changes some of them."""


class PolicyObservation(Struct, frozen=True, kw_only=True):
    """The state of one SchedulerPolicy at one time.

    Attributes:
        now: the time of the observation in seconds since the epoch.
        generation: generation of the policy.
        scheduler: its scheduler name.
        owner: the older policy with the same scheduler name, which schedules these pods; ``""`` if this policy does.
        others: the newer policies with the same scheduler name, which are not used.
        stale: the reason why the caches are too old to act on; ``""`` if they are up to date, or stale only for as long
            as a reconnect takes.
        queue: the pending pods of the scheduler name.
        counts: the totals of this process for the scheduler name.
        unschedulable: the most frequent reasons why pods are unschedulable.
    """

    now: float
    generation: int
    scheduler: str
    owner: str = ""
    others: tuple[str, ...] = ()
    stale: str = ""
    queue: QueueCounts = QueueCounts()
    counts: SchedulingCounts = SchedulingCounts()
    unschedulable: tuple[UnschedulableReason, ...] = ()


def build_status(
    observed: PolicyObservation, previous: SchedulerPolicyStatus, *, base: SchedulingCounts
) -> SchedulerPolicyStatus:
    """Build the new status of a valid SchedulerPolicy.

    Args:
        observed: the observed state.
        previous: the previous status. Unchanged conditions keep their transition time.
        base: the counts of earlier processes, read from the status when this process started.
    """
    wanted = (_ready(observed), _progressing(observed), _degraded(observed), _conflicting(observed))
    return next_status(
        previous,
        wanted,
        generation=observed.generation,
        now=observed.now,
        queue=observed.queue,
        counts=SchedulingCounts(
            scheduled=base.scheduled + observed.counts.scheduled,
            rejected=base.rejected + observed.counts.rejected,
            preempted=base.preempted + observed.counts.preempted,
            binding_failures=base.binding_failures + observed.counts.binding_failures,
        ),
        unschedulable=observed.unschedulable,
    )


def _ready(observed: PolicyObservation) -> ConditionUpdate:
    if observed.owner:
        return condition(READY, False, reasons.SCHEDULER_NAME_CONFLICT, _not_used(observed))
    if observed.stale:
        return condition(READY, False, reasons.CLUSTER_UNREACHABLE, f"paused: {observed.stale}")
    message = f"pods with schedulerName {observed.scheduler} are scheduled"
    return condition(READY, True, reasons.SCHEDULING, message)


def _progressing(observed: PolicyObservation) -> ConditionUpdate:
    queue = observed.queue
    if observed.owner:
        return condition(PROGRESSING, False, reasons.IDLE, f"SchedulerPolicy {observed.owner} schedules these pods")
    if queue.active or queue.backoff:
        message = f"{plural(queue.active, 'pod')} to schedule, {queue.backoff} backing off"
        return condition(PROGRESSING, True, reasons.SCHEDULING, message)
    message = f"{plural(queue.unschedulable, 'unschedulable pod')}" if queue.unschedulable else "no pod is pending"
    return condition(PROGRESSING, False, reasons.IDLE, message)


def _degraded(observed: PolicyObservation) -> ConditionUpdate:
    if observed.owner:
        return condition(DEGRADED, True, reasons.SCHEDULER_NAME_CONFLICT, _not_used(observed))
    if observed.stale:
        return condition(DEGRADED, True, reasons.CLUSTER_UNREACHABLE, observed.stale)
    return condition(DEGRADED, False, reasons.ALL_WELL, "pods are scheduled")


def _conflicting(observed: PolicyObservation) -> ConditionUpdate:
    if observed.owner:
        return condition(CONFLICTING, True, reasons.SCHEDULER_NAME_CONFLICT, _not_used(observed))
    if observed.others:
        message = (
            f"schedulerName {observed.scheduler} is also that of SchedulerPolicy {named(observed.others)}; "
            f"the oldest policy is used"
        )
        return condition(CONFLICTING, True, reasons.SCHEDULER_NAME_CONFLICT, message)
    message = f"no other SchedulerPolicy has schedulerName {observed.scheduler}"
    return condition(CONFLICTING, False, reasons.NO_CONFLICT, message)


def _not_used(observed: PolicyObservation) -> str:
    return f"SchedulerPolicy {observed.owner} is older and has the same schedulerName, {observed.scheduler}"


worth_writing: Final = write_when(urgent_conditions, period=WRITE_PERIOD)


def status_writer(api: Api, clock: Clock, name: str) -> StatusWriter[SchedulerPolicyStatus]:
    """Create the status writer of a SchedulerPolicy."""
    return StatusWriter(
        api,
        clock,
        resource=SCHEDULER_POLICIES,
        name=name,
        empty=SchedulerPolicyStatus(),
        should_write=worth_writing,
    )
