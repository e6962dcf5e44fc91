"""LowNodeUtilization and HighNodeUtilization: the descheduler's low and high nodes, and its pooled capacity."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean
from typing import Final

from tests.descheduler_differential.case import Case, Difference
from tests.descheduler_differential.classes.difference_class import DifferenceClass
from trimtab.api import reasons
from trimtab.kube.objects import Pod
from trimtab.kube.rules.taints import tolerates

LOW: Final = frozenset({"LowNodeUtilization"})
HIGH: Final = frozenset({"HighNodeUtilization"})
BOTH: Final = LOW | HIGH
_ALWAYS: Final = ("cpu", "memory", "pods")


def _amount(case: Case, node: str, resource: str, *, leaving: bool = True) -> tuple[float, float]:
    """Requested and allocatable amounts; with ``leaving``, including terminating pods."""
    nodes = case.trimtab.snapshot.nodes
    slot, column = nodes.slot_of[node], nodes.axis.column[resource]
    requested = float(nodes.requested[slot, column])
    if not leaving:
        deleted = (pod for pod in case.trimtab.snapshot.pods_on(node) if pod.deleted is not None and not pod.terminal)
        requested -= sum(_request(case, pod, resource) for pod in deleted)
    return requested, float(nodes.allocatable[slot, column])


def _request(case: Case, pod: Pod, resource: str) -> float:
    row, column = case.trimtab.snapshot.row(pod.spec), case.trimtab.snapshot.nodes.axis.column[resource]
    return float(row[column]) if column < len(row) else 0.0


def _percent(case: Case, node: str, resource: str, *, leaving: bool = True) -> float:
    requested, allocatable = _amount(case, node, resource, leaving=leaving)
    return 100 * requested / allocatable if allocatable else 0.0


def _marks(case: Case, strategy: str, key: str) -> dict[str, float]:
    """Thresholds or targets in percent; deviations are relative to the mean of the visible nodes."""
    args = case.args(strategy)
    given = {name: float(value) for name, value in args.get(key, {}).items()}
    if not args.get("useDeviationThresholds"):
        return given
    sign = -1 if key == "thresholds" else 1
    means = {name: fmean(_percent(case, node, name) for node in case.visible) for name in given}
    return {name: min(100.0, max(0.0, means[name] + sign * value)) for name, value in given.items()}


def low_nodes(case: Case, strategy: str) -> list[str]:
    """The nodes that the descheduler classifies as underutilized; cordoned ones only in HighNodeUtilization."""
    marks = _marks(case, strategy, "thresholds")
    return [
        node
        for node in case.visible
        if (strategy in HIGH or not case.is_cordoned(node))
        and all(_percent(case, node, name) <= mark for name, mark in marks.items())
    ]


def destinations(case: Case, strategy: str) -> list[str]:
    """The nodes whose free capacity the descheduler adds up."""
    low = low_nodes(case, strategy)
    if strategy in LOW:
        return low
    return [node for node in case.visible if node not in low and not case.is_cordoned(node)]


def is_high(case: Case, node: str, *, leaving: bool = True) -> bool:
    """Whether the node is above some target of LowNodeUtilization."""
    marks = _marks(case, "LowNodeUtilization", "targetThresholds")
    return any(_percent(case, node, name, leaving=leaving) > mark for name, mark in marks.items())


def _pool_is_empty(case: Case, strategy: str, evicted: Iterable[str]) -> bool:
    """Whether the pooled capacity of all destinations is used up by the evicted pods for some resource."""
    targets = _marks(case, strategy, "targetThresholds")
    pods = [case.pod(name) for name in evicted]
    for name in {*_ALWAYS, *targets}:
        room = -sum(_request(case, pod, name) if name != "pods" else 1 for pod in pods)
        for node in destinations(case, strategy):
            requested, allocatable = _amount(case, node, name)
            room += allocatable * targets.get(name, 100.0) / 100 - requested
        if room <= 0:
            return True
    return False


def _numbers(case: Case, difference: Difference) -> tuple[int, int]:
    """The numbers of pods that the descheduler and trimtab evict from the node."""
    descheduler, trimtab = case.counts(difference.strategy, "node")
    node = case.pod(difference.pod).node
    return descheduler[node], trimtab[node]


def _others(case: Case, difference: Difference) -> bool:
    """The side that keeps the pod evicts at least as many other pods from that node."""
    descheduler, trimtab = _numbers(case, difference)
    return trimtab >= descheduler > 0 if difference.side == "descheduler" else descheduler >= trimtab


def _relieved(case: Case, node: str) -> bool:
    """Whether the node exceeds no target after the plan; deviations are relative to the mean before it."""
    targets = _marks(case, "LowNodeUtilization", "targetThresholds")
    with case.state(after=True):
        return all(_percent(case, node, name, leaving=False) <= target for name, target in targets.items())


def _fewer_suffice(case: Case, difference: Difference) -> bool:
    """The descheduler evicts more pods from the node, which exceeds no target after trimtab's plan."""
    descheduler, trimtab = _numbers(case, difference)
    return descheduler > trimtab > 0 and _relieved(case, case.pod(difference.pod).node)


