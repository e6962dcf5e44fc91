"""Random hostile tenants, one after the other, in one namespace with a quota of 50 pods, while every controller acts.

The operator is also the scheduler and relieves node pressure. The event loop's lag is compared with that in the same
run before the first tenant and after the last one, because other programs of the machine delay the loop as well.

TRIMTAB_E2E_HOSTILE gives the seconds (30 unless given; the weekly run in CI takes 600) and TRIMTAB_E2E_SEEDS the seed
of the first tenant. Without it, a run of a given duration draws and prints one, and any other run takes the same
tenants each time, so that a change is never blamed for tenants that no one tried before.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.hostile import QUOTA, HostileTenant
from tests.fixtures.invariants import is_end
from tests.fixtures.joint import JointCluster, own_joint_cluster, until_all_run
from tests.fixtures.tainting import LENIENT
from tests.fixtures.tenant import MEMORY_LIMIT, Tenant, reset_peak, resident_bytes
from tests.fixtures.waiting import eventually, patiently
from trimtab.kube.api import ApiError, NotFound, Unreachable
from trimtab.kube.resources import LEASES
from trimtab_local.install import NAMESPACE, OperatorProcess
from trimtab_local.loop_lag import Lags, loop_lags

SECONDS = float(os.environ.get("TRIMTAB_E2E_HOSTILE", "30"))
DRAWN = random.randrange(1 << 20) if "TRIMTAB_E2E_HOSTILE" in os.environ else 848622
FIRST = int(os.environ.get("TRIMTAB_E2E_SEEDS", "") or DRAWN)
LAG = 0.1
"""Seconds by which tenants may increase the 90th percentile of the event loop's lag, and the most its median may be."""
REST = 30.0
"""Seconds without a tenant in which the usual lag is measured."""
PEAK = 1.2
"""The most that resident memory may be while tenants have objects, over that before."""
RETURNED = 1.1
"""The same after the objects of the last tenant are gone."""
OF_NODE = 2**19
"""Bytes that a node adds, mostly for the connection to its kubelet. The other tenant's pods make the cluster grow."""
GROUP = "stable"
"""The node group, whose kubelets are simulated."""
WITHIN = patiently(10.0)
"""Seconds within which a pod of another tenant must have its node requested."""

PATHS = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "Service": "/api/v1/namespaces/{}/services",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
}
STRATEGIES = {
    name: {"enabled": True}
    for name in (
        "RemoveDuplicates",
        "RemovePodsViolatingInterPodAntiAffinity",
        "RemovePodsViolatingInterPodAffinity",
        "RemovePodsViolatingNodeTaints",
        "RemovePodsViolatingTopologySpreadConstraint",
    )
}


@pytest.fixture
def joint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JointCluster]:
    """A cluster of the test, whose pods the operator schedules."""
    with own_joint_cluster(request, tmp_path, schedules=True, pressure=True, elect=True) as joint:
        yield joint


@pytest.fixture
def leader(joint: JointCluster) -> OperatorProcess:
    """An operator with all controllers that holds the lease."""
    return joint.operate()


class Attack:
    """Creates the objects of hostile tenants with the permissions of the tenant.

    Args:
        joint: the cluster.
        tenant: the account.
    """

    def __init__(self, joint: JointCluster, tenant: Tenant) -> None:
        self._tenant = tenant
        quota = {"metadata": {"name": "pods"}, "spec": {"hard": {"pods": str(QUOTA)}}}
        joint.client.request("POST", f"/api/v1/namespaces/{tenant.namespace}/resourcequotas", quota)
        self.sent = 0
        self.refused = 0

    def send(self, hostile: HostileTenant) -> None:
        """Create every object that the API server accepts."""
        for source in (hostile.pods(), hostile.objects()):
            for manifest in source:
                try:
                    self._tenant.client.request("POST", self._path(manifest["kind"]), manifest)
                    self.sent += 1
                except (ApiError, Unreachable):  # invalid, too large, or beyond the quota
                    self.refused += 1

    def end(self) -> None:
        """Delete every object."""
        for kind in (*PATHS, "Pod"):
            path = self._path(kind)
            if kind == "Service":
                for each in self._tenant.client.request("GET", path)["items"]:
                    with suppress(NotFound):
                        self._tenant.client.request("DELETE", f"{path}/{each['metadata']['name']}")
            else:
                eventually(partial(self._delete_all, path), what=f"the deletion of {path}", seconds=180)

    def _delete_all(self, path: str) -> bool:
        """Delete a collection; ``False`` if a busy API server does not respond in time."""
        try:
            self._tenant.client.request("DELETE", path, {"gracePeriodSeconds": 0})
        except Unreachable:
            return False
        return True

    def _path(self, kind: str) -> str:
        return PATHS[kind].format(self._tenant.namespace)


def uids(joint: JointCluster) -> set[str]:
    """The UIDs of the other tenants' pods."""
    return {each["metadata"]["uid"] for each in joint.pods()}


def lags_at_rest(operator: OperatorProcess) -> Lags:
    begin = loop_lags(operator)
    time.sleep(REST)
    return loop_lags(operator) - begin


def shown(lags: Lags) -> str:
    quantiles = ", ".join(f"{1000 * lags.quantile(share):.0f} ms" for share in (0.5, 0.9, 0.99, 1.0))
    return f"{quantiles} (median, 90%, 99%, maximum of {lags.count})"


