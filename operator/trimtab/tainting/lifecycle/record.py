"""The ConfigMap in which a later process finds what the node lifecycle has to remember."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from trimtab.kube.api import Api, ApiError, NotFound, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.resources import CONFIG_MAPS
from trimtab.kube.retry import Backoff
from trimtab.kube.verbs import create, get, merge_patch
from trimtab.tainting.lifecycle_memory import LifecycleRecord, decode_record, encode_record

log = logging.getLogger(__name__)

NAME: Final = "trimtab-taint-manager"
KEY: Final = "lifecycle"

TIMEOUT: Final = 10.0
"""Seconds of one request."""

BETWEEN: Final = 1.0
"""Seconds between two writes: in an outage nodes fall silent one by one."""

LARGEST: Final = 900_000
"""Bytes of a record; a ConfigMap holds 1 MiB."""

RETRY: Final = Backoff(initial=0.5, maximum=10.0)


class RecordKeeper:
    """Reads the record back, and keeps it as it is meant to be, one write at a time and always the newest.

    Args:
        api: the API server.
        clock: waits.
        namespace: the operator's own.

    Attributes:
        problem: why the last request failed, in words; empty where it did not.
    """

    def __init__(self, api: Api, clock: Clock, *, namespace: str) -> None:
        self.problem = ""
        self._api = api
        self._clock = clock
        self._namespace = namespace
        self._wanted = self._written = LifecycleRecord()
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()

    async def load(self, *, until: Callable[[], bool]) -> LifecycleRecord | None:
        """What the process before this one left; it is asked for until there is an answer.

        Without it grace periods and rates would begin anew, so nothing is done before.

        Args:
            until: whether to give up; then ``None`` is returned.
        """
        retry = 0
        while not until():
            try:
                found = await get(self._api, CONFIG_MAPS, NAME, namespace=self._namespace, timeout=TIMEOUT)
            except NotFound:
                record = LifecycleRecord()
            except (ApiError, Unreachable) as error:
                self._failed("read", error)
                await self._clock.sleep(RETRY.delay(retry))
                retry += 1
                continue
            else:
                record = decode_record(str((found.get("data") or {}).get(KEY, "")) or "{}")
            self.problem = ""
            self._wanted = self._written = record
            return record
        return None

    def put(self, record: LifecycleRecord) -> None:
        """Have a record written if it is another one; returns at once."""
        self._wanted = record
        if record != self._written:
            self._settled.clear()
            self._changed.set()

    async def run(self) -> None:
        """Write until cancelled."""
        retry = 0
        while True:
            await self._changed.wait()
            self._changed.clear()
            record = self._wanted
            if record != self._written:
                try:
                    await self._write(encode_record(fitting(record)))
                except (ApiError, Unreachable) as error:
                    self._failed("written", error)
                    await self._clock.sleep(RETRY.delay(retry))
                    retry += 1
                    self._changed.set()
                    continue
                retry, self.problem, self._written = 0, "", record
            if self._wanted == self._written:
                self._settled.set()
            await self._clock.sleep(BETWEEN)

    async def flush(self, seconds: float) -> None:
        """Wait until the record stands in the cluster, but no longer than so many seconds; :meth:`run` goes on."""
        try:
            async with asyncio.timeout(seconds):
                await self._settled.wait()
        except TimeoutError:
            log.warning("ConfigMap %s/%s is not up to date: %s", self._namespace, NAME, self.problem or "no answer yet")

    async def _write(self, text: str) -> None:
        body: dict[str, Any] = {"data": {KEY: text}}
        try:
            await merge_patch(self._api, CONFIG_MAPS, NAME, body, namespace=self._namespace, timeout=TIMEOUT)
        except NotFound:
            body["metadata"] = {"name": NAME, "namespace": self._namespace}
            await create(self._api, CONFIG_MAPS, body, namespace=self._namespace, timeout=TIMEOUT)

    def _failed(self, what: str, error: Exception) -> None:
        problem = f"ConfigMap {self._namespace}/{NAME} cannot be {what}: {error}"
        if problem != self.problem:
            log.warning("%s", problem)
        self.problem = problem


def fitting(record: LifecycleRecord) -> LifecycleRecord:
    """The record as far as a ConfigMap holds it: of too many nodes those that fell silent last are left out.

    They are some 6,000 at once; those left out get a new grace period if there is a restart before they are Unknown.
    """
    while len(encode_record(record)) > LARGEST:
        silent = sorted(record.silent, key=lambda name: (record.silent[name].heard, name))
        queue = sorted(record.queue, key=lambda name: (record.queue[name].since, name))
        record = msgspec.structs.replace(
            record,
            silent={name: record.silent[name] for name in sorted(silent[: len(silent) // 2])},
            queue={name: record.queue[name] for name in sorted(queue[: len(queue) // 2])},
        )
    return record
