"""Short ways to say what the taint manager tells of."""

from __future__ import annotations

from typing import Any

from tests.unit.tainting.deadlines import START, bears, taint
from trimtab.api.scalars import to_time
from trimtab.api.taint_manager import RefusedPod, StuckNode, ZoneState, ZoneStatus
from trimtab.tainting.deadlines import Deadline
from trimtab.tainting.due_pods import DuePodOutcome, DuePodReport, DuePodResult
from trimtab.tainting.lifecycle.planner import TaintChange
from trimtab.tainting.report import Observation


def limit(name: str = "web", *, due: float = 300, since: float = 0, node: str = "n1", uid: str = "") -> Deadline:
    """A pod's deadline; times are seconds after the start."""
    return Deadline(
        f"shop/{name}",
        uid or f"uid-{name}",
        node,
        START + due,
        START + since,
        taint("node.kubernetes.io/unreachable", added=since),
        bears("node.kubernetes.io/unreachable", 300),
    )


def ended(
    deadline: Deadline, result: DuePodResult = DuePodResult.DELETED, *, at: float | None = None, **more: Any
) -> DuePodReport:
    """What came of a pod; at its time unless said otherwise."""
    time = deadline.due if at is None else START + at
    attempts, held = more.pop("attempts", 1), more.pop("held", 0.0)
    outcome = DuePodOutcome(result, **{"reason": "NoExecuteTaint", "message": "", **more})
    return DuePodReport(deadline, outcome, attempts, time, held)


def change(
    node: str = "n1", *, add: bool = True, effect: str = "NoExecute", reason: str = "NodeUnreachable"
) -> TaintChange:
    return TaintChange(
        node, taint("node.kubernetes.io/unreachable", effect=effect), add, reason, "condition Ready is Unknown for 60s"
    )


def refused(name: str, *, due: float = 0, message: str = "a webhook says no") -> RefusedPod:
    return RefusedPod(namespace="shop", pod=name, node="n1", due=to_time(START + due), attempts=3, message=message)


def stuck(name: str, terminating: int = 2) -> StuckNode:
    return StuckNode(name=name, terminating=terminating, message="taint it out-of-service")


def zone(
    name: str, state: ZoneState = "Normal", *, nodes: int = 10, not_ready: int = 0, waiting: int = 0
) -> ZoneStatus:
    return ZoneStatus(name=name, state=state, nodes=nodes, not_ready=not_ready, nodes_per_second=0.1, waiting=waiting)


def seen(**more: Any) -> Observation:
    """A look at the start, in mode TaintAndEvict."""
    return Observation(**{"now": START, "mode": "TaintAndEvict", "generation": 3, **more})
