"""TaintManager: how NoExecute taints end pods, and how nodes that fail are tainted; one for the whole cluster.

The node-lifecycle settings have the names that kube-controller-manager's flags have, and its defaults (v1.36), so that
a flag's value can be copied. What upstream has no flag for says so.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from trimtab.api.base import MAX_INT32, NaturalInt, ObjectMeta, Rule, Spec, bounded, doc
from trimtab.api.descheduler_status import list_map
from trimtab.api.scalars import DURATION_PATTERN, DURATION_RULE, Duration, parse_duration
from trimtab.api.taint_manager_status import TaintManagerStatus

KIND: Final = "TaintManager"
NAME: Final = "default"

OBSERVE: Final = "Observe"
EARLIER_ONLY: Final = "EarlierOnly"
OWN: Final = "Own"
DELETE: Final = "Delete"
EVICT: Final = "Evict"
FIRST: Final = "First"

Mode = Literal["Observe", "EarlierOnly", "Own"]
TaintPolicy = Literal["Delete", "Evict"]
TolerationMatching = Literal["All", "First"]

MAXIMUM_WAIT: Final = 600
"""Seconds that an eviction waits where a policy ``Evict`` does not say how long."""

LONGEST: Final = 7 * 24 * 3600
"""Seconds of the longest time that a field takes."""

TAINT_KEY: Final = "^[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?$"
TaintKey = Annotated[str, Meta(description="A taint's key.", min_length=1, max_length=317, pattern=TAINT_KEY)]
"""A key has at most 253 + 1 + 63 characters."""

SLOWEST: Final = 0.001
"""Pods a second at least, where there is a rate at all."""

Rate = Annotated[float, Meta(ge=0, le=1000)]
PodRate = Annotated[float, Meta(ge=SLOWEST, le=1000)]
Share = Annotated[float, Meta(ge=0, le=1)]
TolerationSeconds = Annotated[int, Meta(ge=0, le=MAX_INT32)]

AT_LEAST_A_SECOND: Final = Rule(
    rule=f"!self.matches('{DURATION_PATTERN}') || "
    f"(duration(self) >= duration('1s') && duration(self) <= duration('{LONGEST}s'))",
    message=f"must be between 1s and {LONGEST // 3600}h",
)
AT_MOST_A_WEEK: Final = Rule(
    rule=f"!self.matches('{DURATION_PATTERN}') || duration(self) <= duration('{LONGEST}s')",
    message=f"must be at most {LONGEST // 3600}h",
)
AT_LEAST_SLOWEST: Final = Rule(rule=f"self >= {SLOWEST}", message=f"must be at least {SLOWEST}")
"""The API server cuts a fraction off a bound where the value is written as a whole number: 0 would do."""

WAIT_WITH_EVICT: Final = "belongs to policy Evict"
GRACE_ABOVE_PERIOD: Final = "must be longer than nodeMonitorPeriod"
ONE_FOR_ALL: Final = f"must be {NAME}: there is one {KIND} for the whole cluster"


class KeyPolicy(Spec, frozen=True):
    """How pods go whose time on a node with a taint of this key is over."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="self.policy == 'Evict' || !has(self.maximumWait)",
            message=WAIT_WITH_EVICT,
            field_path=".maximumWait",
            reason="FieldValueForbidden",
        ),
    )

    key: Annotated[TaintKey, doc("The taint's key, e.g. example.com/maintenance; whatever its value.")]
    policy: Annotated[
        TaintPolicy,
        doc(
            "Delete: at its time, whatever PodDisruptionBudgets say, as kube-controller-manager does; right where the "
            "node is dead. Evict: by the eviction API, which heeds them, and deleted once it has waited maximumWait; "
            "right where the node is to be emptied."
        ),
    ]
    maximum_wait: Annotated[
        Duration | None,
        doc(
            "How long after its time a pod is evicted at the latest: by deletion if the API server has refused until "
            f"then. {MAXIMUM_WAIT // 60}m where it is left out. Only with Evict.",
            DURATION_RULE,
            AT_MOST_A_WEEK,
        ),
    ] = None

    @property
    def maximum_wait_seconds(self) -> int:
        """How long after a pod's time it is evicted at the latest; 0 where it is deleted at once."""
        if self.policy == DELETE:
            return 0
        return MAXIMUM_WAIT if self.maximum_wait is None else parse_duration(self.maximum_wait)


class UserTaintRates(Spec, frozen=True):
    """How many pods a second may go because of taints that are not of the node lifecycle; without a field no limit.

    A rate holds pods back beyond their time, never forward. kube-controller-manager has none.
    """

    total: Annotated[PodRate | None, doc("Pods a second in the whole cluster.", AT_LEAST_SLOWEST)] = None
    per_zone: Annotated[PodRate | None, doc("Pods a second from the nodes of one zone.", AT_LEAST_SLOWEST)] = None
    per_namespace: Annotated[PodRate | None, doc("Pods a second of one namespace.", AT_LEAST_SLOWEST)] = None


