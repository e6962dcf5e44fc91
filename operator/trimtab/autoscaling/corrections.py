"""What is to be done about machines that will never become nodes: pure, from what a pass has found."""

from __future__ import annotations

from msgspec import Struct

from trimtab.api import reasons
from trimtab.autoscaling.groups import GroupMachine, Groups, NodeGroup
from trimtab.autoscaling.memory import Findings

_NAMED = 3


class Correction(Struct, frozen=True):
    """A group's target set right.

    Attributes:
        group: its id.
        to: the new target.
        reason: a code of :mod:`trimtab.api.reasons`.
        message: why, in words.
        machines: which machines are taken away; empty where the target is lowered by what has no machine.
    """

    group: str
    to: int
    reason: str
    message: str
    machines: tuple[GroupMachine, ...] = ()


def corrections(findings: Findings, groups: Groups) -> tuple[Correction, ...]:
    """At most one a group, in the order of their ids.

    What has no machine goes first: as long as a group has fewer machines than it wants, none of them can be chosen to
    go. Never below a group's minimum; and not while the group does not show what it was asked for a moment ago.

    Args:
        findings: of the pass.
        groups: as the pass saw them.
    """
    made = []
    for group in groups.all:
        if group.paused or group.id in findings.asked or group.target <= group.minimum:
            continue
        correction = _shortfall(group, findings.shortfall.get(group.id, 0))
        correction = correction or _hopeless(group, findings.hopeless.get(group.id, ()))
        if correction is not None:
            made.append(correction)
    return tuple(made)


def _shortfall(group: NodeGroup, number: int) -> Correction | None:
    to = max(group.minimum, group.target - number)
    if to == group.target:
        return None
    message = f"the target falls from {group.target} to {to}: no machine was made for {number} of it in time"
    return Correction(group.id, to, reasons.TARGET_LOWERED, message)


def _hopeless(group: NodeGroup, machines: tuple[GroupMachine, ...]) -> Correction | None:
    chosen = tuple(machine for machine in machines if machine.name)[: group.target - group.minimum]
    if not chosen:
        return None
    names = ", ".join(machine.name for machine in chosen[:_NAMED])
    beside = f" and {len(chosen) - _NAMED} more" if len(chosen) > _NAMED else ""
    left = len(machines) - len(chosen)
    stay = f"; {left} more stay, for {group.minimum} is its minimum" if left else ""
    message = f"failed, or did not become nodes in time, and are taken away: {names}{beside}{stay}"
    return Correction(group.id, group.target - len(chosen), reasons.DELETE_UNREGISTERED, message, chosen)
