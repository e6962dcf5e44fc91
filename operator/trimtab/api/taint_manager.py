"""TaintManager: configures taint-based eviction of pods and tainting of failed nodes. There is one per cluster.

Usage::

    apiVersion: trimtab.dev/v1alpha1
    kind: TaintManager
    metadata: {name: default}
    spec:
      mode: EvictPods
      taints:
      - {key: example.com/maintenance, policy: Evict, maximumWait: 30m}

The node lifecycle settings have the names and defaults of kube-controller-manager's flags (v1.36), so that flag values
can be copied. If a field has no such flag, its description says so.

Every list in the status has a maximum length, and a counter next to it contains the number of omitted entries.
The operator computes deadlines from taints and pods and never reads them from the status, so a lost status does not
change them. `trimtab plan` reads them for taints without `timeAdded`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from trimtab.api.base import (
    ATOMIC,
    MAX_INT32,
    BigCount,
    NaturalInt,
    ObjectMeta,
    ObjectName,
    Rule,
    ShortText,
    Spec,
    Status,
    bounded,
    doc,
    list_map,
)
from trimtab.api.conditions import Condition, ObservedGeneration, condition_list
from trimtab.api.scalars import DURATION_PATTERN, LONGEST_INTERVAL, Duration, duration_doc, parse_duration, range_rule
from trimtab.api.state import state_meta
from trimtab.api.waiting_evictions import WaitingEvictions, waiting_list

MAX_ZONES: Final = 100
MAX_DEADLINES: Final = 50
MAX_REFUSED: Final = 50
MAX_STUCK: Final = 50


ZoneState = Literal["Normal", "PartialDisruption", "FullDisruption"]
TaintText = Annotated[str, Meta(max_length=400)]
TolerationText = Annotated[str, Meta(max_length=512)]


class ZoneStatus(Status, frozen=True):
    """State of a zone, and the rate at which failed nodes in the zone are tainted."""

    name: Annotated[
        str,
        bounded(
            "Name of the zone in the form region/zone, from the labels of its nodes. Empty for nodes without these "
            "labels.",
            limit=160,
        ),
    ]
    state: Annotated[
        ZoneState,
        doc(
            "State of the zone. FullDisruption means that no node is ready. PartialDisruption means that at least "
            "three nodes are not ready and their fraction is at least unhealthyZoneThreshold. Normal means that "
            "neither applies. If all zones are in FullDisruption, no nodes are tainted."
        ),
    ]
    nodes: Annotated[
        NaturalInt,
        doc("Number of nodes in the zone, excluding nodes with the label node.kubernetes.io/exclude-disruption."),
    ] = 0
    not_ready: Annotated[NaturalInt, doc("Number of nodes in the zone that are not ready.")] = 0
    nodes_per_second: Annotated[
        float, Meta(ge=0), doc("Maximum rate at which failed nodes in the zone are tainted, in nodes per second.")
    ] = 0.0
    waiting: Annotated[
        NaturalInt, doc("Number of failed nodes in the zone that are waiting to receive a NoExecute taint.")
    ] = 0


class NextDeadline(Status, frozen=True):
    """A pod and its deadline, which is the time at which its tolerationSeconds for a NoExecute taint elapse."""

    namespace: Annotated[ObjectName, doc("Namespace of the pod.")]
    pod: Annotated[ObjectName, doc("Name of the pod.")]
    node: Annotated[ObjectName, doc("Name of the node that the pod runs on.")]
    due: Annotated[
        datetime,
        doc(
            "Time at which the pod's tolerationSeconds for the taint elapse. The pod is then evicted or deleted unless "
            "the mode is Observe."
        ),
    ]
    taint: Annotated[TaintText, doc("NoExecute taint that determines the deadline, in the form key=value:effect.")]
    toleration: Annotated[
        TolerationText,
        doc("Toleration that determines the deadline. Empty if the pod has no toleration that matches the taint."),
    ] = ""


class RefusedPod(Status, frozen=True):
    """A pod that is still running although its tolerationSeconds for a NoExecute taint have elapsed.

    The API server rejected the eviction or deletion of the pod, or did not respond.
    """

    namespace: Annotated[ObjectName, doc("Namespace of the pod.")]
    pod: Annotated[ObjectName, doc("Name of the pod.")]
    node: Annotated[ObjectName, doc("Name of the node that the pod runs on.")]
    due: Annotated[datetime, doc("Time at which the pod's tolerationSeconds for the taint elapsed.")]
    attempts: Annotated[NaturalInt, doc("Number of attempts to evict or delete the pod.")] = 0
    message: Annotated[
        ShortText,
        doc(
            "Human-readable message that explains why the last attempt failed. The message names the cause of the "
            "rejection, for example an admission webhook or a PodDisruptionBudget."
        ),
    ] = ""


class StuckNode(Status, frozen=True):
    """An unreachable node with terminating pods that still exist after their grace period.

    If an administrator adds the node.kubernetes.io/out-of-service taint to the node, kube-controller-manager
    force-deletes the terminating pods on the node. trimtab never adds this taint.
    """

    name: Annotated[ObjectName, doc("Name of the node.")]
    terminating: Annotated[
        NaturalInt, doc("Number of terminating pods on the node that still exist after their grace period.")
    ] = 0
    message: Annotated[
        ShortText,
        doc(
            "Human-readable instructions, including a kubectl command, for force-deleting the terminating pods if the "
            "node is powered off."
        ),
    ] = ""


class PodCounts(Status, frozen=True):
    """Current numbers of tainted nodes and pods with deadlines, and totals since the TaintManager was created."""

    tainted_nodes: Annotated[NaturalInt, doc("Current number of nodes with a NoExecute taint.")] = 0
    pods_with_deadline: Annotated[
        NaturalInt,
        doc(
            "Current number of pods that do not tolerate a NoExecute taint of their node, or tolerate it only for a "
            "limited time."
        ),
    ] = 0
    overdue: Annotated[
        NaturalInt,
        doc(
            "Current number of pods that still exist although their tolerationSeconds for a NoExecute taint have "
            "elapsed. Either the pods are waiting for their eviction or deletion, or the mode is Observe."
        ),
    ] = 0
    held: Annotated[
        NaturalInt,
        doc("Number of pods whose eviction or deletion is currently delayed by spec.userTaintRates."),
    ] = 0
    deleted: Annotated[
        BigCount,
        doc("Number of pods that were deleted directly, without the eviction API, since the TaintManager was created."),
    ] = 0
    evicted: Annotated[
        BigCount, doc("Number of pods that were evicted through the eviction API since the TaintManager was created.")
    ] = 0
    nodes_tainted: Annotated[
        BigCount,
        doc(
            "Number of NoExecute taints that were added to nodes since the TaintManager was created. A node that "
            "was tainted several times is counted several times."
        ),
    ] = 0


class TaintManagerStatus(Status, frozen=True):
    """Observed status of the TaintManager: conditions, zones, and the next deadlines of pods."""

    observed_generation: ObservedGeneration = 0
    state: Annotated[str, state_meta("TaintManager")] = ""
    conditions: Annotated[
        tuple[Condition, ...],
        condition_list(
            "Current conditions of the TaintManager. Ready is True if the spec is valid and the operator watches nodes "
            "and pods. Progressing is True while pods are being evicted or failed nodes wait for a taint. Degraded is "
            "True if a problem prevents the operator from fulfilling part of the spec. Contended is True if a second "
            "trimtab installation manages the same objects. PermissionsMissing is True if trimtab's service account "
            "lacks permissions that the TaintManager needs."
        ),
    ] = ()
    zones: Annotated[
        tuple[ZoneStatus, ...],
        bounded(
            "State of each zone, sorted by name. Empty unless the mode is TaintAndEvict.",
            limit=MAX_ZONES,
            **ATOMIC,
        ),
    ] = ()
    zones_omitted: Annotated[
        NaturalInt, doc("Number of zones that are omitted from status.zones because its length is limited.")
    ] = 0
    counts: Annotated[
        PodCounts,
        doc(
            "Current numbers of tainted nodes and pods with deadlines, and total numbers of evictions, deletions and "
            "added taints since the TaintManager was created."
        ),
    ] = PodCounts()
    next_deadlines: Annotated[
        tuple[NextDeadline, ...],
        bounded(
            "Pods with the earliest deadlines, earliest first. The deadline of a pod is the time at which its "
            "tolerationSeconds for a NoExecute taint elapse. The list includes deadlines in the past.",
            limit=MAX_DEADLINES,
            **ATOMIC,
        ),
    ] = ()
    deadlines_omitted: Annotated[
        NaturalInt,
        doc("Number of pods with a deadline that are omitted from status.nextDeadlines because its length is limited."),
    ] = 0
    refused: Annotated[
        tuple[RefusedPod, ...],
        bounded(
            "Pods that are still running although their tolerationSeconds for a NoExecute taint have elapsed, because "
            "their eviction or deletion was rejected or failed. Sorted by the due field.",
            limit=MAX_REFUSED,
            **ATOMIC,
        ),
    ] = ()
    refused_omitted: Annotated[
        NaturalInt, doc("Number of pods that are omitted from status.refused because its length is limited.")
    ] = 0
    waiting_evictions: Annotated[tuple[WaitingEvictions, ...], waiting_list()] = ()
    stuck_nodes: Annotated[
        tuple[StuckNode, ...],
        bounded(
            "Unreachable nodes with terminating pods that still exist after their grace period, sorted by name.",
            limit=MAX_STUCK,
            **ATOMIC,
        ),
    ] = ()
    stuck_nodes_omitted: Annotated[
        NaturalInt, doc("Number of nodes that are omitted from status.stuckNodes because its length is limited.")
    ] = 0


KIND: Final = "TaintManager"
NAME: Final = "default"

OBSERVE: Final = "Observe"
EVICT_PODS: Final = "EvictPods"
TAINT_AND_EVICT: Final = "TaintAndEvict"
DELETE: Final = "Delete"
EVICT: Final = "Evict"
FIRST: Final = "First"

Mode = Literal["Observe", "EvictPods", "TaintAndEvict"]
RENAMED_MODES: Final = {"EarlierOnly": EVICT_PODS, "Own": TAINT_AND_EVICT}
"""Former names of modes. The decoder accepts them, because stored objects may have them; the API server does not."""

TaintPolicy = Literal["Delete", "Evict"]
TolerationMatching = Literal["All", "First"]

MAXIMUM_WAIT: Final = 600
"""Default for ``maximumWait``, in seconds."""

TAINT_KEY: Final = "^[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?$"
TaintKey = Annotated[str, Meta(description="Taint key.", min_length=1, max_length=317, pattern=TAINT_KEY)]
"""A taint key has at most 253 + 1 + 63 characters (prefix, slash, name)."""

SLOWEST: Final = 0.001
"""Minimum pod rate, in pods per second."""

Rate = Annotated[float, Meta(ge=0, le=1000)]
PodRate = Annotated[float, Meta(ge=SLOWEST, le=1000)]
Share = Annotated[float, Meta(ge=0, le=1)]
TolerationSeconds = Annotated[int, Meta(ge=0, le=MAX_INT32)]

AT_LEAST_A_SECOND: Final = range_rule(1, "1s")
AT_MOST_A_WEEK: Final = Rule(
    rule=f"!self.matches('{DURATION_PATTERN}') || duration(self) <= duration('{LONGEST_INTERVAL}s')",
    message=f"must be at most {LONGEST_INTERVAL // 3600}h",
)
AT_LEAST_SLOWEST: Final = Rule(rule=f"self >= {SLOWEST}", message=f"must be at least {SLOWEST}")
"""A CEL rule next to the schema's minimum, which the API server truncates to 0 for values written as integers."""

