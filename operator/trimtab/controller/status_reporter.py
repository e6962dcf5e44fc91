"""The status of the one object that a controller reconciles.

    status = StatusReporter(writer, clock, reason=reasons.INVALID_POLICY, idle="the spec is invalid: no pod is moved")
    status.resume(wire)                                  # status.resumed has the counts of earlier processes
    status.put(build_status(observed, status.current))   # after an iteration
    status.failed(error, generation=3)                   # an iteration raised an exception

A DeschedulerPolicy reports the steps of a long cycle and has its own
:class:`~trimtab.descheduling.report.status.PolicyStatus`; the replicas of the placement admission write parts of one
status.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic

from trimtab.api import reasons
from trimtab.api.conditions import ConditionUpdate
from trimtab.controller.reporter import R, describe_error, invalid_conditions, next_status, not_ready
from trimtab.controller.status_writer import StatusWriter
from trimtab.kube.clock import Clock
from trimtab.kube.errors import InputError


class StatusReporter(Generic[R]):
    """Owns the status of an object while its controller runs.

    Args:
        writer: writes the status. It decides when
            (:func:`~trimtab.controller.status_writer.write_when`).
        clock: provides the time.
        reason: reason of Ready and Degraded while the spec is invalid.
        idle: what the controller does not do while the spec is invalid, as the message of Progressing.

    Attributes:
        resumed: the status that an earlier process wrote, for counts that continue.
    """

    def __init__(self, writer: StatusWriter[R], clock: Clock, *, reason: str, idle: str) -> None:
        self.resumed: R = writer.status
        self._writer: StatusWriter[R] = writer
        self._clock = clock
        self._reason = reason
        self._idle = idle

    @property
    def current(self) -> R:
        """Return the status as it was last reported."""
        current: R = self._writer.status
        return current

    def resume(self, wire: Mapping[str, Any]) -> None:
        """Start from the status in the cluster."""
        self._writer.resume(wire)
        self.resumed = self._writer.status

    def put(self, status: R) -> None:
        """Report the status after an iteration."""
        self._writer.put(status)

    def set(self, *conditions: ConditionUpdate, generation: int, **fields: Any) -> None:
        """Change conditions and fields because no iteration can run."""
        self.put(next_status(self.current, conditions, generation=generation, now=self._clock.now(), **fields))

    def invalid(self, problem: InputError, *, generation: int, **fields: Any) -> None:
        """Report that the spec is invalid. The fields are those that depend on a valid spec."""
        self.set(*invalid_conditions(self._reason, str(problem), self._idle), generation=generation, **fields)

    def failed(self, error: Exception, *, generation: int) -> None:
        """Report that an iteration failed. The next successful one sets Ready again."""
        self.set(*not_ready(reasons.ITERATION_FAILED, describe_error(error)), generation=generation)

    async def stop(self, *, everything: bool = False) -> None:
        """Write the status, and stop; see :meth:`~trimtab.controller.status_writer.StatusWriter.stop`."""
        await self._writer.stop(everything=everything)
