"""What the status says of each group of nodes."""

from __future__ import annotations

from collections import Counter as Tally
from typing import Final

from trimtab.api.cluster_autoscaler_status import LastError, NodeGroupStatus, OpenScaleUp
from trimtab.api.scalars import to_time
from trimtab.autoscaling.groups import MachineState, NodeGroup
from trimtab.autoscaling.report.bounds import short
from trimtab.autoscaling.report.pass_report import PassReport, Readiness

MESSAGE: Final = 200
"""Bytes of a message about a group: there may be 500 of them."""

MANAGED_BYTES: Final = 800
"""What ``metadata.managedFields`` takes for a group beside its own bytes: its id once more and each field's name."""


def group_statuses(report: PassReport) -> list[NodeGroupStatus]:
    """One a group, in the order of their ids."""
    counts: Tally[tuple[str, Readiness]] = Tally()
    for node, id_ in report.groups.of_node.items():
        readiness = report.readiness.get(node)
        if readiness is not None:
            counts[id_, readiness] += 1
    unneeded = Tally(report.groups.of_node.get(node, "") for node in report.memory.unneeded)
    return [_status(report, group, counts, unneeded[group.id]) for group in report.groups.all]


def telling(status: NodeGroupStatus) -> int:
    """How much there is to say of a group: what a new process needs first, then what an admin asks about."""
    if status.scale_up is not None or status.backoff_until is not None or status.failures:
        return 3
    if status.unhealthy or status.paused or status.failed or status.last_error is not None:
        return 2
    return int(bool(status.unready or status.upcoming or status.deleting or status.unneeded))


def _status(
    report: PassReport, group: NodeGroup, counts: Tally[tuple[str, Readiness]], unneeded: int
) -> NodeGroupStatus:
    memory = report.memory.groups.get(group.id)
    starting = counts[group.id, Readiness.STARTING]
    until = None if memory is None else memory.backoff_until
    return NodeGroupStatus(
        id=group.id,
        min_size=group.minimum,
        max_size=group.maximum,
        target=group.target,
        ready=counts[group.id, Readiness.READY],
        unready=counts[group.id, Readiness.UNREADY],
        upcoming=group.upcoming + starting,
        failed=len(group.in_state(MachineState.FAILED)),
        deleting=max(len(group.in_state(MachineState.DELETING)), counts[group.id, Readiness.GOING]),
        unneeded=unneeded,
        autoscaler=group.autoscaler,
        paused=short(group.paused, MESSAGE),
        backoff_until=None if until is None else to_time(until),
        failures=0 if memory is None else memory.failures,
        last_error=_last_error(report, group),
        unhealthy=short(report.health.groups.get(group.id, ""), MESSAGE),
        scale_up=_scale_up(report, group.id),
    )


def _last_error(report: PassReport, group: NodeGroup) -> LastError | None:
    """What is remembered, else what a failed machine says: it takes up a place for as long as it is there."""
    memory = report.memory.groups.get(group.id)
    error = None if memory is None else memory.last_error
    if error is not None:
        return LastError(time=to_time(error.time), reason=_reason(error.reason), message=short(error.message, MESSAGE))
    for machine in group.in_state(MachineState.FAILED):
        since = report.started if machine.since is None else machine.since
        message = short(f"Machine {machine.name}: {machine.message}".rstrip(": "), MESSAGE)
        return LastError(time=to_time(since), reason=_reason(machine.reason), message=message)
    return None


def _reason(code: str) -> str:
    return short(code, 128) or MachineState.FAILED.value


def _scale_up(report: PassReport, id_: str) -> OpenScaleUp | None:
    found = report.memory.open.get(id_)
    if found is None:
        return None
    return OpenScaleUp(from_=found.from_, to=found.to, since=to_time(found.since), deadline=to_time(found.deadline))
