"""What the descheduler project's nodeFit says of a pod: five rules, each pod by itself, on the cluster as it is."""

from __future__ import annotations

from collections.abc import Iterable

from tests.descheduler_differential.facts import Case
from trimtab.kube.objects import Pod
from trimtab.kube.rules.selectors import matches_labels


def fits(case: Case, name: str, *, home: bool = False, among: Iterable[str] | None = None) -> bool:
    """Whether some node passes; of those that the policy's nodeSelector picks and that are ready.

    Args:
        case: where.
        name: of the pod, ``namespace/name``.
        home: whether the pod's own node counts, where its requests are not asked again.
        among: only these nodes.
    """
    pod, suiting = case.pod(name), case.suits(name)
    for node in case.visible if among is None else among:
        if node not in suiting or case.is_cordoned(node) or (node == pod.node and not home):
            continue
        if not _kept_apart(case, pod, node) and (node == pod.node or _has_room(case, pod, node)):
            return True
    return False


def _kept_apart(case: Case, pod: Pod, node: str) -> bool:
    """Whether the pod's own required anti-affinity picks a pod on the node; of its own namespace or those named."""
    there = [other for other in case.ours.snapshot.pods_on(node) if other.name != pod.name and not other.terminal]
    return any(
        other.namespace in (term.namespaces or (pod.namespace,)) and matches_labels(term.selector, other.labels)
        for term in pod.spec.affinity.anti_required
        for other in there
    )


def _has_room(case: Case, pod: Pod, node: str) -> bool:
    snapshot = case.ours.snapshot
    slot = snapshot.nodes.slot_of[node]
    with case.state(after=False) as picture:
        free = picture.nodes.allocatable[slot] - picture.nodes.requested[slot]
        wanted = picture.row(pod.spec)
        return bool((wanted <= free).all())
