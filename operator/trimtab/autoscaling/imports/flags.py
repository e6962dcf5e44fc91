"""The flags of cluster-autoscaler, and what becomes of each of them in trimtab.

The table has all flags of cluster-autoscaler 1.37, and those that earlier releases had. ``tests/fixtures`` has
upstream's list, with its source. A flag is *converted* to a field, *unnecessary* because trimtab needs no such setting,
or *lost* because trimtab behaves differently if it is set to something other than its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

from trimtab.api.differences import HIGH, LOW, MEDIUM, Severity

FlagType = Literal["bool", "int", "float", "duration", "string", "list", "repeated"]
Fate = Literal["converted", "unnecessary", "lost"]

CURRENT: Final = (1, 37)
"""The release whose flags the table has, and which is assumed if the image has no version."""


class Flag(Struct, frozen=True):
    """A flag of cluster-autoscaler.

    Attributes:
        type: the type of its value. A ``list`` is separated by commas; a ``repeated`` flag is given once per value.
        default: its default in the current release, as text.
        fate: what becomes of the flag.
        note: the field that it is converted to; why it is unnecessary; or what trimtab does instead.
        severity: how much it matters that a flag is lost, or low for a flag that is unnecessary.
    """

    type: FlagType
    default: str
    fate: Fate
    note: str
    severity: Severity = LOW


_CLIENT: Final = "trimtab has its own connection settings"
_LEADER: Final = "trimtab elects its leader with its own Lease (chart value leaderElection)"
_LOG: Final = "trimtab has its own log settings (chart value log)"
_CLOUD: Final = "it concerns a cloud provider that trimtab does not use"
_SPEED: Final = (
    "it limits the time or size of upstream's simulation; trimtab plans all pods and nodes within a deadline"
)
_PROVISIONING: Final = "trimtab does not process ProvisioningRequests"
_BUFFER: Final = "trimtab does not process CapacityBuffers"
_METRICS: Final = "trimtab has its own metrics"

_ROWS: Final[tuple[tuple[str, FlagType, str, Fate, str], ...]] = (
    ("add-dir-header", "bool", "false", "unnecessary", _LOG),
    ("address", "string", ":8085", "unnecessary", _METRICS),
    ("allowed-scheduler-names", "list", "", "lost", "pods of all schedulers trigger scale-ups"),
    ("alsologtostderr", "bool", "false", "unnecessary", _LOG),
    ("async-node-groups", "bool", "false", "unnecessary", "trimtab creates no node groups"),
    ("aws-use-static-instance-list", "bool", "false", "unnecessary", _CLOUD),
    ("balance-similar-node-groups", "bool", "false", "converted", "balanceSimilarNodeGroups"),
    ("balancing-ignore-label", "repeated", "", "converted", "balancingIgnoredLabels"),
    ("balancing-label", "repeated", "", "lost", "similar groups are found by capacity and labels, not by given labels"),
    (
        "blocking-system-pod-distruption-timeout",
        "duration",
        "1h0m0s",
        "lost",
        "a kube-system pod without PodDisruptionBudget blocks the removal of its node for an unlimited time",
    ),
    ("bulk-mig-instances-listing-enabled", "bool", "false", "unnecessary", _CLOUD),
    ("bypassed-scheduler-names", "list", "", "converted", "scaleUp.bypassedSchedulers"),
    ("capacity-buffer-controller-enabled", "bool", "false", "lost", _BUFFER),
    ("capacity-buffer-pod-dry-run-enabled", "bool", "true", "unnecessary", _BUFFER),
    ("capacity-buffer-pod-injection-enabled", "bool", "false", "lost", _BUFFER),
    ("capacity-quotas-enabled", "bool", "false", "lost", "trimtab does not apply CapacityQuotas"),
    ("check-capacity-batch-processing", "bool", "false", "lost", _PROVISIONING),
    ("check-capacity-processor-instance", "string", "", "lost", _PROVISIONING),
    ("check-capacity-provisioning-request-batch-timebox", "duration", "10s", "unnecessary", _PROVISIONING),
    ("check-capacity-provisioning-request-max-batch-size", "int", "10", "unnecessary", _PROVISIONING),
    ("cloud-config", "string", "", "lost", "it configures a cloud provider or the management cluster of Cluster API"),
    (
        "cloud-provider",
        "string",
        "gce",
        "lost",
        "trimtab scales node groups of the Machine API, of Cluster API, of an externalgrpc provider, and kwok's",
    ),
    ("cloud-provider-gce-l7lb-src-cidrs", "string", "130.211.0.0/22,35.191.0.0/16", "unnecessary", _CLOUD),
    (
        "cloud-provider-gce-lb-src-cidrs",
        "string",
        "130.211.0.0/22,209.85.152.0/22,209.85.204.0/22,35.191.0.0/16",
        "unnecessary",
        _CLOUD,
    ),
    ("cluster-name", "string", "", "unnecessary", "only cloud providers use it"),
    ("cluster-snapshot-parallelism", "int", "16", "unnecessary", _SPEED),
    (
        "clusterapi-cloud-config-authoritative",
        "bool",
        "false",
        "lost",
        "trimtab reads nodes and machines from one API server; a separate management cluster is not supported",
    ),
    ("cordon-node-before-terminating", "bool", "true", "converted", "scaleDown.cordonNodeBeforeTerminating"),
    ("cores-total", "string", "0:320000", "converted", "resourceLimits.cores"),
    ("daemonset-eviction-for-empty-nodes", "bool", "false", "lost", "DaemonSet pods of empty nodes are not evicted"),
    ("daemonset-eviction-for-occupied-nodes", "bool", "true", "lost", "DaemonSet pods of drained nodes are evicted"),
    ("debugging-snapshot-enabled", "bool", "false", "unnecessary", "trimtab snapshot saves the cluster"),
    (
        "drain-priority-config",
        "string",
        "",
        "lost",
        "pods of a node are evicted together, and maxPodGracePeriod limits their grace periods",
    ),
    ("dynamic-node-delete-delay-after-taint-enabled", "bool", "false", "lost", "the delay after the taint is 5s"),
    ("emit-per-nodegroup-metrics", "bool", "false", "unnecessary", _METRICS),
    ("enable-csi-node-aware-scheduling", "bool", "false", "unnecessary", "CSINodes are always taken into account"),
    (
        "enable-dynamic-resource-allocation",
        "bool",
        "true",
        "lost",
        "trimtab does not simulate ResourceClaims (Dynamic Resource Allocation)",
    ),
    ("enable-graceful-degradation", "bool", "false", "unnecessary", _SPEED),
    ("enable-proactive-scaleup", "bool", "false", "lost", "only existing pods trigger scale-ups"),
    ("enable-provisioning-requests", "bool", "false", "lost", _PROVISIONING),
    ("enforce-node-group-min-size", "bool", "false", "converted", "enforceNodeGroupMinSize"),
    ("estimator", "string", "binpacking", "unnecessary", "upstream has only one estimator, too"),
    ("expander", "string", "least-waste", "converted", "expanders"),
    ("expendable-pods-priority-cutoff", "int", "-10", "converted", "podPriorityThreshold"),
    ("fastpath-binpacking-enabled", "bool", "false", "unnecessary", _SPEED),
    ("feature-gates", "string", "", "lost", "trimtab has no feature gates of upstream"),
    (
        "force-delete-failed-nodes",
        "bool",
        "false",
        "lost",
        "failed machines are not removed if their group is at its minimum size",
    ),
    (
        "force-delete-unregistered-nodes",
        "bool",
        "false",
        "lost",
        "machines that never registered are not removed if their group is at its minimum size",
    ),
    ("force-ds", "bool", "false", "converted", "scaleUp.forceDaemonSets"),
    ("frequent-loops-enabled", "bool", "true", "unnecessary", "an iteration starts within a second of an event"),
    ("gce-concurrent-refreshes", "int", "1", "unnecessary", _CLOUD),
    ("gce-mig-instances-min-refresh-wait-time", "duration", "5s", "unnecessary", _CLOUD),
    ("gpu-total", "repeated", "", "converted", "resourceLimits.gpus"),
    ("grpc-expander-cert", "string", "", "lost", "set the chart value expander.grpc.caFile"),
    ("grpc-expander-url", "string", "", "lost", "set the chart value expander.grpc.address"),
    ("ignore-daemonsets-utilization", "bool", "false", "converted", "ignoreDaemonsetsUtilization"),
    ("ignore-mirror-pods-utilization", "bool", "false", "converted", "ignoreMirrorPodsUtilization"),
    ("ignore-taint", "repeated", "", "converted", "startupTaints"),
    ("initial-node-group-backoff-duration", "duration", "5m0s", "lost", "the first backoff of a group is 5m"),
    ("kube-api-content-type", "string", "application/vnd.kubernetes.protobuf", "unnecessary", _CLIENT),
    ("kube-client-burst", "int", "10", "unnecessary", _CLIENT),
    ("kube-client-qps", "float", "5", "unnecessary", _CLIENT),
    ("kubeconfig", "string", "", "unnecessary", _CLIENT),
    ("kubernetes", "string", "", "unnecessary", _CLIENT),
    ("leader-elect", "bool", "true", "unnecessary", _LEADER),
    ("leader-elect-lease-duration", "duration", "15s", "unnecessary", _LEADER),
    ("leader-elect-renew-deadline", "duration", "10s", "unnecessary", _LEADER),
    ("leader-elect-resource-lock", "string", "leases", "unnecessary", _LEADER),
    ("leader-elect-resource-name", "string", "cluster-autoscaler", "unnecessary", _LEADER),
    ("leader-elect-resource-namespace", "string", "", "unnecessary", _LEADER),
    ("leader-elect-retry-period", "duration", "2s", "unnecessary", _LEADER),
    ("log-backtrace-at", "string", ":0", "unnecessary", _LOG),
    ("log-dir", "string", "", "unnecessary", _LOG),
    ("log-file", "string", "", "unnecessary", _LOG),
    ("log-file-max-size", "int", "1800", "unnecessary", _LOG),
    ("log-flush-frequency", "duration", "5s", "unnecessary", _LOG),
    ("log-json-info-buffer-size", "string", "0", "unnecessary", _LOG),
    ("log-json-split-stream", "bool", "false", "unnecessary", _LOG),
    ("log-text-info-buffer-size", "string", "0", "unnecessary", _LOG),
    ("log-text-split-stream", "bool", "false", "unnecessary", _LOG),
    ("logging-format", "string", "text", "unnecessary", _LOG),
    ("logtostderr", "bool", "true", "unnecessary", _LOG),
    (
        "max-allocatable-difference-ratio",
        "float",
        "0.05",
        "lost",
        "allocatable amounts of similar groups differ by 5 %",
    ),
    ("max-binpacking-time", "duration", "5m0s", "unnecessary", _SPEED),
    (
        "max-bulk-soft-taint-count",
        "int",
        "10",
        "lost",
        "unneeded nodes get the taint DeletionCandidateOfClusterAutoscaler, at most 10 in an iteration",
    ),
    ("max-bulk-soft-taint-time", "duration", "3s", "unnecessary", _SPEED),
    (
        "max-drain-parallelism",
        "int",
        "1",
        "lost",
        "up to 5 nodes with pods are drained at a time, as far as PodDisruptionBudgets allow it",
    ),
    ("max-failing-time", "duration", "15m0s", "unnecessary", "trimtab's liveness probe fails if its loop hangs"),
    ("max-free-difference-ratio", "float", "0.05", "lost", "free amounts of similar groups differ by at most 5 %"),
    ("max-graceful-termination-sec", "int", "600", "converted", "maxPodGracePeriod"),
    ("max-inactivity", "duration", "10m0s", "unnecessary", "trimtab's liveness probe fails if its loop hangs"),
    ("max-node-group-backoff-duration", "duration", "30m0s", "lost", "the longest backoff of a group is 30m"),
    ("max-node-provision-time", "duration", "15m0s", "converted", "maxNodeProvisionTime"),
    ("max-node-skip-eval-time-tracker-enabled", "bool", "false", "unnecessary", _METRICS),
    (
        "max-node-startup-time",
        "duration",
        "15m0s",
        "lost",
        "the default is 15m; the annotation autoscaling-options-maxnodestartuptime sets another time for a group",
    ),
    ("max-nodegroup-binpacking-duration", "duration", "10s", "unnecessary", _SPEED),
    ("max-nodes-per-scaleup", "int", "1000", "unnecessary", _SPEED),
    ("max-nodes-total", "int", "0", "converted", "resourceLimits.maxNodesTotal"),
    ("max-pod-eviction-time", "duration", "2m0s", "lost", "evictions are retried for 2m"),
    ("max-scale-down-parallelism", "int", "10", "lost", "up to 10 empty nodes are removed at a time"),
    ("max-startup-time", "duration", "20m0s", "unnecessary", "trimtab's startup probe has its own limit"),
    (
        "max-total-unready-percentage",
        "float",
        "45",
        "lost",
        "scaling stops if more than 45 % and more than 3 of the nodes are not ready",
    ),
    ("memory-difference-ratio", "float", "0.015", "lost", "the memory of similar groups differs by at most 1.5 %"),
    ("memory-total", "string", "0:6400000", "converted", "resourceLimits.memory"),
    ("min-replica-count", "int", "0", "lost", "pods of small ReplicaSets do not block the removal of their node"),
    ("namespace", "string", "kube-system", "unnecessary", "trimtab uses the namespace of its release"),
    ("new-pod-scale-up-delay", "duration", "0s", "converted", "scaleUp.newPodScaleUpDelay"),
    ("node-delete-delay-after-taint", "duration", "5s", "lost", "a node is reviewed 5s after it was tainted"),
    ("node-deletion-batcher-interval", "duration", "0s", "unnecessary", "machines of a group are removed together"),
    (
        "node-deletion-candidate-ttl",
        "duration",
        "0s",
        "unnecessary",
        "trimtab records since when nodes are unneeded in the cluster",
    ),
    ("node-deletion-delay-timeout", "duration", "2m0s", "lost", "delay-deletion annotations are respected for 2m"),
    ("node-group-auto-discovery", "repeated", "", "converted", "nodeGroupAutoDiscovery"),
    ("node-group-backoff-reset-timeout", "duration", "3h0m0s", "lost", "the backoff of a group is reset after 3h"),
    ("node-info-cache-expire-time", "duration", "87600h0m0s", "unnecessary", "the shape of nodes is in the cluster"),
    ("node-removal-latency-tracking-enabled", "bool", "false", "unnecessary", _METRICS),
    ("nodes", "repeated", "", "converted", "a MachineAutoscaler for each group"),
    (
        "ok-total-unready-count",
        "int",
        "3",
        "lost",
        "scaling stops if more than 45 % and more than 3 of the nodes are not ready",
    ),
    ("one-output", "bool", "false", "unnecessary", _LOG),
    ("parallel-scale-up", "bool", "false", "unnecessary", "node groups are always scaled up concurrently"),
    ("pending-pods-batching-timeout", "duration", "4m0s", "unnecessary", _SPEED),
    ("pod-injection-limit", "int", "5000", "unnecessary", "only existing pods trigger scale-ups"),
    ("predicate-parallelism", "int", "4", "unnecessary", _SPEED),
    ("profiling", "bool", "false", "unnecessary", "trimtab has no pprof endpoint"),
    ("provisioning-request-initial-backoff-time", "duration", "1m0s", "unnecessary", _PROVISIONING),
    ("provisioning-request-max-backoff-cache-size", "int", "1000", "unnecessary", _PROVISIONING),
    ("provisioning-request-max-backoff-time", "duration", "10m0s", "unnecessary", _PROVISIONING),
    ("record-duplicated-events", "bool", "false", "unnecessary", "trimtab counts repeated events"),
    ("regional", "bool", "false", "unnecessary", _CLOUD),
    ("salvo-scale-up", "bool", "false", "unnecessary", "an iteration scales up as many groups as needed"),
    ("salvo-scale-up-budget", "duration", "1m0s", "unnecessary", "an iteration scales up as many groups as needed"),
    ("scale-down-candidates-pool-min-count", "int", "50", "unnecessary", _SPEED),
    ("scale-down-candidates-pool-ratio", "float", "0.1", "unnecessary", _SPEED),
    ("scale-down-delay-after-add", "duration", "10m0s", "converted", "scaleDown.delayAfterAdd"),
    ("scale-down-delay-after-delete", "duration", "0s", "converted", "scaleDown.delayAfterDelete"),
    ("scale-down-delay-after-failure", "duration", "3m0s", "converted", "scaleDown.delayAfterFailure"),
    (
        "scale-down-delay-type-local",
        "bool",
        "false",
        "lost",
        "the delays of scaleDown apply to the whole cluster, not to each group",
    ),
    ("scale-down-enabled", "bool", "true", "converted", "scaleDown.enabled"),
    ("scale-down-gpu-utilization-threshold", "float", "0.5", "converted", "scaleDown.gpuUtilizationThreshold"),
    ("scale-down-non-empty-candidates-count", "int", "30", "unnecessary", _SPEED),
    ("scale-down-simulation-timeout", "duration", "30s", "unnecessary", _SPEED),
    ("scale-down-unneeded-time", "duration", "10m0s", "converted", "scaleDown.unneededTime"),
    (
        "scale-down-unready-enabled",
        "bool",
        "true",
        "lost",
        "unneeded nodes that are not ready are removed after scaleDown.unreadyTime",
    ),
    ("scale-down-unready-time", "duration", "20m0s", "converted", "scaleDown.unreadyTime"),
    ("scale-down-utilization-threshold", "float", "0.5", "converted", "scaleDown.utilizationThreshold"),
    ("scale-from-unschedulable", "bool", "false", "unnecessary", "templates never have spec.unschedulable"),
    ("scale-up-from-zero", "bool", "true", "lost", "a cluster without ready nodes is scaled up"),
    ("scaleup-simulation-for-skipped-node-groups-enabled", "bool", "false", "unnecessary", "always the case"),
    (
        "scan-interval",
        "duration",
        "10s",
        "lost",
        "an iteration starts every 10s, and within a second of an event such as an unschedulable pod",
    ),
    (
        "scheduler-config-file",
        "string",
        "",
        "lost",
        "the simulation has kube-scheduler's default filters; a SchedulerPolicy configures trimtab's own scheduler",
    ),
    ("scheduler-verbosity", "int", "0", "unnecessary", _LOG),
    ("skip-headers", "bool", "false", "unnecessary", _LOG),
    ("skip-log-headers", "bool", "false", "unnecessary", _LOG),
    (
        "skip-nodes-with-custom-controller-pods",
        "bool",
        "true",
        "lost",
        "pods of custom controllers block the removal of their node, unless their annotation safe-to-evict is true",
    ),
    ("skip-nodes-with-local-storage", "bool", "true", "converted", "skipNodesWithLocalStorage"),
    (
        "skip-nodes-with-system-pods",
        "bool",
        "true",
        "lost",
        "kube-system pods without PodDisruptionBudget block the removal of their node; create PodDisruptionBudgets",
    ),
    ("startup-taint", "repeated", "", "converted", "startupTaints"),
    (
        "startup-taint-prefix",
        "repeated",
        "",
        "lost",
        "startupTaints has whole keys; add each key with this prefix to startupTaints",
    ),
    (
        "status-config-map-name",
        "string",
        "cluster-autoscaler-status",
        "lost",
        "the ConfigMap is named cluster-autoscaler-status",
    ),
    (
        "status-taint",
        "repeated",
        "",
        "lost",
        "new nodes are expected to have this taint, so pods that do not tolerate it trigger no scale-up",
    ),
    ("stderrthreshold", "string", "2", "unnecessary", _LOG),
    ("unremovable-node-recheck-timeout", "duration", "5m0s", "unnecessary", "all nodes are checked in each iteration"),
    ("user-agent", "string", "cluster-autoscaler", "unnecessary", _CLIENT),
    ("v", "int", "0", "unnecessary", _LOG),
    ("vmodule", "string", "", "unnecessary", _LOG),
    ("write-status-configmap", "bool", "true", "unnecessary", "trimtab always writes its status"),
)

_HIGH: Final = frozenset(
    {
        "allowed-scheduler-names",
        "blocking-system-pod-distruption-timeout",
        "capacity-buffer-controller-enabled",
        "capacity-buffer-pod-injection-enabled",
        "capacity-quotas-enabled",
        "cloud-config",
        "cloud-provider",
        "clusterapi-cloud-config-authoritative",
        "enable-proactive-scaleup",
        "enable-provisioning-requests",
        "force-delete-failed-nodes",
        "force-delete-unregistered-nodes",
        "grpc-expander-cert",
        "grpc-expander-url",
        "max-total-unready-percentage",
        "min-replica-count",
        "node-autoprovisioning-enabled",
        "ok-total-unready-count",
        "scale-down-unready-enabled",
        "scale-up-from-zero",
        "scheduler-config-file",
        "skip-nodes-with-custom-controller-pods",
        "skip-nodes-with-system-pods",
        "startup-taint-prefix",
        "status-taint",
    }
)
"""Lost flags that decide which nodes are added or removed, or that must be replaced by a setting of trimtab."""

_LOW: Final = frozenset({"enable-dynamic-resource-allocation", "status-config-map-name"})
"""Lost flags without an effect on nodes. Without DRA, trimtab's simulation is the one that the flag asks for."""


