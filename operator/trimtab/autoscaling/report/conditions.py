"""Ready, Progressing and Degraded after a pass: what came of it, in one sentence each."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator
from typing import Final

from trimtab.api import reasons
from trimtab.api.bounds import named, plural, short
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.conditions import DEGRADED, PROGRESSING, READY, Wanted, find_condition
from trimtab.api.node_removal import RemoveNode
from trimtab.api.plan import rfc3339
from trimtab.autoscaling.report.pass_report import PassReport
from trimtab.autoscaling.report.pending import helpless, kept_pods, raised

LONGEST: Final = 1500
"""Bytes of a condition's message."""

REMEMBERED: Final = 600.0
"""Seconds for which a removal that failed degrades, if none goes well in between."""


def conditions_of(report: PassReport, previous: ClusterAutoscalerStatus) -> tuple[Wanted, Wanted, Wanted]:
    """The three conditions after a pass.

    Args:
        report: the pass.
        previous: the status before it: how a removal failed is told only in the pass in which it ended.
    """
    return _ready(report), _progressing(report), _degraded(report, previous)


def _ready(report: PassReport) -> Wanted:
    if report.error:
        return _wanted(READY, False, reasons.PASS_FAILED, report.error)
    if report.health.cluster:
        return _wanted(READY, False, reasons.CLUSTER_UNHEALTHY, f"nothing is scaled: {report.health.cluster}")
    parts = [*_adding(report), *_removing(report), *_left(report)]
    totals = report.totals
    seen = f"{plural(totals.nodes, 'node')} with {plural(totals.cores, 'core')}, {_groups(len(report.groups.by_id))}"
    return _wanted(READY, True, reasons.PASS_COMPLETED, f"{seen}: {'; '.join(parts) or 'nothing to do'}")


def _adding(report: PassReport) -> Iterator[str]:
    if report.mode == "Simulate":
        planned = list(raised(report.plan))
        if planned:
            nodes, pods = sum(each.to - each.from_ for each in planned), sum(len(each.pods) for each in planned)
            yield f"would ask {_sizes([(each.machine_set, each.from_, each.to) for each in planned], nodes, pods)}"
        return
    done = [grown for grown in report.grown if grown.scaled.done]
    if done:
        nodes = sum(grown.scaled.after - grown.scaled.before for grown in done)
        pods = sum(len(grown.action.pods) for grown in done)
        sizes = [(grown.action.machine_set, grown.scaled.before, grown.scaled.after) for grown in done]
        yield f"asked {_sizes(sizes, nodes, pods)}"
    failed = [grown for grown in report.grown if not grown.scaled.done]
    if failed:
        first = failed[0]
        yield (
            f"{_groups(len(failed))} could not be asked for nodes "
            f"({first.action.machine_set}: {first.scaled.failure}, {first.scaled.message})"
        )


def _sizes(sizes: list[tuple[str, int, int]], nodes: int, pods: int) -> str:
    told = named([f"{key} {before}→{after}" for key, before, after in sizes])
    whom = f" for {plural(pods, 'pod')}" if pods else ""
    return f"for {plural(nodes, 'node')}{whom} ({told})"


def _removing(report: PassReport) -> Iterator[str]:
    if report.mode == "Simulate":
        planned = [action for action in report.plan.scaling or () if isinstance(action, RemoveNode)]
        if planned:
            yield f"would remove {plural(len(planned), 'node')} ({named([action.node for action in planned])})"
        return
    gone = [removed.node for removed in report.ended if removed.done]
    if gone:
        yield f"removed {plural(len(gone), 'node')} ({named(sorted(gone))})"
    stayed = [removed for removed in report.ended if removed.failed]
    if stayed:
        yield f"{plural(len(stayed), 'node')} to be removed stayed ({stayed[0].node}: {stayed[0].message})"
    if report.going:
        yield f"removing {plural(len(report.going), 'node')} ({named(sorted(report.going))})"


def _left(report: PassReport) -> Iterator[str]:
    counts = Tally(kept.reason for kept in kept_pods(report.plan) if helpless(kept))
    if counts:
        told = ", ".join(f"{number} {reason}" for reason, number in sorted(counts.items()))
        yield f"{plural(sum(counts.values()), 'pod')} wait{'s' * (sum(counts.values()) == 1)} in vain ({told})"
    unneeded = len(report.memory.unneeded)
    if unneeded:
        yield f"{plural(unneeded, 'node')} unneeded"


