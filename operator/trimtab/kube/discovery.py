"""Which resources a server serves at present, for kinds that are there in some clusters only."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from trimtab.kube.api import Api, Forbidden, NotFound
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.resources import Resource

KEPT: Final = 4.0
"""Seconds that an answer is good for: many kinds ask at the same time, and of the same groups."""


class Discovery:
    """Asks the server which groups and resources it has, once for all who ask at the same time.

    Args:
        api: the server.
        clock: the time.
    """

    def __init__(self, api: Api, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._api = api
        self._clock = clock
        self._asking = asyncio.Lock()
        self._answers: dict[str, tuple[float, Any]] = {}

    async def first_served(self, resources: Sequence[Resource]) -> Resource | None:
        """The first of several versions of a resource that the server serves; ``None`` where it serves none.

        Whoever may not ask is told the first: then watching it says what is the matter.

        Raises:
            ApiError: the server has another trouble.
            Unreachable: no answer came.
        """
        async with self._asking:
            try:
                groups = await self._ask("/apis")
                there = {
                    f"{group.get('name')}/{version.get('version')}"
                    for group in groups.get("groups") or ()
                    for version in group.get("versions") or ()
                }
                for resource in resources:
                    if resource.api_version not in there:
                        continue
                    listed = await self._ask(f"/apis/{resource.api_version}")
                    if resource.plural in {each.get("name") for each in listed.get("resources") or ()}:
                        return resource
            except Forbidden:
                return resources[0]
        return None

    async def _ask(self, path: str) -> Any:
        now = self._clock.monotonic()
        at, answer = self._answers.get(path, (-KEPT, None))
        if answer is None or now - at >= KEPT:
            try:
                answer = await self._api.request("GET", path)
            except NotFound:
                answer = {}
            self._answers[path] = now, answer
        return answer
