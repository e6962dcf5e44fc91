"""Plans what to do about the resources of a node: its conditions, and the pod to evict.

Usage::

    planner = NodePlanner(policy.spec)
    for view in views:
        plan = planner.plan(view, now=now)

The order of decisions is that of the kubelet's eviction manager. In contrast to the kubelet, pods are evicted within
their PodDisruptionBudgets and with their grace periods, and no pod is evicted while the kubelet itself evicts.

Annotations and labels that tenants set do not protect a pod: the kubelet would kill it in spite of them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.node_pressure_policy import FailedPodCleanup, NodePressurePolicySpec, PressureCondition
from trimtab.api.scalars import parse_duration
from trimtab.cluster.disruption_signals import DISRUPTION_TARGET, is_being_removed
from trimtab.cluster.workloads.owners import OwnerKey, owner_key
from trimtab.disruption.outcome import Refusal
from trimtab.disruption.protections import MIRROR_ANNOTATION
from trimtab.disruption.protections.rules import SYSTEM_CRITICAL_PRIORITY
from trimtab.kube.objects import SYSTEM_CLASSES, Node, Pod
from trimtab.kube.rules.quantity import format_rounded
from trimtab.pressure.measurement import NodeMeasurement, ReadFailure, Reading, stale_after
from trimtab.pressure.ranking import PIDS, RankedPod, rank, resource_of, usage_of
from trimtab.pressure.state import NO_STATE, NodeState, stored_measurement_time
from trimtab.pressure.state_machine import STALL_UNITS, MetThreshold, Step, advance, is_newer, measured_at, value_of
from trimtab.pressure.thresholds import MEMORY_STALL, Threshold, kubelet_thresholds, thresholds_of
from trimtab.pressure.trends import Trend, trend_of, values_of

POD_CLEANUP_TIMEOUT: Final = 30.0
"""Seconds after a pod's grace period in which its resources are freed (``podCleanupTimeout`` of the kubelet)."""

STAND_DOWN: Final = 60.0
"""Seconds after the kubelet evicted a pod for node pressure in which no other pod is evicted from the node."""

DEFAULT_GRACE: Final = 30
"""``terminationGracePeriodSeconds`` of pods that do not set it."""

PATIENCE: Final = 600
"""Seconds for which no pod is evicted at a soft threshold because others terminate, unless a policy limits their grace
period."""

EVICTED_BY_KUBELET: Final = "Evicted"
"""The reason in the status of pods that a kubelet evicted (``eviction.Reason``)."""

TERMINATED_BY_KUBELET: Final = "TerminationByKubelet"
"""Reason of the condition DisruptionTarget of pods that a kubelet evicted for node pressure. The eviction manager sets
no condition if it evicts a pod that exceeds its own limit of an emptyDir volume or of ephemeral storage, and if it does
not admit a pod."""

STRATEGY: Final = "NodePressure"
"""The name of node-pressure eviction where plans and eviction requests name the strategy of a policy."""

How = Literal["Evict", "Delete"]


class NodeView(Struct, frozen=True):
    """What is known about a node.

    Attributes:
        node: the node.
        pods: the pods on the node, including terminated ones.
        reading: the latest reading; ``None`` before the first one.
        history: recent measurements, with or without the latest one.
        state: the node's state.
        evicting: the pod that is being evicted from the node by the operator; ``None`` if there is none.
    """

    node: Node
    pods: Sequence[Pod]
    reading: Reading | None
    history: Sequence[NodeMeasurement] = ()
    state: NodeState = NO_STATE
    evicting: Pod | None = None


class PlannedEviction(Struct, frozen=True):
    """The eviction of a pod because of a threshold.

    Attributes:
        pod: the pod.
        threshold: the threshold.
        how: ``Evict`` (PodDisruptionBudgets decide), or ``Delete`` after evictions were refused for ``deleteAfter``.
        grace_period: termination grace period in seconds, at least 1.
        reason: a reason code.
        message: the values that were compared, and why this pod is evicted first.
        shortens: whether the pod is terminating, and only its grace period is shortened.
    """

    pod: Pod
    threshold: Threshold
    how: How
    grace_period: int
    reason: str
    message: str
    shortens: bool = False