def _progressing(report: PassReport) -> Wanted:
    open_, going = report.memory.open, report.going
    if not open_ and not going:
        simulating = "spec.mode is Simulate: nothing is changed" if report.mode == "Simulate" else ""
        return _wanted(PROGRESSING, False, reasons.IDLE, simulating or "no node is on its way, none is being removed")
    parts = []
    if open_:
        told = []
        for id_, scale_up in sorted(open_.items()):
            group = report.groups.by_id.get(id_)
            name = id_ if group is None else group.key
            told.append(f"{name} {scale_up.from_}→{scale_up.to} until {rfc3339(scale_up.deadline)}")
        parts.append(f"waiting for nodes of {_groups(len(open_))}: {named(told)}")
    if going:
        phases = [f"{node} ({each.phase})" for node, each in sorted(going.items())]
        parts.append(f"removing {plural(len(going), 'node')}: {named(phases)}")
    return _wanted(PROGRESSING, True, reasons.SCALING, "; ".join(parts))


def _degraded(report: PassReport, previous: ClusterAutoscalerStatus) -> Wanted:
    """The worst of what is wrong."""
    if report.error:
        return _wanted(DEGRADED, True, reasons.PASS_FAILED, report.error)
    if report.health.cluster:
        return _wanted(DEGRADED, True, reasons.CLUSTER_UNHEALTHY, report.health.cluster)
    if report.health.groups:
        told = named([f"{_key(report, id_)}: {text}" for id_, text in sorted(report.health.groups.items())])
        return _wanted(DEGRADED, True, reasons.NODE_GROUPS_UNHEALTHY, told)
    failing = _failing(report)
    if failing:
        return _wanted(DEGRADED, True, reasons.NODE_GROUPS_FAILING, failing)
    removal = _failed_removal(report, previous)
    if removal:
        return _wanted(DEGRADED, True, reasons.REMOVALS_FAILING, removal)
    return _invalid(report) or _wanted(DEGRADED, False, reasons.ALL_WELL, "nothing keeps groups from being scaled")


def _invalid(report: PassReport) -> Wanted | None:
    """What is wrong with objects that were to be groups or to govern them, else with the expander's ConfigMap."""
    problems = [*report.groups.problems, *report.problems]
    groups = [each for each in problems if each.reason != reasons.PRIORITY_CONFIG_MAP_INVALID]
    if not problems:
        return None
    told = [f"{each.kind} {each.namespace}/{each.name} ({each.reason}): {each.message}" for each in groups or problems]
    reason = reasons.INVALID_NODE_GROUPS if groups else reasons.PRIORITY_CONFIG_MAP_INVALID
    return _wanted(DEGRADED, True, reason, named(told))


def _failing(report: PassReport) -> str:
    told = []
    for id_, memory in sorted(report.memory.groups.items()):
        until = memory.backoff_until
        if until is None or until <= report.finished:
            continue
        error = memory.last_error
        why = "" if error is None else f": {error.reason}, {error.message}"
        told.append(f"{_key(report, id_)} is left alone until {rfc3339(until)}{why}")
    return named(told)


def _failed_removal(report: PassReport, previous: ClusterAutoscalerStatus) -> str:
    failed = report.memory.last_scale_down_failure
    well = report.memory.last_scale_down
    if failed is None or report.finished - failed >= REMEMBERED or (well is not None and well > failed):
        return ""
    for removed in report.ended:
        if removed.failed:
            return f"node {removed.node} stays ({removed.reason}): {removed.message}"
    before = find_condition(previous.conditions, DEGRADED)
    if before is not None and before.reason == reasons.REMOVALS_FAILING:
        return before.message
    return f"removing a node failed at {rfc3339(failed)}; its event {reasons.SCALE_DOWN_FAILED} says why"


def _key(report: PassReport, id_: str) -> str:
    group = report.groups.by_id.get(id_)
    return id_ if group is None else group.key


def _groups(number: int) -> str:
    return plural(number, "node group")


def _wanted(type_: str, status: bool, reason: str, message: str) -> Wanted:
    return Wanted(type_, status, reason, short(message, LONGEST))
