"""What single strategies do otherwise."""

from __future__ import annotations

from typing import Final

from tests.descheduler_differential.classes.naming import Named
from tests.descheduler_differential.classes.nodefit import fits
from tests.descheduler_differential.classes.places import IN_PLACE, RESTARTS
from tests.descheduler_differential.facts import Case, Difference
from trimtab.api import reasons
from trimtab.api.strategies import PREFERRED
from trimtab.descheduling.conflicts import Conflicts
from trimtab.kube.rules.selectors import matches_labels
from trimtab.kube.rules.taints import NO_SCHEDULE, NOT_READY, PREFER_NO_SCHEDULE, UNREACHABLE, tolerates

ANTI_AFFINITY: Final = frozenset({"RemovePodsViolatingInterPodAntiAffinity"})
AFFINITY: Final = frozenset({"RemovePodsViolatingNodeAffinity"})
TAINTS: Final = frozenset({"RemovePodsViolatingNodeTaints"})
LOW: Final = frozenset({"LowNodeUtilization"})
_LIFECYCLE: Final = frozenset({NOT_READY, UNREACHABLE})


def _ended(case: Case, difference: Difference) -> bool:
    return case.pod(difference.pod).terminal


def _fewest_conflicts_theirs(case: Case, difference: Difference) -> bool:
    """It is in conflict, and no more once our plan is done, but with pods that are to go when the limit lets them."""
    if not case.matters(difference, after=False) or case.reason(difference):
        return False
    with case.state(after=True) as snapshot:
        left = Conflicts(snapshot).neighbours(difference.pod)
    waiting = [case.ours.kept.get((name, difference.strategy)) for name in left]
    return all(kept is not None and kept.reason == reasons.LIMIT_REACHED for kept in waiting)


def _fewest_conflicts_ours(case: Case, difference: Difference) -> bool:
    """It is in conflict with a pod that they evict in its place."""
    neighbours = Conflicts(case.ours.snapshot).neighbours(difference.pod)
    return any(name in neighbours for name in case.theirs)


def _states_a_rule(case: Case, difference: Difference) -> bool:
    """Whether one of the pod's own terms, as they read it, picks another pod in the same domain that they see."""
    snapshot, pod, scope = case.ours.snapshot, case.pod(difference.pod), case.scope(difference.strategy)
    labels = {node: snapshot.nodes.node(snapshot.nodes.slot_of[node]).labels for node in case.visible}
    for term in pod.spec.affinity.anti_required:
        here = labels[pod.node].get(term.topology_key)
        for other in snapshot.pods.values():
            if other.key == pod.key or other.node not in labels or other.terminal or here is None:
                continue
            if not scope.covers(other):
                continue
            same = labels[other.node].get(term.topology_key) == here
            ours = other.namespace in (term.namespaces or (pod.namespace,))
            if same and ours and matches_labels(term.selector, other.labels):
                return True
    return False


def _whole_anti_affinity(case: Case, difference: Difference) -> bool:
    """It is in conflict, by a rule that is another's, or that they do not read to the end."""
    return case.matters(difference, after=False) and not _states_a_rule(case, difference)


def _no_conflict(case: Case, difference: Difference) -> bool:
    """It is in no conflict, as the scheduler reads its terms.

    They read no namespaceSelector, count who is going, and take a node without the topology's label for a domain.
    """
    if case.matters(difference, after=False):
        return False
    pod, going = case.pod(difference.pod), [pod for pod in case.ours.snapshot.pods.values() if pod.deleted is not None]
    labels = case.ours.snapshot.nodes.node(case.ours.snapshot.nodes.slot_of[pod.node]).labels
    for term in pod.spec.affinity.anti_required:
        if term.topology_key not in labels:
            return True
        if term.namespace_selector is not None or any(matches_labels(term.selector, other.labels) for other in going):
            return True
    return False


def _own_place(case: Case, difference: Difference) -> bool:
    """With nodeFit they ask for another node, by rules that are fewer: none passes, and we found its own to do."""
    move = case.ours.moves[difference.pod]
    return case.node_fit and move.target == move.node and not fits(case, difference.pod)


def _ended_need_no_place(case: Case, difference: Difference) -> bool:
    return case.node_fit and case.pod(difference.pod).terminal and not fits(case, difference.pod)


