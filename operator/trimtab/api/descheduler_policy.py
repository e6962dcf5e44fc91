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

from collections.abc import Iterable, Mapping
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


def contradict(first: Selector | None, second: Selector | None) -> bool:
    """Return whether no set of labels can match both selectors. ``None`` matches everything."""
    wanted: dict[str, list[Requirement]] = {}
    for each in (*_requirements(first), *_requirements(second)):
        wanted.setdefault(each.key, []).append(each)
    return any(_is_unsatisfiable(requirements) for requirements in wanted.values())


def includes(wide: Selector | None, narrow: Selector | None) -> bool:
    """Return whether a selector evidently matches everything that another one matches, by its requirements alone."""
    first, second = (
        {(each.key, each.operator, frozenset(each.values)) for each in _requirements(selector)}
        for selector in (wide, narrow)
    )
    return first <= second


def _requirements(selector: Selector | None) -> list[Requirement]:
    if selector is None:
        return []
    labels = selector.match_labels.items()
    return [
        *(Requirement(key=key, operator="In", values=(value,)) for key, value in labels),
        *selector.match_expressions,
    ]


def _is_unsatisfiable(requirements: Iterable[Requirement]) -> bool:
    """Return whether neither a value nor the absence of the label can meet all requirements."""
    allowed: frozenset[str] | None = None
    forbidden: frozenset[str] = frozenset()
    present = absent = False
    for each in requirements:
        values = frozenset(each.values)
        if each.operator == "In":
            allowed = values if allowed is None else allowed & values
        elif each.operator == "NotIn":
            forbidden |= values
        present |= each.operator in {"In", "Exists"}
        absent |= each.operator == "DoesNotExist"
    return (present and absent) or (allowed is not None and allowed <= forbidden)


DefaultProtection = Literal["PodsWithLocalStorage", "SystemNamespaces", "FailedBarePods"]
ExtraProtection = Literal["PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims"]
NoEvictionPolicy = Literal["Preferred", "Mandatory"]


class Protections(Spec, frozen=True):
    """Rules that protect pods from eviction.

    The following pods are always protected: pods with a system-critical priority, static pods, mirror pods, DaemonSet
    pods, pods of a PodGroup, terminating pods, and pods that are still Pending on their node less than 5 minutes after
    their creation. Pods without a controller are also always protected unless their phase is Failed. The following pods
    are protected by default: pods with emptyDir or hostPath volumes, pods in system namespaces, and pods in phase
    Failed without a controller.

    The value "true" of the pod annotation descheduler.alpha.kubernetes.io/evict disables the protection of Pending
    pods, and all protections that a policy can configure except FailedBarePods. Any other value of the annotation
    protects the pod.
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
            "Default protections to disable. PodsWithLocalStorage protects pods with emptyDir or hostPath volumes, "
            "which lose the data in these volumes when they are evicted. SystemNamespaces protects pods in system "
            "namespaces (kube-*, openshift and openshift-*). FailedBarePods protects pods in phase Failed without a "
            "controller, which are not recreated after their deletion. Other protections cannot be disabled.",
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
            "Names of the StorageClasses to which the PodsWithPVC protection is limited. If set, PodsWithPVC protects "
            "only pods that use a PersistentVolumeClaim of one of these StorageClasses or of an unknown StorageClass. "
            "If unset, PodsWithPVC protects pods that use any PersistentVolumeClaim. Requires PodsWithPVC in extra.",
            least=1,
            limit=64,
            **SET,
        ),
    ] = ()
    no_eviction_policy: Annotated[
        NoEvictionPolicy,
        doc(
            "Effect of the pod annotation descheduler.alpha.kubernetes.io/prefer-no-eviction. With Preferred, pods "
            "with the annotation are evicted after other pods of the same priority and QoS class. With Mandatory, pods "
            "with the annotation are not evicted."
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
            "Maximum time for which an annotation can prevent the eviction of a workload's pods. This limit applies to "
            'descheduler.alpha.kubernetes.io/evict with a value other than "true". If noEvictionPolicy is Mandatory, '
            "the limit also applies to descheduler.alpha.kubernetes.io/prefer-no-eviction. The time starts when a "
            "strategy first selects a pod of the workload, and does not restart if the annotation changes. "
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

    Exactly one of name and value must be set. If priorityThreshold is unset, only pods with a system-critical priority
    are protected because of their priority.
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

    Limits without a default apply only if they are set. If spec.limits is omitted, the only limit is 30 evictions per
    minute.
    """

    per_cycle: Annotated[PositiveInt | None, doc("Maximum number of evictions per cycle.")] = None
    per_node: Annotated[PositiveInt | None, doc("Maximum number of pods evicted from each node per cycle.")] = None
    per_namespace: Annotated[
        PositiveInt | None, doc("Maximum number of pods evicted from each namespace per cycle.")
    ] = None
    per_owner: Annotated[
        PositiveInt | None,
        doc("Maximum number of pods evicted per cycle for each owner, such as a ReplicaSet, StatefulSet or Job."),
    ] = None
    per_causing_namespace: Annotated[
        PositiveInt | None,
        doc(
            "Maximum number of evictions per cycle that the pods in one namespace can cause, by their scheduling rules "
            "or by the load of pods that cannot be moved. Scheduling rules are pod affinity, pod anti-affinity, node "
            "affinity and topology spread constraints. If pods of several namespaces cannot be moved, an eviction "
            "because of their load counts toward the namespace with the largest load. The evicted pods may be in any "
            "namespace."
        ),
    ] = None
    per_minute: Annotated[
        PositiveInt,
        doc(
            "Maximum number of evictions per minute. This limit delays the execution of a plan but does not reduce the "
            "number of planned evictions. In Act mode, planned evictions that have not been executed when the next "
            "cycle is due are dropped, and the next cycle makes a new plan."
        ),
    ] = 30


