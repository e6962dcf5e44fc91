"""Pods that hold their place until the one that comes for them runs: for a while both are there.

That is so of single replicas, which a rollout renews, and of pods that a webhook moves itself. An evicted pod's place
is free at once, or soon; theirs is free only in the end, and their successor needs a place beside them.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from trimtab.api.reasons import NO_PLACE
from trimtab.cluster.resources import BoolArray
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer

HELD: Final = "node(s) had a pod that goes only once its successor runs"


class Overlap:
    """The nodes that such pods of a plan leave: nothing later in the plan counts on their going.

    Args:
        placer: of the plan.
    """

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self._held: dict[str, int] = {}

    def hold(self, pod: Pod) -> None:
        """The pod (as it is before its move) is to go, but not at once."""
        self._held[pod.key] = self._placer.snapshot.nodes.slot_of[pod.node]

    def let_go(self, pod: Pod) -> None:
        """Undo :meth:`hold`, where it was done."""
        self._held.pop(pod.key, None)

    def free(self) -> BoolArray | None:
        """Which slots nobody holds: bool, shape (nodes.capacity,); ``None`` where that is all."""
        if not self._held:
            return None
        mask: BoolArray = np.ones(self._placer.snapshot.nodes.capacity, dtype=np.bool_)
        mask[list(self._held.values())] = False
        return mask

    def refusal(self, pod: Pod, slot: int, *, stays_until_replaced: bool) -> Refusal | None:
        """Why the pod cannot be moved to a node within this plan, as far as pods overlap; ``None`` where it can.

        Args:
            pod: as it is before its move.
            slot: of the node.
            stays_until_replaced: whether it holds its own place until its successor runs.
        """
        nodes = self._placer.snapshot.nodes
        stays = nodes.slot_of[pod.node] == slot
        name = nodes.node(slot).name
        if not stays or stays_until_replaced:
            for key, held in self._held.items():
                if held == slot:
                    return Refusal(NO_PLACE, f"{key} leaves {name}, but only once its successor runs")
        if stays_until_replaced and not self._placer.feasible(pending(pod))[slot]:
            return Refusal(NO_PLACE, f"{name} does not take the pod's successor as long as the pod holds its own place")
        return None


def pending(pod: Pod) -> Pod:
    """The pod as if it had no node yet, for judging it where it is (:meth:`Placer.plain`)."""
    return msgspec.structs.replace(pod, node="")
