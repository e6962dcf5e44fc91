"""Reports what the scheduler does with pods: events, the condition PodScheduled, metrics and log lines.

    reporter = SchedulerReporter(conditions, recorder, SchedulerMetrics(registry), clock)
    informers.subscribe(PODS, reporter.pod_changed)
    reporter.start(tasks)                                      # sends what was reported, in tasks of the controller
    reporter.scheduled(pod, "n1", attempts=1, seconds=0.02, attempt_seconds=0.01)    # returns at once

Bindings have precedence over reports. The methods that the cycle calls only count and store the latest report of each
pod. Events are sent at a rate that leaves capacity for those of other controllers, conditions by a work queue with its
own rate limit; namespaces take turns in both, so that the pods of one namespace do not delay the reports of others.
A report that a newer one of the same pod replaces is never sent.

The names of events, conditions and their reasons are those of kube-scheduler, because autoscalers and other tools read
them.
"""

from __future__ import annotations

import functools
import logging
from collections import Counter as Tally
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping
from typing import Final

from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from trimtab.api import reasons
from trimtab.api.bounds import without_numbers
from trimtab.api.plan import rfc3339
from trimtab.api.scheduler_policy import MAX_REASONS, QueueCounts, SchedulingCounts, UnschedulableReason
from trimtab.controller.loop import TaskSupervisor
from trimtab.controller.metrics import QueueMetrics
from trimtab.controller.reporter import LabeledGauge, pod_fields, report_safely
from trimtab.controller.work_queue import Retry, WorkQueue
from trimtab.kube import verbs
from trimtab.kube.api import Api, ApiError, Conflict, NotFound, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.events.event import NORMAL, WARNING, Occurrence, RecentlyReported, truncate
from trimtab.kube.events.paced import PacedEvents
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.objects import Pod, PodCondition
from trimtab.kube.resources import PODS, ObjectReference, pod_reference
from trimtab.kube.retry import Backoff
from trimtab.kube.token_bucket import ALWAYS, TokenBucket
from trimtab.scheduling.planner import Reject, scheduler_of

log = logging.getLogger(__name__)

POD_SCHEDULED: Final = "PodScheduled"
GATED_MESSAGE: Final = "Scheduling is blocked due to non-empty scheduling gates"
"""The message of the condition that the API server sets on a pod with scheduling gates."""

MAX_CONDITION_BYTES: Final = 4096
"""Maximum length of the condition's message. It contains names that users choose, such as keys of taints."""


@functools.lru_cache(maxsize=256)
def _kind_of(message: str) -> str:
    """Return the message with its numbers removed.

    The result is cached, because many pods share the messages of a cycle. The cache is small, because tenants can make
    messages as long as some kilobytes. Therefore, whatever processes the messages of all pods stores the results.
    """
    return without_numbers(message)


# --- metrics ----------------------------------------------------------------------------------------------------------

_ATTEMPT_SECONDS: Final = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096)
_POD_SECONDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84)
_ATTEMPTS: Final = (1, 2, 4, 8, 16)
_VICTIMS: Final = (1, 2, 4, 8, 16, 32, 64)

MAX_ATTEMPTS_LABEL: Final = 15
"""Pods with this number of attempts or more share a label, as in kube-scheduler."""

SCHEDULED: Final = "scheduled"
UNSCHEDULABLE: Final = "unschedulable"
ERROR: Final = "error"
"""The values of the label ``result``."""


