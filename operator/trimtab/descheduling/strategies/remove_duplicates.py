"""RemoveDuplicates: the pods of one owner spread over the nodes that can run them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from math import ceil
from typing import Final

import numpy as np
from msgspec import Struct, field

from trimtab.api.reasons import DUPLICATE_ON_NODE, LIMIT_REACHED, NOT_ENOUGH_NODES
from trimtab.api.strategies import RemoveDuplicatesParams
from trimtab.cluster.owners import OwnerKey, owner_key
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.descheduling.context import Context, Wish, pending
from trimtab.descheduling.order import victim_order
from trimtab.descheduling.scope import Scope
from trimtab.descheduling.strategies.strategy import Measure, Strategy
from trimtab.kube.objects import ENDED, Pod, PodSpec
from trimtab.placement.placer import Placer

ONE_PER_NODE: Final = frozenset({"DaemonSet", "Node"})
"""Owners whose pods belong to a node: DaemonSets, and nodes, which own mirror pods."""


class Spread(Struct):
    """The pods of one owner: neither at their end nor on their way out, protected ones among them.

    Attributes:
        counts: pods by slot, on the policy's nodes.
        total: all pods, those without a node included, which will land on some.
        feasible: how many of the policy's nodes can run some of the pods, however full they are.
        fair: what one node holds when the pods are spread evenly, rounded up.
        full: the slots that hold at least as many.
    """

    owner: OwnerKey
    counts: Counter[int]
    total: int
    feasible: int = 0
    fair: int = 0
    full: set[int] = field(default_factory=set)

    def judge(self, feasible: int) -> None:
        """Work out the fair share."""
        self.feasible = feasible
        self.fair = ceil(self.total / feasible) if feasible else self.total
        self.full = {slot for slot, count in self.counts.items() if count >= self.fair}

    def add(self, slot: int, amount: int) -> None:
        """Count a pod that comes (1) or goes (-1)."""
        count = self.counts[slot] = self.counts.get(slot, 0) + amount  # a Counter is slow where it has nothing
        if count >= self.fair:
            self.full.add(slot)
        else:
            self.full.discard(slot)

    @property
    def name(self) -> str:
        """The owner as people name it."""
        namespace, kind, name = self.owner
        return f"{kind} {namespace}/{name}"


class RemoveDuplicates(Strategy[RemoveDuplicatesParams]):
    """No node holds more than its fair share of an owner's pods, if others can take them.

    The fair share is that of the nodes that can run the pods at all, by selector, affinity, taints and cordon, and
    counts every pod of the owner: also those that may not be moved take a share. A pod goes where the fewest of its
    siblings are, and only where it stays within the share, so that no move calls for another.

    An owner is what controls the pods directly: during a rollout the old and the new ReplicaSet are two.
    """

    NAME = "RemoveDuplicates"
    unwelcome_text = "node(s) had their fair share of the owner's pods"

    def __init__(self, params: RemoveDuplicatesParams, scope: Scope, placer: Placer) -> None:
        super().__init__(params, scope, placer)
        self._excluded = ONE_PER_NODE.union(params.remove_duplicates.exclude_owner_kinds)
        self._known: dict[OwnerKey, Spread | None] = {}
        self._selected: list[bool] = scope.selected.tolist()
        self._feasible: dict[frozenset[int], tuple[dict[int, BoolArray], int]] = {}
        """How many of the policy's nodes take some of the pods, by the nodes that suit these."""

    def plan(self, context: Context) -> None:
        """Owner by owner in the order of their keys; of each the fullest nodes first."""
        for owner in self.snapshot.crowded_owners():
            spread = self._count(owner)
            if spread is None or max(spread.counts.values(), default=0) < 2:
                continue  # crowded on nodes of which the policy looks at none
            spread = self._known[owner] = self._known.get(owner) or self._judged(spread)
            rank = self.snapshot.nodes.rank()
            for slot in sorted(spread.counts, key=lambda slot: (-spread.counts[slot], rank[slot])):
                if spread.feasible < 2:
                    self._keep_all(context, spread, slot)
                elif spread.counts[slot] > spread.fair:
                    self._relieve(context, spread, slot)

    def measure(self) -> Measure:
        """Pods above the fair share, over all owners and nodes."""
        above = 0
        for owner in self.snapshot.owners():
            spread = self._count(owner)
            if spread is not None:
                self._judged(spread)
                above += sum(max(0, count - spread.fair) for count in spread.counts.values())
        return (float(above),)

    def unwelcome(self, pod: Pod) -> Collection[int]:
        """Nodes on which the pod would be one more than the fair share, and no less crowded than where it is."""
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

    def moved(self, before: Pod, after: Pod) -> None:
        """Keep the counts of the pod's owner right."""
        owner = owner_key(before)
        spread = None if owner is None else self._known.get(owner)
        if spread is not None:
            for pod, amount in ((before, -1), (after, 1)):
                slot = self.snapshot.nodes.slot_of[pod.node]
                if self._selected[slot]:
                    spread.add(slot, amount)

    def _count(self, owner: OwnerKey) -> Spread | None:
        """The owner's pods as they are now, ``None`` for an owner that the strategy leaves alone."""
        if owner[1] in self._excluded:
            return None
        counts: Counter[int] = Counter()
        total = 0
        slot_of, selected = self.snapshot.nodes.slot_of, self._selected
        for pod in self.snapshot.each_owned_by(owner):
            if pod.phase in ENDED or pod.deleted is not None:
                continue
            slot = slot_of.get(pod.node)
            if slot is None:
                total += 1
            elif selected[slot]:
                counts[slot] = counts.get(slot, 0) + 1
                total += 1
        return Spread(owner, counts, total)

    def _judged(self, spread: Spread) -> Spread:
        """The same with the number of the policy's nodes that can run some of the owner's pods."""
        specs: dict[int, Pod] = {}
        last: PodSpec | None = None
        for pod in self.snapshot.each_owned_by(spread.owner):
            if pod.spec is not last and pod.phase not in ENDED and pod.deleted is None:
                last = pod.spec
                specs[id(last)] = pod
        masks = {id(mask): mask for mask in (self.placer.eligible(pending(pod)) for pod in specs.values())}
        alike = frozenset(masks)
        known = self._feasible.get(alike)
        if known is None:
            union = np.logical_or.reduce([*masks.values()]) & self.scope.destinations if masks else np.zeros(0)
            known = self._feasible[alike] = (masks, int(np.count_nonzero(union)))  # held: their ids stay theirs
        spread.judge(known[1])
        return spread

    def _on(self, context: Context, spread: Spread, slot: int) -> list[Pod]:
        node = self.snapshot.nodes.node(slot).name
        pods = self.snapshot.owned_by(spread.owner)
        return sorted((pod for pod in pods if pod.node == node and context.is_candidate(pod)), key=victim_order)

    def _keep_all(self, context: Context, spread: Spread, slot: int) -> None:
        """Name the duplicates of an owner that has no second node to spread to: all but one pod."""
        number = spread.counts[slot]
        name = self.snapshot.nodes.node(slot).name
        nodes = "no node" if not spread.feasible else "only one node"
        for pod in self._on(context, spread, slot)[: number - 1]:
            text = f"{number} pods of {spread.name} on {name}; {nodes} of the policy's can run them"
            context.keep(pod, NOT_ENOUGH_NODES, text)

    def _relieve(self, context: Context, spread: Spread, slot: int) -> None:
        """Move pods off a node until it holds its fair share; what a limit keeps counts as if it had gone."""
        nodes = self.snapshot.nodes
        cut = 0
        for pod in self._on(context, spread, slot):
            here = spread.counts[slot]
            if here - cut <= spread.fair:
                return
            start = f"{here} pods of {spread.name} on {nodes.node(slot).name}"

            def message(target: int, start: str = start) -> str:
                return f"{start}; {nodes.node(target).name} has {spread.counts[target] or 'none'}"

            refusal = context.try_move(pod, self._wish(spread), reason=DUPLICATE_ON_NODE, message=message)
            cut += refusal is not None and refusal.reason == LIMIT_REACHED

    def _wish(self, spread: Spread) -> Wish:
        """Nodes below the fair share, those with the fewest of the owner's pods first."""
        among: BoolArray = np.ones(self.snapshot.nodes.capacity, dtype=np.bool_)
        rank: IntArray = np.zeros(self.snapshot.nodes.capacity, dtype=np.int64)
        for slot, count in spread.counts.items():
            rank[slot] = count
            among[slot] = count < spread.fair
        return Wish(among, f"node(s) had their fair share ({spread.fair}) of the pods of {spread.name}", rank)
