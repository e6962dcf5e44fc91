"""Reports what the node-pressure controller observes and does: status, events, metrics and log lines.

reporter = PressureReporter(recorder, PressureMetrics(registry), clock)
reporter.evicted(policy, node, planned)                                # returns at once
status = build_status(observation, previous=writer.status, base=counts_of_earlier_processes)
writer.put(status)
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from prometheus_client import Counter as CounterMetric

from trimtab.api import reasons
from trimtab.api.bounds import named, plural, without_numbers
from trimtab.api.conditions import CONFLICTING, DEGRADED, PROGRESSING, READY, ConditionUpdate
from trimtab.api.history_record import HistoryEntry
from trimtab.api.node_pressure_policy import (
    ACT,
    MAX_NODES,
    MAX_UNREAD,
    Mode,
    NodePressurePolicyStatus,
    NodePressureStatus,
    PressureCondition,
    PressureCounts,
    SignalStatus,
    UnreadNode,
)
from trimtab.api.scalars import to_time
from trimtab.api.waiting_evictions import WaitingEvictions
from trimtab.controller.history import History, NoHistory
from trimtab.controller.reporter import LabeledGauge, condition, next_status, pod_fields, report_safely
from trimtab.controller.status_writer import StatusWriter, urgent_conditions, write_when
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock
from trimtab.kube.events.event import NORMAL, WARNING, RecentlyReported, truncate
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.objects import Node, Pod
from trimtab.kube.resources import NODE_PRESSURE_POLICIES, NODES, ObjectReference, pod_reference
from trimtab.kube.rules.taints import NO_SCHEDULE
from trimtab.pressure.planner import NodePlan, PlannedEviction
from trimtab.pressure.state import TAINT_KEYS
from trimtab.pressure.thresholds import MEMORY_STALL, Threshold

log = logging.getLogger(__name__)

NUMBERS_PERIOD: Final = 60.0
"""Minimum seconds between two writes of the status if only numbers differ. They differ in every interval."""

MAX_MESSAGE_BYTES: Final = 512
"""Maximum length of the messages of nodes in the status, in bytes."""

MEASURED: Final = "Summary"
FROM_METRICS: Final = "Metrics"

_EVICT: Final = "Evict"


# --- metrics ----------------------------------------------------------------------------------------------------------


class PolicyGauges(Struct, frozen=True, kw_only=True):
    """The values of the gauges of one policy, by the values of the labels after ``policy``."""

    readings: Mapping[tuple[str, ...], float] = {}
    age: Mapping[tuple[str, ...], float] = {}
    nodes: Mapping[tuple[str, ...], float] = {}
    signals: Mapping[tuple[str, ...], float] = {}
    refused: Mapping[tuple[str, ...], float] = {}
    seconds_to: Mapping[tuple[str, ...], float] = {}


class PressureMetrics:
    """The metrics of the node-pressure controller. No node has series of its own: the status names nodes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.readings = LabeledGauge(
            "trimtab_node_pressure_read_nodes",
            "Nodes that the policy handles, by result of the latest reading: Summary, Metrics (only memory) or a "
            "reason code.",
            ("policy", "result"),
            registry,
        )
        self.age = LabeledGauge(
            "trimtab_node_pressure_reading_age_seconds",
            "Age of the oldest of the current readings of the policy's nodes.",
            ("policy",),
            registry,
        )
        self.nodes = LabeledGauge(
            "trimtab_node_pressure_nodes",
            "Nodes under pressure, by condition.",
            ("policy", "condition"),
            registry,
        )
        self.signals = LabeledGauge(
            "trimtab_node_pressure_signal_ratio",
            "Available amount of a signal divided by the threshold that is met, on the node where it is lowest.",
            ("policy", "signal", "threshold"),
            registry,
        )
        self.seconds_to = LabeledGauge(
            "trimtab_node_pressure_seconds_to_threshold",
            "Seconds until a threshold is met if the trend of the signal continues, on the node that meets it first. "
            "Times above 600 are not shown.",
            ("policy", "signal", "threshold"),
            registry,
        )
        self.refused = LabeledGauge(
            "trimtab_node_pressure_refused_pods",
            "Pods on nodes under pressure whose eviction is refused.",
            ("policy", "reason"),
            registry,
        )
        self.evictions = CounterMetric(
            "trimtab_node_pressure_evictions",
            "Evictions of pods from nodes under pressure, by result: Evicted, Deleted (after deleteAfter), Refused, "
            "CleanedUp (failed pods), Simulated.",
            ["policy", "result", "reason"],
            registry=registry,
        )

        self._by_policy: dict[str, PolicyGauges] = {}

    def show(self, policy: str, gauges: PolicyGauges | None) -> None:
        """Replace the gauges of a policy; with ``None``, remove them."""
        self._by_policy.pop(policy, None)
        if gauges is not None:
            self._by_policy[policy] = gauges
        for name in PolicyGauges.__struct_fields__:
            series: dict[tuple[str, ...], float] = {}
            for each, values in self._by_policy.items():
                series |= {(each, *labels): value for labels, value in getattr(values, name).items()}
            gauge: LabeledGauge = getattr(self, name)
            gauge.show(series)


