from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.local.machines.objects import LABELS, NOW, machine, owner
from trimtab_local.machines.machine import FINALIZER
from trimtab_local.machines.orders import BOOT_TIME, FAIL, HOLD, NEVER_JOIN, QUOTA, STATUS_REPLICAS
from trimtab_local.machines.sets import (
    DELETE_MACHINE,
    OLD_DELETE_MACHINE,
    POLICIES,
    deletion_order,
    of_set,
    plan_set,
    rank,
    status_of,
)

DAY = 86_400.0


@pytest.mark.parametrize(
    ("given", "random", "newest", "oldest"),
    [
        ({"deleting": True, "node": "n"}, 100, 100, 100),
        ({"mark": DELETE_MACHINE, "node": "n"}, 50, 100, 100),
        ({"mark": OLD_DELETE_MACHINE, "node": "n"}, 20, 99.99, 100),
        ({"annotations": {DELETE_MACHINE: ""}, "node": "n"}, 20, 99.99, 0.01),
        ({"failed": True, "node": "n"}, 50, 100, 100),
        ({"failed": True}, 50, 100, 100),
        ({}, 40, 99.99, 0.01),
        ({"node": "n"}, 20, 99.99, 0.01),
        ({"node": "n", "age": 10 * DAY}, 20, 36.79, 63.21),
        ({"node": "n", "age": -5.0}, 20, 100, 0),
    ],
    ids=[
        "deleting",
        "marked",
        "marked-as-of-old",
        "mark-empty",
        "failed",
        "failed-early",
        "no-node",
        "fine",
        "old",
        "-",
    ],
)
def test_machines_rank_as_in_the_machine_api(
    given: dict[str, Any], random: float, newest: float, oldest: float
) -> None:
    live = machine(**given)

    ranks = [rank(live, policy=policy, now=NOW) for policy in POLICIES]

    assert ranks == pytest.approx([random, newest, oldest], abs=0.01)


@pytest.mark.parametrize("policy", POLICIES)
def test_marked_and_failed_machines_rank_equally_by_name(policy: str) -> None:
    machines = [machine("b", mark=DELETE_MACHINE, node="b"), machine("a", failed=True), machine("c", node="c")]

    assert [each.name for each in deletion_order(machines, 1, policy=policy, now=NOW)] == ["a"]
    assert [each.name for each in deletion_order(machines, 2, policy=policy, now=NOW)] == ["a", "b"]


def test_ignored_marks_have_no_effect() -> None:
    machines = [machine("a", node="a"), machine("b", node="b", mark=DELETE_MACHINE)]

    assert [each.name for each in deletion_order(machines, 1, now=NOW, ignore_marks=True)] == ["a"]
    assert [each.name for each in deletion_order(machines, 1, now=NOW)] == ["b"]


@given(st.permutations("abcdefg"), st.integers(-1, 9), st.sampled_from(POLICIES))
def test_deleted_machines_do_not_depend_on_the_order(names: list[str], count: int, policy: str) -> None:
    machines = [machine(name, failed=name in "bd", node=name, age=float(ord(name))) for name in names]

    deleted = deletion_order(machines, count, policy=policy, now=NOW)

    assert deleted == deletion_order(sorted(machines, key=lambda each: each.name), count, policy=policy, now=NOW)
    assert len(deleted) == max(0, min(count, 7))


AB = [machine("a", node="a"), machine("b", node="b")]


def recorded(to_create: tuple[dict[str, Any], ...]) -> list[dict[str, str]]:
    return [each["metadata"].get("annotations", {}) for each in to_create]


def test_missing_machines_are_created_from_the_template() -> None:
    plan = plan_set(owner(3), AB, now=NOW)

    [birth] = plan.to_create
    metadata = birth["metadata"]
    assert metadata["generateName"] == "workers-"
    assert metadata["labels"] == LABELS
    assert metadata["finalizers"] == [FINALIZER]
    assert [(each["name"], each["uid"], each["controller"]) for each in metadata["ownerReferences"]] == [
        ("workers", "set-1", True)
    ]
    assert birth["spec"] == {"metadata": {"labels": {"role": "worker"}}}
    assert not plan.to_delete


def test_failed_machines_count_and_those_being_deleted_do_not() -> None:
    assert not plan_set(owner(1), [machine("a", failed=True)], now=NOW).to_create
    assert len(plan_set(owner(1), [machine("a", deleting=True)], now=NOW).to_create) == 1


def test_excess_machines_are_deleted_marked_ones_first() -> None:
    plan = plan_set(owner(1), [*AB, machine("c", node="c", mark=DELETE_MACHINE)], now=NOW)

    assert [each.name for each in plan.to_delete] == ["c", "a"]


@pytest.mark.parametrize(
    ("annotations", "machines", "to_create", "annotation_changes"),
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
def test_failures_are_copied_to_new_machines_and_counted_down(
    annotations, machines, to_create, annotation_changes
) -> None:
    plan = plan_set(owner(5, annotations=annotations), machines, now=NOW)

    assert recorded(plan.to_create) == to_create
    assert plan.annotation_changes == annotation_changes


def test_quota_counts_terminating_machines_and_not_failed_ones() -> None:
    machines = [machine("a", deleting=True), machine("b", failed=True), machine("c", annotations={FAIL: "CreateError"})]

    plan = plan_set(owner(4, annotations={QUOTA: "2"}), machines, now=NOW)

    assert recorded(plan.to_create) == [{}, {FAIL: "InsufficientResources"}]


def test_held_or_terminating_machine_set_does_nothing() -> None:
    held = owner(9, annotations={HOLD: "true"})
    going = owner(9)
    going.metadata["deletionTimestamp"] = "2026-11-20T12:00:00Z"

    assert not plan_set(held, AB, now=NOW).to_create
    assert not plan_set(going, AB, now=NOW).to_create


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"annotations": {QUOTA: "x"}}, "annotation local.trimtab.dev/quota must be a whole number"),
        ({"selector": {"matchLabels": {"a": "b"}}}, "spec.template.metadata.labels lack a=b of spec.selector"),
        ({"selector": {}}, "spec.selector.matchLabels must name the labels"),
    ],
    ids=["order", "selector", "no-selector"],
)
def test_invalid_machine_set_creates_nothing_and_reports_why(given: dict[str, Any], problem: str) -> None:
    wrong = owner(9, **given)

    plan = plan_set(wrong, AB, now=NOW)

    assert not plan.to_create
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
