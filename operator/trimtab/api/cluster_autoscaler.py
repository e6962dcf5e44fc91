"""ClusterAutoscaler: configures when nodes are added and removed, and within which limits. There is one per cluster.

For example::

    apiVersion: autoscaling.openshift.io/v1
    kind: ClusterAutoscaler
    metadata:
      name: default
    spec:
      resourceLimits:
        maxNodesTotal: 24
      scaleDown:
        enabled: true
        unneededTime: 10m

The fields of OpenShift's ClusterAutoscaler have the same names, types and defaults, so its YAML applies unchanged.
Fields that only trimtab has are optional and marked as such: the CRD of an OpenShift cluster does not have them, and
its API server prunes them.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from trimtab.api.base import (
    MAX_INT32,
    SET,
    NamespaceName,
    NaturalInt,
    ObjectMeta,
    PositiveInt,
    Rule,
    Spec,
    bounded,
    doc,
    list_map,
)
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.scalars import GO_DURATION_BOUND, GO_DURATION_RULE, GoDuration, parse_go_duration

GIB: Final = 1 << 30
"""Bytes in the unit of ``memory``."""

_MAX_AT_LEAST_MIN: Final = Rule(rule="self.max >= self.min", message="must be at least min", field_path=".max")


class ResourceRange(Spec, frozen=True):
    """Minimum and maximum amount of a resource in the whole cluster, including nodes outside of node groups."""

    cel: ClassVar[tuple[Rule, ...]] = (_MAX_AT_LEAST_MIN,)

    min: Annotated[
        NaturalInt,
        doc(
            "Minimum for the sum of all nodes in the cluster, as a number of CPU cores or of GiB of memory. A node is "
            "not removed if the cluster would have less without it."
        ),
    ]
    max: Annotated[
        NaturalInt,
        doc(
            "Maximum for the sum of all nodes in the cluster, as a number of CPU cores or of GiB of memory. A node is "
            "not added if the cluster would have more with it."
        ),
    ]


class GPULimit(Spec, frozen=True):
    """Minimum and maximum number of GPUs of one type in the whole cluster."""

    cel: ClassVar[tuple[Rule, ...]] = (_MAX_AT_LEAST_MIN,)

    type: Annotated[
        str,
        Meta(min_length=1, max_length=317),
        doc(
            "The GPU type: the resource name, e.g. nvidia.com/gpu or amd.com/gpu, or the value of the "
            "node label cluster-api/accelerator."
        ),
    ]
    min: Annotated[
        NaturalInt,
        doc("Minimum number of GPUs of this type in the cluster. A node is not removed if the number would be lower."),
    ]
    max: Annotated[
        PositiveInt,
        doc("Maximum number of GPUs of this type in the cluster. A node is not added if the number would be higher."),
    ]


class ResourceLimits(Spec, frozen=True):
    """Minimum and maximum size of the whole cluster, including the control plane and nodes outside of node groups.

    Limits only prevent actions. They never trigger a scale-up or scale-down to bring the cluster within them.
    """

    max_nodes_total: Annotated[
        NaturalInt | None,
        doc(
            "Maximum number of nodes in the cluster, including control plane nodes. Set it to at least the "
            "number of nodes outside of node groups plus the maximum sizes of all node groups. 0 means "
            "unlimited."
        ),
    ] = None
    max_nodes_per_namespace: Annotated[
        NaturalInt | None,
        doc(
            "Maximum number of nodes that the pods of one namespace may use. No node is added for pods of a "
            "namespace if the namespace would then exceed the limit. Only nodes of node groups count. A node "
            "shared by several namespaces counts toward each in proportion to the requests of its pods. Pods of "
            f"DaemonSets and static pods do not count. 0 means unlimited. {OURS}"
        ),
    ] = None
    cores: Annotated[
        ResourceRange | None,
        doc("Minimum and maximum number of CPU cores of all nodes in the cluster, including control plane nodes."),
    ] = None
    memory: Annotated[
        ResourceRange | None,
        doc(
            "Minimum and maximum memory of all nodes in the cluster, including control plane nodes, in GiB (2^30 "
            "bytes). The values are plain numbers and not quantities such as 64Gi."
        ),
    ] = None
    gpus: Annotated[
        tuple[GPULimit, ...],
        bounded(
            "Minimum and maximum number of GPUs in the cluster, with one entry for each GPU type.",
            limit=16,
            **list_map("type"),
        ),
    ] = ()


KIND: Final = "ClusterAutoscaler"
API_VERSION: Final = "autoscaling.openshift.io/v1"
NAME: Final = "default"

PRIORITY_THRESHOLD: Final = -10
"""Upstream's default for ``expendable-pods-priority-cutoff``."""

