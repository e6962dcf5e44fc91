"""Making and deleting nodes of kwok's templates."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from trimtab.autoscaling.external.kwok.ledger import Ledger
from trimtab.autoscaling.external.kwok.templates import KwokConfig, KwokTemplate, new_name, new_node
from trimtab.autoscaling.groups import GroupMachine, NodeGroup
from trimtab.autoscaling.providers.checks import alive, check_increase, check_lowering
from trimtab.autoscaling.providers.outcome import Failed, Failure, Removal, Scaled, names
from trimtab.kube import verbs
from trimtab.kube.api import Api, ApiError, Conflict, NotFound, Unreachable
from trimtab.kube.objects import Node
from trimtab.kube.resources import NODES

AT_ONCE: Final = 16
"""Requests at once for one group."""

REQUEST_SECONDS: Final = 10.0


def _suffix() -> str:
    return secrets.token_hex(3)


class KwokProvider:
    """A :class:`~trimtab.autoscaling.providers.Provider`.

    Args:
        api: the API server.
        ledger: of the groups' nodes.
        suffix: what makes a node's name its own.

    Attributes:
        config: how nodes are made.
        templates: of the groups, by name.
    """

    def __init__(self, api: Api, ledger: Ledger, *, suffix: Callable[[], str] = _suffix) -> None:
        self.config = KwokConfig()
        self.templates: dict[str, KwokTemplate] = {}
        self._api = api
        self._ledger = ledger
        self._suffix = suffix

    async def increase(self, group: NodeGroup, to: int) -> Scaled:
        """See :class:`~trimtab.autoscaling.providers.Provider`. What could be made of several nodes stays."""
        failed: Failed | None = None
        number = 0
        try:
            check_increase(group, to)
            template = self._template(group)
            number = to - self._size(group)
            await self._side_by_side(self._create(template) for _ in range(number))
        except Failed as error:
            failed = error
        return Scaled(group.id, group.target, to, **_told(failed), calls=number)

    async def lower(self, group: NodeGroup, to: int) -> Scaled:
        """See :class:`~trimtab.autoscaling.providers.Provider`. The size is the number of nodes: none is upcoming."""
        try:
            check_lowering(group, to)
        except Failed as error:
            return Scaled(group.id, group.target, to, **_told(error))
        return Scaled(group.id, group.target, to)

    async def remove(self, group: NodeGroup, machines: Sequence[GroupMachine], *, now: float) -> Removal:
        """See :class:`~trimtab.autoscaling.providers.Provider`."""
        del now
        failed: Failed | None = None
        nodes: list[Node] = []
        try:
            nodes = self._chosen(group, machines)
            await self._side_by_side(self._delete(node) for node in nodes)
        except Failed as error:
            failed = error
        chosen = {machine.name for machine in machines}
        return Removal(
            group.id,
            group.target,
            group.target - len(nodes),
            **_told(failed),
            calls=len(nodes),
            machines=names(machines) if nodes else (),
            others=tuple(sorted(each.name for each in alive(group) if each.name not in chosen)),
        )

    async def unmark(self, group: NodeGroup, machines: Sequence[str], *, mark: str = "") -> tuple[str, ...]:
        """See :class:`~trimtab.autoscaling.providers.Provider`. There are no marks."""
        del group, machines, mark
        return ()

    def _template(self, group: NodeGroup) -> KwokTemplate:
        found = self.templates.get(group.name)
        if found is None:
            raise Failed(Failure.NOT_FOUND, f"there is no template of the group {group.name} any more")
        return found

    def _size(self, group: NodeGroup) -> int:
        """How many nodes it has by now; what was planned on must still be so."""
        found = len(self._ledger.nodes().get(group.name, ()))
        if found != group.target:
            message = f"the plan was made on a target of {group.target}, and it is {found} by now"
            raise Failed(Failure.CONFLICT, message)
        return found

    def _chosen(self, group: NodeGroup, machines: Sequence[GroupMachine]) -> list[Node]:
        if group.paused:
            raise Failed(Failure.REFUSED, f"the group is not scaled: {group.paused}")
        there = self._ledger.nodes().get(group.name, {})
        found = [node for machine in machines if (node := there.get(machine.node)) is not None]
        if not machines or len(found) != len(machines):
            strays = sorted(machine.name for machine in machines if there.get(machine.node) is None)
            raise Failed(Failure.REFUSED, f"not nodes of the group: {', '.join(strays) or 'none was given'}")
        if len(there) - len(found) < group.minimum:
            message = f"{len(there)} less {len(found)} is below the minimum of {group.minimum}"
            raise Failed(Failure.REFUSED, message)
        return found

    async def _create(self, template: KwokTemplate) -> None:
        name = new_name(template.group, self._suffix())
        await verbs.create(self._api, NODES, new_node(template, name, self.config), timeout=REQUEST_SECONDS)
        self._ledger.made(template.group, name)

    async def _delete(self, node: Node) -> None:
        with suppress(NotFound, Conflict):  # gone; another node has its name
            await verbs.delete(self._api, NODES, node.name, uid=node.uid, timeout=REQUEST_SECONDS)
        self._ledger.deleted(node.uid)

    async def _side_by_side(self, requests: Iterable[Any]) -> None:
        """Send all of them, whatever becomes of one.

        Raises:
            Failed: of some of them; how many, and why the first.
        """
        at_once = asyncio.Semaphore(AT_ONCE)

        async def one(request: Any) -> Exception | None:
            async with at_once:
                try:
                    await request
                except (ApiError, Unreachable) as error:
                    return error
            return None

        answers = await asyncio.gather(*(one(request) for request in requests))
        errors = [error for error in answers if error is not None]
        for error in errors:
            message = f"{len(errors)} of {len(answers)} requests failed: {error}"
            lost = isinstance(error, Unreachable)
            failure = Failure.UNREACHABLE if lost else Failure.REFUSED
            raise Failed(failure, message, doubt=lost or len(errors) < len(answers))


def _told(failed: Failed | None) -> dict[str, Any]:
    if failed is None:
        return {}
    return {"failure": failed.failure, "message": failed.message, "doubt": failed.doubt}
