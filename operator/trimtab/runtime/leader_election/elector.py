"""Leader election among the replicas with a Lease.

It uses the protocol of client-go, so that common tools show the leader.

The clocks of the replicas need not agree. A candidate measures, on its own monotonic clock, the time since it
*observed* the last change of the Lease, and takes over when the lease duration (15 s) has passed without a change. The
leader measures the time since it *sent* its last successful renewal, which is earlier than any candidate can observe
it, and gives up after the renew deadline (10 s). The process must end within the 5 s between these two times. The
caller therefore exits when the lease is lost, instead of relying on running code to stop. Code that a former leader
must never run, such as an eviction, checks :attr:`LeaderElector.leading` first. That compares times only, so it becomes
false even in a process that was suspended.

A candidate observes the Lease by reading it, every second. It also watches the Lease, and each event causes a read at
once, so that it observes a renewal or a release within milliseconds. An event itself is not an observation: a watch may
deliver an old state late. So a watch that is forbidden, hangs, lags or ends has no effect on safety, and delays a
takeover by at most the period of the reads.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import uuid
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from msgspec import Struct

from trimtab.controller.loop import Wakeup
from trimtab.controller.progress import register_component
from trimtab.kube.api import Api, ApiError, Conflict, Forbidden, NotFound, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.runtime.leader_election.lease_lock import Lease, LeaseLock

logger = logging.getLogger(__name__)

NEVER: Final = float("-inf")
_MIN_REQUEST_TIME: Final = 0.001
"""Minimum duration of a request in seconds. A shorter sleep may not advance the clock."""

_REPORT_TIME: Final = 0.5
"""Seconds after the renew deadline within which the task that renews the lease reports the loss."""

_WATCH_RETRY: Final = 60.0
"""Seconds until the next watch after one that RBAC has forbidden or that failed with an unexpected error."""


class ElectionTimings(Struct, frozen=True, kw_only=True):
    """The timing of leader election in seconds, with client-go's defaults for the leader.

    A candidate measures ``lease_duration`` from the time at which it has read the last renewal. Its watch causes that
    read as soon as the renewal is stored, so the candidate takes over ``lease_duration`` after the renewal, plus the
    duration of the requests. Without a watch it takes over up to ``read_period`` later. client-go's candidates do not
    watch, and read every 2.0 to 4.4 s. Reading more often is as safe: no candidate reads a renewal before the leader
    has sent it.

    Attributes:
        lease_duration: time since the last observed renewal after which a candidate may take over.
        renew_deadline: time since the last renewal after which the leader gives up; less than ``lease_duration``.
        retry_period: time between two renewals of the leader.
        read_period: time between two attempts of a candidate, if its watch reports no change.
    """

    lease_duration: int = 15
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    read_period: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.retry_period < self.renew_deadline < self.lease_duration:
            raise ValueError(
                f"retry_period ({self.retry_period}) must be less than renew_deadline ({self.renew_deadline}), and "
                f"that less than lease_duration ({self.lease_duration})"
            )
        if not 0 < self.read_period < self.lease_duration:
            raise ValueError(
                f"read_period ({self.read_period}) must be less than lease_duration ({self.lease_duration})"
            )


def unique_identity() -> str:
    """Return the pod's name and a random UUID. A restarted container therefore is a new candidate."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class LeaderElector:
    """A candidate for a Lease.

    ::

        async with LeaderElector(api, namespace=namespace, name="trimtab") as elector:
            await elector.acquire()            # waits while another candidate leads
            …                                  # act until done, or until elector.lost is set
                                               # leaving the block releases the lease

    Attributes:
        identity: the holder identity of this candidate.
        lost: set when the lease is lost. The process must then exit.
        lost_reason: the reason why the lease was lost; empty until then.
    """

    def __init__(
        self,
        api: Api,
        *,
        namespace: str,
        name: str,
        identity: str = "",
        timings: ElectionTimings | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Create a candidate; it sends no request before :meth:`acquire`.

        Args:
            api: the API client.
            namespace: namespace of the Lease, which must exist.
            name: name of the Lease.
            identity: an identity that is unique among all candidates, including restarted ones; by default
                :func:`unique_identity`.
            timings: the timings of leader election.
            clock: provides the time.
        """
        self.identity = identity or unique_identity()
        self.lost = asyncio.Event()
        self.lost_reason = ""
        self._lock = LeaseLock(api, namespace=namespace, name=name)
        self._timings = timings or ElectionTimings()
        self._clock = clock
        self._observed: Lease | None = None
        self._observed_at = NEVER
        self._renewed_at = NEVER
        self._renewing: asyncio.Task[None] | None = None
        self._last_error = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.release()

    @property
    def leading(self) -> bool:
        """Return whether this process is the leader, and no other process can be.

        This is the case if the last renewal is within the renew deadline.
        """
        return not self.lost.is_set() and self._clock.monotonic() < self._deadline

    @property
    def holder(self) -> str:
        """Return the holder of the Lease as last observed; ``""`` for none."""
        return self._observed.holder if self._observed is not None else ""

    @property
    def _deadline(self) -> float:
        return self._renewed_at + self._timings.renew_deadline

    async def acquire(self) -> None:
        """Wait without a time limit until this process is the leader, and start the task that renews the Lease.

        If the API server rejects the request, for example because of a missing permission or namespace, log the error
        and retry.
        """
        component = register_component("leader election")
        changed = Wakeup()
        watching: asyncio.Task[None] | None = None
        try:
            while True:
                component.begin()
                changed.clear()
                if await self._try_acquire_or_renew():
                    break
                if watching is None:
                    watching = asyncio.create_task(self._watch(changed), name="watch of the Lease")
                pause = self._until_next_attempt()
                component.succeed(pause)
                await changed.wait(pause)
        finally:
            if watching is not None:
                watching.cancel()
        component.succeed()  # from now on, `until_lost` notices if the task hangs
        logger.info("Became the leader: %s holds %s", self.identity, self._lock)
        self._renewing = asyncio.create_task(self._renew(), name="leader-election")

    async def _watch(self, changed: Wakeup) -> None:
        """Wake the candidate for each change of the Lease, until cancelled.

        The leader renews the Lease several times in ``renew_deadline``, so a watch that is silent for that long may
        hang. A new watch starts at once, but at most one per ``read_period``.
        """
        while True:
            began, period = self._clock.monotonic(), self._timings.read_period
            since = "" if self._observed is None else self._observed.resource_version
            try:
                await self._lock.watch(changed.wake, since=since, idle_timeout=self._timings.renew_deadline)
            except (ApiError, Unreachable) as error:
                logger.debug("Watch of %s failed; retrying: %s", self._lock, error)
                if isinstance(error, Forbidden):
                    period = _WATCH_RETRY
            except Exception:
                logger.exception("Watch of %s failed: unexpected error", self._lock)
                period = _WATCH_RETRY
            await self._clock.sleep(began + period - self._clock.monotonic())

    def _until_next_attempt(self) -> float:
        """Return the time until a candidate's next attempt, which is no later than the expiry of the observed Lease.

        client-go waits a full retry period with jitter at the expiry as well, so its standby takes over later. If
        several candidates attempt at the same time, the API server rejects all writes but one.
        """
        wait = self._timings.read_period
        if self._observed is None or self.holder in ("", self.identity):
            return wait
        duration = self._observed.duration or self._timings.lease_duration
        left = self._observed_at + duration - self._clock.monotonic()
        return min(wait, left) if left > 0 else wait

    async def until_lost(self) -> None:
        """Wait until the lease is lost.

        A task that hangs or was cancelled reports nothing, so the lease is also lost soon after the renew deadline.
        """
        while not self.lost.is_set() and self._renewing is not None:
            left = self._deadline + _REPORT_TIME - self._clock.monotonic()
            if left <= 0.0:
                self._record_loss(
                    f"no renewal for {self._timings.renew_deadline:g} s, and the task that renews the Lease does not "
                    "report it"
                )
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self.lost.wait()
        await self.lost.wait()

    async def release(self) -> None:
        """Stop renewing and release the Lease, so that another candidate takes over immediately.

        Call it after the controllers have stopped. No-op if this process is not the leader.
        """
        renewing, self._renewing = self._renewing, None
        if renewing is None:
            return
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        if self.lost.is_set() or self._observed is None or self._observed.holder != self.identity:
            return
        self._renewed_at = NEVER
        try:
            await self._write_released(self._observed)
        except (ApiError, Unreachable, TimeoutError) as error:
            logger.warning(
                "Failed to release %s; other replicas cannot acquire the Lease until it expires: %s", self._lock, error
            )
        else:
            logger.info("Released %s", self._lock)

    async def _write_released(self, ours: Lease) -> None:
        try:
            await self._store(ours.released(now=self._clock.now()))
        except Conflict:  # the cancelled renewal was stored, or another candidate has acquired the Lease
            lease = await self._lock.read(timeout=self._timeout)
            if lease is None or lease.holder != self.identity:
                raise
            await self._store(lease.released(now=self._clock.now()))

    async def _renew(self) -> None:
        """Renew the Lease until it is lost, and set ``lost`` even after an unexpected exception."""
        try:
            await self._renew_until_lost()
        except Exception as error:
            logger.exception("Failed to renew %s: unexpected error", self._lock)
            self._record_loss(f"renewal failed: {error!r}")

    async def _renew_until_lost(self) -> None:
        while not self.lost.is_set():
            left = self._deadline - self._clock.monotonic()
            await self._clock.sleep(min(self._timings.retry_period, left))
            left = self._deadline - self._clock.monotonic()
            if left <= _MIN_REQUEST_TIME:
                self._record_loss(f"no renewal for {self._timings.renew_deadline:g} s")
                return
            try:
                async with asyncio.timeout(left):
                    renewed = await self._try_acquire_or_renew()
            except TimeoutError:
                continue
            if not renewed and self.holder != self.identity:
                self._record_loss(f"its holder is {self.holder or 'empty'}")

    def _record_loss(self, because: str) -> None:
        self.lost_reason = f"{self._lock} was lost: {because}"
        logger.error("No longer the leader: %s", self.lost_reason)
        self.lost.set()

    async def _try_acquire_or_renew(self) -> bool:
        """Try to acquire or renew the Lease, and return whether that succeeded.

        Log each error of the API server once.
        """
        try:
            taken = await self._acquire_or_renew()
        except Conflict:  # another candidate wrote first; the next attempt reads its write
            return False
        except (ApiError, Unreachable, TimeoutError) as error:
            if str(error) != self._last_error:
                self._last_error = str(error)
                logger.warning("Failed to acquire or renew %s; retrying: %s", self._lock, error)
            return False
        self._last_error = ""
        return taken

    async def _acquire_or_renew(self) -> bool:
        known = self._observed
        if known is not None and self._needs_no_read(known):
            try:
                return await self._write_held(known)
            except (Conflict, NotFound):
                pass  # it was changed or deleted; read it again
        lease = await self._lock.read(timeout=self._timeout) or Lease()
        self._observe(lease)
        if lease.holder not in ("", self.identity) and not self._expired(lease):
            return False
        return await self._write_held(lease)

    def _needs_no_read(self, observed: Lease) -> bool:
        """Return whether this is a renewal, or the takeover of a Lease that has expired.

        If another process has written the Lease since it was observed, the API server rejects the write.
        """
        if observed.holder == self.identity:
            return self.leading
        return observed.holder != "" and self._expired(observed)

    async def _write_held(self, lease: Lease) -> bool:
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
            logger.info("The holder of %s is %s", self._lock, lease.holder)
        self._observed = lease
        self._observed_at = self._clock.monotonic()

    def _expired(self, lease: Lease) -> bool:
        duration = lease.duration or self._timings.lease_duration
        return self._clock.monotonic() >= self._observed_at + duration

    @property
    def _timeout(self) -> float:
        """Return the timeout of one request. It is half the renew deadline, which leaves time for a retry."""
        return self._timings.renew_deadline / 2