OURS: Final = "Only trimtab has this field; OpenShift's ClusterAutoscaler does not."

Expander = Literal["LeastWaste", "Priority", "Random", "MostPods", "LeastNodes", "Price", "Grpc"]
OnOff = Literal["Enabled", "Disabled"]
Mode = Literal["Act", "Simulate"]
Architecture = Literal["amd64", "arm64", "ppc64le", "riscv64", "s390x"]

THRESHOLD_PATTERN: Final = "^0[.][0-9]{1,9}$"
THRESHOLD_HELP: Final = 'a fraction above 0 and below 1 as a quoted string, e.g. "0.5"'
THRESHOLD_RULE: Final = Rule(
    rule=f"self.matches('{THRESHOLD_PATTERN}') && double(self) > 0.0", message=f"must be {THRESHOLD_HELP}"
)
Threshold = Annotated[str, Meta(min_length=3, max_length=16)]
LabelKey = Annotated[str, Meta(min_length=1, max_length=317)]


class ScaleDown(Spec, frozen=True):
    """Whether and when nodes are removed. Omitting scaleDown does not disable scale-down; enabled: false does."""

    enabled: Annotated[
        bool, doc("Whether the autoscaler removes unneeded nodes. If false, all other fields of scaleDown are ignored.")
    ]
    delay_after_add: Annotated[
        GoDuration,
        doc(
            "How long to wait after a scale-up was requested before nodes are removed.",
            GO_DURATION_RULE,
            GO_DURATION_BOUND,
        ),
    ] = "10m"
    delay_after_delete: Annotated[
        GoDuration,
        doc(
            "How long to wait after a node was removed before another node is removed.",
            GO_DURATION_RULE,
            GO_DURATION_BOUND,
        ),
    ] = "10s"
    delay_after_failure: Annotated[
        GoDuration,
        doc(
            "How long to wait after a failed node removal before nodes are removed again.",
            GO_DURATION_RULE,
            GO_DURATION_BOUND,
        ),
    ] = "3m"
    unneeded_time: Annotated[
        GoDuration,
        doc(
            "How long a node must be unneeded before it is removed. The field is spelled unneededTime; the "
            "common misspelling uneededTime is rejected.",
            GO_DURATION_RULE,
            GO_DURATION_BOUND,
        ),
    ] = "10m"
    utilization_threshold: Annotated[
        Threshold,
        doc(
            "A node is considered for removal only if its utilization is at or below this fraction. Utilization is "
            "the sum of the pods' requests divided by the node's allocatable amount, for cpu or for memory, "
            "whichever is higher. gpuUtilizationThreshold applies to nodes with GPUs instead. The value is a string, "
            "so quote it.",
            THRESHOLD_RULE,
        ),
    ] = "0.5"
    cordon_node_before_terminating: Annotated[
        OnOff,
        doc("Whether to cordon a node before evicting its pods, so that load balancers stop sending traffic to it."),
    ] = "Enabled"
    unready_time: Annotated[
        GoDuration,
        doc(
            f"How long a node must be both unneeded and not ready before it is removed. {OURS}",
            GO_DURATION_RULE,
            GO_DURATION_BOUND,
        ),
    ] = "20m"
    gpu_utilization_threshold: Annotated[
        Threshold,
        doc(
            "A node with GPUs is considered for removal only if its GPU utilization is at or below this fraction. Its "
            f"cpu and memory utilization do not matter. {OURS}",
            THRESHOLD_RULE,
        ),
    ] = "0.5"
    max_hold: Annotated[
        GoDuration | None,
        doc(
            "Maximum time for which pod annotations (cluster-autoscaler.kubernetes.io/safe-to-evict with the "
            "value false or on-completion) may block the removal of a node. After that time the annotations on "
            "pods of the node are ignored. The time starts when an annotation or a PodDisruptionBudget first blocks "
            "the removal. Changing the annotation or replacing the pod does not restart it. PodDisruptionBudgets are "
            "never ignored: if they block a node for longer, status.kept reports the node with the reason "
            f"HeldTooLong. If unset, annotations block removals indefinitely. {OURS}",
            GO_DURATION_RULE,
            GO_DURATION_BOUND,
        ),
    ] = None
    replace: Annotated[
        OnOff,
        doc(
            "Whether to replace nodes with new nodes of other node groups that cost less in total, if the pods fit "
            "there (consolidation). The price of a node per hour is read from the annotation trimtab.dev/price of "
            "its node group; groups without the annotation are ignored. The new nodes are added first; then the old "
            f"nodes are drained, regardless of their utilization. This evicts healthy pods. {OURS}"
        ),
    ] = "Disabled"
    replace_threshold: Annotated[
        Threshold,
        doc(
            "Minimum saving for replacing nodes, as a fraction of the total price of the replaced nodes. With 0.15, "
            f"the new nodes must cost at least 15% less than the old ones. The value is a string, so quote it. {OURS}",
            THRESHOLD_RULE,
        ),
    ] = "0.15"

    @property
    def delay_after_add_seconds(self) -> float:
        """Return ``delayAfterAdd`` in seconds."""
        return parse_go_duration(self.delay_after_add)

    @property
    def delay_after_delete_seconds(self) -> float:
        """Return ``delayAfterDelete`` in seconds."""
        return parse_go_duration(self.delay_after_delete)

    @property
    def delay_after_failure_seconds(self) -> float:
        """Return ``delayAfterFailure`` in seconds."""
        return parse_go_duration(self.delay_after_failure)

    @property
    def unneeded_seconds(self) -> float:
        """Return ``unneededTime`` in seconds."""
        return parse_go_duration(self.unneeded_time)

    @property
    def unready_seconds(self) -> float:
        """Return ``unreadyTime`` in seconds."""
        return parse_go_duration(self.unready_time)

    @property
    def max_hold_seconds(self) -> float | None:
        """Return ``maxHold`` in seconds, or ``None`` if it is unset."""
        return None if self.max_hold is None else parse_go_duration(self.max_hold)

    @property
    def threshold(self) -> float:
        """Return ``utilizationThreshold`` as a number."""
        return float(self.utilization_threshold)

    @property
    def gpu_threshold(self) -> float:
        """Return ``gpuUtilizationThreshold`` as a number."""
        return float(self.gpu_utilization_threshold)

    @property
    def replace_share(self) -> float:
        """Return ``replaceThreshold`` as a number."""
        return float(self.replace_threshold)


