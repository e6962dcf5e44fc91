"""The project as a whole: packaging, layers, pinned versions, and what the command line imports."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

import msgspec
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import trimtab
import trimtab_local
from trimtab.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "operator"
PACKAGE = SOURCE / "trimtab"
LOCAL = ROOT / "local"
MODULES = sorted(
    path
    for package in (PACKAGE, LOCAL / "trimtab_local")
    for path in package.rglob("*.py")
    if not path.name.endswith("_pb2.py")
)
CHARTS = sorted(ROOT.glob("manifests/charts/*/Chart.yaml"))
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCAL_PROJECT: dict[str, Any] = tomllib.loads((LOCAL / "pyproject.toml").read_text(encoding="utf-8"))


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_operator_folder_is_no_package() -> None:
    assert SOURCE.is_dir()
    assert not (SOURCE / "__init__.py").exists(), "it would hide the standard library's module operator"


def test_import_operator_finds_the_standard_library() -> None:
    code = "import operator; print(operator.add(1, 2))"
    assert run(sys.executable, "-c", code) == "3"


def test_all_version_numbers_agree() -> None:
    assert version("trimtab") == trimtab.__version__
    assert run(sys.executable, "-m", "trimtab", "--version") == f"trimtab, version {trimtab.__version__}"
    assert trimtab_local.__version__ == trimtab.__version__
    assert f"trimtab-local=={trimtab.__version__}" in PROJECT["project"]["optional-dependencies"]["local"]
    assert f"trimtab=={trimtab.__version__}" in LOCAL_PROJECT["project"]["dependencies"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## \[(.+?)\]", changelog, re.MULTILINE)[0] == trimtab.__version__


@pytest.mark.parametrize("path", CHARTS, ids=relative)
def test_chart_version_equals_the_programs(path: Path) -> None:
    chart = msgspec.yaml.decode(path.read_bytes())
    assert str(chart["appVersion"]) == trimtab.__version__
    assert str(chart["version"]) == trimtab.__version__


def test_console_script_is_installed() -> None:
    [script] = entry_points(group="console_scripts", name="trimtab")
    assert script.load() is main


def test_help_imports_no_heavy_module() -> None:
    code = "import sys, trimtab.cli.main; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = set(run(sys.executable, "-c", code).split())
    assert "click" in loaded
    assert not loaded & {
        "aiohttp",
        "cryptography",
        "jinja2",
        "kopf",
        "kubernetes",
        "msgspec",
        "numpy",
        "rich",
        "uvloop",
    }


def test_every_command_has_a_module() -> None:
    for command, (target, _) in COMMANDS.items():
        module, _, attribute = target.partition(":")
        path = (LOCAL if module.startswith("trimtab_local") else SOURCE) / Path(*module.split("."))
        assert path.with_suffix(".py").exists() or (path / "__init__.py").exists(), f"{command}: no module {module}"
        assert attribute


def test_every_package_is_in_a_layer() -> None:
    [layers] = [contract for contract in PROJECT["tool"]["importlinter"]["contracts"] if contract["type"] == "layers"]
    layered = [name for layer in layers["layers"] for name in re.split(r"[|:()\s]+", layer) if name]
    packages = {f"trimtab.{path.parent.name}" for path in PACKAGE.glob("*/__init__.py")}
    assert set(layered) == packages
    order = {name: index for index, layer in enumerate(layers["layers"]) for name in layered if name in layer.split()}
    for upper, lower in [
        ("cli", "runtime"),
        ("runtime", "descheduling"),
        ("descheduling", "disruption"),
        ("disruption", "placement"),
        ("placement", "cluster"),
        ("cluster", "api"),
        ("api", "kube"),
    ]:
        assert order[f"trimtab.{upper}"] < order[f"trimtab.{lower}"]


def test_no_module_is_called_utils() -> None:
    assert not [relative(path) for path in MODULES if path.stem in {"common", "helpers", "misc", "util", "utils"}]


def test_no_call_of_unique_imports_masked_arrays() -> None:
    """``numpy.unique(values)`` imports ``numpy.ma``, which blocks all threads for 30 ms and needs 3 MiB."""
    found = []
    for path in MODULES:
        for each in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(each, ast.Call) and ast.unparse(each.func) == "np.unique":
                optional = {keyword.arg for keyword in each.keywords} & {"return_index", "return_inverse"}
                found += [] if optional else [f"{relative(path)}:{each.lineno}"]
    assert not found


def test_image_contains_no_cli_only_dependencies() -> None:
    pinned = pins("image.txt")
    assert {canonicalize_name(Requirement(line).name) for line in PROJECT["project"]["dependencies"]} <= set(pinned)
    assert not {"jinja2", "kubernetes", "rich", "trimtab-local"} & set(pinned)


def test_local_command_without_its_package_prints_how_to_install_it(tmp_path: Path) -> None:
    code = """if True:
        import sys
        from trimtab.cli.main import main

        class Without:
            def find_spec(self, name, path=None, target=None):
                if name == "trimtab_local":
                    raise ModuleNotFoundError(name=name)

        sys.meta_path.insert(0, Without())
        main()
    """
    command = [sys.executable, "-c", code, "local", "up"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("trimtab: ")
    assert "pip install 'trimtab[local]'" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["development.txt", "docs.txt", "image.txt"])
def test_pinned_versions_satisfy_pyproject(name: str) -> None:
    pinned = pins(name)
    groups = PROJECT["dependency-groups"]
    wanted = groups["docs"] if name == "docs.txt" else list(PROJECT["project"]["dependencies"])
    if name == "development.txt":
        wanted += PROJECT["project"]["optional-dependencies"]["cli"]
        wanted += [line for line in LOCAL_PROJECT["project"]["dependencies"] if Requirement(line).name != "trimtab"]
        wanted += [line for group in groups if group != "docs" for line in groups[group] if isinstance(line, str)]
    for requirement in map(Requirement, wanted):
        if requirement.marker and not requirement.marker.evaluate():
            continue
        versions = pinned.get(canonicalize_name(requirement.name))
        assert versions, f"requirements/{name} has no {requirement.name}; run `make lock`"
        for pin in versions:
            assert requirement.specifier.contains(pin), (
                f"requirements/{name}: {requirement.name}=={pin}; run `make lock`"
            )


def pins(name: str) -> dict[str, list[str]]:
    """Package to pinned versions: several where they differ by Python version."""
    found: dict[str, list[str]] = {}
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    for package, pin in re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)", text, re.MULTILINE):
        found.setdefault(canonicalize_name(package), []).append(pin)
    return found


def run(*command: str) -> str:
    """The program's output, run from the repository's root as users do."""
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
