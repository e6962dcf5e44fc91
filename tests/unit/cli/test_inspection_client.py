"""Asking the operator: which answers are used, what is reported otherwise, and how often credentials are requested."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import click
import msgspec
import pytest

from trimtab.cli.connection import connection_config
from trimtab.cli.inspection_client import PREFIX, ask_operator, ask_unless_direct, current_path, object_path


class Operator(ThreadingHTTPServer):
    """An API server whose aggregation layer answers with ``status``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.document = 200, b'{"node": "n1"}'
        self.paths: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: Operator

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(self.server.document)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def operator() -> Iterator[Operator]:
    server = Operator()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def kubeconfig(operator: Operator, tmp_path: Path) -> Path:
    """A kubeconfig whose exec plugin adds a line to the file ``runs``."""
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "secret"},
    }
    script = f"open({str(tmp_path / 'runs')!r}, 'a').write('run\\n'); print({json.dumps(json.dumps(credential))})"
    plugin = {
        "apiVersion": credential["apiVersion"],
        "command": sys.executable,
        "args": ["-c", script],
        "interactiveMode": "Never",
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{operator.server_address[1]}"}}],
        "users": [{"name": "u", "user": {"exec": plugin}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_bytes(msgspec.yaml.encode(config))
    return path


def runs(kubeconfig: Path) -> int:
    """How often the exec plugin ran."""
    file = kubeconfig.parent / "runs"
    return len(file.read_text().splitlines()) if file.exists() else 0


def command() -> click.Context:
    return click.Context(click.Command("explain"))


def test_exec_plugin_runs_once_per_command(kubeconfig: Path) -> None:
    with command() as root:
        first = connection_config(str(kubeconfig), context=None)
        with click.Context(click.Command("node"), parent=root):
            assert connection_config(str(kubeconfig), context=None) is first
    assert runs(kubeconfig) == 1
    with command():
        connection_config(str(kubeconfig), context=None)
    assert runs(kubeconfig) == 2


def test_other_context_is_not_confused_with_the_current_one(kubeconfig: Path) -> None:
    with command():
        first = connection_config(str(kubeconfig), context=None)
        assert connection_config(str(kubeconfig), context="c") is not first


def test_document_of_the_operator_is_used(
    operator: Operator, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = object_path("nodes", "n1")
    with command():
        assert ask_operator(path, kubeconfig=str(kubeconfig), context=None) == {"node": "n1"}
    assert operator.paths == [f"{PREFIX}/{path}"]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("status", [429, 503])
def test_command_says_why_it_reads_the_cluster(
    operator: Operator, kubeconfig: Path, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    failure = {"kind": "Status", "status": "Failure", "message": "service unavailable", "code": status}
    operator.status, operator.document = status, json.dumps(failure).encode()
    with command():
        assert ask_operator("plans/current", kubeconfig=str(kubeconfig), context=None) is None
    assert "service unavailable" in capsys.readouterr().err
    assert len(operator.paths) == 1


@pytest.mark.parametrize("status", [403, 404])
def test_cluster_without_the_api_is_read_silently(
    operator: Operator, kubeconfig: Path, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    operator.status, operator.document = status, b"404 page not found"
    with command():
        assert ask_operator("plans/current", kubeconfig=str(kubeconfig), context=None) is None
    assert capsys.readouterr().err == ""


def test_refused_connection_is_left_to_the_command(
    operator: Operator, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    operator.server_close()
    with command():
        assert ask_operator("plans/current", kubeconfig=str(kubeconfig), context=None) is None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "option", [{"direct": True}, {"cluster": "file"}, {"skip_invalid": True}, {"policies": ("file",)}, {"now": 0}]
)
def test_options_that_the_api_does_not_know_are_not_asked(
    operator: Operator, kubeconfig: Path, option: dict[str, Any]
) -> None:
    none = {"direct": False, "cluster": None, "context": None, "skip_invalid": False, "policies": (), "now": None}
    options = {**none, "kubeconfig": str(kubeconfig), **option}
    with command():
        assert ask_unless_direct("protections/current", **options) is None
    assert operator.paths == []


def test_names_in_paths_are_quoted() -> None:
    assert object_path("nodes", "a/b") == "nodes/a%2Fb/explanation"
    assert object_path("pods", "web-1", inside="shop") == "namespaces/shop/pods/web-1/explanation"
    assert object_path("nodegroups", "w", id="MachineSet/a/w") == "nodegroups/w/explanation?id=MachineSet%2Fa%2Fw"
    assert current_path("protections") == "protections/current"
    assert current_path("protections", namespace="shop") == "protections/current?namespace=shop"
