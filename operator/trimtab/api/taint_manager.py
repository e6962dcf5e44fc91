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
from trimtab.api.scalars import DURATION_PATTERN, DURATION_RULE, LONGEST_INTERVAL, Duration, parse_duration, range_rule
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
    """The state of one zone and the rate at which its failed nodes are tainted."""

    name: Annotated[
        str,
        bounded(
            "Region and zone from the node labels, as region/zone; empty for nodes without these labels.", limit=160
        ),
    ]
    state: Annotated[
        ZoneState,
        doc(
            "State of the zone: Normal, PartialDisruption (the fraction of not-ready nodes reaches "
            "unhealthyZoneThreshold) or FullDisruption (no node is ready). If every zone is in FullDisruption, "
            "no node is tainted."
        ),
    ]
    nodes: Annotated[
        NaturalInt,
        doc("Number of nodes in the zone. Nodes with the label node.kubernetes.io/exclude-disruption are not counted."),
    ] = 0
    not_ready: Annotated[NaturalInt, doc("Number of nodes in the zone that are not ready.")] = 0
    nodes_per_second: Annotated[
        float, Meta(ge=0), doc("Maximum rate at which failed nodes of the zone are tainted, in nodes per second.")
    ] = 0.0
    waiting: Annotated[NaturalInt, doc("Number of failed nodes of the zone that are queued for a NoExecute taint.")] = 0


class NextDeadline(Status, frozen=True):
    """A pod that is evicted or deleted when its toleration of a NoExecute taint ends."""

    namespace: Annotated[ObjectName, doc("The pod's namespace.")]
    pod: Annotated[ObjectName, doc("The pod's name.")]
    node: Annotated[ObjectName, doc("The node that the pod runs on.")]
    due: Annotated[
        datetime,
        doc("When the pod's toleration of the taint ends and, except in mode Observe, the pod is evicted or deleted."),
    ]
    taint: Annotated[TaintText, doc("The NoExecute taint that determines the deadline, as key=value:effect.")]
    toleration: Annotated[
        TolerationText, doc("The toleration that determines the deadline; empty if no toleration matches the taint.")
    ] = ""


class RefusedPod(Status, frozen=True):
    """A pod that still runs after its toleration of a taint ended.

    Its eviction or deletion was refused, or the API server did not respond.
    """

    namespace: Annotated[ObjectName, doc("The pod's namespace.")]
    pod: Annotated[ObjectName, doc("The pod's name.")]
    node: Annotated[ObjectName, doc("The node that the pod runs on.")]
    due: Annotated[datetime, doc("When the pod's toleration of the taint ended.")]
    attempts: Annotated[NaturalInt, doc("Number of attempts to evict or delete the pod so far.")] = 0
    message: Annotated[
        ShortText,
        doc(
            "Why the last attempt failed: what refused the request, for example an admission webhook or a "
            "PodDisruptionBudget, and its message."
        ),
    ] = ""


class StuckNode(Status, frozen=True):
    """An unreachable node with terminating pods that still exist after their grace period.

    If an administrator adds the taint node.kubernetes.io/out-of-service to the node, kube-controller-manager
    force-deletes these pods. trimtab never adds this taint.
    """

    name: Annotated[ObjectName, doc("The node's name.")]
    terminating: Annotated[
        NaturalInt, doc("Number of terminating pods on the node that still exist after their grace period.")
    ] = 0
    message: Annotated[
        ShortText,
        doc("Describes how to force-delete these pods if the node's machine is off, with the kubectl command."),
    ] = ""


class PodCounts(Status, frozen=True):
    """Current numbers of nodes and pods, and totals since the TaintManager was created."""

    tainted_nodes: Annotated[NaturalInt, doc("Current number of nodes with a NoExecute taint.")] = 0
    pods_with_deadline: Annotated[
        NaturalInt,
        doc("Current number of pods that do not tolerate a NoExecute taint of their node, or only for a limited time."),
    ] = 0
    overdue: Annotated[
        NaturalInt,
        doc(
            "Current number of pods that still exist after their toleration of a taint ended, in mode Observe "
            "or because they wait for their eviction or deletion."
        ),
    ] = 0
    held: Annotated[
        NaturalInt, doc("Current number of pods whose eviction or deletion spec.userTaintRates delays.")
    ] = 0
    deleted: Annotated[
        BigCount, doc("Number of pods deleted without the eviction API since the TaintManager was created.")
    ] = 0
    evicted: Annotated[
        BigCount, doc("Number of pods evicted with the eviction API since the TaintManager was created.")
    ] = 0
    nodes_tainted: Annotated[
        BigCount, doc("Number of NoExecute taints added to nodes since the TaintManager was created.")
    ] = 0


