"""The queue of due pods and its rate limits. A pod waits for a worker, a rate limit, a retry or up-to-date caches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Final, cast

from trimtab.api.taint_manager import UserTaintRates
from trimtab.controller.metrics import QueueMetrics
from trimtab.controller.timers import Timers
from trimtab.controller.work_queue import WorkQueue
from trimtab.kube.clock import Clock
from trimtab.kube.token_bucket import KeyedTokenBuckets
from trimtab.tainting.due_pods import DuePod, QueueState, RateTokens
from trimtab.tainting.lifecycle.node_health import NO_EXECUTE_KEYS

CATCH_UP: Final = 0.1
"""Maximum delay of the event loop that a rate limit makes up for, in seconds.

It does not make up for a pause of the queue.
"""


class RateLimited:
    """The rate limits of user taints, as a rate limiter of the work queue.

    The limits apply to all pods together, to each zone and to each namespace. In any ``T`` seconds a limit admits at
    most ``rate * (T + CATCH_UP) + 1`` pods. The pods of one zone and namespace form a flow, in which the limiter admits
    them in the order of their priority.

    Args:
        spec: the rates of the TaintManager's spec.
        pods: the due pods by ``namespace/name``.
        zone_of: returns the zone of a node by its name.
        clock: the monotonic clock.
        on_held: called with each pod that a rate limit begins to delay.
    """

    def __init__(
        self,
        spec: UserTaintRates,
        *,
        pods: Mapping[str, DuePod],
        zone_of: Callable[[str], str],
        clock: Clock,
        on_held: Callable[[DuePod], None],
    ) -> None:
        self.spec = spec
        self._pods = pods
        self._zone_of = zone_of
        self._clock = clock
        self._on_held = on_held
        self._total = _buckets(spec.total)
        self._zone = _buckets(spec.per_zone)
        self._namespace = _buckets(spec.per_namespace)

    def flow_of(self, key: str) -> Hashable | None:
        """Return the flow of a pod, which is its zone and namespace; ``None`` if no rate limit applies to the pod."""
        pod, now = self._pods.get(key), self._clock.monotonic()
        if pod is None:
            return None
        if self._unlimited(pod):
            if pod.queue_state is QueueState.RATE_LIMITED:
                self._stop_holding(pod, now)
            return None
        if pod.queue_state is not QueueState.RATE_LIMITED:
            pod.queue_state, pod.held_since = QueueState.RATE_LIMITED, now
            self._on_held(pod)
        return self._zone_of(pod.deadline.node), namespace_of(key)

    def next_at(self, flow: Hashable) -> float:
        """Return the earliest time at which the limits of a flow's zone and namespace admit its next pod."""
        zone, namespace = cast("tuple[str, str]", flow)
        return max(self._zone.next_at(zone), self._namespace.next_at(namespace))

    def next_at_any_flow(self) -> float:
        """Return the earliest time at which the limit on all pods admits another pod; ``-inf`` if unset or unused."""
        return self._total.next_at("")

    def take(self, key: str, flow: Hashable, now: float) -> None:
        """Take the rate limit tokens for an admitted pod."""
        zone, namespace = cast("tuple[str, str]", flow)
        self._total.take("", now)
        self._zone.take(zone, now)
        self._namespace.take(namespace, now)
        pod = self._pods.get(key)
        if pod is not None:
            pod.rate_tokens = RateTokens(zone, namespace, now)
            self._stop_holding(pod, now)

    def return_tokens(self, paid: RateTokens) -> None:
        """Put the rate limit tokens of a pod that was not evicted back into their buckets."""
        self._total.give_back("", paid.at)
        self._zone.give_back(paid.zone, paid.at)
        self._namespace.give_back(paid.namespace, paid.at)

    def _unlimited(self, pod: DuePod) -> bool:
        if self.spec == UserTaintRates() or pod.rate_tokens is not None or pod.deadline.taint.key in NO_EXECUTE_KEYS:
            return True
        unlimited, pod.unlimited = pod.unlimited, False
        return unlimited

    def _stop_holding(self, pod: DuePod, now: float) -> None:
        pod.held += now - pod.held_since
        pod.queue_state = QueueState.READY


