"""The descheduler, node drains and the taint manager evict through one evictor: budgets, limits, kills.

All assertions are about the requests in the API server's audit log. TRIMTAB_E2E_SEEDS lists the seeds of the kills, and
TRIMTAB_E2E_EVICTIONS sets the number of evictions of each controller under limits.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fixtures.audit import AuditEvent, broken_budgets, require_none
from tests.fixtures.autoscaling import SHORT
from tests.fixtures.custom_resources import serve
from tests.fixtures.joint import JointCluster, deploy_on, own_joint_cluster, repeated_evictions
from tests.fixtures.tainting import at
from trimtab.api.reasons import WAITING_FOR_EVICTION, WAITING_FOR_EVICTION_LIMIT, WAITING_FOR_OWNER
from trimtab.kube.resources import CLUSTER_AUTOSCALERS, DESCHEDULER_POLICIES, EVICTION_REQUESTS, TAINT_MANAGERS
from trimtab_local.install import apply

EVICTIONS: Final = int(os.environ.get("TRIMTAB_E2E_EVICTIONS", "200"))
SEEDS: Final = [int(each) for each in os.environ.get("TRIMTAB_E2E_SEEDS", "1").split(",")]

MAINTENANCE: Final = "example.com/maintenance"
WORKERS: Final = 10
"""Nodes that remain: the policy spreads the pods of each of its Deployments over them."""
PODS_PER_NODE: Final = 20
"""Pods on each node that is drained or tainted."""

PER_MINUTE: Final = 200
CONCURRENT: Final = 20
DRAINED: Final = 3
"""Drained nodes with a pod of the one owner."""

CLOCK: Final = 1.0
"""Seconds by which the audit log's times may differ from those at which the operator counts evictions."""
UNRECORDED: Final = 6.0
"""Seconds of evictions that a killed leader may not have written to the history: two periods of its writer."""


@pytest.fixture
def joint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JointCluster]:
    """A cluster of its own."""
    with own_joint_cluster(request, tmp_path, for_load=True) as joint:
        yield joint


