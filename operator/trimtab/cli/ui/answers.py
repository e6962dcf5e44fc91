"""Answers of the page: search results, and explanations of single objects."""

from __future__ import annotations

from collections.abc import Callable
from heapq import nsmallest
from typing import Any, Final

from trimtab.api.plan import Plan, rfc3339
from trimtab.cli.ui.sources import without_omitted
from trimtab.inspection.budget import explain_pdb
from trimtab.inspection.cluster import ClusterInput
from trimtab.inspection.node import explain_node
from trimtab.inspection.node_group import explain_node_group
from trimtab.inspection.planning import joint_plan
from trimtab.inspection.pod import explain_pod
from trimtab.inspection.policy import explain_policy, policy_names
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Pod

MAX_RESULTS: Final = 30
MAX_PODS: Final = 300
"""Maximum numbers of search results of each kind, and of pods of a node."""

Document = dict[str, Any]


def search(cluster: ClusterInput, text: str) -> Document:
    """Return nodes, pods and node groups whose name contains every word of the text.

    Names that begin with the text come first. Pods are found by ``namespace/name``, nodes also by their labels' values.

    Args:
        cluster: the cluster.
        text: the words, separated by spaces; case is ignored.
    """
    words = text.lower().split()
    if not words:
        return {"nodes": [], "pods": [], "groups": []}
    snapshot = cluster.snapshot
    groups = cluster.policies.autoscaling_inputs(now=cluster.now).node_groups(snapshot)

    def found(names: Any) -> list[str]:
        matching = (name for name in names if all(word in name.lower() for word in words))
        return nsmallest(MAX_RESULTS, matching, key=lambda name: (_rank(name.lower(), words[0]), name))

    return {
        "nodes": found(snapshot.nodes.slot_of),
        "pods": [{"pod": key, "node": snapshot.pods[key].node} for key in found(snapshot.pods)],
        "groups": found(each.key for each in groups.all),
    }


def _rank(name: str, word: str) -> int:
    return 0 if name.startswith(word) or name.rpartition("/")[2].startswith(word) else 1


def explain(cluster: ClusterInput, kind: str, name: str, *, plan: Plan | None = None) -> Document:
    """Explain one object.

    Args:
        cluster: the cluster. Its snapshot is unchanged afterwards.
        kind: ``node``, ``pod``, ``nodegroup``, ``pdb`` or ``policy``.
        name: its name; ``namespace/name`` of a pod, node group or PodDisruptionBudget, ``Kind/name`` of a policy.
        plan: the last joint plan, so that no explanation has to make it again.

    Raises:
        InputError: the object does not exist, or this kind is not explained.
    """
    answer = EXPLAINED.get(kind)
    if answer is None:
        raise InputError(f"cannot be explained; the page explains: {', '.join(EXPLAINED)}", object=kind)
    found = answer(cluster, name, plan)
    if found is None:
        raise InputError("not found; it may have been deleted", object=f"{kind}/{name}")
    return found


def _node(cluster: ClusterInput, name: str, plan: Plan | None) -> Document | None:
    del plan
    node = cluster.snapshot.nodes.get(name)
    if node is None:
        return None
    pods = cluster.snapshot.pods_on(name)
    return {
        **explain_node(cluster, name),
        "labels": dict(sorted(node.labels.items())),
        "pods": [_pod_row(pod) for pod in pods[:MAX_PODS]],
        "podsTotal": len(pods),
    }


def _pod_row(pod: Pod) -> Document:
    return {
        "pod": pod.key,
        "phase": "Terminating" if pod.deleted is not None else pod.phase or "Pending",
        "ready": pod.ready,
        "created": None if pod.created is None else rfc3339(pod.created),
    }


def _pod(cluster: ClusterInput, key: str, plan: Plan | None) -> Document | None:
    namespace, _, name = key.partition("/")
    return explain_pod(cluster, namespace, name, plan=plan)


def _node_group(cluster: ClusterInput, key: str, plan: Plan | None) -> Document | None:
    del plan
    groups = cluster.policies.autoscaling_inputs(now=cluster.now).node_groups(cluster.snapshot)
    found = next((each.id for each in groups.all if key in (each.id, each.key)), None)
    return None if found is None else explain_node_group(cluster, found)


def _pdb(cluster: ClusterInput, key: str, plan: Plan | None) -> Document | None:
    namespace, _, name = key.partition("/")
    return explain_pdb(cluster, namespace, name, plan=plan) if key in cluster.snapshot.budgets else None


def _policy(cluster: ClusterInput, key: str, plan: Plan | None) -> Document | None:
    """Explain a custom resource, with one example for each reason why candidates are kept."""
    kind, _, name = key.partition("/")
    if (kind, name) not in policy_names(cluster):
        return None
    planned, omitted = without_omitted(cluster)
    found = explain_policy(cluster, kind, name, plan=joint_plan(planned) if plan is None else plan)
    if kind in omitted:  # see without_omitted
        message = f"this page does not plan for this kind; trimtab explain policy {kind.lower()}/{name} does"
        return {key: each for key, each in found.items() if key not in _OF_PLAN} | {"message": message}
    total = len(found["actions"]) + found.pop("actionsOmitted")
    return {
        **found,
        "actions": [_with_key(each) for each in found["actions"]],
        "actionsTotal": total,
        "kept": [{**each, "examples": each["examples"][0]["object"]} for each in found["kept"]],
    }


_OF_PLAN: Final = frozenset(("planned", "actions", "actionsOmitted", "kept"))


def _with_key(action: Document) -> Document:
    """Return an action with the pod as ``namespace/name``, and without the policy, which the title contains."""
    rest = {key: value for key, value in action.items() if key not in ("namespace", "policy", "moves", "pods")}
    return {**rest, "pod": f"{action['namespace']}/{action['pod']}"} if "pod" in action else rest


EXPLAINED: Final[dict[str, Callable[[ClusterInput, str, Plan | None], Document | None]]] = {
    "node": _node,
    "pod": _pod,
    "nodegroup": _node_group,
    "pdb": _pdb,
    "policy": _policy,
}
"""The function that explains each kind of object, or returns ``None`` if the object does not exist."""
