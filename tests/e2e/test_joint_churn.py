"""Pods, nodes, machines, taints and policies change at random by a seed while every controller acts.

TRIMTAB_E2E_CHURN gives the seconds (60 unless given; the weekly run in CI takes 600) and TRIMTAB_E2E_SEEDS the seeds,
separated by commas. Another test injects faults between the operator and the API server, for the seconds in
TRIMTAB_E2E_FAULTS (300 unless given).

The last test does everything at once, with kills and faults as steps, for the seconds in TRIMTAB_E2E_EVERYTHING (120
unless given), with TRIMTAB_E2E_SIZE=large on 60 nodes with 400 pods, with huge on 300 nodes with 2,000 pods. If it
fails, it prints its steps as a regression test; with TRIMTAB_E2E_SHRINK=10 it reduces them first, by at most ten runs
on new clusters. With TRIMTAB_E2E_KILLS=0, no process is killed or frozen, so that the memory of one process is measured
all the time; with TRIMTAB_E2E_FAULTS=0, this test injects no faults. With TRIMTAB_E2E_ROUNDS=2, the cluster changes
twice and rests after each time, so that the memory of the leader is compared while the cluster has the same pods.

With ``--cluster=kind`` or ``--cluster=kubeconfig --kubeconfig FILE``, it runs on the nodes of that cluster, with the
descheduler only, and skips the steps in ``LOCAL_ONLY``. TRIMTAB_E2E_AUDIT_LOG names the audit log of that cluster's API
server, which must have the policy that ``python -m tests.fixtures.cluster_history`` prints; without the log, no
invariant is checked.

TRIMTAB_E2E_BROKEN names operators with one broken line (``all`` for all of them); each must violate its invariant
within the seconds in TRIMTAB_E2E_BROKEN_SECONDS (90 unless given).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.broken_operators import BROKEN, BrokenLine, broken_copy
from tests.fixtures import fault_proxy as faults
from tests.fixtures.audit import require_none
from tests.fixtures.autoscaling import SHORT
from tests.fixtures.churn import (
    EVICTING_TAINT,
    HUGE,
    KILLING,
    LARGE,
    LOW,
    MODEST,
    SMALL,
    STATEFUL_NAMES,
    Churn,
    ChurnSize,
    Step,
    regression_test,
    stateful_set,
    steps,
)
from tests.fixtures.churn_report import churn_table, without_leader
from tests.fixtures.cluster_history import History
from tests.fixtures.clusters import require_local_cluster
from tests.fixtures.fault_proxy import ALL, ANSWERED, READS, WATCHES, WRITES, Fault, FaultProxy, fault_proxy
from tests.fixtures.invariants import writes_after_lease
from tests.fixtures.joint import (
    STALE,
    STRATEGIES,
    JointCluster,
    all_run,
    guarded_namespace,
    own_joint_cluster,
    protected_pods,
    until_all_run,
)
from tests.fixtures.kubeconfig_joint import kubeconfig_joint_cluster
from tests.fixtures.shrinking import shrink
from tests.fixtures.tainting import SHORT as LIFECYCLE
from trimtab.kube.watching.prober import HUNG_AFTER
from trimtab_local.install import OperatorProcess

SECONDS = float(os.environ.get("TRIMTAB_E2E_CHURN", "60"))
FAULT_SECONDS = float(os.environ.get("TRIMTAB_E2E_FAULTS", "300"))
SEEDS = [int(each) for each in os.environ.get("TRIMTAB_E2E_SEEDS", "1").split(",")]
EVERYTHING_SECONDS = float(os.environ.get("TRIMTAB_E2E_EVERYTHING", "120"))
ROUNDS = int(os.environ.get("TRIMTAB_E2E_ROUNDS", "1"))
SIZE = os.environ.get("TRIMTAB_E2E_SIZE", "")
SIZES = {"small": SMALL, "large": LARGE, "huge": HUGE, "modest": MODEST}
AUDIT_LOG = os.environ.get("TRIMTAB_E2E_AUDIT_LOG", "")
KILLS = os.environ.get("TRIMTAB_E2E_KILLS", "1") == "1"
SHRINK_RUNS = int(os.environ.get("TRIMTAB_E2E_SHRINK", "0"))
SLOW_PACE = 12
"""The pace of the policy when everything changes, which it reaches."""
BROKEN_NAMES = os.environ.get("TRIMTAB_E2E_BROKEN", "").split(",")
BROKEN_SECONDS = float(os.environ.get("TRIMTAB_E2E_BROKEN_SECONDS", "90"))
URGENT = "urgent"
"""The PriorityClass of some Deployments, which may preempt the others, and of the pods that must not be preempted."""


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


def furnish(joint: JointCluster, size: ChurnSize, *, everything: bool = False) -> None:
    """Start the operators, and create node groups, workloads and policies.

    The minimum of the group ``stable`` is below its size, so that only the protected pods keep its nodes.
    """
    if joint.local:
        evicting = {"key": EVICTING_TAINT, "policy": "Evict", "maximumWait": "30m"}
        lifecycle = {**LIFECYCLE, "nodeMonitorGracePeriod": f"{size.grace:.0f}s"}
        joint.manage_taints(nodeLifecycle=lifecycle, taints=[evicting])
        joint.autoscale(scaleDown={**SHORT, "cordonNodeBeforeTerminating": "Enabled"} if everything else SHORT)
    joint.operate()
    if joint.local:
        joint.group("stable", replicas=size.stable, minimum=size.stable - 1, maximum=size.stable + 2)
        joint.group("flaky", replicas=size.flaky, minimum=size.minimum[0], maximum=size.maximum[1] - 1)
    joint.priority_class(URGENT, 1000)
    joint.priority_class(LOW, -10)
    guarded_namespace(joint, "guarded", priority_class=URGENT)
    stable = sorted(joint.nodes("stable"))
    for number, app in enumerate(size.names):
        priority = {"priorityClassName": URGENT} if app in size.urgent_names else {}
        cpu = size.cpu[0] + size.cpu[1] * (number % 4)
        joint.deploy(app, size.replicas, cpu=f"{cpu}m", memory="128Mi", **priority)
        if number % 2:
            joint.budget(app, maxUnavailable=1)
    if everything:
        for name in STATEFUL_NAMES:
            stateful_set(joint, name, 3)
    protected_pods(joint, stable, priority_class=URGENT)
    until_all_run(joint, joint.pods_namespace, "guarded", seconds=180)
    if joint.usage is not None:
        joint.relieve_pressure()
    joint.policy_namespaces = [joint.pods_namespace, "guarded"]
    joint.write_policy(strategies=STRATEGIES)


def settled_churn(
    joint: JointCluster,
    churn: Churn,
    planned: Iterable[Step],
    *,
    seconds: float,
    size: ChurnSize = SMALL,
    proxy: FaultProxy | None = None,
    rounds: int = 1,
    title: str,
) -> None:
    """Change the cluster, wait until it rests, print what happened, and require that no invariant was violated.

    Args:
        joint: a furnished cluster.
        churn: executes the steps.
        planned: the steps.
        seconds: the duration of the changes.
        size: the size of the cluster.
        proxy: injects faults while the cluster changes; ``None`` for no faults.
        rounds: how often the cluster changes for these seconds and comes to rest.
        title: of the table.
    """
    patience = 180 if proxy is None else 420

    def settled() -> bool:
        churn.replace_mistaken()
        return all_run(joint) and all_run(joint, "guarded")

    for _ in range(rounds):
        if proxy is not None:
            proxy.enabled = True
        churn.execute(planned, seconds=seconds)
        churn.settle()
        joint.until(settled, "all pods run", seconds=patience)
        joint.until_at_rest(seconds=patience)
        churn.rest()
    found = joint.unrest()
    bounds = {} if proxy is None else {"late": LATE_WITH_FAULTS, "stale": STALE_WITH_FAULTS}
    history = History(joint.audit.all())
    if joint.elects:
        joint.downtimes += without_leader(history)
        found += writes_after_lease(history, continued=churn.continued)
    found += churn_violations(joint, **bounds)
    verdict = f"{len(found)} violations" if joint.audit.exists() else "no audit log, invariants not checked"
    print(churn_table(joint, churn, title=f"{title}: {verdict}", lag=bounds.get("stale", STALE), proxy=proxy))
    require_none(found)
    for each in joint.processes:
        assert "RuntimeError" not in each.log.read_text()


def churn_violations(joint: JointCluster, **bounds: float) -> list[str]:
    """The violations of the invariants that hold at all times."""
    return joint.violations(guarded=["guarded"], protected=[f"{joint.pods_namespace}/protected"], **bounds)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_churn_violates_no_invariant_and_settles(joint: JointCluster, seed: int) -> None:
    furnish(joint, SMALL)
    churn = Churn(joint, SMALL)

    settled_churn(joint, churn, steps(seed, churn.kinds), seconds=SECONDS, title=f"seed {seed}")

    assert joint.pressure_evictions()
    assert joint.preempted() or not joint.schedules
    assert joint.processes[0].running()


@pytest.mark.parametrize("seed", SEEDS)
def test_random_churn_under_api_faults_violates_no_invariant_and_settles(joint: JointCluster, seed: int) -> None:
    with fault_proxy(joint.cluster, TABLE, seed=seed) as proxy:
        proxy.enabled = False
        joint.target = proxy
        furnish(joint, SMALL)
        churn = Churn(joint, SMALL, proxy=proxy)
        settled_churn(joint, churn, steps(seed, churn.kinds), seconds=FAULT_SECONDS, proxy=proxy, title=f"seed {seed}")
        assert joint.operator is not None
        assert joint.operator.running()
        joint.operator.stop()
        assert len(proxy.injected) >= len({each.kind for each in TABLE}) * 3 // 4


def stop_all(processes: Sequence[OperatorProcess]) -> None:
    """Stop processes at once, so that none begins to lead while another one ends."""
    for process in processes:
        if process.running():
            os.kill(process.pid, signal.SIGTERM)
    for process in processes:
        process.stop()


@contextmanager
def everything(
    request: pytest.FixtureRequest,
    directory: Path,
    size: ChurnSize,
    *,
    program: type[OperatorProcess] = OperatorProcess,
    per_minute: int = SLOW_PACE,
) -> Iterator[tuple[JointCluster, Churn, FaultProxy | None]]:
    """A furnished cluster with two replicas of the operator.

    On a local control plane, the operator is behind a proxy that injects faults when steps say so.
    """
    directory.mkdir(exist_ok=True)
    if request.config.getoption("--cluster") != "local":
        with kubeconfig_joint_cluster(request, directory, log=AUDIT_LOG) as joint:
            furnish(joint, size, everything=True)
            churn = Churn(joint, size, everything=True)
            churn.operators = [joint.processes[0], joint.operate()]
            try:
                yield joint, churn, None
            finally:
                churn.close()
        return
    with (
        own_joint_cluster(
            request, directory, schedules=True, pressure=True, history=True, elect=True, renewal=size.renewal
        ) as joint,
        fault_proxy(joint.cluster, (), seed=1) as proxy,
    ):
        joint.target, joint.program, joint.per_minute = proxy, program, per_minute
        furnish(joint, size, everything=True)
        churn = Churn(joint, size, everything=True, proxy=proxy, faults=TABLE)
        churn.operators = [joint.processes[0], joint.operate(ready=False)]
        try:
            yield joint, churn, proxy
        finally:
            churn.close()
            stop_all(joint.processes)  # before the proxy, which they would try to reach


@pytest.mark.timeout(ROUNDS * (EVERYTHING_SECONDS + 1800 * (1 + SHRINK_RUNS)))
@pytest.mark.parametrize("seed", SEEDS)
def test_everything_at_once_violates_no_invariant(request: pytest.FixtureRequest, tmp_path: Path, seed: int) -> None:
    name = SIZE or ("small" if request.config.getoption("--cluster") == "local" else "modest")
    size = SIZES[name]
    executed: list[Step] = []
    try:
        with everything(request, tmp_path / "first", size) as (joint, churn, proxy):
            left_out = {*(() if KILLS else KILLING), *(() if FAULT_SECONDS else ("fault",))}
            kinds = {kind: weight for kind, weight in churn.kinds.items() if kind not in left_out}
            executed, planned, title = churn.executed, steps(seed, kinds), f"seed {seed}, everything, {name}"
            settled_churn(
                joint, churn, planned, seconds=EVERYTHING_SECONDS, size=size, proxy=proxy, rounds=ROUNDS, title=title
            )
    except AssertionError:
        if executed and SHRINK_RUNS:
            executed = shrink(executed, lambda part: fails(request, tmp_path, part, size), runs=SHRINK_RUNS)
        print(regression_test(executed, f"churn_of_seed_{seed}", name.upper()))
        raise


CHOSEN = [each for each in BROKEN if each.name in BROKEN_NAMES or "all" in BROKEN_NAMES]


@pytest.mark.parametrize("broken", CHOSEN, ids=lambda each: each.name)
@pytest.mark.parametrize("seed", SEEDS)
def test_broken_operator_violates_its_invariant(
    request: pytest.FixtureRequest, tmp_path: Path, seed: int, broken: BrokenLine
) -> None:
    require_local_cluster(request)
    program = broken_copy(broken, tmp_path)
    pace = broken.per_minute or SLOW_PACE
    with everything(request, tmp_path / "cluster", SMALL, program=program, per_minute=pace) as (joint, churn, _):
        kinds = {kind: weight for kind, weight in churn.kinds.items() if kind not in ("fault", *broken.without)}
        kinds |= dict.fromkeys(broken.kinds, 8.0)
        planned = steps(seed, kinds, last=[each for each in kinds if broken.kinds and each not in broken.kinds])
        began, found = time.monotonic(), list[str]()
        while time.monotonic() - began < BROKEN_SECONDS and not any(broken.violation in each for each in found):
            churn.execute(planned, seconds=10)
            if not broken.at_rest:
                found = writes_after_lease(History(joint.audit.all()), continued=churn.continued)
                found += churn_violations(joint)
        if broken.at_rest:
            churn.settle()
            found = lasting_unrest(joint) + churn_violations(joint)
        red = sorted({each.partition(": ")[0] for each in found})
        print(f"{broken.name}, seed {seed}, {time.monotonic() - began:.0f} s: {red}")
        assert [each for each in found if broken.violation in each]


def lasting_unrest(joint: JointCluster) -> list[str]:
    """What a healthy operator would have ended: the kinds of unrest in each of three overlapping minutes.

    A node that is removed and replaced again and again changes the number of nodes about every 40 seconds.
    """
    time.sleep(45)
    readings = []
    for _ in range(3):
        time.sleep(30)
        readings.append({each.partition(": ")[0]: each for each in joint.unrest(quiet=60.0)})
    return [each for kind, each in readings[-1].items() if all(kind in earlier for earlier in readings)]


def fails(request: pytest.FixtureRequest, directory: Path, part: Sequence[Step], size: ChurnSize) -> bool:
    """Whether these steps on a new cluster violate an invariant, or the cluster does not come to rest."""
    try:
        repeat(request, directory / f"run-{len(list(directory.iterdir()))}", part, size)
    except AssertionError:
        return True
    return False


def repeat(request: pytest.FixtureRequest, directory: Path, part: Sequence[Step], size: ChurnSize) -> None:
    """Execute steps on a new cluster, as a printed regression test does."""
    with everything(request, directory, size) as (joint, churn, proxy):
        title = f"{len(part)} steps"
        settled_churn(joint, churn, part, seconds=float("inf"), size=size, proxy=proxy, title=title)
