"""DeschedulerPolicy: configures which pods may be evicted, when, how many at a time, and which pods are protected.

A minimal policy, which only simulates (``spec.mode`` defaults to Simulate):

    apiVersion: trimtab.dev/v1alpha1
    kind: DeschedulerPolicy
    metadata:
      name: default
    spec:
      strategies:
        RemoveDuplicates:
          enabled: true

The resource is cluster-scoped. Several policies may coexist; each has its own scope, limits and status.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta, field

from trimtab.api.base import (
    API_VERSION,
    ATOMIC,
    INCLUDE_OR_EXCLUDE,
    MAX_INT32,
    SET,
    Name,
    NamespaceName,
    NaturalInt,
    ObjectMeta,
    PositiveInt,
    Rule,
    Spec,
    bounded,
    doc,
)
from trimtab.api.descheduler_status import DeschedulerStatus
from trimtab.api.scalars import APPROVAL_RULE, COOLDOWN_RULE, INTERVAL_RULE, Duration, duration_doc, parse_duration
from trimtab.api.schedule import MAX_WINDOWS, Schedule, Window
from trimtab.api.strategies import Strategies
from trimtab.kube.frozen import FrozenMap
from trimtab.kube.objects import LabelRequirement
from trimtab.kube.objects import LabelSelector as KubeSelector

LabelValue = Annotated[str, Meta(max_length=63)]
Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]


class Requirement(Spec, frozen=True):
    """A label selector requirement, which consists of a key, an operator and values."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
            message="In and NotIn need values; Exists and DoesNotExist take none",
            field_path=".values",
        ),
    )

    key: Annotated[str, bounded("Label key that the requirement applies to.", least=1, limit=317)]
    operator: Annotated[
        Operator,
        doc("Relationship of the label to the values. Valid operators are In, NotIn, Exists and DoesNotExist."),
    ]
    values: Annotated[
        tuple[LabelValue, ...],
        bounded(
            "Label values. Must not be empty if the operator is In or NotIn. Must be empty if the operator is "
            "Exists or DoesNotExist.",
            limit=64,
        ),
    ] = ()


class Selector(Spec, frozen=True):
    """A label selector. The requirements of matchLabels and matchExpressions are ANDed.

    An empty selector matches all objects.
    """

    match_labels: Annotated[
        Mapping[str, LabelValue],
        bounded(
            "Map of label keys to values. A selected object must have all of these labels with these values.", limit=32
        ),
    ] = field(default_factory=dict)
    match_expressions: Annotated[
        tuple[Requirement, ...],
        bounded("List of label selector requirements. A selected object must meet all of them.", limit=32, **ATOMIC),
    ] = ()

    def compile(self) -> KubeSelector:
        """Return the selector in the form that :mod:`trimtab.kube.rules.selectors` evaluates."""
        return KubeSelector(
            match_labels=FrozenMap(self.match_labels),
            match_expressions=tuple(
                LabelRequirement(key=item.key, operator=item.operator, values=item.values)
                for item in self.match_expressions
            ),
        )


DefaultProtection = Literal["PodsWithLocalStorage", "SystemNamespaces", "FailedBarePods"]
ExtraProtection = Literal["PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims"]
NoEvictionPolicy = Literal["Preferred", "Mandatory"]


