"""What ``trimtab plan`` says of taints: what is put on nodes and taken off, which nodes wait, which pods go. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.node_taint import NodeTainting, TaintNode, UntaintNode
from trimtab.api.plan import Kept, rfc3339
from trimtab.api.pod_deletion import Delete, PlannedTaint
from trimtab.api.taint_manager import KIND, NAME, OWN, TaintManagerSpec
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Node
from trimtab.tainting.conditions import READY_KEYS, TaintChange, no_execute_taints, ready_status
from trimtab.tainting.deadlines import plan_deletions
from trimtab.tainting.lifecycle_settings import lifecycle_settings
from trimtab.tainting.no_execute import Waiting
from trimtab.tainting.planner import LifecyclePlan, plan_lifecycle
from trimtab.tainting.sight import SnapshotSight


class Planned(Struct, frozen=True):
    """What is to be done because of taints and the conditions of nodes.

    Attributes:
        taints: put on and taken off, by node; ``None`` where kube-controller-manager sees to nodes.
        deletions: pods that go, the first first.
        kept: nodes that have failed and are not tainted yet, zone by zone, then pods that stay.
    """

    taints: tuple[NodeTainting, ...] | None
    deletions: tuple[Delete, ...]
    kept: tuple[Kept, ...]


def plan_taints(snapshot: Snapshot, spec: TaintManagerSpec, *, now: float) -> Planned:
    """What is to be done about a cluster as it is, without a memory of what it was.

    Nodes are what their conditions say: how long ago a node was last heard of cannot be told from a picture of unknown
    age. Pods go by the taints that nodes have once the plan is carried out, so one that is put on now ends pods later,
    and one that is taken off now ends none.

    Args:
        snapshot: the cluster.
        spec: of the TaintManager; nodes are planned only in mode ``Own``.
        now: seconds since the epoch.
    """
    if spec.mode != OWN:
        pods = plan_deletions(snapshot, spec, now=now)
        return Planned(None, pods.deletions, pods.kept)
    plan = plan_lifecycle(SnapshotSight(snapshot), lifecycle_settings(spec.node_lifecycle), now=now)
    nodes = {node.name: node for node in snapshot.nodes.at if node}
    pods = plan_deletions(snapshot, spec, now=now, changed=_after(nodes, plan.taints))
    kept = (*map(_waiting, plan.waiting), *_cut_off(nodes, plan), *pods.kept)
    return Planned(tuple(map(_tainting, plan.taints)), pods.deletions, kept)


def _after(nodes: Mapping[str, Node], changes: Iterable[TaintChange]) -> dict[str, Node]:
    """The nodes that change, with the taints that they have then."""
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


def _waiting(waiting: Waiting) -> Kept:
    due = "" if waiting.due is None else f"; its turn is at {rfc3339(math.ceil(waiting.due))}"
    return _kept(waiting.node, waiting.reason, f"{waiting.message}{due}")


def _cut_off(nodes: Mapping[str, Node], plan: LifecyclePlan) -> Iterator[Kept]:
    """Nodes that have failed and are not tainted because all have."""
    if not plan.memory.all_down:
        return
    for name in sorted(nodes):
        status = ready_status(nodes[name])
        if status in READY_KEYS and not no_execute_taints(nodes[name]):
            message = f"condition Ready is {status}, but all zones are down: rather we are cut off"
            yield _kept(name, reasons.ALL_ZONES_DOWN, message)


def _kept(node: str, reason: str, message: str) -> Kept:
    return Kept(kind="Node", namespace="", name=node, strategy=KIND, reason=reason, message=message, policy=NAME)
