"""The plan of a scheduling cycle: a node, a preemption or a reason for each pod of a batch.

    planner = CyclePlanner(snapshot, placers)          # kept for all cycles
    with snapshot.fork():
        decisions = planner.plan(batch, nominated)

A cycle processes the pods in the order of the queue:

1. before a pod is placed, capacity is reserved for all other pods that are nominated to a node after a preemption and
   have the same or a higher priority, whether they are in the batch or not;
2. if the pod itself is nominated to a node and fits there, it is bound to that node;
3. otherwise it is bound to the feasible node with the highest score; the capacity is reserved before the next pod is
   evaluated;
4. a pod that fits on no node may preempt pods of lower priority; its capacity is reserved, and its victims are treated
   as terminating;
5. after the last pod of a priority, a pod that preemption does not help may get the node of other preemptors of this
   priority if these find other victims (:mod:`trimtab.scheduling.batch_preemptions`).

Unschedulable pods with the same spec, labels and namespace are diagnosed only once while the snapshot does not change.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from itertools import chain, groupby
from typing import Final

import msgspec
import numpy as np
from msgspec import Struct

from trimtab.api.scheduler_policy import DEFAULT_SCHEDULER
from trimtab.cluster.own_writes import ReservedObject
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.budgets import BudgetLedger
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer
from trimtab.scheduling.batch_preemptions import BatchPreemptions
from trimtab.scheduling.extender_verdicts import Verdict
from trimtab.scheduling.preemption import NOT_HELPFUL, NoPreemption, Preemption, PreemptionPlanner
from trimtab.scheduling.reservations import Reservations, place

PREEMPTION_CLAUSE: Final = " preemption: "
"""Precedes kube-scheduler's clause about preemption in the message of FailedScheduling."""


def scheduler_of(pod: Pod) -> str:
    """Return the name of the pod's scheduler; the default scheduler if the pod, for example from a file, names none."""
    return pod.spec.scheduler_name or DEFAULT_SCHEDULER


def _preemption_planner_of(planners: Mapping[str, PreemptionPlanner], pod: Pod) -> PreemptionPlanner:
    return planners[scheduler_of(pod)]


def batch_order(pod: Pod) -> tuple[int, bool]:
    """Return the sort key of pods in a batch: highest priority first, and nominated pods before others.

    A nominated pod whose node is taken therefore chooses another node before other pods of its priority do. Pods with
    equal keys keep the order of the queue.
    """
    return -pod.priority, not pod.nominated_node


class Bind(Struct, frozen=True, gc=False):
    """The decision to bind a pod to a node.

    Attributes:
        pod: the pod from the queue.
        node: the name of the node to bind the pod to.
        feasible: number of feasible nodes.
        reserved: the volumes and claims that the placement reserved.
    """

    pod: Pod
    node: str
    feasible: int
    reserved: tuple[ReservedObject, ...] = ()


class Reject(Struct, frozen=True, gc=False):
    """The decision that a pod currently fits on no node.

    Attributes:
        pod: the pod from the queue.
        message: kube-scheduler's message, for the pod's condition PodScheduled and the event FailedScheduling.
        rejected_by: names of the filters that failed for some node; the pod is retried after changes that can affect
            them.
        preemption: the node and the victims whose removal makes room; ``None`` if preemption does not help or is not
            allowed.
        clears_nomination: whether a nomination of the pod must be cleared, because preemption makes room on no node.
    """

    pod: Pod
    message: str
    rejected_by: frozenset[str]
    preemption: Preemption | None = None
    clears_nomination: bool = False


Decision = Bind | Reject


_NEVER: Final = -1
"""A number of changes of the snapshot that never occurs."""


class _Rejection(Struct, frozen=True):
    pod: Pod
    """A reference that keeps the spec and labels alive, so that their ids, which are cache keys, are not reused."""
    message: str
    rejected_by: frozenset[str]
    preemption: Preemption | NoPreemption


