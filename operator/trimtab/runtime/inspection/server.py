"""The HTTPS server of the inspection API, in a thread of its own.

Only discovery documents, which are the same for everyone, are served without authentication. All other requests need a
user (from the front proxy, or a bearer token) with the permissions of
:func:`~trimtab.runtime.inspection.questions.access_check`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec
from aiohttp import web

from trimtab.api import reasons
from trimtab.kube.connection.config import ServerConfig
from trimtab.kube.connection.transport import Transport
from trimtab.kube.errors import InputError
from trimtab.kube.resources import Resource
from trimtab.kube.token_bucket import KeyedTokenBuckets
from trimtab.runtime.http.authorizer import STATUS, Refusal, RequestAuthorizer
from trimtab.runtime.http.server import HttpServer, Limits, OnRefused
from trimtab.runtime.http.server_thread import ServerThread
from trimtab.runtime.inspection.front_proxy import FrontProxy
from trimtab.runtime.inspection.questions import NotServed, Question, access_check, discovery, parse_question

log = logging.getLogger(__name__)

OPTION: Final = "--inspection-api-listen"
LIMITS: Final = Limits(
    connections=256,
    connections_per_client=128,  # the API servers may share one address, behind a proxy
    requests_per_second=50.0,
    requests_per_second_in_all=100.0,
    requests_per_connection=None,
    timeout=15.0,
    keepalive=120.0,  # the API server closes idle connections after 90 s
)
QUESTIONS_PER_SECOND: Final = 10.0
"""Maximum number of questions of one user per second. All users of one API server share its address."""
ALLOWED_SECONDS: Final = 10.0
"""Seconds for which a user remains allowed, as in Kubernetes' extension API servers."""
ANSWER_TIMEOUT: Final = 60.0

_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
}

Observe = Callable[[str, int, float], None]


class InspectionServer(ServerThread):
    """Serves the inspection API.

    Args:
        host: the address to listen on; ``""`` for all IPv4 and IPv6 addresses.
        port: the port.
        config: the configuration of the connection to the API server, which reviews clients.
        front_proxy: recognizes requests of the aggregation layer, and provides the TLS contexts.
        answer: answers a question. It is called on the event loop on which the server was created.
        kinds: the kinds in the snapshot, which clients must be allowed to list.
        refused: called in the thread with the reason code of each refusal.
        observe: called in the thread for each request to the API server.
        limits: the limits for clients.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        config: ServerConfig,
        front_proxy: FrontProxy,
        answer: Callable[[Question], Awaitable[bytes]],
        kinds: Sequence[Resource],
        refused: OnRefused = lambda _reason: None,
        observe: Observe | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        super().__init__("inspection", option=OPTION, host=host, port=port)
        self._host = host
        self._port = port
        self._config = config
        self._front_proxy = front_proxy
        self._answer = answer
        self._answering = asyncio.get_running_loop()
        self._kinds = kinds
        self._refused = refused
        self._observe = observe
        self._limits = limits
        self._questions_of: KeyedTokenBuckets[str] = KeyedTokenBuckets(
            QUESTIONS_PER_SECOND, burst=2 * QUESTIONS_PER_SECOND
        )

    async def _serve(self, stopping: asyncio.Event) -> None:
        async with AsyncExitStack() as stack:
            api = await stack.enter_async_context(Transport(self._config, connections=16, observe=self._observe))
            self._authorizer = RequestAuthorizer(
                api, "the inspection API", allowed_seconds=ALLOWED_SECONDS, outage_seconds=0.0
            )
            stack.push_async_callback(self._authorizer.close)
            server = HttpServer(
                self._host,
                self._port,
                {},
                prefixes={"/apis": self._handle},
                limits=self._limits,
                tls=self._front_proxy.context,
                refused=self._refused,
            )
            await server.start()
            stack.push_async_callback(server.stop)
            self._listens(server.port)
            await stopping.wait()

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        url = request.rel_url
        document = discovery(url.raw_path.rstrip("/"))
        if document is not None:
            return _json(200, msgspec.json.encode(document))
        # 1. What is the question?
        try:
            question = parse_question(url.raw_path, url.raw_query_string)
        except InputError as error:
            return _status(400, str(error))
        if question is None:
            return _status(404, "the inspection API has no such resource")
        # 2. May this client ask it?
        refusal = await self._refusal(request, question)
        if refusal is not None:
            self._refused(refusal.reason)
            return _status(STATUS[refusal.reason], refusal.message or refusal.reason)
        # 3. Answer on the controllers' event loop.
        try:
            content = await asyncio.wait_for(
                asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._ask(question), self._answering)),
                ANSWER_TIMEOUT,
            )
        except NotServed as error:
            return _status(error.status, str(error), error.reason)
        except TimeoutError:
            return _status(503, f"no answer within {ANSWER_TIMEOUT:g} s")
        return _json(200, content)

    async def _ask(self, question: Question) -> bytes:
        return await self._answer(question)

    async def _refusal(self, request: web.BaseRequest, question: Question) -> Refusal | None:
        check = access_check(question, self._kinds)
        user = self._front_proxy.user(request)
        client = request.remote or ""
        if user is None:
            refusal = await self._authorizer.token_refusal(request.headers.get("Authorization", ""), client, check)
        else:
            client = f"user {user.username}"
            refusal = await self._authorizer.user_refusal(user, check)
        if refusal is None and not self._questions_of.take(client, asyncio.get_running_loop().time()):
            return Refusal(reasons.TOO_MANY_REQUESTS)
        return refusal


def _status(code: int, message: str, reason: str = "") -> web.Response:
    """Return an error as clients of Kubernetes expect it."""
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason or _REASONS[code],
        "code": code,
    }
    headers = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}}.get(code, {})
    return _json(code, msgspec.json.encode(status), headers)


def _json(code: int, content: bytes, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=code, body=content, content_type="application/json", headers=headers)
