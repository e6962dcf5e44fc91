"""Which taints a node's conditions ask for (nodelifecycle's table, v1.36). Pure.

Conditions become NoSchedule taints at once and without any rate; Ready also becomes a NoExecute taint, at the rate of
the node's zone (see :mod:`trimtab.tainting.planner`). Only keys of the table are ever touched, and of each key only the
effect that is ours: taints of others stay, and so do ours with an effect that somebody else chose.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.kube.objects import Node, Taint
from trimtab.kube.rules.taints import (
    DISK_PRESSURE,
    MEMORY_PRESSURE,
    NETWORK_UNAVAILABLE,
    NO_EXECUTE,
    NO_SCHEDULE,
    NOT_READY,
    PID_PRESSURE,
    UNREACHABLE,
    UNSCHEDULABLE,
)

OUT_OF_DISK: Final = "node.kubernetes.io/out-of-disk"
"""Of kubelets before v1.13, whose condition OutOfDisk it tells of; newer ones have neither."""

READY: Final = "Ready"
READY_KEYS: Final = {"False": NOT_READY, "Unknown": UNREACHABLE}
"""The key that each status of the Ready condition asks for, with either effect."""

PRESSURE_KEYS: Final = {
    "MemoryPressure": MEMORY_PRESSURE,
    "DiskPressure": DISK_PRESSURE,
    "PIDPressure": PID_PRESSURE,
    "NetworkUnavailable": NETWORK_UNAVAILABLE,
    "OutOfDisk": OUT_OF_DISK,
}
"""The key that each other condition asks for while it is True."""

UNKNOWN: Final = "Unknown"
MARKED: Final = (READY, "MemoryPressure", "DiskPressure", "PIDPressure")
"""What becomes Unknown of a node that is silent; NetworkUnavailable is not the kubelet's to say."""

NO_SCHEDULE_KEYS: Final = frozenset({*READY_KEYS.values(), *PRESSURE_KEYS.values(), UNSCHEDULABLE})
NO_EXECUTE_KEYS: Final = frozenset(READY_KEYS.values())

NEVER_SAID: Final = "the node has not said yet whether it is ready"


class TaintChange(Struct, frozen=True, gc=False):
    """A taint that is to be put on a node or taken off it.

    Attributes:
        node: its name.
        taint: key and effect say which; of one that is put on also the time.
        add: whether it is put on.
        reason: one of :mod:`trimtab.api.reasons`.
        message: the numbers and states compared.
    """

    node: str
    taint: Taint
    add: bool
    reason: str
    message: str


def ready_status(node: Node) -> str | None:
    """``True``, ``False`` or ``Unknown``; ``None`` of a node that has no Ready condition yet."""
    for each in node.conditions:  # not a generator: it is asked of every node in every pass
        if each.type == READY:
            return each.status
    return None


def unknown_already(node: Node) -> bool:
    """Whether all is Unknown that becomes so of a silent node."""
    unknown = {each.type for each in node.conditions if each.status == UNKNOWN}
    return unknown.issuperset(MARKED)


def opposite(key: str) -> str:
    """Of not-ready unreachable, and the other way round: a node has one of them."""
    return UNREACHABLE if key == NOT_READY else NOT_READY


def no_schedule(node: Node, ready: str | None) -> dict[str, tuple[str, str]]:
    """The keys of the NoSchedule taints that a node is to have, with the reason code and the message of each.

    A node that has not said yet whether it is ready keeps the not-ready taint that the API server puts on every new
    node (plugin TaintNodesByCondition), and gets it where that is off. Upstream takes it off such a node.

    Args:
        node: as it is.
        ready: its Ready status as we judge it, which may be ahead of what stands in the object.
    """
    wanted: dict[str, tuple[str, str]] = {}
    if ready is None:
        wanted[NOT_READY] = (reasons.NODE_NOT_READY, NEVER_SAID)
    elif ready in READY_KEYS:
        key = READY_KEYS[ready]
        wanted[key] = (reason_of(key), f"condition Ready is {ready}")
    for condition in node.conditions:
        key = PRESSURE_KEYS.get(condition.type, "")
        if key and condition.status == "True":
            wanted[key] = (reasons.NODE_CONDITION, f"condition {condition.type} is True")
    if node.unschedulable:
        wanted[UNSCHEDULABLE] = (reasons.NODE_CORDONED, "spec.unschedulable is true")
    return wanted


def no_schedule_changes(node: Node, ready: str | None, *, now: float) -> list[TaintChange]:
    """What differs between the NoSchedule taints that a node has and those it is to have, by key.

    Args:
        node: as it is.
        ready: as for :func:`no_schedule`.
        now: seconds since the epoch; written into what is put on.
    """
    if ready == "True" and not node.taints and not node.unschedulable and not _any_pressure(node):
        return []  # nearly every node, nearly always
    wanted = no_schedule(node, ready)
    there = {taint.key for taint in node.taints if taint.effect == NO_SCHEDULE and taint.key in NO_SCHEDULE_KEYS}
    changes = []
    for key in sorted(wanted.keys() | there):
        if key in wanted and key not in there:
            changes.append(TaintChange(node.name, Taint(key, NO_SCHEDULE, "", now), True, *wanted[key]))
        elif key not in wanted:
            message = f"nothing asks for {key}:{NO_SCHEDULE} any more"
            changes.append(
                TaintChange(node.name, Taint(key, NO_SCHEDULE), False, reasons.NODE_CONDITION_ENDED, message)
            )
    return changes


def no_execute_taints(node: Node) -> dict[str, Taint]:
    """The NoExecute taints of a node that are the node lifecycle's, by key."""
    if not node.taints:
        return {}
    return {taint.key: taint for taint in node.taints if taint.effect == NO_EXECUTE and taint.key in NO_EXECUTE_KEYS}


def swap(node: Node, key: str, there: dict[str, Taint], *, now: float) -> list[TaintChange]:
    """Bring the NoExecute taint of a failed node that has one already to the right key; the outage goes on.

    The new one keeps the time of the old one (upstream writes the present), so that no pod gets its whole toleration
    anew because a node that was not ready is not heard of any more.

    Args:
        node: it has one of the two taints, or both.
        key: the right one.
        there: as :func:`no_execute_taints` gives them.
        now: seconds since the epoch.
    """
    other = there.get(opposite(key))
    if other is None:
        return []
    changes = []
    if key not in there:
        since = now if other.time_added is None else min(now, other.time_added)
        message = f"{key} instead of {other.key}: the outage goes on"
        changes.append(TaintChange(node.name, Taint(key, NO_EXECUTE, "", since), True, reason_of(key), message))
    gone = f"condition Ready is {_status_of(key)}: {key} says it"
    changes.append(
        TaintChange(node.name, Taint(other.key, NO_EXECUTE), False, reasons.NODE_CONDITION_ENDED, gone),
    )
    return changes


def reason_of(key: str) -> str:
    """The reason code of not-ready and of unreachable."""
    return reasons.NODE_NOT_READY if key == NOT_READY else reasons.NODE_UNREACHABLE


def _status_of(key: str) -> str:
    return "False" if key == NOT_READY else "Unknown"


def _any_pressure(node: Node) -> bool:
    for each in node.conditions:  # noqa: SIM110 (asked of every node in every pass; a generator takes twice as long)
        if each.status == "True" and each.type in PRESSURE_KEYS:
            return True
    return False