class SchedulerMetrics:
    """The scheduler's metrics. They have kube-scheduler's names and labels, with the prefix ``trimtab_``.

    The label ``profile`` is the scheduler name of a SchedulerPolicy.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.attempts = Counter(
            "trimtab_scheduler_schedule_attempts",
            "Attempts to schedule pods, by result: scheduled, unschedulable (the pod fits on no node) or error.",
            ["result", "profile"],
            registry=registry,
        )
        self.attempt_seconds = Histogram(
            "trimtab_scheduler_scheduling_attempt_duration_seconds",
            "Duration of a scheduling attempt in seconds, without binding the pod.",
            ["result", "profile"],
            buckets=_ATTEMPT_SECONDS,
            registry=registry,
        )
        self.pod_seconds = Histogram(
            "trimtab_scheduler_pod_scheduling_sli_duration_seconds",
            "Seconds from the time at which a pod was queued to its binding, by number of attempts.",
            ["attempts"],
            buckets=_POD_SECONDS,
            registry=registry,
        )
        self.pod_attempts = Histogram(
            "trimtab_scheduler_pod_scheduling_attempts",
            "Number of attempts to schedule a pod that was bound.",
            buckets=_ATTEMPTS,
            registry=registry,
        )
        self.pending = LabeledGauge(
            "trimtab_scheduler_pending_pods",
            "Pending pods by queue: active, backoff, unschedulable or gated.",
            ("queue",),
            registry,
        )
        self.preemptions = Counter(
            "trimtab_scheduler_preemption_attempts",
            "Preemptions for which a node was selected.",
            registry=registry,
        )
        self.victims = Histogram(
            "trimtab_scheduler_preemption_victims",
            "Number of victims of a preemption.",
            buckets=_VICTIMS,
            registry=registry,
        )
        self.dropped = Gauge(
            "trimtab_scheduler_dropped_events",
            "Number of events about pods that the process has dropped since it started, because too many were queued.",
            registry=registry,
        )
        self._bound: dict[int, Histogram] = {}

    @functools.lru_cache(maxsize=256)  # noqa: B019 - there is one instance per process
    def attempt(self, result: str, profile: str) -> Counter:
        """Return the counter of attempts with a result."""
        return self.attempts.labels(result, profile)

    def count_bound(self, profile: str, attempts: int, seconds: float, attempt_seconds: float) -> None:
        """Count a pod that was bound."""
        self.attempt(SCHEDULED, profile).inc()
        self.attempt_seconds.labels(SCHEDULED, profile).observe(attempt_seconds)
        self.pod_attempts.observe(attempts)
        number = min(attempts, MAX_ATTEMPTS_LABEL)
        child = self._bound.get(number)
        if child is None:
            label = f"{number}+" if number == MAX_ATTEMPTS_LABEL else str(number)
            child = self._bound[number] = self.pod_seconds.labels(label)
        child.observe(seconds)

    def count_rejected(self, reject: Reject, profile: str, seconds: float) -> None:
        """Count a pod that fits on no node, and its preemption."""
        self.attempt(UNSCHEDULABLE, profile).inc()
        self.attempt_seconds.labels(UNSCHEDULABLE, profile).observe(seconds)
        if reject.preemption is not None:
            self.preemptions.inc()
            self.victims.observe(len(reject.preemption.victims))

    def show_pending(self, counts: QueueCounts) -> None:
        """Update the gauges of pending pods."""
        self.pending.set(
            {
                ("active",): counts.active,
                ("backoff",): counts.backoff,
                ("unschedulable",): counts.unschedulable,
                ("gated",): counts.gated,
            }
        )


# --- the condition PodScheduled ---------------------------------------------------------------------------------------

PATCHES_PER_SECOND: Final = 200.0
PATCHES_BURST: Final = 400.0
"""Rate limit of conditions.

With this limit, an API server that binds 2,500 pods per second spends a tenth of its time on conditions.
"""

PATCH_WORKERS: Final = 8
PATCH_TIMEOUT: Final = 10.0
PATCH_RETRY: Final = Backoff(initial=0.5, maximum=30.0)

SAME_MESSAGE_PERIOD: Final = 60.0
"""Minimum seconds between two writes of a condition if only the numbers in its message have changed.

In a busy cluster, the numbers of nodes differ in every attempt.
"""

WAITING_DELAY: Final = 5.0
"""Seconds after which the condition of a pod shows that the pod waits for terminating victims.

Most victims have ended by then, and the pod is bound.
"""

NOMINATION_DELAY: Final = 1.0
"""Seconds after which the condition of a preemptor is written, unless its nomination has written the condition.

