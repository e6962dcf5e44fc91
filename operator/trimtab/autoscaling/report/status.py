"""Builds the ClusterAutoscaler's status from an iteration report.

This is a pure function with a result of bounded size. The object, including its spec and managed fields, must fit into
etcd's limit of 1.5 MiB. Therefore each list has its own limit in bytes, in total less than 1 MB. The least important
entries are omitted and counted; the same report always omits the same entries.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.bounds import fitting, named, plural, without_numbers
from trimtab.api.cluster_autoscaler import NAME
from trimtab.api.cluster_autoscaler_status import (
    MAX_GROUPS,
    MAX_HELD,
    MAX_NODES,
    MAX_PENDING,
    MAX_REASONS,
    MAX_REMOVING,
    MAX_UNNEEDED,
    ClusterAutoscalerStatus,
    HeldNode,
    KeptNode,
    LastIteration,
    NodeGroupStatus,
    PendingPods,
    ReasonCount,
    RemovingNode,
    UnneededNode,
)
from trimtab.api.conditions import (
    CONFLICTING,
    DEGRADED,
    PROGRESSING,
    READY,
    Condition,
    ConditionUpdate,
    find_condition,
)
from trimtab.api.plan import Kept, RemoveNode, rfc3339
from trimtab.api.scalars import to_time
from trimtab.autoscaling.cluster_state.readiness import Readiness, count_by_readiness, count_upcoming
from trimtab.autoscaling.cluster_state.state import AutoscalerState, status_with_state
from trimtab.autoscaling.groups import MachineState, NodeGroup
from trimtab.autoscaling.report.iteration_report import (
    IterationReport,
    count_pending_pods,
    kept_daemon_sets,
    kept_nodes,
    kept_pods,
    planned_scale_ups,
    remains_unschedulable,
    summarize_pending_pods,
)
from trimtab.controller.reporter import condition, next_status
from trimtab.controller.status_writer import StatusWriter, write_when
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock
from trimtab.kube.events.event import truncate
from trimtab.kube.resources import CLUSTER_AUTOSCALERS

REMOVAL_FAILURE_WINDOW: Final = 600.0
"""Seconds for which a failed removal sets the condition Degraded, unless a later removal succeeds."""


def conditions_of(report: IterationReport, previous: ClusterAutoscalerStatus) -> tuple[ConditionUpdate, ...]:
    """Return the conditions after an iteration: Ready, Progressing, Degraded and Conflicting.

    Conflicting is included only if DeschedulerPolicies exist or existed.

    Args:
        report: the iteration's report.
        previous: the status before the iteration. It contains the reason of a removal that failed in an earlier
            iteration.
    """
    return _ready(report), _progressing(report), _degraded(report, previous), *_conflicting(report, previous)


def _ready(report: IterationReport) -> ConditionUpdate:
    if report.error:
        return condition(READY, False, reasons.ITERATION_FAILED, report.error)
    if report.health.cluster:
        return condition(READY, False, reasons.CLUSTER_UNHEALTHY, f"nothing is scaled: {report.health.cluster}")
    unscalable = _unscalable_groups(report)
    if unscalable:
        return condition(READY, False, reasons.NO_NODE_GROUP_SCALABLE, f"no node group can be scaled up: {unscalable}")
    parts = [*_scale_up_parts(report), *_scale_down_parts(report), *_remaining_parts(report)]
    totals = report.totals
    known = _number_of_groups(len(report.groups.by_id))
    summary = f"{plural(totals.nodes, 'node')} with {plural(totals.cores, 'core')}, {known}"
    return condition(READY, True, reasons.ITERATION_COMPLETED, f"{summary}: {'; '.join(parts) or 'nothing to do'}")


def _unscalable_groups(report: IterationReport) -> str:
    """Return why no node group can be scaled up; empty if one can be, or if there are none.

    If all groups are paused, which users do on purpose, the result is empty too.
    """
    details: list[str] = []
    failing = False
    for group in report.groups.all:
        until = report.state.record(group.id).backoff_until
        unhealthy = report.health.groups.get(group.id, "")
        if until is not None and until > report.finished:
            details.append(f"{group.key} is in backoff until {rfc3339(until)}")
            failing = True
        elif unhealthy:
            details.append(f"{group.key} is unhealthy: {unhealthy}")
            failing = True
        elif group.paused:
            details.append(f"{group.key} is paused: {group.paused}")
        else:
            return ""
    return named(details) if failing else ""


def _scale_up_parts(report: IterationReport) -> Iterator[str]:
    if report.mode == "Simulate":
        planned = list(planned_scale_ups(report.plan))
        if planned:
            nodes, pods = sum(each.to - each.from_ for each in planned), sum(len(each.pods) for each in planned)
            yield f"would scale up {_sizes([(each.machine_set, each.from_, each.to) for each in planned], nodes, pods)}"
        return
    done = [outcome for outcome in report.scale_up_outcomes if outcome.scaled.done]
    if done:
        nodes = sum(outcome.scaled.after - outcome.scaled.before for outcome in done)
        pods = sum(len(outcome.action.pods) for outcome in done)
        sizes = [(outcome.action.machine_set, outcome.scaled.before, outcome.scaled.after) for outcome in done]
        yield f"scaled up {_sizes(sizes, nodes, pods)}"
    failed = [outcome for outcome in report.scale_up_outcomes if not outcome.scaled.done]
    if failed:
        first = failed[0]
        yield (
            f"failed to scale up {_number_of_groups(len(failed))} "
            f"({first.action.machine_set}: {first.scaled.failure}, {first.scaled.message})"
        )


def _sizes(sizes: list[tuple[str, int, int]], nodes: int, pods: int) -> str:
    details = named([f"{key} {before}→{after}" for key, before, after in sizes])
    whom = f" for {plural(pods, 'pod')}" if pods else ""
    return f"by {plural(nodes, 'node')}{whom} ({details})"


def _scale_down_parts(report: IterationReport) -> Iterator[str]:
    if report.mode == "Simulate":
        planned = [action for action in report.plan.scaling or () if isinstance(action, RemoveNode)]
        if planned:
            yield f"would remove {plural(len(planned), 'node')} ({named([action.node for action in planned])})"
        return
    removed_names = [removed.node for removed in report.removal_outcomes if removed.done]
    if removed_names:
        yield f"removed {plural(len(removed_names), 'node')} ({named(sorted(removed_names))})"
    stayed = [removed for removed in report.removal_outcomes if removed.failed]
    if stayed:
        yield f"failed to remove {plural(len(stayed), 'node')} ({stayed[0].node}: {stayed[0].message})"
    if report.removals:
        yield f"removing {plural(len(report.removals), 'node')} ({named(sorted(report.removals))})"


def _remaining_parts(report: IterationReport) -> Iterator[str]:
    counts = Tally(kept.reason for kept in kept_pods(report.plan) if remains_unschedulable(kept))
    if counts:
        details = ", ".join(f"{number} {reason}" for reason, number in sorted(counts.items()))
        yield f"{plural(sum(counts.values()), 'pod')} would stay pending after a scale-up ({details})"
    uncounted = [
        f"{each.namespace}/{each.name}: {each.reason}"
        for each in kept_daemon_sets(report.plan)
        if each.reason != reasons.DAEMON_SETS_TAKE_ROOM
    ]
    if uncounted:
        yield f"{plural(len(uncounted), 'DaemonSet')} not expected on new nodes ({named(uncounted)})"
    unconfirmed = [
        f"{each.kind} {each.namespace}/{each.name}"
        for each in report.groups.problems
        if each.reason == reasons.NODE_GROUP_NOT_CONFIRMED
    ]
    if unconfirmed:
        yield f"not treated as node groups: {named(unconfirmed)} ({reasons.NODE_GROUP_NOT_CONFIRMED})"
    unneeded = len(report.state.unneeded)
    if unneeded:
        yield f"{plural(unneeded, 'node')} unneeded"


def _conflicting(report: IterationReport, previous: ClusterAutoscalerStatus) -> Iterator[ConditionUpdate]:
    wanted = report.conflicting
    if wanted is not None:
        yield condition(CONFLICTING, wanted.status is True, wanted.reason, wanted.message)
    elif find_condition(previous.conditions, CONFLICTING) is not None:
        yield condition(CONFLICTING, False, reasons.NO_CONFLICT, "there is no DeschedulerPolicy")


def _progressing(report: IterationReport) -> ConditionUpdate:
    open_, removals = report.state.open, report.removals
    if not open_ and not removals:
        simulating = "spec.mode is Simulate: nothing is changed" if report.mode == "Simulate" else ""
        return condition(PROGRESSING, False, reasons.IDLE, simulating or "no node is upcoming or being removed")
    parts = []
    if open_:
        details = []
        for id_, scale_up in sorted(open_.items()):
            group = report.groups.by_id.get(id_)
            name = id_ if group is None else group.key
            details.append(f"{name} {scale_up.from_}→{scale_up.to} until {rfc3339(scale_up.deadline)}")
        parts.append(f"waiting for nodes of {_number_of_groups(len(open_))}: {named(details)}")
    if removals:
        phases = [f"{node} ({each.phase})" for node, each in sorted(removals.items())]
        parts.append(f"removing {plural(len(removals), 'node')}: {named(phases)}")
    return condition(PROGRESSING, True, reasons.SCALING, "; ".join(parts))


def _degraded(report: IterationReport, previous: ClusterAutoscalerStatus) -> ConditionUpdate:
    """Return the condition Degraded for the most severe problem."""
    if report.error:
        return condition(DEGRADED, True, reasons.ITERATION_FAILED, report.error)
    if report.health.cluster:
        return condition(DEGRADED, True, reasons.CLUSTER_UNHEALTHY, report.health.cluster)
    ambiguous = [each.message for each in report.groups.problems if each.reason == reasons.SEVERAL_CLUSTERS]
    if ambiguous:
        return condition(DEGRADED, True, reasons.SEVERAL_CLUSTERS, "; ".join(ambiguous))
    if report.health.groups:
        details = named([f"{_group_key(report, id_)}: {text}" for id_, text in sorted(report.health.groups.items())])
        return condition(DEGRADED, True, reasons.NODE_GROUPS_UNHEALTHY, details)
    failing = _failing_groups(report)
    if failing:
        return condition(DEGRADED, True, reasons.NODE_GROUPS_FAILING, failing)
    removal = _failed_removal(report, previous)
    if removal is not None:
        return removal
    well = condition(DEGRADED, False, reasons.ALL_WELL, "all node groups can be scaled")
    return _invalid_objects(report) or _daemon_set_condition(report) or well


def _invalid_objects(report: IterationReport) -> ConditionUpdate | None:
    """Return a condition for invalid objects that define or configure node groups.

    If there are none, return one for errors in the expander's ConfigMap.
    """
    problems = [
        each
        for each in (*report.groups.problems, *report.problems)
        if each.reason != reasons.NODE_GROUP_NOT_CONFIRMED  # tenants can create such objects, see Ready
    ]
    groups = [each for each in problems if each.reason != reasons.PRIORITY_CONFIG_MAP_INVALID]
    if not problems:
        return None
    details = [
        f"{each.kind} {each.namespace}/{each.name} ({each.reason}): {each.message}" for each in groups or problems
    ]
    reason = reasons.INVALID_NODE_GROUPS if groups else reasons.PRIORITY_CONFIG_MAP_INVALID
    return condition(DEGRADED, True, reason, named(details))


def _daemon_set_condition(report: IterationReport) -> ConditionUpdate | None:
    """Return a condition for DaemonSets whose pods use capacity that pending pods need."""
    found = [each for each in kept_daemon_sets(report.plan) if each.reason == reasons.DAEMON_SETS_TAKE_ROOM]
    if not found:
        return None
    details = named([f"DaemonSet {each.namespace}/{each.name} {each.message}" for each in found])
    return condition(DEGRADED, True, reasons.DAEMON_SETS_TAKE_ROOM, details)


def _failing_groups(report: IterationReport) -> str:
    details = []
    for id_, memory in sorted(report.state.groups.items()):
        until = memory.backoff_until
        if until is None or until <= report.finished:
            continue
        error = memory.last_error
        why = "" if error is None else f": {error.reason}, {error.message}"
        details.append(f"{_group_key(report, id_)} is in backoff until {rfc3339(until)}{why}")
    return named(details)


def _failed_removal(report: IterationReport, previous: ClusterAutoscalerStatus) -> ConditionUpdate | None:
    failed = report.state.last_scale_down_failure
    well = report.state.last_scale_down
    if failed is None or report.finished - failed >= REMOVAL_FAILURE_WINDOW or (well is not None and well > failed):
        return None
    wrong = [removed for removed in report.removal_outcomes if removed.reason == reasons.WRONG_MACHINE_REMOVED]
    for removed in wrong:
        return condition(DEGRADED, True, reasons.WRONG_MACHINE_REMOVED, removed.message)
    before = find_condition(previous.conditions, DEGRADED)
    if before is not None and before.reason == reasons.WRONG_MACHINE_REMOVED:
        return condition(DEGRADED, True, before.reason, before.message)
    for removed in report.removal_outcomes:
        if removed.failed:
            message = f"failed to remove node {removed.node} ({removed.reason}): {removed.message}"
            return condition(DEGRADED, True, reasons.REMOVALS_FAILING, message)
    if before is not None and before.reason == reasons.REMOVALS_FAILING:
        return condition(DEGRADED, True, before.reason, before.message)
    message = f"a node removal failed at {rfc3339(failed)}; see its event {reasons.SCALE_DOWN_FAILED} for the reason"
    return condition(DEGRADED, True, reasons.REMOVALS_FAILING, message)


def _group_key(report: IterationReport, id_: str) -> str:
    group = report.groups.by_id.get(id_)
    return id_ if group is None else group.key


def _number_of_groups(number: int) -> str:
    return plural(number, "node group")


GROUP_MESSAGE: Final = 200
"""Maximum length in bytes of a message about a node group. There may be 500 groups."""


def group_statuses(report: IterationReport, *, budget: int) -> tuple[tuple[NodeGroupStatus, ...], int]:
    """Return the statuses of node groups sorted by id, and the number of omitted ones.

    Args:
        report: the iteration's report. Groups that do not exist at present, but are in the autoscaler's state, are
            included.
        budget: the limit of all statuses in bytes. The least important statuses are omitted.
    """
    counts = count_by_readiness(report.groups, report.readiness)
    unneeded = Tally(report.groups.of_node.get(node, "") for node in report.state.unneeded)
    made = [_group_status(report, group, counts[group.id], unneeded[group.id]) for group in report.groups.all]
    absent = {*report.state.groups, *report.state.scale_ups} - report.groups.by_id.keys()
    made += [NodeGroupStatus(id=id_) for id_ in absent]
    ranked = sorted(made, key=lambda each: (-_importance(report, each), each.id))
    whole = _with_group_state(report.state, ranked[:MAX_GROUPS])
    kept = fitting(whole, limit=MAX_GROUPS, budget=budget)
    return tuple(sorted(kept, key=lambda each: each.id)), len(made) - len(kept)


def _importance(report: IterationReport, status: NodeGroupStatus) -> int:
    """Return the importance of a group status.

    Groups with state that the next process needs come first, then groups that administrators look for.
    """
    record = report.state.record(status.id)
    if status.id in report.state.scale_ups or record.failures or record.given_up or record.known_failures:
        return 3
    if status.unhealthy or status.paused or status.failed or record.last_error is not None:
        return 2
    return int(bool(status.unready or status.upcoming or status.deleting or status.unneeded))


def _group_status(
    report: IterationReport, group: NodeGroup, counts: Tally[Readiness], unneeded: int
) -> NodeGroupStatus:
    """Return the status of a node group, excluding the part from the autoscaler's state."""
    return NodeGroupStatus(
        id=group.id,
        min_size=group.minimum,
        max_size=group.maximum,
        target=group.target,
        ready=counts[Readiness.READY],
        unready=counts[Readiness.UNREADY],
        upcoming=count_upcoming(group, counts),
        failed=len(group.in_state(MachineState.FAILED)),
        deleting=max(len(group.in_state(MachineState.DELETING)), counts[Readiness.GOING]),
        unneeded=unneeded,
        autoscaler=group.autoscaler,
        paused=truncate(group.paused, GROUP_MESSAGE),
        unhealthy=truncate(report.health.groups.get(group.id, ""), GROUP_MESSAGE),
    )