class ScaleUp(Spec, frozen=True):
    """When and for which pods nodes are added."""

    new_pod_scale_up_delay: Annotated[
        GoDuration,
        doc(
            "Minimum age of a pending pod before nodes are added for it. The pod annotation "
            "cluster-autoscaler.kubernetes.io/pod-scale-up-delay can increase it.",
            GO_DURATION_RULE,
            GO_DURATION_BOUND,
        ),
    ] = "0s"
    bypassed_schedulers: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=253)], ...],
        bounded(
            "Names of schedulers whose pending pods may trigger a scale-up immediately. Pods of other schedulers "
            "trigger a scale-up only after their scheduler has reported them as unschedulable (condition "
            f"PodScheduled). Equivalent to --bypassed-scheduler-names of cluster-autoscaler. {OURS}",
            limit=16,
            **SET,
        ),
    ] = ()

    force_daemon_sets: Annotated[
        bool,
        doc(
            "Whether to reserve capacity on new nodes for every DaemonSet that matches the node group, even if "
            "its pods run on none of the group's nodes or would not fit. Equivalent to --force-ds of "
            "cluster-autoscaler. If true, anyone who may create DaemonSets can prevent scale-ups for other "
            f"pods. {OURS}"
        ),
    ] = False
    default_architecture: Annotated[
        Architecture | None,
        doc(
            "Architecture (label kubernetes.io/arch) that is assumed for the new nodes of a node group if neither "
            "its object nor an earlier node shows it. If unset, it is the architecture of all nodes of the cluster "
            "or, if those differ, of all control plane nodes; if those differ too, none is assumed. Equivalent to "
            f"CAPI_SCALE_ZERO_DEFAULT_ARCH of cluster-autoscaler. {OURS}"
        ),
    ] = None

    @property
    def delay_seconds(self) -> float:
        """Return ``newPodScaleUpDelay`` in seconds."""
        return parse_go_duration(self.new_pod_scale_up_delay)


