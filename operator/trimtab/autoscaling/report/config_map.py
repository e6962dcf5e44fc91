"""Writing upstream's status ConfigMap: when it tells something new, or once a minute, with one request each."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Final

from trimtab.autoscaling.report.pass_report import PassReport
from trimtab.autoscaling.report.status import STALE
from trimtab.autoscaling.report.upstream_status import (
    UpstreamStatus,
    go_time,
    read,
    same_story,
    text_of,
    upstream_status,
)
from trimtab.cluster.live import in_thread
from trimtab.kube.api import Api, ApiError, NotFound, Unreachable
from trimtab.kube.resources import CONFIG_MAPS
from trimtab.kube.verbs import create, get, merge_patch

log = logging.getLogger(__name__)

NAME: Final = "cluster-autoscaler-status"
KEY: Final = "status"
LAST_UPDATED: Final = "cluster-autoscaler.kubernetes.io/last-updated"


class StatusConfigMap:
    """Writes the ConfigMap ``cluster-autoscaler-status``.

    The first write of a process reads what is there, since when parts are as they are; each further one is a single
    patch. A failure is logged, and the next pass tries again: a report must not stop what it reports on.

    Args:
        api: where to write.
        namespace: the operator's own.
        name: of the ConfigMap.
    """

    def __init__(self, api: Api, *, namespace: str, name: str = NAME) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._known: UpstreamStatus | None = None
        self._read = False
        self._written: float | None = None

    async def write(self, report: PassReport) -> bool:
        """Write what a pass comes to, if it is worth it; whether it was written."""
        try:
            if not self._read:
                await self._take_up()
            status = upstream_status(report, self._known)
            fresh = self._written is not None and report.finished - self._written < STALE
            if fresh and same_story(self._known, status):
                return False
            await self._put(status, report)
        except (ApiError, Unreachable) as error:
            log.warning("ConfigMap %s/%s not written: %s", self._namespace, self._name, error)
            return False
        self._known, self._written = status, report.finished
        return True

    async def _take_up(self) -> None:
        try:
            found = await get(self._api, CONFIG_MAPS, self._name, namespace=self._namespace)
        except NotFound:
            pass
        else:
            self._known = read(str((found.get("data") or {}).get(KEY, "")))
        self._read = True

    async def _put(self, status: UpstreamStatus, report: PassReport) -> None:
        text = await in_thread(partial(text_of, status))  # of hundreds of groups it takes a while
        body: dict[str, Any] = {
            "metadata": {"annotations": {LAST_UPDATED: go_time(report.started)}},
            "data": {KEY: text},
        }
        try:
            await merge_patch(self._api, CONFIG_MAPS, self._name, body, namespace=self._namespace)
        except NotFound:
            body["metadata"]["name"] = self._name
            await create(self._api, CONFIG_MAPS, body, namespace=self._namespace)