class KeptPod(Struct, frozen=True):
    """A pod that is not evicted from a node under pressure, with the reason code and details."""

    pod: Pod
    reason: str
    message: str


class NodePlan(Struct, frozen=True):
    """What to do about a node.

    Attributes:
        node: the node's name.
        state: the node's new state. If a pod is to be evicted, it must be stored before the request is sent.
        state_without_eviction: the node's new state if the pod is not evicted after all.
        conditions: the pressure conditions of the node.
        met: the thresholds that are met.
        evict: the pod to evict now; ``None`` if none.
        alternatives: pods to try, in this order, if the API server refuses the eviction. These are all the others that
            use more of the resource than they request.
        kept: pods that are not evicted because they are protected, if a threshold is due.
        reason: why a pod is, or is not, being evicted: a reason code; empty for a node without pressure.
        message: details of the reason.
        trends: the trend of the signal of each threshold that is met, by signal.
    """

    node: str
    state: NodeState = NO_STATE
    conditions: frozenset[PressureCondition] = frozenset()
    met: tuple[MetThreshold, ...] = ()
    evict: PlannedEviction | None = None
    alternatives: tuple[PlannedEviction, ...] = ()
    kept: tuple[KeptPod, ...] = ()
    reason: str = ""
    message: str = ""
    trends: Mapping[str, Trend] = field(default_factory=dict)
    state_without_eviction: NodeState = NO_STATE


