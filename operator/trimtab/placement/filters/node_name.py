"""NodeName: a pod that names its node runs nowhere else."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

import numpy as np

from trimtab.cluster.resources import BoolArray
from trimtab.kube.objects import Pod
from trimtab.placement.framework import StaticFilter


class NodeName(StaticFilter):
    """``spec.nodeName`` of a pod whose placement is asked for; a pod that is to be moved has it cleared before."""

    name: ClassVar = "NodeName"
    reason: ClassVar = "node(s) didn't match the requested node name"

    def key(self, pod: Pod) -> Hashable | None:
        """The node named, if any."""
        return pod.node or None

    def judge(self, pod: Pod) -> BoolArray:
        """Pass on the named node only."""
        nodes = self.snapshot.nodes
        passing: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
        slot = nodes.slot_of.get(pod.node)
        if slot is not None:
            passing[slot] = True
        return passing
