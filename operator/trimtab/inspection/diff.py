"""Compares a cluster at two times: nodes, pods, PodDisruptionBudgets, node groups, policies and plans.

Example::

    document = diff(yesterday, today)
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from trimtab.api.base import API_VERSION
from trimtab.api.bounds import plural
from trimtab.api.plan import rfc3339
from trimtab.inspection.planning import joint_plan
from trimtab.kube.objects import AnyMachineSet, ClusterMachineSet, MachineDeployment, MachinePool, MachineSet, Node, Pod
from trimtab.kube.rules.taints import format_taint

if TYPE_CHECKING:
    from trimtab.cluster.snapshot import Snapshot
    from trimtab.inspection.cluster import ClusterInput, PolicySet

Document = dict[str, Any]
Changes = list[Document]


def diff(before: ClusterInput, after: ClusterInput) -> Document:
    """Return what changed between two times.

    Objects are ordered by name. Each change of a field has its path, and its value before and after; a value is
    ``None`` if the field did not exist.

    Args:
        before: the cluster and its policies at the earlier time.
        after: the cluster and its policies at the later time.
    """
    nodes = _objects(_nodes(before.snapshot), _nodes(after.snapshot), "node")
    pods = _pods(before.snapshot.pods, after.snapshot.pods)
    parts = {
        "nodes": nodes,
        "pods": pods,
        "budgets": _objects(_budgets(before.snapshot), _budgets(after.snapshot), "pdb"),
        "nodeGroups": _objects(_node_groups(before.snapshot), _node_groups(after.snapshot), "nodeGroup"),
        "policies": _objects(_policies(before.policies), _policies(after.policies), "policy"),
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "Diff",
        "before": {"source": before.source, "time": rfc3339(before.now)},
        "after": {"source": after.source, "time": rfc3339(after.now)},
        "message": _summary(parts),
        **parts,
        "totals": {"before": _totals(before.snapshot), "after": _totals(after.snapshot)},
        "plan": _plans(before, after),
    }


def _summary(parts: Mapping[str, Changes]) -> str:
    nouns = {
        "nodes": "node",
        "pods": "pod",
        "budgets": "PodDisruptionBudget",
        "nodeGroups": "node group",
        "policies": "policy object",
    }
    found = []
    for part, changes in parts.items():
        counts = Counter(each["change"] for each in changes)
        found += [f"{plural(count, nouns[part])} {change.lower()}" for change, count in sorted(counts.items())]
    return ", ".join(found) or "nothing changed"


def _objects(before: Mapping[str, Any], after: Mapping[str, Any], key: str) -> Changes:
    found: Changes = []
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after:
            found.append({key: name, "change": "Added" if name in after else "Removed"})
        elif fields := _fields("", before[name], after[name]):
            found.append({key: name, "change": "Changed", "fields": fields})
    return found


def _fields(path: str, before: Any, after: Any) -> Changes:
    """Return the differences of two JSON values by path. Lists are compared as a whole."""
    if before == after:
        return []
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return [{"field": path, "before": before, "after": after}]
    found = []
    for key in sorted(before.keys() | after.keys()):
        inner = f"{path}.{key}" if path else key
        found += _fields(inner, before.get(key), after.get(key))
    return found


def _nodes(snapshot: Snapshot) -> dict[str, Document]:
    return {node.name: _node(node) for node in snapshot.nodes.at if node is not None}


def _node(node: Node) -> Document:
    return {
        "labels": dict(node.labels),
        "taints": sorted(format_taint(taint) for taint in node.taints),
        "unschedulable": node.unschedulable,
        "ready": node.ready,
        "allocatable": dict(node.allocatable),
    }


def _pods(before: Mapping[str, Pod], after: Mapping[str, Pod]) -> Changes:
    """Return the changed pods, ordered by their controller. A pod that was replaced under its name counts as moved."""
    found: Changes = []
    for key in sorted(before.keys() | after.keys(), key=lambda key: (_owner(after.get(key) or before[key]), key)):
        old, new = before.get(key), after.get(key)
        head = {"pod": key, "owner": _owner(new or before[key])}
        if old is None or new is None:
            change = "Added" if new is not None else "Removed"
            found.append({**head, "change": change, "node": (new or before[key]).node})
        elif old.node != new.node:
            found.append({**head, "change": "Moved", "from": old.node, "to": new.node})
        elif old.restarts < new.restarts:
            found.append({**head, "change": "Restarted", "node": new.node, "restarts": new.restarts - old.restarts})
        elif (old.phase, old.ready) != (new.phase, new.ready):
            state = {"phase": new.phase, "ready": new.ready}
            fields = _fields("", {"phase": old.phase, "ready": old.ready}, state)
            found.append({**head, "change": "Changed", "node": new.node, "fields": fields})
    return found


def _owner(pod: Pod) -> str:
    """Return the pod's controller as ``namespace/Kind/name``; the namespace for a bare pod."""
    controller = pod.controller
    return pod.namespace if controller is None else f"{pod.namespace}/{controller.qualified_name}"


