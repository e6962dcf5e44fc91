"""Writes the latest of several values, one write at a time, without blocking the code that produces them.

    class RecordWriter(LatestWriter[Record]):
        async def _send(self, value: Record) -> None:
            await merge_patch(...)

    writer = RecordWriter(clock, "record", Record())
    writer.put(record)          # returns immediately; a task writes this value, or a later one
    await writer.stop()

If a write fails, the subclass logs the error, and the next :meth:`LatestWriter.put` writes again. A failed report never
stops the controller.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Final, Generic, TypeVar

from trimtab.controller.loop import end_tasks
from trimtab.controller.progress import register_component
from trimtab.kube.clock import Clock
from trimtab.kube.retry import Backoff

T = TypeVar("T")

FINAL_WRITE_TIMEOUT: Final = 5.0
"""Timeout in seconds of the final write in :meth:`LatestWriter.stop`."""


class LatestWriter(ABC, Generic[T]):
    """Keeps a desired value, and writes it whenever it differs from the value that was last written.

    Args:
        clock: provides the time.
        name: name of the value for task names, logs and health checks.
        value: the initial value, which is treated as already written.
        retry: the backoff after transient errors.
        retried: the error types that are treated as transient. After any other error the writer waits for the next
            :meth:`put`.
        between: minimum number of seconds between two writes.
        kind: ``name`` minus the name of the object, as a label of metrics; empty if ``name`` contains no object name.

    Attributes:
        value: the desired value.
    """

    def __init__(
        self,
        clock: Clock,
        name: str,
        value: T,
        *,
        retry: Backoff,
        retried: tuple[type[Exception], ...],
        between: float = 0.0,
        kind: str = "",
    ) -> None:
        self.value = value
        self._clock = clock
        self._task_name = name
        self._retry = retry
        self._retried = retried
        self._between = between
        self._written = value
        self._written_at: float | None = None
        self._writing: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._settled.set()
        self._given_up = False
        self._component = register_component(name, kind=kind)

    @property
    def out_of_sync(self) -> bool:
        """Return whether the latest write failed and is not retried before the next :meth:`put`."""
        return self._given_up and self._due()

    def put(self, value: T) -> None:
        """Set the desired value and return immediately. A task writes the value if it should be written."""
        self.value = value
        if not self._due():
            return
        self._settled.clear()
        if self._writing is None or self._writing.done():
            self._start()  # a running task writes the new value after its current request

    async def write(self, value: T) -> bool:
        """Set the desired value, wait until it is written or a write fails, and return whether it was written."""
        self.put(value)
        await self._settled.wait()
        return not self._given_up

    async def flush(self, seconds: float) -> bool:
        """Wait until the value is written or writing has failed.

        Args:
            seconds: timeout in seconds.

        Returns:
            Whether writing ended in time.
        """
        if self._due() and (self._writing is None or self._writing.done()):
            self._settled.clear()
            self._start()
        try:
            async with asyncio.timeout(seconds):
                await self._settled.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """Write the desired value if it is not written yet, and stop. The final write takes a few seconds at most."""
        await self.flush(FINAL_WRITE_TIMEOUT)
        await self.cancel()

    async def cancel(self) -> None:
        """Stop without a final write."""
        if self._writing is not None:
            await end_tasks([self._writing])

    @abstractmethod
    async def _send(self, value: T) -> None:
        """Write a value.

        Raises:
            Exception: the write failed.
        """

    @abstractmethod
    def _failed(self, error: Exception, *, retried: bool) -> None:
        """Log that a write failed.

        Args:
            error: the exception.
            retried: whether it is a transient error.
        """

    def _due(self) -> bool:
        """Return whether the desired value differs from the written one and should be written now."""
        return self._written != self.value

    def _start(self) -> None:
        self._writing = asyncio.create_task(self._write(), name=f"write {self._task_name}")

    async def _write(self) -> None:
        try:
            failures = 0
            while self._due():
                value = self.value
                self._component.begin()
                try:
                    await self._send(value)
                except Exception as error:  # noqa: BLE001  reported below
                    retried = isinstance(error, self._retried)
                    self._component.fail(error)
                    self._failed(error, retried=retried)
                    if not retried or self._retry.exhausted(failures):
                        self._given_up = True
                        return
                    await self._clock.sleep(self._retry.delay(failures))
                    failures += 1
                    continue
                self._written, self._written_at = value, self._clock.now()
                self._given_up, failures = False, 0
                self._component.succeed()
                if not self._due():
                    self._settled.set()
                if self._between:
                    await self._clock.sleep(self._between)
        finally:
            self._component.idle()
            self._settled.set()