class TaintManagerStatus(Status, frozen=True):
    """Observed state of the taint manager: conditions, zones, and the next deadlines."""

    observed_generation: ObservedGeneration = 0
    state: Annotated[str, state_meta("Idle, EvictingPods, TaintingNodes")] = ""
    conditions: Annotated[
        tuple[Condition, ...],
        condition_list(
            "Conditions: Ready (the spec is valid, and nodes and pods are watched); Progressing (pods are being "
            "evicted, or nodes are queued for tainting); Degraded (something prevents evictions or tainting); "
            "Contended (another operator process runs the same controllers; set only after one was detected); "
            "PermissionsMissing (the service account lacks permissions that the TaintManager needs)."
        ),
    ] = ()
    zones: Annotated[
        tuple[ZoneStatus, ...],
        bounded(
            "Zones of the cluster's nodes, sorted by name. Empty except in mode TaintAndEvict.",
            limit=MAX_ZONES,
            **ATOMIC,
        ),
    ] = ()
    zones_omitted: Annotated[NaturalInt, doc("Number of zones that are omitted from zones to limit its size.")] = 0
    counts: Annotated[
        PodCounts, doc("Current numbers of nodes and pods, and totals since the TaintManager was created.")
    ] = PodCounts()
    next_deadlines: Annotated[
        tuple[NextDeadline, ...],
        bounded(
            "Pods whose toleration of a NoExecute taint ends first or has ended, earliest first.",
            limit=MAX_DEADLINES,
            **ATOMIC,
        ),
    ] = ()
    deadlines_omitted: Annotated[
        NaturalInt, doc("Number of pods with a deadline that are omitted from nextDeadlines to limit its size.")
    ] = 0
    refused: Annotated[
        tuple[RefusedPod, ...],
        bounded(
            "Pods that still run after their toleration of a taint ended, because their eviction or deletion "
            "was refused or failed, sorted by the time at which it ended.",
            limit=MAX_REFUSED,
            **ATOMIC,
        ),
    ] = ()
    refused_omitted: Annotated[NaturalInt, doc("Number of pods that are omitted from refused to limit its size.")] = 0
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
        NaturalInt, doc("Number of nodes that are omitted from stuckNodes to limit its size.")
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
    """How pods are removed from a node once their toleration of a taint with this key has expired."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="self.policy == 'Evict' || !has(self.maximumWait)",
            message=WAIT_WITH_EVICT,
            field_path=".maximumWait",
            reason="FieldValueForbidden",
        ),
    )

    key: Annotated[
        TaintKey, doc("Key of the taint, for example example.com/maintenance. The value of the taint is ignored.")
    ]
    policy: Annotated[
        TaintPolicy,
        doc(
            "How a pod is removed at its deadline, which is when its toleration of the taint ends. Delete: "
            "delete the pod without checking PodDisruptionBudgets, as kube-controller-manager does; intended "
            "for taints of failed nodes. Evict: use the eviction API, which respects PodDisruptionBudgets, and "
            "delete the pod if it is not evicted within maximumWait; intended for taints that drain a node."
        ),
    ]
    maximum_wait: Annotated[
        Duration | None,
        doc(
            "How long a pod may wait for its eviction after its toleration ended, for example because of a "
            "PodDisruptionBudget. After that time, it is deleted. "
            f"Defaults to {MAXIMUM_WAIT // 60}m. Only valid with policy Evict.",
            DURATION_RULE,
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

    A rate limit delays the eviction or deletion of pods beyond the end of their toleration. Pods on failed nodes
    (taints not-ready and unreachable) are not limited. An unset field means no limit. kube-controller-manager has no
    such limits.
    """

    total: Annotated[
        PodRate | None,
        doc("Maximum number of pods to evict or delete per second in the whole cluster.", AT_LEAST_SLOWEST),
    ] = None
    per_zone: Annotated[
        PodRate | None,
        doc("Maximum number of pods to evict or delete per second from the nodes of each zone.", AT_LEAST_SLOWEST),
    ] = None
    per_namespace: Annotated[
        PodRate | None, doc("Maximum number of pods to evict or delete per second in each namespace.", AT_LEAST_SLOWEST)
    ] = None


