"""Posts the autoscaler's events, with upstream's reasons where they exist.

Upstream posts events that concern no pod or node on its status ConfigMap. Here they are posted on the
ClusterAutoscaler, so that ``kubectl describe clusterautoscaler default`` displays them. Because the ClusterAutoscaler
is cluster-scoped, they are in the namespace ``default``. Events about a node group refer to the group's object in
``related``. In Simulate mode, no events are posted on pods and nodes, because they are not changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import nsmallest
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.bounds import named, plural, without_numbers
from trimtab.api.cluster_autoscaler import NAME
from trimtab.api.plan import Kept, RemoveNode
from trimtab.autoscaling.actuation.removal import RemovalOutcome, RemovalState
from trimtab.autoscaling.groups import NodeGroup
from trimtab.autoscaling.report.iteration_report import (
    IterationReport,
    ScaleUpOutcome,
    kept_nodes,
    kept_pods,
    planned_scale_ups,
    remains_unschedulable,
)
from trimtab.kube.events.event import NORMAL, WARNING, RecentlyReported
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.resources import CLUSTER_AUTOSCALERS, ObjectReference, node_reference, pod_reference
from trimtab.kube.token_bucket import TokenBucket


def group_reference(group: NodeGroup | None) -> ObjectReference | None:
    """Return the object that holds the size of a node group; ``None`` if the group no longer exists."""
    if group is None:
        return None
    return ObjectReference(
        kind=group.kind,
        name=group.name,
        namespace=group.namespace,
        uid=group.uid,
        api_version=group.api_version,
    )


MAX_POD_EVENTS: Final = 500
"""Maximum number of pod events of each kind that an iteration posts. Later iterations post the rest."""

MAX_PENDING_EVENTS: Final = 10_000
"""Maximum number of TriggeredScaleUp events in the queue."""

MAX_EVICTED_EVENTS: Final = 200
"""Maximum number of events on evicted pods per node."""

CLUSTER_LIMIT_REASONS: Final = (
    reasons.MAX_NODES_TOTAL_REACHED,
    reasons.MAX_CORES_REACHED,
    reasons.MAX_MEMORY_REACHED,
    reasons.MAX_GPUS_REACHED,
)
"""Reasons for limits that apply to the whole cluster.

