"""The plan of what taints do to pods: of each pod on a node with NoExecute taints when it goes and why, or why not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.plan import Kept, rfc3339
from trimtab.api.pod_deletion import BY_EVICTION, Delete, How, PlannedTaint, PlannedToleration
from trimtab.api.taint_manager import EVICT, KIND, NAME, TaintManagerSpec
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.protections.mirror_pod import ANNOTATION as MIRROR
from trimtab.kube.objects import Node, Pod
from trimtab.tainting.deadlines.columns import deadlines
from trimtab.tainting.deadlines.rule import Deadline
from trimtab.tainting.deadlines.standing import NodeTaints, observe
from trimtab.tainting.deadlines.tolerance import Tolerating
from trimtab.tainting.deadlines.words import deadline_in_words, tolerated_in_words


class PodsOnTaints(Struct, frozen=True):
    """What becomes of the pods on tainted nodes.

    Attributes:
        deletions: those that go, the first first, then by ``namespace/name``.
        kept: those that stay, by ``namespace/name``.
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
) -> PodsOnTaints:
    """What becomes of each pod on a node with NoExecute taints.

    Neither the mode nor rates matter: they decide who acts and how fast, not when a pod's time is over.

    Args:
        snapshot: the cluster.
        spec: of the TaintManager.
        now: seconds since the epoch.
        known: what is known of nodes' taints, by node; the rest is read off the nodes, and a taint that tells no time
            counts from its note or from now.
        changed: nodes whose taints are about to be others, as they are then, by name.
    """
    known, changed = known or {}, changed or {}
    nodes = [changed.get(node.name, node) for node in snapshot.nodes.at if node]
    seen = {node.name: observe(node, known.get(node.name), now=now) for node in nodes}
    taints = {name: seen[name] for name in sorted(seen) if seen[name].standing}
    pods = [item for name in taints for item in snapshot.items_on(name)]
    found = deadlines(pods, taints, Tolerating.of(spec), now=now)
    going = sorted(found.values(), key=lambda each: (max(each.due, now), each.key))
    staying = sorted((item for item in pods if item[0] not in found), key=lambda item: item[0])
    hows: dict[str, How] = {policy.key: BY_EVICTION for policy in spec.taints if policy.policy == EVICT}
    return PodsOnTaints(
        tuple(_delete(each, hows.get(each.taint.key, "Delete"), now) for each in going),
        tuple(_kept(pod, taints[pod.node]) for _, pod in staying),
    )


def _delete(deadline: Deadline, how: How, now: float) -> Delete:
    namespace, _, name = deadline.key.partition("/")
    taint, by = deadline.taint, deadline.toleration
    return Delete(
        namespace=namespace,
        pod=name,
        node=deadline.node,
        due=rfc3339(math.ceil(max(deadline.due, now))),  # to the second, and never told too early
        reason=reasons.NO_EXECUTE_TAINT,
        message=deadline_in_words(deadline),
        taint=PlannedTaint(taint.key, taint.effect, taint.value),
        toleration=None if by is None else PlannedToleration(by.key, by.operator, by.value, by.effect, by.seconds),
        uid=deadline.uid,
        how=how,
    )


_WHY: Final = {
    reasons.TERMINAL: "the pod has ended",
    reasons.TERMINATING: "the pod is being deleted already",
    reasons.MIRROR_POD: "the kubelet would make it anew",
}


def _kept(pod: Pod, taints: NodeTaints) -> Kept:
    reason = _reason(pod)
    message = _WHY.get(reason) or tolerated_in_words(tuple(each.taint for each in taints.standing))
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
    return reasons.MIRROR_POD if MIRROR in pod.annotations else reasons.TOLERATES_TAINTS