WAIT_WITH_EVICT: Final = "requires policy Evict"
GRACE_ABOVE_PERIOD: Final = "must be longer than nodeMonitorPeriod"
ONE_FOR_ALL: Final = f"must be {NAME}: there is one {KIND} for the whole cluster"


class KeyPolicy(Spec, frozen=True):
    """How pods are removed from nodes that have a taint with the given key."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="self.policy == 'Evict' || !has(self.maximumWait)",
            message=WAIT_WITH_EVICT,
            field_path=".maximumWait",
            reason="FieldValueForbidden",
        ),
    )

    key: Annotated[
        TaintKey,
        doc("Key of the taint, for example example.com/maintenance. The entry applies to all values of the taint."),
    ]
    policy: Annotated[
        TaintPolicy,
        doc(
            "How a pod is removed when its tolerationSeconds for the taint have elapsed. Delete deletes the pod "
            "without checking PodDisruptionBudgets, as in kube-controller-manager, and is intended for taints of "
            "failed nodes. Evict uses the eviction API, which respects PodDisruptionBudgets, and is intended for "
            "taints that drain a node. If the pod is not evicted within maximumWait, it is deleted."
        ),
    ]
    maximum_wait: Annotated[
        Duration | None,
        duration_doc(
            "Maximum time to wait for the eviction of a pod after its tolerationSeconds for the taint have elapsed. "
            "For example, a PodDisruptionBudget can delay the eviction. After this time, the pod is deleted. Defaults "
            f"to {MAXIMUM_WAIT // 60}m. Only valid with policy Evict.",
            AT_MOST_A_WEEK,
        ),
    ] = None

    @property
    def maximum_wait_seconds(self) -> int:
        """Return ``maximumWait`` in seconds, or its default. With policy ``Delete`` it is 0."""
        if self.policy == DELETE:
            return 0
        return MAXIMUM_WAIT if self.maximum_wait is None else parse_duration(self.maximum_wait)


class UserTaintRates(Spec, frozen=True):
    """Rate limits for removing pods because of NoExecute taints that users add, such as maintenance taints.

    A rate limit can delay the removal of a pod after its tolerationSeconds have elapsed. The limits do not apply to
    pods that are removed because of the node.kubernetes.io/not-ready or node.kubernetes.io/unreachable taint. If a
    field is unset, there is no limit.
    """

    total: Annotated[
        PodRate | None,
        doc("Maximum number of pods that are evicted or deleted per second in the whole cluster.", AT_LEAST_SLOWEST),
    ] = None
    per_zone: Annotated[
        PodRate | None,
        doc("Maximum number of pods that are evicted or deleted per second in each zone.", AT_LEAST_SLOWEST),
    ] = None
    per_namespace: Annotated[
        PodRate | None,
        doc("Maximum number of pods that are evicted or deleted per second in each namespace.", AT_LEAST_SLOWEST),
    ] = None


class NodeLifecycle(Spec, frozen=True):
    """Specifies when nodes are considered failed, and how fast they are tainted. Used only in TaintAndEvict mode.

    A node has failed if its Ready condition is False or Unknown. A zone consists of the nodes with the same region and
    zone labels. The state of a zone is FullDisruption if none of its nodes is ready. The state is PartialDisruption if
    at least three nodes are not ready and their fraction is at least unhealthyZoneThreshold.

    The defaults are the same as in kube-controller-manager.
    """

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule=f"!self.nodeMonitorPeriod.matches('{DURATION_PATTERN}') || "
            f"!self.nodeMonitorGracePeriod.matches('{DURATION_PATTERN}') || "
            "duration(self.nodeMonitorGracePeriod) > duration(self.nodeMonitorPeriod)",
            message=GRACE_ABOVE_PERIOD,
            field_path=".nodeMonitorGracePeriod",
        ),
    )

    node_monitor_period: Annotated[
        Duration,
        duration_doc(
            "Interval between checks of all nodes. Equivalent to the --node-monitor-period flag of "
            "kube-controller-manager.",
            AT_LEAST_A_SECOND,
        ),
    ] = "5s"
    node_monitor_grace_period: Annotated[
        Duration,
        duration_doc(
            "Maximum time between updates of a node's Lease or status. After this time, the node's Ready condition is "
            "set to Unknown. Kubelets renew their Lease every 10s. Equivalent to the --node-monitor-grace-period flag "
            "of kube-controller-manager.",
            AT_LEAST_A_SECOND,
        ),
    ] = "50s"
    node_startup_grace_period: Annotated[
        Duration,
        duration_doc(
            "Maximum time between updates of the Lease or status of a node that has not yet reported a Ready "
            "condition. After this time, the Ready condition is set to Unknown. Equivalent to the "
            "--node-startup-grace-period flag of kube-controller-manager.",
            AT_LEAST_A_SECOND,
        ),
    ] = "60s"
    node_eviction_rate: Annotated[
        Rate,
        doc(
            "Maximum number of nodes per second that receive a NoExecute taint in a zone whose state is Normal. The "
            "value is also the default of fullDisruptionEvictionRate. Equivalent to the --node-eviction-rate flag of "
            "kube-controller-manager."
        ),
    ] = 0.1
    secondary_node_eviction_rate: Annotated[
        Rate,
        doc(
            "Maximum number of nodes per second that receive a NoExecute taint in a large zone whose state is "
            "PartialDisruption. A zone is large if it has more than largeClusterSizeThreshold nodes. In smaller zones "
            "with this state, no nodes are tainted. Equivalent to the --secondary-node-eviction-rate flag of "
            "kube-controller-manager."
        ),
    ] = 0.01
    large_cluster_size_threshold: Annotated[
        NaturalInt,
        doc(
            "Number of nodes above which secondaryNodeEvictionRate applies to a zone whose state is PartialDisruption. "
            "Equivalent to the --large-cluster-size-threshold flag of kube-controller-manager."
        ),
    ] = 50
    unhealthy_zone_threshold: Annotated[
        Share,
        doc(
            "Fraction of not-ready nodes at which the state of a zone becomes PartialDisruption, if at least three "
            "nodes in the zone are not ready. Equivalent to the --unhealthy-zone-threshold flag of "
            "kube-controller-manager."
        ),
    ] = 0.55
    full_disruption_eviction_rate: Annotated[
        Rate | None,
        doc(
            "Maximum number of nodes per second that receive a NoExecute taint in a zone whose state is "
            "FullDisruption. The rate applies only while at least one other zone has a different state. If 0, no nodes "
            "in such a zone are tainted. Defaults to nodeEvictionRate, as in kube-controller-manager."
        ),
    ] = None

    @property
    def monitor_period_seconds(self) -> int:
        """Return ``nodeMonitorPeriod`` in seconds."""
        return parse_duration(self.node_monitor_period)

    @property
    def monitor_grace_seconds(self) -> int:
        """Return ``nodeMonitorGracePeriod`` in seconds."""
        return parse_duration(self.node_monitor_grace_period)

    @property
    def startup_grace_seconds(self) -> int:
        """Return ``nodeStartupGracePeriod`` in seconds."""
        return parse_duration(self.node_startup_grace_period)

    @property
    def full_disruption_rate(self) -> float:
        """Return ``fullDisruptionEvictionRate``, or its default ``nodeEvictionRate``; nodes per second."""
        rate = self.full_disruption_eviction_rate
        return self.node_eviction_rate if rate is None else rate


class DefaultTolerations(Spec, frozen=True):
    """Default tolerationSeconds for pods that have no toleration for the taints of failed nodes.

    The tolerations of a pod take precedence. In most clusters, the DefaultTolerationSeconds admission plugin adds
    tolerations of 300 seconds to every pod. If a field is unset, pods that do not tolerate the taint are evicted or
    deleted immediately.
    """

    default_not_ready_toleration_seconds: Annotated[
        TolerationSeconds | None,
        doc(
            "tolerationSeconds to assume for pods that have no toleration for the node.kubernetes.io/not-ready taint. "
            "Equivalent to the --default-not-ready-toleration-seconds flag of kube-apiserver."
        ),
    ] = None
    default_unreachable_toleration_seconds: Annotated[
        TolerationSeconds | None,
        doc(
            "tolerationSeconds to assume for pods that have no toleration for the node.kubernetes.io/unreachable "
            "taint. Equivalent to the --default-unreachable-toleration-seconds flag of kube-apiserver."
        ),
    ] = None


class TaintManagerSpec(Spec, frozen=True):
    """Configuration of taint-based eviction and of the tainting of failed nodes.

    In Observe mode, which is the default, trimtab evicts no pods and taints no nodes.
    """

    mode: Annotated[
        Mode,
        doc(
            "Which actions the taint manager performs. Observe is a dry run: the taint manager only reports the "
            "deadlines at which pods on nodes with NoExecute taints would be removed. EvictPods deletes pods at their "
            "deadlines, or evicts pods if an entry in taints sets the policy Evict. In EvictPods mode, "
            "kube-controller-manager still deletes pods at the deadlines that it computes. TaintAndEvict also taints "
            "failed nodes. In TaintAndEvict mode, the node-lifecycle-controller and taint-eviction-controller of "
            "kube-controller-manager must be disabled. Defaults to Observe, so that a new TaintManager evicts no pods "
            "and taints no nodes."
        ),
    ] = "Observe"
    taints: Annotated[
        tuple[KeyPolicy, ...],
        bounded(
            "How pods are removed because of NoExecute taints, by taint key. If a node has several NoExecute taints, "
            "the taint whose tolerationSeconds elapse first determines which entry applies. If there is no entry for "
            "the taint key, pods are deleted (policy Delete).",
            limit=64,
            **list_map("key"),
        ),
    ] = ()
    user_taint_rates: UserTaintRates = UserTaintRates()
    node_lifecycle: NodeLifecycle = NodeLifecycle()
    default_tolerations: DefaultTolerations = DefaultTolerations()
    toleration_matching: Annotated[
        TolerationMatching,
        doc(
            "Which tolerations apply if several tolerations of a pod match the same taint. With All, the pod tolerates "
            "the taint without a time limit if any matching toleration has no tolerationSeconds. Otherwise, the "
            "shortest tolerationSeconds of the matching tolerations applies. With First, only the first matching "
            "toleration in the pod's list applies, as in kube-controller-manager."
        ),
    ] = "All"


class TaintManager(Spec, frozen=True):
    """Configures taint-based eviction of pods and the tainting of failed nodes.

    A cluster can have only one TaintManager, which must be named default. Without a TaintManager, trimtab evicts no
    pods because of NoExecute taints and taints no failed nodes. kube-controller-manager continues to evict pods and
    taint nodes unless its controllers are disabled.
    """

    cel: ClassVar[tuple[Rule, ...]] = (Rule(rule=f"self.metadata.name == '{NAME}'", message=ONE_FOR_ALL),)

    metadata: ObjectMeta = ObjectMeta()
    spec: TaintManagerSpec = TaintManagerSpec()
    status: TaintManagerStatus = TaintManagerStatus()
    api_version: Literal["trimtab.dev/v1alpha1"] = "trimtab.dev/v1alpha1"
    kind: Literal["TaintManager"] = KIND

    @property
    def name(self) -> str:
        """Return ``metadata.name``."""
        return self.metadata.name
