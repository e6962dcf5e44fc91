"""The thread whose event loop runs Kopf, the informers and the controllers.

Planning, decoding and large lists may block this loop. That does not delay the Lease and the probes, because the main
thread's loop serves them (:mod:`~trimtab.runtime.supervisor`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any


class ControllerThread:
    """A thread with its own event loop, controlled from the supervisor's loop.

    Args:
        main: the coroutine function that the thread runs. The thread ends when it returns.

    Attributes:
        ended: a future on the supervisor's loop. It is done when the thread has ended, and contains the exception that
            ended the thread.
    """

    def __init__(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        import uvloop

        self._main = main
        self._loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._supervisor = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._supervisor.create_future()
        # A daemon thread, so that the interpreter can exit while the thread hangs.
        self._thread = threading.Thread(target=self._run, name="controllers", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def call(self, function: Callable[[], object]) -> None:
        """Call a function on the thread's event loop. No-op if the loop has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._main())
        except BaseException as error:  # noqa: BLE001 (the supervisor raises it again)
            failure = error
        with suppress(RuntimeError):  # the supervisor has given up waiting
            self._supervisor.call_soon_threadsafe(self._finish, failure)

    def _finish(self, failure: BaseException | None) -> None:
        if self.ended.done():
            return
        if failure is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(failure)
