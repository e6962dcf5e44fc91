"""Places pending pods as kube-scheduler would: in the order of its queue, with preemption, and with retries."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import chain

from msgspec import Struct

from trimtab.cluster.snapshot import Snapshot
from trimtab.inspection.cluster import PolicySet
from trimtab.inspection.displaced_pods import Outcome, fate_of, recreate
from trimtab.kube.objects import Pod
from trimtab.placement.equal_pods import EqualPodPlacer
from trimtab.placement.placer import Placer
from trimtab.scheduling.planner import PREEMPTION_CLAUSE, Bind, CyclePlanner, scheduler_of
from trimtab.scheduling.profiles import profile_of


class Preempted(Struct, frozen=True):
    """A pod that the scheduler preempts on ``node`` for a pod of higher priority (``beneficiary``)."""

    pod: Pod
    node: str
    beneficiary: str


class Rescheduler:
    """Places pending pods in a snapshot. The caller must fork the snapshot.

    Args:
        snapshot: the cluster.
        policies: the SchedulerPolicies, whose profiles apply to the pods of their schedulers.
        now: the time, in seconds since the epoch.

    Attributes:
        placed: the node of each placed pod, by ``namespace/name``.
        pending: each pod that fits on no node, with kube-scheduler's message, by ``namespace/name``.
        preempted: the preempted pods, in order. Their replacements are in ``placed`` or ``pending``.
        lost: preempted pods that nothing recreates, with the reason.
    """

    def __init__(self, snapshot: Snapshot, policies: PolicySet, *, now: float) -> None:
        self._snapshot = snapshot
        self._now = now
        self._default = Placer(snapshot)
        self._placers = {
            policy.spec.scheduler_name: Placer(snapshot, profile_of(policy.spec)) for policy in policies.schedulers
        }
        self._equal: dict[int, EqualPodPlacer] = {}
        self._cycle: CyclePlanner | None = None
        self._queue: list[tuple[int, float, str, Pod]] = []
        self.placed: dict[str, str] = {}
        self.pending: dict[str, tuple[Pod, str]] = {}
        self.preempted: list[Preempted] = []
        self.lost: list[tuple[Pod, str]] = []

    def schedule(self, pods: Iterable[Pod]) -> None:
        """Place pods, each with an empty ``node``: those of the highest priority first, then the oldest.

        Pods that fit on no node are tried again after other pods were placed, if they depend on other pods.
        """
        self._enqueue(pods)
        while self._queue:
            placed = len(self.placed)
            while self._queue:
                self._place(self._next_equal_pods())
            if len(self.placed) > placed:
                self._enqueue(pod for pod, _ in self.pending.values() if _depends_on_pods(pod))

    def _enqueue(self, pods: Iterable[Pod]) -> None:
        self._queue += [(-pod.priority, pod.created or 0.0, pod.key, pod) for pod in pods]
        heapq.heapify(self._queue)

    def _next_equal_pods(self) -> list[Pod]:
        """Remove the next pod from the queue, and all equal pods that follow it directly."""
        queue = self._queue
        first = heapq.heappop(queue)[3]
        found = [first]
        while queue:
            pod = queue[0][3]
            if pod.spec is not first.spec or pod.labels is not first.labels or pod.namespace != first.namespace:
                break
            found.append(heapq.heappop(queue)[3])
        return found

    def _place(self, pods: Sequence[Pod]) -> None:
        placer = self._placers.get(scheduler_of(pods[0]), self._default)
        equal = self._equal.get(id(placer))
        if equal is None:
            equal = self._equal[id(placer)] = EqualPodPlacer(placer)
        found = equal.place(pods)
        for pod in found.placed:
            self.placed[pod.key] = pod.node
            self.pending.pop(pod.key, None)
        if found.left:
            self._preempt(found.left)

    def replacement(self, pod: Pod) -> Pod:
        """See :meth:`~trimtab.placement.placer.Placer.replacement`."""
        return self._default.replacement(pod)

    def _preempt(self, pods: Sequence[Pod]) -> None:
        """Let pods that fit on no node preempt pods of lower priority, or record why they stay pending."""
        for decision in chain.from_iterable(self._planner().steps(pods)):  # no step changes a decision on equal pods
            key = decision.pod.key
            preemption = None if isinstance(decision, Bind) else decision.preemption
            if preemption is not None:
                for victim in preemption.victims:
                    self._take_victim(victim, key)
            if isinstance(decision, Bind):
                self.placed[key] = decision.node
            elif preemption is not None:
                self.placed[key] = preemption.node
            else:
                self.pending[key] = (decision.pod, decision.message.partition(PREEMPTION_CLAUSE)[0])
                continue
            self.pending.pop(key, None)

    def _take_victim(self, victim: Pod, beneficiary: str) -> None:
        self.preempted.append(Preempted(victim, victim.node, beneficiary))
        self.placed.pop(victim.key, None)
        fate = fate_of(victim, self._snapshot)
        self._snapshot.remove(victim)
        if fate.outcome is Outcome.RECREATED:
            self._enqueue((recreate(self.replacement(victim), self._snapshot, now=self._now),))
        elif fate.outcome is Outcome.LOST:
            self.lost.append((victim, fate.reason))

    def _planner(self) -> CyclePlanner:
        """Return the planner of preemptions. It is created on first use, because most forecasts need none."""
        if self._cycle is None:
            names = {scheduler_of(pod) for pod in self._snapshot.pods.values()}
            placers = {name: self._placers.get(name, self._default) for name in names}
            self._cycle = CyclePlanner(self._snapshot, placers)
        return self._cycle


def _depends_on_pods(pod: Pod) -> bool:
    """Return whether a pod may fit after other pods were placed."""
    spec = pod.spec
    return bool(spec.affinity.pod_required or spec.topology_spread) and not spec.scheduling_gates
