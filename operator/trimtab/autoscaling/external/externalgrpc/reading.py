"""One group, read from its provider: what changes each time, and what is asked once in its life."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from trimtab.autoscaling.external.externalgrpc import cloud_provider_pb2 as pb
from trimtab.autoscaling.external.externalgrpc import values
from trimtab.autoscaling.external.externalgrpc.client import CloudProvider
from trimtab.autoscaling.external.grpc_channel import CallFailed
from trimtab.autoscaling.groups import ExternalGroup, GroupOptions
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Node

NAME = "external"
"""The provider's name: what ids of its groups begin with."""

_HOUR = 3600
_WHOLE = "its provider has it as a whole or not at all (zeroOrMaxNodeScaling), and single nodes must not come or go"


class GroupReader:
    """Reads one group.

    Size and instances are asked every time, and options unless the provider has none. The template and the price are
    asked once, as upstream does, and again only after an error: providers make them up from what does not change.

    Attributes:
        known: the group as it was last read as a whole; ``None`` if it never was.
        number: of that reading.
    """

    def __init__(self, client: CloudProvider, name: str, *, clock: Callable[[], float]) -> None:
        self._client = client
        self._name = name
        self._clock = clock
        self._node: Node | None = None
        self._untold = ""
        self._has_template = True
        self._has_options = True
        self._has_price = True
        self._price = ""
        self._whole = False
        self.known: ExternalGroup | None = None
        self.number = 0

    async def read(self, group: pb.Group, defaults: GroupOptions, number: int) -> None:
        """Ask the provider what the group is now.

        Args:
            group: its limits.
            defaults: what holds where it wants nothing else.
            number: of the reading.

        Raises:
            CallFailed: its size or its instances are not known, so that nothing can be done with it.
        """
        size, instances, options, once = await asyncio.gather(
            self._client.target_size(self._name),
            self._client.instances(self._name),
            self._options(defaults),
            self._once(),
            return_exceptions=True,
        )
        if isinstance(size, BaseException):
            raise size
        if isinstance(instances, BaseException):
            raise instances
        if isinstance(options, BaseException):
            raise options
        if isinstance(once, BaseException):
            raise once
        self.known = ExternalGroup(
            provider=NAME,
            name=self._name,
            minimum=group.min_size,
            maximum=group.max_size,
            target=size,
            machines=values.machines(instances),
            options=options,
            node=self._node,
            untold=self._untold,
            price=self._price,
            paused=_WHOLE if self._whole else "",
        )
        self.number = number

    async def _options(self, defaults: GroupOptions) -> GroupOptions:
        """What the group wants. A provider that fails to say it is not worth a pause: the last word holds."""
        if not self._has_options:
            return GroupOptions()
        try:
            said = await self._client.options(self._name, values.options_message(defaults))
        except CallFailed as error:
            self._has_options = not error.unimplemented
            return GroupOptions() if self.known is None or error.unimplemented else self.known.options
        self._whole = said is not None and said.zero_or_max
        return values.options(said, defaults)

    async def _once(self) -> None:
        """What is asked once."""
        if self._node is None and self._has_template:
            await self._template()
        if self._node is not None and self._has_price:
            await self._ask_price(self._node)

    async def _template(self) -> None:
        self._untold = "its provider does not say it"
        try:
            raw = await self._client.template(self._name)
            if raw:
                self._node, self._untold = values.template(raw), ""
            else:
                self._has_template = False
        except CallFailed as error:
            self._has_template = not error.unimplemented
            if self._has_template:
                self._untold = f"its provider failed to say it: {error}"
        except InputError as error:
            self._untold = f"its provider says what is no node: {error}"

    async def _ask_price(self, node: Node) -> None:
        now = int(self._clock())
        try:
            price = await self._client.node_price(values.template_node(node), start=now, end=now + _HOUR)
        except CallFailed as error:
            self._has_price = error.lost
            return
        self._has_price = False
        self._price = values.price_text(price)
