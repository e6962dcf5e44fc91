"""Determines which taints a node's conditions require, as in nodelifecycle (v1.36), without side effects.

Conditions result in NoSchedule taints immediately and without a rate limit. The Ready condition also results in a
NoExecute taint, which the rate of the node's zone limits (see :mod:`~trimtab.tainting.lifecycle.planner`). Only the
keys of the tables below are changed, and for each key only the effect that the node lifecycle manages. Taints of other
controllers and of administrators are preserved.
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
"""The taint key for the condition OutOfDisk, which only kubelets before v1.13 report."""

READY: Final = "Ready"
READY_KEYS: Final = {"False": NOT_READY, "Unknown": UNREACHABLE}
"""The taint key for each status of the Ready condition. It is the same for NoSchedule and NoExecute."""

PRESSURE_KEYS: Final = {
    "MemoryPressure": MEMORY_PRESSURE,
    "DiskPressure": DISK_PRESSURE,
    "PIDPressure": PID_PRESSURE,
    "NetworkUnavailable": NETWORK_UNAVAILABLE,
    "OutOfDisk": OUT_OF_DISK,
}
"""The NoSchedule taint key for each other condition with status True."""

UNKNOWN: Final = "Unknown"
MARKED: Final = (READY, "MemoryPressure", "DiskPressure", "PIDPressure")
"""The conditions that are set to Unknown on a node without heartbeats. NetworkUnavailable is not reported by the
kubelet.
"""

NO_SCHEDULE_KEYS: Final = frozenset({*READY_KEYS.values(), *PRESSURE_KEYS.values(), UNSCHEDULABLE})
NO_EXECUTE_KEYS: Final = frozenset(READY_KEYS.values())

NO_READY_CONDITION: Final = "the node has no Ready condition yet"
_ENDED: Final = "no condition of the node requires the taint any more"


class TaintChange(Struct, frozen=True, gc=False):
    """A taint to add to or to remove from a node.

    Attributes:
        node: name of the node.
        taint: the key and effect of the taint, and for an addition also its time.
        add: whether the taint is added; otherwise it is removed.
        reason: a reason code of :mod:`trimtab.api.reasons`.
        message: the condition or state that causes the change.
    """

    node: str
    taint: Taint
    add: bool
    reason: str
    message: str


def ready_status(node: Node) -> str | None:
    """Return the status of a node's Ready condition; ``None`` if it has no Ready condition."""
    for each in node.conditions:  # not a generator: this runs for every node in every iteration
        if each.type == READY:
            return each.status
    return None


def unknown_already(node: Node) -> bool:
    """Return whether all conditions in :data:`MARKED` are Unknown."""
    unknown = {each.type for each in node.conditions if each.status == UNKNOWN}
    return unknown.issuperset(MARKED)


def opposite(key: str) -> str:
    """Return the taint key unreachable for not-ready, and vice versa. A node has at most one of them."""
    return UNREACHABLE if key == NOT_READY else NOT_READY


def no_schedule(node: Node, ready: str | None) -> dict[str, tuple[str, str]]:
    """Return the keys of the NoSchedule taints that a node should have, each with its reason code and message.

    A node without a Ready condition should have the not-ready taint, which the admission plugin TaintNodesByCondition
    adds to every new node. If the plugin is disabled, the node lifecycle adds it. Upstream removes it from such a node.

    Args:
        node: the current object.
        ready: the assessed Ready status, which may be newer than the object.
    """
    wanted: dict[str, tuple[str, str]] = {}
    if ready is None:
        wanted[NOT_READY] = (reasons.NODE_NOT_READY, NO_READY_CONDITION)
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
    """Return the changes from a node's current NoSchedule taints to those that it should have, sorted by key.

    Args:
        node: the current object.
        ready: see :func:`no_schedule`.
        now: the current time in seconds since the epoch, which becomes ``timeAdded`` of added taints.
    """
    if ready == "True" and not node.taints and not node.unschedulable and not _any_pressure(node):
        return []  # the common case
    wanted = no_schedule(node, ready)
    there = {taint.key for taint in node.taints if taint.effect == NO_SCHEDULE and taint.key in NO_SCHEDULE_KEYS}
    changes = []
    for key in sorted(wanted.keys() | there):
        if key in wanted and key not in there:
            changes.append(TaintChange(node.name, Taint(key, NO_SCHEDULE, "", now), True, *wanted[key]))
        elif key not in wanted:
            message = "the node is schedulable again" if key == UNSCHEDULABLE else _ENDED
            changes.append(
                TaintChange(node.name, Taint(key, NO_SCHEDULE), False, reasons.NODE_CONDITION_ENDED, message)
            )
    return changes


def no_execute_taints(node: Node) -> dict[str, Taint]:
    """Return a node's NoExecute taints not-ready and unreachable, by key."""
    if not node.taints:
        return {}
    return {taint.key: taint for taint in node.taints if taint.effect == NO_EXECUTE and taint.key in NO_EXECUTE_KEYS}


def swap(node: Node, key: str, there: dict[str, Taint], *, now: float) -> list[TaintChange]:
    """Return the changes that replace the NoExecute taint of a failed node with the one for its current Ready status.

    The new taint keeps the time of the old one (upstream writes the current time), because the outage continues.
    Otherwise pods would get their full toleration time again when a not-ready node becomes unreachable.

    Args:
        node: a node with one or both of the two taints.
        key: the key of the taint for the current Ready status.
        there: the result of :func:`no_execute_taints`.
        now: the current time in seconds since the epoch.
    """
    other = there.get(opposite(key))
    if other is None:
        return []
    changes = []
    if key not in there:
        since = now if other.time_added is None else min(now, other.time_added)
        message = f"{key} replaces {other.key}: the same outage continues"
        changes.append(TaintChange(node.name, Taint(key, NO_EXECUTE, "", since), True, reason_of(key), message))
    gone = f"condition Ready is {_status_of(key)}: replaced by {key}"
    changes.append(
        TaintChange(node.name, Taint(other.key, NO_EXECUTE), False, reasons.NODE_CONDITION_ENDED, gone),
    )
    return changes


def reason_of(key: str) -> str:
    """Return the reason code for the taint key not-ready or unreachable."""
    return reasons.NODE_NOT_READY if key == NOT_READY else reasons.NODE_UNREACHABLE


def _status_of(key: str) -> str:
    return "False" if key == NOT_READY else "Unknown"


def _any_pressure(node: Node) -> bool:
    for each in node.conditions:  # noqa: SIM110 (runs for every node in every iteration; a generator takes twice as long)
        if each.status == "True" and each.type in PRESSURE_KEYS:
            return True
    return False