# --- events -----------------------------------------------------------------------------------------------------------


class PressureReporter:
    """Reports in events, metrics and log lines. Its methods return immediately.

    Args:
        recorder: posts events.
        metrics: the metrics.
        clock: the wall clock and the monotonic clock.
        history: records taints; ``None`` if no history is kept.
    """

    def __init__(
        self, recorder: Recorder, metrics: PressureMetrics, clock: Clock, *, history: History | None = None
    ) -> None:
        self.metrics = metrics
        self._recorder = recorder
        self._clock = clock
        self._history = history or NoHistory()
        self._reported = RecentlyReported()

    def conditions_changed(
        self,
        policy: ObjectReference,
        node: Node,
        began: Mapping[PressureCondition, str],
        ended: Sequence[PressureCondition],
        *,
        tainted: bool = False,
    ) -> None:
        """Report the conditions that were set on a node, with their messages, and those that were removed.

        Args:
            policy: the NodePressurePolicy.
            node: the node.
            began: the messages of the conditions that were set.
            ended: the conditions that were removed.
            tainted: whether the policy also taints nodes under pressure.
        """
        if tainted:
            for name, message in began.items():
                self._record_taint(policy, node, name, message, added=True)
            for name in ended:
                self._record_taint(policy, node, name, f"the node no longer has {name}", added=False)
        regarding = ObjectReference.to(NODES, node.name, uid=node.uid)
        for name, message in began.items():
            log.info(
                "Node %s has condition %s: %s", node.name, name, message, extra={"node": node.name, "condition": name}
            )
            note = f"set condition {name}: {message}"
            self._event(regarding, reasons.NODE_PRESSURE_BEGAN, "SetCondition", note, policy, type_=WARNING)
        for name in ended:
            log.info(
                "Node %s no longer has condition %s", node.name, name, extra={"node": node.name, "condition": name}
            )
            note = (
                f"removed condition {name}: during the whole transition period, no threshold of NodePressurePolicy "
                f"{policy.name} was met"
            )
            self._event(regarding, reasons.NODE_PRESSURE_ENDED, "RemoveCondition", note, policy)

    def _record_taint(
        self, policy: ObjectReference, node: Node, condition: PressureCondition, message: str, *, added: bool
    ) -> None:
        entry = HistoryEntry(
            time=to_time(self._clock.now()),
            controller="pressure",
            action="Taint" if added else "Untaint",
            reason=reasons.NODE_PRESSURE_BEGAN if added else reasons.NODE_PRESSURE_ENDED,
            message=message,
            policy=policy.name,
            node=node.name,
            uid=node.uid,
            taint=f"{TAINT_KEYS[condition]}:{NO_SCHEDULE}",
        )
        with report_safely("history"):
            self._history.add(entry)

    def stood_down(self, policy: ObjectReference, node: Node, message: str) -> None:
        """Report that no pod is evicted from a node, because its kubelet evicts pods."""
        regarding = ObjectReference.to(NODES, node.name, uid=node.uid)
        if self._is_new(f"stand-down {node.name}", message):
            log.info("Evicting no pods from node %s: %s", node.name, message, extra={"node": node.name})
            note = f"NodePressurePolicy {policy.name} evicts no pod: {message}"
            self._event(regarding, reasons.KUBELET_EVICTS, _EVICT, note, policy)

    def evicted(self, policy: ObjectReference, node: str, planned: PlannedEviction) -> None:
        """Report a pod whose eviction or deletion the API server has granted."""
        pod, result = planned.pod, "Deleted" if planned.how == "Delete" else "Evicted"
        self.metrics.evictions.labels(policy.name, result, planned.reason).inc()
        how = "evicted" if planned.how == "Evict" else "deleted, because its eviction was refused for deleteAfter,"
        note = f"{how} from node {node} with a grace period of {planned.grace_period}s: {planned.message}"
        self._event(_pod(pod), reasons.NODE_PRESSURE_EVICTION, _EVICT, note, policy, type_=WARNING)

    def refused(
        self, policy: ObjectReference, node: str, planned: PlannedEviction, *, reason: str, message: str
    ) -> None:
        """Report a failed attempt to evict a pod. The same refusal is reported once in a while."""
        pod = planned.pod
        self.metrics.evictions.labels(policy.name, "Refused", reason).inc()
        if not self._is_new(f"refused {pod.uid}", f"{reason} {message}"):
            return
        fields = pod_fields(pod.key, pod.uid, node) | {"reason": reason, "policy": policy.name}
        log.warning("Failed to evict pod %s from node %s; retrying: %s", pod.key, node, message, extra=fields)
        note = f"failed to evict pod {pod.key} from node {node}, which is under pressure: {message}; retrying"
        self._event(policy, reason, _EVICT, note, _pod(pod), type_=WARNING)

    def simulated(self, policy: ObjectReference, node: str, planned: PlannedEviction) -> None:
        """Report the pod that a policy in Simulate mode would evict."""
        pod = planned.pod
        if self._is_new(f"simulated {node}", f"{pod.uid} {planned.reason}"):
            fields = pod_fields(pod.key, pod.uid, node) | {"reason": planned.reason, "policy": policy.name}
            log.info("Would evict pod %s from node %s: %s", pod.key, node, planned.message, extra=fields)
            self.metrics.evictions.labels(policy.name, "Simulated", planned.reason).inc()
            note = f"would evict pod {pod.key} from node {node}: {planned.message}"
            self._event(policy, reasons.EVICTION_SIMULATED, _EVICT, note, _pod(pod))

    def cleaned_up(self, policy: ObjectReference, pod: Pod) -> None:
        """Report a failed pod that was deleted."""
        fields = pod_fields(pod.key, pod.uid, pod.node) | {"policy": policy.name}
        log.info("Deleted failed pod %s, which the kubelet on node %s had evicted", pod.key, pod.node, extra=fields)
        self.metrics.evictions.labels(policy.name, "CleanedUp", reasons.FAILED_POD_CLEANUP).inc()

    def _is_new(self, key: str, message: str) -> bool:
        return self._reported.first(key, without_numbers(message), now=self._clock.monotonic())

    def _event(
        self,
        regarding: ObjectReference,
        reason: str,
        action: str,
        note: str,
        related: ObjectReference,
        *,
        type_: str = NORMAL,
    ) -> None:
        self._recorder.event(regarding, reason=reason, action=action, note=note, type=type_, related=related)


