"""Whether the API server serves our resources yet.

Kopf looks for them once, when it starts, because its scanning is off: it would watch all kinds and namespaces for the
sake of our few. So it is started only once they are there; an operator that was installed before its definitions waits.
"""

from __future__ import annotations

import logging
from typing import Final

from trimtab.kube.api import Api, ApiError, NotFound, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.resources import Resource

log = logging.getLogger(__name__)

LOOK_AGAIN: Final = 2.0


class Definitions:
    """Waits for resources to be served.

    Args:
        api: the API server.
        resources: those that the controllers need.
        clock: the time.
    """

    def __init__(self, api: Api, resources: tuple[Resource, ...], *, clock: Clock) -> None:
        self._api = api
        self._resources = resources
        self._clock = clock
        self._wrong: str | None = None

    def check(self) -> str | None:
        """What is missing, for /readyz; ``None`` where nothing is known to be."""
        return self._wrong

    async def served(self) -> None:
        """Wait until all are."""
        said = None
        while (wrong := await self._missing()) is not None:
            self._wrong = wrong
            if wrong != said:
                log.warning("waiting: %s", wrong)
                said = wrong
            await self._clock.sleep(LOOK_AGAIN)
        self._wrong = None

    async def _missing(self) -> str | None:
        for resource in self._resources:
            group = f"/apis/{resource.group}/{resource.version}"
            try:
                listed = await self._api.request("GET", group)
            except NotFound:
                listed = {}
            except (ApiError, Unreachable) as error:
                return f"cannot ask which resources are served: {error}"
            if resource.plural not in {each.get("name") for each in listed.get("resources", ())}:
                return f"{resource.plural}.{resource.group} is not served: its definition is not installed (crds/)"
        return None
