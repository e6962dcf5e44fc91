"""Only the evictor sends evictions and deletions of pods, and only roles of controllers that have it may."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from tools.generate import BASE, CHART

import trimtab

PACKAGE = Path(trimtab.__file__).parent
SENDER = "disruption/evictor/eviction_api.py"
EVICTORS = {"trimtab-descheduler", "trimtab-cluster-autoscaler", "trimtab-taint-manager"}
"""The roles of controllers whose services have an Evictor."""

RULES = (CHART / "templates/_rules.tpl").read_text(encoding="utf-8")


@cache
def calls() -> list[tuple[str, ast.Call]]:
    return [
        (path.relative_to(PACKAGE).as_posix(), node)
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    ]


def names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def texts(node: ast.AST) -> set[str]:
    return {each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)}


def function(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def test_only_one_module_sends_evictions() -> None:
    sites = set()
    for path, call in calls():
        if function(call) == "requirements":  # asks whether evictions are permitted
            continue
        subresources = [texts(each) for each in call.keywords if each.arg == "subresource"]
        if {"eviction"} in subresources or (function(call) == "request" and "/eviction" in " ".join(texts(call))):
            sites.add(path)
    assert sites == {SENDER}


def test_only_one_module_deletes_pods() -> None:
    sites = set()
    for path, call in calls():
        deletes = function(call) == "delete" or (function(call) == "request" and "DELETE" in texts(call))
        if deletes and "PODS" in names(call):
            sites.add(path)
    assert sites == {SENDER}


def test_other_deletions_name_their_resource() -> None:
    """``verbs.delete`` with a resource that the call does not name could be of pods."""
    unnamed = [
        f"{path}:{call.lineno}"
        for path, call in calls()
        if function(call) == "delete"
        and isinstance(call.func, ast.Attribute)
        and names(call.func) == {"verbs"}
        and not any(name.isupper() for name in names(call))
    ]
    assert unnamed == []


# --- rights ----------------------------------------------------------------------------------------------------------


def granted(role: dict[str, Any]) -> set[tuple[str, str]]:
    return {
        (resource, verb)
        for rule in role["rules"] or ()
        if "" in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def roles() -> list[dict[str, Any]]:
    return [
        document
        for path in sorted(BASE.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        if document and document["kind"] in ("ClusterRole", "Role")
    ]


def test_only_controllers_with_an_evictor_may_evict() -> None:
    """The base has the chart's defaults, with which a TaintManager only observes."""
    may = {role["metadata"]["name"] for role in roles() if ("pods/eviction", "create") in granted(role)}
    assert may == EVICTORS - {"trimtab-taint-manager"}


def test_by_default_no_controller_may_delete_pods() -> None:
    """With more rights the taint manager may: see the test of the chart's templates."""
    assert not any(("pods", "delete") in granted(role) for role in roles())
    assert not any(("pods", "deletecollection") in granted(role) for role in roles())


def delete_verbs(template: Path) -> list[int]:
    """The lines of a template that grant deleting pods."""
    lines = template.read_text(encoding="utf-8").splitlines()
    return [
        number
        for number, line in enumerate(lines)
        if "delete" in line and "verbs" in line and "pods]" in lines[number - 1]
    ]


def test_only_some_controllers_may_delete_pods_if_chart_values_grant_it() -> None:
    found = {path.name: lines for path in sorted((CHART / "templates").glob("*")) if (lines := delete_verbs(path))}
    conditions = {
        "rbac-pressure.yaml": ("controllers.pressure.enabled",),
        "rbac-scheduler.yaml": ("controllers.scheduler.enabled",),
        "rbac-taint-manager.yaml": ("controllers.taintManager.enabled", "taintManager.rights"),
    }
    assert found.keys() == conditions.keys()
    for name, [line] in found.items():
        before = "\n".join((CHART / "templates" / name).read_text(encoding="utf-8").splitlines()[:line])
        assert all(each in before for each in conditions[name])
