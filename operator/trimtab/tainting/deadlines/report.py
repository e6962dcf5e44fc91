"""Formats deadlines for plans, events and the status."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.plan import BY_EVICTION, Delete, DeleteHow, Kept, PlannedTaint, PlannedToleration, rfc3339
from trimtab.api.scalars import to_time
from trimtab.api.taint_manager import EVICT, KIND, MAX_DEADLINES, NAME, NextDeadline, TaintManagerSpec
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.protections import MIRROR_ANNOTATION
from trimtab.kube.objects import Node, Pod, Taint, Toleration
from trimtab.kube.rules.taints import NO_EXECUTE, format_taint
from trimtab.tainting.deadlines.recorded import is_assumed
from trimtab.tainting.deadlines.rule import Deadline, NodeTaints, TolerationRule, observe_taints
from trimtab.tainting.deadlines.tracker import deadlines


def describe_toleration(toleration: Toleration | None) -> str:
    """Format a toleration as ``key=value:NoExecute for 300s``; return ``""`` for ``None``.

    ``*`` stands for every key or every effect. A toleration with operator Exists has no ``=value``, and one with
    operator Equal and no value is formatted as ``key=``.
    """
    if toleration is None:
        return ""
    operator = toleration.operator or "Equal"
    value = "" if operator == "Exists" else f"={toleration.value}"
    compared = f" ({operator})" if operator not in ("Exists", "Equal") else ""
    duration = "forever" if toleration.seconds is None else f"for {max(0, toleration.seconds)}s"
    return f"{toleration.key or '*'}{value}:{toleration.effect or '*'}{compared} {duration}"


def describe_deadline(deadline: Deadline, *, assumed: bool = False) -> str:
    """Describe the taint of a deadline, the time from which it applies to the pod, and the toleration.

    Args:
        deadline: the deadline.
        assumed: whether the time is unknown, because the taint has no ``timeAdded``.
    """
    taint = f"taint {format_taint(deadline.taint)} since {rfc3339(deadline.since)}"
    if assumed:
        taint = f"taint {format_taint(deadline.taint)}, which has no timeAdded, counted from {rfc3339(deadline.since)}"
    toleration = deadline.toleration
    if toleration is None:
        return f"{taint}, not tolerated"
    lasting = f"{taint}, tolerated for {max(0, toleration.seconds or 0)}s"
    key, _, _ = describe_toleration(toleration).partition(" ")
    return lasting if key == format_taint(deadline.taint) else f"{lasting} (toleration {key})"


def describe_tolerated_taints(taints: tuple[Taint, ...]) -> str:
    """Describe why a pod is not evicted from a node with these taints."""
    named = ", ".join(format_taint(taint) for taint in taints if taint.effect == NO_EXECUTE)
    return f"tolerates {named} forever"


class TaintDeletions(Struct, frozen=True):
    """The planned deletions of pods on tainted nodes, and the pods on these nodes that are not deleted.

    Attributes:
        deletions: the deletions, sorted by due time and then by ``namespace/name``.
        kept: the pods that are not deleted and the reasons, sorted by ``namespace/name``.
    """

    deletions: tuple[Delete, ...]
    kept: tuple[Kept, ...]


def plan_deletions(
    snapshot: Snapshot,
    spec: TaintManagerSpec,
    *,
    now: float,
    known: Mapping[str, NodeTaints] | None = None,
    changed: Mapping[str, Node] | None = None,
) -> TaintDeletions:
    """Plan the deletion of pods on nodes with NoExecute taints.

    The plan ignores the mode and userTaintRates, because they do not affect deadlines.

    Args:
        snapshot: the cluster state.
        spec: the spec of the TaintManager.
        now: the current time in seconds since the epoch.
        known: observed taints by node name. For other nodes, the taints are read from the node object. In that case a
            taint without ``timeAdded`` applies from the time in the node's annotation, or else from now.
        changed: nodes with the taints that they will have after planned changes, by name.
    """
    known, changed = known or {}, changed or {}
    nodes = [changed.get(node.name, node) for node in snapshot.nodes.at if node]
    seen = {node.name: observe_taints(node, known.get(node.name), now=now) for node in nodes}
    taints = {name: seen[name] for name in sorted(seen) if seen[name].observed}
    pods = [item for name in taints for item in snapshot.items_on(name)]
    found = deadlines(pods, taints, TolerationRule.of(spec), now=now)
    due = sorted(found.values(), key=lambda each: (max(each.due, now), each.key))
    kept = sorted((item for item in pods if item[0] not in found), key=lambda item: item[0])
    assumed = {(name, each.taint) for name in taints for each in taints[name].observed if is_assumed(each, now=now)}
    hows: dict[str, DeleteHow] = {policy.key: BY_EVICTION for policy in spec.taints if policy.policy == EVICT}
    return TaintDeletions(
        tuple(
            _delete(each, hows.get(each.taint.key, "Delete"), now, assumed=(each.node, each.taint) in assumed)
            for each in due
        ),
        tuple(_kept(pod, taints[pod.node]) for _, pod in kept),
    )


def _delete(deadline: Deadline, how: DeleteHow, now: float, *, assumed: bool) -> Delete:
    namespace, _, name = deadline.key.partition("/")
    taint, by = deadline.taint, deadline.toleration
    return Delete(
        namespace=namespace,
        pod=name,
        node=deadline.node,
        due=rfc3339(math.ceil(max(deadline.due, now))),  # rounded up to the second, so that it is never too early
        reason=reasons.NO_EXECUTE_TAINT,
        message=describe_deadline(deadline, assumed=assumed and deadline.since == now),
        taint=PlannedTaint(taint.key, taint.effect, taint.value),
        toleration=None if by is None else PlannedToleration(by.key, by.operator, by.value, by.effect, by.seconds),
        uid=deadline.uid,
        how=how,
    )


_WHY: Final = {
    reasons.TERMINAL: "the pod is terminal",
    reasons.TERMINATING: "the pod is already being deleted",
    reasons.MIRROR_POD: "mirror pod: the kubelet would recreate it",
}


def _kept(pod: Pod, taints: NodeTaints) -> Kept:
    reason = _reason(pod)
    message = _WHY.get(reason) or describe_tolerated_taints(tuple(each.taint for each in taints.observed))
    return Kept(
        kind="Pod",
        namespace=pod.namespace,
        name=pod.name,
        strategy=KIND,
        reason=reason,
        message=message,
        policy=NAME,
        node=pod.node,
    )


def _reason(pod: Pod) -> str:
    if pod.terminal:
        return reasons.TERMINAL
    if pod.deleted is not None:
        return reasons.TERMINATING
    return reasons.MIRROR_POD if MIRROR_ANNOTATION in pod.annotations else reasons.TOLERATES_TAINTS


def next_deadlines(
    deadlines: Collection[Deadline], *, limit: int = MAX_DEADLINES
) -> tuple[tuple[NextDeadline, ...], int]:
    """Return the earliest deadlines, sorted by due time and pod, and the number of deadlines that are not included.

    Args:
        deadlines: the deadlines of all pods, in any order.
        limit: maximum number of returned deadlines.
    """
    soonest = heapq.nsmallest(limit, deadlines, key=lambda each: (each.due, each.key))
    return tuple(_next_deadline(each) for each in soonest), len(deadlines) - len(soonest)


def overdue(deadlines: Collection[Deadline], *, now: float) -> int:
    """Count the pods that are past their deadline at ``now`` (seconds since the epoch)."""
    return sum(each.due <= now for each in deadlines)


def _next_deadline(deadline: Deadline) -> NextDeadline:
    namespace, _, name = deadline.key.partition("/")
    return NextDeadline(
        namespace=namespace,
        pod=name,
        node=deadline.node,
        due=to_time(math.ceil(deadline.due)),  # rounded up to the second, so that it is never too early
        taint=format_taint(deadline.taint),
        toleration=describe_toleration(deadline.toleration),
    )