def _leaving_pods(case: Case, difference: Difference) -> bool:
    """The node exceeds a target only if terminating pods count."""
    node = case.pod(difference.pod).node
    return is_high(case, node) and not is_high(case, node, leaving=False)


def _low_without_leaving(case: Case, difference: Difference) -> bool:
    """The node is underutilized only if terminating pods do not count."""
    node, marks = case.pod(difference.pod).node, _marks(case, difference.strategy, "thresholds")
    low = all(_percent(case, node, name, leaving=False) <= mark for name, mark in marks.items())
    return low and node not in low_nodes(case, difference.strategy)


def _would_be_above(case: Case, pod: Pod, node: str, targets: dict[str, float]) -> bool:
    for name, target in targets.items():
        requested, allocatable = _amount(case, node, name)
        if 100 * (requested + _request(case, pod, name)) > target * allocatable:
            return True
    return False


def _nowhere_low(case: Case, difference: Difference) -> bool:
    """Nodes fit the pod, but every underutilized one would exceed a target with it."""
    if case.reason(difference) != reasons.NO_IMPROVEMENT:
        return False
    pod, targets = case.pod(difference.pod), _marks(case, difference.strategy, "targetThresholds")
    left = case.improving_nodes(difference) & set(low_nodes(case, difference.strategy))
    with case.state(after=True):
        return all(_would_be_above(case, pod, node, targets) for node in left)


def _low_nodes_taken(case: Case, difference: Difference) -> bool:
    """Other strategies moved pods to every underutilized node before."""
    node = case.pod(difference.pod).node
    kept = {each.reason for each in case.trimtab.plan.kept if each.kind == "Node" and each.name == node}
    taken = {move.target for move in case.trimtab.moves.values() if move.strategy != difference.strategy}
    low = set(low_nodes(case, difference.strategy))
    return bool(kept & {reasons.NO_UNDERUTILIZED_NODES, reasons.NOT_ENOUGH_NODES}) and bool(low) and low <= taken


def _settled_before(case: Case, difference: Difference) -> bool:
    """The pod's node exceeds no target after the moves of trimtab's other strategies."""
    others = [move for move in case.trimtab.moves.values() if move.strategy != difference.strategy]
    return bool(others) and not case.reason(difference) and _relieved(case, case.pod(difference.pod).node)


def _filled_before(case: Case, difference: Difference) -> bool:
    """The node is no longer underutilized after the moves of trimtab's other strategies."""
    node = case.pod(difference.pod).node
    filled = any(move.target == node and move.strategy != difference.strategy for move in case.trimtab.moves.values())
    if not filled or node not in low_nodes(case, difference.strategy):
        return False
    with case.state(after=True):
        return node not in low_nodes(case, difference.strategy)


def _low_without(case: Case, strategy: str, node: str, removed: list[Pod]) -> bool:
    """Whether a node becomes underutilized without those pods."""
    if not removed or node in low_nodes(case, strategy):
        return False
    for name, mark in _marks(case, strategy, "thresholds").items():
        requested, allocatable = _amount(case, node, name)
        if 100 * (requested - sum(_request(case, pod, name) for pod in removed)) > mark * allocatable:
            return False
    return True


def _taken_before(case: Case, strategy: str, node: str) -> list[Pod]:
    """The pods that the descheduler's other strategies evict from the node."""
    evicted = [each for each in case.descheduler.values() if each.strategy != strategy and each.node == node]
    return [case.pod(each.pod) for each in evicted]


def _low_by_then(case: Case, difference: Difference) -> bool:
    """The node is underutilized only after additional evictions by the descheduler's other strategies."""
    node = case.pod(difference.pod).node
    deleted = [pod for pod in _taken_before(case, difference.strategy, node) if pod.key not in case.trimtab.moves]
    return _low_without(case, difference.strategy, node, deleted)


def _others_low_by_then(case: Case, difference: Difference) -> bool:
    """trimtab finds no underutilized node; the descheduler finds one after evictions of its other strategies."""
    name, node = difference.strategy, case.pod(difference.pod).node
    kept = {each.reason for each in case.trimtab.plan.kept if each.kind == "Node" and each.name == node}
    if not kept & {reasons.NO_UNDERUTILIZED_NODES, reasons.NOT_ENOUGH_NODES}:
        return False
    nodes = [each for each in case.visible if not case.is_cordoned(each)]
    return any(_low_without(case, name, each, _taken_before(case, name, each)) for each in nodes)


def _brought_before(case: Case, difference: Difference) -> bool:
    """Moves of other strategies to or from the node account for trimtab's additional evictions."""
    descheduler, trimtab = _numbers(case, difference)
    node, name = case.pod(difference.pod).node, difference.strategy
    brought = sum(move.target == node and move.strategy != name for move in case.trimtab.moves.values())
    taken = [each.pod for each in case.descheduler.values() if each.node == node and each.strategy != name]
    return descheduler < trimtab <= descheduler + brought + sum(pod not in case.trimtab.moves for pod in taken)


