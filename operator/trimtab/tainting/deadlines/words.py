"""Taints, tolerations and deadlines in words, for plans, events and the status."""

from __future__ import annotations

from trimtab.api.plan import rfc3339
from trimtab.kube.objects import Taint, Toleration
from trimtab.kube.rules.taints import NO_EXECUTE, taint_in_words
from trimtab.tainting.deadlines.rule import Deadline


def toleration_in_words(toleration: Toleration | None) -> str:
    """``key=value:NoExecute for 300s``, with ``*`` for every key or effect; ``""`` for none.

    ``Exists`` needs no word: what has no ``=value`` is for any value. An Equal with no value is told as ``key=``.
    """
    if toleration is None:
        return ""
    operator = toleration.operator or "Equal"
    value = "" if operator == "Exists" else f"={toleration.value}"
    compared = f" ({operator})" if operator not in ("Exists", "Equal") else ""
    borne = "for ever" if toleration.seconds is None else f"for {max(0, toleration.seconds)}s"
    return f"{toleration.key or '*'}{value}:{toleration.effect or '*'}{compared} {borne}"


def deadline_in_words(deadline: Deadline) -> str:
    """Why a pod goes when it goes: the taint, since when it counts for the pod, and the toleration."""
    taint = f"taint {taint_in_words(deadline.taint)}"
    if deadline.toleration is None:
        return f"{taint} since {rfc3339(deadline.since)}; no toleration matches"
    return f"{taint} since {rfc3339(deadline.since)}, tolerated by {toleration_in_words(deadline.toleration)}"


def tolerated_in_words(taints: tuple[Taint, ...]) -> str:
    """Why a pod stays on a node with these taints."""
    named = ", ".join(taint_in_words(taint) for taint in taints if taint.effect == NO_EXECUTE)
    return f"tolerates {named} for ever"
