"""The seam to providers outside of the cluster: what is asked of one, and all of them as one.

A controller has one :class:`Sources`. Once a pass it awaits :meth:`Sources.observe`, hands the answer to the planners
(``Inputs.external``, ``groups(…, external=…)``), and acts through :attr:`Sources.providers` beside those of machine
APIs. Planners never ask anybody: they have answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.external.expander import Advisor
from trimtab.autoscaling.groups import NO_EXTERNAL_GROUPS, ExternalGroups, Problem
from trimtab.autoscaling.providers.provider import Provider

log = logging.getLogger(__name__)


class Source(Protocol):
    """One provider outside of the cluster.

    Attributes:
        name: of the provider: what its groups' ids begin with, and what
            :func:`~trimtab.autoscaling.providers.api_group_of` says of them.
    """

    name: str

    @property
    def provider(self) -> Provider:
        """Acts on its groups."""
        ...

    async def observe(self, spec: ClusterAutoscalerSpec) -> ExternalGroups:
        """What the provider says now. It never raises and never takes long.

        What could not be read is told as a problem, and groups that are known from before are told as they were, but
        paused: they keep their nodes, and nobody acts on what may have changed.

        Args:
            spec: of the ClusterAutoscaler: a provider is told what holds where its groups want nothing else.
        """
        ...

    async def close(self) -> None:
        """Let go of connections, and end what still runs."""
        ...


class Sources:
    """All of them; with none it costs nothing.

    Args:
        sources: of groups.
        advisor: asks the server of the expander Grpc.

    Attributes:
        advisor: the same.
    """

    def __init__(self, sources: Sequence[Source] = (), advisor: Advisor | None = None) -> None:
        self.advisor = advisor or Advisor(None)
        self._sources = tuple(sources)
        self._told: dict[str, ExternalGroups] = {}

    @property
    def providers(self) -> Mapping[str, Provider]:
        """Who acts on the groups, by what :func:`~trimtab.autoscaling.providers.api_group_of` says of them."""
        return {source.name: source.provider for source in self._sources}

    async def observe(self, spec: ClusterAutoscalerSpec) -> ExternalGroups:
        """What all of them say, asked side by side.

        Args:
            spec: of the ClusterAutoscaler.
        """
        found = NO_EXTERNAL_GROUPS
        for told in await asyncio.gather(*(self._observe(source, spec) for source in self._sources)):
            found |= told
        return found

    async def _observe(self, source: Source, spec: ClusterAutoscalerSpec) -> ExternalGroups:
        """What one says; a defect in it pauses its groups, and is no other group's affair."""
        try:
            told = await source.observe(spec)
        except Exception as error:  # whatever it is, passes go on
            log.exception("the provider %s could not be asked", source.name)
            message = f"what it says cannot be read: {type(error).__name__}: {error}"
            known = self._told.get(source.name, NO_EXTERNAL_GROUPS).groups
            return ExternalGroups(
                tuple(replace(group, paused=message) for group in known),
                (Problem("CloudProvider", "", source.name, reasons.PROVIDER_UNREACHABLE, message),),
            )
        self._told[source.name] = told
        return told

    async def close(self) -> None:
        """Close all of them."""
        await asyncio.gather(self.advisor.close(), *(source.close() for source in self._sources))
