"""Conditions, the status as a patch, and the reason codes."""

from __future__ import annotations

import re

import msgspec
import pytest

from tests.fakes.api import merged
from trimtab.api import reasons
from trimtab.api.base import status_patch
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus, KeptNode, LastIteration, NodeGroupStatus
from trimtab.api.conditions import (
    DEGRADED,
    PROGRESSING,
    READY,
    Condition,
    ConditionStatus,
    find_condition,
    is_true,
    set_condition,
)
from trimtab.api.descheduler_status import DeschedulerStatus, Eviction, LastRun
from trimtab.api.scalars import to_time


def ready(
    conditions: tuple[Condition, ...] = (),
    status: ConditionStatus | bool = True,
    *,
    now: float = 100,
    reason: str = "CycleCompleted",
    message: str = "ok",
    generation: int = 1,
) -> tuple[Condition, ...]:
    return set_condition(conditions, READY, status, reason=reason, message=message, now=now, generation=generation)


def test_transition_time_changes_only_with_the_status() -> None:
    first = ready(now=100)
    second = ready(first, now=200, reason="Other", message="other", generation=2)
    third = ready(second, False, now=300)

    assert [each[0].last_transition_time for each in (first, second, third)] == [
        to_time(100),
        to_time(100),
        to_time(300),
    ]
    assert (second[0].reason, second[0].message, second[0].observed_generation) == ("Other", "other", 2)


def test_unchanged_condition_returns_the_same_tuple() -> None:
    first = ready(now=100)

    assert ready(first, now=999) is first


def test_condition_order_is_fixed_and_unknown_types_are_kept() -> None:
    other = Condition(type="Audited", status="True", reason="R", message="", last_transition_time=to_time(0))
    conditions: tuple[Condition, ...] = (other,)
    for type_ in (DEGRADED, READY, PROGRESSING):
        conditions = set_condition(conditions, type_, False, reason="R", message="", now=1, generation=1)

    assert [condition.type for condition in conditions] == [READY, PROGRESSING, DEGRADED, "Audited"]
    assert find_condition(conditions, "Audited") is other


@pytest.mark.parametrize(("given", "status"), [(True, "True"), (False, "False"), ("Unknown", "Unknown")])
def test_a_status_is_true_false_or_unknown(given: ConditionStatus | bool, status: str) -> None:
    conditions = ready((), given)

    assert conditions[0].status == status
    assert is_true(conditions, READY) is (status == "True")


def test_missing_condition_is_not_true() -> None:
    assert not is_true((), READY)


def test_long_message_is_truncated() -> None:
    assert len(ready(message="x" * 40_000)[0].message) == 32_768


def test_status_patch_deletes_missing_fields_without_nulls_in_lists() -> None:
    eviction = Eviction(namespace="a", pod="b", strategy="S", reason="R", time=to_time(0))
    status = DeschedulerStatus(last_run=LastRun(time=to_time(1)), last_evictions=(eviction,), conditions=ready())

    patch = status_patch(status)

    assert patch["nextRun"] is None
    assert patch["lastRun"]["completed"] is None
    assert patch["lastRun"]["time"] == "1970-01-01T00:00:01Z"
    assert None not in patch["lastEvictions"][0].values()
    assert msgspec.convert(merged({}, patch), DeschedulerStatus) == status


def test_status_patch_deletes_empty_fields_and_keeps_zeros() -> None:
    group = NodeGroupStatus(id="a", troubled=("m-1",))
    before = ClusterAutoscalerStatus(
        node_groups=(group,),
        kept=(KeptNode(name="n1", reason="BlockedByPod", blocking_pod="shop/web"),),
        kept_omitted=3,
        try_again="1",
        conditions=ready(),
        last_iteration=LastIteration(time=to_time(1), pending_pods=2),
    )
    after = ClusterAutoscalerStatus(
        node_groups=(msgspec.structs.replace(group, troubled=()),),
        conditions=ready(message=""),
        last_iteration=LastIteration(time=to_time(2)),
    )

    stored = merged(merged({}, status_patch(before)), status_patch(after))

    assert stored.keys() == {"observedGeneration", "conditions", "nodeGroups", "lastIteration"}
    assert not {"troubled", "paused", "lastError"} & stored["nodeGroups"][0].keys()
    assert (stored["nodeGroups"][0]["ready"], stored["lastIteration"]["pendingPods"]) == (0, 0)
    assert stored["conditions"][0]["message"] == "", "metav1.Condition requires it"
    assert msgspec.convert(stored, ClusterAutoscalerStatus) == after


CODES = {name: value for name, value in vars(reasons).items() if name.isupper()}


def test_reason_codes_equal_their_names_in_camel_case() -> None:
    assert {name: "".join(part.capitalize() for part in name.split("_")) for name in CODES} == CODES
    assert [code for code in CODES.values() if not re.fullmatch("[A-Z][A-Za-z]{2,127}", code)] == []


def test_no_two_reasons_share_a_code() -> None:
    assert len(set(CODES.values())) == len(CODES)
