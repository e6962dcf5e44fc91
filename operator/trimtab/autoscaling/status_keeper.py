"""Writing the ClusterAutoscaler's status: the newest one, one write at a time, and never in a pass's way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from trimtab.api.cluster_autoscaler import NAME
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.descheduler_status import status_patch
from trimtab.autoscaling.report import worth_writing
from trimtab.kube.api import Api, ApiError, NotFound, ServerError, TooManyRequests, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.resources import CLUSTER_AUTOSCALERS
from trimtab.kube.retry import Backoff
from trimtab.kube.verbs import merge_patch

log = logging.getLogger(__name__)

TIMEOUT: Final = 10.0
"""Seconds of one request."""

RETRY: Final = Backoff(initial=0.5, maximum=10.0)
TRIES: Final = 4
"""Of one status; the next pass has a newer one."""


class StatusKeeper:
    """The status of the one ClusterAutoscaler: as it is meant to be, and as it stands in the cluster.

    Args:
        api: the API server.
        clock: the time.
        name: of the ClusterAutoscaler.

    Attributes:
        status: as it is meant to be.
    """

    def __init__(self, api: Api, clock: Clock, *, name: str = NAME) -> None:
        self.status = ClusterAutoscalerStatus()
        self._api = api
        self._clock = clock
        self._name = name
        self._written = ClusterAutoscalerStatus()
        self._written_at: float | None = None
        self._writing: asyncio.Task[None] | None = None

    def take_up(self, wire: Mapping[str, Any]) -> None:
        """Go on from the status that stands in the cluster; one that cannot be understood counts as none."""
        try:
            self.status = self._written = msgspec.convert(dict(wire), ClusterAutoscalerStatus)
        except msgspec.ValidationError as error:
            log.warning("the status of ClusterAutoscaler %s cannot be read and starts anew: %s", self._name, error)

    def put(self, status: ClusterAutoscalerStatus) -> None:
        """Have it written, if there is something new in it; returns at once."""
        self.status = status
        if self._writing is not None and not self._writing.done():
            return  # the task looks again when it is through
        if self._due():
            self._writing = asyncio.create_task(self._write(), name="write the autoscaler's status")

    async def flush(self, seconds: float) -> None:
        """Wait until what is meant stands in the cluster, or nothing more can be done about it."""
        if self._writing is None or self._writing.done():
            if self._due():
                self._writing = asyncio.create_task(self._write(), name="write the autoscaler's status")
            else:
                return
        await asyncio.wait({self._writing}, timeout=seconds)

    async def stop(self) -> None:
        """Write what is left, briefly, and end."""
        await self.flush(TIMEOUT / 2)
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    def _due(self) -> bool:
        return worth_writing(self._written, self.status, written=self._written_at, now=self._clock.now())

    async def _write(self) -> None:
        for retry in range(TRIES):
            while self._due():
                status = self.status
                try:
                    await merge_patch(
                        self._api,
                        CLUSTER_AUTOSCALERS,
                        self._name,
                        {"status": status_patch(status)},
                        subresource="status",
                        timeout=TIMEOUT,
                    )
                except NotFound:
                    return  # it is gone: nobody is left to tell
                except (Unreachable, ServerError, TooManyRequests) as error:
                    log.warning("status of ClusterAutoscaler %s not written: %s", self._name, error)
                    break
                except ApiError as error:
                    log.error("status of ClusterAutoscaler %s refused: %s", self._name, error)  # noqa: TRY400
                    return
                self._written, self._written_at = status, self._clock.now()
            else:
                return
            await self._clock.sleep(RETRY.delay(retry))
