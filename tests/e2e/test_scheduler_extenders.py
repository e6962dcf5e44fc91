"""Scheduler extenders next to the operator as a process: real requests, complete objects, and an extender that ends."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.fixtures.clusters import create_nodes, require_local_cluster
from tests.fixtures.tainting import make_namespace
from tests.fixtures.waiting import wait_for
from trimtab.kube.resources import PODS, SCHEDULER_POLICIES
from trimtab_local.cluster import LocalCluster
from trimtab_local.install import apply, install, operator
from trimtab_local.nodes import node

GPU = "example.com/gpu-memory"
NODES = ("n0", "n1", "n2", "n3")


class FakeExtender:
    """Accepts the nodes in `accepts`, and scores the last one highest."""

    def __init__(self) -> None:
        self.accepts = {"n1", "n3"}
        self.requests: list[tuple[str, dict[str, Any]]] = []
        extender = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                extender.requests.append((self.path, body))
                answer = json.dumps(extender.answer(self.path, body)).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/scheduler"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, path: str, body: dict[str, Any]) -> Any:
        names = body.get("NodeNames") or [each["metadata"]["name"] for each in body["Nodes"]["items"]]
        if path.endswith("/prioritize"):
            return [{"Host": name, "Score": 10 if name == max(names) else 0} for name in names]
        passed = [name for name in names if name in self.accepts]
        failed = {name: "no GPU memory" for name in names if name not in self.accepts}
        if "NodeNames" in body:
            return {"NodeNames": passed, "FailedNodes": failed}
        return {"Nodes": {"items": [{"metadata": {"name": name}} for name in passed]}, "FailedNodes": failed}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def extender() -> Iterator[FakeExtender]:
    found = FakeExtender()
    yield found
    found.close()


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    require_local_cluster(request)
    cluster: LocalCluster = request.getfixturevalue("make_cluster")(nodes=0)
    capacity = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    create_nodes(cluster.client, (node(name, zone="z", capacity=capacity) for name in NODES))
    install(cluster, "controllers.scheduler.enabled=true")
    with operator(cluster, tmp_path_factory.mktemp("operator"), "--controllers=scheduler", "--no-leader-elect"):
        yield cluster


class Site:
    """A namespace whose pods a policy with one extender places."""

    def __init__(self, cluster: LocalCluster, extender: FakeExtender, **fields: Any) -> None:
        self.client = cluster.client
        self.name = f"test-{secrets.token_hex(4)}"
        make_namespace(self.client, self.name)
        spec = {
            "urlPrefix": extender.url,
            "filterVerb": "filter",
            "managedResources": [{"name": GPU, "ignoredByScheduler": True}],
            **fields,
        }
        manifest = {
            "apiVersion": SCHEDULER_POLICIES.api_version,
            "kind": SCHEDULER_POLICIES.kind,
            "metadata": {"name": self.name},
            "spec": {"schedulerName": self.name, "extenders": [spec]},
        }
        apply(self.client, SCHEDULER_POLICIES.path(), manifest)

    def create(self, name: str, *, gpu: bool = True) -> None:
        amounts = {"cpu": "100m"} | ({GPU: "2"} if gpu else {})
        container = {"name": "app", "image": "app", "resources": {"requests": amounts, "limits": amounts}}
        body = {"metadata": {"name": name}, "spec": {"schedulerName": self.name, "containers": [container]}}
        self.client.request("POST", PODS.path(namespace=self.name), body)

    def pod(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.request("GET", PODS.path(name, namespace=self.name))
        return found

    def node_of(self, name: str) -> str:
        return str(self.pod(name)["spec"].get("nodeName", ""))

    def message(self, name: str) -> str:
        conditions = self.pod(name)["status"].get("conditions") or ()
        return next((str(each.get("message", "")) for each in conditions if each["type"] == "PodScheduled"), "")


def test_extender_filters_and_scores_by_name(cluster: LocalCluster, extender: FakeExtender) -> None:
    site = Site(cluster, extender, prioritizeVerb="prioritize", weight=10, nodeCacheCapable=True)
    site.create("asks")
    site.create("plain", gpu=False)
    wait_for(lambda: site.node_of("asks") == "n3" and bool(site.node_of("plain")), "both pods", timeout=30)
    (first, filtered), (second, scored) = extender.requests
    assert (first, second) == ("/scheduler/filter", "/scheduler/prioritize")
    assert filtered["Pod"]["spec"]["containers"][0]["resources"]["limits"][GPU] == "2"
    assert (filtered["NodeNames"], scored["NodeNames"]) == (list(NODES), ["n1", "n3"])


def test_extender_without_a_node_cache_gets_complete_nodes(cluster: LocalCluster, extender: FakeExtender) -> None:
    site = Site(cluster, extender)
    site.create("asks")
    wait_for(lambda: site.node_of("asks") in extender.accepts, "the pod", timeout=30)
    [(_, body)] = extender.requests
    assert [each["status"]["allocatable"]["cpu"] for each in body["Nodes"]["items"]] == ["8"] * len(NODES)


def test_rejected_pod_reports_the_reason_of_the_extender(cluster: LocalCluster, extender: FakeExtender) -> None:
    site = Site(cluster, extender, nodeCacheCapable=True)
    extender.accepts = set()
    site.create("asks")
    wait_for(lambda: "4 no GPU memory" in site.message("asks"), "the condition", timeout=30)
    assert site.node_of("asks") == ""


@pytest.mark.parametrize("ignorable", [False, True])
def test_extender_that_does_not_respond(cluster: LocalCluster, extender: FakeExtender, ignorable: bool) -> None:
    site = Site(cluster, extender, nodeCacheCapable=True, ignorable=ignorable)
    extender.close()
    site.create("asks")
    if ignorable:
        wait_for(lambda: bool(site.node_of("asks")), "the pod", timeout=30)
    else:
        wait_for(lambda: "Cannot connect" in site.message("asks"), "the condition", timeout=30)
        assert site.node_of("asks") == ""
