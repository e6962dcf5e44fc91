"""Files that are made from others are up to date, and the pieces of the chart agree with one another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tools.generate import CHART, between, table
from tools.generate.__main__ import drifted, plain_files
from tools.generate.values import leaves, read_values

import trimtab
from trimtab.api.crds import DEFINITIONS, crd_files
from trimtab.api.decode import decode_policy

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SCHEMA: dict[str, Any] = yaml.safe_load((CHART / "values.schema.json").read_text(encoding="utf-8"))
CHART_YAML: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))


def test_generated_files_are_up_to_date() -> None:
    assert drifted(plain_files()) == [], "run `make generate`"


def test_the_chart_holds_no_other_definitions() -> None:
    assert {path.name for path in (CHART / "crds-generated").iterdir()} == set(crd_files())


def test_every_value_is_described() -> None:
    described = {value.path for value in read_values((CHART / "values.yaml").read_text(encoding="utf-8"))}
    bare = [leaf for leaf in leaves(VALUES) if not any(f"{leaf}.".startswith(f"{path}.") for path in described)]
    assert not bare


def test_schema_matches_the_chart_values() -> None:
    known = {_without_inner_keys(path) for path in _schema_paths(SCHEMA) if not path.startswith("global")}
    assert known == {_without_inner_keys(leaf) for leaf in leaves(VALUES)}


def _without_inner_keys(path: str) -> str:
    """The path of resources or an affinity, whose keys are Kubernetes', without those keys."""
    return re.sub(r"(?<![^.])(resources|affinity)\..*$", r"\1", path)


def test_every_group_of_values_refuses_unknown_keys() -> None:
    groups = [SCHEMA, *(SCHEMA["properties"][name] for name, value in VALUES.items() if isinstance(value, dict))]
    closed = [group.get("additionalProperties") is False or "$ref" in group for group in groups]
    assert all(closed)


def test_full_values_change_every_default() -> None:
    everything = yaml.safe_load((CHART / "ci" / "everything-values.yaml").read_text(encoding="utf-8"))
    # What would switch off what the others show.
    kept = {"controllers.descheduler.enabled", "controllers.clusterAutoscaler.enabled", "leaderElection.enabled"}
    kept |= {"controllers.taintManager.enabled", "crds.install", "rbac.create", "admissionPolicies.enabled"}
    kept |= {"serviceAccount.create", "metrics.service.enabled", "podSecurityContext.runAsNonRoot"}
    kept |= {"admission.podDisruptionBudget.enabled", "admission.hostNetwork"}
    # What a ConfigMap with certificate authorities excludes.
    kept |= {f"controllers.pressure.kubelet.{name}" for name in ("access", "caFile", "insecureSkipTlsVerify")}
    same = [leaf for leaf in leaves(VALUES) if _at(everything, leaf) in (None, _at(VALUES, leaf))]
    assert set(same) == kept


def test_the_catalogue_shows_the_released_image_and_every_definition() -> None:
    annotations = CHART_YAML["annotations"]
    [image] = yaml.safe_load(annotations["artifacthub.io/images"])
    assert image["image"] == f"{VALUES['image']['repository']}:{trimtab.__version__}"
    shown = {(crd["kind"], crd["name"]) for crd in yaml.safe_load(annotations["artifacthub.io/crds"])}
    assert shown == {(definition.kind, definition.name) for definition in DEFINITIONS}


def test_examples_of_the_catalogue_are_valid() -> None:
    for example in yaml.safe_load(CHART_YAML["annotations"]["artifacthub.io/crdsExamples"]):
        assert decode_policy(example).name


def test_a_values_table_takes_descriptions_over_several_lines_and_defaults_of_groups() -> None:
    text = "# -- One\n# line.\na: 1\nb:\n  # not shown\n  c: 2\n  # -- Three.\n  d: {e: [1]}\n"
    found = [(value.path, value.default, value.description) for value in read_values(text)]
    assert found == [("a", 1, "One line."), ("b.d", {"e": [1]}, "Three.")]


def test_only_the_marked_part_is_replaced() -> None:
    text = "a\n<!-- x: made by `make generate` -->\nold\n<!-- end of x -->\nb\n"
    made = between(text, "x", "new")
    assert made == "a\n<!-- x: made by `make generate` -->\n\nnew\n\n<!-- end of x -->\nb\n"
    assert between(made, "x", "new") == made
    with pytest.raises(ValueError, match="no part between"):
        between(text, "y", "new")


def test_table_escapes_cell_separators() -> None:
    assert table(("a", "b"), ("x|y", "z")) == "| a | b |\n| --- | --- |\n| x\\|y | z |\n"


def _schema_paths(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    named = schema.get("$ref", "").removeprefix("#/definitions/")
    properties = SCHEMA["definitions"][named].get("properties") if named else None
    properties = properties or schema.get("properties")
    if not properties:
        yield path
        return
    for name, below in properties.items():
        yield from _schema_paths(below, f"{path}.{name}".strip("."))


def _at(tree: Any, path: str) -> Any:
    for name in path.split("."):
        if not isinstance(tree, dict) or name not in tree:
            return None
        tree = tree[name]
    return tree
