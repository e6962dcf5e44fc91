"""Clusters in the folders and archives of ``oc adm inspect`` and ``oc adm must-gather``."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.builders import node, pod
from tests.unit.cli.conftest import as_list

NOW = "2026-11-20T12:00:00Z"
IMAGE = "quay-io-openshift-release-dev-ocp-v4-0-art-dev-sha256-8f1f"


def versioned(builder: Any, version: str = "7") -> dict[str, Any]:
    """The manifest with a uid and a resource version, as an API server returns it."""
    manifest: dict[str, Any] = builder.manifest()
    manifest["metadata"] |= {"uid": f"uid-{manifest['metadata']['name']}", "resourceVersion": version}
    return manifest


def put(path: Path, manifest: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"---\n" + msgspec.yaml.encode(manifest))


@pytest.fixture(params=["", IMAGE], ids=["inspect", "must-gather"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A cluster of two nodes and a pod, with what else such a folder holds."""
    root = tmp_path / "dump"
    base = root / request.param
    web = versioned(pod("web", namespace="shop").on("n1").cpu("1"))
    for name in ("n1", "n2"):
        put(base / f"cluster-scoped-resources/core/nodes/{name}.yaml", versioned(node(name)))
    crd = base / "cluster-scoped-resources/apiextensions.k8s.io/customresourcedefinitions/broken.yaml"
    crd.parent.mkdir(parents=True)
    crd.write_text("not: [yaml")
    put(base / "namespaces/shop/core/pods.yaml", as_list(web))
    put(base / "namespaces/shop/pods/web/web.yaml", web)
    put(base / "namespaces/shop/shop.yaml", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    (base / "etcd_info").mkdir()
    (base / "etcd_info/endpoint_health.json").write_text('[{"health": true}]')
    (root / "timestamp.json").write_text('"2026-11-23"')
    return root


def forecast(run: Any, cluster: Path) -> dict[str, Any]:
    result = run("what-if", "--without", "node/n1", "--cluster", cluster, "--now", NOW, "-o", "json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = msgspec.json.decode(result.stdout)
    return found


def moved(document: dict[str, Any]) -> list[str]:
    """Every pod of the removed node, wherever the forecast lists it."""
    return [each["pod"] for key in ("rescheduled", "pending", "lost") for each in document[key]]


def test_a_folder_is_read_as_it_is(run, folder) -> None:
    assert moved(forecast(run, folder)) == ["shop/web"]


@pytest.mark.parametrize("name", ["dump.tar", "dump.tar.gz", "dump.tgz"])
def test_an_archive_gives_what_its_folder_gives(run, folder, tmp_path, name) -> None:
    archive = tmp_path / name
    with tarfile.open(archive, "w" if name.endswith(".tar") else "w:gz") as writer:
        writer.add(folder, "must-gather.local.1")
    assert forecast(run, archive) == forecast(run, folder)


def test_a_compressed_list_is_read(run, tmp_path) -> None:
    path = tmp_path / "cluster.json.gz"
    path.write_bytes(gzip.compress(msgspec.json.encode(as_list(node("n1"), pod("web", namespace="shop").on("n1")))))
    assert moved(forecast(run, path)) == ["shop/web"]


@pytest.mark.parametrize("name", ["cluster.tar.gz", "cluster.json.gz"])
def test_a_damaged_archive_is_refused(run, tmp_path, name) -> None:
    path = tmp_path / name
    path.write_bytes(b"no archive")
    result = run("what-if", "--without", "node/n1", "--cluster", path)
    assert result.exit_code == 2
    assert name in result.stderr


def test_different_versions_of_a_pod_are_refused(run, folder) -> None:
    [path] = folder.rglob("web.yaml")
    put(path, versioned(pod("web", namespace="shop").on("n2"), version="8"))
    result = run("what-if", "--without", "node/n1", "--cluster", folder)
    assert result.exit_code == 2
    assert "Pod/shop/web" in result.stderr


def test_policies_that_are_stored_twice_are_read_once(run, folder, tmp_path) -> None:
    manager = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "TaintManager", "spec": {}}
    manager["metadata"] = {"name": "default", "uid": "u", "resourceVersion": "1"}
    base = next(folder.rglob("cluster-scoped-resources")) / "trimtab.dev/taintmanagers"
    put(base / "default.yaml", manager)
    put(base.parent / "taintmanagers.yaml", as_list(manager))
    assert run("plan", "--cluster", folder).exit_code == 0
