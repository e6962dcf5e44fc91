"""RemoveDuplicates: spreads the pods of each owner over the nodes that can run them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from math import ceil
from typing import Final

import numpy as np
from msgspec import Struct, field

from trimtab.api.reasons import DUPLICATE_ON_NODE, NOT_ENOUGH_NODES
from trimtab.api.strategies import RemoveDuplicatesParams
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.workloads.owners import OwnerKey, owner_key
from trimtab.descheduling.planning.context import HELD_BACK, PlacementPreference, StrategyContext
from trimtab.descheduling.planning.scope import PolicyScope
from trimtab.descheduling.planning.victim_order import victim_order
from trimtab.descheduling.strategies.strategy import Measure, Strategy
from trimtab.kube.objects import TERMINAL_PHASES, Pod, PodSpec
from trimtab.placement.placer import Placer

ONE_PER_NODE: Final = frozenset({"DaemonSet", "Node"})
"""Owner kinds whose pods are bound to a node: DaemonSets, and Nodes, which own mirror pods."""


class OwnerSpread(Struct):
    """The distribution of one owner's pods over nodes, including protected but not terminated or terminating pods.

    Attributes:
        counts: number of pods on each of the policy's nodes, by slot.
        total: number of all pods, including pending ones.
        feasible: number of the policy's nodes that are eligible for some of the pods, regardless of free capacity.
        fair: the fair share: the number of pods per node if they are spread evenly, rounded up.
        full: the slots with at least ``fair`` pods.
    """

    owner: OwnerKey
    counts: Counter[int]
    total: int
    feasible: int = 0
    fair: int = 0
    full: set[int] = field(default_factory=set)

    def judge(self, feasible: int) -> None:
        """Set the number of eligible nodes and compute the fair share."""
        self.feasible = feasible
        self.fair = ceil(self.total / feasible) if feasible else self.total
        self.full = {slot for slot, count in self.counts.items() if count >= self.fair}

    def add(self, slot: int, amount: int) -> None:
        """Add ``amount`` to the count of a slot: 1 for a pod that was moved there, -1 for one that was moved away."""
        count = self.counts[slot] = self.counts.get(slot, 0) + amount  # Counter is slow for missing keys
        if count >= self.fair:
            self.full.add(slot)
        else:
            self.full.discard(slot)

    @property
    def name(self) -> str:
        """Return the owner in the form ``Kind namespace/name``."""
        return str(self.owner)


class RemoveDuplicates(Strategy[RemoveDuplicatesParams]):
    """Moves an owner's pods off nodes that have more than the fair share of them, if other nodes can run them.

    The fair share is computed over the nodes that are eligible for the pods by selector, affinity, taints and cordon,
    and counts every pod of the owner, including pods that must not be evicted. A pod is moved to the node with the
    fewest pods of the owner, and only if that node does not then exceed the share, so that no move causes another.

    The owner is the controller of the pods: during a rollout, the old and the new ReplicaSet are two owners.
    """

    NAME = "RemoveDuplicates"
    objection_text = "node(s) already had their share of the owner's pods"

    def __init__(self, params: RemoveDuplicatesParams, scope: PolicyScope, placer: Placer) -> None:
        super().__init__(params, scope, placer)
        self._excluded = ONE_PER_NODE.union(params.remove_duplicates.exclude_owner_kinds)
        self._known: dict[OwnerKey, OwnerSpread | None] = {}
        self._selected: list[bool] = scope.selected.tolist()
        self._feasible: dict[frozenset[int], tuple[dict[int, BoolArray], int]] = {}
        """The number of the policy's nodes that are eligible for some of the pods, by the masks of eligible nodes."""

    def plan(self, context: StrategyContext) -> None:
        """Plan moves owner by owner, in the order of their keys. Nodes with the most pods of an owner come first."""
        for owner in self.snapshot.owners_with_colocated_pods():
            spread = self._count(owner)
            if spread is None or max(spread.counts.values(), default=0) < 2:
                continue  # none of the policy's nodes exceeds the fair share
            spread = self._known[owner] = self._known.get(owner) or self._judged(spread)
            rank = self.snapshot.nodes.rank()
            for slot in sorted(spread.counts, key=lambda slot: (-spread.counts[slot], rank[slot])):
                if spread.feasible < 2:
                    self._keep_all(context, spread, slot)
                elif spread.counts[slot] > spread.fair:
                    self._move_excess(context, spread, slot)

    def measure(self) -> Measure:
        """Return the number of pods above the fair share, over all owners and nodes."""
        above = 0
        for owner in self.snapshot.owners():
            spread = self._count(owner)
            if spread is not None:
                self._judged(spread)
                above += sum(max(0, count - spread.fair) for count in spread.counts.values())
        return (float(above),)

    def worse_slots(self, pod: Pod) -> Collection[int]:
        """Return the slots where the pod would exceed the owner's fair share.

        Slots with fewer pods of the owner than the current node are omitted.
        """
        owner = owner_key(pod)
        if owner is None:
            return ()
        if owner not in self._known:
            counted = self._count(owner)
            self._known[owner] = None if counted is None else self._judged(counted)
        spread = self._known[owner]
        if spread is None:
            return ()
        here = spread.counts.get(self.snapshot.nodes.slot_of[pod.node], 0)
        if here <= spread.fair + 1:
            return spread.full
        return [slot for slot in spread.full if spread.counts[slot] + 1 >= here]

    def pod_moved(self, before: Pod, after: Pod) -> None:
        """Update the counts of the pod's owner after a planned move."""
        owner = owner_key(before)
        spread = None if owner is None else self._known.get(owner)
        if spread is not None:
            for pod, amount in ((before, -1), (after, 1)):
                slot = self.snapshot.nodes.slot_of[pod.node]
                if self._selected[slot]:
                    spread.add(slot, amount)

    def _count(self, owner: OwnerKey) -> OwnerSpread | None:
        """Return the distribution of the owner's pods; ``None`` if the strategy ignores the owner."""
        if owner.kind in self._excluded or owner.plain_kind in self._excluded:
            return None
        counts: Counter[int] = Counter()
        total = 0
        slot_of, selected = self.snapshot.nodes.slot_of, self._selected
        for pod in self.snapshot.each_owned_by(owner):
            if pod.phase in TERMINAL_PHASES or pod.deleted is not None:
                continue
            slot = slot_of.get(pod.node)
            if slot is None:
                total += 1
            elif selected[slot]:
                counts[slot] = counts.get(slot, 0) + 1
                total += 1
        return OwnerSpread(owner, counts, total)

    def _judged(self, spread: OwnerSpread) -> OwnerSpread:
        """Compute an owner's number of eligible nodes and fair share, and return ``spread``."""
        specs: dict[int, Pod] = {}
        last: PodSpec | None = None
        for pod in self.snapshot.each_owned_by(spread.owner):
            if pod.spec is not last and pod.phase not in TERMINAL_PHASES and pod.deleted is None:
                last = pod.spec
                specs[id(last)] = pod
        masks = {
            id(mask): mask for mask in (self.placer.eligible(self.placer.replacement(pod)) for pod in specs.values())
        }
        alike = frozenset(masks)
        known = self._feasible.get(alike)
        if known is None:
            union = np.logical_or.reduce([*masks.values()]) & self.scope.destinations if masks else np.zeros(0)
            known = self._feasible[alike] = (masks, int(np.count_nonzero(union)))  # kept, so that the ids stay valid
        spread.judge(known[1])
        return spread

    def _on(self, context: StrategyContext, spread: OwnerSpread, slot: int) -> list[Pod]:
        node = self.snapshot.nodes.node(slot).name
        pods = self.snapshot.owned_by(spread.owner)
        return sorted((pod for pod in pods if pod.node == node and context.is_candidate(pod)), key=victim_order)

    def _keep_all(self, context: StrategyContext, spread: OwnerSpread, slot: int) -> None:
        """Record why pods on a node are kept, all but one, if no other node is eligible for the owner's pods."""
        number = spread.counts[slot]
        name = self.snapshot.nodes.node(slot).name
        nodes = "no node" if not spread.feasible else "only one node"
        for pod in self._on(context, spread, slot)[: number - 1]:
            text = f"{number} pods of {spread.name} on {name}; {nodes} of the policy can run them"
            context.keep(pod, NOT_ENOUGH_NODES, text)

    def _move_excess(self, context: StrategyContext, spread: OwnerSpread, slot: int) -> None:
        """Move the owner's pods off a node until it has its fair share.

        Pods that are kept because of a limit are counted as moved.
        """
        nodes = self.snapshot.nodes
        limited = 0
        for pod in self._on(context, spread, slot):
            here = spread.counts[slot]
            if here - limited <= spread.fair:
                return
            start = f"{nodes.node(slot).name} runs {here} pods of {spread.name}"

            def message(target: int, start: str = start) -> str:
                return f"{start}; {nodes.node(target).name} runs {spread.counts[target] or 'none'}"

            refusal = context.try_move(pod, self._preference(spread), reason=DUPLICATE_ON_NODE, message=message)
            limited += refusal is not None and refusal.reason in HELD_BACK

    def _preference(self, spread: OwnerSpread) -> PlacementPreference:
        """Return a preference for nodes below the fair share. Those with the fewest pods of the owner come first."""
        among: BoolArray = np.ones(self.snapshot.nodes.capacity, dtype=np.bool_)
        rank: IntArray = np.zeros(self.snapshot.nodes.capacity, dtype=np.int64)
        for slot, count in spread.counts.items():
            rank[slot] = count
            among[slot] = count < spread.fair
        return PlacementPreference(
            among, f"node(s) already had their share ({spread.fair}) of the pods of {spread.name}", rank
        )
