"""Pods that would have to leave a node, where they would go, and what that costs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec.structs import replace

from trimtab.kube.objects import Node, Pod
from trimtab.placement.remedies.costs import EVICT_EACH, MOVE, MOVE_EACH, OUTRANKED
from trimtab.placement.remedies.framework import Case, Step

MOST: Final = 12
"""More pods than that are not asked to go: a node is cheaper."""

_MIRROR: Final = "kubernetes.io/config.mirror"


def bound_to_node(pod: Pod) -> bool:
    """Whether evicting the pod is of no use: it is a static one, or its DaemonSet makes it again on the same node."""
    owner = pod.controller
    return _MIRROR in pod.annotations or (owner is not None and owner.kind in ("DaemonSet", "Node"))


def clear(case: Case, node: Node, victims: Iterable[Pod], *, reason: str, why: str, **details: Any) -> Step | None:
    """A step that takes pods off a node or its surroundings, ``None`` where that is of no use.

    Where they would go is tried, the most important first, once the pod under question has its place.

    Args:
        case: the case.
        node: the node that is to take the pod.
        victims: who goes.
        reason: the code.
        why: the end of the sentence: what is won.
        details: more for programs.
    """
    gone = sorted(victims, key=lambda pod: (-pod.priority, pod.key))
    if not gone or len(gone) > MOST or any(map(bound_to_node, gone)):
        return None
    cost = MOVE + OUTRANKED * sum(pod.priority > case.pod.priority for pod in gone)
    if cost + MOVE_EACH * len(gone) >= case.limit:
        return None
    told_first = sorted(gone, key=lambda pod: (pod.priority, pod.key))
    targets = _targets(case, node, gone)
    cost += sum(MOVE_EACH if pod.key in targets else EVICT_EACH for pod in gone)
    told = [f"{pod.key} (to {targets[pod.key]})" if pod.key in targets else pod.key for pod in told_first]
    homeless = len(gone) - len(targets)
    return Step(
        reason=reason,
        change=f"evict {', '.join(told)} from {_where(node, gone)}: {why}{_warning(case, gone, homeless)}",
        cost=cost,
        kind="Node",
        name=node.name,
        details={**details, "pods": [_document(pod, targets.get(pod.key)) for pod in told_first]},
        removes=tuple(gone),
    )


def _targets(case: Case, node: Node, gone: list[Pod]) -> dict[str, str]:
    """Where the pods would fit, by their keys."""
    placer, snapshot = case.placer, case.snapshot
    found: dict[str, str] = {}
    with snapshot.fork():
        for pod in gone:
            snapshot.remove(pod)
        snapshot.put(replace(case.pod, node=node.name))
        for pod in gone:
            pending = replace(pod, node="")
            slot = placer.choose(pending, placer.feasible(pending))
            if slot is not None:
                found[pod.key] = placer.reserve(pending, slot).node
    return found


def _where(node: Node, gone: list[Pod]) -> str:
    others = sorted({pod.node for pod in gone} - {node.name})
    here = [f"node {node.name}"] if any(pod.node == node.name for pod in gone) else []
    return " and ".join([*here, *(f"node {name}" for name in others)])


def _warning(case: Case, gone: list[Pod], homeless: int) -> str:
    higher = sum(pod.priority > case.pod.priority for pod in gone)
    texts = []
    if homeless:
        texts.append(f"{homeless} of {len(gone)} would fit nowhere else")
    if higher:
        texts.append(f"{higher} of higher priority than {case.pod.priority}")
    lower = all(pod.priority < case.pod.priority for pod in gone)
    if lower and case.pod.spec.preemption_policy != "Never":
        texts.append("of lower priority: kube-scheduler preempts such pods by itself")
    return f" ({', '.join(texts)})" if texts else ""


def _document(pod: Pod, target: str | None) -> dict[str, Any]:
    return {"pod": pod.key, "priority": pod.priority, "node": pod.node, "target": target}
