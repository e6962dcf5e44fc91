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
from trimtab.api.scalars import GoDuration, go_duration_doc, parse_go_duration

GIB: Final = 1 << 30
"""Bytes in the unit of ``memory``."""

_MAX_AT_LEAST_MIN: Final = Rule(rule="self.max >= self.min", message="max must be at least min", field_path=".max")


class ResourceRange(Spec, frozen=True):
    """Minimum and maximum total amount of a resource in the cluster, including nodes outside of node groups."""

    cel: ClassVar[tuple[Rule, ...]] = (_MAX_AT_LEAST_MIN,)

    min: Annotated[
        NaturalInt,
        doc(
            "Minimum total amount of the resource in the cluster. The unit is a CPU core for cores and 1 GiB for "
            "memory. A node is not removed if the total would fall below this minimum."
        ),
    ]
    max: Annotated[
        NaturalInt,
        doc(
            "Maximum total amount of the resource in the cluster. The unit is a CPU core for cores and 1 GiB for "
            "memory. A node is not added if the total would exceed this maximum."
        ),
    ]


class GPULimit(Spec, frozen=True):
    """Minimum and maximum total number of GPUs of one type in the cluster."""

    cel: ClassVar[tuple[Rule, ...]] = (_MAX_AT_LEAST_MIN,)

    type: Annotated[
        str,
        Meta(min_length=1, max_length=317),
        doc(
            "Type of the GPUs. The type is either a resource name such as nvidia.com/gpu or a value of the "
            "cluster-api/accelerator node label."
        ),
    ]
    min: Annotated[
        NaturalInt,
        doc(
            "Minimum total number of GPUs of this type in the cluster. A node is not removed if the total would fall "
            "below this minimum."
        ),
    ]
    max: Annotated[
        PositiveInt,
        doc(
            "Maximum total number of GPUs of this type in the cluster. A node is not added if the total would exceed "
            "this maximum."
        ),
    ]


class ResourceLimits(Spec, frozen=True):
    """Minimum and maximum size of the whole cluster, including the control plane and nodes outside of node groups.

    Limits only prevent actions. They never trigger a scale-up or scale-down to bring the cluster within them.
    """

    max_nodes_total: Annotated[
        NaturalInt | None,
        doc(
            "Maximum number of nodes in the cluster, including control plane nodes. 0 means unlimited. To let every "
            "node group reach its maximum size, set this value to at least the sum of all maximum sizes plus the "
            "number of nodes outside of node groups."
        ),
    ] = None
    max_nodes_per_namespace: Annotated[
        NaturalInt | None,
        doc(
            "Maximum number of nodes in node groups that the pods of one namespace may use. 0 means unlimited. The "
            "autoscaler does not add a node for pods whose namespace would then exceed the limit. A node that runs "
            "pods of several namespaces counts toward each namespace in proportion to the requests of its pods. "
            f"DaemonSet pods, and static pods in system namespaces, are ignored. {OURS}"
        ),
    ] = None
    cores: Annotated[
        ResourceRange | None,
        doc("Minimum and maximum total number of CPU cores in the cluster, including control plane nodes."),
    ] = None
    memory: Annotated[
        ResourceRange | None,
        doc(
            "Minimum and maximum total memory in the cluster, including control plane nodes, in GiB (2^30 bytes). The "
            "values are plain numbers, not quantities such as 64Gi."
        ),
    ] = None
    gpus: Annotated[
        tuple[GPULimit, ...],
        bounded(
            "Minimum and maximum total number of GPUs in the cluster. The list has one entry for each GPU type.",
            limit=16,
            **list_map("type"),
        ),
    ] = ()


KIND: Final = "ClusterAutoscaler"
API_VERSION: Final = "autoscaling.openshift.io/v1"
NAME: Final = "default"

PRIORITY_THRESHOLD: Final = -10
"""Upstream's default for ``expendable-pods-priority-cutoff``."""

