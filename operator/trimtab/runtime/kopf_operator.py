"""Runs Kopf for trimtab's custom resources, on the sessions of our own transport.

Kopf's peering is off, because a Lease elects the leader. Its scanning of resources and namespaces is off, because the
resources are known. There are no handlers on pods or nodes, because Kopf adds a finalizer or an annotation to every
object that it handles (measured: 0.4 ms and 10 KiB for each object).

Each custom resource has its own Kopf operator, which runs while the API server serves the resource. This module works
around seven limitations of Kopf:

* If a watch gets a 404, Kopf's root task ends and its shutdown hangs. So the session withholds a 404 until the operator
  is stopped (:class:`_SessionMiddleware`).
* If a watch gets a 410 as its response, an ERROR event with another code than 410, or a line that is not JSON, Kopf's
  root task ends, too. So the session sends Kopf an ERROR event with code 410 instead, upon which Kopf lists again
  (:class:`_WatchContent`).
* ``kopf.operator`` cancels, when it ends, every task of the event loop that was started after it, including ours. So
  this module starts and ends Kopf's root tasks itself.
* Kopf starts a watcher for a resource once, and does not notice if it ends. So this module finds the watchers by the
  names of their tasks, and treats one that ended like a root task.
* While a CRD is being deleted, discovery does not list the verb patch. If Kopf starts then, it ignores the resource, so
  that finalizers are never removed and the deletion never completes. So the session adds the verb to the response.
* If the API server or a webhook refuses a patch, Kopf drops the event. An object that waits for the removal of its
  finalizer is then never deleted, because no other event follows. So the session repeats a patch that got a 409, and
  lets Kopf list again after another refusal, at the end of the present watch.
* If a root task fails, :meth:`KopfOperator.run` raises its exception, which ends the process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from itertools import chain, repeat
from typing import Any, Final

import aiohttp
import kopf
import msgspec

from trimtab.kube.api import NotLeading
from trimtab.kube.connection.transport import Request, Transport
from trimtab.kube.resources import Resource

log = logging.getLogger(__name__)

KOPF_PREFIX = "trimtab.dev"
"""Prefix of Kopf's finalizer and annotations on custom resources."""

IDLE_TIMEOUT: Final = 0.5
"""Seconds after which Kopf drops the last event of an object, except the latest one of each kind.

The events of DeschedulingRuns are large.
"""

INSTANT_EXIT_TIMEOUT: Final = 5.0
"""Seconds for which Kopf waits for a daemon that was asked to stop before it checks again.

By default Kopf waits for ten cycles of the event loop, and then checks again only after the daemon's whole stop timeout
unless the object is written meanwhile. A daemon that ends one request later, without a write, would delay the deletion
of its policy by 20 seconds."""

SERVER_WATCH_TIMEOUT: Final = 55
"""Seconds after which the server ends a watch, so that a working watch sends a request at least this often."""

CLIENT_WATCH_TIMEOUT: Final = SERVER_WATCH_TIMEOUT + 10.0
"""Seconds after which Kopf ends a watch itself. A proxy or load balancer whose backend hangs keeps the connection open;
without this timeout only the inactivity check would notice it, and end the process."""

COLLECTION_RETRIES: Final = (0.5, 1.0, 2.0, 4.0)
"""Delays in seconds between retries after a 404 or 429. An API server that has just started serves no custom resources
yet, and for seconds after a CRD was created it answers 429: ``storage is (re)initializing``."""

PATCH_RETRIES: Final = (0.2, 0.5, 1.0)
"""Delays in seconds between retries of a patch that got a 409. Kopf's JSON patches test the resourceVersion."""


WATCHER_POLL: Final = 0.5
"""Seconds between two searches for the tasks of Kopf's watchers, until all of them have started."""

OK: Final = 200
BAD_REQUEST: Final = 400
NOT_FOUND: Final = 404
CONFLICT: Final = 409
GONE: Final = 410
UNPROCESSABLE: Final = 422
TOO_MANY_REQUESTS: Final = 429

EXPIRED_EVENT: Final = b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","reason":"Expired","code":410}}\n'
"""The event upon which Kopf lists again."""

RELIST_DELAY: Final = 1.0
"""Seconds before Kopf lists again after a watch that failed, so that a persistent failure causes few requests."""


def _is_relevant(record: logging.LogRecord) -> bool:
    """Filter Kopf's warning that it does not handle signals outside the main thread."""
    return not record.getMessage().startswith("OS signals are ignored")


logging.getLogger("kopf._core.reactor.running").addFilter(_is_relevant)


