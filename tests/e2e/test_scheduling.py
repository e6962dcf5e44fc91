"""The scheduler as a process: kills, a second replica, other schedulers, several policies, changes while pods wait."""

from __future__ import annotations

import asyncio
import re
import secrets
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeCluster
from tests.fixtures.audit import OPERATOR, Audit, credential
from tests.fixtures.autoscaling import delete_all
from tests.fixtures.clusters import create_nodes, require_local_cluster
from tests.fixtures.leader_terms import TIMINGS, seconds_between, terms
from tests.fixtures.tainting import make_namespace
from tests.fixtures.waiting import never, patiently, wait_for
from trimtab.kube import verbs
from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.transport import Transport
from trimtab.kube.resources import PODS, SCHEDULER_POLICIES
from trimtab_local.cluster import LocalCluster
from trimtab_local.components import Settings
from trimtab_local.install import OperatorProcess, apply, install
from trimtab_local.nodes import node

NODES = 20
PER_NODE = 100
CAPACITY = {"cpu": "10", "memory": "64Gi", "pods": "110"}
CPU = "100m"
"""A node has room for exactly :data:`PER_NODE` of these pods."""
OURS = "--controllers=scheduler"
LEASE_SECONDS = float(TIMINGS.lease_duration)
TAKEOVER_DELAY = 1.0
"""Seconds from the expiry of the leader's Lease to the takeover: milliseconds, and half a second on a busy machine."""
FIRST_BINDING_DELAY = 1.5
"""Seconds from the takeover to the first binding of the standby, which reads its policies first."""
BINDINGS = f"""\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  resources: [{{group: "", resources: [pods/binding]}}]
- level: Request
  users: [{OPERATOR}]
  verbs: [create, update]
  resources: [{{group: coordination.k8s.io, resources: [leases]}}]
- level: None
"""
"""All bindings, and the operator's writes of its Leases."""


class Hall:
    """A cluster with the scheduler's permissions, a namespace of the test, and the bindings in the audit log."""

    def __init__(self, cluster: LocalCluster, audit: Audit, namespace: str, directory: Path, stack: ExitStack) -> None:
        self.cluster = cluster
        self.audit = audit
        self.namespace = namespace
        self._directory = directory
        self._stack = stack
        self._count = 0

    def operate(self, *arguments: str) -> OperatorProcess:
        self._count += 1
        process = OperatorProcess(self.cluster, self._directory, OURS, *arguments, name=f"operator-{self._count}")
        self._stack.callback(lambda: process.running() and process.stop())
        process.start()
        return process

    def policy(self, name: str, **spec: Any) -> None:
        manifest = {
            "apiVersion": SCHEDULER_POLICIES.api_version,
            "kind": SCHEDULER_POLICIES.kind,
            "metadata": {"name": name},
            "spec": {"schedulerName": name, **spec},
        }
        apply(self.cluster.client, SCHEDULER_POLICIES.path(), manifest)

    def condition(self, policy: str, type_: str) -> dict[str, Any]:
        live = self.cluster.client.request("GET", SCHEDULER_POLICIES.path(policy))
        conditions = (live.get("status") or {}).get("conditions") or ()
        return next((dict(each) for each in conditions if each["type"] == type_), {})

    def create(self, count: int, scheduler: str, *, prefix: str = "pod", **spec: Any) -> None:
        """Create pods over several connections."""
        container = {"name": "app", "image": "app", "resources": {"requests": {"cpu": CPU}}}
        body = {"schedulerName": scheduler, "containers": [container], **spec}

        async def send() -> None:
            async with Transport(load_config(str(self.cluster.kubeconfig))) as api:
                waiting = iter(range(count))

                async def work() -> None:
                    for number in waiting:
                        pod = {"metadata": {"name": f"{prefix}-{number}"}, "spec": body}
                        await verbs.create(api, PODS, pod, namespace=self.namespace)

                await asyncio.gather(*(work() for _ in range(16)))

        asyncio.run(send())

    def pods(self) -> list[dict[str, Any]]:
        path = PODS.path(namespace=self.namespace)
        found: list[dict[str, Any]] = self.cluster.client.request("GET", path, timeout=patiently(60))["items"]
        return found

    def bound(self) -> dict[str, str]:
        """Node by pod name."""
        return {
            each["metadata"]["name"]: each["spec"]["nodeName"] for each in self.pods() if each["spec"].get("nodeName")
        }

    def per_node(self) -> Counter[str]:
        return Counter(self.bound().values())


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    return Audit(tmp_path_factory.mktemp("audit"), BINDINGS)