class Cooldown(Spec, frozen=True):
    """Settings that prevent a strategy from repeating ineffective evictions.

    An eviction is ineffective if the replacement pod stays Pending or is scheduled to a node from which the strategy
    would evict it again. Unless the strategy only restarts pods, an eviction is also ineffective if the replacement pod
    is scheduled to the same node. Finally, an eviction is ineffective if another controller or a rolling restart took
    over the eviction but did not replace the pod.

    After an ineffective eviction, the strategy evicts no pods of the workload until the cooldown ends. If spec.cooldown
    is omitted, the defaults of its fields apply.
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
            "Number of consecutive ineffective evictions after which a strategy stops evicting pods of a workload. The "
            "strategy resumes when the pod template or the policy's spec changes, or when a user sets the policy's "
            "trimtab.dev/try-again annotation to a new value."
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
    """Restricts evictions to pods in certain namespaces, which are selected by name.

    If neither include nor exclude is set, pods in all namespaces may be evicted. By default, pods in system namespaces
    are protected even if include contains these namespaces.
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
            message="runsHistoryLimit must be at least 1 in Approve mode",
            field_path=".runsHistoryLimit",
        ),
    )

    strategies: Annotated[Strategies, doc("Strategies to run, keyed by name.")]
    mode: Annotated[
        Mode,
        doc(
            "Whether and when plans are executed. Simulate is a dry run: the status, events and DeschedulingRuns "
            "report the plans, but no pods are evicted. Approve executes a plan after a user sets spec.approved of its "
            "DeschedulingRun to true. Evictions that are no longer valid are skipped. Act executes plans immediately. "
            "Defaults to Simulate, so that a new policy evicts no pods."
        ),
    ] = "Simulate"
    suspend: Annotated[
        bool,
        doc(
            "Whether the policy is suspended. While the policy is suspended, no cycles start and no DeschedulingRuns "
            "are executed. A running cycle completes the evictions that are in progress and drops its other evictions. "
            "DeschedulingRuns in phase Pending or Acting expire."
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
            "window closes, planned evictions that have not been executed are dropped. In Act mode, cycles run only "
            "while a window is open. In Approve mode, plans are made at any time, but approved DeschedulingRuns are "
            "executed only while a window is open. Ignored in Simulate mode.",
            least=1,
            limit=MAX_WINDOWS,
            **ATOMIC,
        ),
    ] = ()
    approval_deadline: Annotated[
        Duration,
        duration_doc(
            "Maximum time between the creation and the approval of a DeschedulingRun in Approve mode. The same limit "
            "applies to the time between the approval and the completion of the DeschedulingRun. A DeschedulingRun "
            "that exceeds either limit expires.",
            APPROVAL_RULE,
        ),
    ] = "1h"
    runs_history_limit: Annotated[
        int,
        Meta(ge=0, le=MAX_RUNS),
        doc(
            "Number of DeschedulingRuns of this policy to retain. Older DeschedulingRuns are deleted unless they are "
            "pending approval, are being executed, or were approved and ended less than 10 minutes ago. The value 0 "
            "disables DeschedulingRuns and is not allowed in Approve mode."
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
            "How to evict a Ready pod that is the only replica of its owner. Evict uses the eviction API, so the "
            "workload is unavailable until the replacement pod is Ready. Surge restarts the pod's Deployment with a "
            "rolling update, so that the new pod is Ready before the old pod terminates. With Surge, pods that cannot "
            "be replaced in this way are not evicted, for example pods without a Deployment."
        ),
    ] = "Evict"
    cross_namespace: Annotated[
        CrossNamespace,
        doc(
            "Whether a pod may be evicted because of a pod in another namespace, for example to satisfy the "
            "anti-affinity of the other pod. Deny: no pod is evicted for that reason. Allow: a pod is evicted only if "
            "the other pod has a higher priority, was bound by a scheduler, and could itself be evicted. With either "
            "value, no pod is evicted because of a pod with a lower priority."
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
    """DeschedulerPolicy defines which pods are evicted for rescheduling, when they are evicted, and at which rate.

    By default, the mode is Simulate and no pods are evicted. The status of the policy, events and DeschedulingRuns
    report what the policy would do.

    To start a cycle immediately, set the trimtab.dev/run-now annotation to a new value. The fields windows, limits and
    suspend still apply. To end all cooldowns (see spec.cooldown), set the trimtab.dev/try-again annotation to a new
    value.
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
