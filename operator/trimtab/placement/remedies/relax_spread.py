"""Make a spread that the pod requires a preference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from msgspec.structs import replace

from trimtab.kube.objects import Node
from trimtab.placement.remedies.costs import EACH_FURTHER, NEIGHBOURS
from trimtab.placement.remedies.framework import NEVER, Case, Costs, Step
from trimtab.placement.topology_spread import DO_NOT_SCHEDULE, SCHEDULE_ANYWAY


class RelaxSpread:
    """All hard constraints become soft: what is left where nodes lack a constraint's label, and no skew helps."""

    reason: ClassVar = "RelaxSpread"
    rules: ClassVar = frozenset(("PodTopologySpread",))
    evicts: ClassVar = False

    def bound(self, case: Case, rule: str) -> Costs | float:
        """One constraint."""
        del rule
        return NEIGHBOURS if any(_hard(case)) else NEVER

    def steps(self, case: Case, node: Node, rule: str) -> Iterator[Step]:
        """One step."""
        del rule
        constraints = case.pod.spec.topology_spread
        hard = _hard(case)
        keys = [each.topology_key for each, is_hard in zip(constraints, hard, strict=True) if is_hard]
        numbers = [number for number, is_hard in enumerate(hard) if is_hard]
        yield case.on_pod(
            self.reason,
            f"let {case.template} prefer, not require, its spread by {', '.join(keys)}: node {node.name} takes it then",
            NEIGHBOURS + EACH_FURTHER * (len(keys) - 1),
            field=", ".join(f"spec.topologySpreadConstraints[{number}].whenUnsatisfiable" for number in numbers),
            before=DO_NOT_SCHEDULE,
            after=SCHEDULE_ANYWAY,
            topology_spread=tuple(replace(each, when_unsatisfiable=SCHEDULE_ANYWAY) for each in constraints),
        )


def _hard(case: Case) -> list[bool]:
    return [each.when_unsatisfiable == DO_NOT_SCHEDULE for each in case.pod.spec.topology_spread]
