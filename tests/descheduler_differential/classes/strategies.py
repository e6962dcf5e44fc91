"""Differences of single strategies."""

from __future__ import annotations

from typing import Final

from tests.descheduler_differential.case import Case, Difference
from tests.descheduler_differential.classes.difference_class import DifferenceClass
from tests.descheduler_differential.classes.nodefit import fits
from tests.descheduler_differential.classes.places import IN_PLACE, RESTARTS
from trimtab.api import reasons
from trimtab.api.strategies import PREFERRED
from trimtab.descheduling.planning.anti_affinity_conflicts import AntiAffinityConflicts
from trimtab.kube.rules.selectors import matches_labels
from trimtab.kube.rules.taints import NO_SCHEDULE, NOT_READY, PREFER_NO_SCHEDULE, UNREACHABLE, tolerates

ANTI_AFFINITY: Final = frozenset({"RemovePodsViolatingInterPodAntiAffinity"})
AFFINITY: Final = frozenset({"RemovePodsViolatingNodeAffinity"})
TAINTS: Final = frozenset({"RemovePodsViolatingNodeTaints"})
LOW: Final = frozenset({"LowNodeUtilization"})
_LIFECYCLE: Final = frozenset({NOT_READY, UNREACHABLE})


def _ended(case: Case, difference: Difference) -> bool:
    return case.pod(difference.pod).terminal


def _fewest_conflicts_of_descheduler(case: Case, difference: Difference) -> bool:
    """The pod has a conflict before the plan, and after it only with pods that a limit keeps."""
    if not case.lowers_measure(difference, after=False) or case.reason(difference):
        return False
    with case.state(after=True) as snapshot:
        left = AntiAffinityConflicts(snapshot).neighbours(difference.pod)
    waiting = [case.trimtab.kept.get((name, difference.strategy)) for name in left]
    return all(kept is not None and kept.reason == reasons.LIMIT_REACHED for kept in waiting)


def _fewest_conflicts_of_trimtab(case: Case, difference: Difference) -> bool:
    """The pod conflicts with a pod that the descheduler evicts instead."""
    neighbours = AntiAffinityConflicts(case.trimtab.snapshot).neighbours(difference.pod)
    return any(name in neighbours for name in case.descheduler)


def _states_a_rule(case: Case, difference: Difference) -> bool:
    """Whether one of the pod's own terms, without namespaceSelector, matches a visible pod in the same domain."""
    snapshot, pod, scope = case.trimtab.snapshot, case.pod(difference.pod), case.scope(difference.strategy)
    labels = {node: snapshot.nodes.node(snapshot.nodes.slot_of[node]).labels for node in case.visible}
    for term in pod.spec.affinity.anti_required:
        here = labels[pod.node].get(term.topology_key)
        for other in snapshot.pods.values():
            if other.key == pod.key or other.node not in labels or other.terminal or here is None:
                continue
            if not scope.covers(other):
                continue
            same = labels[other.node].get(term.topology_key) == here
            trimtab = other.namespace in (term.namespaces or (pod.namespace,))
            if same and trimtab and matches_labels(term.selector, other.labels):
                return True
    return False


def _whole_anti_affinity(case: Case, difference: Difference) -> bool:
    """The pod has a conflict by another pod's term, or by a term that the descheduler does not fully evaluate."""
    return case.lowers_measure(difference, after=False) and not _states_a_rule(case, difference)


def _no_conflict(case: Case, difference: Difference) -> bool:
    """The pod has no conflict by kube-scheduler's rules.

    The descheduler ignores namespaceSelector, counts terminating pods, and treats nodes without the topology label as
    a domain.
    """
    if case.lowers_measure(difference, after=False):
        return False
    pod, terminating = (
        case.pod(difference.pod),
        [pod for pod in case.trimtab.snapshot.pods.values() if pod.deleted is not None],
    )
    labels = case.trimtab.snapshot.nodes.node(case.trimtab.snapshot.nodes.slot_of[pod.node]).labels
    for term in pod.spec.affinity.anti_required:
        if term.topology_key not in labels:
            return True
        if term.namespace_selector is not None or any(
            matches_labels(term.selector, other.labels) for other in terminating
        ):
            return True
    return False


def _own_place(case: Case, difference: Difference) -> bool:
    """With nodeFit, the descheduler requires another node and finds none; trimtab accepts the pod's own node."""
    move = case.trimtab.moves[difference.pod]
    return case.node_fit and move.target == move.node and not fits(case, difference.pod)


def _ended_need_no_place(case: Case, difference: Difference) -> bool:
    return case.node_fit and case.pod(difference.pod).terminal and not fits(case, difference.pod)


