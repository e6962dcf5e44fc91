"""The table in docs/security.md lists every annotation, label and taint of the code, with existing tests."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import trimtab

ROOT: Final = Path(__file__).resolve().parents[3]
SECTION: Final = "## Identity of machines and nodes"

KEY: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+/[A-Za-z0-9._-]*")
API_VERSION: Final = re.compile(r".*/v\d+((alpha|beta)\d+)?")

NO_METADATA: Final = {
    "app.kubernetes.io/version": "read from the operator's own Deployment by trimtab status, only to print it",
    "node.cloudprovider.kubernetes.io/": "a prefix of taints, by which the live page colours nodes",
    "app.kubernetes.io/name": "written on our definitions, never read",
    "cluster-autoscaler.kubernetes.io/last-updated": "written on the status ConfigMap, never read",
    "pv.kubernetes.io/bound-by-controller": "written on volumes for kube-controller-manager, never read",
    "k8s.io/initial-events-end": "on bookmarks of the API server's own watches",
    "nvidia.com/gpu": "a resource",
    "amd.com/gpu": "a resource",
    "kubescheduler.config.k8s.io/": "an API group of configuration files",
    "kubeadm.k8s.io/": "an API group of configuration files",
    "pools.operator.machineconfiguration.openshift.io/": "a label in configuration files that are converted",
    "node-role.kubernetes.io/": "a label in the selectors of converted policies",
    "trimtab.dev/trimtab": "the name of the controller in events",
    "trimtab.dev/finalizer": "the finalizer of our objects",
    "pressure.trimtab.dev/": "a prefix of annotations and taints, each of which is listed",
    "karpenter.sh/": "an API group that trimtab migrate check looks for",
    **dict.fromkeys(
        (
            "app.kubernetes.io/component",
            "helm.sh/chart",
            "include.release.openshift.io/",
            "meta.helm.sh/release-name",
            "meta.helm.sh/release-namespace",
            "operators.coreos.com/trimtab.",
        ),
        "read by trimtab uninstall --check only, to print which objects are left and how they were installed",
    ),
    "kubernetes.io/no-provisioner": "a provisioner",
    "kubernetes.io/none": "a provisioner",
    "kubernetes.io/": "a prefix of resource names",
    **dict.fromkeys(
        (
            "kubernetes.io/aws-ebs",
            "kubernetes.io/azure-disk",
            "kubernetes.io/azure-file",
            "kubernetes.io/cinder",
            "kubernetes.io/gce-pd",
            "kubernetes.io/portworx-volume",
            "kubernetes.io/vsphere-volume",
        ),
        "an in-tree volume plugin",
    ),
}
"""Strings that look like metadata keys and are none, with the reason."""

KEYS_WITHOUT_DOMAIN: Final = frozenset({"ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler"})
"""Taint keys without a domain."""


def strings(value: Any, depth: int = 0) -> Iterator[str]:
    """All strings in a module-level value."""
    if isinstance(value, str):
        yield value
    elif depth < 3 and isinstance(value, (tuple, list, set, frozenset)):
        for each in value:
            yield from strings(each, depth + 1)
    elif depth < 3 and isinstance(value, dict):
        for key, each in value.items():
            yield from strings(key, depth + 1)
            yield from strings(each, depth + 1)


@cache
def keys_in_code() -> dict[str, str]:
    """Metadata keys in values and literals of all modules, each with a module that contains it."""
    found: dict[str, str] = {}
    for module in pkgutil.walk_packages(trimtab.__path__, "trimtab."):
        if module.name.endswith("__main__"):
            continue
        loaded = importlib.import_module(module.name)
        texts = [each for name, value in vars(loaded).items() if not name.startswith("__") for each in strings(value)]
        tree = ast.parse(Path(str(loaded.__file__)).read_text())
        texts += [
            each.value for each in ast.walk(tree) if isinstance(each, ast.Constant) and isinstance(each.value, str)
        ]
        for text in texts:
            if (KEY.fullmatch(text) and not API_VERSION.fullmatch(text)) or text in KEYS_WITHOUT_DOMAIN:
                found.setdefault(text, module.name)
    return found


def rows() -> list[list[str]]:
    """The cells of the table."""
    section = (ROOT / "docs" / "security.md").read_text().partition(f"{SECTION}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def names(cell: str) -> list[str]:
    """The words in backquotes."""
    return re.findall(r"`([^`]+)`", cell)


@cache
def constants() -> dict[str, frozenset[str]]:
    """The names of the code's constants, by their value."""
    found: dict[str, set[str]] = {}
    for module in pkgutil.walk_packages(trimtab.__path__, "trimtab."):
        if not module.name.endswith("__main__"):
            for name, value in vars(importlib.import_module(module.name)).items():
                if name.isupper() and isinstance(value, str):
                    found.setdefault(value, set()).add(name)
    return {value: frozenset(names) for value, names in found.items()}