class Protections(Spec, frozen=True):
    """Rules that protect pods from eviction.

    The following pods are always protected: pods with a system-critical priority, static and mirror pods, DaemonSet
    pods, pods of a PodGroup, terminating pods, pods that are still Pending on their node less than 5 minutes after
    their creation, and pods without a controller, except those in phase Failed. The following pods are protected by
    default: pods with emptyDir or hostPath volumes, pods in system namespaces, and pods in phase Failed without a
    controller.

    The pod annotation descheduler.alpha.kubernetes.io/evict with the value "true" exempts a pod from the protection of
    Pending pods and from all protections that the policy can configure, except FailedBarePods. With any other value,
    the annotation protects the pod.
    """

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="!has(self.protectedStorageClasses) || (has(self.extra) && 'PodsWithPVC' in self.extra)",
            message="protectedStorageClasses requires PodsWithPVC in protections.extra",
            field_path=".protectedStorageClasses",
            reason="FieldValueForbidden",
        ),
    )

    disabled: Annotated[
        tuple[DefaultProtection, ...],
        bounded(
            "Default protections to disable. Only these three protections can be disabled. PodsWithLocalStorage "
            "protects pods with emptyDir or hostPath volumes, which lose the data in these volumes when they are "
            "evicted. SystemNamespaces protects pods in system namespaces (kube-*, openshift and openshift-*). "
            "FailedBarePods protects pods in phase Failed without a controller, which are not recreated after "
            "their deletion.",
            limit=3,
            **SET,
        ),
    ] = ()
    extra: Annotated[
        tuple[ExtraProtection, ...],
        bounded(
            "Additional protections to enable. PodsWithPVC protects pods that use a PersistentVolumeClaim. "
            "PodsWithoutPDB protects pods that no PodDisruptionBudget selects. PodsWithResourceClaims protects "
            "pods that use a ResourceClaim.",
            limit=3,
            **SET,
        ),
    ] = ()
    protected_storage_classes: Annotated[
        tuple[Name, ...],
        bounded(
            "Names of the StorageClasses to which the protection PodsWithPVC is limited. If set, PodsWithPVC "
            "protects only pods that use a claim of one of these StorageClasses or of an unknown StorageClass. If "
            "unset, it protects pods that use any claim. Requires PodsWithPVC in extra.",
            least=1,
            limit=64,
            **SET,
        ),
    ] = ()
    no_eviction_policy: Annotated[
        NoEvictionPolicy,
        doc(
            "How the pod annotation descheduler.alpha.kubernetes.io/prefer-no-eviction is handled. If Preferred, "
            "pods without the annotation are evicted before pods with the annotation that have the same priority "
            "and QoS class. If Mandatory, pods with the annotation are not evicted."
        ),
    ] = "Preferred"
    min_replicas: Annotated[
        PositiveInt | None,
        doc(
            "Minimum number of pods that an owner (such as a ReplicaSet or StatefulSet) must have for its pods to "
            "be evicted. Terminating and terminated pods are not counted. For example, 2 protects single "
            "replicas. If singleReplica is Surge, single replicas that a rolling update can replace without an "
            "outage are not protected."
        ),
    ] = None
    min_pod_age: Annotated[
        Duration | None,
        duration_doc(
            "Minimum age of pods that may be evicted. The age is measured from status.startTime. If minPodAge is "
            "set, pods without a startTime are not evicted.",
        ),
    ] = None

    max_hold: Annotated[
        Duration | None,
        duration_doc(
            "Maximum time for which an annotation can prevent the eviction of a workload's pods: "
            'descheduler.alpha.kubernetes.io/evict with a value other than "true", or '
            "descheduler.alpha.kubernetes.io/prefer-no-eviction if noEvictionPolicy is Mandatory. The time starts when "
            "a strategy first selects a pod of the workload, and changing the annotation does not reset it. "
            "PodDisruptionBudgets always apply. If unset, annotations protect pods indefinitely.",
        ),
    ] = None

    @property
    def max_hold_seconds(self) -> int | None:
        """Return ``maxHold`` in seconds, or ``None`` if it is unset."""
        return None if self.max_hold is None else parse_duration(self.max_hold)

    @property
    def min_pod_age_seconds(self) -> int:
        """Return ``minPodAge`` in seconds; 0 if it is unset."""
        return parse_duration(self.min_pod_age) if self.min_pod_age else 0