OURS: Final = "This field does not exist in OpenShift's ClusterAutoscaler."

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
        go_duration_doc(
            "How long to wait after a scale-up request before nodes are removed.",
        ),
    ] = "10m"
    delay_after_delete: Annotated[
        GoDuration,
        go_duration_doc(
            "How long to wait after a node removal before another node is removed.",
        ),
    ] = "10s"
    delay_after_failure: Annotated[
        GoDuration,
        go_duration_doc(
            "How long to wait after a failed node removal before nodes are removed again.",
        ),
    ] = "3m"
    unneeded_time: Annotated[
        GoDuration,
        go_duration_doc(
            "How long a node must have been unneeded before it is removed.",
        ),
    ] = "10m"
    utilization_threshold: Annotated[
        Threshold,
        doc(
            'Maximum utilization at which a node is considered for removal, as a decimal string, for example "0.5". '
            "For cpu and memory, the requests of all pods on the node are added up and divided by the node's "
            "allocatable amount. The utilization is the higher of the two results. For nodes with GPUs, "
            "gpuUtilizationThreshold applies instead.",
            THRESHOLD_RULE,
        ),
    ] = "0.5"
    cordon_node_before_terminating: Annotated[
        OnOff,
        doc("Whether to cordon a node before evicting its pods, so that load balancers stop sending traffic to it."),
    ] = "Enabled"
    unready_time: Annotated[
        GoDuration,
        go_duration_doc(
            f"How long a node must have been both unneeded and not ready before it is removed. {OURS}",
        ),
    ] = "20m"
    gpu_utilization_threshold: Annotated[
        Threshold,
        doc(
            "Maximum GPU utilization at which a node with GPUs is considered for removal, as a decimal string, for "
            f'example "0.5". The CPU and memory utilization of such nodes is ignored. {OURS}',
            THRESHOLD_RULE,
        ),
    ] = "0.5"
    max_hold: Annotated[
        GoDuration | None,
        go_duration_doc(
            "Maximum time for which the pod annotation cluster-autoscaler.kubernetes.io/safe-to-evict, with the value "
            "false or on-completion, can block the removal of a node. The time starts when an annotation or a "
            "PodDisruptionBudget first blocks the removal. The time does not restart if the annotation changes or the "
            "pod is replaced. PodDisruptionBudgets are never ignored. If unset, annotations can block removals "
            f"indefinitely. {OURS}",
        ),
    ] = None
    replace: Annotated[
        OnOff,
        doc(
            "Whether to consolidate nodes, that is, to replace nodes with cheaper nodes from other node groups. The "
            "new nodes are added before the old nodes are drained. Consolidation can evict healthy pods, regardless of "
            "the utilization of their node. The trimtab.dev/price annotation of a node group specifies the hourly "
            "price of one node, in the same currency for all node groups. Node groups without this annotation are "
            f"ignored. {OURS}"
        ),
    ] = "Disabled"
    replace_threshold: Annotated[
        Threshold,
        doc(
            "Minimum saving for which nodes are replaced, as a fraction of the total price of the old nodes. The value "
            'is a decimal string. For example, "0.15" means that the new nodes must cost at least 15% less than the '
            f"old nodes. {OURS}",
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
        go_duration_doc(
            "Minimum age of a pending pod before nodes are added for it. The pod annotation "
            "cluster-autoscaler.kubernetes.io/pod-scale-up-delay can specify a longer delay.",
        ),
    ] = "0s"
    bypassed_schedulers: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=253)], ...],
        bounded(
            "Names of schedulers whose pending pods can trigger a scale-up immediately. Pods of other schedulers "
            "trigger a scale-up only after their scheduler has reported them as unschedulable in the PodScheduled "
            f"condition. Equivalent to the --bypassed-scheduler-names flag of cluster-autoscaler. {OURS}",
            limit=16,
            **SET,
        ),
    ] = ()

    force_daemon_sets: Annotated[
        bool,
        doc(
            "Whether to reserve capacity on new nodes for every DaemonSet that matches the node group, even if the "
            "DaemonSet's pods do not run on existing nodes of the group or would not fit. Equivalent to the --force-ds "
            "flag of cluster-autoscaler. If true, any user who can create DaemonSets can prevent scale-ups for other "
            f"pods. {OURS}"
        ),
    ] = False
    default_architecture: Annotated[
        Architecture | None,
        doc(
            "CPU architecture (label kubernetes.io/arch) of new nodes if neither the object of the node group nor an "
            "earlier node specifies an architecture. If unset, the common architecture of all nodes is used. If the "
            "nodes have different architectures, the common architecture of all control plane nodes is used. If the "
            "control plane nodes also have different architectures, the architecture is unknown. Equivalent to the "
            f"environment variable CAPI_SCALE_ZERO_DEFAULT_ARCH of cluster-autoscaler. {OURS}"
        ),
    ] = None

    @property
    def delay_seconds(self) -> float:
        """Return ``newPodScaleUpDelay`` in seconds."""
        return parse_go_duration(self.new_pod_scale_up_delay)


class NodeGroupAutoDiscovery(Spec, frozen=True):
    """Selects the Cluster API and Machine API objects that are treated as node groups of this cluster.

    A Cluster API management cluster can contain machines of several clusters. What is not set is read from the
    annotations that link the nodes of this cluster to their machines. If there are no such annotations, and the objects
    of an API belong to several clusters, no node group of that API is scaled.
    """

    cluster_name: Annotated[
        str,
        Meta(max_length=253),
        doc(
            "Name of the cluster whose node groups are scaled. The name is compared with spec.clusterName of Cluster "
            "API objects and, if present, with the label machine.openshift.io/cluster-api-cluster of Machine API "
            "objects. If empty, the annotation cluster.x-k8s.io/cluster-name of the nodes names the cluster. If no "
            "node has that annotation, the autoscaler scales the node groups of an API only if all objects of that API "
            "belong to the same cluster."
        ),
    ] = ""
    namespaces: Annotated[
        tuple[NamespaceName, ...],
        bounded(
            "Namespaces whose node groups are scaled. If empty, these are the namespaces of the machines that the "
            "nodes' annotations name, and the namespaces of MachineAutoscalers. If no node names a machine, and no "
            "external provider is configured, node groups in all namespaces are scaled.",
            limit=64,
            **SET,
        ),
    ] = ()


