"""SchedulerPolicy: how the scheduler places pods. There is one policy per scheduler name.

    apiVersion: trimtab.dev/v1alpha1
    kind: SchedulerPolicy
    metadata: {name: packing}
    spec:
      schedulerName: packing
      profile:
        scoringStrategy: {type: MostAllocated}
        scores:
        - {name: ImageLocality, weight: 5}

A policy has one of three forms, which correspond to kube-scheduler's configuration formats. ``provider`` names a
built-in set of predicates and priorities. ``policy`` is a legacy Policy file (Kubernetes 1.22 and earlier, OpenShift
3.11) with predicates and priorities. ``profile`` is a profile of a KubeSchedulerConfiguration. If none of them is set,
kube-scheduler's default profile applies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import Meta

from trimtab.api.base import (
    ATOMIC,
    SET,
    BigCount,
    NaturalInt,
    ObjectMeta,
    Rule,
    ShortText,
    Spec,
    Status,
    bounded,
    doc,
    list_map,
)
from trimtab.api.conditions import Condition, ObservedGeneration, condition_list
from trimtab.api.scheduler_extenders import ExtendedResourceName, Extenders
from trimtab.api.scheduler_plugins import AddedAffinity, LabelKey, PodTopologySpreadArgs
from trimtab.api.state import state_meta

KIND: Final = "SchedulerPolicy"

DEFAULT_PROVIDER: Final = "DefaultProvider"
AUTOSCALER_PROVIDER: Final = "ClusterAutoscalerProvider"
Provider = Literal["DefaultProvider", "ClusterAutoscalerProvider"]

DEFAULT_SCHEDULER: Final = "default-scheduler"

PREDICATES: Final = (
    "CheckNodeCondition",
    "CheckNodeDiskPressure",
    "CheckNodeLabelPresence",
    "CheckNodeMemoryPressure",
    "CheckNodePIDPressure",
    "CheckNodeUnschedulable",
    "CheckServiceAffinity",
    "CheckVolumeBinding",
    "EvenPodsSpread",
    "GeneralPredicates",
    "HostName",
    "MatchInterPodAffinity",
    "MatchNodeSelector",
    "MaxAzureDiskVolumeCount",
    "MaxCSIVolumeCount",
    "MaxCSIVolumeCountPred",
    "MaxEBSVolumeCount",
    "MaxGCEPDVolumeCount",
    "NoDiskConflict",
    "NoVolumeZoneConflict",
    "PodFitsHostPorts",
    "PodFitsPorts",
    "PodFitsResources",
    "PodToleratesNodeNoExecuteTaints",
    "PodToleratesNodeTaints",
)
"""Names of the predicates that take no argument. Case is ignored."""

PRIORITIES: Final = (
    "BalancedResourceAllocation",
    "EqualPriority",
    "ImageLocalityPriority",
    "InterPodAffinityPriority",
    "LeastRequestedPriority",
    "MostRequestedPriority",
    "NodeAffinityPriority",
    "NodePreferAvoidPodsPriority",
    "RequestedToCapacityRatioPriority",
    "SelectorSpreadPriority",
    "ServiceSpreadingPriority",
    "TaintTolerationPriority",
)
"""Names of the priorities that take no argument. Case is ignored."""

FilterPlugin = Literal[
    "InterPodAffinity",
    "NodeAffinity",
    "NodeDeclaredFeatures",
    "NodeName",
    "NodePorts",
    "NodeResourcesFit",
    "NodeUnschedulable",
    "NodeVolumeLimits",
    "PodTopologySpread",
    "SchedulingGates",
    "TaintToleration",
    "VolumeBinding",
    "VolumeRestrictions",
    "VolumeZone",
]
ScorePlugin = Literal[
    "ImageLocality",
    "InterPodAffinity",
    "NodeAffinity",
    "NodeResourcesBalancedAllocation",
    "NodeResourcesFit",
    "PodTopologySpread",
    "TaintToleration",
]

MAX_RULES: Final = 64
MAX_LABELS: Final = 16
MAX_SHAPE: Final = 32

RuleName = Annotated[str, Meta(min_length=2, max_length=128, pattern="^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])$")]
"""The name of a predicate or priority, in the format that ``validatePredicateName`` of kube-scheduler v1.22
accepts."""

LEGACY_WEIGHT: Final = 100_000
"""Highest weight of a legacy priority. OpenShift's default policy contains a weight of 10,000."""
Weight = Annotated[int, Meta(ge=1, le=LEGACY_WEIGHT)]
PluginWeight = Annotated[int, Meta(ge=0, le=LEGACY_WEIGHT)]

