"""The settings of ``trimtab run``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from trimtab.kube.wire.limits import DEFAULT_LIMITS, ComplexityLimits

if TYPE_CHECKING:
    from trimtab.autoscaling.external import ExternalSettings
    from trimtab.cluster.usage.prometheus import PrometheusSettings
    from trimtab.descheduling.policy_conflicts import Scoring
    from trimtab.disruption.limits import EvictionLimits
    from trimtab.pressure.kubelet_client import KubeletClientSettings
    from trimtab.runtime.admission import AdmissionSettings
    from trimtab.runtime.http.server import Limits
    from trimtab.runtime.inspection.service import InspectionSettings
    from trimtab.runtime.metrics.server import MetricsSettings

DESCHEDULER: Final = "descheduler"
AUTOSCALER: Final = "autoscaler"
TAINTING: Final = "tainting"
SCHEDULER: Final = "scheduler"
PRESSURE: Final = "pressure"

CONTROLLERS: Final = (DESCHEDULER, AUTOSCALER, TAINTING, SCHEDULER, PRESSURE)
"""All controllers. Each has its own RBAC roles in the chart."""

DEFAULT_CONTROLLERS: Final = (DESCHEDULER, AUTOSCALER, TAINTING)
"""The controllers that run by default.

The scheduler is not one of them, because it may replace kube-scheduler. The node-pressure controller is not, because it
needs access to the kubelets.
"""


class Settings(Struct, frozen=True, kw_only=True):
    """The settings of one operator process. Each setting is a flag of ``trimtab run``.

    Attributes:
        admission: the settings of the role ``admission``; ``None`` for the role ``controllers``.
        controllers: names of the controllers to run, from :data:`CONTROLLERS`.
        kubeconfig: path of a kubeconfig file; ``""`` for kubectl's default locations and then the pod's service
            account.
        context: name of the context in the kubeconfig; ``""`` for the current one.
        listen_host: the address of /healthz, /readyz and /metrics; ``""`` for all IPv4 and IPv6 addresses.
        listen_port: the port of /healthz, /readyz and /metrics; 0 for any free port.
        http_limits: the limits for clients of probes and metrics; ``None`` for the defaults.
        metrics: the address and security of /metrics; ``None`` for plain HTTP on the port of the probes.
        inspection: the settings of the inspection API; ``None`` to not serve it.
        leader_elect: whether the process must hold a Lease while the controllers run.
        lease_name: the name of the Lease.
        lease_namespace: namespace of the Lease; ``""`` for the namespace of the pod or of the kubeconfig context.
        identity: the holder identity in the Lease; ``""`` for the host name and a UUID.
        scoring: the scoring configuration of the cluster's scheduler; ``None`` if it is unknown.
        prometheus: the Prometheus server for the queries of policies; ``None`` if none is configured.
        external: external providers of node groups and the gRPC expander; ``None`` if none is configured.
        kubelets: how the node-pressure controller reads the stats of kubelets; ``None`` for the defaults.
        priority_expander_namespace: the namespace of the ConfigMap of the expander Priority; ``""`` for the operator's
            namespace, then those of the MachineAutoscalers.
        complexity: the complexity limits of pods and namespaces.
        eviction_limits: the limits of evictions in all controllers together; ``None`` for no limits.
        compatible_metrics: whether to export the autoscaler's metrics also under upstream's names
            (``cluster_autoscaler_…``).
        mark_delay: minimum age of a delete annotation on a machine in seconds before the autoscaler lowers the size of
            the node group.
        shutdown_timeout: seconds after SIGTERM within which the process exits, even if a task hangs.
        plan_deadline: time limit of one plan in seconds; ``None`` for the default of each controller.
        history_records: maximum number of HistoryRecords; 0 to keep no history.
        history_max_age: seconds after which entries of the history are deleted.
        max_inactivity: seconds without progress of a component after which the process exits.
        max_failing_time: seconds without a success of a failing component after which the process exits.
    """

    admission: AdmissionSettings | None = None
    controllers: tuple[str, ...] = DEFAULT_CONTROLLERS
    kubeconfig: str = ""
    context: str = ""
    listen_host: str = ""
    listen_port: int = 8080
    http_limits: Limits | None = None
    metrics: MetricsSettings | None = None
    inspection: InspectionSettings | None = None
    leader_elect: bool = True
    lease_name: str = "trimtab"
    lease_namespace: str = ""
    identity: str = ""
    scoring: Scoring | None = None
    prometheus: PrometheusSettings | None = None
    external: ExternalSettings | None = None
    kubelets: KubeletClientSettings | None = None
    priority_expander_namespace: str = ""
    complexity: ComplexityLimits = DEFAULT_LIMITS
    eviction_limits: EvictionLimits | None = None
    compatible_metrics: bool = False
    mark_delay: float = 15.0
    shutdown_timeout: float = 55.0
    plan_deadline: float | None = None
    history_records: int = 40
    history_max_age: float = 7 * 86400.0
    max_inactivity: float = 600.0
    max_failing_time: float = 900.0
