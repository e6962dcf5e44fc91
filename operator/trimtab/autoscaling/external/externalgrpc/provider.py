"""Acting on the groups of an external provider.

Its calls have no compare-and-set: sizes go up and down by a number, and who asks twice gets twice. So the size is read
right before, and again after a failure whose outcome nobody knows; and a group that was acted on is left alone until it
has been read anew (:class:`~trimtab.autoscaling.external.freshness.Freshness`). Instances that go are named, so nothing
needs a mark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from trimtab.autoscaling.external.externalgrpc import cloud_provider_pb2 as pb
from trimtab.autoscaling.external.externalgrpc.client import CloudProvider
from trimtab.autoscaling.external.externalgrpc.values import provider_node
from trimtab.autoscaling.external.freshness import Freshness
from trimtab.autoscaling.external.grpc_channel import CallFailed
from trimtab.autoscaling.groups import GroupMachine, NodeGroup
from trimtab.autoscaling.providers.checks import alive, check_increase, check_lowering, check_there
from trimtab.autoscaling.providers.outcome import Failed, Failure, Removal, Scaled, names
from trimtab.kube.objects import Node

_FAILURES: Final = {
    "NOT_FOUND": Failure.NOT_FOUND,
    "UNAVAILABLE": Failure.UNREACHABLE,
    "CANCELLED": Failure.UNREACHABLE,
    "DEADLINE_EXCEEDED": Failure.TIMED_OUT,
}
"""All other codes are a refusal: out of stock, no quota, not allowed, or what the provider has no code for."""


class ExternalProvider:
    """A :class:`~trimtab.autoscaling.providers.Provider`.

    Args:
        client: the provider.
        freshness: told what is done.
        node_of: the node of that name as the cluster has it: providers know nodes by labels and annotations, too.
    """

    def __init__(self, client: CloudProvider, freshness: Freshness, *, node_of: Callable[[str], Node | None]) -> None:
        self._client = client
        self._freshness = freshness
        self._node_of = node_of

    async def increase(self, group: NodeGroup, to: int) -> Scaled:
        """See :class:`~trimtab.autoscaling.providers.Provider`."""
        return await self._resize(group, to)

    async def lower(self, group: NodeGroup, to: int) -> Scaled:
        """See :class:`~trimtab.autoscaling.providers.Provider`."""
        return await self._resize(group, to)

    async def remove(self, group: NodeGroup, machines: Sequence[GroupMachine], *, now: float) -> Removal:
        """See :class:`~trimtab.autoscaling.providers.Provider`. One call names all of them."""
        del now
        calls = _Calls(self._client, group)
        failed = None
        with self._freshness.acting(group.name) as doing:
            try:
                _check_removal(group, machines)
                size = await calls.size_without(len(machines))
                nodes = [provider_node(each, self._node_of(each.node) if each.node else None) for each in machines]
                await calls.delete(nodes)
                doing.target = size
            except Failed as error:
                failed = error
        chosen = {each.name for each in machines}
        return Removal(
            group.id,
            group.target,
            group.target - len(machines) if calls.acted else group.target,
            **_told(failed),
            calls=calls.count,
            machines=names(machines) if calls.acted else (),
            others=tuple(sorted(each.name for each in alive(group) if each.name not in chosen)),
        )

    async def unmark(self, group: NodeGroup, machines: Sequence[str], *, mark: str = "") -> tuple[str, ...]:
        """See :class:`~trimtab.autoscaling.providers.Provider`. There are no marks, so nothing is left to do."""
        del group, machines, mark
        return ()

    async def _resize(self, group: NodeGroup, to: int) -> Scaled:
        calls = _Calls(self._client, group)
        failed = None
        with self._freshness.acting(group.name) as doing:
            try:
                if to > group.target:
                    check_increase(group, to)
                else:
                    check_lowering(group, to)
                    check_there(await calls.there(), to)
                await calls.set_size(to)
                doing.target = to
            except Failed as error:
                failed = error
        return Scaled(group.id, group.target, to, **_told(failed), calls=calls.count)


class _Calls:
    """The calls for one group: counted, and failing in our terms.

    Attributes:
        count: how many were sent.
        acted: whether one of them may have changed something.
    """

    def __init__(self, client: CloudProvider, group: NodeGroup) -> None:
        self._client = client
        self._group = group
        self.count = 0
        self.acted = False

    async def size(self) -> int:
        """The target as it is now.

        Raises:
            Failed: nobody says it.
        """
        self.count += 1
        try:
            return await self._client.target_size(self._group.name)
        except CallFailed as error:
            raise _failed(error) from None

    async def size_without(self, number: int) -> int:
        """The target as it is now, less so many.

        Raises:
            Failed: nobody says it, or it is below the minimum.
        """
        size = await self.size()
        if size - number < self._group.minimum:
            message = f"the size is {size} by now: without {number} it is below {self._group.minimum}"
            raise Failed(Failure.CONFLICT, message)
        return size - number

    async def there(self) -> int:
        """How many instances are there that are not on their way out.

        Raises:
            Failed: nobody says it.
        """
        self.count += 1
        try:
            found = await self._client.instances(self._group.name)
        except CallFailed as error:
            raise _failed(error) from None
        return sum(each.status.state != pb.DELETING for each in found)

    async def set_size(self, to: int) -> None:
        """Raise or lower the target to that, if it still is what was planned on.

        Raises:
            Failed: it is not so, or nobody knows.
        """
        group, before = self._group, await self.size()
        if before != group.target:
            message = f"the plan was made on a target of {group.target}, and it is {before} by now"
            raise Failed(Failure.CONFLICT, message)
        self.count += 1
        self.acted = True
        try:
            if to > before:
                await self._client.increase(group.name, to - before)
            else:
                await self._client.decrease(group.name, before - to)
        except CallFailed as error:
            await self._after_failed_resize(to, error)
            return
        found = await self._known_size()
        if found is not None and found != to:
            message = f"its provider said yes, and its target is {found}, not {to}"
            raise Failed(Failure.CONFLICT, message, doubt=True)

    async def _after_failed_resize(self, to: int, error: CallFailed) -> None:
        """See what the size is after a failure, which may have been one on the way back.

        Raises:
            Failed: unless the size is what was asked for.
        """
        found = await self._known_size()
        if found == to:
            return
        raise _failed(error, doubt=error.lost or found != self._group.target)

    async def _known_size(self) -> int | None:
        try:
            return await self.size()
        except Failed:
            return None

    async def delete(self, nodes: Sequence[pb.ProviderNode]) -> None:
        """Remove instances.

        Raises:
            Failed: unless all of them go.
        """
        self.count += 1
        self.acted = True
        try:
            await self._client.delete(self._group.name, nodes)
            return
        except CallFailed as error:
            failed = error
        self.count += 1
        try:
            found = await self._client.instances(self._group.name)
        except CallFailed:
            raise _failed(failed, doubt=True) from None
        stay = {each.id for each in found if each.status.state != pb.DELETING}
        left = sorted(node.provider_id for node in nodes if node.provider_id in stay)
        if left:
            raise _failed(failed, doubt=failed.lost or len(left) < len(nodes))


def _check_removal(group: NodeGroup, machines: Sequence[GroupMachine]) -> None:
    """Refuse what must not be, from the group alone.

    Raises:
        Failed: what is against it, with the numbers compared.
    """
    if group.paused:
        raise Failed(Failure.REFUSED, f"the group is not scaled: {group.paused}")
    known = {each.name for each in alive(group)}
    strays = sorted(each.name for each in machines if each.name not in known)
    if strays or not machines:
        raise Failed(Failure.REFUSED, f"not instances of the group that could go: {', '.join(strays) or 'none given'}")
    if group.target - len(machines) < group.minimum:
        message = f"{group.target} less {len(machines)} is below the minimum of {group.minimum}"
        raise Failed(Failure.REFUSED, message)


def _failed(error: CallFailed, *, doubt: bool = False) -> Failed:
    return Failed(_FAILURES.get(error.code, Failure.REFUSED), str(error), doubt=doubt)


def _told(failed: Failed | None) -> dict[str, Any]:
    if failed is None:
        return {}
    return {"failure": failed.failure, "message": failed.message, "doubt": failed.doubt}
