"""Explains a pod: why it is pending, what would make it leave its node, or who evicted it, as a JSON document.

Example::

    document = explain_pod(cluster, "shop", "web-1")
    print(document["summary"])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from trimtab.inspection.pod_eviction import (
    entries_of_pod,
    entry_document,
    eviction_document,
    find_eviction,
    find_replacement,
)
from trimtab.inspection.pod_node_groups import advise_on_node_groups

if TYPE_CHECKING:
    from trimtab.api.plan import Plan
    from trimtab.inspection.cluster import ClusterInput
    from trimtab.inspection.pod_node_groups import NodeGroupAdvice
    from trimtab.kube.objects import Pod
    from trimtab.placement.placer import Placer
    from trimtab.placement.registry import Profile

Document = dict[str, Any]

PENDING: Final = "Pending"
RUNNING: Final = "Running"
TERMINATING: Final = "Terminating"
GONE: Final = "Gone"

MAX_ALTERNATIVES: Final = 3
"""Maximum number of alternatives to the cheapest change."""

MAX_HISTORY: Final = 10
"""Maximum number of recorded actions on the pod."""

_ADDS_NODE: Final = "AddNode"
"""The remedy that adds a node like an existing one. A change of a node group that adds one replaces it."""


def explain_pod(
    cluster: ClusterInput,
    namespace: str,
    name: str,
    *,
    profile: Profile | None = None,
    events: Sequence[Mapping[str, Any]] = (),
    plan: Plan | None = None,
) -> Document | None:
    """Return what is known about a pod, ready for JSON; ``None`` if there is no trace of it.

    The document has the keys of :func:`trimtab.placement.explanation.explanation`, which evaluates the pod as if it
    were pending, and

    - ``summary``, the answer in one sentence;
    - ``state``: Pending, Running, Terminating or Gone, or Succeeded or Failed for a pod that has ended;
    - ``scheduling``: the scheduler, its policy, scheduling gates, the nominated node, and its last report;
    - ``preemption``: for a pending pod that fits on no node, the ``node`` and the ``victims`` that the scheduler would
      preempt now, or a ``message`` why it preempts none;
    - ``autoscaling`` and ``nodeGroups``: for a pending pod, what the autoscaler does and what each node group could do;
    - ``policies``, ``pdbs``, ``deadline`` and ``nodeRemoval``: for a pod with a node, what would make it leave;
    - ``eviction``: who evicted the pod, or an earlier pod of this name, when, why, and its ``replacement``;
    - ``history``: the recorded actions on pods of this name, the latest first.

    Args:
        cluster: the cluster with its policies and its history.
        namespace: the pod's namespace.
        name: the pod's name.
        profile: the filters and scores to evaluate; ``None`` for those of the SchedulerPolicy of the pod's scheduler,
            or else the default profile.
        events: the events of pods of this name, as manifests; only needed if there is no history.
        plan: the joint plan of the cluster, if the caller has made it already.
    """
    pod = cluster.snapshot.pods.get(f"{namespace}/{name}")
    if pod is None:
        return _gone(cluster, namespace, name, events)
    placer = _placer(cluster, pod, profile)
    document = _placement(cluster, pod, placer)
    if pod.deleted is not None and not pod.terminal:
        found = _terminating(cluster, pod, events)
    elif pod.terminal:
        found = _ended(cluster, pod, events)
    elif not pod.node:
        found = _pending(cluster, pod, document, placer)
    else:
        found = _running(cluster, pod, events, plan)
    return _complete(found, document, _history(cluster, namespace, name))


def _complete(found: Document, placement: Document, history: list[Document]) -> Document:
    """Return the complete document: all states have the same keys."""
    empty: Document = {
        "scheduling": None,
        "preemption": None,
        "autoscaling": None,
        "nodeGroups": [],
        "policies": [],
        "pdbs": [],
        "deadline": None,
        "nodeRemoval": None,
        "eviction": None,
    }
    head = {"summary": found.pop("summary"), "state": found.pop("state")}
    return {**head, **placement, **empty, **found, "history": history}


def _history(cluster: ClusterInput, namespace: str, name: str) -> list[Document]:
    entries = entries_of_pod(cluster.history, namespace, name)
    return [entry_document(each) for each in entries[: -MAX_HISTORY - 1 : -1]]


# --- placement --------------------------------------------------------------------------------------------------------


def _placer(cluster: ClusterInput, pod: Pod, profile: Profile | None) -> Placer:
    from trimtab.placement.placer import Placer
    from trimtab.placement.registry import DEFAULT

    return Placer(cluster.snapshot, profile or _policy_profile(cluster, pod) or DEFAULT)


def _placement(cluster: ClusterInput, pod: Pod, placer: Placer) -> Document:
    """Return on which nodes the pod fits. PodDisruptionBudgets protect pods from suggested evictions."""
    from trimtab.disruption.budgets import BudgetLedger
    from trimtab.placement.explanation import explanation

    ledger = BudgetLedger(cluster.snapshot)

    def protection(victim: Pod) -> str | None:
        refusal = ledger.refusal(victim)
        return None if refusal is None else refusal.message

    return explanation(placer, pod, protection)


def _preemption(cluster: ClusterInput, pod: Pod, placer: Placer) -> Document:
    """Return which pods the scheduler would preempt for a pod that fits on no node, if it scheduled the pod now."""
    from trimtab.scheduling.preemption import Preemption, PreemptionPlanner
    from trimtab.scheduling.reservations import Reservations

    profile = _policy_profile(cluster, pod)
    if profile is not None and not profile.preempts:
        message = f"spec.disablePreemption of SchedulerPolicy {_policy_name(cluster, pod)} is true"
        return {"node": None, "victims": [], "message": message}
    with cluster.snapshot.fork():
        reservations = Reservations(cluster.snapshot)
        for nominated in _nominated_before(cluster, pod):
            reservations.add(nominated, placer, cluster.snapshot.nodes.slot_of[nominated.nominated_node])
        found = PreemptionPlanner(cluster.snapshot, placer, reservations=reservations).plan(pod)
    if not isinstance(found, Preemption):
        return {"node": None, "victims": [], "message": found.message}
    victims = [
        {"pod": each.key, "priority": each.priority, "violatesBudget": each.key in found.violating}
        for each in found.victims
    ]
    message = "" if victims else "pods that are already terminating make enough room"
    return {"node": found.node, "victims": victims, "message": message}


def _nominated_before(cluster: ClusterInput, pod: Pod) -> list[Pod]:
    """Return the nominated pods whose capacity the pod's scheduler reserves before it plans the pod."""
    from trimtab.scheduling.planner import scheduler_of

    # All SchedulerPolicies share one queue. Another scheduler knows only its own pods.
    queue = {each.spec.scheduler_name for each in cluster.policies.schedulers}
    own = scheduler_of(pod)
    names = queue if own in queue else {own}
    return [
        each
        for _, each in cluster.snapshot.unbound()
        if each.nominated_node in cluster.snapshot.nodes.slot_of
        and each.priority >= pod.priority
        and each.key != pod.key
        and scheduler_of(each) in names
        and each.deleted is None
        and not each.terminal
    ]


