"""The status of a SchedulerPolicy: conditions, counts, and when it is written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from trimtab.api.crds import DEFINITIONS, object_schema
from trimtab.api.scheduler_policy import QueueCounts, SchedulerPolicyStatus, SchedulingCounts, UnschedulableReason
from trimtab.api.schema import check
from trimtab.scheduling.policy_status import (
    WRITE_PERIOD,
    PolicyObservation,
    build_status,
    worth_writing,
)

NOW = 1_800_000_000.0


def observed(**fields: Any) -> PolicyObservation:
    return PolicyObservation(**{"now": NOW, "generation": 3, "scheduler": "packing", **fields})


def built(previous: SchedulerPolicyStatus | None = None, **fields: Any) -> SchedulerPolicyStatus:
    return build_status(observed(**fields), previous or SchedulerPolicyStatus(), base=SchedulingCounts())


def reasons_of(status: SchedulerPolicyStatus) -> dict[str, tuple[str, str]]:
    return {each.type: (each.status, each.reason) for each in status.conditions}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ["True Scheduling", "False Idle", "False AllWell", "False NoConflict"]),
        (
            {"queue": QueueCounts(active=2)},
            ["True Scheduling", "True Scheduling", "False AllWell", "False NoConflict"],
        ),
        (
            {"queue": QueueCounts(unschedulable=2)},
            ["True Scheduling", "False Idle", "False AllWell", "False NoConflict"],
        ),
        (
            {"stale": "the watch of pods is not up to date"},
            ["False ClusterUnreachable", "False Idle", "True ClusterUnreachable", "False NoConflict"],
        ),
        (
            {"owner": "older"},
            [
                "False SchedulerNameConflict",
                "False Idle",
                "True SchedulerNameConflict",
                "True SchedulerNameConflict",
            ],
        ),
        (
            {"others": ("younger",)},
            ["True Scheduling", "False Idle", "False AllWell", "True SchedulerNameConflict"],
        ),
    ],
    ids=["idle", "pending", "unschedulable", "stale", "older policy", "younger policy"],
)
def test_conditions(fields: dict[str, Any], expected: list[str]) -> None:
    status = built(**fields)

    assert list(reasons_of(status)) == ["Ready", "Progressing", "Degraded", "Conflicting"]
    assert [" ".join(each) for each in reasons_of(status).values()] == expected
    assert {each.observed_generation for each in status.conditions} == {status.observed_generation} == {3}


@pytest.mark.parametrize(("field", "value"), [("owner", "older"), ("others", ("younger", "youngest"))])
def test_conflict_names_the_other_policies(field: str, value: Any) -> None:
    [conflicting] = [each for each in built(**{field: value}).conditions if each.type == "Conflicting"]

    assert all(name in conflicting.message for name in ([value] if isinstance(value, str) else value))


def test_counts_continue_those_of_earlier_processes() -> None:
    base, mine = SchedulingCounts(10, 20, 30, 40), SchedulingCounts(1, 2, 3, 4)

    assert build_status(observed(counts=mine), SchedulerPolicyStatus(), base=base).counts == SchedulingCounts(
        scheduled=11, rejected=22, preempted=33, binding_failures=44
    )


def test_conditions_are_written_at_once_and_numbers_once_per_period() -> None:
    before = built()
    numbers = built(before, counts=SchedulingCounts(scheduled=5))
    conflict = built(before, owner="older")

    assert not worth_writing(before, before, written=None, now=NOW)
    assert worth_writing(before, numbers, written=None, now=NOW)
    assert not worth_writing(before, numbers, written=NOW, now=NOW + WRITE_PERIOD - 1)
    assert worth_writing(before, numbers, written=NOW, now=NOW + WRITE_PERIOD)
    assert worth_writing(before, conflict, written=NOW, now=NOW + 1)


def test_status_is_valid_in_the_crd() -> None:
    [definition] = [each for each in DEFINITIONS if each.kind == "SchedulerPolicy"]
    status = built(
        queue=QueueCounts(1, 2, 3, 4),
        unschedulable=(UnschedulableReason("0/1 nodes are available", 3, "shop/web"),),
        owner="x" * 253,
    )

    wire = msgspec.json.decode(msgspec.json.encode(status))
    assert check(wire, object_schema(definition)["properties"]["status"], path="status") == ()
