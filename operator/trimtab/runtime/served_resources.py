"""Tracks which of trimtab's custom resources the API server serves. A controller runs while its resource is served.

A CRD may be missing while the operator runs, for example because the chart was installed without CRDs, the CRD was
pruned, or a backup was restored. In that case only the controller of that resource waits, until the API server serves
the resource.

The operator queries API discovery every :data:`CHECK_PERIOD` seconds, and immediately after a watch of Kopf got a 404
(:meth:`ServedResources.recheck`). Discovery needs no RBAC rule and returns a few kilobytes; a watch of CRDs would
deliver their schemas. An API server that has just started serves no custom resources for a moment. Therefore a resource
is considered removed only after it has been missing for :data:`REMOVAL_DELAY` seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from trimtab.api import reasons
from trimtab.controller.progress import register_component
from trimtab.kube.api import Api, ApiError, NotFound, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.resources import Resource

log = logging.getLogger(__name__)

CHECK_PERIOD: Final = 2.0
"""Seconds between two discovery requests."""

REMOVAL_DELAY: Final = 6.0
"""Seconds for which a resource must be missing before its controller is stopped."""


class ServedResources:
    """Tracks which custom resources the API server serves. Run :meth:`run` as a task.

    Args:
        api: the API client.
        needed: the custom resources, each with the name of the controller that needs it.
        clock: provides the time.
    """

    def __init__(self, api: Api, needed: Mapping[Resource, str], *, clock: Clock) -> None:
        self._api = api
        self._needed = needed
        self._clock = clock
        self._served: frozenset[Resource] = frozenset()
        self._absent_since: dict[Resource, float] = {}
        self._problem: str | None = "API discovery has not been queried yet"
        self._discovered = False
        self._changed = asyncio.Event()
        self._recheck = asyncio.Event()

    # --- read from any thread -----------------------------------------------------------------------------------------

    def check(self) -> str | None:
        """Return a description of the controllers that wait for a CRD, for /readyz; ``None`` if there are none."""
        if not self._discovered:
            return self._problem
        waiting = [f"{name} waits for {_name(each)}" for each, name in self.missing().items()]
        return f"{reasons.RESOURCE_NOT_SERVED}: {', '.join(waiting)} (crds/)" if waiting else None

    def missing(self) -> dict[Resource, str]:
        """Return the resources that are not served, each with the controller that waits for it."""
        served = self._served
        return {each: name for each, name in self._needed.items() if each not in served}

    def is_served(self, resource: Resource) -> bool:
        """Return whether the API server serves a resource, according to the last discovery."""
        return resource in self._served

    @property
    def resources(self) -> dict[str, bool]:
        """Return for each CRD, such as ``taintmanagers.trimtab.dev``, whether it is served."""
        served = self._served
        return {_name(each): each in served for each in self._needed}

    # --- used by the controllers' loop --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Query discovery periodically until cancelled."""
        component = register_component("definitions")
        while True:
            component.begin()
            self._recheck.clear()
            await self._discover()
            component.succeed(CHECK_PERIOD)
            try:
                async with asyncio.timeout(CHECK_PERIOD):
                    await self._recheck.wait()
            except TimeoutError:
                continue
            await self._clock.sleep(CHECK_PERIOD / 4)  # the collection returns 404 shortly before discovery changes

    def recheck(self) -> None:
        """Query discovery soon, because a request for a resource returned 404."""
        self._recheck.set()

    async def wait_until_served(self, resource: Resource) -> None:
        """Wait until a resource is served."""
        announced = False
        while resource not in self._served:
            if self._discovered and not announced:
                announced = True
                controller, name = self._needed[resource], _name(resource)
                log.warning(
                    "Controller %s waits for CRD %s, which is not installed; install the CRD from crds/",
                    controller,
                    name,
                )
            await self._next_change()
        if announced:
            log.info("Starting controller %s because CRD %s is now installed", self._needed[resource], _name(resource))

    async def wait_until_removed(self, resource: Resource) -> None:
        """Wait until the API server no longer serves a resource."""
        while resource in self._served:
            await self._next_change()

    async def _next_change(self) -> None:
        changed = self._changed
        await changed.wait()

    async def _discover(self) -> None:
        try:
            served = await self._query_discovery()
        except (ApiError, Unreachable) as error:
            if not self._discovered:
                self._problem = f"cannot query API discovery: {error}"
            return  # keep the previous result, because an outage must not stop controllers
        now = self._clock.monotonic()
        for resource in self._needed:
            if resource in served:
                self._absent_since.pop(resource, None)
            elif resource in self._served and now - self._absent_since.setdefault(resource, now) < REMOVAL_DELAY:
                served |= {resource}
        before = (self._discovered, self._served)
        self._discovered, self._served = True, frozenset(served)
        if before != (self._discovered, self._served):
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    async def _query_discovery(self) -> set[Resource]:
        served: set[Resource] = set()
        for group, version in dict.fromkeys((each.group, each.version) for each in self._needed):
            try:
                listed = await self._api.request("GET", f"/apis/{group}/{version}")
            except NotFound:
                continue
            names = {each.get("name") for each in listed.get("resources", ())}
            served |= {
                each for each in self._needed if (each.group, each.version) == (group, version) and each.plural in names
            }
        return served


def _name(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}"
