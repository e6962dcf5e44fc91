"""The inspection API behind a real API server: registered while it is served, equal to what a cold command reads."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.demo.workloads import deployment
from tests.conftest import MakeCluster
from tests.fixtures.clusters import create_nodes, require_local_cluster
from tests.fixtures.waiting import wait_for
from trimtab.kube.api import ApiError, NotFound
from trimtab.kube.resources import API_SERVICES, DESCHEDULER_POLICIES
from trimtab_local.client import Client
from trimtab_local.cluster import LocalCluster
from trimtab_local.install import NAMESPACE, OperatorProcess, apply, install, render
from trimtab_local.nodes import node
from trimtab_local.supervisor import choose_ports

NAME = "v1alpha1.inspection.trimtab.dev"
PREFIX = "/apis/inspection.trimtab.dev/v1alpha1"
SERVICE = "trimtab-inspection"
VALUE = "inspectionApi.enabled=true"


@pytest.fixture
def cluster(make_cluster: MakeCluster, request: pytest.FixtureRequest) -> LocalCluster:
    require_local_cluster(request, "the aggregation layer must reach a process on this machine")
    found = make_cluster(nodes=0)
    create_nodes(found.client, (node(f"n{index}", zone="z") for index in range(3)))
    found.client.request("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
    path = "/apis/apps/v1/namespaces/shop/deployments"
    found.client.request("POST", path, deployment("web", namespace="shop", replicas=4))
    install(found, VALUE)
    for manifest in render(VALUE):
        if manifest["kind"] == "Secret":
            apply(found.client, f"/api/v1/namespaces/{NAMESPACE}/secrets", manifest)
    return found


def run(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trimtab", *arguments, "--kubeconfig", str(kubeconfig), "-o", "json"]
    return subprocess.run(command, check=True, capture_output=True, text=True)


def command(kubeconfig: Path, *arguments: str) -> Any:
    return json.loads(run(kubeconfig, *arguments).stdout)


def settled(document: Any) -> Any:
    """Return a document without what depends on the second at which it was made."""
    return {key: value for key, value in document.items() if key != "now"}


def test_served_documents_equal_cold_ones_and_the_registration_ends_with_the_operator(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    client, port = cluster.client, choose_ports(["inspection"])["inspection"]
    spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE}, "spec": spec}
    apply(client, f"/api/v1/namespaces/{NAMESPACE}/services", service)
    policy = {"apiVersion": DESCHEDULER_POLICIES.api_version, "kind": DESCHEDULER_POLICIES.kind}
    body = {**policy, "metadata": {"name": "all"}, "spec": {"interval": "1h", "strategies": {"RemoveDuplicates": {}}}}
    client.request("POST", DESCHEDULER_POLICIES.path(), body)
    process = OperatorProcess(
        cluster,
        tmp_path,
        f"--inspection-api-listen=127.0.0.1:{port}",
        f"--inspection-api-service={SERVICE}",
        f"--inspection-api-service-port={port}",
        f"--inspection-api-owner={SERVICE}",
    )
    process.start()
    try:
        wait_for(lambda: available(client), f"the APIService ({process.log.read_text()[-3000:]})", timeout=60)
        [owner] = client.request("GET", API_SERVICES.path(NAME))["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("ClusterRole", SERVICE)
        pods = client.request("GET", "/api/v1/namespaces/shop/pods")["items"]
        pod = pods[0]["metadata"]["name"]
        admin = cluster.layout.kubeconfig()
        for path, arguments in (
            ("plans/current", ["plan"]),
            ("nodegroups/current", ["explain", "nodegroup"]),
            ("policies/all/explanation", ["explain", "policy", "all"]),
            ("protections/current", ["explain", "protections"]),
            ("disruptionbudgets/current", ["explain", "pdb"]),
            ("nodes/n1/explanation", ["explain", "node", "n1", "--no-stats"]),
            (f"namespaces/shop/pods/{pod}/explanation", ["explain", "pod", f"shop/{pod}"]),
        ):
            served = client.request("GET", f"{PREFIX}/{path}")
            assert settled(served) == settled(command(admin, *arguments, "--direct"))
            assert settled(served) == settled(command(admin, *arguments))

        # A service account without permissions is refused, by the API server and by the operator itself.
        for name in ("nobody", "lister"):
            manifest = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
            apply(client, "/api/v1/namespaces/shop/serviceaccounts", manifest)
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "asker"}}
        rules = [{"apiGroups": ["inspection.trimtab.dev"], "resources": ["nodes/explanation"], "verbs": ["get"]}]
        apply(client, "/apis/rbac.authorization.k8s.io/v1/clusterroles", {**role, "rules": rules})
        bind(client, "asker", "nobody")
        bind(client, "trimtab-cli", "lister")
        assert status_of(cluster, "nobody") == 403
        assert status_of(cluster, "lister") == 200
        lister = cluster.service_account_kubeconfig("shop", "lister", path=tmp_path / "lister")
        assert command(lister, "explain", "node", "n1", "--no-stats", "--direct")["node"] == "n1"
    finally:
        assert process.stop() == 0
    with pytest.raises(NotFound):
        client.request("GET", API_SERVICES.path(NAME))

    # After kill -9, the APIService remains. Commands say that the operator does not answer, and read the cluster.
    try:
        process.start()
        wait_for(lambda: available(client), "the APIService", timeout=60)
    finally:
        status = process.stop(signal.SIGKILL)
    assert status == -signal.SIGKILL
    client.request("GET", API_SERVICES.path(NAME))
    ran = run(admin, "explain", "node", "n1", "--no-stats")
    assert settled(json.loads(ran.stdout)) == settled(command(admin, "explain", "node", "n1", "--no-stats", "--direct"))
    assert "reading the cluster" in ran.stderr


def bind(client: Client, role: str, account: str) -> None:
    manifest = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": account},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "shop"}],
    }
    apply(client, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", manifest)


def status_of(cluster: LocalCluster, account: str) -> int:
    layout = cluster.layout
    client = Client(
        server=layout.server, token=cluster.service_account_token("shop", account, seconds=3600), ca=layout.keys.ca
    )
    try:
        client.request("GET", f"{PREFIX}/nodes/n1/explanation")
    except ApiError as error:
        return error.status
    return 200


def available(client: Client) -> bool:
    try:
        conditions = client.request("GET", API_SERVICES.path(NAME)).get("status", {}).get("conditions", [])
    except NotFound:
        return False
    return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)
