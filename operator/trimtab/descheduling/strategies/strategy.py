"""What a strategy is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any, ClassVar, Generic, TypeVar

from trimtab.api.base import Spec
from trimtab.cluster.resources import BoolArray
from trimtab.descheduling.context import Context
from trimtab.descheduling.scope import Scope
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer

P = TypeVar("P", bound=Spec)

Measure = tuple[float, ...]
"""How badly a cluster violates what a strategy wants; compared as tuples are, 0 for not at all."""


class Strategy(ABC, Generic[P]):
    """One strategy with one policy's parameters, made for one plan.

    Strictly better or not at all: every single move lowers :meth:`measure`. So a plan never worsens what it set out
    to mend, and planning again and again comes to an end.

    Args:
        params: as the policy gives them.
        scope: the policy's nodes and pods.
        placer: of the plan's snapshot.
    """

    NAME: ClassVar[str]

    IN_PLACE: ClassVar[bool] = False
    """Whether a pod may come back to the node that it is evicted from: it is to start anew, not to be elsewhere."""

    WHOLE_NODES: ClassVar[bool] = False
    """Whether it empties a node wholly or not at all: some of its moves alone would be made for nothing."""

    unwelcome_text: str = ""
    """What is told of a node that :meth:`unwelcome` names; begins with ``node(s)``."""

    def __init__(self, params: P, scope: Scope, placer: Placer) -> None:
        self.params = params
        self.scope = scope
        self.placer = placer
        self.snapshot = placer.snapshot

    @abstractmethod
    def plan(self, context: Context) -> None:
        """Find the pods in violation, in an order that depends on names only, and move or keep each."""

    @abstractmethod
    def measure(self) -> Measure:
        """The violation in the snapshot as it is now, over all pods that count, protected ones among them."""

    def objections(self, pod: Pod) -> Collection[int]:
        """:meth:`unwelcome`, for pods that the policy looks at."""
        return () if self.scope.narrow and not self.scope.covers(pod) else self.unwelcome(pod)

    def unwelcome(self, pod: Pod) -> Collection[int]:
        """The slots where a placed pod would raise this strategy's measure; for the strategies that run after it.

        Without this, two strategies of one policy could send a pod back and forth for ever, one cycle each.
        """
        del pod
        return ()

    def no_longer(self, pod: Pod, places: BoolArray) -> Refusal | None:
        """Why a planned move of the pod is no longer wanted, asked right before it is made; ``None`` where it is.

        For strategies that plan on what changes by itself. Whether the pod is there, may go and has a place is known.

        Args:
            pod: where it is.
            places: bool, shape (nodes.capacity,); the slots that take it.
        """
        del pod, places
        return None

    def may_object(self) -> bool:
        """Whether :meth:`unwelcome` could ever name a slot, with these parameters."""
        return type(self).unwelcome is not Strategy.unwelcome

    def moved(self, before: Pod, after: Pod) -> None:
        """Take note of a move that some strategy of the plan has made; for those that keep counts of their own.

        A move that is taken back is told as a move the other way round.
        """


AnyStrategy = Strategy[Any]
