"""The scheduling queue: determines which pending pods are scheduled next, and when unschedulable pods are retried.

    queue = SchedulingQueue()
    queue.add(pod, now)
    batch = queue.pop(500, now)                        # highest priority first
    queue.reject(batch[0], {"NodeResourcesFit"}, now)  # the pod fits on no node
    queue.observe(ClusterEvent("Node", "Add", new=node))
    for _ in queue.evaluate(now + 1):                  # requeues the pods that the node may help
        ...                                            # other tasks may run between two steps
    queue.pop(500, now + 1)                            # the same pod: its backoff has ended

A pod is in one of four states (``Place``), as in kube-scheduler v1.36 (``internal/queue``):

1. active: it is scheduled in one of the next cycles; active pods are ordered by priority, then by the time of queueing;
2. backing off: its last attempt failed, and its backoff (1, 2, 4, 8, 10 s) has not ended;
3. unschedulable: filters rejected it, and since then no change has been observed that could make it schedulable (see
   ``queueing_hints``);
4. in flight: it was popped, and has not been removed, rejected or retried yet.

The cost of an event depends on the number of groups of unschedulable pods (same template, rejected by the same
filters), not on the number of pods. Events are evaluated in batches before pods are popped, so that, for example, a
thousand deleted pods are processed as one change. Because a tenant can create thousands of groups, the evaluation is
divided into steps.

The queue does no I/O and does not read the clock; methods get the current time as a parameter.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, Literal, get_args

from msgspec import Struct

from trimtab.controller.timers import TimerHeap
from trimtab.kube.objects import Pod
from trimtab.kube.retry import Backoff
from trimtab.scheduling.queueing_hints import ClusterEvent, helps, rules_for

BACKOFF: Final = Backoff(initial=1.0, maximum=10.0, jitter=0.0)
"""The backoff of pods: the defaults of kube-scheduler's ``podInitialBackoffSeconds`` and ``podMaxBackoffSeconds``."""

MAX_UNSCHEDULABLE: Final = 300.0
"""Seconds after which an unschedulable pod is retried even without an event (``podMaxInUnschedulablePodsDuration``)."""

MAX_EVENTS: Final = 32
"""Maximum number of events of one kind that are evaluated one by one. If there are more, they are merged into one event
without objects, which may help every pod."""

MAX_LOG: Final = 10_000
"""Maximum number of events that are kept for pods in flight.

If a pod was popped before the oldest of them and is then rejected, it is retried, because an event that could help it
may have been dropped.
"""

FLUSH_PERIOD: Final = 30.0
"""Seconds between two checks for pods that have been unschedulable for too long, as in kube-scheduler."""

Place = Literal["active", "backoff", "unschedulable", "in flight"]

_Group = tuple[int, str, int, frozenset[str]]
"""The key of a group of pods for which queueing hints have the same result: id of the interned spec, namespace, id of
the interned labels, and names of the filters that rejected them."""


class _Events:
    """Events, and which pods they can make schedulable.

    Args:
        events: the events; ``None`` if some of them have been dropped, so that they may help every pod.
    """

    def __init__(self, events: list[ClusterEvent] | None) -> None:
        self._events = None if events is None else _coalesced(events)
        # There are few combinations of filters, but thousands of groups.
        self._relevant: dict[frozenset[str], list[ClusterEvent]] = {}

    def help(self, pod: Pod, rejected_by: frozenset[str]) -> bool:
        """Return whether one of the events may make a pod that these filters rejected schedulable."""
        if self._events is None:
            return True
        relevant = self._relevant.get(rejected_by)
        if relevant is None:
            relevant = [each for each in self._events if rules_for(rejected_by, each.kind) != ()]
            self._relevant[rejected_by] = relevant
        return any(helps(pod, rejected_by, event) for event in relevant)


class QueuedPod(Struct, eq=False):
    """A pod in the queue, with its queueing state. All times are in seconds.

    Attributes:
        pod: the pod as it was last observed.
        added: when the pod was first added to the queue, to measure its scheduling latency.
        queued: when the pod last became active or was rejected. Pods of equal priority are ordered by this time.
        attempts: number of times that the pod was popped.
        backoff_until: the pod is not retried before this time, unless the scheduler is idle.
        rejected_by: names of the filters that rejected the pod in the last attempt.
        place: the state of the pod.
        entry: number of the pod's current entry in the heap of active pods; 0 if there is none.
        popped_at: number of events that the queue had observed when the pod was popped.
        errored: whether the last attempt ended with an error instead of a rejection.
        group: the key of the pod's group if it is unschedulable.
        counted: the scheduler name and the state for which the queue counts the pod; ``None`` if it does not.
    """

    pod: Pod
    added: float
    queued: float
    attempts: int = 0
    backoff_until: float = 0.0
    rejected_by: frozenset[str] = frozenset()
    place: Place = "active"
    entry: int = 0
    popped_at: int = 0
    errored: bool = False
    group: _Group | None = None
    counted: tuple[str, Place] | None = None


