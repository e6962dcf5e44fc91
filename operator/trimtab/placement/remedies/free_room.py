"""Evict pods from a node that has too little left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from trimtab.cluster.resources import IntArray
from trimtab.kube.objects import Node, Pod
from trimtab.placement.remedies.amounts import named, shortage, told, wanted
from trimtab.placement.remedies.costs import MOVE, MOVE_EACH
from trimtab.placement.remedies.framework import NEVER, Case, Costs, Step
from trimtab.placement.remedies.victims import MOST, bound_to_node, clear


class FreeRoom:
    """Pods of the lowest priority go first, and no more than must: as kube-scheduler chooses when it preempts.

    Budgets and protections are not asked. That is for whoever evicts.
    """

    reason: ClassVar = "FreeRoom"
    rules: ClassVar = frozenset(("NodeResourcesFit",))
    evicts: ClassVar = True

    def bound(self, case: Case, rule: str) -> Costs | float:
        """One pod at least, on nodes that are large enough; the less is missing the sooner they are looked at."""
        del rule
        columns, amounts = wanted(case)
        large = (case.snapshot.nodes.allocatable[:, columns] >= amounts).all(axis=1)
        missing = (shortage(case) / amounts).max(axis=1)
        return np.where(large, MOVE + MOVE_EACH * np.clip(missing, 0.01, 1.0), NEVER)

    def steps(self, case: Case, node: Node, rule: str) -> Iterator[Step]:
        """One step."""
        del rule
        columns, _ = wanted(case)
        short = shortage(case)[case.snapshot.nodes.slot_of[node.name]]
        pods = [pod for pod in case.snapshot.pods_on(node.name) if not pod.terminal and not bound_to_node(pod)]
        rows = np.array([case.snapshot.row(pod.spec)[columns] for pod in pods]).reshape(-1, len(columns))
        most = int(min((case.limit - MOVE) / MOVE_EACH, MOST))
        if most < 1 or (np.sort(rows, axis=0)[-most:].sum(axis=0) < short).any():
            return
        missing = named(case, columns, short)
        chosen = [choose(pods, rows, short, few=few) for few in (True, False)]
        for victims in chosen if chosen[0] != chosen[1] else chosen[:1]:
            step = clear(case, node, victims, reason=self.reason, why=f"{told(missing)} is missing", frees=missing)
            if step:
                yield step


def choose(pods: list[Pod], rows: IntArray, short: IntArray, *, few: bool) -> list[Pod]:
    """The pods that have to go, so that at least ``short`` of each column is freed.

    Taken off by priority; then those that need not go stay, the most important first.

    Args:
        pods: of a node.
        rows: int64, shape (pods, columns), what each has of what is short; together enough.
        short: int64, shape (columns,).
        few: whether of one priority those go first that free the most of what is short, of them the smallest; else
            the smallest, which find another place more easily.
    """
    freed = (np.minimum(rows, short) / np.maximum(short, 1)).sum(axis=1)
    size = (rows / np.maximum(rows.max(axis=0), 1)).sum(axis=1)
    first = -freed if few else (freed == 0).astype(np.float64)
    order = sorted(range(len(pods)), key=lambda at: (pods[at].priority, first[at], size[at], pods[at].key))
    enough = (np.cumsum(rows[order], axis=0) >= short).all(axis=1)
    taken = order[: int(enough.argmax()) + 1]
    spare = rows[taken].sum(axis=0) - short
    kept = []
    for at in sorted(taken, key=lambda at: (-pods[at].priority, freed[at], size[at], pods[at].key)):
        if (rows[at] <= spare).all():
            spare = spare - rows[at]
            kept.append(at)
    return [pods[at] for at in taken if at not in kept]
