"""metav1.Status of failure as an exception, wherever it comes from: an answer's body or a watch's ERROR event."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from trimtab.kube.api import (
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
)

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
LONGEST: Final = 60.0
"""Seconds that we let anybody keep us waiting at a time. An API server asks for one; a proxy's page for maintenance
asks for an hour, and a webhook's refusal for whatever its author likes, while a pod's time is over."""

_SHOWN: Final = 300  # characters of a body that is no Status: a proxy's HTML page says all it has to say in these


def error_from_status(status: Mapping[str, Any], *, code: int = 0, retry_after: float | None = None) -> ApiError:
    """The exception for a decoded metav1.Status.

    Args:
        status: the Status; also what a watch's ERROR event holds as its object.
        code: the HTTP status, where there is one; else the Status' own ``code`` counts.
        retry_after: seconds from the ``Retry-After`` header; else ``details.retryAfterSeconds`` counts.
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


def error_from_answer(code: int, body: bytes, *, phrase: str = "", retry_after: str | None = None) -> ApiError:
    """The exception for an answer's status and body, whether the body is a Status or a proxy's page.

    Args:
        code: the HTTP status.
        body: of the answer.
        phrase: the HTTP reason phrase, for answers without any usable body.
        retry_after: the ``Retry-After`` header. Only seconds are understood: the API server sends nothing else. They
            count up to :data:`LONGEST`.
    """
    wait = _seconds(retry_after)
    status = _decoded(body)
    if isinstance(status, dict) and status.get("kind") == "Status":
        return error_from_status(status, code=code, retry_after=wait)
    told = status.get("error") if isinstance(status, dict) else None  # as Prometheus and many proxies say it
    plain = told if isinstance(told, str) else body[: 4 * _SHOWN].decode("utf-8", "replace")
    text = " ".join(plain.split())[:_SHOWN]
    if not text.isprintable() or not text:
        text = phrase
    return _kind(code)(f"HTTP status {code}: {text}" if text else f"HTTP status {code}", status=code, retry_after=wait)


def _decoded(body: bytes) -> Any:
    """What the body says, in JSON or, where that was asked for, in protobuf; ``None`` where it is neither."""
    if body.startswith(b"k8s\0"):
        from trimtab.kube.wire.protobuf import decode_error  # loaded already by whoever asked for protobuf

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
    return min(seconds, LONGEST) if math.isfinite(seconds) and seconds >= 0 else None
