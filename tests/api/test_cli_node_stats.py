"""``plan``, ``explain node`` and ``snapshot`` with stats that a real API server reads from a kubelet."""

from __future__ import annotations

import secrets
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from tests.fixtures.clusters import require_local_cluster
from tests.fixtures.waiting import wait_for
from tests.node_summaries import GI, MI, summary
from trimtab.cli.main import cli
from trimtab_local.certificates import kubelet_certificate
from trimtab_local.cluster import LocalCluster
from trimtab_local.nodes import SILENT

NOW = "2026-11-20T12:00:00Z"
LABEL = "tests.trimtab.dev/stats"


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(cli, [str(each) for each in arguments], prog_name="trimtab")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def own_address() -> str:
    """The address of this machine in its network; the API server's proxy refuses loopback addresses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no network, and the API server's proxy refuses loopback addresses")
        address: str = probe.getsockname()[0]
    return address


class Kubelet:
    """A server of ``/stats/summary`` for one node, with a certificate of the cluster's CA.

    Attributes:
        name: the name of the node.
        summary: what it returns.
        paths: the paths of the requests.
    """

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self.name = f"stats-{secrets.token_hex(4)}"
        self.summary: dict[str, Any] = summary(self.name, 5 * GI)
        self.paths: list[str] = []
        self.address = own_address()
        self._server = ThreadingHTTPServer((self.address, 0), self._handler())
        path = directory / "kubelet.pem"
        path.write_bytes(kubelet_certificate(cluster.layout.keys, node=self.name, address=self.address))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        kubelet = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                kubelet.paths.append(self.path)
                body = msgspec.json.encode(kubelet.summary)
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Do not log requests."""

        return Handler


@pytest.fixture
def kubelet(cluster: LocalCluster, namespace: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Kubelet]:
    """A node that no kwok manages, with a kubelet that serves stats and two pods."""
    require_local_cluster(request)
    served, client = Kubelet(cluster, tmp_path), cluster.client
    nodes, pods = "/api/v1/nodes", f"/api/v1/namespaces/{namespace}/pods"
    amounts = {"cpu": "4", "memory": "10Gi", "pods": "110"}
    status = {
        "capacity": amounts,
        "allocatable": {**amounts, "memory": "9Gi"},
        "addresses": [{"type": "InternalIP", "address": served.address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": served.port}},
        "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": datetime.now(UTC).isoformat()}],
    }
    metadata = {"name": served.name, "labels": {SILENT: "", LABEL: served.name}}
    taint = {"key": LABEL, "effect": "NoSchedule"}
    client.request("POST", nodes, {"metadata": metadata, "spec": {"taints": [taint]}})
    client.request(
        "PATCH",
        f"{nodes}/{served.name}/status",
        {"status": status},
        content_type="application/merge-patch+json",
    )
    for name, request_ in (("small", "2Gi"), ("large", "1Gi")):
        container = {"name": "main", "image": "app", "resources": {"requests": {"memory": request_}}}
        client.request(
            "POST",
            pods,
            {
                "metadata": {"name": name},
                "spec": {"nodeName": served.name, "containers": [container]},
            },
        )
    yield served
    for name in ("small", "large"):
        client.request("DELETE", f"{pods}/{name}", {"gracePeriodSeconds": 0})
    client.request("DELETE", f"{nodes}/{served.name}")
    served.close()


@pytest.fixture
def use(cluster: LocalCluster, namespace: str, kubelet: Kubelet) -> Callable[[int], None]:
    """Set the available memory of the node; ``large`` uses 4Gi, ``small`` 1Gi."""

    def use(available: int) -> None:
        listed = cluster.client.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        uids = {each["metadata"]["name"]: each["metadata"]["uid"] for each in listed}
        pods = {f"{namespace}/large": 4 * GI, f"{namespace}/small": GI}
        kubelet.summary = summary(kubelet.name, available, pods)
        for each in kubelet.summary["pods"]:
            each["podRef"]["uid"] = uids[each["podRef"]["name"]]

    return use


@pytest.fixture
def policy(kubelet: Kubelet, tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    spec = {
        "nodeSelector": {"matchLabels": {LABEL: kubelet.name}},
        "evictionHard": {"memory.available": "500Mi"},
        "evictionSoft": {"memory.available": "1Gi"},
        "evictionSoftGracePeriod": {"memory.available": "30s"},
    }
    head = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "NodePressurePolicy", "metadata": {"name": kubelet.name}}
    path.write_bytes(msgspec.yaml.encode({**head, "spec": spec}))
    return path


