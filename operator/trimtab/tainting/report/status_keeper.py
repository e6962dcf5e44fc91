"""Writing the TaintManager's status: the newest one, one write at a time, at a pace that fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.api.descheduler_status import status_patch
from trimtab.api.taint_manager import NAME
from trimtab.api.taint_manager_status import PodCounts, TaintManagerStatus
from trimtab.kube import status_keeper
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock
from trimtab.kube.resources import TAINT_MANAGERS
from trimtab.tainting.report.status import worth_writing


class StatusKeeper(status_keeper.StatusKeeper[TaintManagerStatus]):
    """The status of a TaintManager.

    Args:
        api: the API server.
        clock: the time.
        name: of the TaintManager.

    Attributes:
        base: what earlier processes counted.
    """

    def __init__(self, api: Api, clock: Clock, *, name: str = NAME) -> None:
        super().__init__(
            api,
            clock,
            resource=TAINT_MANAGERS,
            name=name,
            empty=TaintManagerStatus(),
            patch=status_patch,
            worth_writing=worth_writing,
        )
        self.base = PodCounts()

    def take_up(self, wire: Mapping[str, Any]) -> None:
        """Go on from the status that stands in the cluster, and from its counts."""
        super().take_up(wire)
        self.base = self.status.counts
