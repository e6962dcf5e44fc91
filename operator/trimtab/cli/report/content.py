"""What the page tells, as values: made of a plan and the snapshot that it was planned on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
from msgspec import Struct

from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.node_removal import RemoveNode
from trimtab.api.plan import Plan, ScaleUp
from trimtab.api.taint_manager import KIND as TAINT_MANAGER
from trimtab.api.taint_manager import OWN, TaintManagerSpec
from trimtab.cluster.resources import CPU, FIXED, MEMORY, PODS, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.planner import Measured
from trimtab.descheduling.utilization import FloatArray

RESOURCES: Final = 8
"""Columns of the heat map at most: cpu, memory and pods, then the others by name."""


class Usage(Struct, frozen=True, eq=False):
    """How much of each node is requested, before and after the plan; nodes by name.

    Attributes:
        names: of the nodes.
        cordoned: the names of those that are unschedulable.
        resources: the columns' names.
        before: float64, shape (nodes, resources); requested in percent of allocatable, NaN where a node has none.
        after: the same once all of the plan is done; NaN of nodes that go with it.
        leaving: int64, shape (nodes,); pods that the plan moves off or removes from each node.
        arriving: int64, same shape; pods that it moves there.
        going: the names of nodes that the plan removes.
    """

    names: tuple[str, ...]
    cordoned: frozenset[str]
    resources: tuple[str, ...]
    before: FloatArray
    after: FloatArray
    leaving: IntArray
    arriving: IntArray
    going: frozenset[str] = frozenset()


class PolicyText(Struct, frozen=True):
    """A policy as the page shows it.

    Attributes:
        name: the policy's.
        mode: as written, though a plan does not ask for it.
        strategies: those that are enabled, by name; of an autoscaler and a TaintManager what it may do.
        yaml: its spec.
    """

    name: str
    mode: str
    strategies: tuple[str, ...]
    yaml: str


class Report(Struct, frozen=True, eq=False):
    """All that the page tells.

    Attributes:
        cluster: where the picture came from, in the user's words.
        pods: how many pods it has.
        policies: what was planned for, by name; the autoscaler and the TaintManager first.
        plan: what was planned.
        measures: what it does for each strategy, in the order in which they run.
        usage: of the nodes.
    """

    cluster: str
    pods: int
    policies: tuple[PolicyText, ...]
    plan: Plan
    measures: tuple[Measured, ...]
    usage: Usage


def report(
    plan: Plan,
    measures: Sequence[Measured],
    snapshot: Snapshot,
    policies: Sequence[DeschedulerPolicy],
    *,
    cluster: str,
    autoscaler: ClusterAutoscalerSpec | None = None,
    taints: TaintManagerSpec | None = None,
) -> Report:
    """Take together what the page tells.

    Args:
        plan: made on the snapshot.
        measures: of :func:`~trimtab.descheduling.planner.plan_and_measure`.
        snapshot: as it was before the plan; it is not changed.
        policies: that the plan was made for.
        cluster: where the snapshot came from.
        autoscaler: what nodes were planned by; ``None`` where none were.
        taints: what the TaintManager says; ``None`` where there is none.
    """
    first = (
        *(() if autoscaler is None else (_autoscaler(autoscaler),)),
        *(() if taints is None else (_taint_manager(taints),)),
    )
    return Report(
        cluster=cluster,
        pods=len(snapshot.pods),
        policies=(*first, *(_policy(each) for each in sorted(policies, key=lambda policy: policy.name))),
        plan=plan,
        measures=tuple(measures),
        usage=usage(plan, snapshot),
    )


def usage(plan: Plan, snapshot: Snapshot) -> Usage:
    """How full nodes are by requests, before and after. In columns: a plan may move tens of thousands of pods."""
    nodes = snapshot.nodes
    order = nodes.order()
    away, there = _moved(moves(plan), snapshot)
    rows, places = [row for row, _ in away.values()], [slots for _, slots in away.values()]
    requested = nodes.requested.copy()
    for row, slots in zip(rows, places, strict=True):
        np.subtract.at(requested, np.array(slots), row)
    for row, slots in there.values():
        np.add.at(requested, np.array(slots), row)
    columns = _columns(snapshot, order)
    gone = Counter(node for _, node, target in moves(plan) if target != node)
    come = Counter(target for _, node, target in moves(plan) if target != node)
    going = frozenset(removal.node for removal in removals(plan))
    names = tuple(nodes.node(slot).name for slot in order.tolist())
    return Usage(
        names=names,
        cordoned=frozenset(name for name, slot in zip(names, order.tolist(), strict=True) if nodes.cordoned[slot]),
        resources=tuple(nodes.axis.names[column] for column in columns),
        before=_shares(nodes.requested[order][:, columns], nodes.allocatable[order][:, columns]),
        after=_without(going, names, _shares(requested[order][:, columns], nodes.allocatable[order][:, columns])),
        leaving=np.array([gone[name] for name in names], dtype=np.int64),
        arriving=np.array([come[name] for name in names], dtype=np.int64),
        going=going,
    )


def removals(plan: Plan) -> list[RemoveNode]:
    """The nodes that the plan removes, in order."""
    return [action for action in plan.scaling or () if isinstance(action, RemoveNode)]


def scale_ups(plan: Plan) -> list[ScaleUp]:
    """The groups that the plan lets grow, in order."""
    return [action for action in plan.scaling or () if isinstance(action, ScaleUp)]


def moves(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Every pod that the plan moves, ``namespace/name``, from where and to where; empty where it is only removed."""
    for removal in removals(plan):
        yield from ((move.pod, removal.node, move.target) for move in removal.moves)
    yield from ((action.key, action.node, action.target) for action in plan.actions)


