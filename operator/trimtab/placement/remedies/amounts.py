"""What is short on which node, in columns of the resource axis."""

from __future__ import annotations

import numpy as np

from trimtab.cluster.resources import IntArray
from trimtab.kube.rules.quantity import format_amount
from trimtab.placement.remedies.framework import Case


def wanted(case: Case) -> tuple[IntArray, IntArray]:
    """The columns of which the pod wants something, and how much of each: int64, both of the same length."""
    pairs = case.snapshot.amounts(case.pod.spec).wanted
    return np.array([column for column, _ in pairs]), np.array([amount for _, amount in pairs])


def shortage(case: Case) -> IntArray:
    """How much more each node would have to have left: int64, shape (capacity, columns wanted), 0 where enough is."""
    nodes = case.snapshot.nodes
    columns, amounts = wanted(case)
    missing: IntArray = amounts - (nodes.allocatable[:, columns] - nodes.requested[:, columns])
    return np.maximum(missing, 0)


def named(case: Case, columns: IntArray, amounts: IntArray) -> dict[str, str]:
    """Amounts above 0 by resource, as Kubernetes writes them."""
    names = case.snapshot.nodes.axis.names
    return {
        names[column]: format_amount(names[column], amount)
        for column, amount in zip(columns.tolist(), amounts.tolist(), strict=True)
        if amount > 0
    }


def told(amounts: dict[str, str]) -> str:
    """Amounts in a sentence: ``cpu 500m and memory 1Gi``."""
    return " and ".join(f"{name} {amount}" for name, amount in amounts.items())
