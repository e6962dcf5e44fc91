"""The scheduler: takes pending pods from the queue, plans them in batches, and binds them while it plans the next ones.

One loop schedules the pods of all SchedulerPolicies in one queue, so that priorities hold across policies. A plan runs
in a thread on the shared snapshot, and its placements are kept there: a placed pod is assumed to be on its node until
the watch reports it or its binding fails (:mod:`trimtab.cluster.own_writes`). Nothing is stored outside of the API
server. After a restart, the next process reads the pods that were bound, and schedules the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import compress
from time import perf_counter
from typing import Final

from trimtab.api.scheduler_policy import QueueCounts
from trimtab.cluster.own_writes import Assumption
from trimtab.cluster.shared_snapshot import in_thread
from trimtab.cluster.snapshot import Snapshot
from trimtab.controller.loop import Loop, TaskSupervisor
from trimtab.kube.objects import Pod
from trimtab.kube.time_slice import run_in_slices
from trimtab.placement.placer import Placer
from trimtab.placement.registry import Profile
from trimtab.scheduling.binder import Binder, Binding
from trimtab.scheduling.consultations import Consultations
from trimtab.scheduling.dependencies import SchedulerDependencies
from trimtab.scheduling.extenders import ExtenderChain
from trimtab.scheduling.pending_pods import PendingPods
from trimtab.scheduling.planner import Bind, CyclePlanner, Decision, Reject, batch_order, scheduler_of
from trimtab.scheduling.preemption import Preemption
from trimtab.scheduling.queue import QueuedPod, SchedulingQueue
from trimtab.scheduling.queueing_hints import ClusterEvent

log = logging.getLogger(__name__)

MAX_BINDINGS: Final = 512
"""Maximum number of pods that are placed but not bound yet.

With more, decisions would use an older state of the cluster.
"""

MIN_ROOM: Final = MAX_BINDINGS // 4
"""Minimum number of free bindings at which the next batch is planned, so that a busy scheduler plans in batches."""

MAX_CONSULTATIONS: Final = 64
"""Maximum number of pods about which extenders are asked at the same time. Other pods back off.

