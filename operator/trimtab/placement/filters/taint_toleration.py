"""TaintToleration: every NoSchedule and NoExecute taint of the node must be tolerated."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from trimtab.cluster.resources import BoolArray
from trimtab.kube.objects import Pod
from trimtab.placement.framework import StaticFilter
from trimtab.placement.node_masks import untolerated_mask


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
