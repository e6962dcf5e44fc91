"""PlacementAdmissions from plain data: valid ones are decoded, invalid ones are reported by field."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import placement_admissions
from tests.placement_admissions import placement_admission
from tests.schemas import rule_messages
from trimtab.api.conditions import Condition
from trimtab.api.crds import DEFINITIONS, object_schema
from trimtab.api.decode import InvalidObject, decode_placement_admission
from trimtab.api.placement_admission import (
    KEY_OF_EXISTS,
    MAX_COUNTS,
    MAX_REFUSALS,
    MAX_REPLICAS,
    ONE_CLASS_PER_TAINT,
    ONE_FOR_ALL,
    ONE_POOL_PER_TAINT,
    PROTECTED_TAINTS_OF_CHECK,
    SECONDS_OF_NO_EXECUTE,
    SOME_CHARACTERISTIC,
    SOME_SUBJECT,
    VALUE_OF_EQUAL,
    HardwareClass,
    NodeLabel,
    NodeTaint,
    PlacementAdmissionStatus,
    PodToleration,
    RecentRefusal,
    ReplicaStatus,
    Result,
    RuleCount,
    RuleName,
    parse_node_selector,
)
from trimtab.api.schema import FieldError, check

NOW = datetime(2026, 11, 23, tzinfo=UTC)
[DEFINITION] = [each for each in DEFINITIONS if each.kind == "PlacementAdmission"]


def rejection(data: Any) -> InvalidObject:
    with pytest.raises(InvalidObject) as rejected:
        decode_placement_admission(data, source="admission.yaml")
    return rejected.value


def test_all_fields_are_decoded() -> None:
    spec = decode_placement_admission(placement_admission(placement_admissions.EVERYTHING)).spec

    assert (spec.mode, spec.exempt_namespaces) == ("Warn", ("openshift-infra", "monitoring"))
    assert spec.pod_node_constraints is not None
    assert spec.pod_node_constraints.failure_policy == "Ignore"
    assert spec.pod_node_selector is not None
    assert (spec.pod_node_selector.check_updates, spec.pod_node_selector.exempt_daemon_set_pods) == (False, True)
    assert spec.default_toleration_seconds is not None
    assert spec.default_toleration_seconds.unreachable_toleration_seconds == 0
    assert spec.pod_toleration_restriction is not None
    assert spec.pod_toleration_restriction.tolerations_whitelist[1] == PodToleration(
        key="dedicated", value="team-a", effect="NoExecute", toleration_seconds=3600
    )
    assert spec.extended_resource_toleration is not None
    assert spec.dedicated_nodes is not None
    assert spec.dedicated_nodes.pools[0].node_label == NodeLabel("example.com/pool", "team-a")
    assert spec.special_hardware is not None
    assert spec.special_hardware.classes[1] == HardwareClass(
        name="ssd", taint=NodeTaint("disktype", "ssd", "PreferNoSchedule"), pod_labels={"disk": "fast"}
    )


def test_rules_that_refuse_fail_closed_and_rules_that_only_add_fail_open() -> None:
    spec = decode_placement_admission(placement_admission(placement_admissions.ACCEPTED["rules with their defaults"]))

    rules = {name: getattr(spec.spec, name).failure_policy for name in _RULES}
    assert rules == {
        "pod_node_constraints": "Fail",
        "pod_node_selector": "Fail",
        "default_toleration_seconds": "Ignore",
        "pod_toleration_restriction": "Fail",
        "extended_resource_toleration": "Ignore",
    }


_RULES = (
    "pod_node_constraints",
    "pod_node_selector",
    "default_toleration_seconds",
    "pod_toleration_restriction",
    "extended_resource_toleration",
)


@pytest.mark.parametrize("spec", placement_admissions.ACCEPTED.values(), ids=placement_admissions.ACCEPTED)
def test_valid_admission_is_decoded(spec: str) -> None:
    decode_placement_admission(placement_admission(spec))


@pytest.mark.parametrize(
    ("spec", "expected"), placement_admissions.REJECTED.values(), ids=placement_admissions.REJECTED.keys()
)
def test_invalid_admission_is_rejected_with_its_field(spec: str, expected: tuple[str, ...]) -> None:
    message = str(rejection(placement_admission(spec)))

    assert message.startswith("admission.yaml: PlacementAdmission/default: spec")
    for text in expected:
        assert text in message


def test_admission_of_another_name_is_rejected() -> None:
    assert [str(error) for error in rejection(placement_admission("{}", name="other")).errors] == [
        f"metadata.name: {ONE_FOR_ALL}; not other"
    ]


def test_spec_may_be_omitted() -> None:
    manifest = {key: value for key, value in placement_admission("{}").items() if key != "spec"}

    assert decode_placement_admission(manifest) == decode_placement_admission(placement_admission("{}"))


@pytest.mark.parametrize(
    ("spec", "field"), placement_admissions.UNKNOWN_FIELDS.values(), ids=placement_admissions.UNKNOWN_FIELDS.keys()
)
def test_unknown_field_is_rejected_by_name(spec: str, field: str) -> None:
    (error,) = [each for each in rejection(placement_admission(spec)).errors if each.field == field]

    assert error.message.startswith("unknown field")


def test_all_errors_are_reported_at_once() -> None:
    spec = (
        "{podNodeConstraints: {protectedTaints: [{key: a}]}, podTolerationRestriction: {tolerationsWhitelist: "
        "[{value: a}, {key: b, operator: Exists, value: c}]}, dedicatedNodes: {pools: [{name: a, taint: {key: a}}]}}"
    )

    assert [error.field for error in rejection(placement_admission(spec)).errors] == [
        "spec.podNodeConstraints.protectedTaints",
        "spec.podTolerationRestriction.tolerationsWhitelist[0].operator",
        "spec.podTolerationRestriction.tolerationsWhitelist[1].value",
        "spec.dedicatedNodes.pools[0]",
    ]


@pytest.mark.parametrize(
    "part",
    [
        "spec",
        "podNodeConstraints",
        "podNodeSelector",
        "podTolerationRestriction",
        "dedicatedNodes",
        "specialHardware",
        "pools",
        "classes",
    ],
)
@given(
    data=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
        max_leaves=9,
    )
)
def test_random_documents_are_decoded_or_rejected(part: str, data: Any) -> None:
    errors: tuple[FieldError, ...] = ()
    specs = {"spec": data, "pools": {"dedicatedNodes": {part: data}}, "classes": {"specialHardware": {part: data}}}
    try:
        decode_placement_admission({**placement_admission({}), "spec": specs.get(part, {part: data})})
    except InvalidObject as error:
        errors = error.errors
    assert all(each.field.startswith("spec") for each in errors)


def test_invalid_status_is_tolerated() -> None:
    admission = decode_placement_admission({**placement_admission("{}"), "status": {"counts": 3}})

    assert admission.status == PlacementAdmissionStatus()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("region=west,env=test", {"region": "west", "env": "test"}),
        (" region = west , env=", {"region": "west", "env": ""}),
        ("region=west,region=east", {"region": "east"}),
    ],
)
def test_node_selector_is_parsed_as_by_the_plugin(text: str, found: dict[str, str]) -> None:
    assert parse_node_selector(text) == found


@pytest.mark.parametrize("text", ["region", "a=b,", ",", "a==b", "a!=b", "=b", "a=b c", "-a=b", f"a={'b' * 64}"])
def test_invalid_node_selector_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="must be key=value pairs separated by commas"):
        parse_node_selector(text)


def test_every_schema_rule_also_applies_to_files() -> None:
    specs = [placement_admission(spec) for spec, _ in placement_admissions.REJECTED.values()]
    recorded = "\n".join(str(rejection(each)) for each in [*specs, placement_admission("{}", name="other")])

    declared = rule_messages(object_schema(DEFINITION))
    assert declared == {
        KEY_OF_EXISTS,
        ONE_CLASS_PER_TAINT,
        ONE_FOR_ALL,
        ONE_POOL_PER_TAINT,
        PROTECTED_TAINTS_OF_CHECK,
        SECONDS_OF_NO_EXECUTE,
        SOME_CHARACTERISTIC,
        SOME_SUBJECT,
        VALUE_OF_EQUAL,
    }
    assert all(message in recorded for message in declared)


def test_status_has_room_for_all_rules_and_results() -> None:
    assert len(get_args(RuleName)) * len(get_args(Result)) <= MAX_COUNTS


def test_largest_status_fits_into_an_object() -> None:
    conditions = tuple(Condition(f"Type{number}", "True", "R" * 1024, "m" * 32768, NOW) for number in range(5))
    refusal = RecentRefusal(NOW, "PodNodeConstraints", "k" * 253, "n" * 253, "p" * 253, "m" * 1024)
    full = PlacementAdmissionStatus(
        conditions=conditions,
        counts=tuple(RuleCount(rule, result, 2**40) for rule in get_args(RuleName) for result in get_args(Result)),
        recent_refusals=(refusal,) * MAX_REFUSALS,
        replicas=tuple(ReplicaStatus(f"{'r' * 250}{number}", NOW, NOW) for number in range(MAX_REPLICAS)),
    )
    wire = msgspec.json.encode(full)

    assert check(msgspec.json.decode(wire), object_schema(DEFINITION)["properties"]["status"], path="status") == ()
    assert len(wire) < 1_000_000