def _with_group_state(memory: AutoscalerState, statuses: list[NodeGroupStatus]) -> list[NodeGroupStatus]:
    """Return the group statuses with the autoscaler's state of each group added, in the same order."""
    ids = {each.id for each in statuses}
    known = AutoscalerState(
        groups={id_: record for id_, record in memory.groups.items() if id_ in ids},
        scale_ups={id_: increases for id_, increases in memory.scale_ups.items() if id_ in ids},
        targets={id_: target for id_, target in memory.targets.items() if id_ in ids},
    )
    written = status_with_state(known, ClusterAutoscalerStatus(node_groups=tuple(statuses))).node_groups
    by_id = {each.id: _short_error(each) for each in written}
    return [by_id[each.id] for each in statuses]


def _short_error(status: NodeGroupStatus) -> NodeGroupStatus:
    error = status.last_error
    if error is None:
        return status
    reason = truncate(error.reason, 128) or MachineState.FAILED.value
    return replace(status, last_error=replace(error, reason=reason, message=truncate(error.message, GROUP_MESSAGE)))


GROUP_BYTES: Final = 600_000
UNNEEDED_BYTES: Final = 120_000
HELD_BYTES: Final = 60_000
KEPT_BYTES: Final = 160_000
PENDING_BYTES: Final = 80_000
REMOVING_BYTES: Final = 60_000
"""Maximum size in bytes of each list in the stored object."""

