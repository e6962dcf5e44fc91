"""The node lifecycle's loop. It runs in mode Own alone, in one process at a time."""

from __future__ import annotations

from trimtab.api.taint_manager_status import ZoneStatus
from trimtab.kube.objects import Lease, Node
from trimtab.tainting.lifecycle_settings import LifecycleSettings
from trimtab.tainting.services import Services


class Lifecycle:
    """Looks at the nodes whenever something has changed or is due, and does what :mod:`~trimtab.tainting.planner` says.

    Attributes:
        nodes_tainted: NoExecute taints that this process has put on nodes.
        held: why nothing is done at present, one of :mod:`trimtab.api.reasons`; empty where it is.
        problem: what keeps the loop from going on, in words; empty where nothing does.
    """

    def __init__(self, services: Services, settings: LifecycleSettings) -> None:
        self._services = services
        self._settings = settings
        self.nodes_tainted = 0
        self.held = ""
        self.problem = ""

    @property
    def zones(self) -> tuple[ZoneStatus, ...]:
        """All zones as of the last pass, by name."""
        raise NotImplementedError

    @property
    def waiting(self) -> int:
        """How many nodes wait to be tainted."""
        raise NotImplementedError

    def configure(self, settings: LifecycleSettings) -> None:
        """Go by these settings from now on."""
        raise NotImplementedError

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """A node came, changed or went; the picture has it already. A mere heartbeat wakes nobody."""
        raise NotImplementedError

    def lease_changed(self, old: Lease | None, new: Lease | None) -> None:
        """A Lease came, was renewed or went; only the time is noted at which that was seen."""
        raise NotImplementedError

    async def run(self) -> None:
        """Read the record back, then look and act until cancelled."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Begin nothing more, let what was begun end, and write the record."""
        raise NotImplementedError
