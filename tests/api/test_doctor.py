"""``trimtab doctor`` in a real cluster without an operator, as the admin and as an account without permissions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.fixtures.clusters import Cluster
from trimtab.cli.main import cli
from trimtab.kube.resources import DEPLOYMENTS, SERVICE_ACCOUNTS


def doctor(kubeconfig: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit status and the checks by subject, with the rules that are missing under ``missingRules``."""
    arguments = ["doctor", "--kubeconfig", str(kubeconfig), "-o", "json", *options]
    made = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    document = json.loads(made.stdout)
    checks = {each["subject"]: each for each in document["checks"]}
    missing = {key: document[key] for key in ("missingRules", "operatorMissing")}
    return made.exit_code, {**checks, **missing}


def test_a_stopped_operator_and_missing_permissions_are_found(cluster: Cluster, tmp_path: Path) -> None:
    code, found = doctor(cluster.kubeconfig)

    assert code == 1
    assert found["operator"]["result"] == "Failed"
    assert found["user"]["result"] == "Ok"
    assert found["missingRules"] == []

    cluster.client.request("POST", SERVICE_ACCOUNTS.path(namespace="default"), {"metadata": {"name": "visitor"}})
    visitor = cluster.service_account_kubeconfig("default", "visitor", path=tmp_path / "visitor")
    code, found = doctor(visitor)

    assert code == 1
    assert found["operator"]["result"] == "Unknown"
    assert found["user"]["reason"] == "PermissionsMissing"
    missing = {kind for rule in found["missingRules"] for kind in rule["resources"]}
    assert {"nodes", "pods", "poddisruptionbudgets", "deschedulerpolicies", "historyrecords", "leases"} <= missing
    assert found["operator permissions"]["result"] == "Unknown"
    assert "create subjectaccessreviews.authorization.k8s.io" in found["operator permissions"]["message"]


@pytest.fixture
def account(cluster: Cluster, namespace: str) -> str:
    """A service account that may renew Leases in its namespace, but not list those of other operators."""
    client = cluster.client
    client.request("POST", SERVICE_ACCOUNTS.path(namespace=namespace), {"metadata": {"name": "operator"}})
    verbs = ["get", "create", "update", "watch"]
    rules = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs}]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lease"}
    subjects = [{"kind": "ServiceAccount", "name": "operator", "namespace": namespace}]
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    head = {"metadata": {"name": "lease"}}
    client.request("POST", f"{rbac}/roles", {**head, "rules": rules})
    client.request("POST", f"{rbac}/rolebindings", {**head, "roleRef": reference, "subjects": subjects})
    return f"{namespace}/operator"


def test_missing_permissions_of_the_operators_account_are_listed(cluster: Cluster, account: str) -> None:
    code, found = doctor(cluster.kubeconfig, "--service-account", account)

    assert code == 1
    check = found[f"operator permissions of {account}"]
    assert (check["result"], check["reason"]) == ("Failed", "PermissionsMissing")
    assert "list leases.coordination.k8s.io" in found["operatorMissing"]
    where = f"in {account.partition('/')[0]}"
    assert not [each for each in found["operatorMissing"] if "leases" in each and where in each]


def test_account_is_found_from_the_deployment_with_its_controllers(cluster: Cluster, account: str) -> None:
    namespace, _, name = account.partition("/")
    labels = {"app.kubernetes.io/name": "trimtab"}
    container = {"name": "main", "image": "none", "args": ["run", "--controllers=descheduler", "--lease-name=other"]}
    pod = {"metadata": {"labels": labels}, "spec": {"serviceAccountName": name, "containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": pod}
    manifest = {"metadata": {"name": "trimtab", "labels": labels}, "spec": spec}
    cluster.client.request("POST", DEPLOYMENTS.path(namespace=namespace), manifest)
    try:
        _, found = doctor(cluster.kubeconfig)
    finally:
        cluster.client.request("DELETE", DEPLOYMENTS.path("trimtab", namespace=namespace))

    assert found[f"operator permissions of {account}"]["result"] == "Failed"


def test_malformed_account_is_refused(cluster: Cluster) -> None:
    made = CliRunner().invoke(cli, ["doctor", "--kubeconfig", str(cluster.kubeconfig), "--service-account", "trimtab"])

    assert made.exit_code == 2
    assert "NAMESPACE/NAME" in made.stderr
