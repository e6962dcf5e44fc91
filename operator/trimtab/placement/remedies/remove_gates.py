"""Remove scheduling gates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from trimtab.placement.remedies.costs import SWITCH
from trimtab.placement.remedies.framework import Case, Step


class RemoveSchedulingGates:
    """Whoever set them is to remove them once what they wait for is there."""

    reason: ClassVar = "RemoveSchedulingGates"
    rules: ClassVar = frozenset(("SchedulingGates",))

    def lifting(self, case: Case) -> Iterator[Step]:
        """One step, for all gates."""
        gates = case.pod.spec.scheduling_gates
        if gates:
            yield case.on_pod(
                self.reason,
                f"remove scheduling gate{'s' * (len(gates) > 1)} {', '.join(gates)} from pod {case.origin.key}",
                SWITCH,
                field="spec.schedulingGates",
                before=list(gates),
                after=[],
                scheduling_gates=(),
            )
