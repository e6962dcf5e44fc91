"""SchedulerPolicies from plain data: valid ones are decoded, invalid ones are reported by field."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import scheduler_policies
from tests.scheduler_policies import scheduler_policy
from tests.schemas import rule_messages
from trimtab.api.conditions import Condition
from trimtab.api.crds import DEFINITIONS, object_schema
from trimtab.api.decode import InvalidObject, decode_scheduler_policy
from trimtab.api.scalars import GO_DURATION_RULE
from trimtab.api.scheduler_extenders import (
    KEY_OF_CERTIFICATE,
    MANAGED_ONCE,
    ONE_BINDER,
    TIMEOUT_RANGE,
    TLS_OF_HTTPS,
    WEIGHT_OF_PRIORITIES,
)
from trimtab.api.scheduler_plugins import LIST_OF_TYPE, MIN_DOMAINS_OF_HARD, SOME_REQUIREMENT, VALUES_OF_OPERATOR
from trimtab.api.scheduler_policy import (
    MAX_REASONS,
    ONE_FORM,
    ONE_PREDICATE_ARGUMENT,
    ONE_PRIORITY_ARGUMENT,
    SHAPE_ASCENDS,
    SHAPE_OF_TYPE,
    UNKNOWN_PREDICATE,
    UNKNOWN_PRIORITY,
    SchedulerPolicyStatus,
    UnschedulableReason,
)
from trimtab.api.schema import FieldError, check


def rejection(data: Any) -> InvalidObject:
    with pytest.raises(InvalidObject) as rejected:
        decode_scheduler_policy(data, source="scheduler.yaml")
    return rejected.value


def test_all_fields_of_a_legacy_policy_are_decoded() -> None:
    policy = decode_scheduler_policy(scheduler_policy(scheduler_policies.LEGACY)).spec.policy

    assert policy is not None
    assert policy.predicates is not None
    assert policy.priorities is not None
    assert [each.name for each in policy.predicates] == [
        "PodFitsResources",
        "matchnodeselector",
        "Region",
        "NoBuilding",
    ]
    assert [each.weight for each in policy.priorities] == [1, 10_000, 2, 3, 4]
    region = policy.predicates[2].argument
    assert region is not None
    assert region.service_affinity is not None
    assert region.service_affinity.labels == ("region", "example.com/site")
    assert (policy.hard_pod_affinity_weight, policy.always_check_all_predicates) == (10, True)


def test_all_fields_of_a_profile_are_decoded() -> None:
    profile = decode_scheduler_policy(scheduler_policy(scheduler_policies.MODERN)).spec.profile

    assert profile is not None
    assert profile.disabled_filters == ("NodePorts",)
    assert {each.name: each.weight for each in profile.scores} == {"ImageLocality": 0, "NodeResourcesFit": 100}
    assert [each.name for each in profile.scoring_strategy.resources] == ["cpu", "nvidia.com/gpu"]


@pytest.mark.parametrize("spec", scheduler_policies.ACCEPTED.values(), ids=scheduler_policies.ACCEPTED)
def test_valid_policy_is_decoded(spec: str) -> None:
    decode_scheduler_policy(scheduler_policy(spec))


@pytest.mark.parametrize(
    ("spec", "expected"), scheduler_policies.REJECTED.values(), ids=scheduler_policies.REJECTED.keys()
)
def test_invalid_policy_is_rejected_with_its_field(spec: str, expected: tuple[str, ...]) -> None:
    message = str(rejection(scheduler_policy(spec)))

    assert message.startswith("scheduler.yaml: SchedulerPolicy/test: spec")
    for text in expected:
        assert text in message


@pytest.mark.parametrize(
    ("spec", "field"), scheduler_policies.UNKNOWN_FIELDS.values(), ids=scheduler_policies.UNKNOWN_FIELDS.keys()
)
def test_unknown_field_is_rejected_by_name(spec: str, field: str) -> None:
    (error,) = [each for each in rejection(scheduler_policy(spec)).errors if each.field == field]

    assert error.message.startswith("unknown field")


def test_all_errors_are_reported_at_once() -> None:
    spec = (
        "{schedulerName: s, policy: {predicates: [{name: Fits}, {name: Region, argument: {}}], "
        "priorities: [{name: Best, weight: 1}]}}"
    )

    assert [error.field for error in rejection(scheduler_policy(spec)).errors] == [
        "spec.policy.predicates[0].name",
        "spec.policy.predicates[1].argument",
        "spec.policy.priorities[0].name",
    ]


@pytest.mark.parametrize("part", ["spec", "policy", "profile", "provider", "predicates", "priorities"])
@given(
    data=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
        max_leaves=9,
    )
)
def test_random_documents_are_decoded_or_rejected(part: str, data: Any) -> None:
    errors: tuple[FieldError, ...] = ()
    specs = {"spec": data, "predicates": {"policy": {part: data}}, "priorities": {"policy": {part: data}}}
    spec = specs.get(part, {"schedulerName": "s", part: data})
    try:
        decode_scheduler_policy({**scheduler_policy({}), "spec": spec})
    except InvalidObject as error:
        errors = error.errors
    assert all(each.field.startswith("spec") for each in errors)


def test_invalid_status_is_tolerated() -> None:
    policy = decode_scheduler_policy({**scheduler_policy("{schedulerName: s}"), "status": {"queue": 3}})

    assert policy.status == SchedulerPolicyStatus()


def test_every_schema_rule_also_applies_to_files() -> None:
    (definition,) = [each for each in DEFINITIONS if each.kind == "SchedulerPolicy"]
    recorded = "\n".join(str(rejection(scheduler_policy(spec))) for spec, _ in scheduler_policies.REJECTED.values())

    declared = rule_messages(object_schema(definition)["properties"]["spec"])
    assert declared == {
        ONE_FORM,
        ONE_PREDICATE_ARGUMENT,
        ONE_PRIORITY_ARGUMENT,
        SHAPE_ASCENDS,
        SHAPE_OF_TYPE,
        UNKNOWN_PREDICATE,
        UNKNOWN_PRIORITY,
        GO_DURATION_RULE.message,
        KEY_OF_CERTIFICATE,
        MANAGED_ONCE,
        ONE_BINDER,
        TIMEOUT_RANGE,
        TLS_OF_HTTPS,
        WEIGHT_OF_PRIORITIES,
        LIST_OF_TYPE,
        MIN_DOMAINS_OF_HARD,
        SOME_REQUIREMENT,
        VALUES_OF_OPERATOR,
    }
    assert all(message in recorded for message in declared)


def test_largest_status_fits_into_an_object() -> None:
    reasons = tuple(UnschedulableReason("m" * 1024, 9, "e" * 1024) for _ in range(MAX_REASONS))
    conditions = tuple(
        Condition(f"Type{number}", "True", "R" * 1024, "m" * 32768, datetime(2026, 11, 20, tzinfo=UTC))
        for number in range(5)
    )
    full = SchedulerPolicyStatus(conditions=conditions, unschedulable=reasons)
    (definition,) = [each for each in DEFINITIONS if each.kind == "SchedulerPolicy"]
    wire = msgspec.json.encode(full)

    assert check(msgspec.json.decode(wire), object_schema(definition)["properties"]["status"], path="status") == ()
    assert len(wire) < 1_000_000
