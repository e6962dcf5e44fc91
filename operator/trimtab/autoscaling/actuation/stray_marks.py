"""Marks on machines of which nobody knows a removal: ours are taken off, others' are found out and left."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

from trimtab.autoscaling.actuation.leftovers import alive
from trimtab.autoscaling.groups import MachineState, NodeGroup
from trimtab.autoscaling.providers import Provider
from trimtab.kube.clock import Clock

LOOK_AGAIN: Final = 600.0
"""Seconds until a mark that stayed after it was to be taken off is looked at again: it is somebody else's."""


def strays(group: NodeGroup, *, busy: Collection[str] = ()) -> list[str]:
    """Machines that are marked though the group has the size that is wanted, and none of it is being taken away.

    Args:
        group: the group.
        busy: names of nodes for which a removal runs, or whose signs are being taken care of.
    """
    if alive(group) > group.target or any(machine.node in busy for machine in group.machines if machine.node):
        return []
    return sorted(
        machine.name
        for machine in group.machines
        if machine.marked and machine.name and machine.state is not MachineState.DELETING
    )


class StrayMarks:
    """Takes marks off. Whose one is only the machine itself says, so each is looked at once in a while.

    Args:
        provider: who acts on a group, ``None`` where nobody does.
        clock: where the time comes from.
    """

    def __init__(self, provider: Callable[[NodeGroup], Provider | None], clock: Clock) -> None:
        self._provider = provider
        self._clock = clock
        self._asked: dict[tuple[str, str], float] = {}

    def stray(self, groups: Iterable[NodeGroup], *, busy: Collection[str]) -> Iterator[tuple[NodeGroup, list[str]]]:
        """Groups with machines whose marks are to be taken off now.

        Args:
            groups: to look at.
            busy: see :func:`strays`.
        """
        now = self._clock.monotonic()
        self._asked = {key: at for key, at in self._asked.items() if now - at < LOOK_AGAIN}
        for group in groups:
            names = [name for name in strays(group, busy=busy) if (group.id, name) not in self._asked]
            if names and self._provider(group) is not None:
                self._asked |= {(group.id, name): now for name in names}
                yield group, names

    async def take_off(self, group: NodeGroup, names: Sequence[str]) -> None:
        """Take marks off that are ours; where nobody answers, the next pass asks again."""
        provider = self._provider(group)
        for name in names if provider is None else await provider.unmark(group, names):
            self._asked.pop((group.id, name), None)