They cause one event on the ClusterAutoscaler, in addition to the events on the pending pods.
"""

BLOCKERS: Final = frozenset(
    {
        reasons.BLOCKED_BY_POD,
        reasons.BLOCKED_BY_ON_COMPLETION_POD,
        reasons.HELD_TOO_LONG,
        reasons.NO_PLACE_TO_MOVE_PODS,
        reasons.REPLACEMENT_LARGER,
        reasons.NEEDED_FOR_OTHER_PODS,
        reasons.NODE_GROUP_MIN_SIZE_REACHED,
        reasons.MINIMAL_RESOURCE_LIMIT_EXCEEDED,
    }
)
"""Reasons that keep a node that scale-down would otherwise remove. The planner checks utilization before them."""

BLOCKED_REPEAT: Final = 900.0
"""Seconds after which the same blocker of a node is reported again."""

BLOCKED_PER_MINUTE: Final = 20
"""Maximum number of ScaleDownBlocked events per minute, and their burst. Later iterations post the rest."""

_SCALE_UP: Final = "ScaleUp"
_SCALE_DOWN: Final = "RemoveNode"
"""The ``action`` field of scale-down events."""


class _PodEvent(Struct, frozen=True):
    """An event on a pod."""

    pod: ObjectReference
    note: str
    related: ObjectReference


class AutoscalerEventReporter:
    """Posts events for iterations, and for the start and end of removals.

    It stores a bounded number of events for five minutes. During that time, a pod gets only one event for each reason
    and message. Messages that differ only in numbers are treated as the same.

    Args:
        recorder: posts the events.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._pods = RecentlyReported(forget=False)
        self._others = RecentlyReported(most=1000)
        self._blocked_nodes = RecentlyReported(window=BLOCKED_REPEAT, forget=False)
        self._blocked_bucket: TokenBucket | None = None
        self._backlog: deque[_PodEvent] = deque(maxlen=MAX_PENDING_EVENTS)
        self._autoscaler = ObjectReference.to(CLUSTER_AUTOSCALERS, NAME)

    def report(self, report: IterationReport) -> None:
        """Report the scale-ups, pending pods, findings and problems of an iteration."""
        self._autoscaler = ObjectReference.to(CLUSTER_AUTOSCALERS, NAME, uid=report.uid)
        self._report_problems(report)
        self._report_limits(report)
        if report.mode == "Simulate":
            self._report_simulation(report)
            return
        for scale_up in report.scale_up_outcomes:
            self._report_scale_up(scale_up, report)
        for finding in report.findings:
            self._post(
                finding.reason,
                _SCALE_UP,
                f"{_group_name(report, finding.group)}: {finding.message}",
                type=WARNING if finding.failure else NORMAL,
                related=group_reference(report.groups.by_id.get(finding.group)),
            )
        self._report_triggered_pods()
        self._report_unhelped_pods(report)
        self._report_blocked_nodes(report)
        for node, uid in sorted(report.cleaned_nodes.items()):
            self._on_node(
                node,
                uid,
                reasons.CLUSTER_AUTOSCALER_CLEANUP,
                "removed the taint, the cordon and the machine marks that an earlier process left",
            )

    def began(self, state: RemovalState) -> None:
        """Report that a node was tainted."""
        verb = "resuming" if state.resumed else "starting"
        note = f"{verb} the removal of the node ({state.why}){': ' * bool(state.message)}{state.message}"
        self._on_node(state.node, state.uid, reasons.SCALE_DOWN, note)

    def ended(self, outcome: RemovalOutcome) -> None:
        """Report the outcome of a removal. Evicted pods get an event even if the node is kept."""
        for pod in sorted(outcome.evicted)[:MAX_EVICTED_EVENTS]:
            self._on_pod(
                pod_reference(pod, outcome.evicted[pod]),
                reasons.SCALE_DOWN,
                _SCALE_DOWN,
                f"evicted from node {outcome.node}, which is being removed",
                related=node_reference(outcome.node, outcome.uid),
            )
        if outcome.done:
            self._report_removed(outcome)
        else:
            self._report_kept(outcome)

    def _report_removed(self, outcome: RemovalOutcome) -> None:
        empty = outcome.why == reasons.EMPTY
        seconds = max(0.0, outcome.finished - outcome.started)
        note = (
            f"removed node {outcome.node} from {outcome.group.replace('/', ' ', 1)} ({outcome.why}); the removal took "
            f"{seconds:.0f}s and evicted {plural(len(outcome.evicted), 'pod')}"
        )
        self._post(
            reasons.SCALE_DOWN_EMPTY if empty else reasons.SCALE_DOWN,
            _SCALE_DOWN,
            note,
            related=node_reference(outcome.node, outcome.uid),
        )

    def _report_kept(self, outcome: RemovalOutcome) -> None:
        left = f"; failed to roll back: {outcome.left}" if outcome.left else ""
        note = f"({outcome.reason}): {outcome.message}{left}"
        type_ = WARNING if outcome.failed or outcome.left else NORMAL
        self._on_node(outcome.node, outcome.uid, reasons.SCALE_DOWN_FAILED, f"the node is kept {note}", type=type_)
        if outcome.reason == reasons.WRONG_MACHINE_REMOVED:
            self._report_wrong_machine(outcome)
        if outcome.refused:
            self._on_pod(
                pod_reference(outcome.refused, outcome.refused_uid),
                reasons.SCALE_DOWN_FAILED,
                _SCALE_DOWN,
                f"blocks the removal of node {outcome.node} {note}",
                related=node_reference(outcome.node, outcome.uid),
                type=type_,
            )

    def _report_wrong_machine(self, outcome: RemovalOutcome) -> None:
        """Post one event about a wrongly deleted machine, even if several nodes of the batch are kept because of it."""
        key = f"{outcome.reason} {outcome.group}"
        if self._others.first(key, outcome.message, now=outcome.finished):
            self._post(outcome.reason, _SCALE_DOWN, outcome.message, type=WARNING)

    def _report_problems(self, report: IterationReport) -> None:
        if report.health.cluster and self._is_new("health", report.health.cluster, report):
            self._post(reasons.CLUSTER_UNHEALTHY, "Wait", f"nothing is scaled: {report.health.cluster}", type=WARNING)
        for each in report.problems:  # MachineAutoscalers have events of their own
            if each.reason == reasons.PRIORITY_CONFIG_MAP_INVALID and self._is_new(each.reason, each.message, report):
                note = f"{each.kind} {each.namespace}/{each.name}: {each.message}"
                self._post(each.reason, _SCALE_UP, note, type=WARNING)

    def _report_limits(self, report: IterationReport) -> None:
        found: dict[str, Kept] = {}
        counts = dict.fromkeys(CLUSTER_LIMIT_REASONS, 0)
        for kept in kept_pods(report.plan):
            if kept.reason in counts:
                counts[kept.reason] += 1
                found.setdefault(kept.reason, kept)
        for reason, kept in sorted(found.items()):
            if self._is_new(reason, reason, report):
                pods = plural(counts[reason], "pod")
                note = f"{pods} remain{'s' * (counts[reason] == 1)} pending because of this limit: {kept.message}"
                self._post(reason, _SCALE_UP, note, type=WARNING)

    def _report_simulation(self, report: IterationReport) -> None:
        up = [f"{action.machine_set} {action.from_}->{action.to}" for action in planned_scale_ups(report.plan)]
        down = [action.node for action in report.plan.scaling or () if isinstance(action, RemoveNode)]
        parts = []
        if up:
            parts.append(f"would scale up {plural(len(up), 'node group')}: {named(up)}")
        if down:
            parts.append(f"would remove {plural(len(down), 'node')}: {named(down)}")
        note = "; ".join(parts)
        if parts and self._is_new("simulated", note, report, numbers=True):
            self._post(reasons.SIMULATED, "Simulate", note)

    def _report_scale_up(self, scale_up: ScaleUpOutcome, report: IterationReport) -> None:
        action, scaled = scale_up.action, scale_up.scaled
        found = report.groups.by_id.get(action.group)
        related = group_reference(found)
        most = "" if found is None else f" (max: {found.maximum})"
        sizes = f"{_group_name(report, action.group)} {scaled.before}->{scaled.after}{most}"
        if scaled.done:
            note = f"requested {action.message}: {sizes}"
            self._post(reasons.SCALED_UP_GROUP, _SCALE_UP, note, related=related)
            pod_note = f"scaled up node group {sizes}"
            self._backlog.extend(
                _PodEvent(self._pending_pod_reference(pod, report), pod_note, related or self._autoscaler)
                for pod in action.pods
            )
            return
        note = f"failed to scale up {sizes} ({scaled.failure}): {scaled.message}"
        self._post(reasons.FAILED_TO_SCALE_UP_GROUP, _SCALE_UP, note, type=WARNING, related=related)

    def _report_triggered_pods(self) -> None:
        for _ in range(min(MAX_POD_EVENTS, len(self._backlog))):
            each = self._backlog.popleft()
            self._on_pod(each.pod, reasons.TRIGGERED_SCALE_UP, _SCALE_UP, each.note, related=each.related)

    def _report_unhelped_pods(self, report: IterationReport) -> None:
        """Post events on pods that remain pending, starting with those whose previous event is the oldest."""
        stories: dict[tuple[str, str], str] = {}
        found = []
        unhelped = set()
        for key, reason, message in _unhelped_pods(report):
            unhelped.add(key)
            same = stories.get((reason, message))
            if same is None:
                same = stories[reason, message] = without_numbers(f"{reason}: {message}")
            if self._pods.is_new(key, same, now=report.finished):
                found.append((self._pods.last(key), key, reason, message))
        self._pods.forget_except(unhelped, now=report.finished)
        for _, key, reason, message in nsmallest(MAX_POD_EVENTS, found):
            self._pods.note(key, stories[reason, message], now=report.finished)
            self._on_pod(
                self._pending_pod_reference(key, report),
                reasons.NOT_TRIGGER_SCALE_UP,
                _SCALE_UP,
                f"{reason}: {message}",
                related=self._autoscaler,
            )

    def _report_blocked_nodes(self, report: IterationReport) -> None:
        """Post events on nodes with a blocker, starting with those whose previous event is the oldest."""
        now = report.finished
        if self._blocked_bucket is None:  # empty at first, so that a restart causes no burst
            self._blocked_bucket = TokenBucket(
                rate=BLOCKED_PER_MINUTE / 60.0, burst=BLOCKED_PER_MINUTE, now=now, last=now
            )
        blocked = [kept for kept in kept_nodes(report.plan) if kept.reason in BLOCKERS]
        self._blocked_nodes.forget_except({kept.name for kept in blocked}, now=now)
        found = [
            (self._blocked_nodes.last(kept.name), kept.name, kept)
            for kept in blocked
            if self._blocked_nodes.is_new(kept.name, _blocker(kept), now=now)
        ]
        for _, name, kept in nsmallest(BLOCKED_PER_MINUTE, found):
            if not self._blocked_bucket.take(now):
                return
            self._blocked_nodes.note(name, _blocker(kept), now=now)
            self._recorder.event(
                node_reference(name, report.node_uids.get(name, "")),
                reason=reasons.SCALE_DOWN_BLOCKED,
                action=_SCALE_DOWN,
                note=f"{kept.reason}: {kept.message}",
                related=self._autoscaler if not kept.pod else pod_reference(kept.pod, ""),
            )

    def _is_new(self, key: str, text: str, report: IterationReport, *, numbers: bool = False) -> bool:
        same = text if numbers else without_numbers(text)
        return self._others.first(key, same, now=report.finished)

    def _post(
        self,
        reason: str,
        action: str,
        note: str,
        *,
        type: str = NORMAL,  # noqa: A002  the API's own name
        related: ObjectReference | None = None,
    ) -> None:
        """Post an event on the ClusterAutoscaler."""
        self._recorder.event(self._autoscaler, reason=reason, action=action, note=note, type=type, related=related)

    def _on_node(self, node: str, uid: str, reason: str, note: str, *, type: str = NORMAL) -> None:  # noqa: A002
        self._recorder.event(
            node_reference(node, uid), reason=reason, action=_SCALE_DOWN, note=note, type=type, related=self._autoscaler
        )

    def _on_pod(
        self,
        pod: ObjectReference,
        reason: str,
        action: str,
        note: str,
        *,
        related: ObjectReference,
        type: str = NORMAL,  # noqa: A002
    ) -> None:
        self._recorder.event(pod, reason=reason, action=action, note=note, type=type, related=related)

    def _pending_pod_reference(self, key: str, report: IterationReport) -> ObjectReference:
        found = report.pending_pods.get(key)
        return pod_reference(key, "" if found is None else found.uid)


