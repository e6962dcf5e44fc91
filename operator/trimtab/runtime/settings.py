"""What ``trimtab run`` can be told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from trimtab.autoscaling.external import ExternalSettings
    from trimtab.cluster.prometheus import PrometheusSettings
    from trimtab.descheduling.policy_conflicts import Scoring

DESCHEDULER: Final = "descheduler"
AUTOSCALER: Final = "autoscaler"
TAINTING: Final = "tainting"

CONTROLLERS: Final = (DESCHEDULER, AUTOSCALER, TAINTING)
"""The controllers that exist; each brings its own RBAC in the chart."""


class Settings(Struct, frozen=True, kw_only=True):
    """One operator process.

    Attributes:
        controllers: which of :data:`CONTROLLERS` run.
        kubeconfig: a file; ``""`` to look where kubectl does, then for a service account.
        context: of the kubeconfig; ``""`` for its current one.
        listen_host: where /healthz, /readyz and /metrics are served; ``""`` for all addresses, of IPv4 and IPv6.
        listen_port: 0 to choose a free one.
        leader_elect: whether to hold a Lease while controllers run.
        lease_name: the Lease's name.
        lease_namespace: the Lease's namespace; ``""`` for the pod's or the context's.
        identity: who holds the Lease; ``""`` for host name and a random part.
        scoring: how the cluster's scheduler scores nodes; ``None`` where nobody has said.
        prometheus: whom policies' queries are put to; ``None`` where nobody has said.
        external: who makes nodes beside machine APIs, and who chooses among groups; ``None`` where nobody does.
        compatible_metrics: whether the autoscaler counts by upstream's names (``cluster_autoscaler_…``) as well.
    """

    controllers: tuple[str, ...] = CONTROLLERS
    kubeconfig: str = ""
    context: str = ""
    listen_host: str = ""
    listen_port: int = 8080
    leader_elect: bool = True
    lease_name: str = "trimtab"
    lease_namespace: str = ""
    identity: str = ""
    scoring: Scoring | None = None
    prometheus: PrometheusSettings | None = None
    external: ExternalSettings | None = None
    compatible_metrics: bool = False
