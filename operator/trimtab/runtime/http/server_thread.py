"""A server with its own thread and event loop, so that its clients delay neither the Lease nor the controllers.

The thread reports its progress. If its event loop hangs or its server ends, the health checks notice it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from concurrent.futures import Future
from contextvars import copy_context
from typing import Final

from trimtab.controller.progress import Component, track_component
from trimtab.kube.errors import InputError

log = logging.getLogger(__name__)

HEARTBEAT_PERIOD: Final = 1.0
"""Seconds between two reports of the thread's event loop."""

STOP_TIMEOUT: Final = 3.0
"""Seconds for which :meth:`ServerThread.stop` waits for the thread."""


class ServerThread(ABC):
    """Runs a server in a thread.

    Args:
        name: the name of the thread.
        option: the option with the address, for error messages, such as ``--metrics-listen``.
        host: the address to listen on, for error messages.
        port: the port, for error messages.
    """

    def __init__(self, name: str, *, option: str, host: str, port: int) -> None:
        self._name = name
        self._where = f"{option} {host}:{port}"
        context = copy_context()  # it has the registry of components
        self._thread = threading.Thread(target=context.run, args=(self._run,), name=name, daemon=True)
        self._listening: Future[int] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    @property
    def port(self) -> int:
        """Return the port on which the server listens after :meth:`start`."""
        return self._listening.result()

    async def start(self) -> None:
        """Start the thread and wait until it listens.

        Raises:
            InputError: the address is already in use, or does not belong to this host.
        """
        self._thread.start()
        try:
            await asyncio.wrap_future(self._listening)
        except OSError as error:
            raise InputError(f"{self._where}: {error.strerror or error}") from error

    async def stop(self) -> None:
        """Close the connections and stop the thread. A thread that hangs ends with the process."""
        loop, stopping = self._loop, self._stopping
        if loop is not None and stopping is not None and not loop.is_closed():
            loop.call_soon_threadsafe(stopping.set)
        await asyncio.to_thread(self._thread.join, STOP_TIMEOUT)

    @abstractmethod
    async def _serve(self, stopping: asyncio.Event) -> None:
        """Start the server, call :meth:`_listens` with its port, and serve until ``stopping`` is set."""

    def _listens(self, port: int) -> None:
        self._listening.set_result(port)

    def _run(self) -> None:
        import uvloop

        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._main())
        except BaseException as error:  # a task that is cancelled ends the server as well
            if not self._listening.done():
                self._listening.set_exception(error)
                return
            log.exception("The %s server failed", self._name)

    async def _main(self) -> None:
        self._loop, stopping = asyncio.get_running_loop(), asyncio.Event()
        self._stopping = stopping
        with track_component(f"{self._name} server", ends=stopping.is_set) as component:
            beating = asyncio.create_task(_beat(component), name=f"{self._name} server: heartbeat")
            try:
                await self._serve(stopping)
            finally:
                beating.cancel()


async def _beat(component: Component) -> None:
    while True:
        component.succeed(HEARTBEAT_PERIOD)
        await asyncio.sleep(HEARTBEAT_PERIOD)