MESSAGE: Final = 300
"""Maximum length in bytes of a message about a node."""

LONG_MESSAGE: Final = 900
"""Maximum length in bytes of a message about pending pods, which lists reasons for each group."""

REFRESH_SECONDS: Final = 60.0
"""Seconds after which a status is written even if only times and numbers in messages have changed."""


def build_status(report: IterationReport, previous: ClusterAutoscalerStatus) -> ClusterAutoscalerStatus:
    """Return the status after an iteration.

    Args:
        report: the iteration's report.
        previous: the status before the iteration, with the transition times of its conditions.
    """
    kept = list(kept_nodes(report.plan))
    return next_status(
        previous,
        conditions_of(report, previous),
        generation=report.generation,
        now=report.finished,
        last_iteration=_last_iteration(report),
        waiting_evictions=report.waiting_evictions,
        **_state_fields(report.state),
        **_group_fields(report),
        **_removing_fields(report),
        **_kept_fields(report, kept),
        **_pending_fields(report),
    )


def _last_iteration(report: IterationReport) -> LastIteration:
    return LastIteration(
        time=to_time(report.started),
        duration_seconds=round(max(0.0, report.finished - report.started), 3),
        nodes=report.totals.nodes,
        cores=report.totals.cores,
        memory_gib=report.totals.memory_gib,
        pending_pods=count_pending_pods(report.plan),
        unneeded_nodes=len(report.state.unneeded),
        removing_nodes=len(report.removals),
    )


