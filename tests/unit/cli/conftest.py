"""Running commands in this process, and small clusters in files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from tests.fakes.cluster import FakeCluster, serving
from trimtab.cli.main import cli

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    """``run("plan", "--policy", path, stdin=b"…")``; a traceback of the command is the test's own failure."""

    def run(*arguments: str | Path, stdin: bytes | None = None) -> Result:
        result = CliRunner().invoke(cli, [str(each) for each in arguments], input=stdin, prog_name="trimtab")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def as_list(*items: Any) -> dict[str, Any]:
    """A v1 List of builders or manifests."""
    manifests = [item if isinstance(item, dict) else item.manifest() for item in items]
    return {"apiVersion": "v1", "kind": "List", "items": manifests}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """``write("cluster.json", *builders)``: a v1 List in a file, as JSON or YAML by its name."""

    def write(name: str, *items: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        encode = msgspec.json.encode if path.suffix == ".json" else msgspec.yaml.encode
        path.write_bytes(encode(as_list(*items)))
        return path

    return write


@pytest.fixture
def policy(tmp_path: Path) -> Callable[..., Path]:
    """``policy("kind: …", "kind: …", name="policy.yaml")``: a file of so many documents."""

    def write(*documents: str, name: str = "policy.yaml") -> Path:
        path = tmp_path / name
        path.write_text("---\n".join(documents))
        return path

    return write


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., str]:
    """Write a text to a file, and return its path."""

    def write(text: str, name: str = "policy.yaml") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture
def server() -> FakeCluster:
    """The API server of an empty cluster."""
    return FakeCluster()


@pytest.fixture
def kubeconfig(server: FakeCluster, tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig for ``server``, which answers over HTTP."""
    path = tmp_path / "kubeconfig"
    with serving(server) as url:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {"token": "secret"}}],
        }
        path.write_bytes(msgspec.json.encode(config))
        yield path
