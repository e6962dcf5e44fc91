"""Computes the deadlines of pods on nodes with NoExecute taints, without side effects.

The toleration time of a pod starts at the taint's ``timeAdded``, with three exceptions:

- ``timeAdded`` is missing, because kubectl and the API server do not set it.
- ``timeAdded`` is in the future, because the clock of the client that added the taint is ahead.
- not-ready was replaced with unreachable or vice versa, which sets a new ``timeAdded`` although the outage continues.

In these cases only a process that observed the change knows the right time. It writes the time to an annotation of the
node (:func:`since_annotation`), from which a restarted process reads it.

:class:`TaintDeadlineTracker` tracks the deadlines of a whole cluster. 150,000 pods have a few dozen distinct lists of
tolerations, and their nodes have a few distinct taints, so the toleration time is computed once for each pair.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from trimtab.api.plan import rfc3339
from trimtab.api.taint_manager import FIRST, TaintManagerSpec
from trimtab.disruption.protections import MIRROR_ANNOTATION
from trimtab.kube.clock import micro_time
from trimtab.kube.objects import Node, Pod, PodSpec, Taint, Toleration
from trimtab.kube.rules.taints import NO_EXECUTE, NOT_READY, UNREACHABLE, format_taint, tolerates

SINCE_ANNOTATION: Final = "trimtab.dev/taints-since"
"""The node annotation with the start times of taints whose ``timeAdded`` cannot be used."""

SWAPPED: Final = {NOT_READY: UNREACHABLE, UNREACHABLE: NOT_READY}
"""Maps each of the two taint keys of an outage to the other one."""

_MAX_ENTRIES: Final = 64
"""Maximum number of entries in the annotation. No node has that many NoExecute taints: longer ones are rejected."""


class ObservedTaint(Struct, frozen=True, gc=False):
    """A NoExecute taint of a node, and the time from which it applies, in seconds since the epoch."""

    taint: Taint
    since: float


class NodeTaints(Struct, frozen=True, gc=False):
    """The NoExecute taints of one node, sorted by key and value. The list may be empty.

    ``uid`` is the UID of the node. The times of a deleted node do not apply to a new node with the same name.
    """

    uid: str
    observed: tuple[ObservedTaint, ...]


def observe_taints(node: Node, before: NodeTaints | None, *, now: float, in_sync: bool = True) -> NodeTaints:
    """Update the NoExecute taints of a node from the node object.

    A taint that was observed before with the same value and ``timeAdded`` keeps its time. A new taint applies from its
    ``timeAdded``, or from now if ``timeAdded`` is missing or in the future. If not-ready has replaced unreachable or
    vice versa, the earlier time is kept, because the outage continues.

    Args:
        node: the current object.
        before: the previous result for this node. If it is ``None``, for example after a restart, the times are read
            from the node's annotation. Otherwise the annotation is ignored, because it may describe taints that have
            been removed since.
        now: the current time in seconds since the epoch.
        in_sync: whether every change to the node since the previous result was observed. If not, the node may have
            recovered in the meantime, so the taint that replaces another one applies from its own time. The resulting
            deadline can be too late but never too early.
    """
    if before is not None and before.uid != node.uid:
        before = None
    known = _recorded_times(node) if before is None else {_identity(each.taint): each.since for each in before.observed}
    replaced = before.observed if before is not None and in_sync else ()
    outage = {each.taint.key: each.since for each in replaced if each.taint.key in SWAPPED}
    observed = []
    taints = (taint for taint in node.taints if taint.effect == NO_EXECUTE)
    for taint in sorted(taints, key=lambda taint: (taint.key, taint.value)):
        since = known.get(_identity(taint))
        if since is None:
            added = now if taint.time_added is None else taint.time_added
            since = min(added, outage.get(SWAPPED.get(taint.key, ""), added))
        observed.append(ObservedTaint(taint, min(since, now)))
    return NodeTaints(node.uid, tuple(observed))


def since_annotation(taints: NodeTaints) -> str | None:
    """Return the value of :data:`SINCE_ANNOTATION` for a node; ``None`` if the node needs no annotation."""
    noted = [
        _RecordedTime(each.taint.key, micro_time(each.since), each.taint.value, each.taint.time_added)
        for each in taints.observed
        if each.taint.time_added != each.since
    ]
    return msgspec.json.encode(noted).decode() if noted else None


class _RecordedTime(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The start time in the annotation of the taint with this key, value and ``timeAdded``."""

    key: str
    since: str
    value: str = ""
    time_added: float | None = None


_DECODER: Final = msgspec.json.Decoder(Annotated[list[_RecordedTime], Meta(max_length=_MAX_ENTRIES)])


