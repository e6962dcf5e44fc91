"""Bring a node's kubelet to declare the features that the pod needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from msgspec.structs import replace

from trimtab.kube.objects import Node
from trimtab.placement.remedies.costs import RECOVER
from trimtab.placement.remedies.framework import Case, Costs, Step


class UpgradeKubelet:
    """A kubelet declares what its version and its feature gates give; which of the two is missing is not known."""

    reason: ClassVar = "UpgradeKubelet"
    rules: ClassVar = frozenset(("NodeDeclaredFeatures",))
    evicts: ClassVar = False

    def bound(self, case: Case, rule: str) -> Costs | float:
        """The same on all nodes."""
        del case, rule
        return RECOVER

    def steps(self, case: Case, node: Node, rule: str) -> Iterator[Step]:
        """One step, for all features that are missing."""
        del rule
        missing = sorted(set(case.pod.spec.required_features) - set(node.declared_features))
        declared = tuple(sorted({*node.declared_features, *missing}))
        yield Step(
            reason=self.reason,
            change=f"upgrade the kubelet of node {node.name}, or turn on its feature gates: {', '.join(missing)}",
            cost=RECOVER,
            kind="Node",
            name=node.name,
            field="status.declaredFeatures",
            before=list(node.declared_features),
            after=list(declared),
            puts=(replace(node, declared_features=declared),),
        )
