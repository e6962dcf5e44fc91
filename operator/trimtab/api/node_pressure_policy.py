"""NodePressurePolicy: evicts pods from nodes that run low on memory, disk or PIDs, before the kubelet kills them.

Usage::

    apiVersion: trimtab.dev/v1alpha1
    kind: NodePressurePolicy
    metadata: {name: workers}
    spec:
      mode: Act
      evictionSoft: {memory.available: 15%}
      evictionSoftGracePeriod: {memory.available: 1m30s}
      evictionHard: {memory.available: 1Gi}

The fields of the thresholds have the names, the syntax and the meaning of those in the KubeletConfiguration
(kubelet.config.k8s.io/v1beta1, v1.36; ``pkg/kubelet/eviction``). The kubelet of a node evicts at its own thresholds in
any case. A policy is useful only with higher ones: then pods are evicted within their PodDisruptionBudgets and with
their grace periods.

The resource is cluster-scoped. Each node is handled by one policy. If several select a node, the first one by name
handles it, and the others report it in their condition Conflicting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import Meta, Struct, field

from trimtab.api.base import (
    API_VERSION,
    ATOMIC,
    BigCount,
    NaturalInt,
    ObjectMeta,
    ObjectName,
    PositiveInt,
    Rule,
    ShortText,
    Spec,
    Status,
    bounded,
    doc,
)
from trimtab.api.conditions import Condition, ObservedGeneration, condition_list
from trimtab.api.descheduler_policy import Selector
from trimtab.api.scalars import (
    COOLDOWN_RULE,
    DURATION_PATTERN,
    DURATION_RULE,
    INTERVAL_RULE,
    LONGEST_INTERVAL,
    ZERO_RULE,
    Duration,
    duration_doc,
    parse_duration,
)
from trimtab.api.state import state_meta
from trimtab.api.waiting_evictions import WaitingEvictions, waiting_list
from trimtab.kube.rules.quantity import amount

KIND: Final = "NodePressurePolicy"

MEMORY_AVAILABLE: Final = "memory.available"
ALLOCATABLE_MEMORY_AVAILABLE: Final = "allocatableMemory.available"
NODEFS_AVAILABLE: Final = "nodefs.available"
NODEFS_INODES_FREE: Final = "nodefs.inodesFree"
IMAGEFS_AVAILABLE: Final = "imagefs.available"
IMAGEFS_INODES_FREE: Final = "imagefs.inodesFree"
CONTAINERFS_AVAILABLE: Final = "containerfs.available"
CONTAINERFS_INODES_FREE: Final = "containerfs.inodesFree"
PID_AVAILABLE: Final = "pid.available"

Signal = Literal[
    "memory.available",
    "allocatableMemory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
]

SIGNALS: Final[tuple[Signal, ...]] = (
    MEMORY_AVAILABLE,
    ALLOCATABLE_MEMORY_AVAILABLE,
    NODEFS_AVAILABLE,
    NODEFS_INODES_FREE,
    IMAGEFS_AVAILABLE,
    IMAGEFS_INODES_FREE,
    CONTAINERFS_AVAILABLE,
    CONTAINERFS_INODES_FREE,
    PID_AVAILABLE,
)
"""All eviction signals of the kubelet (``pkg/kubelet/eviction/api``)."""

SIMULATE: Final = "Simulate"
ACT: Final = "Act"
USAGE_PRIORITY: Final = "UsagePriority"
QOS: Final = "QoS"

Mode = Literal["Simulate", "Act"]
Ranking = Literal["UsagePriority", "QoS"]

ThresholdText = Annotated[str, Meta(min_length=1, max_length=32)]
"""A quantity such as ``500Mi``, or a percentage of the capacity of the signal such as ``10%``."""

_SIGNAL_LIST: Final = ", ".join(f"'{each}'" for each in SIGNALS)
_PERCENTAGE: Final = "^[0-9]{1,20}([.][0-9]{1,9})?%$"
_QUANTITY: Final = "^[0-9]{1,20}([.][0-9]{1,3})?([KMGT]i|[kMGT])?$"
MAX_QUANTITY: Final = 2**50

KNOWN_SIGNALS: Final = f"must contain only eviction signals: {', '.join(SIGNALS)}"
THRESHOLD_FORM: Final = (
    "must be a quantity above 0 and below 1Pi, e.g. 500Mi, or a percentage from 0% to 100%, e.g. 10%"
)
RECLAIM_FORM: Final = "must be a quantity below 1Pi, e.g. 500Mi, or a percentage above 0% and at most 100%, e.g. 5%"
SOFT_NEEDS_GRACE: Final = "must contain a grace period for each signal in evictionSoft"
GRACE_NEEDS_SOFT: Final = "must contain only signals of evictionSoft"
SOFT_ABOVE_HARD: Final = "each threshold must be above that of the same signal in evictionHard"
SOME_THRESHOLD: Final = "needs evictionSoft, evictionHard or memoryStall"
FORECAST_NEEDS_SOFT: Final = "requires evictionSoft"


class ThresholdValue(Struct, frozen=True):
    """The value of a threshold: a quantity or a share of the capacity of its signal.

    Attributes:
        quantity: bytes, inodes or PIDs; ``None`` for a percentage.
        share: of the capacity, from 0 to 1; ``None`` for a quantity.
    """

    quantity: int | None = None
    share: float | None = None

    def of(self, capacity: int) -> int:
        """Return the value in bytes, inodes or PIDs (``GetThresholdQuantity`` of the kubelet, which truncates)."""
        return self.quantity if self.quantity is not None else int(capacity * (self.share or 0.0))


def parse_threshold(text: str) -> ThresholdValue | None:
    """Parse the value of a threshold as the kubelet does (``parseThresholdStatement``).

    Quantities have the common forms only, at most three decimals, and are below 1Pi. Then CEL, which compares exact
    values, and Python, which compares whole ones, agree on each pair.

    Returns:
        the value; ``None`` for 0% and 100%, which the kubelet ignores, so that users can switch off a threshold.

    Raises:
        ValueError: the text is neither a positive quantity nor a percentage from 0 to 100.
    """
    if re.fullmatch(_PERCENTAGE[1:-1], text):
        percent = float(text[:-1])
        if percent > 100.0:
            raise ValueError(f"{THRESHOLD_FORM}; not {text}")
        return None if percent in (0.0, 100.0) else ThresholdValue(share=float(f"{text[:-1]}e-2"))
    if not re.fullmatch(_QUANTITY[1:-1], text) or not 0 < amount(text) < MAX_QUANTITY:
        raise ValueError(f"{THRESHOLD_FORM}; not {text!r}")
    return ThresholdValue(quantity=amount(text))


def parse_reclaim(text: str) -> ThresholdValue:
    """Parse a minimum reclaim as the kubelet does (``parseMinimumReclaims``).

    Raises:
        ValueError: the text is neither a quantity of at least 0 nor a percentage above 0.
    """
    if re.fullmatch(_PERCENTAGE[1:-1], text):
        percent = float(text[:-1])
        if not 0.0 < percent <= 100.0:
            raise ValueError(f"{RECLAIM_FORM}; not {text}")
        return ThresholdValue(share=float(f"{text[:-1]}e-2"))
    if not re.fullmatch(_QUANTITY[1:-1], text) or amount(text) >= MAX_QUANTITY:
        raise ValueError(f"{RECLAIM_FORM}; not {text!r}")
    return ThresholdValue(quantity=amount(text))


def _signal_map(text: str, *rules: Rule) -> Meta:
    """Return the metadata of a map by signal."""
    known = Rule(rule=f"self.all(signal, signal in [{_SIGNAL_LIST}])", message=KNOWN_SIGNALS)
    schema: dict[str, Any] = {"x-kubernetes-validations": [rule.wire() for rule in (known, *rules)]}
    return bounded(text, limit=len(SIGNALS), **schema)


_IS_THRESHOLD: Final = (
    f"self.all(signal, self[signal].matches('{_PERCENTAGE}') ? double(self[signal].replace('%', '')) <= 100.0 : "
    f"(self[signal].matches('{_QUANTITY}') && quantity(self[signal]).isGreaterThan(quantity('0')) && "
    "quantity(self[signal]).isLessThan(quantity('1Pi'))))"
)
_IS_RECLAIM: Final = (
    f"self.all(signal, self[signal].matches('{_PERCENTAGE}') ? (double(self[signal].replace('%', '')) > 0.0 && "
    "double(self[signal].replace('%', '')) <= 100.0) : "
    f"(self[signal].matches('{_QUANTITY}') && quantity(self[signal]).isLessThan(quantity('1Pi'))))"
)
_IS_DURATION: Final = f"self.all(signal, self[signal].matches('{DURATION_PATTERN}'))"
_IS_AT_MOST_A_WEEK: Final = (
    f"self.all(signal, !self[signal].matches('{DURATION_PATTERN}') || "
    f"duration(self[signal]) <= duration('{LONGEST_INTERVAL}s'))"
)
GRACE_AT_MOST_A_WEEK: Final = f"must be at most {LONGEST_INTERVAL // 3600}h"


class MemoryStall(Spec, frozen=True):
    """Soft threshold for the pressure stall information (PSI) of memory.

    Memory PSI is the percentage of time in which all tasks are stalled while they wait for memory. Memory PSI can
    detect thrashing earlier than the memory.available signal. The kubelet reports PSI on Linux nodes with cgroup v2.
    """

    percent: Annotated[
        Annotated[float, Meta(gt=0, le=100)],
        doc(
            "Threshold as a percentage of time. The threshold is met while the node's memory.psi.full signal, averaged "
            "over window, is at or above this value."
        ),
    ]
    window: Annotated[
        Literal["avg10", "avg60", "avg300"],
        doc("Period over which the memory.psi.full signal is averaged: 10, 60 or 300 seconds."),
    ] = "avg60"
    grace_period: Annotated[
        Duration,
        duration_doc("How long the threshold must be met before pods are evicted.", ZERO_RULE),
    ] = "1m"


class FailedPodCleanup(Spec, frozen=True):
    """Deletes pods that the kubelet evicted. They remain in phase Failed with reason Evicted until they are deleted.

    kube-controller-manager deletes them only above 12500 terminated pods (--terminated-pod-gc-threshold).
    """

    after: Annotated[
        Duration,
        duration_doc("How long a pod that the kubelet evicted is kept before it is deleted.", ZERO_RULE),
    ] = "1h"
    keep_per_owner: Annotated[
        NaturalInt,
        doc(
            "Number of pods to keep for each owner, for example a ReplicaSet, so that their status messages remain "
            "available. The most recently evicted pods are kept. If the number is not 0, pods without a controller "
            "are never deleted."
        ),
    ] = 1


class NodePressurePolicySpec(Spec, frozen=True):
    """Nodes to which the policy applies, and the thresholds at which pods are evicted from these nodes."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="(has(self.evictionSoft) && size(self.evictionSoft) > 0) || "
            "(has(self.evictionHard) && size(self.evictionHard) > 0) || has(self.memoryStall)",
            message=SOME_THRESHOLD,
            reason="FieldValueRequired",
        ),
        Rule(
            rule="!has(self.evictionSoft) || self.evictionSoft.all(signal, "
            "has(self.evictionSoftGracePeriod) && signal in self.evictionSoftGracePeriod)",
            message=SOFT_NEEDS_GRACE,
            field_path=".evictionSoftGracePeriod",
            reason="FieldValueRequired",
        ),
        Rule(
            rule="!has(self.evictionSoftGracePeriod) || self.evictionSoftGracePeriod.all(signal, "
            "has(self.evictionSoft) && signal in self.evictionSoft)",
            message=GRACE_NEEDS_SOFT,
            field_path=".evictionSoftGracePeriod",
            reason="FieldValueForbidden",
        ),
        Rule(
            rule="!has(self.evictionSoft) || !has(self.evictionHard) || self.evictionSoft.all(signal, "
            "!(signal in self.evictionHard) || "
            f"(self.evictionSoft[signal].matches('{_PERCENTAGE}') && self.evictionHard[signal].matches('{_PERCENTAGE}')"
            " ? (double(self.evictionSoft[signal].replace('%', '')) > "
            "double(self.evictionHard[signal].replace('%', ''))"
            " || double(self.evictionSoft[signal].replace('%', '')) in [0.0, 100.0]"
            " || double(self.evictionHard[signal].replace('%', '')) in [0.0, 100.0])"
            f" : (!self.evictionSoft[signal].matches('{_QUANTITY}') || "
            f"!self.evictionHard[signal].matches('{_QUANTITY}') || "
            "quantity(self.evictionSoft[signal]).isGreaterThan(quantity(self.evictionHard[signal])))))",
            message=SOFT_ABOVE_HARD,
            field_path=".evictionSoft",
        ),
        Rule(
            rule="!has(self.evictionForecast) || (has(self.evictionSoft) && size(self.evictionSoft) > 0)",
            message=FORECAST_NEEDS_SOFT,
            field_path=".evictionForecast",
            reason="FieldValueForbidden",
        ),
    )

    mode: Annotated[
        Mode,
        doc(
            "Whether the policy evicts pods. Simulate is a dry run: status and events only report which pods would be "
            "evicted. Act evicts pods and adds a condition to nodes under pressure. Act also adds a taint to these "
            "nodes unless taintNodes is false. Defaults to Simulate, so that a new policy evicts no pods."
        ),
    ] = SIMULATE
    node_selector: Annotated[
        Selector | None,
        doc(
            "Label selector for the nodes to which the policy applies. If unset, all nodes are selected. If several "
            "policies select the same node, only the policy whose name is first in alphabetical order applies to the "
            "node."
        ),
    ] = None
    eviction_hard: Annotated[
        Mapping[str, ThresholdText],
        _signal_map(
            "Hard eviction thresholds by signal, for example memory.available: 500Mi. The syntax is the same as in a "
            "KubeletConfiguration. While the available amount is below the threshold, pods are evicted immediately. "
            "Their termination grace period is at most hardEvictionMaxPodGracePeriod. Supported signals are "
            "memory.available, allocatableMemory.available, nodefs.available, nodefs.inodesFree, imagefs.available, "
            "imagefs.inodesFree, containerfs.available, containerfs.inodesFree and pid.available. A percentage such as "
            "10% refers to the capacity of the resource. The values 0% and 100% disable the threshold. If unset, there "
            "are no hard thresholds, because the defaults of the kubelet do not apply.",
            Rule(rule=_IS_THRESHOLD, message=THRESHOLD_FORM),
        ),
    ] = field(default_factory=dict)
    eviction_soft: Annotated[
        Mapping[str, ThresholdText],
        _signal_map(
            "Soft eviction thresholds by signal, in the same format as evictionHard. Pods are evicted when a threshold "
            "has been met for the grace period in evictionSoftGracePeriod. If unset, memoryStall is the only soft "
            "threshold.",
            Rule(rule=_IS_THRESHOLD, message=THRESHOLD_FORM),
        ),
    ] = field(default_factory=dict)
    eviction_soft_grace_period: Annotated[
        Mapping[str, Duration],
        _signal_map(
            "How long a soft threshold must be met before pods are evicted, by signal. Each value is a duration "
            "such as 30s, 5m or 1h30m, at most 168h. Required for each signal in evictionSoft.",
            Rule(rule=_IS_DURATION, message=DURATION_RULE.message),
            Rule(rule=_IS_AT_MOST_A_WEEK, message=GRACE_AT_MOST_A_WEEK),
        ),
    ] = field(default_factory=dict)
    eviction_minimum_reclaim: Annotated[
        Mapping[str, ThresholdText],
        _signal_map(
            "Minimum amount to reclaim by signal, as a quantity such as 500Mi or as a percentage of the capacity such "
            "as 5%. A threshold that has been met for its grace period remains met until the available amount exceeds "
            "the threshold by at least this amount. This prevents repeated evictions while a signal is close to its "
            "threshold.",
            Rule(rule=_IS_RECLAIM, message=RECLAIM_FORM),
        ),
    ] = field(default_factory=dict)
    eviction_max_pod_grace_period: Annotated[
        PositiveInt | None,
        doc(
            "Maximum termination grace period, in seconds, of pods that are evicted because of a soft threshold. If "
            "unset, the terminationGracePeriodSeconds of each pod applies. In a KubeletConfiguration, by contrast, the "
            "default is 0."
        ),
    ] = None
    hard_eviction_max_pod_grace_period: Annotated[
        PositiveInt,
        doc(
            "Maximum termination grace period, in seconds, of pods that are evicted because of a hard threshold. "
            "Defaults to 1, which is the fixed value in the kubelet."
        ),
    ] = 1
    eviction_pressure_transition_period: Annotated[
        Duration,
        duration_doc(
            "How long a pressure condition such as MemoryPressure, and its taint, remain on a node after the node no "
            "longer meets any threshold for the condition.",
            ZERO_RULE,
        ),
    ] = "5m"
    monitoring_interval: Annotated[
        Duration,
        duration_doc(
            "Interval at which the signals of each node are read. Kubelets update the signals about every 10s.",
            INTERVAL_RULE,
        ),
    ] = "10s"
    eviction_forecast: Annotated[
        Duration | None,
        duration_doc(
            "Period for which signals are forecast. Pods are evicted before the grace period of a soft threshold has "
            "elapsed if the signal is predicted to reach its hard threshold within this period. The hard threshold is "
            "the one in evictionHard or, if evictionHard does not contain the signal, the one in kubeletEvictionHard. "
            "If unset, forecasts do not cause evictions.",
            COOLDOWN_RULE,
        ),
    ] = None
    memory_stall: MemoryStall | None = None
    kubelet_eviction_hard: Annotated[
        Mapping[str, ThresholdText],
        _signal_map(
            "Hard eviction thresholds that are configured in the kubelets on the selected nodes, in the same format as "
            "evictionHard. This field does not configure the kubelets. The thresholds are used for evictionForecast "
            "and for the Conflicting condition. If unset, the kubelet's defaults on Linux are assumed: "
            "memory.available 100Mi, nodefs.available 10%, nodefs.inodesFree 5%, imagefs.available 15% and "
            "imagefs.inodesFree 5%. If set, the list replaces all of these defaults.",
            Rule(rule=_IS_THRESHOLD, message=THRESHOLD_FORM),
        ),
    ] = field(default_factory=dict)
    ranking: Annotated[
        Ranking,
        doc(
            "Order in which pods are evicted. UsagePriority sorts pods as the kubelet does: pods that exceed their "
            "requests are evicted first, then pods with a lower priority, and then pods that exceed their requests by "
            "a larger amount. QoS evicts BestEffort pods first, then Burstable pods, and then Guaranteed pods, as in "
            "OpenShift 3. Within a QoS class, pods that exceed their requests by a larger amount are evicted first."
        ),
    ] = USAGE_PRIORITY
    taint_nodes: Annotated[
        bool,
        doc(
            "Whether to add a NoSchedule taint to nodes under pressure. The taint key is pressure.trimtab.dev/memory, "
            "pressure.trimtab.dev/disk or pressure.trimtab.dev/pid. Ignored in Simulate mode."
        ),
    ] = True
    delete_after: Annotated[
        Duration | None,
        duration_doc(
            "How long the operator retries an eviction that the API server rejects, for example because of a "
            "PodDisruptionBudget, before it deletes the pod instead. Pods are deleted only while a hard threshold is "
            "met. If unset, running pods are never deleted.",
            ZERO_RULE,
        ),
    ] = None
    failed_pods: Annotated[
        FailedPodCleanup | None,
        doc(
            "Configures the deletion of pods in phase Failed that the kubelet evicted from nodes to which this policy "
            "applies. If unset, such pods are not deleted. Ignored in Simulate mode."
        ),
    ] = None

    @property
    def soft_grace_seconds(self) -> dict[str, int]:
        """Return the grace periods of the soft thresholds in seconds, by signal."""
        return {signal: parse_duration(text) for signal, text in self.eviction_soft_grace_period.items()}