def policy_reference(name: str, uid: str) -> ObjectReference:
    """Return a reference to a NodePressurePolicy."""
    return ObjectReference.to(NODE_PRESSURE_POLICIES, name, uid=uid)


def _pod(pod: Pod) -> ObjectReference:
    return pod_reference(pod.key, pod.uid)


# --- status -----------------------------------------------------------------------------------------------------------


class Unread(Struct, frozen=True):
    """A node whose signals are unknown: why, and when they were last known, in seconds since the epoch."""

    node: str
    reason: str
    message: str
    since: float | None


class Observation(Struct, frozen=True, kw_only=True):
    """The state of one NodePressurePolicy at one time.

    Attributes:
        now: the time of the observation in seconds since the epoch.
        generation: generation of the policy.
        mode: mode of the policy.
        nodes: number of nodes that the policy handles.
        readings: number of these nodes by the source of their current measurement: ``Summary`` or ``Metrics``.
        plans: the plans of the nodes under pressure, sorted by name.
        unread: the nodes whose signals are unknown, sorted by name.
        refused: the pods whose eviction is refused, as ``namespace/name``.
        evicting: number of nodes from which a pod is being evicted.
        conflicts: messages about other policies and about kubelets, with their reason code.
        stale: the reason why the caches are too old to act on; ``""`` if they are up to date, or stale only for as long
            as a reconnect takes.
        unwritten: the errors of nodes that cannot be written, by node.
        counts: the totals of this process.
        waiting: the evictions that wait for other evictions.
        approaching: the thresholds that a node soon meets, with the seconds until the first node does.
    """

    now: float
    generation: int
    mode: Mode
    nodes: int = 0
    readings: Mapping[str, int] = {}
    plans: Sequence[NodePlan] = ()
    unread: Sequence[Unread] = ()
    refused: Sequence[str] = ()
    evicting: int = 0
    conflicts: Sequence[tuple[str, str]] = ()
    stale: str = ""
    unwritten: Mapping[str, str] = {}
    counts: PressureCounts = PressureCounts()
    waiting: tuple[WaitingEvictions, ...] = ()
    approaching: Mapping[Threshold, float] = {}


