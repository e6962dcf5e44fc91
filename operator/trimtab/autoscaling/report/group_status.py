"""What the status says of each group of nodes."""

from __future__ import annotations

from collections import Counter as Tally
from typing import Final

from msgspec.structs import replace

from trimtab.api.bounds import fitting, short
from trimtab.api.cluster_autoscaler_status import MAX_GROUPS, ClusterAutoscalerStatus, NodeGroupStatus
from trimtab.autoscaling.groups import MachineState, NodeGroup
from trimtab.autoscaling.memory.readiness import Readiness
from trimtab.autoscaling.memory.state import State, remember
from trimtab.autoscaling.report.pass_report import PassReport

MESSAGE: Final = 200
"""Bytes of a message about a group: there may be 500 of them."""


def group_statuses(report: PassReport, *, budget: int) -> tuple[tuple[NodeGroupStatus, ...], int]:
    """One a group, in the order of their ids, and how many there was no room for.

    Args:
        report: the pass. Groups that are not there at present, and of which something is remembered, count as well.
        budget: bytes that all of them may take; the first to be cut are those of which there is least to say.
    """
    counts: Tally[tuple[str, Readiness]] = Tally()
    for node, id_ in report.groups.of_node.items():
        readiness = report.readiness.get(node)
        if readiness is not None:
            counts[id_, readiness] += 1
    unneeded = Tally(report.groups.of_node.get(node, "") for node in report.memory.unneeded)
    made = [_seen(report, group, counts, unneeded[group.id]) for group in report.groups.all]
    absent = {*report.memory.groups, *report.memory.scale_ups} - report.groups.by_id.keys()
    made += [NodeGroupStatus(id=id_) for id_ in absent]
    ranked = sorted(made, key=lambda each: (-_telling(report, each), each.id))
    whole = _remembered(report.memory, ranked[:MAX_GROUPS])
    kept = fitting(whole, limit=MAX_GROUPS, budget=budget)
    return tuple(sorted(kept, key=lambda each: each.id)), len(made) - len(kept)


def _telling(report: PassReport, status: NodeGroupStatus) -> int:
    """How much there is to say of a group: what a new process needs first, then what an admin asks about."""
    record = report.memory.record(status.id)
    if status.id in report.memory.scale_ups or record.failures or record.given_up or record.troubled:
        return 3
    if status.unhealthy or status.paused or status.failed or record.last_error is not None:
        return 2
    return int(bool(status.unready or status.upcoming or status.deleting or status.unneeded))


def _seen(report: PassReport, group: NodeGroup, counts: Tally[tuple[str, Readiness]], unneeded: int) -> NodeGroupStatus:
    """What the picture says of a group."""
    return NodeGroupStatus(
        id=group.id,
        min_size=group.minimum,
        max_size=group.maximum,
        target=group.target,
        ready=counts[group.id, Readiness.READY],
        unready=counts[group.id, Readiness.UNREADY],
        upcoming=group.upcoming + counts[group.id, Readiness.STARTING],
        failed=len(group.in_state(MachineState.FAILED)),
        deleting=max(len(group.in_state(MachineState.DELETING)), counts[group.id, Readiness.GOING]),
        unneeded=unneeded,
        autoscaler=group.autoscaler,
        paused=short(group.paused, MESSAGE),
        unhealthy=short(report.health.groups.get(group.id, ""), MESSAGE),
    )


def _remembered(memory: State, statuses: list[NodeGroupStatus]) -> list[NodeGroupStatus]:
    """The same with what is remembered of each, in the same order."""
    ids = {each.id for each in statuses}
    known = State(
        groups={id_: record for id_, record in memory.groups.items() if id_ in ids},
        scale_ups={id_: increases for id_, increases in memory.scale_ups.items() if id_ in ids},
        targets={id_: target for id_, target in memory.targets.items() if id_ in ids},
    )
    written = remember(known, ClusterAutoscalerStatus(node_groups=tuple(statuses))).node_groups
    by_id = {each.id: _short_error(each) for each in written}
    return [by_id[each.id] for each in statuses]


def _short_error(status: NodeGroupStatus) -> NodeGroupStatus:
    error = status.last_error
    if error is None:
        return status
    reason = short(error.reason, 128) or MachineState.FAILED.value
    return replace(status, last_error=replace(error, reason=reason, message=short(error.message, MESSAGE)))
