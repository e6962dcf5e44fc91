"""Computes the deadline of one pod on a node with NoExecute taints.

The toleration time starts at the taint's ``timeAdded``, with three exceptions:

- ``timeAdded`` is missing, because kubectl and the API server do not set it.
- ``timeAdded`` is in the future, because the clock of the client that added the taint is ahead.
- not-ready was replaced with unreachable or vice versa, which sets a new ``timeAdded`` although the outage continues.

In these cases only a process that observed the change knows the right time. It writes the time to an annotation of the
node (:func:`since_annotation`), from which a restarted process reads it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from trimtab.api.taint_manager import FIRST, TaintManagerSpec
from trimtab.disruption.protections import MIRROR_ANNOTATION
from trimtab.kube.clock import micro_time
from trimtab.kube.objects import Node, Pod, Taint, Toleration
from trimtab.kube.rules.taints import NO_EXECUTE, NOT_READY, UNREACHABLE, tolerates

SINCE_ANNOTATION: Final = "trimtab.dev/taints-since"
"""The node annotation with the start times of taints whose ``timeAdded`` cannot be used: a JSON list of
:class:`_RecordedTime`.
"""

SWAPPED: Final = {NOT_READY: UNREACHABLE, UNREACHABLE: NOT_READY}
"""Maps each of the two taint keys of an outage to the other one."""

_MAX_ENTRIES: Final = 64
"""Maximum number of entries in the annotation. No node has that many NoExecute taints, so longer annotations are
rejected.
"""


class ObservedTaint(Struct, frozen=True, gc=False):
    """A NoExecute taint of a node, and the time from which it applies, in seconds since the epoch."""

    taint: Taint
    since: float

    @property
    def has_own_time(self) -> bool:
        """Return whether the taint applies from its ``timeAdded``, so that it needs no annotation."""
        return self.taint.time_added == self.since


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
    outage: dict[str, float] = {}
    if before is not None and in_sync:
        outage = {each.taint.key: each.since for each in before.observed if each.taint.key in SWAPPED}
    observed = []
    for taint in _no_execute(node.taints):
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
        if not each.has_own_time
    ]
    return msgspec.json.encode(noted).decode() if noted else None


class _RecordedTime(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The start time of one taint in the annotation.

    It applies only to the taint with this key, value and ``timeAdded``.
    """

    key: str
    since: str
    value: str = ""
    time_added: float | None = None


_DECODER: Final = msgspec.json.Decoder(Annotated[list[_RecordedTime], Meta(max_length=_MAX_ENTRIES)])


def _recorded_times(node: Node) -> dict[tuple[str, str, float | None], float]:
    """Read the times from the annotation.

    If the annotation is invalid, it is ignored, and the taints apply from now.
    """
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
    """Return the key, value and ``timeAdded`` of a taint, which identify it.

    A new value may match other tolerations, and a new time means that the taint was added again.
    """
    return taint.key, taint.value, taint.time_added


def _no_execute(taints: Iterable[Taint]) -> list[Taint]:
    found = [taint for taint in taints if taint.effect == NO_EXECUTE]
    return sorted(found, key=lambda taint: (taint.key, taint.value)) if len(found) > 1 else found


FOREVER: Final = math.inf


