"""From a pass to the ClusterAutoscaler's status: pure, so that it is the same in every test, and bounded.

The whole object has to fit into etcd's 1.5 MiB with its spec and with what the API server keeps of who wrote which
field, so each list has a number of bytes of its own, together less than 1 MB. What is cut is the least telling of its
kind, the same for the same pass, and counted.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from trimtab.api.bounds import fitting, short, story
from trimtab.api.cluster_autoscaler_status import (
    MAX_NODES,
    MAX_PENDING,
    MAX_REASONS,
    MAX_REMOVING,
    MAX_UNNEEDED,
    ClusterAutoscalerStatus,
    KeptNode,
    LastPass,
    PendingPods,
    ReasonCount,
    RemovingNode,
    UnneededNode,
)
from trimtab.api.conditions import Condition, ConditionStatus, Wanted, set_conditions
from trimtab.api.plan import Kept
from trimtab.api.scalars import to_time
from trimtab.autoscaling.memory.state import State
from trimtab.autoscaling.report.conditions import conditions_of
from trimtab.autoscaling.report.group_status import group_statuses
from trimtab.autoscaling.report.pass_report import PassReport
from trimtab.autoscaling.report.pending import classes, kept_nodes, kept_pods, waiting

GROUP_BYTES: Final = 600_000
UNNEEDED_BYTES: Final = 120_000
KEPT_BYTES: Final = 160_000
PENDING_BYTES: Final = 80_000
REMOVING_BYTES: Final = 60_000
"""Bytes of each list as it is stored."""

MESSAGE: Final = 300
"""Bytes of a message about a node."""

LONG_MESSAGE: Final = 900
"""Bytes of a message about pending pods: it goes from group to group."""

STALE: Final = 60.0
"""Seconds after which a status is written for times and numbers in words alone."""


def build_status(report: PassReport, previous: ClusterAutoscalerStatus) -> ClusterAutoscalerStatus:
    """The status after a pass.

    Args:
        report: the pass.
        previous: the status before it: since when conditions hold stands there.
    """
    wanted = conditions_of(report, previous)
    conditions = set_conditions(previous.conditions, wanted, now=report.finished, generation=report.generation)
    kept = list(kept_nodes(report.plan))
    return replace(
        previous,
        observed_generation=report.generation,
        conditions=conditions,
        last_pass=_last_pass(report),
        **_remembered(report.memory),
        **_groups(report),
        **_removing(report),
        **_kept(report, kept),
        **_pending(report),
    )


def materially_different(old: ClusterAutoscalerStatus, new: ClusterAutoscalerStatus) -> bool:
    """Whether more than times of passes and numbers in words has changed.

    A node that has been unneeded for 40 s and then for 50 s is the same story; a group that has one node more is not.
    """
    return _material(old) != _material(new)


def worth_writing(
    old: ClusterAutoscalerStatus, new: ClusterAutoscalerStatus, *, written: float | None, now: float
) -> bool:
    """Whether a status is to be written over the one that stands in the cluster.

    Args:
        old: what was last written, or read.
        new: what would be written.
        written: when ``old`` was written, in seconds since the epoch; ``None`` where this process has not.
        now: seconds since the epoch.
    """
    if written is None or materially_different(old, new):
        return True
    return old != new and now - written >= STALE


def without_pass(
    previous: ClusterAutoscalerStatus,
    conditions: Iterable[tuple[str, ConditionStatus | bool, str, str]],
    *,
    generation: int,
    now: float,
) -> ClusterAutoscalerStatus:
    """The status where no pass was made: the spec cannot be used, or there is no picture of the cluster.

    Args:
        previous: the status before; all that is remembered stays.
        conditions: type, status, reason and message of those that change.
        generation: of the spec.
        now: seconds since the epoch.
    """
    wanted = [Wanted(*each) for each in conditions]
    found = set_conditions(previous.conditions, wanted, now=now, generation=generation)
    return replace(previous, observed_generation=generation, conditions=found)


def _last_pass(report: PassReport) -> LastPass:
    return LastPass(
        time=to_time(report.started),
        duration_seconds=round(max(0.0, report.finished - report.started), 3),
        nodes=report.totals.nodes,
        cores=report.totals.cores,
        memory_gib=report.totals.memory_gib,
        pending_pods=waiting(report.plan),
    )


def _remembered(memory: State) -> dict[str, Any]:
    oldest = sorted((since, name) for name, since in memory.unneeded.items())
    nodes = (UnneededNode(name=name, since=to_time(since)) for since, name in oldest)
    unneeded = fitting(nodes, limit=MAX_UNNEEDED, budget=UNNEEDED_BYTES)
    times = {
        "last_scale_up": memory.last_scale_up,
        "last_scale_down": memory.last_scale_down,
        "last_scale_down_failure": memory.last_scale_down_failure,
    }
    return {
        **{name: None if time is None else to_time(time) for name, time in times.items()},
        "unneeded": unneeded,
        "unneeded_omitted": len(oldest) - len(unneeded),
    }


def _groups(report: PassReport) -> dict[str, Any]:
    kept, omitted = group_statuses(report, budget=GROUP_BYTES)
    return {"node_groups": kept, "node_groups_omitted": omitted}


def _removing(report: PassReport) -> dict[str, Any]:
    made = (
        RemovingNode(
            name=name,
            phase=going.phase.value,
            group=going.group,
            since=to_time(going.since),
            message=short(going.message, MESSAGE),
        )
        for name, going in sorted(report.going.items())
    )
    kept = fitting(made, limit=MAX_REMOVING, budget=REMOVING_BYTES)
    return {"removing": kept, "removing_omitted": len(report.going) - len(kept)}


def _kept(report: PassReport, kept: list[Kept]) -> dict[str, Any]:
    nodes = (
        KeptNode(
            name=each.name,
            reason=each.reason,
            group=report.groups.of_node.get(each.name, ""),
            message=short(each.message, MESSAGE),
            blocking_pod=each.pod,
        )
        for each in _in_turn(kept)
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


def _in_turn(kept: Iterable[Kept]) -> Iterator[Kept]:
    """The first node of each reason, then the second, and so on: no reason crowds another out."""
    by_reason: dict[str, list[Kept]] = {}
    for each in sorted(kept, key=lambda each: (each.reason, each.name)):
        by_reason.setdefault(each.reason, []).append(each)
    left = list(by_reason.values())
    turn = 0
    while left:
        yield from (nodes[turn] for nodes in left)
        turn += 1
        left = [nodes for nodes in left if len(nodes) > turn]


def _pending(report: PassReport) -> dict[str, Any]:
    found = classes(kept_pods(report.plan))
    made = (
        PendingPods(
            namespace=each.namespace,
            pod=each.pod,
            count=each.count,
            reason=each.reason,
            message=short(each.message, LONG_MESSAGE),
        )
        for each in found
    )
    shown = fitting(made, limit=MAX_PENDING, budget=PENDING_BYTES)
    return {
        "pending": shown,
        "pending_omitted": sum(each.count for each in found) - sum(each.count for each in shown),
    }


def _material(status: ClusterAutoscalerStatus) -> ClusterAutoscalerStatus:
    last = status.last_pass
    return replace(
        status,
        conditions=tuple([_without_numbers(each) for each in status.conditions]),
        last_pass=None if last is None else replace(last, time=to_time(0), duration_seconds=0.0),
        node_groups=tuple(
            [replace(each, paused=story(each.paused), unhealthy=story(each.unhealthy)) for each in status.node_groups]
        ),
        removing=tuple([replace(each, message=story(each.message)) for each in status.removing]),
        kept=tuple([replace(each, message=story(each.message)) for each in status.kept]),
        pending=tuple([replace(each, message=story(each.message)) for each in status.pending]),
        replacements=tuple([replace(each, message=story(each.message)) for each in status.replacements]),
    )


def _without_numbers(condition: Condition) -> Condition:
    return replace(condition, message=story(condition.message))
