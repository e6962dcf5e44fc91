"""The live picture: informers feed one Snapshot, and planners borrow it without copying.

A copy of 150,000 pods for each plan would double the memory; planning on the event loop would starve health probes
and the lease. So a planner borrows the snapshot in a thread (:meth:`LiveCluster.borrow`), and what the watches bring
meanwhile waits in a queue, in order, until it gives the snapshot back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from trimtab.cluster.kinds import KINDS, NODE_GROUPS
from trimtab.cluster.owners import OwnerKey
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import TYPES, KubeObject, Pod
from trimtab.kube.resources import Resource

T = TypeVar("T")

AT_ONCE: Final = 1000
"""Changes that are taken in before anything else may go on: some hundredths of a second's work."""


class LiveCluster:
    """One Snapshot kept up to date by watches; implements what the executor needs to see of the cluster.

    Args:
        kinds: what is watched: what :attr:`sizes` counts.
    """

    def __init__(self, kinds: Sequence[Resource] = KINDS) -> None:
        self._kinds = kinds
        self._snapshot = Snapshot()
        self._borrowed = asyncio.Lock()
        self._waiting: deque[tuple[KubeObject | None, KubeObject | None]] = deque()

    def apply(self, old: KubeObject | None, new: KubeObject | None) -> None:
        """Take one change of a store in: the listener that stores call, on the event loop."""
        if self._borrowed.locked():
            self._waiting.append((old, new))
            return
        self._apply(old, new)

    @asynccontextmanager
    async def borrow(self) -> AsyncIterator[Snapshot]:
        """Have the snapshot to oneself, also in another thread; changes to it must be undone before giving it back."""
        async with self._borrowed:
            try:
                yield self._snapshot
            finally:
                await self._catch_up()

    def examine(self, question: Callable[[Snapshot], T]) -> T:
        """Ask the picture something at once, on the event loop; what the question tries out it must undo.

        Raises:
            RuntimeError: somebody has the snapshot; what it shows then are a planner's trials.
        """
        if self._borrowed.locked():
            raise RuntimeError("the snapshot is borrowed")
        return question(self._snapshot)

    @property
    def present(self) -> Snapshot:
        """The picture, to look up single objects on the event loop; a planner's trials may show in it."""
        return self._snapshot

    def pod(self, key: str) -> Pod | None:
        """The pod as the watches last told it, ``None`` where there is none (any more)."""
        return self._snapshot.pods.get(key)

    def owned_by(self, owner: OwnerKey) -> Sequence[Pod]:
        """The pods of a controller as the watches last told them."""
        return self._snapshot.owned_by(owner)

    @property
    def sizes(self) -> dict[str, int]:
        """How many objects of each kind the picture holds: by the plural, with its group where several have it."""
        snapshot = self._snapshot
        counted = {"nodes": len(snapshot.nodes), "pods": len(snapshot.pods)}
        shelved = {
            resource.name if resource in NODE_GROUPS else resource.plural: len(
                snapshot.shelves.of(TYPES[resource.type_name])
            )
            for resource in self._kinds
            if resource.plural not in counted
        }
        return counted | shelved

    async def _catch_up(self) -> None:
        """Take in what has waited, with room for others in between: a long plan of a busy cluster leaves thousands."""
        try:
            while len(self._waiting) > AT_ONCE:
                self._take_in(AT_ONCE)
                await asyncio.sleep(0)
        finally:  # also where somebody is cancelled for the second time: nothing may be lost
            self._take_in(len(self._waiting))

    def _take_in(self, number: int) -> None:
        for _ in range(number):
            self._apply(*self._waiting.popleft())

    def _apply(self, old: KubeObject | None, new: KubeObject | None) -> None:
        if new is not None:
            self._snapshot.put(new)
        elif old is not None:
            self._snapshot.remove(old)


async def in_thread(work: Callable[[], T]) -> T:
    """Work in a thread, and wait for its end even when cancelled: until then it uses what the caller lent it."""
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait({working})
        raise
