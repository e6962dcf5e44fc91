"""Removing any permission of any role in the kustomize base breaks a test of `test_base`."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.unit.manifests import test_base

ROLES = [each for each in test_base.MANIFESTS if each["kind"] in ("ClusterRole", "Role")]
CHECKS: list[Callable[[], None]] = [
    check
    for name, check in inspect.getmembers(test_base, inspect.isfunction)
    if name.startswith("test_") and not inspect.signature(check).parameters and "rights" in inspect.getsource(check)
]
"""Tests that compare the permissions of roles."""


def without_each_permission(role: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Copies of a role that lack one verb on one resource."""
    for number, rule in enumerate(role["rules"]):
        for resource in rule.get("resources", ()):
            for verb in rule["verbs"]:
                less = copy.deepcopy(role)
                others = [each for each in rule["resources"] if each != resource]
                less["rules"][number]["verbs"] = [each for each in rule["verbs"] if each != verb]
                less["rules"].append({**rule, "resources": others} if others else {**rule, "verbs": []})
                yield f"{verb} {resource}", less


def fails(check: Callable[[], None]) -> bool:
    try:
        check()
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("role", ROLES, ids=lambda role: f"{role['kind']}-{role['metadata']['name']}")
def test_removing_any_permission_breaks_a_test(role: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert CHECKS
    unnoticed = []
    for permission, less in without_each_permission(role):
        changed = [less if each is role else each for each in test_base.MANIFESTS]
        monkeypatch.setattr(test_base, "MANIFESTS", changed)
        if not any(map(fails, CHECKS)):
            unnoticed.append(permission)
    assert not unnoticed
