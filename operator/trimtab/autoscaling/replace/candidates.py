"""Nodes that may be replaced: what scale-down's rules let go, whatever of them is used, what saves most first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from typing import Final

from msgspec import Struct

from trimtab.api.cluster_autoscaler_status import MAX_REPLACED
from trimtab.autoscaling.groups import Groups, NodeGroup
from trimtab.autoscaling.replace.record import Replacing
from trimtab.autoscaling.scale_down.drainability import Context
from trimtab.autoscaling.scale_down.eligibility import Eligibility, unready
from trimtab.autoscaling.scale_down.floors import Floors
from trimtab.autoscaling.scale_down.kinds import Kinds
from trimtab.autoscaling.scale_down.utilization import utilization
from trimtab.autoscaling.scale_up import Inputs
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.budgets import BudgetLedger
from trimtab.kube.objects import Node, Pod
from trimtab.placement.placer import Placer

MAX_JUDGED: Final = 100
"""Nodes of which it is asked whether they can be drained."""
MAX_PODS: Final = 600
"""Pods that a set may have to move: each is placed, in each trial."""


class Candidate(Struct, frozen=True, eq=False):
    """A node that may be replaced, and its pods that need a place elsewhere."""

    node: Node
    group: NodeGroup
    moving: tuple[Pod, ...]


class Candidates:
    """The nodes that may be replaced.

    Args:
        snapshot: the cluster.
        placer: of the snapshot.
        groups: of the snapshot.
        inputs: what the plan goes by.
        prices: what a node of a group costs an hour, by the group's id; nodes of other groups stay.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        placer: Placer,
        groups: Groups,
        inputs: Inputs,
        prices: Mapping[str, Fraction],
    ) -> None:
        self._snapshot, self._spec = snapshot, inputs.spec
        budgets = BudgetLedger(snapshot)
        context = Context(snapshot, budgets, inputs.now, local_storage_blocks=inputs.spec.skip_nodes_with_local_storage)
        self._kinds = Kinds(placer, context, least_priority=inputs.spec.pod_priority_threshold)
        self._staying = [node for node in snapshot.nodes.at if node is not None]
        self._ranked = self._rank(groups, inputs, prices)
        ids = dict.fromkeys(group.id for _, group in self._ranked)
        self.groups: tuple[NodeGroup, ...] = tuple(groups.by_id[id_] for id_ in ids)
        """The groups that have such nodes, in the order of their best ones."""

    def _rank(self, groups: Groups, inputs: Inputs, prices: Mapping[str, Fraction]) -> list[tuple[Node, NodeGroup]]:
        """Nodes by what of their price is not used, for each of their pods; of equals by name."""
        used = utilization(self._snapshot, inputs.spec, now=inputs.now)
        names = self._snapshot.nodes.slot_of
        eligibility = Eligibility(inputs.spec, groups, used, Replacing(old=frozenset(names)))
        floors = Floors(inputs.spec.resource_limits, self._staying)
        found = []
        for name, slot in names.items():
            group = groups.group_of(name)
            if group is None or group.id not in prices or group.id in inputs.unhealthy:
                continue
            node = self._snapshot.nodes.node(slot)
            if unready(node) or eligibility.refusal(node, slot) or floors.refusal(group, node):
                continue
            idle = float(prices[group.id]) * (1.0 - min(1.0, used.of(slot)))
            found.append((-idle / (1 + len(self._snapshot.items_on(name))), name, node, group))
        found.sort(key=lambda each: each[:2])
        return [(node, group) for _, _, node, group in found]

    @contextmanager
    def of(self, family: NodeGroup | None) -> Iterator[tuple[Candidate, ...]]:
        """Nodes that can all be drained together, as far as PodDisruptionBudgets and the least sizes allow.

        Args:
            family: only nodes of this group; ``None`` for those of all.
        """
        floors = Floors(self._spec.resource_limits, self._staying)
        accepted: list[Candidate] = []
        evicted: list[Pod] = []
        judged = pods = 0
        for node, group in self._ranked:
            if family is not None and group.id != family.id:
                continue
            if judged == MAX_JUDGED or len(accepted) == MAX_REPLACED or pods >= MAX_PODS:
                break
            judged += 1
            if floors.refusal(group, node) is not None:
                continue
            drain = self._kinds.drain(self._kinds.on(node.name))
            if drain.blocking is not None:
                continue
            evicted += drain.evicted
            if drain.moving:  # an empty node goes of itself
                accepted.append(Candidate(node, group, tuple(pod for pod, _ in drain.moving)))
                floors.take(group, node)
                pods += len(drain.moving)
        try:
            yield tuple(accepted)
        finally:
            self._kinds.take_back(evicted)
