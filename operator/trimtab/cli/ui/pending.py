"""The pending pods of a cluster, with the reasons of the scheduler and of the autoscaler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trimtab.api.plan import Kept, Plan, ScaleUp, rfc3339
from trimtab.api.reasons import SCHEDULED, UNSCHEDULABLE
from trimtab.inspection.cluster import ClusterInput
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer

MAX_ROWS: Final = 200
"""Maximum number of rows. Pods with the same spec, namespace and controller share a row."""

MAX_PODS: Final = 20
"""Maximum number of pods that a row names."""

GATED: Final = "SchedulingGated"


def pending_pods(cluster: ClusterInput, plan: Plan | None) -> dict[str, Any]:
    """Return the pending pods, the largest number of equal pods first.

    Args:
        cluster: the cluster. Its snapshot is unchanged afterwards.
        plan: the last plan, which contains the reasons of the autoscaler; it may be older than the cluster.

    Returns:
        ``total``, the number of pods; ``omitted``, the number of pods that no row contains; and ``rows``. ``reason`` is
        that of the autoscaler if it has one. ``message`` is that of the scheduler.
    """
    waiting: dict[tuple[str, int, str], list[Pod]] = {}
    total = 0
    for _, pod in cluster.snapshot.unbound():
        if pod.terminal or pod.deleted is not None:
            continue
        total += 1
        waiting.setdefault((pod.namespace, id(pod.spec), _owner(pod)), []).append(pod)
    order = sorted(waiting.values(), key=lambda pods: (-len(pods), min(pod.key for pod in pods)))
    decisions = _decisions(plan)
    placer = Placer(cluster.snapshot)
    rows = [_row(placer, sorted(pods, key=lambda pod: pod.key), decisions) for pods in order[:MAX_ROWS]]
    return {"total": total, "omitted": sum(len(pods) for pods in order[MAX_ROWS:]), "rows": rows}


def _owner(pod: Pod) -> str:
    owner = pod.controller
    return owner.qualified_name if owner is not None else pod.key


def _row(placer: Placer, pods: list[Pod], decisions: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    first = pods[0]
    oldest = min((pod.created for pod in pods if pod.created is not None), default=None)
    if first.spec.scheduling_gates:
        reason, message = GATED, f"waits for the scheduling gates {', '.join(first.spec.scheduling_gates)}"
    else:
        diagnosis = placer.diagnose(first)
        reason, message = (SCHEDULED if diagnosis.fits else UNSCHEDULABLE), diagnosis.message()
    decision = next((decisions[pod.key] for pod in pods if pod.key in decisions), ("", ""))
    return {
        "pods": [pod.key for pod in pods[:MAX_PODS]],
        "count": len(pods),
        "owner": _owner(first) if first.controller is not None else "",
        "since": None if oldest is None else rfc3339(oldest),
        "reason": decision[0] or reason,
        "message": message,
        "autoscaler": decision[1],
    }


def _decisions(plan: Plan | None) -> dict[str, tuple[str, str]]:
    """Return reason and message of the autoscaler by pod (``namespace/name``)."""
    found: dict[str, tuple[str, str]] = {}
    for kept in () if plan is None else plan.kept:
        if _of_pending(kept):
            found[f"{kept.namespace}/{kept.name}"] = kept.reason, kept.message
    for action in () if plan is None or plan.scaling is None else plan.scaling:
        if isinstance(action, ScaleUp):
            text = f"{action.machine_set} is scaled up from {action.from_} to {action.to} nodes"
            found |= dict.fromkeys(action.pods, (action.reason, text))
    return found


def _of_pending(kept: Kept) -> bool:
    return kept.kind == "Pod" and kept.strategy == "ScaleUp"