class NodePlanner:
    """Plans for the nodes of one policy. It has no state, so that one instance can plan any number of nodes.

    Args:
        spec: the policy's spec.

    Raises:
        ValueError: a threshold in the spec is invalid.
    """

    def __init__(self, spec: NodePressurePolicySpec) -> None:
        self.spec = spec
        self.thresholds = thresholds_of(spec)
        self.transition = parse_duration(spec.eviction_pressure_transition_period)
        self.stale_after = stale_after(parse_duration(spec.monitoring_interval))
        self._stall_window = max((float(each.window[3:]) for each in self.thresholds if each.window), default=0.0)
        self._forecast = None if spec.eviction_forecast is None else parse_duration(spec.eviction_forecast)
        self._delete_after = None if spec.delete_after is None else parse_duration(spec.delete_after)
        hard = [*kubelet_thresholds(spec), *(each for each in self.thresholds if each.hard)]
        self._hard = {each.signal: each for each in hard}

    def plan(self, view: NodeView, *, now: float) -> NodePlan:
        """Return what to do about a node.

        Args:
            view: what is known about the node.
            now: the time in seconds since the epoch.
        """
        measurement = view.reading if isinstance(view.reading, NodeMeasurement) else None
        if measurement is not None and now - measurement.read_at > self.stale_after:
            measurement = None
        if not view.state:
            if measurement is None:
                reason, message = self._unread(view.reading, now)
                return NodePlan(view.node.name, reason=reason, message=message)
            if not self.pods_needed(measurement):
                return NodePlan(view.node.name)
        return self._plan(view, measurement, now)

    @property
    def only_memory(self) -> bool:
        """Return whether no threshold needs the signals of disks and PIDs, so that cheaper readings suffice."""
        return all(each.condition == "MemoryPressure" for each in self.thresholds)

    def pods_needed(self, measurement: NodeMeasurement) -> bool:
        """Return whether the usage of the node's pods may be needed.

        It is needed while less is available than a threshold and its minimum reclaim.

        The method must be fast: it is called for each node in each interval.
        """
        signals = measurement.signals
        for threshold in self.thresholds:
            found = signals.get(threshold.signal)
            if found is not None:
                capacity = found.capacity
                if found.available < threshold.value.of(capacity) + threshold.minimum_reclaim.of(capacity):
                    return True
            elif threshold.signal == MEMORY_STALL:
                value = value_of(threshold, measurement)
                if value is not None and value[0] >= value[1]:
                    return True
        return False

    def _unread(self, reading: Reading | None, now: float) -> tuple[str, str]:
        """Return why there is no current measurement."""
        if reading is None:
            return reasons.STATS_UNKNOWN, "the node's signals have not been read yet"
        if isinstance(reading, ReadFailure):
            return reading.reason, reading.message
        return reasons.STATS_STALE, f"the node's signals were last read {now - reading.read_at:.0f}s ago"

    def _plan(self, view: NodeView, measurement: NodeMeasurement | None, now: float) -> NodePlan:
        # 1. Advance the state.
        state = self._after_departure(view.state, view.pods, measurement)
        step = advance(state, measurement, self.thresholds, transition=self.transition, now=now)
        plan = NodePlan(view.node.name, _pruned(step.state, view.pods), step.conditions, step.met)
        if measurement is None:
            reason, message = self._unread(view.reading, now)
            return replace(plan, reason=reason, message=message)
        if not step.met:
            return self._without_met(plan, measurement, now)

        # 2. Find the thresholds that are due, by their grace periods or by forecast.
        plan = replace(plan, trends=self._trends(step, measurement, view.history))
        due = [each for each in step.met if each.due]
        forecast = [] if due else [each for each in step.met if self._forecast_due(each, plan, measurement)]
        if not due and not forecast:
            waiting = any(each.past_grace for each in step.met)
            reason = reasons.WAITING_FOR_STATS if waiting else reasons.SOFT_GRACE_PERIOD
            return replace(plan, reason=reason, message="; ".join(self.describe(each, now) for each in step.met))

        # 3. Evict one pod at a time, and none while the kubelet evicts.
        leaving = _leaving(view, plan.state, now)
        if leaving is not None:
            plan = replace(plan, reason=reasons.EVICTING_POD, message=f"pod {leaving.key} is leaving the node")
            hard = next((each for each in due if each.threshold.hard), None)
            return plan if hard is None else self._shorten(plan, view, leaving, hard, now)
        first: NodePlan | None = None
        for each in due or forecast:
            refusal = self._refusal(view, measurement, each, now)
            if refusal is None:
                planned = self._evict(plan, view.pods, measurement, each, forecast=not due, now=now)
            else:
                planned = replace(plan, reason=refusal.reason, message=refusal.message)
            if planned.evict is not None:
                return planned
            first = first or planned
        return first or plan

    def _after_departure(self, state: NodeState, pods: Sequence[Pod], measurement: NodeMeasurement | None) -> NodeState:
        """Return the state without the evicted pod if it has left the node.

        Stats that were measured before it left include its usage. Therefore later ones are required for the next
        eviction. The average of a memory stall includes its usage for the length of the average.
        """
        if not state.evicting or measurement is None or any(_is_on_node(pod, state.evicting) for pod in pods):
            return state
        times = dict(state.measured_at)
        for signal in state.measured_at:
            at = measured_at(signal, measurement)
            if at is not None:
                window = self._stall_window if signal == MEMORY_STALL else 0.0
                times[signal] = stored_measurement_time(at + window)
        return replace(state, evicting="", measured_at=times)

    def _shorten(self, plan: NodePlan, view: NodeView, leaving: Pod, due: MetThreshold, now: float) -> NodePlan:
        """Evict a leaving pod again if a hard threshold is met and the rest of its grace period is too long.

        The API server shortens the grace period of a terminating pod, and no budget applies to it. Otherwise, a pod
        that asked for an hour would keep any other from being evicted until the kubelet kills.
        """
        limit = self.spec.hard_eviction_max_pod_grace_period
        if leaving.deleted is None or leaving.deleted <= now + limit + POD_CLEANUP_TIMEOUT:
            return plan
        if kubelet_evicts(view.node, view.pods, due.threshold.condition, now):
            return plan
        message = f"{self.describe(due, now)}; {leaving.key} would still take {leaving.deleted - now:.0f}s to terminate"
        evict = PlannedEviction(
            pod=leaving,
            threshold=due.threshold,
            how="Evict",
            grace_period=limit,
            reason=reasons.HARD_THRESHOLD_MET,
            message=message,
            shortens=True,
        )
        return replace(plan, evict=evict, reason=evict.reason, message=message)

    def _without_met(self, plan: NodePlan, measurement: NodeMeasurement, now: float) -> NodePlan:
        """Return the plan with the reason why the node has conditions although no threshold is known to be met."""
        unknown = {key.partition("/")[2] for key in plan.state.first_met}
        if unknown:
            problems = (f"{each}: {measurement.problems.get(each, 'not in the stats')}" for each in sorted(unknown))
            return replace(plan, reason=reasons.STATS_UNKNOWN, message="; ".join(problems))
        if not plan.conditions:
            return plan
        remaining = {each: plan.state.last_met[each] + self.transition - now for each in sorted(plan.conditions)}
        message = ", ".join(f"{condition} ends in {seconds:.0f}s" for condition, seconds in remaining.items())
        return replace(plan, reason=reasons.TRANSITION_PERIOD, message=f"no threshold is met: {message}")

    def _refusal(self, view: NodeView, measurement: NodeMeasurement, due: MetThreshold, now: float) -> Refusal | None:
        """Return why no pod must be evicted although a threshold is due; ``None`` if one must be."""
        if is_being_removed(view.node):
            return Refusal(reasons.NODE_BEING_REMOVED, "an autoscaler drains the node")
        kubelet = kubelet_evicts(view.node, view.pods, due.threshold.condition, now)
        if kubelet:
            return Refusal(reasons.KUBELET_EVICTS, kubelet)
        leaving = self._leaving_in_time(view.pods, due.threshold, now)
        if leaving and due.threshold.signal != MEMORY_STALL:
            usage = measurement.pods()
            freed = sum(
                usage_of(used, due.threshold.signal, measurement.dedicated_image_fs, measurement.split_image_fs)
                for pod in leaving
                if (used := usage.get(pod.key)) is not None
            )
            value = value_of(due.threshold, measurement)
            if value is not None and value[0] + freed >= value[2]:
                resource = resource_of(due.threshold.signal)
                names = ", ".join(sorted(pod.key for pod in leaving))
                return Refusal(
                    reasons.EVICTING_POD, f"terminating pods use {format_rounded(resource, freed)}, enough: {names}"
                )
        return None

    def _leaving_in_time(self, pods: Iterable[Pod], threshold: Threshold, now: float) -> list[Pod]:
        """Return the terminating pods that will have left the node soon enough.

        At a hard threshold, that is as soon as a pod that is evicted now. At a soft one, it is limited as well: a
        tenant could delete a pod with a grace period of years, and keep all others on the node.
        """
        soft = self.spec.eviction_max_pod_grace_period or PATIENCE
        longest = self.spec.hard_eviction_max_pod_grace_period if threshold.hard else soft
        return [
            pod
            for pod in pods
            if pod.deleted is not None and not pod.terminal and now - POD_CLEANUP_TIMEOUT < pod.deleted <= now + longest
        ]

    def _trends(self, step: Step, measurement: NodeMeasurement, history: Sequence[NodeMeasurement]) -> dict[str, Trend]:
        """Return the trend of each signal that meets a threshold, towards its hard threshold.

        Once a pod has left, values from before are not used: the pod may have been the reason for the trend.
        """
        found: dict[str, Trend] = {}
        for each in step.met:
            signal = each.threshold.signal
            value = measurement.signals.get(signal)
            if value is None or signal in found:
                continue
            hard = self._hard.get(signal)
            limit = 0 if hard is None else hard.value.of(value.capacity)
            since = -math.inf if step.state.evicting else step.state.measured_at.get(signal, -math.inf)
            values = [each for each in values_of(signal, (*history, measurement)) if each[0] > since]
            trend = trend_of(values, limit)
            if trend is not None:
                found[signal] = trend
        return found

    def _forecast_due(self, met: MetThreshold, plan: NodePlan, measurement: NodeMeasurement) -> bool:
        signal = met.threshold.signal
        trend = plan.trends.get(signal)
        if self._forecast is None or trend is None or trend.seconds_to is None or signal not in self._hard:
            return False
        return trend.seconds_to <= self._forecast and is_newer(signal, plan.state.measured_at, measurement)

    def candidates(
        self, pods: Iterable[Pod], measurement: NodeMeasurement, signal: str
    ) -> tuple[list[RankedPod], list[KeptPod]]:
        """Return the pods that may be evicted, in eviction order, and the others with the reasons.

        Args:
            pods: the pods on the node.
            measurement: the node's measurement.
            signal: the eviction signal whose threshold is due.
        """
        unprotected: list[Pod] = []
        kept: list[KeptPod] = []
        for pod in sorted((pod for pod in pods if not pod.terminal), key=lambda pod: pod.key):
            refusal = protection_of(pod)
            if refusal is None:
                unprotected.append(pod)
            else:
                kept.append(KeptPod(pod, refusal.reason, refusal.message))
        ranked = rank(
            unprotected,
            measurement.pods(),
            signal,
            ranking=self.spec.ranking,
            dedicated_image_fs=measurement.dedicated_image_fs,
            split_image_fs=measurement.split_image_fs,
        )
        found: list[RankedPod] = []
        for each in ranked:
            if each.usage is None or (each.usage == 0 and resource_of(signal) != PIDS):
                kept.append(KeptPod(each.pod, reasons.USAGE_UNKNOWN, each.message))
            else:
                found.append(each)
        return found, kept

    def _evict(
        self,
        plan: NodePlan,
        pods: Iterable[Pod],
        measurement: NodeMeasurement,
        due: MetThreshold,
        *,
        forecast: bool,
        now: float,
    ) -> NodePlan:
        """Choose the pod to evict because of a threshold."""
        ranked, kept = self.candidates(pods, measurement, due.threshold.signal)
        plan = replace(plan, kept=tuple(kept))
        if not ranked:
            return replace(plan, reason=reasons.NO_EVICTABLE_POD, message=self.describe(due, now))
        if forecast:
            reason = reasons.PRESSURE_FORECAST
        else:
            reason = reasons.HARD_THRESHOLD_MET if due.threshold.hard else reasons.SOFT_THRESHOLD_MET
        values = self.describe(due, now)
        others = (each for each in ranked[1:] if each.exceeds_request)
        first, *alternatives = (
            PlannedEviction(
                pod=each.pod,
                threshold=due.threshold,
                how=self._how(each.pod, due, plan.state, now),
                grace_period=grace_period(each.pod, due.threshold, self.spec),
                reason=reason,
                message=f"{values}; {each.pod.key} {each.message}",
            )
            for each in (ranked[0], *others)
        )
        state = replace(
            plan.state, evicting=first.pod.uid, measured_at=_measured_times(plan.state, plan.met, measurement)
        )
        return replace(
            plan,
            state=state,
            state_without_eviction=plan.state,
            evict=first,
            alternatives=tuple(alternatives),
            reason=reason,
            message=first.message,
        )

    def _how(self, pod: Pod, due: MetThreshold, state: NodeState, now: float) -> How:
        since = state.refused_since.get(pod.uid)
        if not due.threshold.hard or self._delete_after is None or since is None:
            return "Evict"
        return "Delete" if now - since >= self._delete_after else "Evict"

    def describe(self, met: MetThreshold, now: float) -> str:
        """Return the values that were compared."""
        threshold = met.threshold
        hardness = "hard" if threshold.hard else "soft"
        grace = "" if threshold.hard else f", for {now - met.since:.0f}s (grace period {threshold.grace}s)"
        if threshold.signal == MEMORY_STALL:
            values = f"{met.available * 100 / STALL_UNITS:g}% ({threshold.window}), at least"
            return f"{threshold.signal} is {values} the threshold of {met.limit * 100 / STALL_UNITS:g}%{grace}"
        resource = resource_of(threshold.signal)
        below = "below" if met.available < met.limit else "not sufficiently above"
        return (
            f"{threshold.signal} is {format_rounded(resource, met.available)}, {below} the {hardness} threshold of "
            f"{format_rounded(resource, met.limit)}{grace}"
        )


