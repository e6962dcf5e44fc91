"""Reads the start times of taints without ``timeAdded`` from the deadlines in the TaintManager's status.

kubectl and the API server do not set ``timeAdded``. The taint manager counts from the time at which it observed such a
taint, and another process, such as ``trimtab plan``, does not know that time. If the node has no annotation with it,
the deadlines in the status determine it.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from trimtab.api.taint_manager import NextDeadline, TaintManagerSpec
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.rules.taints import format_taint
from trimtab.tainting.deadlines.rule import (
    FOREVER,
    NodeTaints,
    ObservedTaint,
    TolerationRule,
    observe_taints,
    tolerance,
)


def recorded_taints(
    snapshot: Snapshot, deadlines: Iterable[NextDeadline], spec: TaintManagerSpec, *, now: float
) -> dict[str, NodeTaints]:
    """Return the taints of nodes with times that follow from recorded deadlines, by node name.

    Nodes are omitted if the times of all their taints are known, or if there is no deadline of one of their pods. A
    deadline that does not match the pod, its node or the taint is ignored. A pod that was bound after the taint was
    added has a later deadline, so the earliest of several times is used.

    Args:
        snapshot: the cluster.
        deadlines: ``nextDeadlines`` of the TaintManager's status.
        spec: the spec of the TaintManager.
        now: the current time in seconds since the epoch.
    """
    rule = TolerationRule.of(spec)
    found: dict[str, NodeTaints] = {}
    for each in deadlines:
        pod = snapshot.pods.get(f"{each.namespace}/{each.pod}")
        node = snapshot.nodes.get(each.node)
        if pod is None or node is None or pod.node != each.node:
            continue
        known = found.get(node.name) or observe_taints(node, None, now=now)
        for number, taint in enumerate(known.observed):
            if format_taint(taint.taint) != each.taint or taint.taint.time_added is not None:
                continue
            seconds = tolerance(rule.complete(pod.spec.tolerations), taint.taint, rule).seconds
            since = each.due.timestamp() - seconds
            if seconds < FOREVER and since < taint.since:
                observed = [*known.observed]
                observed[number] = replace(taint, since=since)
                found[node.name] = NodeTaints(known.uid, tuple(observed))
    return found


def is_assumed(taint: ObservedTaint, *, now: float) -> bool:
    """Return whether the time of a taint is unknown, so that it is counted from now."""
    return taint.taint.time_added is None and taint.since == now