def _in_its_place(case: Case, difference: Difference) -> bool:
    """The descheduler evicts pods that trimtab keeps; trimtab evicts other pods of the node instead."""
    descheduler, trimtab = _numbers(case, difference)
    node, name = case.pod(difference.pod).node, difference.strategy
    there = [each.pod for each in case.evicted_by_descheduler(name) if each.node == node]
    kept = [pod for pod in there if pod not in case.trimtab.moves and (pod, name) in case.trimtab.kept]
    return 0 < descheduler < trimtab and bool(kept)


def _pooled(case: Case, difference: Difference) -> bool:
    """The pooled capacity of the destinations is used up for one resource, although a single node has capacity."""
    evicted = [each.pod for each in case.evicted_by_descheduler(difference.strategy)]
    return bool(destinations(case, difference.strategy)) and _pool_is_empty(case, difference.strategy, evicted)


def _tolerated(case: Case, difference: Difference) -> bool:
    """Whether, by the descheduler's formula, the pod tolerates all taints of some destination."""
    tolerations = case.pod(difference.pod).spec.tolerations
    snapshot = case.trimtab.snapshot
    for node in destinations(case, difference.strategy):
        taints = snapshot.nodes.node(snapshot.nodes.slot_of[node]).taints
        if len(tolerations) >= len(taints) and all(
            any(tolerates(toleration, taint) for toleration in tolerations) for taint in taints
        ):
            return True
    return False


def _taints_of_all(case: Case, difference: Difference) -> bool:
    return bool(destinations(case, difference.strategy)) and not _tolerated(case, difference)


def _node_kept(case: Case, difference: Difference) -> bool:
    """trimtab does not drain the node: a pod is kept, and the plan keeps the node or moves pods to it."""
    node = case.pod(difference.pod).node
    kept = any(each.kind == "Node" and each.name == node for each in case.trimtab.plan.kept)
    filled = any(each.target == node for each in case.evicted_by_trimtab(difference.strategy))
    staying = [
        pod
        for pod in case.trimtab.snapshot.pods_on(node)
        if pod.key not in case.trimtab.moves and not pod.terminal and pod.deleted is None
    ]
    return bool(staying) and (kept or filled)


def _all_low(case: Case, difference: Difference) -> bool:
    """The descheduler has no destinations and evicts nothing."""
    return not destinations(case, difference.strategy) and not case.evicted_by_descheduler(difference.strategy)


def _unmovable_load(case: Case, difference: Difference) -> bool:
    """A pod that trimtab keeps, of another namespace or of lower priority, is part of the node's load."""
    victim = case.pod(difference.pod)
    staying = [
        pod
        for pod in case.trimtab.snapshot.pods_on(victim.node)
        if not pod.terminal and pod.key not in case.trimtab.moves
    ]
    match case.reason(difference):
        case reasons.CAUSED_FROM_OTHER_NAMESPACE:
            return any(pod.namespace != victim.namespace for pod in staying)
        case reasons.CAUSE_OF_LOWER_PRIORITY:
            return any(pod.priority < victim.priority for pod in staying)
    return False


UTILIZATION: Final = (
    DifferenceClass("UnmovableLoad", "descheduler", _unmovable_load, LOW),
    DifferenceClass("TerminatingPods", "descheduler", _leaving_pods, LOW),
    DifferenceClass("TerminatingPods", "trimtab", _low_without_leaving, HIGH),
    DifferenceClass("VictimOrder", "descheduler", _others, LOW),
    DifferenceClass("VictimOrder", "trimtab", _others, LOW),
    DifferenceClass("FewestEvictions", "descheduler", _fewer_suffice, LOW),
    DifferenceClass("ReducesViolations", "descheduler", _nowhere_low, LOW),
    DifferenceClass("CapacityReserved", "descheduler", _low_nodes_taken, LOW),
    DifferenceClass("StrategyOrder", "descheduler", _settled_before, LOW),
    DifferenceClass("WholeNodes", "descheduler", _node_kept, HIGH),
    DifferenceClass("StrategyOrder", "descheduler", _filled_before, HIGH),
    DifferenceClass("FollowUpDifference", "trimtab", _brought_before, LOW),
    DifferenceClass("SubstituteVictim", "trimtab", _in_its_place, LOW),
    DifferenceClass("FollowUpDifference", "descheduler", _others_low_by_then, LOW),
    DifferenceClass("FollowUpDifference", "descheduler", _low_by_then, HIGH),
    DifferenceClass("WholeNodes", "trimtab", _all_low, HIGH),
    DifferenceClass("PooledCapacity", "trimtab", _pooled, BOTH),
    DifferenceClass("TolerationMatching", "trimtab", _taints_of_all, BOTH),
)
