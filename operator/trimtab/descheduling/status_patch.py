"""Writing the status of policies and runs: a report must not be lost to a server that is in trouble for a moment."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from trimtab.api.base import Status
from trimtab.api.descheduler_status import status_patch
from trimtab.kube.api import Api, ServerError, TooManyRequests, Unreachable
from trimtab.kube.resources import Resource
from trimtab.kube.verbs import merge_patch

ATTEMPTS: Final = 4
FIRST_PAUSE: Final = 0.5
"""Seconds; twice as long before each further attempt."""

TROUBLE: Final = (Unreachable, ServerError, TooManyRequests)
"""What may be over in a moment."""


async def patch_status(api: Api, resource: Resource, name: str, status: Status) -> dict[str, Any]:
    """Write the whole status of an object as a merge patch; the object as it is then.

    Raises:
        ApiError: the API server refuses.
        Unreachable: it has not answered, however often it was asked.
    """
    pause = FIRST_PAUSE
    for _ in range(ATTEMPTS - 1):
        try:
            return await _patch(api, resource, name, status)
        except TROUBLE:
            await asyncio.sleep(pause)
            pause *= 2
    return await _patch(api, resource, name, status)


async def _patch(api: Api, resource: Resource, name: str, status: Status) -> dict[str, Any]:
    return await merge_patch(api, resource, name, {"status": status_patch(status)}, subresource="status")
