"""Contexts of kubeconfig files."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.kube.connection.contexts import Contexts, load_contexts, load_namespace

FILE = """
apiVersion: v1
kind: Config
current-context: dev
contexts:
- name: dev
  context: {cluster: dev, user: me, namespace: shop}
- name: prod
  context: {cluster: prod, user: me}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(("context", "namespace"), [(None, "shop"), ("prod", "default"), ("missing", "default")])
def test_namespace_of_a_context(config: Path, context: str | None, namespace: str) -> None:
    assert load_namespace(config, context=context) == namespace


def test_first_of_several_files_determines_a_value(config: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text(FILE.replace("shop", "billing").replace("current-context: dev", "current-context: prod"))

    found = load_contexts(f"{tmp_path / 'missing'}:{config}:{other}")

    assert found == Contexts("dev", {"dev": "shop", "prod": "default"})


@pytest.mark.parametrize("content", ["", "[", "a: b", "contexts: 5", "contexts: [5, {name: 7}, {name: x, context: 1}]"])
def test_invalid_file_has_the_default_namespace(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)

    assert load_namespace(path, service_account=tmp_path) == "default"


def test_service_account_has_its_namespace(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("trimtab-system\n")

    assert load_namespace(environ={"HOME": str(tmp_path)}, service_account=tmp_path) == "trimtab-system"
