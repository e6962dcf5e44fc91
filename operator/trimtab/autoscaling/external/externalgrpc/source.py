"""Reads the groups of an ``externalgrpc`` provider once per iteration."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.external.externalgrpc import cloud_provider_pb2 as pb
from trimtab.autoscaling.external.externalgrpc import values
from trimtab.autoscaling.external.externalgrpc.provider import CloudProvider, ExternalProvider
from trimtab.autoscaling.external.grpc_channel import CALL_SECONDS, CallFailed, GrpcChannel, GrpcEndpoint
from trimtab.autoscaling.external.source import Freshness
from trimtab.autoscaling.groups import ExternalGroup, ExternalGroups, GroupOptions, ObjectProblem
from trimtab.autoscaling.providers.provider import Provider
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Node

NAME = "external"
"""Name of the provider, which is the prefix of its groups' ids."""

_HOUR = 3600
_ZERO_OR_MAX = "its provider scales it only to 0 or to its maximum (zeroOrMaxNodeScaling)"


class GroupReader:
    """Reads one group from the provider, and keeps the result of the last complete read.

    Size and instances are read every time, and options too unless the provider does not implement them. Template and
    price are read once, as in upstream, and again only after an error, because providers derive them from data that
    does not change.

    Attributes:
        known: the group as it was at the last complete read; ``None`` if there was none.
        number: sequence number of that read.
    """

    def __init__(self, client: CloudProvider, name: str, *, clock: Callable[[], float]) -> None:
        self._client = client
        self._name = name
        self._clock = clock
        self._node: Node | None = None
        self._no_node_reason = ""
        self._has_template = True
        self._has_options = True
        self._has_price = True
        self._price = ""
        self._zero_or_max = False
        self.known: ExternalGroup | None = None
        self.number = 0

    async def read(self, group: pb.Group, defaults: GroupOptions, number: int) -> None:
        """Read the group from the provider.

        Args:
            group: the group as the provider lists it, with its size limits.
            defaults: the options of groups that set none.
            number: sequence number of the read.

        Raises:
            CallFailed: the size or the instances could not be read.
        """
        size, instances, options, once = await asyncio.gather(
            self._client.target_size(self._name),
            self._client.instances(self._name),
            self._options(defaults),
            self._read_constants(),
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
            no_node_reason=self._no_node_reason,
            price=self._price,
            paused=_ZERO_OR_MAX if self._zero_or_max else "",
        )
        self.number = number

    async def _options(self, defaults: GroupOptions) -> GroupOptions:
        """Return the group's options. If the provider fails to return them, return the last known ones."""
        if not self._has_options:
            return GroupOptions()
        try:
            reported = await self._client.options(self._name, values.options_message(defaults))
        except CallFailed as error:
            self._has_options = not error.unimplemented
            return GroupOptions() if self.known is None or error.unimplemented else self.known.options
        self._zero_or_max = reported is not None and reported.zero_or_max
        return values.options(reported, defaults)

    async def _read_constants(self) -> None:
        """Read the template and the price, unless they have been read before."""
        if self._node is None and self._has_template:
            await self._template()
        if self._node is not None and self._has_price:
            await self._ask_price(self._node)

    async def _template(self) -> None:
        self._no_node_reason = "its provider does not describe its nodes"
        try:
            raw = await self._client.template(self._name)
            if raw:
                self._node, self._no_node_reason = values.template(raw), ""
            else:
                self._has_template = False
        except CallFailed as error:
            self._has_template = not error.unimplemented
            if self._has_template:
                self._no_node_reason = f"its provider failed to describe its nodes: {error}"
        except InputError as error:
            self._no_node_reason = f"its provider returned an invalid node: {error}"

    async def _ask_price(self, node: Node) -> None:
        now = int(self._clock())
        try:
            price = await self._client.node_price(values.template_node(node), start=now, end=now + _HOUR)
        except CallFailed as error:
            self._has_price = error.lost
            return
        self._has_price = False
        self._price = values.price_text(price)


log = logging.getLogger(__name__)

READ_SECONDS: Final = 2.0
"""Seconds that an iteration waits for a read. A longer read continues, and a later iteration uses its result."""

MAX_CONCURRENT_READS: Final = 64
"""Maximum number of groups that are read concurrently."""


