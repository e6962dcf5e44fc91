"""Defines the base class of strategies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any, ClassVar, Generic, TypeVar

from trimtab.api.base import Spec
from trimtab.cluster.resources import BoolArray
from trimtab.descheduling.planning.context import StrategyContext
from trimtab.descheduling.planning.scope import PolicyScope
from trimtab.disruption.outcome import Refusal
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer

P = TypeVar("P", bound=Spec)

Measure = tuple[float, ...]
"""How much the cluster violates a strategy's goal. Measures are compared as tuples; zeros mean no violation."""


class Strategy(ABC, Generic[P]):
    """Base class of strategies. An instance is created for one policy and one plan.

    Every single move must lower :meth:`measure`, so that repeated planning terminates.

    Args:
        params: the policy's parameters.
        scope: the policy's nodes and pods.
        placer: the placer of the plan's snapshot.
    """

    NAME: ClassVar[str]

    IN_PLACE: ClassVar[bool] = False
    """Whether the replacement may run on the same node, because the strategy only restarts pods."""

    WHOLE_NODES: ClassVar[bool] = False
    """Whether the strategy drains nodes completely or not at all.

    If so, it is useless to execute only some of its moves.
    """

    objection_text: str = ""
    """The message with which nodes that :meth:`worse_slots` returns are rejected. It begins with ``node(s)``."""

    def __init__(self, params: P, scope: PolicyScope, placer: Placer) -> None:
        self.params = params
        self.scope = scope
        self.placer = placer
        self.snapshot = placer.snapshot

    @abstractmethod
    def plan(self, context: StrategyContext) -> None:
        """Find the pods that violate the strategy's goal, and plan to move each of them or record why it is kept.

        The order must depend only on the cluster state, and not on the order in which objects are stored.
        """

    @abstractmethod
    def measure(self) -> Measure:
        """Return how much the current snapshot violates the strategy's goal, including protected pods."""

    def objections(self, pod: Pod) -> Collection[int]:
        """Return :meth:`worse_slots` for a pod in the policy's scope, and no slots for other pods."""
        return () if self.scope.filters_pods and not self.scope.covers(pod) else self.worse_slots(pod)

    def worse_slots(self, pod: Pod) -> Collection[int]:
        """Return the slots where a placed pod would raise this strategy's measure if it were moved there.

        Later strategies avoid these slots. Otherwise two strategies could evict the same pod alternately forever.
        """
        del pod
        return ()

    def recheck(self, pod: Pod, places: BoolArray) -> Refusal | None:
        """Return the reason why a planned move is no longer useful; ``None`` if it still is.

        The method is called immediately before the eviction. It is meant for strategies whose input changes without
        watch events, such as measured utilization. The caller has checked that the pod exists, may be evicted and fits
        some node.

        Args:
            pod: the pod on its current node.
            places: bool, shape (nodes.capacity,); the slots that can run it.
        """
        del pod, places
        return None

    def may_object(self) -> bool:
        """Return whether :meth:`worse_slots` can return any slots with the strategy's parameters."""
        return type(self).worse_slots is not Strategy.worse_slots

    def pod_moved(self, before: Pod, after: Pod) -> None:
        """Process a move that any strategy has planned.

        Strategies that keep counts update them. If a move is undone, the reverse move is reported.
        """


AnyStrategy = Strategy[Any]
