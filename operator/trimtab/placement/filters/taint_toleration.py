"""TaintToleration: every NoSchedule and NoExecute taint of the node must be tolerated."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

import numpy as np

from trimtab.cluster.resources import BoolArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod, Toleration
from trimtab.kube.rules.taints import untolerated
from trimtab.placement.framework import StaticFilter


class TaintToleration(StaticFilter):
    """PreferNoSchedule is a matter of scores; ``tolerationSeconds`` is ignored when scheduling (v1.36)."""

    name: ClassVar = "TaintToleration"
    reason: ClassVar = "node(s) had untolerated taint(s)"

    def key(self, pod: Pod) -> Hashable | None:
        """The tolerations."""
        return pod.spec.tolerations

    def judge(self, pod: Pod) -> BoolArray:
        """Pass where no hard taint is left over."""
        return ~untolerated_mask(self.snapshot, pod.spec.tolerations)


def untolerated_mask(snapshot: Snapshot, tolerations: tuple[Toleration, ...]) -> BoolArray:
    """Which nodes have a NoSchedule or NoExecute taint that no toleration tolerates.

    Judged per set of taints: thousands of nodes share a few dozen.

    Returns:
        bool, shape (nodes.capacity,), a fresh array; false in free slots.
    """
    nodes = snapshot.nodes
    verdicts = [untolerated(taints, tolerations) is not None for taints in nodes.taint_sets]
    found: BoolArray = np.array(verdicts, dtype=np.bool_)[nodes.taints]
    return found