class ExternalGrpc:
    """The :class:`~trimtab.autoscaling.external.source.ExternalSource` of an ``externalgrpc`` provider.

    Args:
        client: client of the service.
        provider: changes its groups.
        freshness: tracks changes of groups; shared with the provider.
        patience: seconds that an iteration waits for a read.
        clock: returns seconds since the epoch.
    """

    name = NAME

    def __init__(
        self,
        client: CloudProvider,
        provider: Provider,
        freshness: Freshness,
        *,
        patience: float = READ_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.provider = provider
        self._client = client
        self._freshness = freshness
        self._patience = patience
        self._clock = clock
        self._readers: dict[str, GroupReader] = {}
        self._reading: asyncio.Task[_Read] | None = None
        self._since = 0.0
        self._last = _Read(0)

    async def observe(self, spec: ClusterAutoscalerSpec) -> ExternalGroups:
        now = asyncio.get_running_loop().time()
        patience = 0.0  # wait only once per read: a provider that hangs must not slow down each iteration
        if self._reading is None:
            self._since, patience = now, self._patience
            self._reading = asyncio.create_task(self._read(values.defaults(spec)), name="read the external provider")
        await asyncio.wait({self._reading}, timeout=patience)
        no_answer = ""
        if self._reading.done():
            reading, self._reading = self._reading, None
            self._last = reading.result()
        else:
            no_answer = f"its provider has not answered for {asyncio.get_running_loop().time() - self._since:.0f} s"
        return self._known_groups(no_answer)

    async def close(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        await self._client.close()

    def _known_groups(self, no_answer: str) -> ExternalGroups:
        """Return the groups that have been read. They are paused if their last read failed or is outdated."""
        last = self._last
        found, problems = [], []
        if no_answer or last.failure:
            message = no_answer or last.failure
            problems.append(_provider_problem("", message))
            no_answer = no_answer or f"its provider does not answer: {message}"
        for name, reader in sorted(self._readers.items()):
            why = last.failures.get(name, "") or no_answer
            holds = self._freshness.is_current(name, reader.number)
            if reader.known is None:
                problems += [] if no_answer else [_provider_problem(f"{NAME}/{name}", f"is left out: {why}")]
            elif holds and not why:
                found.append(reader.known)
            else:
                known = reader.known
                target = known.target if holds else self._freshness.target(name, known.target)
                paused = why or "it was scaled recently and has not been read again since"
                found.append(replace(known, target=target, paused=paused))
        return ExternalGroups(tuple(found), tuple(problems))

    async def _read(self, defaults: GroupOptions) -> _Read:
        """Read all groups from the provider. Errors are part of the result."""
        read = _Read(self._freshness.begin_read())
        try:
            await self._client.refresh()
            groups = {group.id: group for group in reversed(await self._client.groups()) if group.id}
        except CallFailed as error:
            read.failure = str(error)
            return read
        for deleted in self._readers.keys() - groups.keys():
            del self._readers[deleted]
        at_once = asyncio.Semaphore(MAX_CONCURRENT_READS)
        await asyncio.gather(*(self._read_group(group, defaults, read, at_once) for group in groups.values()))
        return read

    async def _read_group(
        self, group: pb.Group, defaults: GroupOptions, read: _Read, at_once: asyncio.Semaphore
    ) -> None:
        reader = self._readers.setdefault(group.id, GroupReader(self._client, group.id, clock=self._clock))
        async with at_once:
            try:
                await reader.read(group, defaults, read.number)
            except CallFailed as error:
                read.failures[group.id] = f"its provider failed to return the size or instances of the group: {error}"
            except Exception as error:  # an invalid group must not prevent reading the others
                log.exception("Failed to read node group %s from the external provider", group.id)
                read.failures[group.id] = f"its provider's answer cannot be read: {type(error).__name__}: {error}"


class _Read:
    """The result of one read of all groups.

    Attributes:
        number: sequence number of the read.
        failure: the reason why no group could be read; empty if the read succeeded.
        failures: the reason why a single group could not be read, by group name.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.failure = ""
        self.failures: dict[str, str] = {}


def _provider_problem(name: str, message: str) -> ObjectProblem:
    return ObjectProblem("CloudProvider", "", name or NAME, reasons.PROVIDER_UNREACHABLE, message)


def external_grpc(
    endpoint: GrpcEndpoint,
    *,
    node_of: Callable[[str], Node | None],
    call_seconds: float = CALL_SECONDS,
    patience: float = READ_SECONDS,
) -> ExternalGrpc:
    """Create the source of an external provider's groups.

    Args:
        endpoint: the provider's server.
        node_of: returns a node by name.
        call_seconds: timeout of a call.
        patience: seconds that an iteration waits for a read.
    """
    client = CloudProvider(GrpcChannel(endpoint, seconds=call_seconds))
    freshness = Freshness()
    return ExternalGrpc(client, ExternalProvider(client, freshness, node_of=node_of), freshness, patience=patience)
