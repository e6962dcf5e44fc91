"""A small synchronous client with the admin's rights, for starting a cluster, for fixtures and for the demo's steps.

The operator's own transport is asynchronous and made for endless watches; here a handful of plain requests are sent
before any event loop runs.
"""

from __future__ import annotations

import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from trimtab.kube.api import Unreachable
from trimtab.kube.status import error_from_answer


class Client:
    """Requests to one API server with one bearer token."""

    def __init__(self, *, server: str, token: str, ca: Path) -> None:
        self.server = server
        self._token = token
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=str(ca))),
            urllib.request.ProxyHandler({}),  # a proxy has no business on loopback
        )

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        timeout: float = 30.0,
    ) -> Any:
        """Send one request and return the decoded JSON answer.

        Args:
            method: GET, POST, PUT, PATCH or DELETE.
            path: absolute, e.g. ``/api/v1/nodes``; see :mod:`trimtab.kube.resources`.
            body: what to encode as JSON, or ``None``.
            params: query parameters.
            content_type: of the body; the patch types for PATCH.
            timeout: seconds for the answer.

        Raises:
            ApiError: one of its kinds, as the server answered.
            Unreachable: no answer came.
        """
        request = urllib.request.Request(
            self.server + path + ("?" + urllib.parse.urlencode(params) if params else ""),
            data=None if body is None else msgspec.json.encode(body),
            method=method,
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": content_type},
        )
        try:
            with self._opener.open(request, timeout=timeout) as answer:
                return msgspec.json.decode(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise error_from_answer(error.code, error.read(), phrase=error.reason) from None
        except OSError as error:
            raise Unreachable(f"{method} {request.full_url}: {error}") from error
