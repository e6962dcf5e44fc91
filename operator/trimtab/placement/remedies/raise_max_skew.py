"""Let the pod's replicas be spread less evenly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from msgspec.structs import replace

from trimtab.kube.objects import Node, TopologySpread
from trimtab.placement.remedies.costs import EACH_FURTHER, WISH
from trimtab.placement.remedies.framework import NEVER, Case, Costs, Step
from trimtab.placement.topology_spread import DO_NOT_SCHEDULE

_MOST: Final = 2**31 - 1
"""The largest ``maxSkew`` (int32)."""

_LARGEST: Final = 1 << 20
"""More replicas than any cluster has."""


class RaiseMaxSkew:
    """The least ``maxSkew`` of the hard constraints with which the node passes, found by halving.

    All of them are raised as far as they must; where a node lacks a constraint's label, no skew helps.
    """

    reason: ClassVar = "RaiseMaxSkew"
    rules: ClassVar = frozenset(("PodTopologySpread",))
    evicts: ClassVar = False

    def bound(self, case: Case, rule: str) -> Costs | float:
        """One constraint."""
        del rule
        return WISH if any(map(_hard, case.pod.spec.topology_spread)) else NEVER

    def steps(self, case: Case, node: Node, rule: str) -> Iterator[Step]:
        """One step, for all constraints that have to give."""
        constraints = case.pod.spec.topology_spread
        hard = [number for number, each in enumerate(constraints) if _hard(each)]
        skews = {number: constraints[number].max_skew for number in hard}
        wide = dict.fromkeys(hard, _LARGEST)
        if not _passes(case, node, rule, wide):
            return
        for number in hard:
            skews[number] = _least(case, node, rule, wide, number)
            wide[number] = skews[number]
        raised = {number: skew for number, skew in skews.items() if skew > constraints[number].max_skew}
        texts = [
            f"{constraints[number].topology_key} from {constraints[number].max_skew} to {skew}"
            for number, skew in raised.items()
        ]
        yield case.on_pod(
            self.reason,
            f"raise the maxSkew of {case.template}: {', '.join(texts)}; node {node.name} takes it then",
            WISH + EACH_FURTHER * (len(raised) - 1),
            field=", ".join(f"spec.topologySpreadConstraints[{number}].maxSkew" for number in raised),
            before=[constraints[number].max_skew for number in raised],
            after=list(raised.values()),
            topology_spread=_with(constraints, raised),
        )


def _hard(constraint: TopologySpread) -> bool:
    return constraint.when_unsatisfiable == DO_NOT_SCHEDULE


def _least(case: Case, node: Node, rule: str, wide: dict[int, int], number: int) -> int:
    """The smallest skew of one constraint, the others being wide enough."""
    low, high = case.pod.spec.topology_spread[number].max_skew, 1
    if _passes(case, node, rule, wide | {number: low}):
        return low
    while not _passes(case, node, rule, wide | {number: low + high}):
        high *= 2
    failing, passing = low + high // 2, low + high
    while passing - failing > 1:
        middle = (passing + failing) // 2
        if _passes(case, node, rule, wide | {number: middle}):
            passing = middle
        else:
            failing = middle
    return passing


def _passes(case: Case, node: Node, rule: str, skews: dict[int, int]) -> bool:
    spec = case.pod.spec
    pod = replace(case.pod, spec=replace(spec, topology_spread=_with(spec.topology_spread, skews)))
    return case.passes(rule, pod, node.name)


def _with(constraints: tuple[TopologySpread, ...], skews: dict[int, int]) -> tuple[TopologySpread, ...]:
    return tuple(
        replace(each, max_skew=min(skews.get(number, each.max_skew), _MOST)) for number, each in enumerate(constraints)
    )
