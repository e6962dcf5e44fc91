"""Gives a strategy access to the plan: its candidates, and operations to plan their eviction or keep them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from operator import attrgetter
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from trimtab.api.plan import SURGE, Evict, Kept
from trimtab.api.reasons import (
    LIMIT_REACHED,
    NO_IMPROVEMENT,
    NO_PLACE,
    PLAN_DEADLINE_EXCEEDED,
    REPLACEMENT_LARGER,
)
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.workloads.replacements import differences
from trimtab.descheduling.memory.cooldown import CooldownIndex
from trimtab.descheduling.planning.plan_state import HELD, Guard, PlanState
from trimtab.descheduling.planning.scope import PolicyScope
from trimtab.disruption.outcome import Refusal
from trimtab.disruption.protections.causes import Cause, EvictionCauses
from trimtab.disruption.protections.gate import EvictionRules
from trimtab.kube.objects import TERMINAL_PHASES, Pod
from trimtab.placement.placer import Scorer


class PlacementPreference(Struct, frozen=True):
    """The nodes that a strategy prefers for a pod.

    Attributes:
        nodes: bool, shape (nodes.capacity,); the nodes on which the pod would lower the strategy's measure.
        rejection: the reason why other nodes that could run the pod are rejected. It begins with ``node(s)``, because
            messages contain the number of nodes before each reason.
        rank: int64, same shape; nodes with lower rank are preferred; ``None`` if no node is preferred to another.
        allow_current: whether the pod's own node is a valid target, because the eviction itself ends the violation.
    """

    nodes: BoolArray
    rejection: str
    rank: IntArray | None = None
    allow_current: bool = False


HELD_BACK: Final = frozenset({LIMIT_REACHED, PLAN_DEADLINE_EXCEEDED})
"""Reason codes of refusals that are not caused by the pod itself. No other pod may be moved instead of it."""

AT_HOME: Final = "node(s) already ran the pod"
NOT_SELECTED: Final = "node(s) were not selected by the policy"
NOT_UP: Final = "node(s) were not ready"
TEMPORARY: Final = "node(s) had a NoExecute taint that the pod tolerates only temporarily"

_KEY: Final = attrgetter("key")


class StrategyContext:
    """Gives one strategy of one policy access to the state of the plan."""

    def __init__(
        self,
        plan_state: PlanState,
        scope: PolicyScope,
        rules: EvictionRules,
        *,
        policy: str,
        strategy: str,
        guards: Iterable[Guard] = (),
        memory: CooldownIndex | None = None,
    ) -> None:
        self.plan_state = plan_state
        self.snapshot = plan_state.snapshot
        self.placer = plan_state.placer
        self.scope = scope
        self.policy = policy
        self.strategy = strategy
        self.guards = tuple(guard for guard in guards if guard.may_object())
        self._rules = rules
        self._memory = memory
        self._reported: set[str] = set()

    @property
    def causes(self) -> EvictionCauses:
        """Return the policy's rules that decide which pods may cause the eviction of which other pods."""
        return self._rules.causes

    def unmovable(self, pod: Pod) -> Refusal | None:
        """Return the reason why a pod's own spec or annotations prevent its eviction; ``None`` if they do not."""
        return self._rules.unmovable(pod)

    def unmovable_by_template(self, pod: Pod) -> bool | None:
        """Return whether all pods with the pod's template are unmovable; ``None`` if that differs between pods."""
        return self._rules.unmovable_by_template(pod)

    def is_candidate(self, pod: Pod) -> bool:
        """Return whether the strategy may consider a placed pod.

        A pod is not a candidate if it is out of the policy's scope, terminated, terminating, or already moved by this
        plan. A second move would depend on the first, which may fail.
        """
        return (
            not pod.terminal and pod.deleted is None and pod.key not in self.plan_state.moved and self.scope.covers(pod)
        )

    def candidates(self, slot: int, predicate: Callable[[Pod], bool] | None = None) -> list[Pod]:
        """Return the candidates on the node at a slot that match ``predicate``, sorted by name.

        If ``predicate`` is ``None``, all candidates on the node are returned.
        """
        return sorted(self.unsorted_candidates(slot, predicate), key=_KEY)

    def unsorted_candidates(self, slot: int, predicate: Callable[[Pod], bool] | None = None) -> list[Pod]:
        """Return the same pods as :meth:`candidates`, but unsorted, for strategies that sort them themselves."""
        there, moved = self.snapshot.items_on(self.snapshot.nodes.node(slot).name), self.plan_state.moved
        found = [
            pod for key, pod in there if key not in moved and pod.phase not in TERMINAL_PHASES and pod.deleted is None
        ]
        if predicate is not None:
            found = [pod for pod in found if predicate(pod)]
        return [pod for pod in found if self.scope.covers(pod)] if self.scope.filters_pods else found

    def blocker(self, pod: Pod, causes: Sequence[Cause] = ()) -> Refusal | None:
        """Return the reason why the pod must not be evicted, regardless of the target; ``None`` if it may be evicted.

        The method checks protections, imminent termination of the pod, cooldowns, the cause of the move, budgets,
        limits, and the deadline of planning.

        Args:
            pod: a candidate.
            causes: the pods whose scheduling rules are the reason for the move; empty if no pod's rule is the reason.
        """
        refusal = self._rules.protected(pod) or self.plan_state.endings.refusal(pod)
        if refusal is None and self._memory is not None:
            refusal = self._memory.refusal(pod, self.strategy)
        return refusal or self._rules.refusal(pod, causes) or self._deadline_refusal(pod)

    def _deadline_refusal(self, pod: Pod) -> Refusal | None:
        late = self.plan_state.budget.exceeded(pod.namespace)
        return None if late is None else Refusal(PLAN_DEADLINE_EXCEEDED, late)

    def try_move(
        self,
        pod: Pod,
        preference: PlacementPreference,
        *,
        reason: str,
        message: Callable[[int], str],
        causes: Sequence[Cause] = (),
    ) -> Refusal | None:
        """Plan to move the pod to the best of the preferred nodes, or keep it and return the reason.

        Args:
            pod: a candidate.
            preference: the preferred nodes.
            reason: the reason code of the eviction.
            message: returns the eviction's message for the chosen slot; called before the pod is moved.
            causes: the causes, as in :meth:`blocker`.
        """
        refusal = self.blocker(pod, causes)
        if refusal is None:
            found = self.find_node(pod, preference)
            if isinstance(found, Refusal):
                refusal = found
            else:
                refusal = self.plan_move(pod, found, reason=reason, message=message(found), causes=causes)
        if refusal is not None:
            self.keep(pod, refusal.reason, refusal.message)
        return refusal

    def find_node(self, pod: Pod, preference: PlacementPreference, scorer: Scorer | None = None) -> int | Refusal:
        """Return the slot of the best node for the pod, or the reason why no node can run it or none is better.

        Args:
            pod: a candidate.
            preference: the preferred nodes.
            scorer: scores nodes of equal rank. The default is the scoring of kube-scheduler's default profile.
        """
        with self.plan_state.budget.charged(pod.namespace):
            return self._find_node(pod, preference, scorer)

    def _find_node(self, pod: Pod, preference: PlacementPreference, scorer: Scorer | None) -> int | Refusal:
        # Call the guards before the pod is removed from its node, because they compare other nodes with its own.
        objections = [(self._all_slots_except(slots), text) for slots, text in self.objections(pod)]
        mark = self.snapshot.mark()
        try:
            home = self.snapshot.nodes.slot_of[pod.node]
            overlaps = self._rules.stays_until_replaced(pod)
            lifted = self.placer.replacement(pod) if overlaps else self.placer.displace(pod)
            takes = self.placer.feasible(lifted) & self.scope.destinations
            free = self.plan_state.overlap.free()
            if free is not None:
                free[home] |= not overlaps
                takes &= free
            lasting = self.plan_state.endings.lasting(pod)
            if lasting is not None:
                takes &= lasting
            if preference.allow_current:
                for allowed, _ in objections:
                    allowed[home] = True  # a restart on the same node raises no measure
            else:
                takes[home] = False
            preferred = takes & preference.nodes
            for allowed, _ in objections:
                preferred &= allowed
            if self.scope.being_removed is not None:
                staying = preferred & ~self.scope.being_removed
                preferred = staying if staying.any() else preferred
            if preference.rank is not None and preferred.any():
                preferred &= preference.rank == preference.rank[preferred].min()
            slot = (scorer or self.placer.scorer).first(lifted, preferred)
            if slot is not None:
                return slot
            further = (
                *(() if preference.allow_current else ((self._all_slots_except((home,)), AT_HOME),)),
                (self.scope.selected, NOT_SELECTED),
                (self.scope.ready, NOT_UP),
                *(() if free is None else ((free, HELD),)),
                *(() if lasting is None else ((lasting, TEMPORARY),)),
                (preference.nodes, preference.rejection),
                *objections,
            )
            message = self.placer.unschedulable_message(lifted, further)
            if takes.any():
                return Refusal(NO_IMPROVEMENT, message)
            return self._no_place(pod, lifted, () if preference.allow_current else (home,), message)
        finally:
            self.snapshot.undo(mark)

    def _no_place(self, pod: Pod, lifted: Pod, but: Collection[int], message: str) -> Refusal:
        """Return the refusal of a pod whose replacement fits nowhere. The pod must be removed from its node."""
        differing = differences(pod, lifted)
        if differing and (self.placer.feasible(replace(pod, node="")) & self._all_slots_except(but)).any():
            return Refusal(REPLACEMENT_LARGER, f"its replacement will have {differing}: {message}")
        return Refusal(NO_PLACE, message)

    def objections(self, pod: Pod) -> list[tuple[Collection[int], str]]:
        """Return the slots to which earlier strategies object, with the message of each objection."""
        objections = []
        for guard in self.guards:
            slots = guard.objections(pod)
            if slots:
                objections.append((slots, guard.objection_text))
        return objections

    def plan_move(
        self, pod: Pod, slot: int, *, reason: str, message: str, causes: Sequence[Cause] = ()
    ) -> Refusal | None:
        """Reserve the node at a slot for the pod and plan its eviction, or return the reason why this is impossible.

        The causes are checked again, although :meth:`blocker` has checked them, so that no strategy evicts a pod
        because of a pod that must not cause its eviction.
        """
        uncaused = self._rules.causes.refusal_of(pod, causes) if causes else None
        if uncaused is not None:
            return uncaused
        with self.plan_state.budget.charged(pod.namespace):
            return self._plan_move(pod, slot, reason=reason, message=message, causes=causes)

    def _plan_move(self, pod: Pod, slot: int, *, reason: str, message: str, causes: Sequence[Cause]) -> Refusal | None:
        stays = self.snapshot.nodes.slot_of[pod.node] == slot
        overlap, overlaps = self.plan_state.overlap, self._rules.stays_until_replaced(pod)
        crowded = overlap.refusal(pod, slot, stays_until_replaced=overlaps)
        if crowded is not None:
            return crowded
        replacement = self.placer.replacement(pod)
        moved = pod if stays and replacement.spec is pod.spec else self.plan_state.dependents.reserve(replacement, slot)
        if isinstance(moved, Refusal):
            return moved
        self._rules.take(pod, causes)
        self.plan_state.moved.add(pod.key)
        for watcher in self.plan_state.observers:
            watcher.pod_moved(pod, moved)
        self.plan_state.dependents.add(pod)
        if overlaps:
            overlap.hold(pod)
        cause = self._rules.causes.responsible(pod, causes) if causes else None
        foreign = "" if cause is None or cause.namespace == pod.namespace else cause.key
        differing = differences(pod, replacement)
        if differing:
            message = f"{message}; its replacement will have {differing}"
        self._append_eviction(pod, moved.node, reason, message, foreign)
        return None

    def is_removable(self, pod: Pod) -> bool:
        """Return whether the strategy may delete a terminated pod.

        It is the counterpart of :meth:`is_candidate`, which applies to moves.
        """
        return pod.terminal and pod.deleted is None and pod.key not in self.plan_state.moved and self.scope.covers(pod)

    def plan_removal(self, pod: Pod, *, reason: str, message: str) -> Refusal | None:
        """Plan the deletion of a terminated pod, or keep it and return the reason.

        A terminated pod uses no resources, and its controller has already replaced it if needed.
        """
        refusal = self._rules.protected_from_removal(pod) or self._rules.refusal(pod)
        if refusal is not None:
            self.keep(pod, refusal.reason, refusal.message)
            return refusal
        self.snapshot.remove(pod)
        self._rules.take(pod)
        self.plan_state.moved.add(pod.key)
        self._append_eviction(pod, "", reason, message)
        return None

    def _append_eviction(self, pod: Pod, target: str, reason: str, message: str, cause: str = "") -> None:
        owner = pod.controller
        self.plan_state.actions.append(
            Evict(
                policy=self.policy,
                strategy=self.strategy,
                namespace=pod.namespace,
                pod=pod.name,
                node=pod.node,
                target=target,
                reason=reason,
                message=message,
                uid=pod.uid,
                owner=owner.qualified_name if owner is not None else "",
                how=SURGE if target and self._rules.surges(pod) else "Evict",
                cause=cause,
            )
        )

    def plan_all_moves(
        self,
        pods: Sequence[Pod],
        find: Callable[[Pod], int | Refusal],
        *,
        reason: str,
        message: Callable[[Pod, int], str],
    ) -> tuple[Pod, Refusal] | None:
        """Move all pods or none. Each target is chosen after the preceding pods have been moved.

        Args:
            pods: candidates, in the order of their moves.
            find: returns the slot for a pod, or the reason why there is none.
            reason: the reason code of the evictions.
            message: returns the eviction's message for a pod and its target slot; called before the pod is moved.

        Returns:
            The first pod that cannot be moved, and the reason; ``None`` if all pods are moved.
        """
        plan_state, mark = self.plan_state, self.snapshot.mark()
        actions, leaning = len(plan_state.actions), len(plan_state.dependents)
        for number, pod in enumerate(pods):
            found: int | Refusal = self.blocker(pod) or find(pod)
            if not isinstance(found, Refusal):
                refusal = self.plan_move(pod, found, reason=reason, message=message(pod, found))
            else:
                refusal = found
            if refusal is not None:
                undo = [(before, self.snapshot.pods[before.key]) for before in reversed(pods[:number])]
                self.snapshot.undo(mark)
                del plan_state.actions[actions:]
                plan_state.dependents.cut(leaning)
                for before, after in undo:
                    self._undo_move(before, after)
                return pod, refusal
        self.snapshot.commit(mark)
        return None

    def _undo_move(self, before: Pod, after: Pod) -> None:
        self._rules.take_back(before)
        self.plan_state.overlap.undo_hold(before)
        self.plan_state.moved.discard(before.key)
        for watcher in self.plan_state.observers:
            watcher.pod_moved(after, before)

    def keep(self, pod: Pod, reason: str, message: str) -> None:
        """Record the reason why a candidate is kept.

        Only the first reason for a pod is recorded. If the pod is too complex to evaluate, that is recorded instead of
        the given reason.
        """
        if pod.key in self._reported:
            return
        reason, message = self.snapshot.complexity.refusal(pod) or (reason, message)
        self._reported.add(pod.key)
        self.plan_state.kept.append(
            Kept(
                kind="Pod",
                namespace=pod.namespace,
                name=pod.name,
                strategy=self.strategy,
                reason=reason,
                message=message,
                policy=self.policy,
                node=pod.node,
            )
        )

    def keep_node(self, slot: int, reason: str, message: str) -> None:
        """Record the reason why the strategy plans no moves from a node."""
        self.plan_state.kept.append(
            Kept(
                kind="Node",
                namespace="",
                name=self.snapshot.nodes.node(slot).name,
                strategy=self.strategy,
                reason=reason,
                message=message,
                policy=self.policy,
            )
        )

    def _all_slots_except(self, slots: Collection[int]) -> BoolArray:
        mask: BoolArray = np.ones(self.snapshot.nodes.capacity, dtype=np.bool_)
        mask[list(slots)] = False
        return mask