def _policy_name(cluster: ClusterInput, pod: Pod) -> str | None:
    """Return the name of the SchedulerPolicy of the pod's scheduler; ``None`` if there is none."""
    from trimtab.scheduling.planner import scheduler_of

    wanted = scheduler_of(pod)
    return next((each.name for each in cluster.policies.schedulers if each.spec.scheduler_name == wanted), None)


def _policy_profile(cluster: ClusterInput, pod: Pod) -> Profile | None:
    from trimtab.scheduling.profiles import profile_of

    name = _policy_name(cluster, pod)
    return next((profile_of(each.spec) for each in cluster.policies.schedulers if each.name == name), None)


def _scheduling(cluster: ClusterInput, pod: Pod) -> Document:
    from trimtab.api.plan import rfc3339
    from trimtab.scheduling.planner import scheduler_of

    reported = next((each for each in pod.conditions if each.type == "PodScheduled" and each.status == "False"), None)
    return {
        "scheduler": scheduler_of(pod),
        "policy": _policy_name(cluster, pod),
        "gates": list(pod.spec.scheduling_gates),
        "nominatedNode": pod.nominated_node or None,
        "reported": None
        if reported is None
        else {
            "reason": reported.reason,
            "message": reported.message,
            "since": None if reported.since is None else rfc3339(reported.since),
        },
    }


