"""Least privilege, measured: what the operator asks of an API server that writes an audit log, against its roles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.generate.base import render

from examples.demo.install import NAMESPACE, RELEASE, OperatorProcess, install, wait_for
from examples.demo.workloads import deployment
from tests.conftest import MakeCluster
from tests.fixtures.metrics_api import serve_metrics_api
from trimtab.kube.api import NotFound
from trimtab.local.cluster import LocalCluster
from trimtab.local.components import Settings
from trimtab.local.nodes import node, ready

USER = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"
POLICIES = "/apis/trimtab.dev/v1alpha1/deschedulerpolicies"
AUDIT = """\
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
  omitStages: [RequestReceived]
  users: [%s]
- level: None
"""
MERGE = "application/merge-patch+json"

BY_USE = {
    "LowNodeUtilization": {
        "params": {
            "metricsUtilization": {"source": "KubernetesMetrics"},
            "nodeResourceUtilizationThresholds": {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}},
        }
    }
}

Right = tuple[str, str, str]


def granted() -> set[Right]:
    """Group, resource with subresource, and verb of all that the chart's operator may do."""
    roles = [
        document
        for document in render()
        if document["kind"] in ("ClusterRole", "Role")
        and document["metadata"]["name"].endswith(("-descheduler", "-lease"))
    ]
    return {
        (group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


class Audit:
    """The API server's own record of who asked for what."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def entries(self) -> Iterator[dict[str, Any]]:
        for line in self._path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            if entry["user"]["username"] == USER and "objectRef" in entry:
                yield entry

    def asked(self) -> set[Right]:
        found = set()
        for entry in self.entries():
            ref = entry["objectRef"]
            resource = "/".join(filter(None, (ref["resource"], ref.get("subresource"))))
            found.add((ref.get("apiGroup", ""), resource, entry["verb"]))
        return found

    def refused(self) -> list[str]:
        return [
            f"{entry['verb']} {entry['requestURI']}"
            for entry in self.entries()
            if entry.get("responseStatus", {}).get("code") in (401, 403)
        ]


@pytest.fixture
def audited(make_cluster: MakeCluster, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[LocalCluster, Audit]:
    if request.config.getoption("--cluster") != "local":
        pytest.skip("the audit log of kind's API server is not at hand")
    policy, log = tmp_path / "audit.yaml", tmp_path / "audit.log"
    policy.write_text(AUDIT % USER, encoding="utf-8")
    cluster = make_cluster(
        Settings(apiserver_args=(f"--audit-policy-file={policy}", f"--audit-log-path={log}")), nodes=0
    )
    for index in range(2):
        cluster.client.request("POST", "/api/v1/nodes", node(f"n{index}", zone="z"))
    wait_for(lambda: all(map(ready, cluster.client.request("GET", "/api/v1/nodes")["items"])), "the nodes")
    install(cluster)
    serve_metrics_api(cluster.client)
    return cluster, Audit(log)


def test_in_all_its_life_the_operator_asks_for_what_it_may_and_no_right_lies_idle(
    audited: tuple[LocalCluster, Audit], tmp_path: Path
) -> None:
    cluster, audit = audited
    client = cluster.client
    client.request("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
    cordon(cluster, "n1", True)
    client.request("POST", "/apis/apps/v1/namespaces/shop/deployments", deployment("web", namespace="shop", replicas=2))
    wait_for(lambda: running(cluster) == 2, "the pods")
    cordon(cluster, "n1", None)
    process = OperatorProcess(cluster, tmp_path)
    process.start()
    try:
        # Simulating twice makes the second event join the first one: a patch. Then it acts, and is told to end.
        policy = {"kind": "DeschedulerPolicy", "apiVersion": "trimtab.dev/v1alpha1", "metadata": {"name": "all"}}
        # Of the runs only one is kept, so that the first is deleted.
        spec: dict[str, Any] = {"interval": "5s", "runsHistoryLimit": 1, "strategies": {"RemoveDuplicates": {}}}
        spec["namespaces"] = {"include": ["shop"]}
        client.request("POST", POLICIES, {**policy, "spec": spec})
        wait_for(lambda: ("events.k8s.io", "events", "patch") in audit.asked(), "an event to be repeated", timeout=120)
        client.request("PATCH", f"{POLICIES}/all", {"spec": {"mode": "Act"}}, content_type=MERGE)
        wait_for(lambda: status(cluster).get("evicted") == 1, "the eviction")
        wait_for(lambda: ("coordination.k8s.io", "leases", "update") in audit.asked(), "the lease to be renewed")
        wait_for(lambda: ("trimtab.dev", "deschedulingruns", "delete") in audit.asked(), "an old run to be deleted")
        client.request("PATCH", f"{POLICIES}/all", {"spec": {"strategies": BY_USE}}, content_type=MERGE)
        wait_for(lambda: ("metrics.k8s.io", "pods", "list") in audit.asked(), "real use to be read")
        client.request("DELETE", f"{POLICIES}/all")
        wait_for(lambda: gone(cluster), "the policy to be gone")
    finally:
        assert process.stop() == 0

    assert audit.refused() == []
    assert audit.asked() <= granted()
    assert granted() - audit.asked() <= {("", "pods", "get")}  # for an eviction whose answer was lost


def cordon(cluster: LocalCluster, name: str, value: bool | None) -> None:
    cluster.client.request("PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": value}}, content_type=MERGE)
    wanted = bool(value)

    def seen() -> bool:
        spec = cluster.client.request("GET", f"/api/v1/nodes/{name}")["spec"]
        return any("unschedulable" in taint["key"] for taint in spec.get("taints") or ()) is wanted

    wait_for(seen, "the cordon to be seen")


def running(cluster: LocalCluster) -> int:
    pods = cluster.client.request("GET", "/api/v1/namespaces/shop/pods")["items"]
    return sum(pod["status"].get("phase") == "Running" for pod in pods)


def status(cluster: LocalCluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.client.request("GET", f"{POLICIES}/all").get("status") or {}
    return found


def gone(cluster: LocalCluster) -> bool:
    try:
        cluster.client.request("GET", f"{POLICIES}/all")
    except NotFound:
        return True
    return False
