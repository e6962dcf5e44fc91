"""What the TaintManager's status says of deadlines."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection

from trimtab.api.scalars import to_time
from trimtab.api.taint_manager_status import MAX_DEADLINES, NextDeadline
from trimtab.kube.rules.taints import taint_in_words
from trimtab.tainting.deadlines.rule import Deadline
from trimtab.tainting.deadlines.words import toleration_in_words


def next_deadlines(
    deadlines: Collection[Deadline], *, limit: int = MAX_DEADLINES
) -> tuple[tuple[NextDeadline, ...], int]:
    """The pods that go next, the soonest first and those of one time by their names, and how many there are beside.

    Args:
        deadlines: of all pods, in any order.
        limit: how many are told.
    """
    soonest = heapq.nsmallest(limit, deadlines, key=lambda each: (each.due, each.key))
    return tuple(_told(each) for each in soonest), len(deadlines) - len(soonest)


def overdue(deadlines: Collection[Deadline], *, now: float) -> int:
    """How many pods' time is over (seconds since the epoch)."""
    return sum(each.due <= now for each in deadlines)


def _told(deadline: Deadline) -> NextDeadline:
    namespace, _, name = deadline.key.partition("/")
    return NextDeadline(
        namespace=namespace,
        pod=name,
        node=deadline.node,
        due=to_time(math.ceil(deadline.due)),  # to the second, and never told too early
        taint=taint_in_words(deadline.taint),
        toleration=toleration_in_words(deadline.toleration),
    )
