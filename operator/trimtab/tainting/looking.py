"""What the status is made from: one value of all that goes on, and of what earlier stretches of acting did."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api.taint_manager import TaintManagerSpec
from trimtab.tainting.acting import Acting
from trimtab.tainting.following import Following
from trimtab.tainting.report import Seen


class Done(Struct, frozen=True):
    """What this process has done for the TaintManager in stretches of acting that have ended."""

    deleted: int = 0
    evicted: int = 0
    nodes_tainted: int = 0

    def and_by(self, acting: Acting) -> Done:
        """With what was done in one more."""
        return Done(
            self.deleted + acting.ending.deleted,
            self.evicted + acting.ending.evicted,
            self.nodes_tainted + acting.tainted_so_far,
        )


class Lasting:
    """Something that is wrong, told once it has been for so many seconds: a watch that is renewed takes less."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: float | None = None

    def told(self, wrong: str | None, now: float) -> str:
        """What is wrong, empty for nothing yet.

        Args:
            wrong: now; ``None`` for nothing.
            now: by a clock that never goes back.
        """
        if wrong is None:
            self._since = None
            return ""
        if self._since is None:
            self._since = now
        return wrong if now - self._since >= self._seconds else ""


def look(
    spec: TaintManagerSpec,
    following: Following | None,
    acting: Acting | None,
    *,
    generation: int,
    stale: str,
    blind: str,
    done: Done,
    now: float,
) -> Seen:
    """How things are now.

    Args:
        spec: of the TaintManager.
        following: the book; ``None`` before the first look at everything.
        acting: who acts; ``None`` while nobody does.
        generation: of the spec.
        stale: what keeps the picture from being acted on.
        blind: what keeps the node lifecycle alone from acting.
        done: by those who acted before.
        now: seconds since the epoch.
    """
    seen = Seen(now=now, mode=spec.mode, generation=generation, stale=stale, looked=following is not None)
    if following is not None:
        book = following.book
        seen = replace(seen, deadlines=book.deadlines.values(), tainted_nodes=len(book.taints))
    if acting is None:
        return replace(seen, deleted=done.deleted, evicted=done.evicted, nodes_tainted=done.nodes_tainted)
    done, ending, lifecycle = done.and_by(acting), acting.ending, acting.lifecycle
    problems = () if lifecycle is None else filter(None, (blind, lifecycle.problem))
    return replace(
        seen,
        waiting=ending.waiting,
        held=ending.held,
        refused=ending.refused,
        stuck=ending.stuck,
        deleted=done.deleted,
        evicted=done.evicted,
        nodes_tainted=done.nodes_tainted,
        zones=lifecycle.zones if lifecycle is not None else (),
        problem="; ".join(problems),
        failed="; ".join(acting.problems),
        missing_rights=acting.rights.missing,
    )