The nomination omits it if the pod has changed. Until then the watch reports the nomination.
"""

CONFLICT_DELAY: Final = 0.5
"""Seconds after which a condition is written again if the pod has changed. Until then the watch reports the change."""

FAILURE_LOG_PERIOD: Final = 60.0


class _Condition(Struct, frozen=True, gc=False):
    """The condition PodScheduled=False that a pod should have."""

    key: str
    reason: str
    message: str


class _PatchRate:
    """Limits the rate of all patches together. Namespaces take turns (see ``RateLimiter``)."""

    def __init__(self, clock: Clock, wanted: Mapping[str, _Condition]) -> None:
        self._bucket = TokenBucket(rate=PATCHES_PER_SECOND, burst=PATCHES_BURST, now=clock.monotonic())
        self._wanted = wanted

    def flow_of(self, key: str) -> Hashable:
        wanted = self._wanted.get(key)
        return "" if wanted is None else wanted.key.partition("/")[0]

    def next_at(self, flow: Hashable) -> float:  # noqa: ARG002 - namespaces have no limit of their own
        return ALWAYS

    def next_at_any_flow(self) -> float:
        return self._bucket.next_at()

    def take(self, key: str, flow: Hashable, now: float) -> None:  # noqa: ARG002
        self._bucket.take(now)


class PodConditionWriter:
    """Writes the condition PodScheduled of pods that could not be scheduled.

    A condition is written only if it has changed, and never to a pod that has changed since the watch last reported
    it. So a late write cannot reset the condition of a pod that has just been bound.

    Args:
        api: the API client.
        pod_of: returns the pod with a key ``namespace/name`` as the watch last reported it.
        clock: provides the time.
        metrics: the metrics of the work queue.
    """

    def __init__(
        self, api: Api, pod_of: Callable[[str], Pod | None], clock: Clock, *, metrics: QueueMetrics | None = None
    ) -> None:
        self._api = api
        self._pod_of = pod_of
        self._clock = clock
        self._wanted: dict[str, _Condition] = {}
        self._written = RecentlyReported(window=SAME_MESSAGE_PERIOD)
        self._failure_logged = -FAILURE_LOG_PERIOD
        self._queue = WorkQueue(
            self._write,
            workers=PATCH_WORKERS,
            clock=clock,
            retry=PATCH_RETRY,
            retries_per_second=PATCHES_PER_SECOND,
            rate_limiter=_PatchRate(clock, self._wanted),
            metrics=metrics,
        )

    def __len__(self) -> int:
        return len(self._wanted)

    async def run(self) -> None:
        """Write conditions until cancelled."""
        await self._queue.run()

    def put(self, pod: Pod, reason: str, message: str, *, after: float = 0.0) -> None:
        """Set the desired condition of a pod. It replaces the previous desired condition.

        Args:
            pod: the pod.
            reason: the reason of the condition.
            message: the message of the condition.
            after: seconds after which the condition is written, unless it is discarded or replaced before.
        """
        current = _pod_scheduled(self._pod_of(pod.key) or pod)
        same_reason = current is not None and current.status == "False" and current.reason == reason
        message = truncate(message, MAX_CONDITION_BYTES)
        if same_reason and current is not None and current.message == message and pod.uid not in self._wanted:
            return
        self._wanted[pod.uid] = _Condition(pod.key, reason, message)
        if same_reason and not self._written.is_new(pod.uid, _kind_of(message), now=self._clock.monotonic()):
            due = self._written.last(pod.uid) + SAME_MESSAGE_PERIOD
            self._queue.add_after(pod.uid, due - self._clock.monotonic())
        elif after:
            self._queue.add_after(pod.uid, after)
        else:
            self._queue.add(pod.uid)

    def discard(self, uid: str) -> None:
        """Discard the desired condition of a pod that was bound or deleted."""
        if self._wanted.pop(uid, None) is not None:
            self._queue.discard(uid)

    async def _write(self, uid: str) -> float | Retry | None:
        wanted = self._wanted.get(uid)
        if wanted is None:
            return None
        pod = self._pod_of(wanted.key)
        if pod is None or pod.uid != uid or pod.node or pod.deleted is not None or pod.terminal:
            self._wanted.pop(uid, None)
            return None
        condition = pod_scheduled_false(pod, wanted.reason, wanted.message, self._clock.now())
        if condition is not None:
            try:
                await self._patch(pod, condition)
            except NotFound:
                pass
            except Conflict:
                return CONFLICT_DELAY
            except (ApiError, Unreachable) as error:
                self._log_failure(pod, error)
                retry_after = error.retry_after if isinstance(error, ApiError) else None
                return Retry(at_least=retry_after or 0.0)
        if self._wanted.get(uid) is wanted:  # otherwise the queue contains the pod again
            del self._wanted[uid]
        self._written.note(uid, _kind_of(wanted.message), now=self._clock.monotonic())
        return None

    async def _patch(self, pod: Pod, condition: dict[str, str]) -> None:
        await verbs.patch_conditions(
            self._api,
            PODS,
            pod.name,
            [condition],
            namespace=pod.namespace,
            uid=pod.uid,
            resource_version=pod.resource_version,
            timeout=PATCH_TIMEOUT,
        )

    def _log_failure(self, pod: Pod, error: Exception) -> None:
        now = self._clock.monotonic()
        if now - self._failure_logged >= FAILURE_LOG_PERIOD:
            self._failure_logged = now
            log.warning("Failed to write the PodScheduled condition of pod %s; retrying: %s", pod.key, error)


def pod_scheduled_false(pod: Pod, reason: str, message: str, now: float) -> dict[str, str] | None:
    """Return the condition PodScheduled=False for a strategic merge patch of a pod; ``None`` if the pod has it already.

    Args:
        pod: the pod as the watch last reported it.
        reason: the reason of the condition.
        message: the message of the condition.
        now: the time in seconds since the epoch.
    """
    current = _pod_scheduled(pod)
    message = truncate(message, MAX_CONDITION_BYTES)
    condition = {"type": POD_SCHEDULED, "status": "False", "reason": reason, "message": message}
    if current is None or current.status != "False":
        condition["lastTransitionTime"] = rfc3339(now)
    elif (current.reason, current.message) == (reason, message):
        return None
    return condition


def _pod_scheduled(pod: Pod) -> PodCondition | None:
    return next((each for each in pod.conditions if each.type == POD_SCHEDULED), None)


# --- events -----------------------------------------------------------------------------------------------------------

DRAIN_PERIOD: Final = 0.2
"""Seconds between two checks for queued events."""

MAX_SKIPPED: Final = 1_000
"""Maximum number of repetitions, which are not sent, that one check skips."""

MAX_EVENTS: Final = 20_000
MAX_NAMESPACE_EVENTS: Final = 2_000
"""Maximum numbers of queued events. If there are more, the oldest of the namespace are dropped."""


class _Event(Struct, frozen=True, gc=False):
    """A queued event on a pod. It refers to no Pod, whose spec would be kept after the pod was deleted.

    If ``kind`` is set, the event is not sent shortly after another one of the same kind on the same pod.
    """

    pod: ObjectReference
    node: str
    reason: str
    action: str
    note: str
    type: str = NORMAL
    related: ObjectReference | None = None
    kind: str = ""


class EventBacklog:
    """The queued events: the latest one of each pod. Namespaces take turns.

    Attributes:
        dropped: number of events that were dropped because too many were queued.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._number = 0
        self._queued: dict[str, OrderedDict[str, _Event]] = {}
        self._turns: deque[str] = deque()

    def __len__(self) -> int:
        return self._number

    def put(self, event: _Event) -> None:
        """Queue an event. It replaces a queued event on the same pod."""
        namespace, uid = event.pod.namespace, event.pod.uid
        queued = self._queued.get(namespace)
        if queued is None:
            queued = self._queued[namespace] = OrderedDict()
            self._turns.append(namespace)
        if uid in queued:
            queued[uid] = event  # it keeps its position
            return
        if len(queued) >= MAX_NAMESPACE_EVENTS or (self._number >= MAX_EVENTS and queued):
            queued.popitem(last=False)
            self._number -= 1
            self.dropped += 1
        elif self._number >= MAX_EVENTS:
            self.dropped += 1
            return
        queued[uid] = event
        self._number += 1

    def pop(self) -> _Event | None:
        """Return the next event, or ``None`` if there is none."""
        while self._turns:
            namespace = self._turns.popleft()
            queued = self._queued[namespace]
            if not queued:
                del self._queued[namespace]
                continue
            self._turns.append(namespace)
            self._number -= 1
            return queued.popitem(last=False)[1]
        return None


