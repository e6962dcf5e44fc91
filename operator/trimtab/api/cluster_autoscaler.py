"""ClusterAutoscaler: when nodes are added and removed, within which limits; one for the whole cluster, as in OpenShift.

All fields of OpenShift's have its names, types and defaults, so its YAML applies unchanged; each says where people have
stumbled. Fields that only trimtab has are optional and say so: an OpenShift cluster's own definition does not know
them, and its API server drops them.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from trimtab.api.base import MAX_INT32, NaturalInt, ObjectMeta, Rule, Spec, bounded, doc
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.cluster_limits import ResourceLimits
from trimtab.api.go_durations import GO_DURATION_BOUND, GO_DURATION_RULE, GoDuration, parse_go_duration
from trimtab.api.strategies.base import SET

KIND: Final = "ClusterAutoscaler"
API_VERSION: Final = "autoscaling.openshift.io/v1"
NAME: Final = "default"

PRIORITY_THRESHOLD: Final = -10
"""Upstream's ``expendable-pods-priority-cutoff`` where nobody sets it."""

OURS: Final = "Only trimtab has this field."

Expander = Literal["LeastWaste", "Priority", "Random", "MostPods", "LeastNodes", "Price", "Grpc"]
OnOff = Literal["Enabled", "Disabled"]
Mode = Literal["Act", "Simulate"]

THRESHOLD_PATTERN: Final = "^0[.][0-9]{1,9}$"
THRESHOLD_HELP: Final = 'a share above 0 and below 1 as a text, e.g. "0.5"'
THRESHOLD_RULE: Final = Rule(
    rule=f"self.matches('{THRESHOLD_PATTERN}') && double(self) > 0.0", message=f"must be {THRESHOLD_HELP}"
)
Threshold = Annotated[str, Meta(min_length=3, max_length=16)]
LabelKey = Annotated[str, Meta(min_length=1, max_length=317)]


class ScaleDown(Spec, frozen=True):
    """Whether and when nodes are removed. Leaving scaleDown out does not switch it off: that is enabled: false."""

    enabled: Annotated[bool, doc("Whether nodes are removed at all. With false the rest of scaleDown has no effect.")]
    delay_after_add: Annotated[
        GoDuration,
        doc("How long after nodes were added none is removed.", GO_DURATION_RULE, GO_DURATION_BOUND),
    ] = "10m"
    delay_after_delete: Annotated[
        GoDuration,
        doc("How long after a node was removed no other one is.", GO_DURATION_RULE, GO_DURATION_BOUND),
    ] = "10s"
    delay_after_failure: Annotated[
        GoDuration,
        doc("How long after a removal that failed none is tried.", GO_DURATION_RULE, GO_DURATION_BOUND),
    ] = "3m"
    unneeded_time: Annotated[
        GoDuration,
        doc(
            "How long a node must have been unneeded before it is removed. It is written with two n: unneededTime.",
            GO_DURATION_RULE,
            GO_DURATION_BOUND,
        ),
    ] = "10m"
    utilization_threshold: Annotated[
        Threshold,
        doc(
            "A node whose pods request at most this share of what is allocatable may be unneeded: the larger of cpu "
            "and memory, or that of GPUs where it has some. Exactly at the threshold counts. It is a text: put it in "
            "quotes.",
            THRESHOLD_RULE,
        ),
    ] = "0.5"
    cordon_node_before_terminating: Annotated[
        OnOff, doc("Whether a node is cordoned before its pods are evicted, so that load balancers let go of it.")
    ] = "Enabled"
    unready_time: Annotated[
        GoDuration,
        doc(
            f"How long a node must have been unready and unneeded before it is removed. {OURS}",
            GO_DURATION_RULE,
            GO_DURATION_BOUND,
        ),
    ] = "20m"
    gpu_utilization_threshold: Annotated[
        Threshold,
        doc(f"The utilizationThreshold of nodes with GPUs, of which only the GPUs count. {OURS}", THRESHOLD_RULE),
    ] = "0.5"
    replace: Annotated[
        OnOff,
        doc(
            "Whether nodes are replaced by fewer or cheaper ones of other groups that would hold their pods, where the "
            "annotation trimtab.dev/price says what a node of each group costs an hour. New nodes come first; then the "
            f"old ones are drained, however much of them is used. It moves pods that run well. {OURS}"
        ),
    ] = "Disabled"
    replace_threshold: Annotated[
        Threshold,
        doc(f"By how much of their price nodes must become cheaper to be replaced. {OURS}", THRESHOLD_RULE),
    ] = "0.15"

    @property
    def delay_after_add_seconds(self) -> float:
        """``delayAfterAdd`` in seconds."""
        return parse_go_duration(self.delay_after_add)

    @property
    def delay_after_delete_seconds(self) -> float:
        """``delayAfterDelete`` in seconds."""
        return parse_go_duration(self.delay_after_delete)

    @property
    def delay_after_failure_seconds(self) -> float:
        """``delayAfterFailure`` in seconds."""
        return parse_go_duration(self.delay_after_failure)

    @property
    def unneeded_seconds(self) -> float:
        """``unneededTime`` in seconds."""
        return parse_go_duration(self.unneeded_time)

    @property
    def unready_seconds(self) -> float:
        """``unreadyTime`` in seconds."""
        return parse_go_duration(self.unready_time)

    @property
    def threshold(self) -> float:
        """``utilizationThreshold`` as a share."""
        return float(self.utilization_threshold)

    @property
    def gpu_threshold(self) -> float:
        """``gpuUtilizationThreshold`` as a share."""
        return float(self.gpu_utilization_threshold)

    @property
    def replace_share(self) -> float:
        """``replaceThreshold`` as a share."""
        return float(self.replace_threshold)


