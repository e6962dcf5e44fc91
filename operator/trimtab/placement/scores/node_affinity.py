"""NodeAffinity: the more of the pod's preferences a node meets, by their weights, the better."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

import numpy as np

from trimtab.cluster.resources import IntArray
from trimtab.kube.objects import Pod
from trimtab.placement.node_masks import term_mask
from trimtab.placement.scores.static import StaticScore


class NodeAffinity(StaticScore):
    """Adds the weights of the preferred terms that pick a node; the highest sum among the nodes is 100.

    Where no node meets any preference, all have 0, as for a pod without preferences, for which kube-scheduler v1.36
    does not ask at all. A term that is empty picks no node.

    The scheduler fails over a preference that it cannot evaluate and that the API server lets through (``Gt`` with no
    integer): such a pod is scheduled only while exactly one node passes the filters, for then nothing is scored. Here
    the term picks no node and the others count.
    """

    name: ClassVar = "NodeAffinity"
    weight: ClassVar = 2

    def key(self, pod: Pod) -> Hashable | None:
        """The preferences, if any."""
        return pod.spec.affinity.node.preferred or None

    def points(self, pod: Pod) -> IntArray:
        """The sum of weights, by masks of the terms."""
        found: IntArray = np.zeros(self.snapshot.nodes.capacity, dtype=np.int64)
        for preference in pod.spec.affinity.node.preferred:
            found += preference.weight * term_mask(self.snapshot, preference.term)
        return found