KUBELET_EVICTION_HARD: Final[Mapping[str, str]] = {
    MEMORY_AVAILABLE: "100Mi",
    NODEFS_AVAILABLE: "10%",
    NODEFS_INODES_FREE: "5%",
    IMAGEFS_AVAILABLE: "15%",
    IMAGEFS_INODES_FREE: "5%",
}
"""The kubelet's default hard thresholds on Linux (``DefaultEvictionHard``, v1.36)."""

MAX_NODES: Final = 50
MAX_UNREAD: Final = 50

PressureCondition = Literal["MemoryPressure", "DiskPressure", "PIDPressure"]

PRESSURE_CONDITIONS: Final[tuple[PressureCondition, ...]] = ("MemoryPressure", "DiskPressure", "PIDPressure")


class SignalStatus(Status, frozen=True):
    """An eviction signal whose threshold is met on the node."""

    signal: Annotated[
        Annotated[str, Meta(max_length=64)],
        doc("Name of the eviction signal, for example memory.available. For memoryStall, the name is memory.psi.full."),
    ]
    available: Annotated[
        BigCount,
        doc(
            "Current value of the signal. The value of memory.psi.full is the share of time in which all tasks were "
            "stalled, in hundredths of a percent. For example, 1250 means 12.5%. The value of any other signal is the "
            "available number of bytes, inodes or PIDs."
        ),
    ] = 0
    threshold: Annotated[
        BigCount,
        doc("Value of the threshold that is met, in the same unit as the available field."),
    ] = 0
    hard: Annotated[
        bool,
        doc(
            "Whether the threshold is a hard threshold (evictionHard). If false, it is a soft threshold (evictionSoft "
            "or memoryStall)."
        ),
    ] = False
    since: Annotated[datetime | None, doc("Time since which the threshold has been met.")] = None