class ScaleUp(Spec, frozen=True):
    """When nodes are added."""

    new_pod_scale_up_delay: Annotated[
        GoDuration,
        doc(
            "How old a pending pod must be before nodes are added for it. A pod can ask for more with the annotation "
            "cluster-autoscaler.kubernetes.io/pod-scale-up-delay.",
            GO_DURATION_RULE,
            GO_DURATION_BOUND,
        ),
    ] = "0s"
    bypassed_schedulers: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=253)], ...],
        bounded(
            "Schedulers whose pods count as pending before the scheduler has said that it finds no node for them. "
            f"{OURS}",
            limit=16,
            **SET,
        ),
    ] = ()

    @property
    def delay_seconds(self) -> float:
        """``newPodScaleUpDelay`` in seconds."""
        return parse_go_duration(self.new_pod_scale_up_delay)


class ClusterAutoscalerSpec(Spec, frozen=True):
    """When nodes are added and removed, and within which limits. An empty spec scales both ways, without limits."""

    mode: Annotated[
        Mode, doc(f"Act adds and removes nodes. Simulate plans and reports, and changes nothing. {OURS}")
    ] = "Act"
    resource_limits: Annotated[ResourceLimits, doc("How large and how small the whole cluster may get.")] = (
        ResourceLimits()
    )
    scale_down: Annotated[
        ScaleDown | None,
        doc(
            "Whether and when nodes are removed. Where it is left out they are, after the times that are its defaults."
        ),
    ] = None
    scale_up: Annotated[ScaleUp, doc("When nodes are added.")] = ScaleUp()
    max_pod_grace_period: Annotated[
        NaturalInt,
        doc(
            "The most seconds that a pod gets to end when its node is removed; a pod whose "
            "terminationGracePeriodSeconds is longer is cut short."
        ),
    ] = 600
    max_node_provision_time: Annotated[
        GoDuration,
        doc(
            "How long a machine may take to become a node; after that the pods that wait for it are planned anew.",
            GO_DURATION_RULE,
            GO_DURATION_BOUND,
        ),
    ] = "15m"
    pod_priority_threshold: Annotated[
        int,
        Meta(ge=-MAX_INT32 - 1, le=MAX_INT32),
        doc(
            "Pods of a lower priority than this add no nodes, and do not keep any: they run where there is room and go "
            "with their node."
        ),
    ] = PRIORITY_THRESHOLD
    balance_similar_node_groups: Annotated[
        bool, doc("Whether nodes are added to groups with equal nodes in turn, so that these grow alike.")
    ] = False
    balancing_ignored_labels: Annotated[
        tuple[LabelKey, ...],
        bounded(
            "Labels in which nodes of groups may differ that are balanced, beside hostname, zone and region.",
            limit=64,
            **SET,
        ),
    ] = ()
    ignore_daemonsets_utilization: Annotated[
        bool, doc("Whether DaemonSets' pods are left out when it is reckoned how much of a node is used.")
    ] = False
    ignore_mirror_pods_utilization: Annotated[
        bool,
        doc(
            "Whether mirror pods, which show what a kubelet runs of its own accord, are left out when it is reckoned "
            f"how much of a node is used. {OURS}"
        ),
    ] = False
    skip_nodes_with_local_storage: Annotated[
        bool, doc("Whether nodes stay whose pods have emptyDir or hostPath volumes.")
    ] = True
    expanders: Annotated[
        tuple[Expander, ...],
        bounded(
            "How to choose among groups that could take the pods: the first decides, the next decides among those that "
            "it likes equally. LeastWaste: the least cpu and memory left over. Priority: the highest in the ConfigMap "
            "cluster-autoscaler-priority-expander. Random: any, by a fixed seed. Only trimtab has MostPods: most pods "
            "helped, LeastNodes: fewest nodes, Price: cheapest, Grpc: what the server says that the operator's "
            "settings name. LeastWaste where none is given.",
            limit=7,
            **SET,
        ),
    ] = ()
    enforce_node_group_min_size: Annotated[
        OnOff, doc("Whether a group that is smaller than its minimum is raised to it.")
    ] = "Disabled"
    startup_taints: Annotated[
        tuple[LabelKey, ...],
        bounded(
            "Keys of taints that new nodes have until something on them is ready: such a node counts as on its way, "
            "and its taint is no reason against it.",
            limit=64,
            **SET,
        ),
    ] = ()
    log_verbosity: Annotated[
        NaturalInt | None,
        doc("How much OpenShift's autoscaler logs. trimtab takes it and does nothing with it: see its own settings."),
    ] = None

    @property
    def scaling_down(self) -> ScaleDown:
        """``scaleDown``, with what its absence means: enabled, with the defaults."""
        return self.scale_down or ScaleDown(enabled=True)

    @property
    def provision_seconds(self) -> float:
        """``maxNodeProvisionTime`` in seconds."""
        return parse_go_duration(self.max_node_provision_time)


class ClusterAutoscaler(Spec, frozen=True):
    """When nodes are added for pods that find no place, and which nodes are removed because nobody needs them.

    There is one, named default; MachineAutoscalers say which sets of machines it may scale.
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
        """The name, which is always ``default``."""
        return self.metadata.name
