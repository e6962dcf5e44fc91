"""Which machines of a MachineSet go first when its replicas fall: the Machine API's ranks, traps included.

The traps, for which a scaler has to be ready: an annotated and an errored machine rank the same, so that the wrong one
may go; and the older annotation counts with the policy Oldest only. Among equals the Machine API's order is that of an
unstable sort; here it is that of the names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from trimtab.local.machines.live import Live

DELETE_MACHINE: Final = "machine.openshift.io/delete-machine"
OLD_DELETE_MACHINE: Final = "machine.openshift.io/cluster-api-delete-machine"

FIRST: Final = 100.0
MARKED_OR_FAILED: Final = 50.0
WITHOUT_NODE: Final = 40.0
OTHERWISE: Final = 20.0
LAST: Final = 0.0
_AGE_SCALE: Final = 864_000.0
"""Seconds; ten days. The age of a machine is mapped to 0…100 by 1 - exp(-age/scale)."""

POLICIES: Final = ("Random", "Newest", "Oldest")


def first_to_go(
    machines: Iterable[Live], count: int, *, policy: str = "Random", now: float, ignore_marks: bool = False
) -> list[Live]:
    """The machines that go if ``count`` have to.

    Args:
        machines: those to choose from.
        count: how many go.
        policy: one of :data:`POLICIES`; an empty one is Random.
        now: seconds since the epoch, for ages.
        ignore_marks: choose as if no machine were annotated.
    """

    def order(machine: Live) -> tuple[float, str]:
        return -rank(machine, policy=policy or "Random", now=now, ignore_marks=ignore_marks), machine.name

    return sorted(machines, key=order)[: max(0, count)]


def rank(machine: Live, *, policy: str, now: float, ignore_marks: bool = False) -> float:
    """How soon a machine goes, from 0 to 100; the highest first."""
    if machine.deleting:
        return FIRST
    keys = (DELETE_MACHINE, OLD_DELETE_MACHINE) if policy == "Oldest" else (DELETE_MACHINE,)
    marked = not ignore_marks and any(machine.annotations.get(key) for key in keys)
    if marked or machine.failed:
        return MARKED_OR_FAILED if policy == "Random" else FIRST
    if policy == "Random":
        return OTHERWISE if machine.node else WITHOUT_NODE
    age = now - machine.created
    oldness = LAST if age < 0 else FIRST * (1 - math.exp(-age / _AGE_SCALE))
    return oldness if policy == "Oldest" else FIRST - oldness
