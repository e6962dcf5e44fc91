"""Client of the gRPC service ``CloudProvider``, and the provider that changes its groups.

The service has no compare-and-set: sizes are raised and lowered by a number of nodes, and a repeated request is
executed twice. Therefore the size is read immediately before a change, and again after a failure with an unknown
outcome. A changed group is paused until it has been read again
(:class:`~trimtab.autoscaling.external.source.Freshness`). Instances are deleted by name, so the machines need no
deletion annotation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from trimtab.autoscaling.external.externalgrpc import cloud_provider_pb2 as pb
from trimtab.autoscaling.external.externalgrpc.values import provider_node
from trimtab.autoscaling.external.grpc_channel import CallFailed, GrpcChannel
from trimtab.autoscaling.external.source import Freshness
from trimtab.autoscaling.groups import GroupMachine, NodeGroup
from trimtab.autoscaling.providers.checks import (
    check_confirmed,
    check_increase,
    check_lowering,
    check_provider_machines,
    live_machines,
)
from trimtab.autoscaling.providers.outcome import (
    MachineRemoval,
    MarkedMachines,
    ScaleError,
    ScaleFailure,
    ScaleResult,
    machine_names,
)
from trimtab.kube.objects import Node

M = TypeVar("M", bound=Message)

SERVICE: Final = "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider"


class CloudProvider:
    """Client of the service. Every call may raise :class:`~trimtab.autoscaling.external.grpc_channel.CallFailed`."""

    def __init__(self, channel: GrpcChannel) -> None:
        self._channel = channel

    async def refresh(self) -> None:
        """Let the provider refresh its caches."""
        await self._channel.renew()
        await self._call("Refresh", pb.Nothing(), pb.Nothing)

    async def groups(self) -> Sequence[pb.Group]:
        """Return all groups of the provider."""
        return (await self._call("NodeGroups", pb.Nothing(), pb.Groups)).groups

    async def target_size(self, group: str) -> int:
        """Return the target size of a group."""
        return (await self._call("NodeGroupTargetSize", pb.OfGroup(id=group), pb.TargetSize)).target_size

    async def instances(self, group: str) -> Sequence[pb.Instance]:
        """Return all instances of a group, in any state."""
        return (await self._call("NodeGroupNodes", pb.OfGroup(id=group), pb.Instances)).instances

    async def template(self, group: str) -> bytes:
        """Return a new node of the group as a serialized core/v1 Node, or empty bytes if there is none."""
        found = await self._call("NodeGroupTemplateNodeInfo", pb.OfGroup(id=group), pb.Template)
        return found.node or found.old_node

    async def options(self, group: str, defaults: pb.Options) -> pb.Options | None:
        """Return the group's options merged with the defaults, or ``None`` if the provider returns none."""
        request = pb.OptionsRequest(id=group, defaults=defaults)
        found = await self._call("NodeGroupGetOptions", request, pb.OptionsAnswer)
        return found.options if found.HasField("options") else None

    async def node_price(self, node: pb.ProviderNode, *, start: int, end: int) -> float:
        """Return the price of a node for a period. Both times are in seconds since the epoch."""
        request = pb.PriceRequest(node=node, start=pb.Span(seconds=start), end=pb.Span(seconds=end))
        return (await self._call("PricingNodePrice", request, pb.Price)).price

    async def increase(self, group: str, by: int) -> None:
        """Raise the target size of a group by a number of nodes."""
        await self._call("NodeGroupIncreaseSize", pb.Resize(id=group, delta=by), pb.Nothing)

    async def decrease(self, group: str, by: int) -> None:
        """Lower the target size of a group by a number of nodes that have not registered. No node is deleted."""
        await self._call("NodeGroupDecreaseTargetSize", pb.Resize(id=group, delta=-by), pb.Nothing)

    async def delete(self, group: str, nodes: Iterable[pb.ProviderNode]) -> None:
        """Delete instances of a group, and lower its target size by their number."""
        await self._call("NodeGroupDeleteNodes", pb.DeleteNodes(id=group, nodes=nodes), pb.Nothing)

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()

    async def _call(self, method: str, request: Message, answer: type[M]) -> M:
        return await self._channel.call(f"/{SERVICE}/{method}", request, answer)


_FAILURES: Final = {
    "NOT_FOUND": ScaleFailure.NOT_FOUND,
    "UNAVAILABLE": ScaleFailure.UNREACHABLE,
    "CANCELLED": ScaleFailure.UNREACHABLE,
    "DEADLINE_EXCEEDED": ScaleFailure.TIMED_OUT,
}
"""Failures by gRPC status code. All other codes are treated as a refusal by the provider.

Examples of such refusals are a lack of stock, quota or permission, and errors that have no code of their own.
"""


