"""Writes the annotations of node groups that removals need: the removal backoff and the removal record.

Failed writes are retried with exponential backoff while this process leads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from trimtab.autoscaling.actuation.removal import RemovalSettings
from trimtab.autoscaling.actuation.removal_backoff import RemovalBackoff
from trimtab.autoscaling.actuation.removal_record import RemovalRecords, planned_removal
from trimtab.autoscaling.actuation.removal_review import RemovalReview
from trimtab.autoscaling.groups import NodeGroup
from trimtab.autoscaling.groups.annotations import REMOVAL_BACKOFF, REMOVAL_IN_PROGRESS
from trimtab.autoscaling.providers import DIALECTS, MarkedMachines, annotate_group, api_group_of
from trimtab.controller.loop import end_tasks
from trimtab.kube.api import Api, ApiError, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.retry import Backoff

log = logging.getLogger(__name__)

_WRITES: Final = Backoff(initial=1.0, maximum=300.0)
"""The backoff between attempts to write an annotation."""

_ANNOTATED: Final = frozenset(each.api_group for each in DIALECTS)
"""API groups whose node groups are Kubernetes objects and can therefore be annotated."""


class GroupAnnotations:
    """Keeps the removal backoffs and removal records of all groups, and writes their annotations.

    Args:
        api: the API client that writes the annotations. It checks before each request that this process is the leader.
        review: the source of the current node groups.
        clock: the clock.
        settings: the backoffs and timeouts.
        leading: returns whether this process is the leader.

    Attributes:
        records: the removal records of groups whose size is being lowered.
    """

    def __init__(
        self,
        api: Api,
        review: RemovalReview,
        clock: Clock,
        settings: RemovalSettings,
        *,
        leading: Callable[[], bool],
    ) -> None:
        self.records = RemovalRecords()
        self._api = api
        self._review = review
        self._clock = clock
        self._settings = settings
        self._leading = leading
        self._backoffs: dict[str, RemovalBackoff] = {}
        self._writers: dict[str, asyncio.Task[None]] = {}

    def backoff(self, group: str) -> RemovalBackoff:
        """Return the removal backoff of a group.

        Args:
            group: id of the group.
        """
        return self._backoffs.setdefault(group, RemovalBackoff(self._settings))

    def observe(self, group: NodeGroup) -> RemovalBackoff:
        """Update a group's removal backoff from the group's annotation, and return it."""
        found = self.backoff(group.id)
        found.observe(group.template.annotations.get(REMOVAL_BACKOFF, ""), now=self._clock.now())
        return found

    async def record(self, group: NodeGroup, marked: MarkedMachines, count: int) -> ApiError | Unreachable | None:
        """Write the removal record to a group whose size is about to be lowered.

        Args:
            group: the group in the current cluster state.
            marked: the group's machines that have the deletion annotation.
            count: the number of machines by which the size will be lowered.

        Returns:
            The error if the annotation was not written, else ``None``.
        """
        writer = self._writers.get(group.id)
        if writer is not None:  # the task would remove the new record instead of the previous one
            await end_tasks([writer])
        text = self.records.begin(planned_removal(group, marked, count), now=self._clock.now())
        if api_group_of(group) not in _ANNOTATED:
            return None
        try:
            await annotate_group(self._api, group, {REMOVAL_IN_PROGRESS: text}, timeout=self._settings.timeout)
        except (ApiError, Unreachable) as error:
            self.records.settle(group.id)
            return error
        return None

    async def save(self, group: str) -> None:
        """Write the annotations of a group if they changed, and retry later if that fails.

        Args:
            group: id of the group.
        """
        writer = self._writers.get(group)
        if (writer is None or writer.done()) and not await self._write(group):
            self.save_later(group, retry=1)

    def save_later(self, group: str, *, retry: int = 0) -> None:
        """Write the annotations of a group in a background task.

        Args:
            group: id of the group.
            retry: the number of attempts that have failed.
        """
        writer = self._writers.get(group)
        if writer is None or writer.done():
            self._writers[group] = asyncio.create_task(self._write_later(group, retry), name=f"annotate {group}")

    async def stop(self) -> None:
        """Cancel the background tasks."""
        await end_tasks(self._writers.values())

    async def _write_later(self, group: str, retry: int) -> None:
        while self._leading():
            if retry:
                await self._clock.sleep(_WRITES.delay(retry - 1))
            if await self._write(group):
                return
            retry += 1

    async def _write(self, id_: str) -> bool:
        backoff = self.backoff(id_)
        group = (await self._review.groups()).by_id.get(id_)
        text, over = backoff.unwritten, self.records.is_compared(id_)
        changes: dict[str, str | None] = {REMOVAL_BACKOFF: text} if text else {}
        changes |= {REMOVAL_IN_PROGRESS: None} if over else {}
        if group is None or not changes or api_group_of(group) not in _ANNOTATED:
            return True
        try:
            await annotate_group(self._api, group, changes, timeout=self._settings.timeout)
        except (ApiError, Unreachable) as error:
            log.warning("Failed to write annotations %s of node group %s; retrying: %s", ", ".join(changes), id_, error)
            return False
        if text:
            backoff.mark_written(text)
        if over:
            self.records.removed(id_)
        return True
