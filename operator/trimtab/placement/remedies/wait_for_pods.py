"""Wait for pods that are being deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from trimtab.kube.objects import Node
from trimtab.placement.remedies.costs import WAIT
from trimtab.placement.remedies.framework import NEVER, Case, Costs, Step


class WaitForPods:
    """Pods that are on their way out hold what they have until they are gone; then it may be enough."""

    reason: ClassVar = "WaitForPods"
    rules: ClassVar = frozenset(("NodeResourcesFit", "NodePorts", "InterPodAffinity"))
    evicts: ClassVar = True

    def bound(self, case: Case, rule: str) -> Costs | float:
        """Where such pods are."""
        del rule
        there = np.zeros(case.snapshot.nodes.capacity, dtype=np.bool_)
        there[sorted(case.leaving)] = True
        return np.where(there, WAIT, NEVER)

    def steps(self, case: Case, node: Node, rule: str) -> Iterator[Step]:
        """One step: all of them gone."""
        del rule
        slot = case.snapshot.nodes.slot_of[node.name]
        pods = [pod for key in case.leaving.get(slot, ()) if (pod := case.snapshot.pods.get(key)) is not None]
        if pods:
            names = ", ".join(pod.key for pod in pods)
            yield Step(
                reason=self.reason,
                change=f"wait until {names} {'is' if len(pods) == 1 else 'are'} gone from node {node.name}: "
                f"{'it is' if len(pods) == 1 else 'they are'} being deleted",
                cost=WAIT,
                kind="Node",
                name=node.name,
                details={"pods": [{"pod": pod.key, "priority": pod.priority, "node": node.name} for pod in pods]},
                removes=tuple(pods),
            )
