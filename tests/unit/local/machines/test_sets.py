from __future__ import annotations

from typing import Any

import pytest

from tests.unit.local.machines.objects import LABELS, NOW, machine, owner
from trimtab.local.machines.live import FINALIZER
from trimtab.local.machines.orders import BOOT_TIME, FAIL, HOLD, NEVER_JOIN, QUOTA, STATUS_REPLICAS
from trimtab.local.machines.ranks import DELETE_MACHINE
from trimtab.local.machines.sets import of_set, plan_set, status_of

AB = [machine("a", node="a"), machine("b", node="b")]


def told(births: tuple[dict[str, Any], ...]) -> list[dict[str, str]]:
    return [each["metadata"].get("annotations", {}) for each in births]


def test_missing_machines_are_made_from_the_template() -> None:
    plan = plan_set(owner(3), AB, now=NOW)

    [birth] = plan.births
    metadata = birth["metadata"]
    assert metadata["generateName"] == "workers-"
    assert metadata["labels"] == LABELS
    assert metadata["finalizers"] == [FINALIZER]
    assert [(each["name"], each["uid"], each["controller"]) for each in metadata["ownerReferences"]] == [
        ("workers", "set-1", True)
    ]
    assert birth["spec"] == {"metadata": {"labels": {"role": "worker"}}}
    assert not plan.deaths


def test_failed_machines_count_and_those_being_deleted_do_not() -> None:
    assert not plan_set(owner(1), [machine("a", failed=True)], now=NOW).births
    assert len(plan_set(owner(1), [machine("a", deleting=True)], now=NOW).births) == 1


def test_what_is_too_much_goes_the_marked_first() -> None:
    plan = plan_set(owner(1), [*AB, machine("c", node="c", mark=DELETE_MACHINE)], now=NOW)

    assert [each.name for each in plan.deaths] == ["c", "a"]


@pytest.mark.parametrize(
    ("annotations", "machines", "births", "used_up"),
    [
        ({BOOT_TIME: "9s"}, AB, [{BOOT_TIME: "9s"}] * 3, {}),
        ({FAIL: "CreateError:2"}, AB, [{FAIL: "CreateError"}] * 2 + [{}], {FAIL: None}),
        ({FAIL: "CreateError:5"}, AB, [{FAIL: "CreateError"}] * 3, {FAIL: "CreateError:2"}),
        ({FAIL: "CreateError"}, AB, [{FAIL: "CreateError"}] * 3, {}),
        ({NEVER_JOIN: "1"}, AB, [{NEVER_JOIN: "true"}, {}, {}], {NEVER_JOIN: None}),
        ({NEVER_JOIN: "true"}, AB, [{NEVER_JOIN: "true"}] * 3, {}),
        ({QUOTA: "3"}, AB, [{}, {FAIL: "InsufficientResources"}, {FAIL: "InsufficientResources"}], {}),
        (
            {FAIL: "CreateError:1", NEVER_JOIN: "4", QUOTA: "3"},
            AB,
            [{FAIL: "CreateError"}, {NEVER_JOIN: "true"}, {FAIL: "InsufficientResources"}],
            {FAIL: None, NEVER_JOIN: "3"},
        ),
    ],
    ids=["boot", "fail-2", "fail-5", "fail-all", "lonely-1", "lonely-all", "quota", "together"],
)
def test_orders_are_written_on_new_machines_and_counted_down(annotations, machines, births, used_up) -> None:
    plan = plan_set(owner(5, annotations=annotations), machines, now=NOW)

    assert told(plan.births) == births
    assert plan.used_up == used_up


def test_a_quota_counts_machines_that_are_going_and_not_those_that_failed() -> None:
    machines = [machine("a", deleting=True), machine("b", failed=True), machine("c", annotations={FAIL: "CreateError"})]

    plan = plan_set(owner(4, annotations={QUOTA: "2"}), machines, now=NOW)

    assert told(plan.births) == [{}, {FAIL: "InsufficientResources"}]


def test_a_set_that_holds_or_is_being_deleted_does_nothing() -> None:
    held = owner(9, annotations={HOLD: "true"})
    going = owner(9)
    going.metadata["deletionTimestamp"] = "2026-11-20T12:00:00Z"

    assert not plan_set(held, AB, now=NOW).births
    assert not plan_set(going, AB, now=NOW).births


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"annotations": {QUOTA: "x"}}, "annotation local.trimtab.dev/quota must be a whole number"),
        ({"selector": {"matchLabels": {"a": "b"}}}, "spec.template.metadata.labels lack a=b of spec.selector"),
        ({"selector": {}}, "spec.selector.matchLabels must name the labels"),
    ],
    ids=["order", "selector", "no-selector"],
)
def test_a_set_that_cannot_be_right_makes_nothing_and_says_why(given: dict[str, Any], problem: str) -> None:
    wrong = owner(9, **given)

    plan = plan_set(wrong, AB, now=NOW)

    assert not plan.births
    assert plan.problems[0].startswith(problem)
    status, _ = status_of(wrong, AB, lambda _: None, now=NOW)
    assert (status["errorReason"], status["errorMessage"]) == ("InvalidConfiguration", plan.problems[0])


def test_the_status_counts() -> None:
    machines = [*AB, machine("c"), machine("d", labels={}), machine("e", node="e", deleting=True)]

    status, again = status_of(owner(4), machines, {"a": NOW - 5, "e": NOW - 5}.get, now=NOW)

    assert status == {
        "replicas": 4,
        "fullyLabeledReplicas": 3,
        "readyReplicas": 1,
        "availableReplicas": 1,
        "observedGeneration": 3,
        "errorReason": None,
        "errorMessage": None,
    }
    assert again is None


def test_a_node_is_available_once_it_has_been_ready_long_enough() -> None:
    status, again = status_of(owner(2, minReadySeconds=30), AB, {"a": NOW - 40, "b": NOW - 10}.get, now=NOW)

    assert (status["readyReplicas"], status["availableReplicas"], again) == (2, 1, 20.0)


def test_a_set_lies_where_it_was_told_to() -> None:
    status, _ = status_of(owner(2, annotations={STATUS_REPLICAS: "7"}), AB, lambda _: None, now=NOW)
    assert status["replicas"] == 7


def test_machines_are_the_sets_by_the_uid_of_their_controller() -> None:
    other = machine("x")
    other.metadata["ownerReferences"] = [{"name": "workers", "uid": "another", "controller": True}]

    assert of_set([AB[1], other, AB[0]], owner()) == AB
