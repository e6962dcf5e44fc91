"""What a plan says of pods that stay pending."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trimtab.api.plan import Kept
from trimtab.kube.objects import Pod

STRATEGY: Final = "ScaleUp"
"""In the place of a strategy, in everything that a plan keeps and that is about adding nodes."""

_NAMED: Final = 3


def kept(pod: Pod, reason: str, message: str, *, node: str = "") -> Kept:
    """A pending pod for which no node is added."""
    return Kept(
        kind="Pod", namespace=pod.namespace, name=pod.name, strategy=STRATEGY, reason=reason, message=message, node=node
    )


def named(names: Sequence[str]) -> str:
    """The first of several names, and how many there are beside."""
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"