# --- pending ----------------------------------------------------------------------------------------------------------


def _pending(cluster: ClusterInput, pod: Pod, placement: Document, placer: Placer) -> Document:
    preempts = not placement["fits"] and not pod.spec.scheduling_gates
    advice = advise_on_node_groups(cluster, pod)
    if advice is not None and not placement["fits"]:
        placement["remedy"] = _ranked_remedies(placement["remedy"], advice)
    return {
        "summary": f"{pod.key}: {_pending_text(pod, placement, advice)}",
        "state": PENDING,
        "scheduling": _scheduling(cluster, pod),
        "preemption": _preemption(cluster, pod, placer) if preempts else None,
        "autoscaling": None if advice is None else advice.autoscaling,
        "nodeGroups": [] if advice is None else list(advice.groups),
        "pdbs": [],
    }


def _ranked_remedies(remedy: Document | None, advice: NodeGroupAdvice) -> Document | None:
    """Merge the changes of pods and nodes with those of node groups, the cheapest first."""
    own = [] if remedy is None else [remedy, *remedy.get("alternatives", ())]
    if any(step["reason"] != "WaitForNode" for each in advice.remedies for step in each["steps"]):
        own = [each for each in own if each["reason"] != _ADDS_NODE]
    ranked = sorted((*advice.remedies, *own), key=lambda each: each["cost"])
    found = [{key: value for key, value in each.items() if key != "alternatives"} for each in ranked]
    return {**found[0], "alternatives": found[1 : 1 + MAX_ALTERNATIVES]} if found else None


def _pending_text(pod: Pod, placement: Document, advice: NodeGroupAdvice | None) -> str:
    if pod.nominated_node:
        return f"pending; {pod.nominated_node}, where other pods are being removed, is nominated for the pod"
    text = f"pending; {placement['message'].rstrip('.')}"
    if placement["fits"] or pod.spec.scheduling_gates or advice is None:
        return text
    planned = next((each for each in advice.groups if each["scaleUp"] is not None), None)
    if planned is not None:
        sizes = planned["scaleUp"]
        return f"{text}; the autoscaler scales up {planned['nodeGroup']} from {sizes['from']} to {sizes['to']}"
    reason = advice.autoscaling["reason"]
    return f"{text}; the autoscaler adds no node ({reason})" if reason else text


# --- running ----------------------------------------------------------------------------------------------------------


def _running(cluster: ClusterInput, pod: Pod, events: Sequence[Mapping[str, Any]], plan: Plan | None) -> Document:
    from trimtab.inspection.planning import joint_plan
    from trimtab.inspection.pod_verdicts import (
        budget_documents,
        deadline_document,
        policy_verdicts,
        removal_document,
    )

    made = joint_plan(cluster) if plan is None else plan
    verdicts = policy_verdicts(cluster, made, pod)
    deadline = deadline_document(cluster, made, pod)
    removal = removal_document(cluster, made, pod)
    entries = entries_of_pod(cluster.history, pod.namespace, pod.name)
    earlier = find_eviction(
        [each for each in entries if each.uid != pod.uid],
        [each for each in events if (each.get("regarding") or {}).get("uid") != pod.uid],
        None,
        name=pod.name,
    )
    return {
        "summary": f"{pod.key}: {_running_text(pod, verdicts, deadline, removal)}",
        "state": RUNNING,
        "scheduling": _scheduling(cluster, pod),
        "policies": verdicts,
        "pdbs": budget_documents(cluster, pod),
        "deadline": deadline,
        "nodeRemoval": removal,
        "eviction": None if earlier is None else eviction_document(earlier, pod),
    }


