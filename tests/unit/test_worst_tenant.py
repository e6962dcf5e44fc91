"""Random hostile tenants within a quota of 50 pods: what they cost is counted in function calls, and whom they harm.

TRIMTAB_HOSTILE_SEEDS gives how many tenants are tried (6 unless given; the weekly run in CI tries 200);
benchmarks/worst_tenant.py measures time and memory of 200.
"""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any

import pytest

from benchmarks.worst_tenant import NAMESPACE, Shape, Trial, actions_on_others, plans, resident
from trimtab.api.plan import Plan

SEEDS = sorted({*range(1, 1 + int(os.environ.get("TRIMTAB_HOSTILE_SEEDS", "6"))), 42, 129})
WORK = 10.0
"""How many times the work without the tenant may be done on this small cluster; on large ones it is less."""
RECOVERED = 1.5
"""The same after the tenant's objects are gone and some plans were made."""
MEMORY = 0.2 * 54 * 2**20
"""Bytes that a tenant may add: 20 % of a process that has this cluster and no test framework."""
HELD = 0.1
"""Seconds of CPU time for which one object of the tenant may hold the event loop."""


@pytest.fixture(scope="module")
def trial() -> Trial:
    return Trial(Shape(sets=3), repeat=1)


def counted_plans(trial: Trial) -> tuple[tuple[Plan, Plan], int]:
    calls = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        made = plans(trial.snapshot)
    finally:
        sys.setprofile(None)
    return made, calls


@pytest.mark.live
@pytest.mark.parametrize("seed", SEEDS)
def test_hostile_tenant_affects_no_other(trial: Trial, seed: int) -> None:
    tenant = trial.tenant(seed)
    alone, usual = counted_plans(trial)
    before = trial.reclaimed()
    sent, held, decoding = trial.send(tenant)
    try:
        made, calls = counted_plans(trial)
        added = resident() - before
    finally:
        trial.remove(sent)
    for _ in range(3):
        plans(trial.snapshot)
    after, again = counted_plans(trial)
    print(
        f"seed {seed}: {calls / usual:.2f} and then {again / usual:.2f} times the work, {added / 2**20:+.1f} MiB, "
        f"{1000 * max(held, decoding):.0f} ms for one object: {tenant}"
    )

    found, expected = actions_on_others(*made), actions_on_others(*alone)
    assert found <= expected, str(tenant)
    if "required anti-affinity terms" not in tenant.traits:  # that keeps others' pods off nodes, also for the scheduler
        assert found == expected, str(tenant)
    assert calls < WORK * usual, str(tenant)
    assert added < MEMORY, str(tenant)
    assert max(held, decoding) < HELD, str(tenant)
    assert actions_on_others(*after) == expected
    assert again < RECOVERED * usual, str(tenant)
    assert not any(each.namespace == NAMESPACE for each in trial.snapshot.pods.values())
