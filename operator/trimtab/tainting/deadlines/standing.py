"""Since when the NoExecute taints of a node stand: what every pod's time is counted from.

``timeAdded`` says it where it is there and true. kubectl writes none and the API server adds none; a host's clock may
be ahead; and a swap of not-ready and unreachable writes a new time though the outage goes on. In these three cases the
time is only known to who was there, so it is noted in an annotation of the node (:func:`note`), from which a new
process goes on as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from trimtab.kube.clock import micro_time
from trimtab.kube.objects import Node, Taint
from trimtab.kube.rules.taints import NO_EXECUTE, NOT_READY, UNREACHABLE

SINCE_ANNOTATION: Final = "trimtab.dev/taints-since"
"""The node's annotation with the times that its taints don't tell: JSON, a list of :class:`_Noted`."""

SWAPPED: Final = {NOT_READY: UNREACHABLE, UNREACHABLE: NOT_READY}
"""Taints of one outage: the other of each."""

_MOST: Final = 64
"""Entries of an annotation that are read: more than a node has NoExecute taints."""


class StandingTaint(Struct, frozen=True, gc=False):
    """A NoExecute taint of a node, and since when it counts (seconds since the epoch)."""

    taint: Taint
    since: float

    @property
    def obvious(self) -> bool:
        """Whether the taint itself tells since when, so that nobody need note it."""
        return self.taint.time_added == self.since


class NodeTaints(Struct, frozen=True, gc=False):
    """The NoExecute taints of one node, by key and value, none where it has none.

    ``uid`` is the node's: a later node of its name starts anew.
    """

    uid: str
    standing: tuple[StandingTaint, ...]


def observe(node: Node, before: NodeTaints | None, *, now: float, followed: bool = True) -> NodeTaints:
    """What is known of a node's NoExecute taints, now that the node looks like this.

    A taint that was there before, with the same value and time, counts from when it did. A new one counts from its
    ``timeAdded``, or from now where it has none or one that is still to come. Where not-ready has taken the place of
    unreachable or the reverse, the older time is kept: the outage did not begin again.

    Args:
        node: as it is.
        before: what was known of it; ``None`` where nothing was, as after a restart: then what is noted counts. Of a
            node that was seen before the note says nothing new, and may be of taints that are gone.
        now: seconds since the epoch.
        followed: whether every change of the node since was seen. If not, the node may have been well in between, and a
            swap counts from its own time: pods go later than they might, and none too soon.
    """
    if before is not None and before.uid != node.uid:
        before = None
    known = _recall(node) if before is None else {_identity(each.taint): each.since for each in before.standing}
    outage: dict[str, float] = {}
    if before is not None and followed:
        outage = {each.taint.key: each.since for each in before.standing if each.taint.key in SWAPPED}
    standing = []
    for taint in _no_execute(node.taints):
        since = known.get(_identity(taint))
        if since is None:
            added = now if taint.time_added is None else taint.time_added
            since = min(added, outage.get(SWAPPED.get(taint.key, ""), added))
        standing.append(StandingTaint(taint, min(since, now)))
    return NodeTaints(node.uid, tuple(standing))


def note(taints: NodeTaints) -> str | None:
    """What :data:`SINCE_ANNOTATION` has to say of a node; ``None`` where it need not be there."""
    noted = [
        _Noted(each.taint.key, micro_time(each.since), each.taint.value, each.taint.time_added)
        for each in taints.standing
        if not each.obvious
    ]
    return msgspec.json.encode(noted).decode() if noted else None


class _Noted(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A time of the annotation: of the taint with this key, value and ``timeAdded`` (seconds), and of no other."""

    key: str
    since: str
    value: str = ""
    time_added: float | None = None


_LIST: Final = msgspec.json.Decoder(Annotated[list[_Noted], Meta(max_length=_MOST)])


def _recall(node: Node) -> dict[tuple[str, str, float | None], float]:
    """The times that are noted; an annotation that cannot be read says nothing, and its taints count as first seen."""
    text = node.annotations.get(SINCE_ANNOTATION)
    if text is None:
        return {}
    try:
        return {(each.key, each.value, each.time_added): _seconds(each.since) for each in _LIST.decode(text)}
    except (msgspec.DecodeError, ValueError, OverflowError, OSError, RecursionError):
        return {}


def _seconds(text: str) -> float:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"has no time zone: {text!r}")
    return time.timestamp()


def _identity(taint: Taint) -> tuple[str, str, float | None]:
    """What makes a taint another one: a new value asks other tolerations, a new time says that it was put on anew."""
    return taint.key, taint.value, taint.time_added


def _no_execute(taints: Iterable[Taint]) -> list[Taint]:
    found = [taint for taint in taints if taint.effect == NO_EXECUTE]
    return sorted(found, key=lambda taint: (taint.key, taint.value)) if len(found) > 1 else found
