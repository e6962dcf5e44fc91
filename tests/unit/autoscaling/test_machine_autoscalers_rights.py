"""What the controller of MachineAutoscalers needs, the chart's role grants; more is tried on a real API server."""

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


def test_the_charts_role_grants_what_it_takes() -> None:
    [role] = [
        document
        for document in yaml.safe_load_all(ROLES.read_text(encoding="utf-8"))
        if document["kind"] == "ClusterRole" and document["metadata"]["name"] == "trimtab-cluster-autoscaler"
    ]
    watched = {(kind.group, kind.plural, verb) for kind in KINDS for verb in ("list", "watch")}

    assert rights(RULES) | watched <= rights(role["rules"])


def test_targets_are_read_and_patched_and_nothing_else() -> None:
    targets = {(kind.group, kind.plural) for kind in KINDS}
    assert {verb for group, resource, verb in rights(RULES) if (group, resource) in targets} == {"get", "patch"}
    assert not [right for right in rights(RULES) if right[2] in ("create", "update", "delete", "deletecollection")]