class ClusterAutoscalerSpec(Spec, frozen=True):
    """Configuration of the autoscaler: when nodes are added and removed, and within which limits.

    If the spec is empty, scale-down is enabled and the total size of the cluster is unlimited.
    """

    mode: Annotated[
        Mode,
        doc(
            "Whether the autoscaler changes the cluster. Act adds and removes nodes. Simulate is a dry run: the "
            "autoscaler plans and reports changes but does not make them. Defaults to Act, so that the autoscaler "
            f"starts to add and remove nodes when the ClusterAutoscaler is created. {OURS}"
        ),
    ] = "Act"
    resource_limits: Annotated[
        ResourceLimits,
        doc(
            "Limits for the total number of nodes, CPU cores, memory and GPUs in the cluster. The limits can prevent "
            "nodes from being added or removed, but never trigger a scale-up or scale-down."
        ),
    ] = ResourceLimits()
    scale_down: Annotated[
        ScaleDown | None,
        doc(
            "Configuration of scale-down, which removes unneeded nodes. A node is unneeded if its utilization is "
            "at or below utilizationThreshold, and its pods can be evicted and fit on other nodes. If omitted, "
            "scale-down is enabled with its default settings."
        ),
    ] = None
    scale_up: Annotated[ScaleUp, doc("Configuration of scale-up, which adds nodes for unschedulable pods.")] = ScaleUp()
    max_pod_grace_period: Annotated[
        NaturalInt,
        doc(
            "Maximum termination grace period, in seconds, of pods that are evicted from a node before its removal. If "
            "the terminationGracePeriodSeconds of a pod is longer, this maximum applies instead."
        ),
    ] = 600
    max_node_provision_time: Annotated[
        GoDuration,
        go_duration_doc(
            "Maximum time that a requested node may take to register. If the time is exceeded, the scale-up counts as "
            "failed, the node group enters backoff, and the pending pods can trigger another scale-up.",
        ),
    ] = "15m"
    pod_priority_threshold: Annotated[
        int,
        Meta(ge=-MAX_INT32 - 1, le=MAX_INT32),
        doc(
            "Priority below which pods neither trigger a scale-up nor block a scale-down. The node of such a pod may "
            "be removed even if the pod fits on no other node. The pod is then evicted, subject to its "
            "PodDisruptionBudgets."
        ),
    ] = PRIORITY_THRESHOLD
    balance_similar_node_groups: Annotated[
        bool, doc("Whether to distribute new nodes evenly over node groups with similar nodes.")
    ] = False
    balancing_ignored_labels: Annotated[
        tuple[LabelKey, ...],
        bounded(
            "Keys of node labels to ignore when the autoscaler determines which node groups are similar. Labels for "
            "the hostname, zone, region and node group of a node are always ignored.",
            limit=64,
            **SET,
        ),
    ] = ()
    ignore_daemonsets_utilization: Annotated[
        bool, doc("Whether to exclude DaemonSet pods when computing the utilization of a node.")
    ] = False
    ignore_mirror_pods_utilization: Annotated[
        bool,
        doc(f"Whether to exclude mirror pods (static pods) when computing the utilization of a node. {OURS}"),
    ] = False
    skip_nodes_with_local_storage: Annotated[
        bool, doc("Whether pods with emptyDir or hostPath volumes block the removal of their node.")
    ] = True
    expanders: Annotated[
        tuple[Expander, ...],
        bounded(
            "Expanders that choose the node group to scale up if the pending pods fit on new nodes of several groups. "
            "The first expander in the list takes precedence. LeastWaste chooses the group with the least unused cpu "
            "and memory. Priority chooses the group with the highest priority in the "
            "cluster-autoscaler-priority-expander ConfigMap. Random chooses a random group. MostPods chooses the group "
            "on whose new nodes the most pending pods fit. LeastNodes chooses the group that requires the fewest new "
            "nodes. Price chooses the group with the lowest price per requested CPU core, where 8 GiB of requested "
            "memory count as one core. Price chooses groups without the trimtab.dev/price annotation only if no group "
            "has this annotation. Grpc asks the server in the operator's --expander-grpc-address flag. MostPods, "
            "LeastNodes, Price and Grpc exist only in trimtab. Defaults to LeastWaste.",
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
            "Keys of taints that new nodes have until they are ready to run pods, for example until a GPU driver is "
            "installed. A new node with such a taint counts as upcoming. The autoscaler ignores these taints when it "
            "determines whether pending pods fit on a new node.",
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
            "Has no effect. The field is accepted for compatibility with OpenShift's ClusterAutoscaler. To set the log "
            "level, configure the operator."
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
    """Configures the cluster autoscaler, which adds nodes for unschedulable pods and removes unneeded nodes.

    A cluster can have only one ClusterAutoscaler, which must be named default. The autoscaler keeps the size of each
    node group between a minimum and a maximum, which a MachineAutoscaler can set.

    To end the backoff of all node groups after failed scale-ups, set the trimtab.dev/try-again annotation to a new
    value.
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