class Work:
    """Evictions that three controllers want at the same time. Nothing is evicted before :meth:`begin`.

    Args:
        joint: the cluster, in which an operator runs.
        evictions: about how many evictions each controller wants.
    """

    def __init__(self, joint: JointCluster, evictions: int) -> None:
        self.joint = joint
        nodes = max(1, evictions // PODS_PER_NODE)
        self.pods_per_group = nodes * PODS_PER_NODE
        joint.manage_taints(taints=[{"key": MAINTENANCE, "policy": "Evict", "maximumWait": "30m"}])
        joint.autoscale(scaleDown={"enabled": False})
        for name, count in (("workers", WORKERS), ("drained", nodes), ("tainted", nodes)):
            least = 0 if name == "drained" else count
            joint.group(name, replicas=count, minimum=least, maximum=count, cpu="64", memory="64Gi")
        workers = sorted(joint.nodes("workers"))
        only = {"cpu": "50m", "memory": "16Mi"}
        self.spread = [f"spread-{number}" for number in range(evictions // (WORKERS - 1))]
        for number, name in enumerate(self.spread):
            deploy_on(joint, name, WORKERS, [workers[number % WORKERS]], nodeSelector={"pool": "workers"}, **only)
        self.crowded = {each["metadata"]["name"] for name in self.spread for each in joint.pods(name)}
        """The pods that begin on a node with all others of their owner."""
        for name in ("drained", "tainted"):
            deploy_on(joint, f"{name}-app", self.pods_per_group, sorted(joint.nodes(name)), **only)

    def begin(self) -> None:
        """Taint nodes, enable scale-down, and apply a policy, at the same time."""
        joint = self.joint
        joint.change(scaleDown={**SHORT, "enabled": True, "unneededTime": "1s"})
        joint.write_policy(
            interval="20s",
            limits={"perMinute": 600},
            podSelector={"matchExpressions": [{"key": "app", "operator": "In", "values": self.spread}]},
        )
        for node in sorted(joint.nodes("tainted")):
            joint.taint(node, MAINTENANCE)

    def done(self) -> bool:
        """Whether each controller has evicted all that it wanted at first.

        The scheduler may put a replacement next to another pod of its owner, which then cools down for minutes, so the
        evictions are counted instead of the pods on each node.
        """
        joint = self.joint
        if joint.nodes("drained"):
            return False
        where = joint.where()
        if any(where[name] for name in joint.nodes("tainted")):
            return False
        return by_controller(granted(joint))["spread"] >= self.spread_pods

    @property
    def spread_pods(self) -> int:
        """How many pods the policy moves away from siblings."""
        return len(self.spread) * (WORKERS - 1)


def granted(joint: JointCluster) -> list[AuditEvent]:
    """The granted evictions, the earliest first."""
    return sorted(joint.audit.ours("pods/eviction", granted=True), key=at)


def by_controller(evictions: list[AuditEvent]) -> Counter[str]:
    """The number of evictions by the beginning of the pods' names, which says who evicts them."""
    return Counter(each.object_ref.name.partition("-")[0] for each in evictions)


def is_voluntary(eviction: AuditEvent) -> bool:
    return not eviction.object_ref.name.startswith("tainted")


def minutes_above_limit(evictions: list[AuditEvent], limit: int, *, minute: float = 60.0 - CLOCK) -> list[str]:
    """The voluntary evictions that were granted although the minute before already had as many as the limit."""
    found, first = [], 0
    for index, each in enumerate(evictions):
        while at(evictions[first]) <= at(each) - minute:
            first += 1
        if is_voluntary(each) and index - first >= limit:
            found.append(f"{each.summary}: eviction {index - first + 1} in {minute:g} s")
    return found


def waiting_reasons(joint: JointCluster) -> set[tuple[str, str]]:
    """The kinds whose status lists waiting evictions, with the reasons."""
    found = set()
    for resource in (DESCHEDULER_POLICIES, CLUSTER_AUTOSCALERS, TAINT_MANAGERS):
        status = joint.client.request("GET", resource.path("default")).get("status") or {}
        found |= {(resource.kind, each["reason"]) for each in status.get("waitingEvictions") or ()}
    return found


@pytest.mark.timeout(1800)
def test_operator_wide_limits_hold_over_all_controllers(joint: JointCluster) -> None:
    limits = (f"--evictions-per-minute={PER_MINUTE}", f"--max-concurrent-evictions={CONCURRENT}")
    operator = joint.operate(*limits)
    work = Work(joint, EVICTIONS)
    joint.audit.mark()
    work.begin()
    began, seen = time.monotonic(), set()
    while not work.done():
        assert time.monotonic() - began < 900, joint.describe()
        seen |= waiting_reasons(joint)
        time.sleep(1.0)
    seconds = time.monotonic() - began
    evictions = granted(joint)
    counts = by_controller(evictions)
    sys.stdout.write(f"{len(evictions)} evictions in {seconds:.0f} s: {dict(counts)}; status: {sorted(seen)}\n")
    assert counts["drained"] >= work.pods_per_group
    assert counts["tainted"] >= work.pods_per_group
    assert sum(each.object_ref.name in work.crowded for each in evictions) >= 0.9 * work.spread_pods
    require_none(repeated_evictions(joint.audit))
    require_none(minutes_above_limit(evictions, PER_MINUTE))
    assert {kind for kind, reason in seen if reason == WAITING_FOR_EVICTION_LIMIT} >= {"DeschedulerPolicy"}
    assert "Traceback" not in operator.log.read_text()


def test_one_owner_and_one_budget(joint: JointCluster) -> None:
    """Three controllers evict pods of one Deployment with ``maxUnavailable: 1``: those with a deadline come first."""
    joint.operate()
    joint.manage_taints(taints=[{"key": MAINTENANCE, "policy": "Evict", "maximumWait": "30m"}])
    joint.autoscale(scaleDown={"enabled": False})
    for name, count in (("workers", 4), ("drained", DRAINED), ("tainted", 1)):
        least = 0 if name == "drained" else count
        joint.group(name, replicas=count, minimum=least, maximum=count, cpu="64", memory="64Gi")
    worker, tainted = (min(joint.nodes(name)) for name in ("workers", "tainted"))
    joint.budget("web", maxUnavailable=1)
    joint.deploy("web", 0, cpu="50m", memory="16Mi")
    placed, total = {}, 0
    # A node is drained only if the budget allows the eviction of all its pods, so each drained node has one.
    for node, pods in ((worker, 4), (tainted, 4), *((each, 1) for each in sorted(joint.nodes("drained")))):
        total += pods
        for each in joint.all_nodes():
            joint.cordon(each, on=each != node)
        joint.resize("web", total)
        joint.until_running("web", total)
        placed |= {each["metadata"]["name"]: node for each in joint.pods("web") if each["spec"]["nodeName"] == node}
    for node in joint.all_nodes():
        joint.cordon(node, on=False)
    for node in joint.nodes("drained"):
        joint.add_taint(node, key="example.com/no-new-pods", effect="NoSchedule")
    joint.audit.mark()
    joint.change(scaleDown={**SHORT, "enabled": True, "unneededTime": "1s"})
    joint.write_policy(interval="5s")
    joint.until(lambda: granted(joint), "the first eviction")
    joint.taint(tainted, MAINTENANCE)
    before = len(granted(joint))

    def moved() -> bool:
        return not joint.nodes("drained") and not joint.where()[tainted] and max(joint.where("web").values()) <= 3

    joint.until(moved, "all pods are moved", seconds=300)
    pools = {worker: "worker", tainted: "tainted"}
    order = [
        pools.get(node, "drained") for node in (placed.get(each.object_ref.name, worker) for each in granted(joint))
    ]
    sys.stdout.write(f"{order}\n")
    require_none(broken_budgets(joint.audit, joint.pods_namespace))
    require_none(repeated_evictions(joint.audit))
    assert order.count("tainted") == 4
    assert order.count("drained") == DRAINED
    assert order.count("worker") >= 1
    last = max(index for index, pool in enumerate(order) if pool == "tainted")
    assert last - before <= 4, "at most one other eviction was ahead of those with a deadline"


@pytest.mark.core
def test_evictions_wait_for_eviction_requests_of_other_components(joint: JointCluster) -> None:
    """A descheduler that starts before the kind is served waits for the request of a node-maintenance tool."""
    operator = joint.operate()
    joint.manage_taints()
    joint.autoscale(scaleDown={"enabled": False})
    joint.group("workers", replicas=3, minimum=3, maximum=3)
    serve(joint.client, EVICTION_REQUESTS)
    deploy_on(joint, "web", 3, sorted(joint.nodes("workers"))[:1], cpu="50m")
    pods = {each["metadata"]["name"]: each["metadata"]["uid"] for each in joint.pods("web")}
    path = EVICTION_REQUESTS.path("maintenance", namespace=joint.pods_namespace)
    named = min(pods)
    request = {
        "apiVersion": EVICTION_REQUESTS.api_version,
        "kind": EVICTION_REQUESTS.kind,
        "metadata": {"name": "maintenance", "namespace": joint.pods_namespace},
        "spec": {
            "target": {"pod": {"name": named, "uid": pods[named]}},
            "requester": "example.com/drainer",
            "intent": "Eviction",
        },
    }
    apply(joint.client, path.rpartition("/")[0], request)
    joint.until(lambda: "now serves lifecycle.k8s.io" in operator.log.read_text(), "the operator watches the kind")
    joint.audit.mark()
    joint.write_policy()

    def waits_for() -> set[tuple[str, str]]:
        waiting = joint.policy_status().get("waitingEvictions") or ()
        return {(each["reason"], each["waitsFor"]) for each in waiting}

    expected = {(WAITING_FOR_EVICTION, "EvictionRequest example.com/drainer")}
    expected |= {(WAITING_FOR_OWNER, "EvictionRequest example.com/drainer")}
    joint.until(lambda: waits_for() and waits_for() <= expected, "the status names the EvictionRequest")
    assert not granted(joint)
    request["spec"]["intent"] = "Withdrawn"
    apply(joint.client, path.rpartition("/")[0], request)
    joint.until(lambda: max(joint.where("web").values()) == 1, "the policy spreads the pods")
    joint.until(lambda: not waits_for(), "no eviction waits")
    require_none(repeated_evictions(joint.audit))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", SEEDS)
def test_kills_repeat_and_lose_no_eviction(joint: JointCluster, seed: int) -> None:
    """The leader is killed twice in the middle of the evictions of three controllers."""
    chance = random.Random(seed)
    limit = f"--evictions-per-minute={PER_MINUTE}"
    processes = [joint.operate("--leader-elect", limit) for _ in range(2)]
    work = Work(joint, PODS_PER_NODE * 4)
    joint.audit.mark()
    work.begin()
    kills: list[float] = []

    def reached(wanted: int) -> bool:
        return len(granted(joint)) >= wanted or work.done()

    for _ in range(2):
        wanted = len(granted(joint)) + chance.randrange(20, 70)
        joint.until(lambda wanted=wanted: reached(wanted), f"{wanted} evictions", seconds=180)  # type: ignore[misc]
        leader = next(each for each in processes if each.running() and is_leader(each))
        leader.stop(signal.SIGKILL)
        kills.append(time.time())
        processes.append(joint.operate("--leader-elect", limit, ready=False))
    joint.until(work.done, "all evictions", seconds=420)
    evictions = granted(joint)
    counts = by_controller(evictions)
    excess = minutes_above_limit(evictions, PER_MINUTE, minute=60.0 - CLOCK - UNRECORDED)
    sys.stdout.write(f"seed {seed}: {len(evictions)} evictions {dict(counts)}, {len(kills)} kills\n")
    require_none(repeated_evictions(joint.audit))
    require_none(excess)
    for name, least in (("drained", work.pods_per_group), ("tainted", work.pods_per_group)):
        assert counts[name] >= least
    assert sum(each.object_ref.name in work.crowded for each in evictions) >= 0.9 * work.spread_pods


def is_leader(process: Any) -> bool:
    """Whether the metrics of an operator say that it leads."""
    return "trimtab_leader 1.0" in (process.get("/metrics") or "")
