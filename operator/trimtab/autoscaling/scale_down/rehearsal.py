"""Rehearses a plan of node removals with the choices that kube-scheduler is free to make.

The simulation finds one way to place the pods of removed nodes. kube-scheduler places each replacement on the node with
the highest score instead, at random among equal ones, in the order in which replacements are created. So a pod that
fits on many nodes can take the only place of another. That one is then left without a node, and scale-up adds a node
again. Cluster-autoscaler plans with one way as well, and its users report such loops.

A rehearsal places the pods as kube-scheduler does, in several orders. It is not needed if every pod fits on so many
nodes that the others cannot take them all (:meth:`.simulation.Simulation.leaves_choice`), or if the nodes have enough
room in any order.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from trimtab.api.plan import RemoveNode
from trimtab.cluster.disruption_signals import as_removed
from trimtab.cluster.resources import BoolArray
from trimtab.kube.objects import Node, Pod
from trimtab.placement.placer import Placer
from trimtab.placement.plan_budget import PlanBudget

MAX_REMOVALS: Final = 10
"""The number of removals with pods that are rehearsed together.

The operator drains at most five nodes at the same time, and plans again before it starts others.
"""

_SHUFFLED: Final = 2
"""Rehearsals in random order, in addition to those in the order of the plan and in reverse order."""


class StrandedPod(Struct, frozen=True):
    """A pod that was left without a node in a rehearsal.

    Attributes:
        node: name of the removed node on which the pod runs.
        pod: the pod, as it would be pending.
        message: why it fits on no node.
        alone: whether that can also happen if no other node is removed. Then the node is needed.
    """

    node: str
    pod: Pod
    message: str
    alone: bool = False


class RehearsalResult(Struct, frozen=True):
    """The removals that must not be carried out.

    Attributes:
        stranded: a pod of each removal that must not be carried out with the others.
        skipped: the removals with pods that were not rehearsed before the time limit of the plan.
    """

    stranded: Sequence[StrandedPod] = ()
    skipped: Sequence[RemoveNode] = ()


class Rehearsal:
    """Rehearses removals on a snapshot, and leaves it unchanged.

    Args:
        placer: places pods on the snapshot. Nothing of the plan is applied to it.
        leaving: pods of nodes that are already being removed.
        pending: pods that are pending.
        draining: the nodes that are already being removed.
        budget: the time limit of the plan.
    """

    def __init__(
        self,
        placer: Placer,
        *,
        leaving: Sequence[Pod],
        pending: Sequence[Pod],
        draining: Sequence[Node],
        budget: PlanBudget,
    ) -> None:
        self._placer = placer
        self._leaving, self._pending, self._draining = leaving, pending, draining
        self._budget = budget

    def run(self, removals: Sequence[RemoveNode]) -> RehearsalResult:
        """Rehearse until :data:`MAX_REMOVALS` removals with pods can be carried out together.

        Args:
            removals: the removals in the order of the plan.
        """
        later = deque(removal for removal in removals if removal.moves)
        rehearsed: list[RemoveNode] = []
        found: list[StrandedPod] = []
        complete = False
        while not complete:
            while later and len(rehearsed) < MAX_REMOVALS:
                rehearsed.append(later.popleft())
            complete = True
            if self._fits_in_any_order(rehearsed):
                break
            for variant in range(2 + _SHUFFLED):
                while rehearsed:
                    if self._budget.over:
                        return RehearsalResult(found, [*rehearsed, *later])
                    stranded = self._first_stranded(rehearsed, variant)
                    if stranded is None:
                        break
                    [removal] = [removal for removal in rehearsed if removal.node == stranded.node]
                    alone = any(self._first_stranded([removal], each) for each in range(2 + _SHUFFLED))
                    found.append(replace(stranded, alone=alone))
                    rehearsed = [removal for removal in rehearsed if removal.node != stranded.node]
                    complete = not later  # another removal takes its place, and must be rehearsed as well
        return RehearsalResult(found)

    def _fits_in_any_order(self, removals: Sequence[RemoveNode]) -> bool:
        """Return whether every pod certainly finds a node, whatever the order and the choices of the scheduler.

        That is so if as many pods of the largest requests fit on the nodes that are eligible for all pods: as long as
        fewer pods are placed, one of these nodes has room for another. It is not judged if the placement of a pod
        depends on other pods.
        """
        placer, snapshot = self._placer, self._placer.snapshot
        nodes = snapshot.nodes
        pods = [placer.replacement(snapshot.pods[move.pod]) for removal in removals for move in removal.moves]
        pods += [*map(placer.replacement, self._leaving), *self._pending]
        specs = {(id(pod.spec), pod.namespace, id(pod.labels)): pod for pod in pods}.values()
        if any(placer.refusal(pod) is not None or not placer.ignores_other_pods(pod) for pod in specs):
            return False
        among: BoolArray = nodes.used.copy()
        among[
            [
                nodes.slot_of[name]
                for name in (*(node.name for node in self._draining), *(removal.node for removal in removals))
            ]
        ] = False
        for pod in specs:
            among &= placer.eligible(pod)
        largest = np.max([snapshot.row(pod.spec) for pod in specs], axis=0, initial=0)
        wanted = np.flatnonzero(largest)
        free = nodes.allocatable[np.ix_(among, wanted)] - nodes.requested[np.ix_(among, wanted)]
        return int(np.maximum(free // largest[wanted], 0).min(axis=1, initial=len(pods)).sum()) >= len(pods)

    def _first_stranded(self, removals: Sequence[RemoveNode], variant: int) -> StrandedPod | None:
        snapshot = self._placer.snapshot
        source = random.Random(variant)
        with snapshot.fork():
            going = [snapshot.nodes.node(snapshot.nodes.slot_of[removal.node]) for removal in removals]
            for node in (*self._draining, *going):
                snapshot.put(as_removed(node))
            # Of these, pods that fit nowhere now must wait for a new node in any case.
            self._placer.place([*map(self._placer.displace, self._leaving), *self._pending])
            left = [
                (removal.node, self._placer.displace(snapshot.pods[move.pod]))
                for removal in removals
                for move in removal.moves
            ]
            if variant == 1:
                left.reverse()
            elif variant:
                source.shuffle(left)
            # A pod that does not fit is tried again once others have been placed, on which it may depend.
            while left:
                still = [each for each in left if not self._is_placed(each[1], variant, source)]
                if len(still) == len(left):
                    name, pod = still[0]
                    return StrandedPod(name, pod, self._placer.unschedulable_message(pod))
                left = still
        return None

    def _is_placed(self, pod: Pod, variant: int, source: random.Random) -> bool:
        with self._budget.charged(pod.namespace):
            best = self._placer.scorer.best(pod, self._placer.feasible(pod))
            if not len(best):
                return False
            slot = best[0] if variant == 0 else best[-1] if variant == 1 else best[source.randrange(len(best))]
            self._placer.reserve(pod, int(slot))
            return True
