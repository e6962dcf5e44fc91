"""What is wrong with the nodes for a pod, and how kube-scheduler puts it in a sentence."""

from __future__ import annotations

from collections import Counter
from typing import Final

from msgspec import Struct

from trimtab.placement.framework import Failure
from trimtab.placement.sentence import NO_NODES, refused, sentence

_NOT_SCHEDULED: Final = frozenset(("SchedulingGates", "DynamicResources"))
"""Rules whose refusal is no sentence of the scheduler: a gated pod it does not look at, claims trimtab does not."""


class Judgement(Struct, frozen=True, eq=False):
    """A pod against all nodes.

    Attributes:
        nodes: how many there are.
        refusal: why the pod can go nowhere, whatever the nodes are like; no node was looked at then.
        refused_by: the name of the rule that refuses it.
        error: whether that is an error with which the scheduler gives up, and which it tells as it is.
        failures: reasons with the slots that fail for just these. No slot is named twice, and those that are not named
            take the pod. A group may be empty.
    """

    nodes: int
    refusal: str | None
    failures: tuple[Failure, ...]
    refused_by: str = ""
    error: bool = False

    @property
    def fits(self) -> int:
        """How many nodes take the pod."""
        return 0 if self.refusal is not None else self.nodes - sum(len(slots) for _, slots in self.failures)

    def sentence(self) -> str:
        """kube-scheduler's sentence where no node fits, and one of the same shape where some do."""
        if self.refusal is not None and (self.error or self.refused_by in _NOT_SCHEDULED):
            return self.refusal
        if not self.nodes:
            return NO_NODES
        if self.refusal is not None:
            return refused(self.nodes, self.refusal)
        counts: Counter[str] = Counter()
        for texts, slots in self.failures:
            counts.update(dict.fromkeys(texts, len(slots)))
        return sentence(self.nodes, counts, fits=self.fits)