def _room_is_made(case: Case, difference: Difference) -> bool:
    """They see no room as things are; we found some that those leave who go before."""
    return not fits(case, difference.pod) and case.ours.moves[difference.pod].target not in case.takers(
        difference, after=False, home=True
    )


def _node_fit_knows_less(case: Case, difference: Difference) -> bool:
    """By their nodeFit no node takes it, and by the scheduler's rules one does: theirs reads no namespaceSelector."""
    terms = case.pod(difference.pod).spec.affinity.anti_required
    misread = any(term.namespace_selector is not None for term in terms)
    asked = case.node_fit or difference.strategy in AFFINITY
    return asked and misread and not fits(case, difference.pod) and bool(case.takers(difference, after=False))


def _plain_selector(case: Case, difference: Difference) -> bool:
    """It requires nothing by affinity, and its node lacks a label that its selector asks for."""
    pod, nodes = case.pod(difference.pod), case.ours.snapshot.nodes
    labels = nodes.node(nodes.slot_of[pod.node]).labels
    missing = any(labels.get(name) != value for name, value in pod.spec.node_selector.items())
    return pod.spec.affinity.node.required is None and missing


def _of_the_node_lifecycle(case: Case, difference: Difference) -> bool:
    """All that it does not tolerate is the node lifecycle's, which includedTaints does not name."""
    args, nodes, pod = case.args(difference.strategy), case.ours.snapshot.nodes, case.pod(difference.pod)
    effects = {NO_SCHEDULE, PREFER_NO_SCHEDULE} if args.get("includePreferNoSchedule") else {NO_SCHEDULE}
    excluded = args.get("excludedTaints", ())
    left = [
        taint
        for taint in nodes.node(nodes.slot_of[pod.node]).taints
        if taint.effect in effects
        and not {taint.key, f"{taint.key}={taint.value}"}.intersection(excluded)
        and not any(tolerates(each, taint) for each in pod.spec.tolerations)
    ]
    ours = all(taint.key in _LIFECYCLE for taint in left)
    return bool(left) and ours and not args.get("includedTaints") and not case.reason(difference)


def _condition_of_ready(case: Case, difference: Difference) -> bool:
    """It is ready, and the policy asks how long a condition lasts that is not Ready."""
    asked = case.args(difference.strategy).get("conditions", ())
    timed = any("minTimeSinceLastTransitionSeconds" in each and each.get("type") != "Ready" for each in asked)
    return timed and case.pod(difference.pod).ready and not case.reason(difference)


def _preferred_with_room(case: Case, difference: Difference) -> bool:
    """The heaviest node does not take it: after our plan none that takes it is one that it would rather be on."""
    kinds = case.args(difference.strategy).get("nodeAffinityType", ())
    stated = bool(case.pod(difference.pod).spec.affinity.node.preferred)
    quiet = case.reason(difference) in ("", reasons.NO_IMPROVEMENT)
    return PREFERRED in kinds and stated and quiet and not case.betters(difference)


def _irrelevant(case: Case, difference: Difference) -> bool:
    return case.reason(difference) == reasons.IRRELEVANT_RESOURCE


STRATEGIES: Final = (
    Named("EndedPodsRestartNoMore", "theirs", _ended, RESTARTS),
    Named("FewestConflicts", "theirs", _fewest_conflicts_theirs, ANTI_AFFINITY),
    Named("WholeAntiAffinity", "theirs", _no_conflict, ANTI_AFFINITY),
    Named("WholeAntiAffinity", "ours", _whole_anti_affinity, ANTI_AFFINITY),
    Named("FewestConflicts", "ours", _fewest_conflicts_ours, ANTI_AFFINITY),
    Named("OwnPlaceWillDo", "ours", _own_place, IN_PLACE),
    Named("EndedPodsNeedNoPlace", "ours", _ended_need_no_place),
    Named("PlaceReserved", "ours", _room_is_made),
    Named("PlaceFirst", "ours", _node_fit_knows_less),
    Named("PlainNodeSelector", "ours", _plain_selector, AFFINITY),
    Named("PreferredWithRoom", "theirs", _preferred_with_room, AFFINITY),
    Named("TaintsOfTheNodeLifecycle", "theirs", _of_the_node_lifecycle, TAINTS),
    Named("ConditionsOfReadyPods", "theirs", _condition_of_ready, frozenset({"PodLifeTime"})),
    Named("RelevantResource", "theirs", _irrelevant, LOW),
)
