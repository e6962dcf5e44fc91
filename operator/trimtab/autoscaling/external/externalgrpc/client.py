"""The calls of the service ``CloudProvider``, each as a method."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from google.protobuf.message import Message

from trimtab.autoscaling.external.externalgrpc import cloud_provider_pb2 as pb
from trimtab.autoscaling.external.grpc_channel import GrpcChannel

M = TypeVar("M", bound=Message)

SERVICE: Final = "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider"


class CloudProvider:
    """A provider; every call raises :class:`~trimtab.autoscaling.external.grpc_channel.CallFailed`."""

    def __init__(self, channel: GrpcChannel) -> None:
        self._channel = channel

    async def refresh(self) -> None:
        """Let it look again at what it caches."""
        await self._channel.renew()
        await self._call("Refresh", pb.Nothing(), pb.Nothing)

    async def groups(self) -> Sequence[pb.Group]:
        """All its groups."""
        return (await self._call("NodeGroups", pb.Nothing(), pb.Groups)).groups

    async def target_size(self, group: str) -> int:
        """The size that is asked for."""
        return (await self._call("NodeGroupTargetSize", pb.OfGroup(id=group), pb.TargetSize)).target_size

    async def instances(self, group: str) -> Sequence[pb.Instance]:
        """All that belongs to a group, whatever its state."""
        return (await self._call("NodeGroupNodes", pb.OfGroup(id=group), pb.Instances)).instances

    async def template(self, group: str) -> bytes:
        """A new node of the group, core/v1, serialised; empty where it says none."""
        found = await self._call("NodeGroupTemplateNodeInfo", pb.OfGroup(id=group), pb.Template)
        return found.node or found.old_node

    async def options(self, group: str, defaults: pb.Options) -> pb.Options | None:
        """What the group wants, the defaults where it wants nothing else; ``None`` where it says nothing."""
        request = pb.OptionsRequest(id=group, defaults=defaults)
        found = await self._call("NodeGroupGetOptions", request, pb.OptionsAnswer)
        return found.options if found.HasField("options") else None

    async def node_price(self, node: pb.ProviderNode, *, start: int, end: int) -> float:
        """What a node costs from one time to another, in seconds since the epoch."""
        request = pb.PriceRequest(node=node, start=pb.Span(seconds=start), end=pb.Span(seconds=end))
        return (await self._call("PricingNodePrice", request, pb.Price)).price

    async def increase(self, group: str, by: int) -> None:
        """Raise the target."""
        await self._call("NodeGroupIncreaseSize", pb.Resize(id=group, delta=by), pb.Nothing)

    async def decrease(self, group: str, by: int) -> None:
        """Lower the target by what has not come yet; no node goes for it."""
        await self._call("NodeGroupDecreaseTargetSize", pb.Resize(id=group, delta=-by), pb.Nothing)

    async def delete(self, group: str, nodes: Iterable[pb.ProviderNode]) -> None:
        """Remove these, and lower the target by their number."""
        await self._call("NodeGroupDeleteNodes", pb.DeleteNodes(id=group, nodes=nodes), pb.Nothing)

    async def close(self) -> None:
        """Let go of the connection."""
        await self._channel.close()

    async def _call(self, method: str, request: Message, answer: type[M]) -> M:
        return await self._channel.call(f"/{SERVICE}/{method}", request, answer)
