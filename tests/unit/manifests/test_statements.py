"""Statements of the documentation about permissions and CRDs, compared with the manifests."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from tools.generate import BASE, CHART, ROOT

from trimtab.api.crds import crd_documents

CHART_README = (CHART / "README.md").read_text()
RBAC = [each for each in yaml.safe_load_all((BASE / "rbac.yaml").read_text()) if each]
"""The roles and bindings of the chart with its default values: the kustomize base equals the rendered chart."""


def bound_roles() -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The rules of the roles that are bound to the operator's service account, by kind and name."""
    bound = {
        (each["roleRef"]["kind"], each["roleRef"]["name"])
        for each in RBAC
        if each["kind"].endswith("Binding") and any(subject["name"] == "trimtab" for subject in each["subjects"])
    }
    return {
        (each["kind"], each["metadata"]["name"]): each["rules"]
        for each in RBAC
        if (each["kind"], each["metadata"]["name"]) in bound
    }


def roles_with(resource: str, *verbs: str) -> set[str]:
    """The names of the operator's roles that grant one of the verbs on a resource."""
    return {
        name
        for (_, name), rules in bound_roles().items()
        for rule in rules
        if {resource, "*"} & set(rule.get("resources", ())) and {*verbs, "*"} & set(rule["verbs"])
    }


def test_operator_has_roles() -> None:
    assert {name for _, name in bound_roles()} >= {"trimtab-descheduler", "trimtab-cluster-autoscaler"}


def test_default_operator_may_not_delete_pods_or_machines_or_read_secrets() -> None:
    assert "With the default values the operator has no permission to delete pods or machines or to read Secrets" in (
        " ".join(CHART_README.split())
    )
    for resource in ("pods", "machines", "nodes"):
        assert roles_with(resource, "delete", "deletecollection") == set()
    assert roles_with("secrets", "get", "list", "watch") == set()


def test_descheduler_and_autoscaler_have_no_permission_to_delete_pods() -> None:
    design = " ".join((ROOT / "docs/design.md").read_text().split())
    assert "Their roles have no permission to delete pods" in design
    for name in ("descheduler", "cluster-autoscaler"):
        source = (CHART / f"templates/rbac-{name}.yaml").read_text()
        assert not re.search(r"resources: \[[^]]*\bpods\b[^]]*\]\s+verbs: \[[^]]*delete", source)


def test_without_the_autoscaler_default_operator_may_not_write_to_nodes() -> None:
    assert roles_with("nodes", "patch", "update", "create") == {"trimtab-cluster-autoscaler"}


def test_table_of_the_chart_has_every_role() -> None:
    listed = set(re.findall(r"^\| `…-([a-z-]+)` \(", CHART_README, re.MULTILINE))

    made = {each["metadata"]["name"] for each in RBAC if each["kind"] in {"ClusterRole", "Role"}}
    assert {name.removeprefix("trimtab-") for name in made} <= listed


def own_crds() -> list[str]:
    names = [document["metadata"]["name"] for document in crd_documents()]
    return [name for name in names if name.endswith(".trimtab.dev")]


@pytest.mark.parametrize("page", ["docs/tasks/install.md", "manifests/charts/trimtab/README.md"])
def test_uninstall_instructions_name_every_crd_of_trimtab(page: str) -> None:
    text = (ROOT / page).read_text()
    assert [name for name in own_crds() if name not in text] == []
    for left in ("trimtab-acting", "cluster-autoscaler-status", "trimtab-taint-manager"):
        assert left in text
