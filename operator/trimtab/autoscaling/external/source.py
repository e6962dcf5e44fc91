"""The seam to providers outside of the cluster: what is asked of one, and all of them as one.

A controller has one :class:`Sources`. Once a pass it awaits :meth:`Sources.observe`, hands the answer to the planners
(``Inputs.external``, ``groups(…, external=…)``), and acts through :attr:`Sources.providers` beside those of machine
APIs. Planners never ask anybody: they have answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.external.expander import Advisor
from trimtab.autoscaling.groups import NO_EXTERNAL_GROUPS, ExternalGroups
from trimtab.autoscaling.providers.provider import Provider


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
        for told in await asyncio.gather(*(source.observe(spec) for source in self._sources)):
            found |= told
        return found

    async def close(self) -> None:
        """Close all of them."""
        await asyncio.gather(self.advisor.close(), *(source.close() for source in self._sources))
