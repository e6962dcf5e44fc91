"""The operator reports healthy only while it works, and a part that cannot work stops no other.

Each controller's task is killed or hung, definitions are deleted and created again in every order while all controllers
work, a SIGTERM ends the process in time whatever hangs, and the lease outlives a controllers' loop that is busy.

To kill and hang all tasks one after the other takes two hours. TRIMTAB_E2E_TASKS gives the first task and the step
(``0:1``, which is all), so that several runs can share them: ``0:3``, ``1:3``, ``2:3``. TRIMTAB_E2E_TASK_NAMES is a
regular expression for the names of the tasks.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.fixtures.health import (
    CONTROLLERS,
    GRACE,
    LEASE,
    OURS,
    WATCHED,
    FaultyOperator,
    HealthCluster,
    Operators,
    health_cluster,
    name_of,
)
from tests.fixtures.machine_sets import MERGE
from tests.fixtures.tenant import MEMORY_LIMIT, STOPS_WITHIN, resident_bytes
from tests.fixtures.waiting import patiently, wait_for
from trimtab.api import reasons
from trimtab.autoscaling.machine_autoscalers.controller import RELIST_PERIOD
from trimtab.kube.resources import (
    CLUSTER_AUTOSCALERS,
    MACHINE_AUTOSCALERS,
    Resource,
)
from trimtab.runtime.health.kopf_watch import CHECK_PERIOD
from trimtab.runtime.health.watchdog import MAX_HANG
from trimtab.runtime.health.watches import MAX_SILENCE as WATCH_SILENCE
from trimtab.runtime.leader_election.elector import ElectionTimings

ELECTION: Final = ElectionTimings()
MAX_INACTIVITY: Final = 2.0
"""Seconds, instead of ten minutes."""

SLOWER: Final = {
    "watch progress": MAX_HANG,
    "progress of watches": WATCH_SILENCE,
    "machine autoscalers: lists": RELIST_PERIOD,
    "lead": ELECTION.renew_deadline,
    "watch ": WATCH_SILENCE,
}
"""By the beginning of a task's name, the seconds in addition in which its hang is noticed: the watchdog's, those of the
Lease, those for which a watch may be silent, or the period of a list.
"""

SHORT: Final = ("Task", "work ", "write ", "http ", "wait for the end", "end of ", "stop of ", "check of permissions")
"""Beginnings of the names of tasks that do one thing and end, or only wait for the end of the process."""

UNNOTICED: Final = (
    "cleaner of ",
    "credentials retriever",
    "insights revision waiter",
    "pause",
    "startup/cleanup activities",
    "time-limited waiting ",
    "worker for ",
)
"""Beginnings of the names of tasks whose end is of no consequence: Kopf starts others, or nothing waits for them."""


DISTURBED: Final = 30.0
"""Seconds for which the cluster is disturbed. A failing node gives work to tasks after twenty seconds."""


@pytest.fixture(scope="module")
def operators(cluster: HealthCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operators]:
    """A leader and a follower for the tests of faults."""
    operators = Operators(cluster, tmp_path_factory.mktemp("operators"), max_inactivity=MAX_INACTIVITY)
    cluster.create_workload()
    operators.until_all_work()
    yield operators
    cluster.stop_all()


@pytest.mark.timeout(14_400)
@pytest.mark.parametrize("fault", ["kill-task", "hang-task"])
def test_every_task_is_supervised(operators: Operators, fault: str) -> None:
    """Each task of the process is killed and hung. The process ends, or all controllers still work."""
    problems = []
    first, step = map(int, os.environ.get("TRIMTAB_E2E_TASKS", "0:1").split(":"))
    names = re.compile(os.environ.get("TRIMTAB_E2E_TASK_NAMES", ""))
    tasks = [each for each in operators.leader.tasks() if names.search(each) and not each.startswith(SHORT)]
    for task in tasks[first::step]:
        slower = next((seconds for start, seconds in SLOWER.items() if task.startswith(start)), CHECK_PERIOD * 2)
        began = time.monotonic()
        operators.leader.order(fault, task)
        operators.provoke()
        ended = operators.ends(within=DISTURBED)
        operators.provoke(on=False)
        ended = ended or operators.ends(within=patiently(MAX_INACTIVITY + 5.0) + slower)
        seconds = time.monotonic() - began
        took = operators.take_over() if ended else 0.0
        works = operators.all_work()
        result = f"ended after {seconds:.1f} s, the standby led {took:.1f} s later" if ended else "continues"
        sys.stdout.write(f"| {fault} | {task} | {result} | {'all work' if works else 'SOMETHING DOES NOT WORK'} |\n")
        if not works:
            problems.append(f"{task}: not all work")
        if fault == "kill-task" and not (ended or task.startswith(UNNOTICED)):
            problems.append(f"{task}: continues")
        if took > ELECTION.lease_duration + 5.0:
            problems.append(f"{task}: the standby led {took:.1f} s later")
        if not ended:
            operators.replace_leader()
    assert not problems


def test_hung_event_loop_ends_the_process(operators: Operators) -> None:
    operators.leader.order("hang-thread")
    operators.until_taken_over(within=MAX_INACTIVITY + 15)


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HealthCluster]:
    """A cluster of this module with an object of every controller."""
    with health_cluster(request, tmp_path_factory.mktemp("health")) as joint:
        yield joint


@pytest.fixture
def joint(cluster: HealthCluster) -> Iterator[HealthCluster]:
    """The cluster with one operator, which is stopped afterwards; missing CRDs are created again."""
    operator = cluster.operate("--leader-elect")
    if not cluster.groups_made:
        cluster.group("stable", replicas=2, minimum=2, maximum=4)
        cluster.groups_made = True
    try:
        yield cluster
    finally:
        if operator.running():
            operator.stop(timeout=GRACE + 5)
        cluster.stop_all()
        for each in OURS:
            if not cluster.defined(each):
                cluster.define(each)


def test_event_loop_busy_for_35_seconds_keeps_the_lease(cluster: HealthCluster, tmp_path: Path) -> None:
    """The process continues, and neither renewals nor probes are late."""
    cluster.stop_all()
    leader = FaultyOperator(cluster.cluster, tmp_path, f"--controllers={CONTROLLERS}", "--identity=leader", name="busy")
    leader.start()
    try:
        for each in WATCHED:
            assert cluster.works(each), each.kind
        transitions = cluster.client.request("GET", LEASE)["spec"]["leaseTransitions"]
        leader.order("block", "taint manager", "35")
        began, renewed, latest, probes = time.monotonic(), "", time.monotonic(), []
        longest = 0.0
        while time.monotonic() - began < 40:
            spec = cluster.client.request("GET", LEASE)["spec"]
            assert spec["holderIdentity"] == "leader"
            if spec["renewTime"] != renewed:
                longest = max(longest, time.monotonic() - latest)
                renewed, latest = spec["renewTime"], time.monotonic()
            asked = time.monotonic()
            leader.get("/readyz")
            probes.append(time.monotonic() - asked)
            time.sleep(0.2)
        sys.stdout.write(f"longest between renewals {longest:.1f} s, slowest probe {max(probes):.2f} s\n")
        assert longest < ELECTION.retry_period + patiently(2)
        assert max(probes) < patiently(1.0)
        for each in WATCHED:
            assert cluster.works(each), each.kind
        assert cluster.client.request("GET", LEASE)["spec"]["leaseTransitions"] == transitions
        assert leader.running()
    finally:
        if leader.running():
            leader.stop(timeout=60)


def test_overdue_plan_sets_and_clears_degraded(cluster: HealthCluster, tmp_path: Path) -> None:
    cluster.stop_all()
    leader = FaultyOperator(
        cluster.cluster, tmp_path, f"--controllers={CONTROLLERS}", "--identity=leader", name="stale"
    )
    leader.start()
    try:
        for each in WATCHED:
            assert cluster.works(each), each.kind
        leader.order("block", "autoscaler", "85")

        def reason(resource: Resource) -> str:
            status = cluster.client.request("GET", resource.path("default")).get("status") or {}
            return next((each["reason"] for each in status.get("conditions") or () if each["type"] == "Degraded"), "")

        wait_for(lambda: reason(CLUSTER_AUTOSCALERS) == reasons.PLAN_STALE, "the overdue plan to be reported")
        assert leader.running()
        wait_for(lambda: reason(CLUSTER_AUTOSCALERS) != reasons.PLAN_STALE, "it to be withdrawn")
    finally:
        if leader.running():
            leader.stop(timeout=60)


def check(joint: HealthCluster, missing: set[Resource]) -> None:
    """The controllers whose CRDs exist work, /readyz names the missing ones, and one process keeps the lease."""
    for controller, needed in WATCHED.items():
        if not missing & set(needed):
            assert joint.works(controller), f"{controller.kind} while {[each.plural for each in missing]} are missing"
    assert joint.operator is not None
    assert joint.operator.running()
    assert joint.operator.get("/healthz") is not None
    assert (joint.operator.get("/readyz") is None) == bool(missing)
    wanted = {
        f'trimtab_definition_served{{definition="{name_of(each)}"}} {float(each not in missing)}' for each in OURS
    }

    def counted() -> bool:
        assert joint.operator is not None
        return wanted <= set((joint.operator.get("/metrics") or "").splitlines())

    # The metric can follow /readyz by ten seconds.
    wait_for(counted, "the metric of definitions", timeout=40)


def until_noticed(joint: HealthCluster, *, ready: bool) -> None:
    wait_for(lambda: joint.operator is not None and joint.operator.ready() == ready, "/readyz to say so", timeout=40)


def stops(joint: HealthCluster) -> float:
    """Send SIGTERM; returns the seconds until the process ended, and asserts that the lease is released."""
    assert joint.operator is not None
    assert resident_bytes(joint.operator.pid, "VmHWM") < MEMORY_LIMIT
    began = time.monotonic()
    assert joint.operator.stop(timeout=GRACE + 5) == 0
    assert not joint.client.request("GET", LEASE)["spec"].get("holderIdentity")
    return time.monotonic() - began


@pytest.mark.parametrize(
    "missing",
    [pytest.param(each, id=each.plural) for each in OURS],
)
def test_deleted_crd_stops_only_its_controller(joint: HealthCluster, missing: Resource) -> None:
    check(joint, set())
    holder = joint.client.request("GET", LEASE)["spec"]["holderIdentity"]
    joint.undefine(missing)
    until_noticed(joint, ready=False)
    check(joint, {missing})
    joint.define(missing)
    until_noticed(joint, ready=True)
    check(joint, set())
    assert joint.client.request("GET", LEASE)["spec"]["holderIdentity"] == holder
    assert stops(joint) < STOPS_WITHIN


def test_crds_are_deleted_and_created_in_every_order(joint: HealthCluster) -> None:
    """Each CRD is deleted, and created, before and after each other one."""
    check(joint, set())
    orders = [OURS, tuple(reversed(OURS)), (*OURS[2:], *OURS[:2]), (*reversed(OURS[:3]), *OURS[3:])]
    pairs = {pair for order in orders for pair in itertools.combinations(order, 2)}
    assert len(pairs) == len(OURS) * (len(OURS) - 1)
    for deleting, creating in zip(orders, reversed(orders), strict=True):
        missing: set[Resource] = set()
        for each in deleting:
            joint.undefine(each)
            missing.add(each)
            if len(missing) in (1, 3):
                until_noticed(joint, ready=False)
                check(joint, missing)
        for each in creating:
            joint.define(each)
        until_noticed(joint, ready=True)
        check(joint, set())
    assert stops(joint) < STOPS_WITHIN


def test_sigterm_ends_the_process_while_all_crds_are_missing(joint: HealthCluster) -> None:
    for each in OURS:
        joint.undefine(each)
    until_noticed(joint, ready=False)
    assert stops(joint) < STOPS_WITHIN


def test_crds_installed_after_the_operator_are_watched(joint: HealthCluster) -> None:
    assert stops(joint) < STOPS_WITHIN
    for each in OURS:
        path = each.path("default") if each in WATCHED else None
        if path is not None:  # no operator runs that would remove finalizers
            joint.client.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)
    for namespace_and_name in machine_autoscalers(joint):
        joint.client.request("PATCH", namespace_and_name, {"metadata": {"finalizers": None}}, content_type=MERGE)
    for each in OURS:
        joint.undefine(each)
    joint.operate("--leader-elect", ready=False)
    wait_for(lambda: joint.client.request("GET", LEASE)["spec"].get("holderIdentity"), "the lease to be held")
    for each in OURS:
        joint.define(each)
    until_noticed(joint, ready=True)
    check(joint, set())


def machine_autoscalers(joint: HealthCluster) -> list[str]:
    items = joint.client.request("GET", MACHINE_AUTOSCALERS.path())["items"]
    return [
        MACHINE_AUTOSCALERS.path(each["metadata"]["name"], namespace=each["metadata"]["namespace"]) for each in items
    ]
