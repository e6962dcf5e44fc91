"""Shares one Snapshot between all planners: informers update it, and planners borrow it without copying.

A copy of 150,000 pods for each plan would double the memory, and planning on the event loop would block health probes
and Lease renewals. So a planner borrows the snapshot, possibly for another thread, and tries moves on it. In the
meantime, changes from the watches are queued in order. They are applied when the planner returns the snapshot.

Only planners and the validation of planned actions use the snapshot. Code that reads single objects uses the
:class:`~trimtab.cluster.lister.Lister`, which never waits and never sees tentative changes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from trimtab.cluster.kinds import KINDS, NODE_GROUPS
from trimtab.cluster.own_writes import Assumption, OwnWrite, OwnWrites
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.objects import TYPES, KubeObject
from trimtab.kube.resources import Resource
from trimtab.kube.time_slice import TimeSlice
from trimtab.kube.wire.limits import DEFAULT_LIMITS, ComplexityLimits

T = TypeVar("T")
_Change: TypeAlias = tuple[KubeObject | None, KubeObject | None] | Assumption | OwnWrite
"""A change that a watch reported (the old and the new object), an assumption to forget, or an own write."""


class SharedSnapshot:
    """A Snapshot that informers update, and that one borrower at a time may use.

    Args:
        kinds: the watched kinds, for :attr:`sizes`.
        limits: the complexity limits per namespace.
        clock: monotonic clock.
    """

    def __init__(
        self,
        kinds: Sequence[Resource] = KINDS,
        *,
        limits: ComplexityLimits = DEFAULT_LIMITS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._kinds = kinds
        self._snapshot = Snapshot(limits=limits)
        self._own_writes = OwnWrites(self._snapshot, kinds)
        self._clock = clock
        self._borrowers = _PriorityLock()
        self._queued: deque[_Change] = deque()
        self._changes = 0

    @property
    def revision(self) -> int:
        """Return the number of changes so far. It is the same only if the snapshot is the same."""
        return self._changes

    def apply(self, old: KubeObject | None, new: KubeObject | None) -> None:
        """Apply a change of an informer's store. Stores call this method on the event loop."""
        self._accept((old, new))

    def assume(self, assumption: Assumption) -> None:
        """Keep a pod on the node to which the borrower assigned it, until the watch reports it as bound or deleted.

        Only the borrower may call this method, after it has committed its changes.
        """
        self._changes += 1
        self._own_writes.assume(assumption)

    def forget(self, assumption: Assumption) -> None:
        """Make an assumed pod pending again, because it was not bound. Its reserved volumes become available."""
        self._accept(assumption)

    def record(self, write: OwnWrite) -> None:
        """Show a granted write of this process until the watch reports it."""
        self._accept(write)

    @asynccontextmanager
    async def borrow(self, *, short: bool = False, namespace: str = "") -> AsyncIterator[Snapshot]:
        """Lend the snapshot exclusively, possibly to another thread. The borrower must undo all tentative changes.

        Planners are served in order. Short borrowers that are waiting when a planner returns the snapshot are served
        before the next planner, so they wait for at most the rest of one plan. Short borrowers that arrive later wait
        for the next planner, so a stream of them does not delay planners.

        Args:
            short: whether the borrower returns the snapshot within milliseconds, as the validation of an action does.
            namespace: the namespace for which a short borrower works. Namespaces are served round-robin, so that many
                evictions in one namespace do not delay those in other namespaces.
        """
        await self._borrowers.enter(short=short, namespace=namespace)
        try:
            await self._apply_queued()
            self._own_writes.expire(self._clock.monotonic())
            yield self._snapshot
        finally:
            try:
                await self._apply_queued()
            finally:
                self._borrowers.leave()

    @property
    def too_complex(self) -> dict[str, int]:
        """Return the number of pods that are too complex to be moved or placed, by reason code."""
        return self._snapshot.complexity.numbers()

    @property
    def sizes(self) -> dict[str, int]:
        """Return the number of objects in the snapshot, by the plural name of their kind.

        If several API groups have a kind with this plural name, the group is appended.
        """
        snapshot = self._snapshot
        counted = {"nodes": len(snapshot.nodes), "pods": len(snapshot.pods)}
        shelved = {
            resource.name if resource in NODE_GROUPS else resource.plural: len(
                snapshot.objects.of(TYPES[resource.type_name])
            )
            for resource in self._kinds
            if resource.plural not in counted
        }
        return counted | shelved

    async def _apply_queued(self) -> None:
        """Apply the queued changes in time slices.

        Thousands of changes are queued during a long plan of a busy cluster. If the borrower is cancelled in the
        meantime, the remaining changes are applied first, so that none is lost.
        """
        cancelled: asyncio.CancelledError | None = None
        slice_ = TimeSlice()
        while self._queued:
            self._apply(self._queued.popleft())
            if slice_.over:
                try:
                    await slice_.pause()
                except asyncio.CancelledError as error:
                    cancelled = error
        if cancelled is not None:
            raise cancelled

    def _accept(self, change: _Change) -> None:
        self._changes += 1
        if self._borrowers.active:
            self._queued.append(change)
        else:
            self._apply(change)

    def _apply(self, change: _Change) -> None:
        if isinstance(change, Assumption):
            self._own_writes.forget(change)
        elif isinstance(change, OwnWrite):
            self._own_writes.record(change)
        else:
            old, new = change
            if self._own_writes:
                new = self._own_writes.apply(old, new)
            if new is not None:
                self._snapshot.put(new)
            elif old is not None:
                self._snapshot.remove(old)