# --- the reporter -----------------------------------------------------------------------------------------------------


class _Totals(Struct):
    """The totals of this process for one scheduler name."""

    scheduled: int = 0
    rejected: int = 0
    preempted: int = 0
    binding_failures: int = 0


class _Rejected(Struct, frozen=True, gc=False):
    """An unschedulable pod, for the status of its SchedulerPolicy. The kind is the message without its numbers."""

    scheduler: str
    message: str
    kind: str
    key: str


class SchedulerReporter:
    """Reports decisions and bindings (:class:`~trimtab.scheduling.dependencies.SchedulingReporter`).

    Args:
        conditions: writes the condition PodScheduled.
        recorder: posts events.
        metrics: the scheduler's metrics.
        clock: provides the time.
    """

    def __init__(
        self, conditions: PodConditionWriter, recorder: Recorder, metrics: SchedulerMetrics, clock: Clock
    ) -> None:
        self._conditions = conditions
        self._metrics = metrics
        self._clock = clock
        self._backlog = EventBacklog()
        self._paced = PacedEvents(recorder, clock, self._next_event)
        self._skips_left = MAX_SKIPPED
        self._reported = RecentlyReported()
        self._totals: dict[str, _Totals] = {}
        self._rejected: dict[str, _Rejected] = {}
        self._kinds: dict[str, Tally[str]] = {}

    def start(self, tasks: TaskSupervisor) -> None:
        """Start to send events and to write conditions. Reports that are still queued at the end are dropped."""
        tasks.start("pod conditions", self._conditions.run)
        tasks.start_periodic("events", self._send_events, DRAIN_PERIOD)

    async def _send_events(self) -> None:
        self._skips_left = MAX_SKIPPED
        with report_safely("events"):
            self._paced.send()

    # --- called by the cycle, the binder and the preemptor ----------------------------------------------------------

    def scheduled(self, pod: Pod, node: str, *, attempts: int, seconds: float, attempt_seconds: float) -> None:
        """See :meth:`~trimtab.scheduling.dependencies.SchedulingReporter.scheduled`."""
        scheduler = scheduler_of(pod)
        self._totals_of(scheduler).scheduled += 1
        self._metrics.count_bound(scheduler, attempts, seconds, attempt_seconds)
        self._conditions.discard(pod.uid)
        self._forget(pod.uid)
        note = f"Successfully assigned {pod.key} to {node}"
        self._put_event(pod, reasons.SCHEDULED, "Binding", note)

    def rejected(self, reject: Reject, *, seconds: float) -> None:
        """See :meth:`~trimtab.scheduling.dependencies.SchedulingReporter.rejected`."""
        pod, message = reject.pod, reject.message
        scheduler = scheduler_of(pod)
        self._totals_of(scheduler).rejected += 1
        self._metrics.count_rejected(reject, scheduler, seconds)
        kind = self._remember(pod, scheduler, message)
        if reject.preemption is None:
            waits = bool(pod.nominated_node) and not reject.clears_nomination
            self._conditions.put(pod, reasons.UNSCHEDULABLE, message, after=WAITING_DELAY if waits else 0.0)
        else:  # the request that nominates the pod writes the condition, too
            self._conditions.discard(pod.uid)
            self._conditions.put(pod, reasons.UNSCHEDULABLE, message, after=NOMINATION_DELAY)
        self._put_event(pod, reasons.FAILED_SCHEDULING, "Scheduling", message, WARNING, kind=kind)

    def failed(self, pod: Pod, node: str, message: str) -> None:
        """See :meth:`~trimtab.scheduling.dependencies.SchedulingReporter.failed`."""
        scheduler = scheduler_of(pod)
        if node:
            self._totals_of(scheduler).binding_failures += 1
        self._metrics.attempt(ERROR, scheduler).inc()
        self._forget(pod.uid)
        self._conditions.put(pod, reasons.SCHEDULER_ERROR, message)
        self._put_event(pod, reasons.FAILED_SCHEDULING, "Scheduling", message, WARNING, kind=_kind_of(message))

    def gated(self, pod: Pod) -> None:
        """See :meth:`~trimtab.scheduling.dependencies.SchedulingReporter.gated`."""
        self._conditions.put(pod, reasons.SCHEDULING_GATED, GATED_MESSAGE)

    def preempted(self, victim: Pod, preemptor: Pod, node: str) -> None:
        """See :meth:`~trimtab.scheduling.dependencies.SchedulingReporter.preempted`."""
        self._totals_of(scheduler_of(preemptor)).preempted += 1
        note = f"Preempted by pod {preemptor.uid} on node {node}"
        self._put_event(victim, reasons.PREEMPTED, "Preempting", note, related=_reference_to(preemptor))

    # --- called by the informer of pods -----------------------------------------------------------------------------

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Forget a pod that was deleted or that another process has bound."""
        if old is None:
            return
        if self._rejected and (new is None or new.node):
            self._forget(old.uid)
        if new is None:
            self._conditions.discard(old.uid)

    # --- read by the controllers of SchedulerPolicies ---------------------------------------------------------------

    def counts(self, scheduler: str) -> SchedulingCounts:
        """Return the totals of this process for a scheduler name, such as the number of bound pods."""
        totals = self._totals.get(scheduler, _Totals())
        return SchedulingCounts(totals.scheduled, totals.rejected, totals.preempted, totals.binding_failures)

    def unschedulable(self, scheduler: str) -> tuple[UnschedulableReason, ...]:
        """Return the most frequent reasons why pods are unschedulable, with the number of pods and an example.

        Messages that differ only in numbers are grouped as one reason.
        """
        pods = self._kinds.get(scheduler, Tally[str]())
        shown = sorted(pods.items(), key=lambda item: (-item[1], item[0]))[:MAX_REASONS]
        missing = {kind for kind, _ in shown}
        examples: dict[str, _Rejected] = {}
        for each in self._rejected.values():
            if not missing:
                break
            if each.scheduler == scheduler and each.kind in missing:
                missing.remove(each.kind)
                examples[each.kind] = each
        return tuple(
            UnschedulableReason(truncate(examples[kind].message, 1000), number, examples[kind].key)
            for kind, number in shown
        )

    def show_pending(self, counts: QueueCounts) -> None:
        """Export the numbers of pending pods of all schedulers together."""
        self._metrics.show_pending(counts)
        self._metrics.dropped.set(self._backlog.dropped)

    def _totals_of(self, scheduler: str) -> _Totals:
        totals = self._totals.get(scheduler)
        if totals is None:
            totals = self._totals[scheduler] = _Totals()
        return totals

    def _remember(self, pod: Pod, scheduler: str, message: str) -> str:
        """Remember an unschedulable pod, and return the kind of the message."""
        known = self._rejected.get(pod.uid)
        if known is not None:
            if known.message == message:
                return known.kind
            self._forget(pod.uid)
        kind = _kind_of(message)
        self._rejected[pod.uid] = _Rejected(scheduler, message, kind, pod.key)
        self._kinds.setdefault(scheduler, Tally())[kind] += 1
        return kind

    def _forget(self, uid: str) -> None:
        known = self._rejected.pop(uid, None)
        if known is None:
            return
        kinds = self._kinds[known.scheduler]
        kinds[known.kind] -= 1
        if not kinds[known.kind]:
            del kinds[known.kind]

    def _put_event(
        self,
        pod: Pod,
        reason: str,
        action: str,
        note: str,
        type: str = NORMAL,  # noqa: A002  the API's own name
        *,
        related: ObjectReference | None = None,
        kind: str = "",
    ) -> None:
        self._backlog.put(_Event(_reference_to(pod), pod.node, reason, action, note, type, related, kind))

    def _next_event(self) -> Occurrence | None:
        """Remove and return the next event, without those that were reported recently."""
        now = self._clock.monotonic()
        while self._skips_left and (event := self._backlog.pop()) is not None:
            if event.kind and not self._reported.first(event.pod.uid, event.kind, now=now):
                self._skips_left -= 1
                continue
            return self._occurrence(event)
        return None

    def _occurrence(self, event: _Event) -> Occurrence:
        pod = event.pod
        key = f"{pod.namespace}/{pod.name}"
        fields = pod_fields(key, pod.uid, event.node)
        log.info("Emitted event %s about pod %s: %s", event.reason, key, event.note, extra=fields)
        return Occurrence(
            regarding=pod,
            reason=event.reason,
            action=event.action,
            note=event.note,
            type=event.type,
            related=event.related,
        )


def _reference_to(pod: Pod) -> ObjectReference:
    return pod_reference(pod.key, pod.uid)
