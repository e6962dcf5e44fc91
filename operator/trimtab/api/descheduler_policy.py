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
from trimtab.api.scalars import APPROVAL_RULE, COOLDOWN_RULE, DURATION_RULE, INTERVAL_RULE, Duration, parse_duration
from trimtab.api.schedule import MAX_WINDOWS, Schedule, Window
from trimtab.api.strategies import Strategies
from trimtab.kube.frozen import FrozenMap
from trimtab.kube.objects import LabelRequirement
from trimtab.kube.objects import LabelSelector as KubeSelector

LabelValue = Annotated[str, Meta(max_length=63)]
Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]


class Requirement(Spec, frozen=True):
    """A requirement on one label."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
            message="In and NotIn need values; Exists and DoesNotExist take none",
            field_path=".values",
        ),
    )

    key: Annotated[str, bounded("The label key that the requirement applies to.", least=1, limit=317)]
    operator: Annotated[
        Operator, doc("How the label's value is compared with values: In, NotIn, Exists or DoesNotExist.")
    ]
    values: Annotated[
        tuple[LabelValue, ...],
        bounded(
            "The values to compare with. Required for In and NotIn; must be empty for Exists and DoesNotExist.",
            limit=64,
        ),
    ] = ()


class Selector(Spec, frozen=True):
    """A label selector. matchLabels and matchExpressions must all match; an empty selector matches every object."""

    match_labels: Annotated[
        Mapping[str, LabelValue], bounded("Labels that the object must have, with exactly these values.", limit=32)
    ] = field(default_factory=dict)
    match_expressions: Annotated[
        tuple[Requirement, ...],
        bounded("Label requirements that must all be met.", limit=32, **ATOMIC),
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
    """Which pods are never evicted.

    These pods are always protected: pods with a system-critical priority, pods without a controller, static and mirror
    pods, DaemonSet pods, pods of a PodGroup, and pods that are already terminating. Pods with emptyDir or hostPath
    volumes and pods in system namespaces are protected unless the protection is listed in disabled.

    The pod annotation descheduler.alpha.kubernetes.io/evict with the value "true" exempts a pod from all protections
    that can be configured here, and from priorityThreshold. With any other value, it protects the pod.
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
            "Default protections to disable. PodsWithLocalStorage: pods with emptyDir or hostPath volumes may "
            "be evicted and lose the data in these volumes. SystemNamespaces: pods in system namespaces "
            "(kube-*, openshift and openshift-*) may be evicted. FailedBarePods: failed pods without a "
            "controller may be deleted; nothing recreates them. No other default protection can be disabled.",
            limit=3,
            **SET,
        ),
    ] = ()
    extra: Annotated[
        tuple[ExtraProtection, ...],
        bounded(
            "Additional protections. PodsWithPVC: pods that use a PersistentVolumeClaim are not evicted. "
            "PodsWithoutPDB: pods that no PodDisruptionBudget selects are not evicted. PodsWithResourceClaims: pods "
            "that use a ResourceClaim are not evicted.",
            limit=3,
            **SET,
        ),
    ] = ()
    protected_storage_classes: Annotated[
        tuple[Name, ...],
        bounded(
            "Limits the protection PodsWithPVC, which must be listed in extra, to pods that use a claim of one of "
            "these StorageClasses or a claim whose StorageClass is unknown. If unset, PodsWithPVC protects pods with "
            "any claim.",
            least=1,
            limit=64,
            **SET,
        ),
    ] = ()
    no_eviction_policy: Annotated[
        NoEvictionPolicy,
        doc(
            "How the pod annotation descheduler.alpha.kubernetes.io/prefer-no-eviction is treated. Preferred: among "
            "pods of equal priority and QoS class, pods without the annotation are evicted first. Mandatory: pods with "
            "the annotation are not evicted."
        ),
    ] = "Preferred"
    min_replicas: Annotated[
        PositiveInt | None,
        doc(
            "A pod is not evicted if its owner (ReplicaSet, StatefulSet, …) has fewer pods than this number, "
            "not counting terminating and terminated pods. For example, 2 protects single replicas. With "
            "singleReplica: Surge, single replicas that a rolling update can replace without an outage are "
            "exempt."
        ),
    ] = None
    min_pod_age: Annotated[
        Duration | None,
        doc(
            "Pods that started less than this duration ago, or have not started yet, are not evicted; for example 10m.",
            DURATION_RULE,
        ),
    ] = None

    max_hold: Annotated[
        Duration | None,
        doc(
            "How long an annotation may prevent the eviction of a workload's pods, for example 24h. This "
            'applies to descheduler.alpha.kubernetes.io/evict with a value other than "true", and to '
            "prefer-no-eviction if noEvictionPolicy is Mandatory. The period starts when a strategy first "
            "selects a pod of the workload for eviction; changing the annotation does not restart it. After the "
            "period, the annotations no longer protect the workload's pods, but PodDisruptionBudgets still "
            "apply. If unset, annotations protect pods without a time limit.",
            DURATION_RULE,
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
    """Pods whose priority is at or above this threshold are not evicted.

    The threshold is the name of a PriorityClass or a number. If unset, priority protects only pods with a
    system-critical priority.
    """

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="has(self.name) != has(self.value)", message="give exactly one of name and value"),
    )

    name: Annotated[
        Name | None,
        doc("The name of the PriorityClass whose value is the threshold. If it does not exist, no pod is evicted."),
    ] = None
    value: (
        Annotated[
            int,
            Meta(ge=-MAX_INT32 - 1, le=MAX_INT32),
            doc("The threshold as a priority value, as in PriorityClass.value."),
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
    """Limits on the evictions of this policy. A limit that is unset does not apply; perMinute has a default."""

    per_cycle: Annotated[PositiveInt | None, doc("Maximum number of evictions per cycle.")] = None
    per_node: Annotated[PositiveInt | None, doc("Maximum number of pods evicted from each node per cycle.")] = None
    per_namespace: Annotated[PositiveInt | None, doc("Maximum number of pods evicted in each namespace per cycle.")] = (
        None
    )
    per_owner: Annotated[
        PositiveInt | None, doc("Maximum number of pods evicted per owner (ReplicaSet, StatefulSet, Job, …) and cycle.")
    ] = None
    per_causing_namespace: Annotated[
        PositiveInt | None,
        doc(
            "Maximum number of evictions per cycle that the pods of each namespace may cause by their "
            "scheduling rules (anti-affinity, affinity, topology spread constraints or node affinity). The "
            "evicted pods may be in any namespace."
        ),
    ] = None
    per_minute: Annotated[
        PositiveInt,
        doc(
            "Maximum number of evictions per minute. This rate delays the execution of a plan but does not "
            "limit the number of planned evictions. In mode Act, evictions that have not been executed when the "
            "next cycle is due are dropped, and that cycle makes a new plan."
        ),
    ] = 30


class Cooldown(Spec, frozen=True):
    """How long a strategy does not evict an owner's pods again after an eviction that did not help.

    An eviction did not help if the replacement pod was scheduled to the same node, stayed Pending, or was scheduled to
    a node from which the same strategy would evict it again. The owner is the workload, such as a Deployment or
    StatefulSet. The cooldown doubles with each further eviction that did not help. After the number of evictions in
    attempts, the strategy stops evicting the owner's pods until the pod template or this spec changes, or the policy's
    annotation trimtab.dev/try-again gets a new value. status.memory and the condition Effective report the affected
    owners.
    """

    initial: Annotated[
        Duration,
        doc(
            "How long the strategy does not evict the owner's pods after the first eviction that did not help, "
            "for example because the replacement pod was scheduled to the same node.",
            DURATION_RULE,
            COOLDOWN_RULE,
        ),
    ] = "10m"
    maximum: Annotated[
        Duration,
        doc(
            "The longest cooldown. The cooldown doubles with each consecutive eviction that did not help, up to "
            "this value.",
            DURATION_RULE,
            COOLDOWN_RULE,
        ),
    ] = "24h"
    attempts: Annotated[
        int,
        Meta(ge=1, le=20),
        doc(
            "Number of consecutive evictions that did not help after which the strategy stops evicting the "
            "owner's pods. It resumes when the pod template or this spec changes, or when the policy's "
            "annotation trimtab.dev/try-again gets a new value."
        ),
    ] = 3
    pending_deadline: Annotated[
        Duration,
        doc(
            "How long a replacement pod may stay Pending before the eviction counts as one that did not help.",
            DURATION_RULE,
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
    """Selects the namespaces whose pods may be evicted, by name.

    If both lists are unset, pods of all namespaces may be evicted except those in system namespaces, which are
    protected by default.
    """

    cel: ClassVar[tuple[Rule, ...]] = (INCLUDE_OR_EXCLUDE,)

    include: Annotated[
        tuple[NamespaceName, ...],
        bounded(
            "Only pods in these namespaces may be evicted. Mutually exclusive with exclude.", least=1, limit=256, **SET
        ),
    ] = ()
    exclude: Annotated[
        tuple[NamespaceName, ...],
        bounded(
            "Pods in these namespaces are not evicted. Mutually exclusive with include.", least=1, limit=256, **SET
        ),
    ] = ()


class DeschedulerPolicySpec(Spec, frozen=True):
    """The strategies to run, when to run them, and which pods and nodes they apply to."""

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

    strategies: Annotated[Strategies, doc("The strategies by name, each with the fields enabled and params.")]
    mode: Annotated[
        Mode,
        doc(
            "What happens to a plan. Simulate: the plan is reported and no pod is evicted. Approve: the plan is "
            "written as a DeschedulingRun. After a user has set the run's spec.approved to true, the evictions "
            "that are still valid are executed. Act: the plan is executed immediately."
        ),
    ] = "Simulate"
    suspend: Annotated[bool, doc("Suspends the policy: no cycle starts while this is true.")] = False
    interval: Annotated[
        Duration | None,
        doc(
            "Time between the starts of two cycles, for example 30s, 5m or 1h30m. Mutually exclusive with schedule. "
            "Defaults to 5m if both are unset.",
            DURATION_RULE,
            INTERVAL_RULE,
        ),
    ] = None
    schedule: Annotated[Schedule | None, doc("Times at which cycles start. Mutually exclusive with interval.")] = None
    windows: Annotated[
        tuple[Window, ...],
        bounded(
            "Maintenance windows. If set, pods are evicted only while a window is open. In mode Act, cycles run "
            "only while a window is open, and evictions that were not executed when it closes are dropped; a "
            "new plan is made in the next window. In mode Approve, plans are made at any time, and an approved "
            "run is executed while a window is open, within its approvalDeadline. If unset, pods may be evicted "
            "at any time.",
            least=1,
            limit=MAX_WINDOWS,
            **ATOMIC,
        ),
    ] = ()
    approval_deadline: Annotated[
        Duration,
        doc(
            "In mode Approve, how long after its creation a DeschedulingRun can be approved, for example 30m. "
            "An approved run must be completed within the same time after its approval; otherwise it expires.",
            DURATION_RULE,
            APPROVAL_RULE,
        ),
    ] = "1h"
    runs_history_limit: Annotated[
        int,
        Meta(ge=0, le=MAX_RUNS),
        doc(
            "Number of DeschedulingRuns of this policy to keep. Older runs are deleted, except those that are pending "
            "approval or being executed. 0 disables DeschedulingRuns and is not allowed in mode Approve."
        ),
    ] = 10
    grace_period_seconds: Annotated[
        NaturalInt | None,
        doc(
            "Overrides the terminationGracePeriodSeconds of evicted pods; 0 kills them immediately. If "
            "unset, which is recommended, each pod's own grace period applies."
        ),
    ] = None
    single_replica: Annotated[
        SingleReplica,
        doc(
            "How to evict a Ready pod that is the only replica of its owner. Evict: through the eviction API like any "
            "other pod; the workload is unavailable until the replacement is Ready. Surge: the pod's Deployment is "
            "restarted with a rolling update, so that the new pod is Ready before the old pod terminates. With Surge, "
            "pods for which that is impossible are not evicted: pods without a Deployment, Deployments whose maxSurge "
            "and maxUnavailable do not allow it, and pods with a volume that only one node can mount."
        ),
    ] = "Evict"
    cross_namespace: Annotated[
        CrossNamespace,
        doc(
            "Whether a pod may be evicted because of a pod in another namespace: to satisfy the other pod's "
            "anti-affinity, or to reduce the utilization of a node on which the other pod runs and cannot be "
            "evicted itself (for example, because it is in a system namespace). Deny: never. Allow: only if the "
            "other pod has a higher priority, was placed by a scheduler, and is not protected from eviction by "
            "its own spec, annotations or PodDisruptionBudgets. With either setting, no pod is evicted because "
            "of a pod with a lower priority, even in the same namespace."
        ),
    ] = "Deny"
    limits: Limits = Limits()
    cooldown: Cooldown = Cooldown()
    protections: Protections = Protections()
    namespaces: Namespaces = Namespaces()
    namespace_selector: Annotated[
        Selector | None,
        doc(
            "Only pods in namespaces whose labels match may be evicted. Applies in addition to namespaces. If unset, "
            "all namespaces match."
        ),
    ] = None
    pod_selector: Annotated[
        Selector | None, doc("Only pods whose labels match may be evicted. If unset, all pods match.")
    ] = None
    node_selector: Annotated[
        Selector | None,
        doc(
            "Only nodes whose labels match are considered, both as nodes to evict pods from and as target nodes. If "
            "unset, all nodes match."
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
    """Defines which pods may be evicted and rescheduled, when, how many at a time, and which are protected.

    The default mode is Simulate: the policy plans and reports in its status and in events, but evicts no pod.
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