def lease(joint: JointCluster) -> tuple[Any, Any]:
    spec = joint.client.request("GET", LEASES.path("trimtab", namespace=NAMESPACE))["spec"]
    return spec["holderIdentity"], spec.get("leaseTransitions")


def seconds_to_scale_up(joint: JointCluster, app: str) -> float:
    """Create pods that each take a node, one more than nodes are free; returns the seconds until one was requested.

    Where the tenant's own pods make the autoscaler add nodes meanwhile, they may suffice: then until all are bound.
    """
    size = joint.size(GROUP)
    taking = [each for each in joint.pods() if not each["metadata"]["labels"]["app"].startswith("app-")]
    missing = size - len(taking) + 1
    began = time.monotonic()
    joint.deploy(app, missing, cpu="3", memory="512Mi")
    eventually(
        lambda: joint.size(GROUP) > size or sum("nodeName" in each["spec"] for each in joint.pods(app)) == missing,
        what=f"a node for {app}",
        seconds=60,
    )
    return time.monotonic() - began


def touched(joint: JointCluster) -> list[str]:
    """The operator's writes to the other tenants' objects, without the placement of their pending pods.

    Events are written about objects and change none. Pods whose names begin with ``wait-`` are pending at first.
    """
    return [
        each.summary
        for each in joint.audit.ours(verbs=("create", "update", "patch", "delete", "deletecollection"), granted=True)
        if each.object_ref.namespace == joint.pods_namespace
        and each.object_ref.resource != "events"
        and not (each.what in ("pods/binding", "pods/status") and each.object_ref.name.startswith("wait-"))
    ]


def test_random_hostile_tenants_affect_no_other(joint: JointCluster, leader: OperatorProcess) -> None:
    joint.manage_taints(nodeLifecycle=LENIENT)
    joint.schedule()
    joint.relieve_pressure(nodeSelector={"matchLabels": {"pool": GROUP}})
    joint.autoscale(scaleDown={"enabled": False})
    joint.group(GROUP, replicas=3, minimum=3, maximum=200)
    for number in range(4):
        joint.deploy(f"app-{number}", 3, cpu="100m")
    until_all_run(joint)
    joint.write_policy(namespaces={"exclude": ["none"]}, strategies=STRATEGIES)
    joint.deploy("fill", 3, cpu="2500m")
    until_all_run(joint)
    assert seconds_to_scale_up(joint, "first") < WITHIN
    usual_lags = lags_at_rest(leader)  # every controller has planned then, so that all code is loaded
    usual_memory, usual_size = resident_bytes(leader.pid), joint.size(GROUP)
    reset_peak(leader.pid)
    joint.audit.mark()
    before, running = lease(joint), uids(joint)
    labels = [{"app": f"app-{number}"} for number in range(4)]

    tenant = Tenant(joint.cluster)
    attack = Attack(joint, tenant)
    slowest, seed, until = 0.0, FIRST, time.monotonic() + SECONDS
    begin = loop_lags(leader)
    while time.monotonic() < until:
        nodes = sorted(joint.nodes(GROUP))
        hostile = HostileTenant(seed, namespace=tenant.namespace, nodes=nodes, labels=labels)
        print(f"seed {seed}: {hostile}", flush=True)
        attack.send(hostile)
        if "required anti-affinity terms" not in hostile.traits:  # they keep pods off nodes, also for kube-scheduler
            slowest = max(slowest, seconds_to_scale_up(joint, f"wait-{seed}"))
        attack.end()
        print(f"{resident_bytes(leader.pid) / 2**20:.0f} MiB, {joint.size(GROUP)} nodes", flush=True)
        seed += 1
    lags = loop_lags(leader) - begin
    memory, grown = resident_bytes(leader.pid, "VmHWM"), (joint.size(GROUP) - usual_size) * OF_NODE
    later_lags = lags_at_rest(leader)
    with suppress(AssertionError):  # the assertion below shows the memory
        what = "memory is returned"
        eventually(lambda: resident_bytes(leader.pid) <= usual_memory * RETURNED + grown, what, seconds=120, pause=1.0)
    after = resident_bytes(leader.pid)
    print(
        f"{seed - FIRST} tenants from seed {FIRST}: {attack.sent} objects, {attack.refused} refused, "
        f"slowest scale-up {slowest:.1f} s, {joint.size(GROUP)} nodes, memory {usual_memory / 2**20:.0f} MiB before, "
        f"{memory / 2**20:.0f} MiB at most, {after / 2**20:.0f} MiB after, lag of the event loop {shown(usual_lags)} "
        f"before, {shown(lags)} with the tenants, {shown(later_lags)} after them"
    )

    assert slowest < WITHIN
    assert leader.running()
    assert lease(joint) == before
    assert memory < min(MEMORY_LIMIT, PEAK * usual_memory + grown)
    assert after <= RETURNED * usual_memory + grown
    assert lags.quantile(0.5) < LAG
    assert lags.quantile(0.9) - max(usual_lags.quantile(0.9), later_lags.quantile(0.9)) < LAG
    assert not re.search(r"Lease .* was lost", leader.log.read_text())
    ends = [each for each in joint.audit.ours("pods", "pods/eviction", verbs=("delete", "create")) if is_end(each)]
    assert [each.summary for each in ends if each.object_ref.namespace != tenant.namespace] == []
    assert touched(joint) == []
    assert running <= uids(joint)