def _blocker(kept: Kept) -> str:
    """Return the blocker of a node. Its message is left out, because it contains numbers that change often."""
    return f"{kept.reason} {kept.pod}"


def _unhelped_pods(report: IterationReport) -> Iterator[tuple[str, str, str]]:
    """Yield the pods without a successful scale-up, each with reason and message.

    These are pods for which no scale-up was planned, and pods whose scale-up failed. Many pods share the same string
    objects for reason and message, which are hashed once.
    """
    yield from _pods_of_failed_scale_ups(report.scale_up_outcomes)
    for kept in kept_pods(report.plan):
        if remains_unschedulable(kept):
            yield f"{kept.namespace}/{kept.name}", kept.reason, kept.message


def _pods_of_failed_scale_ups(scale_ups: Iterable[ScaleUpOutcome]) -> Iterator[tuple[str, str, str]]:
    for each in scale_ups:
        if not each.scaled.done:
            message = f"failed to scale up {each.action.machine_set}: {each.scaled.message}"
            yield from ((pod, str(each.scaled.failure), message) for pod in each.action.pods)


def _group_name(report: IterationReport, id_: str) -> str:
    """Return the kind and ``namespace/name`` of a node group."""
    group = report.groups.by_id.get(id_)
    return id_ if group is None else f"{group.kind} {group.key}"
