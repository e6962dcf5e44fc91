"""The pods whose time is over: each is tried until it is gone or its time is not over any more."""

from __future__ import annotations

from collections.abc import Callable

from trimtab.api.taint_manager import TaintManagerSpec
from trimtab.api.taint_manager_status import RefusedPod, StuckNode
from trimtab.tainting.deadlines.rule import Deadline
from trimtab.tainting.services import Services


class Ending:
    """Acts on deadlines that are due.

    Args:
        services: the API, the picture, clocks, who is told.
        spec: of the TaintManager.
        deadline_of: what the book has of a pod by its ``namespace/name``, ``None`` for no deadline.

    Attributes:
        deleted: pods that were deleted since the start.
        evicted: pods that were evicted since the start.
    """

    def __init__(
        self, services: Services, spec: TaintManagerSpec, *, deadline_of: Callable[[str], Deadline | None]
    ) -> None:
        self.deleted = 0
        self.evicted = 0

    @property
    def waiting(self) -> int:
        """Pods whose time is over and that have not gone yet."""
        raise NotImplementedError

    @property
    def held(self) -> int:
        """Those of them that a rate of user taints holds back."""
        raise NotImplementedError

    @property
    def refused(self) -> tuple[RefusedPod, ...]:
        """Those of them that somebody does not let go, the longest due first."""
        raise NotImplementedError

    @property
    def stuck(self) -> tuple[StuckNode, ...]:
        """Dead nodes on which pods are terminating and cannot end, by name; computed when it is asked for."""
        raise NotImplementedError

    def due(self, deadline: Deadline) -> None:
        """Take a pod whose time is over; returns at once. What is told twice is no error."""
        raise NotImplementedError

    def changed(self, key: str) -> None:
        """The book has another deadline for a pod, or none: judge it anew. Of no account for pods that are not here."""
        raise NotImplementedError

    def configure(self, spec: TaintManagerSpec) -> None:
        """Go on by another spec; in mode Observe with nothing."""
        raise NotImplementedError

    async def run(self) -> None:
        """Work until cancelled; what is in flight then is lost sight of, and found again by the next process."""
        raise NotImplementedError

    async def stop(self, seconds: float = 10.0) -> None:
        """Begin nothing further, and wait for what is in flight, at most so long; then :meth:`run` may be cancelled."""
        raise NotImplementedError
