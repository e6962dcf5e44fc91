"""Defines the state that all policies of a plan share: the snapshot with reservations, budgets, limits and moves."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Final, Protocol

import numpy as np

from trimtab.api.plan import Evict, Kept
from trimtab.api.reasons import NO_PLACE
from trimtab.cluster.disruption_signals import pending_termination, tolerated_seconds
from trimtab.cluster.resources import BoolArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.workloads.rollouts import Rollouts
from trimtab.descheduling.planning.affinity_dependents import AffinityDependents
from trimtab.disruption.outcome import Refusal
from trimtab.disruption.protections.gate import Gate
from trimtab.kube.objects import Pod, PodSpec, Toleration
from trimtab.kube.rules.taints import NO_EXECUTE
from trimtab.placement.placer import Placer
from trimtab.placement.plan_budget import UNLIMITED, PlanBudget

HELD: Final = "node(s) had a pod that terminates only after its replacement runs"


class OverlapTracker:
    """Tracks the nodes of pods that keep running until their replacement runs.

    Such pods are single replicas that a rollout replaces, and pods that a webhook migrates. Their capacity is freed
    only after the replacement runs, unlike that of other evicted pods. Therefore later moves in the plan must not use
    it, and the replacements need additional capacity.

    Args:
        placer: the plan's placer.
    """

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self._held: dict[str, int] = {}

    def hold(self, pod: Pod) -> None:
        """Record that a pod keeps its capacity until its replacement runs. ``pod`` is its state before the move."""
        self._held[pod.key] = self._placer.snapshot.nodes.slot_of[pod.node]

    def undo_hold(self, pod: Pod) -> None:
        """Undo :meth:`hold`. The call has no effect for other pods."""
        self._held.pop(pod.key, None)

    def free(self) -> BoolArray | None:
        """Return the slots whose nodes have no pod that keeps its capacity: bool, shape (nodes.capacity,).

        The result is ``None`` if this is true for all nodes.
        """
        if not self._held:
            return None
        mask: BoolArray = np.ones(self._placer.snapshot.nodes.capacity, dtype=np.bool_)
        mask[list(self._held.values())] = False
        return mask

    def refusal(self, pod: Pod, slot: int, *, stays_until_replaced: bool) -> Refusal | None:
        """Return the reason why pods that keep their capacity prevent a move; ``None`` if they do not.

        Args:
            pod: the pod before its move.
            slot: the slot of the target node.
            stays_until_replaced: whether the pod keeps running until its replacement runs.
        """
        nodes = self._placer.snapshot.nodes
        stays = nodes.slot_of[pod.node] == slot
        name = nodes.node(slot).name
        if not stays or stays_until_replaced:
            for key, reserved_slot in self._held.items():
                if reserved_slot == slot:
                    return Refusal(NO_PLACE, f"{key} terminates on {name} only after its replacement runs")
        if stays_until_replaced and not self._placer.feasible(self._placer.replacement(pod))[slot]:
            return Refusal(NO_PLACE, f"{name} cannot run the replacement while the pod is still running")
        return None


class TerminationForecast:
    """Predicts which pods will terminate soon because of NoExecute taints or pod conditions.

    Args:
        snapshot: the snapshot, inside a fork of the caller. Its nodes do not change.
        now: seconds since the epoch.
    """

    def __init__(self, snapshot: Snapshot, *, now: float) -> None:
        self._snapshot = snapshot
        self._now = now
        nodes = snapshot.nodes
        self._sets = [
            number
            for number, taints in enumerate(nodes.taint_sets)
            if any(taint.effect == NO_EXECUTE for taint in taints) and bool((nodes.taints[nodes.used] == number).any())
        ]
        """The taint sets (:attr:`NodeTable.taint_sets`) that contain a NoExecute taint and that some node has."""
        self._lasting: dict[tuple[Toleration, ...], BoolArray | None] = {}

    def refusal(self, pod: Pod) -> Refusal | None:
        """Return the reason why the pod will terminate soon even without an eviction; ``None`` if it will not."""
        if not self._sets and not pod.conditions:
            return None
        slot = self._snapshot.slot(pod) if self._sets else None
        ending = pending_termination(pod, None if slot is None else self._snapshot.nodes.node(slot), now=self._now)
        return None if ending is None else Refusal(ending.reason, ending.message)

    def lasting(self, pod: Pod) -> BoolArray | None:
        """Return the nodes where the pod does not tolerate a NoExecute taint for only a limited time.

        The result is bool of shape (nodes.capacity,), read-only; ``None`` means all nodes. This check is needed because
        kube-scheduler ignores ``tolerationSeconds``. Filters handle nodes with taints that the pod does not tolerate at
        all.
        """
        if not self._sets or not pod.spec.tolerations:
            return None
        key = pod.spec.tolerations
        if key not in self._lasting:
            self._lasting[key] = self._judge(pod.spec)
        return self._lasting[key]

    def _judge(self, spec: PodSpec) -> BoolArray | None:
        nodes = self._snapshot.nodes
        temporary = [number for number in self._sets if self._tolerates_temporarily(spec, number)]
        return ~np.isin(nodes.taints, temporary) if temporary else None

    def _tolerates_temporarily(self, spec: PodSpec, number: int) -> bool:
        taints = self._snapshot.nodes.taint_sets[number]
        limits = [tolerated_seconds(spec.tolerations, taint) for taint in taints if taint.effect == NO_EXECUTE]
        return 0 < min(limits) < math.inf


class Guard(Protocol):
    """A strategy that objects to moves of later strategies that would undo its own moves."""

    objection_text: str

    def may_object(self) -> bool:
        """Return whether the strategy can object to any move.

        The planner checks this once per plan, to skip strategies that cannot.
        """
        ...

    def objections(self, pod: Pod) -> Collection[int]:
        """Return the slots where the pod would raise the strategy's measure if it were moved there."""
        ...


class MoveObserver(Protocol):
    """An object that is notified of planned moves, because its counts depend on them."""

    def pod_moved(self, before: Pod, after: Pod) -> None:
        """Process a planned move. If a move is undone, the reverse move is reported."""
        ...


class PlanState:
    """The state that all policies of a plan share: one snapshot, one placer, one gate and one list of moves.

    Args:
        snapshot: the snapshot, inside a fork of the caller.
        now: seconds since the epoch.
        rollouts: the Deployments, for policies with ``singleReplica: Surge``.
        leaving: the pods that are already being evicted in the background.
        budget: limits the time that planning may take.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        now: float,
        rollouts: Rollouts | None = None,
        leaving: Iterable[Pod] = (),
        budget: PlanBudget = UNLIMITED,
    ) -> None:
        self.snapshot = snapshot
        self.budget = budget
        self.now = now
        self.placer = Placer(snapshot)
        self.gate = Gate(snapshot, now=now, rollouts=rollouts, leaving=leaving)
        self.endings = TerminationForecast(snapshot, now=now)
        self.actions: list[Evict] = []
        self.kept: list[Kept] = []
        self.moved: set[str] = set()
        self.dependents = AffinityDependents(self.placer)
        self.overlap = OverlapTracker(self.placer)
        self.observers: tuple[MoveObserver, ...] = ()