class TolerationRule(Struct, frozen=True):
    """Determines how tolerations are matched, and which default tolerations pods get.

    Attributes:
        first: whether only the first of several matching tolerations is used, as in kube-controller-manager (v1.36
            ``GetMatchingTolerations``). Otherwise all of them are used regardless of their order, as in the device
            taint controller of kube-controller-manager.
        not_ready: default tolerationSeconds for not-ready; ``None`` for no default toleration.
        unreachable: default tolerationSeconds for unreachable; ``None`` for no default toleration.
    """

    first: bool = False
    not_ready: int | None = None
    unreachable: int | None = None

    @classmethod
    def of(cls, spec: TaintManagerSpec) -> TolerationRule:
        """Return the rule for the spec of a TaintManager."""
        defaults = spec.default_tolerations
        return cls(
            first=spec.toleration_matching == FIRST,
            not_ready=defaults.default_not_ready_toleration_seconds,
            unreachable=defaults.default_unreachable_toleration_seconds,
        )

    def complete(self, tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
        """Return the given tolerations of a pod together with the default tolerations that apply to it."""
        return (*tolerations, *self._defaults(tolerations))

    def _defaults(self, tolerations: tuple[Toleration, ...]) -> Iterator[Toleration]:
        for key, seconds in ((NOT_READY, self.not_ready), (UNREACHABLE, self.unreachable)):
            said = any(each.key in ("", key) and each.effect in ("", NO_EXECUTE) for each in tolerations)
            if seconds is not None and not said:
                yield Toleration(key=key, operator="Exists", effect=NO_EXECUTE, seconds=seconds)


class Tolerance(Struct, frozen=True, gc=False):
    """The time for which a pod tolerates a taint.

    Attributes:
        seconds: the time in seconds; 0 if no toleration matches, :data:`FOREVER` if there is no limit.
        toleration: the toleration that determines the time; ``None`` if none matches.
    """

    seconds: float
    toleration: Toleration | None = None


NOT_AT_ALL: Final = Tolerance(0.0)


def tolerance(tolerations: Sequence[Toleration], taint: Taint, rule: TolerationRule) -> Tolerance:
    """Compute the time for which a pod with these tolerations tolerates a taint.

    If no toleration matches, the time is 0. If a matching toleration has no tolerationSeconds, the pod tolerates the
    taint forever. Otherwise the time is the shortest tolerationSeconds of the matching tolerations. Negative values are
    treated as 0 (core/v1: "zero and negative values will be treated as 0").

    Args:
        tolerations: the pod's tolerations and the default ones, see :meth:`TolerationRule.complete`.
        taint: a taint with effect NoExecute.
        rule: determines how tolerations are matched.
    """
    matching = [each for each in tolerations if tolerates(each, taint)]
    if not matching:
        return NOT_AT_ALL
    chosen = matching[0] if rule.first else min(matching, key=_rank)
    seconds = FOREVER if chosen.seconds is None else float(max(0, chosen.seconds))
    return Tolerance(seconds, chosen)


def _rank(toleration: Toleration) -> tuple[bool, int, str, str, str, str]:
    """Return the sort key: tolerations without a limit first, then by seconds.

    The other fields make the choice independent of the order of the tolerations.
    """
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
        due: the time at which the pod is due for eviction or deletion, in seconds since the epoch.
        since: the time from which the taint applies to this pod, in seconds since the epoch.
        taint: the taint that determines the deadline.
        toleration: the toleration that determines the deadline. It is ``None`` if no toleration matches, and the pod is
            due immediately.
    """

    key: str
    uid: str
    node: str
    due: float
    since: float
    taint: Taint
    toleration: Toleration | None


def deadline(pod: Pod, observed: Sequence[ObservedTaint], rule: TolerationRule, *, now: float) -> Deadline | None:
    """Compute the deadline of a pod; ``None`` if it tolerates all taints forever or is not subject to taints.

    Each taint has a deadline, which is the end of the pod's toleration time (:func:`tolerance`). That time starts when
    the taint was added or, if that is later, when the pod was bound to the node. A pod that is bound to a tainted node
    therefore gets its full toleration time. The pod's deadline is the earliest of these deadlines. The order of taints
    and tolerations does not matter.

    Args:
        pod: a pod on the node.
        observed: the node's NoExecute taints, sorted by key and value.
        rule: determines how tolerations are matched.
        now: the current time in seconds since the epoch. It replaces times in the future.
    """
    if not subject_to_taints(pod):
        return None
    tolerations = rule.complete(pod.spec.tolerations)
    start = start_on_node(pod, now=now)
    found: Deadline | None = None
    for each in observed:
        how = tolerance(tolerations, each.taint, rule)
        since = max(min(each.since, now), start)
        if how.seconds < FOREVER and (found is None or since + how.seconds < found.due):
            found = Deadline(pod.key, pod.uid, pod.node, since + how.seconds, since, each.taint, how.toleration)
    return found


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
