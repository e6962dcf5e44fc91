"""Explains who evicted a pod, when and why, and where its replacement runs.

The sources, the most reliable first: the recorded history of all controllers, the events of the pod, which API servers
keep for an hour, and the condition DisruptionTarget of the pod, while it still exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

if TYPE_CHECKING:
    from trimtab.api.history_record import HistoryEntry
    from trimtab.cluster.snapshot import Snapshot
    from trimtab.kube.objects import Pod

Document = dict[str, Any]

_POD_ACTIONS: Final = frozenset({"Evict", "Delete", "Preempt"})
_DONE: Final = frozenset({"Succeeded", "Started"})

_CONTROLLERS: Final = {
    "descheduler": "DeschedulerPolicy",
    "autoscaler": "cluster autoscaler",
    "tainting": "taint manager",
    "scheduler": "scheduler",
    "pressure": "NodePressurePolicy",
}
"""How messages name the controllers of trimtab."""

OURS: Final = "trimtab.dev/trimtab"
"""The reporting controller of trimtab's events."""

_OUR_ACTIONS: Final = {
    "Evict": "descheduler",
    "Restart": "descheduler",
    "RemoveNode": "autoscaler",
    "Delete": "tainting",
    "Preempting": "scheduler",
}
"""The controller by the action of trimtab's events about evicted pods."""

_BY_REASON: Final = {"TaintManagerEviction": "tainting", "NodePressureEviction": "pressure"}
"""The controller by the reason of trimtab's events about evicted pods, where the action does not determine it."""

_FOREIGN_REASONS: Final = {
    "TaintManagerEviction": "taint manager of kube-controller-manager",
    "Preempted": "kube-scheduler",
    "Evicted": "kubelet",
    "ScaleDown": "cluster-autoscaler",
    "Descheduled": "descheduler",
    "Disrupted": "karpenter",
}
"""Other programs that evict pods, by the reason of their events."""

_BY_CONDITION: Final = {
    "PreemptionByScheduler": "scheduler",
    "DeletionByTaintManager": "taint manager",
    "EvictionByEvictionAPI": "a client of the eviction API",
    "DeletionByPodGC": "pod garbage collector",
    "TerminationByKubelet": "kubelet",
}
"""Who disrupts a pod, by the reason of its condition DisruptionTarget."""


class Eviction(Struct, frozen=True, kw_only=True):
    """The eviction or deletion of a pod.

    Attributes:
        source: ``History``, ``Events`` or ``Condition``.
        by: who evicted the pod, as text for messages.
        time: when, in seconds since the epoch; ``None`` if unknown.
        reason: the reason code.
        message: the details, with the values that were compared.
        controller: the controller of trimtab; empty if it was another program.
        policy: the policy.
        strategy: the strategy of the policy.
        uid: the UID of the evicted pod; empty if unknown.
        owner: the pod's controller, as ``Kind/name``; empty if unknown.
        node: the node from which the pod was evicted.
        target: the node on which the plan reserved capacity for the replacement.
    """

    source: str
    by: str
    time: float | None
    reason: str
    message: str = ""
    controller: str = ""
    policy: str = ""
    strategy: str = ""
    uid: str = ""
    owner: str = ""
    node: str = ""
    target: str = ""


def entries_of_pod(history: Iterable[HistoryEntry], namespace: str, name: str) -> tuple[HistoryEntry, ...]:
    """Return the recorded actions on pods of this name, the oldest first."""
    return tuple(
        each for each in history if (each.namespace, each.pod) == (namespace, name) and each.action in _POD_ACTIONS
    )


def find_eviction(
    entries: Sequence[HistoryEntry],
    events: Sequence[Mapping[str, Any]],
    pod: Pod | None,
    *,
    name: str,
    uid: str | None = None,
) -> Eviction | None:
    """Return the last eviction of a pod, or ``None`` if there is no sign of one.

    Args:
        entries: the recorded actions on pods of this name, see :func:`entries_of_pod`.
        events: the events of pods of this name, as manifests of events.k8s.io/v1 or v1.
        pod: the pod, if it still exists.
        name: the pod's name.
        uid: only evictions of the pod with this UID, or of an unknown UID; ``None`` for all pods of this name.
    """
    done = [each for each in entries if each.result in _DONE and uid in (None, each.uid)]
    if done:
        return _of_entry(done[-1])
    found = [each for each in map(_of_event, events) if each is not None and uid in (None, "", each.uid)]
    if found:
        last = max(found, key=lambda each: each.time or 0.0)
        return last if last.owner else _with_owner(last, pod, name)
    return None if pod is None else _of_condition(pod)


def _of_entry(entry: HistoryEntry) -> Eviction:
    by = _CONTROLLERS.get(entry.controller, entry.controller)
    return Eviction(
        source="History",
        by=f"{by} {entry.policy}".strip() if entry.controller in ("descheduler", "pressure") else by,
        time=entry.time.timestamp(),
        reason=entry.reason,
        message=entry.message,
        controller=entry.controller,
        policy=entry.policy,
        strategy=entry.strategy,
        uid=entry.uid,
        owner=entry.owner,
        node=entry.node,
        target=entry.target,
    )


