"""Keeps on nodes the times that their taints do not tell, so that a later process counts from the same.

What has to be noted is said in :mod:`trimtab.tainting.deadlines.standing`.
Written as soon as it is known, and taken off as soon as it is of no account: a note that outlives its taint would end
pods too soon once the taint is put on again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from trimtab.kube import verbs
from trimtab.kube.api import ApiError, Unreachable
from trimtab.kube.objects import Node
from trimtab.kube.resources import NODES
from trimtab.kube.retry import Backoff
from trimtab.kube.work_queue import WorkQueue
from trimtab.tainting.deadlines import SINCE_ANNOTATION, NodeTaints, note
from trimtab.tainting.services import Services

log = logging.getLogger(__name__)

WORKERS: Final = 8
"""Nodes that are written to at once."""

TIMEOUT: Final = 10.0
"""Seconds of one request."""

AGAIN: Final = 0.5
"""Seconds until a node is looked at again that is not written to now."""

RETRY: Final = Backoff(initial=0.5, maximum=15.0)
"""Of writes that fail or are refused: where an admission policy wants no such note, thousands of nodes are tried."""

SEEN: Final = 5.0
"""Seconds in which the watch tells of what was written; after that it is written again."""


class _Written(Struct, frozen=True, gc=False):
    """What was last written to a node, and when."""

    uid: str
    text: str | None
    at: float


class Notes:
    """The notes of all nodes.

    Args:
        services: the API and the picture.
        taints: what is known of nodes' taints, by node; as the book keeps it.
    """

    def __init__(self, services: Services, taints: Mapping[str, NodeTaints]) -> None:
        self._services = services
        self._taints = taints
        self._written: dict[str, _Written] = {}
        self._queue = self._new_queue()

    def look_at(self, node: str) -> None:
        """Look at a node soon: its taints, or its annotations, have changed."""
        known = self._services.picture.nodes.get(node)
        if known is None:
            self._written.pop(node, None)
        elif self._wanted(known) != _noted(known):
            self._queue.add(node)

    def everything(self) -> None:
        """Look at all nodes soon."""
        for name in self._services.picture.nodes:
            self.look_at(name)

    async def run(self) -> None:
        """Write until cancelled."""
        await self._queue.run()

    async def take_off(self, seconds: float) -> int:
        """Take the notes off all nodes, with :meth:`run` not running; how many could not be taken off in time."""
        left = {name for name, node in self._services.picture.nodes.items() if _noted(node) is not None}
        left |= self._written.keys()  # the watch may not have told of it yet
        self._queue, self._written = self._new_queue(), {}
        end = self._services.clock.monotonic() + seconds
        workers = asyncio.Semaphore(WORKERS)

        async def free(name: str) -> None:
            async with workers:
                if await self._freed(name):
                    left.discard(name)

        while left:
            await asyncio.gather(*(free(name) for name in sorted(left)))
            if not left or self._services.clock.monotonic() >= end:
                break
            await self._services.clock.sleep(AGAIN)
        return len(left)

    def _new_queue(self) -> WorkQueue:
        return WorkQueue(self._reconcile, workers=WORKERS, clock=self._services.clock, retry=RETRY)

    async def _reconcile(self, name: str) -> float | None:
        node = self._services.picture.nodes.get(name)
        if node is None:
            self._written.pop(name, None)
            return None
        wanted = self._wanted(node)
        if wanted == _noted(node):
            self._written.pop(name, None)
            return None
        now = self._services.clock.monotonic()
        before = self._written.get(name)
        if before is not None and (before.uid, before.text) == (node.uid, wanted) and now < before.at + SEEN:
            return before.at + SEEN - now
        if self._services.stale() is not None:
            return AGAIN
        self._written[name] = _Written(node.uid, wanted, now)  # also where we are cancelled meanwhile
        try:
            await self._write(node, wanted)
        except (ApiError, Unreachable):
            del self._written[name]
            raise
        return SEEN

    def _wanted(self, node: Node) -> str | None:
        taints = self._taints.get(node.name)
        return note(taints) if taints is not None and taints.uid == node.uid else None

    async def _write(self, node: Node, text: str | None) -> None:
        """Write a note, or take it off (``None``). Another node of the name is refused."""
        patch = {"metadata": {"uid": node.uid, "annotations": {SINCE_ANNOTATION: text}}}
        await verbs.merge_patch(self._services.api, NODES, node.name, patch, timeout=TIMEOUT)

    async def _freed(self, name: str) -> bool:
        """Whether a node has no note any more, as far as can be told."""
        node = self._services.picture.nodes.get(name)
        if node is None:
            return True
        try:
            await self._write(node, None)
        except (ApiError, Unreachable) as error:
            log.warning("The note on node %s was not taken off: %s", name, error)
            return False
        return True


def _noted(node: Node) -> str | None:
    return node.annotations.get(SINCE_ANNOTATION)