def _budgets(snapshot: Snapshot) -> dict[str, Document]:
    return {
        key: {
            "disruptionsAllowed": budget.disruptions_allowed,
            "currentHealthy": budget.current_healthy,
            "desiredHealthy": budget.desired_healthy,
            "expectedPods": budget.expected_pods,
        }
        for key, budget in snapshot.budgets.items()
    }


def _node_groups(snapshot: Snapshot) -> dict[str, Document]:
    objects = snapshot.objects
    groups: Iterable[AnyMachineSet] = itertools.chain(
        objects.of(MachineSet).values(),
        objects.of(MachineDeployment).values(),
        objects.of(ClusterMachineSet).values(),
        objects.of(MachinePool).values(),
    )
    return {f"{each.kind}/{each.namespace}/{each.name}": {"replicas": each.replicas} for each in groups}


def _policies(policies: PolicySet) -> dict[str, Document]:
    singles: tuple[Any, ...] = (policies.cluster_autoscaler, policies.taint_manager, policies.admission)
    several: tuple[Any, ...] = (
        *policies.descheduler,
        *policies.machine_autoscalers,
        *policies.schedulers,
        *policies.pressure,
    )
    found = {}
    for each in (*several, *filter(None, singles)):
        name = "/".join(filter(None, (each.kind, each.metadata.namespace, each.metadata.name)))
        found[name] = {"spec": msgspec.to_builtins(each.spec)}
    return found


def _totals(snapshot: Snapshot) -> Document:
    """Return the numbers of nodes and pods, and what is allocatable and requested by pods on nodes, by resource."""
    allocatable: Counter[str] = Counter()
    requested: Counter[str] = Counter()
    nodes = [node for node in snapshot.nodes.at if node is not None]
    for node in nodes:
        allocatable.update({name: node.allocatable.get(name, 0) for name in ("cpu", "memory")})
    pods = [pod for pod in snapshot.pods.values() if not pod.terminal]
    for pod in pods:
        if pod.node:
            requested.update({name: pod.spec.requests.get(name, 0) for name in ("cpu", "memory")})
    return {
        "nodes": len(nodes),
        "readyNodes": sum(node.ready for node in nodes),
        "pods": len(pods),
        "pendingPods": sum(not pod.node for pod in pods),
        "utilization": {
            name: round(100 * requested[name] / allocatable[name], 1) for name in ("cpu", "memory") if allocatable[name]
        },
    }


def _plans(before: ClusterInput, after: ClusterInput) -> Document:
    """Return the planned actions that are new, and those that are not planned any more."""
    old, new = _actions(before), _actions(after)
    return {
        "new": [new[key] for key in sorted(new.keys() - old.keys())],
        "gone": [old[key] for key in sorted(old.keys() - new.keys())],
    }


def _actions(cluster: ClusterInput) -> dict[str, Document]:
    planned: Any = joint_plan(cluster).document()["actions"]
    actions = msgspec.to_builtins(planned)
    keys = ("action", "namespace", "pod", "node", "machineSet", "reason")
    return {" ".join(str(each.get(key, "")) for key in keys): each for each in actions}
