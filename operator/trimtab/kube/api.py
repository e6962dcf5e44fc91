"""The interface to the API server and its errors. Every request goes through :class:`Api`, which tests replace.

The exceptions::

    ApiError                       the server responded with an error, as a metav1.Status or another body
     ├── Unauthorized              401: the credentials are invalid or have expired
     ├── Forbidden                 403: RBAC or an admission plugin denied the request
     ├── NotFound                  404
     ├── Conflict                  409: the object was changed or exists already, or a UID precondition failed
     ├── Gone                      410: the resource version is too old; relist
     ├── Invalid                   422 (or 400): the object is invalid; the message names the field
     ├── TooManyRequests           429: a PodDisruptionBudget, or API priority and fairness; see ``retry_after``
     └── ServerError               5xx
    Unreachable                    no response: connection refused, reset or timed out
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

import msgspec


class ApiError(Exception):
    """An error response of the API server.

    Attributes:
        status: the HTTP status code.
        reason: metav1.Status ``reason`` (``NotFound``, ``AlreadyExists``, …), or ``""``.
        message: metav1.Status ``message``, or the beginning of another body.
        causes: metav1.Status ``details.causes``: mappings with ``reason``, ``message``, ``field``.
        retry_after: seconds to wait before a retry (``Retry-After`` or ``details.retryAfterSeconds``), or ``None``.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        causes: tuple[Mapping[str, str], ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.causes = causes
        self.retry_after = retry_after


class Unauthorized(ApiError):
    """HTTP 401: the credentials are invalid or have expired."""


class Forbidden(ApiError):
    """HTTP 403: RBAC or an admission plugin denied the request."""

    @property
    def lacks_permission(self) -> bool:
        """Return whether an authorizer denied the request, and not an admission plugin or a webhook."""
        return 'User "' in self.message and " cannot " in self.message


class NotFound(ApiError):
    """HTTP 404: the object or the resource does not exist."""


class Conflict(ApiError):
    """HTTP 409: the object was changed or exists already, or a UID precondition failed."""


class Gone(ApiError):
    """HTTP 410, as a status or within a watch stream: the resource version is too old, so the caller must relist."""


class Invalid(ApiError):
    """HTTP 400 or 422: the object is invalid."""


class TooManyRequests(ApiError):
    """HTTP 429. If a PodDisruptionBudget refused an eviction, a cause has the reason ``DisruptionBudget``."""

    @property
    def disruption_budget(self) -> bool:
        """Return whether a PodDisruptionBudget refused the eviction. If not, the server is overloaded."""
        return any(cause.get("reason") == "DisruptionBudget" for cause in self.causes)


class ServerError(ApiError):
    """HTTP 5xx: the server failed."""


class Unreachable(Exception):
    """The server did not respond. It may or may not have processed the request."""


class IdleTimeout(Unreachable):
    """A stream received no data for its ``idle_timeout``, because nothing changed or because the connection hangs."""


class Api(Protocol):
    """Sends requests to an API server.

    :class:`trimtab.kube.connection.transport.Transport` implements this interface.
    """

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "",
        timeout: float = 30.0,
        leading: Callable[[], bool] | None = None,
    ) -> Any:
        """Send a request and return the response, decoded if it is JSON.

        Args:
            method: GET, POST, PUT, PATCH or DELETE.
            path: the absolute path, e.g. ``/api/v1/nodes``; see :mod:`trimtab.kube.resources`.
            params: query parameters.
            body: the body, which is encoded as JSON, or ``None`` for no body.
            content_type: the media type of the body. For PATCH this is the patch type.
            accept: the media type of the response, or ``""`` for JSON. Other formats are returned as bytes.
            timeout: seconds for the complete request.
            leading: returns whether this process is the leader. If given, it is called immediately before the request
                is written to its connection, because the request may have waited for one, or the process may have been
                stopped meanwhile.

        Raises:
            ApiError: the server responded with an error.
            NotLeading: ``leading`` returned ``False``, so the request was not sent.
            Unreachable: there was no response.
        """
        ...

    def stream(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        accept: str = "application/json",
        idle_timeout: float = 60.0,
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Send a GET request, and return a context manager for reading the body in chunks while it arrives.

        Raises:
            ApiError: the server responded with an error. Raised on entering the context.
            Unreachable: there was no response. Raised on entering the context or while reading.
            IdleTimeout: no data arrived for ``idle_timeout`` seconds. Raised while reading.
        """
        ...


_KINDS: Final[Mapping[int, type[ApiError]]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}
MAX_RETRY_AFTER: Final = 60.0
"""Maximum ``Retry-After`` in seconds. Larger values are reduced to this maximum. The API server sends 1.

A proxy's maintenance page may send an hour, and a webhook any value, so that the operator would miss deadlines.
"""

_MAX_SHOWN: Final = 300  # characters of a body that is not a Status, e.g. a proxy's HTML page


def error_from_status(status: Mapping[str, Any], *, code: int = 0, retry_after: float | None = None) -> ApiError:
    """Return the exception for a decoded metav1.Status.

    Args:
        status: the Status, from a response or from the object of a watch's ERROR event.
        code: the HTTP status, or 0 to use the Status' own ``code``.
        retry_after: the seconds in the ``Retry-After`` header, or ``None`` to use ``details.retryAfterSeconds``.
    """
    details = status.get("details")
    details = details if isinstance(details, Mapping) else {}
    causes = tuple(
        {key: str(cause[key]) for key in ("reason", "message", "field") if cause.get(key)}
        for cause in details.get("causes") or ()
        if isinstance(cause, Mapping)
    )
    code = code or int(status.get("code") or 0)
    if retry_after is None and details.get("retryAfterSeconds"):
        retry_after = _seconds(str(details["retryAfterSeconds"]))
    reason = str(status.get("reason") or "")
    message = str(status.get("message") or reason or f"HTTP status {code}")
    return _kind(code)(message, status=code, reason=reason, causes=causes, retry_after=retry_after)


def error_from_response(code: int, body: bytes, *, phrase: str = "", retry_after: str | None = None) -> ApiError:
    """Return the exception for an error response, whether its body is a Status or the page of a proxy.

    Args:
        code: the HTTP status.
        body: the body of the response.
        phrase: the HTTP reason phrase, which becomes the message if the body is not usable.
        retry_after: the ``Retry-After`` header in seconds, which is limited to :data:`MAX_RETRY_AFTER`. A date is
            ignored.
    """
    wait = _seconds(retry_after)
    status = _decoded(body)
    if isinstance(status, dict) and status.get("kind") == "Status":
        return error_from_status(status, code=code, retry_after=wait)
    error = status.get("error") if isinstance(status, dict) else None  # the form of Prometheus and many proxies
    plain = error if isinstance(error, str) else body[: 4 * _MAX_SHOWN].decode("utf-8", "replace")
    text = " ".join(plain.split())[:_MAX_SHOWN]
    if not text.isprintable() or not text:
        text = phrase
    return _kind(code)(f"HTTP status {code}: {text}" if text else f"HTTP status {code}", status=code, retry_after=wait)


def _decoded(body: bytes) -> Any:
    """Return the body of an error response, decoded from JSON or protobuf, or ``None`` if it is neither."""
    if body.startswith(b"k8s\0"):
        from trimtab.kube.wire.protobuf import decode_error  # loaded already by the code that requested protobuf

        return decode_error(body)
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _kind(code: int) -> type[ApiError]:
    return _KINDS.get(code) or (ServerError if code >= 500 else ApiError)


def _seconds(header: str | None) -> float | None:
    try:
        seconds = float(header or "nan")
    except ValueError:
        return None
    return min(seconds, MAX_RETRY_AFTER) if math.isfinite(seconds) and seconds >= 0 else None


class NotLeading(Unreachable):
    """The request was not sent, because another process may be the leader.

    Callers handle this error like a missing response.
    """

    def __init__(self, method: str, path: str) -> None:
        super().__init__(f"{method} {path}: not sent, because another process may be the leader")


class LeaderOnlyApi:
    """An :class:`~trimtab.kube.api.Api` that sends requests only while this process is the leader.

    Args:
        api: sends the requests.
        leading: returns whether this process is the leader. It is called for each request, and again when it is sent.

    Attributes:
        calls: the number of requests that were passed on. Some may not have been sent, because the Lease was lost.
    """

    def __init__(self, api: Api, leading: Callable[[], bool]) -> None:
        self._api = api
        self._leading = leading
        self.calls = 0

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "",
        timeout: float = 30.0,
        leading: Callable[[], bool] | None = None,
    ) -> Any:
        """See :class:`~trimtab.kube.api.Api`.

        Raises:
            NotLeading: this process is not the leader, so the request was not sent.
        """
        own = self._leading
        if not own():
            raise NotLeading(method, path)
        self.calls += 1
        return await self._api.request(
            method,
            path,
            params=params,
            body=body,
            content_type=content_type,
            accept=accept,
            timeout=timeout,
            leading=own if leading is None else lambda: own() and leading(),
        )

    def stream(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        accept: str = "application/json",
        idle_timeout: float = 60.0,
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """See :class:`~trimtab.kube.api.Api`.

        Streams are opened even if this process is not the leader, because they only read.
        """
        return self._api.stream(path, params=params, accept=accept, idle_timeout=idle_timeout)
