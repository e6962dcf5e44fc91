"""What ``trimtab doctor`` finds, from the status of the operator and from access reviews."""

from __future__ import annotations

from typing import Any

import pytest

from trimtab.inspection.doctor import check_definitions, check_status, check_user, doctor_document, missing_rules
from trimtab.kube.permissions import Permission
from trimtab.kube.resources import BUDGETS, NODES, PODS


def status(*resources: dict[str, Any], running: bool | None = True, leaders: int = 1) -> dict[str, Any]:
    operator = {"running": running, "message": "", "leaders": [{}] * leaders}
    return {"operator": operator, "invalid": [], "resources": list(resources)}


def resource(state: str, *reasons: str) -> dict[str, Any]:
    blocks = [{"reason": each, "message": "", "since": None} for each in reasons]
    return {"kind": "TaintManager", "name": "default", "namespace": "", "state": state, "blockedBy": blocks}


@pytest.mark.parametrize(
    ("running", "leaders", "result", "reason"),
    [
        (True, 1, "Ok", ""),
        (False, 0, "Failed", ""),
        (None, 0, "Unknown", ""),
        (True, 2, "Failed", "AnotherOperatorActive"),
    ],
)
def test_one_running_operator_is_expected(running: bool | None, leaders: int, result: str, reason: str) -> None:
    [found] = check_status(status(running=running, leaders=leaders))

    assert (found.subject, found.result, found.reason) == ("operator", result, reason)


@pytest.mark.parametrize(
    ("state", "reasons", "found"),
    [
        ("Idle", [], [("Ok", "")]),
        ("Waiting", ["PodDisruptionBudget"], [("Ok", "")]),
        ("Degraded", ["PermissionsMissing", "PlanStale"], [("Failed", "PermissionsMissing"), ("Failed", "PlanStale")]),
        ("Unknown", [], [("Failed", "")]),
    ],
)
def test_each_problem_of_a_resource_is_a_check(state: str, reasons: list[str], found: list[tuple[str, str]]) -> None:
    _, *checks = check_status(status(resource(state, *reasons)))

    assert [(each.result, each.reason) for each in checks] == found
    assert {each.subject for each in checks} == {"TaintManager/default"}


def test_all_missing_permissions_are_in_one_check_and_as_rules() -> None:
    missing = [Permission("list", each) for each in (PODS, NODES, BUDGETS)]

    document = doctor_document([check_user(missing, 20), check_definitions({"a.b": True})], missing)

    assert not document["healthy"]
    assert [(each["subject"], each["result"]) for each in document["checks"]] == [
        ("user", "Failed"),
        ("definitions", "Ok"),
    ]
    assert all(each.text in document["checks"][0]["message"] for each in missing)
    assert missing_rules(missing) == [
        {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]},
        {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["list"]},
    ]


def test_a_missing_definition_fails() -> None:
    found = check_definitions({"deschedulerpolicies.trimtab.dev": True, "historyrecords.trimtab.dev": False})

    assert (found.result, found.reason) == ("Failed", "ResourceNotServed")
    assert "historyrecords.trimtab.dev" in found.message
    assert "deschedulerpolicies" not in found.message