def build_status(
    observed: Observation, previous: NodePressurePolicyStatus, *, base: PressureCounts
) -> NodePressurePolicyStatus:
    """Build the new status of a valid NodePressurePolicy.

    Args:
        observed: the observed state.
        previous: the previous status. Unchanged conditions keep their transition time.
        base: the counts of earlier processes, read from the status when this process started.
    """
    wanted = (_ready(observed), _progressing(observed), _degraded(observed), _conflicting(observed))
    summary, metrics = observed.readings.get(MEASURED, 0), observed.readings.get(FROM_METRICS, 0)
    return next_status(
        previous,
        wanted,
        generation=observed.generation,
        now=observed.now,
        counts=replace(
            observed.counts,
            nodes=observed.nodes,
            read=summary + metrics,
            from_metrics=metrics,
            under_pressure=len(observed.plans),
            evicted=base.evicted + observed.counts.evicted,
            deleted=base.deleted + observed.counts.deleted,
            cleaned_up=base.cleaned_up + observed.counts.cleaned_up,
        ),
        nodes=tuple(_node_status(plan) for plan in observed.plans[:MAX_NODES]),
        nodes_omitted=max(0, len(observed.plans) - MAX_NODES),
        unread=tuple(_unread_node(each) for each in observed.unread[:MAX_UNREAD]),
        unread_omitted=max(0, len(observed.unread) - MAX_UNREAD),
        waiting_evictions=observed.waiting,
    )


def invalid_fields(previous: NodePressurePolicyStatus) -> dict[str, Any]:
    """Return the fields of the status of an invalid NodePressurePolicy, which handles no node."""
    return {
        "counts": replace(previous.counts, nodes=0, read=0, from_metrics=0, under_pressure=0),
        "nodes": (),
        "nodes_omitted": 0,
        "unread": (),
        "unread_omitted": 0,
        "waiting_evictions": (),
    }


def _node_status(plan: NodePlan) -> NodePressureStatus:
    return NodePressureStatus(
        name=plan.node,
        conditions=tuple(sorted(plan.conditions)),
        signals=tuple(
            SignalStatus(
                signal=each.threshold.signal,
                available=max(0, each.available),
                threshold=max(0, each.limit),
                hard=each.threshold.hard,
                since=to_time(each.since),
            )
            for each in plan.met
        ),
        reason=plan.reason,
        message=truncate(plan.message, MAX_MESSAGE_BYTES),
    )


def _unread_node(unread: Unread) -> UnreadNode:
    since = None if unread.since is None else to_time(unread.since)
    message = truncate(unread.message, MAX_MESSAGE_BYTES)
    return UnreadNode(name=unread.node, reason=unread.reason, since=since, message=message)


def _ready(observed: Observation) -> ConditionUpdate:
    if observed.stale:
        return condition(READY, False, reasons.CLUSTER_UNREACHABLE, f"paused: {observed.stale}")
    if observed.mode != ACT:
        return condition(READY, True, reasons.SIMULATING, "mode is Simulate: no pod is evicted and no node is changed")
    return condition(READY, True, reasons.NODES_WATCHED, "the nodes that the policy selects are watched")


