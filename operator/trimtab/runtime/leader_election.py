"""One leader among the replicas, by a Lease: client-go's protocol, so that trimtab can be told by the usual means.

Clocks never have to agree. A candidate counts from the moment it *saw* the lease change, on its own monotonic clock,
and takes over only when the lease's duration (15 s) has passed without another change. The leader counts from the
moment it *sent* its last successful renewal, which is before anybody can have seen it, and gives up after the renew
deadline (10 s). The 5 seconds between are for the rest of the process to end in: code that still runs after a lost
lease is not trusted to stop by itself, so the caller exits. What a former leader must never do (an eviction) asks
:attr:`LeaderElector.leading` first, which looks at the time alone: it turns false even in a process that was paused.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from msgspec import Struct

from trimtab.kube.api import Api, ApiError, Conflict, NotFound, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.lease import Lease, LeaseLock

logger = logging.getLogger(__name__)

NEVER: Final = float("-inf")
_TOO_SHORT: Final = 0.001  # seconds: no request is answered in so little, and waiting for less may not pass at all


class Timings(Struct, frozen=True, kw_only=True):
    """How long things take, in seconds; client-go's defaults.

    Attributes:
        lease_duration: others wait so long after the last renewal they saw.
        renew_deadline: the leader gives up so long after the last renewal it sent; less than the duration.
        retry_period: between two tries.
        jitter: a candidate waits up to so many retry periods longer, so that candidates spread.
    """

    lease_duration: int = 15
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    jitter: float = 1.2

    def __post_init__(self) -> None:
        if not 0 < self.retry_period * self.jitter < self.renew_deadline < self.lease_duration:
            raise ValueError(
                f"retry_period x jitter ({self.retry_period} x {self.jitter}) must be less than renew_deadline "
                f"({self.renew_deadline}), and that less than lease_duration ({self.lease_duration})"
            )


def unique_identity() -> str:
    """The pod's name and something that no other process has: a restarted container is another candidate."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class LeaderElector:
    """A candidate for a Lease.

    ::

        async with LeaderElector(api, namespace=namespace, name="trimtab") as elector:
            await elector.acquire()            # waits for as long as another one leads
            …                                  # lead, until done or until elector.lost is set
                                               # leaving the block releases the lease

    Attributes:
        identity: ours, as it stands in the lease.
        lost: set once the lease is lost; then :attr:`lost_because` says why, and the process must end.
    """

    def __init__(
        self,
        api: Api,
        *,
        namespace: str,
        name: str,
        identity: str = "",
        timings: Timings | None = None,
        clock: Clock = SYSTEM_CLOCK,
        random: Callable[[], float] = random.random,
    ) -> None:
        """Prepare; nothing is asked before :meth:`acquire`.

        Args:
            api: where the lease is.
            namespace: of the lease; it must exist.
            name: of the lease.
            identity: unique among the candidates, even over restarts; by default :func:`unique_identity`.
            timings: the protocol's times.
            clock: the time.
            random: in [0, 1), for the jitter.
        """
        self.identity = identity or unique_identity()
        self.lost = asyncio.Event()
        self.lost_because = ""
        self._lock = LeaseLock(api, namespace=namespace, name=name)
        self._timings = timings or Timings()
        self._clock = clock
        self._random = random
        self._observed: Lease | None = None
        self._observed_at = NEVER
        self._renewed_at = NEVER
        self._renewing: asyncio.Task[None] | None = None
        self._complaint = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.release()

    @property
    def leading(self) -> bool:
        """Whether nobody else can lead at this moment: a renewal of ours is younger than the renew deadline."""
        return not self.lost.is_set() and self._clock.monotonic() < self._deadline

    @property
    def holder(self) -> str:
        """Who was last seen to hold the lease; ``""`` for nobody."""
        return self._observed.holder if self._observed is not None else ""

    @property
    def _deadline(self) -> float:
        return self._renewed_at + self._timings.renew_deadline

    async def acquire(self) -> None:
        """Wait until we lead, however long; from then on the lease is renewed by a task of its own.

        Refusals of the API server (RBAC, no such namespace) are logged and tried again: they are mended while we wait.
        """
        while not await self._try():
            await self._clock.sleep(self._timings.retry_period * (1.0 + self._timings.jitter * self._random()))
        logger.info("Became leader: %s is held by %s", self._lock, self.identity)
        self._renewing = asyncio.create_task(self._renew(), name="leader-election")

    async def release(self) -> None:
        """Stop renewing and let another one in at once, if we lead. Call it when the work has stopped, not before."""
        renewing, self._renewing = self._renewing, None
        if renewing is None:
            return
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        if self.lost.is_set() or self._observed is None or self._observed.holder != self.identity:
            return
        self._renewed_at = NEVER
        try:
            await self._store(self._observed.released(now=self._clock.now()))
        except (ApiError, Unreachable, TimeoutError) as error:
            logger.warning("Cannot release %s, others wait until it ends: %s", self._lock, error)
        else:
            logger.info("Released %s", self._lock)

    async def _renew(self) -> None:
        """Renew until lost. Whatever ends this task, it must not end without telling."""
        try:
            await self._renew_until_lost()
        except Exception as error:
            logger.exception("Renewing %s failed", self._lock)
            self._lose(f"renewing it failed: {error!r}")

    async def _renew_until_lost(self) -> None:
        while not self.lost.is_set():
            left = self._deadline - self._clock.monotonic()
            await self._clock.sleep(min(self._timings.retry_period, left))
            left = self._deadline - self._clock.monotonic()
            if left <= _TOO_SHORT:
                self._lose(f"no renewal for {self._timings.renew_deadline:g} s")
                return
            try:
                async with asyncio.timeout(left):
                    renewed = await self._try()
            except TimeoutError:
                continue
            if not renewed and self.holder != self.identity:
                self._lose(f"it is held by {self.holder or 'nobody'}")

    def _lose(self, because: str) -> None:
        self.lost_because = f"{self._lock} is lost: {because}"
        logger.error("%s", self.lost_because)
        self.lost.set()

    async def _try(self) -> bool:
        """Take or renew the lease if that may be; say so once where the API server does not let us."""
        try:
            taken = await self._take()
        except Conflict:  # somebody was faster; what they wrote is seen at the next try
            return False
        except (ApiError, Unreachable, TimeoutError) as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                logger.warning("Cannot take or renew %s: %s", self._lock, error)
            return False
        self._complaint = ""
        return taken

    async def _take(self) -> bool:
        ours = self._observed if self._observed is not None and self._observed.holder == self.identity else None
        if ours is not None and self.leading:  # a renewal takes one request, not two
            try:
                return await self._hold(ours)
            except (Conflict, NotFound):
                pass  # somebody wrote or deleted it; look
        lease = await self._lock.read(timeout=self._timeout) or Lease()
        self._observe(lease)
        if lease.holder not in ("", self.identity) and not self._expired(lease):
            return False
        return await self._hold(lease)

    async def _hold(self, lease: Lease) -> bool:
        sent_at = self._clock.monotonic()
        duration = self._timings.lease_duration
        await self._store(lease.held_by(self.identity, duration=duration, now=self._clock.now()))
        self._renewed_at = sent_at
        return True

    async def _store(self, lease: Lease) -> None:
        self._observe(await self._lock.write(lease, timeout=self._timeout))

    def _observe(self, lease: Lease) -> None:
        if lease == self._observed:
            return
        if lease.holder not in ("", self.identity, self.holder):
            logger.info("%s is held by %s", self._lock, lease.holder)
        self._observed = lease
        self._observed_at = self._clock.monotonic()

    def _expired(self, lease: Lease) -> bool:
        duration = lease.duration or self._timings.lease_duration
        return self._clock.monotonic() >= self._observed_at + duration

    @property
    def _timeout(self) -> float:
        """Of one request: half of the deadline, so that one that hangs leaves time for another."""
        return self._timings.renew_deadline / 2
