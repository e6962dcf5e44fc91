"""For how long a pod bears a taint."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from trimtab.api.taint_manager import FIRST, TaintManagerSpec
from trimtab.kube.objects import Taint, Toleration
from trimtab.kube.rules.taints import NO_EXECUTE, NOT_READY, UNREACHABLE, tolerates

FOREVER: Final = math.inf


class Tolerating(Struct, frozen=True):
    """How tolerations are read.

    Attributes:
        first: whether of several tolerations of one taint the first in the pod's list counts alone, as in
            kube-controller-manager (v1.36 ``GetMatchingTolerations``). Else all count, whatever their order: what the
            device taint controller of the same program does, and what users expect of a list that is a set.
        not_ready: seconds for which pods bear not-ready that say nothing of it; ``None`` for not at all.
        unreachable: the same of unreachable.
    """

    first: bool = False
    not_ready: int | None = None
    unreachable: int | None = None

    @classmethod
    def of(cls, spec: TaintManagerSpec) -> Tolerating:
        """What a TaintManager asks for."""
        defaults = spec.default_tolerations
        return cls(
            first=spec.toleration_matching == FIRST,
            not_ready=defaults.default_not_ready_toleration_seconds,
            unreachable=defaults.default_unreachable_toleration_seconds,
        )

    def complete(self, tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
        """The tolerations with the defaults for what they say nothing of.

        The API server's plugin DefaultTolerationSeconds decides by key and effect alone, and so does this: who says
        anything of a key, with whatever operator, gets no default for it.
        """
        return (*tolerations, *self._defaults(tolerations))

    def _defaults(self, tolerations: tuple[Toleration, ...]) -> Iterator[Toleration]:
        for key, seconds in ((NOT_READY, self.not_ready), (UNREACHABLE, self.unreachable)):
            said = any(each.key in ("", key) and each.effect in ("", NO_EXECUTE) for each in tolerations)
            if seconds is not None and not said:
                yield Toleration(key=key, operator="Exists", effect=NO_EXECUTE, seconds=seconds)


class Tolerance(Struct, frozen=True, gc=False):
    """How long a taint is borne.

    Attributes:
        seconds: 0 for not at all, :data:`FOREVER` for without end.
        toleration: by which; ``None`` where none matches.
    """

    seconds: float
    toleration: Toleration | None = None


NOT_AT_ALL: Final = Tolerance(0.0)


def tolerance(tolerations: Sequence[Toleration], taint: Taint, rule: Tolerating) -> Tolerance:
    """How long a pod with these tolerations bears a taint.

    With no match not at all; with any match that has no tolerationSeconds for ever; else for the fewest seconds, those
    below 0 counting as 0 (core/v1: "zero and negative values will be treated as 0").

    Args:
        tolerations: the pod's, completed (:meth:`Tolerating.complete`).
        taint: of effect NoExecute.
        rule: how tolerations are read.
    """
    matching = [each for each in tolerations if tolerates(each, taint)]
    if not matching:
        return NOT_AT_ALL
    chosen = matching[0] if rule.first else min(matching, key=_rank)
    seconds = FOREVER if chosen.seconds is None else float(max(0, chosen.seconds))
    return Tolerance(seconds, chosen)


def _rank(toleration: Toleration) -> tuple[bool, int, str, str, str, str]:
    """Those without end before all others, then by seconds; the rest only makes the choice the same in any order."""
    limited = toleration.seconds is not None
    seconds = max(0, toleration.seconds or 0)
    return limited, seconds, toleration.key, toleration.operator, toleration.value, toleration.effect
