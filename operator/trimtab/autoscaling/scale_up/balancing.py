"""Balancing: new nodes go to groups with equal nodes in turn, so that these grow alike."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Final

from trimtab.autoscaling.scale_up.limits import Headroom
from trimtab.autoscaling.scale_up.option import Candidate
from trimtab.kube.rules.node_labels import BETA_REGION, BETA_ZONE, HOSTNAME, REGION, ZONE

IGNORED: Final = frozenset(
    (
        HOSTNAME,
        ZONE,
        REGION,
        BETA_ZONE,
        BETA_REGION,
        "beta.kubernetes.io/fluentd-ds-ready",
        "kops.k8s.io/instancegroup",
        "topology.ebs.csi.aws.com/zone",
        "topology.k8s.aws/zone-id",
        "lifecycle",
        "k8s.amazonaws.com/eniConfig",
        "alpha.eksctl.io/instance-id",
        "alpha.eksctl.io/nodegroup-name",
        "eks.amazonaws.com/nodegroup",
        "eks.amazonaws.com/sourceLaunchTemplateId",
        "eks.amazonaws.com/sourceLaunchTemplateVersion",
        "topology.disk.csi.azure.com/zone",
        "agentpool",
        "kubernetes.azure.com/agentpool",
        "topology.gke.io/zone",
    )
)
"""Labels in which nodes of equal groups may differ: where they are, and which group they are of. Upstream and OpenShift
leave out those of the platform; here all are left out, as no platform uses another's."""

MEMORY_RATIO: Final = 0.015
"""By how much memory may differ: machines of one type tell slightly different amounts (upstream)."""

FREE_RATIO: Final = 0.05
"""By how much allocatable and free amounts may differ (upstream)."""


class Finder:
    """Finds the groups that share new nodes with a group.

    Args:
        candidates: all groups.
        ignored: of ``spec.balancingIgnoredLabels``.
        enabled: ``spec.balanceSimilarNodeGroups``; otherwise a group shares with none.
    """

    def __init__(self, candidates: Sequence[Candidate], ignored: Collection[str], *, enabled: bool) -> None:
        self._enabled = enabled
        self._alike: dict[str, tuple[Candidate, ...]] = {}
        buckets: dict[Hashable, list[Candidate]] = {}
        for each in candidates if enabled else ():
            buckets.setdefault(_shape(each, ignored), []).append(each)
        for bucket in buckets.values():
            for each in bucket:
                others = sorted((other for other in bucket if other is not each), key=lambda other: other.group.id)
                self._alike[each.group.id] = (each, *(other for other in others if _equal(each, other)))

    def similar(self, candidate: Candidate, helps: Callable[[Candidate], object]) -> tuple[Candidate, ...]:
        """A group and those like it by id.

        Args:
            candidate: the group.
            helps: what pods a group would help: only groups that help the same share.
        """
        if not self._enabled:
            return (candidate,)
        own = helps(candidate)
        return tuple(each for each in self._alike[candidate.group.id] if each is candidate or helps(each) == own)


def spread(nodes: int, groups: Sequence[Candidate], headroom: Headroom) -> list[Candidate]:
    """Which group gets which of the new nodes: each goes to the smallest group with room, of equals the first by id."""
    heap = [(headroom.size(each.group), each.group.id, place) for place, each in enumerate(groups)]
    heapq.heapify(heap)
    found: list[Candidate] = []
    while heap and len(found) < nodes:
        size, id_, place = heapq.heappop(heap)
        if size < groups[place].group.maximum:
            found.append(groups[place])
            heapq.heappush(heap, (size + 1, id_, place))
    return found


def _shape(each: Candidate, ignored: Collection[str]) -> Hashable:
    """What must be equal; nodes that differ in it need not be compared further."""
    node = each.template.node
    labels = frozenset((key, value) for key, value in node.labels.items() if key not in IGNORED and key not in ignored)
    amounts = frozenset((name, amount) for name, amount in each.amounts.items() if name != "memory")
    return labels, frozenset(node.taints), amounts, "memory" in each.amounts


def _equal(one: Candidate, other: Candidate) -> bool:
    """Whether nodes of one shape are near enough in memory, and in what they have for pods."""
    if not _near(one.amounts.get("memory", 0), other.amounts.get("memory", 0), MEMORY_RATIO):
        return False
    pairs = (
        (one.template.node.allocatable, other.template.node.allocatable),
        (one.template.free, other.template.free),
    )
    return all(
        _near(mine.get(name, 0), theirs.get(name, 0), FREE_RATIO)
        for mine, theirs in pairs
        for name in {**mine, **theirs}
    )


def _near(one: int, other: int, ratio: float) -> bool:
    return abs(one - other) <= ratio * max(one, other)
