"""``trimtab uninstall --check`` on a real API server: the printed commands remove everything that is left."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tools.generate import CHART
from tools.generate.base import helm

from tests.conftest import MakeCluster
from tests.fixtures.clusters import require_local_cluster
from tests.fixtures.custom_resources import served
from tests.fixtures.machine_sets import MachineSets
from tests.fixtures.waiting import patiently, wait_for
from trimtab.cli.main import cli
from trimtab.kube.resources import CONFIG_MAPS, DESCHEDULER_POLICIES, HISTORY_RECORDS, LEASES, MACHINE_SETS, NODES
from trimtab_local.cluster import LocalCluster
from trimtab_local.components import WITH_MACHINES, Settings
from trimtab_local.install import NAMESPACE
from trimtab_local.nodes import node

pytestmark = pytest.mark.live

BY_OPERATOR = {"fieldManager": "trimtab"}
EVERYTHING = (
    "replicas=0,admission.enabled=true,admission.replicas=0,inspectionApi.enabled=true,podDisruptionBudget.enabled=true,"
    "controllers.scheduler.enabled=true,controllers.pressure.enabled=true,metrics.dashboard.enabled=true"
)


class Uninstall:
    """Installs and removes trimtab with the commands of an administrator."""

    def __init__(self, cluster: LocalCluster, home: Path) -> None:
        self._kubeconfig = cluster.kubeconfig
        paths = ("HOME", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
        self._environment = {**dict.fromkeys(paths, str(home)), "KUBECONFIG": str(cluster.kubeconfig)}

    def run(self, command: str) -> None:
        program, *arguments = shlex.split(command)
        binary = str(helm()) if program == "helm" else shutil.which(program)
        assert binary is not None
        environment = {"PATH": os.environ["PATH"], **self._environment}
        subprocess.run(
            [binary, *arguments], check=True, capture_output=True, text=True, env=environment, timeout=patiently(120)
        )

    def install(self, *values: str) -> None:
        values = (EVERYTHING, *values)
        self.run(shlex.join(["helm", "install", "mine", str(CHART), "-n", NAMESPACE, "--set", ",".join(values)]))

    def check(self) -> tuple[int, list[dict[str, Any]]]:
        arguments = ["uninstall", "--check", "--kubeconfig", str(self._kubeconfig), "-o", "json"]
        made = CliRunner().invoke(cli, arguments, catch_exceptions=False)
        document = json.loads(made.stdout)
        assert document["unchecked"] == []
        assert document["clean"] is (made.exit_code == 0)
        return made.exit_code, document["left"]


@pytest.fixture(scope="module")
def empty(make_cluster: MakeCluster, request: pytest.FixtureRequest) -> LocalCluster:
    """A cluster with the CRDs of the Machine API and a node, in which trimtab was never installed."""
    require_local_cluster(request, "everything of trimtab is removed from the cluster")
    cluster = make_cluster(Settings(components=WITH_MACHINES), nodes=0)
    cluster.client.request("POST", NODES.path(), node("n1", zone="z"))
    cluster.client.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    return cluster


@pytest.fixture
def uninstall(empty: LocalCluster, tmp_path: Path) -> Uninstall:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl here")
    return Uninstall(empty, tmp_path)


def test_helm_uninstall_leaves_nothing_but_the_crds(uninstall: Uninstall) -> None:
    assert uninstall.check() == (0, [])
    uninstall.install()
    uninstall.run(f"helm uninstall mine -n {NAMESPACE}")
    code, left = uninstall.check()
    assert code == 1
    assert {each["kind"] for each in left} == {"CustomResourceDefinition"}

    for each in left:
        uninstall.run(each["command"])
    uninstall.install("crds.keep=false")
    uninstall.run(f"helm uninstall mine -n {NAMESPACE} --wait")
    assert uninstall.check() == (0, [])


def test_printed_commands_remove_everything(empty: LocalCluster, uninstall: Uninstall) -> None:
    client = empty.client
    uninstall.install()
    wait_for(lambda: served(client, HISTORY_RECORDS.path()), "the CRDs to be served")
    policy = {
        "metadata": {"name": "p", "finalizers": ["trimtab.dev/finalizer"]},
        "spec": {"strategies": {"PodLifeTime": {"params": {"maxPodLifeTimeSeconds": 60}}}},
    }
    head = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "DeschedulerPolicy"}
    client.request("POST", DESCHEDULER_POLICIES.path(), {**head, **policy})
    content = {"spec": {"holderIdentity": "one"}}, {"spec": {"holderIdentity": "one"}}, {"data": {"record": "{}"}}
    written = (LEASES, "trimtab"), (LEASES, "trimtab-acting"), (CONFIG_MAPS, "trimtab-taint-manager")
    for (resource, name), body in zip(written, content, strict=True):
        path = resource.path(namespace=NAMESPACE)
        client.request("POST", path, {"metadata": {"name": name}, **body}, params=BY_OPERATOR)
    marked = {
        "metadata": {"annotations": {"trimtab.dev/removing": "17", "trimtab.dev/cordoned-by": "cluster-autoscaler"}},
        "spec": {
            "unschedulable": True,
            "taints": [{"key": "ToBeDeletedByClusterAutoscaler", "value": "17", "effect": "NoSchedule"}],
        },
    }
    strategic = "application/strategic-merge-patch+json"
    client.request("PATCH", NODES.path("n1"), marked, params=BY_OPERATOR, content_type=strategic)
    condition = {"type": "pressure.trimtab.dev/MemoryPressure", "status": "True"}
    client.request(
        "PATCH", NODES.path("n1", subresource="status"), {"status": {"conditions": [condition]}}, content_type=strategic
    )
    MachineSets(client, "default").make("w", 0, {})
    learned = {"metadata": {"annotations": {"trimtab.dev/learned-node": "{}"}}}
    path = MACHINE_SETS.path("w", namespace="default")
    client.request("PATCH", path, learned, params=BY_OPERATOR, content_type="application/merge-patch+json")

    _, before = uninstall.check()
    assert "helm uninstall mine --namespace trimtab-system" in {each["command"] for each in before}
    uninstall.run(f"helm uninstall mine -n {NAMESPACE}")
    code, left = uninstall.check()
    assert code == 1
    assert [(each["kind"], each["name"], each["what"]) for each in left if "Definition" not in each["kind"]] == [
        ("DeschedulerPolicy", "p", "finalizer trimtab.dev/finalizer"),
        ("DeschedulerPolicy", "p", "object"),
        ("Lease", "trimtab", "object"),
        ("Lease", "trimtab-acting", "object"),
        ("ConfigMap", "trimtab-taint-manager", "object"),
        ("Node", "n1", "taint ToBeDeletedByClusterAutoscaler:NoSchedule"),
        ("Node", "n1", "cordon"),
        ("Node", "n1", "condition pressure.trimtab.dev/MemoryPressure"),
        ("Node", "n1", "annotation trimtab.dev/cordoned-by"),
        ("Node", "n1", "annotation trimtab.dev/removing"),
        ("MachineSet", "w", "annotation trimtab.dev/learned-node"),
    ]
    for each in left:
        uninstall.run(each["command"])
    assert uninstall.check() == (0, [])


def test_user_without_permissions_gets_no_clean_result(empty: LocalCluster, tmp_path: Path) -> None:
    visitor = empty.service_account_kubeconfig("default", "default", path=tmp_path / "visitor")
    arguments = ["uninstall", "--check", "--kubeconfig", str(visitor), "-o", "json"]
    made = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    document = json.loads(made.stdout)
    assert made.exit_code == 1
    assert {"nodes", "leases.coordination.k8s.io"} <= {each["resource"] for each in document["unchecked"]}


def test_without_check_nothing_is_done() -> None:
    assert CliRunner().invoke(cli, ["uninstall"]).exit_code == 2