def _state_fields(memory: AutoscalerState) -> dict[str, Any]:
    oldest = sorted((since, name) for name, since in memory.unneeded.items())
    nodes = (UnneededNode(name=name, since=to_time(since)) for since, name in oldest)
    unneeded = fitting(nodes, limit=MAX_UNNEEDED, budget=UNNEEDED_BYTES)
    longest = sorted((since, name) for name, since in memory.held.items())
    held = (HeldNode(name=name, since=to_time(since)) for since, name in longest)
    times = {
        "last_scale_up": memory.last_scale_up,
        "last_scale_down": memory.last_scale_down,
        "last_scale_down_failure": memory.last_scale_down_failure,
    }
    return {
        **{name: None if time is None else to_time(time) for name, time in times.items()},
        "try_again": memory.try_again,
        "confirmed_namespaces": memory.confirmed_namespaces,
        "unneeded": unneeded,
        "unneeded_omitted": len(oldest) - len(unneeded),
        "held": fitting(held, limit=MAX_HELD, budget=HELD_BYTES),
    }


def _group_fields(report: IterationReport) -> dict[str, Any]:
    kept, omitted = group_statuses(report, budget=GROUP_BYTES)
    return {"node_groups": kept, "node_groups_omitted": omitted}


def _removing_fields(report: IterationReport) -> dict[str, Any]:
    made = (
        RemovingNode(
            name=name,
            phase=removals.phase.value,
            group=removals.group,
            since=to_time(removals.since),
            message=truncate(removals.message, MESSAGE),
        )
        for name, removals in sorted(report.removals.items())
    )
    kept = fitting(made, limit=MAX_REMOVING, budget=REMOVING_BYTES)
    return {"removing": kept, "removing_omitted": len(report.removals) - len(kept)}


