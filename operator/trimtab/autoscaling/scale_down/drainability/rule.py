"""What a drain rule is, what it may read, and what it can say."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Final, Protocol

from msgspec import Struct

from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.budgets import BudgetLedger
from trimtab.kube.objects import Pod

PREFIX: Final = "cluster-autoscaler.kubernetes.io/"
SAFE_TO_EVICT: Final = f"{PREFIX}safe-to-evict"
SAFE_TO_EVICT_LOCAL_VOLUMES: Final = f"{PREFIX}safe-to-evict-local-volumes"


class Outcome(StrEnum):
    """What becomes of a pod when its node is drained."""

    SKIP = "Skip"
    """It plays no part: it goes with the node, or is as good as gone."""
    DRAIN = "Drain"
    """It may be evicted, whatever later rules would say."""
    BLOCK = "Block"
    """It keeps the node."""
    WAIT = "Wait"
    """It keeps the node until it has ended by itself."""


class Verdict(Struct, frozen=True, gc=False):
    """A rule's decision.

    Attributes:
        outcome: what becomes of the pod.
        reason: where it keeps the node, a code of :mod:`trimtab.api.reasons`.
        message: the same in words, to follow the pod's name.
    """

    outcome: Outcome
    reason: str = ""
    message: str = ""


SKIP: Final = Verdict(Outcome.SKIP)
DRAIN: Final = Verdict(Outcome.DRAIN)


def block(reason: str, message: str) -> Verdict:
    """The pod keeps the node."""
    return Verdict(Outcome.BLOCK, reason, message)


class Context(Struct, frozen=True):
    """What rules compare a pod with.

    Attributes:
        snapshot: the picture.
        budgets: what disruption budgets allow, less what is planned.
        now: seconds since the epoch.
        local_storage_blocks: ``skipNodesWithLocalStorage``.
    """

    snapshot: Snapshot
    budgets: BudgetLedger
    now: float
    local_storage_blocks: bool = True


class Rule(Protocol):
    """One rule of draining.

    Attributes:
        reads: ``template`` where the verdict is the same for all pods of one template that run and are not being
            deleted, so that it is asked once for all of them; else ``pod``.
    """

    reads: ClassVar[str]

    def judge(self, pod: Pod, context: Context) -> Verdict | None:
        """The decision, ``None`` to leave it to the next rule."""
        ...