class NodeGroupAutoDiscovery(Spec, frozen=True):
    """Selects the Cluster API and Machine API objects that are treated as node groups of this cluster.

    A Cluster API management cluster can contain machines of several clusters. If the objects of an API belong to
    several clusters and clusterName is not set, no node group of that API is scaled.
    """

    cluster_name: Annotated[
        str,
        Meta(max_length=253),
        doc(
            "Name of the cluster whose node groups are scaled. It is compared with spec.clusterName of Cluster API "
            "objects and with the label machine.openshift.io/cluster-api-cluster, if present, of Machine API objects. "
            "If empty, all objects of an API must belong to the same cluster; otherwise no node group of that API is "
            "scaled."
        ),
    ] = ""
    namespaces: Annotated[
        tuple[NamespaceName, ...],
        bounded(
            "Namespaces whose node groups are scaled. If empty, node groups in all namespaces are scaled.",
            limit=64,
            **SET,
        ),
    ] = ()


class ClusterAutoscalerSpec(Spec, frozen=True):
    """When nodes are added and removed, and within which limits.

    With an empty spec, scale-down is enabled and the total size of the cluster is not limited.
    """

    mode: Annotated[
        Mode,
        doc(f"Act: add and remove nodes. Simulate: only plan and report; nothing in the cluster is changed. {OURS}"),
    ] = "Act"
    resource_limits: Annotated[
        ResourceLimits,
        doc(
            "Limits for the number of nodes, CPU cores, memory and GPUs of the whole cluster. They only prevent nodes "
            "from being added or removed, and never trigger a scale-up or scale-down."
        ),
    ] = ResourceLimits()
    scale_down: Annotated[
        ScaleDown | None,
        doc("Whether and when nodes are removed. If omitted, scale-down is enabled with its defaults."),
    ] = None
    scale_up: Annotated[ScaleUp, doc("When and for which pods nodes are added.")] = ScaleUp()
    max_pod_grace_period: Annotated[
        NaturalInt,
        doc(
            "Maximum termination grace period, in seconds, of pods that are evicted because their node is removed. "
            "A longer terminationGracePeriodSeconds of a pod is reduced to it."
        ),
    ] = 600
    max_node_provision_time: Annotated[
        GoDuration,
        doc(
            "How long a requested node may take to register. After that time the scale-up counts as failed, its node "
            "group is not scaled up during a backoff, and the pending pods are considered for scale-up again.",
            GO_DURATION_RULE,
            GO_DURATION_BOUND,
        ),
    ] = "15m"
    pod_priority_threshold: Annotated[
        int,
        Meta(ge=-MAX_INT32 - 1, le=MAX_INT32),
        doc(
            "Pods with a priority below this value neither trigger a scale-up nor block a scale-down: their node may "
            "be removed even if they fit on no other node. They are evicted, and their PodDisruptionBudgets apply."
        ),
    ] = PRIORITY_THRESHOLD
    balance_similar_node_groups: Annotated[
        bool, doc("Whether to distribute new nodes evenly over node groups with similar nodes.")
    ] = False
    balancing_ignored_labels: Annotated[
        tuple[LabelKey, ...],
        bounded(
            "Keys of node labels that are ignored when the autoscaler looks for similar node groups. Labels with the "
            "hostname, zone, region or name of the node group are always ignored.",
            limit=64,
            **SET,
        ),
    ] = ()
    ignore_daemonsets_utilization: Annotated[
        bool, doc("Whether to exclude DaemonSet pods when computing the utilization of a node.")
    ] = False
    ignore_mirror_pods_utilization: Annotated[
        bool,
        doc(
            "Whether to exclude mirror pods (static pods of the kubelet) when computing the utilization "
            f"of a node. {OURS}"
        ),
    ] = False
    skip_nodes_with_local_storage: Annotated[
        bool, doc("Whether pods with emptyDir or hostPath volumes block the removal of their node.")
    ] = True
    expanders: Annotated[
        tuple[Expander, ...],
        bounded(
            "How to choose the node group to scale up if the pods fit on new nodes of several groups. Each "
            "expander decides among the node groups that the previous ones ranked equally. LeastWaste: least "
            "unused cpu and memory on the new nodes. Priority: highest priority in the ConfigMap "
            "cluster-autoscaler-priority-expander. Random: a random node group. The following exist only in "
            "trimtab. MostPods: most pending pods that fit. LeastNodes: fewest new nodes. Price: lowest price per "
            "requested core, from the annotation trimtab.dev/price of the node groups. Grpc: the choice of the "
            "expander server that the operator's flag --expander-grpc-address names. Defaults to LeastWaste.",
            limit=7,
            **SET,
        ),
    ] = ()
    enforce_node_group_min_size: Annotated[
        OnOff, doc("Whether to scale up node groups that are below their minimum size.")
    ] = "Disabled"
    startup_taints: Annotated[
        tuple[LabelKey, ...],
        bounded(
            "Keys of taints that new nodes have until they are ready for pods, for example until a GPU driver is "
            "installed. A new node with such a taint counts as upcoming. The taints are ignored in the decision "
            "whether pending pods fit on a new node.",
            limit=64,
            **SET,
        ),
    ] = ()
    node_group_auto_discovery: Annotated[
        NodeGroupAutoDiscovery,
        doc(f"Selects the Cluster API and Machine API objects that are treated as node groups of this cluster. {OURS}"),
    ] = NodeGroupAutoDiscovery()
    log_verbosity: Annotated[
        NaturalInt | None,
        doc(
            "Log verbosity of OpenShift's cluster-autoscaler. trimtab accepts and ignores this field; its log level "
            "is a setting of the operator."
        ),
    ] = None

    @property
    def scaling_down(self) -> ScaleDown:
        """Return ``scaleDown``; if it is omitted, the defaults with scale-down enabled."""
        return self.scale_down or ScaleDown(enabled=True)

    @property
    def provision_seconds(self) -> float:
        """Return ``maxNodeProvisionTime`` in seconds."""
        return parse_go_duration(self.max_node_provision_time)


class ClusterAutoscaler(Spec, frozen=True):
    """Adds nodes for unschedulable pods, and removes unneeded nodes.

    The cluster has one ClusterAutoscaler, named default. MachineAutoscalers select the node groups that it scales.
    """

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule=f"self.metadata.name == '{NAME}'",
            message=f"metadata.name must be {NAME}: there is one ClusterAutoscaler for the whole cluster",
        ),
    )

    spec: ClusterAutoscalerSpec = ClusterAutoscalerSpec()
    metadata: ObjectMeta = ObjectMeta()
    status: ClusterAutoscalerStatus = ClusterAutoscalerStatus()
    api_version: Literal["autoscaling.openshift.io/v1"] = API_VERSION
    kind: Literal["ClusterAutoscaler"] = KIND

    @property
    def name(self) -> str:
        """Return the name, which is always ``default``."""
        return self.metadata.name
