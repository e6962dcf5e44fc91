"""Definitions, reference pages, and the command that writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from trimtab.api import strategy_schema
from trimtab.api.crds import DEFINITIONS, crd_documents, crd_files
from trimtab.api.reference import reference_files
from trimtab.api.strategies import STRATEGIES
from trimtab.cli.crds import crds
from trimtab.kube.resources import DESCHEDULER_POLICIES

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        *((f"crds/{name}", text) for name, text in crd_files().items()),
        *((f"docs/reference/{name}", text) for name, text in reference_files().items()),
    ],
    ids=[*crd_files(), *reference_files()],
)
def test_a_file_is_what_the_types_say(path: str, text: str) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == text, "write it with: trimtab crds --docs docs/reference"


def test_crds_holds_no_other_files() -> None:
    assert {path.name for path in (ROOT / "crds").iterdir()} == set(crd_files())


def test_the_file_is_the_document() -> None:
    assert [yaml.safe_load(text) for text in crd_files().values()] == list(crd_documents())


def test_the_definition_and_the_client_agree_on_the_names() -> None:
    document = crd_documents()[0]["spec"]
    resource = DESCHEDULER_POLICIES
    assert (document["group"], document["names"]["plural"]) == (resource.group, resource.plural)
    assert (document["names"]["kind"], document["versions"][0]["name"]) == (resource.kind, resource.version)
    assert document["scope"] == ("Namespaced" if resource.namespaced else "Cluster")


def test_the_columns_are_those_that_users_know() -> None:
    names = [column.name for column in DEFINITIONS[0].columns]
    assert names == ["Mode", "Last Run", "Evicted", "Ready", "Age"]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(crds, arguments)


def test_the_command_writes_what_its_check_accepts(tmp_path: Path) -> None:
    directory, docs = str(tmp_path / "a" / "crds"), str(tmp_path / "docs")

    assert run(directory, "--docs", docs).exit_code == 0
    checked = run("--check", directory, "--docs", docs)

    assert (checked.exit_code, checked.output) == (0, "")


def test_the_check_names_what_is_missing_and_what_drifted(tmp_path: Path) -> None:
    name, *_ = crd_files()
    missing = run("--check", str(tmp_path))
    (tmp_path / name).write_text("kind: Other\n")
    drifted = run("--check", str(tmp_path))

    assert (missing.exit_code, drifted.exit_code) == (1, 1)
    assert missing.output.startswith(f"{tmp_path / name}: is missing")
    assert drifted.output.startswith(f"{tmp_path / name}: is not up to date")
    assert (tmp_path / name).read_text() == "kind: Other\n"


def test_every_strategy_has_its_type() -> None:
    assert tuple(strategy_schema.strategy_types()) == STRATEGIES


def strategy(**params: Any) -> dict[str, Any]:
    inner = {"type": "object", "description": "", "properties": params}
    return {"type": "object", "description": "", "properties": {"enabled": {}, "params": inner}}


def test_a_parameter_of_two_strategies_is_described_with_both_and_keeps_no_default() -> None:
    shared = {"type": "integer", "description": "A number.", "default": 3}
    params, owners = strategy_schema._union_of_params({"One": strategy(n=shared), "Two": strategy(n=shared)})

    assert params == {"n": {"type": "integer", "description": "One and Two: A number."}}
    assert owners == {"n": ("One", "Two")}


def words(text: str, *allowed: str) -> dict[str, Any]:
    return {"type": "array", "description": text, "items": {"type": "string", "enum": list(allowed)}}


def test_a_parameter_that_strategies_describe_differently_has_all_descriptions_and_all_words() -> None:
    by_name = {"One": strategy(n=words("Ones.", "b")), "Two": strategy(n=words("Twos.", "a", "b"))}
    params, _ = strategy_schema._union_of_params(by_name)

    assert params == {"n": words("One: Ones. Two: Twos.", "a", "b")}
    (rule,) = strategy_schema._words(by_name, params)
    assert rule.message == "One.params.n allows b only"


def test_one_name_for_two_parameters_is_refused() -> None:
    two = {
        "One": strategy(n={"type": "integer", "description": "A."}),
        "Two": strategy(n={"type": "string", "description": "A."}),
    }

    with pytest.raises(TypeError, match=r"Two\.params\.n: differs from the parameter of One"):
        strategy_schema._union_of_params(two)


def test_a_required_parameter_is_refused() -> None:
    strict = strategy(n={"type": "integer", "description": "A number."})
    strict["properties"]["params"]["required"] = ["n"]

    with pytest.raises(TypeError, match=r"One\.params: .* cannot have required"):
        strategy_schema._union_of_params({"One": strict})


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
