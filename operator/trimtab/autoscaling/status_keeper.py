"""Writing the ClusterAutoscaler's status: the newest one, one write at a time, and never in a pass's way."""

from __future__ import annotations

from trimtab.api.cluster_autoscaler import NAME
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.descheduler_status import status_patch
from trimtab.autoscaling.report import worth_writing
from trimtab.kube import status_keeper
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock
from trimtab.kube.resources import CLUSTER_AUTOSCALERS


class StatusKeeper(status_keeper.StatusKeeper[ClusterAutoscalerStatus]):
    """The status of the one ClusterAutoscaler.

    Args:
        api: the API server.
        clock: the time.
        name: of the ClusterAutoscaler.
    """

    def __init__(self, api: Api, clock: Clock, *, name: str = NAME) -> None:
        super().__init__(
            api,
            clock,
            resource=CLUSTER_AUTOSCALERS,
            name=name,
            empty=ClusterAutoscalerStatus(),
            patch=status_patch,
            worth_writing=worth_writing,
        )