class ExternalProvider:
    """The :class:`~trimtab.autoscaling.providers.Provider` for the groups of the service.

    Args:
        client: client of the service.
        freshness: tracks changes of groups.
        node_of: returns a node by name. Requests to delete a node contain its labels and annotations.
    """

    def __init__(self, client: CloudProvider, freshness: Freshness, *, node_of: Callable[[str], Node | None]) -> None:
        self._client = client
        self._freshness = freshness
        self._node_of = node_of

    async def increase(self, group: NodeGroup, to: int) -> ScaleResult:
        return await self._resize(group, to)

    async def lower(self, group: NodeGroup, to: int) -> ScaleResult:
        return await self._resize(group, to)

    async def mark(self, group: NodeGroup, machines: Sequence[GroupMachine], *, now: float) -> MarkedMachines:
        return MarkedMachines(group.id, tuple(machines))

    async def remove(self, group: NodeGroup, marked: MarkedMachines, *, count: int | None = None) -> MachineRemoval:
        machines = marked.machines
        calls = _Calls(self._client, group)
        failed = None
        with self._freshness.acting(group.name) as operation:
            try:
                _check_removal(group, machines)
                size = await calls.size_without(len(machines))
                nodes = [provider_node(each, self._node_of(each.node) if each.node else None) for each in machines]
                await calls.delete(nodes)
                operation.target = size
            except ScaleError as error:
                failed = error
        chosen = {each.name for each in machines}
        return MachineRemoval(
            group.id,
            group.target,
            group.target - len(machines) if calls.acted else group.target,
            **_failure_fields(failed),
            calls=calls.count,
            machines=machine_names(machines) if calls.acted else (),
            others=tuple(sorted(each.name for each in live_machines(group) if each.name not in chosen)),
        )

    async def unmark(self, group: NodeGroup, machines: Sequence[str], *, mark: str = "") -> tuple[str, ...]:
        return ()

    async def _resize(self, group: NodeGroup, to: int) -> ScaleResult:
        calls = _Calls(self._client, group)
        failed = None
        with self._freshness.acting(group.name) as operation:
            try:
                if to > group.target:
                    check_increase(group, to)
                else:
                    check_lowering(group, to)
                    check_provider_machines(await calls.instances(), to)
                await calls.set_size(to)
                operation.target = to
            except ScaleError as error:
                failed = error
        return ScaleResult(group.id, group.target, to, **_failure_fields(failed), calls=calls.count)


class _Calls:
    """Counts the calls for one group, and converts errors to :class:`ScaleError`.

    Attributes:
        count: number of calls.
        acted: whether a call may have changed the group.
    """

    def __init__(self, client: CloudProvider, group: NodeGroup) -> None:
        self._client = client
        self._group = group
        self.count = 0
        self.acted = False

    async def size(self) -> int:
        """Return the current target size.

        Raises:
            ScaleError: the target size could not be read.
        """
        self.count += 1
        try:
            return await self._client.target_size(self._group.name)
        except CallFailed as error:
            raise _failed(error) from None

    async def size_without(self, number: int) -> int:
        """Return the current target size minus a number of nodes.

        Raises:
            ScaleError: the target size could not be read, or the result is below the minimum.
        """
        size = await self.size()
        if size - number < self._group.minimum:
            message = (
                f"the size is {size} now, and a decrease by {number} would take it below the minimum of "
                f"{self._group.minimum}"
            )
            raise ScaleError(ScaleFailure.CONFLICT, message)
        return size - number

    async def instances(self) -> int:
        """Return the number of instances that are not being deleted.

        Raises:
            ScaleError: the instances could not be read.
        """
        self.count += 1
        try:
            found = await self._client.instances(self._group.name)
        except CallFailed as error:
            raise _failed(error) from None
        return sum(each.status.state != pb.DELETING for each in found)

    async def set_size(self, to: int) -> None:
        """Raise or lower the target size if it is still the one that the plan was based on.

        Raises:
            ScaleError: the target size was not set, or the outcome is unknown.
        """
        group, before = self._group, await self.size()
        if before != group.target:
            message = f"the plan was based on a target of {group.target}, but the target is {before} now"
            raise ScaleError(ScaleFailure.CONFLICT, message)
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
            message = f"its provider accepted the request, but its target is {found}, not {to}"
            raise ScaleError(ScaleFailure.CONFLICT, message, doubt=True)

    async def _after_failed_resize(self, to: int, error: CallFailed) -> None:
        """Read the size after a failed call, because only the response may have been lost.

        Raises:
            ScaleError: the size is not the requested one.
        """
        found = await self._known_size()
        if found == to:
            return
        raise _failed(error, doubt=error.lost or found != self._group.target)

    async def _known_size(self) -> int | None:
        try:
            return await self.size()
        except ScaleError:
            return None

    async def delete(self, nodes: Sequence[pb.ProviderNode]) -> None:
        """Delete instances of the group.

        Raises:
            ScaleError: at least one of them is not being deleted.
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
        not_deleted = {each.id for each in found if each.status.state != pb.DELETING}
        left = sorted(node.provider_id for node in nodes if node.provider_id in not_deleted)
        if left:
            raise _failed(failed, doubt=failed.lost or len(left) < len(nodes))


def _check_removal(group: NodeGroup, machines: Sequence[GroupMachine]) -> None:
    """Check whether machines may be removed from a group, using only the group itself.

    Raises:
        ScaleError: the removal is invalid. The message contains the numbers.
    """
    if group.paused:
        raise ScaleError(ScaleFailure.REFUSED, f"the group is not scaled: {group.paused}")
    known = {each.name for each in live_machines(group)}
    strays = sorted(each.name for each in machines if each.name not in known)
    if strays or not machines:
        raise ScaleError(
            ScaleFailure.REFUSED, f"these are not deletable instances of the group: {', '.join(strays) or 'none given'}"
        )
    check_confirmed(machines)
    if group.target - len(machines) < group.minimum:
        message = f"a target size of {group.target} less {len(machines)} is below the minimum of {group.minimum}"
        raise ScaleError(ScaleFailure.REFUSED, message)


def _failed(error: CallFailed, *, doubt: bool = False) -> ScaleError:
    return ScaleError(_FAILURES.get(error.code, ScaleFailure.REFUSED), str(error), doubt=doubt)


def _failure_fields(failed: ScaleError | None) -> dict[str, Any]:
    if failed is None:
        return {}
    return {"failure": failed.failure, "message": failed.message, "doubt": failed.doubt}