class NodePressureStatus(Status, frozen=True):
    """A node under pressure.

    A node is under pressure while a threshold is met and for evictionPressureTransitionPeriod afterwards.
    """

    name: Annotated[ObjectName, doc("Name of the node.")]
    conditions: Annotated[
        tuple[PressureCondition, ...],
        bounded(
            "Types of the pressure conditions that this policy has detected on the node, for example MemoryPressure. "
            "In Act mode, the operator adds these conditions to the Node's status with the prefix "
            "pressure.trimtab.dev/, for example pressure.trimtab.dev/MemoryPressure.",
            limit=3,
            **ATOMIC,
        ),
    ] = ()
    signals: Annotated[
        tuple[SignalStatus, ...],
        bounded(
            "Signals whose thresholds are currently met. Empty if no threshold is met now or if the signals are "
            "unknown.",
            limit=len(SIGNALS) * 2,
            **ATOMIC,
        ),
    ] = ()
    reason: Annotated[
        Annotated[str, Meta(max_length=128)],
        doc(
            "Reason code in CamelCase that explains why pods are or are not evicted from the node, for example "
            "SoftGracePeriod or KubeletEvicts."
        ),
    ] = ""
    message: Annotated[
        ShortText, doc("Human-readable details of the reason, for example the pod that is being evicted.")
    ] = ""