class CyclePlanner:
    """Plans scheduling cycles. Keep it for the lifetime of the snapshot and the placers, because it caches results.

    Args:
        snapshot: the cluster, including the pods that are being bound, on their nodes.
        placers: the placer of each scheduler name.

    Attributes:
        tentative: whether the plan has made changes in the snapshot other than placements. These are pods that are
            reserved on the nodes that they are nominated to, and victims.
        verdicts: the verdicts of scheduler extenders, by UID of the pod. A pod without a verdict is planned without
            extenders.
        deciding: the pod that the plan is deciding on.
    """

    def __init__(self, snapshot: Snapshot, placers: Mapping[str, Placer]) -> None:
        self.verdicts: Mapping[str, Verdict] = {}
        self.deciding: Pod | None = None
        self._snapshot = snapshot
        self._placers = placers
        self._ledger: BudgetLedger | None = None
        self._in_progress: list[Pod] = []
        self.tentative = False
        self._reservations = Reservations(snapshot)
        self._preemption = {
            name: PreemptionPlanner(snapshot, placer, reservations=self._reservations)
            for name, placer in placers.items()
        }
        self._preemptions = BatchPreemptions(partial(_preemption_planner_of, self._preemption))
        self._rejected: dict[str, Reject] = {}
        self._rejections: dict[tuple[int, str, int], tuple[int, _Rejection]] = {}
        snapshot.nodes.caches.add(self)

    def forget_removed(self, used: Set[int]) -> None:  # noqa: ARG002 - the next plan does not need the last one
        """See :class:`~trimtab.cluster.node_table.SpecCache`."""
        self._forget_plan()

    def _forget_plan(self) -> None:
        self.deciding = None
        self._reservations.clear()
        self._preemptions.clear()
        self._rejected.clear()
        self._rejections.clear()
        self._ledger = None
        self._in_progress.clear()
        self.tentative = False

    def plan(self, batch: Sequence[Pod], nominated: Iterable[Pod] = (), victims: Iterable[Pod] = ()) -> list[Decision]:
        """Decide on pending pods in the given order, and apply the decisions to the snapshot.

        The caller must fork the snapshot.

        Args:
            batch: the pods to decide on.
            nominated: pending pods outside of the batch that are nominated to a node, in the order of the queue.
            victims: the victims of preemptions that are being carried out. They are treated as terminating.

        Raises:
            KeyError: a pod names a scheduler that has no placer.
        """
        steps = self.steps(batch, nominated, victims)
        return list({each.pod.key: each for each in chain.from_iterable(steps)}.values())

    def steps(
        self, batch: Sequence[Pod], nominated: Iterable[Pod] = (), victims: Iterable[Pod] = ()
    ) -> Iterator[Sequence[Decision]]:
        """Yield the decisions of :meth:`plan` step by step. A caller that runs out of time may stop after any step.

        A step decides on the next pod, or replaces decisions on pods of the same priority.
        """
        of_batch = {pod.uid for pod in batch}
        waiting = [pod for pod in nominated if pod.uid not in of_batch] + [pod for pod in batch if pod.nominated_node]
        waiting.sort(key=lambda pod: -pod.priority)
        self._forget_plan()
        for victim in victims:
            self._mark_terminating(victim)
        for priority, pods in groupby(batch, lambda pod: pod.priority):
            while waiting and waiting[0].priority >= priority:
                self._reserve_nominated(waiting.pop(0))
            self._preemptions.clear()
            self._rejected.clear()
            for pod in pods:
                self.deciding = pod
                self._reservations.lift(pod)
                decision = self._decide(pod)
                if isinstance(decision, Reject):
                    self._rejected[pod.key] = decision
                yield (decision,)
            yield from self._exchange_nodes()

    def keep_placements(self, mark: int, decisions: Iterable[Decision]) -> None:
        """Keep the placements of a plan in the snapshot, and undo everything else that the plan has changed.

        Args:
            mark: the snapshot's mark from before the plan.
            decisions: the decisions to keep.
        """
        if not self.tentative:
            self._snapshot.commit(mark)
            return
        self._snapshot.undo(mark)
        for each in decisions:
            if isinstance(each, Bind):
                for volume in each.reserved:
                    self._snapshot.put(volume.new)
                self._snapshot.move(each.pod, each.node)

    def _mark_terminating(self, victim: Pod) -> None:
        current = self._snapshot.pods.get(victim.key)
        if current is not None and current.uid == victim.uid and current.deleted is None:
            self.tentative = True
            self._in_progress.append(current)
            self._snapshot.put(msgspec.structs.replace(current, deleted=0.0))

    def _reserve_nominated(self, pod: Pod) -> None:
        slot = self._snapshot.nodes.slot_of.get(pod.nominated_node)
        current = self._snapshot.pods.get(pod.key)
        if slot is not None and (current is None or not current.node):  # otherwise it is being bound
            self.tentative = True
            self._reservations.add(pod, self._placers[scheduler_of(pod)], slot)

    def _decide(self, pod: Pod) -> Decision:
        placer = self._placers[scheduler_of(pod)]
        feasible, added = self._reservations.feasible(pod, placer), None
        verdict = self.verdicts.get(pod.uid)
        if verdict is not None:
            feasible = feasible & verdict.passing(self._snapshot.nodes)
            added = verdict.added(self._snapshot.nodes)
        slot = self._snapshot.nodes.slot_of.get(pod.nominated_node)
        if slot is None or not feasible[slot]:
            slot = placer.choose(pod, feasible, added)
        if slot is not None:
            node, number = self._snapshot.nodes.node(slot).name, int(np.count_nonzero(feasible))
            self._reservations.release_claims(pod)
            return Bind(pod, node, number, place(self._snapshot, pod, placer, slot))
        return self._reject(pod, placer)

    def _reject(self, pod: Pod, placer: Placer) -> Reject:
        nodes = self._snapshot.nodes
        alike = (id(pod.spec), pod.namespace, id(pod.labels))
        now = nodes.changes
        known = self._rejections.get(alike)
        alone = bool(pod.nominated_node) or pod.uid in self.verdicts
        if known is not None and known[0] == now and not pod.spec.volumes and not alone:
            rejection = known[1]
        elif (waiting := self._waiting(pod, placer)) is not None and alike in self._rejections:
            # It does not preempt before its victims have ended, so the reasons of a similar pod are accurate enough.
            rejection = msgspec.structs.replace(self._rejections[alike][1], preemption=waiting)
        else:
            rejection = self._diagnose(pod, placer)
            if pod.uid not in self.verdicts and (not alone or waiting is not None):
                # The preemption of a nominated pod applies to that pod only, so other pods must not share this entry.
                self._rejections[alike] = (_NEVER if alone else nodes.changes, rejection)
        found = rejection.preemption
        if isinstance(found, NoPreemption):
            message = _joined(rejection.message, found.message)
            if pod.nominated_node and found.keeps_nomination:
                self._reserve_nominated(pod)  # for the pods after it
            return Reject(pod, message, rejection.rejected_by, clears_nomination=not found.keeps_nomination)
        preemption = msgspec.structs.replace(found, pod=pod)
        self.tentative = True
        self._preemptions.reserve(preemption)
        return Reject(pod, rejection.message, rejection.rejected_by, preemption)

    def _exchange_nodes(self) -> Iterator[Sequence[Reject]]:
        """Yield the decisions on preemptors of one priority that change so that more of these are nominated."""
        rejected = self._rejected
        left = [each.pod for each in rejected.values() if each.clears_nomination and each.pod.uid not in self.verdicts]
        failed: dict[Hashable, list[Pod]] = {}
        while left and self._preemptions.may_try:
            pod = self.deciding = left.pop(0)
            alike = self._preemptions.alike(pod)
            if alike in failed:
                failed[alike].append(pod)
                continue
            changed: Sequence[Preemption] = ()
            for changed in self._preemptions.make_room(pod, fixed=self.verdicts):
                for each in changed:
                    before = rejected[each.pod.key]
                    message = before.message.partition(PREEMPTION_CLAUSE)[0]
                    rejected[each.pod.key] = msgspec.structs.replace(
                        before, message=message, preemption=each, clears_nomination=False
                    )
                yield [rejected[each.pod.key] for each in changed]
            if changed:
                left = [*chain.from_iterable(failed.values()), *left]  # the exchange may help them
                failed.clear()
            else:
                failed[alike] = [pod]

    def _waiting(self, pod: Pod, placer: Placer) -> NoPreemption | None:
        """Return why a nominated pod does not preempt further pods now, or ``None`` if it may."""
        if not pod.nominated_node or pod.uid in self.verdicts or pod.spec.volumes or not placer.preempts:
            return None
        return self._preemption[scheduler_of(pod)].waiting(pod)

    def _diagnose(self, pod: Pod, placer: Placer) -> _Rejection:
        diagnosis, rejected_by = self._reservations.diagnose(pod, placer)
        preemption: Preemption | NoPreemption = NoPreemption(pod, "", keeps_nomination=True)
        if placer.preempts:
            self._read_budgets()
            preemption = self._preemption[scheduler_of(pod)].plan(pod)
        verdict = self.verdicts.get(pod.uid)
        if verdict is None:
            return _Rejection(pod, diagnosis.message(), rejected_by, preemption)
        if isinstance(preemption, Preemption) and preemption.node in verdict.unresolvable:
            preemption = NoPreemption(pod, NOT_HELPFUL)
        message = placer.unschedulable_message(pod, list(verdict.failures(self._snapshot.nodes)))
        return _Rejection(pod, message, frozenset(), preemption)  # every change may alter an extender's response

    def _read_budgets(self) -> None:
        """Read the PodDisruptionBudgets once per plan, and only if a pod may have to preempt others."""
        if self._ledger is None:
            self._ledger = BudgetLedger(self._snapshot)
            for victim in self._in_progress:
                self._ledger.take(victim)
            for each in self._preemption.values():
                each.start_cycle(self._ledger)


def _joined(message: str, clause: str) -> str:
    """Return the message of FailedScheduling with the clause about preemption, like ``FitError.Error`` (v1.36)."""
    return f"{message}{PREEMPTION_CLAUSE}{clause}" if clause else message