def _kept_fields(report: IterationReport, kept: list[Kept]) -> dict[str, Any]:
    nodes = (
        KeptNode(
            name=each.name,
            reason=each.reason,
            group=report.groups.of_node.get(each.name, ""),
            message=truncate(each.message, MESSAGE),
            blocking_pod=each.pod,
        )
        for each in _interleaved_by_reason(kept)
    )
    shown = fitting(nodes, limit=MAX_NODES, budget=KEPT_BYTES)
    counts = Tally(each.reason for each in kept)
    return {
        "kept": tuple(sorted(shown, key=lambda each: each.name)),
        "kept_omitted": len(kept) - len(shown),
        "kept_reasons": tuple(
            ReasonCount(reason=reason, count=count) for reason, count in sorted(counts.items())[:MAX_REASONS]
        ),
    }


def _interleaved_by_reason(kept: Iterable[Kept]) -> Iterator[Kept]:
    """Yield the first node for each reason, then the second for each, and so on.

    This way, a frequent reason does not displace the others.
    """
    by_reason: dict[str, list[Kept]] = {}
    for each in sorted(kept, key=lambda each: (each.reason, each.name)):
        by_reason.setdefault(each.reason, []).append(each)
    left = list(by_reason.values())
    round_number = 0
    while left:
        yield from (nodes[round_number] for nodes in left)
        round_number += 1
        left = [nodes for nodes in left if len(nodes) > round_number]


