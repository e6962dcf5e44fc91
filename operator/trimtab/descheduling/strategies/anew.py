"""Strategies for pods that are to start anew: what is wrong with them ends with them, wherever the next one runs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Final, TypeVar

import numpy as np

from trimtab.api.base import Spec
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.descheduling.context import Context, Wish, pending
from trimtab.descheduling.scope import Scope
from trimtab.descheduling.strategies.strategy import Measure, Strategy
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer

P = TypeVar("P", bound=Spec)

FORESEEN: Final = 1000
"""Of so many pods a plan says where the next ones will likely run. At 30 evictions a minute that is half an hour of
acting, and plans are made anew more often; of the others it is enough that they have a place, and their own is sure."""


class StartAnew(Strategy[P]):
    """Pods are evicted so that their controllers make new ones.

    The next pod may run where this one did, whose place it frees. But some node must take it: else the eviction would
    only end a pod and start none. Its measure counts the pods that are still as they were, so every move lowers it.
    """

    IN_PLACE: ClassVar[bool] = True

    def __init__(self, params: P, scope: Scope, placer: Placer) -> None:
        super().__init__(params, scope, placer)
        self._anywhere: BoolArray = np.ones(self.snapshot.nodes.capacity, dtype=np.bool_)
        self._selected: list[bool] = scope.selected.tolist()
        self._anew: set[str] = set()
        self._foreseen = 0

    def measure(self) -> Measure:
        """Pods that are to start anew, or are to be removed, and that no move of this plan makes so."""
        return (float(sum(1 for _ in self._found())),)

    def moved(self, before: Pod, after: Pod) -> None:
        """Whoever moves a pod lets it start anew; what is told a second time is that the move was taken back."""
        del after
        self._anew ^= {before.key}

    @abstractmethod
    def _concerns(self, pod: Pod) -> bool:
        """Whether the pod is to start anew; the cheapest test first, for it is asked of every pod."""

    def _found(self) -> Iterator[Pod]:
        """The pods in question on the policy's nodes, in any order."""
        slot_of, selected = self.snapshot.nodes.slot_of, self._selected
        for pod in self.snapshot.pods.values():
            if pod.deleted is None and self._concerns(pod) and pod.key not in self._anew:
                slot = slot_of.get(pod.node)
                if slot is not None and selected[slot] and self.scope.covers(pod):
                    yield pod

    def _restart(self, context: Context, pod: Pod, *, reason: str, text: str, elsewhere: bool = False) -> None:
        """Evict the pod if a node takes the next one, else keep it.

        Args:
            context: of the plan.
            pod: a candidate.
            reason: the code for the eviction.
            text: why, with the numbers compared.
            elsewhere: whether to prefer every other node to the pod's own.
        """
        nodes = self.snapshot.nodes
        home = nodes.slot_of[pod.node]
        if self._foreseen >= FORESEEN and not elsewhere and self._home_is_sure(pod, home):
            told = f"{text}; its own node takes the next one"
            refusal = context.obstacle(pod) or context.move(pod, home, reason=reason, message=told)
            if refusal is not None:
                context.keep(pod, refusal.reason, refusal.message)
            return
        rank: IntArray | None = None
        if elsewhere:
            rank = np.zeros(nodes.capacity, dtype=np.int64)
            rank[home] = 1

        def message(slot: int) -> str:
            return f"{text}; {'its own node' if slot == home else nodes.node(slot).name} takes the next one"

        refused = context.try_move(pod, Wish(self._anywhere, "", rank, stay=True), reason=reason, message=message)
        self._foreseen += refused is None

    def _home_is_sure(self, pod: Pod, home: int) -> bool:
        """Whether the pod's node takes it again beyond doubt: it suits the pod, and is not overcommitted."""
        spec, nodes, asked = pod.spec, self.snapshot.nodes, pending(pod)
        return (
            not (spec.volumes or spec.host_ports or spec.resource_claims)
            and bool(self.scope.destinations[home])
            and self.placer.plain(asked)
            and self.placer.refusal(asked) is None
            and bool(self.placer.eligible(asked)[home])
            and bool((nodes.requested[home] <= nodes.allocatable[home]).all())
        )
