"""NodeDeclaredFeatures: a node must have declared the features that the pod needs of its kubelet."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

import numpy as np

from trimtab.cluster.resources import BoolArray
from trimtab.kube.objects import Node, Pod
from trimtab.placement.framework import StaticFilter


class NodeDeclaredFeatures(StaticFilter):
    """Which features a pod needs follows from its spec, see :attr:`~trimtab.kube.objects.PodSpec.required_features`.

    Hardly any pod needs one, so there is no column: the nodes are read once per set of features that is needed.
    """

    name: ClassVar = "NodeDeclaredFeatures"
    reason: ClassVar = "node(s) didn't match Pod's required features"

    def key(self, pod: Pod) -> Hashable | None:
        """The features."""
        return pod.spec.required_features or None

    def judge(self, pod: Pod) -> BoolArray:
        """Pass where all of them are declared; nodes that declare none do not."""
        needed = frozenset(pod.spec.required_features)

        def declares(node: Node | None) -> bool:
            return node is not None and needed.issubset(node.declared_features)

        passing: BoolArray = np.zeros(self.snapshot.nodes.capacity, dtype=np.bool_)
        at = self.snapshot.nodes.at
        passing[: len(at)] = np.fromiter(map(declares, at), dtype=np.bool_, count=len(at))
        return passing
