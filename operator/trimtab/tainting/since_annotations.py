"""Writes the start times of NoExecute taints to node annotations, so that a restarted process can read them.

Only times that differ from the taint's ``timeAdded`` are written; :mod:`trimtab.tainting.deadlines` defines them.
An annotation is removed as soon as it is no longer needed. Otherwise, if the taint were added again, the outdated time
would set a deadline too early.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from trimtab.controller.expectations import Expectations
from trimtab.controller.work_queue import WorkQueue
from trimtab.kube import verbs
from trimtab.kube.api import ApiError, Unreachable
from trimtab.kube.objects import Node
from trimtab.kube.resources import NODES
from trimtab.kube.retry import Backoff
from trimtab.tainting.deadlines import SINCE_ANNOTATION, NodeTaints, since_annotation
from trimtab.tainting.dependencies import REQUEST_TIMEOUT, TaintingDependencies

log = logging.getLogger(__name__)

WORKERS: Final = 8
"""Number of nodes that are patched concurrently."""

REMOVE_PERIOD: Final = 0.5
"""Seconds between two attempts to remove the annotation from all nodes."""

RETRY: Final = Backoff(initial=0.5, maximum=15.0)
"""Backoff for failed patches. An admission policy that forbids the annotation may refuse it on thousands of nodes."""

WATCH_TIMEOUT: Final = 5.0
"""Seconds within which the watch must deliver a patch. After that, the node is patched again."""


class SinceAnnotations:
    """Reconciles the annotation :data:`~trimtab.tainting.deadlines.SINCE_ANNOTATION` of all nodes.

    ``taints`` are the observed taints by node, from the deadline tracker.
    """

    def __init__(self, dependencies: TaintingDependencies, taints: Mapping[str, NodeTaints]) -> None:
        self._dependencies = dependencies
        self._taints = taints
        self._written: Expectations[Node, str | None] = Expectations(
            dependencies.lister.node, dependencies.clock, timeout=WATCH_TIMEOUT
        )
        self._queue = WorkQueue(
            self._reconcile,
            workers=WORKERS,
            clock=dependencies.clock,
            retry=RETRY,
            paused=lambda: dependencies.stale() is not None,
            metrics=dependencies.queue_metrics.queue("since-annotations"),
        )

    def enqueue(self, node: str) -> None:
        """Enqueue a node whose taints or annotations have changed if its annotation is out of date."""
        known = self._dependencies.lister.node(node)
        if known is None:
            self._written.forget(node)
        elif self._wanted(known) != _annotation(known):
            self._queue.add(node)

    def resync(self) -> None:
        """Enqueue all nodes whose annotation is out of date."""
        for name in self._dependencies.lister.nodes:
            self.enqueue(name)

    async def run(self) -> None:
        """Patch nodes until cancelled."""
        await self._queue.run()

    async def remove_all(self, seconds: float) -> int:
        """Remove the annotation from all nodes, and return the number of nodes that still have it after ``seconds``.

        Call it after :meth:`run` has ended, which is not started again.
        """
        left = {name for name, node in self._dependencies.lister.nodes.items() if _annotation(node) is not None}
        left.update(self._written)  # the watch may not have delivered it yet
        end = self._dependencies.clock.monotonic() + seconds
        workers = asyncio.Semaphore(WORKERS)

        async def remove(name: str) -> None:
            node = self._dependencies.lister.node(name)
            try:
                async with workers:
                    if node is not None:
                        await self._write(node, None)
                left.discard(name)
            except (ApiError, Unreachable) as error:
                log.warning("Failed to remove annotation %s from node %s: %s", SINCE_ANNOTATION, name, error)

        while left:
            await asyncio.gather(*(remove(name) for name in sorted(left)))
            if not left or self._dependencies.clock.monotonic() >= end:
                break
            await self._dependencies.clock.sleep(REMOVE_PERIOD)
        return len(left)

    async def _reconcile(self, name: str) -> float | None:
        node = self._dependencies.lister.node(name)
        if node is None or (wanted := self._wanted(node)) == _annotation(node):
            self._written.forget(name)
            return None
        written = self._written.pending(name)
        if written is not None and written.value == wanted:
            return written.until - self._dependencies.clock.monotonic()
        # Expect the write before the request, which may be cancelled.
        self._written.expect(name, node.uid, wanted, shown_by=lambda node: _annotation(node) == wanted)
        try:
            await self._write(node, wanted)
        except (ApiError, Unreachable):
            self._written.forget(name)
            raise
        return WATCH_TIMEOUT

    def _wanted(self, node: Node) -> str | None:
        taints = self._taints.get(node.name)
        return since_annotation(taints) if taints is not None and taints.uid == node.uid else None

    async def _write(self, node: Node, text: str | None) -> None:
        """Set the annotation, or remove it if ``text`` is ``None``.

        The patch has the UID as a precondition, so that a recreated node with the same name is not modified.
        """
        patch = {"metadata": {"uid": node.uid, "annotations": {SINCE_ANNOTATION: text}}}
        await verbs.merge_patch(self._dependencies.api, NODES, node.name, patch, timeout=REQUEST_TIMEOUT)


def _annotation(node: Node) -> str | None:
    return node.annotations.get(SINCE_ANNOTATION)