class UnreadNode(Status, frozen=True):
    """A node for which some or all of the signals that the policy needs are unknown."""

    name: Annotated[ObjectName, doc("Name of the node.")]
    reason: Annotated[
        Annotated[str, Meta(max_length=128)],
        doc("Reason code in CamelCase that explains why the signals are unknown, for example StatsUnreachable."),
    ] = ""
    since: Annotated[
        datetime | None,
        doc(
            "Time at which all signals of the node were last known. Unset if the signals have been unknown since the "
            "operator started."
        ),
    ] = None
    message: Annotated[
        ShortText,
        doc("Human-readable details of the reason, for example the error of the last request to the kubelet."),
    ] = ""


class PressureCounts(Status, frozen=True):
    """Current numbers of nodes, and total numbers of pods evicted and deleted since the policy was created."""

    nodes: Annotated[NaturalInt, doc("Number of nodes to which the policy applies.")] = 0
    read: Annotated[
        NaturalInt,
        doc(
            "Number of nodes whose signals were read recently, either from the kubelet or, if the kubelet did not "
            "respond, from the metrics.k8s.io API."
        ),
    ] = 0
    from_metrics: Annotated[
        NaturalInt,
        doc(
            "Number of nodes whose signals were read from the metrics.k8s.io API, which provides only "
            "memory.available. These nodes are also counted in the read field."
        ),
    ] = 0
    under_pressure: Annotated[
        NaturalInt,
        doc(
            "Number of nodes under pressure. A node is under pressure while a threshold is met and for "
            "evictionPressureTransitionPeriod afterwards."
        ),
    ] = 0
    evicted: Annotated[BigCount, doc("Number of pods evicted since the NodePressurePolicy was created.")] = 0
    deleted: Annotated[
        BigCount, doc("Number of pods deleted because of spec.deleteAfter since the NodePressurePolicy was created.")
    ] = 0
    cleaned_up: Annotated[
        BigCount, doc("Number of pods deleted because of spec.failedPods since the NodePressurePolicy was created.")
    ] = 0