def grace_period(pod: Pod, threshold: Threshold, spec: NodePressurePolicySpec) -> int:
    """Return the termination grace period in seconds for an eviction because of a threshold, at least 1."""
    own = pod.spec.termination_grace_period
    seconds = DEFAULT_GRACE if own is None else own
    limit = spec.hard_eviction_max_pod_grace_period if threshold.hard else spec.eviction_max_pod_grace_period
    return max(1, seconds if limit is None else min(limit, seconds))


def protection_of(pod: Pod) -> Refusal | None:
    """Return why a pod is never evicted because of node pressure; ``None`` if it may be.

    The rules for voluntary evictions (:mod:`trimtab.disruption.protections.rules`) also believe annotations and owners
    that tenants may set. Here, a pod is protected only by what a tenant cannot forge for long. The API server sets the
    priority, and the kubelet does not run pods of the API server that have the mirror annotation. Tenants may write an
    owner reference to a DaemonSet. However, the garbage collector deletes a pod whose owner does not exist, and the
    DaemonSet controller releases or deletes a pod that it does not want. Both apply only to references of ``apps/v1``:
    the garbage collector ignores references whose group, version and kind are not served (``isDangling``).
    """
    if pod.deleted is not None:
        return Refusal(reasons.TERMINATING, "the pod is already terminating")
    if MIRROR_ANNOTATION in pod.annotations:
        return Refusal(reasons.MIRROR_POD, "a static pod, which the kubelet runs from a file")
    if pod.priority >= SYSTEM_CRITICAL_PRIORITY or pod.spec.priority_class_name in SYSTEM_CLASSES:
        return Refusal(reasons.CRITICAL_POD, f"priority {pod.priority} is system-critical")
    controller = pod.controller
    if controller is not None and (controller.api_version, controller.kind) == ("apps/v1", "DaemonSet"):
        return Refusal(reasons.DAEMON_SET_POD, f"DaemonSet {controller.name} would recreate the pod on this node")
    return None