def _room_is_made(case: Case, difference: Difference) -> bool:
    """No node fits in the unchanged cluster; trimtab uses capacity that earlier moves free."""
    return not fits(case, difference.pod) and case.trimtab.moves[difference.pod].target not in case.fitting_nodes(
        difference, after=False, home=True
    )


def _node_fit_knows_less(case: Case, difference: Difference) -> bool:
    """No node passes nodeFit, which ignores namespaceSelector; one fits by kube-scheduler's filters."""
    terms = case.pod(difference.pod).spec.affinity.anti_required
    misread = any(term.namespace_selector is not None for term in terms)
    requested = case.node_fit or difference.strategy in AFFINITY
    return (
        requested and misread and not fits(case, difference.pod) and bool(case.fitting_nodes(difference, after=False))
    )


def _plain_selector(case: Case, difference: Difference) -> bool:
    """The pod has no required node affinity, and its node does not match its nodeSelector."""
    pod, nodes = case.pod(difference.pod), case.trimtab.snapshot.nodes
    labels = nodes.node(nodes.slot_of[pod.node]).labels
    missing = any(labels.get(name) != value for name, value in pod.spec.node_selector.items())
    return pod.spec.affinity.node.required is None and missing


def _of_the_node_lifecycle(case: Case, difference: Difference) -> bool:
    """The pod only does not tolerate taints of the node lifecycle, which includedTaints does not contain."""
    args, nodes, pod = case.args(difference.strategy), case.trimtab.snapshot.nodes, case.pod(difference.pod)
    effects = {NO_SCHEDULE, PREFER_NO_SCHEDULE} if args.get("includePreferNoSchedule") else {NO_SCHEDULE}
    excluded = args.get("excludedTaints", ())
    left = [
        taint
        for taint in nodes.node(nodes.slot_of[pod.node]).taints
        if taint.effect in effects
        and not {taint.key, f"{taint.key}={taint.value}"}.intersection(excluded)
        and not any(tolerates(each, taint) for each in pod.spec.tolerations)
    ]
    trimtab = all(taint.key in _LIFECYCLE for taint in left)
    return bool(left) and trimtab and not args.get("includedTaints") and not case.reason(difference)


def _condition_of_ready(case: Case, difference: Difference) -> bool:
    """The pod is ready, and the policy requires a duration of a condition other than Ready."""
    requested = case.args(difference.strategy).get("conditions", ())
    timed = any("minTimeSinceLastTransitionSeconds" in each and each.get("type") != "Ready" for each in requested)
    return timed and case.pod(difference.pod).ready and not case.reason(difference)


def _preferred_with_room(case: Case, difference: Difference) -> bool:
    """After the plan, no node that fits the pod matches its preferred node affinity better."""
    kinds = case.args(difference.strategy).get("nodeAffinityType", ())
    stated = bool(case.pod(difference.pod).spec.affinity.node.preferred)
    quiet = case.reason(difference) in ("", reasons.NO_IMPROVEMENT)
    return PREFERRED in kinds and stated and quiet and not case.improving_nodes(difference)


def _irrelevant(case: Case, difference: Difference) -> bool:
    return case.reason(difference) == reasons.IRRELEVANT_RESOURCE


STRATEGIES: Final = (
    DifferenceClass("EndedPodsDoNotRestart", "descheduler", _ended, RESTARTS),
    DifferenceClass("FewestVictims", "descheduler", _fewest_conflicts_of_descheduler, ANTI_AFFINITY),
    DifferenceClass("FullAntiAffinity", "descheduler", _no_conflict, ANTI_AFFINITY),
    DifferenceClass("FullAntiAffinity", "trimtab", _whole_anti_affinity, ANTI_AFFINITY),
    DifferenceClass("FewestVictims", "trimtab", _fewest_conflicts_of_trimtab, ANTI_AFFINITY),
    DifferenceClass("OwnNodeAccepted", "trimtab", _own_place, IN_PLACE),
    DifferenceClass("EndedPodsNeedNoNode", "trimtab", _ended_need_no_place),
    DifferenceClass("CapacityReserved", "trimtab", _room_is_made),
    DifferenceClass("FitsElsewhere", "trimtab", _node_fit_knows_less),
    DifferenceClass("PlainNodeSelector", "trimtab", _plain_selector, AFFINITY),
    DifferenceClass("PreferredNodesThatFit", "descheduler", _preferred_with_room, AFFINITY),
    DifferenceClass("NodeLifecycleTaints", "descheduler", _of_the_node_lifecycle, TAINTS),
    DifferenceClass("ReadyPodConditions", "descheduler", _condition_of_ready, frozenset({"PodLifeTime"})),
    DifferenceClass("RelevantResource", "descheduler", _irrelevant, LOW),
)