def of_node(stdout: str, name: str) -> dict[str, Any]:
    found = [each for each in msgspec.json.decode(stdout)["nodePressure"] if each["node"] == name]
    assert len(found) == 1
    return found[0]


def test_plan_reads_stats_through_the_proxy(
    kubelet: Kubelet, use: Callable[[int], None], policy: Path, admin: Path
) -> None:
    planning = ["plan", "--stats", "--policy", policy, "--now", NOW, "-o", "json", "--kubeconfig", admin]
    use(5 * GI)
    calm = run(*planning)
    use(400 * MI)
    pressed = run(*planning)

    assert (calm.exit_code, pressed.exit_code) == (0, 0)
    assert kubelet.paths == ["/stats/summary"] * 2
    assert msgspec.json.decode(calm.stdout)["actions"] == []
    assert of_node(calm.stdout, kubelet.name)["signals"][0]["available"] == 5 * GI
    document = msgspec.json.decode(pressed.stdout)
    [action] = document["actions"] or document["kept"]
    assert (action["pod"], action["node"], action["reason"]) == ("large", kubelet.name, "HardThresholdMet")


def test_plan_on_a_snapshot_with_stats_equals_plan_on_the_cluster(
    kubelet: Kubelet, use: Callable[[int], None], policy: Path, admin: Path, tmp_path: Path
) -> None:
    use(400 * MI)
    file = tmp_path / "cluster.json"
    planning = ["plan", "--policy", policy, "--now", NOW, "-o", "json"]
    live = run(*planning, "--stats", "--kubeconfig", admin)
    saved = run("snapshot", "--stats", "-o", file, "--kubeconfig", admin)

    assert saved.exit_code == 0
    assert run(*planning, "--cluster", file).stdout == live.stdout


def test_explain_node_reads_the_live_node(kubelet: Kubelet, use: Callable[[int], None], admin: Path) -> None:
    use(2 * GI)
    arguments = ["explain", "node", kubelet.name, "-o", "json", "--kubeconfig", admin]
    found = msgspec.json.decode(run(*arguments, "--stats").stdout)
    without = msgspec.json.decode(run(*arguments, "--no-stats").stdout)

    assert found["pressure"]["signals"][0]["available"] == 2 * GI
    assert found["taintsChanged"]["manager"]
    assert LABEL in {each["key"] for each in found["taints"]}
    assert [(each["pod"].split("/")[1], each["oomScoreAdj"]) for each in found["oom"]] == [
        ("large", 900),
        ("small", 800),
    ]
    assert without["pressure"] is None
    assert kubelet.paths == ["/stats/summary"]


def may_list_nodes(cluster: LocalCluster, namespace: str) -> bool:
    spec = {
        "user": f"system:serviceaccount:{namespace}:default",
        "resourceAttributes": {"verb": "list", "resource": "nodes"},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return bool(cluster.client.request("POST", path, {"spec": spec})["status"]["allowed"])


def test_missing_permission_for_the_proxy_is_a_warning_that_names_it(
    cluster: LocalCluster, kubelet: Kubelet, namespace: str, policy: Path, tmp_path: Path
) -> None:
    kubeconfig = cluster.service_account_kubeconfig(namespace, "default", path=tmp_path / "reader")
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    binding = {
        "metadata": {"name": kubelet.name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": kubelet.name},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    }
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["list"]}]
    cluster.client.request("POST", f"{rbac}/clusterroles", {"metadata": {"name": kubelet.name}, "rules": rules})
    cluster.client.request("POST", f"{rbac}/clusterrolebindings", binding)
    wait_for(lambda: may_list_nodes(cluster, namespace), "the permission to list to be in effect")
    try:
        result = run("plan", "--stats", "--policy", policy, "--now", NOW, "-o", "json", "--kubeconfig", kubeconfig)
    finally:
        cluster.client.request("DELETE", f"{rbac}/clusterrolebindings/{kubelet.name}")
        cluster.client.request("DELETE", f"{rbac}/clusterroles/{kubelet.name}")

    assert result.exit_code == 0
    [line] = result.stderr.splitlines()
    assert "no permission to get nodes/proxy" in line
    assert f"system:serviceaccount:{namespace}:default" in line
    assert of_node(result.stdout, kubelet.name)["reason"] == "StatsForbidden"
    assert kubelet.paths == []