class NodePressurePolicyStatus(Status, frozen=True):
    """Observed status of the NodePressurePolicy: conditions, nodes under pressure, and nodes with unknown signals."""

    observed_generation: ObservedGeneration = 0
    state: Annotated[str, state_meta("NodePressurePolicy")] = ""
    conditions: Annotated[
        tuple[Condition, ...],
        condition_list(
            "Current conditions of the NodePressurePolicy. Ready is True if the policy is valid and the operator "
            "watches its nodes. Progressing is True while pods are being evicted. Degraded is True if a problem "
            "prevents the operator from fulfilling part of the spec. Conflicting is True if another policy applies to "
            "some of the selected nodes, if a kubelet evicts pods at the same threshold or earlier, or if a soft "
            "threshold is not above the hard threshold on some nodes. Contended is True if a second trimtab "
            "installation manages the same objects. PermissionsMissing is True if trimtab's service account lacks "
            "permissions that the policy needs."
        ),
    ] = ()
    counts: Annotated[
        PressureCounts,
        doc("Current numbers of nodes, and total numbers of pods evicted and deleted since the policy was created."),
    ] = PressureCounts()
    nodes: Annotated[
        tuple[NodePressureStatus, ...], bounded("Nodes under pressure, sorted by name.", limit=MAX_NODES, **ATOMIC)
    ] = ()
    nodes_omitted: Annotated[
        NaturalInt,
        doc("Number of nodes under pressure that are omitted from status.nodes because its length is limited."),
    ] = 0
    unread: Annotated[
        tuple[UnreadNode, ...],
        bounded(
            "Nodes whose signals are unknown, sorted by name. The signals are unknown if the operator could not read "
            "them for at least three monitoring intervals (at least 30s). The signals are also unknown if the kubelet "
            "reports no usable value for a signal with a threshold. Nodes that are counted in counts.fromMetrics are "
            "not listed.",
            limit=MAX_UNREAD,
            **ATOMIC,
        ),
    ] = ()
    unread_omitted: Annotated[
        NaturalInt,
        doc("Number of nodes with unknown signals that are omitted from status.unread because its length is limited."),
    ] = 0
    waiting_evictions: Annotated[tuple[WaitingEvictions, ...], waiting_list()] = ()


class NodePressurePolicy(Spec, frozen=True):
    """Evicts pods from nodes that run low on memory, disk space, inodes or PIDs, before the kubelet evicts them.

    By default, the node-pressure controller is disabled. To enable it, set the Helm value controllers.pressure.enabled
    to true.
    """

    spec: NodePressurePolicySpec
    metadata: ObjectMeta = ObjectMeta()
    status: NodePressurePolicyStatus = NodePressurePolicyStatus()
    api_version: Literal["trimtab.dev/v1alpha1"] = API_VERSION
    kind: Literal["NodePressurePolicy"] = KIND

    @property
    def name(self) -> str:
        """Return ``metadata.name``."""
        return self.metadata.name
