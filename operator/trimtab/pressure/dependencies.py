"""The dependencies of the node-pressure controller, which the composition root creates once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from msgspec import Struct

from trimtab.api.node_pressure_policy import NodePressurePolicySpec
from trimtab.cluster.lister import Lister
from trimtab.controller.metrics import WorkQueueMetrics
from trimtab.controller.permissions import Requirement
from trimtab.disruption.evictor import Evictor
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock
from trimtab.kube.objects import Node
from trimtab.pressure.measurement import NodeMeasurement, Reading
from trimtab.pressure.report import PressureReporter


class PolicyReadings(Protocol):
    """The latest readings of the nodes of one policy; :class:`~trimtab.pressure.readings.Readings` implements it."""

    def latest(self, name: str) -> Reading | None:
        """Return the result of the last attempt to read a node; ``None`` before the first one."""
        ...

    def history(self, name: str) -> Sequence[NodeMeasurement]:
        """Return the last measurements of a node, oldest first."""
        ...

    async def refresh(
        self,
        nodes: Sequence[Node],
        *,
        only_memory: bool,
        interval: float = 0.0,
        pods_needed: Callable[[NodeMeasurement], bool],
    ) -> None:
        """Read all nodes, and forget the nodes that are not listed.

        Args:
            nodes: the nodes of the policy.
            only_memory: whether no threshold of the policy needs disks and PIDs.
            interval: seconds over which the reads are spread.
            pods_needed: returns whether the usage of a node's pods is needed.
        """
        ...

    async def close(self) -> None:
        """Cancel the reads in progress."""
        ...


class PressureDependencies(Struct, frozen=True, kw_only=True):
    """Dependencies that the controllers of NodePressurePolicies share.

    Attributes:
        api: the API client. It sends no request once another process may be the leader
            (:class:`~trimtab.kube.api.LeaderOnlyApi`).
        evictor: admits and sends the evictions and deletions of all controllers.
        lister: the caches of nodes and pods.
        clock: the wall clock and the monotonic clock.
        stale: returns the reason why the caches are too old to act on; ``None`` if they are up to date.
        reporter: reports in events and metrics.
        readings: creates the readings of a policy.
        queue_metrics: the metrics of the work queues.
        close: closes the connections to kubelets.
        requirements: returns the permissions that a policy needs.
    """

    api: Api
    evictor: Evictor
    lister: Lister
    clock: Clock
    stale: Callable[[], str | None]
    reporter: PressureReporter
    readings: Callable[[], PolicyReadings]
    queue_metrics: WorkQueueMetrics
    close: Callable[[], Awaitable[None]]
    requirements: Callable[[NodePressurePolicySpec], tuple[Requirement, ...]] = lambda _: ()