class NodeLifecycle(Spec, frozen=True):
    """When nodes are considered failed, and the rate at which they are tainted. Used in mode TaintAndEvict only.

    The fields have the names and defaults of kube-controller-manager's flags.
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
        doc("Period between two checks of all nodes (--node-monitor-period).", DURATION_RULE, AT_LEAST_A_SECOND),
    ] = "5s"
    node_monitor_grace_period: Annotated[
        Duration,
        doc(
            "How long a node may go without renewing its Lease or updating its status before its Ready "
            "condition is set to Unknown (--node-monitor-grace-period). Kubelets renew their Lease every 10s.",
            DURATION_RULE,
            AT_LEAST_A_SECOND,
        ),
    ] = "50s"
    node_startup_grace_period: Annotated[
        Duration,
        doc(
            "How long a node that has not yet reported a Ready condition may go without a heartbeat before the "
            "condition is set to Unknown (--node-startup-grace-period).",
            DURATION_RULE,
            AT_LEAST_A_SECOND,
        ),
    ] = "60s"
    node_eviction_rate: Annotated[
        Rate,
        doc(
            "Number of nodes per second to which a NoExecute taint is added in zones in state Normal "
            "(--node-eviction-rate). This is also the default of fullDisruptionEvictionRate."
        ),
    ] = 0.1
    secondary_node_eviction_rate: Annotated[
        Rate,
        doc(
            "Number of nodes per second to which a NoExecute taint is added in zones in state PartialDisruption "
            "with more than largeClusterSizeThreshold nodes (--secondary-node-eviction-rate). In smaller zones "
            "in that state, no node is tainted."
        ),
    ] = 0.01
    large_cluster_size_threshold: Annotated[
        NaturalInt,
        doc(
            "secondaryNodeEvictionRate applies to zones with more than this number of nodes "
            "(--large-cluster-size-threshold)."
        ),
    ] = 50
    unhealthy_zone_threshold: Annotated[
        Share,
        doc(
            "A zone is in state PartialDisruption if at least this fraction of its nodes, and at least three "
            "nodes, are not ready (--unhealthy-zone-threshold)."
        ),
    ] = 0.55
    full_disruption_eviction_rate: Annotated[
        Rate | None,
        doc(
            "Number of nodes per second to which a NoExecute taint is added in a zone in state FullDisruption "
            "while another zone is not in that state. With 0, no node in such a zone is tainted and no pod is "
            "evicted for that reason. Defaults to nodeEvictionRate. kube-controller-manager has no such flag "
            "and always uses nodeEvictionRate."
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
    """Default tolerationSeconds for pods that do not tolerate the taints of failed nodes.

    In most clusters the admission plugin DefaultTolerationSeconds has added tolerations of 300s to every pod; a pod's
    own tolerations take precedence. If a field is unset, pods that do not tolerate the taint are evicted or deleted
    immediately.
    """

    default_not_ready_toleration_seconds: Annotated[
        TolerationSeconds | None,
        doc(
            "tolerationSeconds of pods without a toleration for the taint node.kubernetes.io/not-ready "
            "(kube-apiserver's --default-not-ready-toleration-seconds)."
        ),
    ] = None
    default_unreachable_toleration_seconds: Annotated[
        TolerationSeconds | None,
        doc(
            "tolerationSeconds of pods without a toleration for the taint node.kubernetes.io/unreachable "
            "(kube-apiserver's --default-unreachable-toleration-seconds)."
        ),
    ] = None


class TaintManagerSpec(Spec, frozen=True):
    """Configuration of taint-based eviction and tainting of failed nodes. By default, nothing is evicted or tainted."""

    mode: Annotated[
        Mode,
        doc(
            "Observe: report the deadline of each pod on a node with NoExecute taints, which is when its "
            "toleration ends; do not evict pods or taint nodes. EvictPods: also evict or delete pods at their "
            "deadline. Runs alongside kube-controller-manager, which still deletes pods at the deadlines that "
            "it computes itself. TaintAndEvict: also taint failed nodes. Requires that the "
            "node-lifecycle-controller and taint-eviction-controller of kube-controller-manager are disabled."
        ),
    ] = "Observe"
    taints: Annotated[
        tuple[KeyPolicy, ...],
        bounded(
            "How pods are removed because of NoExecute taints, by taint key. If a node has several such taints, "
            "the entry for the taint whose toleration ends first applies to the pod. If there is no entry for "
            "its key, the pod is deleted (policy Delete).",
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
            "Which tolerations apply if several tolerations of a pod match a taint. All: all of them. If one "
            "of them has no tolerationSeconds, the pod tolerates the taint without a time limit; otherwise "
            "the shortest tolerationSeconds applies. First: only the first one in the pod's list, as in "
            "kube-controller-manager."
        ),
    ] = "All"


class TaintManager(Spec, frozen=True):
    """Configures taint-based eviction of pods and tainting of failed nodes.

    There is one TaintManager per cluster, named default. Without it, the taint manager does nothing.
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
