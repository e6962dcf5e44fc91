"""What holds for the project as a whole: packaging, layers, pins, and how fast the command line answers."""

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
from trimtab.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "operator"
PACKAGE = SOURCE / "trimtab"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if not path.name.endswith("_pb2.py"))
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
CHARTS = sorted(ROOT.glob("manifests/charts/*/Chart.yaml"))
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_source_root_is_no_package() -> None:
    assert SOURCE.is_dir()
    assert not (SOURCE / "__init__.py").exists(), "it would hide the standard library's module operator"


def test_the_standard_librarys_operator_is_found_from_the_repository() -> None:
    code = "import operator; print(operator.add(1, 2))"
    assert run(sys.executable, "-c", code) == "3"


def test_one_version_is_told_everywhere() -> None:
    assert version("trimtab") == trimtab.__version__
    assert run(sys.executable, "-m", "trimtab", "--version") == f"trimtab, version {trimtab.__version__}"
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## \[(.+?)\]", changelog, re.MULTILINE)[0] == trimtab.__version__


@pytest.mark.parametrize("path", CHARTS, ids=relative)
def test_a_chart_has_the_version_of_the_program(path: Path) -> None:
    chart = msgspec.yaml.decode(path.read_bytes())
    assert str(chart["appVersion"]) == trimtab.__version__
    assert str(chart["version"]) == trimtab.__version__


def test_the_console_script_is_installed() -> None:
    [script] = entry_points(group="console_scripts", name="trimtab")
    assert script.load() is main


def test_the_command_line_loads_nothing_heavy_before_a_command_is_chosen() -> None:
    code = "import sys, trimtab.cli.main; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = set(run(sys.executable, "-c", code).split())
    assert "click" in loaded
    assert not loaded & {"aiohttp", "cryptography", "kopf", "kubernetes", "msgspec", "numpy", "rich", "uvloop"}


def test_every_command_is_there() -> None:
    for command, (target, _) in COMMANDS.items():
        module, _, attribute = target.partition(":")
        path = SOURCE / Path(*module.split("."))
        assert path.with_suffix(".py").exists() or (path / "__init__.py").exists(), f"{command}: no module {module}"
        assert attribute


def test_every_package_has_its_layer() -> None:
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


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_a_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), f"{relative(path)} has no docstring"


def test_no_module_is_a_drawer_for_odds_and_ends() -> None:
    assert not [relative(path) for path in MODULES if path.stem in {"common", "helpers", "misc", "util", "utils"}]


def test_the_image_does_without_what_only_people_need() -> None:
    pinned = pins("image.txt")
    assert {canonicalize_name(Requirement(line).name) for line in PROJECT["project"]["dependencies"]} <= set(pinned)
    assert not {"kubernetes", "cryptography", "rich"} & set(pinned)


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_a_page_links_only_to_files_that_are_there(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]
    assert not [target for target in targets if target and not (path.parent / target).exists()]


@pytest.mark.parametrize("name", ["development.txt", "image.txt"])
def test_the_pins_are_in_the_ranges_of_the_project(name: str) -> None:
    pinned = pins(name)
    wanted = list(PROJECT["project"]["dependencies"])
    if name == "development.txt":
        wanted += PROJECT["project"]["optional-dependencies"]["cli"]
        wanted += [line for group in PROJECT["dependency-groups"].values() for line in group if isinstance(line, str)]
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