def _pending_fields(report: IterationReport) -> dict[str, Any]:
    found = summarize_pending_pods(kept_pods(report.plan))
    made = (
        PendingPods(
            namespace=each.namespace,
            pod=each.pod,
            count=each.count,
            reason=each.reason,
            message=truncate(each.message, LONG_MESSAGE),
        )
        for each in found
    )
    shown = fitting(made, limit=MAX_PENDING, budget=PENDING_BYTES)
    return {
        "pending": shown,
        "pending_omitted": sum(each.count for each in found) - sum(each.count for each in shown),
    }


def _without_times(status: ClusterAutoscalerStatus) -> ClusterAutoscalerStatus:
    last = status.last_iteration
    return replace(
        status,
        conditions=tuple([_without_numbers(each) for each in status.conditions]),
        last_iteration=None if last is None else replace(last, time=to_time(0), duration_seconds=0.0),
        node_groups=tuple(
            [
                replace(each, paused=without_numbers(each.paused), unhealthy=without_numbers(each.unhealthy))
                for each in status.node_groups
            ]
        ),
        removing=tuple([replace(each, message=without_numbers(each.message)) for each in status.removing]),
        kept=tuple([replace(each, message=without_numbers(each.message)) for each in status.kept]),
        pending=tuple([replace(each, message=without_numbers(each.message)) for each in status.pending]),
        replacements=tuple([replace(each, message=without_numbers(each.message)) for each in status.replacements]),
        waiting_evictions=tuple([replace(each, count=0, message="") for each in status.waiting_evictions]),
    )


def _without_numbers(condition: Condition) -> Condition:
    return replace(condition, message=without_numbers(condition.message))


worth_writing: Final = write_when(_without_times, period=REFRESH_SECONDS)


def status_writer(api: Api, clock: Clock, *, name: str = NAME) -> StatusWriter[ClusterAutoscalerStatus]:
    """Return the writer of a ClusterAutoscaler's status."""
    return StatusWriter(
        api,
        clock,
        resource=CLUSTER_AUTOSCALERS,
        name=name,
        empty=ClusterAutoscalerStatus(),
        should_write=worth_writing,
    )
