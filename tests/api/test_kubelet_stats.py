"""The simulated kubelets of a local cluster, with the API server that reviews the tokens of requests."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.clusters import require_local_cluster
from tests.fixtures.machine_sets import MERGE
from tests.fixtures.waiting import eventually, patiently
from trimtab.kube.resources import NODES, PODS
from trimtab_local.cluster import LocalCluster
from trimtab_local.components import DEFAULT_COMPONENTS, Settings
from trimtab_local.nodes import SILENT, loopback_address, node, ready
from trimtab_local.versions import KUBELET_STATS

MI = 2**20
ACCOUNT = "stats-reader"
SCENARIO = """\
nodes:
- {measureEvery: 1s, transitionPeriod: 2s, memory: {capacity: 1Gi, used: {start: 100Mi}}}
pods:
- {labels: {app: hog}, memory: {start: 50Mi}}
"""


class Kubelets:
    """A cluster with simulated kubelets, and requests to them."""

    def __init__(self, cluster: LocalCluster, scenario: Path) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.scenario = scenario
        self.port = cluster.layout.ports[KUBELET_STATS]
        context = ssl.create_default_context(cafile=str(cluster.ca))
        handlers = urllib.request.HTTPSHandler(context=context), urllib.request.ProxyHandler({})
        self._opener = urllib.request.build_opener(*handlers)

    def create_node(self, name: str) -> None:
        self.client.request("POST", NODES.path(), node(name, zone="zone-a"))
        listening = {"type": "InternalIP", "address": loopback_address(name)}
        eventually(lambda: listening in self.node(name)["status"]["addresses"], what="the kubelet listens")
        eventually(lambda: ready(self.node(name)), what="the node is ready")

    def node(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.request("GET", NODES.path(name))
        return found

    def create_pod(self, name: str, on: str) -> None:
        container = {"name": "main", "image": "registry.k8s.io/pause:3.10"}
        spec = {"nodeName": on, "containers": [container], "terminationGracePeriodSeconds": 1}
        manifest = {"metadata": {"name": name, "labels": {"app": "hog"}}, "spec": spec}
        self.client.request("POST", PODS.path(namespace="default"), manifest)
        eventually(lambda: self.pod(name).get("phase") == "Running", what="the pod runs")

    def pod(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.request("GET", PODS.path(name, namespace="default"))["status"]
        return found

    def get(self, name: str, token: str, *, seconds: float = patiently(30.0)) -> tuple[int, Any]:
        url = f"https://{loopback_address(name)}:{self.port}/stats/summary"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        try:
            with self._opener.open(request, timeout=seconds) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, None

    def memory(self, name: str) -> int:
        status, summary = self.get(name, self.token)
        assert status == 200
        return int(summary["node"]["memory"]["availableBytes"])

    @property
    def token(self) -> str:
        return self.cluster.service_account_token("default", ACCOUNT)


@pytest.fixture(scope="module")
def kubelets(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kubelets:
    require_local_cluster(request)
    scenario = tmp_path_factory.mktemp("stats") / "stats.yaml"
    scenario.write_text(SCENARIO)
    settings = Settings(components=(*DEFAULT_COMPONENTS, KUBELET_STATS), stats_scenario=str(scenario))
    cluster = request.getfixturevalue("make_cluster")(settings, nodes=0)
    client = cluster.client
    client.request("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": ACCOUNT}})
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rules = [{"apiGroups": [""], "resources": ["nodes/stats"], "verbs": ["get"]}]
    client.request("POST", f"{rbac}/clusterroles", {"metadata": {"name": ACCOUNT}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ACCOUNT}
    binding = {"metadata": {"name": ACCOUNT}, "subjects": [subject], "roleRef": role}
    client.request("POST", f"{rbac}/clusterrolebindings", binding)
    return Kubelets(cluster, scenario)


def test_kubelet_listens_at_the_address_and_port_in_the_nodes_status(kubelets: Kubelets) -> None:
    kubelets.create_node("listening")

    status = kubelets.node("listening")["status"]

    assert status["addresses"][0] == {"type": "InternalIP", "address": loopback_address("listening")}
    assert status["daemonEndpoints"]["kubeletEndpoint"]["Port"] == kubelets.port
    assert kubelets.get("listening", kubelets.token)[1]["node"]["nodeName"] == "listening"


def test_stats_require_the_permission_for_nodes_stats(kubelets: Kubelets) -> None:
    kubelets.create_node("guarded")

    assert kubelets.get("guarded", kubelets.token)[0] == 200
    assert kubelets.get("guarded", kubelets.cluster.service_account_token("default", "default"))[0] == 403
    assert kubelets.get("guarded", "no-token")[0] == 401


def test_usage_follows_the_pods_and_the_file(kubelets: Kubelets) -> None:
    kubelets.create_node("used")
    assert kubelets.memory("used") == 924 * MI

    kubelets.create_pod("user", "used")
    eventually(lambda: kubelets.memory("used") == 874 * MI, what="the pod's memory is used")
    kubelets.scenario.write_text(SCENARIO.replace("50Mi", "150Mi"))
    eventually(lambda: kubelets.memory("used") == 774 * MI, what="the file is read again")
    kubelets.client.request("DELETE", PODS.path("user", namespace="default"))
    eventually(lambda: kubelets.memory("used") == 924 * MI, what="the deleted pod's memory is free")
    kubelets.scenario.write_text(SCENARIO)


def test_kubelet_kills_a_pod_and_reports_pressure_at_its_threshold(kubelets: Kubelets) -> None:
    kubelets.create_node("full")
    kubelets.create_pod("killed", "full")

    def pressure() -> str:
        found = kubelets.node("full")["status"]["conditions"]
        return str(next(each["status"] for each in found if each["type"] == "MemoryPressure"))

    kubelets.scenario.write_text(SCENARIO.replace("50Mi", "900Mi"))
    eventually(lambda: kubelets.pod("killed").get("reason") == "Evicted", what="the pod is killed")

    assert kubelets.pod("killed")["phase"] == "Failed"
    eventually(lambda: pressure() == "True", what="the node is under pressure")
    eventually(lambda: pressure() == "False", what="the transition period ends")
    url = f"http://127.0.0.1:{kubelets.port}/kills"
    with urllib.request.urlopen(url, timeout=patiently(30)) as answer:
        assert [each["pod"] for each in json.load(answer)] == ["default/killed"]
    kubelets.scenario.write_text(SCENARIO)


def test_kubelet_of_a_failed_node_does_not_respond_until_it_recovers(kubelets: Kubelets) -> None:
    kubelets.create_node("failing")
    assert kubelets.get("failing", kubelets.token)[0] == 200

    def label(value: str | None) -> None:
        kubelets.client.request(
            "PATCH", NODES.path("failing"), {"metadata": {"labels": {SILENT: value}}}, content_type=MERGE
        )

    def responds() -> bool:
        try:
            return kubelets.get("failing", kubelets.token, seconds=0.5)[0] == 200
        except OSError:
            return False

    label("true")
    eventually(lambda: not responds(), what="the kubelet does not respond")
    label(None)
    eventually(responds, what="the kubelet responds")


def test_nothing_listens_for_a_deleted_node(kubelets: Kubelets) -> None:
    kubelets.create_node("deleted")

    def listens() -> bool:
        try:
            return kubelets.get("deleted", kubelets.token)[0] == 200
        except OSError:
            return False

    assert listens()
    kubelets.client.request("DELETE", NODES.path("deleted"))
    eventually(lambda: not listens(), what="nothing listens")
