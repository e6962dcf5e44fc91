"""NodeName: a pod that names its node runs nowhere else."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from trimtab.kube.objects import Node, Pod
from trimtab.placement.framework import StaticFilter


class NodeName(StaticFilter):
    """``spec.nodeName`` of a pod whose placement is asked for; a pod that is to be moved has it cleared before."""

    name: ClassVar = "NodeName"
    reason: ClassVar = "node(s) didn't match the requested node name"

    def key(self, pod: Pod) -> Hashable | None:
        """The node named, if any."""
        return pod.node or None

    def allows(self, pod: Pod, node: Node) -> bool:
        """Pass on the named node only."""
        return pod.node == node.name