def _progressing(observed: Observation) -> ConditionUpdate:
    if observed.evicting:
        message = f"pods are being evicted from {plural(observed.evicting, 'node')}"
        return condition(PROGRESSING, True, reasons.EVICTING_PODS, message)
    under = len(observed.plans)
    message = (
        f"no pod is being evicted; {plural(under, 'node')} under pressure" if under else "no node is under pressure"
    )
    return condition(PROGRESSING, False, reasons.IDLE, message)


def _degraded(observed: Observation) -> ConditionUpdate:
    if observed.stale:
        return condition(DEGRADED, True, reasons.CLUSTER_UNREACHABLE, observed.stale)
    if observed.refused:
        message = f"the evictions of these pods are refused and retried: {named(observed.refused)}"
        return condition(DEGRADED, True, reasons.EVICTIONS_REFUSED, message)
    if observed.unwritten:
        node, error = min(observed.unwritten.items())
        message = f"cannot update {plural(len(observed.unwritten), 'node')}, such as {node}: {error}"
        return condition(DEGRADED, True, reasons.NODE_UPDATE_FAILED, message)
    if observed.unread:
        by_reason = Counter(each.reason for each in observed.unread)
        parts = ", ".join(f"{reason}: {number}" for reason, number in sorted(by_reason.items()))
        names = named([each.node for each in observed.unread])
        message = f"the signals of {plural(len(observed.unread), 'node')} are unknown ({parts}): {names}"
        return condition(DEGRADED, True, reasons.SIGNALS_UNKNOWN, message)
    return condition(DEGRADED, False, reasons.ALL_WELL, "the signals of all nodes are known")


def _conflicting(observed: Observation) -> ConditionUpdate:
    if observed.conflicts:
        message = "; ".join(each for _, each in observed.conflicts)
        return condition(CONFLICTING, True, observed.conflicts[0][0], message)
    message = "no other policy handles the selected nodes, and no kubelet evicts earlier"
    return condition(CONFLICTING, False, reasons.NO_CONFLICT, message)


def _urgent(status: NodePressurePolicyStatus) -> tuple[object, ...]:
    """Return the fields whose changes are written immediately: conditions, nodes and evictions."""
    counts = status.counts
    return (
        *urgent_conditions(status),
        [
            (each.name, each.conditions, each.reason, [(signal.signal, signal.hard) for signal in each.signals])
            for each in status.nodes
        ],
        [(each.name, each.reason) for each in status.unread],
        (counts.evicted, counts.deleted, counts.cleaned_up),
    )


worth_writing: Final = write_when(_urgent, period=NUMBERS_PERIOD)


def status_writer(api: Api, clock: Clock, name: str) -> StatusWriter[NodePressurePolicyStatus]:
    """Create the status writer of a NodePressurePolicy."""
    return StatusWriter(
        api,
        clock,
        resource=NODE_PRESSURE_POLICIES,
        name=name,
        empty=NodePressurePolicyStatus(),
        should_write=worth_writing,
    )


def gauges_of(observed: Observation, ages: Sequence[float], refused: Mapping[str, int]) -> PolicyGauges:
    """Return the gauges of a policy.

    Args:
        observed: the observed state.
        ages: the ages of the current readings in seconds.
        refused: number of refused pods by reason.
    """
    readings: dict[tuple[str, ...], float] = {(source,): float(number) for source, number in observed.readings.items()}
    for reason, number in Counter(each.reason for each in observed.unread).items():
        if reason != reasons.SIGNAL_UNKNOWN:  # the node was read
            readings[reason,] = float(number)
    under = Counter(name for plan in observed.plans for name in plan.conditions)
    signals: dict[tuple[str, ...], float] = {}
    for met in (
        each for plan in observed.plans for each in plan.met if each.limit and each.threshold.signal != MEMORY_STALL
    ):
        labels = _labels(met.threshold)
        signals[labels] = min(signals.get(labels, math.inf), met.available / met.limit)
    return PolicyGauges(
        readings=readings,
        age={(): max(ages)} if ages else {},
        nodes={(name,): float(number) for name, number in under.items()},
        signals=signals,
        refused={(reason,): float(number) for reason, number in refused.items()},
        seconds_to={_labels(threshold): seconds for threshold, seconds in observed.approaching.items()},
    )


def _labels(threshold: Threshold) -> tuple[str, str]:
    return threshold.signal, "hard" if threshold.hard else "soft"
