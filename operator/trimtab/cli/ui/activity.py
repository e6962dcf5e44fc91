"""Actions in flight: what the controllers report in their statuses, and pods that are terminating."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.plan import rfc3339
from trimtab.api.taint_manager import TaintManagerStatus
from trimtab.api.waiting_evictions import WaitingEvictions
from trimtab.inspection.cluster import ClusterInput

MAX_TERMINATING: Final = 200
MAX_DEADLINES: Final = 50

Document = dict[str, Any]


def activity(cluster: ClusterInput) -> Document:
    """Return the actions in flight: node removals, scale-ups, replacements, evictions, deadlines and terminating pods.

    Each row has ``what``, the object (``node``, ``pod`` or ``group``), ``by``, ``reason``, ``message``, ``since`` and
    ``until``.
    """
    policies = cluster.policies
    rows: list[Document] = []
    if policies.cluster_autoscaler is not None:
        rows += _autoscaling(policies.cluster_autoscaler.status)
    for policy in policies.descheduler:
        rows += _waiting(policy.status.waiting_evictions, f"DeschedulerPolicy {policy.name}")
    if policies.taint_manager is not None:
        rows += _tainting(policies.taint_manager.status)
    terminating = [pod for pod in cluster.snapshot.pods.values() if pod.deleted is not None and not pod.terminal]
    terminating.sort(key=lambda pod: (pod.deleted or 0.0, pod.key))
    for pod in terminating[:MAX_TERMINATING]:
        target = next((each for each in pod.conditions if each.type == "DisruptionTarget"), None)
        rows.append(
            _row(
                "Terminating",
                pod=pod.key,
                node=pod.node,
                reason="" if target is None else target.reason,
                message="" if target is None else target.message,
                until=None if pod.deleted is None else rfc3339(pod.deleted),
            )
        )
    return {"total": len(rows) + max(0, len(terminating) - MAX_TERMINATING), "rows": rows}


def _row(what: str, **fields: Any) -> Document:
    return {"what": what, **{name: value for name, value in fields.items() if value}}


def _autoscaling(status: ClusterAutoscalerStatus) -> Iterator[Document]:
    by = "ClusterAutoscaler"
    for node in status.removing:
        yield _row(
            "RemoveNode",
            node=node.name,
            group=node.group,
            by=by,
            reason=node.phase,
            message=node.message,
            since=_time(node.since),
        )
    for group in status.node_groups:
        up = group.scale_up
        if up is not None:
            yield _row(
                "ScaleUp",
                group=group.id,
                by=by,
                message=f"from {up.from_} to {up.to} nodes; {group.upcoming} have not registered yet or are starting",
                since=_time(up.since),
                until=_time(up.deadline),
            )
    for each in status.replacements:
        if each.given_up is None:
            yield _row(
                "Replace",
                node=each.nodes[0].name if each.nodes else "",
                by=by,
                message=each.message,
                since=_time(each.since),
                until=_time(each.deadline),
            )
    yield from _waiting(status.waiting_evictions, by)


def _tainting(status: TaintManagerStatus) -> Iterator[Document]:
    by = "TaintManager"
    for due in status.next_deadlines[:MAX_DEADLINES]:
        yield _row(
            "Deadline",
            pod=f"{due.namespace}/{due.pod}",
            node=due.node,
            by=by,
            message=due.taint,
            until=_time(due.due),
        )
    for refused in status.refused:
        yield _row(
            "Refused",
            pod=f"{refused.namespace}/{refused.pod}",
            node=refused.node,
            by=by,
            message=refused.message,
            since=_time(refused.due),
        )
    yield from _waiting(status.waiting_evictions, by)


def _waiting(evictions: Iterable[WaitingEvictions], by: str) -> Iterator[Document]:
    for each in evictions:
        count = f"{each.count} evictions" if each.count != 1 else "1 eviction"
        waits = f"; waiting for {each.waits_for}" if each.waits_for else ""
        yield _row(
            "Waiting",
            by=by,
            reason=each.reason,
            message=f"{count}{waits}: {each.message}",
            since=_time(each.since),
        )


def _time(at: datetime | None) -> str | None:
    return None if at is None else rfc3339(at.timestamp())
