"""The groups of an external provider, read once a pass."""

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
from trimtab.autoscaling.external.externalgrpc.client import CloudProvider
from trimtab.autoscaling.external.externalgrpc.reading import NAME, GroupReader
from trimtab.autoscaling.external.freshness import Freshness
from trimtab.autoscaling.external.grpc_channel import CallFailed
from trimtab.autoscaling.groups import ExternalGroups, GroupOptions, Problem
from trimtab.autoscaling.providers.provider import Provider

log = logging.getLogger(__name__)

PATIENCE: Final = 2.0
"""Seconds that a pass waits for an answer; a reading that takes longer goes on, and the next pass has it."""

AT_ONCE: Final = 64
"""Groups that are read side by side."""


class ExternalGrpc:
    """A :class:`~trimtab.autoscaling.external.source.Source`.

    Args:
        client: the provider.
        provider: acts on its groups.
        freshness: shared with it.
        patience: seconds that a pass waits.
        clock: seconds since the epoch.
    """

    name = NAME

    def __init__(
        self,
        client: CloudProvider,
        provider: Provider,
        freshness: Freshness,
        *,
        patience: float = PATIENCE,
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
        """See :class:`~trimtab.autoscaling.external.source.Source`."""
        now = asyncio.get_running_loop().time()
        patience = 0.0  # one reading is waited for once: else each pass would take so much longer
        if self._reading is None:
            self._since, patience = now, self._patience
            self._reading = asyncio.create_task(self._read(values.defaults(spec)), name="read the external provider")
        await asyncio.wait({self._reading}, timeout=patience)
        silent = ""
        if self._reading.done():
            reading, self._reading = self._reading, None
            self._last = reading.result()
        else:
            silent = f"its provider has not answered for {asyncio.get_running_loop().time() - self._since:.0f} s"
        return self._told(silent)

    async def close(self) -> None:
        """See :class:`~trimtab.autoscaling.external.source.Source`."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        await self._client.close()

    def _told(self, silent: str) -> ExternalGroups:
        """What is known, each group paused that cannot be relied upon."""
        last = self._last
        found, problems = [], []
        if silent or last.failure:
            message = silent or last.failure
            problems.append(_problem("", message))
            silent = silent or f"its provider does not answer: {message}"
        for name, reader in sorted(self._readers.items()):
            why = last.failures.get(name, "") or silent
            holds = self._freshness.holds(name, reader.number)
            if reader.known is None:
                problems += [] if silent else [_problem(f"{NAME}/{name}", f"is left out: {why}")]
            elif holds and not why:
                found.append(reader.known)
            else:
                known = reader.known
                target = known.target if holds else self._freshness.target(name, known.target)
                paused = why or "it was scaled a moment ago, and has not been read since"
                found.append(replace(known, target=target, paused=paused))
        return ExternalGroups(tuple(found), tuple(problems))

    async def _read(self, defaults: GroupOptions) -> _Read:
        """Read everything; what goes wrong is told."""
        read = _Read(self._freshness.reading())
        try:
            await self._client.refresh()
            groups = {group.id: group for group in reversed(await self._client.groups()) if group.id}
        except CallFailed as error:
            read.failure = str(error)
            return read
        for gone in self._readers.keys() - groups.keys():
            del self._readers[gone]
        at_once = asyncio.Semaphore(AT_ONCE)
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
                read.failures[group.id] = f"its provider failed to say what it is: {error}"
            except Exception as error:  # what one group says must not keep all others from being read
                log.exception("group %s of the external provider could not be read", group.id)
                read.failures[group.id] = f"what its provider says cannot be read: {type(error).__name__}: {error}"


class _Read:
    """What came of one reading.

    Attributes:
        number: of the reading.
        failure: why nothing could be read; empty where it could.
        failures: the same of single groups.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.failure = ""
        self.failures: dict[str, str] = {}


def _problem(name: str, message: str) -> Problem:
    return Problem("CloudProvider", "", name or NAME, reasons.PROVIDER_UNREACHABLE, message)
