"""Balances new nodes among similar node groups, so that their sizes stay about the same."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Final

from trimtab.autoscaling.scale_up.limits import Headroom
from trimtab.autoscaling.scale_up.options import ScaleUpCandidate
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
"""Labels that may differ between nodes of similar groups: zone, region, and the name of the group.

Cluster-autoscaler and OpenShift ignore only the current platform's labels. Here the labels of all platforms are
ignored, because no platform uses another one's labels.
"""

MEMORY_RATIO: Final = 0.015
"""Maximum relative difference in memory. Machines of one type report slightly different amounts (upstream's rule)."""

FREE_RATIO: Final = 0.05
"""Maximum relative difference in allocatable and free amounts (upstream's rule)."""


class SimilarGroupFinder:
    """Finds the groups that are similar to a group, so that new nodes are balanced among them.

    Args:
        candidates: all groups.
        ignored: further labels to ignore (``spec.balancingIgnoredLabels``).
        enabled: ``spec.balanceSimilarNodeGroups``; if false, no group has similar groups.
    """

    def __init__(self, candidates: Sequence[ScaleUpCandidate], ignored: Collection[str], *, enabled: bool) -> None:
        self._enabled = enabled
        self._alike: dict[str, tuple[ScaleUpCandidate, ...]] = {}
        buckets: dict[Hashable, list[ScaleUpCandidate]] = {}
        for each in candidates if enabled else ():
            buckets.setdefault(_shape(each, ignored), []).append(each)
        for bucket in buckets.values():
            for each in bucket:
                others = sorted((other for other in bucket if other is not each), key=lambda other: other.group.id)
                self._alike[each.group.id] = (each, *(other for other in others if _equal(each, other)))

    def similar(
        self, candidate: ScaleUpCandidate, helps: Callable[[ScaleUpCandidate], object]
    ) -> tuple[ScaleUpCandidate, ...]:
        """Return a group and the groups similar to it, in the order of their ids.

        Args:
            candidate: the group.
            helps: returns which classes of pods fit a group. Only groups that fit the same classes are similar.
        """
        if not self._enabled:
            return (candidate,)
        own = helps(candidate)
        return tuple(each for each in self._alike[candidate.group.id] if each is candidate or helps(each) == own)


def balance_nodes(nodes: int, groups: Sequence[ScaleUpCandidate], headroom: Headroom) -> list[ScaleUpCandidate]:
    """Return the group that each new node is added to.

    This is the smallest group that is below its maximum size. If several are equally small, it is the first by id.
    """
    heap = [(headroom.size(each.group), each.group.id, place) for place, each in enumerate(groups)]
    heapq.heapify(heap)
    found: list[ScaleUpCandidate] = []
    while heap and len(found) < nodes:
        size, id_, place = heapq.heappop(heap)
        if size < groups[place].group.maximum:
            found.append(groups[place])
            heapq.heappush(heap, (size + 1, id_, place))
    return found


def _shape(each: ScaleUpCandidate, ignored: Collection[str]) -> Hashable:
    """Return a key that similar groups share. Only groups with the same key are compared further."""
    node = each.template.node
    labels = frozenset((key, value) for key, value in node.labels.items() if key not in IGNORED and key not in ignored)
    amounts = frozenset((name, amount) for name, amount in each.amounts.items() if name != "memory")
    return labels, frozenset(node.taints), amounts, "memory" in each.amounts


def _equal(one: ScaleUpCandidate, other: ScaleUpCandidate) -> bool:
    """Return whether two groups with the same key also have similar memory and free capacity."""
    if not _within_ratio(one.amounts.get("memory", 0), other.amounts.get("memory", 0), MEMORY_RATIO):
        return False
    pairs = (
        (one.template.node.allocatable, other.template.node.allocatable),
        (one.template.free, other.template.free),
    )
    return all(
        _within_ratio(mine.get(name, 0), theirs.get(name, 0), FREE_RATIO)
        for mine, theirs in pairs
        for name in {**mine, **theirs}
    )


def _within_ratio(one: int, other: int, ratio: float) -> bool:
    return abs(one - other) <= ratio * max(one, other)
