"""A small synchronous client with the admin's permissions, for starting a cluster, for fixtures and for the demo.

The operator's own transport is asynchronous and designed for long-lived watches. This client sends a few plain requests
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

from trimtab.kube.api import Unreachable, error_from_response


class Client:
    """Sends requests to one API server with one bearer token.

    Attributes:
        timeout: the timeout of requests in seconds, unless one is given.
    """

    timeout: float = 30.0

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
        timeout: float | None = None,
    ) -> Any:
        """Send one request and return the decoded JSON response.

        Args:
            method: GET, POST, PUT, PATCH or DELETE.
            path: the absolute path, for example ``/api/v1/nodes``; see :mod:`trimtab.kube.resources`.
            body: the value to encode as JSON, or ``None``.
            params: the query parameters.
            content_type: the content type of the body; for PATCH, the patch type.
            timeout: the timeout in seconds; by default, the one of the class.

        Raises:
            ApiError: the server responded with an error.
            Unreachable: there was no response.
        """
        request = urllib.request.Request(
            self.server + path + ("?" + urllib.parse.urlencode(params) if params else ""),
            data=None if body is None else msgspec.json.encode(body),
            method=method,
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": content_type},
        )
        try:
            with self._opener.open(request, timeout=self.timeout if timeout is None else timeout) as answer:
                return msgspec.json.decode(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise error_from_response(error.code, error.read(), phrase=error.reason) from None
        except OSError as error:
            raise Unreachable(f"{method} {request.full_url}: {error}") from error