class _PriorityLock:
    """A lock with separate queues for planners and short borrowers.

    Short borrowers that are waiting when a planner releases the lock are served before the next planner. The lock is
    handed over directly, so no borrower is waiting while :attr:`active` is false.
    """

    def __init__(self) -> None:
        self.active = False
        self._planners: deque[asyncio.Future[None]] = deque()
        self._short = _WaitersByNamespace()
        self._before_planner: int | None = None
        """Number of short borrowers to serve before the next planner, or ``None`` until the current borrower releases
        the lock."""

    async def enter(self, *, short: bool, namespace: str = "") -> None:
        if not self.active:
            self.active, self._before_planner = True, None
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if short:
            self._short.append(namespace, waiter)
        else:
            self._planners.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():  # this borrower was cancelled right after it got the lock
                self.leave()
            raise

    def leave(self) -> None:
        while self._planners and self._planners[0].cancelled():
            self._planners.popleft()
        self._short.drop_cancelled()
        if self._before_planner is None:
            self._before_planner = len(self._short)
        if self._short and (self._before_planner > 0 or not self._planners):
            self._before_planner = max(0, self._before_planner - 1)
            self._short.popleft().set_result(None)
        elif self._planners:
            self._before_planner = None
            self._planners.popleft().set_result(None)
        else:
            self.active = False


class _WaitersByNamespace:
    """Futures of waiting borrowers, with a queue for each namespace. The namespaces are served round-robin."""

    def __init__(self) -> None:
        self._queued: dict[str, deque[asyncio.Future[None]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queued.values()))

    def append(self, namespace: str, waiter: asyncio.Future[None]) -> None:
        """Append a waiting borrower's future to the queue of its namespace."""
        self._queued.setdefault(namespace, deque()).append(waiter)

    def popleft(self) -> asyncio.Future[None]:
        """Remove and return the first future of the namespace that was served least recently."""
        namespace = next(iter(self._queued))
        queue = self._queued.pop(namespace)
        waiter = queue.popleft()
        if queue:
            self._queued[namespace] = queue
        return waiter

    def drop_cancelled(self) -> None:
        for namespace, queue in list(self._queued.items()):
            left = deque(waiter for waiter in queue if not waiter.cancelled())
            if left:
                self._queued[namespace] = left
            else:
                del self._queued[namespace]


_FREED: Final = 100
"""Number of objects that :func:`free` deletes at once."""


async def free(objects: list[Any]) -> None:
    """Delete the elements of a list in a thread, and let other threads run in between.

    If the event loop deleted a plan with 100,000 actions at once, no other task would run for 60 ms.
    """
    await in_thread(partial(_free, objects))


def _free(objects: list[Any]) -> None:
    while objects:
        del objects[-_FREED:]


async def in_thread(work: Callable[[], T]) -> T:
    """Run a function in a thread, and wait until it ends even if the caller is cancelled.

    The caller lends objects to the thread, so it must not continue before the thread has ended.
    """
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        while not working.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({working})
        raise