@pytest.fixture(scope="module")
def hall_cluster(request: pytest.FixtureRequest, audit: Audit) -> LocalCluster:
    require_local_cluster(request)
    make_cluster: MakeCluster = request.getfixturevalue("make_cluster")
    cluster = make_cluster(Settings(apiserver_args=audit.arguments), nodes=0)
    manifests = (node(f"n{index}", zone=f"zone-{index % 2}", capacity=CAPACITY) for index in range(NODES))
    create_nodes(cluster.client, manifests)
    install(cluster, "controllers.scheduler.enabled=true")
    return cluster


@pytest.fixture
def hall(hall_cluster: LocalCluster, audit: Audit, tmp_path: Path) -> Iterator[Hall]:
    audit.mark()
    client, name = hall_cluster.client, f"test-{secrets.token_hex(4)}"
    make_namespace(client, name)
    with ExitStack() as stack:
        hall = Hall(hall_cluster, audit, name, tmp_path, stack)
        yield hall
    delete_all(client, SCHEDULER_POLICIES.path())
    client.request("DELETE", PODS.path(namespace=name), {"gracePeriodSeconds": 0}, timeout=patiently(120))
    wait_for(lambda: not hall.pods(), "the pods to be gone", timeout=120)


def scheduled(process: OperatorProcess) -> float:
    """Number of pods that the process has bound, from its metrics: a list of all pods would take too long."""
    found = re.search(
        r'^trimtab_scheduler_schedule_attempts_total\{.*result="scheduled".*\} (\S+)$',
        process.get("/metrics") or "",
        re.MULTILINE,
    )
    return float(found[1]) if found else 0.0


def enough(hall: Hall, number: int) -> Callable[[], bool]:
    return lambda: len(hall.bound()) >= number


def test_kills_while_2000_pods_are_bound_lose_none(hall: Hall) -> None:
    """The pods fill the nodes exactly, so a place that a killed process took with it would leave pods pending."""
    total = NODES * PER_NODE
    hall.policy("ours")
    hall.create(total, "ours")
    uids = {each["metadata"]["name"]: each["metadata"]["uid"] for each in hall.pods()}
    seen: dict[str, str] = {}
    for _ in range(3):
        process = hall.operate("--no-leader-elect")
        wait_for(lambda process=process: scheduled(process) >= 100, "bindings", interval=0.01, alive=process.running)
        process.stop(signal.SIGKILL)
        now = hall.bound()
        assert seen.items() < now.items()
        assert max(hall.per_node().values()) <= PER_NODE
        seen = now
    assert len(seen) < total, "the last kill came too late"
    last = hall.operate("--no-leader-elect")
    wait_for(enough(hall, total), "all pods to be bound", alive=last.running)
    assert seen.items() <= hall.bound().items()
    assert hall.per_node() == dict.fromkeys((f"n{index}" for index in range(NODES)), PER_NODE)
    assert {each["metadata"]["name"]: each["metadata"]["uid"] for each in hall.pods()} == uids


def test_standby_binds_within_the_lease_duration_after_the_leader_is_killed(hall: Hall) -> None:
    """All times are from the audit log of the API server."""
    hall.policy("ours")
    leader = hall.operate("--identity=leader")
    wait_for(lambda: "trimtab_leader 1.0" in (leader.get("/metrics") or ""), "the leader")
    standby = hall.operate("--identity=standby")
    wait_for(standby.ready, "the standby to be ready")
    hall.create(300, "ours")
    wait_for(enough(hall, 100), "the first bindings", interval=0.02)
    leader.stop(signal.SIGKILL)
    hall.create(700, "ours", prefix="later")
    wait_for(enough(hall, 1000), "the standby to bind the others", timeout=3 * LEASE_SECONDS, alive=standby.running)
    assert max(hall.per_node().values()) <= PER_NODE
    old, new = terms([each for each in hall.audit.all() if each.what == "leases"])
    assert new.token == credential(standby.kubeconfig)
    bindings = hall.audit.of("pods/binding", granted=True)
    first = next(each for each in bindings if each.token == new.token)
    takeover, binding = seconds_between(old.renewed, new.acquired), seconds_between(new.acquired, first)
    print(f"takeover {takeover:.3f} s after the last renewal, first binding {binding:.3f} s later")
    assert LEASE_SECONDS <= takeover <= LEASE_SECONDS + patiently(TAKEOVER_DELAY)
    assert 0 < binding <= patiently(FIRST_BINDING_DELAY)


