"""LowNodeUtilization and HighNodeUtilization: which nodes they see as low and high, and what room they add up."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean
from typing import Final

from tests.descheduler_differential.classes.naming import Named
from tests.descheduler_differential.facts import Case, Difference
from trimtab.api import reasons
from trimtab.kube.objects import Pod
from trimtab.kube.rules.taints import tolerates

LOW: Final = frozenset({"LowNodeUtilization"})
HIGH: Final = frozenset({"HighNodeUtilization"})
BOTH: Final = LOW | HIGH
_ALWAYS: Final = ("cpu", "memory", "pods")


def _amount(case: Case, node: str, resource: str, *, leaving: bool = True) -> tuple[float, float]:
    """Requested and allocatable; pods on their way out count unless left out."""
    nodes = case.ours.snapshot.nodes
    slot, column = nodes.slot_of[node], nodes.axis.column[resource]
    requested = float(nodes.requested[slot, column])
    if not leaving:
        gone = (pod for pod in case.ours.snapshot.pods_on(node) if pod.deleted is not None and not pod.terminal)
        requested -= sum(_request(case, pod, resource) for pod in gone)
    return requested, float(nodes.allocatable[slot, column])


def _request(case: Case, pod: Pod, resource: str) -> float:
    row, column = case.ours.snapshot.row(pod.spec), case.ours.snapshot.nodes.axis.column[resource]
    return float(row[column]) if column < len(row) else 0.0


def _percent(case: Case, node: str, resource: str, *, leaving: bool = True) -> float:
    requested, allocatable = _amount(case, node, resource, leaving=leaving)
    return 100 * requested / allocatable if allocatable else 0.0


def _marks(case: Case, strategy: str, key: str) -> dict[str, float]:
    """Thresholds or targets in percent; deviations are counted from the mean of the nodes that they see."""
    args = case.args(strategy)
    given = {name: float(value) for name, value in args.get(key, {}).items()}
    if not args.get("useDeviationThresholds"):
        return given
    sign = -1 if key == "thresholds" else 1
    means = {name: fmean(_percent(case, node, name) for node in case.visible) for name in given}
    return {name: min(100.0, max(0.0, means[name] + sign * value)) for name, value in given.items()}


def low_nodes(case: Case, strategy: str) -> list[str]:
    """The nodes that they call underutilized; cordoned ones only by HighNodeUtilization."""
    marks = _marks(case, strategy, "thresholds")
    return [
        node
        for node in case.visible
        if (strategy in HIGH or not case.is_cordoned(node))
        and all(_percent(case, node, name) <= mark for name, mark in marks.items())
    ]


def destinations(case: Case, strategy: str) -> list[str]:
    """The nodes whose room they add up."""
    low = low_nodes(case, strategy)
    if strategy in LOW:
        return low
    return [node for node in case.visible if node not in low and not case.is_cordoned(node)]


def is_high(case: Case, node: str, *, leaving: bool = True) -> bool:
    """Whether the node is above some target of LowNodeUtilization."""
    marks = _marks(case, "LowNodeUtilization", "targetThresholds")
    return any(_percent(case, node, name, leaving=leaving) > mark for name, mark in marks.items())


def _pool_is_empty(case: Case, strategy: str, evicted: Iterable[str]) -> bool:
    """Whether some resource has no room left in the sum of all destinations, once the evicted pods are taken off."""
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
    """How many pods they evict from the node, and we."""
    theirs, ours = case.counts(difference.strategy, "node")
    node = case.pod(difference.pod).node
    return theirs[node], ours[node]


def _others(case: Case, difference: Difference) -> bool:
    """The side that keeps it lets as many or more go from that node, but others."""
    theirs, ours = _numbers(case, difference)
    return ours >= theirs > 0 if difference.side == "theirs" else theirs >= ours


def _relieved(case: Case, node: str) -> bool:
    """Whether the node is above no target once our plan is done; deviations count from the mean before it."""
    targets = _marks(case, "LowNodeUtilization", "targetThresholds")
    with case.state(after=True):
        return all(_percent(case, node, name, leaving=False) <= target for name, target in targets.items())


def _fewer_suffice(case: Case, difference: Difference) -> bool:
    """They evict more from the node than we, and after our plan nothing of it is above a target any more."""
    theirs, ours = _numbers(case, difference)
    return theirs > ours > 0 and _relieved(case, case.pod(difference.pod).node)


def _leaving_pods(case: Case, difference: Difference) -> bool:
    """The node is above a target only as long as those are counted that are on their way out."""
    node = case.pod(difference.pod).node
    return is_high(case, node) and not is_high(case, node, leaving=False)


def _low_without_leaving(case: Case, difference: Difference) -> bool:
    """The node is underutilized only if those are not counted that are on their way out."""
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
    """Nodes take it, but none that was underutilized and would stay at or below all targets with it."""
    if case.reason(difference) != reasons.NO_IMPROVEMENT:
        return False
    pod, targets = case.pod(difference.pod), _marks(case, difference.strategy, "targetThresholds")
    left = case.betters(difference) & set(low_nodes(case, difference.strategy))
    with case.state(after=True):
        return all(_would_be_above(case, pod, node, targets) for node in left)


def _low_nodes_taken(case: Case, difference: Difference) -> bool:
    """Every node that was underutilized has got pods from other strategies by then."""
    node = case.pod(difference.pod).node
    kept = {each.reason for each in case.ours.plan.kept if each.kind == "Node" and each.name == node}
    taken = {move.target for move in case.ours.moves.values() if move.strategy != difference.strategy}
    low = set(low_nodes(case, difference.strategy))
    return bool(kept & {reasons.NO_UNDERUTILIZED_NODES, reasons.NOT_ENOUGH_NODES}) and bool(low) and low <= taken


def _settled_before(case: Case, difference: Difference) -> bool:
    """Its node is above a target, and no more once our other strategies are done; they brought pods elsewhere."""
    others = [move for move in case.ours.moves.values() if move.strategy != difference.strategy]
    return bool(others) and not case.reason(difference) and _relieved(case, case.pod(difference.pod).node)


def _filled_before(case: Case, difference: Difference) -> bool:
    """The node is underutilized, and no more once our other strategies have brought pods to it."""
    node = case.pod(difference.pod).node
    filled = any(move.target == node and move.strategy != difference.strategy for move in case.ours.moves.values())
    if not filled or node not in low_nodes(case, difference.strategy):
        return False
    with case.state(after=True):
        return node not in low_nodes(case, difference.strategy)


def _low_once_gone(case: Case, strategy: str, node: str, gone: list[Pod]) -> bool:
    """Whether a node that is not underutilized is so without those pods."""
    if not gone or node in low_nodes(case, strategy):
        return False
    for name, mark in _marks(case, strategy, "thresholds").items():
        requested, allocatable = _amount(case, node, name)
        if 100 * (requested - sum(_request(case, pod, name) for pod in gone)) > mark * allocatable:
            return False
    return True


def _taken_before(case: Case, strategy: str, node: str) -> list[Pod]:
    """The pods that other strategies of theirs evict from the node."""
    evicted = [each for each in case.theirs.values() if each.strategy != strategy and each.node == node]
    return [case.pod(each.pod) for each in evicted]


def _low_by_then(case: Case, difference: Difference) -> bool:
    """The node is underutilized only once those are gone that other strategies of theirs evict, and we do not."""
    node = case.pod(difference.pod).node
    gone = [pod for pod in _taken_before(case, difference.strategy, node) if pod.key not in case.ours.moves]
    return _low_once_gone(case, difference.strategy, node, gone)


def _others_low_by_then(case: Case, difference: Difference) -> bool:
    """We find no node underutilized; they do once those are gone that other strategies of theirs evict."""
    name, node = difference.strategy, case.pod(difference.pod).node
    kept = {each.reason for each in case.ours.plan.kept if each.kind == "Node" and each.name == node}
    if not kept & {reasons.NO_UNDERUTILIZED_NODES, reasons.NOT_ENOUGH_NODES}:
        return False
    nodes = [each for each in case.visible if not case.is_cordoned(each)]
    return any(_low_once_gone(case, name, each, _taken_before(case, name, each)) for each in nodes)


def _brought_before(case: Case, difference: Difference) -> bool:
    """Others of our strategies have brought pods to the node, or others of theirs taken some away: that is all."""
    theirs, ours = _numbers(case, difference)
    node, name = case.pod(difference.pod).node, difference.strategy
    brought = sum(move.target == node and move.strategy != name for move in case.ours.moves.values())
    taken = [each.pod for each in case.theirs.values() if each.node == node and each.strategy != name]
    return theirs < ours <= theirs + brought + sum(pod not in case.ours.moves for pod in taken)


def _in_its_place(case: Case, difference: Difference) -> bool:
    """They relieve the node by pods that we keep, as our plan says; more of the others go in their place."""
    theirs, ours = _numbers(case, difference)
    node, name = case.pod(difference.pod).node, difference.strategy
    there = [each.pod for each in case.evicted_by_them(name) if each.node == node]
    kept = [pod for pod in there if pod not in case.ours.moves and (pod, name) in case.ours.kept]
    return 0 < theirs < ours and bool(kept)


def _pooled(case: Case, difference: Difference) -> bool:
    """Added up, the destinations have no room left for one resource; one by one, one has."""
    evicted = [each.pod for each in case.evicted_by_them(difference.strategy)]
    return bool(destinations(case, difference.strategy)) and _pool_is_empty(case, difference.strategy, evicted)


def _tolerated(case: Case, difference: Difference) -> bool:
    """Whether, by their count, it tolerates all taints of one destination."""
    tolerations = case.pod(difference.pod).spec.tolerations
    snapshot = case.ours.snapshot
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
    """We do not empty the node: some pod of it stays, and our plan says for which reason, or it is filled instead."""
    node = case.pod(difference.pod).node
    kept = any(each.kind == "Node" and each.name == node for each in case.ours.plan.kept)
    filled = any(each.target == node for each in case.evicted_by_us(difference.strategy))
    staying = [
        pod
        for pod in case.ours.snapshot.pods_on(node)
        if pod.key not in case.ours.moves and not pod.terminal and pod.deleted is None
    ]
    return bool(staying) and (kept or filled)


def _all_low(case: Case, difference: Difference) -> bool:
    """All nodes that they see are low, so that they do nothing; or none of the others can be filled."""
    return not destinations(case, difference.strategy) and not case.evicted_by_them(difference.strategy)


UTILIZATION: Final = (
    Named("LeavingPods", "theirs", _leaving_pods, LOW),
    Named("LeavingPods", "ours", _low_without_leaving, HIGH),
    Named("OrderOfVictims", "theirs", _others, LOW),
    Named("OrderOfVictims", "ours", _others, LOW),
    Named("FewerSuffice", "theirs", _fewer_suffice, LOW),
    Named("StrictlyBetter", "theirs", _nowhere_low, LOW),
    Named("PlaceReserved", "theirs", _low_nodes_taken, LOW),
    Named("OrderOfStrategies", "theirs", _settled_before, LOW),
    Named("WholeNodes", "theirs", _node_kept, HIGH),
    Named("OrderOfStrategies", "theirs", _filled_before, HIGH),
    Named("OneFollowsAnother", "ours", _brought_before, LOW),
    Named("InItsPlace", "ours", _in_its_place, LOW),
    Named("OneFollowsAnother", "theirs", _others_low_by_then, LOW),
    Named("OneFollowsAnother", "theirs", _low_by_then, HIGH),
    Named("WholeNodes", "ours", _all_low, HIGH),
    Named("PooledRoom", "ours", _pooled, BOTH),
    Named("TolerationsOfAllTaints", "ours", _taints_of_all, BOTH),
)
