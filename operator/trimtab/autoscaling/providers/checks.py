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


def check_lowering(group: NodeGroup, to: int) -> None:
    """Refuse to lower a target where a machine would have to go, or the minimum would not hold.

    Raises:
        Failed: what is against it, with the numbers compared.
    """
    _check_paused(group)
    if to >= group.target:
        raise Failed(Failure.REFUSED, f"{to} is no less: the target is {group.target}")
    if to < group.minimum:
        raise Failed(Failure.REFUSED, f"{to} is below the minimum of {group.minimum}")
    there = len(alive(group))
    if to < there:
        raise Failed(Failure.REFUSED, f"{to} is fewer than the {there} machines that are there: one of them would go")


def check_there(there: int, to: int) -> None:
    """Refuse to lower a target below the machines that the provider tells of at this moment.

    Raises:
        Failed: it tells of more.
    """
    if there > to:
        raise Failed(
            Failure.CONFLICT, f"{to} is fewer than the {there} machines that it tells of: one of them would go"
        )


def alive(group: NodeGroup) -> list[GroupMachine]:
    """The machines that count for the group's size: all but those that are being deleted."""
    return [machine for machine in group.machines if machine.state is not MachineState.DELETING]


def going(group: NodeGroup, chosen: Sequence[GroupMachine], *, failed_tie: bool) -> tuple[GroupMachine, ...]:
    """All machines that have to go so that the chosen ones do, by name.

    Where a failed machine goes as readily as a marked one, failed ones go along: they hold a place in the target and
    never become nodes. Where only failed ones are to go that is not needed, for it is all the same which of them do.
    Machines that somebody else has marked would go as readily, too, with all that runs there.

    Raises:
        Failed: what keeps the machines from being removed, with the numbers compared.
    """
    _check_paused(group)
    there = alive(group)
    known = {machine.name for machine in there if machine.name}
    wanted = {machine.name for machine in chosen}
    if not wanted or not wanted <= known:
        strays = ", ".join(sorted(name or "(a node without a Machine)" for name in wanted - known))
        raise Failed(Failure.REFUSED, f"not machines of the group that could go: {strays or 'none was given'}")
    if len(there) != group.target:
        message = f"the group has {len(there)} machines and wants {group.target}: its controller has yet to catch up"
        raise Failed(Failure.REFUSED, message)
    rivals = [machine.name for machine in there if machine.marked and machine.name not in wanted]
    if rivals:
        message = f"{', '.join(sorted(rivals))}: marked by somebody else, and might go instead"
        raise Failed(Failure.REFUSED, message)
    found = [machine for machine in there if machine.name in wanted]
    if failed_tie:
        found += _ties(found, [machine for machine in there if failed(machine) and machine.name not in wanted])
    if group.target - len(found) < group.minimum:
        message = f"{group.target} less {len(found)}{_of_which(found, wanted)} is below the minimum of {group.minimum}"
        raise Failed(Failure.REFUSED, message)
    return tuple(sorted(found, key=lambda machine: machine.name))


def failed(machine: GroupMachine) -> bool:
    """Whether the machine failed for good."""
    return machine.state is MachineState.FAILED


def sure_to_go(chosen: Sequence[GroupMachine]) -> bool:
    """Whether these machines go first without a mark where failed ones do: by what they say is wrong with them."""
    return all(failed(machine) and not machine.node and (machine.reason or machine.message) for machine in chosen)


def _ties(chosen: Sequence[GroupMachine], rest: Sequence[GroupMachine]) -> Sequence[GroupMachine]:
    """Of the other failed machines those that go along.

    Raises:
        Failed: one of them has a node, which nobody has emptied, and all of the chosen ones have none.
    """
    if any(machine.node for machine in chosen):
        return rest
    nodes = sorted(f"{machine.name} ({machine.node})" for machine in rest if machine.node)
    if nodes:
        message = f"{', '.join(nodes)}: failed as well and might go instead, with what runs on the node"
        raise Failed(Failure.REFUSED, message)
    return () if all(map(failed, chosen)) else rest


def _of_which(found: Sequence[GroupMachine], wanted: set[str]) -> str:
    added = sorted(machine.name for machine in found if machine.name not in wanted)
    return f" (with {', '.join(added)}, which failed and might go instead)" if added else ""


def _check_paused(group: NodeGroup) -> None:
    if group.paused:
        raise Failed(Failure.REFUSED, f"the group is not scaled: {group.paused}")
