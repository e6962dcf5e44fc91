"""Pods of a tenant with thousands of affinity terms delay no other tenant.

They are those of the security review (A4): 1 MB each, with 8,000 required anti-affinity terms that pick nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.joint import JointCluster, leading_operator, own_joint_cluster, until_all_run
from tests.fixtures.tainting import make_namespace
from tests.fixtures.tenant import MEMORY_LIMIT, Tenant, require_end, resident_bytes
from tests.fixtures.waiting import eventually, patiently
from trimtab.kube.resources import LEASES, PODS
from trimtab_local.install import NAMESPACE, OperatorProcess

TERMS = 8000
OTHER_APPS = 600
WITHIN = patiently(10.0)
"""Seconds within which pods of other tenants must have their nodes requested."""


@pytest.fixture
def joint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JointCluster]:
    """A cluster of the test."""
    with own_joint_cluster(request, tmp_path, for_load=True) as joint:
        yield joint


@pytest.fixture
def leader(joint: JointCluster, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator that holds the lease."""
    with leading_operator(joint, tmp_path) as leader:
        yield leader


def terms(number: int) -> dict[str, Any]:
    required = [
        {
            "topologyKey": f"k{each % 7}",
            "namespaceSelector": {},
            "labelSelector": {"matchExpressions": [{"key": f"a{number}-{each}", "operator": "Exists"}]},
        }
        for each in range(TERMS)
    ]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def lease(joint: JointCluster) -> dict[str, Any]:
    return joint.client.request("GET", LEASES.path("trimtab", namespace=NAMESPACE))["spec"]


def other_tenants(joint: JointCluster, node: str) -> None:
    """Pods with distinct labels: every new term was compared with each of these classes."""
    make_namespace(joint.client, "others")
    for number in range(OTHER_APPS):
        pod = {
            "metadata": {"name": f"app-{number}", "labels": {"app": f"app-{number}"}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "registry.example/x"}]},
        }
        joint.client.request("POST", PODS.path(namespace="others"), pod)


def seconds_to_scale_up(joint: JointCluster, app: str) -> float:
    """Create eight pods that need new nodes; returns the seconds until the autoscaler has requested one."""
    size = joint.size("workers")
    began = time.monotonic()
    joint.deploy(app, 8, cpu="3", memory="512Mi")
    eventually(lambda: joint.size("workers") > size, what=f"a node for {app}", seconds=60)
    return time.monotonic() - began


def test_affinity_terms_of_one_tenant_delay_no_other(joint: JointCluster, leader: OperatorProcess) -> None:
    joint.manage_taints()
    joint.autoscale()
    joint.group("workers", replicas=3, minimum=3, maximum=60)
    joint.write_policy(
        interval="10s",
        namespaces={"exclude": ["none"]},
        strategies={"RemovePodsViolatingInterPodAntiAffinity": {"enabled": True}},
    )
    node = min(joint.nodes("workers"))
    other_tenants(joint, node)
    joint.deploy("apart", 2, cpu="100m", affinity=_apart("apart"))
    until_all_run(joint)
    before = lease(joint)
    usual = seconds_to_scale_up(joint, "before")
    until_all_run(joint, seconds=120)

    tenant = Tenant(joint.cluster)
    for number in range(12):
        tenant.create_pod(f"terms-{number}", affinity=terms(number), nodeName=node)
    first = seconds_to_scale_up(joint, "twelve")
    for number in range(12, 16):
        tenant.create_pod(f"terms-{number}", affinity=terms(number), nodeName=node)
    for number in range(16, 20):
        tenant.create_pod(f"terms-{number}", affinity=terms(number))
    second = seconds_to_scale_up(joint, "twenty")

    cycles = policy_cycles(leader)
    iterations = joint.iterations()
    eventually(lambda: policy_cycles(leader) > cycles + 1, what="two more cycles of the policy", seconds=60)
    eventually(lambda: joint.iterations() > iterations + 1, what="two more iterations", seconds=60)
    until_all_run(joint, seconds=120)
    memory = resident_bytes(leader.pid, "VmHWM")
    print(
        f"scale-up after {usual:.1f} s alone, {first:.1f} s with 12 pods, {second:.1f} s with 20; "
        f"{memory / 2**20:.0f} MiB"
    )

    assert max(first, second) < WITHIN
    assert leader.running()
    after = lease(joint)
    assert (after["holderIdentity"], after.get("leaseTransitions")) == (
        before["holderIdentity"],
        before.get("leaseTransitions"),
    )
    assert memory < MEMORY_LIMIT
    assert not re.search(r"Lease .* was lost", leader.log.read_text())
    require_end(joint.client, leader)


def policy_cycles(operator: OperatorProcess) -> float:
    lines = (operator.get("/metrics") or "").splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("trimtab_descheduler_cycles_total"))


def _apart(app: str) -> dict[str, Any]:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