def _running_text(pod: Pod, verdicts: Sequence[Document], deadline: Document | None, removal: Document | None) -> str:
    from trimtab.inspection.pod_verdicts import EVICT

    what = "running" if pod.phase == RUNNING or not pod.phase else pod.phase.lower()
    where = f"{what} on {pod.node}"
    parts = []
    for verdict in verdicts:
        for each in verdict["strategies"]:
            if each["verdict"] == EVICT:
                target = f", to {each['target']}" if each["target"] else ""
                parts.append(
                    f"policy {verdict['policy']} would evict it ({each['strategy']}: {each['reason']}{target})"
                )
    if deadline is not None:
        how = "evicts" if deadline["how"] == "Evict" else "deletes"
        parts.append(f"{deadline['by']} {how} it at {deadline['due']} because of taint {deadline['taint']}")
    if removal is not None and (removal["planned"] or removal["underway"]):
        parts.append(f"node {pod.node} is to be removed ({removal['reason']})")
    if parts:
        return f"{where}; {'; '.join(parts)}"
    if not verdicts:
        return f"{where}; there is no policy that could evict it"
    return f"{where}; no policy would evict it"


# --- terminating and gone ---------------------------------------------------------------------------------------------


def _terminating(cluster: ClusterInput, pod: Pod, events: Sequence[Mapping[str, Any]]) -> Document:
    from trimtab.api.plan import rfc3339

    entries = entries_of_pod(cluster.history, pod.namespace, pod.name)
    where = f" on {pod.node}" if pod.node else ""
    ends = "" if pod.deleted is None else f", its grace period ends at {rfc3339(pod.deleted)}"
    found = _eviction(cluster, pod.namespace, find_eviction(entries, events, pod, name=pod.name, uid=pod.uid))
    why = "nothing records who deleted it" if found is None else _eviction_text(found)
    return {
        "summary": f"{pod.key}: terminating{where}{ends}; {why}",
        "state": TERMINATING,
        "scheduling": _scheduling(cluster, pod),
        "eviction": found,
    }


def _ended(cluster: ClusterInput, pod: Pod, events: Sequence[Mapping[str, Any]]) -> Document:
    """Explain a pod in phase Succeeded or Failed. The kubelet evicts a pod by failing it."""
    entries = entries_of_pod(cluster.history, pod.namespace, pod.name)
    found = _eviction(cluster, pod.namespace, find_eviction(entries, events, pod, name=pod.name, uid=pod.uid))
    reason = f" ({pod.reason})" if pod.reason else ""
    where = f" on {pod.node}" if pod.node else ""
    why = "" if found is None else f"; {_eviction_text(found)}"
    return {"summary": f"{pod.key}: {pod.phase.lower()}{reason}{where}{why}", "state": pod.phase, "eviction": found}


def _gone(cluster: ClusterInput, namespace: str, name: str, events: Sequence[Mapping[str, Any]]) -> Document | None:
    entries = entries_of_pod(cluster.history, namespace, name)
    eviction = find_eviction(entries, events, None, name=name)
    found = _eviction(cluster, namespace, eviction)
    if found is None and not entries:
        return None
    key = f"{namespace}/{name}"
    text = "it no longer exists, and nothing records who deleted it" if found is None else _eviction_text(found)
    placement: Document = {
        "pod": key,
        "node": None,
        "fits": [],
        "likely": [],
        "message": f"{key} no longer exists",
        "remedy": None,
        "nodes": [],
    }
    gone = {"summary": f"{key}: {text}", "state": GONE, "eviction": found}
    return _complete(gone, placement, _history(cluster, namespace, name))


def _eviction(cluster: ClusterInput, namespace: str, eviction: Any) -> Document | None:
    if eviction is None:
        return None
    return eviction_document(eviction, find_replacement(cluster.snapshot, eviction, namespace=namespace))


def _eviction_text(eviction: Document) -> str:
    at = f" at {eviction['time']}" if eviction["time"] else ""
    strategy = f"{eviction['strategy']}: " if eviction["strategy"] else ""
    text = f"evicted by {eviction['by']}{at} ({strategy}{eviction['reason']})"
    replacement = eviction["replacement"]
    if replacement is None:
        return text
    if replacement["node"] is None:
        return f"{text}; its replacement {replacement['pod']} is pending"
    return f"{text}; its replacement {replacement['pod']} is on {replacement['node']}"
