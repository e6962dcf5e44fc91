"""Persists the state of the node lifecycle in a ConfigMap, from which a restarted process restores it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from trimtab.controller.latest_writer import LatestWriter
from trimtab.kube.api import Api, ApiError, NotFound, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.resources import CONFIG_MAPS
from trimtab.kube.retry import Backoff
from trimtab.kube.verbs import create, get, merge_patch
from trimtab.tainting.lifecycle.state import LifecycleRecord, decode_record, encode_record

log = logging.getLogger(__name__)

NAME: Final = "trimtab-taint-manager"
KEY: Final = "lifecycle"

TIMEOUT: Final = 10.0
"""Timeout of one request in seconds."""

WRITE_PERIOD: Final = 1.0
"""Minimum seconds between two writes. In an outage, nodes stop renewing their Leases one after another."""

MAX_BYTES: Final = 900_000
"""Maximum size of the record in bytes. A ConfigMap may contain 1 MiB."""

RETRY: Final = Backoff(initial=0.5, maximum=10.0)


class RecordWriter(LatestWriter[LifecycleRecord]):
    """Reads the record of the node lifecycle from its ConfigMap, and writes it when it changes.

    The record is the persisted state, see :class:`~trimtab.tainting.lifecycle.state.LifecycleRecord`.

    Args:
        api: the API client.
        clock: provides the time.
        namespace: namespace in which the operator runs.

    Attributes:
        problem: the reason why the last request failed; ``""`` if it succeeded.
    """

    def __init__(self, api: Api, clock: Clock, *, namespace: str) -> None:
        super().__init__(
            clock,
            "the node lifecycle's record",
            LifecycleRecord(),
            retry=RETRY,
            retried=(ApiError, Unreachable),
            between=WRITE_PERIOD,
        )
        self.problem = ""
        self._api = api
        self._namespace = namespace

    async def load(self, *, until: Callable[[], bool]) -> LifecycleRecord | None:
        """Read the record of the previous process, and retry until that succeeds.

        The node lifecycle does not start without it, because grace periods and rates would start again.

        Args:
            until: returns whether to give up.

        Returns:
            The record; ``None`` if ``until`` returned true first.
        """
        retry = 0
        while not until():
            try:
                found = await get(self._api, CONFIG_MAPS, NAME, namespace=self._namespace, timeout=TIMEOUT)
            except NotFound:
                record = LifecycleRecord()
            except (ApiError, Unreachable) as error:
                self._report("read", error)
                await self._clock.sleep(RETRY.delay(retry))
                retry += 1
                continue
            else:
                record = decode_record(str((found.get("data") or {}).get(KEY, "")) or "{}")
            self.problem = ""
            self.value = self._written = record
            return record
        return None

    async def _send(self, value: LifecycleRecord) -> None:
        text = encode_record(truncate_record(value))
        body: dict[str, Any] = {"data": {KEY: text}}
        try:
            await merge_patch(self._api, CONFIG_MAPS, NAME, body, namespace=self._namespace, timeout=TIMEOUT)
        except NotFound:
            body["metadata"] = {"name": NAME, "namespace": self._namespace}
            await create(self._api, CONFIG_MAPS, body, namespace=self._namespace, timeout=TIMEOUT)
        self.problem = ""

    def _failed(self, error: Exception, *, retried: bool) -> None:  # noqa: ARG002  each is reported the same
        self._report("written", error)

    def _report(self, what: str, error: Exception) -> None:
        problem = f"ConfigMap {self._namespace}/{NAME} could not be {what}: {error}"
        if problem != self.problem:
            log.warning(
                "Failed to access the ConfigMap that stores the state of the node lifecycle controller: %s", problem
            )
        self.problem = problem


def truncate_record(record: LifecycleRecord) -> LifecycleRecord:
    """Truncate the record to the size of a ConfigMap. The nodes that stopped renewing their Leases last are omitted.

    About 6,000 nodes fit. If the process restarts, the others get a new grace period.
    """
    while len(encode_record(record)) > MAX_BYTES:
        silent = sorted(record.silent, key=lambda name: (record.silent[name].heard, name))
        queue = sorted(record.queue, key=lambda name: (record.queue[name].since, name))
        record = msgspec.structs.replace(
            record,
            silent={name: record.silent[name] for name in sorted(silent[: len(silent) // 2])},
            queue={name: record.queue[name] for name in sorted(queue[: len(queue) // 2])},
        )
    return record