ONE_FORM: Final = "at most one of provider, policy and profile may be set"
ONE_PREDICATE_ARGUMENT: Final = "exactly one of serviceAffinity and labelsPresence must be set"
ONE_PRIORITY_ARGUMENT: Final = (
    "exactly one of serviceAntiAffinity, labelPreference and requestedToCapacityRatioArguments must be set"
)
UNKNOWN_PREDICATE: Final = f"unknown predicate without an argument; allowed are {', '.join(PREDICATES)}"
UNKNOWN_PRIORITY: Final = f"unknown priority without an argument; allowed are {', '.join(PRIORITIES)}"
SHAPE_ASCENDS: Final = "utilization must increase from point to point"
SHAPE_OF_TYPE: Final = "is required with type RequestedToCapacityRatio and only valid with it"

ResourceName = Annotated[str, Meta(min_length=1, max_length=317)]
ResourceGroup = Annotated[str, Meta(min_length=1, max_length=253, pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]


def _known_name(names: Sequence[str], message: str) -> Rule:
    """Return the rule that a predicate or priority must have one of these names unless it has an argument."""
    known = ", ".join(f"'{name.lower()}'" for name in names)
    return Rule(
        rule=f"has(self.argument) || self.name.lowerAscii() in [{known}]",
        message=message,
        expression=f"self.name + ': {message}'",
        field_path=".name",
    )


_ASCENDS: Final = Rule(
    rule="self.map(point, point.utilization).isSorted() && "
    "self.all(point, self.exists_one(other, other.utilization == point.utilization))",
    message=SHAPE_ASCENDS,
)
_ASCENDING: Final[dict[str, Any]] = {**ATOMIC, "x-kubernetes-validations": [_ASCENDS.wire()]}


class ServiceAffinity(Spec, frozen=True):
    """Requires that all pods of a Service run on nodes with the same values of these labels."""

    labels: Annotated[
        tuple[LabelKey, ...],
        bounded(
            "Keys of the node labels, for example topology.kubernetes.io/region.", limit=MAX_LABELS, least=1, **ATOMIC
        ),
    ]


class LabelsPresence(Spec, frozen=True):
    """Requires that nodes have all of these labels, or none of them. The values are ignored."""

    labels: Annotated[
        tuple[LabelKey, ...],
        bounded(
            "Keys of the node labels to check. The values of the labels are ignored.",
            limit=MAX_LABELS,
            least=1,
            **ATOMIC,
        ),
    ]
    presence: Annotated[
        bool, doc("Whether nodes must have all of the labels. If false, nodes must have none of the labels.")
    ] = False


class PredicateArgument(Spec, frozen=True):
    """Argument of a custom predicate."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="has(self.serviceAffinity) != has(self.labelsPresence)", message=ONE_PREDICATE_ARGUMENT),
    )

    service_affinity: Annotated[
        ServiceAffinity | None,
        doc("Requires that all pods of a Service run on nodes that have the same values for the given labels."),
    ] = None
    labels_presence: Annotated[
        LabelsPresence | None,
        doc("Requires that nodes have all of the given labels or, if presence is false, none of the labels."),
    ] = None


class Predicate(Spec, frozen=True):
    """A condition that a node must meet to be feasible for a pod."""

    cel: ClassVar[tuple[Rule, ...]] = (_known_name(PREDICATES, UNKNOWN_PREDICATE),)

    name: Annotated[
        RuleName,
        doc("Name of the predicate, for example PodFitsResources. A predicate with an argument can have any name."),
    ]
    argument: Annotated[
        PredicateArgument | None,
        doc("Argument of a custom predicate. Exactly one of serviceAffinity and labelsPresence must be set."),
    ] = None


class ServiceAntiAffinity(Spec, frozen=True):
    """Spreads the pods of a Service over the values of a node label."""

    label: Annotated[LabelKey, doc("Key of the node label, for example topology.kubernetes.io/zone.")]


class LabelPreference(Spec, frozen=True):
    """Prefers nodes with a label, or nodes without it."""

    label: Annotated[LabelKey, doc("Key of the node label to check. The value of the label is ignored.")]
    presence: Annotated[
        bool, doc("Whether nodes with the label are preferred. If false, nodes without the label are preferred.")
    ] = False


class UtilizationPoint(Spec, frozen=True):
    """A point of the function that maps utilization to score. The function is linear between adjacent points."""

    utilization: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description="Utilization of a resource: the requested amount as a percentage of the node's allocatable "
            "amount.",
        ),
    ]
    score: Annotated[int, Meta(ge=0, le=10, description="Score of a node with this utilization.")]


Shape = Annotated[
    tuple[UtilizationPoint, ...],
    bounded(
        "Points of the function that maps utilization to score, in ascending order of utilization.",
        limit=MAX_SHAPE,
        least=1,
        **_ASCENDING,
    ),
]


class RequestedToCapacityRatioArguments(Spec, frozen=True):
    """Scores nodes by the ratio of requested to allocatable cpu and memory, with a configurable function."""

    shape: Shape


class PriorityArgument(Spec, frozen=True):
    """Argument of a custom priority."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="[has(self.serviceAntiAffinity), has(self.labelPreference), "
            "has(self.requestedToCapacityRatioArguments)].filter(x, x).size() == 1",
            message=ONE_PRIORITY_ARGUMENT,
        ),
    )

    service_anti_affinity: Annotated[
        ServiceAntiAffinity | None, doc("Spreads the pods of a Service across the values of a node label.")
    ] = None
    label_preference: Annotated[
        LabelPreference | None,
        doc("Prefers nodes that have the given label or, if presence is false, nodes that do not have the label."),
    ] = None
    requested_to_capacity_ratio_arguments: Annotated[
        RequestedToCapacityRatioArguments | None,
        doc("Scores nodes by the ratio of requested to allocatable cpu and memory, with a configurable function."),
    ] = None