def _of_event(event: Mapping[str, Any]) -> Eviction | None:
    """Return the eviction that an event reports; ``None`` if it reports something else."""
    reason, action = str(event.get("reason") or ""), str(event.get("action") or "")
    reporter = str(event.get("reportingController") or event.get("reportingComponent") or "")
    regarding = event.get("regarding") or event.get("involvedObject") or {}
    related = event.get("related") or {}
    controller = ""
    if reporter == OURS:
        controller = _BY_REASON.get(reason) or _OUR_ACTIONS.get(action, "")
        if not controller or (event.get("type") != "Normal" and reason not in _BY_REASON):
            return None
        by = f"{_CONTROLLERS[controller]} of trimtab" if controller != "descheduler" else "descheduler of trimtab"
    elif reason in _FOREIGN_REASONS:
        by = _FOREIGN_REASONS[reason]
    else:
        return None
    return Eviction(
        source="Events",
        by=by,
        time=_event_time(event),
        reason=reason,
        message=str(event.get("note") or event.get("message") or ""),
        controller=controller,
        uid=str(regarding.get("uid") or ""),
        node=str(related.get("name") or "") if related.get("kind") == "Node" else "",
    )


def _event_time(event: Mapping[str, Any]) -> float | None:
    series = event.get("series") or {}
    times = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp") or event.get("deprecatedLastTimestamp"),
        event.get("eventTime"),
        (event.get("metadata") or {}).get("creationTimestamp"),
    )
    for text in times:
        if isinstance(text, str):
            try:
                return datetime.fromisoformat(text).timestamp()
            except ValueError:
                continue
    return None


def _with_owner(eviction: Eviction, pod: Pod | None, name: str) -> Eviction:
    """Add the owner to an eviction, because events do not contain it.

    The owner of a pod that no longer exists is only known by the rule that controllers name pods after it.
    """
    from msgspec.structs import replace

    controller = None if pod is None else pod.controller
    if controller is not None:
        return replace(eviction, owner=controller.qualified_name)
    return replace(eviction, owner=f"/{name.rpartition('-')[0]}") if "-" in name else eviction


def _of_condition(pod: Pod) -> Eviction | None:
    from trimtab.cluster.disruption_signals import DISRUPTION_TARGET

    for each in pod.conditions:
        if each.type == DISRUPTION_TARGET and each.status == "True":
            controller = pod.controller
            return Eviction(
                source="Condition",
                by=_BY_CONDITION.get(each.reason, each.reason),
                time=each.since,
                reason=each.reason,
                message=each.message,
                uid=pod.uid,
                owner="" if controller is None else controller.qualified_name,
                node=pod.node,
            )
    return None


def find_replacement(snapshot: Snapshot, eviction: Eviction, *, namespace: str) -> Pod | None:
    """Return the pod that replaced an evicted one: the first pod of the same owner that was created after it.

    A pod on the node that was reserved for the replacement is preferred. A rollout replaces the pods of a ReplicaSet
    with pods of another ReplicaSet of the same Deployment.

    Args:
        snapshot: the cluster.
        eviction: the eviction.
        namespace: the namespace of the evicted pod.
    """
    if eviction.time is None or not eviction.owner:
        return None
    kind, _, owner = eviction.owner.partition("/")
    since = float(int(eviction.time))  # the API server stores creation times in whole seconds
    later = [
        pod
        for pod in snapshot.pods.values()
        if pod.namespace == namespace
        and pod.uid != eviction.uid
        and pod.created is not None
        and pod.created >= since
        and pod.controller is not None
        and (kind in ("", pod.controller.qualified_kind))
    ]
    same = [pod for pod in later if pod.controller is not None and pod.controller.name == owner]
    if not same and kind == "ReplicaSet":
        deployment = owner.rpartition("-")[0]
        same = [pod for pod in later if pod.controller and pod.controller.name.rpartition("-")[0] == deployment]
    time = eviction.time

    def order(pod: Pod) -> tuple[bool, bool, float, float, str]:
        """Sort pods that were certainly created later before those that were created in the same second."""
        created = pod.created or 0.0
        before = created < time  # in the same second: it may be an older pod, so the one that started last comes first
        started = float("inf") if pod.started is None else pod.started
        return pod.node != eviction.target, before, -started if before else created, created, pod.key

    return min(same, key=order, default=None)


def eviction_document(eviction: Eviction, replacement: Pod | None) -> Document:
    """Return an eviction as a JSON document."""
    from trimtab.api.plan import rfc3339

    return {
        "by": eviction.by,
        "controller": eviction.controller,
        "policy": eviction.policy,
        "strategy": eviction.strategy,
        "reason": eviction.reason,
        "message": eviction.message,
        "time": None if eviction.time is None else rfc3339(eviction.time),
        "node": eviction.node,
        "target": eviction.target,
        "source": eviction.source,
        "replacement": None
        if replacement is None
        else {
            "pod": replacement.key,
            "node": replacement.node or None,
            "phase": replacement.phase,
            "created": None if replacement.created is None else rfc3339(replacement.created),
        },
    }


def entry_document(entry: HistoryEntry) -> Document:
    """Return a recorded action on a pod as a JSON document."""
    from trimtab.api.plan import rfc3339

    return {
        "time": rfc3339(entry.time.timestamp()),
        "action": entry.action,
        "result": entry.result,
        "controller": entry.controller,
        "policy": entry.policy,
        "strategy": entry.strategy,
        "reason": entry.result_reason or entry.reason,
        "message": entry.result_message or entry.message,
    }
