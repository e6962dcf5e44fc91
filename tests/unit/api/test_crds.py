"""Definitions, reference pages, and the command that writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.fixtures.golden import Golden
from trimtab.api.crds import DEFINITIONS, crd_documents, crd_files, strategy_types
from trimtab.api.reference import reference_files
from trimtab.api.strategies import STRATEGIES
from trimtab.cli.crds import crds
from trimtab.kube.resources import (
    CLUSTER_AUTOSCALERS,
    DESCHEDULER_POLICIES,
    DESCHEDULING_RUNS,
    HISTORY_RECORDS,
    MACHINE_AUTOSCALERS,
    NODE_PRESSURE_POLICIES,
    PLACEMENT_ADMISSIONS,
    SCHEDULER_POLICIES,
    TAINT_MANAGERS,
    Resource,
)

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        *((f"crds/{name}", text) for name, text in crd_files().items()),
        *((f"docs/reference/{name}", text) for name, text in reference_files().items()),
    ],
    ids=[*crd_files(), *reference_files()],
)
def test_crd_files_match_the_types(path: str, text: str) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == text, "write it with: trimtab crds --docs docs/reference"


def test_crds_folder_has_no_other_files() -> None:
    assert {path.name for path in (ROOT / "crds").iterdir()} == set(crd_files())


def test_crd_file_equals_the_document() -> None:
    assert [yaml.safe_load(text) for text in crd_files().values()] == list(crd_documents())


COLUMNS = {
    DESCHEDULER_POLICIES: (
        "dp",
        ["Mode", "State", "Planned", "Evicted", "Next", "Ready", "Degraded", "Conflicting", "Age"],
    ),
    DESCHEDULING_RUNS: ("dr", ["Policy", "Mode", "Phase", "Actions", "Evicted", "Kept", "Age"]),
    HISTORY_RECORDS: ("hr", ["From", "To", "Entries", "Age"]),
    CLUSTER_AUTOSCALERS: (
        "ca",
        ["State", "Nodes", "Pending", "Unneeded", "Removing", "Ready", "Degraded", "Conflicting", "Age"],
    ),
    MACHINE_AUTOSCALERS: ("ma", ["Ref Kind", "Ref Name", "Min", "Max", "State", "Ready", "Age"]),
    TAINT_MANAGERS: ("tm", ["Mode", "State", "Tainted", "Deadlines", "Next", "Ready", "Degraded", "Age"]),
    SCHEDULER_POLICIES: (
        "sp",
        ["Scheduler", "State", "Active", "Unschedulable", "Bound", "Ready", "Degraded", "Conflicting", "Age"],
    ),
    NODE_PRESSURE_POLICIES: ("npp", ["Mode", "State", "Ready", "Degraded", "Nodes", "Pressure", "Evicted", "Age"]),
    PLACEMENT_ADMISSIONS: ("pa", ["Mode", "State", "Mutated", "Refused", "Ready", "Degraded", "Age"]),
}
"""Short names and the columns of ``kubectl get`` without ``-o wide``."""


@pytest.mark.parametrize("resource", COLUMNS, ids=lambda resource: resource.kind)
def test_crd_has_the_names_of_the_resource(resource: Resource) -> None:
    (spec,) = [each["spec"] for each in crd_documents() if each["spec"]["names"]["kind"] == resource.kind]
    (version,) = spec["versions"]
    short_name, columns = COLUMNS[resource]

    assert (spec["group"], version["name"]) == (resource.group, resource.version)
    assert (spec["names"]["plural"], spec["names"]["shortNames"]) == (resource.plural, [short_name])
    assert spec["scope"] == ("Namespaced" if resource.namespaced else "Cluster")
    assert [each["name"] for each in version["additionalPrinterColumns"] if not each.get("priority")] == columns


def test_names_of_every_crd_are_checked() -> None:
    assert {each.kind for each in DEFINITIONS} == {each.kind for each in COLUMNS}


def run(*arguments: str) -> Any:
    return CliRunner().invoke(crds, arguments)


def test_written_files_pass_the_check(tmp_path: Path) -> None:
    directory, docs = str(tmp_path / "a" / "crds"), str(tmp_path / "docs")

    assert run(directory, "--docs", docs).exit_code == 0
    checked = run("--check", directory, "--docs", docs)

    assert (checked.exit_code, checked.output) == (0, "")


def test_check_lists_missing_and_outdated_files(tmp_path: Path, golden: Golden) -> None:
    name, *_ = crd_files()
    missing = run("--check", str(tmp_path))
    (tmp_path / name).write_text("kind: Other\n")
    drifted = run("--check", str(tmp_path))

    assert (missing.exit_code, drifted.exit_code) == (1, 1)
    for label, result in {"missing": missing, "drifted": drifted}.items():
        golden(result.output.splitlines()[0].replace(str(tmp_path), "crds"), label)
    assert (tmp_path / name).read_text() == "kind: Other\n"


def test_every_strategy_has_its_type() -> None:
    assert tuple(strategy_types()) == STRATEGIES


def strategies() -> dict[str, Any]:
    schema: dict[str, Any] = crd_documents()[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found: dict[str, Any] = schema["properties"]["spec"]["properties"]["strategies"]
    return found


def test_each_strategy_is_a_property_with_its_own_parameters() -> None:
    properties = strategies()["properties"]
    assert tuple(properties) == STRATEGIES
    params = properties["LowNodeUtilization"]["properties"]["params"]["properties"]
    assert "nodeResourceUtilizationThresholds" in params
    assert "nodeAffinityType" not in params
    assert properties["RemovePodsHavingTooManyRestarts"]["properties"]["params"]["properties"]["states"]["items"][
        "enum"
    ] == ["CrashLoopBackOff", "Running"]


def test_unknown_strategies_and_parameters_are_rejected_by_a_rule() -> None:
    """Pruned, they would vanish silently for clients that do not ask for strict validation."""
    closed = {"strategies": strategies()} | {
        f"strategies.{name}.params": inner["properties"]["params"] for name, inner in strategies()["properties"].items()
    }
    for place, schema in closed.items():
        assert schema["x-kubernetes-preserve-unknown-fields"] is True, place
        (rule,) = [each for each in schema["x-kubernetes-validations"] if each["message"].startswith("unknown ")]
        counted = [f"has(self.{name})" for name in schema["properties"]]
        assert rule["rule"] == f"size(dyn(self)) == [{', '.join(counted)}].filter(given, given).size()", place
        assert all(name in rule["message"] for name in schema["properties"]), place


def test_a_bound_with_a_fraction_is_a_rule_as_well() -> None:
    """The API server cuts the fraction off where the value is written as a whole number (kube-openapi's MinimumInt)."""

    def bare(schema: Any, place: str) -> list[str]:
        if not isinstance(schema, dict):
            return []
        found = [f"{place}.{name}" for name, inner in schema.items() for name in bare(inner, name)]
        bounds = [schema[name] for name in ("minimum", "maximum") if isinstance(schema.get(name), float)]
        ruled = "x-kubernetes-validations" in schema
        return found + [place for bound in bounds if bound != int(bound) and not ruled]

    assert [place for document in crd_documents() for place in bare(document["spec"]["versions"][0], "")] == []
