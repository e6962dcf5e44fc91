"""Runs in a line, for tests: plans of so many moves, and the runs that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.descheduling_run import DeschedulingRunStatus
from trimtab.api.plan import Evict, Kept, Plan
from trimtab.descheduling.runs import lifecycle
from trimtab.descheduling.runs.lifecycle import Run
from trimtab.descheduling.runs.record import run_name, run_plan

NOW = 1_795_176_000.0
HOUR = 3600.0


def policy(mode: str = "Approve", *, generation: int = 1, **spec: Any) -> DeschedulerPolicy:
    return msgspec.convert(
        {
            "metadata": {"name": "default", "uid": "p1", "generation": generation},
            "spec": {"mode": mode, "strategies": {"RemoveDuplicates": {"enabled": True}}, **spec},
        },
        DeschedulerPolicy,
    )


def move(name: str, *, node: str = "n1", target: str = "n2", **fields: Any) -> Evict:
    values = {
        "policy": "default",
        "strategy": "RemoveDuplicates",
        "namespace": "shop",
        "pod": name,
        "node": node,
        "target": target,
        "reason": "DuplicateOnNode",
        "message": "2 pods on n1",
        "uid": f"uid-{name}",
        "owner": "ReplicaSet/web",
    }
    return Evict(**{**values, **fields})


def kept(name: str, reason: str = "NoPlace", *, strategy: str = "RemoveDuplicates", message: str = "0/2") -> Kept:
    return Kept(kind="Pod", namespace="shop", name=name, strategy=strategy, reason=reason, message=message)


def made(*moves: Evict, kept: Sequence[Kept] = (), now: float = NOW) -> Plan:
    return Plan(now=now, actions=moves, kept=tuple(kept))


def run(
    *moves: Evict,
    mode: str = "Approve",
    generation: int = 1,
    time: float = NOW,
    approved: bool = False,
    status: DeschedulingRunStatus | None = None,
) -> Run:
    """A run as it was just written, or with another status."""
    spec = policy(mode, generation=generation)
    plan = run_plan(spec, made(*moves, now=time), nodes=2, pods=9)
    first = lifecycle.initial_status(plan, now=time)
    return Run(run_name("default", time), f"run-{time}", 1, plan, approved, first if status is None else status)