class DueQueue:
    """A :class:`~trimtab.controller.work_queue.WorkQueue` of due pods. All times are seconds on the monotonic clock.

    Args:
        process: processes a pod by its ``namespace/name``.
        rates: the rate limits of user taints.
        zone_of: returns the zone of a node by its name.
        unlimited_from: returns the time from which a pod is exempt from rate limits because its node has failed, in
            seconds since the epoch; ``None`` for never.
        pods: the due pods by ``namespace/name``.
        workers: number of pods that are processed concurrently.
        clock: the wall clock and the monotonic clock.
        stale: returns whether the caches are too old to act on, which pauses the queue.
        metrics: metrics of the work queue; ``None`` to export nothing.
    """

    def __init__(
        self,
        process: Callable[[str], Awaitable[None]],
        *,
        rates: UserTaintRates,
        zone_of: Callable[[str], str],
        unlimited_from: Callable[[DuePod], float | None],
        pods: Mapping[str, DuePod],
        workers: int,
        clock: Clock,
        stale: Callable[[], bool],
        metrics: QueueMetrics | None = None,
    ) -> None:
        self._zone_of = zone_of
        self._unlimited_from = unlimited_from
        self._pods = pods
        self._clock = clock
        self._unlimited_timers: Timers[DuePod] = Timers(self._lift_limit, clock)
        self._limits = self._rate_limited(rates)
        self._queue = WorkQueue(
            process,
            workers=workers,
            clock=clock,
            group_of=namespace_of,
            priority_of=self._priority,
            rate_limiter=self._limits,
            paused=stale,
            metrics=metrics,
        )

    @property
    def held(self) -> int:
        """Return the number of pods that a rate limit delays."""
        return self._queue.statistics().rate_limited

    @property
    def processing(self) -> int:
        """Return the number of pods that workers are processing."""
        return self._queue.statistics().processing

    def add(self, pod: DuePod) -> None:
        """Queue a pod, which is processed as soon as a worker is free and the rate limits admit it."""
        key = pod.deadline.key
        pod.queue_state = QueueState.READY
        self._queue.discard(key)
        self._queue.add(key)

    def update_unlimited_from(self, pod: DuePod) -> None:
        """Update the time from which a rate-limited pod is exempt from rate limits."""
        at = self._unlimited_from(pod)
        if at is None:
            self._unlimited_timers.cancel(pod.deadline.key)
        else:
            self._unlimited_timers.set(pod.deadline.key, at, pod)

    def requeue_at(self, pod: DuePod, at: float) -> None:
        """Process a pod again at the time ``at``."""
        pod.retry_at = at
        self._queue.reschedule(pod.deadline.key, at - self._clock.monotonic())

    def remove(self, pod: DuePod) -> None:
        """Remove a pod from the queue without returning its rate limit tokens."""
        self._unlimited_timers.cancel(pod.deadline.key)
        self._queue.discard(pod.deadline.key)

    def return_tokens(self, pod: DuePod) -> None:
        """Give back the rate limit tokens of a pod that was not evicted."""
        if pod.rate_tokens is not None:
            self._limits.return_tokens(pod.rate_tokens)
            pod.rate_tokens = None
            self._queue.wake()

    def set_rates(self, rates: UserTaintRates) -> None:
        """Apply new rate limits. Pods that are already rate-limited keep their order."""
        if rates != self._limits.spec:
            self._limits = self._rate_limited(rates)
            self._queue.set_rate_limiter(self._limits)

    async def run(self) -> None:
        """Process pods until cancelled."""
        await self._queue.run()

    async def run_timers(self) -> None:
        """Lift the rate limits for each pod on a failed node once the node's taint makes the pod due.

        Runs until cancelled.
        """
        await self._unlimited_timers.run()

    async def drain(self, seconds: float) -> bool:
        """Start no further pod, wait for the workers, and return whether all of them finished within ``seconds``."""
        return await self._queue.drain(seconds)

    def _lift_limit(self, pod: DuePod) -> None:
        if self._pods.get(pod.deadline.key) is pod and pod.queue_state is QueueState.RATE_LIMITED:
            pod.unlimited = True
            self._queue.discard(pod.deadline.key)
            self._queue.add(pod.deadline.key)

    def _rate_limited(self, rates: UserTaintRates) -> RateLimited:
        return RateLimited(
            rates, pods=self._pods, zone_of=self._zone_of, clock=self._clock, on_held=self.update_unlimited_from
        )

    def _priority(self, key: str) -> float:
        """Return the priority of a pod, which is its due time.

        Pods with a refused attempt come after pods without an attempt.
        """
        pod = self._pods.get(key)
        return 0.0 if pod is None else self._clock.now() if pod.attempts else pod.deadline.due


def namespace_of(key: str) -> str:
    """Return the namespace part of a pod key ``namespace/name``."""
    return key.partition("/")[0]


def _buckets(rate: float | None) -> KeyedTokenBuckets[str]:
    return KeyedTokenBuckets(rate, burst=1.0 if rate is None else 1.0 + CATCH_UP * rate)
