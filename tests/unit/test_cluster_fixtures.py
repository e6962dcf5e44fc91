"""The tests' own backends for clusters, where they can be tried without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.clusters import KindBackend, docker_runs
from trimtab.kube.connection.config import load_config
from trimtab.local import kubeconfig
from trimtab.local.certificates import make_keys


class FakeKind:
    """What pytest-kind's cluster does, without docker."""

    def __init__(self, directory: Path) -> None:
        self.name = "pytest-kind"
        self.kubeconfig_path = directory / "kubeconfig"
        self.calls: list[str] = []
        ca = make_keys(directory / "keys").ca
        content = kubeconfig.render(name="kind", server="https://127.0.0.1:6443", ca=ca, token="certificate")
        kubeconfig.write(self.kubeconfig_path, content)

    def kubectl(self, *args: str) -> str:
        self.calls.append(" ".join(args))
        return "a-token\n" if args[:2] == ("create", "token") else ""


@pytest.fixture
def kind(tmp_path: Path) -> FakeKind:
    return FakeKind(tmp_path)


def test_a_kind_cluster_stands_behind_the_same_names_as_ours(kind: FakeKind, tmp_path: Path) -> None:
    backend = KindBackend(kind, directory=tmp_path)
    assert (backend.name, backend.server) == ("pytest-kind", "https://127.0.0.1:6443")
    assert backend.client.server == backend.server
    assert backend.ca.read_bytes().startswith(b"-----BEGIN CERTIFICATE")
    assert [call.split()[1] for call in kind.calls] == ["serviceaccount", "clusterrolebinding", "token"]


def test_a_service_account_of_a_kind_cluster_gets_a_kubeconfig(kind: FakeKind, tmp_path: Path) -> None:
    backend = KindBackend(kind, directory=tmp_path)
    path = backend.service_account_kubeconfig("ns", "operator", path=tmp_path / "sa")
    assert kind.calls[-1] == "create token operator --namespace=ns --duration=86400s"
    config = load_config(path)
    assert (config.login.authorization, config.namespace) == ("Bearer a-token", "ns")


def test_a_docker_command_without_a_daemon_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not docker_runs()
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\nexit 1\n")
    docker.chmod(0o755)
    assert not docker_runs()
    docker.write_text("#!/bin/sh\nexit 0\n")
    assert docker_runs()
