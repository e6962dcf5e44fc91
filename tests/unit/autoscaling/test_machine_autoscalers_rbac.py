"""The chart's ClusterRole grants what the MachineAutoscaler controller needs; API tests check it on a real server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

from trimtab.autoscaling.machine_autoscalers import KINDS, RULES

ROLES = Path(__file__).parents[3] / "manifests" / "base" / "rbac.yaml"


def rights(rules: Iterable[Mapping[str, list[str]]]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_chart_role_grants_the_rules() -> None:
    names = ("trimtab-cluster-autoscaler", "trimtab-cluster-autoscaler-status")
    rules = [
        rule
        for document in yaml.safe_load_all(ROLES.read_text(encoding="utf-8"))
        if document["kind"] == "ClusterRole" and document["metadata"]["name"] in names
        for rule in document["rules"]
    ]
    watched = {(kind.group, kind.plural, verb) for kind in KINDS for verb in ("list", "watch")}

    assert rights(RULES) | watched <= rights(rules)


def test_rules_only_get_and_patch_targets() -> None:
    targets = {(kind.group, kind.plural) for kind in KINDS}
    assert {verb for group, resource, verb in rights(RULES) if (group, resource) in targets} == {"get", "patch"}
    assert not [right for right in rights(RULES) if right[2] in ("create", "update", "delete", "deletecollection")]
