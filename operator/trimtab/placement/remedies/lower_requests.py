"""Let the pod request less."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from trimtab.cluster.resources import PODS
from trimtab.kube.frozen import ResourceList
from trimtab.kube.objects import Node
from trimtab.kube.rules.quantity import format_amount
from trimtab.placement.remedies.amounts import named, shortage, told, wanted
from trimtab.placement.remedies.costs import LARGEST_CUT, REQUEST, REQUEST_SHARE
from trimtab.placement.remedies.framework import NEVER, Case, Costs, Step


class LowerRequests:
    """As little less as makes it fit, and never more than :data:`~trimtab.placement.remedies.costs.LARGEST_CUT`."""

    reason: ClassVar = "LowerRequests"
    rules: ClassVar = frozenset(("NodeResourcesFit",))
    evicts: ClassVar = False

    def bound(self, case: Case, rule: str) -> Costs | float:
        """By the shares of the requests that would go."""
        del rule
        columns, amounts = wanted(case)
        shares = shortage(case) / amounts
        possible = np.where(columns == PODS, shares == 0, shares <= LARGEST_CUT).all(axis=1)
        return np.where(possible, REQUEST + REQUEST_SHARE * shares.sum(axis=1), NEVER)

    def steps(self, case: Case, node: Node, rule: str) -> Iterator[Step]:
        """One step, for all resources that are short."""
        bound = self.bound(case, rule)
        slot = case.snapshot.nodes.slot_of[node.name]
        cost = float(np.broadcast_to(bound, case.snapshot.nodes.capacity)[slot])
        if cost == NEVER:
            return
        spec = case.pod.spec
        columns, _ = wanted(case)
        short = shortage(case)[slot]
        cut = {case.snapshot.nodes.axis.names[column]: int(by) for column, by in zip(columns, short, strict=True) if by}
        lowered = _less(spec.requests, cut)
        before = {name: format_amount(name, spec.requests[name]) for name in cut}
        after = {name: format_amount(name, lowered[name]) for name in cut}
        by = told(named(case, columns, short))
        texts = [f"{name} from {before[name]} to {after[name]}" for name in cut]
        yield case.on_pod(
            self.reason,
            f"lower what {case.template} requests: {', '.join(texts)}; on node {node.name} {by} is missing",
            cost,
            field="spec.containers[*].resources.requests",
            before=before,
            after=after,
            requests=lowered,
            nonzero_requests=_less(spec.nonzero_requests, cut),
            scored_requests=_less(spec.scored_requests, cut),
        )


def _less(amounts: ResourceList, cut: dict[str, int]) -> ResourceList:
    return ResourceList({name: max(amount - cut.get(name, 0), 0) for name, amount in amounts.items()})
