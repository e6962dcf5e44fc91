"""Sending very many requests: as many at once as there are connections, each until it is done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final

import uvloop

from trimtab.kube.api import Api, ApiError, Conflict, ServerError, TooManyRequests, Unreachable
from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.transport import Transport
from trimtab.local.cluster import LocalCluster
from trimtab.local.errors import LocalError
from trimtab.local.progress import Progress, Task

CONNECTIONS: Final = 48
"""At once. More only make the API server switch more; with fewer it waits for us."""
_TRIES: Final = 6

Job = Callable[[Api], Awaitable[int]]
"""Requests that belong together, one after the other; returns how many objects that were."""


async def insist(api: Api, method: str, path: str, body: Any = None) -> Any:
    """Send until it is done; ``None`` where the object is there already."""
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    for attempt in range(_TRIES):
        try:
            return await api.request(method, path, body=body, content_type=content_type, timeout=60.0)
        except Conflict:
            return None
        except (TooManyRequests, ServerError, Unreachable):
            if attempt == _TRIES - 1:
                raise
        except ApiError as error:
            raise LocalError(f"{method} {path}: {error.message}") from error
        await asyncio.sleep(0.2 * 2**attempt)
    raise AssertionError("unreachable")


class Sender:
    """Does many requests, so many at once as there are connections.

    Attributes:
        seconds: that all sending took so far.
    """

    def __init__(self, cluster: LocalCluster, progress: Progress) -> None:
        self.seconds = 0.0
        self._config = load_config(cluster.kubeconfig)
        self._progress = progress

    def send(
        self,
        jobs: Iterable[Job],
        title: str,
        *,
        total: int | None = None,
        using: AbstractAsyncContextManager[object] | None = None,
    ) -> None:
        """Do all jobs.

        Args:
            jobs: what to do.
            title: what to tell of it.
            total: how many objects that are, where ``jobs`` is no list of jobs for one each.
            using: open for as long as the jobs run.

        Raises:
            LocalError: the API server refused something; what was sent before stays.
            Unreachable: it does not answer, even after some tries.
        """
        amount = len(jobs) if isinstance(jobs, list) else total
        if not amount:
            return
        began = time.monotonic()
        with (
            self._progress.task(title, total=amount) as task,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            try:
                runner.run(self._all(iter(jobs), task, using or nullcontext()))
            except BaseExceptionGroup as failures:  # of many that failed alike, the first tells enough
                raise failures.exceptions[0] from None
        self.seconds += time.monotonic() - began

    async def _all(self, jobs: Iterator[Job], task: Task, using: AbstractAsyncContextManager[object]) -> None:
        async def work() -> None:
            for job in jobs:
                task.advance(await job(api))

        async with using, Transport(self._config, connections=CONNECTIONS) as api, asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(work())
