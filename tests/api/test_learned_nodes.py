"""The ConfigMap of learned nodes on a real API server: with one permission, and never another object of that name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.api.test_machines_live import loaded
from tests.fixtures.machine_sets import MachineSets
from tests.fixtures.waiting import eventually
from trimtab.autoscaling.groups import build_groups
from trimtab.autoscaling.template import NodeTemplate, TemplateOrigin, build_templates
from trimtab.autoscaling.template.recording import LearnedNodePatch, LearnedNodeWriter, WriteResult, next_records, rules
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.transport import Transport
from trimtab_local.cluster import LocalCluster

pytestmark = pytest.mark.api

LIMITS = {
    "machine.openshift.io/cluster-api-autoscaler-node-group-min-size": "0",
    "machine.openshift.io/cluster-api-autoscaler-node-group-max-size": "10",
}
ROLES = "/apis/rbac.authorization.k8s.io/v1"
CAPACITY = {"cpu": "4", "memory": "16Gi"}
KEY = "trimtab.dev/learned-node"
SETTLED = 61.0


@pytest.fixture
def kubeconfig(machine_cluster: LocalCluster, sets: MachineSets, tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of an account with only the permissions that the record takes."""
    client, name = machine_cluster.client, sets.namespace
    client.request("POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "writer"}})
    client.request("POST", f"{ROLES}/clusterroles", {"metadata": {"name": name}, "rules": list(rules())})
    subject = {"kind": "ServiceAccount", "name": "writer", "namespace": name}
    role = {"kind": "ClusterRole", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
    client.request("POST", f"{ROLES}/clusterrolebindings", binding)
    yield machine_cluster.service_account_kubeconfig(name, "writer", path=tmp_path / "kubeconfig")
    client.request("DELETE", f"{ROLES}/clusterrolebindings/{name}")
    client.request("DELETE", f"{ROLES}/clusterroles/{name}")


def wanted(cluster: LocalCluster, sets: MachineSets) -> tuple[LearnedNodePatch, ...]:
    snapshot = loaded(cluster.kubeconfig)
    found = [each for each in build_groups(snapshot).all if each.namespace == sets.namespace]
    now = SYSTEM_CLOCK.now() + SETTLED
    return next_records(found, build_templates(snapshot, found, now=now), snapshot, now)


def template(cluster: LocalCluster, sets: MachineSets) -> NodeTemplate:
    snapshot = loaded(cluster.kubeconfig)
    (found,) = (each for each in build_groups(snapshot).all if each.namespace == sets.namespace)
    return build_templates(snapshot, [found], now=SYSTEM_CLOCK.now()).of_group[found.id]


def write(kubeconfig: Path, *records: LearnedNodePatch) -> tuple[WriteResult, ...]:
    async def run() -> tuple[WriteResult, ...]:
        async with Transport(load_config(str(kubeconfig))) as api:
            return await LearnedNodeWriter(api).write(records)

    return asyncio.run(run())


def test_template_of_a_machine_set_survives_scale_to_zero(
    machine_cluster: LocalCluster, sets: MachineSets, kubeconfig: Path
) -> None:
    capacity = {f"capacity.cluster-autoscaler.kubernetes.io/{name}": text for name, text in CAPACITY.items()}
    sets.make("a", 1, LIMITS | capacity)
    eventually(lambda: wanted(machine_cluster, sets), what="a node that can be learned from")
    (record,) = wanted(machine_cluster, sets)

    (other,) = write(kubeconfig, replace(record, group=replace(record.group, uid="another")))
    assert "immutable" in other.message or "uid" in other.message.lower()
    assert KEY not in sets.get("a")["metadata"]["annotations"]

    assert [each.message for each in write(kubeconfig, record)] == [""]
    assert sets.get("a")["metadata"]["annotations"][KEY] == record.text
    assert not wanted(machine_cluster, sets)

    before = template(machine_cluster, sets)
    sets.scale("a", 0)
    eventually(lambda: not sets.nodes("a"), what="its node is gone")
    after = template(machine_cluster, sets)

    assert (before.origin, after.origin) == (TemplateOrigin.LEARNED, TemplateOrigin.RECORDED)
    assert (after.node.allocatable, after.node.labels) == (before.node.allocatable, before.node.labels)
    assert after.node.taints == before.node.taints
