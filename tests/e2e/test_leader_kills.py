"""kill -9 the leader: the standby takes over and acts, and two processes never act at the same time.

All times are from the audit log of the API server: which process wrote what, and who held the Lease.
"""

from __future__ import annotations

import json
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from itertools import pairwise

import pytest

from examples.demo.workloads import deployment
from tests.e2e.conftest import NODES, Stage, Start
from tests.fixtures.audit import OPERATOR, Audit, AuditEvent, credential, require_none
from tests.fixtures.clusters import create_nodes, require_local_cluster
from tests.fixtures.leader_terms import is_lease, overlaps, seconds_between, terms
from tests.fixtures.waiting import patiently, wait_for
from trimtab.runtime.leader_election.elector import ElectionTimings
from trimtab_local.cluster import LocalCluster
from trimtab_local.components import Settings
from trimtab_local.install import OperatorProcess, install
from trimtab_local.nodes import node

KILLS = 20
POLICY = f"""\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  verbs: [get, list, watch]
- level: None
  resources:
  - {{group: authorization.k8s.io}}
- level: Request
  users: [{OPERATOR}]
  resources:
  - {{group: coordination.k8s.io, resources: [leases]}}
- level: Metadata
  users: [{OPERATOR}]
- level: None
"""
"""The operator's writes, with the content of its Leases."""

TIMINGS = ElectionTimings()
LIMIT = TIMINGS.lease_duration + 5.0
"""Seconds from the kill of the leader to the first write of the standby."""

TAKEOVER_DELAY = 0.2
"""Seconds from the expiry of the Lease to the takeover in most cases. A busy machine delays single ones."""

PATIENCE = 4 * LIMIT
"""Seconds after which a missing takeover or eviction is a failure. A busy machine delays single ones."""


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    return Audit(tmp_path_factory.mktemp("audit"), POLICY)


@pytest.fixture(scope="module")
def stage_cluster(request: pytest.FixtureRequest, audit: Audit) -> LocalCluster:
    """Three nodes, the chart's CRDs and RBAC, and the audit log."""
    require_local_cluster(request, "this test needs the audit log of a local control plane")
    cluster: LocalCluster = request.getfixturevalue("make_cluster")(Settings(apiserver_args=audit.arguments), nodes=0)
    create_nodes(cluster.client, (node(name, zone=f"zone-{index}") for index, name in enumerate(NODES)))
    install(cluster)
    return cluster


def test_standby_acts_after_each_kill_and_never_together_with_the_old_leader(
    stage: Stage, start: Start, audit: Audit
) -> None:
    """Each leader is killed while a new policy cannot move a pod yet; the standby moves it."""
    audit.mark()
    seconds: dict[str, list[float]] = {"takeover": [], "first write": [], "first eviction": []}
    processes = [start("--controllers=descheduler"), start("--controllers=descheduler")]
    for number in range(KILLS):
        leader, standby = leader_and_standby(processes)
        name = f"web-{number}"
        leave_duplicates(stage, name)
        stage.write_policy(name, mode="Act")  # a policy with evictions in the last minute would wait
        wait_for(lambda name=name: bool(stage.status(name).get("lastRun")), "a cycle of the leader")
        killed = time.time()
        leader.stop(signal.SIGKILL)
        stage.open_only(*NODES)
        token = credential(standby.kubeconfig)
        for what, event in first_writes(audit, token).items():
            seconds[what].append(event.request_received_timestamp.timestamp() - killed)
        processes = [standby, start("--controllers=descheduler", ready=False)]
        wait_for(lambda name=name: stage.spread(name, 2), f"{name} to be spread")
        stage.remove_policy(name)
        path = f"/apis/apps/v1/namespaces/{stage.namespace}/deployments/{name}"
        stage.client.request("DELETE", path, params={"propagationPolicy": "Background"})

    writes = list(audit.all())
    found = terms(writes)
    seconds["takeover after the last renewal"] = [
        seconds_between(old.renewed, new.acquired) for old, new in pairwise(found)
    ]
    sys.stdout.write(json.dumps({what: distribution(each) for what, each in seconds.items()}) + "\n")
    assert len(found) == KILLS + 1
    require_none(overlaps(found, writes))
    takeover = statistics.median(seconds["takeover after the last renewal"])
    assert takeover <= TIMINGS.lease_duration + patiently(TAKEOVER_DELAY)
    assert statistics.median(seconds["first write"]) < patiently(LIMIT)


def first_writes(audit: Audit, token: str) -> dict[str, AuditEvent]:
    """Wait for the takeover and the first writes of a process."""

    def granted(each: AuditEvent) -> bool:
        return each.token == token and each.granted

    conditions = {
        "takeover": lambda each: granted(each) and is_lease(each),
        "first write": lambda each: granted(each) and each.what != "leases",
        "first eviction": lambda each: granted(each) and each.what == "pods/eviction",
    }
    return {what: audit.wait_for(found, what, seconds=PATIENCE) for what, found in conditions.items()}


def distribution(seconds: Sequence[float]) -> dict[str, float]:
    figures = {"min": min(seconds), "median": statistics.median(seconds), "max": max(seconds)}
    return {name: round(value, 2) for name, value in figures.items()}


def leader_and_standby(processes: Sequence[OperatorProcess]) -> list[OperatorProcess]:
    """Wait until one of the processes is the leader and both are ready."""

    def leads(process: OperatorProcess) -> bool:
        return "trimtab_leader 1.0" in (process.get("/metrics") or "")

    wait_for(lambda: sum(map(leads, processes)) == 1, "one leader")
    wait_for(lambda: all(process.ready() for process in processes), "the standby to be ready", timeout=180)
    return sorted(processes, key=leads, reverse=True)


def leave_duplicates(stage: Stage, name: str) -> None:
    """Run two replicas on one node, while the other nodes are cordoned."""
    stage.open_only("a")
    path = f"/apis/apps/v1/namespaces/{stage.namespace}/deployments"
    stage.client.request("POST", path, deployment(name, namespace=stage.namespace, replicas=2))
    wait_for(lambda: len(stage.running(name)) == 2, f"{name} to run")