class NodeLifecycle(Spec, frozen=True):
    """When nodes count as failed and how fast they are tainted; only in mode Own.

    Names and defaults are those of kube-controller-manager's flags.
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
        Duration, doc("How often nodes are looked at (--node-monitor-period).", DURATION_RULE, AT_LEAST_A_SECOND)
    ] = "5s"
    node_monitor_grace_period: Annotated[
        Duration,
        doc(
            "How long a node may be silent, in its status and its Lease, before it counts as Unknown "
            "(--node-monitor-grace-period). Kubelets renew every 10s.",
            DURATION_RULE,
            AT_LEAST_A_SECOND,
        ),
    ] = "50s"
    node_startup_grace_period: Annotated[
        Duration,
        doc(
            "How long a new node may be silent at first (--node-startup-grace-period).",
            DURATION_RULE,
            AT_LEAST_A_SECOND,
        ),
    ] = "60s"
    node_eviction_rate: Annotated[
        Rate,
        doc(
            "Nodes a second that are tainted in a zone that is well, and in one that is all down "
            "(--node-eviction-rate)."
        ),
    ] = 0.1
    secondary_node_eviction_rate: Annotated[
        Rate,
        doc(
            "Nodes a second that are tainted in a zone of which too many are down (--secondary-node-eviction-rate); "
            "none in zones of at most largeClusterSizeThreshold nodes."
        ),
    ] = 0.01
    large_cluster_size_threshold: Annotated[
        NaturalInt,
        doc(
            "Of how many nodes a zone must have more for secondaryNodeEvictionRate to be more than 0 "
            "(--large-cluster-size-threshold)."
        ),
    ] = 50
    unhealthy_zone_threshold: Annotated[
        Share,
        doc(
            "From which share of nodes on that are not ready, and more than two of them, a zone counts as partly down "
            "(--unhealthy-zone-threshold)."
        ),
    ] = 0.55
    full_disruption_eviction_rate: Annotated[
        Rate | None,
        doc(
            "Nodes a second that are tainted in a zone that is all down while others are not. Upstream has no such "
            "flag; nodeEvictionRate where it is left out, as there. 0 holds such a zone."
        ),
    ] = None

    @property
    def monitor_period_seconds(self) -> int:
        """``nodeMonitorPeriod`` in seconds."""
        return parse_duration(self.node_monitor_period)

    @property
    def monitor_grace_seconds(self) -> int:
        """``nodeMonitorGracePeriod`` in seconds."""
        return parse_duration(self.node_monitor_grace_period)

    @property
    def startup_grace_seconds(self) -> int:
        """``nodeStartupGracePeriod`` in seconds."""
        return parse_duration(self.node_startup_grace_period)

    @property
    def full_disruption_rate(self) -> float:
        """Nodes a second in a zone that is all down, with what leaving ``fullDisruptionEvictionRate`` out means."""
        rate = self.full_disruption_eviction_rate
        return self.node_eviction_rate if rate is None else rate


class DefaultTolerations(Spec, frozen=True):
    """How long pods bear a node's failure that say nothing of it themselves.

    In most clusters the API server's plugin DefaultTolerationSeconds has written 300 s into every pod, and what a pod
    carries is what counts. These are for pods that carry nothing; where a field is left out they go at once.
    """

    default_not_ready_toleration_seconds: Annotated[
        TolerationSeconds | None,
        doc("Seconds that node.kubernetes.io/not-ready is borne (--default-not-ready-toleration-seconds)."),
    ] = None
    default_unreachable_toleration_seconds: Annotated[
        TolerationSeconds | None,
        doc("Seconds that node.kubernetes.io/unreachable is borne (--default-unreachable-toleration-seconds)."),
    ] = None


class TaintManagerSpec(Spec, frozen=True):
    """How NoExecute taints end pods, and how nodes that fail are tainted. An empty spec observes."""

    mode: Annotated[
        Mode,
        doc(
            "Observe: report when each pod goes, and do nothing. EarlierOnly: beside kube-controller-manager, whose "
            "own deletions cannot be held back; pods go at their time where that is earlier than its. Own: taint nodes "
            "and end pods, with kube-controller-manager's node-lifecycle-controller and taint-eviction-controller off."
        ),
    ] = "Observe"
    taints: Annotated[
        tuple[KeyPolicy, ...],
        bounded(
            "How pods go, by the key of the taint that ends their time. Keys that are not here: Delete.",
            limit=64,
            **list_map("key"),
        ),
    ] = ()
    user_taint_rates: Annotated[
        UserTaintRates, doc("How fast pods go because of taints that are not of the node lifecycle.")
    ] = UserTaintRates()
    node_lifecycle: Annotated[NodeLifecycle, doc("When nodes count as failed, and how fast they are tainted.")] = (
        NodeLifecycle()
    )
    default_tolerations: Annotated[
        DefaultTolerations, doc("How long pods bear a node's failure that say nothing of it themselves.")
    ] = DefaultTolerations()
    toleration_matching: Annotated[
        TolerationMatching,
        doc(
            "Which of several tolerations of one taint counts. All: one without tolerationSeconds bears it for ever, "
            "else the fewest seconds, whatever their order. First: the first in the pod's list alone, as in "
            "kube-controller-manager."
        ),
    ] = "All"


class TaintManager(Spec, frozen=True):
    """How NoExecute taints end pods, and how nodes that fail are tainted.

    There is one for the whole cluster, named default; without it nothing is done.
    """

    cel: ClassVar[tuple[Rule, ...]] = (Rule(rule=f"self.metadata.name == '{NAME}'", message=ONE_FOR_ALL),)

    metadata: ObjectMeta = ObjectMeta()
    spec: TaintManagerSpec = TaintManagerSpec()
    status: TaintManagerStatus = TaintManagerStatus()
    api_version: Literal["trimtab.dev/v1alpha1"] = "trimtab.dev/v1alpha1"
    kind: Literal["TaintManager"] = KIND

    @property
    def name(self) -> str:
        """``metadata.name``."""
        return self.metadata.name