class SchedulingQueue:
    """Orders the pending pods of all profiles in one queue, as in kube-scheduler.

    Args:
        backoff: the backoff of a pod after a failed attempt.
        max_unschedulable: seconds after which an unschedulable pod is retried even without an event.
    """

    def __init__(
        self,
        *,
        backoff: Backoff = BACKOFF,
        max_unschedulable: float = MAX_UNSCHEDULABLE,
    ) -> None:
        self._backoff = backoff
        self._max_unschedulable = max_unschedulable
        self._pods: dict[str, QueuedPod] = {}
        self._counts: Counter[tuple[str, Place]] = Counter()
        # A heap of entries. If an entry's number is no longer that of the pod, the entry is skipped when it reaches the
        # top.
        self._active: list[tuple[int, float, int, str]] = []
        self._backing_off: TimerHeap[QueuedPod] = TimerHeap()
        self._entries = 0
        self._groups: dict[_Group, dict[str, QueuedPod]] = {}
        self._log: deque[ClusterEvent] = deque()
        self._logged = 0
        self._evaluated = 0
        self._in_flight: dict[str, QueuedPod] = {}
        self._missed: dict[int, _Events] = {}  # the events since a number of observed events
        self._missed_results: dict[object, tuple[Pod, bool]] = {}
        self._flushed = 0.0

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def get(self, uid: str) -> QueuedPod | None:
        """Return the queued pod with this UID, or ``None``."""
        return self._pods.get(uid)

    def count(self, scheduler: str) -> dict[Place, int]:
        """Return the number of pods in each state, as in the metric ``scheduler_pending_pods``.

        Args:
            scheduler: the ``spec.schedulerName`` of the pods.
        """
        return {place: self._counts[scheduler, place] for place in get_args(Place)}

    def add(self, pod: Pod, now: float) -> None:
        """Add a pending pod, or update a pod that is already queued.

        If the spec or the labels of an unschedulable pod have changed, the pod is requeued, because removed scheduling
        gates, or added tolerations or labels, can make it schedulable.
        """
        known = self._pods.get(pod.uid)
        if known is None:
            known = self._pods[pod.uid] = QueuedPod(pod, added=now, queued=now)
            self._activate(known)
            return
        before, known.pod = known.pod, pod
        if known.place == "unschedulable" and (before.spec is not pod.spec or before.labels != pod.labels):
            self._requeue(known, now)

    def remove(self, uid: str) -> None:
        """Remove a pod that was deleted or bound."""
        known = self._pods.pop(uid, None)
        if known is not None:
            self._withdraw(known)
            self._count(known, None)
        if not self._in_flight:
            self._forget_missed()

    def pop(self, limit: int, now: float) -> list[QueuedPod]:
        """Return the next pods to schedule, in order. Each is in flight until it is removed, rejected or retried.

        Observed events have an effect only after :meth:`evaluate`.

        If no pod is active, the scheduler would be idle. Then pods that filters have rejected are returned although
        their backoff has not ended, starting with those whose backoff ends first, as in kube-scheduler since
        v1.33.

        Args:
            limit: maximum number of pods.
            now: the current time in seconds.
        """
        for each in self._backing_off.take(now, limit=len(self._backing_off)):
            self._activate(each)
        found: list[QueuedPod] = []
        while self._active and len(found) < limit:
            *_, entry, uid = heapq.heappop(self._active)
            known = self._live(entry, uid)
            if known is not None:
                found.append(known)
        if not found:
            found = self._pop_early(limit)
        for known in found:
            self._enter(known, "in flight")
            known.attempts += 1
            known.entry = 0
            known.popped_at = self._logged
            self._in_flight[known.pod.uid] = known
        return found

    def put_back(self, queued: QueuedPod) -> None:
        """Make a pod in flight active again at its old position, because it was not evaluated."""
        if self._pods.get(queued.pod.uid) is queued and queued.place == "in flight":
            self._withdraw(queued)
            queued.attempts -= 1
            self._activate(queued)

    def reject(self, queued: QueuedPod, rejected_by: Iterable[str], now: float) -> None:
        """Record that a popped pod fits on no node. It waits for an event that can make it schedulable.

        If such an event was observed after the pod was popped, the pod backs off and is then retried.

        Args:
            queued: a pod returned by :meth:`pop`.
            rejected_by: names of the filters that rejected the pod; if empty, every event may help.
            now: the current time in seconds.
        """
        if self._pods.get(queued.pod.uid) is not queued:
            return  # deleted in the meantime
        self._withdraw(queued)
        queued.rejected_by = frozenset(rejected_by)
        queued.errored = False
        queued.queued = now
        queued.backoff_until = now + self._backoff.delay(max(queued.attempts - 1, 0))
        pod = queued.pod
        group = (id(pod.spec), pod.namespace, id(pod.labels), queued.rejected_by)
        if self._missed_help(queued, group):
            self._back_off(queued)
            return
        self._enter(queued, "unschedulable")
        queued.group = group
        self._groups.setdefault(group, {})[pod.uid] = queued

    def retry(self, queued: QueuedPod, now: float) -> None:
        """Retry a popped pod after its backoff, because an error ended the attempt or the pod could not be bound."""
        if self._pods.get(queued.pod.uid) is not queued:
            return
        self._withdraw(queued)
        queued.errored = True
        queued.queued = now
        queued.backoff_until = now + self._backoff.delay(max(queued.attempts - 1, 0))
        self._back_off(queued)

    def activate(self, uid: str, now: float) -> None:
        """Make a pod that is unschedulable or backs off active, for example because its victims have terminated."""
        known = self._pods.get(uid)
        if known is not None and known.place in ("unschedulable", "backoff"):
            self._withdraw(known)
            known.queued = now
            self._activate(known)

    def evaluate(self, now: float) -> Iterator[None]:
        """Requeue the unschedulable pods that the events since the last evaluation can make schedulable.

        The caller iterates over the steps, and may call any other method between two of them. Events that are observed
        in the meantime are evaluated by the next call. If the caller stops early, the next call repeats the
        evaluation.

        Args:
            now: the current time in seconds.

        Yields:
            After each step, which is a group of pods or a requeued pod.
        """
        until = self._logged
        if self._evaluated < until:
            events = _Events(self._events_since(self._evaluated))
            for group, pods in [*self._groups.items()]:
                first = next(iter(pods.values()), None)  # none if they have left the queue since the evaluation began
                if first is not None and events.help(first.pod, group[3]):
                    for known in [*pods.values()]:
                        if known.group == group:
                            self._requeue(known, now)
                        yield
                yield
            self._evaluated = max(self._evaluated, until)
        oldest = min((each.popped_at for each in self._in_flight.values()), default=self._logged)
        oldest = min(oldest, self._evaluated)
        while self._log and self._logged - len(self._log) < oldest:
            self._log.popleft()
        if now - self._flushed >= FLUSH_PERIOD:
            self._flushed = now
            yield from self._flush(now)

    @property
    def awaits_events(self) -> bool:
        """Whether an event can have an effect: pods are unschedulable or in flight."""
        return bool(self._groups or self._in_flight)

    def observe(self, event: ClusterEvent) -> None:
        """Record a change of the cluster. :meth:`evaluate` determines which pods it can make schedulable."""
        self._logged += 1
        self._forget_missed()
        if not self.awaits_events:
            self._log.clear()  # no pod waits for it
            self._evaluated = self._logged
            return
        self._log.append(event)
        if len(self._log) > MAX_LOG:
            self._log.popleft()

    def next_time(self, now: float) -> float | None:
        """Return the earliest time at which :meth:`evaluate` and :meth:`pop` return a pod even without an event.

        It is ``None`` if the queue is empty or all of its pods are in flight.
        """
        while self._active and self._live(*self._active[0][2:]) is None:
            heapq.heappop(self._active)
        if self._active or self._evaluated < self._logged:
            return now
        times = [] if (backed_off := self._backing_off.next_due) is None else [backed_off]
        if self._groups:
            times.append(max(self._flushed + FLUSH_PERIOD, self._oldest() + self._max_unschedulable))
        return max(now, min(times)) if times else None

    def _oldest(self) -> float:
        return min(next(iter(pods.values())).queued for pods in self._groups.values())

    def _live(self, entry: int, uid: str) -> QueuedPod | None:
        known = self._pods.get(uid)
        return known if known is not None and known.entry == entry else None

    def _activate(self, known: QueuedPod) -> None:
        self._enter(known, "active")
        self._entries += 1
        known.entry = self._entries
        heapq.heappush(self._active, (-known.pod.priority, known.queued, self._entries, known.pod.uid))

    def _back_off(self, known: QueuedPod) -> None:
        self._enter(known, "backoff")
        self._backing_off.set(known.pod.uid, known.backoff_until, known)

    def _enter(self, known: QueuedPod, place: Place) -> None:
        known.place = place
        self._count(known, (known.pod.spec.scheduler_name, place))

    def _count(self, known: QueuedPod, counted: tuple[str, Place] | None) -> None:
        """Count a pod under a new key instead of its previous one; ``None`` if the pod has left the queue."""
        if known.counted is not None:
            self._counts[known.counted] -= 1
            if not self._counts[known.counted]:
                del self._counts[known.counted]
        if counted is not None:
            self._counts[counted] += 1
        known.counted = counted

    def _requeue(self, known: QueuedPod, now: float) -> None:
        """Move an unschedulable pod to the active pods or, if its backoff has not ended, to those that back off."""
        self._withdraw(known)
        known.queued = now
        if known.backoff_until > now:
            self._back_off(known)
        else:
            self._activate(known)

    def _withdraw(self, known: QueuedPod) -> None:
        """Remove a pod from wherever it waits. Its entry in the heap of active pods becomes invalid and stays there."""
        known.entry = 0
        if known.place == "backoff":
            self._backing_off.cancel(known.pod.uid)
        self._in_flight.pop(known.pod.uid, None)
        if known.group is not None:
            pods = self._groups[known.group]
            del pods[known.pod.uid]
            if not pods:
                del self._groups[known.group]
            known.group = None

    def _pop_early(self, limit: int) -> list[QueuedPod]:
        found: list[QueuedPod] = []
        errored: list[QueuedPod] = []
        while len(found) < limit and (first := self._backing_off.take(float("inf"), limit=limit - len(found))):
            for each in first:
                (errored if each.errored else found).append(each)
        for each in errored:
            self._back_off(each)  # after an error, the backoff always applies, to spare the API server
        found.sort(key=lambda each: (-each.pod.priority, each.queued))
        return found

    def _events_since(self, number: int) -> list[ClusterEvent] | None:
        """Return the events after the first ``number`` ones; ``None`` if some of them have been dropped."""
        missed = self._logged - number
        if missed > len(self._log):
            return None
        return list(islice(reversed(self._log), missed))[::-1]

    def _forget_missed(self) -> None:
        self._missed.clear()
        self._missed_results.clear()

    def _missed_help(self, queued: QueuedPod, group: _Group) -> bool:
        """Return whether an event that can help a pod was observed after the pod was popped.

        A cycle rejects many pods of a group, so the result is cached until the next event, or until a pod is removed
        while none is in flight.
        """
        key = (*group, queued.popped_at)
        known = self._missed_results.get(key)
        if known is None:
            missed = self._missed.get(queued.popped_at)
            if missed is None:
                missed = self._missed[queued.popped_at] = _Events(self._events_since(queued.popped_at))
            # The pod keeps the spec and labels alive whose ids are part of the key.
            known = self._missed_results[key] = (queued.pod, missed.help(queued.pod, queued.rejected_by))
        return known[1]

    def _flush(self, now: float) -> Iterator[None]:
        """Requeue pods that have been unschedulable for too long, in case a hint is wrong or an event was lost."""
        for group, pods in [*self._groups.items()]:
            for known in [*pods.values()]:
                if now - known.queued < self._max_unschedulable:
                    break  # they are in the order in which they were rejected
                if known.group == group:
                    self._requeue(known, now)
                yield
            yield


def _coalesced(events: list[ClusterEvent]) -> list[ClusterEvent]:
    """Return the events; more than :data:`MAX_EVENTS` events of one kind are merged into one event without objects."""
    by_kind: dict[object, list[ClusterEvent]] = {}
    for event in events:
        by_kind.setdefault(event.kind, []).append(event)
    found: list[ClusterEvent] = []
    for alike in by_kind.values():
        if len(alike) <= MAX_EVENTS:
            found += alike
        else:
            first = alike[0]
            found.append(ClusterEvent(first.resource, first.action, first.changes))
    return found
