"""Wakes the autoscaler's loop early if a pod becomes unschedulable or a machine fails.

The informers' stores call the listeners in this module on each change of a pod, thousands of times per second in a busy
cluster. Therefore the listeners only compare a few fields and set an event.
"""

from __future__ import annotations

from typing import Final

from trimtab.autoscaling.scale_up.pending_pods import unschedulable
from trimtab.controller.loop import Wakeup
from trimtab.kube.clock import Clock
from trimtab.kube.objects import AnyMachine, Pod

QUIET_SECONDS: Final = 0.1
"""An iteration starts after this number of seconds without a further wakeup.

Pods of one owner are created together and should be planned together.
"""

MAX_GATHER_SECONDS: Final = 0.5
"""Maximum seconds from the first wakeup to the start of an iteration."""


class Trigger(Wakeup):
    """Collects wakeups, so that one iteration handles a burst of changes.

    Args:
        clock: the clock.

    Attributes:
        bypassed_schedulers: names of schedulers whose pods wake the loop as soon as they are created, before the
            scheduler has reported them as unschedulable.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.bypassed_schedulers: frozenset[str] = frozenset()
        self._clock = clock
        self._reasons = 0

    @property
    def pending(self) -> bool:
        """Return whether a requested wakeup has not been handled by an iteration yet."""
        return self._event.is_set()

    def wake(self) -> None:
        """Request an iteration."""
        self._reasons += 1
        super().wake()

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Wake the loop if the pod became unschedulable. This is a listener of the pod store."""
        if new is None or new.node or new.deleted is not None:
            return
        if unschedulable(new):
            if old is None or not unschedulable(old):
                self.wake()
        elif old is None and self.bypassed_schedulers and new.spec.scheduler_name in self.bypassed_schedulers:
            self.wake()

    def machine_changed(self, old: AnyMachine | None, new: AnyMachine | None) -> None:
        """Wake the loop if the machine failed. This is a listener of the machine stores.

        The group of a failed machine cannot provide the requested node.
        """
        if new is not None and _failed(new) and not (old is not None and _failed(old)):
            self.wake()

    async def wait(self, seconds: float | None) -> None:
        """Wait for a wakeup or the timeout, and after a wakeup until no further wakeups follow."""
        await super().wait(seconds)
        if not self.pending:
            return
        latest = self._clock.monotonic() + MAX_GATHER_SECONDS
        while self._clock.monotonic() < latest:
            before = self._reasons
            await self._clock.sleep(QUIET_SECONDS)
            if self._reasons == before:
                return


def _failed(machine: AnyMachine) -> bool:
    return bool(machine.phase == "Failed" or machine.error_reason or machine.error_message)