def _is_on_node(pod: Pod, uid: str) -> bool:
    return pod.uid == uid and not pod.terminal


def _pruned(state: NodeState, pods: Sequence[Pod]) -> NodeState:
    """Return the state without refusals of pods that have left, and without the rest once no threshold is met."""
    if not (state.refused_since or state.evicting or state.measured_at):
        return state
    present = {pod.uid: pod for pod in pods if not pod.terminal}
    refused = {uid: at for uid, at in state.refused_since.items() if uid in present and state.first_met}
    measured = state.measured_at if state.first_met else {}
    evicted = present.get(state.evicting)
    evicting = state.evicting if state.first_met or (evicted is not None and evicted.deleted is not None) else ""
    if refused == state.refused_since and measured == state.measured_at and evicting == state.evicting:
        return state
    return replace(state, refused_since=refused, measured_at=measured, evicting=evicting)


def _measured_times(state: NodeState, met: Iterable[MetThreshold], measurement: NodeMeasurement) -> dict[str, float]:
    """Return when the kubelet measured each signal that meets a threshold, for the node's state."""
    found = dict(state.measured_at)
    for each in met:
        at = measured_at(each.threshold.signal, measurement)
        if at is not None:
            found[each.threshold.signal] = stored_measurement_time(at)
    return found


