"""The preemptions of a batch by pods of equal priority, which do not keep each other from the only nodes that help.

    preemptions = BatchPreemptions(planner_of)
    preemptions.reserve(found)                 # each preemption by a pod of the priority
    for changed in preemptions.make_room(pod): # then for each pod without a candidate
        ...

Preemptions are planned one after the other, so a small pod may preempt the only pod that is large enough for a later
preemptor. :meth:`BatchPreemptions.make_room` then plans the preemptors on that node again, after the later one. The
change is kept only if each of them finds a node, so that no preemptor loses its place to another one of its priority,
and violates no more PodDisruptionBudgets.
kube-scheduler plans one pod per cycle and does not change earlier preemptions.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterator
from typing import Final

from trimtab.kube.objects import Pod
from trimtab.scheduling.preemption import NoPreemption, Preemption, PreemptionPlanner

MAX_FAILURES: Final = 100
"""Maximum number of failed attempts to make room, for the pods of one priority in a plan."""

MAX_SLOW: Final = 4
"""Maximum number of preemptors that move together if some of them depend on other pods, which makes planning slow."""


class BatchPreemptions:
    """The preemptions by the pods of one priority that a plan has reserved.

    Args:
        planner_of: returns the planner of the preemptions of a pod's scheduler.
    """

    def __init__(self, planner_of: Callable[[Pod], PreemptionPlanner]) -> None:
        self._planner_of = planner_of
        self._by_slot: dict[int, list[Preemption]] = {}
        self._failures = 0

    def clear(self) -> None:
        """Forget all preemptions, for the pods of another priority or a new plan."""
        self._by_slot.clear()
        self._failures = 0

    @property
    def may_try(self) -> bool:
        """Whether the plan has not failed too often to make room."""
        return self._failures < MAX_FAILURES

    def reserve(self, preemption: Preemption) -> None:
        """Reserve the capacity of a preemptor (:meth:`PreemptionPlanner.reserve`)."""
        self._planner_of(preemption.pod).reserve(preemption)
        self._by_slot.setdefault(preemption.slot, []).append(preemption)

    def make_room(self, pod: Pod, fixed: Container[str]) -> Iterator[list[Preemption]]:
        """Reserve a node for a pod that has no candidate, by moving earlier preemptors to other nodes.

        Args:
            pod: the pod.
            fixed: the UIDs of preemptors that must not move.

        Returns:
            The preemptions that have changed, and the pod's own as the last one. Empty if no such move helps.
        """
        own = self.alike(pod)
        movable = {
            slot: [each.pod for each in found]
            for slot, found in self._by_slot.items()
            if any(self.alike(each.pod) != own for each in found)
            and all(each.pod.uid not in fixed for each in found)
            and (len(found) <= MAX_SLOW or all(map(self._is_fast, found)))
        }
        stuck: set[Hashable] = set()
        for slot in self._planner_of(pod).possible_without(pod, movable):
            if self.may_try and stuck.isdisjoint(map(self.alike, movable[slot])):
                changed = self._exchange(pod, slot, stuck)
                yield changed
                if changed:
                    return
                self._failures += 1
        self._failures += 1

    def alike(self, pod: Pod) -> Hashable:
        """Return a key that pods with the same candidates share, as long as the pod exists."""
        if self._planner_of(pod).ignores_other_pods(pod):
            return id(pod.spec)
        return id(pod.spec), pod.namespace, id(pod.labels)

    def _is_fast(self, preemption: Preemption) -> bool:
        return self._planner_of(preemption.pod).ignores_other_pods(preemption.pod)

    def _exchange(self, pod: Pod, slot: int, stuck: set[Hashable]) -> list[Preemption]:
        """Plan the preemptors of a node again after the pod.

        Everything is undone if one of them has no candidate then, or violates more PodDisruptionBudgets than before.

        Args:
            pod: the pod without a candidate.
            slot: slot of the node.
            stuck: the key of a preemptor that has no other candidate is added here.
        """
        before = self._by_slot.pop(slot)
        for each in reversed(before):
            self._planner_of(each.pod).release(each)
        made: list[Preemption] = []
        first = self._planner_of(pod).plan_on(pod, slot)
        if first is not None:
            self.reserve(first)
            made.append(first)
            for each in before:
                found = self._planner_of(each.pod).plan(each.pod)
                if isinstance(found, NoPreemption):
                    stuck.add(self.alike(each.pod))
                    break
                if found.violations > each.violations:
                    break
                self.reserve(found)
                made.append(found)
            else:
                return [*made[1:], first]
        for each in reversed(made):
            self._planner_of(each.pod).release(self._by_slot[each.slot].pop())
        for each in before:
            self.reserve(each)
        return []