With 5,000 nodes, each request takes up to half a megabyte for the names of nodes.
"""

PLAN_SECONDS: Final = 0.2
"""Seconds after which a plan ends early. Until it ends, no other controller can use the snapshot, and bindings wait."""

MIN_PAUSE: Final = 0.001
"""Shortest pause in seconds if no pod is due yet, so that rounded times cannot make the loop spin."""

STALE_PAUSE: Final = 0.2
"""Seconds between two checks of whether stale caches are up to date again."""

STOP_TIMEOUT: Final = 12.0
"""Seconds that in-flight bindings and evictions have to finish when the process ends."""


class PlanError(Exception):
    """The plan of a batch failed because of one pod. The snapshot is unchanged.

    Attributes:
        number: position of the pod in the batch.
    """

    def __init__(self, number: int, cause: Exception) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.number = number


class Scheduler(Loop):
    """Schedules the pods of all valid SchedulerPolicies.

    Args:
        dependencies: the dependencies of the scheduler.
    """

    def __init__(self, dependencies: SchedulerDependencies) -> None:
        super().__init__("scheduler", dependencies.clock)
        self._dependencies = dependencies
        self._clock = dependencies.clock
        self._reporter = dependencies.reporter
        self._queue = SchedulingQueue()
        self._profiles: dict[str, Profile] = {}
        self._placers: dict[str, Placer] = {}
        self._planner: CyclePlanner | None = None
        self._extenders = Consultations(answered=self._extenders_answered, failed=self._extenders_failed)
        self._pods = PendingPods(self._queue, dependencies, wake=self.wake, left=self._extenders.forget)
        self._binder = Binder(
            dependencies, bound=self._bound, failed=self._binding_failed, extenders=self._extenders.chain
        )
        self._preemptor = dependencies.preemptor(self._binder.cancel)
        self._preempting: dict[str, Preemption] = {}
        self._tasks = TaskSupervisor("scheduler", dependencies.clock)

    # --- life cycle and profiles ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start scheduling in the background."""
        self._pods.subscribe()
        self._reporter.start(self._tasks)
        self._tasks.start("cycles", self._iterate_until_closed)

    async def stop(self) -> None:
        """Finish the plan and the bindings in flight. Pods whose bindings have not been sent stay pending."""
        self._pods.unsubscribe()
        await self._tasks.end("cycles", self._close, seconds=STOP_TIMEOUT)
        executors = (self._binder, self._preemptor, self._extenders)
        await asyncio.gather(*(each.stop(STOP_TIMEOUT) for each in executors))
        await self._tasks.cancel()

    def set_profile(self, scheduler: str, profile: Profile, extenders: ExtenderChain | None = None) -> None:
        """Schedule the pods of a scheduler name with these filters, scores and extenders from the next cycle on."""
        self._profiles[scheduler] = profile
        self._extenders.use(scheduler, extenders)
        self._drop_placer(scheduler)
        self._pods.serve(scheduler)
        self.wake()

    def remove_profile(self, scheduler: str, profile: Profile | None = None) -> None:
        """Stop scheduling the pods of a scheduler name. Bindings in flight are finished.

        Args:
            scheduler: the scheduler name.
            profile: the profile to remove; no-op if a different profile has been set. ``None`` to remove any profile.
        """
        if profile is not None and self._profiles.get(scheduler) is not profile:
            return
        self._profiles.pop(scheduler, None)
        self._extenders.use(scheduler, None)
        self._drop_placer(scheduler)
        self._pods.abandon(scheduler)

    def queue_counts(self, scheduler: str) -> QueueCounts:
        """Return the number of pending pods of a scheduler name by their state."""
        counts = self._pods.counts()
        self._reporter.show_pending(_sum(counts.values()))
        return counts.get(scheduler, QueueCounts())

    def _drop_placer(self, scheduler: str) -> None:
        """Discard the placer of a profile that has changed, and everything that depends on the placer."""
        self._placers.pop(scheduler, None)
        self._planner = None

    async def _close(self) -> None:
        self.close()

    # --- the cycle ------------------------------------------------------------------------------------------------

    async def _iterate(self) -> float | None:
        # 1. Wait while the caches are stale, or while many bindings are in progress: the binder wakes the loop.
        if self._dependencies.stale() is not None:
            return STALE_PAUSE
        if self._room() < MIN_ROOM:
            return None
        if (pause := self._pause()) is None or pause > 0.0:
            return pause
        async with self._dependencies.shared.borrow() as snapshot:
            # 2. Requeue the pods that events can help, and take the next ones. The snapshot now agrees with the caches
            # that the queue follows.
            await run_in_slices(self._queue.evaluate(self._clock.monotonic()))
            batch = self._queue.pop(self._room(), self._clock.monotonic())
            if not batch:
                return self._pause()
            batch.sort(key=lambda queued: batch_order(queued.pod))
            began = perf_counter()
            # 3. Place them in a thread, and keep the placements in the snapshot.
            try:
                batch = await self._ask_extenders(snapshot, batch)
                decisions = await self._plan(snapshot, batch)
            except Exception:
                self._retry(batch)
                raise
            seconds = perf_counter() - began
            bindings = [
                self._assume(snapshot, queued, decision, seconds)
                for queued, decision in zip(batch, decisions, strict=False)
                if isinstance(decision, Bind)
            ]
            for decision in decisions:
                self._extenders.forget(decision.pod.uid)
        # 4. Bind in the background.
        for binding in bindings:
            self._binder.start(binding)
        # 5. Plan the pods that were not reached next. Report the pods that fit on no node, and start their preemptions.
        for queued in batch[len(decisions) :]:
            self._queue.put_back(queued)
        await run_in_slices(self._reject_all(batch, decisions, seconds))
        return self._pause()

    async def _failed(self, error: Exception) -> float:
        del error  # it is logged already, and the pods of a failed plan are back in the queue
        return 1.0

    def _retry(self, batch: Iterable[QueuedPod]) -> None:
        """Retry a batch after an error that none of its pods caused. Otherwise the pods would stay in flight."""
        for queued in batch:
            if queued.place == "in flight":
                self._queue.retry(queued, self._clock.monotonic())

    def _room(self) -> int:
        return MAX_BINDINGS - self._binder.in_progress

    def _pause(self) -> float | None:
        """Return the seconds until the queue has a pod to schedule; ``None`` if only an event can change that."""
        now = self._clock.monotonic()
        due = self._queue.next_time(now)
        if due is None or due <= now:
            return None if due is None else 0.0
        return max(due - now, MIN_PAUSE)

    async def _ask_extenders(self, snapshot: Snapshot, batch: list[QueuedPod]) -> list[QueuedPod]:
        """Start asking the extenders about pods of a batch, and return the other pods, which can be planned now."""
        asked = [queued for queued in batch if self._extenders.must_ask(queued.pod)]
        if not asked:
            return batch
        room = max(MAX_CONSULTATIONS - self._extenders.in_progress, 0)
        for queued in asked[room:]:
            self._queue.retry(queued, self._clock.monotonic())
        self._make_placers(snapshot)
        find = partial(feasible_nodes, snapshot, dict(self._placers), [queued.pod for queued in asked[:room]])
        for queued, names in zip(asked[:room], await in_thread(find), strict=True):
            self._extenders.ask(queued, names)
        uids = {queued.pod.uid for queued in asked}
        # Without those that left the queue in the meantime, because they were deleted or their profile was removed.
        left = (queued for queued in batch if self._queue.get(queued.pod.uid) is queued)
        return [queued for queued in left if queued.pod.uid not in uids]

    def _make_placers(self, snapshot: Snapshot) -> None:
        for scheduler, profile in self._profiles.items():
            if scheduler not in self._placers:
                self._placers[scheduler] = Placer(snapshot, profile)

    async def _plan(self, snapshot: Snapshot, batch: Sequence[QueuedPod]) -> list[Decision]:
        """Plan a batch in a thread.

        If one pod makes the plan fail, that pod is retried later, and no decision is returned.
        """
        if self._planner is None:
            self._make_placers(snapshot)
            self._planner = CyclePlanner(snapshot, dict(self._placers))
        self._planner.verdicts = self._extenders.verdicts
        pods = [queued.pod for queued in batch]
        victims = [victim for each in self._preempting.values() for victim in each.victims]
        plan = partial(plan_batch, snapshot, self._planner, pods, self._pods.nominated(), victims, seconds=PLAN_SECONDS)
        try:
            return await in_thread(plan)
        except PlanError as error:
            culprit = batch[error.number]
            log.exception("Failed to schedule pod %s; retrying", culprit.pod.key, exc_info=error.__cause__)
            self._placers.clear()  # their caches may have caused the error
            self._planner = None
            self._queue.retry(culprit, self._clock.monotonic())
            self._reporter.failed(culprit.pod, "", str(error))
            return []

    def _assume(self, snapshot: Snapshot, queued: QueuedPod, bind: Bind, seconds: float) -> Binding:
        assumption = Assumption(bind.pod, snapshot.pods[bind.pod.key], bind.reserved)
        self._dependencies.shared.assume(assumption)
        return Binding(queued, bind.node, assumption, seconds)

    def _reject_all(self, batch: Sequence[QueuedPod], decisions: Sequence[Decision], seconds: float) -> Iterator[None]:
        """Process the pods that fit on no node, one at each step."""
        for queued, decision in zip(batch, decisions, strict=False):
            if isinstance(decision, Reject):
                self._reject(queued, decision, seconds)
                yield

    def _reject(self, queued: QueuedPod, reject: Reject, seconds: float) -> None:
        if self._queue.get(reject.pod.uid) is not queued:
            return  # it was deleted or bound in the meantime; a report about it would never be forgotten
        self._reporter.rejected(reject, seconds=seconds)
        preemption = reject.preemption
        if reject.clears_nomination:
            self._clear_nomination(reject.pod)
        if preemption is None:
            self._queue.reject(queued, reject.rejected_by, self._clock.monotonic())
            return
        # The pod stays in flight until the victims are marked, so that no cycle plans a second preemption for it.
        displaced = self._pods.nominate(reject.pod, preemption.node)
        self._preempting[reject.pod.uid] = preemption
        decided = partial(self._preempt, queued, reject, displaced)
        if not self._extenders.approve(preemption, decided):
            decided(preemption)

    def _clear_nomination(self, pod: Pod) -> None:
        """Clear the nomination of a pod that has one, in the queue or in the API server.

        After a failed preemption, only the API server still has the nomination.
        """
        stored = self._dependencies.lister.pod(pod.key)
        if pod.nominated_node or (stored is not None and stored.uid == pod.uid and stored.nominated_node):
            self._pods.withdraw_nomination(pod.uid)
            self._preemptor.clear_nomination(pod)

    def _preempt(
        self, queued: QueuedPod, reject: Reject, displaced: Sequence[Pod], preemption: Preemption | None
    ) -> None:
        """Carry out a preemption, unless the extenders do not accept it."""
        if preemption is None:
            self._preemption_ended(queued, reject, False)
            return
        self._preempting[reject.pod.uid] = preemption
        ended = partial(self._preemption_ended, queued, reject)
        self._preemptor.start(preemption, reject.message, displaced, ended)

    # --- outcomes -------------------------------------------------------------------------------------------------

    def _extenders_answered(self, queued: QueuedPod) -> None:
        if queued.pod.uid not in self._queue:  # it was deleted in the meantime
            self._extenders.forget(queued.pod.uid)
        self._queue.put_back(queued)
        self.wake()

    def _extenders_failed(self, queued: QueuedPod, message: str) -> None:
        self._queue.retry(queued, self._clock.monotonic())
        self._reporter.failed(queued.pod, "", message)
        self.wake()

    def _bound(self, binding: Binding) -> None:
        queued = binding.queued
        seconds = self._clock.monotonic() - queued.added
        # The pod stays in flight in the queue until the watch reports it, in case an older version arrives before.
        self._reporter.scheduled(
            queued.pod,
            binding.node,
            attempts=queued.attempts,
            seconds=seconds,
            attempt_seconds=binding.attempt_seconds,
        )
        self._binding_ended()

    def _binding_failed(self, binding: Binding, message: str) -> None:
        queued = binding.queued
        self._dependencies.shared.forget(binding.assumption)
        self._queue.retry(queued, self._clock.monotonic())
        if message:
            log.warning("Failed to bind pod %s to node %s; retrying: %s", queued.pod.key, binding.node, message)
            self._reporter.failed(queued.pod, binding.node, message)
        self.wake()

    def _binding_ended(self) -> None:
        if self._room() >= MIN_ROOM:
            self.wake()

    def _preemption_ended(self, queued: QueuedPod, reject: Reject, succeeded: bool) -> None:
        now = self._clock.monotonic()
        del self._preempting[reject.pod.uid]
        if succeeded and reject.preemption is not None and reject.preemption.victims:
            self._queue.reject(queued, reject.rejected_by, now)
        elif succeeded:  # it fits already, so no end of a victim would wake it
            self._queue.retry(queued, now)
        else:
            self._pods.withdraw_nomination(reject.pod.uid)
            self._queue.retry(queued, now)
            # Other pods may wait for victims that are now kept. They have to be retried.
            self._queue.observe(ClusterEvent("AssignedPod", "Delete"))
        self.wake()


