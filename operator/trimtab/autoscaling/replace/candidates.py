"""Selects the nodes that may be replaced, by the price that is saved per moved pod."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from fractions import Fraction
from typing import Final

from msgspec import Struct

from trimtab.api.cluster_autoscaler_status import MAX_REPLACED
from trimtab.autoscaling.groups import Groups, NodeGroup
from trimtab.autoscaling.replace.replacement_state import ReplacementState
from trimtab.autoscaling.scale_down.drainability import DrainContext
from trimtab.autoscaling.scale_down.eligibility import Eligibility, ResourceMinimums, unready, utilization
from trimtab.autoscaling.scale_down.equivalence import EquivalenceClasses, namespaces_with_dependent_pods
from trimtab.autoscaling.scale_up import PlanInputs
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.budgets import BudgetLedger
from trimtab.kube.objects import Node, Pod
from trimtab.placement.placer import Placer

MAX_BLOCKED: Final = 100
"""Maximum number of blocked nodes that the planner evaluates: a pod blocks their drain, or a trial found them stuck.

The planner evaluates nodes by rank until half of this number are blocked, and then the other nodes in a random order.
Otherwise, pods that block the best-ranked nodes would keep all nodes after them from ever being evaluated.
"""
MAX_PODS: Final = 600
"""Maximum number of pods that must move from a set of nodes. Each trial places all of them."""


class ReplacementCandidate(Struct, frozen=True, eq=False):
    """A node that may be replaced.

    Attributes:
        node: the node.
        group: its group.
        moving: its pods that need another node.
        slow: the namespaces of its pods whose placement depends on other pods.
    """

    node: Node
    group: NodeGroup
    moving: tuple[Pod, ...]
    slow: tuple[str, ...] = ()


class ReplacementCandidates:
    """The nodes that may be replaced.

    Args:
        snapshot: the cluster state.
        placer: places pods on the snapshot.
        groups: the node groups of the snapshot.
        inputs: the inputs of the plan.
        prices: the price of a node per hour by group id. Nodes of other groups are kept.
        receivers: names of nodes on which pending pods are planned to run. These nodes are kept.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        placer: Placer,
        groups: Groups,
        inputs: PlanInputs,
        prices: Mapping[str, Fraction],
        receivers: Collection[str] = (),
    ) -> None:
        self._snapshot, self._spec, self._receivers = snapshot, inputs.spec, receivers
        self._now = inputs.now
        budgets = BudgetLedger(snapshot)
        context = DrainContext(
            snapshot, budgets, inputs.now, local_storage_blocks=inputs.spec.skip_nodes_with_local_storage
        )
        self._classes = EquivalenceClasses(placer, context, priority_cutoff=inputs.spec.pod_priority_threshold)
        self._remaining = [node for node in snapshot.nodes.at if node is not None]
        self._ranked = self._rank(groups, inputs, prices)
        ids = dict.fromkeys(group.id for _, group in self._ranked)
        self.groups: tuple[NodeGroup, ...] = tuple(groups.by_id[id_] for id_ in ids)
        """The groups with nodes that may be replaced, in the order of their best-ranked nodes."""

    def _rank(self, groups: Groups, inputs: PlanInputs, prices: Mapping[str, Fraction]) -> list[tuple[Node, NodeGroup]]:
        """Rank nodes by the price of their unused part, divided by the number of their pods plus one, then by name."""
        used = utilization(self._snapshot, inputs.spec, now=inputs.now)
        names = self._snapshot.nodes.slot_of
        eligibility = Eligibility(inputs.spec, groups, used, ReplacementState(old=frozenset(names)))
        floors = ResourceMinimums(inputs.spec.resource_limits, self._remaining)
        found = []
        for name, slot in names.items():
            group = groups.group_of(name)
            if group is None or group.id not in prices or group.id in inputs.unhealthy_groups:
                continue
            if name in self._receivers:
                continue
            node = self._snapshot.nodes.node(slot)
            if unready(node) or eligibility.refusal(node, slot) or floors.refusal(group, node):
                continue
            idle = float(prices[group.id]) * (1.0 - min(1.0, used.of(slot)))
            found.append((-idle / (1 + len(self._snapshot.items_on(name))), name, node, group))
        found.sort(key=lambda each: each[:2])
        return [(node, group) for _, _, node, group in found]

    def of(
        self, family: NodeGroup | None, stuck: Collection[str] = (), order: random.Random | None = None
    ) -> tuple[ReplacementCandidate, ...]:
        """Return the nodes that can all be drained together within budgets and minimum sizes.

        They are sorted by rank. See :data:`MAX_BLOCKED` for the nodes that are evaluated.

        Args:
            family: the group whose nodes are considered; ``None`` for all groups.
            stuck: names of nodes that are left out, because a trial found them stuck.
            order: if given, the nodes are evaluated and returned in a random order instead.
        """
        floors = ResourceMinimums(self._spec.resource_limits, self._remaining)
        ranked = [each for each in self._ranked if family is None or each[1].id == family.id]
        ranks = list(reversed(range(len(ranked))))
        if order is not None:
            order.shuffle(ranks)
        accepted: dict[int, ReplacementCandidate] = {}
        evicted: list[Pod] = []
        pods = blocked = 0
        while ranks and len(accepted) < MAX_REPLACED and pods < MAX_PODS and blocked < MAX_BLOCKED:
            rank = ranks.pop()
            node, group = ranked[rank]
            if floors.refusal(group, node) is not None:
                continue
            drain = None if node.name in stuck else self._classes.drain(self._classes.on(node.name))
            if drain is None or drain.blocking is not None:
                blocked += 1
                if blocked == MAX_BLOCKED // 2:
                    random.Random(int(self._now)).shuffle(ranks)
                continue
            evicted += drain.evicted
            if drain.moving:  # scale-down removes empty nodes anyway
                moving = tuple(pod for pod, _ in drain.moving)
                slow = namespaces_with_dependent_pods(drain.moving)
                accepted[rank] = ReplacementCandidate(node, group, moving, slow)
                floors.take(group, node)
                pods += len(drain.moving)
        self._classes.take_back(evicted)
        return tuple(accepted[rank] for rank in (accepted if order is not None else sorted(accepted)))
