"""Pods on nodes that are not ready: they are not ready either, so that Services leave them out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from trimtab.kube.api import ApiError, Conflict, NotFound, Unreachable
from trimtab.kube.retry import Backoff
from trimtab.tainting.conditions import ready_status
from trimtab.tainting.health import MarkPodNotReady, pods_not_ready
from trimtab.tainting.lifecycle.requests import write_pod
from trimtab.tainting.services import Services

log = logging.getLogger(__name__)

AT_ONCE: Final = 8
"""Requests at a time, as upstream has workers for it."""

BETWEEN: Final = 1.0
"""Seconds between two looks at all pods of such nodes; in an outage of everything they are all pods there are."""

NODES_A_STEP: Final = 50
"""Nodes that are looked at before the event loop may do something else."""


RETRY: Final = Backoff(initial=1.0, maximum=30.0)
"""Of a pod that could not be marked."""

CROWD: Final = 100
"""Pods a second that are tried again at most: thousands that a webhook refuses, or a missing right, would be a load."""

HURRY: Final = 10.0
"""Seconds after which, at the soonest, all are tried at once a second time, because one of them could be marked."""


class _Refused(Struct, frozen=True, gc=False):
    """How often a pod could not be marked, and until when it is left alone, by the monotonic clock."""

    times: int
    until: float


class PodMarks:
    """Marks pods as the last plan says; what fails is found undone at the next look.

    Args:
        services: what loops need.

    Attributes:
        marked: pods that were marked so far.
    """

    def __init__(self, services: Services) -> None:
        self.marked = 0
        self._services = services
        self._failed: Mapping[str, float] = {}
        self._sent: dict[str, str] = {}  # uid of a pod: the resource version that was written to
        self._refused: dict[str, _Refused] = {}  # by uid of a pod
        self._hurried = 0.0
        self._changed = asyncio.Event()

    def put(self, failed: Mapping[str, float]) -> None:
        """Go by this plan from now on.

        Args:
            failed: see :class:`~trimtab.tainting.planner.LifecyclePlan`.
        """
        self._failed = failed
        if failed:
            self._changed.set()
        else:
            self._sent.clear()

    async def run(self) -> None:
        """Mark until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._look()
            except Exception:  # one odd pod must not keep the others ready
                log.exception("pods of nodes that are not ready could not be marked")
            await self._services.clock.sleep(BETWEEN)

    async def _look(self) -> None:
        marks: list[MarkPodNotReady] = []
        before, self._sent = self._sent, {}
        refused, self._refused = self._refused, {}
        now = self._services.clock.monotonic()
        for place, (name, since) in enumerate(self._failed.items(), start=1):
            for mark in self._of(name, since):
                if before.get(mark.uid) == mark.resource_version:
                    self._sent[mark.uid] = mark.resource_version  # our watch has not shown it yet
                    continue
                if (rests := refused.get(mark.uid)) is not None:
                    self._refused[mark.uid] = rests
                if rests is None or rests.until <= now:
                    marks.append(mark)
            if place % NODES_A_STEP == 0:
                await self._write(marks)
                marks = []
                await asyncio.sleep(0)
        await self._write(marks)

    def _of(self, name: str, since: float) -> list[MarkPodNotReady]:
        """The pods of a node that says itself that it is not ready; that it is judged so is not enough."""
        picture, now = self._services.picture, self._services.clock.now()
        node = picture.nodes.get(name)
        if node is None or ready_status(node) in ("True", None):
            return []
        return pods_not_ready(name, (pod for _, pod in picture.pods_on(name)), since=since, now=now)

    async def _write(self, marks: list[MarkPodNotReady]) -> None:
        if not marks:
            return
        rest, wrong = iter(marks), list[str]()
        async with asyncio.TaskGroup() as group:
            for _ in range(min(AT_ONCE, len(marks))):
                group.create_task(self._some(rest, wrong))
        if wrong:
            log.warning("%d of %d pods not marked as not ready, and tried again: %s", len(wrong), len(marks), wrong[0])

    async def _some(self, rest: Iterator[MarkPodNotReady], wrong: list[str]) -> None:
        for mark in rest:
            if self._services.stale() is not None or mark.node not in self._failed:
                continue
            try:
                await write_pod(self._services.api, mark)
            except (Conflict, NotFound):
                self._rest(mark)  # its kubelet has spoken, or it is gone: the watch tells
            except (ApiError, Unreachable) as error:
                self._rest(mark)
                wrong.append(f"{mark.namespace}/{mark.pod} on {mark.node}: {error}")
            else:
                self.marked += 1
                self._sent[mark.uid] = mark.resource_version
                self._let(mark)

    def _rest(self, mark: MarkPodNotReady) -> None:
        """Leave a pod alone for a while."""
        before = self._refused.get(mark.uid)
        times = before.times if before is not None else 0
        wait = max(RETRY.delay(times), len(self._refused) / CROWD)
        self._refused[mark.uid] = _Refused(times + 1, self._services.clock.monotonic() + wait)

    def _let(self, mark: MarkPodNotReady) -> None:
        """A pod was marked: if it had been refused, the others are tried soon, too."""
        now = self._services.clock.monotonic()
        if self._refused.pop(mark.uid, None) is not None and now >= self._hurried + HURRY:
            self._hurried = now
            self._refused = {uid: _Refused(each.times, min(each.until, now)) for uid, each in self._refused.items()}