class Priority(Spec, frozen=True):
    """A function that scores nodes from 0 to 10, and its weight."""

    cel: ClassVar[tuple[Rule, ...]] = (_known_name(PRIORITIES, UNKNOWN_PRIORITY),)

    name: Annotated[
        RuleName,
        doc("Name of the priority, for example LeastRequestedPriority. A priority with an argument can have any name."),
    ]
    weight: Annotated[
        Weight,
        doc("Factor by which the score of this priority is multiplied before the scores of all priorities are added."),
    ]
    argument: Annotated[
        PriorityArgument | None,
        doc(
            "Argument of a custom priority. Exactly one of serviceAntiAffinity, labelPreference and "
            "requestedToCapacityRatioArguments must be set."
        ),
    ] = None


class Policy(Spec, frozen=True):
    """The legacy scheduler Policy (kind: Policy, apiVersion: v1), as in scheduler.json of OpenShift 3.11.

    If predicates or priorities are unset, those of DefaultProvider apply; an empty list means none. Predicates that
    are mandatory in kube-scheduler (taints, cordoned nodes) are always added.
    """

    predicates: Annotated[
        Annotated[tuple[Predicate, ...], Meta(max_length=MAX_RULES)] | None,
        doc(
            "Predicates that a node must satisfy to be feasible for a pod. If unset, the predicates of "
            "DefaultProvider apply. The mandatory predicates of kube-scheduler for taints and cordoned nodes always "
            "apply.",
            **list_map("name"),
        ),
    ] = None
    priorities: Annotated[
        Annotated[tuple[Priority, ...], Meta(max_length=MAX_RULES)] | None,
        doc(
            "Priorities that score the feasible nodes. The node with the highest weighted sum of scores is selected. "
            "If unset, the priorities of DefaultProvider apply. If empty, all nodes have the same score.",
            **list_map("name"),
        ),
    ] = None
    hard_pod_affinity_symmetric_weight: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description=(
                "Weight of the required pod affinity terms of running pods that match the pending pod, in the "
                "score of InterPodAffinityPriority. The value 0 is treated as 1."
            ),
        ),
    ] = 1
    always_check_all_predicates: Annotated[
        bool,
        doc(
            "Whether to evaluate all predicates for a node even after one of them has failed, so that the message of "
            "an unschedulable pod contains all reasons."
        ),
    ] = False

    @property
    def hard_pod_affinity_weight(self) -> int:
        """Return ``hardPodAffinitySymmetricWeight``, or 1 if it is 0."""
        return self.hard_pod_affinity_symmetric_weight or 1


