"""The tests' own backends for clusters, where they can be tried without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.clusters import KindBackend, docker_runs
from tests.fixtures.tainting import make_namespace
from trimtab.kube.api import Conflict, NotFound
from trimtab.kube.connection.config import load_config
from trimtab_local.certificates import make_keys
from trimtab_local.files import render_kubeconfig, write_kubeconfig


class FakeKind:
    """What pytest-kind's cluster does, without docker."""

    def __init__(self, directory: Path) -> None:
        self.name = "pytest-kind"
        self.kubeconfig_path = directory / "kubeconfig"
        self.calls: list[str] = []
        ca = make_keys(directory / "keys").ca
        content = render_kubeconfig(name="kind", server="https://127.0.0.1:6443", ca=ca, token="certificate")
        write_kubeconfig(self.kubeconfig_path, content)

    def kubectl(self, *args: str) -> str:
        self.calls.append(" ".join(args))
        return "a-token\n" if args[:2] == ("create", "token") else ""


@pytest.fixture
def kind(tmp_path: Path) -> FakeKind:
    return FakeKind(tmp_path)


def test_kind_cluster_has_the_interface_of_a_local_one(kind: FakeKind, tmp_path: Path) -> None:
    backend = KindBackend(kind, directory=tmp_path)
    assert (backend.name, backend.server) == ("pytest-kind", "https://127.0.0.1:6443")
    assert backend.client.server == backend.server
    assert backend.ca.read_bytes().startswith(b"-----BEGIN CERTIFICATE")
    assert [call.split()[1] for call in kind.calls] == ["serviceaccount", "clusterrolebinding", "token"]


def test_service_account_of_a_kind_cluster_gets_a_kubeconfig(kind: FakeKind, tmp_path: Path) -> None:
    backend = KindBackend(kind, directory=tmp_path)
    path = backend.service_account_kubeconfig("ns", "operator", path=tmp_path / "sa")
    assert kind.calls[-1] == "create token operator --namespace=ns --duration=86400s"
    config = load_config(path)
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
