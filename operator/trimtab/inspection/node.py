"""Explains a node: its taints, pressure, deadlines, and whether scale-down removes it, as a JSON document."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trimtab.api.bounds import plural

if TYPE_CHECKING:
    from trimtab.api.node_pressure_policy import NodePressurePolicy
    from trimtab.api.plan import Plan
    from trimtab.api.taint_manager import TaintManager
    from trimtab.cluster.snapshot import Snapshot
    from trimtab.inspection.cluster import ClusterInput
    from trimtab.inspection.node_stats import NodeStats
    from trimtab.kube.objects import Node, Taint
    from trimtab.pressure.node_arithmetic import KubeletSettings
    from trimtab.pressure.preview import NodePressure

Document = dict[str, Any]

_PRESSURE: Final = "node-pressure controller of trimtab"
_LIFECYCLE: Final = "taint manager in TaintAndEvict mode, or kube-controller-manager"
_AUTHORS: Final = {
    "node.kubernetes.io/not-ready": _LIFECYCLE,
    "node.kubernetes.io/unreachable": _LIFECYCLE,
    "node.kubernetes.io/unschedulable": _LIFECYCLE,
    "node.kubernetes.io/memory-pressure": _LIFECYCLE,
    "node.kubernetes.io/disk-pressure": _LIFECYCLE,
    "node.kubernetes.io/pid-pressure": _LIFECYCLE,
    "node.kubernetes.io/network-unavailable": _LIFECYCLE,
    "node.kubernetes.io/out-of-service": "administrator",
    "node.cloudprovider.kubernetes.io/uninitialized": "kubelet; the cloud controller manager removes it",
    "ToBeDeletedByClusterAutoscaler": "cluster autoscaler",
    "DeletionCandidateOfClusterAutoscaler": "cluster autoscaler",
    "karpenter.sh/disrupted": "karpenter",
    "karpenter.sh/disruption": "karpenter",
    "pressure.trimtab.dev/memory": _PRESSURE,
    "pressure.trimtab.dev/disk": _PRESSURE,
    "pressure.trimtab.dev/pid": _PRESSURE,
}
"""The programs that add taints, by key. Other taints are added by users or by their programs."""

_REMOVING: Final = "trimtab.dev/removing"
_CORDONED_BY: Final = "trimtab.dev/cordoned-by"


def explain_node(
    cluster: ClusterInput, name: str, *, settings: KubeletSettings | None = None, plan: Plan | None = None
) -> Document:
    """Return what is known about a node, ready for JSON.

    Args:
        cluster: the cluster. Its ``managed_fields`` show who changed the node last.
        name: the name of an existing node.
        settings: the settings of the node's kubelet, if they are known.
        plan: the joint plan of the cluster, if the caller has made it already.
    """
    snapshot, now = cluster.snapshot, cluster.now
    changes = FieldChanges(cluster.managed_fields.get(("Node", name), ()))
    node = snapshot.nodes.node(snapshot.nodes.slot_of[name])
    of_node = _pressure_of(cluster, name)
    policy = next(
        (each for each in cluster.policies.pressure if of_node is not None and each.name == of_node.policy), None
    )
    document: Document = {
        "node": name,
        "ready": node.ready,
        "deleted": _time(node.deleted),
        "cordon": _cordon(node, changes),
        "taints": [_taint(each, node) for each in node.taints],
        "taintsChanged": changes.last_change("f:spec", "f:taints"),
        "conditions": _conditions(node, changes),
        "resources": _resources(snapshot, node, policy, settings),
        "pressure": None if of_node is None else msgspec.to_builtins(of_node),
        "oom": _oom(snapshot, node, cluster.stats),
        "scaleDown": _scale_down(cluster, name),
        "deadlines": deadlines_on(snapshot, node, cluster.policies.taint_manager, now=now),
        "leaving": _leaving(snapshot, node),
        **_node_group(cluster, name),
        "wouldMove": _would_move(cluster, name) if plan is None else moves_from(plan, name),
        "history": _history(cluster, name),
    }
    return {"node": name, "message": _message(document), **document}


def _time(at: float | None) -> str | None:
    from trimtab.api.plan import rfc3339

    return None if at is None else rfc3339(at)


def _cordon(node: Node, changes: FieldChanges) -> Document | None:
    if not node.unschedulable:
        return None
    by = node.annotations.get(_CORDONED_BY)
    return {
        "by": f"{by} of trimtab" if by else "administrator",
        "changed": changes.last_change("f:spec", "f:unschedulable"),
    }


def _taint(taint: Taint, node: Node) -> Document:
    author = _AUTHORS.get(taint.key, "")
    if taint.key == "ToBeDeletedByClusterAutoscaler":
        ours = node.annotations.get(_REMOVING) == taint.value
        author = "cluster autoscaler of trimtab" if ours else "another cluster autoscaler"
    return {
        "key": taint.key,
        "value": taint.value,
        "effect": taint.effect,
        "timeAdded": _time(taint.time_added),
        "addedBy": author,
    }


def _conditions(node: Node, changes: FieldChanges) -> list[Document]:
    return [
        {
            "type": each.type,
            "status": each.status,
            "reason": each.reason,
            "since": _time(each.since),
            "changed": changes.last_change("f:status", "f:conditions", f'k:{{"type":"{each.type}"}}'),
        }
        for each in node.conditions
    ]


def _resources(
    snapshot: Snapshot, node: Node, policy: NodePressurePolicy | None, settings: KubeletSettings | None
) -> list[Document]:
    """Return the arithmetic of allocatable memory and storage, with the room for daemons at each threshold."""
    from trimtab.api.node_pressure_policy import NodePressurePolicySpec
    from trimtab.pressure.node_arithmetic import RESERVED_SIGNALS, KubeletSettings, reservation_of
    from trimtab.pressure.ranking import EPHEMERAL_STORAGE, MEMORY
    from trimtab.pressure.thresholds import kubelet_thresholds, thresholds_of

    spec = NodePressurePolicySpec() if policy is None else policy.spec
    assumed = settings or KubeletSettings(eviction_hard={each.signal: each.value for each in kubelet_thresholds(spec)})
    requested = _requested(snapshot, node.name)
    found = []
    for resource in (MEMORY, EPHEMERAL_STORAGE):
        reservation = reservation_of(node, resource, assumed, known=settings is not None)
        if reservation is None:
            continue
        signal = RESERVED_SIGNALS[resource]
        values = [
            *(("Kubelet", True, value) for each, value in assumed.eviction_hard.items() if each == signal),
            *(("Kubelet", False, value) for each, value in assumed.eviction_soft.items() if each == signal),
            *(
                (f"NodePressurePolicy {policy.name}", each.hard, each.value)
                for each in (() if policy is None else thresholds_of(spec))
                if policy is not None and each.signal == signal
            ),
        ]
        found.append(
            {
                "resource": resource,
                "capacity": reservation.capacity,
                "allocatable": reservation.allocatable,
                "requested": requested.get(resource, 0),
                "reserved": reservation.reserved,
                "evictionThreshold": reservation.eviction,
                "systemReserved": reservation.system_reserved,
                "kubeReserved": reservation.kube_reserved,
                "hugePages": reservation.huge_pages,
                "daemons": reservation.daemons,
                "expectedAllocatable": reservation.expected,
                "thresholds": [
                    {
                        "signal": signal,
                        "by": by,
                        "hard": hard,
                        "value": value.of(reservation.capacity),
                        "daemonRoom": reservation.daemon_room(value.of(reservation.capacity)),
                    }
                    for by, hard, value in values
                ],
            }
        )
    return found


def _requested(snapshot: Snapshot, name: str) -> dict[str, int]:
    total: dict[str, int] = {}
    for pod in snapshot.pods_on(name):
        if not pod.terminal:
            for resource, amount in pod.spec.requests.items():
                total[resource] = total.get(resource, 0) + amount
    return total


def _pressure_of(cluster: ClusterInput, name: str) -> NodePressure | None:
    """Return the pressure of the node; ``None`` if neither a policy selects it nor its stats are known."""
    from trimtab.disruption.budgets import BudgetLedger
    from trimtab.pressure.preview import describe_without_policy, plan_pressure

    snapshot, now = cluster.snapshot, cluster.now
    readings = cluster.stats.readings(snapshot, now=now)
    made = plan_pressure(snapshot, cluster.policies.pressure, readings, now=now, only=name)
    if made.nodes or name not in readings:
        return next(iter(made.nodes), None)
    node = snapshot.nodes.node(snapshot.nodes.slot_of[name])
    return describe_without_policy(node, snapshot.pods_on(name), readings[name], BudgetLedger(snapshot), now=now)


def _oom(snapshot: Snapshot, node: Node, stats: NodeStats) -> list[Document]:
    """Return the containers in the order in which the kernel would kill them."""
    from trimtab.pressure.node_arithmetic import oom_order
    from trimtab.pressure.ranking import MEMORY

    capacity = node.capacity.get(MEMORY, 0)
    if capacity <= 0:
        return []
    return [
        {
            "pod": each.pod,
            "container": each.container,
            "qos": each.qos,
            "memoryRequest": each.request,
            "oomScoreAdj": each.adjustment,
            "residentMemory": each.usage,
            "oomScore": each.score,
        }
        for each in oom_order(snapshot.pods_on(node.name), capacity, stats.resident_memory(node.name))
    ]


def _scale_down(cluster: ClusterInput, name: str) -> Document:
    from trimtab.api.reasons import NOT_AUTOSCALED
    from trimtab.autoscaling.cluster_state import inputs_from_status
    from trimtab.autoscaling.scale_down.removal_verdict import removal_verdict

    if cluster.policies.cluster_autoscaler is None:
        message = "there is no ClusterAutoscaler, so no node is removed"
        return {
            "removable": False,
            "reason": NOT_AUTOSCALED,
            "message": message,
            "blockers": [{"reason": NOT_AUTOSCALED, "pod": "", "message": message}],
        }
    snapshot, inputs = cluster.snapshot, cluster.policies.autoscaling_inputs(now=cluster.now)
    found = removal_verdict(snapshot, inputs_from_status(snapshot, inputs), name)
    return {
        "removable": found.removable,
        "reason": found.reason,
        "message": found.message,
        "blockers": [{"reason": each.reason, "pod": each.pod, "message": each.message} for each in found.blockers],
    }


MAX_HISTORY: Final = 10
"""Maximum number of recorded actions on a node."""


def _node_group(cluster: ClusterInput, name: str) -> Document:
    """Return the node's group, its price, and its utilization compared with the threshold of scale-down.

    ``nodeGroup`` and ``utilization`` are ``None`` for a node of no group. ``hourlyCost`` is omitted without a price.
    """
    from trimtab.autoscaling.scale_down.eligibility import threshold_of, utilization
    from trimtab.autoscaling.scale_up.expanders import price_of

    inputs = cluster.policies.autoscaling_inputs(now=cluster.now)
    group = inputs.node_groups(cluster.snapshot).group_of(name)
    if group is None:
        return {"nodeGroup": None, "utilization": None}
    slot = cluster.snapshot.nodes.slot_of[name]
    used = utilization(cluster.snapshot, inputs.spec, now=cluster.now)
    threshold = threshold_of(inputs.spec, group.options, gpu=used.on_gpus(slot))
    share = used.of(slot)
    document: Document = {
        "nodeGroup": group.key,
        "utilization": {
            "value": round(share, 6) if math.isfinite(share) else None,
            "threshold": threshold,
            "message": used.describe(slot),
        },
    }
    price = price_of(group)
    return document if price is None else {**document, "hourlyCost": round(float(price), 6)}


def _would_move(cluster: ClusterInput, name: str) -> list[Document]:
    from trimtab.inspection.planning import joint_plan

    policies = cluster.policies
    if not (policies.descheduler or policies.autoscaled or policies.schedulers or policies.pressure):
        return []
    return moves_from(joint_plan(cluster), name)


def moves_from(plan: Plan, name: str) -> list[Document]:
    """Return the pods that a plan evicts, preempts or moves from a node, in the order of the plan."""
    from trimtab.api.plan import Evict, Preempt, RemoveNode

    found = []
    for action in (*(plan.scaling or ()), *(plan.scheduling or ()), *plan.actions):
        if isinstance(action, RemoveNode) and action.node == name:
            found += [
                _move(each.pod, "ClusterAutoscaler default", "ScaleDown", each.target, action.reason, action.message)
                for each in action.moves
            ]
        elif isinstance(action, Evict) and action.node == name:
            by = f"{'NodePressurePolicy' if action.strategy == 'NodePressure' else 'DeschedulerPolicy'} {action.policy}"
            found.append(_move(action.key, by, action.strategy, action.target, action.reason, action.message))
        elif isinstance(action, Preempt) and action.node == name:
            pod = f"{action.namespace}/{action.pod}"
            found.append(_move(pod, f"SchedulerPolicy {action.policy}", "Preempt", "", action.reason, action.message))
    return found


def _move(pod: str, by: str, strategy: str, target: str, reason: str, message: str) -> Document:
    return {"pod": pod, "by": by, "strategy": strategy, "target": target, "reason": reason, "message": message}


def _history(cluster: ClusterInput, name: str) -> list[Document]:
    """Return the last recorded actions on the node and on its pods, the latest first."""
    from trimtab.inspection.status import action_document

    found = [entry for entry in reversed(cluster.history) if name in (entry.node, entry.target)]
    return [action_document(entry) for entry in found[:MAX_HISTORY]]


KUBE_CONTROLLER_MANAGER: Final = "kube-controller-manager"


def deadline_enforcer(manager: TaintManager | None) -> str:
    """Return what evicts pods at their deadlines: a TaintManager, unless it only observes."""
    from trimtab.api.taint_manager import OBSERVE

    return (
        KUBE_CONTROLLER_MANAGER if manager is None or manager.spec.mode == OBSERVE else f"TaintManager {manager.name}"
    )


def deadlines_on(snapshot: Snapshot, node: Node, manager: TaintManager | None, *, now: float) -> list[Document]:
    """Return the pods that NoExecute taints evict from the node, the earliest deadline first."""
    from trimtab.api.plan import rfc3339
    from trimtab.api.taint_manager import EVICT
    from trimtab.kube.rules.taints import format_taint
    from trimtab.tainting.deadlines import TolerationRule, deadlines, describe_deadline, observe_taints
    from trimtab.tainting.preview import is_assumed, recorded_taints

    rule = TolerationRule(first=True) if manager is None else TolerationRule.of(manager.spec)
    evicted = {each.key for each in manager.spec.taints if each.policy == EVICT} if manager is not None else set()
    recorded = (
        {} if manager is None else recorded_taints(snapshot, manager.status.next_deadlines, manager.spec, now=now)
    )
    observed = observe_taints(node, recorded.get(node.name), now=now)
    enforcer = deadline_enforcer(manager)
    if enforcer == KUBE_CONTROLLER_MANAGER:
        evicted = set()  # it always deletes pods
    assumed = {each.taint for each in observed.observed if is_assumed(each, now=now)}
    found = deadlines(snapshot.items_on(node.name), {node.name: observed}, rule, now=now)
    return [
        {
            "pod": each.key,
            "due": rfc3339(math.ceil(max(each.due, now))),
            "how": "Evict" if each.taint.key in evicted else "Delete",
            "taint": format_taint(each.taint),
            "by": enforcer,
            "message": describe_deadline(each, assumed=each.taint in assumed and each.since == now),
        }
        for each in sorted(found.values(), key=lambda each: (max(each.due, now), each.key))
    ]


def _leaving(snapshot: Snapshot, node: Node) -> list[Document]:
    """Return the pods that are terminating, or whose eviction was requested, and by which controller if it is known."""
    from trimtab.cluster.disruption_signals import DISRUPTION_TARGET
    from trimtab.pressure.state import ANNOTATION, decode_state

    evicting = decode_state(node.annotations.get(ANNOTATION)).evicting
    found = []
    for pod in snapshot.pods_on(node.name):
        if pod.terminal:
            continue
        target = next(
            (each for each in pod.conditions if each.type == DISRUPTION_TARGET and each.status == "True"), None
        )
        if pod.deleted is None and target is None:
            continue
        found.append(
            {
                "pod": pod.key,
                "by": _PRESSURE if pod.uid == evicting else "",
                "graceEnds": _time(pod.deleted),
                "reason": "" if target is None else target.reason,
                "message": "" if target is None else target.message,
                "since": None if target is None else _time(target.since),
            }
        )
    return found


def _message(document: Document) -> str:
    """Return the state of the node in one sentence."""
    parts = ["ready" if document["ready"] else "not ready"]
    if document["deleted"]:
        parts.append("being deleted")
    if document["cordon"]:
        parts.append("cordoned")
    pressure = document["pressure"]
    if pressure is not None and pressure.get("conditions"):
        parts.append(f"under pressure ({', '.join(pressure['conditions'])})")
    if document["scaleDown"]["removable"]:
        parts.append("removable by scale-down")
    due, leaving = len(document["deadlines"]), len(document["leaving"])
    if due:
        parts.append(f"{plural(due, 'pod')} with a deadline")
    if leaving:
        parts.append(f"{plural(leaving, 'pod')} leaving")
    return ", ".join(parts)


# --- managedFields ----------------------------------------------------------------------------------------------------


class FieldChanges:
    """Which client changed the fields of an object last, and when.

    Args:
        entries: the managedFields of the object; empty if they are not known.
    """

    def __init__(self, entries: Sequence[Mapping[str, Any]]) -> None:
        self._entries = entries

    def last_change(self, *path: str) -> Document | None:
        """Return the manager that changed a field last and the time of its last change to the object, or ``None``.

        A manager has one time for all its fields, so the field may have been changed earlier.
        """
        found = [each for each in self._entries if _has_path(each.get("fieldsV1"), path)]
        if not found:
            return None
        latest = max(found, key=lambda each: str(each.get("time", "")))
        return {"manager": str(latest.get("manager", "")), "time": str(latest.get("time", ""))}


def _has_path(value: Any, path: Sequence[str]) -> bool:
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return False
        value = value[key]
    return True
