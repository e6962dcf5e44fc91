"""The descheduler's nodeFit: five rules, evaluated for each pod separately in the unchanged cluster."""

from __future__ import annotations

from collections.abc import Iterable

from tests.descheduler_differential.case import Case
from trimtab.kube.objects import Pod
from trimtab.kube.rules.selectors import matches_labels


def fits(case: Case, name: str, *, home: bool = False, among: Iterable[str] | None = None) -> bool:
    """Whether some ready node that the policy's nodeSelector selects passes nodeFit.

    Args:
        case: the cluster and the policy.
        name: the pod, ``namespace/name``.
        home: whether the pod's own node counts; its requests are not checked there.
        among: the nodes to check; by default all visible nodes.
    """
    pod, suiting = case.pod(name), case.matching_nodes(name)
    for node in case.visible if among is None else among:
        if node not in suiting or case.is_cordoned(node) or (node == pod.node and not home):
            continue
        if not _violates_anti_affinity(case, pod, node) and (node == pod.node or _has_room(case, pod, node)):
            return True
    return False


def _violates_anti_affinity(case: Case, pod: Pod, node: str) -> bool:
    """Whether the pod's required anti-affinity matches a pod on the node, without evaluating namespaceSelector."""
    there = [other for other in case.trimtab.snapshot.pods_on(node) if other.name != pod.name and not other.terminal]
    return any(
        other.namespace in (term.namespaces or (pod.namespace,)) and matches_labels(term.selector, other.labels)
        for term in pod.spec.affinity.anti_required
        for other in there
    )


def _has_room(case: Case, pod: Pod, node: str) -> bool:
    snapshot = case.trimtab.snapshot
    slot = snapshot.nodes.slot_of[node]
    with case.state(after=False) as picture:
        free = picture.nodes.allocatable[slot] - picture.nodes.requested[slot]
        wanted = picture.row(pod.spec)
        return bool((wanted <= free).all())
