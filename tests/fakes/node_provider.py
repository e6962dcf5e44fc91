"""A provider of machines in memory that errs, hangs and lies to order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from trimtab.autoscaling.groups import GroupMachine, NodeGroup
from trimtab.autoscaling.providers import MachineRemoval, MarkedMachines, Provider, ScaleFailure, ScaleResult


class FakeProvider:
    """Remembers what it was asked and holds a target a group.

    Attributes:
        asked: the requests: verb, group, and the size or the machines.
        unmarked: removed marks: group, machine and mark.
        targets: by the groups' ids.
        hangs: groups that never answer.
        slow: seconds until a group answers.
        fails: with what a group fails.
        raises: what a group raises, which no provider should.
    """

    def __init__(self, *groups: NodeGroup) -> None:
        self.asked: list[tuple[str | int, ...]] = []
        self.targets = {group.id: group.target for group in groups}
        self.hangs: set[str] = set()
        self.slow: dict[str, float] = {}
        self.fails: dict[str, dict[str, Any]] = {}
        self.raises: dict[str, Exception] = {}
        self.unmarked: list[tuple[str, str, str]] = []

    async def increase(self, group: NodeGroup, to: int) -> ScaleResult:
        return await self._set(group, to, ("increase", group.name, to))

    async def lower(self, group: NodeGroup, to: int) -> ScaleResult:
        return await self._set(group, to, ("lower", group.name, to))

    async def mark(self, group: NodeGroup, machines: Sequence[GroupMachine], *, now: float) -> MarkedMachines:
        return MarkedMachines(group.id, tuple(machines), text=f"trimtab {now:g}")

    async def remove(self, group: NodeGroup, marked: MarkedMachines, *, count: int | None = None) -> MachineRemoval:
        names = tuple(machine.name for machine in marked.machines)
        to = group.target - (len(names) if count is None else count)
        scaled = await self._set(group, to, ("remove", group.name, *names))
        others = tuple(machine.name for machine in group.machines if machine.name not in names)
        return MachineRemoval(
            scaled.group,
            scaled.before,
            scaled.after,
            scaled.failure,
            scaled.message,
            scaled.doubt,
            scaled.calls,
            machines=names,
            others=others,
            mark=marked.text,
        )

    async def unmark(self, group: NodeGroup, machines: Sequence[str], *, mark: str = "") -> tuple[str, ...]:
        self.unmarked += [(group.name, name, mark) for name in machines]
        return ()

    async def _set(self, group: NodeGroup, to: int, request: tuple[str | int, ...]) -> ScaleResult:
        self.asked.append(request)
        if group.id in self.raises:
            raise self.raises[group.id]
        if group.id in self.hangs:
            await asyncio.Event().wait()
        await asyncio.sleep(self.slow.get(group.id, 0))
        failed = self.fails.get(group.id)
        if failed is not None:
            return ScaleResult(group.id, group.target, to, **{"failure": ScaleFailure.REFUSED, "calls": 1, **failed})
        self.targets[group.id] = to
        return ScaleResult(group.id, group.target, to, calls=1)


async def remove_machines(
    provider: Provider, group: NodeGroup, machines: Sequence[GroupMachine], *, now: float
) -> MachineRemoval:
    """Mark machines and lower the size at once, as a test may whose controller does not lag."""
    marked = await provider.mark(group, machines, now=now)
    if marked.failure is not None:
        return MachineRemoval(
            group.id,
            group.target,
            group.target - len(machines),
            marked.failure,
            marked.message,
            calls=marked.calls,
            mark=marked.text,
            left_marked=marked.left_marked,
        )
    removal = await provider.remove(group, marked)
    return replace(removal, calls=marked.calls + removal.calls)
