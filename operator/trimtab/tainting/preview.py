"""Previews, for ``trimtab plan`` and ``trimtab explain node``, what a TaintManager would do to nodes and pods."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.plan import (
    BY_EVICTION,
    Delete,
    DeleteHow,
    Kept,
    NodeTainting,
    PlannedTaint,
    PlannedToleration,
    TaintNode,
    UntaintNode,
    rfc3339,
)
from trimtab.api.taint_manager import EVICT, KIND, NAME, TAINT_AND_EVICT, NextDeadline, TaintManagerSpec
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.protections import MIRROR_ANNOTATION
from trimtab.kube.objects import Node, Pod
from trimtab.kube.rules.taints import format_taint
from trimtab.tainting.deadlines import (
    FOREVER,
    Deadline,
    NodeTaints,
    ObservedTaint,
    TolerationRule,
    deadlines,
    describe_deadline,
    observe_taints,
    tolerance,
)
from trimtab.tainting.lifecycle.planner import READY_KEYS, LifecyclePlan, TaintChange, no_execute_taints, plan_lifecycle
from trimtab.tainting.lifecycle.zones import WaitingNode


class TaintPlan(Struct, frozen=True):
    """The planned taints and pod deletions.

    Attributes:
        taints: taints to add and remove; ``None`` if kube-controller-manager runs the node lifecycle.
        deletions: pods to delete or evict, sorted by due time and then by ``namespace/name``.
        kept: failed nodes that are not tainted yet, zone by zone, followed by the pods on tainted nodes that are not
            evicted, sorted by ``namespace/name``.
    """

    taints: tuple[NodeTainting, ...] | None
    deletions: tuple[Delete, ...]
    kept: tuple[Kept, ...]


def plan_taints(
    snapshot: Snapshot, spec: TaintManagerSpec, *, now: float, recorded: Iterable[NextDeadline] = ()
) -> TaintPlan:
    """Plan taints and evictions for a snapshot, without the state of previous iterations.

    The plan uses node conditions but not Leases or heartbeats, because the age of the snapshot is unknown. Evictions
    are planned with the taints that the nodes will have after the plan is carried out.

    Node taints are planned only in mode ``TaintAndEvict``. ``now`` is in seconds since the epoch, and ``recorded`` is
    ``nextDeadlines`` of the TaintManager's status, for taints without ``timeAdded``.
    """
    known = recorded_taints(snapshot, recorded, spec, now=now)
    if spec.mode != TAINT_AND_EVICT:
        return plan_deletions(snapshot, spec, now=now, known=known)
    nodes = {node.name: node for node in snapshot.nodes.at if node}
    plan = plan_lifecycle(nodes, {}, spec.node_lifecycle, now=now)
    pods = plan_deletions(snapshot, spec, now=now, known=known, changed=_nodes_after(nodes, plan.taints))
    kept = (*map(_waiting, plan.waiting), *_cut_off(nodes, plan), *pods.kept)
    return TaintPlan(tuple(map(_tainting, plan.taints)), pods.deletions, kept)


def _nodes_after(nodes: Mapping[str, Node], changes: Iterable[TaintChange]) -> dict[str, Node]:
    """Return the changed nodes with their new taints, by name."""
    after: dict[str, Node] = {}
    for change in changes:
        node, taint = after.get(change.node, nodes[change.node]), change.taint
        others = tuple(each for each in node.taints if (each.key, each.effect) != (taint.key, taint.effect))
        after[change.node] = replace(node, taints=(*others, taint) if change.add else others)
    return after


def _tainting(change: TaintChange) -> NodeTainting:
    made = TaintNode if change.add else UntaintNode
    taint = PlannedTaint(change.taint.key, change.taint.effect, change.taint.value)
    return made(change.node, taint, change.reason, change.message)


def _waiting(waiting: WaitingNode) -> Kept:
    due = "" if waiting.due is None else f"; due at {rfc3339(math.ceil(waiting.due))}"
    return _kept("Node", waiting.node, waiting.reason, f"{waiting.message}{due}")


def _cut_off(nodes: Mapping[str, Node], plan: LifecyclePlan) -> Iterator[Kept]:
    """Yield the failed nodes that are not tainted because all zones are down."""
    why = "all zones are down: the operator is probably cut off from the nodes"
    for name, node in sorted(nodes.items()):
        status = node.ready_status
        if plan.memory.all_down and status in READY_KEYS and not no_execute_taints(node):
            yield _kept("Node", name, reasons.ALL_ZONES_DOWN, f"condition Ready is {status}, but {why}")


def _kept(kind: str, name: str, reason: str, message: str, *, namespace: str = "", node: str = "") -> Kept:
    return Kept(kind, namespace, name, strategy=KIND, reason=reason, message=message, policy=NAME, node=node)


def plan_deletions(
    snapshot: Snapshot,
    spec: TaintManagerSpec,
    *,
    now: float,
    known: Mapping[str, NodeTaints] = {},
    changed: Mapping[str, Node] = {},
) -> TaintPlan:
    """Plan the deletion of pods on nodes with NoExecute taints, regardless of the mode and userTaintRates.

    Args:
        snapshot: the cluster state.
        spec: the spec of the TaintManager.
        now: the current time in seconds since the epoch.
        known: observed taints by node name. For other nodes, the taints are read from the node object. In that case a
            taint without ``timeAdded`` applies from the time in the node's annotation, or else from now.
        changed: nodes with the taints that they will have after planned changes, by name.
    """
    nodes = [changed.get(node.name, node) for node in snapshot.nodes.at if node]
    seen = {node.name: observe_taints(node, known.get(node.name), now=now) for node in nodes}
    taints = {name: seen[name] for name in sorted(seen) if seen[name].observed}
    pods = [item for name in taints for item in snapshot.items_on(name)]
    found = deadlines(pods, taints, TolerationRule.of(spec), now=now)
    due = sorted(found.values(), key=lambda each: (max(each.due, now), each.key))
    kept = sorted((item for item in pods if item[0] not in found), key=lambda item: item[0])
    assumed = {(name, each.taint) for name in taints for each in taints[name].observed if is_assumed(each, now=now)}
    hows: dict[str, DeleteHow] = {policy.key: BY_EVICTION for policy in spec.taints if policy.policy == EVICT}
    deletions = (
        _delete(each, hows.get(each.taint.key, "Delete"), now, assumed=(each.node, each.taint) in assumed)
        for each in due
    )
    return TaintPlan(None, tuple(deletions), tuple(_kept_pod(pod, taints[pod.node]) for _, pod in kept))


def _delete(deadline: Deadline, how: DeleteHow, now: float, *, assumed: bool) -> Delete:
    taint, by = deadline.taint, deadline.toleration
    return Delete(
        namespace=deadline.namespace,
        pod=deadline.name,
        node=deadline.node,
        due=rfc3339(math.ceil(max(deadline.due, now))),  # rounded up to the second, so that it is never too early
        reason=reasons.NO_EXECUTE_TAINT,
        message=describe_deadline(deadline, assumed=assumed and deadline.since == now),
        taint=PlannedTaint(taint.key, taint.effect, taint.value),
        toleration=None if by is None else PlannedToleration(by.key, by.operator, by.value, by.effect, by.seconds),
        uid=deadline.uid,
        how=how,
    )


def _kept_pod(pod: Pod, taints: NodeTaints) -> Kept:
    if pod.terminal:
        reason, message = reasons.TERMINAL, "the pod is terminal"
    elif pod.deleted is not None:
        reason, message = reasons.TERMINATING, "the pod is already being deleted"
    elif MIRROR_ANNOTATION in pod.annotations:
        reason, message = reasons.MIRROR_POD, "mirror pod: the kubelet would recreate it"
    else:
        tolerated = ", ".join(format_taint(each.taint) for each in taints.observed)
        reason, message = reasons.TOLERATES_TAINTS, f"tolerates {tolerated} forever"
    return _kept("Pod", pod.name, reason, message, namespace=pod.namespace, node=pod.node)


def recorded_taints(
    snapshot: Snapshot, deadlines: Iterable[NextDeadline], spec: TaintManagerSpec, *, now: float
) -> dict[str, NodeTaints]:
    """Return the taints of nodes with times that follow from recorded deadlines, by node name.

    Nodes are omitted if the times of all their taints are known, or if there is no deadline of one of their pods. A
    deadline that does not match the pod, its node or the taint is ignored. A pod that was bound after the taint was
    added has a later deadline, so the earliest of several times is used.
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