def _recorded_times(node: Node) -> dict[tuple[str, str, float | None], float]:
    """Read the times from the annotation. An invalid annotation is ignored."""
    text = node.annotations.get(SINCE_ANNOTATION)
    if text is None:
        return {}
    try:
        return {(each.key, each.value, each.time_added): _seconds(each.since) for each in _DECODER.decode(text)}
    except (msgspec.DecodeError, ValueError, OverflowError, OSError, RecursionError):
        return {}


def _seconds(text: str) -> float:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"has no time zone: {text!r}")
    return time.timestamp()


def _identity(taint: Taint) -> tuple[str, str, float | None]:
    """Identify a taint: a new value may match other tolerations, and with a new time it was added again."""
    return taint.key, taint.value, taint.time_added


FOREVER: Final = math.inf


class TolerationRule(Struct, frozen=True):
    """Determines how tolerations are matched, and which default tolerations pods get.

    Attributes:
        first: whether only the first of several matching tolerations is used, as in kube-controller-manager (v1.36
            ``GetMatchingTolerations``). Otherwise all of them are used regardless of their order, as in its device
            taint controller.
        not_ready: default tolerationSeconds for not-ready; ``None`` for no default toleration.
        unreachable: likewise for unreachable.
    """

    first: bool = False
    not_ready: int | None = None
    unreachable: int | None = None

    @classmethod
    def of(cls, spec: TaintManagerSpec) -> TolerationRule:
        """Return the rule of a TaintManager."""
        defaults = spec.default_tolerations
        return cls(
            first=spec.toleration_matching == FIRST,
            not_ready=defaults.default_not_ready_toleration_seconds,
            unreachable=defaults.default_unreachable_toleration_seconds,
        )

    def complete(self, tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
        """Return the given tolerations of a pod together with the default tolerations that apply to it."""
        defaults = [
            Toleration(key=key, operator="Exists", effect=NO_EXECUTE, seconds=seconds)
            for key, seconds in ((NOT_READY, self.not_ready), (UNREACHABLE, self.unreachable))
            if seconds is not None
            and not any(each.key in ("", key) and each.effect in ("", NO_EXECUTE) for each in tolerations)
        ]
        return (*tolerations, *defaults)


class Tolerance(Struct, frozen=True, gc=False):
    """The seconds for which a pod tolerates a taint, and the toleration that determines them.

    They are 0 if no toleration matches, and :data:`FOREVER` if there is no limit.
    """

    seconds: float
    toleration: Toleration | None = None


def tolerance(tolerations: Sequence[Toleration], taint: Taint, rule: TolerationRule) -> Tolerance:
    """Compute the time for which a pod with these tolerations tolerates a taint.

    If no toleration matches, the time is 0. If a matching toleration has no tolerationSeconds, the pod tolerates the
    taint forever. Otherwise the time is the shortest tolerationSeconds of the matching tolerations. Negative values are
    treated as 0 (core/v1: "zero and negative values will be treated as 0"). The tolerations include the default ones
    (:meth:`TolerationRule.complete`).
    """
    matching = [each for each in tolerations if tolerates(each, taint)]
    if not matching:
        return Tolerance(0.0)
    chosen = matching[0] if rule.first else min(matching, key=_rank)
    seconds = FOREVER if chosen.seconds is None else float(max(0, chosen.seconds))
    return Tolerance(seconds, chosen)


def _rank(toleration: Toleration) -> tuple[bool, int, str, str, str, str]:
    """Return the sort key: first tolerations without a limit, then by seconds, regardless of their order in the pod."""
    limited = toleration.seconds is not None
    seconds = max(0, toleration.seconds or 0)
    return limited, seconds, toleration.key, toleration.operator, toleration.value, toleration.effect


SCHEDULED: Final = "PodScheduled"


class Deadline(Struct, frozen=True, gc=False):
    """The time at which a pod is due for eviction or deletion because of a NoExecute taint.

    Attributes:
        key: ``namespace/name`` of the pod.
        uid: UID of the pod.
        node: name of the pod's node.
        due: the time, in seconds since the epoch.
        since: the time from which the taint applies to this pod, in seconds since the epoch.
        taint: the taint that determines the deadline.
        toleration: the toleration that determines it; ``None`` if none matches, so that the pod is due immediately.
    """

    key: str
    uid: str
    node: str
    due: float
    since: float
    taint: Taint
    toleration: Toleration | None

    @property
    def namespace(self) -> str:
        """Return the namespace of the pod."""
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        """Return the name of the pod."""
        return self.key.partition("/")[2]


def deadline(pod: Pod, observed: Sequence[ObservedTaint], rule: TolerationRule, *, now: float) -> Deadline | None:
    """Compute the deadline of one pod on a node with these taints; see :func:`deadlines`."""
    return deadlines([(pod.key, pod)], {pod.node: NodeTaints("", tuple(observed))}, rule, now=now).get(pod.key)


def subject_to_taints(pod: Pod) -> bool:
    """Return whether NoExecute taints evict this pod.

    Terminal pods are not evicted: their logs and exit codes may still be needed, and they use no resources. Terminating
    pods are already being deleted. Mirror pods are not evicted, because the kubelet would recreate them as long as
    their manifest exists on the node.
    """
    return pod.deleted is None and not pod.terminal and MIRROR_ANNOTATION not in pod.annotations


def start_on_node(pod: Pod, *, now: float) -> float:
    """Return when a pod's time on its node began, in seconds since the epoch and at most ``now``.

    This is ``status.startTime``, which the kubelet writes when it accepts the pod. If the kubelet has not written it,
    the time at which the scheduler bound the pod is used, or else the creation time. If ``status.startTime`` is in the
    future because the node's clock is ahead, ``now`` is returned, so that the computed deadline can be too late but
    never too early.
    """
    if pod.started is not None and pod.started <= now:
        return pod.started
    scheduled = next((each.since for each in pod.conditions if each.type == SCHEDULED and each.status == "True"), None)
    if scheduled is not None:
        return min(scheduled, now)
    if pod.started is not None or pod.created is None:
        return now
    return min(pod.created, now)


Item = tuple[str, Pod]
"""A pod and its key ``namespace/name``."""


def deadlines(
    pods: Iterable[Item], taints: Mapping[str, NodeTaints], rule: TolerationRule, *, now: float
) -> dict[str, Deadline]:
    """Compute the deadlines of pods, by ``namespace/name``.

    Each taint has a deadline, which is the end of the pod's toleration time (:func:`tolerance`). That time starts when
    the taint was added or, if that is later, when the pod was bound to the node. A pod that is bound to a tainted node
    therefore gets its full toleration time. The pod's deadline is the earliest of these deadlines. The order of taints
    and tolerations does not matter. Pods that tolerate all taints forever or are not subject to taints have none.

    Args:
        pods: pods with their keys, in any order. Unbound pods are ignored.
        taints: NoExecute taints by node name. Nodes without NoExecute taints may be missing.
        rule: how tolerations are matched.
        now: the current time in seconds since the epoch. It replaces times in the future.
    """
    found: dict[str, Deadline] = {}
    kinds: dict[tuple[str, str], int] = {}
    by_tolerations: dict[tuple[Toleration, ...], dict[int, Tolerance]] = {}
    by_spec: dict[int, tuple[PodSpec, dict[int, Tolerance]]] = {}  # pods of one template share their spec
    columns: dict[str, list[tuple[int, float, Taint]]] = {}
    for key, pod in pods:
        name = pod.node
        if name not in taints or not subject_to_taints(pod):
            continue
        column = columns.get(name)
        if column is None:
            column = columns[name] = [
                (kinds.setdefault((each.taint.key, each.taint.value), len(kinds)), min(each.since, now), each.taint)
                for each in taints[name].observed
            ]
        spec, start = pod.spec, pod.started
        shared = by_spec.get(id(spec))
        if shared is None:
            shared = by_spec[id(spec)] = spec, by_tolerations.setdefault(spec.tolerations, {})
        known = shared[1]
        if start is None or start > now:  # nearly all pods have a start time, and a call takes long for 150,000
            start = start_on_node(pod, now=now)
        due = FOREVER
        for kind, added, taint in column:
            how = known.get(kind)
            if how is None:
                how = known[kind] = tolerance(rule.complete(spec.tolerations), taint, rule)
            since = max(added, start)
            end = since + how.seconds
            if end < due:
                due, base, cause, toleration = end, since, taint, how.toleration
        if due < FOREVER:
            found[key] = Deadline(key, pod.uid, name, due, base, cause, toleration)
    return found


class DeadlineChange(Struct, frozen=True, gc=False):
    """The deadline of a pod before and after a change. ``None`` means that the pod has no deadline."""

    key: str
    before: Deadline | None
    after: Deadline | None


class TaintDeadlineTracker:
    """Tracks the deadline of every pod as the cluster changes.

    The deadlines depend only on the latest state and not on the sequence of changes. The times of taints without a
    usable ``timeAdded`` are an exception (see :func:`observe_taints`). Nodes and pods may be observed in any order: a
    pod has no deadline until its node is known.

    ``pods_on`` returns the current pods on a node with their keys, in any order.

    Attributes:
        deadlines: the deadlines by the pod's ``namespace/name``.
        taints: the NoExecute taints by node name. Nodes without NoExecute taints are not included.
    """

    def __init__(self, pods_on: Callable[[str], Iterable[Item]], rule: TolerationRule) -> None:
        self.rule = rule
        self.deadlines: dict[str, Deadline] = {}
        self.taints: dict[str, NodeTaints] = {}
        self._pods_on = pods_on
        self._seen: dict[str, NodeTaints] = {}

    def node_changed(
        self, old: Node | None, new: Node | None, *, now: float, in_sync: bool = True
    ) -> list[DeadlineChange]:
        """Process an added, changed or removed node, and return the changed deadlines of its pods, sorted by pod.

        The pods of a removed node have no deadline. The watch is not ``in_sync`` during a relist of nodes.
        """
        node = new or old
        if node is None:
            return []
        name = node.name
        seen = None if new is None else observe_taints(new, self._seen.get(name), now=now, in_sync=in_sync)
        before = self.taints.get(name)
        if seen is None:
            self._seen.pop(name, None)
        else:
            self._seen[name] = seen
        if seen is not None and seen.observed:
            self.taints[name] = seen
        else:
            self.taints.pop(name, None)
        if self.taints.get(name) == before:
            return []
        pods = list(self._pods_on(name))
        return self._update((key for key, _ in pods), deadlines(pods, self.taints, self.rule, now=now))

    def pod_changed(self, old: Pod | None, new: Pod | None, *, now: float) -> list[DeadlineChange]:
        """Process an added, changed or removed pod, and return the change of its deadline, if any."""
        pod = new or old
        if pod is None or (pod.node not in self.taints and pod.key not in self.deadlines):
            return []
        key = pod.key
        found = deadlines(((key, new),), self.taints, self.rule, now=now) if new is not None else {}
        return self._update((key,), found)

    def resync(self, nodes: Iterable[Node], pods: Iterable[Item], *, now: float) -> list[DeadlineChange]:
        """Rebuild the deadlines from the whole cluster, for example after a relist, and return those that changed."""
        seen = self._seen
        self._seen = {node.name: observe_taints(node, seen.get(node.name), now=now, in_sync=False) for node in nodes}
        self.taints.clear()  # the same mapping, because others read it
        self.taints.update((name, taints) for name, taints in self._seen.items() if taints.observed)
        found = deadlines(pods, self.taints, self.rule, now=now)
        return self._update({**self.deadlines, **found}, found)

    def set_rule(self, rule: TolerationRule, *, now: float) -> list[DeadlineChange]:
        """Apply a new rule for matching tolerations, and return the changed deadlines."""
        if rule == self.rule:
            return []
        self.rule = rule
        pods = [item for node in self.taints for item in self._pods_on(node)]
        return self._update((key for key, _ in pods), deadlines(pods, self.taints, rule, now=now))

    def deadlines_of(self, pod: Pod, *, now: float) -> tuple[Deadline, ...]:
        """Return one deadline for each taint of the pod's node, as if the node had only that taint."""
        taints = self.taints.get(pod.node)
        observed = () if taints is None else taints.observed
        each = (deadline(pod, (taint,), self.rule, now=now) for taint in observed)
        return tuple(found for found in each if found is not None)

    def _update(self, keys: Iterable[str], found: Mapping[str, Deadline]) -> list[DeadlineChange]:
        changes = []
        for key in keys:
            before, after = self.deadlines.get(key), found.get(key)
            if before != after:
                changes.append(DeadlineChange(key, before, after))
            if after is not None:
                self.deadlines[key] = after
            else:
                self.deadlines.pop(key, None)
        return sorted(changes, key=attrgetter("key"))


def describe_toleration(toleration: Toleration | None) -> str:
    """Format a toleration as ``key=value:NoExecute for 300s``; return ``""`` for ``None``.

    ``*`` stands for every key or every effect. A toleration with operator Exists has no ``=value``, and one with
    operator Equal and no value is formatted as ``key=``.
    """
    if toleration is None:
        return ""
    operator = toleration.operator or "Equal"
    value = "" if operator == "Exists" else f"={toleration.value}"
    compared = f" ({operator})" if operator not in ("Exists", "Equal") else ""
    duration = "forever" if toleration.seconds is None else f"for {max(0, toleration.seconds)}s"
    return f"{toleration.key or '*'}{value}:{toleration.effect or '*'}{compared} {duration}"


def describe_deadline(deadline: Deadline, *, assumed: bool = False) -> str:
    """Describe the taint of a deadline, the time from which it applies to the pod, and the toleration.

    That time is ``assumed`` if it is unknown, because the taint has no ``timeAdded``.
    """
    taint = f"taint {format_taint(deadline.taint)} since {rfc3339(deadline.since)}"
    if assumed:
        taint = f"taint {format_taint(deadline.taint)}, which has no timeAdded, counted from {rfc3339(deadline.since)}"
    toleration = deadline.toleration
    if toleration is None:
        return f"{taint}, not tolerated"
    lasting = f"{taint}, tolerated for {max(0, toleration.seconds or 0)}s"
    key, _, _ = describe_toleration(toleration).partition(" ")
    return lasting if key == format_taint(deadline.taint) else f"{lasting} (toleration {key})"
