"""Checks whether a group can be scaled before any request is sent.

The checks use only the group, and the number of machines that the provider has read.
"""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.autoscaling.groups import GroupMachine, MachineState, NodeGroup
from trimtab.autoscaling.providers.outcome import ScaleError, ScaleFailure


def check_increase(group: NodeGroup, to: int) -> None:
    """Check an increase of a group's target size.

    Raises:
        ScaleError: the group is paused, ``to`` is not above the target, or it is above the maximum.
    """
    _check_paused(group)
    if to <= group.target:
        raise ScaleError(ScaleFailure.REFUSED, f"target size {to} is not above the current one, {group.target}")
    if to > group.maximum:
        raise ScaleError(ScaleFailure.REFUSED, f"target size {to} is above the maximum of {group.maximum}")


def check_lowering(group: NodeGroup, to: int) -> None:
    """Check a decrease of a target size that must not delete existing machines.

    Raises:
        ScaleError: an existing machine would be deleted, or the target size would fall below the minimum. The message
            contains the numbers.
    """
    _check_paused(group)
    if to >= group.target:
        raise ScaleError(ScaleFailure.REFUSED, f"target size {to} is not below the current one, {group.target}")
    if to < group.minimum:
        raise ScaleError(ScaleFailure.REFUSED, f"target size {to} is below the minimum of {group.minimum}")
    existing = len(live_machines(group))
    if to < existing:
        raise ScaleError(
            ScaleFailure.REFUSED,
            f"target size {to} is below the number of existing machines, {existing}: one of them would be deleted",
        )


def check_provider_machines(existing: int, to: int) -> None:
    """Check that the new target size is not below the number of machines that the provider reports now.

    Raises:
        ScaleError: the provider reports more machines.
    """
    if existing > to:
        raise ScaleError(
            ScaleFailure.CONFLICT,
            f"target size {to} is below the number of machines that the provider reports, {existing}: "
            "one of them would be deleted",
        )


def live_machines(group: NodeGroup) -> list[GroupMachine]:
    """Return the machines that count toward the group's size, which are all that are not being deleted."""
    return [machine for machine in group.machines if machine.state is not MachineState.DELETING]


def machines_to_delete(
    group: NodeGroup, chosen: Sequence[GroupMachine], *, failed_tie: bool
) -> tuple[GroupMachine, ...]:
    """Return the chosen machines plus those that the group's controller might delete instead, sorted by name.

    Some controllers give failed and marked machines the same priority when they choose machines to delete. For such a
    controller, failed machines are deleted together with the chosen ones: they count toward the target size, but never
    become nodes. If only failed machines are chosen, no others are added, because it does not matter which of them are
    deleted.

    Raises:
        ScaleError: the machines cannot be deleted, for example because another actor has marked further machines.
    """
    _check_paused(group)
    existing = live_machines(group)
    known = {machine.name for machine in existing if machine.name}
    wanted = {machine.name for machine in chosen}
    if not wanted or not wanted <= known:
        strays = ", ".join(sorted(name or "(a node without a Machine)" for name in wanted - known))
        raise ScaleError(
            ScaleFailure.REFUSED, f"these are not deletable machines of the group: {strays or 'none was given'}"
        )
    if len(existing) != group.target:
        message = (
            f"the group has {len(existing)} machines and a target of {group.target}: "
            "its controller has not caught up yet"
        )
        raise ScaleError(ScaleFailure.REFUSED, message)
    rivals = [machine.name for machine in existing if machine.marked and machine.name not in wanted]
    if rivals:
        message = f"{', '.join(sorted(rivals))}: marked by another program, and might be deleted instead"
        raise ScaleError(ScaleFailure.REFUSED, message)
    found = [machine for machine in existing if machine.name in wanted]
    check_confirmed(found)
    if failed_tie:
        found += _ties(found, [machine for machine in existing if has_failed(machine) and machine.name not in wanted])
    if group.target - len(found) < group.minimum:
        message = (
            f"a target size of {group.target} less {len(found)}{_describe_added(found, wanted)} is below the minimum "
            f"of {group.minimum}"
        )
        raise ScaleError(ScaleFailure.REFUSED, message)
    return tuple(sorted(found, key=lambda machine: machine.name))


def check_confirmed(machines: Sequence[GroupMachine]) -> None:
    """Check that no machine to delete may have a node that was not drained.

    Raises:
        ScaleError: a node exists that has the provider ID of one of the machines, but does not confirm the machine.
    """
    unconfirmed = sorted(f"{each.name} ({each.unconfirmed_node})" for each in machines if each.unconfirmed_node)
    if unconfirmed:
        message = f"{', '.join(unconfirmed)}: the node exists and may run pods, but does not confirm the machine"
        raise ScaleError(ScaleFailure.REFUSED, message)


def check_ties(marked: Sequence[GroupMachine], deletable: Sequence[GroupMachine]) -> None:
    """Check that no machine failed after the others were marked, because it might be deleted instead of them.

    Raises:
        ScaleError: such a machine exists; the message names it.
    """
    more = sorted({each.name for each in deletable} - {each.name for each in marked})
    if more:
        raise ScaleError(ScaleFailure.CONFLICT, f"{', '.join(more)}: failed meanwhile and might be deleted instead")


def has_failed(machine: GroupMachine) -> bool:
    """Return whether the machine has failed permanently."""
    return machine.state is MachineState.FAILED


def deleted_first_without_mark(chosen: Sequence[GroupMachine]) -> bool:
    """Return whether the group's controller deletes exactly these machines first even if they are unmarked.

    This applies to failed machines without a node, if the controller deletes failed machines first.
    """
    return all(has_failed(machine) and not machine.node and (machine.reason or machine.message) for machine in chosen)


def _ties(chosen: Sequence[GroupMachine], others: Sequence[GroupMachine]) -> Sequence[GroupMachine]:
    """Return the other failed machines that are deleted together with the chosen ones.

    Raises:
        ScaleError: one of them has a node that was not drained, and none of the chosen machines has one; or one of them
            is unconfirmed.
    """
    check_confirmed(others)
    if any(machine.node for machine in chosen):
        return others
    nodes = sorted(f"{machine.name} ({machine.node})" for machine in others if machine.node)
    if nodes:
        message = f"{', '.join(nodes)}: failed too and might be deleted instead, with the pods on the node"
        raise ScaleError(ScaleFailure.REFUSED, message)
    return () if all(map(has_failed, chosen)) else others


def _describe_added(found: Sequence[GroupMachine], wanted: set[str]) -> str:
    added = sorted(machine.name for machine in found if machine.name not in wanted)
    return f" (with {', '.join(added)}, which failed and might be deleted instead)" if added else ""


def _check_paused(group: NodeGroup) -> None:
    if group.paused:
        raise ScaleError(ScaleFailure.REFUSED, f"the group is not scaled: {group.paused}")