class PriorityThreshold(Spec, frozen=True):
    """Priority at or above which pods are not evicted.

    Exactly one of name and value must be set. If priorityThreshold is unset, only a system-critical priority protects a
    pod.
    """

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="has(self.name) != has(self.value)", message="give exactly one of name and value"),
    )

    name: Annotated[
        Name | None,
        doc(
            "Name of the PriorityClass whose value is the threshold. If the PriorityClass does not exist, no pods "
            "are evicted."
        ),
    ] = None
    value: (
        Annotated[
            int,
            Meta(ge=-MAX_INT32 - 1, le=MAX_INT32),
            doc("Integer value of the threshold, which is compared with the priority of pods."),
        ]
        | None
    ) = None


DEFAULT_INTERVAL: Final = 300
"""Default time between the starts of two cycles, in seconds, if a policy sets neither interval nor schedule."""

MAX_RUNS: Final = 50

KIND: Final = "DeschedulerPolicy"

Mode = Literal["Simulate", "Approve", "Act"]
SingleReplica = Literal["Evict", "Surge"]
CrossNamespace = Literal["Deny", "Allow"]


class Limits(Spec, frozen=True):
    """Limits on the number of evictions by this policy. Deletions of terminated pods count as evictions.

    A limit that is unset and has no default does not apply. If limits is omitted, only perMinute applies, with its
    default of 30.
    """

    per_cycle: Annotated[PositiveInt | None, doc("Maximum number of evictions per cycle.")] = None
    per_node: Annotated[PositiveInt | None, doc("Maximum number of pods evicted from each node per cycle.")] = None
    per_namespace: Annotated[
        PositiveInt | None, doc("Maximum number of pods evicted from each namespace per cycle.")
    ] = None
    per_owner: Annotated[
        PositiveInt | None,
        doc("Maximum number of pods of each owner (such as a ReplicaSet, StatefulSet or Job) evicted per cycle."),
    ] = None
    per_causing_namespace: Annotated[
        PositiveInt | None,
        doc(
            "Maximum number of evictions per cycle that are caused by the scheduling rules of pods in any one "
            "namespace. Scheduling rules are pod affinity, pod anti-affinity, node affinity and topology spread "
            "constraints. The evicted pods may be in any namespace."
        ),
    ] = None
    per_minute: Annotated[
        PositiveInt,
        doc(
            "Maximum number of evictions per minute. This limit delays the execution of a plan but does not "
            "reduce the number of planned evictions. In mode Act, evictions that have not been executed when the "
            "next cycle is due are dropped, and the next cycle makes a new plan."
        ),
    ] = 30


class Cooldown(Spec, frozen=True):
    """Settings that prevent a strategy from repeating ineffective evictions.

    An eviction is ineffective if the replacement pod is scheduled to the same node (unless the strategy only restarts
    pods), stays Pending, or is scheduled to a node from which the strategy would evict it again. It is also ineffective
    if another controller or a rolling restart took over the eviction but did not replace the pod.

    After an ineffective eviction, the strategy evicts no pods of the workload for the duration of the cooldown. If
    cooldown is omitted, the defaults of its fields apply.
    """

    initial: Annotated[
        Duration,
        duration_doc(
            "Duration of the cooldown after the first ineffective eviction of a workload's pods.",
            COOLDOWN_RULE,
        ),
    ] = "10m"
    maximum: Annotated[
        Duration,
        duration_doc(
            "Maximum duration of the cooldown. The cooldown doubles with each consecutive ineffective eviction "
            "until it reaches this value.",
            COOLDOWN_RULE,
        ),
    ] = "24h"
    attempts: Annotated[
        int,
        Meta(ge=1, le=20),
        doc(
            "Number of consecutive ineffective evictions after which a strategy stops evicting pods of a "
            "workload. The strategy resumes when the pod template or the policy's spec changes, or when the "
            "policy's annotation trimtab.dev/try-again is set to a new value."
        ),
    ] = 3
    pending_deadline: Annotated[
        Duration,
        duration_doc(
            "Maximum time that a replacement pod may stay Pending. After this time, the eviction counts as "
            "ineffective.",
            COOLDOWN_RULE,
        ),
    ] = "5m"

    def seconds(self, failures: int) -> int:
        """Return the cooldown in seconds after this number of consecutive ineffective evictions."""
        longest = parse_duration(self.maximum)
        return min(longest, parse_duration(self.initial) << min(failures - 1, 32))

    @property
    def pending_seconds(self) -> int:
        """Return ``pendingDeadline`` in seconds."""
        return parse_duration(self.pending_deadline)