LEAST_ALLOCATED: Final = "LeastAllocated"
MOST_ALLOCATED: Final = "MostAllocated"
REQUESTED_TO_CAPACITY_RATIO: Final = "RequestedToCapacityRatio"
ScoringType = Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]


class ScoredResource(Spec, frozen=True):
    """A resource that affects the score of a node, and its weight."""

    name: Annotated[ResourceName, doc("Name of the resource, for example cpu, memory or nvidia.com/gpu.")]
    weight: Annotated[
        int, Meta(ge=1, le=100, description="Weight of the resource in the score, relative to the other resources.")
    ] = 1


class ScoringStrategy(Spec, frozen=True):
    """How NodeResourcesFit scores nodes (NodeResourcesFitArgs.scoringStrategy)."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="has(self.shape) == (self.type == 'RequestedToCapacityRatio')",
            message=SHAPE_OF_TYPE,
            field_path=".shape",
        ),
    )

    type: Annotated[
        ScoringType,
        doc(
            "Scoring method. LeastAllocated prefers nodes with the lowest ratio of requested to allocatable resources. "
            "MostAllocated prefers nodes with the highest ratio, to pack pods onto few nodes. RequestedToCapacityRatio "
            "scores nodes with the function in shape."
        ),
    ] = "LeastAllocated"
    resources: Annotated[
        tuple[ScoredResource, ...],
        bounded(
            "Resources whose utilization determines the score of a node. Defaults to cpu and memory, each with weight "
            "1.",
            limit=MAX_LABELS,
            least=1,
            **list_map("name"),
        ),
    ] = (ScoredResource("cpu"), ScoredResource("memory"))
    shape: Annotated[
        Annotated[tuple[UtilizationPoint, ...], Meta(min_length=1, max_length=MAX_SHAPE)] | None,
        doc(
            "Points of the function that maps utilization to score, in ascending order of utilization. Required if "
            "type is RequestedToCapacityRatio, and not allowed otherwise.",
            **_ASCENDING,
        ),
    ] = None


class PluginScore(Spec, frozen=True):
    """The weight of a score plugin."""

    name: Annotated[ScorePlugin, doc("Name of the score plugin, for example ImageLocality.")]
    weight: Annotated[
        PluginWeight,
        doc(
            "Factor by which the score of the plugin is multiplied before the scores of all plugins are added. The "
            "value 0 disables the plugin's score."
        ),
    ]


class Profile(Spec, frozen=True):
    """A profile of a KubeSchedulerConfiguration. Unset fields have kube-scheduler's defaults."""

    disabled_filters: Annotated[
        tuple[FilterPlugin, ...],
        bounded("Names of filter plugins that are disabled.", limit=MAX_RULES, **ATOMIC),
    ] = ()
    scores: Annotated[
        tuple[PluginScore, ...],
        bounded(
            "Weights of score plugins. Plugins that are not listed keep their default weight: 3 for "
            "TaintToleration, 2 for InterPodAffinity, NodeAffinity and PodTopologySpread, and 1 for "
            "ImageLocality, NodeResourcesBalancedAllocation and NodeResourcesFit.",
            limit=MAX_RULES,
            **list_map("name"),
        ),
    ] = ()
    scoring_strategy: Annotated[ScoringStrategy, doc("How the NodeResourcesFit plugin scores nodes.")] = (
        ScoringStrategy()
    )
    hard_pod_affinity_weight: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description=(
                "Weight of the required pod affinity terms of running pods that match the pending pod, in the "
                "score of the InterPodAffinity plugin."
            ),
        ),
    ] = 1
    ignore_preferred_terms_of_existing_pods: Annotated[
        bool,
        doc(
            "Whether the InterPodAffinity plugin ignores the preferred affinity terms of existing pods if the pending "
            "pod has no preferred affinity terms."
        ),
    ] = False
    pod_topology_spread: Annotated[
        PodTopologySpreadArgs, doc("Default topology spread constraints for pods that do not define any.")
    ] = PodTopologySpreadArgs()
    added_affinity: Annotated[
        AddedAffinity | None,
        doc(
            "Node affinity that is applied to every pod of this scheduler, in addition to the node affinity of the pod."
        ),
    ] = None
    balanced_resources: Annotated[
        tuple[ResourceName, ...],
        bounded(
            "Names of the resources whose utilization the NodeResourcesBalancedAllocation plugin balances. All "
            "resources have the same weight. Defaults to cpu and memory.",
            limit=MAX_LABELS,
            least=1,
            **SET,
        ),
    ] = ("cpu", "memory")
    ignored_resources: Annotated[
        tuple[ExtendedResourceName, ...],
        bounded("Names of extended resources that the NodeResourcesFit plugin ignores.", limit=MAX_LABELS, **SET),
    ] = ()
    ignored_resource_groups: Annotated[
        tuple[ResourceGroup, ...],
        bounded(
            "Groups of extended resources that the NodeResourcesFit plugin ignores. The group is the part of a "
            "resource name before the slash, for example example.com.",
            limit=MAX_LABELS,
            **SET,
        ),
    ] = ()
    percentage_of_nodes_to_score: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description=(
                "Has no effect. The field is accepted for compatibility with kube-scheduler. All feasible "
                "nodes are scored."
            ),
        ),
    ] = 0