class KopfOperator:
    """One Kopf operator.

    Args:
        api: the transport whose connections Kopf uses.
        resources: the watched resources. A 404 of their collections is withheld from Kopf.
        missing: called on each such 404.
        failed: called when a root task of Kopf has failed, before the other root tasks are ended, which may take a long
            time.
        leading: returns whether this process is the leader. No patch is sent while it is not.

    Attributes:
        registry: the registry of the handlers.
    """

    def __init__(
        self,
        api: Transport,
        resources: Collection[Resource] = (),
        *,
        missing: Callable[[], None] = lambda: None,
        failed: Callable[[], None] = lambda: None,
        leading: Callable[[], bool] = lambda: True,
    ) -> None:
        self.registry = kopf.OperatorRegistry()
        self._failed = failed
        self._watchers = {f"watcher for {each.plural}.{each.version}.{each.group}" for each in resources}
        self._stop = asyncio.Event()
        self._ready = asyncio.Event()
        session = _SessionMiddleware(resources, missing, leading)

        @kopf.on.login(registry=self.registry)
        async def login(**_: Any) -> kopf.AiohttpSession:
            return kopf.AiohttpSession(
                aiohttp_session=api.borrowed_session(session),
                server=api.server,
                default_namespace=api.default_namespace,
            )

    def start(self) -> asyncio.Task[None]:
        """Start :meth:`run` as a task. If it ends before :meth:`stop`, the operator has failed."""
        return asyncio.create_task(self.run(), name="kopf")

    async def run(self) -> None:
        """Run until :meth:`stop`.

        Raises:
            Exception: a root task of Kopf has failed.
        """
        failures = ""
        tasks = set(
            await kopf.spawn_tasks(
                registry=self.registry,
                settings=_settings(),
                clusterwide=True,
                stop_flag=self._stop,
                ready_flag=self._ready,
            )
        )
        try:
            ended = await self._until_first_ends(tasks)
            if not self._stop.is_set():
                failures = ", ".join(sorted(task.get_name() for task in ended))
                log.error("Kopf tasks ended unexpectedly: %s", failures)
                self._failed()
        finally:
            self._stop.set()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled() and (failure := task.exception()) is not None:
                raise failure
        if failures:
            raise RuntimeError(f"tasks of Kopf ended: {failures}")

    async def _until_first_ends(self, tasks: set[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
        """Wait until a root task or a watcher ends, and return those that have ended."""
        watchers: dict[str, asyncio.Task[Any]] = {}
        while True:
            poll = WATCHER_POLL if len(watchers) < len(self._watchers) else None
            ended, _ = await asyncio.wait(
                {*tasks, *watchers.values()}, timeout=poll, return_when=asyncio.FIRST_COMPLETED
            )
            if ended:
                return ended
            if poll is not None:
                for task in asyncio.all_tasks():
                    name = task.get_name().partition("@")[0]
                    if name in self._watchers:
                        watchers[name] = task

    async def started(self) -> None:
        """Wait until the handlers are running.

        In the main thread, Kopf has then installed its handlers for SIGTERM and SIGINT.
        """
        await self._ready.wait()

    def stop(self) -> None:
        """Ask the daemons to end, then stop the operator."""
        self._stop.set()


class _SessionMiddleware:
    """A middleware of Kopf's session: withholds errors of collections, and completes discovery.

    Kopf logs each error, also if it retries. A 429 is withheld while retries may end it, a 404 always.

    Args:
        resources: the watched resources.
        missing: called on each 404 of their collections.
        leading: returns whether this process is the leader.
    """

    def __init__(
        self, resources: Collection[Resource], missing: Callable[[], None], leading: Callable[[], bool]
    ) -> None:
        self._paths = {each.path(): each for each in resources}
        self._missing = missing
        self._leading = leading
        self._refused = False  # a patch since the last list

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        resource = self._collection(request)
        if request.method == "PATCH":
            return await self._patch(request, handler)
        if resource is None:
            return await self._with_patch(request, await handler(request))
        if "watch" not in request.url.query:
            self._refused = False
        for pause in (*COLLECTION_RETRIES, None):
            response = await handler(request)
            if response.status not in (NOT_FOUND, TOO_MANY_REQUESTS):
                if "watch" in request.url.query and response.status in (OK, GONE):
                    _repair_watch(response, lambda: self._refused)
                return response
            if response.status == TOO_MANY_REQUESTS and pause is None:
                return response
            log.debug("GET %s returned HTTP status %d", request.url.path, response.status)
            response.close()
            if response.status == NOT_FOUND:
                self._missing()
            if pause is not None:
                await asyncio.sleep(pause)
        await asyncio.Event().wait()  # until the operator is stopped, because the CRD is missing
        raise AssertionError("unreachable")

    async def _patch(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send a patch, again after a 409, and record a refusal that Kopf would drop."""
        assert isinstance(request, Request)
        request.leading = self._leading
        for pause in (*PATCH_RETRIES, None):
            try:
                response = await handler(request)
            except NotLeading as error:  # Kopf repeats a request after a connection error
                raise aiohttp.ClientConnectionError(str(error)) from error
            if response.status != CONFLICT or pause is None:
                break
            response.close()
            await asyncio.sleep(pause)
        # Kopf itself repeats a patch that got a 403, a 429 or a 5xx, and waits for the next event after a 404 or a 422.
        self._refused |= BAD_REQUEST <= response.status < TOO_MANY_REQUESTS and response.status not in (
            NOT_FOUND,
            UNPROCESSABLE,
        )
        return response

    async def _with_patch(
        self, request: aiohttp.ClientRequest, response: aiohttp.ClientResponse
    ) -> aiohttp.ClientResponse:
        """Add the verb patch to a discovery response, because our resources can be patched even if it is not listed."""
        groups = {f"/apis/{each.group}/{each.version}" for each in self._paths.values()}
        if response.status != 200 or not request.url.path.endswith(tuple(groups)):
            return response
        listed = msgspec.json.decode(await response.read())
        for each in listed.get("resources", ()):
            each["verbs"] = sorted({*(each.get("verbs") or ()), "patch"})
        response._body = msgspec.json.encode(listed)  # noqa: SLF001  later reads return it; there is no public API
        return response

    def _collection(self, request: aiohttp.ClientRequest) -> Resource | None:
        """Return the resource whose collection is requested. The server URL may have a path prefix."""
        if request.method != "GET":
            return None
        return next((each for path, each in self._paths.items() if request.url.path.endswith(path)), None)


def _repair_watch(response: aiohttp.ClientResponse, must_relist: Callable[[], bool]) -> None:
    """Let Kopf receive only events that it can handle, and list again at the end of the watch if it must."""
    content: Any = _WatchContent(response.content, expired=response.status == GONE, must_relist=must_relist)
    if response.status == GONE:
        log.debug("The API server ended a watch with 410 Gone; relisting")
        response.status = OK
    response.content = content


class _WatchContent:
    """The body of a watch, in whole lines. An event that Kopf cannot handle becomes the end of the watch with a 410.

    Args:
        content: the body that the server sends.
        expired: whether the response is a 410, so that its body is a Status and no stream.
        must_relist: returns at the end of the body whether Kopf must list again.
    """

    def __init__(self, content: aiohttp.StreamReader, *, expired: bool, must_relist: Callable[[], bool]) -> None:
        self._content = content
        self._expired = expired
        self._must_relist = must_relist

    def __getattr__(self, name: str) -> Any:
        """Return what aiohttp needs of the original body to close the response."""
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield whole lines. An incomplete line at the end is dropped: the watch resumes before it."""
        rest = b""
        if not self._expired:
            async for chunk in self._content.iter_chunked(size):
                *lines, rest = (rest + chunk).split(b"\n")
                del chunk  # the next one may arrive after minutes
                lines.reverse()
                while lines:
                    line = lines.pop()
                    if not _is_event(line):
                        log.debug("A watch failed; relisting: %s", line[:200])
                        self._expired = True
                        break
                    line += b"\n"
                    yield line
                    del line
                if self._expired:
                    break
        if self._expired or self._must_relist():
            await asyncio.sleep(RELIST_DELAY)
            yield EXPIRED_EVENT


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


def _is_event(line: bytes) -> bool:
    """Return whether a line is empty or an event with an object."""
    if not line:
        return True
    try:
        event = msgspec.json.decode(line, type=_Event)
        return event.type != "ERROR" and isinstance(msgspec.json.decode(event.object), dict)
    except msgspec.DecodeError:
        return False


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.process.ultimate_exiting_timeout = None  # the supervisor has a deadline and releases the lease
    settings.watching.server_timeout = SERVER_WATCH_TIMEOUT
    settings.watching.client_timeout = CLIENT_WATCH_TIMEOUT
    settings.queueing.idle_timeout = IDLE_TIMEOUT
    settings.networking.error_backoffs = _EndlessBackoff()
    settings.background.instant_exit_timeout = INSTANT_EXIT_TIMEOUT
    settings.persistence.finalizer = f"{KOPF_PREFIX}/finalizer"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=KOPF_PREFIX)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=KOPF_PREFIX)
    return settings


class _EndlessBackoff:
    """Backoff between attempts to reach the API server. It never ends, so that an outage does not end the process.

    With leader election the process still exits in an outage, because it loses the Lease.
    """

    def __iter__(self) -> Iterator[float]:
        return chain((1, 1, 2, 3, 5, 8, 13), repeat(20))