def _leaving(view: NodeView, state: NodeState, now: float) -> Pod | None:
    """Return the pod that the operator is evicting from the node; ``None`` if there is none.

    A pod may remain in the API long after it was terminated, for example because of a finalizer. Therefore the next pod
    is evicted some time after the end of its grace period, as by the kubelet (``waitForPodsCleanup``).
    """
    evicting = view.evicting
    for pod in view.pods:
        if pod.terminal or (pod.deleted is not None and now >= pod.deleted + POD_CLEANUP_TIMEOUT):
            continue
        if evicting is not None and (pod.uid or pod.key) == (evicting.uid or evicting.key):
            return pod
        if pod.deleted is not None and pod.uid and pod.uid == state.evicting:
            return pod
    return None


def kubelet_evicts(node: Node, pods: Iterable[Pod], condition: PressureCondition, now: float) -> str:
    """Return why the kubelet itself probably evicts pods from the node; empty if nothing shows that it does.

    Evictions because of a pod's own storage limits do not count: a tenant can cause them every few seconds, and they
    do not relieve the node.
    """
    for each in node.conditions:
        if each.type == condition and each.status == "True":
            return f"the kubelet reports {condition}"
    # By a clock that is fast, pods were evicted in the future. They must not stop evictions until then.
    evicted = [
        (each.since, pod.key)
        for pod in pods
        if is_evicted(pod)
        for each in pod.conditions
        if each.type == DISRUPTION_TARGET and each.status == "True" and each.reason == TERMINATED_BY_KUBELET
        if each.since is not None and abs(now - each.since) < STAND_DOWN
    ]
    if not evicted:
        return ""
    at, key = max(evicted)
    return f"the kubelet evicted pod {key} because of node pressure {max(0.0, now - at):.0f}s ago"