def plan_batch(
    snapshot: Snapshot,
    planner: CyclePlanner,
    pods: Sequence[Pod],
    nominated: Sequence[Pod],
    victims: Sequence[Pod] = (),
    *,
    seconds: float,
) -> list[Decision]:
    """Plan pods in order and keep the placements in the snapshot. The cycle runs this in a thread.

    Args:
        snapshot: the borrowed snapshot.
        planner: the planner of the snapshot.
        pods: the pending pods.
        nominated: pods that are nominated to a node.
        victims: the victims of preemptions that are being carried out.
        seconds: time after which the plan ends, if at least one pod has been planned.

    Returns:
        The decisions on the first pods, or on all of them if the time suffices.

    Raises:
        PlanError: the plan failed for one of the pods. The snapshot is unchanged.
    """
    deadline = perf_counter() + seconds
    decisions: dict[str, Decision] = {}
    mark = snapshot.mark()
    try:
        for step in planner.steps(pods, nominated, victims):
            decisions.update((each.pod.key, each) for each in step)
            if perf_counter() > deadline:
                break
    except Exception as error:
        snapshot.undo(mark)
        raise PlanError(next((n for n, pod in enumerate(pods) if pod is planner.deciding), 0), error) from error
    planner.keep_placements(mark, decisions.values())
    return list(decisions.values())


def feasible_nodes(snapshot: Snapshot, placers: Mapping[str, Placer], pods: Sequence[Pod]) -> list[list[str]]:
    """Return the names of the feasible nodes of each pod, ordered by name. The cycle runs this in a thread."""
    order = snapshot.nodes.order()
    names = [snapshot.nodes.node(slot).name for slot in order.tolist()]
    return [list(compress(names, placers[scheduler_of(pod)].feasible(pod)[order].tolist())) for pod in pods]


def _sum(counts: Iterable[QueueCounts]) -> QueueCounts:
    found = QueueCounts()
    for each in counts:
        found = QueueCounts(
            found.active + each.active,
            found.backoff + each.backoff,
            found.unschedulable + each.unschedulable,
            found.gated + each.gated,
        )
    return found
