"""Writing an object's status: the newest one, one write at a time, and never in the way of who makes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from trimtab.kube.api import Api, ApiError, NotFound, ServerError, TooManyRequests, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.resources import Resource
from trimtab.kube.retry import Backoff
from trimtab.kube.verbs import merge_patch

log = logging.getLogger(__name__)

S = TypeVar("S", bound=Struct)
S_contra = TypeVar("S_contra", bound=Struct, contravariant=True)

TIMEOUT: Final = 10.0
"""Seconds of one request."""

RETRY: Final = Backoff(initial=0.5, maximum=10.0)
TRIES: Final = 4
"""Of one status; who makes them has a newer one soon."""


class WorthWriting(Protocol[S_contra]):
    """Says whether a status is to be written over the one that stands in the cluster."""

    def __call__(self, old: S_contra, new: S_contra, *, written: float | None, now: float) -> bool:
        """Whether it is.

        Args:
            old: what was last written, or read.
            new: what would be written.
            written: when ``old`` was written, in seconds since the epoch; ``None`` where this process has not.
            now: seconds since the epoch.
        """
        ...


class StatusKeeper(Generic[S]):
    """The status of one cluster-scoped object: as it is meant to be, and as it stands in the cluster.

    Args:
        api: the API server.
        clock: the time.
        resource: of the object.
        name: of the object.
        empty: the status of an object that has none.
        patch: a status as a JSON merge patch.
        worth_writing: when one is written.

    Attributes:
        status: as it is meant to be.
    """

    def __init__(
        self,
        api: Api,
        clock: Clock,
        *,
        resource: Resource,
        name: str,
        empty: S,
        patch: Callable[[S], Mapping[str, Any]],
        worth_writing: WorthWriting[S],
    ) -> None:
        self.status: S = empty
        self._api = api
        self._clock = clock
        self._resource = resource
        self._name = name
        self._patch = patch
        self._worth_writing = worth_writing
        self._written: S = empty
        self._written_at: float | None = None
        self._writing: asyncio.Task[None] | None = None
        self._last = False

    def take_up(self, wire: Mapping[str, Any]) -> None:
        """Go on from the status that stands in the cluster; one that cannot be understood counts as none."""
        try:
            self.status = self._written = msgspec.convert(dict(wire), type(self.status))
        except msgspec.ValidationError as error:
            log.warning("the status of %s cannot be read and starts anew: %s", self, error)

    def put(self, status: S) -> None:
        """Have it written, if there is something new in it; returns at once."""
        self.status = status
        if self._writing is not None and not self._writing.done():
            return  # the task looks again when it is through
        if self._due():
            self._start()

    async def flush(self, seconds: float) -> None:
        """Wait until what is meant stands in the cluster, or nothing more can be done about it."""
        writing = self._writing
        if writing is None or writing.done():
            if not self._due():
                return
            writing = self._start()
        await asyncio.wait({writing}, timeout=seconds)

    async def stop(self, *, everything: bool = False) -> None:
        """Write what is left, briefly, and end.

        Args:
            everything: also what would not be worth while yet.
        """
        self._last = everything
        await self.flush(TIMEOUT / 2)
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    def __str__(self) -> str:
        return f"{self._resource.kind} {self._name}"

    def _start(self) -> asyncio.Task[None]:
        self._writing = asyncio.create_task(self._write(), name=f"write the status of {self}")
        return self._writing

    def _due(self) -> bool:
        if self._last:
            return self._written != self.status
        return self._worth_writing(self._written, self.status, written=self._written_at, now=self._clock.now())

    async def _write(self) -> None:
        for retry in range(TRIES):
            while self._due():
                status = self.status
                try:
                    await merge_patch(
                        self._api,
                        self._resource,
                        self._name,
                        {"status": self._patch(status)},
                        subresource="status",
                        timeout=TIMEOUT,
                    )
                except NotFound:
                    return  # it is gone: nobody is left to tell
                except (Unreachable, ServerError, TooManyRequests) as error:
                    log.warning("status of %s not written: %s", self, error)
                    break
                except ApiError as error:
                    log.error("status of %s refused: %s", self, error)  # noqa: TRY400
                    return
                self._written, self._written_at = status, self._clock.now()
            else:
                return
            await self._clock.sleep(RETRY.delay(retry))
