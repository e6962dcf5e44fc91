"""Evict pods that hold what the pod's volumes need: the node's last attachments, a disk, a claim for one pod only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from trimtab.kube.objects import Node, Pod
from trimtab.placement.remedies.costs import MOVE, MOVE_EACH
from trimtab.placement.remedies.framework import Case, Costs, Step
from trimtab.placement.remedies.victims import MOST, bound_to_node, clear


class FreeVolumes:
    """Pods with volumes go, those of the lowest priority first, until the rule passes; who need not go stays."""

    reason: ClassVar = "FreeVolumes"
    rules: ClassVar = frozenset(("NodeVolumeLimits", "VolumeRestrictions"))
    evicts: ClassVar = True

    def bound(self, case: Case, rule: str) -> Costs | float:
        """One pod at least."""
        del case, rule
        return MOVE + MOVE_EACH

    def steps(self, case: Case, node: Node, rule: str) -> Iterator[Step]:
        """One step."""
        users = sorted(_users(case, node, rule), key=lambda pod: (pod.priority, pod.key))
        victims = _enough(case, node, rule, [pod for pod in users if not bound_to_node(pod)])
        why = "its volumes leave no room for more" if rule == "NodeVolumeLimits" else "the pod's volumes are in use"
        step = clear(case, node, victims, reason=self.reason, why=why)
        if step:
            yield step


def _users(case: Case, node: Node, rule: str) -> list[Pod]:
    """Pods that may be in the way: of the node, and wherever they are where one uses the same claim."""
    snapshot = case.snapshot
    there = list(snapshot.volume_users.on.get(snapshot.nodes.slot_of[node.name], {}).values())
    claims = {volume.claim for volume in case.pod.spec.volumes if volume.claim}
    if rule == "NodeVolumeLimits" or not claims:
        return there
    on_nodes = [pod for pods in snapshot.volume_users.on.values() for pod in pods.values()]
    same = [
        pod
        for pod in on_nodes
        if pod.namespace == case.pod.namespace and any(volume.claim in claims for volume in pod.spec.volumes)
    ]
    return list({pod.key: pod for pod in [*same, *there]}.values())


def _enough(case: Case, node: Node, rule: str, users: list[Pod]) -> list[Pod]:
    """The pods without which the rule passes, none of them for nothing; empty where they are too many or no help."""
    with case.snapshot.fork():
        for number, pod in enumerate(users):
            case.snapshot.remove(pod)
            if case.passes(rule, case.pod, node.name):
                gone = users[: number + 1]
                break
        else:
            return []
        needed = []
        for pod in reversed(gone):
            case.snapshot.put(pod)
            if not case.passes(rule, case.pod, node.name):
                case.snapshot.remove(pod)
                needed.append(pod)
    return needed if len(needed) <= MOST else []
