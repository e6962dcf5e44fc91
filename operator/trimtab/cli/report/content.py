"""Extracts the content of the page from a plan and the snapshot that it was made for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
from msgspec import Struct

from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.node_pressure_policy import KIND as NODE_PRESSURE_POLICY
from trimtab.api.node_pressure_policy import NodePressurePolicy
from trimtab.api.placement_admission import KIND as PLACEMENT_ADMISSION
from trimtab.api.placement_admission import PlacementAdmissionSpec
from trimtab.api.plan import Plan, RemoveNode, ScaleUp
from trimtab.api.taint_manager import KIND as TAINT_MANAGER
from trimtab.api.taint_manager import TAINT_AND_EVICT, TaintManagerSpec
from trimtab.cluster.resources import CPU, FIXED, MEMORY, PODS, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.planning.node_usage import FloatArray
from trimtab.descheduling.planning.planner import StrategyMeasures

RESOURCES: Final = 8
"""Maximum number of columns of the heat map: cpu, memory and pods, then other resources by name."""


class Usage(Struct, frozen=True, eq=False):
    """The requested share of each node's resources before and after the plan.

    Attributes:
        names: the names of the nodes.
        cordoned: the names of unschedulable nodes.
        resources: the names of the columns.
        before: float64, shape (nodes, resources): requested in percent of allocatable, NaN if a node has none.
        after: the same shares after all actions of the plan; NaN for removed nodes.
        leaving: int64, shape (nodes,): number of pods that the plan moves away from or removes from each node.
        arriving: int64, shape (nodes,): number of pods that the plan moves to each node.
        going: the names of the nodes that the plan removes.
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
    """The strings that the page shows about a policy.

    Attributes:
        name: the policy's name.
        mode: the policy's mode, which plans ignore.
        strategies: the names of the enabled strategies; for other kinds, the actions they may take.
        yaml: the policy's spec as YAML.
    """

    name: str
    mode: str
    strategies: tuple[str, ...]
    yaml: str


class Report(Struct, frozen=True, eq=False):
    """The content of the page.

    Attributes:
        cluster: the source of the snapshot.
        pods: the number of pods.
        policies: the policies of other kinds, then DeschedulerPolicies ordered by name.
        plan: the plan.
        measures: the violations of each strategy before and after the plan, in the order in which strategies run.
        usage: the usage of the nodes.
    """

    cluster: str
    pods: int
    policies: tuple[PolicyText, ...]
    plan: Plan
    measures: tuple[StrategyMeasures, ...]
    usage: Usage


def report(
    plan: Plan,
    measures: Sequence[StrategyMeasures],
    snapshot: Snapshot,
    policies: Sequence[DeschedulerPolicy],
    *,
    cluster: str,
    autoscaler: ClusterAutoscalerSpec | None = None,
    taints: TaintManagerSpec | None = None,
    admission: PlacementAdmissionSpec | None = None,
    pressure: Sequence[NodePressurePolicy] = (),
) -> Report:
    """Collect the content of the page.

    Args:
        plan: a plan for the snapshot.
        measures: the result of :func:`~trimtab.descheduling.planning.planner.plan_and_measure`.
        snapshot: the cluster before the plan; it is not changed.
        policies: the policies of the plan.
        cluster: the source of the snapshot.
        autoscaler: the autoscaler's settings; ``None`` if the plan does not include autoscaling.
        taints: the TaintManager's settings; ``None`` if there is no TaintManager.
        admission: the rules of the PlacementAdmission; ``None`` if there is none.
        pressure: the NodePressurePolicies.
    """
    first = (
        *(() if autoscaler is None else (_autoscaler(autoscaler),)),
        *(() if taints is None else (_taint_manager(taints),)),
        *(() if admission is None else (_placement_admission(admission),)),
        *(_node_pressure(each) for each in sorted(pressure, key=lambda policy: policy.name)),
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
    """Compute the usage of nodes before and after the plan.

    The computation uses arrays, because a plan may move tens of thousands of pods.
    """
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
    """Return the node removals of the plan, in order."""
    return [action for action in plan.scaling or () if isinstance(action, RemoveNode)]


def scale_ups(plan: Plan) -> list[ScaleUp]:
    """Return the scale-ups of the plan, in order."""
    return [action for action in plan.scaling or () if isinstance(action, ScaleUp)]


def moves(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Yield key, node and target of each pod that the plan moves; the target is empty if the pod is only removed."""
    for removal in removals(plan):
        yield from ((move.pod, removal.node, move.target) for move in removal.moves)
    yield from ((action.key, action.node, action.target) for action in plan.actions)


Slots = dict[int, tuple[IntArray, list[int]]]
"""The requests of pods with the same spec, and the slots of their nodes (one for each pod), by the id of the spec."""


def _moved(moved: Iterable[tuple[str, str, str]], snapshot: Snapshot) -> tuple[Slots, Slots]:
    """Return the pods that leave nodes and those that arrive, except terminal pods, because they use no resources."""
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
    """Return the columns of cpu, memory and pods, then of other used resources by name; at most :data:`RESOURCES`."""
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
        strategies=("Taint", "Delete") if spec.mode == TAINT_AND_EVICT else ("Delete",),
        yaml=msgspec.yaml.encode(msgspec.to_builtins(spec)).decode(),
    )


def _placement_admission(spec: PlacementAdmissionSpec) -> PolicyText:
    return PolicyText(
        name=PLACEMENT_ADMISSION,
        mode=spec.mode,
        strategies=("Refuse", "Mutate"),
        yaml=msgspec.yaml.encode(msgspec.to_builtins(spec)).decode(),
    )


def _node_pressure(policy: NodePressurePolicy) -> PolicyText:
    return PolicyText(
        name=f"{NODE_PRESSURE_POLICY} {policy.name}",
        mode=policy.spec.mode,
        strategies=("Evict",),
        yaml=msgspec.yaml.encode(msgspec.to_builtins(policy.spec)).decode(),
    )


def _policy(policy: DeschedulerPolicy) -> PolicyText:
    spec = msgspec.to_builtins(policy.spec)
    return PolicyText(
        name=policy.name,
        mode=policy.spec.mode,
        strategies=tuple(name for name, _ in policy.spec.strategies.enabled()),
        yaml=msgspec.yaml.encode(spec).decode(),
    )