class Namespaces(Spec, frozen=True):
    """Selects by name the namespaces whose pods may be evicted.

    If neither include nor exclude is set, pods in all namespaces may be evicted. Pods in system namespaces are
    protected by default, even if include lists these namespaces.
    """

    cel: ClassVar[tuple[Rule, ...]] = (INCLUDE_OR_EXCLUDE,)

    include: Annotated[
        tuple[NamespaceName, ...],
        bounded(
            "Names of the namespaces whose pods may be evicted. Mutually exclusive with exclude.",
            least=1,
            limit=256,
            **SET,
        ),
    ] = ()
    exclude: Annotated[
        tuple[NamespaceName, ...],
        bounded(
            "Names of the namespaces whose pods are not evicted. Mutually exclusive with include.",
            least=1,
            limit=256,
            **SET,
        ),
    ] = ()


class DeschedulerPolicySpec(Spec, frozen=True):
    """Specification of the desired behavior of the DeschedulerPolicy."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="!(has(self.interval) && has(self.schedule))",
            message="interval and schedule cannot be given together",
            field_path=".schedule",
            reason="FieldValueForbidden",
        ),
        Rule(
            rule="self.mode != 'Approve' || self.runsHistoryLimit > 0",
            message="runsHistoryLimit must be at least 1 in mode Approve",
            field_path=".runsHistoryLimit",
        ),
    )

    strategies: Annotated[Strategies, doc("Strategies to run, keyed by name.")]
    mode: Annotated[
        Mode,
        doc(
            "Whether and when plans are executed. Simulate: dry run. Plans are only reported in the status, events and "
            "DeschedulingRuns, and no pods are evicted. Approve: after a user sets spec.approved of the "
            "DeschedulingRun to true, the evictions that are still valid are executed. Act: plans are executed "
            "immediately. Defaults to Simulate, so that a new policy evicts no pods."
        ),
    ] = "Simulate"
    suspend: Annotated[
        bool,
        doc(
            "Whether the policy is suspended. While it is suspended, no cycles start and no DeschedulingRuns are "
            "executed. A running cycle completes its evictions in progress and drops the others. DeschedulingRuns that "
            "are pending approval or are being executed expire."
        ),
    ] = False
    interval: Annotated[
        Duration | None,
        duration_doc(
            "Time between the starts of consecutive cycles. Mutually exclusive with schedule. Defaults to 5m if "
            "schedule is unset.",
            INTERVAL_RULE,
        ),
    ] = None
    schedule: Annotated[
        Schedule | None, doc("Cron schedule that determines when cycles start. Mutually exclusive with interval.")
    ] = None
    windows: Annotated[
        tuple[Window, ...],
        bounded(
            "Maintenance windows during which pods may be evicted. If unset, pods may be evicted at any time. When a "
            "window closes, evictions that have not been executed are dropped. In mode Act, cycles run only while a "
            "window is open. In mode Approve, plans are made at any time, but approved DeschedulingRuns are executed "
            "only while a window is open. Ignored in mode Simulate.",
            least=1,
            limit=MAX_WINDOWS,
            **ATOMIC,
        ),
    ] = ()
    approval_deadline: Annotated[
        Duration,
        duration_doc(
            "Maximum time between the creation of a DeschedulingRun and its approval in mode Approve. The same limit "
            "applies to the time between the approval and the completion of the DeschedulingRun. A DeschedulingRun "
            "that exceeds either limit expires.",
            APPROVAL_RULE,
        ),
    ] = "1h"
    runs_history_limit: Annotated[
        int,
        Meta(ge=0, le=MAX_RUNS),
        doc(
            "Number of DeschedulingRuns of this policy to retain. Older DeschedulingRuns are deleted unless they "
            "are pending approval, are being executed, or were approved and ended less than 10 minutes ago. The "
            "value 0 disables DeschedulingRuns and is not allowed in mode Approve."
        ),
    ] = 10
    grace_period_seconds: Annotated[
        NaturalInt | None,
        doc(
            "Grace period in seconds that overrides the terminationGracePeriodSeconds of evicted pods. If 0, "
            "evicted pods are killed immediately. If unset (recommended), the grace period of each pod applies."
        ),
    ] = None
    single_replica: Annotated[
        SingleReplica,
        doc(
            "How a Ready pod is evicted if it is the only replica of its owner. Evict: through the eviction API, so "
            "that the workload is unavailable until the replacement pod is Ready. Surge: by a rolling update of its "
            "Deployment, so that the new pod is Ready before the old pod terminates. With Surge, single replicas that "
            "no rolling update can replace in this way are not evicted, for example pods without a Deployment."
        ),
    ] = "Evict"
    cross_namespace: Annotated[
        CrossNamespace,
        doc(
            "Whether a pod may be evicted because of a pod in another namespace, for example to satisfy the "
            "anti-affinity of the other pod. Deny: no such evictions. Allow: only if the other pod has a higher "
            "priority, was placed by a scheduler, and is not protected from eviction by its own spec, annotations or "
            "PodDisruptionBudgets. With both values, no pod is evicted because of a pod with a lower priority."
        ),
    ] = "Deny"
    limits: Limits = Limits()
    cooldown: Cooldown = Cooldown()
    protections: Protections = Protections()
    namespaces: Namespaces = Namespaces()
    namespace_selector: Annotated[
        Selector | None,
        doc(
            "Label selector for namespaces. Only pods in matching namespaces may be evicted. The selector applies "
            "in addition to spec.namespaces. If unset, all namespaces match."
        ),
    ] = None
    pod_selector: Annotated[
        Selector | None, doc("Label selector for pods. Only matching pods may be evicted. If unset, all pods match.")
    ] = None
    node_selector: Annotated[
        Selector | None,
        doc(
            "Label selector for nodes. Pods are evicted only from matching nodes, and only matching nodes are "
            "considered as targets. If unset, all nodes match."
        ),
    ] = None
    priority_threshold: PriorityThreshold | None = None

    def next_due(self, *, last: float) -> float:
        """Return the time at which the next cycle is due if the previous one started at ``last``.

        Both times are in seconds since the epoch.

        Raises:
            ValueError: interval or schedule is invalid, see :func:`trimtab.api.rules.check_descheduler_policy`.
        """
        if self.schedule is not None:
            return self.schedule.next_due(after=last)
        return last + (parse_duration(self.interval) if self.interval else DEFAULT_INTERVAL)

    @property
    def approval_seconds(self) -> int:
        """Return ``approvalDeadline`` in seconds."""
        return parse_duration(self.approval_deadline)


class DeschedulerPolicy(Spec, frozen=True):
    """DeschedulerPolicy defines which pods are evicted to be rescheduled, when they are evicted, and at which rate.

    In the default mode Simulate, no pods are evicted. The policy reports its plan in its status, in events and in
    DeschedulingRuns.

    To start a cycle immediately, set the annotation trimtab.dev/run-now to a new value. Windows, limits and suspend
    still apply. To end all cooldowns (see spec.cooldown), set the annotation trimtab.dev/try-again to a new value.
    """

    spec: DeschedulerPolicySpec
    metadata: ObjectMeta = ObjectMeta()
    status: DeschedulerStatus = DeschedulerStatus()
    api_version: Literal["trimtab.dev/v1alpha1"] = API_VERSION
    kind: Literal["DeschedulerPolicy"] = KIND

    @property
    def name(self) -> str:
        """Return the policy's name."""
        return self.metadata.name
