"""Checks that Kopf passes on the changes of a custom resource's objects, whichever of its tasks may have stopped.

Kopf has a chain of tasks between a watch and the handlers, and notices the end of none of them. So a handler of our own
records what arrives, and a task compares it with a list of the objects::

    check = KopfWatchCheck(api, resource, clock)
    check.register(operator.registry)
    asyncio.create_task(check.run())

A version that was listed and has not arrived by the next list is a lack of progress of the component
``Kopf's watch of <plural>``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import kopf

from trimtab.controller.progress import register_component
from trimtab.kube.api import Api, ApiError, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.resource_versions import is_older
from trimtab.kube.resources import Resource
from trimtab.kube.verbs import list_objects

CHECK_PERIOD: Final = 15.0
"""Seconds between two lists. Kopf passes on a change within a second."""

LIST_TIMEOUT: Final = 10.0
"""Timeout of one list, in seconds."""

METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""The media type of lists that contain only the objects' metadata."""


class KopfWatchCheck:
    """Compares the objects of one resource with those that reached Kopf's handlers.

    Args:
        api: the API client.
        resource: the custom resource.
        clock: provides the time.
    """

    def __init__(self, api: Api, resource: Resource, clock: Clock) -> None:
        self._api = api
        self._resource = resource
        self._clock = clock
        self._arrived: dict[str, str] = {}  # resource version by UID

    def register(self, registry: kopf.OperatorRegistry) -> None:
        """Register the handler that records what arrives."""

        @kopf.on.event(self._resource.group, self._resource.version, self._resource.plural, registry=registry)
        async def record(uid: str | None, meta: kopf.Meta, type: str | None, **_: Any) -> None:  # noqa: A002
            if type == "DELETED":
                self._arrived.pop(uid or "", None)
            else:
                self._arrived[uid or ""] = str(meta.get("resourceVersion", ""))

    async def run(self) -> None:
        """Check periodically until cancelled."""
        component = register_component(f"Kopf's watch of {self._resource.plural}")
        expected: Mapping[str, str] = {}
        while True:
            try:
                listed = await self._list()
            except (ApiError, Unreachable):  # other components report an outage
                listed, expected = {}, {}
            if not any(self._is_late(uid, version) for uid, version in expected.items() if uid in listed):
                component.succeed(CHECK_PERIOD + LIST_TIMEOUT)
                expected = listed
            await self._clock.sleep(CHECK_PERIOD)

    async def _list(self) -> dict[str, str]:
        """Return the resource version by UID of each object that is not being deleted.

        A handler may take a minute for the deletion of an object, and its other changes wait meanwhile.
        """
        found = await list_objects(self._api, self._resource, timeout=LIST_TIMEOUT, accept=METADATA)
        metadata = [each["metadata"] for each in found.items]
        return {each["uid"]: each["resourceVersion"] for each in metadata if not each.get("deletionTimestamp")}

    def _is_late(self, uid: str, version: str) -> bool:
        arrived = self._arrived.get(uid)
        return arrived is None or is_older(arrived, version)
