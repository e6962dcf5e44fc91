"""Previews, for ``trimtab plan`` and ``trimtab explain node``, what NodePressurePolicies would do to their nodes.

The plan is that of the operator (:mod:`.planner`) with the state that the operator stored in the annotations of the
nodes. Without it, a soft threshold that is met counts as met since now, so its grace period has only begun.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.node_pressure_policy import NodePressurePolicy, NodePressurePolicySpec, PressureCondition
from trimtab.api.plan import Evict, Kept, rfc3339
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.budgets import BudgetLedger
from trimtab.kube.objects import Node, Pod, Taint
from trimtab.kube.rules.taints import NO_SCHEDULE
from trimtab.pressure.assignment import PolicyConflict, assign_nodes, policy_conflicts, threshold_conflicts
from trimtab.pressure.measurement import NOT_READ, NodeMeasurement, NodeReadings
from trimtab.pressure.planner import (
    STRATEGY,
    NodePlan,
    NodePlanner,
    NodeView,
    PlannedEviction,
    failed_pods_to_delete,
    protection_of,
)
from trimtab.pressure.ranking import EPHEMERAL_STORAGE, INODES, MEMORY, PIDS, RankedPod, rank, resource_of
from trimtab.pressure.state import ANNOTATION, TAINT_KEYS, decode_state
from trimtab.pressure.state_machine import STALL_UNITS, value_of
from trimtab.pressure.summary import no_pods
from trimtab.pressure.thresholds import MEMORY_STALL, Threshold, kubelet_thresholds
from trimtab.pressure.trends import Trend, trend_of, values_of

SHOWN_WITHOUT_PRESSURE: Final = 3
"""Number of pods in the eviction order of a node that meets no threshold. Clusters have many such nodes."""

Unit = Literal["bytes", "inodes", "processes", "percent"]

_UNITS: Final[Mapping[str, Unit]] = {
    MEMORY: "bytes",
    EPHEMERAL_STORAGE: "bytes",
    INODES: "inodes",
    PIDS: "processes",
}


class ThresholdDistance(Struct, frozen=True, rename="camel", omit_defaults=True):
    """How far a signal is from a threshold.

    Attributes:
        by: ``Policy``, or ``Kubelet`` for a hard threshold at which the kubelet kills pods.
        hard: whether it is a hard threshold.
        value: the threshold, in the unit of the signal.
        distance: how much more than the threshold is available; negative if less is.
        met: whether the threshold is met, including its minimum reclaim.
        since: when it was first met (RFC 3339); omitted if it is not met.
        due: when its grace period ends; omitted if it is not met.
        seconds_to: seconds until it is met if the trend continues; omitted if it is unknown or not approached.
    """

    by: Literal["Policy", "Kubelet"]
    hard: bool
    value: int | float
    distance: int | float
    met: bool
    since: str = ""
    due: str = ""
    seconds_to: int | None = None


class SignalReport(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The value of a signal.

    Attributes:
        signal: an eviction signal, or ``memory.psi.full``.
        unit: the unit of all amounts.
        available: what is available; for ``memory.psi.full``, the percentage of time in which all tasks wait.
        capacity: the amount that percentages refer to.
        thresholds: the thresholds of the policy, then those of the kubelet.
        measured_at: when the kubelet measured it (RFC 3339); omitted if unknown.
        per_second: the change per second in recent measurements; omitted if there are fewer than three.
    """

    signal: str
    unit: Unit
    available: int | float
    capacity: int | float
    thresholds: tuple[ThresholdDistance, ...]
    measured_at: str = ""
    per_second: float | None = None


