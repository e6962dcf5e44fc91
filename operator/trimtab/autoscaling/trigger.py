"""What makes a pass begin before its period is over: a pod for which there is no node, or a machine that failed.

Listeners of the stores call this on each change of a pod, thousands a second when a cluster is busy: they compare a few
fields and set an event.
"""

from __future__ import annotations

import asyncio
from typing import Final

from trimtab.autoscaling.scale_up.pending import unschedulable
from trimtab.kube.clock import Clock
from trimtab.kube.objects import AnyMachine, Pod

QUIET: Final = 0.1
"""Seconds without another reason after which a pass begins: pods of one owner come together, and are planned as one."""

LONGEST_GATHERING: Final = 0.5
"""Seconds after the first reason at which a pass begins all the same."""


class Trigger:
    """Gathers reasons for a pass.

    Args:
        clock: the time.

    Attributes:
        bypassed: schedulers whose pods are a reason before the scheduler has said that it finds no node for them.
    """

    def __init__(self, clock: Clock) -> None:
        self.bypassed: frozenset[str] = frozenset()
        self._clock = clock
        self._set = asyncio.Event()
        self._reasons = 0

    @property
    def pending(self) -> bool:
        """Whether there is a reason that no pass has begun for."""
        return self._set.is_set()

    def wake(self) -> None:
        """There is a reason."""
        self._reasons += 1
        self._set.set()

    def clear(self) -> None:
        """A pass begins: it sees all that has been a reason so far."""
        self._set.clear()

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """A listener of the store of pods: a reason is one of which the scheduler now says that it finds no node."""
        if new is None or new.node or new.deleted is not None:
            return
        if unschedulable(new):
            if old is None or not unschedulable(old):
                self.wake()
        elif old is None and self.bypassed and new.spec.scheduler_name in self.bypassed:
            self.wake()

    def machine_changed(self, old: AnyMachine | None, new: AnyMachine | None) -> None:
        """A listener of the stores of machines: a reason is one that has failed, for its group will not do."""
        if new is not None and _failed(new) and not (old is not None and _failed(old)):
            self.wake()

    async def wait(self, seconds: float) -> None:
        """Wait for a reason, and then for those that come with it; at most so long."""
        if not await self._reason(seconds):
            return
        latest = self._clock.monotonic() + LONGEST_GATHERING
        while self._clock.monotonic() < latest:
            before = self._reasons
            await self._clock.sleep(QUIET)
            if self._reasons == before:
                return

    async def _reason(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._set.wait()
        except TimeoutError:
            return False
        return True


def _failed(machine: AnyMachine) -> bool:
    return bool(machine.phase == "Failed" or machine.error_reason or machine.error_message)