def test_our_scheduler_and_kube_scheduler_bind_only_their_own_pods(hall: Hall) -> None:
    hall.policy("ours")
    hall.operate("--no-leader-elect")
    hall.create(300, "ours", prefix="ours")
    hall.create(300, "default-scheduler", prefix="theirs")
    hall.create(5, "unserved", prefix="unserved")
    wait_for(enough(hall, 600), "both schedulers to bind their pods")
    bindings = hall.audit.of("pods/binding", granted=True)
    counts = Counter((each.user.username, each.object_ref.name.split("-")[0]) for each in bindings)
    assert counts == {(OPERATOR, "ours"): 300, ("system:kube-scheduler", "theirs"): 300}
    assert not any(name.startswith("unserved") for name in hall.bound())
    reported = Counter[tuple[str, str]]()

    def report() -> bool:
        path = f"/apis/events.k8s.io/v1/namespaces/{hall.namespace}/events"
        reported.clear()
        for event in hall.cluster.client.request("GET", path)["items"]:
            if event["reason"] == "Scheduled":
                reported[event["reportingController"], event["regarding"]["name"].split("-")[0]] += 1
        return len(reported) == 2

    wait_for(report, "the events of both schedulers")
    assert set(reported) == {("trimtab.dev/trimtab", "ours"), ("default-scheduler", "theirs")}


def test_policies_with_different_profiles_share_the_cluster(hall: Hall) -> None:
    hall.policy("packing", profile={"scoringStrategy": {"type": "MostAllocated"}})
    hall.policy("spreading")
    hall.policy("legacy", provider="ClusterAutoscalerProvider")
    hall.operate("--no-leader-elect")
    hall.create(60, "packing", prefix="packing")
    wait_for(enough(hall, 60), "the packed pods")
    assert len(hall.per_node()) <= 2
    hall.create(60, "spreading", prefix="spreading")
    hall.create(40, "legacy", prefix="legacy")
    wait_for(enough(hall, 160), "all pods")
    spread = {on for name, on in hall.bound().items() if name.startswith("spreading")}
    assert len(spread) >= NODES - 2


def test_policy_that_is_deleted_or_invalid_stops_scheduling(hall: Hall) -> None:
    hall.policy("ours")
    hall.operate("--no-leader-elect")
    wait_for(lambda: hall.condition("ours", "Ready").get("status") == "True", "the policy to be ready")
    hall.create(5, "ours", prefix="before")
    wait_for(enough(hall, 5), "the first pods")
    hall.cluster.client.request("DELETE", SCHEDULER_POLICIES.path("ours"))
    wait_for(
        lambda: not hall.cluster.client.request("GET", SCHEDULER_POLICIES.path())["items"], "the policy to be gone"
    )
    hall.create(5, "ours", prefix="after")
    never(enough(hall, 6), "a pod is bound without a policy", seconds=3)
    hall.policy("ours")
    wait_for(enough(hall, 10), "the policy to be used again")


def test_younger_policy_with_the_same_scheduler_name_reports_a_conflict(hall: Hall) -> None:
    hall.policy("ours")
    hall.operate("--no-leader-elect")
    wait_for(lambda: hall.condition("ours", "Ready").get("status") == "True", "the policy to be ready")
    hall.policy("zweit", schedulerName="ours")
    wait_for(lambda: hall.condition("zweit", "Ready").get("reason") == "SchedulerNameConflict", "the conflict")
    hall.create(5, "ours")
    wait_for(enough(hall, 5), "the older policy to be used")
    hall.cluster.client.request("DELETE", SCHEDULER_POLICIES.path("ours"))
    wait_for(lambda: hall.condition("zweit", "Ready").get("status") == "True", "the younger policy to take over")
