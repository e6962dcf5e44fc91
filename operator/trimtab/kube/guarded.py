"""Requests only while this process may act: whoever lost the lease must not meet its successor."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from trimtab.kube.api import Api, Unreachable


class NotLeading(Unreachable):
    """Not sent: another process may lead by now. To whoever asks it is as if no answer came."""


class Guarded:
    """An :class:`~trimtab.kube.api.Api` that asks before each request whether this process may still act.

    Attributes:
        calls: requests that were sent.
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
    ) -> Any:
        """See :class:`~trimtab.kube.api.Api`.

        Raises:
            NotLeading: nothing was sent.
        """
        if not self._leading():
            raise NotLeading(f"{method} {path}: not sent, for another process may lead by now")
        self.calls += 1
        return await self._api.request(
            method, path, params=params, body=body, content_type=content_type, accept=accept, timeout=timeout
        )

    def stream(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        accept: str = "application/json",
        idle_timeout: float = 60.0,
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """See :class:`~trimtab.kube.api.Api`; reading harms nobody."""
        return self._api.stream(path, params=params, accept=accept, idle_timeout=idle_timeout)
