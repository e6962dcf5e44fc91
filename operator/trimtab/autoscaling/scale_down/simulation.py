"""Simulates the removal of a node: finds another node for every pod that must move.

If a pod does not fit anywhere, the simulation is left unchanged. Pods whose placement depends only on nodes and
resource amounts are placed on arrays of free amounts (:class:`FreeCapacity`), many at once. Before the simulation
places a pod that depends on other pods or on volumes (affinity, spread, ports, volumes), it writes the placements found
so far to the snapshot, and applies the planned removals to it.

Replacements are scheduled while the nodes drain, so a node that is being removed stays in the snapshot: cordoned,
tainted and without the pods that move (cluster-autoscaler's HEAD judges this state as well, kubernetes/autoscaler
#9288). With ``nodeTaintsPolicy: Ignore``, the default, an empty node is a topology domain of a spread constraint until
it no longer exists. Where the placements could be wrong once the nodes are gone, that state is checked, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import Final

import numpy as np
from msgspec import Struct

from trimtab.autoscaling.scale_down.equivalence import (
    ClassifiedPods,
    EquivalenceClass,
    EquivalenceClasses,
    NodeDrain,
    PlacementClass,
)
from trimtab.cluster.disruption_signals import as_draining
from trimtab.cluster.node_table import NodeTable
from trimtab.cluster.resources import PODS, UNKNOWN, BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.workloads.replacements import differences
from trimtab.kube.objects import Node, Pod
from trimtab.kube.rules.selectors import matches_labels
from trimtab.placement.feasibility import Diagnosis
from trimtab.placement.filters.nodes import shortage_text
from trimtab.placement.interface import Failure
from trimtab.placement.placer import Placer
from trimtab.placement.plan_budget import UNLIMITED, PlanBudget
from trimtab.placement.topology_spread import hard_constraints

SlotCounts = list[tuple[int, int]]
"""Node slots, each with the number of pods that are placed on it."""


class FreeCapacity:
    """The free capacity of the nodes that may receive pods, in the order in which they are filled.

    It is separate from the node table, so that a placement does not change the snapshot. The snapshot is changed only
    when other code needs to read pods instead of amounts. Positions are indices in the order.

    Args:
        nodes: the node table. Only the constructor reads it.
        order: int64: the slots in the order in which they are filled.
    """

    def __init__(self, nodes: NodeTable, order: IntArray) -> None:
        self.order = order
        self._capacity = nodes.capacity
        self.position = {slot: position for position, slot in enumerate(order.tolist())}
        self._free: IntArray = np.ascontiguousarray((nodes.allocatable[order] - nodes.requested[order]).T)
        self._open: BoolArray = np.ones(len(order), dtype=np.bool_)
        self._eligible: dict[int, tuple[PlacementClass, BoolArray]] = {}
        self._first: dict[int, int] = {}
        """By the number of a placement class, a position before which none has room for a pod of the class."""

    def free_of(self, column: int) -> IntArray:
        """Return the free amount of a resource as int64 of shape (capacity,).

        The amount is 0 for nodes that are not in the order.
        """
        left: IntArray = np.zeros(self._capacity, dtype=np.int64)
        left[self.order] = self._free[column]
        return left

    def close(self, slot: int) -> None:
        """Exclude a node from receiving pods."""
        position = self.position.get(slot)
        if position is not None:
            self._open[position] = False

    def reopen(self, slot: int) -> None:
        """Undo :meth:`close`."""
        position = self.position.get(slot)
        if position is not None:
            self._open[position] = True
            self._first.clear()

    def find(self, placement_class: PlacementClass, count: int) -> SlotCounts:
        """Find slots for pods, first fit in order.

        The slots may have room for fewer than ``count`` pods in total.
        """
        times = np.where(self._open & self._suits(placement_class), count, 0)
        for column, amount in placement_class.wanted:
            left = self._free[column]
            np.minimum(times, left if amount == 1 else left // amount, out=times)
        at = np.flatnonzero(times > 0)
        total = np.cumsum(times[at])
        at = at[: int(np.searchsorted(total, count)) + 1]
        shares = []
        for position in at.tolist():
            number = min(count, int(times[position]))
            shares.append((int(self.order[position]), number))
            count -= number
        return shares

    def first(self, among: BoolArray) -> int | None:
        """Return the first open slot in order for which ``among`` is true (bool, shape (capacity,)), or ``None``."""
        at = np.flatnonzero(self._open & among[self.order])
        return int(self.order[at[0]]) if len(at) else None

    def first_of(self, placement_class: PlacementClass, rejected: BoolArray | None) -> int | None:
        """Return the first open slot in order that has room for one pod and is not rejected, or ``None``.

        Args:
            placement_class: the placement class of the pod.
            rejected: bool, shape (capacity,): the slots where the pod must not run; ``None`` for none.
        """
        first = self._first.get(placement_class.number)
        if first is not None and self._fits_at(placement_class, first):
            slot = int(self.order[first])
            if rejected is None or not rejected[slot]:
                return slot
        fits = self._fits(placement_class)
        if not fits.any():
            return None
        self._first[placement_class.number] = int(fits.argmax())
        if rejected is not None:
            fits &= ~rejected[self.order]
        position = int(fits.argmax())
        return int(self.order[position]) if fits[position] else None

    def count(self, placement_class: PlacementClass) -> int:
        """Return the number of open nodes that have room for one pod."""
        return int(np.count_nonzero(self._fits(placement_class)))

    def take(self, slot: int, wanted: tuple[tuple[int, int], ...], count: int) -> None:
        """Reserve the amounts of ``count`` pods on a slot. A negative count releases them."""
        position = self.position[slot]
        for column, amount in wanted:
            self._free[column, position] -= amount * count
        if count < 0:
            self._first.clear()

    def is_open(self) -> BoolArray:
        """Return which positions may receive pods, as bool of shape (positions,)."""
        return self._open

    def _fits(self, placement_class: PlacementClass) -> BoolArray:
        fits: BoolArray = self._open & self._suits(placement_class)
        for column, amount in placement_class.wanted:
            fits &= self._free[column] >= amount
        return fits

    def _fits_at(self, placement_class: PlacementClass, position: int) -> bool:
        if not (self._open[position] and self._suits(placement_class)[position]):
            return False
        return all(self._free[column, position] >= amount for column, amount in placement_class.wanted)

    def _suits(self, placement_class: PlacementClass) -> BoolArray:
        found = self._eligible.get(placement_class.number)
        if found is None:
            found = self._eligible[placement_class.number] = (placement_class, placement_class.eligible[self.order])
        return found[1]


UNREADY: Final = "node(s) were not ready"


def no_capacity_message(
    placer: Placer, room: FreeCapacity, placement_class: PlacementClass, excluded: Collection[int]
) -> str:
    """Describe why a pod does not fit on the remaining capacity.

    The placement of the pod must depend only on nodes and amounts. The placements planned so far are not in the
    snapshot, so :meth:`~trimtab.placement.feasibility.FeasibilityChecker.unschedulable_message` cannot be used.

    Args:
        placer: places pods on the snapshot.
        room: the nodes that may receive pods.
        placement_class: the placement class of the pod.
        excluded: slots of the nodes that are being removed.
    """
    nodes = placer.snapshot.nodes
    left: BoolArray = nodes.used.copy()
    left[list(excluded)] = False
    number = int(np.count_nonzero(left))
    failures: list[Failure] = []
    for rule in placer.filters:
        passing = rule.passing(placement_class.sample) if rule.reads == "node" else None
        if passing is not None:
            failing = np.flatnonzero(left & ~passing)
            failures.extend(rule.failures(placement_class.sample, failing))
            left &= passing
    is_open: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
    is_open[room.order[room.is_open()]] = True
    failures.append(((UNREADY,), np.flatnonzero(left & ~is_open)))
    slots = np.flatnonzero(left & is_open)
    wanted = sorted(placement_class.wanted, key=lambda each: (each[0] != PODS, each[0]))
    short = np.zeros(len(slots), dtype=np.int64)  # one bit per insufficient resource
    for place, (column, amount) in enumerate(wanted):
        short |= (room.free_of(column)[slots] < amount).astype(np.int64) << place
    for bits in np.flatnonzero(np.bincount(short)).tolist():
        columns = [column for place, (column, _) in enumerate(wanted) if bits >> place & 1]
        texts = tuple(text for column in columns for text in _shortage_texts(placer, placement_class, column))
        failures.append((texts, slots[short == bits]))
    return Diagnosis(number, None, tuple(failures)).message()


def no_place_message(placer: Placer, room: FreeCapacity, pod: Pod) -> str:
    """Describe why a pod that depends on other pods or volumes does not fit. The snapshot must be up to date."""
    is_open: BoolArray = np.zeros(placer.snapshot.nodes.capacity, dtype=np.bool_)
    is_open[room.order[room.is_open()]] = True
    return placer.unschedulable_message(pod, ((is_open, UNREADY),))


def _shortage_texts(placer: Placer, placement_class: PlacementClass, column: int) -> tuple[str, ...]:
    if column == UNKNOWN:
        missing = placer.snapshot.amounts(placement_class.sample.spec).missing
        return tuple(f"Insufficient {name}" for name in missing)
    return (shortage_text(placer.snapshot, column),)


Wanted = tuple[tuple[int, int], ...]


class RemovalAttempt(Struct, frozen=True):
    """The result of trying to remove a node.

    Attributes:
        drain: the result of the drain rules. If a pod blocks the removal, no placement was tried.
        moves: the pods and their target nodes, in the order in which they were placed.
        stuck: the pod that does not fit on another node; ``None`` if all pods fit.
        reason: the reason why that pod does not fit.
        differing: where the replacement of that pod differs from it, if the pod itself would fit; else empty.
    """

    drain: NodeDrain
    moves: tuple[tuple[Pod, str], ...] = ()
    stuck: Pod | None = None
    reason: str = ""
    differing: str = ""

    @property
    def done(self) -> bool:
        """Return whether the node can be removed. If not, the simulation is unchanged."""
        return self.drain.blocking is None and self.stuck is None


class Simulation:
    """Simulates node removals one after another on a fork of a snapshot.

    Args:
        placer: places pods on the snapshot.
        classes: the equivalence classes of the pods. They also track the PodDisruptionBudgets.
        room: the nodes that may receive pods.
        budget: the time limit of the plan. Only the placement of pods that depend on other pods counts toward it.
    """

    def __init__(
        self, placer: Placer, classes: EquivalenceClasses, room: FreeCapacity, budget: PlanBudget = UNLIMITED
    ) -> None:
        self._budget = budget
        self._placer = placer
        self._snapshot: Snapshot = placer.snapshot
        self._nodes: NodeTable = placer.snapshot.nodes
        self._classes = classes
        self._room = room
        self._unflushed: list[tuple[Pod, str]] = []
        self._going: list[Node] = []
        self._draining: dict[str, Node] = {}
        self._excluded: set[int] = set()
        self._taken: list[tuple[int, Wanted, int]] = []
        self._found: list[tuple[Pod, str]] = []
        self._reserved = 0  # pods placed by reserve_all
        self.receivers: set[str] = set()
        """Names of the nodes that were chosen as targets of pods. These nodes are therefore kept."""

    def attempt(self, node: Node, pods: ClassifiedPods) -> RemovalAttempt:
        """Remove a node if all its pods can be evicted and fit on other nodes.

        Args:
            node: the node. It must not be the target of other pods.
            pods: the pods on the node, from :meth:`~trimtab.autoscaling.scale_down.equivalence.EquivalenceClasses.on`.
        """
        drain = self._classes.drain(pods)
        if drain.blocking is not None:
            return RemovalAttempt(drain)
        slot = self._nodes.slot_of[node.name]
        self._room.close(slot)
        self._excluded.add(slot)
        self._taken, self._found = [], []
        aware = any(pod_class.placement_class is None for _, pod_class in drain.moving)
        stuck = self._place_with_dependencies(node, drain.moving) if aware else self._place_by_amounts(drain.moving)
        if stuck is not None:
            for taker, wanted, count in self._taken:
                self._room.take(taker, wanted, -count)
            differing = self._why_only_replacement(stuck[0])
            self._room.reopen(slot)
            self._excluded.discard(slot)
            self._classes.take_back(drain.evicted)
            return RemovalAttempt(drain, stuck=stuck[0], reason=stuck[1], differing=differing)
        if not aware:
            self._unflushed += self._found
            self._going.append(node)
        self.receivers.update(target for _, target in self._found)
        return RemovalAttempt(drain, moves=tuple(self._found))

    def reserve_all(self, pods: Sequence[Pod]) -> None:
        """Reserve capacity for pods that must be placed in any case.

        These are pending pods, and the pods of nodes that are already being removed. Pods that fit nowhere are skipped,
        because they must wait for a new node.

        Args:
            pods: the pods in the order in which they are placed. A pod that is on a node is unbound first.
        """
        hopeless: set[int] = set()
        for placement_class, alike in groupby(pods, key=lambda pod: self._classes.of(pod).placement_class):
            self._taken, self._found = [], []
            if placement_class is None:
                self._flush()
                for pod in alike:
                    if self._budget.exceeded(pod.namespace) is None:
                        pod_class = self._classes.of(pod)
                        self._reserve(self._placer.displace(pod), pod_class)
            elif placement_class.number not in hopeless:
                if self._place(placement_class, list(alike)) is not None:
                    hopeless.add(placement_class.number)
                self._unflushed += self._found
            self._reserved += len(self._found)
            self.receivers.update(target for _, target in self._found)

    def leaves_choice(self, moving: Sequence[tuple[Pod, EquivalenceClass]]) -> bool:
        """Return whether each of these pods finds a node wherever the scheduler places the others.

        A pod that the scheduler does not place as planned takes the room of at most one node. So it is enough if each
        pod also fits on as many nodes as there are pods, in addition to all that is planned. Pods whose placement
        depends on other pods or on volumes are not judged.
        """
        number = self._reserved + len(moving)
        if number <= 1:
            return True
        classes = {id(pod_class): pod_class.placement_class for _, pod_class in moving}
        return all(each is not None and self._room.count(each) >= number for each in classes.values())

    def exclude(self, node: Node) -> None:
        """Exclude a node that is already being removed."""
        self._going.append(node)
        self._excluded.add(self._nodes.slot_of[node.name])

    def _place_by_amounts(self, moving: ClassifiedPods) -> tuple[Pod, str] | None:
        """Place pods by placement class, largest first.

        Returns:
            The first pod that does not fit and the reason, or ``None``.
        """
        groups: defaultdict[int, list[Pod]] = defaultdict(list)
        class_of: dict[int, PlacementClass] = {}
        for pod, pod_class in moving:
            if pod_class.placement_class is not None:
                groups[pod_class.placement_class.number].append(pod)
                class_of[pod_class.placement_class.number] = pod_class.placement_class
        for number in sorted(groups, key=lambda each: _largest_first(class_of[each], groups[each])):
            stuck = self._place(class_of[number], groups[number])
            if stuck is not None:
                return stuck, no_capacity_message(self._placer, self._room, class_of[number], self._excluded)
        return None

    def _place(self, placement_class: PlacementClass, pods: Sequence[Pod]) -> Pod | None:
        placed = 0
        for slot, count in self._room.find(placement_class, len(pods)):
            self._room.take(slot, placement_class.wanted, count)
            self._taken.append((slot, placement_class.wanted, count))
            name = self._nodes.node(slot).name
            self._found += [(pod, name) for pod in pods[placed : placed + count]]
            placed += count
        return pods[placed] if placed < len(pods) else None

    def _place_with_dependencies(self, node: Node, moving: ClassifiedPods) -> tuple[Pod, str] | None:
        """Place pods on an up-to-date snapshot, starting with those that depend on other pods.

        Returns:
            The first pod that does not fit and the reason, or ``None``.
        """
        self._flush()
        mark = self._snapshot.mark()
        lifted = {pod.key: self._placer.displace(pod) for pod, _ in moving}
        self._snapshot.put(as_draining(node))
        stuck: tuple[Pod, str] | None = None
        for pod, pod_class in moving:
            if pod_class.placement_class is None and not self._reserve(lifted[pod.key], pod_class):
                with self._budget.charged(pod.namespace):
                    stuck = pod, self._why_nowhere(lifted[pod.key], node)
                break
        if stuck is None:
            before = len(self._found)
            stuck = self._place_by_amounts(moving)
            for pod, target in self._found[before:]:
                self._snapshot.move(lifted[pod.key], target)
        if stuck is None and self._depends_on_remaining(node, lifted.values()):
            stuck = self._stuck_without(node, self._found[:before])
        if stuck is None:
            self._draining[node.name] = node
            self._snapshot.commit(mark)
        else:
            self._snapshot.undo(mark)
        return stuck

    def _why_only_replacement(self, pod: Pod) -> str:
        """Return where the replacement of a pod differs from it, if only the pod itself would fit; else ``""``."""
        differing = differences(pod, self._placer.replacement(pod))
        if not differing:
            return ""
        self._flush()
        mark = self._snapshot.mark()
        fits = self._room.first(self._placer.feasible(self._placer.unbind(pod))) is not None
        self._snapshot.undo(mark)
        return differing if fits else ""

    def _why_nowhere(self, pod: Pod, node: Node) -> str:
        """Describe why a pod does not fit while the node drains. The snapshot must be up to date."""
        message = no_place_message(self._placer, self._room, pod)
        ignoring = [each.topology_key for each in hard_constraints(pod.spec) if each.node_taints_policy != "Honor"]
        if not ignoring:
            return message
        mark = self._snapshot.mark()
        self._snapshot.remove(node)
        fits_later = self._room.first(self._placer.feasible(pod)) is not None
        self._snapshot.undo(mark)
        if not fits_later:
            return message
        return (
            f"{message.rstrip('.')}; the pod would fit if node {node.name} no longer existed: until then it is a "
            f"domain of {', '.join(ignoring)}, unless the spread constraint has nodeTaintsPolicy: Honor"
        )

    def _depends_on_remaining(self, node: Node, moving: Iterable[Pod]) -> bool:
        """Return whether places of the pods could be wrong once the node, and the pods that stay on it, are gone."""
        remaining = [pod for pod in self._snapshot.pods_on(node.name) if not pod.terminal]
        for pod in moving:
            for constraint in hard_constraints(pod.spec):
                if constraint.min_domains is not None or any(
                    other.namespace == pod.namespace and matches_labels(constraint.selector, other.labels)
                    for other in remaining
                ):
                    return True
            for term in pod.spec.affinity.pod_required:
                if any(matches_labels(term.selector, other.labels) for other in remaining):
                    return True
        return False

    def _stuck_without(self, node: Node, placed: Sequence[tuple[Pod, str]]) -> tuple[Pod, str] | None:
        """Return a pod whose place is wrong once all nodes that drain are gone, and the reason, or ``None``."""
        mark = self._snapshot.mark()
        for each in (*self._draining.values(), node):
            self._snapshot.remove(each)
        lifted = [(self._placer.unbind(self._snapshot.pods[pod.key]), target) for pod, target in placed]
        stuck: tuple[Pod, str] | None = None
        for pod, target in lifted:
            with self._budget.charged(pod.namespace):
                slot = self._nodes.slot_of[target]
                if not self._placer.feasible(pod)[slot]:
                    stuck = pod, f"{no_place_message(self._placer, self._room, pod)}, once node {node.name} is removed"
                    break
                self._placer.reserve(pod, slot)
        self._snapshot.undo(mark)
        return stuck

    def _reserve(self, pod: Pod, pod_class: EquivalenceClass) -> bool:
        """Place an unbound pod on the first feasible node in order, and return whether there is one."""
        with self._budget.charged(pod.namespace):
            return self._find(pod, pod_class.repelled_class)

    def _find(self, pod: Pod, repelled_class: PlacementClass | None) -> bool:
        if repelled_class is None:
            slot = self._room.first(self._placer.feasible(pod))
        else:
            slot = self._room.first_of(repelled_class, self._placer.rejected_by_anti_affinity(pod))
        if slot is None:
            return False
        wanted = self._snapshot.amounts(pod.spec).wanted
        self._placer.reserve(pod, slot)
        self._room.take(slot, wanted, 1)
        self._taken.append((slot, wanted, 1))
        self._found.append((pod, self._nodes.node(slot).name))
        return True

    def _flush(self) -> None:
        """Apply to the snapshot the placements and removals that only :class:`FreeCapacity` contains so far."""
        for pod, target in self._unflushed:
            self._snapshot.move(self._placer.replacement(pod), target)
        for node in self._going:
            self._snapshot.put(as_draining(node))
            self._draining[node.name] = node
        self._unflushed.clear()
        self._going.clear()


def _largest_first(placement_class: PlacementClass, pods: Sequence[Pod]) -> tuple[list[tuple[int, int]], str]:
    return [(column, -amount) for column, amount in placement_class.wanted], pods[0].key