def is_evicted(pod: Pod) -> bool:
    """Return whether a kubelet evicted the pod (``PodIsEvicted``)."""
    return pod.phase == "Failed" and pod.reason == EVICTED_BY_KUBELET


def evicted_at(pod: Pod) -> float | None:
    """Return when a kubelet evicted the pod, in seconds since the epoch; ``None`` if that is unknown.

    A pod that the kubelet did not admit has no conditions. It was evicted when it was created.
    """
    by_type = {each.type: each.since for each in pod.conditions if each.since is not None}
    for type_ in (DISRUPTION_TARGET, "Ready", "ContainersReady"):
        if type_ in by_type:
            return by_type[type_]
    return pod.started if pod.started is not None else pod.created


def failed_pods_to_delete(pods: Iterable[Pod], cleanup: FailedPodCleanup, *, now: float) -> list[Pod]:
    """Return the pods to delete of those that kubelets evicted, sorted by namespace and name.

    Args:
        pods: pods on the policy's nodes.
        cleanup: minimum age, and how many pods of each owner are kept. A pod without a controller is its only one.
        now: the time in seconds since the epoch.
    """
    after = parse_duration(cleanup.after)
    by_owner: defaultdict[OwnerKey | str, list[tuple[float, Pod]]] = defaultdict(list)
    for pod in pods:
        at = evicted_at(pod) if is_evicted(pod) and pod.deleted is None else None
        if at is not None:
            by_owner[owner_key(pod) or pod.key].append((at, pod))
    found = []
    for evicted in by_owner.values():
        evicted.sort(key=lambda each: (-each[0], each[1].key))
        found += [pod for at, pod in evicted[cleanup.keep_per_owner :] if now - at >= after]
    return sorted(found, key=lambda pod: pod.key)
