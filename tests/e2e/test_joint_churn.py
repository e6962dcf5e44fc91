"""Pods, nodes, machines, taints and policies change at random by a seed while every controller acts.

TRIMTAB_E2E_CHURN gives the seconds (60 unless given; the weekly run in CI takes 600) and TRIMTAB_E2E_SEEDS the seeds,
separated by commas. Another test injects faults between the operator and the API server, for the seconds in
TRIMTAB_E2E_FAULTS (300 unless given).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures import fault_proxy as faults
from tests.fixtures.audit import require_none
from tests.fixtures.fault_proxy import ALL, ANSWERED, READS, WATCHES, WRITES, Fault, FaultProxy, fault_proxy
from tests.fixtures.joint import (
    STRATEGIES,
    Churn,
    JointCluster,
    guarded_namespace,
    own_joint_cluster,
    protected_pods,
    until_all_run,
)
from trimtab.kube.watching.prober import HUNG_AFTER

SECONDS = float(os.environ.get("TRIMTAB_E2E_CHURN", "60"))
FAULT_SECONDS = float(os.environ.get("TRIMTAB_E2E_FAULTS", "300"))
SEEDS = [int(each) for each in os.environ.get("TRIMTAB_E2E_SEEDS", "1").split(",")]
APPS = [f"app-{number}" for number in range(8)]
URGENT = "urgent"
"""The PriorityClass of two apps, which may preempt the others, and of the pods that must not be preempted."""
URGENT_APPS = APPS[3::4]


@pytest.fixture(params=[False, True], ids=["kube-scheduler", "own-scheduler"])
def joint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JointCluster]:
    """A cluster of the test whose pods kube-scheduler or the operator itself schedules."""
    with own_joint_cluster(request, tmp_path, schedules=request.param, pressure=True, history=True) as joint:
        yield joint


TABLE = (
    Fault(faults.TOO_MANY_REQUESTS, ALL, 0.02),
    Fault(faults.INTERNAL_ERROR, ALL, 0.02),
    Fault(faults.UNAVAILABLE, ALL, 0.02),
    Fault(faults.RESET_BEFORE, ALL, 0.02),
    Fault(faults.HANG, ANSWERED, 0.005),
    Fault(faults.SLOW, ANSWERED, 0.03),
    Fault(faults.REORDERED, ANSWERED, 0.03),
    Fault(faults.TRUNCATED, READS, 0.02),
    Fault(faults.CONFLICT, WRITES, 0.02),
    Fault(faults.CONFLICT_AFTER, WRITES, 0.01),
    Fault(faults.INTERNAL_ERROR_AFTER, WRITES, 0.02),
    Fault(faults.RESET_AFTER, WRITES, 0.02),
    Fault(faults.HANG_AFTER, WRITES, 0.005),
    Fault(faults.WEBHOOK_TIMEOUT, WRITES, 0.01),
    Fault(faults.WEBHOOK_DENIAL, WRITES, 0.01),
    Fault(faults.GONE, WATCHES, 0.05),
    Fault(faults.HANG, WATCHES, 0.02),
    Fault(faults.GONE_EVENT, WATCHES, 0.1, begins=30),
    Fault(faults.RESET_STREAM, WATCHES, 0.1, begins=30),
    Fault(faults.SILENT, WATCHES, 0.1, seconds=(5, 30), begins=30),
    Fault(faults.HALF_OPEN, WATCHES, 0.1, begins=30),
    Fault(faults.SLOW_STREAM, WATCHES, 0.1, seconds=(0.05, 0.3), begins=30),
    Fault(faults.TRUNCATED_FRAME, WATCHES, 0.1, begins=30),
    Fault(faults.GARBLED_FRAME, WATCHES, 0.1, begins=30),
)

LATE_WITH_FAULTS = 180.0
"""Seconds after its deadline by which a pod must be deleted: a watch may hang until the informer gives up after 75 s,
and each request may hang or fail."""
STALE_WITH_FAULTS = HUNG_AFTER + 10.0
"""Seconds for which a removed taint may still count: the watch is distrusted after 20 s, and a request may be delayed.
"""


def settled_churn(joint: JointCluster, seed: int, seconds: float, *, proxy: FaultProxy | None = None) -> None:
    """Change the cluster at random, wait until it rests, and require that no invariant was violated.

    Args:
        joint: an empty cluster.
        seed: of the changes.
        seconds: the duration of the changes.
        proxy: injects faults while the cluster changes; ``None`` for no faults.
    """
    joint.manage_taints()
    joint.autoscale()
    operator = joint.operate()
    joint.group("stable", replicas=3, minimum=3, maximum=5)
    joint.group("flaky", replicas=8, minimum=3, maximum=12)
    joint.priority_class(URGENT, 1000)
    guarded_namespace(joint, "guarded", priority_class=URGENT)
    stable = sorted(joint.nodes("stable"))
    for number, app in enumerate(APPS):
        priority = {"priorityClassName": URGENT} if app in URGENT_APPS else {}
        joint.deploy(app, 3, cpu=f"{300 + 250 * (number % 4)}m", memory="128Mi", **priority)
        if number % 2:
            joint.budget(app, maxUnavailable=1)
    protected_pods(joint, stable, priority_class=URGENT)
    until_all_run(joint, joint.pods_namespace, "guarded")
    joint.relieve_pressure()
    joint.policy_namespaces = [joint.pods_namespace, "guarded"]
    joint.write_policy(strategies=STRATEGIES)

    churn = Churn(joint, seed, APPS, URGENT_APPS)
    if proxy is not None:
        proxy.enabled = True
    churn.run(seconds)
    if proxy is not None:
        proxy.enabled = False

    until_all_run(joint, joint.pods_namespace, "guarded", seconds=180 if proxy is None else 420)
    joint.until_at_rest(seconds=180 if proxy is None else 420)
    unrest = joint.unrest()
    print(
        f"seed {seed}: {sum(churn.steps.values())} changes {churn.steps}, {len(joint.evictions())} evictions, "
        f"{len(joint.lives())} pods, {len(joint.audit.scales())} size changes, "
        f"{len(joint.no_execute_taints())} NoExecute taints, {len(joint.pressure_evictions())} pods evicted because of "
        f"node pressure, {len(joint.preempted())} pods preempted"
    )
    if proxy is None:  # otherwise their events may be lost
        assert joint.pressure_evictions()
        assert joint.preempted() or not joint.schedules
    bounds = {} if proxy is None else {"late": LATE_WITH_FAULTS, "stale": STALE_WITH_FAULTS}
    if proxy is not None:
        print(f"faults: {proxy.injected.total()} {dict(proxy.injected)}, requests: {dict(proxy.forwarded)}")
    namespace = joint.pods_namespace
    highest = [f"{namespace}/{each}-" for each in URGENT_APPS] + ["guarded/", f"{namespace}/protected"]
    found = joint.violations(guarded=["guarded"], protected=[f"{namespace}/protected"], highest=highest, **bounds)
    require_none(unrest + found)
    assert operator.running()
    assert "RuntimeError" not in operator.log.read_text()


@pytest.mark.parametrize("seed", SEEDS)
def test_random_churn_violates_no_invariant_and_settles(joint: JointCluster, seed: int) -> None:
    settled_churn(joint, seed, SECONDS)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_churn_under_api_faults_violates_no_invariant_and_settles(joint: JointCluster, seed: int) -> None:
    with fault_proxy(joint.cluster, TABLE, seed=seed) as proxy:
        proxy.enabled = False
        joint.target = proxy
        settled_churn(joint, seed, FAULT_SECONDS, proxy=proxy)
        assert joint.operator is not None
        joint.operator.stop()
        assert len(proxy.injected) >= len({each.kind for each in TABLE}) * 3 // 4
