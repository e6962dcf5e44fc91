"""Pending pods of a plan: which get nodes, which need none, and which nothing helps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.plan import Kept, Plan, ScaleUp
from trimtab.autoscaling.scale_down import STRATEGY as SCALE_DOWN
from trimtab.autoscaling.scale_up.told import STRATEGY as SCALE_UP

NOT_ASKING: Final = frozenset({reasons.NOT_UNSCHEDULABLE, reasons.SCHEDULING_GATED, reasons.TERMINATING})
"""Reasons of pods that do not wait for a node: the scheduler has not said that it finds none."""

PLACED: Final = frozenset({reasons.FITS_ON_NODE, reasons.FITS_ON_UPCOMING_NODE, reasons.NOMINATED})
"""Reasons of pods that need no new node: they have a place, or will have one."""

_SOON: Final = frozenset({reasons.SCALE_UP_DELAYED, reasons.SCALE_UP_NOT_SEEN})
"""Reasons of pods that a later pass judges anew, whatever becomes of the cluster."""


def helpless(kept: Kept) -> bool:
    """Whether the pod waits, and neither a node that is there nor a new one is for it."""
    return kept.reason not in NOT_ASKING and kept.reason not in PLACED and kept.reason not in _SOON


class PendingClass(Struct, frozen=True):
    """Pending pods of a namespace of which the same is said.

    Attributes:
        namespace: of all of them.
        reason: a code of :mod:`trimtab.api.reasons`.
        message: of the first of them.
        pod: the first by name.
        count: how many there are.
        helpless: whether nothing helps them.
    """

    namespace: str
    reason: str
    message: str
    pod: str
    count: int
    helpless: bool


def raised(plan: Plan) -> Iterator[ScaleUp]:
    """The groups that grow."""
    return (action for action in plan.scaling or () if isinstance(action, ScaleUp))


def kept_pods(plan: Plan) -> Iterator[Kept]:
    """Pending pods for which no node is added."""
    return (kept for kept in plan.kept if kept.kind == "Pod" and kept.strategy == SCALE_UP)


def kept_nodes(plan: Plan) -> Iterator[Kept]:
    """Nodes that stay."""
    return (kept for kept in plan.kept if kept.kind == "Node" and kept.strategy == SCALE_DOWN)


def waiting(plan: Plan) -> int:
    """How many pods wait for nodes: those that get new ones, and those of which the scheduler says that none fits."""
    helped = sum(len(action.pods) for action in raised(plan))
    return helped + sum(kept.reason not in NOT_ASKING for kept in kept_pods(plan))


def classes(kept: Iterable[Kept]) -> list[PendingClass]:
    """Pods of which the same is said, together; first those that nothing helps, then the most, then by name.

    Of pods that have a place each is told another node, so only the reason counts there.
    """
    found: dict[tuple[str, str, str], list[Kept]] = {}
    for each in kept:
        said = each.message if helpless(each) else ""
        found.setdefault((each.namespace, each.reason, said), []).append(each)
    made = []
    for pods in found.values():
        first = min(pods, key=lambda each: each.name)
        made.append(PendingClass(first.namespace, first.reason, first.message, first.name, len(pods), helpless(first)))
    return sorted(made, key=lambda each: (not each.helpless, -each.count, each.namespace, each.pod, each.reason))
