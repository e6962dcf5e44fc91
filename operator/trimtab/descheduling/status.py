"""Writing a policy's status, and not more often than it changes."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from trimtab.api.descheduler_status import DeschedulerStatus, status_patch
from trimtab.kube.api import Api, ApiError, NotFound, ServerError, TooManyRequests, Unreachable
from trimtab.kube.resources import DESCHEDULER_POLICIES
from trimtab.kube.verbs import merge_patch

log = logging.getLogger(__name__)

ATTEMPTS: Final = 4
FIRST_PAUSE: Final = 0.5


class StatusWriter:
    """Writes the status of one policy as a merge patch of the whole status.

    A failure is logged and the status kept for the next write: a report must not stop what it reports on.
    """

    def __init__(self, api: Api, name: str) -> None:
        self._api = api
        self._name = name
        self._written: DeschedulerStatus | None = None

    async def write(self, status: DeschedulerStatus) -> None:
        """Write the status if it differs from what was last written."""
        if status == self._written:
            return
        pause = FIRST_PAUSE
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await merge_patch(
                    self._api,
                    DESCHEDULER_POLICIES,
                    self._name,
                    {"status": status_patch(status)},
                    subresource="status",
                )
            except NotFound:
                return  # the policy is gone: nobody is left to tell
            except (Unreachable, ServerError, TooManyRequests) as error:
                if attempt == ATTEMPTS:
                    log.warning("status of policy %s not written: %s", self._name, error)
                    return
                await asyncio.sleep(pause)
                pause *= 2
            except ApiError as error:
                log.error("status of policy %s refused: %s", self._name, error)  # noqa: TRY400 - told in full
                return
            else:
                self._written = status
                return