def _flag(name: str, kind: FlagType, default: str, fate: Fate, note: str) -> Flag:
    lost: Severity = HIGH if name in _HIGH else LOW if name in _LOW else MEDIUM
    return Flag(kind, default, fate, note, lost if fate == "lost" else LOW)


FLAGS: Final[Mapping[str, Flag]] = {row[0]: _flag(*row) for row in _ROWS}
"""All flags of the current release, by name."""

_REMOVED_ROWS: Final[tuple[tuple[str, FlagType, str, Fate, str], ...]] = (
    ("gce-expander-ephemeral-storage-support", "bool", "true", "unnecessary", _CLOUD),
    ("max-autoprovisioned-node-group-count", "int", "15", "unnecessary", "trimtab creates no node groups"),
    ("max-empty-bulk-delete", "int", "10", "lost", "up to 10 empty nodes are removed at a time"),
    ("node-autoprovisioning-enabled", "bool", "false", "lost", "trimtab creates no node groups"),
    ("parallel-drain", "bool", "true", "unnecessary", "nodes are always drained concurrently"),
)

REMOVED: Final[Mapping[str, Flag]] = {row[0]: _flag(*row) for row in _REMOVED_ROWS}
"""Flags that a release from 1.20 on had, and that the current one does not have."""

DEPRECATED: Final[Mapping[str, str]] = {
    "cluster-snapshot-parallelism": "predicate-parallelism",
    "ignore-taint": "startup-taint",
    "scale-down-enabled": "",
}
"""Flags that upstream will remove, and the flag that replaces each of them."""

_OLDER_DEFAULTS: Final[Mapping[str, tuple[tuple[tuple[int, int], str], ...]]] = {
    "cordon-node-before-terminating": (((1, 34), "false"),),
    "expander": (((1, 33), "random"),),
}
"""Defaults of converted flags that a release changed: the release, and the default before it."""


def default_of(name: str, version: tuple[int, int]) -> str:
    """Return the default of a flag in a release, for example ``(1, 30)``."""
    for changed, earlier in _OLDER_DEFAULTS.get(name, ()):
        if version < changed:
            return earlier
    return FLAGS[name].default
