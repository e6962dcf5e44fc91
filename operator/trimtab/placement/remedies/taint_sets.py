"""Untolerated taints, judged per set of taints, as thousands of nodes share a few dozen sets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from trimtab.kube.objects import Pod, Taint
from trimtab.kube.rules.taints import UNSCHEDULABLE, untolerated
from trimtab.placement.remedies.costs import EACH_FURTHER
from trimtab.placement.remedies.framework import NEVER, Case, Costs


def unwelcome(taints: tuple[Taint, ...], pod: Pod) -> tuple[Taint, ...]:
    """The taints that keep the pod away."""
    return tuple(taint for taint in taints if untolerated((taint,), pod.spec.tolerations) is not None)


def of_the_system(taint: Taint) -> bool:
    """Whether Kubernetes sets the taint itself while something is wrong with the node, and takes it away after.

    Nobody gains from tolerating or removing such a taint: it would come back, or the pod would not run.
    """
    domain = taint.key.partition("/")[0]
    return domain in ("node.kubernetes.io", "node.cloudprovider.kubernetes.io")


def by_taints(case: Case, cost: Callable[[tuple[Taint, ...]], float]) -> Costs:
    """A cost per node that only its unwelcome taints decide: float64, shape (capacity,); those without any cost 0."""
    nodes = case.snapshot.nodes
    found = [unwelcome(taints, case.pod) for taints in nodes.taint_sets]
    return np.array([cost(taints) if taints else 0.0 for taints in found])[nodes.taints]


def on_purpose(taints: tuple[Taint, ...], price: float) -> float:
    """What it costs to overcome all of a node's unwelcome taints: the price, and :data:`EACH_FURTHER` for each more.

    :data:`NEVER` where one of them is Kubernetes' own, or where there are none but the cordon's.
    """
    ours = without_cordon(taints)
    if not ours or any(map(of_the_system, ours)):
        return NEVER
    return price + EACH_FURTHER * (len(ours) - 1)


def without_cordon(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """The taints but that of the cordon, which goes with it."""
    return tuple(taint for taint in taints if taint.key != UNSCHEDULABLE)


def text(taint: Taint) -> str:
    """As kubectl writes it: ``key=value:effect``."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def as_json(taint: Taint) -> dict[str, str]:
    """As the API writes it."""
    value = {"value": taint.value} if taint.value else {}
    return {"key": taint.key, **value, "effect": taint.effect}
