"""Let the pod tolerate a node's taints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from trimtab.kube.objects import Node, Taint, Toleration
from trimtab.placement.remedies.costs import TOLERATE
from trimtab.placement.remedies.framework import NEVER, Case, Costs, Step
from trimtab.placement.remedies.taint_sets import by_taints, on_purpose, text, unwelcome


class TolerateTaint:
    """One more toleration for each taint that somebody set on purpose; the API allows that of a live pod, too."""

    reason: ClassVar = "TolerateTaint"
    rules: ClassVar = frozenset(("TaintToleration",))
    evicts: ClassVar = False

    def bound(self, case: Case, rule: str) -> Costs | float:
        """By the number of taints."""
        del rule
        return by_taints(case, _cost)

    def steps(self, case: Case, node: Node, rule: str) -> Iterator[Step]:
        """One step, for all taints of the node."""
        del rule
        taints = unwelcome(node.taints, case.pod)
        cost = _cost(taints)
        if cost == NEVER:
            return
        added = tuple(
            Toleration(taint.key, "Equal" if taint.value else "Exists", taint.value, taint.effect) for taint in taints
        )
        yield case.on_pod(
            self.reason,
            f"let {case.template} tolerate {' and '.join(map(text, taints))} of node {node.name}",
            cost,
            field="spec.tolerations",
            before=[_as_json(toleration) for toleration in case.pod.spec.tolerations],
            after=[_as_json(toleration) for toleration in (*case.pod.spec.tolerations, *added)],
            tolerations=case.pod.spec.tolerations + added,
        )


def _cost(taints: tuple[Taint, ...]) -> float:
    return on_purpose(taints, TOLERATE)


def _as_json(toleration: Toleration) -> dict[str, Any]:
    """As the API writes it."""
    found = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
        "tolerationSeconds": toleration.seconds,
    }
    return {name: value for name, value in found.items() if value not in ("", None)}