Slots = dict[int, tuple[IntArray, list[int]]]
"""By a spec's id: what its pods request, and the slots they concern, one for each pod."""


def _moved(moved: Iterable[tuple[str, str, str]], snapshot: Snapshot) -> tuple[Slots, Slots]:
    """What leaves which slots, and what comes to which; what has run to its end holds no place."""
    slot_of, away, there = snapshot.nodes.slot_of, Slots(), Slots()
    for key, node, target in moved:
        pod = snapshot.pods[key]
        if pod.terminal or target == node:
            continue
        row = snapshot.row(pod.spec)
        away.setdefault(id(pod.spec), (row, []))[1].append(slot_of[node])
        if target:
            there.setdefault(id(pod.spec), (row, []))[1].append(slot_of[target])
    return away, there


def _columns(snapshot: Snapshot, order: IntArray) -> list[int]:
    """cpu, memory and pods, then what some pod requests and some node has, by name; at most :data:`RESOURCES`."""
    nodes = snapshot.nodes
    wanted: list[bool] = np.logical_and(
        (nodes.requested[order] > 0).any(axis=0), (nodes.allocatable[order] > 0).any(axis=0)
    ).tolist()
    first = [column for column in (CPU, MEMORY, PODS) if (nodes.allocatable[order, column] > 0).any()]
    others = [column for column in range(FIXED - 1, len(nodes.axis.names)) if wanted[column]]
    return [*first, *sorted(others, key=lambda column: nodes.axis.names[column])][:RESOURCES]


def _shares(requested: IntArray, allocatable: IntArray) -> FloatArray:
    shares = np.full(requested.shape, np.nan)
    np.divide(100.0 * requested, allocatable, out=shares, where=allocatable > 0)
    return shares


def _without(going: frozenset[str], names: Sequence[str], shares: FloatArray) -> FloatArray:
    if going:
        shares[[place for place, name in enumerate(names) if name in going]] = np.nan
    return shares


def _autoscaler(spec: ClusterAutoscalerSpec) -> PolicyText:
    down = ("ScaleDown",) if spec.scaling_down.enabled else ()
    return PolicyText(
        name="ClusterAutoscaler",
        mode=spec.mode,
        strategies=("ScaleUp", *down),
        yaml=msgspec.yaml.encode(msgspec.to_builtins(spec)).decode(),
    )


def _taint_manager(spec: TaintManagerSpec) -> PolicyText:
    return PolicyText(
        name=TAINT_MANAGER,
        mode=spec.mode,
        strategies=("Taint", "Delete") if spec.mode == OWN else ("Delete",),
        yaml=msgspec.yaml.encode(msgspec.to_builtins(spec)).decode(),
    )


def _policy(policy: DeschedulerPolicy) -> PolicyText:
    spec = msgspec.to_builtins(policy.spec)
    return PolicyText(
        name=policy.name,
        mode=policy.spec.mode,
        strategies=tuple(name for name, _ in policy.spec.strategies.enabled()),
        yaml=msgspec.yaml.encode(spec).decode(),
    )
