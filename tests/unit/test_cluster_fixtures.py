"""The tests' own backends for clusters, where they can be tried without one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.fixtures.clusters import KubeconfigCluster, docker_runs
from tests.fixtures.pykube_client import PykubeClient
from tests.fixtures.tainting import make_namespace
from trimtab.kube.api import Conflict, NotFound, Unreachable
from trimtab.kube.connection.config import load_config
from trimtab_local.certificates import make_keys
from trimtab_local.files import render_kubeconfig, write_kubeconfig


class FakeApiServer(BaseHTTPRequestHandler):
    """Answers with the request, an error whose code is the last part of the path, or a token."""

    def do_POST(self) -> None:
        parts = self.path.partition("?")[0].rsplit("/", 1)
        code = int(parts[-1]) if parts[-1].isdigit() else 200
        sent = self.rfile.read(int(self.headers["Content-Length"] or 0))
        echo = {"method": self.command, "path": self.path, "body": sent.decode(), "type": self.headers["Content-Type"]}
        body = (
            {"kind": "Status", "reason": "NotFound", "message": "gone", "code": code}
            if code >= 400
            else {
                "echo": {**echo, "login": self.headers["Authorization"]},
                "status": {"token": "a-token"},
            }
        )
        content = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self) -> None:
        self.do_POST()

    def do_PATCH(self) -> None:
        self.do_POST()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of a server on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), FakeApiServer) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        ca, path = make_keys(tmp_path / "keys").ca, tmp_path / "kubeconfig"
        url = f"http://127.0.0.1:{server.server_port}"
        write_kubeconfig(path, render_kubeconfig(name="any", server=url, ca=ca, token="admins-token"))
        yield path
        server.shutdown()
        thread.join()


def test_pykube_client_sends_the_requests_of_the_tests_own_client(kubeconfig: Path) -> None:
    client = PykubeClient.of(kubeconfig)
    path = "/apis/apps/v1/namespaces/shop/deployments/web"

    sent = client.request("PATCH", path, {"spec": 1}, params={"force": "true"}, content_type="application/apply-patch")
    read = client.request("GET", "/api/v1/nodes")
    client.api.session.close()

    echo = {"method": "PATCH", "path": f"{path}?force=true", "body": '{"spec":1}', "type": "application/apply-patch"}
    assert sent["echo"] == {**echo, "login": "Bearer admins-token"}
    assert (read["echo"]["method"], read["echo"]["body"]) == ("GET", "")


def test_pykube_client_raises_the_errors_of_the_tests_own_client(kubeconfig: Path) -> None:
    client = PykubeClient.of(kubeconfig)
    with pytest.raises(NotFound):
        client.request("GET", "/api/v1/nodes/404")
    client.server = "http://127.0.0.1:1"
    with pytest.raises(Unreachable):
        client.request("GET", "/api/v1/nodes")
    client.api.session.close()


def test_cluster_of_a_kubeconfig_has_the_interface_of_a_local_one(kubeconfig: Path, tmp_path: Path) -> None:
    client = PykubeClient.of(kubeconfig)
    cluster = KubeconfigCluster(client.api, directory=tmp_path)

    config = load_config(cluster.service_account_kubeconfig("ns", "operator", path=tmp_path / "sa"))
    client.api.session.close()

    assert cluster.ca.read_bytes().startswith(b"-----BEGIN CERTIFICATE")
    assert (cluster.kubeconfig, config.server) == (kubeconfig, cluster.server)
    assert (config.login.authorization, config.namespace) == ("Bearer a-token", "ns")


def test_docker_command_without_a_daemon_is_not_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not docker_runs()
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\nexit 1\n")
    docker.chmod(0o755)
    assert not docker_runs()
    docker.write_text("#!/bin/sh\nexit 0\n")
    assert docker_runs()


class FakeNamespaces:
    """The namespace ``shop``, which may exist already. If it is being deleted, it is gone after the second read."""

    def __init__(self, *, exists: bool, deleted: bool = False) -> None:
        self.exists = exists
        self.metadata = {"name": "shop"} | ({"deletionTimestamp": "2026-11-23T12:00:00Z"} if deleted else {})
        self.reads = 0

    def request(self, method: str, path: str, _body: Any = None) -> Any:
        if method == "POST":
            if self.exists:
                raise Conflict('namespaces "shop" already exists', status=409, reason="AlreadyExists")
            self.exists, self.metadata = True, {"name": "shop"}
        elif not self.exists:
            raise NotFound(path, status=404)
        elif path == "/api/v1/namespaces/shop" and "deletionTimestamp" in self.metadata:
            self.reads += 1
            self.exists = self.reads < 2
        return {"metadata": self.metadata}


def test_namespace_is_made_once_the_previous_one_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab_local.install.time.sleep", lambda _: None)
    namespaces = FakeNamespaces(exists=True, deleted=True)
    make_namespace(namespaces, "shop")  # type: ignore[arg-type]
    assert (namespaces.reads, namespaces.metadata) == (2, {"name": "shop"})


def test_namespace_that_is_not_being_deleted_is_a_conflict() -> None:
    with pytest.raises(Conflict):
        make_namespace(FakeNamespaces(exists=True), "shop")  # type: ignore[arg-type]