class SchedulerPolicySpec(Spec, frozen=True):
    """Specifies which pods the policy schedules, and how it selects nodes for the pods.

    At most one of provider, policy and profile may be set. If none is set, kube-scheduler's default profile applies.
    """

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="[has(self.provider), has(self.policy), has(self.profile)].filter(x, x).size() <= 1",
            message=ONE_FORM,
            reason="FieldValueForbidden",
        ),
    )

    scheduler_name: Annotated[
        Annotated[str, Meta(min_length=1, max_length=253)],
        doc(
            "Name of the scheduler. The policy schedules pods with this spec.schedulerName. To also schedule pods that "
            "do not set schedulerName, specify default-scheduler. In that case, kube-scheduler must not use this name."
        ),
    ]
    provider: Annotated[
        Provider | None,
        doc(
            "Built-in set of predicates and priorities of the legacy kube-scheduler. DefaultProvider prefers nodes "
            "with the lowest ratio of requested to allocatable resources. ClusterAutoscalerProvider prefers nodes "
            "with the highest ratio, to pack pods onto few nodes."
        ),
    ] = None
    policy: Annotated[
        Policy | None,
        doc(
            "Legacy scheduler Policy with predicates and priorities, as in kube-scheduler 1.22 and earlier and in "
            "OpenShift 3.11."
        ),
    ] = None
    profile: Annotated[
        Profile | None, doc("Profile of a KubeSchedulerConfiguration, with plugin weights and arguments.")
    ] = None
    extenders: Extenders = ()
    disable_preemption: Annotated[
        bool,
        doc(
            "Whether to disable preemption. If true, pods that fit on no node wait instead of preempting pods with a "
            "lower priority."
        ),
    ] = False


class QueueCounts(Status, frozen=True):
    """Number of pending pods, by their state in the scheduling queue."""

    active: Annotated[
        NaturalInt, doc("Number of pods that are waiting for a scheduling attempt or are being scheduled.")
    ] = 0
    backoff: Annotated[
        NaturalInt,
        doc("Number of pods that are in backoff after a failed scheduling attempt."),
    ] = 0
    unschedulable: Annotated[
        NaturalInt,
        doc(
            "Number of pods that fit on no node. Unschedulable pods are retried after a cluster event that might make "
            "them schedulable."
        ),
    ] = 0
    gated: Annotated[
        NaturalInt,
        doc("Number of pods with scheduling gates. These pods are not scheduled until the gates are removed."),
    ] = 0


