"""What the autoscaler tells in events: upstream's reasons where they exist, with names and numbers.

Upstream has no object that stands for its autoscaler, and hangs what concerns no pod or node on its status ConfigMap.
Here the ClusterAutoscaler is that object: users apply it, ``kubectl describe clusterautoscaler default`` shows its
events, and they live where events of objects without a namespace do, in ``default``. Events about a group have the
group's object as ``related``. In mode Simulate pods and nodes are told nothing: nothing happens to them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import nsmallest
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.bounds import named, plural, story
from trimtab.api.cluster_autoscaler import NAME
from trimtab.api.node_removal import RemoveNode
from trimtab.api.plan import Kept
from trimtab.autoscaling.actuation.removal import RemovalOutcome, RemovalState
from trimtab.autoscaling.report.pass_report import Grown, PassReport
from trimtab.autoscaling.report.pending import helpless, kept_pods, raised
from trimtab.autoscaling.report.references import group_reference
from trimtab.kube.events.event import NORMAL, WARNING
from trimtab.kube.events.lately import Lately
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.reference import ObjectReference, node_reference, pod_reference
from trimtab.kube.resources import CLUSTER_AUTOSCALERS

POD_EVENTS: Final = 500
"""Events on pods in one pass, of each kind: what is left comes in the next ones."""

BACKLOG: Final = 10_000
"""Pods that wait to be told that nodes were asked for."""

EVICTED: Final = 200
"""Events on evicted pods of one node."""

LIMITS: Final = (
    reasons.MAX_NODES_TOTAL_REACHED,
    reasons.MAX_CORES_REACHED,
    reasons.MAX_MEMORY_REACHED,
    reasons.MAX_GPUS_REACHED,
)
"""Limits of the whole cluster: told once on the ClusterAutoscaler, beside the pods that wait for it."""

_SCALE_UP: Final = "ScaleUp"
_SCALE_DOWN: Final = "RemoveNode"
"""``action`` of events: what was done or not done."""


class _Note(Struct, frozen=True):
    """An event on a pod."""

    pod: ObjectReference
    note: str
    related: ObjectReference


class EventTeller:
    """Tells of passes, and of removals as they begin and end (it is a Teller of :mod:`trimtab.autoscaling.actuation`).

    What was told is remembered within bounds, for five minutes: a pod whose reason stays the same, apart from numbers,
    is told once in that time.

    Args:
        recorder: posts the events.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._pods = Lately()
        self._others = Lately(most=1000)
        self._backlog: deque[_Note] = deque(maxlen=BACKLOG)
        self._autoscaler = ObjectReference.to(CLUSTER_AUTOSCALERS, NAME)

    def tell(self, report: PassReport) -> None:
        """Tell of a pass: of groups that grow, pods that are helped or not, and what is wrong."""
        self._autoscaler = ObjectReference.to(CLUSTER_AUTOSCALERS, NAME, uid=report.uid)
        self._tell_of_trouble(report)
        self._tell_of_limits(report)
        if report.mode == "Simulate":
            self._tell_what_would_be(report)
            return
        for grown in report.grown:
            self._tell_of_group(grown, report)
        for finding in report.told:
            self._say(
                finding.reason,
                _SCALE_UP,
                f"{_name(report, finding.group)}: {finding.message}",
                type=WARNING if finding.failure else NORMAL,
                related=group_reference(report.groups.by_id.get(finding.group)),
            )
        self._tell_helped()
        self._tell_helpless(report)
        for node, uid in sorted(report.cleaned.items()):
            self._on_node(node, uid, reasons.CLUSTER_AUTOSCALER_CLEANUP, "what an earlier process had left was removed")

    def began(self, state: RemovalState) -> None:
        """A node has its taint."""
        goes_on = "goes on" if state.resumed else "begins"
        note = f"the removal of the node {goes_on}: {state.why}{', ' * bool(state.message)}{state.message}"
        self._on_node(state.node, state.uid, reasons.SCALE_DOWN, note)

    def ended(self, outcome: RemovalOutcome) -> None:
        """A removal ended; pods that were evicted for it are told even where the node stays."""
        for pod in sorted(outcome.evicted)[:EVICTED]:
            self._on_pod(
                pod_reference(pod, outcome.evicted[pod]),
                reasons.SCALE_DOWN,
                _SCALE_DOWN,
                f"evicted from {outcome.node}, which is to be removed",
                related=node_reference(outcome.node, outcome.uid),
            )
        if outcome.done:
            self._tell_of_gone(outcome)
        else:
            self._tell_of_stayed(outcome)

    def _tell_of_gone(self, outcome: RemovalOutcome) -> None:
        empty = outcome.why == reasons.EMPTY
        seconds = max(0.0, outcome.finished - outcome.started)
        note = (
            f"node {outcome.node} removed from {outcome.group} ({outcome.why}) after {seconds:.0f}s, "
            f"{plural(len(outcome.evicted), 'pod')} evicted"
        )
        self._say(
            reasons.SCALE_DOWN_EMPTY if empty else reasons.SCALE_DOWN,
            _SCALE_DOWN,
            note,
            related=node_reference(outcome.node, outcome.uid),
        )

    def _tell_of_stayed(self, outcome: RemovalOutcome) -> None:
        left = f"; not taken back: {outcome.left}" if outcome.left else ""
        note = f"{outcome.reason}: {outcome.message}{left}"
        type_ = WARNING if outcome.failed or outcome.left else NORMAL
        self._on_node(outcome.node, outcome.uid, reasons.SCALE_DOWN_FAILED, f"the node stays: {note}", type=type_)
        if outcome.refused:
            self._on_pod(
                pod_reference(outcome.refused, outcome.refused_uid),
                reasons.SCALE_DOWN_FAILED,
                _SCALE_DOWN,
                f"keeps node {outcome.node}: {note}",
                related=node_reference(outcome.node, outcome.uid),
                type=type_,
            )

    def _tell_of_trouble(self, report: PassReport) -> None:
        if report.health.cluster and self._news("health", report.health.cluster, report):
            self._say(reasons.CLUSTER_UNHEALTHY, "Wait", f"nothing is scaled: {report.health.cluster}", type=WARNING)
        for each in report.problems:  # those of MachineAutoscalers are told on themselves
            if each.reason == reasons.PRIORITY_CONFIG_MAP_INVALID and self._news(each.reason, each.message, report):
                note = f"{each.kind} {each.namespace}/{each.name}: {each.message}"
                self._say(each.reason, _SCALE_UP, note, type=WARNING)

    def _tell_of_limits(self, report: PassReport) -> None:
        found: dict[str, Kept] = {}
        counts = dict.fromkeys(LIMITS, 0)
        for kept in kept_pods(report.plan):
            if kept.reason in counts:
                counts[kept.reason] += 1
                found.setdefault(kept.reason, kept)
        for reason, kept in sorted(found.items()):
            if self._news(reason, reason, report):
                note = f"{plural(counts[reason], 'pod')} wait{'s' * (counts[reason] == 1)} for it: {kept.message}"
                self._say(reason, _SCALE_UP, note, type=WARNING)

    def _tell_what_would_be(self, report: PassReport) -> None:
        up = [f"{action.machine_set} {action.from_}->{action.to}" for action in raised(report.plan)]
        down = [action.node for action in report.plan.scaling or () if isinstance(action, RemoveNode)]
        parts = []
        if up:
            parts.append(f"would raise {plural(len(up), 'node group')}: {named(up)}")
        if down:
            parts.append(f"would remove {plural(len(down), 'node')}: {named(down)}")
        note = "; ".join(parts)
        if parts and self._news("simulated", note, report, numbers=True):
            self._say(reasons.SIMULATED, "Simulate", note)

    def _tell_of_group(self, grown: Grown, report: PassReport) -> None:
        action, scaled = grown.action, grown.scaled
        found = report.groups.by_id.get(action.group)
        related = group_reference(found)
        most = "" if found is None else f" (max: {found.maximum})"
        sizes = f"{_name(report, action.group)} {scaled.before}->{scaled.after}{most}"
        if scaled.done:
            note = f"asked for {plural(scaled.after - scaled.before, 'node')}: {sizes}; {action.message}"
            self._say(reasons.SCALED_UP_GROUP, _SCALE_UP, note, related=related)
            pod_note = f"nodes were asked for: {sizes}"
            self._backlog.extend(
                _Note(self._waiting(pod, report), pod_note, related or self._autoscaler) for pod in action.pods
            )
            return
        note = f"{sizes}: {scaled.failure}: {scaled.message}"
        self._say(reasons.FAILED_TO_SCALE_UP_GROUP, _SCALE_UP, note, type=WARNING, related=related)

    def _tell_helped(self) -> None:
        for _ in range(min(POD_EVENTS, len(self._backlog))):
            each = self._backlog.popleft()
            self._on_pod(each.pod, reasons.TRIGGERED_SCALE_UP, _SCALE_UP, each.note, related=each.related)

    def _tell_helpless(self, report: PassReport) -> None:
        """Those first that were told longest ago, or never: with very many pods each has its turn."""
        stories: dict[tuple[str, str], str] = {}
        found = []
        for key, reason, message in _helpless(report):
            same = stories.get((reason, message))
            if same is None:
                same = stories[reason, message] = story(f"{reason}: {message}")
            if self._pods.is_news(key, same, now=report.finished):
                found.append((self._pods.last(key), key, reason, message))
        for _, key, reason, message in nsmallest(POD_EVENTS, found):
            self._pods.note(key, stories[reason, message], now=report.finished)
            self._on_pod(
                self._waiting(key, report),
                reasons.NOT_TRIGGER_SCALE_UP,
                _SCALE_UP,
                f"{reason}: {message}",
                related=self._autoscaler,
            )

    def _news(self, key: str, text: str, report: PassReport, *, numbers: bool = False) -> bool:
        same = text if numbers else story(text)
        if not self._others.is_news(key, same, now=report.finished):
            return False
        self._others.note(key, same, now=report.finished)
        return True

    def _say(
        self,
        reason: str,
        action: str,
        note: str,
        *,
        type: str = NORMAL,  # noqa: A002  the API's own name
        related: ObjectReference | None = None,
    ) -> None:
        """An event on the ClusterAutoscaler."""
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

    def _waiting(self, key: str, report: PassReport) -> ObjectReference:
        found = report.waiting.get(key)
        return pod_reference(key, "" if found is None else found.uid)


def _helpless(report: PassReport) -> Iterator[tuple[str, str, str]]:
    """Pods that get no node, with why: nothing helps them, or whom they were planned for could not be asked.

    Of very many pods the same is said: reason and message stay the planner's own values, which are hashed once.
    """
    yield from _failed(report.grown)
    for kept in kept_pods(report.plan):
        if helpless(kept):
            yield f"{kept.namespace}/{kept.name}", kept.reason, kept.message


def _failed(grown: Iterable[Grown]) -> Iterator[tuple[str, str, str]]:
    for each in grown:
        if not each.scaled.done:
            message = f"{each.action.machine_set} could not be asked: {each.scaled.message}"
            yield from ((pod, str(each.scaled.failure), message) for pod in each.action.pods)


def _name(report: PassReport, id_: str) -> str:
    """The group as people know it: kind and ``namespace/name``."""
    group = report.groups.by_id.get(id_)
    return id_ if group is None else f"{group.kind} {group.key}"