class EvictionCandidate(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A pod in the eviction order of a node.

    Attributes:
        pod: ``namespace/name``.
        usage: its usage of the resource that runs low; omitted if unknown.
        request: its request for that resource.
        message: why the pod has its place in the order, or why it is protected.
        protected: the reason code of its protection; omitted if the pod may be evicted. Protected pods come last.
    """

    pod: str
    request: int
    message: str
    usage: int | None = None
    protected: str = ""


class NodePressure(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The pressure of one node.

    Attributes:
        node: the node's name.
        policy: the name of the policy that handles it; empty if none selects the node.
        source: ``Summary``, or ``Metrics`` if only the memory is known; omitted if the signals are unknown.
        reason: why a pod is, or is not, evicted: a reason code; omitted for a node without pressure.
        message: details of the reason.
        conditions: the pressure conditions that the operator would set on the node.
        tainted: whether it would also taint the node for these conditions.
        signals: the known signals.
        unknown: why the signal of a threshold is unknown, by signal.
        ranked_for: the signal for which the pods are ranked: the first one whose threshold is met.
        pods: the pods in eviction order. For a node without pressure, only the first ones.
        pods_omitted: the number of pods that are not in ``pods``.
    """

    node: str
    policy: str
    source: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[PressureCondition, ...] = ()
    tainted: bool = False
    signals: tuple[SignalReport, ...] = ()
    unknown: Mapping[str, str] = {}
    ranked_for: str = ""
    pods: tuple[EvictionCandidate, ...] = ()
    pods_omitted: int = 0


class PressurePlan(Struct, frozen=True):
    """What NodePressurePolicies would do.

    Attributes:
        evictions: at most one running pod of each node, then the failed pods to delete, by node.
        kept: conflicts of policies, then nodes and pods that are not acted on, by node.
        nodes: the pressure of each handled node, by name.
        conflicts: the conflicts of policies.
    """

    evictions: tuple[Evict, ...]
    kept: tuple[Kept, ...]
    nodes: tuple[NodePressure, ...]
    conflicts: tuple[PolicyConflict, ...] = ()


def plan_pressure(
    snapshot: Snapshot,
    policies: Sequence[NodePressurePolicy],
    readings: Mapping[str, NodeReadings],
    *,
    now: float,
    only: str = "",
) -> PressurePlan:
    """Plan for all nodes that the policies select, as if their mode were Act.

    Args:
        snapshot: the cluster state.
        policies: the policies, in any order.
        readings: what was read from nodes, by name.
        now: the time in seconds since the epoch.
        only: the only node to plan for; empty for all nodes.

    Raises:
        ValueError: a threshold of a policy is invalid.
    """
    nodes = [node for node in snapshot.nodes.at if node and (node.name == only or not only)]
    assignment = assign_nodes(nodes, policies)
    by_policy: dict[str, _PolicyPreview] = {}
    ledger = BudgetLedger(snapshot)
    for node in sorted(nodes, key=lambda node: node.name):
        policy = assignment.policies.get(node.name)
        if policy is not None:
            preview = by_policy.setdefault(policy.name, _PolicyPreview(policy, ledger, now))
            preview.add(node, snapshot.pods_on(node.name), readings.get(node.name, NOT_READ))
    conflicts = [*policy_conflicts(assignment)]
    for each in sorted(policies, key=lambda each: each.name):
        previewed = by_policy.get(each.name)
        conflicts += threshold_conflicts(each, None if previewed is None else previewed.capacities)
    found = [by_policy[name] for name in sorted(by_policy)]
    return PressurePlan(
        evictions=tuple(sorted((e for each in found for e in each.evictions), key=lambda each: each.node)),
        kept=(
            *(_kept_policy(each) for each in conflicts),
            *sorted((kept for each in found for kept in each.kept), key=lambda each: each.node or each.name),
        ),
        nodes=tuple(sorted((node for each in found for node in each.nodes), key=lambda each: each.node)),
        conflicts=tuple(conflicts),
    )


def describe_without_policy(
    node: Node, pods: Sequence[Pod], readings: NodeReadings, ledger: BudgetLedger, *, now: float
) -> NodePressure:
    """Return the pressure of a node that no policy selects: its signals and the kubelet's default thresholds."""
    preview = _PolicyPreview(NodePressurePolicy(NodePressurePolicySpec()), ledger, now)
    preview.add(node, pods, readings)
    return preview.nodes[0]


def apply_plan(snapshot: Snapshot, plan: PressurePlan, *, now: float) -> None:
    """Apply a plan to a snapshot: mark its pods as terminating, and taint its nodes under pressure.

    Call it only on a fork, because nothing has been executed yet.

    Args:
        snapshot: a fork of the snapshot that the plan is based on.
        plan: the plan.
        now: the time in seconds since the epoch.
    """
    for action in plan.evictions:
        snapshot.put(replace(snapshot.pods[action.key], deleted=now))
    for found in plan.nodes:
        node = snapshot.nodes.get(found.node)
        if node is None or not found.conditions or not found.tainted:
            continue
        keys = {TAINT_KEYS[condition] for condition in found.conditions}
        others = tuple(taint for taint in node.taints if taint.key not in keys)
        taints = tuple(Taint(key, NO_SCHEDULE) for key in sorted(keys))
        snapshot.put(replace(node, taints=(*others, *taints)))


class _PolicyPreview:
    """Plans the nodes of one policy, ordered by name."""

    def __init__(self, policy: NodePressurePolicy, ledger: BudgetLedger, now: float) -> None:
        self._policy = policy
        self._ledger = ledger
        self._now = now
        self._planner = NodePlanner(policy.spec)
        self._of_kubelet = {each.signal: each for each in kubelet_thresholds(policy.spec)}
        self.evictions: list[Evict] = []
        self.kept: list[Kept] = []
        self.nodes: list[NodePressure] = []
        self.capacities: dict[str, dict[str, int]] = {}

    def add(self, node: Node, pods: Sequence[Pod], readings: NodeReadings) -> None:
        state, reading = decode_state(node.annotations.get(ANNOTATION)), readings.latest
        if isinstance(reading, NodeMeasurement) and reading.pods is no_pods and self._planner.pods_needed(reading):
            reading = None  # the operator dropped its pods, because it met no threshold of the policy's previous spec
        history = tuple(readings.history)  # the operator's are unpacked each time
        plan = self._planner.plan(NodeView(node, pods, reading, history, state), now=self._now)
        latest = reading if isinstance(reading, NodeMeasurement) else None
        order: list[RankedPod] = []
        signal = ""
        if latest is not None:
            self.capacities[node.name] = {name: value.capacity for name, value in latest.signals.items()}
            if latest.pods is not no_pods:
                signal = next((each.threshold.signal for each in plan.met), self._nearest(latest))
            if signal:
                order = self._order(pods, latest, signal)
        report = self._report(node, pods, latest, history, plan, signal, order)
        self.nodes.append(report)
        self._add_actions(node, plan, report, order)
        cleanup = self._policy.spec.failed_pods
        if cleanup is not None:
            for pod in failed_pods_to_delete(pods, cleanup, now=self._now):
                message = f"evicted by the kubelet, and failedPods.after is {cleanup.after}"
                self.evictions.append(self._evict(pod, reasons.FAILED_POD_CLEANUP, message))

    def _nearest(self, measurement: NodeMeasurement) -> str:
        """Return the signal that is closest to a threshold, as a share of its capacity; empty if none is known."""
        shares = []
        for threshold in self._planner.thresholds or self._of_kubelet.values():
            value = measurement.signals.get(threshold.signal)
            if value is not None and value.capacity > 0:
                distance = value.available - threshold.value.of(value.capacity)
                shares.append((distance / value.capacity, threshold.signal))
        return min(shares, default=(0.0, ""))[1]

    def _order(self, pods: Sequence[Pod], measurement: NodeMeasurement, signal: str) -> list[RankedPod]:
        """Return the running pods in eviction order, without protected ones."""
        running = [pod for pod in pods if not pod.terminal and protection_of(pod) is None]
        return rank(
            running,
            measurement.pods(),
            signal,
            ranking=self._policy.spec.ranking,
            dedicated_image_fs=measurement.dedicated_image_fs,
            split_image_fs=measurement.split_image_fs,
        )

    def _add_actions(self, node: Node, plan: NodePlan, report: NodePressure, order: Sequence[RankedPod]) -> None:
        for signal, why in report.unknown.items():
            self.kept.append(self._kept_node(node, reasons.SIGNAL_UNKNOWN, f"{signal}: {why}"))
        if plan.evict is None:
            first = next((each for each in order if each.usage), None)
            if plan.reason == reasons.SOFT_GRACE_PERIOD and first is not None:
                due = min(
                    (each.due for signal in report.signals for each in signal.thresholds if each.due and not each.hard),
                    default="",
                )
                message = f"would be evicted first at {due}, the end of the grace period: {plan.message}"
                self.kept.append(self._kept_pod(first.pod, plan.reason, f"{message}; it {first.message}"))
            elif plan.reason:
                self.kept.append(self._kept_node(node, plan.reason, plan.message))
        else:
            self._add_eviction(plan.evict, plan.alternatives)
        self.kept += [self._kept_pod(each.pod, each.reason, each.message) for each in plan.kept]

    def _add_eviction(self, first: PlannedEviction, alternatives: Sequence[PlannedEviction]) -> None:
        """Add the first eviction that PodDisruptionBudgets allow. The others are refused by the API server."""
        for each in (first, *alternatives):
            refusal = None if each.how == "Delete" else self._ledger.refusal(each.pod)
            if refusal is None:
                self._ledger.take(each.pod)
                self.evictions.append(
                    self._evict(each.pod, each.reason, each.message, how=each.how, grace=each.grace_period)
                )
                return
            self.kept.append(self._kept_pod(each.pod, refusal.reason, f"{refusal.message}; {each.message}"))

    def _evict(
        self, pod: Pod, reason: str, message: str, *, how: Literal["Evict", "Delete"] = "Evict", grace: int = 0
    ) -> Evict:
        owner = pod.controller
        return Evict(
            policy=self._policy.name,
            strategy=STRATEGY,
            namespace=pod.namespace,
            pod=pod.name,
            node=pod.node,
            target="",
            reason=reason,
            message=message,
            uid=pod.uid,
            owner="" if owner is None else owner.qualified_name,
            how=how,
            grace_period=grace,
        )

    def _kept_node(self, node: Node, reason: str, message: str) -> Kept:
        return Kept(
            kind="Node",
            namespace="",
            name=node.name,
            strategy=STRATEGY,
            reason=reason,
            message=message,
            policy=self._policy.name,
        )

    def _kept_pod(self, pod: Pod, reason: str, message: str) -> Kept:
        return Kept(
            kind="Pod",
            namespace=pod.namespace,
            name=pod.name,
            strategy=STRATEGY,
            reason=reason,
            message=message,
            policy=self._policy.name,
            node=pod.node,
        )

    def _report(
        self,
        node: Node,
        pods: Sequence[Pod],
        latest: NodeMeasurement | None,
        history: Sequence[NodeMeasurement],
        plan: NodePlan,
        signal: str,
        order: Sequence[RankedPod],
    ) -> NodePressure:
        protected = [
            EvictionCandidate(pod.key, 0, refusal.message, protected=refusal.reason)
            for pod in sorted(pods, key=lambda pod: pod.key)
            if not pod.terminal and (refusal := protection_of(pod)) is not None
        ]
        candidates = [EvictionCandidate(each.pod.key, each.request, each.message, each.usage) for each in order]
        listed = (*candidates, *protected) if order else ()
        shown = len(listed) if plan.met else SHOWN_WITHOUT_PRESSURE
        return NodePressure(
            node=node.name,
            policy=self._policy.name,
            source="" if latest is None else latest.source,
            reason=plan.reason,
            message=plan.message,
            conditions=tuple(sorted(plan.conditions)),
            tainted=bool(plan.conditions) and self._policy.spec.taint_nodes,
            signals=() if latest is None else tuple(self._signals(latest, history, plan)),
            unknown={} if latest is None else self._unknown(latest),
            ranked_for=signal,
            pods=tuple(listed[:shown]),
            pods_omitted=max(0, len(listed) - shown),
        )

    def _unknown(self, latest: NodeMeasurement) -> dict[str, str]:
        """Return why the signals of thresholds are unknown."""
        found = {}
        for threshold in self._planner.thresholds:
            if value_of(threshold, latest) is None:
                why = latest.problems.get(threshold.signal)
                source = (
                    "metrics.k8s.io has only the memory" if latest.source == "Metrics" else "the kubelet reports none"
                )
                found[threshold.signal] = why or source
        return found

    def _signals(
        self, latest: NodeMeasurement, history: Sequence[NodeMeasurement], plan: NodePlan
    ) -> list[SignalReport]:
        own: dict[str, list[Threshold]] = {}
        for threshold in self._planner.thresholds:
            own.setdefault(threshold.signal, []).append(threshold)
        found = []
        for signal, value in latest.signals.items():
            kubelet = self._of_kubelet.get(signal)
            values = values_of(signal, (*history, latest))
            trend = trend_of(values, 0)
            found.append(
                SignalReport(
                    signal=signal,
                    unit=_UNITS[resource_of(signal)],
                    available=value.available,
                    capacity=value.capacity,
                    thresholds=tuple(
                        self._distance(each, by, latest, plan, values)
                        for by, each in (
                            *(("Policy", each) for each in own.get(signal, ())),
                            *(() if kubelet is None else (("Kubelet", kubelet),)),
                        )
                    ),
                    measured_at="" if value.measured_at is None else rfc3339(value.measured_at),
                    per_second=None if trend is None else round(trend.per_second, 3),
                )
            )
        for threshold in own.get(MEMORY_STALL, ()):
            stall = value_of(threshold, latest)
            if stall is not None:
                found.append(
                    SignalReport(
                        signal=MEMORY_STALL,
                        unit="percent",
                        available=stall[0] * 100 / STALL_UNITS,
                        capacity=100,
                        thresholds=(self._distance(threshold, "Policy", latest, plan, ()),),
                    )
                )
        return found

    def _distance(
        self,
        threshold: Threshold,
        by: str,
        latest: NodeMeasurement,
        plan: NodePlan,
        values: Sequence[tuple[float, int]],
    ) -> ThresholdDistance:
        value = value_of(threshold, latest)
        assert value is not None
        available, limit, _ = value
        met = next((each for each in plan.met if by == "Policy" and each.threshold.key == threshold.key), None)
        stall = threshold.signal == MEMORY_STALL
        distance: int | float = limit - available if stall else available - limit
        scale = 100 / STALL_UNITS if stall else 1
        trend: Trend | None = trend_of(values, limit) if values else None
        seconds = None if trend is None or trend.seconds_to is None else math.floor(trend.seconds_to)
        return ThresholdDistance(
            by="Policy" if by == "Policy" else "Kubelet",
            hard=threshold.hard,
            value=limit * scale,
            distance=distance * scale,
            met=met is not None if by == "Policy" else available < limit,
            since="" if met is None else rfc3339(met.since),
            due="" if met is None else rfc3339(math.ceil(met.since + threshold.grace)),
            seconds_to=seconds,
        )


def _kept_policy(conflict: PolicyConflict) -> Kept:
    return Kept(
        kind="NodePressurePolicy",
        namespace="",
        name=conflict.policy,
        strategy=STRATEGY,
        reason=conflict.reason,
        message=conflict.message,
        policy=conflict.policy,
    )
