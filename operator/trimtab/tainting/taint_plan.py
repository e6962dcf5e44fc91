"""The part of ``trimtab plan`` for the TaintManager: taints, nodes that are queued for tainting, and pods to delete."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.plan import Delete, Kept, NodeTainting, PlannedTaint, TaintNode, UntaintNode, rfc3339
from trimtab.api.taint_manager import KIND, NAME, TAINT_AND_EVICT, NextDeadline, TaintManagerSpec
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Node
from trimtab.tainting.deadlines import plan_deletions
from trimtab.tainting.deadlines.recorded import recorded_taints
from trimtab.tainting.lifecycle.node_conditions import READY_KEYS, TaintChange, no_execute_taints, ready_status
from trimtab.tainting.lifecycle.planner import LifecyclePlan, SnapshotNodes, WaitingNode, plan_lifecycle
from trimtab.tainting.lifecycle.settings import lifecycle_settings


class TaintPlan(Struct, frozen=True):
    """The planned taints and pod deletions.

    Attributes:
        taints: taints to add and remove, by node; ``None`` if kube-controller-manager runs the node lifecycle.
        deletions: pods to delete or evict, sorted by due time.
        kept: failed nodes that are not tainted yet, zone by zone, followed by the pods that are not evicted.
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

    Args:
        snapshot: the cluster state.
        spec: the spec of the TaintManager. Node taints are planned only in mode ``TaintAndEvict``.
        now: the current time in seconds since the epoch.
        recorded: ``nextDeadlines`` of the TaintManager's status, for taints without ``timeAdded``.
    """
    known = recorded_taints(snapshot, recorded, spec, now=now)
    if spec.mode != TAINT_AND_EVICT:
        pods = plan_deletions(snapshot, spec, now=now, known=known)
        return TaintPlan(None, pods.deletions, pods.kept)
    plan = plan_lifecycle(SnapshotNodes(snapshot), lifecycle_settings(spec.node_lifecycle), now=now)
    nodes = {node.name: node for node in snapshot.nodes.at if node}
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
    return _kept(waiting.node, waiting.reason, f"{waiting.message}{due}")


def _cut_off(nodes: Mapping[str, Node], plan: LifecyclePlan) -> Iterator[Kept]:
    """Yield the failed nodes that are not tainted because all zones are down."""
    if not plan.memory.all_down:
        return
    for name in sorted(nodes):
        status = ready_status(nodes[name])
        if status in READY_KEYS and not no_execute_taints(nodes[name]):
            message = (
                f"condition Ready is {status}, but all zones are down: the operator is probably cut off from the nodes"
            )
            yield _kept(name, reasons.ALL_ZONES_DOWN, message)


def _kept(node: str, reason: str, message: str) -> Kept:
    return Kept(kind="Node", namespace="", name=node, strategy=KIND, reason=reason, message=message, policy=NAME)
