"""TaintToleration: the fewer taints a node has that say it had better not take the pod, the better."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

import numpy as np

from trimtab.cluster.resources import IntArray
from trimtab.kube.objects import Pod, Taint, Toleration
from trimtab.kube.rules.taints import PREFER_NO_SCHEDULE, tolerates
from trimtab.placement.scores.static import StaticScore


class TaintToleration(StaticScore):
    """Counts PreferNoSchedule taints that are not tolerated; none is 100, the most among the nodes is 0.

    A taint that a node has twice (with two values) counts twice. Source: kube-scheduler v1.36 ``tainttoleration``.
    """

    name: ClassVar = "TaintToleration"
    weight: ClassVar = 3
    reverse: ClassVar = True

    def key(self, pod: Pod) -> Hashable | None:
        """The tolerations that can tolerate such taints."""
        return _soft(pod.spec.tolerations)

    def points(self, pod: Pod) -> IntArray:
        """Judged per set of taints: thousands of nodes share a few dozen."""
        tolerations = _soft(pod.spec.tolerations)
        nodes = self.snapshot.nodes
        counts = [sum(_minds(taint, tolerations) for taint in taints) for taints in nodes.taint_sets]
        found: IntArray = np.array(counts, dtype=np.int64)[nodes.taints]
        return found


def _soft(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    return tuple(each for each in tolerations if each.effect in ("", PREFER_NO_SCHEDULE))


def _minds(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    return taint.effect == PREFER_NO_SCHEDULE and not any(tolerates(each, taint) for each in tolerations)
