"""A group's machines counted: what of its target is there, what is on its way, and what will never come."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from trimtab.autoscaling.groups import GroupMachine, MachineState, NodeGroup
from trimtab.autoscaling.memory.readiness import Readiness
from trimtab.kube.objects import Node


class Census(Struct, frozen=True):
    """The machines of one group; those that are being deleted are in none of it.

    Attributes:
        target: the size that is asked for.
        present: nodes that are there and not starting, whether ready or not.
        starting: nodes that are there and not ready yet.
        unready: of ``present``, those that are not ready, their time to start being over.
        failed: machines without a node that failed.
        pending: machines without a node that have not failed.
    """

    target: int
    present: tuple[GroupMachine, ...] = ()
    starting: tuple[GroupMachine, ...] = ()
    unready: tuple[GroupMachine, ...] = ()
    failed: tuple[GroupMachine, ...] = ()
    pending: tuple[GroupMachine, ...] = ()

    @property
    def absent(self) -> int:
        """How many nodes of the target are not there and may still come."""
        return max(0, self.target - len(self.present) - len(self.starting) - len(self.failed))

    @property
    def lacking(self) -> int:
        """How many nodes of the target may still become ready: the absent ones and those that are starting."""
        return max(0, self.target - len(self.present) - len(self.failed))

    @property
    def unmade(self) -> int:
        """How much of the target has not even a machine."""
        made = len(self.present) + len(self.starting) + len(self.failed) + len(self.pending)
        return max(0, self.target - made)


def census(group: NodeGroup, standing: Mapping[str, Readiness], *, target: int | None = None) -> Census:
    """Count a group.

    Args:
        group: as it is in the snapshot.
        standing: what each node is, by name.
        target: what the group is known to have been asked for, where its own target does not show it yet.
    """
    sorts: dict[str, list[GroupMachine]] = {
        name: [] for name in ("present", "starting", "unready", "failed", "pending")
    }
    for machine in group.machines:
        if machine.state is MachineState.DELETING:
            continue
        if not machine.node:
            sorts["failed" if machine.state is MachineState.FAILED else "pending"].append(machine)
        elif (found := standing.get(machine.node)) is Readiness.STARTING:
            sorts["starting"].append(machine)
        else:
            sorts["present"].append(machine)
            if found is Readiness.UNREADY:
                sorts["unready"].append(machine)
    counted = {name: tuple(machines) for name, machines in sorts.items()}
    return Census(group.target if target is None else target, **counted)


def booted(machines: tuple[GroupMachine, ...], nodes: Mapping[str, Node]) -> list[float]:
    """How long each node took from its machine's creation to being ready, in seconds, as far as both are recorded."""
    found = []
    for machine in machines:
        node = nodes.get(machine.node)
        ready = (
            None
            if node is None or not node.ready
            else next((each.since for each in node.conditions if each.type == "Ready"), None)
        )
        if ready is not None and machine.since is not None and ready >= machine.since:
            found.append(round(ready - machine.since, 1))
    return found
