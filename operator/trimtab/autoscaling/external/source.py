"""The interface between the autoscaler and external providers of node groups.

The controller has one :class:`ExternalSources`. Once per iteration it awaits :meth:`ExternalSources.observe` and passes
the result to the planners (``PlanInputs.external``, ``build_groups(…, external=…)``). It acts on the groups through
:attr:`ExternalSources.providers`. Planners never call a provider: what providers report is part of their input.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.external.expander import Advisor
from trimtab.autoscaling.groups import NO_EXTERNAL_GROUPS, ExternalGroups, ObjectProblem
from trimtab.autoscaling.providers.provider import Provider


@dataclass
class Operation:
    """A change of a group that is in progress.

    Attributes:
        target: the resulting size of the group if it is known. The caller sets it.
    """

    target: int | None = None


class Freshness:
    """Tracks whether the last read of a group is newer than all changes of the group.

    Requests to an external provider are relative: they add three nodes instead of setting the size to five. If a plan
    were based on a size that was read before a change, it would add nodes twice. Therefore a group is paused after a
    change until it has been read again.
    """

    def __init__(self) -> None:
        self._sequence = 0
        self._acted: dict[str, int] = {}
        self._acting: Counter[str] = Counter()
        self._targets: dict[str, int] = {}

    def begin_read(self) -> int:
        """Record the start of a read, and return its number for :meth:`is_current`."""
        self._sequence += 1
        return self._sequence

    @contextmanager
    def acting(self, group: str) -> Iterator[Operation]:
        """Return a context manager that marks a change to a group as in progress."""
        self._acting[group] += 1
        operation = Operation()
        try:
            yield operation
        finally:
            if operation.target is not None:
                self._targets[group] = operation.target
            self._acting[group] -= 1
            self._sequence += 1
            self._acted[group] = self._sequence

    def is_current(self, group: str, reading: int) -> bool:
        """Return whether the read began after all changes of the group were finished."""
        return not self._acting[group] and reading > self._acted.get(group, 0)

    def target(self, group: str, read: int) -> int:
        """Return the most recent known size of a group whose last read is not current.

        This is the size that a change has set since the read, or ``read`` if none did.
        """
        return self._targets.get(group, read)


log = logging.getLogger(__name__)


class ExternalSource(Protocol):
    """One external provider.

    Attributes:
        name: name of the provider, which is the prefix of its groups' ids
            (:func:`~trimtab.autoscaling.providers.api_group_of`).
    """

    name: str

    @property
    def provider(self) -> Provider:
        """Return the :class:`Provider`, which resizes the groups and deletes their nodes."""
        ...

    async def observe(self, spec: ClusterAutoscalerSpec) -> ExternalGroups:
        """Read the provider's groups. This never raises, and its duration is limited.

        If the provider cannot be read, the result has a problem, and the groups of the last read are returned as
        paused: they keep their nodes and are not scaled.

        Args:
            spec: spec of the ClusterAutoscaler; its options are the defaults of the groups' options.
        """
        ...

    async def close(self) -> None:
        """Close connections, and cancel requests in flight."""
        ...


class ExternalSources:
    """All external providers.

    Args:
        sources: the providers.
        advisor: client for the gRPC expander server.

    Attributes:
        advisor: client for the gRPC expander server.
    """

    def __init__(self, sources: Sequence[ExternalSource] = (), advisor: Advisor | None = None) -> None:
        self.advisor = advisor or Advisor(None)
        self._sources = tuple(sources)
        self._last: dict[str, ExternalGroups] = {}

    @property
    def providers(self) -> Mapping[str, Provider]:
        """Return the :class:`Provider` of each external provider, by provider name."""
        return {source.name: source.provider for source in self._sources}

    @property
    def unread(self) -> ExternalGroups:
        """Return what is known before the providers are read: no groups, and whether there are providers."""
        return ExternalGroups(configured=bool(self._sources))

    async def observe(self, spec: ClusterAutoscalerSpec) -> ExternalGroups:
        """Read the groups of all providers concurrently.

        Args:
            spec: spec of the ClusterAutoscaler.
        """
        found = self.unread
        for reported in await asyncio.gather(*(self._observe(source, spec) for source in self._sources)):
            found |= reported
        return found

    async def _observe(self, source: ExternalSource, spec: ClusterAutoscalerSpec) -> ExternalGroups:
        """Read one provider. An unexpected exception pauses its groups and does not affect other providers."""
        try:
            reported = await source.observe(spec)
        except Exception as error:  # a bug in one source must not stop iterations
            log.exception("Failed to read the node groups from external provider %s", source.name)
            message = f"its answer cannot be read: {type(error).__name__}: {error}"
            known = self._last.get(source.name, NO_EXTERNAL_GROUPS).groups
            return ExternalGroups(
                tuple(replace(group, paused=message) for group in known),
                (ObjectProblem("CloudProvider", "", source.name, reasons.PROVIDER_UNREACHABLE, message),),
            )
        self._last[source.name] = reported
        return reported

    async def close(self) -> None:
        """Close all providers."""
        await asyncio.gather(self.advisor.close(), *(source.close() for source in self._sources))