class SchedulingCounts(Status, frozen=True):
    """Numbers of scheduled pods, preempted pods and failed attempts since the SchedulerPolicy was created."""

    scheduled: Annotated[
        BigCount, doc("Number of pods that were bound to a node since the SchedulerPolicy was created.")
    ] = 0
    rejected: Annotated[
        BigCount,
        doc("Number of scheduling attempts since the SchedulerPolicy was created in which the pod fit on no node."),
    ] = 0
    preempted: Annotated[
        BigCount,
        doc(
            "Number of pods that were evicted or deleted to make room for a pod with a higher priority, since the "
            "SchedulerPolicy was created."
        ),
    ] = 0
    binding_failures: Annotated[
        BigCount,
        doc(
            "Number of failed attempts to bind a pod to a node since the SchedulerPolicy was created. For example, the "
            "API server rejected the request or did not respond."
        ),
    ] = 0


class UnschedulableReason(Status, frozen=True):
    """A reason why pods are unschedulable, and the number of these pods."""

    message: Annotated[
        ShortText,
        doc(
            "Message in the PodScheduled condition of the unschedulable pods. Pods whose messages differ only in "
            "numbers are counted together, and one of these messages is shown."
        ),
    ]
    pods: Annotated[NaturalInt, doc("Number of unschedulable pods with this message.")] = 0
    example: Annotated[
        ShortText, doc("One of the unschedulable pods with this message, in the form namespace/name.")
    ] = ""


MAX_REASONS: Final = 20


class SchedulerPolicyStatus(Status, frozen=True):
    """Observed status of the SchedulerPolicy: conditions, scheduling queue, and reasons why pods are unschedulable."""

    observed_generation: ObservedGeneration = 0
    state: Annotated[str, state_meta("SchedulerPolicy")] = ""
    conditions: Annotated[
        tuple[Condition, ...],
        condition_list(
            "Current conditions of the SchedulerPolicy. Ready is True if the policy is valid and its pods are "
            "scheduled. Progressing is True while pods wait for a scheduling attempt. Degraded is True if a problem "
            "prevents the operator from fulfilling part of the spec. Conflicting is True if another SchedulerPolicy "
            "has the same schedulerName. In that case, the oldest SchedulerPolicy is used. Contended is True if a "
            "second trimtab installation manages the same objects. PermissionsMissing is True if trimtab's service "
            "account lacks permissions that the policy needs."
        ),
    ] = ()
    queue: Annotated[QueueCounts, doc("Number of pending pods, by their state in the scheduling queue.")] = (
        QueueCounts()
    )
    counts: Annotated[
        SchedulingCounts,
        doc("Numbers of scheduled pods, preempted pods and failed attempts since the SchedulerPolicy was created."),
    ] = SchedulingCounts()
    unschedulable: Annotated[
        tuple[UnschedulableReason, ...],
        bounded(
            "Most frequent reasons why pods are unschedulable. The reasons with the most pods come first.",
            limit=MAX_REASONS,
            **ATOMIC,
        ),
    ] = ()


class SchedulerPolicy(Spec, frozen=True):
    """Configures a scheduler that places the pods with its schedulerName on nodes.

    For each scheduler name, only one SchedulerPolicy takes effect. trimtab does not schedule pods whose
    spec.schedulerName matches no SchedulerPolicy.

    By default, trimtab's scheduler is disabled. To enable it, set the Helm value controllers.scheduler.enabled to true.
    """

    metadata: ObjectMeta = ObjectMeta()
    spec: SchedulerPolicySpec = SchedulerPolicySpec(scheduler_name="")
    status: SchedulerPolicyStatus = SchedulerPolicyStatus()
    api_version: Literal["trimtab.dev/v1alpha1"] = "trimtab.dev/v1alpha1"
    kind: Literal["SchedulerPolicy"] = KIND

    @property
    def name(self) -> str:
        """Return ``metadata.name``."""
        return self.metadata.name
