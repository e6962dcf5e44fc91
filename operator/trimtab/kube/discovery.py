"""Queries the resources that the API server serves, and the features of its version."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from trimtab.kube.api import Api, ApiError, Forbidden, NotFound
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.resources import Resource

CACHE_SECONDS: Final = 4.0
"""Seconds for which a discovery response is cached, because many informers query the same groups at the same time."""


class Discovery:
    """Queries which groups and resources the API server serves, with a cache that concurrent callers share.

    Args:
        api: the API server.
        clock: provides the time.
    """

    def __init__(self, api: Api, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._api = api
        self._clock = clock
        self._asking = asyncio.Lock()
        self._answers: dict[str, tuple[float, Any]] = {}

    async def first_served(self, resources: Sequence[Resource]) -> Resource | None:
        """Find the first of several versions of a resource that the server serves.

        Args:
            resources: the resource in several versions, the preferred one first.

        Returns:
            The first served version, or ``None`` if the server serves none. If discovery is forbidden, the result is
            the first version, so that its watch reports the missing permission.

        Raises:
            ApiError: the server responded with another error.
            Unreachable: there was no response.
        """
        async with self._asking:
            try:
                groups = await self._ask("/apis")
                served = {"v1"} | {  # the core group is not listed
                    f"{group.get('name')}/{version.get('version')}"
                    for group in groups.get("groups") or ()
                    for version in group.get("versions") or ()
                }
                for resource in resources:
                    if resource.api_version not in served:
                        continue
                    listed = await self._ask(f"/{'apis' if resource.group else 'api'}/{resource.api_version}")
                    if resource.plural in {each.get("name") for each in listed.get("resources") or ()}:
                        return resource
            except Forbidden:
                return resources[0]
        return None

    async def _ask(self, path: str) -> Any:
        now = self._clock.monotonic()
        at, answer = self._answers.get(path, (-CACHE_SECONDS, None))
        if answer is None or now - at >= CACHE_SECONDS:
            try:
                answer = await self._api.request("GET", path)
            except NotFound:
                answer = {}
            self._answers[path] = now, answer
        return answer


STREAMING_LISTS_SINCE: Final = (1, 33)
"""The first Kubernetes version that streams the encoding of lists (StreamingCollectionEncodingToProtobuf, KEP-5116)."""


async def streams_lists(api: Api, *, timeout: float = 30.0) -> bool:
    """Return whether the API server streams the encoding of lists.

    If it does, a list without pages needs little memory in the server and is the cheapest way to read all objects. A
    WatchList costs the server four times the CPU, because it flushes and encrypts each event. A server that reports no
    version is treated as old.

    Args:
        api: the API server.
        timeout: the seconds to wait for a response.

    Raises:
        Unreachable: there was no response.
    """
    try:
        version = await api.request("GET", "/version", timeout=timeout)
        found = [int(str(version[part]).rstrip("+")) for part in ("major", "minor")]  # "33+" on some managed clusters
    except (ApiError, TypeError, KeyError, ValueError):
        return False
    return tuple(found) >= STREAMING_LISTS_SINCE