Definitions = dict[str, list[str]]
"""The source of functions, methods and module-level values, by name."""


def definitions(path: Path) -> Definitions:
    text = path.read_text()
    lines, found = text.splitlines(), Definitions()
    tree = ast.parse(text)
    for item in [*tree.body, *(each for one in tree.body if isinstance(one, ast.ClassDef) for each in one.body)]:
        match item:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                named = [item.name]
            case ast.Assign():
                named = [each.id for each in item.targets if isinstance(each, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                named = [name]
            case _:
                continue
        first = min([item.lineno, *(each.lineno for each in getattr(item, "decorator_list", ()))])
        for name in named:
            found.setdefault(name, []).append("\n".join(lines[first - 1 : item.end_lineno]))
    return found


@cache
def helpers() -> Definitions:
    """The definitions outside test modules, such as builders."""
    found: Definitions = {}
    paths = [*(ROOT / "tests").glob("*.py"), *(ROOT / "tests" / "unit").rglob("*.py")]
    for path in paths:
        if not path.name.startswith("test_"):
            for name, sources in definitions(path).items():
                found.setdefault(name, []).extend(sources)
    return found


@cache
def unit_tests() -> dict[str, list[Path]]:
    """The modules of all unit tests, by name of the test."""
    found: dict[str, list[Path]] = {}
    for path in (ROOT / "tests" / "unit").rglob("test_*.py"):
        for name in re.findall(r"^\s*(?:async )?def (test_\w+)", path.read_text(), flags=re.MULTILINE):
            found.setdefault(name, []).append(path)
    return found


def mentions(test: str, keys: Collection[str]) -> bool:
    """Whether a test contains one of the keys or its constant, also in what it uses of its module and of helpers."""
    wanted = {*keys, *(name for key in keys for name in constants().get(key, ()))}
    for path in unit_tests()[test]:
        own = definitions(path)
        seen, ahead = set(), [test]
        while ahead:
            name = ahead.pop()
            seen.add(name)
            for source in (*own.get(name, ()), *helpers().get(name, ())):
                if any(word in source for word in wanted):
                    return True
                ahead += set(re.findall(r"\b[A-Za-z_]\w*", source)) & (own.keys() | helpers().keys()) - seen
    return False


def test_table_lists_every_key_of_the_code() -> None:
    listed = {key for row in rows() for key in names(row[0])}
    missing = {key: module for key, module in keys_in_code().items() if key not in listed and key not in NO_METADATA}

    assert missing == {}, "add them to docs/security.md: who can write them, and what they can cause"


def test_code_uses_every_key_of_the_table() -> None:
    assert {key for row in rows() for key in names(row[0])} - keys_in_code().keys() == set()


def test_rows_are_complete() -> None:
    assert rows()
    for row in rows():
        assert len(row) == 5, row
        assert all(row), row
        assert names(row[4]), row


def test_referenced_tests_exist() -> None:
    named = {test for row in rows() for test in names(row[4])}

    assert named - unit_tests().keys() == set()


def test_referenced_tests_mention_a_key_of_their_row() -> None:
    wrong = {test: row[0] for row in rows() for test in names(row[4]) if not mentions(test, names(row[0]))}

    assert wrong == {}


def test_excluded_keys_are_in_the_code() -> None:
    assert set(NO_METADATA) - keys_in_code().keys() <= {"amd.com/gpu"}


def test_tenants_write_no_keys_of_nodes_and_machines() -> None:
    """A tenant has no permission on nodes, machines and node groups: rows about these never name it."""
    for row in rows():
        if row[1].startswith(("node", "machine")):
            assert "tenant" not in row[2], row
