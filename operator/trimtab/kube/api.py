"""The one seam to the API server: everything above talks through :class:`Api`, so that tests can stand in for it.

Errors of the API server become exceptions here, once::

    ApiError                       the server answered with a Status of failure, or with no Status at all
     ├── Unauthorized              401: the credentials are not (or no longer) good
     ├── Forbidden                 403: RBAC or an admission plugin refuses
     ├── NotFound                  404
     ├── Conflict                  409: somebody wrote in between, the name exists, or a UID precondition failed
     ├── Gone                      410: the resource version is too old; list again
     ├── Invalid                   422 (or 400): the object is not valid; the message names the field
     ├── TooManyRequests           429: a disruption budget, or API priority and fairness; see ``retry_after``
     └── ServerError               5xx
    Unreachable                    no answer: connection refused, reset, timed out
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol


class ApiError(Exception):
    """A failure that the API server answered with.

    Attributes:
        status: the HTTP status code.
        reason: metav1.Status ``reason`` (``NotFound``, ``AlreadyExists``, …), or ``""``.
        message: metav1.Status ``message``, or the body's beginning where it was no Status.
        causes: metav1.Status ``details.causes``: mappings with ``reason``, ``message``, ``field``.
        retry_after: seconds the server asks to wait (``Retry-After`` or ``details.retryAfterSeconds``), or ``None``.
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
    """401."""


class Forbidden(ApiError):
    """403."""


class NotFound(ApiError):
    """404."""


class Conflict(ApiError):
    """409."""


class Gone(ApiError):
    """410, as an HTTP status or inside a watch stream."""


class Invalid(ApiError):
    """400 or 422."""


class TooManyRequests(ApiError):
    """429. ``causes`` with reason ``DisruptionBudget`` tell a budget's refusal from API priority and fairness."""

    @property
    def disruption_budget(self) -> bool:
        """Whether a PodDisruptionBudget refused, not an overloaded server."""
        return any(cause.get("reason") == "DisruptionBudget" for cause in self.causes)


class ServerError(ApiError):
    """5xx."""


class Unreachable(Exception):
    """No answer came; nothing is known of what the server did."""


class Api(Protocol):
    """What trimtab needs of an API server; implemented by :class:`trimtab.kube.connection.transport.Transport`."""

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
    ) -> Any:
        """Send one request and return the answer, decoded where it is JSON.

        Args:
            method: GET, POST, PUT, PATCH or DELETE.
            path: absolute, e.g. ``/api/v1/nodes``; see :mod:`trimtab.kube.resources`.
            params: query parameters.
            body: what to encode as JSON, or ``None``.
            content_type: of the body; the patch types for PATCH.
            accept: in which form the answer is wanted; ``""`` for JSON. Where it is not JSON it is returned as it came.
            timeout: seconds for the whole request.

        Raises:
            ApiError: one of its kinds, as the server answered.
            Unreachable: no answer came.
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
        """Open a GET whose body is read as it comes, in chunks of any size.

        Raises:
            ApiError: on entering, as the server answered.
            Unreachable: on entering or while reading, also when nothing came for ``idle_timeout`` seconds.
        """
        ...
