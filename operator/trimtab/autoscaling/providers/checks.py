"""What must hold before a group is scaled, from the group alone: no request is spent on what cannot be right."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.autoscaling.groups import GroupMachine, MachineState, NodeGroup
from trimtab.autoscaling.providers.outcome import Failed, Failure


def check_increase(group: NodeGroup, to: int) -> None:
    """Refuse an increase that the group does not take.

    Raises:
        Failed: it is paused, ``to`` is no increase, or more than its maximum.
    """
    _check_paused(group)
    if to <= group.target:
        raise Failed(Failure.REFUSED, f"{to} is no increase: the target is {group.target}")
    if to > group.maximum:
        raise Failed(Failure.REFUSED, f"{to} is more than the maximum of {group.maximum}")


def going(group: NodeGroup, chosen: Sequence[GroupMachine], *, failed_tie: bool) -> tuple[GroupMachine, ...]:
    """All machines that have to go so that the chosen ones do, by name.

    Where a failed machine goes as readily as a marked one, failed ones go along: they hold a place in the target and
    never become nodes. Machines that somebody else has marked would go as readily, too, with all that runs there.

    Raises:
        Failed: what keeps the machines from being removed, with the numbers compared.
    """
    _check_paused(group)
    alive = [machine for machine in group.machines if machine.state is not MachineState.DELETING]
    known = {machine.name for machine in alive if machine.name}
    wanted = {machine.name for machine in chosen}
    if not wanted or not wanted <= known:
        strays = ", ".join(sorted(name or "(a node without a Machine)" for name in wanted - known))
        raise Failed(Failure.REFUSED, f"not machines of the group that could go: {strays or 'none was given'}")
    if len(alive) != group.target:
        message = f"the group has {len(alive)} machines and wants {group.target}: its controller has yet to catch up"
        raise Failed(Failure.REFUSED, message)
    rivals = [machine.name for machine in alive if machine.marked and machine.name not in wanted]
    if rivals:
        message = f"{', '.join(sorted(rivals))}: marked by somebody else, and might go instead"
        raise Failed(Failure.REFUSED, message)
    found = [machine for machine in alive if machine.name in wanted or (failed_tie and _failed(machine))]
    if group.target - len(found) < group.minimum:
        message = f"{group.target} less {len(found)}{_of_which(found, wanted)} is below the minimum of {group.minimum}"
        raise Failed(Failure.REFUSED, message)
    return tuple(sorted(found, key=lambda machine: machine.name))


def _failed(machine: GroupMachine) -> bool:
    return machine.state is MachineState.FAILED


def _of_which(found: Sequence[GroupMachine], wanted: set[str]) -> str:
    added = sorted(machine.name for machine in found if machine.name not in wanted)
    return f" (with {', '.join(added)}, which failed and might go instead)" if added else ""


def _check_paused(group: NodeGroup) -> None:
    if group.paused:
        raise Failed(Failure.REFUSED, f"the group is not scaled: {group.paused}")
